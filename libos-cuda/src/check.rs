//! `bulkhead run --check`: accesses of kernels to memory that the program does not have are told, and counted.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::OnceLock;

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::device::{AddressRange, Stray, Violation, ViolationKind};
use crate::driver::Driver;
use crate::report;

/// The file that every process of the run appends to: a record a line, as JSON.
const VARIABLE: &str = "BULKHEAD_CHECK";
/// Records that are told on stderr; the others are counted.
const TOLD_MAX: u64 = 100;

/// All that there is.
type List = Vec<AddressRange>;

/// What the run has told so far.
struct Run {
    file: File,
    told: Mutex<u64>,
    /// What kernels were last told that there is.
    listed: RwLock<List>,
}

/// The run, where this is one that checks.
fn run() -> Option<&'static Run> {
    static RUN: OnceLock<Option<Run>> = OnceLock::new();
    let open = || {
        let path = std::env::var_os(VARIABLE).filter(|path| !path.is_empty())?;
        let file = OpenOptions::new().append(true).create(true).open(&path);
        let file = file.inspect_err(|error| report::once(&format!("{VARIABLE}: {error}"))).ok()?;
        Some(Run { file, told: Mutex::default(), listed: RwLock::default() })
    };
    RUN.get_or_init(open).as_ref()
}

/// What becomes of accesses that go astray.
pub(crate) fn stray() -> Stray {
    if run().is_some() { Stray::Told } else { Stray::Silent }
}

/// Lists what kernels may access, before one is launched. Nobody lists anything else until what it answers is dropped.
#[inline]
pub(crate) fn before_launch(driver: &Driver) -> Option<RwLockReadGuard<'static, List>> {
    if driver.stray == Stray::Told { list(driver) } else { None }
}

#[cold]
fn list(driver: &Driver) -> Option<RwLockReadGuard<'static, List>> {
    let mut listed = run()?.listed.write();
    let ranges = driver.memory.ranges();
    if *listed != ranges {
        // What was launched before goes by the list that there was then.
        let changed = driver.streams.synchronize_all(&driver.session);
        if changed.is_ok() && driver.session.list_memory(ranges.clone()).is_ok() {
            *listed = ranges;
        }
    }
    Some(RwLockWriteGuard::downgrade(listed))
}

/// Tells what kernels have recorded, as far as somebody has waited for them.
pub(crate) fn tell(driver: &Driver) {
    if driver.stray == Stray::Silent {
        return;
    }
    let Some(run) = run() else { return };
    let mut found = driver.session.take_violations();
    for violation in &mut found.records {
        if let ViolationKind::Global { address, freed, .. } = &mut violation.kind {
            *freed = driver.memory.freed(*address);
        }
    }
    let mut told = run.told.lock();
    let mut lines = String::new();
    for violation in &found.records {
        if violation.kind == ViolationKind::Unlooked {
            let entry = &violation.entry;
            report::once(&format!("accesses of {entry} are not looked at: its module is too large for that"));
            lines.push_str(&format!("{{\"unlooked\":{}}}\n", quoted(entry)));
            continue;
        }
        // What ends a thread is told as the program's error.
        if !violation.kind.ends() {
            // Who asked for all that is wrong gets it in the end.
            if *told < TOLD_MAX && !crate::sanitize::runs() {
                let more = match violation.times {
                    1 => String::new(),
                    times => format!("; and so {} times more", times - 1),
                };
                report::plainly(&format!("bulkhead: {violation}{more}"));
            }
            *told += violation.times;
        }
        lines.push_str(&json(violation));
    }
    if found.lost > 0 {
        lines.push_str(&format!("{{\"more\":{}}}\n", found.lost));
    }
    // One write, so that lines of several processes do not mix.
    if let Err(error) = (&run.file).write_all(lines.as_bytes()) {
        report::once(&format!("{VARIABLE}: {error}"));
    }
}

/// At the end of the process: waits for what was launched and not waited for.
pub(crate) extern "C" fn at_exit() {
    if let Ok(driver) = crate::driver::driver() {
        // Whoever could be told is gone.
        driver.streams.synchronize_all(&driver.session).ok();
        tell(driver);
    }
}

fn json(violation: &Violation) -> String {
    let (file, line) = match (&violation.kind, &violation.source) {
        // In every build: the place is among what is asserted.
        (ViolationKind::Assertion { file, line, .. }, _) | (_, Some((file, line))) => (file.as_str(), *line),
        (_, None) => ("", 0),
    };
    format!(
        "{{\"entry\":{},\"file\":{},\"line\":{line},\"ptxLine\":{},\"block\":{:?},\"thread\":{:?},\"times\":{},\"what\":{}}}\n",
        quoted(&violation.entry),
        quoted(file),
        violation.ptx_line,
        violation.block,
        violation.thread,
        violation.times,
        quoted(&violation.to_string()),
    )
}

/// A text as JSON has it.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(letter))),
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}
