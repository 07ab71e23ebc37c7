//! What was wrong, as people read it.

use std::fmt::Write as _;

use super::report::{Call, Device, Elsewhere, Report, Wrong};
use crate::source::{At, readable};

/// What is shown of each.
const WRONG_SHOWN: usize = 100;
const LEAKS_SHOWN: usize = 20;

/// The report.
pub(super) fn text(report: &Report, counts_calls: bool) -> String {
    let mut out = String::new();
    let written = written(&mut out, report, counts_calls);
    debug_assert!(written.is_ok(), "writing to a string does not fail");
    out
}

fn written(out: &mut String, report: &Report, counts_calls: bool) -> std::fmt::Result {
    for wrong in report.wrong.iter().take(WRONG_SHOWN) {
        one(out, wrong)?;
    }
    if report.wrong.len() > WRONG_SHOWN {
        writeln!(out, "... and {} more", report.wrong.len() - WRONG_SHOWN)?;
    }
    if report.left_out > 0 {
        writeln!(out, "... and {} times more, which were too many to be told apart", report.left_out)?;
    }
    for leak in report.leaks.iter().take(LEAKS_SHOWN) {
        writeln!(
            out,
            "leakcheck  {} bytes at {:#x} are not freed: allocation {} of {}",
            leak.bytes, leak.address, leak.number, report.allocations
        )?;
    }
    let more = report.leaks.len().saturating_sub(LEAKS_SHOWN) as u64 + report.leaks_left_out;
    if more > 0 {
        writeln!(out, "leakcheck  ... and {more} allocations more")?;
    }
    for failed in &report.calls {
        let Call { call, code, name, what, by } = failed;
        write!(out, "apicheck   {call} failed with {name} ({code}): {what}")?;
        match (failed.is_refusal(), failed.asks_for_a_kernel()) {
            (true, true) => write!(out, "; the kernel did not run, and nothing of it was looked at")?,
            (true, false) => write!(out, "; none of its kernels ran, and nothing of them was looked at")?,
            (false, _) => {}
        }
        match by {
            Some(by) => {
                let (function, place) =
                    by.split_once(" at ").map_or((by.as_str(), ""), |(name, _)| (name, &by[name.len()..]));
                writeln!(out, "; called by {}{}", readable(function).escape_debug(), place.escape_debug())?;
            }
            None => writeln!(out)?,
        }
    }
    match report.device {
        Device::Told => {}
        Device::Lost => writeln!(
            out,
            "bulkhead: the software GPU was lost, and with it how often mistakes were made, and what leaked"
        )?,
        Device::Unused => {
            writeln!(out, "bulkhead: the program ended before it used the device: nothing was looked at")?;
        }
    }
    if report.lacks_lines {
        writeln!(
            out,
            "bulkhead: compile with nvcc -lineinfo to be told lines of the source in place of lines of the PTX"
        )?;
    }
    let errors = report.errors(counts_calls);
    writeln!(out, "bulkhead: {errors} {}", if errors == 1 { "error" } else { "errors" })
}

fn one(out: &mut String, wrong: &Wrong) -> std::fmt::Result {
    let Wrong { tool, kernel, at, text, what, block, thread, other, count, .. } = wrong;
    let [bx, by, bz] = block;
    let [x, y, z] = thread;
    let place = if *at == At::Ptx(0) { String::new() } else { format!("{at} ") };
    writeln!(out, "{tool:<10} {place}{}: {text}", readable(kernel).escape_debug())?;
    write!(out, "{:<10} {what}; block ({bx}, {by}, {bz}), thread ({x}, {y}, {z})", "")?;
    match count {
        1 => writeln!(out)?,
        count => writeln!(out, ", and so {count} times")?,
    }
    if let Some(Elsewhere { at, text, block: there, thread: [x, y, z] }) = other {
        let [bx, by, bz] = there;
        let of = if there == block { String::new() } else { format!(" of block ({bx}, {by}, {bz})") };
        writeln!(out, "{:<10} the other is thread ({x}, {y}, {z}){of} at {at}: {text}", "")?;
    }
    Ok(())
}
