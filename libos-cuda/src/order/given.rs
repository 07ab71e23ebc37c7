//! Which host functions streams were given that have not returned.
//!
//! All have numbers of one row. Whoever waits takes the latest number first and waits until none is open up to it: what
//! others give meanwhile keeps nobody.

use std::collections::BTreeSet;

use bulkhead_schema::limits::STREAMS_MAX;
use parking_lot::{Condvar, Mutex};

/// Some of the streams, a bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slots(pub(super) u64);

impl Slots {
    pub(super) const ALL: Slots = Slots(u64::MAX);

    pub(super) fn contains(self, index: usize) -> bool {
        self.0 >> index & 1 != 0
    }
}

struct State {
    latest: u64,
    /// Those that have not returned, by the stream's number.
    open: [BTreeSet<u64>; STREAMS_MAX as usize],
}

impl State {
    /// Whether all have returned that `slots` were given up to a number.
    fn have_passed(&self, slots: Slots, until: u64) -> bool {
        let mut open = self.open.iter().enumerate().filter(|(index, _)| slots.contains(*index));
        !open.any(|(_, open)| open.first().is_some_and(|first| *first <= until))
    }
}

/// The host functions of all streams.
pub(super) struct Given {
    state: Mutex<State>,
    passed: Condvar,
}

impl Given {
    pub(super) fn new() -> Given {
        let open = std::array::from_fn(|_| BTreeSet::new());
        Given { state: Mutex::new(State { latest: 0, open }), passed: Condvar::new() }
    }

    /// Notes one, and numbers it.
    pub(super) fn begin(&self, index: u32) -> u64 {
        let mut state = self.state.lock();
        state.latest += 1;
        let number = state.latest;
        if let Some(open) = state.open.get_mut(index as usize) {
            open.insert(number);
        }
        number
    }

    /// Notes that it has returned, and wakes those who wait for it.
    pub(super) fn end(&self, index: u32, number: u64) {
        let mut state = self.state.lock();
        if let Some(open) = state.open.get_mut(index as usize) {
            open.remove(&number);
        }
        self.passed.notify_all();
    }

    /// The number of the latest.
    pub(super) fn latest(&self) -> u64 {
        self.state.lock().latest
    }

    /// Whether all have returned that streams were given up to a number.
    pub(super) fn have_passed(&self, slots: Slots, until: u64) -> bool {
        self.state.lock().have_passed(slots, until)
    }

    /// Waits until they have.
    pub(super) fn wait(&self, slots: Slots, until: u64) {
        let mut state = self.state.lock();
        while !state.have_passed(slots, until) {
            self.passed.wait(&mut state);
        }
    }
}
