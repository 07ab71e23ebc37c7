//! What may only be given back in calls that wait for every running kernel, and who makes them.
//!
//! On an NVIDIA device, unregistering host memory and unloading code wait for the kernels of all sessions; and while
//! somebody waits to unregister, nobody can launch. So nobody who serves a session does it: whatever is dropped is
//! handed to one thread, the *reaper*. It unloads as it comes, and unregisters while no session has work on the
//! device and the *gate* keeps new work from it.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use bulkhead_gpu::{Error, Gpu, HostAddress, HostRange, ImageId};
use bulkhead_ring::memory::{Completion, Shared};

use crate::{executor::Executor, session::bindings};

/// How often the reaper looks whether the device is idle.
const LOOK: Duration = Duration::from_millis(1);
/// Pages and pieces of host memory that may wait for an idle device; beyond that no more is registered.
const WAITING_MAX: usize = 65_536;
/// Host memory that may wait for an idle device, in bytes; beyond that no more is registered.
const WAITING_BYTES_MAX: usize = 8 << 30;

/// How long whoever wants to register more waits for room: one session's memory may fill it, and everybody else goes on then.
const ROOM: Duration = Duration::from_secs(10);

/// Something to be given back.
enum Reaped {
    Host(Shared),
    Page(Arc<Completion>),
    Image(ImageId),
}

impl Reaped {
    fn bytes(&self) -> usize {
        match self {
            Self::Host(memory) => memory.bytes(),
            Self::Page(page) => page.range().1,
            Self::Image(_) => 0,
        }
    }

    fn give_back(self, gpu: &dyn Gpu) {
        let (range, done) = match &self {
            Self::Host(memory) => (true, gpu.unregister_host(host_range(memory))),
            Self::Page(page) => (true, gpu.unregister_host(page_range(page))),
            Self::Image(image) => (false, gpu.unload(*image)),
        };
        if let Err(error) = done {
            tracing::error!(%error, "something stays on the device");
            if range {
                // The device may still reach it, so it stays mapped.
                std::mem::forget(self);
            }
        }
    }
}

fn is_full(bytes: &AtomicUsize, waiting: &AtomicUsize) -> bool {
    bytes.load(Ordering::Relaxed) > WAITING_BYTES_MAX || waiting.load(Ordering::Relaxed) >= WAITING_MAX
}

fn host_range(memory: &Shared) -> HostRange {
    HostRange { at: HostAddress(memory.address()), bytes: memory.bytes() }
}

fn page_range(page: &Completion) -> HostRange {
    let (at, bytes) = page.range();
    HostRange { at: HostAddress(at), bytes }
}

/// Where things to be given back go. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Reaper {
    sender: mpsc::Sender<Reaped>,
    waiting_bytes: Arc<AtomicUsize>,
    waiting: Arc<AtomicUsize>,
}

/// The other end of a [`Reaper`].
pub(crate) struct Remains {
    receiver: mpsc::Receiver<Reaped>,
    waiting_bytes: Arc<AtomicUsize>,
    waiting: Arc<AtomicUsize>,
}

impl std::fmt::Debug for Reaped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.bytes())
    }
}

impl Reaper {
    pub(crate) fn new() -> (Self, Remains) {
        let (sender, receiver) = mpsc::channel();
        let (waiting_bytes, waiting) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let reaper =
            Self { sender, waiting_bytes: Arc::clone(&waiting_bytes), waiting: Arc::clone(&waiting) };
        (reaper, Remains { receiver, waiting_bytes, waiting })
    }

    /// Whether more host memory may be registered. Where much waits to be given back this waits for it, ten seconds at most.
    pub(crate) fn has_room(&self) -> bool {
        self.has_room_within(ROOM)
    }

    fn has_room_within(&self, most: Duration) -> bool {
        let until = Instant::now() + most;
        while self.is_full() {
            if Instant::now() >= until {
                return false;
            }
            thread::sleep(LOOK);
        }
        true
    }

    /// Whether so much host memory waits to be given back that no more should be registered.
    fn is_full(&self) -> bool {
        is_full(&self.waiting_bytes, &self.waiting)
    }

    /// Counts host memory that somebody else gives back, until the result is dropped.
    pub(crate) fn count(&self, bytes: usize) -> Counted {
        self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        Counted { bytes, waiting_bytes: Arc::clone(&self.waiting_bytes) }
    }

    fn reap(&self, what: Reaped) {
        self.waiting_bytes.fetch_add(what.bytes(), Ordering::Relaxed);
        if !matches!(what, Reaped::Image(_)) {
            self.waiting.fetch_add(1, Ordering::Relaxed);
        }
        if let Err(mpsc::SendError(what)) = self.sender.send(what) {
            // The process ends; until then the device may reach it.
            std::mem::forget(what);
        }
    }
}

impl Remains {
    /// Whether something was given up, which is taken out.
    #[cfg(test)]
    pub(crate) fn has_some(&self) -> bool {
        self.receiver.try_recv().is_ok()
    }

    /// The reaper's life.
    pub(crate) fn run(&self, executor: &Weak<Executor>, gpu: &dyn Gpu) {
        if let Err(error) = gpu.bind_thread() {
            tracing::error!(%error, "the reaper");
        }
        let mut waiting = VecDeque::new();
        loop {
            let next = if waiting.is_empty() {
                self.receiver.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected)
            } else {
                self.receiver.recv_timeout(LOOK)
            };
            match next {
                Ok(image @ Reaped::Image(_)) => image.give_back(gpu),
                Ok(next @ (Reaped::Host(_) | Reaped::Page(_))) => waiting.push_back(next),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
            let Some(executor) = executor.upgrade() else { break };
            while let Some(next) = waiting.pop_front() {
                let bytes = next.bytes();
                let mut next = Some(next);
                let mut give_back = || next.take().into_iter().for_each(|next| next.give_back(gpu));
                // Nobody can register more: then work is held back until the device is idle, as for who loads code.
                if is_full(&self.waiting_bytes, &self.waiting) {
                    executor.while_drained(0, &mut give_back);
                } else {
                    executor.while_idle(&mut give_back);
                }
                if let Some(next) = next {
                    waiting.push_front(next);
                    break;
                }
                self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
                self.waiting.fetch_sub(1, Ordering::Relaxed);
            }
        }
        // The executor ends, and everything with it.
        waiting.into_iter().for_each(std::mem::forget);
    }
}

/// Host memory that waits for an idle device.
#[must_use]
pub(crate) struct Counted {
    bytes: usize,
    waiting_bytes: Arc<AtomicUsize>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.waiting_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Host memory that the device may reach until this is dropped, and for a while after.
pub(crate) struct Pinned {
    memory: Option<Shared>,
    reaper: Reaper,
}

impl Pinned {
    /// Registers memory with the device.
    pub(crate) fn register(gpu: &dyn Gpu, reaper: &Reaper, memory: Shared) -> Result<Self, Error> {
        gpu.register_host(host_range(&memory))?;
        Ok(Self { memory: Some(memory), reaper: reaper.clone() })
    }

    /// The range `[offset, offset + bytes)`, if it lies in it.
    pub(crate) fn part(&self, offset: u64, bytes: u64) -> Option<HostRange> {
        bindings::part(host_range(self.memory.as_ref()?), offset, bytes)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.reaper.reap(Reaped::Host(memory));
        }
    }
}

/// A completion page that the device may write until this is dropped, and for a while after.
pub(crate) struct Page {
    page: Arc<Completion>,
    reaper: Reaper,
}

impl Page {
    /// Registers a page with the device.
    pub(crate) fn register(gpu: &dyn Gpu, reaper: &Reaper, page: Arc<Completion>) -> Result<Self, Error> {
        gpu.register_host(page_range(&page))?;
        Ok(Self { page, reaper: reaper.clone() })
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.reaper.reap(Reaped::Page(Arc::clone(&self.page)));
    }
}

/// A loaded image, unloaded after the last that can launch one of its entries is gone. Whoever drops one has seen
/// all of its launches pass.
#[derive(Debug)]
pub(crate) struct Image {
    id: ImageId,
    reaper: Reaper,
}

impl Image {
    /// The device's name for it.
    pub(crate) fn id(&self) -> ImageId {
        self.id
    }

    pub(crate) fn new(id: ImageId, reaper: &Reaper) -> Self {
        Self { id, reaper: reaper.clone() }
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        self.reaper.reap(Reaped::Image(self.id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_finds_no_room_waits_until_there_is_some_or_for_so_long() {
        let (reaper, _remains) = Reaper::new();
        let counted = reaper.count(WAITING_BYTES_MAX + 1);
        assert!(!reaper.has_room_within(Duration::from_millis(20)));
        let waits = {
            let reaper = reaper.clone();
            thread::spawn(move || reaper.has_room_within(Duration::from_secs(60)))
        };
        thread::sleep(Duration::from_millis(20));
        drop(counted);
        assert!(waits.join().unwrap());
    }
}
