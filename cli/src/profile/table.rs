//! A profile as people read it.

use std::fmt::Write as _;

use bulkhead_softgpu::Counts;

use super::lines::{Profile, Profiled};
use crate::source::readable;

/// Kernels and lines that are shown.
const KERNELS_SHOWN: usize = 20;
const LINES_SHOWN: usize = 30;

/// The table.
pub(super) fn text(profile: &Profile) -> String {
    let mut out = String::new();
    let written = written(&mut out, profile);
    debug_assert!(written.is_ok(), "writing to a string does not fail");
    out
}

fn written(out: &mut String, profile: &Profile) -> std::fmt::Result {
    let launches: u64 = profile.kernels.iter().map(|kernel| kernel.launches).sum();
    let kernels = profile.kernels.len();
    let (of_kernels, of_launches) =
        (if kernels == 1 { "kernel" } else { "kernels" }, if launches == 1 { "launch" } else { "launches" });
    writeln!(out, "bulkhead: {kernels} {of_kernels}, {launches} {of_launches}")?;
    if profile.kernels.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n{:>8} {:>10} {:>9} {:>9} {:>6} {:>10} {:>10} {:>6} {:>9} {:>6} {:>6} {:>9}  kernel",
        "launches",
        "ms",
        "warp-ins",
        "thr-ins",
        "lanes",
        "asked",
        "moved",
        "coal",
        "shared",
        "ways",
        "turns",
        "guard-ins"
    )?;
    for kernel in profile.kernels.iter().take(KERNELS_SHOWN) {
        let own = &kernel.own;
        let global = own.global();
        writeln!(
            out,
            "{:>8} {:>10.3} {:>9} {:>9} {:>6} {:>10} {:>10} {:>6} {:>9} {:>6} {:>6} {:>9}  {}",
            kernel.launches,
            milliseconds(kernel.nanoseconds),
            count(own.warps),
            count(own.threads),
            lanes(own),
            bytes(global.asked),
            bytes(global.moved()),
            percent(global.useful, global.moved()),
            count(own.shared_requests),
            ways(own),
            turns(own),
            count(kernel.guard.warps),
            name(kernel),
        )?;
    }
    left_out(out, profile.kernels.len(), KERNELS_SHOWN)?;
    writeln!(
        out,
        "\n{:>9} {:>9} {:>6} {:>7} {:>10} {:>10} {:>6} {:>9} {:>6} {:>6}  line",
        "warp-ins", "thr-ins", "lanes", "split", "asked", "moved", "coal", "shared", "ways", "turns"
    )?;
    let mut lines: Vec<_> = profile
        .kernels
        .iter()
        .flat_map(|kernel| kernel.lines.iter().map(move |line| (kernel, line)))
        .collect();
    lines.sort_by_key(|(_, line)| std::cmp::Reverse(line.counts.warps));
    for (kernel, line) in lines.iter().take(LINES_SHOWN) {
        let counts = &line.counts;
        let global = counts.global();
        writeln!(
            out,
            "{:>9} {:>9} {:>6} {:>7} {:>10} {:>10} {:>6} {:>9} {:>6} {:>6}  {} {:.40}: {:.60}",
            count(counts.warps),
            count(counts.threads),
            lanes(counts),
            count(counts.divergent),
            bytes(global.asked),
            bytes(global.moved()),
            percent(global.useful, global.moved()),
            count(counts.shared_requests),
            ways(counts),
            turns(counts),
            line.at,
            readable(&kernel.name),
            line.text,
        )?;
    }
    left_out(out, lines.len(), LINES_SHOWN)
}

fn name(kernel: &Profiled) -> String {
    match kernel.uncounted {
        0 => readable(&kernel.name),
        uncounted => format!("{} ({uncounted} launches not counted)", readable(&kernel.name)),
    }
}

fn left_out(out: &mut String, there_are: usize, shown: usize) -> std::fmt::Result {
    match there_are.checked_sub(shown) {
        None | Some(0) => Ok(()),
        Some(more) => writeln!(out, "... and {more} more"),
    }
}

#[expect(clippy::cast_precision_loss, reason = "to be read by people")]
fn ratio(of: u64, to: u64) -> Option<f64> {
    (to > 0).then(|| of as f64 / to as f64)
}

fn milliseconds(nanoseconds: u64) -> f64 {
    ratio(nanoseconds, 1_000_000).unwrap_or(0.0)
}

/// Lanes that stood at an instruction of a warp, in the mean.
fn lanes(counts: &Counts) -> String {
    ratio(counts.standing, counts.warps).map_or("-".to_owned(), |lanes| format!("{lanes:.1}"))
}

fn percent(of: u64, to: u64) -> String {
    ratio(of, to).map_or("-".to_owned(), |part| format!("{:.0}%", part * 100.0))
}

/// Passes of shared memory for each that is needed.
fn ways(counts: &Counts) -> String {
    ratio(counts.shared_passes, counts.shared_least).map_or("-".to_owned(), |ways| format!("{ways:.1}"))
}

/// Rounds of an atomic operation.
fn turns(counts: &Counts) -> String {
    ratio(counts.update_rounds, counts.updates).map_or("-".to_owned(), |turns| format!("{turns:.1}"))
}

/// A number in four digits or so.
fn count(number: u64) -> String {
    scaled(number, 1000, &["", "k", "M", "G", "T", "P"])
}

fn bytes(number: u64) -> String {
    if number == 0 { "-".to_owned() } else { scaled(number, 1024, &[" B", " KiB", " MiB", " GiB", " TiB"]) }
}

fn scaled(number: u64, step: u64, units: &[&str]) -> String {
    let mut divisor = 1;
    let mut units = units.iter().peekable();
    let mut unit = units.next().copied().unwrap_or_default();
    while number / divisor >= step {
        let Some(next) = units.next() else { break };
        divisor *= step;
        unit = next;
    }
    match (divisor, ratio(number, divisor)) {
        (1, _) | (_, None) => format!("{number}{unit}"),
        (_, Some(value)) => format!("{value:.1}{unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!([0, 999, 1000, 12_345, 2_000_000].map(count), ["0", "999", "1.0k", "12.3k", "2.0M"]);
        assert_eq!([0, 1023, 1024, 3 << 30].map(bytes), ["-", "1023 B", "1.0 KiB", "3.0 GiB"]);
    }
}
