//! Runs the device trait's contract against a real device, check by check.
//!
//! `contract` prints a table and ends with 0 where every check passes, 1 where one fails, and 77 where
//! there is no device. It starts itself again for the checks that end with a dead context, and as the second process
//! where memory is shared. `contract --waits` prints only which calls wait for a kernel, and takes about two minutes.

mod checks;
mod code;
mod mapped;
mod sharing;
mod waits;
mod world;

use std::process::{Command, ExitCode};

use bulkhead_cuda::{Cuda, ENVIRONMENT, Options};

use crate::world::{HALF_BYTES, Outcome, SLOT, World, told};

const NO_DEVICE: u8 = 77;
/// Argument, address of the store, expected code: an address that nothing maps, and one that is not aligned.
const FAULTS: [(&str, u64, u32); 4] = [
    ("--unmapped-store", SLOT.0 + 128 * world::GIB, 700),
    ("--misaligned-store", SLOT.0 + 0x1002, 716),
    ("--read-only-store", SLOT.0 + HALF_BYTES + 0x1000, 700),
    ("--store-to-a-second-read-only-mapping", sharing::OTHER.0 + 0x1000, 700),
];
const WAITS: &str = "--waits";

fn main() -> ExitCode {
    if let Err(missing) = Cuda::present() {
        println!("skipped: no NVIDIA driver: {missing}");
        return ExitCode::from(NO_DEVICE);
    }
    let argument = std::env::args().nth(1);
    // The driver reads the environment once, before anything here could set it.
    if std::env::var_os(ENVIRONMENT[0].0).is_none() {
        return match again(argument.as_deref()) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => failed(&error),
        };
    }
    let result = match argument.as_deref() {
        None => all(),
        Some(WAITS) => waiting(),
        Some(sharing::EXPORTER) => sharing::exporter(),
        Some(sharing::NONSENSE) => sharing::nonsense(),
        Some(argument) => match sharing::UNDONE.iter().find(|(name, _)| *name == argument) {
            Some((_, work)) => sharing::undone(*work),
            None => one_fault(argument),
        },
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => failed(&error),
    }
}

fn failed(error: &str) -> ExitCode {
    println!("FAILED {error}");
    ExitCode::FAILURE
}

fn again(argument: Option<&str>) -> Outcome<bool> {
    let program = told("this program", std::env::current_exe())?;
    let status = Command::new(program).args(argument).envs(ENVIRONMENT).status();
    told("start again", status).map(|status| status.success())
}

fn all() -> Outcome<bool> {
    let gpu = told("open", Cuda::open(0, Options::default()))?;
    let world = World::new(&*gpu)?;
    let mut passed = true;
    let mut row = |name: &str, outcome: Outcome| match outcome {
        Ok(()) => println!("pass    {name}"),
        Err(error) => {
            println!("FAILED  {name}\n        {error}");
            passed = false;
        }
    };
    for (name, check) in checks::CHECKS {
        row(name, check(&world));
    }
    let ended = |argument| match again(Some(argument)) {
        Ok(true) => Ok(()),
        Ok(false) => Err("see above".to_owned()),
        Err(error) => Err(error),
    };
    row("a descriptor of something else is not imported, and harms nothing", ended(sharing::NONSENSE));
    for (argument, _) in sharing::UNDONE {
        row(&format!("{argument} is an error, and changes nothing"), ended(argument));
    }
    for (argument, _, code) in FAULTS {
        row(&format!("{argument} loses its context with {code}, and for good"), ended(argument));
    }
    row("another process's fault leaves this context alive", told("check", bulkhead_gpu::Gpu::check(&*gpu)));
    Ok(passed)
}

fn waiting() -> Outcome<bool> {
    let gpu = told("open", Cuda::open(0, Options::default()))?;
    let world = World::new(&*gpu)?;
    waits::table(&world).map(|()| true)
}

fn one_fault(argument: &str) -> Outcome<bool> {
    let known = FAULTS.iter().find(|(name, _, _)| *name == argument);
    let (_, address, expected) = known.ok_or_else(|| format!("no such argument: {argument}"))?;
    let gpu = told("open", Cuda::open(0, Options::default()))?;
    let world = World::new(&*gpu)?;
    sharing::second_slot(&world)?;
    world::same("code", checks::fault(&world, *address)?, *expected)?;
    Ok(true)
}
