//! Barriers: points of a stream that its work does not pass before the host opens them.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bulkhead_ring::{Opener, Record};
use bulkhead_schema::{Error, limits};
use parking_lot::Mutex;

use crate::{
    Session, Stream,
    session::{FULL_NAP, SPIN},
};

/// A closed barrier: what was submitted to its stream later waits. Dropping it opens it.
#[must_use = "it is open as soon as it is dropped"]
pub struct Barrier {
    barriers: Arc<Barriers>,
    stream: Stream,
    number: u64,
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
    streams: Mutex<Vec<Numbers>>,
    /// How many are closed.
    closed: AtomicUsize,
    /// A stream that never has any.
    aside: Mutex<Option<Stream>>,
    /// What is called, once, where somebody waits for room behind closed ones for long.
    tell: OnceLock<fn()>,
    told: AtomicBool,
}

/// How long somebody waits for room before it is told.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Numbers {
    latest: u64,
    closed: BTreeSet<u64>,
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

impl Session {
    /// Waits a moment for room in the ring, which was full at `start`.
    ///
    /// # Errors
    /// Where the session is over.
    pub(crate) fn nap_for_room(&self, start: Instant) -> Result<(), Error> {
        thread::sleep(FULL_NAP);
        if start.elapsed() > SPIN {
            self.status()?;
            self.barriers().wait_for_room(start);
        }
        Ok(())
    }

    /// A stream for short work of the session's own, which never has a barrier: such work must not wait for the host. `usual`
    /// where the session may have no more streams.
    #[must_use]
    pub fn aside(&self, usual: Stream) -> Stream {
        let mut aside = self.barriers().aside.lock();
        if aside.is_none() {
            *aside = self.create_stream(0).ok();
        }
        aside.unwrap_or(usual)
    }

    /// Has `tell` called once, where somebody has waited 5 s for room to submit while barriers are closed: perhaps whoever
    /// is to open them waits for that thread. Only the first `tell` counts.
    pub fn tell_who_waits_for_room(&self, tell: fn()) {
        self.barriers().tell.get_or_init(|| tell);
    }

    /// Closes a barrier behind what the stream was given so far. Later work of the stream, and what waits for it, is not
    /// done before the barrier is opened; whoever submits it does not wait. At most
    /// [`HELD_MAX`](limits::HELD_MAX) records of a session wait so: whoever submits more waits for room.
    ///
    /// # Errors
    /// Where the session is over.
    pub fn barrier(&self, stream: Stream) -> Result<Barrier, Error> {
        let barriers = self.barriers();
        let mut number = 0;
        // Numbers go in the ring's order: the ring's lock is held.
        self.push_with(stream.0, |submit| {
            let mut streams = barriers.streams.lock();
            let Some(numbers) = streams.get_mut(stream.0 as usize) else {
                // As any other record of a stream that there is not: the executor refuses it.
                return submit.producer.push(&Record::HostBarrier { stream: stream.0, number: 0 });
            };
            number = numbers.latest + 1;
            let position = submit.producer.push(&Record::HostBarrier { stream: stream.0, number })?;
            submit.streams.tie(stream.0, position);
            numbers.latest = number;
            numbers.closed.insert(number);
            barriers.closed.fetch_add(1, Ordering::AcqRel);
            Ok(position)
        })?;
        Ok(Barrier { barriers: Arc::clone(barriers), stream, number })
    }
}
