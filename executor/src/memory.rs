//! The pages of a session's slot: sinks everywhere, arenas where the kernel grants them.
//!
//! Nothing here waits for the session: whoever calls has paused it.

use std::{collections::BTreeMap, sync::Arc};

use bulkhead_gpu::{Access, DeviceAddress, Error, FillPattern, Gpu, MemoryId, StreamId};
use bulkhead_mm::{Range, SINK_BYTES, Slot};

/// A session's slot on the device.
pub(crate) struct SlotMemory {
    gpu: Arc<dyn Gpu>,
    slot: Slot,
    sink: MemoryId,
    arenas: BTreeMap<u64, (u64, MemoryId)>,
    /// For scrubbing: a stream that no record reaches.
    stream: StreamId,
}

impl SlotMemory {
    /// Reserves what the session can reach and fills it with the session's own sink: read-write where stores reach,
    /// read-only elsewhere.
    pub(crate) fn open(gpu: &Arc<dyn Gpu>, slot: Slot) -> Result<Self, Error> {
        let reach = slot.reach();
        gpu.reserve(DeviceAddress(reach.start().0), reach.bytes())?;
        let made = Self::fill(gpu, slot);
        if made.is_err() {
            gpu.unreserve(DeviceAddress(reach.start().0), reach.bytes())?;
        }
        made
    }

    fn fill(gpu: &Arc<dyn Gpu>, slot: Slot) -> Result<Self, Error> {
        let stream = gpu.create_stream(0)?;
        let made = Self::map_slot(gpu, slot, stream);
        if made.is_err() {
            gpu.destroy_stream(stream)?;
        }
        made
    }

    fn map_slot(gpu: &Arc<dyn Gpu>, slot: Slot, stream: StreamId) -> Result<Self, Error> {
        let (reach, stores) = (slot.reach(), slot.stores_reach());
        let sink = gpu.create_memory(SINK_BYTES)?;
        let chunks = |bytes: u64| bytes / SINK_BYTES;
        let start = DeviceAddress(reach.start().0);
        gpu.map(start, sink, SINK_BYTES, chunks(stores.bytes()), Access::ReadWrite)?;
        let rest = DeviceAddress(stores.end().0);
        gpu.map(rest, sink, SINK_BYTES, chunks(reach.bytes() - stores.bytes()), Access::Read)?;
        let memory = Self { gpu: Arc::clone(gpu), slot, sink, arenas: BTreeMap::new(), stream };
        memory.scrub(slot.base().0, SINK_BYTES)?;
        Ok(memory)
    }

    fn scrub(&self, at: u64, bytes: u64) -> Result<(), Error> {
        self.gpu.fill(self.stream, DeviceAddress(at), FillPattern::Bits32(0), bytes / 4)?;
        self.gpu.synchronize(self.stream)
    }

    fn check(&self, at: u64, bytes: u64) -> Result<(), Error> {
        let range = Range::new(bulkhead_mm::DeviceAddress(at), bytes);
        let inside = bytes > 0 && range.is_some_and(|range| self.slot.read_write().contains(range));
        let whole = at.is_multiple_of(SINK_BYTES) && bytes.is_multiple_of(SINK_BYTES);
        if inside && whole {
            Ok(())
        } else {
            Err(Error::Refused("the arena does not lie in the window".into()))
        }
    }

    /// Replaces the sinks of a range by zeroed memory of its own.
    pub(crate) fn map_arena(&mut self, at: u64, bytes: u64) -> Result<(), Error> {
        self.check(at, bytes)?;
        let overlaps =
            self.arenas.range(..at + bytes).next_back().is_some_and(|(start, (size, _))| start + size > at);
        if overlaps {
            return Err(Error::Refused("the arena overlaps another".into()));
        }
        let memory = self.gpu.create_memory(bytes)?;
        self.gpu.unmap(DeviceAddress(at), bytes)?;
        if let Err(error) = self.gpu.map(DeviceAddress(at), memory, bytes, 1, Access::ReadWrite) {
            self.map_sinks(at, bytes)?;
            self.gpu.destroy_memory(memory)?;
            return Err(error);
        }
        if let Err(error) = self.scrub(at, bytes) {
            self.gpu.unmap(DeviceAddress(at), bytes)?;
            self.map_sinks(at, bytes)?;
            self.gpu.destroy_memory(memory)?;
            return Err(error);
        }
        self.arenas.insert(at, (bytes, memory));
        Ok(())
    }

    /// Gives an arena back; its range holds sinks again.
    pub(crate) fn unmap_arena(&mut self, at: u64, bytes: u64) -> Result<(), Error> {
        match self.arenas.get(&at) {
            Some((size, memory)) if *size == bytes => {
                let memory = *memory;
                self.gpu.unmap(DeviceAddress(at), bytes)?;
                self.arenas.remove(&at);
                self.map_sinks(at, bytes)?;
                self.gpu.destroy_memory(memory)
            }
            _ => Err(Error::Refused("no such arena".into())),
        }
    }

    fn map_sinks(&self, at: u64, bytes: u64) -> Result<(), Error> {
        self.gpu.map(DeviceAddress(at), self.sink, SINK_BYTES, bytes / SINK_BYTES, Access::ReadWrite)
    }

    /// Gives everything back. The session has no work left.
    pub(crate) fn close(self) -> Result<(), Error> {
        let reach = self.slot.reach();
        let start = DeviceAddress(reach.start().0);
        self.gpu.unmap(start, reach.bytes())?;
        for (_, memory) in self.arenas.values() {
            self.gpu.destroy_memory(*memory)?;
        }
        self.gpu.destroy_memory(self.sink)?;
        self.gpu.destroy_stream(self.stream)?;
        self.gpu.unreserve(start, reach.bytes())
    }
}
