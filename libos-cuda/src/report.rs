//! What is said to the person at the terminal: each thing once.

use std::collections::HashSet;
use std::io::Write;

use parking_lot::Mutex;

use crate::logs;

/// Most different lines that are said; a program that makes up new mistakes for ever is not worth more.
const LINES_MAX: usize = 256;

static SAID: Mutex<Option<HashSet<String>>> = Mutex::new(None);

/// Writes one line to stderr, unless it was written before. The log has it as often as it is said.
pub(crate) fn once(line: &str) {
    let line = &for_programs(line);
    logs::note(line);
    let mut said = SAID.lock();
    let said = said.get_or_insert_default();
    if said.len() < LINES_MAX && said.insert(line.to_owned()) {
        let written = writeln!(std::io::stderr(), "bulkhead: {line}");
        // Nobody to tell when stderr is closed.
        drop(written);
    }
}

/// Writes lines to stderr as they are, as often as they come.
pub(crate) fn plainly(lines: &str) {
    let written = writeln!(std::io::stderr(), "{lines}");
    // Nobody to tell when stderr is closed.
    drop(written);
}

/// Says that a call is refused, why, and what to do.
pub(crate) fn refused(call: &str, why: &str) {
    once(&format!("{call}: {why}"));
}

/// What the kernel and the SDK tell clients to do, as users of CUDA programs do it: a program has one session.
fn for_programs(why: &str) -> String {
    why.replace("open a new session", "start the program again")
        .replace("the session that gave memory", "the program that gave memory")
}

/// Whether the user asked to see what programs look for and do not find (`BULKHEAD_TRACE`).
pub(crate) fn tracing() -> bool {
    static TRACING: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *TRACING.get_or_init(|| std::env::var_os("BULKHEAD_TRACE").is_some_and(|value| value != "0"))
}
