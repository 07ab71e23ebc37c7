//! Calls that give memory to other processes, and open theirs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Name, Opened};
use crate::abi::{IpcHandle, Out};
use crate::context;
use crate::device::{Error, ErrorCode, SturdyToken};
use crate::driver::{Driver, driver, driver_and_current};
use crate::memory::{Region, What};
use crate::pool::{Pool, PoolName};
use crate::report;
use crate::sanitize;
use crate::status::{Answer, Status};

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`.
const LAZY_PEER_ACCESS: u32 = 1;

/// What a region is to a token: the memory that it was made of, or what was opened with it.
fn is_of(region: &Region, token: SturdyToken) -> bool {
    match &region.what {
        What::Device(buffer) => buffer.exported().is_some_and(|export| export.token == token),
        What::Opened(opened) => !opened.is_pooled() && opened.name.token == token,
        What::OfGraph(_)
        | What::Reached(_)
        | What::Variables(_)
        | What::Foreign(_)
        | What::Pinned(..)
        | What::Registered(_)
        | What::Managed(_) => false,
    }
}

pub(crate) fn memory_handle(to: Out<IpcHandle>, address: u64) -> Answer {
    let (driver, _) = driver_and_current()?;
    let (start, bytes, region) = driver.memory.region(address).ok_or(Status::INVALID_VALUE)?;
    to.set(export("cuIpcGetMemHandle", start, bytes, &region, None)?.encode());
    Ok(())
}

fn export(
    call: &str,
    start: u64,
    bytes: u64,
    region: &Region,
    pool: Option<PoolName>,
) -> Result<Name, Status> {
    let What::Device(buffer) = &region.what else { return Err(Status::INVALID_VALUE) };
    let export = buffer.export().map_err(|error| Status::of(&error))?;
    sanitize::exported(start);
    if export.shares_pages {
        report::once(&format!(
            "{call}: what is given to another process, or to the cuFFT service, lies in pages of 2 MiB with other allocations \
             of this program, which that process reaches too; allocate 2 MiB and more where that matters"
        ));
    }
    Ok(Name { token: export.token, offset: export.offset, bytes, pool })
}

/// What stands for a pointer into a pool of this process's.
pub(crate) fn export_pooled(driver: &Driver, address: u64) -> Result<IpcHandle, Status> {
    let (start, bytes, region) = driver.memory.region(address).ok_or(Status::INVALID_VALUE)?;
    let pooled = region.pooled.as_ref().ok_or(Status::INVALID_VALUE)?;
    let pool = pooled.pool.name(&driver.session)?;
    export("cuMemPoolExportPointer", start, bytes, &region, Some(pool)).map(Name::encode)
}

/// Maps what stands for a pointer into an imported pool. Each time at an address of its own, which is freed.
pub(crate) fn import_pooled(driver: &Driver, pool: &Arc<Pool>, exported: &IpcHandle) -> Result<u64, Status> {
    let name = Name::decode(exported).ok_or(Status::INVALID_VALUE)?;
    pool.check_import(name.pool.ok_or(Status::INVALID_VALUE)?)?;
    let is_own =
        driver.memory.find(|region| matches!(&region.what, What::Device(_)) && is_of(region, name.token));
    if is_own.is_some() {
        report::refused("cuMemPoolImportPointer", "the memory is this process's own: use its pointer");
        return Err(Status::INVALID_VALUE);
    }
    let pooled = pool.take(name.bytes)?;
    let share = driver.session.import(name.token).map_err(|error| {
        match refused("cuMemPoolImportPointer", &error) {
            Status::INVALID_HANDLE => Status::INVALID_VALUE,
            other => other,
        }
    })?;
    name.check(&share)?;
    let start = share.address() + name.offset;
    let opened = Opened { share, name, count: AtomicU32::new(1) };
    // As what is opened with a handle, it ends with its context, where there is one.
    let context = context::current().unwrap_or(0);
    driver.memory.insert_pooled(start, name.bytes, What::Opened(opened), context, Some(pooled))?;
    Ok(start)
}

pub(crate) fn open_memory(to: Out<u64>, handle: IpcHandle, flags: u32) -> Answer {
    let (driver, context) = driver_and_current()?;
    if flags & !LAZY_PEER_ACCESS != 0 {
        return Err(Status::INVALID_VALUE);
    }
    let name = Name::decode(&handle).filter(|name| name.pool.is_none()).ok_or(Status::INVALID_VALUE)?;
    // One at a time: the same handle is the same address.
    let _opening = driver.memory.opening.lock();
    if let Some((start, region)) = driver.memory.find(|region| is_of(region, name.token)) {
        let What::Opened(opened) = &region.what else { return Err(Status::INVALID_CONTEXT) };
        if opened.name != name {
            return Err(Status::INVALID_VALUE);
        }
        opened.count.fetch_add(1, Ordering::Relaxed);
        to.set(start);
        return Ok(());
    }
    let share = driver.session.import(name.token).map_err(|error| refused("cuIpcOpenMemHandle", &error))?;
    name.check(&share)?;
    let start = share.address() + name.offset;
    let opened = Opened { share, name, count: AtomicU32::new(1) };
    driver.memory.insert(start, name.bytes, What::Opened(opened), context)?;
    to.set(start);
    Ok(())
}

/// Says why something of another process cannot be opened.
pub(crate) fn refused(call: &str, error: &Error) -> Status {
    // It was freed, or there never was any; not on this kernel.
    let is_gone = matches!(error.code, ErrorCode::NotFound | ErrorCode::Revoked);
    let both = "; both programs have to run on one kernel: start `bulkhead serve`, then them";
    report::refused(call, &format!("{error}{}", if is_gone { both } else { "" }));
    if is_gone { Status::INVALID_HANDLE } else { Status::of(error) }
}

pub(crate) fn close_memory(address: u64) -> Answer {
    let driver = driver()?;
    let closed = take_closed(driver, address)?;
    // Work that was submitted may still use it: the kernel unmaps it when that has passed.
    drop(closed);
    Ok(())
}

/// Counts one close, and takes the region out at the last.
fn take_closed(driver: &Driver, address: u64) -> Result<Option<Arc<Region>>, Status> {
    let _opening = driver.memory.opening.lock();
    let (start, _, region) = driver.memory.region(address).ok_or(Status::INVALID_VALUE)?;
    let What::Opened(opened) = &region.what else { return Err(Status::INVALID_VALUE) };
    if start != address || opened.is_pooled() {
        return Err(Status::INVALID_VALUE);
    }
    if opened.count.fetch_sub(1, Ordering::Relaxed) > 1 {
        return Ok(None);
    }
    driver.memory.take(address, |what| matches!(what, What::Opened(_))).map(Some)
}
