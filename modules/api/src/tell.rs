//! What a host half tells its operator. Whoever reads that may be gone: `println!` and `eprintln!` would panic, and end the
//! thread that serves.

use std::{
    fmt::Display,
    io::{self, Write as _},
};

/// Tells what is as it should be, over stdout.
pub fn report(line: impl Display) {
    writeln!(io::stdout(), "{line}").unwrap_or_default();
}

/// Tells what is not, over stderr.
pub fn warn(line: impl Display) {
    writeln!(io::stderr(), "{line}").unwrap_or_default();
}
