//! Engines that behave badly, as far as they may.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use bulkhead_nvme::engine::{Done, Durability, Engine, Operation, RamEngine, Request};

use crate::support::Random;

/// Gives requests back in any order, some late, and has room for a few only.
pub struct Shuffled {
    inner: RamEngine,
    kept: Vec<Done>,
    depth: usize,
    random: Random,
}

impl Shuffled {
    pub fn new(bytes: usize, depth: usize, seed: u64) -> Self {
        Self { inner: RamEngine::zeroed(bytes), kept: Vec::new(), depth, random: Random::new(seed) }
    }
}

impl Engine for Shuffled {
    fn name(&self) -> &'static str {
        "shuffled"
    }

    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn submit(&mut self, request: Request) -> Result<(), Request> {
        if self.in_flight() >= self.depth {
            return Err(request);
        }
        self.inner.submit(request)
    }

    fn poll(&mut self, done: &mut Vec<Done>) {
        self.inner.poll(&mut self.kept);
        while !self.kept.is_empty() && self.random.chance(50) {
            let index = self.random.index(self.kept.len());
            done.push(self.kept.swap_remove(index));
        }
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.kept.len()
    }
}

/// Gives nothing back while it is held.
pub struct Held {
    pub inner: RamEngine,
    pub held: Arc<AtomicBool>,
}

impl Engine for Held {
    fn name(&self) -> &'static str {
        "held"
    }

    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn submit(&mut self, request: Request) -> Result<(), Request> {
        self.inner.submit(request)
    }

    fn poll(&mut self, done: &mut Vec<Done>) {
        if !self.held.load(Ordering::Relaxed) {
            self.inner.poll(done);
        }
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
}

/// What a [`Volatile`] engine leaves behind.
pub type Media = Arc<Mutex<Vec<u8>>>;

/// A store with a volatile cache, over blocks of 512 bytes. When it is dropped, each block that was not flushed is on
/// the media or is not, as chance has it; of a block either all or nothing.
pub struct Volatile {
    media: Media,
    /// The blocks that were written and not flushed, in order.
    cached: Vec<(usize, Vec<u8>)>,
    queued: Vec<Request>,
    random: Random,
}

const BLOCK: usize = 512;

impl Volatile {
    pub fn new(media: Media, seed: u64) -> Self {
        Self { media, cached: Vec::new(), queued: Vec::new(), random: Random::new(seed) }
    }

    fn execute(&mut self, request: Request) -> Done {
        let Request { tag, mut operation } = request;
        let start = |offset: &u64| usize::try_from(*offset).unwrap();
        match &mut operation {
            Operation::Read { offset, buffer } => {
                let at = start(offset);
                let bytes = buffer.as_mut_slice();
                bytes.copy_from_slice(&self.media.lock().unwrap()[at..at + bytes.len()]);
                for (block, data) in &self.cached {
                    if let Some(inside) = block.checked_sub(at)
                        && inside < bytes.len()
                    {
                        bytes[inside..inside + BLOCK].copy_from_slice(data);
                    }
                }
            }
            Operation::Write { offset, buffer, durability } => {
                for (index, block) in buffer.as_slice().chunks_exact(BLOCK).enumerate() {
                    let at = start(offset) + index * BLOCK;
                    match durability {
                        Durability::Flushed => self.cached.push((at, block.to_vec())),
                        Durability::Forced => {
                            self.cached.retain(|(cached, _)| *cached != at);
                            self.media.lock().unwrap()[at..at + BLOCK].copy_from_slice(block);
                        }
                    }
                }
            }
            Operation::Flush => self.write_back(100),
        }
        Done { tag, operation, result: Ok(()) }
    }

    /// Writes back each cached block with this chance, and forgets the others.
    fn write_back(&mut self, percent: u64) {
        let mut media = self.media.lock().unwrap();
        for (at, block) in self.cached.drain(..) {
            if self.random.chance(percent) {
                media[at..at + BLOCK].copy_from_slice(&block);
            }
        }
    }
}

impl Engine for Volatile {
    fn name(&self) -> &'static str {
        "volatile"
    }

    fn bytes(&self) -> u64 {
        self.media.lock().unwrap().len() as u64
    }

    fn submit(&mut self, request: Request) -> Result<(), Request> {
        self.queued.push(request);
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Done>) {
        while !self.queued.is_empty() && self.random.chance(60) {
            let index = self.random.index(self.queued.len());
            let request = self.queued.swap_remove(index);
            done.push(self.execute(request));
        }
    }

    fn in_flight(&self) -> usize {
        self.queued.len()
    }
}

impl Drop for Volatile {
    fn drop(&mut self) {
        for request in std::mem::take(&mut self.queued) {
            if self.random.chance(50) {
                self.execute(request);
            }
        }
        self.write_back(50);
    }
}
