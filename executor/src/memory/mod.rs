//! The pages of a session's slot: sinks everywhere, memory where the kernel grants it.
//!
//! Sinks are mapped in granules of 64 MiB and can only be unmapped whole. So a granule holds either its sink, or
//! pieces of memory with a *filler* wherever none lies: a sink of one page, mapped as often as needed.
//!
//! Memory on the slot's *shelf* is mapped nowhere: its address is only a name, by which it is mapped elsewhere.
//!
//! The slot of an isolated session is *plain*: nothing lies where no memory does, and what kernels do there is a fault of
//! theirs, as natively.
//!
//! Nothing here waits for the session: whoever calls has paused it.
//!
//! # Invariant
//! No address of a slot that is not plain is without a mapping but during a call, or after one that left the slot *broken*.

mod host;
pub(crate) mod physical;
pub(crate) mod piece;
pub(crate) mod swap;
pub(crate) mod warm;
pub(crate) mod workbench;

use std::{collections::BTreeMap, os::fd::OwnedFd, sync::Arc, time::Instant};

use bulkhead_gpu::{Access, DeviceAddress, Error, Gpu, HostRange, MemoryId, StreamId};
use bulkhead_mm::{ARENA_GRANULE_BYTES, PAGE_BYTES, Range, SINK_BYTES, Slot, granules};

use crate::{
    memory::{
        physical::Physical,
        piece::{Mapping, Pieces, Whose},
        workbench::Workbench,
    },
    moments::waits::Waits,
    watch::flag::{Flag, Flags, Says},
};

/// What is made zero or copied at once.
const PIECE_BYTES: u64 = 128 << 20;
/// What somebody waits for.
pub(crate) const CLEARED: &str = "have memory cleared";
const COPIED: &str = "have memory copied";

/// What all slots share.
#[derive(Clone)]
pub(crate) struct Means {
    pub(crate) gpu: Arc<dyn Gpu>,
    pub(crate) physical: Physical,
    pub(crate) workbench: Arc<Workbench>,
    pub(crate) flags: Arc<Flags>,
    pub(crate) pieces: Arc<Pieces>,
    /// Who waits for the device, on which memory is made zero by a kernel of the driver's.
    pub(crate) waits: Waits,
    /// Whether slots are plain.
    pub(crate) plain: bool,
    /// Whether there is the wide slot and no other.
    pub(crate) wide: bool,
}

impl Means {
    /// The slot with this index.
    pub(crate) fn slot(&self, index: u32) -> Option<Slot> {
        match self.wide {
            true => (index == 0).then(Slot::wide),
            false => Slot::new(index),
        }
    }
}

/// Memory that goes: is it scrubbed, where nobody else has it?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leave {
    Scrubbed,
    AsItIs,
}

/// What becomes of memory that is split into new pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Old {
    /// Nobody else has it.
    Scrubbed,
    /// A standby has it: it stays as it is, and the session is held until the standby has the pieces.
    Kept,
}

/// What lies in a slot in the place of sinks.
enum Content {
    Memory(Mapping),
    /// Host memory, where the executor has it.
    Host(HostRange),
}

impl Content {
    fn bytes(&self) -> u64 {
        match self {
            Self::Memory(mapping) => mapping.bytes(),
            Self::Host(range) => range.bytes as u64,
        }
    }
}

/// Where memory is, or goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a window, where kernels may do this.
    Window(Access),
    /// On the shelf.
    Shelf,
}

/// A slot on the device.
pub(crate) struct SlotMemory {
    pub(crate) means: Means,
    slot: Slot,
    /// Whose it is, where a session has it that is not over: who is over waits for nothing.
    pub(crate) session: Option<u32>,
    /// What a slot that is not plain is full of.
    sink: Option<MemoryId>,
    filler: Option<MemoryId>,
    contents: BTreeMap<u64, Content>,
    /// For scrubbing and copying: a stream that no record reaches.
    pub(crate) stream: StreamId,
    broken: bool,
}

fn refused(what: &str) -> Error {
    Error::Refused(what.to_owned())
}

/// Where memory was that is given back, and sinks are not yet.
#[must_use]
pub(crate) struct Hole {
    low: u64,
    high: u64,
    access: Access,
}

impl SlotMemory {
    /// Reserves what a session can reach and fills it with a sink of its own: read-write where stores reach, read-only
    /// elsewhere.
    pub(crate) fn open(means: &Means, slot: Slot) -> Result<Self, Error> {
        let begun = Instant::now();
        let (gpu, reach) = (&means.gpu, slot.reach());
        let start = DeviceAddress(reach.start().0);
        gpu.reserve(start, reach.bytes())?;
        let made = Self::fill(means, slot);
        if made.is_err() {
            gpu.unreserve(start, reach.bytes())?;
        }
        tracing::debug!(slot = slot.index(), ms = begun.elapsed().as_millis(), "a slot is filled");
        made
    }

    fn fill(means: &Means, slot: Slot) -> Result<Self, Error> {
        let gpu = &means.gpu;
        let stream = gpu.create_stream(0)?;
        let made = if means.plain {
            means.flags.map(slot, stream).map(|_| None)
        } else {
            gpu.create_memory(SINK_BYTES).and_then(|sink| {
                let mapped = Self::map_slot(means, slot, sink, stream);
                if mapped.is_err() {
                    gpu.destroy_memory(sink)?;
                }
                mapped.map(|()| Some(sink))
            })
        };
        match made {
            Ok(sink) => Ok(Self {
                means: means.clone(),
                slot,
                session: None,
                sink,
                filler: None,
                contents: BTreeMap::new(),
                stream,
                broken: false,
            }),
            Err(error) => {
                gpu.destroy_stream(stream)?;
                Err(error)
            }
        }
    }

    fn map_slot(means: &Means, slot: Slot, sink: MemoryId, stream: StreamId) -> Result<(), Error> {
        means.workbench.scrub(sink, SINK_BYTES, stream)?;
        let (start, stores) = (DeviceAddress(slot.reach().start().0), slot.stores_reach());
        let chunks = |bytes: u64| bytes / SINK_BYTES;
        means.gpu.map(start, sink, SINK_BYTES, chunks(stores.bytes()), Access::ReadWrite)?;
        let mapped = Self::map_loads(means, slot, sink, stream);
        if mapped.is_err() {
            means.gpu.unmap(start, stores.bytes())?;
        }
        mapped
    }

    /// What only loads reach: sinks, and the flag.
    fn map_loads(means: &Means, slot: Slot, sink: MemoryId, stream: StreamId) -> Result<(), Error> {
        let (start, flag, end) = (slot.stores_reach().end(), slot.flag_granule(), slot.reach().end());
        let before = flag.start().0 - start.0;
        let sinks = |at: u64, bytes: u64| {
            means.gpu.map(DeviceAddress(at), sink, SINK_BYTES, bytes / SINK_BYTES, Access::Read)
        };
        sinks(start.0, before)?;
        let page = match means.flags.map(slot, stream) {
            Ok(page) => page,
            Err(error) => {
                means.gpu.unmap(DeviceAddress(start.0), before)?;
                return Err(error);
            }
        };
        let margin = sinks(flag.end().0, end.0 - flag.end().0);
        if margin.is_err() {
            means.flags.unmap(slot, page)?;
            means.gpu.unmap(DeviceAddress(start.0), before)?;
        }
        margin
    }

    /// What tells the session's kernels to end.
    pub(crate) fn flag(&self) -> Flag {
        Flag::new(&self.means.flags, self.slot)
    }

    pub(crate) fn slot(&self) -> Slot {
        self.slot
    }

    /// Whether an address of the slot may be without a mapping: nothing of the session may run any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Whether an address is on the shelf: then no page of the slot changes with what is there.
    pub(crate) fn is_on_shelf(&self, at: u64, bytes: u64) -> bool {
        let range = Range::new(bulkhead_mm::DeviceAddress(at), bytes);
        range.is_some_and(|range| self.slot.shelf().contains(range))
    }

    /// Whether memory of `bytes` can be mapped at `at`.
    pub(crate) fn check_window(&self, at: u64, bytes: u64) -> Result<Access, Error> {
        match self.check_free(at, bytes)? {
            Place::Window(access) => Ok(access),
            Place::Shelf => Err(refused("nothing is mapped on the shelf")),
        }
    }

    /// Whether memory of `bytes` can be put to `at`.
    pub(crate) fn check_free(&self, at: u64, bytes: u64) -> Result<Place, Error> {
        let range = Range::new(bulkhead_mm::DeviceAddress(at), bytes);
        let range = range.filter(|range| range.bytes() > 0 && at.is_multiple_of(PAGE_BYTES));
        let range = range.filter(|range| range.bytes().is_multiple_of(PAGE_BYTES));
        let range = range.ok_or_else(|| refused("memory comes in pages of 2 MiB"))?;
        let place = if self.slot.read_write().contains(range) {
            Place::Window(Access::ReadWrite)
        } else if self.slot.read_only().contains(range) {
            Place::Window(Access::Read)
        } else if self.slot.shelf().contains(range) {
            Place::Shelf
        } else {
            return Err(refused("the range does not lie in the session's window"));
        };
        if self.overlapping(range).is_some() {
            Err(refused("the range overlaps other memory"))
        } else {
            Ok(place)
        }
    }

    fn overlapping(&self, range: Range) -> Option<u64> {
        let (at, content) = self.contents.range(..range.end().0).next_back()?;
        (at + content.bytes() > range.start().0).then_some(*at)
    }

    /// The memory that is mapped at `at`, if it is exactly so long.
    pub(crate) fn find(&self, at: u64, bytes: u64) -> Result<&Mapping, Error> {
        match self.contents.get(&at) {
            Some(Content::Memory(mapping)) if mapping.bytes() == bytes => Ok(mapping),
            _ => Err(refused("there is no such arena")),
        }
    }

    /// Maps zeroed memory of the session's own.
    pub(crate) fn grow(&mut self, at: u64, bytes: u64) -> Result<(), Error> {
        let place = self.check_free(at, bytes)?;
        if place == Place::Window(Access::Read) {
            return Err(refused("an arena lies in the half that takes stores"));
        }
        let mapping = Mapping::create(&self.means.physical, bytes)?;
        if place == Place::Shelf {
            self.scrub(mapping.id(), bytes)?;
            return self.put(at, mapping);
        }
        self.put(at, mapping)?;
        self.scrub_at(at, bytes).or_else(|error| {
            self.remove(at, bytes, Leave::AsItIs)?;
            Err(error)
        })
    }

    /// Puts memory of another process's to this place.
    pub(crate) fn adopt(
        &mut self,
        at: u64,
        bytes: u64,
        descriptor: OwnedFd,
        whose: Whose,
    ) -> Result<(), Error> {
        self.check_free(at, bytes)?;
        let mapping = Mapping::import(&self.means.physical, descriptor, bytes, whose)?;
        self.put(at, mapping)
    }

    /// A descriptor for another process.
    pub(crate) fn export(&self, at: u64, bytes: u64) -> Result<OwnedFd, Error> {
        self.means.gpu.export_memory(self.find(at, bytes)?.id())
    }

    /// Maps memory in the place of sinks, or puts it on the shelf.
    pub(crate) fn put(&mut self, at: u64, mapping: Mapping) -> Result<(), Error> {
        let bytes = mapping.bytes();
        let access = match self.check_free(at, bytes)? {
            Place::Window(access) => access,
            Place::Shelf => {
                self.means.pieces.insert(at, &mapping);
                self.contents.insert(at, Content::Memory(mapping));
                return Ok(());
            }
        };
        self.replace_sinks(at, bytes, access, |gpu| {
            gpu.map(DeviceAddress(at), mapping.id(), bytes, 1, access)
        })?;
        self.means.pieces.insert(at, &mapping);
        self.contents.insert(at, Content::Memory(mapping));
        Ok(())
    }

    /// Has something mapped from `at` on in the place of sinks, with fillers around it.
    fn replace_sinks<T>(
        &mut self,
        at: u64,
        bytes: u64,
        access: Access,
        map: impl FnOnce(&dyn Gpu) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if self.means.plain {
            return map(&*self.means.gpu);
        }
        let (low, high) = self.opening(at, at + bytes);
        let filler = if low < at || at + bytes < high { Some(self.filler()?) } else { None };
        self.means.gpu.unmap(DeviceAddress(low), high - low)?;
        let mut filled = Vec::new();
        let mut fill = |from: u64, to: u64| {
            if let Some(filler) = filler.filter(|_| from < to) {
                let count = (to - from) / PAGE_BYTES;
                self.means.gpu.map(DeviceAddress(from), filler, PAGE_BYTES, count, access)?;
                filled.push((from, to - from));
            }
            Ok(())
        };
        // What is mapped comes last: host memory would take long to unmap.
        let done = fill(low, at).and_then(|()| fill(at + bytes, high)).and_then(|()| map(&*self.means.gpu));
        if done.is_err() {
            for (at, bytes) in filled {
                self.whole(|memory| memory.means.gpu.unmap(DeviceAddress(at), bytes))?;
            }
            self.whole(|memory| memory.cover(low, high, access))?;
        }
        done
    }

    /// Unmaps memory, and gives it back where nobody else has it. Sinks are in its place then.
    pub(crate) fn remove(&mut self, at: u64, bytes: u64, leave: Leave) -> Result<(), Error> {
        let hole = self.take_out(at, bytes, leave)?;
        self.fill_in(hole)
    }

    /// The same up to where the memory is given back: the hole has to be filled in before anything of the session runs.
    pub(crate) fn take_out(&mut self, at: u64, bytes: u64, leave: Leave) -> Result<Hole, Error> {
        self.find(at, bytes)?;
        self.means.pieces.remove(at);
        let Some(Content::Memory(mut mapping)) = self.contents.remove(&at) else {
            return Err(refused("there is no such arena"));
        };
        if self.is_on_shelf(at, bytes) {
            if mapping.leave() && leave == Leave::Scrubbed {
                self.scrub(mapping.id(), bytes)?;
            }
            return Ok(Hole { low: at, high: at, access: Access::Read });
        }
        let (low, high) = if self.means.plain { (at, at + bytes) } else { self.opening(at, at + bytes) };
        let access = if self.slot.stores_reach().contains(range(at, bytes)) {
            Access::ReadWrite
        } else {
            Access::Read
        };
        if mapping.leave() && leave == Leave::Scrubbed {
            match access {
                Access::ReadWrite => self.scrub_at(at, bytes)?,
                Access::Read => self.scrub(mapping.id(), bytes)?,
            }
        }
        self.whole(|memory| memory.means.gpu.unmap(DeviceAddress(low), high - low))?;
        Ok(Hole { low, high, access })
    }

    /// Puts sinks into a hole.
    pub(crate) fn fill_in(&mut self, Hole { low, high, access }: Hole) -> Result<(), Error> {
        if low == high || self.means.plain {
            return Ok(());
        }
        self.whole(|memory| memory.cover(low, high, access))
    }

    /// Replaces one piece of memory that nobody else has by two with the same content.
    pub(crate) fn split(&mut self, at: u64, bytes: u64, second: u64, old: Old) -> Result<(), Error> {
        self.check_split(at, bytes, second)?;
        let first = second - at;
        let (gpu, workbench, stream) = (&self.means.gpu, &self.means.workbench, self.stream);
        let mut halves = Vec::with_capacity(2);
        for (from, bytes) in [(at, first), (second, bytes - first)] {
            let half = Mapping::create(&self.means.physical, bytes)?;
            workbench.with(half.id(), bytes, |to| {
                self.in_pieces(bytes, COPIED, |at, piece| {
                    gpu.copy_on_device(stream, DeviceAddress(to.0 + at), DeviceAddress(from + at), piece)?;
                    gpu.synchronize(stream)
                })
            })?;
            halves.push((from, half));
        }
        if !self.means.pieces.withdraw(at, self.find(at, bytes)?) {
            return Err(refused("the memory is shared"));
        }
        let leave = match old {
            Old::Scrubbed => Leave::Scrubbed,
            Old::Kept => Leave::AsItIs,
        };
        self.remove(at, bytes, leave)?;
        for (at, half) in halves {
            // Content that cannot be put back is lost, and the session with it.
            self.whole(|memory| memory.put(at, half))?;
        }
        Ok(())
    }

    /// Whether what lies there can be split.
    pub(crate) fn check_split(&self, at: u64, bytes: u64, second: u64) -> Result<(), Error> {
        let found = self.find(at, bytes)?;
        if self.is_on_shelf(at, bytes) {
            return Err(refused("memory on the shelf is whole"));
        }
        if second <= at || second - at >= bytes || !second.is_multiple_of(PAGE_BYTES) {
            return Err(refused("a piece is split at a page inside it"));
        }
        if found.is_shared() { Err(refused("the memory is shared")) } else { Ok(()) }
    }

    /// Gives back all memory of the device.
    pub(crate) fn clear(&mut self) -> Result<(), Error> {
        let arenas = self.contents.iter().filter_map(|(at, content)| match content {
            Content::Memory(mapping) => Some((*at, mapping.bytes())),
            Content::Host(_) => None,
        });
        for (at, bytes) in arenas.collect::<Vec<_>>() {
            self.remove(at, bytes, Leave::Scrubbed)?;
        }
        Ok(())
    }

    /// Gives back all memory: the slot holds nothing but scrubbed sinks. No host memory is left in it.
    pub(crate) fn recycle(&mut self) -> Result<(), Error> {
        self.clear()?;
        if !self.contents.is_empty() {
            return Err(refused("host memory is left in the slot"));
        }
        self.flag().set_now(Says::Go)?;
        if let Some(filler) = self.filler.take() {
            self.means.gpu.destroy_memory(filler)?;
        }
        match self.sink {
            Some(_) => self.scrub_at(self.slot.base().0, SINK_BYTES),
            None => Ok(()),
        }
    }

    /// Makes memory zero.
    fn scrub(&self, memory: MemoryId, bytes: u64) -> Result<(), Error> {
        self.means.workbench.with(memory, bytes, |at| self.scrub_at(at.0, bytes))
    }

    /// The same where it is mapped.
    fn scrub_at(&self, at: u64, bytes: u64) -> Result<(), Error> {
        self.in_pieces(bytes, CLEARED, |from, piece| {
            workbench::scrub(&*self.means.gpu, DeviceAddress(at + from), piece, self.stream)
        })
    }

    /// Does something on the device to so many bytes, piece by piece, of which `work` gets offset and length. Beside kernels that
    /// fill the device and run on, that waits for them, for which the session counts as waiting; much memory alone is no such wait.
    fn in_pieces(
        &self,
        bytes: u64,
        to: &'static str,
        mut work: impl FnMut(u64, u64) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut done = 0;
        while done < bytes {
            let piece = (bytes - done).min(PIECE_BYTES);
            let _waits = self.session.map(|session| self.means.waits.enter(Some(session), to));
            work(done, piece)?;
            done += piece;
        }
        Ok(())
    }

    /// What has to be unmapped for memory from `at` to `end`: whole granules, but of those in which other memory lies
    /// only the part itself.
    fn opening(&self, at: u64, end: u64) -> (u64, u64) {
        let whole = granules(range(at, end - at));
        let others = |granule: u64| {
            let granule = range(granule, ARENA_GRANULE_BYTES);
            let mut inside = self.contents.range(..granule.end().0).rev();
            // The last may be the memory itself.
            inside
                .by_ref()
                .take(2)
                .any(|(start, content)| *start != at && start + content.bytes() > granule.start().0)
                || self.contents.range(granule.start().0..granule.end().0).any(|(start, _)| *start != at)
        };
        let low = if others(whole.start().0) { at } else { whole.start().0 };
        let high = if others(whole.end().0 - ARENA_GRANULE_BYTES) { end } else { whole.end().0 };
        (low, high)
    }

    /// Fills a hole: with sinks where it is whole granules, else with fillers.
    fn cover(&mut self, low: u64, high: u64, access: Access) -> Result<(), Error> {
        let Some(sink) = self.sink else { return Ok(()) };
        let granule = ARENA_GRANULE_BYTES;
        let first = low.next_multiple_of(granule).min(high);
        let last = (high - high % granule).max(first);
        for (from, to) in [(low, first), (last, high)] {
            if from < to {
                let filler = self.filler()?;
                let count = (to - from) / PAGE_BYTES;
                self.means.gpu.map(DeviceAddress(from), filler, PAGE_BYTES, count, access)?;
            }
        }
        if first < last {
            let count = (last - first) / SINK_BYTES;
            self.means.gpu.map(DeviceAddress(first), sink, SINK_BYTES, count, access)?;
        }
        Ok(())
    }

    fn filler(&mut self) -> Result<MemoryId, Error> {
        if let Some(filler) = self.filler {
            return Ok(filler);
        }
        let filler = self.means.gpu.create_memory(PAGE_BYTES)?;
        if let Err(error) = self.scrub(filler, PAGE_BYTES) {
            self.means.gpu.destroy_memory(filler)?;
            return Err(error);
        }
        self.filler = Some(filler);
        Ok(filler)
    }

    /// Does what must not fail: where it does, the slot is broken.
    fn whole(&mut self, change: impl FnOnce(&mut Self) -> Result<(), Error>) -> Result<(), Error> {
        change(self).inspect_err(|error| {
            tracing::error!(%error, slot = self.slot.index(), "a slot has a hole");
            self.broken = true;
        })
    }
}

fn range(at: u64, bytes: u64) -> Range {
    // Whoever calls has checked it: ranges of a slot do not wrap around.
    Range::new(bulkhead_mm::DeviceAddress(at), bytes).unwrap_or(bulkhead_mm::WORKBENCH)
}
