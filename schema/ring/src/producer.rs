//! The client's end.

use std::{collections::VecDeque, sync::Arc};

use crate::{
    Ended,
    consumer::Waker,
    layout::{ARENA_WORDS, RECORDS},
    memory::Ring,
    mutant::Mutant,
    record::{
        Bind, Blocks, EntryLaunch, INLINE_BYTES, INLINE_WORD, Launch, LaunchShape, NodePlace, NodeWork,
        ParameterPlace, Record, Words,
    },
    sync::{Ordering, store_load},
};

/// The ring has no room at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the submission ring is full")]
pub struct Full;

/// A piece of the arena, free again once the consumer has taken the record at `position`.
#[derive(Debug, Clone, Copy)]
struct Loan {
    position: u64,
    /// Words ever lent up to its end, the gaps left at the arena's end included.
    end: u64,
}

/// Pushes records. One per ring; threads share it behind a lock.
pub struct Producer {
    ring: Arc<Ring>,
    tail: u64,
    head_seen: u64,
    loans: VecDeque<Loan>,
    /// Words of the arena ever lent and ever given back.
    lent: u64,
    returned: u64,
}

impl Producer {
    /// The producer of a fresh ring.
    #[must_use]
    pub fn new(ring: Arc<Ring>) -> Self {
        Self { ring, tail: 0, head_seen: 0, loans: VecDeque::new(), lent: 0, returned: 0 }
    }

    /// Records ever pushed.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.tail
    }

    /// Whether the kernel has ended the session.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        Ended::unpack(self.ring.header().ended.load(Ordering::Acquire))
    }

    /// Pushes a record and returns the position that has passed once its work is done.
    ///
    /// # Errors
    /// [`Full`]: nothing was pushed.
    pub fn push(&mut self, record: &Record) -> Result<u64, Full> {
        self.reserve()?;
        self.write(&record.encode());
        Ok(self.publish())
    }

    /// Pushes a launch whose parameter block of `bytes` bytes is filled by `fill`; it arrives padded with zeros
    /// to whole words.
    ///
    /// # Errors
    /// [`Full`]: nothing was pushed and `fill` was not called.
    #[inline]
    pub fn push_launch(
        &mut self,
        stream: u32,
        entry: Bind,
        shape: LaunchShape,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<u64, Full> {
        self.push_blocks(stream, EntryLaunch { entry, shape, blocks: Blocks::Apart }, bytes, fill)
    }

    /// As [`Producer::push_launch`], where blocks may wait for one another.
    ///
    /// # Errors
    /// As there.
    pub fn push_blocks(
        &mut self,
        stream: u32,
        launched: EntryLaunch,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<u64, Full> {
        let record = |launch| Record::Launch { stream, launch };
        self.push_with_parameters(record, launched, bytes, fill)
    }

    /// As [`Producer::push_blocks`], as what a node of a graph does.
    ///
    /// # Errors
    /// As there.
    pub fn push_node(
        &mut self,
        stream: u32,
        place: NodePlace,
        launched: EntryLaunch,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<u64, Full> {
        let record = |launch| Record::Node { stream, place, work: NodeWork::Launch(launch) };
        self.push_with_parameters(record, launched, bytes, fill)
    }

    #[inline]
    fn push_with_parameters(
        &mut self,
        record: impl Fn(Launch) -> Record,
        launched: EntryLaunch,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<u64, Full> {
        let EntryLaunch { entry, shape, blocks } = launched;
        self.reserve()?;
        let parameter_bytes = u32::try_from(bytes).map_err(|_| Full)?;
        let launch = |parameters| record(Launch { entry, shape, blocks, parameter_bytes, parameters });
        if bytes <= INLINE_BYTES {
            let mut block = [0; INLINE_BYTES];
            fill(&mut block[..bytes]);
            let mut words = launch(ParameterPlace::Inline).encode();
            for (word, bytes) in words[INLINE_WORD..].iter_mut().zip(block.as_chunks::<8>().0) {
                *word = u64::from_ne_bytes(*bytes);
            }
            self.write(&words);
        } else {
            let count = bytes.div_ceil(8);
            let start = self.borrow(count)?;
            let mut block = vec![0; count * 8];
            fill(&mut block[..bytes]);
            for (cell, bytes) in self.ring.arena()[start..start + count].iter().zip(block.as_chunks::<8>().0)
            {
                cell.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
            }
            let place = ParameterPlace::Arena(u32::try_from(start).map_err(|_| Full)?);
            self.write(&launch(place).encode());
        }
        Ok(self.publish())
    }

    /// Opens barriers of this ring's streams; needs no lock that those who push may hold while the ring is full.
    #[must_use]
    pub fn opener(&self) -> Opener {
        Opener { ring: Arc::clone(&self.ring), waker: Waker::new(&self.ring) }
    }

    fn reserve(&mut self) -> Result<(), Full> {
        if self.tail.wrapping_sub(self.head_seen) >= RECORDS as u64 {
            self.head_seen = self.head();
            if self.tail.wrapping_sub(self.head_seen) >= RECORDS as u64 {
                return Err(Full);
            }
        }
        Ok(())
    }

    /// The consumer's head; one that makes no sense counts as no progress.
    fn head(&self) -> u64 {
        let head = self.ring.header().head.load(Ordering::Acquire);
        if head > self.tail { self.head_seen } else { head.max(self.head_seen) }
    }

    /// Takes `count` contiguous words of the arena for the next record.
    fn borrow(&mut self, count: usize) -> Result<usize, Full> {
        self.head_seen = self.head();
        while let Some(loan) = self.loans.front().copied().filter(|loan| loan.position < self.head_seen) {
            self.returned = loan.end;
            self.loans.pop_front();
        }
        let (count, size) = (count as u64, ARENA_WORDS as u64);
        let offset = self.lent % size;
        let gap = if offset + count > size { size - offset } else { 0 };
        if self.lent - self.returned + gap + count > size {
            return Err(Full);
        }
        let start = (offset + gap) % size;
        self.lent += gap + count;
        self.loans.push_back(Loan { position: self.tail, end: self.lent });
        usize::try_from(start).map_err(|_| Full)
    }

    fn write(&self, words: &Words) {
        for (cell, word) in self.ring.record(self.tail).0.iter().zip(words) {
            cell.store(*word, Ordering::Relaxed);
        }
    }

    /// Makes the record visible and wakes a sleeping consumer.
    fn publish(&mut self) -> u64 {
        let header = self.ring.header();
        self.tail += 1;
        header.tail.store(self.tail, Ordering::Release);
        // Either we see the consumer parked, or it sees our tail.
        store_load(Mutant::NoFenceOfTheProducer);
        if header.parked.load(Ordering::Relaxed) == 1 {
            self.wake();
        }
        self.tail
    }

    #[cold]
    fn wake(&self) {
        let header = self.ring.header();
        header.parked.store(0, Ordering::Relaxed);
        header.doorbell.fetch_add(1, Ordering::Release);
        self.ring.wake();
    }
}

/// Opens barriers: what host functions do once they have returned.
#[derive(Clone)]
pub struct Opener {
    ring: Arc<Ring>,
    waker: Waker,
}

impl Opener {
    /// Opens all barriers of a stream up to `number`, and wakes a sleeping consumer. Numbers of a stream only grow.
    pub fn open(&self, stream: u32, number: u64) {
        let Some(word) = self.ring.header().opened.get(stream as usize) else { return };
        word.store(number, Ordering::Release);
        self.waker.wake();
    }
}
