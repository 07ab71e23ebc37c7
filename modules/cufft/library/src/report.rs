//! What is said to the person at the terminal: each thing once.

use std::{collections::BTreeSet, io::Write as _};

use parking_lot::Mutex;

/// Most different lines.
const LINES_MAX: usize = 64;

static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Writes a line to standard error, unless it was written before.
pub(crate) fn once(line: &str) {
    let mut said = SAID.lock();
    if said.len() < LINES_MAX && said.insert(line.to_owned()) {
        // Nobody to tell where it is closed.
        writeln!(std::io::stderr(), "bulkhead: cufft: {line}").unwrap_or_default();
    }
}
