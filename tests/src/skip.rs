//! Tests that cannot run here say so.

use std::{io::Write as _, thread};

/// Says, past the test harness's capture, that this test is skipped and why.
pub fn skipped(why: &str) {
    let test = thread::current();
    let told = writeln!(std::io::stderr(), "\nskipped: {}: {why}", test.name().unwrap_or("?"));
    // Nobody to tell where standard error is closed.
    drop(told);
}
