//! What is printed on standard output.

use std::io::{self, Write as _};

use crate::Failure;

/// Prints text. Where whoever reads has seen enough, the program ends there.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        done => done.map_err(Failure::doing("standard output")),
    }
}
