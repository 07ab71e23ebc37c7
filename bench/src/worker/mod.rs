//! The process that measures. It calls whatever driver the loader finds, so that the same code measures both sides.
//!
//! A worker prints one JSON object. What could not be measured is in it too, with its reason, so that one
//! failure does not hide the other figures.

mod allocations;
mod capabilities;
mod cleanup;
mod copies;
mod dataflow;
mod effort;
mod failover;
mod findings;
mod launches;
mod loading;
mod observer;
mod pattern;
mod ping;
mod revocation;
mod sessions;
mod setup;
mod swapping;
mod tenant;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use bulkhead_cuda::native::Driver;
use clap::Args;
use serde_json::{Value, json};

use super::figures::Group;
use crate::host::Failure;
use effort::Amounts;
pub(crate) use effort::Effort;
use findings::{Findings, Trouble};

/// Measure on whatever libcuda.so.1 is found, and print the figures as JSON.
#[derive(Debug, Args)]
pub struct WorkerArguments {
    /// What to measure; without it, only say what was found.
    #[arg(long, value_enum, value_delimiter = ',')]
    what: Vec<Group>,
    /// How long to measure.
    #[arg(long, value_enum, default_value_t = Effort::Quick)]
    effort: Effort,
    /// The kernel's socket, for what only Bulkhead has.
    #[arg(long)]
    socket: Option<PathBuf>,
    /// Only hold so many capabilities, until it is killed.
    #[arg(long)]
    hold: Option<u32>,
}

/// Measures on whatever driver is found, and prints the figures as JSON. What fails is in there.
///
/// # Errors
/// Where nothing can be measured as it was asked for.
pub fn worker(arguments: &WorkerArguments) -> Result<ExitCode, Failure> {
    // Dies with what started it, whatever happens to that.
    let parent = Some(rustix::process::Signal::KILL);
    rustix::process::set_parent_process_death_signal(parent)
        .map_err(|error| format!("PR_SET_PDEATHSIG: {error}"))?;
    let amounts = arguments.effort.amounts();
    if let Some(held) = arguments.hold {
        let socket = arguments.socket.clone().unwrap_or_else(bulkhead_client::default_socket);
        cleanup::hold(&socket, held).map_err(|trouble| trouble.to_string())?;
    }
    let found = match arguments.what[..] {
        [group] if !group.exists_natively() => {
            let socket = arguments.socket.clone().unwrap_or_else(bulkhead_client::default_socket);
            apart(group, &socket, amounts)
        }
        _ if arguments.what.iter().any(|group| !group.exists_natively()) => {
            return Err("what only Bulkhead has is measured apart from the driver".into());
        }
        _ => driver(&arguments.what, amounts),
    };
    println!("{found}");
    Ok(ExitCode::SUCCESS)
}

/// Measures something against the kernel behind a socket.
type Part = fn(&Path, Amounts, &mut Findings) -> Result<(), Trouble>;

/// The parts of a group, each by a figure of its own. One that fails does not keep the others from being measured.
fn parts(group: Group) -> &'static [(&'static str, Part)] {
    match group {
        Group::Launches | Group::Copies | Group::Allocations => &[],
        Group::Ping => &[("ping_p50_ns", ping::measure)],
        Group::Sessions => &[("session_open_ms", sessions::measure)],
        Group::Revocation => &[
            ("revoke_severed_ms", revocation::severed),
            ("revoke_quiescent_us", revocation::quiescent),
            ("revoke_reclaimed_ms", revocation::reclaimed),
        ],
        Group::Cleanup => &[("cleanup_returned_ms", cleanup::measure)],
        Group::Dataflow => &[("dataflow_speedup", dataflow::measure)],
        Group::Failover => &[("failover_ms", failover::measure)],
        Group::Swapping => &[("swap_gb_s", swapping::measure)],
        Group::Loading => &[("load_cold_ms", loading::measure)],
        Group::Capabilities => {
            &[("caps_check_ns", |_, amounts, findings| capabilities::measure(amounts, findings))]
        }
    }
}

fn apart(group: Group, socket: &Path, amounts: Amounts) -> Value {
    let mut findings = Findings::default();
    for (name, measure) in parts(group) {
        if let Err(trouble) = measure(socket, amounts, &mut findings) {
            findings.fail(name, &trouble.to_string());
        }
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
            Group::Ping
            | Group::Sessions
            | Group::Revocation
            | Group::Cleanup
            | Group::Dataflow
            | Group::Failover
            | Group::Swapping
            | Group::Loading
            | Group::Capabilities => Ok(()),
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
    use crate::{figures, samples::Samples};

    #[test]
    fn every_group_is_the_drivers_or_has_parts_that_are_figures_of_it() {
        for group in Group::ALL {
            assert_eq!(parts(group).is_empty(), group.exists_natively(), "{group:?}");
            for (name, _) in parts(group) {
                assert_eq!(figures::find(name).map(|figure| figure.group), Some(group), "{name}");
            }
        }
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
