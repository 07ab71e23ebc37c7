//! `bulkhead bench`: Bulkhead against the driver alone.
//!
//! The same worker process measures both sides: run plainly it finds NVIDIA's driver, run through `bulkhead run` it
//! finds Bulkhead's. Workers of the two sides take turns, so that what the machine does meanwhile is in both. What does
//! not exist without Bulkhead is measured after them in each round, each group by a worker of its own.

mod bars;
mod figures;
mod host;
mod machine;
mod report;
mod samples;
mod software;
mod turns;
mod worker;

use std::process::ExitCode;

use clap::Args;

use figures::Group;
pub use host::{Failure, Host, Kernel};
use report::Report;
use turns::{Side, Turns};
use worker::Effort;
pub use worker::{WorkerArguments, worker};

/// Turns of each side unless told otherwise.
const ROUNDS: usize = 5;
/// A quick measurement only shows that everything works.
const ROUNDS_QUICK: usize = 1;

/// What to measure, and how.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Turns of each side [default: 5, or 1 with --quick].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: Option<u16>,
    /// Measure little: shows that everything works, in seconds.
    #[arg(long)]
    quick: bool,
    /// Print a JSON document with every number, the machine and the command; the table then goes to stderr.
    #[arg(long)]
    json: bool,
    /// Measure only these.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "GROUP")]
    only: Vec<Group>,
    /// End with status 1 where a bar is missed.
    #[arg(long)]
    strict: bool,
    /// Measure how fast the software GPU computes instead: its interpreter, its compiled code, and the same kernels in C.
    #[arg(long, conflicts_with_all = ["rounds", "only"])]
    software: bool,
}

/// Measures, and prints what was found.
///
/// # Errors
/// Where no kernel starts, or no program runs on it.
pub fn run(arguments: &Arguments, host: &dyn Host) -> Result<ExitCode, Failure> {
    if arguments.software {
        return software::run(arguments.quick, arguments.json, arguments.strict);
    }
    let groups = if arguments.only.is_empty() { Group::ALL.to_vec() } else { arguments.only.clone() };
    let kernel = host.start(&[])?;
    let turns = Turns::new(kernel.socket(), host)?;
    let native = if host.has_native() {
        turns.describe(Side::Native)?
    } else {
        Err("not measured: the software GPU was asked for".to_owned())
    };
    let bulkhead = turns.describe(Side::Bulkhead)?;
    let bulkhead =
        bulkhead.map_err(|absent| format!("no program runs on Bulkhead here: {absent}\n{}", kernel.log()))?;
    if native.as_ref().is_ok_and(|native| native.library == bulkhead.library) {
        let library = &bulkhead.library;
        return Err(format!(
            "what is found without Bulkhead is Bulkhead's own {library}: take it out of LD_LIBRARY_PATH"
        )
        .into());
    }
    let effort = match (arguments.quick, &native) {
        (true, _) => Effort::Quick,
        (false, Ok(_)) => Effort::Full,
        (false, Err(_)) => Effort::Brief,
    };
    let default = if arguments.quick { ROUNDS_QUICK } else { ROUNDS };
    let rounds = arguments.rounds.map_or(default, usize::from);
    let mut report = Report::new(groups.clone(), effort, rounds, native, bulkhead);
    turns.measure(&mut report);
    drop(kernel);
    if arguments.json {
        eprint!("{}", report.table());
        println!("{:#}", report.json());
    } else {
        print!("{}", report.table());
    }
    let ended_well = report.complete() && !(arguments.strict && report.missed() > 0);
    Ok(if ended_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
