//! The *gate*, which keeps everybody from submitting: closed for a moment, *shut* for longer, or narrow.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// Work that a session may have on the device while somebody waits for a moment when no kernel runs; how long that is so at
/// a time; and for how many times as long it is not, afterwards.
pub(crate) const NARROW: u32 = 4;
/// Whose work does not pass for so long may have as much as ever.
pub(crate) const NARROW_STUCK: Duration = Duration::from_millis(200);
const NARROW_MAX: Duration = Duration::from_secs(10);
const WIDE: u32 = 1;

/// What keeps everybody from submitting.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// How many hold it closed.
    closed: AtomicU32,
    shut: AtomicBool,
    narrow: AtomicBool,
    /// How many have it be so.
    narrowing: AtomicU32,
    narrowed: Mutex<Narrowed>,
}

/// Since when the gate has been narrow, and when it may be so again.
#[derive(Debug, Default)]
struct Narrowed {
    since: Option<Instant>,
    next: Option<Instant>,
}

impl Narrowed {
    /// Whether it is to be narrow now, while somebody `waits` or not.
    fn look(&mut self, now: Instant, waits: bool) -> bool {
        if let Some(since) = self.since {
            let lasted = now.saturating_duration_since(since);
            if waits && lasted < NARROW_MAX {
                return true;
            }
            (self.since, self.next) = (None, Some(now + lasted * WIDE));
        }
        if waits && self.next.is_none_or(|next| now >= next) {
            self.since = Some(now);
        }
        self.since.is_some()
    }
}

impl Gate {
    /// Whether nothing may be submitted.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) > 0
    }

    /// Whether that may take long.
    pub(crate) fn is_shut(&self) -> bool {
        self.shut.load(Ordering::Acquire)
    }

    /// Says whether it may.
    pub(super) fn be_shut(&self, is_shut: bool) {
        self.shut.store(is_shut, Ordering::Release);
    }

    /// Whether sessions may have little on the device.
    pub(crate) fn is_narrow(&self) -> bool {
        self.narrow.load(Ordering::Relaxed)
    }

    /// Makes it so, or not any more. Whether it is.
    pub(crate) fn narrow(&self, now: Instant, waits: bool) -> bool {
        let is_narrow = self.narrowed.lock().look(now, waits);
        self.narrow.store(is_narrow, Ordering::Relaxed);
        is_narrow
    }

    /// Closes it until the result is dropped. Whoever submits looks at it with its session's state locked: whoever locks that
    /// afterwards finds all that was submitted.
    pub(super) fn close(self: &Arc<Self>) -> Closed {
        self.closed.fetch_add(1, Ordering::AcqRel);
        Closed(Arc::clone(self))
    }
}

/// Holds the gate closed.
pub(super) struct Closed(Arc<Gate>);

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.closed.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Has the gate be as wide as before once the last has gone who had it be narrow.
pub(super) struct Narrow<'a>(&'a Gate);

impl<'a> Narrow<'a> {
    pub(super) fn new(gate: &'a Gate) -> Self {
        gate.narrowing.fetch_add(1, Ordering::AcqRel);
        Self(gate)
    }
}

impl Drop for Narrow<'_> {
    fn drop(&mut self) {
        if self.0.narrowing.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.narrow(Instant::now(), false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_is_narrow_while_somebody_waits_and_half_of_the_time_at_most() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut narrowed = Narrowed::default();
        assert!(!narrowed.look(at(0), false), "nobody waits");
        assert!(narrowed.look(at(1), true) && narrowed.look(at(3), true));
        assert!(!narrowed.look(at(4), false));
        // As long again as it was.
        assert!(!narrowed.look(at(5), true) && !narrowed.look(at(6), true) && narrowed.look(at(7), true));
        assert!(narrowed.look(at(16), true) && !narrowed.look(at(17), true), "for so long at most");
        assert!(!narrowed.look(at(26), true) && narrowed.look(at(27), true));
    }

    #[test]
    fn the_gate_is_wide_again_when_the_last_has_gone_who_had_it_be_narrow() {
        let gate = Gate::default();
        let (first, second) = (Narrow::new(&gate), Narrow::new(&gate));
        assert!(gate.narrow(Instant::now(), true));
        drop(first);
        assert!(gate.is_narrow());
        drop(second);
        assert!(!gate.is_narrow(), "whoever else waits for something");
    }

    #[test]
    fn a_gate_is_closed_until_nobody_holds_it() {
        let gate = Arc::new(Gate::default());
        let (first, second) = (gate.close(), gate.close());
        drop(first);
        assert!(gate.is_closed() && !gate.is_shut());
        drop(second);
        assert!(!gate.is_closed());
    }
}
