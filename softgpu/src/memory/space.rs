//! Physical memory and the page tables of the one context.
//!
//! A mapping is one entry however often it repeats its chunk, so a slot filled with thousands of
//! mappings of one sink costs as much as one.
//!
//! # Invariants
//! 1. Mappings do not overlap, and each lies in one reservation.
//! 2. Memory that is mapped somewhere is not destroyed.
//! 3. `generation` changes after every change of the tables, before the call that changed them returns.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bulkhead_gpu::{Access, DeviceAddress, Error, HostRange, MemoryId, RESERVATION_BYTES_MIN};
use parking_lot::RwLock;

use super::physical::{self, Foreign, Identity, Physical};
use super::{Bytes, GRANULE_BYTES, Violation};

/// Device addresses are below this: 47 bits, as on NVIDIA's devices.
const ADDRESS_END: u64 = 1 << 47;

/// Addresses that no reservation may take: the generic windows of shared, local and constant memory.
pub(crate) const WINDOWS: Range<u64> = 0x7fff_f000_0000..0x7fff_f800_0000;

/// A run of mappings of one piece of memory, as the tables hold it.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    /// First address.
    pub(crate) start: u64,
    /// First address behind it.
    pub(crate) end: u64,
    /// Length of the memory, after which it repeats.
    pub(crate) chunk: u64,
    /// What kernels may do.
    pub(crate) access: Access,
    /// The memory.
    pub(crate) bytes: Arc<Bytes>,
    /// What it is called; host memory has no name.
    memory: Option<MemoryId>,
}

impl Span {
    /// The place in memory of an address inside the span.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "a chunk is memory of this process")]
    pub(crate) fn offset(&self, address: u64) -> usize {
        let inside = address - self.start;
        let within = if inside < self.chunk { inside } else { inside % self.chunk };
        within as usize
    }
}

#[derive(Debug)]
struct Memory {
    physical: Physical,
    /// Spans that map it.
    spans: u64,
}

#[derive(Debug, Default)]
struct Tables {
    /// Start to end.
    reservations: BTreeMap<u64, u64>,
    /// By start.
    spans: BTreeMap<u64, Span>,
    memories: HashMap<MemoryId, Memory>,
    /// How often each piece of physical memory is among `memories`: it takes up the device once.
    holds: HashMap<Identity, u64>,
    next_memory: u64,
    allocated: u64,
}

impl Tables {
    fn span_at(&self, address: u64) -> Option<&Span> {
        let (_, span) = self.spans.range(..=address).next_back()?;
        (address < span.end).then_some(span)
    }

    fn hold(&mut self, physical: Physical) -> MemoryId {
        let holds = self.holds.entry(physical.identity).or_default();
        *holds += 1;
        if *holds == 1 {
            self.allocated += physical.bytes.len() as u64;
        }
        self.next_memory += 1;
        let id = MemoryId(self.next_memory);
        self.memories.insert(id, Memory { physical, spans: 0 });
        id
    }

    fn release(&mut self, physical: &Physical) {
        if let Some(holds) = self.holds.get_mut(&physical.identity) {
            *holds -= 1;
            if *holds == 0 {
                self.holds.remove(&physical.identity);
                self.allocated -= physical.bytes.len() as u64;
            }
        }
    }

    /// Counts the spans of a piece of memory up or down.
    fn count(&mut self, memory: Option<MemoryId>, change: i64) {
        if let Some(memory) = memory.and_then(|memory| self.memories.get_mut(&memory)) {
            memory.spans = memory.spans.saturating_add_signed(change);
        }
    }

    /// Adds a span, which lies in one reservation and over no other span.
    fn add(&mut self, span: Span) -> Result<(), Error> {
        let (start, end) = (span.start, span.end);
        let reservation = self.reservations.range(..=start).next_back();
        if reservation.is_none_or(|(_, reserved_end)| *reserved_end < end) {
            return Err(refused(format!("{start:#x}+{:#x} lies in no reservation", end - start)));
        }
        let before = self.spans.range(..end).next_back();
        if before.is_some_and(|(_, other)| other.end > start) {
            return Err(refused(format!("{start:#x}+{:#x} has a mapping already", end - start)));
        }
        self.count(span.memory, 1);
        self.spans.insert(start, span);
        Ok(())
    }

    /// The host memory that is mapped at exactly a range.
    fn host_at(&self, at: DeviceAddress, bytes: u64) -> Result<&Span, Error> {
        let found = self.spans.get(&at.0).filter(|span| span.memory.is_none());
        let found = found.filter(|span| span.chunk == bytes);
        found.ok_or_else(|| refused(format!("no host memory is mapped at {:#x}+{bytes:#x}", at.0)))
    }
}

/// The address space of the context.
#[derive(Debug)]
pub(crate) struct AddressSpace {
    memory_bytes: u64,
    tables: RwLock<Tables>,
    generation: AtomicU64,
}

fn refused(text: impl Into<String>) -> Error {
    Error::Refused(text.into())
}

/// The host gave no memory, or no more descriptors or mappings.
fn host_refused(what: &str, error: rustix::io::Errno) -> Error {
    tracing::warn!(%error, "the host gives the software GPU no {what}");
    match error {
        rustix::io::Errno::MFILE | rustix::io::Errno::NFILE => {
            refused(format!("the host gives no {what}: {error}"))
        }
        _ => Error::OutOfMemory,
    }
}

/// Checks a range and gives its end.
fn end_of(at: u64, bytes: u64) -> Result<u64, Error> {
    if bytes == 0 || !bytes.is_multiple_of(GRANULE_BYTES) || !at.is_multiple_of(GRANULE_BYTES) {
        return Err(refused(format!("range {at:#x}+{bytes:#x} is not made of granules")));
    }
    at.checked_add(bytes)
        .filter(|end| *end <= ADDRESS_END)
        .ok_or_else(|| refused(format!("range {at:#x}+{bytes:#x} leaves the address space")))
}

impl AddressSpace {
    /// An empty address space on a device with so much memory.
    pub(crate) fn new(memory_bytes: u64) -> Self {
        Self { memory_bytes, tables: RwLock::default(), generation: AtomicU64::new(1) }
    }

    /// Changes with every change of the tables.
    #[inline(always)]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// What [`Self::generation`] reads.
    pub(crate) fn generation_cell(&self) -> &AtomicU64 {
        &self.generation
    }

    fn changed(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// See [`bulkhead_gpu::Gpu::reserve`].
    pub(crate) fn reserve(&self, at: DeviceAddress, bytes: u64) -> Result<(), Error> {
        let (start, end) = (at.0, end_of(at.0, bytes)?);
        if start == 0 || (start < WINDOWS.end && end > WINDOWS.start) {
            return Err(refused(format!("range {start:#x}+{bytes:#x} is the device's own")));
        }
        if bytes < RESERVATION_BYTES_MIN {
            return Err(refused(format!(
                "the addresses from {start:#x} on are not given for {bytes} bytes only"
            )));
        }
        let mut tables = self.tables.write();
        let before = tables.reservations.range(..end).next_back();
        if before.is_some_and(|(_, taken_end)| *taken_end > start) {
            return Err(refused(format!("range {start:#x}+{bytes:#x} is reserved already")));
        }
        tables.reservations.insert(start, end);
        Ok(())
    }

    /// See [`bulkhead_gpu::Gpu::unreserve`].
    pub(crate) fn unreserve(&self, at: DeviceAddress, bytes: u64) -> Result<(), Error> {
        let end = end_of(at.0, bytes)?;
        let mut tables = self.tables.write();
        if tables.reservations.get(&at.0) != Some(&end) {
            return Err(refused(format!("{:#x}+{bytes:#x} is no reservation", at.0)));
        }
        if tables.spans.range(at.0..end).next().is_some() {
            return Err(refused(format!("reservation {:#x} still has mappings", at.0)));
        }
        tables.reservations.remove(&at.0);
        Ok(())
    }

    /// See [`bulkhead_gpu::Gpu::create_memory`].
    pub(crate) fn create(&self, bytes: u64) -> Result<MemoryId, Error> {
        if bytes == 0 || !bytes.is_multiple_of(GRANULE_BYTES) {
            return Err(refused(format!("{bytes:#x} bytes are not made of granules")));
        }
        let mut tables = self.tables.write();
        if bytes > self.memory_bytes.saturating_sub(tables.allocated) {
            return Err(Error::OutOfMemory);
        }
        let len = usize::try_from(bytes).map_err(|_| Error::OutOfMemory)?;
        let physical = Physical::create(len).map_err(|error| host_refused("memory", error))?;
        Ok(tables.hold(physical))
    }

    /// See [`bulkhead_gpu::Gpu::destroy_memory`].
    pub(crate) fn destroy(&self, memory: MemoryId) -> Result<(), Error> {
        let mut tables = self.tables.write();
        let found = tables.memories.get(&memory).ok_or_else(|| refused("no such memory"))?;
        if found.spans != 0 {
            return Err(refused("the memory is still mapped"));
        }
        if let Some(found) = tables.memories.remove(&memory) {
            tables.release(&found.physical);
        }
        Ok(())
    }

    /// See [`bulkhead_gpu::Gpu::export_memory`].
    pub(crate) fn export(&self, memory: MemoryId) -> Result<OwnedFd, Error> {
        let tables = self.tables.read();
        let found = tables.memories.get(&memory).ok_or_else(|| refused("no such memory"))?;
        found.physical.export().map_err(|error| host_refused("a descriptor", error))
    }

    /// See [`bulkhead_gpu::Gpu::import_memory`]. Never out of memory: the memory is there already.
    pub(crate) fn import(&self, descriptor: OwnedFd, bytes: u64) -> Result<MemoryId, Error> {
        if bytes == 0 || !bytes.is_multiple_of(GRANULE_BYTES) {
            return Err(refused(format!("{bytes:#x} bytes are not made of granules")));
        }
        let len = usize::try_from(bytes).map_err(|_| refused("longer than the host's memory"))?;
        let physical = Physical::import(descriptor, len).map_err(|why| match why {
            Foreign::NotMemory => refused("the descriptor names no exported memory"),
            Foreign::Length(found) => refused(format!("the memory has {found:#x} bytes, not {bytes:#x}")),
            Foreign::Host(error) => host_refused("a mapping", error),
        })?;
        Ok(self.tables.write().hold(physical))
    }

    /// See [`bulkhead_gpu::Gpu::memory_info`].
    pub(crate) fn info(&self) -> (u64, u64) {
        (self.memory_bytes.saturating_sub(self.tables.read().allocated), self.memory_bytes)
    }

    /// See [`bulkhead_gpu::Gpu::map`].
    pub(crate) fn map(
        &self,
        at: DeviceAddress,
        memory: MemoryId,
        chunk: u64,
        count: u64,
        access: Access,
    ) -> Result<(), Error> {
        let bytes = chunk.checked_mul(count).ok_or_else(|| refused("the range is too long"))?;
        let (start, end) = (at.0, end_of(at.0, bytes)?);
        let mut tables = self.tables.write();
        let found = tables.memories.get(&memory).ok_or_else(|| refused("no such memory"))?;
        let memory_bytes = &found.physical.bytes;
        if memory_bytes.len() as u64 != chunk {
            return Err(refused("chunk_bytes is not the length of the memory"));
        }
        let memory = Some(memory);
        let span = Span { start, end, chunk, access, bytes: Arc::clone(memory_bytes), memory };
        tables.add(span)?;
        self.changed();
        Ok(())
    }

    /// See [`bulkhead_gpu::Gpu::map_host`]: where the host has it.
    pub(crate) fn map_host(
        &self,
        at: DeviceAddress,
        file: BorrowedFd<'_>,
        bytes: u64,
    ) -> Result<HostRange, Error> {
        let (start, end) = (at.0, end_of(at.0, bytes)?);
        let len = usize::try_from(bytes).map_err(|_| Error::OutOfMemory)?;
        let mapped = physical::host(file, len).map_err(|why| match why {
            Foreign::NotMemory => refused("the descriptor names no memory that keeps its length"),
            Foreign::Length(found) => refused(format!("the file has {found:#x} bytes, not {bytes:#x}")),
            Foreign::Host(error) => host_refused("a mapping", error),
        })?;
        let range = mapped.range();
        let (access, memory) = (Access::ReadWrite, None);
        let span = Span { start, end, chunk: bytes, access, bytes: Arc::new(mapped), memory };
        self.tables.write().add(span)?;
        self.changed();
        Ok(range)
    }

    /// Where the host has what is mapped at `at`.
    pub(crate) fn host_range(&self, at: DeviceAddress, bytes: u64) -> Result<HostRange, Error> {
        self.tables.read().host_at(at, bytes).map(|span| span.bytes.range())
    }

    /// See [`bulkhead_gpu::Gpu::unmap_host`].
    pub(crate) fn unmap_host(&self, at: DeviceAddress, bytes: u64) -> Result<(), Error> {
        let mut tables = self.tables.write();
        tables.host_at(at, bytes)?;
        tables.spans.remove(&at.0);
        self.changed();
        Ok(())
    }

    /// See [`bulkhead_gpu::Gpu::unmap`]. A run of mappings may be unmapped in parts, at the ends of chunks.
    pub(crate) fn unmap(&self, at: DeviceAddress, bytes: u64) -> Result<(), Error> {
        let (start, end) = (at.0, end_of(at.0, bytes)?);
        let mut tables = self.tables.write();
        let mut affected = Vec::new();
        let mut next = start;
        while next < end {
            let span =
                tables.span_at(next).ok_or_else(|| refused(format!("nothing is mapped at {next:#x}")))?;
            let stop = span.end.min(end);
            let whole = (next - span.start).is_multiple_of(span.chunk)
                && (stop - span.start).is_multiple_of(span.chunk);
            if !whole {
                return Err(refused(format!("{start:#x}+{bytes:#x} cuts a mapping in two")));
            }
            if span.memory.is_none() {
                return Err(refused(format!("host memory is mapped at {next:#x}")));
            }
            affected.push(span.clone());
            next = stop;
        }
        for span in affected {
            tables.spans.remove(&span.start);
            tables.count(span.memory, -1);
            for (from, to) in [(span.start, start.max(span.start)), (end.min(span.end), span.end)] {
                if from < to {
                    let left = Span { start: from, end: to, ..span.clone() };
                    tables.count(left.memory, 1);
                    tables.spans.insert(from, left);
                }
            }
        }
        self.changed();
        Ok(())
    }

    /// The mapping that an address lies in.
    pub(crate) fn find(&self, address: u64) -> Option<Span> {
        self.tables.read().span_at(address).cloned()
    }

    /// Cuts a range into pieces of memory, for copies: memory, offset, length.
    pub(crate) fn pieces(&self, at: u64, bytes: u64, access: Access) -> Pieces<'_> {
        Pieces { space: self, next: at, left: bytes, access }
    }

    /// Whether all of a range can be read, or written.
    pub(crate) fn check(&self, at: u64, bytes: u64, access: Access) -> Result<(), Violation> {
        let end = at.checked_add(bytes).ok_or(Violation::Unmapped)?;
        let tables = self.tables.read();
        let mut next = at;
        while next < end {
            let span = tables.span_at(next).ok_or(Violation::Unmapped)?;
            if access == Access::ReadWrite && span.access == Access::Read {
                return Err(Violation::ReadOnly);
            }
            next = span.end;
        }
        Ok(())
    }
}

/// The pieces of memory behind a range, in order; ends after the first violation.
pub(crate) struct Pieces<'a> {
    space: &'a AddressSpace,
    next: u64,
    left: u64,
    access: Access,
}

impl Iterator for Pieces<'_> {
    type Item = Result<(Arc<Bytes>, usize, usize), (Violation, u64)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let at = self.next;
        let violation = match self.space.find(at) {
            None => Violation::Unmapped,
            Some(span) if self.access == Access::ReadWrite && span.access == Access::Read => {
                Violation::ReadOnly
            }
            Some(span) => {
                let offset = span.offset(at);
                let room = span.bytes.len() - offset;
                let len = usize::try_from(self.left).unwrap_or(usize::MAX).min(room);
                self.next += len as u64;
                self.left -= len as u64;
                return Some(Ok((span.bytes, offset, len)));
            }
        };
        self.left = 0;
        Some(Err((violation, at)))
    }
}
