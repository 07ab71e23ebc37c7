//! What may only be given back in calls that wait for every running kernel: registered host memory, completion pages,
//! images. Whoever drops one hands it to the [reaper](crate::watch::reaper).

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use bulkhead_gpu::{Error, Gpu, HostAddress, HostRange, ImageId};
use bulkhead_ring::memory::{Completion, Shared};
use parking_lot::Mutex;

/// Host memory that may wait for an idle device, in bytes; beyond that no more is registered.
const WAITING_BYTES_MAX: usize = 8 << 30;
/// Each page and piece of host memory that waits is a mapping of this process: one in so many of those that the system lets it
/// have may wait, beyond which no more is registered. The others are for memory that is in use, threads and the driver.
const MAPPINGS_PER_WAITING: usize = 8;
/// What Linux lets a process have unless it is told otherwise.
const MAPPINGS_USUAL: usize = 65_530;
/// How long whoever wants to register more waits for room: one session's memory may fill it, and everybody else goes on then.
pub(crate) const ROOM: Duration = Duration::from_secs(10);
/// Somebody still wants room who asked so long ago: who was refused and asks again wants it all the time.
const WANTS: Duration = Duration::from_secs(15);

/// How many pages and pieces may wait.
fn waiting_max() -> usize {
    let mappings = fs::read_to_string("/proc/sys/vm/max_map_count");
    let mappings = mappings.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(MAPPINGS_USUAL);
    mappings / MAPPINGS_PER_WAITING
}

/// What waits to be given back, and who is held up by that.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) bytes: AtomicUsize,
    pub(super) pieces: AtomicUsize,
    pieces_max: usize,
    /// When somebody found no room for the last time.
    wanted: Mutex<Option<Instant>>,
}

impl Waiting {
    pub(super) fn is_full(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > WAITING_BYTES_MAX
            || self.pieces.load(Ordering::Relaxed) >= self.pieces_max
    }

    /// Notes that somebody found no room.
    fn want(&self) {
        *self.wanted.lock() = Some(Instant::now());
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.lock().is_some_and(|asked| asked.elapsed() < WANTS)
    }
}

/// Something to be given back.
pub(super) enum Reaped {
    Host(Shared),
    Page(Arc<Completion>),
    Image(ImageId),
}

impl Reaped {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Host(memory) => memory.bytes(),
            Self::Page(page) => page.range().1,
            Self::Image(_) => 0,
        }
    }

    pub(super) fn give_back(self, gpu: &dyn Gpu) {
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

fn host_range(memory: &Shared) -> HostRange {
    HostRange { at: HostAddress(memory.address()), bytes: memory.bytes() }
}

fn page_range(page: &Completion) -> HostRange {
    let (at, bytes) = page.range();
    HostRange { at: HostAddress(at), bytes }
}

/// The range `[offset, offset + bytes)` of host memory, if it lies in it.
pub(crate) fn part(memory: HostRange, offset: u64, bytes: u64) -> Option<HostRange> {
    let (offset, bytes) = (usize::try_from(offset).ok()?, usize::try_from(bytes).ok()?);
    (offset <= memory.bytes && bytes <= memory.bytes - offset)
        .then(|| HostRange { at: HostAddress(memory.at.0 + offset), bytes })
}

/// Where things to be given back go. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Reaper {
    sender: mpsc::Sender<Reaped>,
    waiting: Arc<Waiting>,
}

/// The other end of a [`Reaper`].
pub(crate) struct Remains {
    pub(super) receiver: mpsc::Receiver<Reaped>,
    pub(super) waiting: Arc<Waiting>,
}

impl std::fmt::Debug for Reaped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.bytes())
    }
}

impl Reaper {
    pub(crate) fn new() -> (Self, Remains) {
        Self::with(waiting_max())
    }

    fn with(pieces_max: usize) -> (Self, Remains) {
        let (sender, receiver) = mpsc::channel();
        let (bytes, pieces) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let waiting = Arc::new(Waiting { bytes, pieces, pieces_max, wanted: Mutex::new(None) });
        (Self { sender, waiting: Arc::clone(&waiting) }, Remains { receiver, waiting })
    }

    /// Whether so much host memory waits to be given back that no more should be registered.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.is_full()
    }

    /// Whether more host memory may be registered now, which somebody wants.
    pub(crate) fn has_room(&self) -> bool {
        let is_full = self.is_full();
        if is_full {
            self.waiting.want();
        }
        !is_full
    }

    /// Whether a session may be opened, which needs a page: also where host memory finds no room any more.
    pub(crate) fn has_room_for_a_session(&self) -> bool {
        let waiting = &self.waiting;
        let has_room = waiting.pieces.load(Ordering::Relaxed) < waiting.pieces_max.saturating_mul(2);
        if !has_room {
            waiting.want();
        }
        has_room
    }

    /// Counts host memory that somebody else gives back, until the result is dropped.
    pub(crate) fn count(&self, bytes: usize) -> Counted {
        self.waiting.bytes.fetch_add(bytes, Ordering::Relaxed);
        Counted { bytes, waiting: Arc::clone(&self.waiting) }
    }

    fn reap(&self, what: Reaped) {
        self.waiting.bytes.fetch_add(what.bytes(), Ordering::Relaxed);
        if !matches!(what, Reaped::Image(_)) {
            self.waiting.pieces.fetch_add(1, Ordering::Relaxed);
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
}

/// Host memory that waits for an idle device.
#[must_use]
pub(crate) struct Counted {
    bytes: usize,
    waiting: Arc<Waiting>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.waiting.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
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
        part(host_range(self.memory.as_ref()?), offset, bytes)
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
    fn whoever_finds_no_room_wants_some_for_a_while() {
        let (reaper, remains) = Reaper::new();
        assert!(reaper.has_room() && !remains.waiting.is_wanted());
        let counted = reaper.count(WAITING_BYTES_MAX + 1);
        assert!(!remains.waiting.is_wanted(), "nobody has asked");
        assert!(!reaper.has_room() && remains.waiting.is_wanted());
        assert!(reaper.has_room_for_a_session());
        drop(counted);
        assert!(reaper.has_room());
    }

    #[test]
    fn so_many_pieces_wait_as_leave_this_process_mappings() {
        let (reaper, remains) = Reaper::with(2);
        for (waiting, room, opens) in [(1, true, true), (2, false, true), (3, false, true), (4, false, false)]
        {
            remains.waiting.pieces.store(waiting, Ordering::Relaxed);
            assert_eq!((reaper.has_room(), reaper.has_room_for_a_session()), (room, opens), "{waiting}");
        }
        assert!(waiting_max() * MAPPINGS_PER_WAITING <= 1 << 31);
    }
}
