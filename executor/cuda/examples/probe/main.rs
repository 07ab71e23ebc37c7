//! Measures, on a real device, what the design assumes of it: one line per fact.
//!
//! `probe` ends with 0, with 1 where a measurement failed, and with 77 where there is no device.

mod facts;
#[expect(unsafe_code, reason = "maps memory files")]
mod host;
mod launches;
mod machine;
#[expect(unsafe_code, reason = "calls the driver as a native program does")]
mod raw;
mod windows;

use std::process::{Command, ExitCode};
use std::time::Instant;

use bulkhead_cuda::{Cuda, ENVIRONMENT, Options};

pub(crate) type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

type Part = fn(&Cuda) -> Outcome;

const NO_DEVICE: u8 = 77;
/// Only says whether there is a device.
pub(crate) const PRESENT: &str = "--present";

fn main() -> ExitCode {
    let present = Cuda::present();
    if std::env::args().nth(1).as_deref() == Some(PRESENT) {
        match present {
            Ok(()) => println!("a device is present"),
            Err(missing) => println!("{missing}"),
        }
        return ExitCode::SUCCESS;
    }
    if let Err(missing) = present {
        machine::describe();
        println!("skipped: no NVIDIA driver: {missing}");
        return ExitCode::from(NO_DEVICE);
    }
    // The driver reads the environment once, before anything here could set it.
    let ended = if std::env::var_os(ENVIRONMENT[0].0).is_none() { again() } else { measure() };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("FAILED {error}");
            ExitCode::FAILURE
        }
    }
}

fn again() -> Outcome<bool> {
    Ok(Command::new(std::env::current_exe()?).envs(ENVIRONMENT).status()?.success())
}

fn measure() -> Outcome<bool> {
    machine::describe();
    let started = Instant::now();
    let gpu = Cuda::open(0, Options::default())?;
    fact(
        "opening the device (cuInit done before)",
        format!("{:.0} ms", started.elapsed().as_secs_f64() * 1e3),
    );
    machine::device(&gpu);
    let parts: [(&str, Part); 6] = [
        ("hidden nodes", |_| machine::hidden_nodes()),
        ("loading", facts::loading),
        ("launches", launches::measure),
        ("completion page", facts::completion_page),
        ("host memory", facts::host_memory),
        ("windows", windows::measure),
    ];
    let mut passed = true;
    for (name, part) in parts {
        if let Err(error) = part(&gpu) {
            println!("FAILED {name}: {error}");
            passed = false;
        }
    }
    fact("the whole probe", format!("{:.1} s", started.elapsed().as_secs_f64()));
    Ok(passed)
}

pub(crate) fn fact(name: &str, value: impl std::fmt::Display) {
    println!("{name:.<72} {value}");
}

/// Milliseconds that `work` takes.
pub(crate) fn milliseconds<T>(work: impl FnOnce() -> Outcome<T>) -> Outcome<(f64, T)> {
    let start = Instant::now();
    let value = work()?;
    Ok((start.elapsed().as_secs_f64() * 1e3, value))
}

/// The value below which `share` of the samples lie.
pub(crate) fn percentile(samples: &mut [f64], share: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    let below = |index: usize| (index as f64) < share * samples.len() as f64;
    let within = (0..samples.len()).take_while(|index| below(*index)).last();
    within.map_or(f64::NAN, |index| samples[index])
}
