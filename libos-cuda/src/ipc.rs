//! Memory of one process for others: CUDA's IPC, on tokens that stand for capabilities.
//!
//! A handle holds a token, so it is worth as much as the memory: whoever knows it can read and write it until it is
//! freed. What is shared is whole pages, as on NVIDIA's driver.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::abi::{IpcHandle, Out};
use crate::context;
use crate::device::{Error, ErrorCode, Share, SturdyToken};
use crate::driver::{Driver, driver, driver_and_current};
use crate::memory::{Region, What};
use crate::pool::{Pool, PoolName};
use crate::report;
use crate::sanitize;
use crate::status::{Answer, Status};

/// The first bytes of a handle of ours, and of what stands for a pointer into a pool.
const MAGIC: [u8; 8] = *b"BHmemory";
const POOLED: [u8; 8] = *b"BHpooled";
/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`.
const LAZY_PEER_ACCESS: u32 = 1;

/// What a handle says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Name {
    token: SturdyToken,
    /// Where the allocation begins in the pages that are shared.
    offset: u64,
    bytes: u64,
    /// The pool that it belongs to, where it can be had by that only.
    pool: Option<PoolName>,
}

impl Name {
    fn encode(self) -> IpcHandle {
        let mut handle = [0; 64];
        let magic = if self.pool.is_some() { &POOLED } else { &MAGIC };
        let (offset, bytes) = (self.offset.to_le_bytes(), self.bytes.to_le_bytes());
        let parts = [&magic[..], &self.token.0, &offset, &bytes, &self.pool.unwrap_or_default()];
        for (to, from) in handle.iter_mut().zip(parts.concat()) {
            *to = from;
        }
        IpcHandle(handle)
    }

    fn decode(handle: &IpcHandle) -> Option<Name> {
        let (magic, rest) = handle.0.split_first_chunk::<8>()?;
        let (token, rest) = rest.split_first_chunk::<32>()?;
        let (offset, rest) = rest.split_first_chunk::<8>()?;
        let (bytes, rest) = rest.split_first_chunk::<8>()?;
        let pool = match *magic {
            MAGIC if rest.iter().all(|byte| *byte == 0) => None,
            POOLED => Some(*rest.first_chunk::<8>()?),
            _ => return None,
        };
        let [offset, bytes] = [offset, bytes].map(|word| u64::from_le_bytes(*word));
        (bytes > 0).then_some(Name { token: SturdyToken(*token), offset, bytes, pool })
    }
}

impl Name {
    /// That it lies in what was imported.
    fn check(self, share: &Share) -> Answer {
        let inside = self.offset <= share.bytes() && self.bytes <= share.bytes() - self.offset;
        if inside { Ok(()) } else { Err(Status::INVALID_VALUE) }
    }
}

/// Memory of another process that this one has opened.
pub(crate) struct Opened {
    pub(crate) share: Share,
    name: Name,
    /// How often it was opened and not closed.
    count: AtomicU32,
}

impl Opened {
    /// Where the allocation begins in what was imported.
    pub(crate) fn offset(&self) -> u64 {
        self.name.offset
    }

    /// Whether it was imported from a pool: such memory is freed, and not closed.
    pub(crate) fn is_pooled(&self) -> bool {
        self.name.pool.is_some()
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_says_what_was_put_into_it_and_a_damaged_one_nothing() {
        let name = Name { token: SturdyToken([7; 32]), offset: 0x1_2200, bytes: (8 << 20) + 4, pool: None };
        let handle = name.encode();
        assert_eq!(Name::decode(&handle), Some(name));
        for at in (0..8).chain(56..64) {
            let mut damaged = handle;
            damaged.0[at] ^= 1;
            assert_eq!(Name::decode(&damaged), None, "byte {at}");
        }
        assert_eq!(Name::decode(&IpcHandle([0; 64])), None);
        let pooled = Name { pool: Some([3; 8]), ..name };
        assert_eq!(Name::decode(&pooled.encode()), Some(pooled));
    }
}
