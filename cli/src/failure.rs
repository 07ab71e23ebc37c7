//! What a command says when it fails: one message, with what to do.

use std::{fmt, io};

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    /// What this process ends with.
    pub(crate) code: u8,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 1 }
    }

    /// The same, of a process that ends with this code.
    pub(crate) fn with_code(self, code: u8) -> Self {
        Self { code, ..self }
    }

    /// For `map_err`: what was being done, and what came of it.
    pub(crate) fn doing<E: fmt::Display>(what: impl fmt::Display) -> impl FnOnce(E) -> Self {
        move |error| Self::new(format!("{what}: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self::new(message)
    }
}

impl From<bulkhead_client::Error> for Failure {
    fn from(error: bulkhead_client::Error) -> Self {
        Self::new(error.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(error.to_string())
    }
}
