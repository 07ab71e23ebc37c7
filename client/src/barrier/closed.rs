//! Closed barriers, and which of them a session has.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bulkhead_ring::Opener;
use bulkhead_schema::limits;
use parking_lot::Mutex;

use crate::Stream;

/// A closed barrier: what was submitted to its stream later waits. Dropping it opens it.
#[must_use = "it is open as soon as it is dropped"]
pub struct Barrier {
    pub(super) barriers: Arc<Barriers>,
    pub(super) stream: Stream,
    pub(super) number: u64,
}

impl Barrier {
    /// Lets the stream go on; nobody waits for it here.
    pub fn open(self) {}
}

impl Drop for Barrier {
    fn drop(&mut self) {
        self.barriers.open(self.stream, self.number);
    }
}

/// A session's barriers. The executor knows of a stream how many are open: those before the first closed one.
pub(crate) struct Barriers {
    opener: Opener,
    pub(super) streams: Mutex<Vec<Numbers>>,
    /// How many are closed.
    pub(super) closed: AtomicUsize,
    /// A stream that never has any.
    pub(super) aside: Mutex<Option<Stream>>,
    /// What is called, once, where somebody waits for room behind closed ones for long.
    pub(super) tell: OnceLock<fn()>,
    told: AtomicBool,
}

/// How long somebody waits for room before it is told.
const PATIENCE: Duration = Duration::from_secs(5);

/// The barriers of a stream.
#[derive(Default)]
pub(super) struct Numbers {
    pub(super) latest: u64,
    pub(super) closed: BTreeSet<u64>,
}

impl Numbers {
    fn opened(&self) -> u64 {
        self.closed.first().map_or(self.latest, |closed| closed - 1)
    }
}

impl Barriers {
    pub(crate) fn new(opener: Opener) -> Arc<Self> {
        let streams = (0..limits::STREAMS_MAX).map(|_| Numbers::default()).collect();
        Arc::new(Self {
            opener,
            streams: Mutex::new(streams),
            closed: AtomicUsize::new(0),
            aside: Mutex::new(None),
            tell: OnceLock::new(),
            told: AtomicBool::new(false),
        })
    }

    /// Whether work may have to wait for the host.
    pub(crate) fn any_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) > 0
    }

    /// Somebody waits for room since then.
    pub(crate) fn wait_for_room(&self, since: Instant) {
        if self.any_closed()
            && since.elapsed() > PATIENCE
            && let Some(tell) = self.tell.get()
            && !self.told.swap(true, Ordering::Relaxed)
        {
            tell();
        }
    }

    fn open(&self, stream: Stream, number: u64) {
        let mut streams = self.streams.lock();
        let Some(numbers) = streams.get_mut(stream.0 as usize) else { return };
        if numbers.closed.remove(&number) {
            self.closed.fetch_sub(1, Ordering::AcqRel);
        }
        // Under the lock, so that the executor sees the number grow only.
        self.opener.open(stream.0, numbers.opened());
    }
}
