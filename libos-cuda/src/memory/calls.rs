//! Calls that allocate and free memory, and ask about it.

use std::sync::Arc;

use super::{Region, What};
use crate::abi::{Host, NullStream, Out, OutMaybe};
use crate::device::ErrorCode;
use crate::driver::{Driver, driver, driver_and_current};
use crate::graph::{self, Storage, Work};
use crate::moving::keep;
use crate::pool::{Pool, Pooled};
use crate::register::{ONLY_PRIVATE, Registered};
use crate::report;
use crate::sanitize;
use crate::status::{Answer, Status};

/// Rows of `cuMemAllocPitch` begin at multiples of this.
const PITCH_BYTES: usize = 512;
/// `CU_MEMHOSTALLOC_PORTABLE | DEVICEMAP | WRITECOMBINED`.
const HOST_FLAGS: u32 = 7;
const PORTABLE_AND_MAPPED: u32 = 3;

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
    to.set(acquire_pooled(driver, context, bytes as u64, pooled)?.address);
    Ok(())
}

/// Memory of the device's that was acquired.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Acquired {
    pub(crate) address: u64,
    /// The allocation's number: the address may be another's later.
    pub(crate) id: u64,
}

/// The address of memory of the device's that goes with the process.
pub(crate) fn acquire(driver: &Driver, bytes: u64) -> Result<u64, Status> {
    Ok(acquire_pooled(driver, 0, bytes, None)?.address)
}

/// Memory of the device's that goes with a context.
pub(crate) fn acquire_in(driver: &Driver, context: u64, bytes: u64) -> Result<Acquired, Status> {
    acquire_pooled(driver, context, bytes, None)
}

fn acquire_pooled(
    driver: &Driver,
    context: u64,
    bytes: u64,
    pooled: Option<Pooled>,
) -> Result<Acquired, Status> {
    let buffer = driver.session.allocate(bytes).map_err(|error| {
        if error.code == ErrorCode::Unavailable {
            report::once(&format!("{error}"));
        }
        Status::of(&error)
    })?;
    let address = buffer.address();
    let bytes = buffer.bytes().min(bytes);
    let id = driver.memory.insert_pooled(address, bytes, What::Device(buffer), context, pooled)?;
    if context != 0 {
        sanitize::allocated(address, bytes);
    }
    Ok(Acquired { address, id })
}

/// The session keeps the memory until running work that may use it is done.
pub(crate) fn release(driver: &Driver, address: u64) -> Answer {
    if graph::storage_at(&driver.memory, address).is_some() {
        return graph::free_storage(driver, address);
    }
    driver.memory.release(address)
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
    let target = driver.target(null, stream)?;
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
    let target = driver.target(null, stream)?;
    if let Some(capturing) = driver.streams.captures.of(target)? {
        return match graph::storage_at(&driver.memory, address) {
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
    if graph::storage_at(&driver.memory, address).is_some() {
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
