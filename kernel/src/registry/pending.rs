//! Revocations that clients hold, and who waits for them.

use std::cell::Cell;

use bulkhead_caps::RevocationId;
use bulkhead_schema::{Error, bulkhead_capnp::Moment};
use tokio::sync::{Notify, futures::Notified};

use crate::registry::{Holder, Lingering, Marked, Registry, Stage};

/// Whether each moment has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Far {
    severed: bool,
    quiescent: bool,
    reclaimed: bool,
}

/// A revocation that a client holds.
pub(crate) struct Asked {
    pub(crate) id: RevocationId,
    /// What ended before below the same capability, and can still be reached: it is waited for too.
    lingering: Lingering,
    /// The first of those that may not be severed yet, and that may not be quiescent: none of them goes back.
    severed_to: Cell<usize>,
    quiescent_to: Cell<usize>,
    /// Overdue once is overdue for good.
    overdue: Cell<bool>,
    far: Cell<Far>,
    /// Told when another moment has come.
    further: Notify,
}

impl Asked {
    pub(crate) fn new(marked: Marked) -> Self {
        Self {
            id: marked.id,
            lingering: marked.lingering,
            severed_to: Cell::new(0),
            quiescent_to: Cell::new(0),
            overdue: Cell::new(false),
            far: Cell::default(),
            further: Notify::new(),
        }
    }

    /// Whether its deadline had passed when it was last looked at.
    pub(crate) fn is_overdue(&self) -> bool {
        self.overdue.get()
    }

    fn look<S: Holder>(&self, registry: &Registry<S>) -> Result<Far, Error> {
        let moments = registry.moments(self.id)?;
        if moments.overdue {
            self.overdue.set(true);
        }
        let are = |known: &Cell<usize>, stage| {
            known.set(self.lingering.first_before(known.get(), stage));
            known.get() == self.lingering.count()
        };
        let (severed, quiescent) =
            (are(&self.severed_to, Stage::Severed), are(&self.quiescent_to, Stage::Quiescent));
        Ok(Far {
            severed: moments.severed && severed,
            quiescent: moments.quiescent && quiescent,
            reclaimed: moments.reclaimed && quiescent,
        })
    }

    /// Whether a moment has come.
    pub(crate) fn has_reached<S: Holder>(
        &self,
        registry: &Registry<S>,
        moment: Moment,
    ) -> Result<bool, Error> {
        let far = self.look(registry)?;
        Ok(match moment {
            Moment::Severed => far.severed,
            Moment::Quiescent => far.quiescent,
            Moment::Reclaimed => far.reclaimed,
        })
    }

    /// Ready when another moment has come since this was called.
    pub(crate) fn further(&self) -> Notified<'_> {
        self.further.notified()
    }

    /// Wakes those who wait, where another moment has come or nothing is known of it any more.
    pub(crate) fn tell<S: Holder>(&self, registry: &Registry<S>) {
        match self.look(registry) {
            Ok(far) if far == self.far.get() => {}
            Ok(far) => {
                self.far.set(far);
                self.further.notify_waiters();
            }
            Err(_) => self.further.notify_waiters(),
        }
    }
}
