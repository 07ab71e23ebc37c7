//! What streams were given that the device cannot wait for: host functions, and events of other processes.
//!
//! All of it has numbers of one row. Whoever waits takes the latest number first and waits for what has none above
//! it: what others give meanwhile keeps nobody.

use std::collections::BTreeMap;

use bulkhead_schema::limits::STREAMS_MAX;
use parking_lot::{Condvar, Mutex};

/// Which of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    HostFunction,
    /// An event of another process.
    Awaited,
}

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
    /// What has not passed, by the stream's number.
    open: [BTreeMap<u64, What>; STREAMS_MAX as usize],
}

impl State {
    /// Whether all has passed that `slots` were given up to a number.
    fn have_passed(&self, slots: Slots, until: u64, counts: impl Fn(What) -> bool) -> bool {
        let mut open = self.open.iter().enumerate().filter(|(index, _)| slots.contains(*index));
        !open.any(|(_, open)| open.range(..=until).any(|(_, what)| counts(*what)))
    }
}

/// What all streams were given.
pub(super) struct Given {
    state: Mutex<State>,
    passed: Condvar,
}

impl Given {
    pub(super) fn new() -> Given {
        let open = std::array::from_fn(|_| BTreeMap::new());
        Given { state: Mutex::new(State { latest: 0, open }), passed: Condvar::new() }
    }

    /// Notes something, and numbers it.
    pub(super) fn begin(&self, index: u32, kind: What) -> u64 {
        let mut state = self.state.lock();
        state.latest += 1;
        let number = state.latest;
        if let Some(open) = state.open.get_mut(index as usize) {
            open.insert(number, kind);
        }
        number
    }

    /// Notes that it has passed, and wakes those who wait for it.
    pub(super) fn end(&self, index: u32, number: u64) {
        let mut state = self.state.lock();
        if let Some(open) = state.open.get_mut(index as usize) {
            open.remove(&number);
        }
        self.passed.notify_all();
    }

    /// The number of what was given last.
    pub(super) fn latest(&self) -> u64 {
        self.state.lock().latest
    }

    /// Whether all has passed that streams were given up to a number.
    pub(super) fn have_passed(&self, slots: Slots, until: u64, counts: impl Fn(What) -> bool) -> bool {
        self.state.lock().have_passed(slots, until, counts)
    }

    /// Waits until it has.
    pub(super) fn wait(&self, slots: Slots, until: u64, counts: impl Fn(What) -> bool) {
        let mut state = self.state.lock();
        while !state.have_passed(slots, until, &counts) {
            self.passed.wait(&mut state);
        }
    }
}
