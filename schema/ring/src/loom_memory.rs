//! The same shapes on loom's atomics, in one process; the futex is a mutex and a condition variable.

use std::{sync::Arc, time::Duration};

use loom::sync::{Condvar, Mutex};

use crate::{
    layout::{ARENA_WORDS, Cell, Header, Line, RECORD_WORDS, RECORDS},
    sync::{AtomicU32, AtomicU64, Ordering},
};

/// A ring.
pub struct Ring {
    header: Header,
    records: Vec<Cell>,
    arena: Vec<AtomicU64>,
    futex: Mutex<()>,
    woken: Condvar,
}

impl Ring {
    /// A fresh ring.
    #[must_use]
    pub fn fresh() -> Arc<Self> {
        let header = Header {
            tail: Line::new(AtomicU64::new(0)),
            head: Line::new(AtomicU64::new(0)),
            parked: Line::new(AtomicU32::new(0)),
            doorbell: Line::new(AtomicU32::new(0)),
            ended: Line::new(AtomicU64::new(0)),
            taken: Line::new(AtomicU64::new(0)),
            priorities: Line::new(std::array::from_fn(|_| AtomicU64::new(0))),
            opened: Line::new(std::array::from_fn(|_| AtomicU64::new(0))),
        };
        let cell = || Cell(std::array::from_fn::<_, RECORD_WORDS, _>(|_| AtomicU64::new(0)));
        Arc::new(Self {
            header,
            records: (0..RECORDS).map(|_| cell()).collect(),
            arena: (0..ARENA_WORDS).map(|_| AtomicU64::new(0)).collect(),
            futex: Mutex::new(()),
            woken: Condvar::new(),
        })
    }

    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    pub(crate) fn record(&self, position: u64) -> &Cell {
        &self.records[usize::try_from(position).expect("small") % RECORDS]
    }

    pub(crate) fn arena(&self) -> &[AtomicU64] {
        &self.arena
    }

    /// Never times out: a lost wake-up shows as a deadlock.
    pub(crate) fn sleep(&self, seen: u32, _timeout: Duration) -> bool {
        let mut held = self.futex.lock().expect("not poisoned");
        while self.header.doorbell.load(Ordering::Relaxed) == seen {
            held = self.woken.wait(held).expect("not poisoned");
        }
        true
    }

    pub(crate) fn wake(&self) {
        let held = self.futex.lock().expect("not poisoned");
        self.woken.notify_all();
        drop(held);
    }
}

/// A completion page; not part of the model.
pub struct Completion {
    words: Vec<AtomicU64>,
}

impl Completion {
    pub(crate) fn word(&self, index: usize) -> &AtomicU64 {
        &self.words[index]
    }
}
