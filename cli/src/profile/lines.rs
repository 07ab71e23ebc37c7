//! Counts by kernel and by line.

use std::collections::BTreeMap;

use bulkhead_guard::entry_of;
use bulkhead_softgpu::{Counts, Kernel, Report};

use crate::source::{At, Sources};

/// A program's kernels.
pub(super) struct Profile {
    /// Those that took longest first.
    pub(super) kernels: Vec<Profiled>,
}

/// A kernel.
#[derive(Default)]
pub(super) struct Profiled {
    pub(super) name: String,
    pub(super) launches: u64,
    pub(super) uncounted: u64,
    pub(super) blocks: u64,
    pub(super) threads: u64,
    pub(super) nanoseconds: u64,
    /// Its own instructions together.
    pub(super) own: Counts,
    /// What the guard added.
    pub(super) guard: Counts,
    /// Where most instructions of warps were done first.
    pub(super) lines: Vec<Line>,
}

/// A line of a program's source.
pub(super) struct Line {
    pub(super) at: At,
    /// What stands there, where that is known.
    pub(super) text: String,
    pub(super) counts: Counts,
}

impl Profile {
    /// Of a report, and of where each text's instructions come from.
    pub(super) fn of(report: &Report, sources: &mut Sources) -> Self {
        let mut kernels: BTreeMap<String, (Profiled, BTreeMap<At, Line>)> = BTreeMap::new();
        for kernel in report.kernels.iter().filter(|kernel| kernel.launches > 0) {
            let name = entry_of(&kernel.name);
            let (profiled, lines) = kernels.entry(name.to_owned()).or_default();
            profiled.name = name.to_owned();
            profiled.launches += kernel.launches;
            profiled.uncounted += kernel.uncounted;
            profiled.blocks += kernel.blocks;
            profiled.threads += kernel.threads;
            profiled.nanoseconds += kernel.nanoseconds;
            add_lines(profiled, lines, kernel, sources);
        }
        let mut kernels: Vec<Profiled> = kernels
            .into_values()
            .map(|(mut profiled, lines)| {
                profiled.lines = lines.into_values().collect();
                profiled.lines.sort_by_key(|line| std::cmp::Reverse(line.counts.warps));
                profiled
            })
            .collect();
        kernels.sort_by_key(|kernel| std::cmp::Reverse(kernel.nanoseconds));
        Self { kernels }
    }
}

fn add_lines(
    profiled: &mut Profiled,
    lines: &mut BTreeMap<At, Line>,
    kernel: &Kernel,
    sources: &mut Sources,
) {
    for row in &kernel.rows {
        let Some((at, text)) = sources.place(kernel.text, row.line, row.column) else {
            profiled.guard.add(&row.counts);
            continue;
        };
        profiled.own.add(&row.counts);
        let line = lines.entry(at.clone()).or_insert(Line { at, text, counts: Counts::default() });
        line.counts.add(&row.counts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_and_its_fast_version_are_one_kernel_with_the_name_that_the_program_gave_it() {
        let kernel = |name: &str| Kernel { name: name.into(), launches: 1, ..Kernel::default() };
        let names = [
            "bh_e_add",
            "__bh_fast_add",
            "bh_e_bh_e_add",
            "bh_e___bh_fast_add",
            "__bh_fast___bh_fast_add",
            "__bh_fast_add",
        ];
        let report = Report { kernels: names.map(kernel).to_vec(), ..Report::default() };
        let profile = Profile::of(&report, &mut Sources::default());
        let mut found: Vec<(&str, u64)> =
            profile.kernels.iter().map(|kernel| (kernel.name.as_str(), kernel.launches)).collect();
        found.sort_unstable();
        assert_eq!(found, [("__bh_fast_add", 2), ("add", 3), ("bh_e_add", 1)]);
    }
}
