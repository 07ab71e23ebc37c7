//! Since when a session has work on the device.

use std::{sync::Arc, time::Instant};

/// Since when a session has work on the device, and what it is.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    /// Without a gap.
    pub(crate) since: Option<Instant>,
    /// Without any of it having passed on a stream that has some, whatever others do: a client may give those work as it likes.
    pub(crate) stuck: Option<Instant>,
    /// What was launched last.
    entry: Option<Arc<str>>,
}

/// Since when a session has work on the device: without a gap, and without any of it having passed on a stream that has some.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Runs {
    pub(crate) since: Option<Instant>,
    pub(crate) stuck: Option<Instant>,
}

impl Busy {
    /// Notes that an entry was launched.
    pub(crate) fn launches(&mut self, entry: Arc<str>) {
        self.entry = Some(entry);
    }

    /// Notes that there is no work.
    pub(crate) fn rests(&mut self) {
        *self = Self { entry: self.entry.take(), ..Self::default() };
    }

    /// Notes that there is some now, of which none has passed since then.
    pub(crate) fn works(&mut self, now: Instant, stuck: Option<Instant>) {
        self.since.get_or_insert(now);
        self.stuck = stuck;
    }

    pub(crate) fn runs(&self) -> Runs {
        Runs { since: self.since, stuck: self.stuck }
    }

    /// What the session's work is called.
    pub(crate) fn named(&self) -> &str {
        self.entry.as_deref().unwrap_or("work without a kernel")
    }
}
