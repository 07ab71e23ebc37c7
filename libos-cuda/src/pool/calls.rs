//! Calls about pools.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{HANDLE_DESCRIPTOR, HANDLE_NONE, Origin, Pool, Used, name_of};
use crate::abi::{
    AccessDescription, In, InSlice, IpcHandle, Location, NullStream, Out, PoolProperties, Room,
    ShareableHandle,
};
use crate::descriptor;
use crate::driver::{Driver, driver};
use crate::ipc;
use crate::memory;
use crate::moving::keep;
use crate::presence::{Other, Presence};
use crate::query::of;
use crate::report;
use crate::status::{Answer, Status};
use crate::vmm::PAGE_BYTES;

const RELEASE_THRESHOLD: u32 = 4;
const TYPE_PINNED: u32 = 1;
const LOCATION_DEVICE: u32 = 1;
const ACCESS_READ_WRITE: u32 = 3;
/// Descriptions of one call; there is one device.
const ACCESSES_MAX: usize = 1024;

fn find(handle: u64) -> Result<(&'static Driver, Arc<Pool>), Status> {
    let driver = driver()?;
    Ok((driver, driver.pools.get(handle)?))
}

fn refuse(call: &str, why: &str) -> Status {
    report::refused(call, why);
    Status::NOT_SUPPORTED
}

pub(crate) fn default(to: Out<u64>, device: i32) -> Answer {
    to.set(of(device)?.pools.default.handle());
    Ok(())
}

pub(crate) fn current(to: Out<u64>, device: i32) -> Answer {
    to.set(of(device)?.pools.current().handle());
    Ok(())
}

pub(crate) fn set(device: i32, handle: u64) -> Answer {
    let pools = &of(device)?.pools;
    let pool = pools.get(handle)?;
    if pool.is_imported() {
        return Err(Status::INVALID_VALUE);
    }
    *pools.current.lock() = pool;
    Ok(())
}

/// The device whose pools a call is about.
fn located(call: &str, location: Location, kind: u32) -> Result<i32, Status> {
    match (location.kind, kind) {
        (LOCATION_DEVICE, TYPE_PINNED) => Ok(location.id),
        (LOCATION_DEVICE, _) => Err(refuse(call, "managed memory has no pools: use cudaMallocManaged")),
        (2..=4, _) => Err(refuse(call, "the host's memory has no pools: use cudaMallocHost")),
        _ => Err(Status::INVALID_VALUE),
    }
}

pub(crate) fn default_of(to: Out<u64>, location: In<Location>, kind: u32) -> Answer {
    driver()?;
    default(to, located("cuMemGetDefaultMemPool", location.0, kind)?)
}

pub(crate) fn current_of(to: Out<u64>, location: In<Location>, kind: u32) -> Answer {
    driver()?;
    current(to, located("cuMemGetMemPool", location.0, kind)?)
}

pub(crate) fn set_of(location: In<Location>, kind: u32, handle: u64) -> Answer {
    driver()?;
    set(located("cuMemSetMemPool", location.0, kind)?, handle)
}

pub(crate) fn create(to: Out<u64>, properties: In<PoolProperties>) -> Answer {
    const CALL: &str = "cuMemPoolCreate";
    let driver = driver()?;
    let properties = properties.0;
    of(located(CALL, properties.location, properties.kind)?)?;
    if properties.handle_types & !HANDLE_DESCRIPTOR != 0 {
        return Err(refuse(CALL, "pools are exported as POSIX file descriptors and not otherwise"));
    }
    if properties.usage != 0 {
        return Err(refuse(CALL, "memory for the decompression engine is not there"));
    }
    if properties.security != 0 || properties.reserved != [0; 54] {
        return Err(Status::INVALID_VALUE);
    }
    let bytes_max = match properties.bytes_max {
        0 => u64::MAX,
        most => most.checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX),
    };
    keep()?;
    to.set(driver.pools.insert(Pool::new(Origin::Created, properties.handle_types, bytes_max))?);
    Ok(())
}

/// What was allocated from it stays, and keeps it.
pub(crate) fn destroy(handle: u64) -> Answer {
    let (driver, pool) = find(handle)?;
    let pools = &driver.pools;
    if matches!(pool.origin, Origin::Device) {
        return Err(Status::INVALID_VALUE);
    }
    pools.table.remove(handle).map_err(|_| Status::INVALID_VALUE)?;
    let mut current = pools.current.lock();
    if Arc::ptr_eq(&current, &pool) {
        *current = pools.default.clone();
    }
    Ok(())
}

pub(crate) fn allocate(null: NullStream, to: Out<u64>, bytes: usize, handle: u64, stream: u64) -> Answer {
    let (_, pool) = find(handle)?;
    if pool.is_imported() {
        return Err(Status::INVALID_VALUE);
    }
    memory::allocate_pooled(null, to, bytes, stream, &pool)
}

pub(crate) fn set_attribute(handle: u64, attribute: u32, value: Room) -> Answer {
    let (_, pool) = find(handle)?;
    keep()?;
    match attribute {
        // Reuse policies: memory is reused when it is free, whatever they say.
        1..=3 => {}
        RELEASE_THRESHOLD => pool.threshold.store(value.read_u64(), Ordering::Relaxed),
        // High-water marks can only be reset.
        6 | 8 if value.read_u64() == 0 => {
            let mut used = pool.used.lock();
            used.most = used.now;
        }
        _ => return Err(Status::INVALID_VALUE),
    }
    Ok(())
}

pub(crate) fn attribute(handle: u64, attribute: u32, value: Room) -> Answer {
    let (_, pool) = find(handle)?;
    let Used { now, most } = *pool.used.lock();
    match attribute {
        1..=3 => value.write(&1u32.to_ne_bytes()),
        RELEASE_THRESHOLD => value.write(&pool.threshold.load(Ordering::Relaxed).to_ne_bytes()),
        // What is reserved is what is used.
        5 | 7 => value.write(&now.to_ne_bytes()),
        6 | 8 => value.write(&most.to_ne_bytes()),
        _ => return Err(Status::INVALID_VALUE),
    }
    Ok(())
}

pub(crate) fn trim(handle: u64, _bytes: usize) -> Answer {
    find(handle).map(drop)
}

/// The one device reads and writes what is in its pools, and nobody else does.
pub(crate) fn set_access(handle: u64, accesses: InSlice<AccessDescription>, count: usize) -> Answer {
    find(handle)?;
    if count > ACCESSES_MAX {
        return Err(Status::INVALID_VALUE);
    }
    for access in accesses.read(count)? {
        match (access.location_type, access.location_id, access.flags) {
            (LOCATION_DEVICE, 0, ACCESS_READ_WRITE) => {}
            (LOCATION_DEVICE, 0, _) => return Err(Status::INVALID_VALUE),
            (LOCATION_DEVICE, ..) => return Err(Status::INVALID_DEVICE),
            _ => {
                let why = "the device's memory is reached from the device only";
                return Err(refuse("cuMemPoolSetAccess", why));
            }
        }
    }
    Ok(())
}

pub(crate) fn access(to: Out<u32>, handle: u64, location: In<Location>) -> Answer {
    find(handle)?;
    match (location.0.kind, location.0.id) {
        (LOCATION_DEVICE, 0) => to.set(ACCESS_READ_WRITE),
        (LOCATION_DEVICE, _) => return Err(Status::INVALID_DEVICE),
        (2..=4, _) => to.set(0),
        _ => return Err(Status::INVALID_VALUE),
    }
    Ok(())
}

/// That a handle is a POSIX descriptor.
fn check_kind(call: &str, kind: u32, flags: u64) -> Answer {
    if flags != 0 || kind == HANDLE_NONE {
        return Err(Status::INVALID_VALUE);
    }
    if kind != HANDLE_DESCRIPTOR {
        return Err(refuse(call, "only POSIX file descriptors are there"));
    }
    Ok(())
}

pub(crate) fn export(to: Room, handle: u64, kind: u32, flags: u64) -> Answer {
    const CALL: &str = "cuMemPoolExportToShareableHandle";
    let (driver, pool) = find(handle)?;
    check_kind(CALL, kind, flags)?;
    let token = pool.exported(&driver.session, Presence::token)?;
    let descriptor = descriptor::write(descriptor::Kind::Pool, token).map_err(|error| {
        report::refused(CALL, &format!("no descriptor: {error}"));
        Status::OPERATING_SYSTEM
    })?;
    to.write(&descriptor.to_ne_bytes());
    Ok(())
}

pub(crate) fn import(to: Out<u64>, handle: ShareableHandle, kind: u32, flags: u64) -> Answer {
    const CALL: &str = "cuMemPoolImportFromShareableHandle";
    let driver = driver()?;
    check_kind(CALL, kind, flags)?;
    let token = descriptor::read(descriptor::Kind::Pool, &handle).map_err(|why| {
        report::refused(CALL, &why.to_string());
        Status::INVALID_VALUE
    })?;
    let other = Other::of(&driver.session, token).map_err(|_| {
        report::refused(CALL, "the pool is not there any more");
        Status::INVALID_VALUE
    })?;
    let pool = Pool::new(Origin::Imported(name_of(token.0), other), HANDLE_DESCRIPTOR, u64::MAX);
    keep()?;
    to.set(driver.pools.insert(pool)?);
    Ok(())
}

pub(crate) fn export_pointer(to: Out<IpcHandle>, address: u64) -> Answer {
    to.set(ipc::export_pooled(driver()?, address)?);
    Ok(())
}

pub(crate) fn import_pointer(to: Out<u64>, handle: u64, exported: In<IpcHandle>) -> Answer {
    let (driver, pool) = find(handle)?;
    to.set(ipc::import_pooled(driver, &pool, &exported.0)?);
    Ok(())
}
