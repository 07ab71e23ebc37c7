//! Why something is not decoded.

use bulkhead_gpu::Error;
use bulkhead_ptx::ast::Place;

/// Why something is not decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    text: String,
}

impl Refusal {
    /// With a reason in words.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into() }
    }

    /// As the trait reports it, with where it is and what it is.
    pub(super) fn at(self, place: Place, what: &str) -> Error {
        Error::Image(format!("line {} column {}: {what}: {}", place.line, place.column, self.text))
    }
}
