//! Counts by kernel and by line.

use std::collections::{BTreeMap, HashMap};

use bulkhead_executor::compiler::Origins;
use bulkhead_guard::fast_version_of;
use bulkhead_softgpu::{Counts, Kernel, Report};

/// Bytes of a source file that are shown from.
const SOURCE_BYTES_MAX: u64 = 16 << 20;

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

/// Where a line is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum At {
    /// In a source file, as a `.loc` has it.
    Source(String, u32),
    /// In the PTX that the program loads.
    Ptx(u32),
    /// In a confined text that belongs to no image that was kept.
    Confined(u32),
}

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Source(file, line) => {
                let name = file.rsplit('/').next().unwrap_or(file);
                write!(f, "{}:{line}", name.escape_debug())
            }
            Self::Ptx(line) => write!(f, "ptx:{line}"),
            Self::Confined(line) => write!(f, "confined:{line}"),
        }
    }
}

/// Sources that were read.
#[derive(Default)]
struct Sources(HashMap<String, Vec<String>>);

impl Sources {
    fn line(&mut self, file: &str, line: u32) -> String {
        let read = || {
            let small =
                std::fs::metadata(file).is_ok_and(|about| about.is_file() && about.len() <= SOURCE_BYTES_MAX);
            let text = if small { std::fs::read_to_string(file).unwrap_or_default() } else { String::new() };
            text.lines().map(str::to_owned).collect()
        };
        let lines = self.0.entry(file.to_owned()).or_insert_with(read);
        nth(lines, line)
    }
}

fn nth(lines: &[String], line: u32) -> String {
    let line = usize::try_from(line).ok().and_then(|line| lines.get(line.checked_sub(1)?));
    // What a file holds is printed on somebody's terminal.
    let printable = |letter: char| if letter.is_control() { ' ' } else { letter };
    line.map(|line| line.trim().chars().map(printable).collect()).unwrap_or_default()
}

impl Profile {
    /// Of a report, and of where each text's instructions come from.
    pub(super) fn of(report: &Report, origins: &HashMap<u64, Origins>) -> Self {
        let mut sources = Sources::default();
        let mut kernels: BTreeMap<String, (Profiled, BTreeMap<At, Line>)> = BTreeMap::new();
        for kernel in report.kernels.iter().filter(|kernel| kernel.launches > 0) {
            let name = fast_version_of(&kernel.name).unwrap_or(&kernel.name);
            let (profiled, lines) = kernels.entry(name.to_owned()).or_default();
            profiled.name = name.to_owned();
            profiled.launches += kernel.launches;
            profiled.uncounted += kernel.uncounted;
            profiled.blocks += kernel.blocks;
            profiled.threads += kernel.threads;
            profiled.nanoseconds += kernel.nanoseconds;
            add_lines(profiled, lines, kernel, origins.get(&kernel.text), &mut sources);
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
    origins: Option<&Origins>,
    sources: &mut Sources,
) {
    for row in &kernel.rows {
        let (at, text) = match origins.map(|origins| (origins, origins.places.get(&(row.line, row.column)))) {
            None => (At::Confined(row.line), String::new()),
            Some((_, None)) => {
                profiled.guard.add(&row.counts);
                continue;
            }
            Some((origins, Some(origin))) => match &origin.source {
                Some((file, line)) => (At::Source(file.clone(), *line), sources.line(file, *line)),
                None => (At::Ptx(origin.line), nth(&origins.lines, origin.line)),
            },
        };
        profiled.own.add(&row.counts);
        let line = lines.entry(at.clone()).or_insert(Line { at, text, counts: Counts::default() });
        line.counts.add(&row.counts);
    }
}
