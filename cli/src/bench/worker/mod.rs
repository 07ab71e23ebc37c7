//! The process that measures. It calls whatever driver the loader finds, so that the same code measures both sides.
//!
//! A worker prints one JSON object. What could not be measured is in it too, with its reason, so that one
//! failure does not hide the other figures.

mod allocations;
mod copies;
mod launches;
mod pattern;
mod ping;
mod setup;

use std::{fmt, fs, path::PathBuf, process::ExitCode};

use bulkhead_cuda::native::{Driver, Refusal};
use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::{
    figures::{self, Group},
    samples::{Samples, Summary},
};
use crate::Failure;

/// Measure on whatever libcuda.so.1 is found, and print the figures as JSON.
#[derive(Debug, Args)]
pub(crate) struct WorkerArguments {
    /// What to measure; without it, only say what was found.
    #[arg(long, value_enum, value_delimiter = ',')]
    what: Vec<Group>,
    /// How long to measure.
    #[arg(long, value_enum, default_value_t = Effort::Quick)]
    effort: Effort,
    /// The kernel's socket, for `ping`.
    #[arg(long)]
    socket: Option<PathBuf>,
}

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Effort {
    /// Enough to see that everything works.
    Quick,
    /// As much as the software GPU does in reasonable time.
    Brief,
    /// As much as the bars are about.
    Full,
}

/// How often, and how large.
#[derive(Debug, Clone, Copy)]
pub(super) struct Amounts {
    pub(super) bursts: usize,
    pub(super) sustained_launches: u32,
    pub(super) sustained_runs: usize,
    pub(super) round_trips: usize,
    pub(super) copy_bytes: usize,
    pub(super) copies: usize,
    pub(super) small_copies: usize,
    pub(super) allocations: usize,
    pub(super) pings: usize,
}

impl Effort {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Brief => "brief",
            Self::Full => "full",
        }
    }

    pub(super) fn amounts(self) -> Amounts {
        match self {
            Self::Quick => Amounts {
                bursts: 10,
                sustained_launches: 2_000,
                sustained_runs: 1,
                round_trips: 200,
                copy_bytes: 16 << 20,
                copies: 3,
                small_copies: 20,
                allocations: 20,
                pings: 500,
            },
            Self::Brief => Amounts {
                bursts: 50,
                sustained_launches: 20_000,
                sustained_runs: 3,
                round_trips: 1_000,
                copy_bytes: 64 << 20,
                copies: 5,
                small_copies: 100,
                allocations: 100,
                pings: 5_000,
            },
            Self::Full => Amounts {
                bursts: 200,
                sustained_launches: 50_000,
                sustained_runs: 3,
                round_trips: 5_000,
                copy_bytes: 1 << 30,
                copies: 7,
                small_copies: 500,
                allocations: 300,
                pings: 10_000,
            },
        }
    }
}

/// Why something could not be measured.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The driver refused a call.
    Refused(Refusal),
    /// Everything else, in words.
    Said(String),
}

impl From<Refusal> for Trouble {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => write!(f, "{refusal}"),
            Self::Said(text) => f.write_str(text),
        }
    }
}

impl Trouble {
    /// In words, with the driver's name for its code.
    fn explain(&self, driver: &Driver) -> String {
        let name = match self {
            Self::Refused(refusal) => driver.name(*refusal),
            Self::Said(_) => None,
        };
        name.map_or_else(|| self.to_string(), |name| format!("{self} ({name})"))
    }
}

/// What was measured so far.
#[derive(Debug, Default)]
pub(super) struct Findings {
    figures: Map<String, Value>,
    failed: Map<String, Value>,
}

impl Findings {
    /// The median of samples, under a figure's name.
    pub(super) fn add(&mut self, name: &str, samples: Samples) {
        self.distribution(name, samples, |summary| summary.median);
    }

    /// What a figure tells of its samples, where that is not the median.
    pub(super) fn distribution(&mut self, name: &str, samples: Samples, value: fn(&Summary) -> f64) {
        assert!(figures::find(name).is_some(), "{name} is in the table");
        match samples.summary() {
            Some(summary) => {
                let figure = json!({"value": value(&summary), "samples": summary.json()});
                self.figures.insert(name.to_owned(), figure);
            }
            None => self.fail(name, "nothing was measured"),
        }
    }

    /// A figure that was measured once.
    pub(super) fn once(&mut self, name: &str, value: f64) {
        let mut samples = Samples::with_capacity(1);
        samples.push(value);
        self.add(name, samples);
    }

    fn fail(&mut self, what: &str, why: &str) {
        self.failed.insert(what.to_owned(), why.into());
    }
}

pub(crate) fn worker(arguments: &WorkerArguments) -> Result<ExitCode, Failure> {
    // Dies with what started it, whatever happens to that.
    let parent = Some(rustix::process::Signal::KILL);
    rustix::process::set_parent_process_death_signal(parent).map_err(Failure::doing("PR_SET_PDEATHSIG"))?;
    let amounts = arguments.effort.amounts();
    let found = match arguments.what[..] {
        [Group::Ping] => ping(arguments.socket.clone(), amounts),
        _ if arguments.what.contains(&Group::Ping) => {
            return Err(Failure::new("ping is measured apart from the driver"));
        }
        _ => driver(&arguments.what, amounts),
    };
    println!("{found}");
    Ok(ExitCode::SUCCESS)
}

fn ping(socket: Option<PathBuf>, amounts: Amounts) -> Value {
    let socket = socket.unwrap_or_else(bulkhead_client::default_socket);
    let mut findings = Findings::default();
    if let Err(trouble) = ping::measure(&socket, amounts, &mut findings) {
        findings.fail(Group::Ping.name(), &trouble.to_string());
    }
    json!({"figures": findings.figures, "failed": findings.failed})
}

fn driver(what: &[Group], amounts: Amounts) -> Value {
    let (driver, started) = match setup::start() {
        Ok(started) => started,
        Err(absent) => return json!({"absent": absent}),
    };
    let mut findings = Findings::default();
    if !what.is_empty()
        && let Err(trouble) = measure(&driver, &started, what, amounts, &mut findings)
    {
        findings.fail("context", &trouble.explain(&driver));
    }
    json!({
        "library": library(),
        "device": started.name,
        "cuda_version": started.version,
        "figures": findings.figures,
        "failed": findings.failed,
    })
}

fn measure(
    driver: &Driver,
    started: &setup::Started,
    what: &[Group],
    amounts: Amounts,
    findings: &mut Findings,
) -> Result<(), Trouble> {
    let bench = setup::open(driver, started, findings)?;
    for group in what {
        let measured = match group {
            Group::Launches => launches::measure(&bench, amounts, findings),
            Group::Copies => copies::measure(&bench, amounts, findings),
            Group::Allocations => allocations::measure(&bench, amounts, findings),
            Group::Ping => Ok(()),
        };
        if let Err(trouble) = measured {
            findings.fail(group.name(), &trouble.explain(driver));
        }
    }
    bench.close()
}

/// Which file the driver is.
fn library() -> Option<String> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let paths = maps.lines().filter_map(|line| line.split_once('/').map(|(_, path)| format!("/{path}")));
    let mut libraries =
        paths.filter(|path| path.rsplit('/').next().is_some_and(|name| name.starts_with("libcuda.")));
    libraries.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_effort_measures_more_and_full_copies_a_gibibyte() {
        let [quick, brief, full] = [Effort::Quick, Effort::Brief, Effort::Full].map(Effort::amounts);
        assert!(quick.bursts < brief.bursts && brief.bursts < full.bursts);
        assert!(quick.copy_bytes < brief.copy_bytes);
        assert_eq!(full.copy_bytes, 1 << 30);
        assert!(full.sustained_launches >= 10_000);
    }

    #[test]
    fn a_figure_without_samples_is_a_failure_and_not_a_zero() {
        let mut findings = Findings::default();
        findings.add("launch_ns", Samples::default());
        assert!(findings.figures.is_empty());
        assert_eq!(findings.failed["launch_ns"], "nothing was measured");
    }

    #[test]
    #[should_panic(expected = "is in the table")]
    fn a_figure_that_is_in_no_table_is_a_bug() {
        Findings::default().once("lunch_ns", 1.0);
    }
}
