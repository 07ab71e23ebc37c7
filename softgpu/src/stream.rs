//! Streams: queues of work, each with a thread that does it in order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use bulkhead_gpu::{Access, Error, StreamId};
use parking_lot::{Condvar, Mutex};

use crate::exec::{Core, Did, Dispatch, Observer};
use crate::fault::Fault;
use crate::health::Health;
use crate::memory::host::HostUse;
use crate::memory::space::AddressSpace;
use crate::memory::{self, Violation};
use crate::pool::Pool;

/// Pieces of work that one stream holds.
const QUEUE_MAX: usize = 1 << 16;

/// One piece of work.
#[derive(Debug)]
pub(crate) enum Work {
    /// Runs a grid.
    Launch(Arc<Dispatch>),
    /// Copies to device memory.
    ToDevice { to: u64, from: HostUse },
    /// Copies from device memory.
    ToHost { to: HostUse, from: u64 },
    /// Copies inside device memory.
    OnDevice { to: u64, from: u64, bytes: u64 },
    /// Fills device memory; the pattern is repeated to 8 bytes.
    Fill { to: u64, bytes: u64, pattern: u64 },
    /// Stores a value for the host.
    Publish { at: HostUse, value: u64 },
    /// Takes a timestamp.
    Record(Arc<Event>),
}

/// An event.
#[derive(Debug, Default)]
pub(crate) struct Event {
    state: Mutex<Recorded>,
}

#[derive(Debug, Default)]
struct Recorded {
    reached: Option<Instant>,
    pending: u64,
}

impl Event {
    /// A record of it is on its way.
    pub(crate) fn announce(&self) {
        self.state.lock().pending += 1;
    }

    fn reach(&self) {
        let mut state = self.state.lock();
        state.pending -= 1;
        state.reached = Some(Instant::now());
    }

    /// When it was reached last; `None` while a record is on its way.
    pub(crate) fn time(&self) -> Option<Instant> {
        let state = self.state.lock();
        state.reached.filter(|_| state.pending == 0)
    }
}

#[derive(Debug, Default)]
struct Queue {
    work: VecDeque<Work>,
    /// A piece of work has been taken and is not done.
    busy: bool,
    closed: bool,
}

/// A stream.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    queue: Mutex<Queue>,
    more: Condvar,
    idle: Condvar,
}

impl Stream {
    /// Adds work behind all other.
    pub(crate) fn push(&self, work: Work) -> Result<(), Error> {
        let mut queue = self.queue.lock();
        if queue.work.len() >= QUEUE_MAX {
            return Err(Error::Refused("the stream's queue is full".to_owned()));
        }
        if let Work::Record(event) = &work {
            event.announce();
        }
        queue.work.push_back(work);
        self.more.notify_one();
        Ok(())
    }

    /// Waits until nothing is queued or running.
    pub(crate) fn wait(&self) {
        let mut queue = self.queue.lock();
        while queue.busy || !queue.work.is_empty() {
            self.idle.wait(&mut queue);
        }
    }

    /// Takes no more work; what is queued is still done.
    pub(crate) fn close(&self) {
        self.queue.lock().closed = true;
        self.more.notify_all();
    }

    fn next(&self) -> Option<Work> {
        let mut queue = self.queue.lock();
        queue.busy = false;
        loop {
            if let Some(work) = queue.work.pop_front() {
                queue.busy = true;
                return Some(work);
            }
            self.idle.notify_all();
            if queue.closed {
                return None;
            }
            self.more.wait(&mut queue);
        }
    }
}

/// What a stream's thread needs.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) stream: Arc<Stream>,
    pub(crate) space: Arc<AddressSpace>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) health: Arc<Health>,
    pub(crate) number: u32,
    /// Who is told what the stream does, and as which.
    pub(crate) observer: Option<(StreamId, Arc<dyn Observer>)>,
}

impl Worker {
    /// The thread's life: until the stream is closed and empty. Work of a dead context is dropped.
    pub(crate) fn run(self) {
        let mut core = Core::new(Arc::clone(&self.space), self.number);
        while let Some(work) = self.stream.next() {
            if self.health.is_lost() {
                continue;
            }
            self.health.watch(|| {
                if let Err((violation, address)) = self.watched(&work, &mut core) {
                    let fault = Fault::access(violation, "copy", address);
                    self.health.lose(fault.lost("a stream's copy or fill"));
                }
            });
        }
    }

    /// Performs a piece of work and tells the observer, if there is one, before the next one begins.
    fn watched(&self, work: &Work, core: &mut Core) -> Result<(), (Violation, u64)> {
        let Some((stream, observer)) = &self.observer else { return self.perform(work, core) };
        let from = Instant::now();
        self.perform(work, core)?;
        let did = match work {
            Work::Launch(dispatch) => {
                Did::Launch { grid: &dispatch.grid, is_watched: dispatch.watched.is_some() }
            }
            Work::ToDevice { to, from } => Did::ToDevice { to: *to, bytes: from.len() as u64 },
            Work::ToHost { to, .. } => Did::ToHost(to.len() as u64),
            Work::OnDevice { to, from, bytes } => Did::OnDevice { to: *to, from: *from, bytes: *bytes },
            Work::Fill { to, bytes, .. } => Did::Fill { to: *to, bytes: *bytes },
            Work::Publish { .. } => Did::Publish,
            Work::Record(_) => Did::Record,
        };
        observer.did(*stream, did, from, Instant::now());
        Ok(())
    }

    fn perform(&self, work: &Work, core: &mut Core) -> Result<(), (Violation, u64)> {
        match work {
            Work::Launch(dispatch) => self.pool.run(Arc::clone(dispatch), core),
            Work::ToDevice { to, from } => {
                let mut done = from.offset();
                for piece in self.space.pieces(*to, from.len() as u64, Access::ReadWrite) {
                    let (bytes, offset, len) = piece?;
                    memory::copy(from.bytes(), done, &bytes, offset, len);
                    done += len;
                }
            }
            Work::ToHost { to, from } => {
                let mut done = to.offset();
                for piece in self.space.pieces(*from, to.len() as u64, Access::Read) {
                    let (bytes, offset, len) = piece?;
                    memory::copy(&bytes, offset, to.bytes(), done, len);
                    done += len;
                }
            }
            Work::OnDevice { to, from, bytes } => self.copy_on_device(*to, *from, *bytes)?,
            Work::Fill { to, bytes, pattern } => {
                for piece in self.space.pieces(*to, *bytes, Access::ReadWrite) {
                    let (bytes, offset, len) = piece?;
                    memory::fill(&bytes, offset, len, *pattern);
                }
            }
            Work::Publish { at, value } => at.bytes().publish(at.offset(), *value),
            Work::Record(event) => event.reach(),
        }
        Ok(())
    }

    fn copy_on_device(&self, to: u64, from: u64, bytes: u64) -> Result<(), (Violation, u64)> {
        let mut done = 0;
        for source in self.space.pieces(from, bytes, Access::Read) {
            let (source, source_offset, len) = source?;
            let mut inside = 0;
            for target in self.space.pieces(to + done, len as u64, Access::ReadWrite) {
                let (target, offset, len) = target?;
                memory::copy(&source, source_offset + inside, &target, offset, len);
                inside += len;
            }
            done += len as u64;
        }
        Ok(())
    }
}
