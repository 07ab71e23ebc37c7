//! Runs the simulation for as long as one likes.

use std::{
    process::ExitCode,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use bulkhead_sim::{Sim, Tally};

const HELP: &str = "\
Simulates kernel, executor and clients, and stops at the first broken promise.

Usage: bulkhead-sim [--steps N] [--seed S] [--run-steps N]

      --steps N      Steps in all [default: 50000000]
      --seed S       First seed; one more for each run [default: from the clock]
      --run-steps N  Steps of a run, after which every client goes [default: 50000]
  -h, --help         Prints this
";

struct Wanted {
    steps: u64,
    seed: u64,
    run_steps: u64,
}

fn read(mut arguments: impl Iterator<Item = String>) -> Result<Option<Wanted>, String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let mut wanted = Wanted { steps: 50_000_000, seed: now, run_steps: 50_000 };
    while let Some(argument) = arguments.next() {
        let field = match argument.as_str() {
            "-h" | "--help" => return Ok(None),
            "--steps" => &mut wanted.steps,
            "--seed" => &mut wanted.seed,
            "--run-steps" => &mut wanted.run_steps,
            other => return Err(format!("unknown argument '{other}'; see --help")),
        };
        let value = arguments.next().ok_or_else(|| format!("{argument} needs a number"))?;
        *field = value.parse().map_err(|_| format!("{argument} needs a number, not '{value}'"))?;
    }
    Ok(Some(wanted))
}

fn main() -> ExitCode {
    let wanted = match read(std::env::args().skip(1)) {
        Ok(Some(wanted)) => wanted,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(what) => {
            eprintln!("{what}");
            return ExitCode::from(2);
        }
    };
    let (start, mut steps, mut told) = (Instant::now(), 0, 0);
    let mut tally = Tally::default();
    let rate = |steps: u64| {
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let rate = steps as f64 / start.elapsed().as_secs_f64() / 1e6;
        format!("{steps} steps, {rate:.2} million a second")
    };
    for seed in wanted.seed.. {
        let mut sim = Sim::new(seed);
        if let Err(failure) = sim.run(wanted.run_steps.min(wanted.steps - steps)) {
            eprint!("{failure}");
            eprintln!("again: --seed {seed} --steps {} --run-steps {}", wanted.run_steps, wanted.run_steps);
            return ExitCode::FAILURE;
        }
        steps += sim.steps();
        tally.add(sim.tally());
        if steps >= wanted.steps {
            println!("seeds {} to {seed}: {}", wanted.seed, rate(steps));
            println!("{tally:#?}");
            break;
        }
        if steps / 10_000_000 > told {
            told = steps / 10_000_000;
            eprintln!("{}", rate(steps));
        }
    }
    ExitCode::SUCCESS
}
