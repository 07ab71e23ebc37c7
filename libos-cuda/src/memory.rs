//! Memory of the device's and pinned memory of the host's, by address.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::abi::{Host, NullStream, Out, OutMaybe};
use crate::device::{Buffer, DeviceRange, ErrorCode, Freed, HostBuffer, HostSpan, Image, Stray};
use crate::driver::{Driver, driver, driver_and_current};
use crate::freed;
use crate::graph::{self, Storage, Stored, Work};
use crate::ipc::Opened;
use crate::managed::Hints;
use crate::map::Map;
use crate::moving::keep;
use crate::pool::{Pool, Pooled};
use crate::register::{Exchanged, ONLY_PRIVATE, Registered};
use crate::report;
use crate::sanitize;
use crate::status::{Answer, Status};
use crate::vmm::Reached;

/// Rows of `cuMemAllocPitch` begin at multiples of this.
const PITCH_BYTES: usize = 512;
/// `CU_MEMHOSTALLOC_PORTABLE | DEVICEMAP | WRITECOMBINED`.
const HOST_FLAGS: u32 = 7;
const PORTABLE_AND_MAPPED: u32 = 3;

/// What a range of addresses is.
pub(crate) enum What {
    /// The device's memory.
    Device(Buffer),
    /// The device's, which a node of a graph allocates.
    OfGraph(Stored),
    /// Memory of the device's that is another process's.
    Opened(Opened),
    /// Memory of the device's, at an address that the program chose.
    Reached(Reached),
    /// The variables of an image.
    Variables(Image),
    /// One variable of an isolated session's image, where the driver put it.
    Foreign(DeviceRange),
    /// The host's memory, which the device copies from and to without staging; with its flags.
    Pinned(HostBuffer, u32),
    /// The program's own, which it registered.
    Registered(Registered),
    /// The host's and the device's at once.
    Managed(HostBuffer),
}

/// One allocation.
pub(crate) struct Region {
    pub(crate) what: What,
    pub(crate) context: u64,
    /// Unlike an address never used again.
    pub(crate) id: u64,
    /// What the program said of it, where it is managed.
    pub(crate) hints: Mutex<Hints>,
    /// The pool that it was allocated from.
    pub(crate) pooled: Option<Pooled>,
}

/// Where a copy or fill reads or writes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    /// In memory of the device's.
    Device(DeviceRange),
    /// In pinned memory.
    Pinned(HostSpan),
    /// Elsewhere in the program's memory.
    Pageable,
}

/// All allocations of the process.
pub(crate) struct Memory {
    map: RwLock<Map<Arc<Region>>>,
    next_id: AtomicU64,
    /// What was freed, where somebody is told of accesses to that.
    freed: Option<Mutex<freed::List>>,
    /// Held while memory of another process is opened or closed.
    pub(crate) opening: Mutex<()>,
    /// Held while memory of the program's is registered or given back.
    pub(crate) registering: Mutex<()>,
}

impl Memory {
    pub(crate) fn new(stray: Stray) -> Memory {
        Memory {
            map: RwLock::new(Map::new()),
            next_id: AtomicU64::new(1),
            freed: (stray == Stray::Told).then(Mutex::default),
            opening: Mutex::default(),
            registering: Mutex::default(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.map.read().is_empty()
    }

    pub(crate) fn insert(&self, start: u64, bytes: u64, what: What, context: u64) -> Answer {
        self.insert_pooled(start, bytes, what, context, None)
    }

    pub(crate) fn insert_pooled(
        &self,
        start: u64,
        bytes: u64,
        what: What,
        context: u64,
        pooled: Option<Pooled>,
    ) -> Answer {
        // An image's variables come with it, also where it is loaded ahead and given back if the process moves.
        if !matches!(what, What::Variables(_)) {
            crate::moving::keep()?;
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let region = Arc::new(Region { what, context, id, hints: Mutex::default(), pooled });
        let refused = self.map.write().insert(start, bytes, region);
        if let Some(freed) = &self.freed {
            freed.lock().forget(start, bytes);
        }
        refused.map_err(|_| Status::UNKNOWN)
    }

    /// What `bytes` from `address` on are; an error where they begin in an allocation and end beyond it.
    pub(crate) fn place(&self, address: u64, bytes: u64) -> Result<Place, Status> {
        let map = self.map.read();
        let Some(found) = map.find(address) else { return Ok(Place::Pageable) };
        let offset = address - found.start;
        if bytes > found.bytes - offset {
            return Err(Status::INVALID_VALUE);
        }
        Ok(match &found.value.what {
            What::Device(buffer) | What::OfGraph(Stored { buffer, .. }) => {
                Place::Device(buffer.range(offset, bytes))
            }
            What::Opened(opened) => Place::Device(opened.share.range(opened.offset() + offset, bytes)),
            What::Reached(reached) => Place::Device(reached.share.range(offset, bytes)),
            What::Variables(image) => {
                let variables = image.variables().ok_or(Status::UNKNOWN)?;
                let span = variables.span(offset, bytes);
                span.map_or_else(|| Place::Device(variables.range(offset, bytes)), Place::Pinned)
            }
            What::Foreign(range) => {
                Place::Device(DeviceRange { offset: range.offset + offset, bytes, ..*range })
            }
            What::Pinned(buffer, _) | What::Managed(buffer) => Place::Pinned(buffer.span(offset, bytes)),
            What::Registered(Registered { exchanged, .. }) => {
                let span = exchanged.as_ref().and_then(|exchanged| exchanged.span(offset, bytes));
                span.map_or(Place::Pageable, Place::Pinned)
            }
        })
    }

    /// How many of `bytes` from `address` on lie in one piece. All of them, or an error of [`Memory::place`]'s, but where
    /// the program mapped several pieces side by side.
    pub(crate) fn piece(&self, address: u64, bytes: u64) -> Result<u64, Status> {
        let map = self.map.read();
        let Some(found) = map.find(address) else { return Ok(bytes) };
        let first = found.bytes - (address - found.start);
        let mut reached = first;
        let mut is_reached = matches!(found.value.what, What::Reached(_));
        while reached < bytes {
            let next = address.checked_add(reached).and_then(|next| map.find(next));
            let next = next.filter(|next| is_reached && next.start == address + reached);
            let next = next.ok_or(Status::INVALID_VALUE)?;
            is_reached = matches!(next.value.what, What::Reached(_));
            if !is_reached {
                return Err(Status::INVALID_VALUE);
            }
            reached = reached.saturating_add(next.bytes);
        }
        Ok(first.min(bytes))
    }

    /// The same as [`Memory::place`], for what the device reaches: pinned memory too.
    pub(crate) fn reached(&self, address: u64, bytes: u64) -> Result<DeviceRange, Status> {
        match self.place(address, bytes)? {
            Place::Device(range) => Ok(range),
            Place::Pinned(HostSpan { handle, offset, bytes }) => Ok(DeviceRange { handle, offset, bytes }),
            Place::Pageable => Err(Status::INVALID_VALUE),
        }
    }

    /// The allocation that an address lies in, with its first address and length.
    pub(crate) fn region(&self, address: u64) -> Option<(u64, u64, Arc<Region>)> {
        let map = self.map.read();
        map.find(address).map(|found| (found.start, found.bytes, found.value.clone()))
    }

    /// What an address lies in, as programs know it: the allocation, or the module-scope variable, with its first address
    /// and length.
    pub(crate) fn object(&self, address: u64) -> Option<(u64, u64, Arc<Region>)> {
        let (start, bytes, region) = self.region(address)?;
        let variable =
            if let What::Variables(image) = &region.what { image.variable_around(address) } else { None };
        let (start, bytes) = variable.unwrap_or((start, bytes));
        Some((start, bytes, region))
    }

    /// The first allocation of which `is` holds, with its first address.
    pub(crate) fn find(&self, is: impl Fn(&Region) -> bool) -> Option<(u64, Arc<Region>)> {
        let map = self.map.read();
        map.iter().find(|found| is(found.value)).map(|found| (found.start, found.value.clone()))
    }

    /// Ends what a context allocated.
    pub(crate) fn end(&self, context: u64) {
        let ended = self.map.write().remove_all(|region| region.context == context);
        for region in &ended {
            if let What::Device(buffer) = &region.what {
                sanitize::left(buffer.address());
            }
            self.note(&region.what);
        }
        // Freed without the lock: it waits for work that uses it.
        drop(ended);
    }

    /// First address and length of all that kernels may access.
    pub(crate) fn ranges(&self) -> Vec<(u64, u64)> {
        let mut ranges = Vec::new();
        for found in self.map.read().iter() {
            let start = match &found.value.what {
                What::Pinned(buffer, _) => buffer.address(),
                What::Registered(Registered { exchanged, .. }) => {
                    exchanged.as_ref().and_then(Exchanged::address)
                }
                What::Variables(image) => {
                    ranges.extend(image.ranges());
                    continue;
                }
                What::Device(_)
                | What::OfGraph(_)
                | What::Opened(_)
                | What::Reached(_)
                | What::Foreign(_)
                | What::Managed(_) => None,
            };
            ranges.push((start.unwrap_or(found.start), found.bytes));
        }
        ranges
    }

    /// Whether anything of a range lies in an allocation.
    pub(crate) fn overlaps(&self, start: u64, bytes: u64) -> bool {
        self.map.read().overlaps(start, bytes)
    }

    pub(crate) fn take(&self, address: u64, is: impl FnOnce(&What) -> bool) -> Result<Arc<Region>, Status> {
        let taken =
            self.map.write().remove(address, |region| is(&region.what)).ok_or(Status::INVALID_VALUE)?;
        self.note(&taken.what);
        Ok(taken)
    }

    /// Keeps in mind what is freed.
    fn note(&self, what: &What) {
        let Some(list) = &self.freed else { return };
        let (address, bytes) = match what {
            What::Device(buffer) | What::OfGraph(Stored { buffer, .. }) => {
                (Some(buffer.address()), buffer.bytes())
            }
            What::Pinned(buffer, _) | What::Managed(buffer) => (buffer.address(), buffer.bytes() as u64),
            What::Opened(_)
            | What::Reached(_)
            | What::Variables(_)
            | What::Foreign(_)
            | What::Registered(_) => return,
        };
        if let Some(address) = address {
            list.lock().add(address, bytes);
        }
    }

    /// The allocation that an address was in, where that was freed and nothing is there again.
    pub(crate) fn freed(&self, address: u64) -> Option<Freed> {
        self.freed.as_ref()?.lock().of(address)
    }
}

pub(crate) fn allocate(to: Out<u64>, bytes: usize) -> Answer {
    driver()?.streams.captures.refuse_unsafe()?;
    allocate_now(&to, bytes, None)
}

fn allocate_now(to: &Out<u64>, bytes: usize, pool: Option<&Arc<Pool>>) -> Answer {
    let (driver, context) = driver_and_current()?;
    if bytes == 0 {
        return Err(Status::INVALID_VALUE);
    }
    keep()?;
    let pooled = pool.map(|pool| pool.take(bytes as u64)).transpose()?;
    to.set(acquire_pooled(driver, context, bytes as u64, pooled)?);
    Ok(())
}

/// Memory of the device's that goes with a context, or, where that is 0, with the process.
pub(crate) fn acquire(driver: &Driver, context: u64, bytes: u64) -> Result<u64, Status> {
    acquire_pooled(driver, context, bytes, None)
}

fn acquire_pooled(driver: &Driver, context: u64, bytes: u64, pooled: Option<Pooled>) -> Result<u64, Status> {
    let buffer = driver.session.allocate(bytes).map_err(|error| {
        if error.code == ErrorCode::Unavailable {
            report::once(&format!("{error}"));
        }
        Status::of(&error)
    })?;
    let address = buffer.address();
    let bytes = buffer.bytes().min(bytes);
    driver.memory.insert_pooled(address, bytes, What::Device(buffer), context, pooled)?;
    if context != 0 {
        sanitize::allocated(address, bytes);
    }
    Ok(address)
}

/// The session keeps the memory until running work that may use it is done.
pub(crate) fn release(driver: &Driver, address: u64) -> Answer {
    if graph::storage_at(driver, address).is_some() {
        return graph::free_storage(driver, address);
    }
    let is_freed = |what: &What| match what {
        What::Device(_) | What::Managed(_) => true,
        What::Opened(opened) => opened.is_pooled(),
        What::OfGraph(_)
        | What::Reached(_)
        | What::Variables(_)
        | What::Foreign(_)
        | What::Pinned(..)
        | What::Registered(_) => false,
    };
    let freed = driver.memory.take(address, is_freed)?;
    if matches!(freed.what, What::Device(_)) {
        sanitize::freed(address);
    }
    drop(freed);
    Ok(())
}

pub(crate) fn allocate_pitched(
    to: Out<u64>,
    pitch: Out<usize>,
    width: usize,
    height: usize,
    element: u32,
) -> Answer {
    if width == 0 || height == 0 || !matches!(element, 4 | 8 | 16) {
        return Err(Status::INVALID_VALUE);
    }
    let row = width.checked_next_multiple_of(PITCH_BYTES).ok_or(Status::INVALID_VALUE)?;
    allocate(to, row.checked_mul(height).ok_or(Status::INVALID_VALUE)?)?;
    pitch.set(row);
    Ok(())
}

pub(crate) fn free(address: u64) -> Answer {
    let driver = driver()?;
    if address == 0 {
        return Ok(());
    }
    driver.streams.captures.refuse_unsafe()?;
    // What the device was given the session waits for. Of host functions it knows nothing.
    driver.streams.wait_for_all_host_functions();
    release(driver, address)
}

pub(crate) fn allocate_ordered(null: NullStream, to: Out<u64>, bytes: usize, stream: u64) -> Answer {
    allocate_pooled(null, to, bytes, stream, &driver()?.pools.current())
}

/// The memory is there at once, so it is there in the stream's order as well.
pub(crate) fn allocate_pooled(
    null: NullStream,
    to: Out<u64>,
    bytes: usize,
    stream: u64,
    pool: &Arc<Pool>,
) -> Answer {
    let driver = driver()?;
    let target = driver.streams.target(null, stream)?;
    if driver.streams.captures.of(target)?.is_none() {
        return allocate_now(&to, bytes, Some(pool));
    }
    // Without the capture's lock.
    let storage = Storage::new(driver, bytes as u64)?;
    let address = storage.address();
    let capturing = driver.streams.captures.of(target)?.ok_or(Status::STREAM_CAPTURE_INVALIDATED)?;
    capturing.add(Work::Allocate(storage))?;
    to.set(address);
    Ok(())
}

/// The memory is the session's again once the stream has passed what was submitted to it: nobody waits here.
pub(crate) fn free_ordered(null: NullStream, address: u64, stream: u64) -> Answer {
    let driver = driver()?;
    let target = driver.streams.target(null, stream)?;
    if let Some(capturing) = driver.streams.captures.of(target)? {
        return match graph::storage_at(driver, address) {
            _ if address == 0 => Ok(()),
            Some(storage) => capturing.add(Work::Free(storage)),
            None => {
                report::refused("cuMemFreeAsync", "a graph frees what a graph allocated");
                let _ = capturing.refuse();
                Err(Status::INVALID_VALUE)
            }
        };
    }
    if address == 0 {
        return Ok(());
    }
    if graph::storage_at(driver, address).is_some() {
        return graph::free_storage(driver, address);
    }
    let is_freed = |what: &What| match what {
        What::Device(_) => true,
        What::Opened(opened) => opened.is_pooled(),
        What::OfGraph(_)
        | What::Reached(_)
        | What::Variables(_)
        | What::Foreign(_)
        | What::Pinned(..)
        | What::Registered(_)
        | What::Managed(_) => false,
    };
    let freed = driver.memory.take(address, is_freed)?;
    if matches!(freed.what, What::Opened(_)) {
        // Work that was submitted may still use it: the kernel unmaps it when that has passed.
        return Ok(());
    }
    sanitize::freed(address);
    let fence = driver.streams.fence(&driver.session, target)?;
    // Somebody who looks at the region at this moment frees it instead, and waits for all streams.
    if let Some(Region { what: What::Device(buffer), .. }) = Arc::into_inner(freed) {
        buffer.free_after(fence);
    }
    Ok(())
}

pub(crate) fn allocate_host(to: Out<u64>, bytes: usize) -> Answer {
    allocate_host_with_flags(to, bytes, 0)
}

pub(crate) fn allocate_host_with_flags(to: Out<u64>, bytes: usize, flags: u32) -> Answer {
    let (driver, context) = driver_and_current()?;
    if bytes == 0 || flags & !HOST_FLAGS != 0 {
        return Err(Status::INVALID_VALUE);
    }
    driver.streams.captures.refuse_unsafe()?;
    keep()?;
    let buffer = driver.session.allocate_mapped(bytes).map_err(|error| Status::of(&error))?;
    let address = buffer.as_ptr().expose_provenance() as u64;
    driver.memory.insert(address, bytes as u64, What::Pinned(buffer, flags), context)?;
    to.set(address);
    Ok(())
}

pub(crate) fn free_host(host: Host) -> Answer {
    let driver = driver()?;
    driver.streams.captures.refuse_unsafe()?;
    let freed = driver.memory.take(host.address(), |what| matches!(what, What::Pinned(..)))?;
    // The device may still copy from or to it.
    let waited = driver.streams.synchronize_all(&driver.session);
    drop(freed);
    waited
}

pub(crate) fn host_flags(to: Out<u32>, host: Host) -> Answer {
    let region = driver()?.memory.region(host.address()).ok_or(Status::INVALID_VALUE)?.2;
    match &region.what {
        // With unified addresses NVIDIA's driver reports these two for all pinned memory.
        What::Pinned(_, flags) | What::Registered(Registered { flags, .. }) => {
            to.set(*flags | PORTABLE_AND_MAPPED);
        }
        What::Device(_)
        | What::OfGraph(_)
        | What::Opened(_)
        | What::Reached(_)
        | What::Variables(_)
        | What::Foreign(_)
        | What::Managed(_) => {
            return Err(Status::INVALID_VALUE);
        }
    }
    Ok(())
}

/// Where kernels reach pinned memory: at its own address, unless memory of the program's lay there first.
pub(crate) fn host_device_pointer(to: Out<u64>, host: Host, flags: u32) -> Answer {
    let (driver, _) = driver_and_current()?;
    if flags != 0 {
        return Err(Status::INVALID_VALUE);
    }
    if let Some(address) = device_pointer(driver, host.address()) {
        to.set(address);
        return Ok(());
    }
    let region = driver.memory.region(host.address()).ok_or(Status::INVALID_VALUE)?.2;
    if matches!(region.what, What::Registered(_)) {
        report::refused("cuMemHostGetDevicePointer", ONLY_PRIVATE);
        return Err(Status::NOT_SUPPORTED);
    }
    Err(Status::INVALID_VALUE)
}

/// Where kernels reach what is pinned at an address.
pub(crate) fn device_pointer(driver: &Driver, address: u64) -> Option<u64> {
    let (start, _, region) = driver.memory.region(address)?;
    match &region.what {
        What::Pinned(buffer, _) | What::Managed(buffer) => buffer.address()?.checked_add(address - start),
        What::Registered(Registered { exchanged, .. }) => {
            exchanged.as_ref()?.address()?.checked_add(address - start)
        }
        What::Device(_)
        | What::OfGraph(_)
        | What::Opened(_)
        | What::Reached(_)
        | What::Variables(_)
        | What::Foreign(_) => None,
    }
}

pub(crate) fn info(free: Out<usize>, total: Out<usize>) -> Answer {
    let (driver, _) = driver_and_current()?;
    let memory = driver.session.memory().map_err(|error| Status::of(&error))?;
    free.set(usize::try_from(memory.free_bytes).unwrap_or(usize::MAX));
    total.set(usize::try_from(memory.total_bytes).unwrap_or(usize::MAX));
    Ok(())
}

pub(crate) fn range(start: OutMaybe<u64>, bytes: OutMaybe<usize>, address: u64) -> Answer {
    let (first, length, _) = driver()?.memory.object(address).ok_or(Status::NOT_FOUND)?;
    start.set(first);
    bytes.set(usize::try_from(length).unwrap_or(usize::MAX));
    Ok(())
}
