//! What is said on stderr.

use std::io::Write as _;
use std::sync::OnceLock;

use crate::status::{Status, text};

/// Writes one line.
pub(crate) fn say(line: &str) {
    let written = writeln!(std::io::stderr(), "bulkhead: {line}");
    // Nobody to tell when stderr is closed.
    drop(written);
}

/// Names a call that fails, where the user asked for that (`BULKHEAD_TRACE`).
pub(crate) fn failed(symbol: &str, status: Status) {
    static TRACING: OnceLock<bool> = OnceLock::new();
    if *TRACING.get_or_init(|| std::env::var_os("BULKHEAD_TRACE").is_some_and(|value| value != "0")) {
        say(&format!("{symbol}: {}", text(status.code()).to_string_lossy()));
    }
}
