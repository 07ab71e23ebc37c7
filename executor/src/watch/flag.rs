//! What tells a session's kernels to end.
//!
//! The last bytes of a slot are its *flag*: words at which threads look now and then ([`bulkhead_guard`]), and end
//! where they are negative. No session's store reaches them, and they are mapped for
//! loads only. The executor writes them elsewhere, in a stream of its own, by a copy of host memory: that needs
//! no multiprocessor, all of which may be taken by what is to end.

use std::{os::fd::AsFd, sync::Arc};

use bulkhead_gpu::{
    Access, DeviceAddress, Error, FillPattern, Gpu, HostAddress, HostRange, MemoryId, StreamId,
};
use bulkhead_mm::{ARENA_GRANULE_BYTES, FLAG_BYTES, FLAGS, PAGE_BYTES, Slot};
use bulkhead_ring::memory::{Shared, create_shared};

/// What lets threads go on.
const GO: u32 = 0;
/// What ends them.
const STOP: u32 = u32::MAX;
/// No session's stream is as urgent: work of theirs that waits is not in this stream's way.
const PRIORITY: i32 = -5;

const _: () = assert!(FLAG_BYTES == bulkhead_verifier::FLAG_BYTES as u64);

/// What a flag says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Says {
    Go,
    Stop,
}

/// Writes flags.
pub(crate) struct Flags {
    gpu: Arc<dyn Gpu>,
    stream: StreamId,
    /// A flag that says go, then one that says stop.
    words: Shared,
}

impl Flags {
    pub(crate) fn open(gpu: &Arc<dyn Gpu>) -> Result<Self, Error> {
        let broken = |error: std::io::Error| Error::Refused(format!("memory for flags: {error}"));
        let bytes = usize::try_from(2 * FLAG_BYTES).unwrap_or(usize::MAX);
        let descriptor = create_shared(2 * FLAG_BYTES).map_err(broken)?;
        let words = Shared::map(descriptor.as_fd(), bytes).map_err(broken)?;
        words.write(0, &GO.to_ne_bytes().repeat(bytes / 8));
        words.write(bytes / 2, &STOP.to_ne_bytes().repeat(bytes / 8));
        gpu.register_host(HostRange { at: HostAddress(words.address()), bytes })?;
        gpu.reserve(DeviceAddress(FLAGS.start().0), FLAGS.bytes())?;
        let stream = gpu.create_stream(PRIORITY)?;
        Ok(Self { gpu: Arc::clone(gpu), stream, words })
    }

    /// Makes the page of a slot, which says go, and maps it where the executor writes it and where the session's
    /// kernels read it. `stream` does nothing else: a fill in the stream that writes flags would hold those up.
    pub(crate) fn map(&self, slot: Slot, stream: StreamId) -> Result<MemoryId, Error> {
        let gpu = &self.gpu;
        let page = gpu.create_memory(PAGE_BYTES)?;
        let at = DeviceAddress(slot.flag_page().start().0);
        let granule = DeviceAddress(slot.flag_granule().start().0);
        let made = gpu.map(at, page, PAGE_BYTES, 1, Access::ReadWrite).and_then(|()| {
            let count = ARENA_GRANULE_BYTES / PAGE_BYTES;
            let filled = gpu
                .fill(stream, at, FillPattern::Bits32(GO), PAGE_BYTES / 4)
                .and_then(|()| gpu.synchronize(stream))
                .and_then(|()| gpu.map(granule, page, PAGE_BYTES, count, Access::Read));
            if filled.is_err() {
                gpu.unmap(at, PAGE_BYTES)?;
            }
            filled
        });
        if made.is_err() {
            gpu.destroy_memory(page)?;
        }
        made.map(|()| page)
    }

    /// Undoes [`Flags::map`].
    pub(crate) fn unmap(&self, slot: Slot, page: MemoryId) -> Result<(), Error> {
        self.gpu.unmap(DeviceAddress(slot.flag_granule().start().0), ARENA_GRANULE_BYTES)?;
        self.gpu.unmap(DeviceAddress(slot.flag_page().start().0), PAGE_BYTES)?;
        self.gpu.destroy_memory(page)
    }
}

/// The flag of one slot. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Flag {
    flags: Arc<Flags>,
    slot: Slot,
}

impl Flag {
    pub(crate) fn new(flags: &Arc<Flags>, slot: Slot) -> Self {
        Self { flags: Arc::clone(flags), slot }
    }

    /// Has the device write it, soon.
    pub(crate) fn set(&self, says: Says) -> Result<(), Error> {
        let bytes = self.flags.words.bytes() / 2;
        let from = match says {
            Says::Go => self.flags.words.address(),
            Says::Stop => self.flags.words.address() + bytes,
        };
        let to = DeviceAddress(self.slot.flag_page().end().0 - FLAG_BYTES);
        let from = HostRange { at: HostAddress(from), bytes };
        self.flags.gpu.copy_to_device(self.flags.stream, to, from)
    }

    /// Sets it and waits until that is done.
    pub(crate) fn set_now(&self, says: Says) -> Result<(), Error> {
        self.set(says)?;
        self.flags.gpu.synchronize(self.flags.stream)
    }
}
