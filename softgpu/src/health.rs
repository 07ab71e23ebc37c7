//! Whether the context still lives.

use std::panic::AssertUnwindSafe;
use std::sync::OnceLock;

use bulkhead_gpu::Error;

/// The first fault ends the context; it is what every later call answers.
#[derive(Debug, Default)]
pub(crate) struct Health {
    lost: OnceLock<Error>,
}

impl Health {
    /// Ends the context.
    pub(crate) fn lose(&self, error: Error) {
        tracing::warn!(%error, "the software GPU's context is lost");
        let first = self.lost.get_or_init(|| error);
        debug_assert!(matches!(first, Error::Lost { .. }));
    }

    /// Does a piece of work; a panic in it, which is our own mistake, ends the context instead of leaving
    /// others to wait for it.
    pub(crate) fn watch(&self, work: impl FnOnce()) {
        if std::panic::catch_unwind(AssertUnwindSafe(work)).is_err() {
            self.lose(Error::Lost { reason: "internal error of the software GPU".to_owned(), code: 999 });
        }
    }

    /// What ended the context, if something did.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.lost.get() {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// Whether the context has ended.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }
}
