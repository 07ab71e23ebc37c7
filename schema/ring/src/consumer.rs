//! The executor's end.

use std::{sync::Arc, time::Duration};

use crate::{
    ProtocolError,
    layout::{PRIORITIES_PER_WORD, RECORD_WORDS, RECORDS, STREAMS},
    memory::Ring,
    mutant::{Mutant, is_switched_on},
    record::{INLINE_WORD, Launch, ParameterPlace, Record, Words},
    sync::{Ordering, spin, store_load},
};

/// Places given back between two stores to the head that the producer reads.
#[cfg(not(loom))]
const RELEASE_BATCH: u64 = 32;
#[cfg(loom)]
const RELEASE_BATCH: u64 = 2;

/// Records copied out of the ring at a time.
#[cfg(not(loom))]
const COPY_BATCH: usize = 16;
#[cfg(loom)]
const COPY_BATCH: usize = 2;

/// How [`Consumer::park`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Park {
    /// There is, or may be, a record.
    Ready,
    /// The time is up.
    TimedOut,
}

/// Takes records. One per ring.
pub struct Consumer {
    ring: Arc<Ring>,
    head: u64,
    tail_seen: u64,
    /// Records copied out of the ring and not yet given back, the one to take first in front.
    copied: [Words; COPY_BATCH],
    /// Which of them is next, and how many there are.
    next: usize,
    count: usize,
    /// The head that the producer knows.
    published: u64,
}

impl Consumer {
    /// The consumer of a fresh ring.
    #[must_use]
    pub fn new(ring: Arc<Ring>) -> Self {
        Self {
            ring,
            head: 0,
            tail_seen: 0,
            copied: [[0; RECORD_WORDS]; COPY_BATCH],
            next: 0,
            count: 0,
            published: 0,
        }
    }

    /// The consumer of a ring that another process has taken records from: goes on with the first that was not taken.
    /// The client can write what says so, as it can write all of its ring: where that makes no sense, the ring counts
    /// as empty.
    #[must_use]
    pub fn resume(ring: Arc<Ring>) -> Self {
        let header = ring.header();
        let (taken, tail) = (header.taken.load(Ordering::Acquire), header.tail.load(Ordering::Acquire));
        let head = if taken <= tail && tail - taken <= RECORDS as u64 { taken } else { tail };
        header.taken.store(head, Ordering::Relaxed);
        header.head.store(head, Ordering::Release);
        Self { head, tail_seen: head, published: head, ..Self::new(ring) }
    }

    /// Records ever taken.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.head
    }

    /// How far the producer says it is; what a record waits behind that asks for everything before it.
    #[must_use]
    pub fn tail(&self) -> u64 {
        self.ring.header().tail.load(Ordering::Acquire)
    }

    /// Whether a record waits. Does not judge the tail.
    pub fn is_ready(&mut self) -> bool {
        if self.next < self.count {
            return true;
        }
        if self.tail_seen == self.head {
            self.tail_seen = self.ring.header().tail.load(Ordering::Acquire);
        }
        self.tail_seen != self.head
    }

    /// Copies and decodes the next record, if there is one. Its parameters stay readable, and its place in the
    /// ring taken, until [`Consumer::release`].
    ///
    /// # Errors
    /// Where the producer broke the protocol; the ring is of no use any more.
    pub fn take(&mut self) -> Result<Option<Record>, ProtocolError> {
        if !self.is_ready() {
            self.publish();
            return Ok(None);
        }
        if self.next == self.count {
            self.copy()?;
        }
        Record::decode(&self.copied[self.next], self.head).map(Some)
    }

    /// Copies what waits, a batch at most: the lines come from another core's cache, and many at a time come hardly
    /// slower than one.
    fn copy(&mut self) -> Result<(), ProtocolError> {
        let (tail, head) = (self.tail_seen, self.head);
        if tail < head || tail - head > RECORDS as u64 {
            return Err(ProtocolError::Tail { tail, head });
        }
        let waiting = usize::try_from(tail - head).unwrap_or(COPY_BATCH).min(COPY_BATCH);
        for (position, words) in (head..).zip(&mut self.copied[..waiting]) {
            for (word, cell) in words.iter_mut().zip(&self.ring.record(position).0) {
                *word = cell.load(Ordering::Relaxed);
            }
        }
        (self.next, self.count) = (0, waiting);
        Ok(())
    }

    /// Copies the parameter block of the record taken last into `block`, and returns its bytes rounded up to
    /// whole words.
    pub fn parameters<'a>(&self, launch: &Launch, block: &'a mut Vec<u64>) -> &'a mut Vec<u64> {
        let count = (launch.parameter_bytes as usize).div_ceil(8);
        block.clear();
        match launch.parameters {
            ParameterPlace::Inline => {
                block.extend_from_slice(&self.copied[self.next][INLINE_WORD..INLINE_WORD + count]);
            }
            ParameterPlace::Arena(start) => {
                let cells = &self.ring.arena()[start as usize..start as usize + count];
                block.extend(cells.iter().map(|cell| cell.load(Ordering::Relaxed)));
            }
        }
        block
    }

    /// Gives the place of the record taken last back to the producer, which learns of it in batches: telling it
    /// each time would move a cache line per record between two cores.
    pub fn release(&mut self) {
        self.head += 1;
        self.next += 1;
        // On a line that the producer does not read, so it stays in this core's cache.
        self.ring.header().taken.store(self.head, Ordering::Release);
        if self.head.is_multiple_of(RELEASE_BATCH) {
            self.publish();
        }
    }

    /// Tells the producer of every place given back so far.
    pub fn publish(&mut self) {
        if self.published != self.head {
            self.published = self.head;
            self.ring.header().head.store(self.head, Ordering::Release);
        }
    }

    /// Notes with which priority a stream was made, for whoever consumes the ring after this: 0, the least urgent, or
    /// below.
    pub fn note_priority(&self, stream: u32, priority: i32) {
        let index = stream as usize;
        let Some(word) = self.ring.header().priorities.get(index / PRIORITIES_PER_WORD) else { return };
        let urgency = priority.min(0).unsigned_abs().min(u32::from(u8::MAX));
        let shift = index % PRIORITIES_PER_WORD * 8;
        // Nobody else writes it, but for a client that can only hurt itself.
        let others = word.load(Ordering::Relaxed) & !(0xff << shift);
        word.store(others | u64::from(urgency) << shift, Ordering::Relaxed);
    }

    /// What was noted of each stream; 0 where nothing was. The client can write it, as it can write all of its ring.
    #[must_use]
    pub fn priorities(&self) -> [i32; STREAMS] {
        let words = &self.ring.header().priorities;
        let mut bytes = words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes());
        std::array::from_fn(|_| -i32::from(bytes.next().unwrap_or(0)))
    }

    /// How many of a stream's barriers the host has opened. The client can write it, as it can write all of its ring.
    #[must_use]
    pub fn opened(&self, stream: u32) -> u64 {
        self.ring.header().opened.get(stream as usize).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Spins for a record, `turns` times.
    pub fn spin(&mut self, turns: u32) -> bool {
        for _ in 0..turns {
            if self.is_ready() {
                return true;
            }
            spin();
        }
        false
    }

    /// Sleeps until the producer publishes or `timeout` has passed. Never sleeps without a timeout: the word it
    /// sleeps on belongs to the client.
    pub fn park(&mut self, timeout: Duration) -> Park {
        let bell = self.listen();
        self.park_since(bell, timeout)
    }

    /// What [`Consumer::park_since`] compares with: a wake-up after this is not slept through.
    #[must_use]
    pub fn listen(&self) -> u32 {
        self.ring.header().doorbell.load(Ordering::Acquire)
    }

    /// Sleeps as [`Consumer::park`], unless somebody was woken since `bell` was answered.
    pub fn park_since(&mut self, bell: u32, timeout: Duration) -> Park {
        self.publish();
        let header = self.ring.header();
        header.parked.store(1, Ordering::Relaxed);
        // Either the producer sees us parked, or we see its tail.
        store_load(Mutant::NoFenceOfTheConsumer);
        let ring = Arc::clone(&self.ring);
        let park = if self.is_ready() || ring.sleep(bell, timeout) { Park::Ready } else { Park::TimedOut };
        ring.header().parked.store(0, Ordering::Relaxed);
        park
    }

    /// Sleeps whether or not there are records, which nobody can take at the moment, unless somebody was woken since `bell` was
    /// answered.
    pub fn sleep_since(&mut self, bell: u32, timeout: Duration) {
        self.publish();
        self.ring.sleep(bell, timeout);
    }

    /// Wakes a thread in [`Consumer::park`], from the executor's own side.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker::new(&self.ring)
    }
}

/// Wakes the consumer of a ring for other reasons than a record: the executor's, and a barrier that the host opens.
#[derive(Clone)]
pub struct Waker {
    ring: Arc<Ring>,
}

impl Waker {
    pub(crate) fn new(ring: &Arc<Ring>) -> Self {
        Self { ring: Arc::clone(ring) }
    }

    /// Ends a sleep, or prevents the one about to begin. What was stored before is seen by a consumer that listens after.
    pub fn wake(&self) {
        if !is_switched_on(Mutant::WakeWithoutTheBell) {
            let order =
                if is_switched_on(Mutant::RelaxedBell) { Ordering::Relaxed } else { Ordering::Release };
            self.ring.header().doorbell.fetch_add(1, order);
        }
        if !is_switched_on(Mutant::BellWithoutTheWake) {
            self.ring.wake();
        }
    }
}
