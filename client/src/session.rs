//! A session: one client's world on one GPU.

mod opening;
mod ring;
mod work;

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use bulkhead_ring::{Bind, CompletionReader, Copy, Ended, Producer, Record};
use bulkhead_schema::{Error, ErrorCode, Handle};
use parking_lot::Mutex;

use crate::{
    Device, DeviceRange, Entry, Fence, HostSpan, Stream,
    barrier::Barriers,
    connection::Remote,
    faults::Watch,
    graph::Numbers,
    heap::State as HeapState,
    host::HostMemory,
    ledger::Reserved,
    memory::Memory,
    stream::{Indices, Streams},
    transfer::Staging,
};

pub use opening::Options;

/// How long a waiting thread polls before it starts to nap.
pub(crate) const SPIN: Duration = Duration::from_micros(200);
/// How long it then lets others run between two looks. A nap is no shorter than the timer's slack, 50 us on Linux, which is too late
/// for what takes less than this.
const YIELD: Duration = Duration::from_millis(2);
/// Longest nap of a waiting thread.
const NAP_MAX: Duration = Duration::from_micros(500);
/// A nap is this part of the time waited so far: late by as much at most.
const NAP_FRACTION: u32 = 200;
/// How long after a session's client the kernel may hear that the session is over.
const KERNEL_HEARS: Duration = Duration::from_millis(200);
/// How long a thread that finds the ring full sleeps; a full ring lasts some 50 times as long.
pub(crate) const FULL_NAP: Duration = Duration::from_micros(50);
/// The reply slot that answers come in.
const REPLY: u32 = 0;
/// In place of a stream, for records that are no stream's work.
pub(crate) const NO_STREAM: u32 = u32::MAX;

/// An open session. Cheap to clone; ends when the last clone, and the last buffer and image, are dropped.
#[derive(Clone)]
pub struct Session {
    pub(crate) inner: Arc<Inner>,
}

/// See [`Session`].
pub(crate) struct Inner {
    pub(crate) remote: Remote,
    pub(crate) memory: Memory,
    pub(crate) host: HostMemory,
    /// What the kernel and gates call it.
    number: u32,
    device: Device,
    window: (u64, u64),
    /// Of the program that it was opened from.
    entries: Vec<Entry>,
    pub(crate) submit: Mutex<Submit>,
    barriers: Arc<Barriers>,
    pub(crate) page: CompletionReader,
    /// What the kernel lets records name.
    pub(crate) reserved: Mutex<Reserved>,
    refusals_seen: AtomicU64,
    moves: AtomicU32,
    /// Held while an answer is waited for.
    asking: Mutex<()>,
    /// Why it is over, as the kernel says it, once that was asked.
    words: OnceLock<Option<Error>>,
    staging: Mutex<Option<Arc<Staging>>>,
    /// What kernels allocate from.
    pub(crate) heap: Mutex<HeapState>,
    pub(crate) watch: Watch,
}

pub(crate) struct Submit {
    pub(crate) producer: Producer,
    pub(crate) streams: Streams,
    /// The fence of each event's latest recording.
    pub(crate) events: Indices<Option<Fence>>,
    pub(crate) graphs: Numbers,
    /// Events that were given up, which the device may still record.
    pub(crate) retiring: Vec<u32>,
}

impl Session {
    /// What a session that was [opened from a program](Session::open_program) can launch; none for others.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.inner.entries
    }

    /// How often the session has moved to another executor because its own was lost. Work that was in flight then is
    /// lost, and said to be; memory and code are as they were.
    #[must_use]
    pub fn moves(&self) -> u32 {
        self.inner.moves.load(Ordering::Relaxed)
    }

    /// What the kernel calls the session, in its status and to gates that the session's kernels call: no other session ever has
    /// this number.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.inner.number
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// First address and size of the session's slot of device addresses.
    #[must_use]
    pub fn window(&self) -> (u64, u64) {
        self.inner.window
    }
}

impl Session {
    pub(crate) fn release(&self, key: usize) {
        self.inner.remote.release(key);
    }

    pub(crate) fn barriers(&self) -> &Arc<Barriers> {
        &self.inner.barriers
    }

    /// Where copies of ordinary memory are staged, once there was one.
    pub(crate) fn staging(&self) -> &Mutex<Option<Arc<Staging>>> {
        &self.inner.staging
    }

    /// The work that was submitted and has not passed: the latest of each stream that has some.
    pub(crate) fn outstanding(&self) -> Vec<Fence> {
        let mut submit = self.inner.submit.lock();
        let Streams { indices, latest, passed, .. } = &mut submit.streams;
        let mut fences = Vec::new();
        for (stream, (latest, passed)) in (0..).zip(latest.iter().zip(passed).take(indices.used())) {
            if *latest <= *passed {
                continue;
            }
            if !self.inner.memory.is_ours() {
                // A forked child: the work is its parent's, and the page is not there.
                return fences;
            }
            *passed = self.inner.page.mark(stream);
            if *latest > *passed {
                fences.push(Fence { stream: Stream(stream), position: *latest });
            }
        }
        fences
    }

    /// Whether a fence has passed, whatever has become of its work: nobody is told of that here.
    #[must_use]
    pub fn has_passed(&self, fence: Fence) -> bool {
        self.inner.page.mark(fence.stream.0) >= fence.position
    }
}

impl Inner {
    /// The session has moved to another executor: a page that counts refusals anew is about to be seen.
    pub(crate) fn moved(&self, times: u32) {
        self.moves.store(times, Ordering::Relaxed);
    }
}

pub(crate) fn name(handle: Handle) -> Bind {
    Bind { slot: handle.slot, generation: handle.generation }
}

/// One end of a copy: bytes of a buffer, or of memory of the host's.
pub(crate) struct End {
    handle: Handle,
    offset: u64,
    bytes: u64,
}

impl From<DeviceRange> for End {
    fn from(range: DeviceRange) -> Self {
        Self { handle: range.handle, offset: range.offset, bytes: range.bytes }
    }
}

impl From<HostSpan> for End {
    fn from(span: HostSpan) -> Self {
        Self { handle: span.handle, offset: span.offset, bytes: span.bytes }
    }
}

pub(crate) fn copy(to: End, from: End) -> Result<Copy, Error> {
    if to.bytes != from.bytes {
        return Err(Error::new(ErrorCode::InvalidArgument, "the ranges of a copy differ in length"));
    }
    Ok(Copy {
        to: name(to.handle),
        to_offset: to.offset,
        from: name(from.handle),
        from_offset: from.offset,
        bytes: to.bytes,
    })
}

pub(crate) fn copied_to_device(stream: Stream, to: DeviceRange, from: HostSpan) -> Result<Record, Error> {
    let copy = copy(to.into(), from.into())?;
    Ok(Record::CopyToDevice { stream: stream.0, copy })
}

pub(crate) fn copied_to_host(stream: Stream, to: HostSpan, from: DeviceRange) -> Result<Record, Error> {
    let copy = copy(to.into(), from.into())?;
    Ok(Record::CopyToHost { stream: stream.0, copy })
}

fn code(code: u16) -> ErrorCode {
    ErrorCode::try_from(code).unwrap_or(ErrorCode::Internal)
}

fn over(ended: Ended) -> Error {
    let code = code(ended.code);
    let message = match code {
        ErrorCode::DeviceLost => "the GPU's context was lost",
        ErrorCode::OutOfMemory => "the session's process took more of the device than the session may have",
        ErrorCode::Protocol => "the session broke the ring's protocol",
        ErrorCode::LaunchTimeout => "a kernel ran for longer than it may, and was ended with its session",
        ErrorCode::Revoked => {
            "memory of others, or gates of a module, that the session's work went on using were taken back, or have ended"
        }
        _ => "the session is over",
    };
    let remedy = match code {
        ErrorCode::Revoked => "open a new session; `bulkhead module list` tells which modules serve",
        _ => "open a new session",
    };
    Error::new(code, message).remedy(remedy).device(ended.device)
}
