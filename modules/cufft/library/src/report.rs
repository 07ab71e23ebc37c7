//! What is said to the person at the terminal: each thing once.

use std::{collections::BTreeSet, time::Duration};

use parking_lot::Mutex;

/// Most different lines.
const LINES_MAX: usize = 64;
/// How long a thread waits for another that says something. In a process that was forked the other is not there.
const WAITING: Duration = Duration::from_millis(200);

static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Writes a line to standard error, unless it was written before.
pub(crate) fn once(line: &str) {
    let is_new = match SAID.try_lock_for(WAITING) {
        Some(mut said) => said.len() < LINES_MAX && said.insert(line.to_owned()),
        None => true,
    };
    if is_new {
        // By no lock of the process's, and nobody to tell where it is closed.
        let line = format!("bulkhead: cufft: {line}\n");
        rustix::io::write(std::io::stderr(), line.as_bytes()).map(drop).unwrap_or_default();
    }
}
