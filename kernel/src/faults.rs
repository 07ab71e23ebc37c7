//! What was found that cannot be: mistakes of this program's own.

use std::cell::Cell;

use bulkhead_schema::Error;

/// How often something was found that cannot be.
#[derive(Default)]
pub(crate) struct Faults(Cell<u32>);

impl Faults {
    /// Notes a failure that nobody waits for.
    pub(crate) fn note<T>(&self, result: Result<T, Error>, what: &'static str) {
        if let Err(error) = result {
            self.0.set(self.0.get().saturating_add(1));
            tracing::error!(%error, what, "the registry is wrong");
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.0.get()
    }
}
