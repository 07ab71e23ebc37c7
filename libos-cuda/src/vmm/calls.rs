//! Calls about memory without addresses, addresses and mappings.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{Mapped, PAGE_BYTES, Physical, Reached};
use crate::abi::{AccessDescription, Host, In, InSlice, Out, Properties, Room, ShareableHandle};
use crate::descriptor;
use crate::device::{Error, ErrorCode, Share, Uses};
use crate::driver::{Driver, driver};
use crate::memory::{Region, What};
use crate::moving::keep;
use crate::report;
use crate::status::{Answer, Status};

const LOCATION_DEVICE: u32 = 1;
const TYPE_PINNED: u32 = 1;
const HANDLE_NONE: u32 = 0;
const HANDLE_DESCRIPTOR: u32 = 1;
const ACCESS_NONE: u32 = 0;
const ACCESS_READ: u32 = 1;
const ACCESS_READ_WRITE: u32 = 3;

fn refuse(call: &str, why: &str) -> Status {
    report::refused(call, why);
    Status::NOT_SUPPORTED
}

fn failed(call: &str, error: &Error) -> Status {
    report::refused(call, &error.to_string());
    Status::of(error)
}

fn whole_pages(bytes: u64) -> Result<u64, Status> {
    if bytes > 0 && bytes.is_multiple_of(PAGE_BYTES) { Ok(bytes) } else { Err(Status::INVALID_VALUE) }
}

/// Whether memory of such properties can be had.
fn check(call: &str, properties: &Properties) -> Answer {
    if properties.location_type != LOCATION_DEVICE {
        return Err(refuse(call, "memory lies on the device; allocate the host's with cudaMallocHost"));
    }
    if properties.location_id != 0 {
        return Err(Status::INVALID_DEVICE);
    }
    if properties.kind != TYPE_PINNED {
        return Err(Status::INVALID_VALUE);
    }
    if properties.handle_types & !HANDLE_DESCRIPTOR != 0 {
        return Err(refuse(call, "memory is exported as a POSIX file descriptor and not otherwise"));
    }
    if properties.usage != 0 || properties.rdma != 0 {
        return Err(refuse(call, "tile pools and GPUDirect RDMA are not there"));
    }
    Ok(())
}

pub(crate) fn granularity(to: Out<usize>, properties: In<Properties>, option: u32) -> Answer {
    driver()?;
    if option > 1 {
        return Err(Status::INVALID_VALUE);
    }
    check("cuMemGetAllocationGranularity", &properties.0)?;
    to.set(usize::try_from(PAGE_BYTES).unwrap_or(usize::MAX));
    Ok(())
}

fn insert(driver: &Driver, share: Share, properties: Properties) -> Result<u64, Status> {
    keep()?;
    let named = Mutex::new((0, 1));
    let physical = Arc::new(Physical { share, properties, named, token: Mutex::default() });
    let handle = driver.vmm.physical.insert(Arc::clone(&physical))?;
    physical.named.lock().0 = handle;
    Ok(handle)
}

pub(crate) fn create(to: Out<u64>, bytes: usize, properties: In<Properties>, flags: u64) -> Answer {
    let driver = driver()?;
    if flags != 0 {
        return Err(Status::INVALID_VALUE);
    }
    check("cuMemCreate", &properties.0)?;
    let bytes = whole_pages(bytes as u64)?;
    // Whoever moves the process asks for that lock too.
    keep()?;
    let _state = driver.vmm.state.lock();
    let share = driver.session.create(bytes).map_err(|error| Status::of(&error))?;
    // Compression is a wish, which is not met.
    let properties = Properties { compression: 0, ..properties.0 };
    to.set(insert(driver, share, properties)?);
    Ok(())
}

pub(crate) fn release(handle: u64) -> Answer {
    let driver = driver()?;
    let _state = driver.vmm.state.lock();
    let physical = driver.vmm.physical.get(handle)?;
    let mut named = physical.named.lock();
    named.1 = named.1.saturating_sub(1);
    if named.1 == 0 {
        driver.vmm.physical.remove(handle)?;
    }
    drop(named);
    Ok(())
}

pub(crate) fn retain(to: Out<u64>, address: Host) -> Answer {
    let driver = driver()?;
    let state = driver.vmm.state.lock();
    let (_, mapped) = state.find(address.address()).ok_or(Status::INVALID_VALUE)?;
    let mut named = mapped.physical.named.lock();
    if named.1 == 0 {
        named.0 = driver.vmm.physical.insert(Arc::clone(&mapped.physical))?;
    }
    named.1 = named.1.checked_add(1).ok_or(Status::OUT_OF_MEMORY)?;
    to.set(named.0);
    Ok(())
}

pub(crate) fn properties(to: Out<Properties>, handle: u64) -> Answer {
    to.set(driver()?.vmm.physical.get(handle)?.properties);
    Ok(())
}

pub(crate) fn reserve(to: Out<u64>, bytes: usize, alignment: usize, wish: u64, flags: u64) -> Answer {
    let driver = driver()?;
    let alignment = alignment as u64;
    if flags != 0 || alignment != 0 && !alignment.is_power_of_two() {
        return Err(Status::INVALID_VALUE);
    }
    let bytes = whole_pages(bytes as u64)?;
    keep()?;
    let mut state = driver.vmm.state.lock();
    let reserved = state.addresses.reserve(&driver.session, bytes, alignment, wish);
    to.set(reserved.map_err(|error| Status::of(&error))?);
    Ok(())
}

pub(crate) fn unreserve(start: u64, bytes: usize) -> Answer {
    let driver = driver()?;
    let mut state = driver.vmm.state.lock();
    if !state.addresses.is(start, bytes as u64) {
        return Err(Status::INVALID_VALUE);
    }
    let end = start.saturating_add(bytes as u64);
    if state.mapped.range(start..end).next().is_some() {
        return Err(Status::INVALID_VALUE);
    }
    state.addresses.unreserve(start);
    Ok(())
}

pub(crate) fn map(start: u64, bytes: usize, offset: usize, handle: u64, flags: u64) -> Answer {
    let driver = driver()?;
    let bytes = bytes as u64;
    if flags != 0 || offset != 0 || !start.is_multiple_of(PAGE_BYTES) {
        return Err(Status::INVALID_VALUE);
    }
    let mut state = driver.vmm.state.lock();
    let physical = driver.vmm.physical.get(handle)?;
    let whole = physical.share.bytes();
    if bytes == 0 || bytes > whole {
        return Err(Status::INVALID_VALUE);
    }
    if bytes < whole {
        return Err(refuse("cuMemMap", "memory is mapped whole; create it in the sizes that are mapped"));
    }
    if !state.addresses.holds(start, bytes) {
        return Err(Status::INVALID_VALUE);
    }
    let before = state.mapped.range(..start + bytes).next_back();
    if before.is_some_and(|(at, mapped)| at + mapped.bytes > start) {
        return Err(Status::INVALID_VALUE);
    }
    state.mapped.insert(start, Mapped { bytes, physical });
    Ok(())
}

pub(crate) fn unmap(start: u64, bytes: usize) -> Answer {
    let driver = driver()?;
    let mut state = driver.vmm.state.lock();
    for start in state.whole(start, bytes as u64)? {
        take_access(driver, start);
        state.mapped.remove(&start);
    }
    Ok(())
}

/// Lets kernels and copies reach a mapping.
fn give_access(driver: &Driver, start: u64, mapped: &Mapped) -> Answer {
    if driver.memory.region(start).is_some() {
        return Ok(());
    }
    let physical = &mapped.physical;
    let share = driver.session.accept_at(&physical.share, start);
    let share = share.map_err(|error| failed("cuMemSetAccess", &error))?;
    let reached = Reached { share, handle_types: physical.properties.handle_types };
    // Such memory is of no context.
    driver.memory.insert(start, mapped.bytes, What::Reached(reached), 0)
}

/// From here on nothing new reaches a mapping; what runs does as long as it runs.
fn take_access(driver: &Driver, start: u64) {
    let Ok(region) = driver.memory.take(start, |what| matches!(what, What::Reached(_))) else { return };
    // Somebody who looks at the region at this moment drops it instead.
    if let Some(Region { what: What::Reached(reached), .. }) = Arc::into_inner(region) {
        // So that the place is known to be on its way back before something else is mapped there. What has ended
        // already, with its exporter, cannot be closed.
        reached.share.close().map(drop).unwrap_or_default();
    }
}

pub(crate) fn set_access(
    start: u64,
    bytes: usize,
    descriptions: InSlice<AccessDescription>,
    count: usize,
) -> Answer {
    /// One device, one host: nobody has more to say.
    const DESCRIPTIONS_MAX: usize = 64;
    let driver = driver()?;
    if count == 0 || count > DESCRIPTIONS_MAX {
        return Err(Status::INVALID_VALUE);
    }
    let descriptions = descriptions.read(count)?;
    let state = driver.vmm.state.lock();
    let starts = state.whole(start, bytes as u64)?;
    for description in &descriptions {
        if description.location_type != LOCATION_DEVICE {
            return Err(refuse("cuMemSetAccess", "the device's memory is reached from the device only"));
        }
        if description.location_id != 0 {
            return Err(Status::INVALID_DEVICE);
        }
        match description.flags {
            ACCESS_NONE | ACCESS_READ_WRITE => {}
            ACCESS_READ => {
                let why = "what is only read lies at other addresses than what is written, and these are given out; \
                           ask for CU_MEM_ACCESS_FLAGS_PROT_READWRITE";
                return Err(refuse("cuMemSetAccess", why));
            }
            _ => return Err(Status::INVALID_VALUE),
        }
    }
    for description in descriptions {
        for start in &starts {
            let Some(mapped) = state.mapped.get(start) else { continue };
            if description.flags == ACCESS_NONE {
                take_access(driver, *start);
            } else {
                give_access(driver, *start, mapped)?;
            }
        }
    }
    Ok(())
}

pub(crate) fn access(to: Out<u64>, location: In<[u32; 2]>, address: u64) -> Answer {
    let driver = driver()?;
    let [kind, id] = location.0;
    if kind != LOCATION_DEVICE || id != 0 {
        return Err(Status::INVALID_VALUE);
    }
    let state = driver.vmm.state.lock();
    let (start, _) = state.find(address).ok_or(Status::INVALID_VALUE)?;
    let reached = driver.memory.region(start).is_some();
    to.set(u64::from(if reached { ACCESS_READ_WRITE } else { ACCESS_NONE }));
    Ok(())
}

pub(crate) fn export(to: Room, handle: u64, kind: u32, flags: u64) -> Answer {
    let driver = driver()?;
    if flags != 0 || kind == HANDLE_NONE {
        return Err(Status::INVALID_VALUE);
    }
    if kind != HANDLE_DESCRIPTOR {
        return Err(refuse("cuMemExportToShareableHandle", "only POSIX file descriptors are there"));
    }
    let _state = driver.vmm.state.lock();
    let physical = driver.vmm.physical.get(handle)?;
    if physical.properties.handle_types & HANDLE_DESCRIPTOR == 0 {
        return Err(Status::INVALID_VALUE);
    }
    let mut token = physical.token.lock();
    let token = match *token {
        Some(token) => token,
        None => {
            let made = physical.share.token(Uses::UntilRevoked);
            *token.insert(made.map_err(|error| failed("cuMemExportToShareableHandle", &error))?)
        }
    };
    let descriptor = descriptor::write(descriptor::Kind::Memory, token).map_err(|error| {
        report::refused("cuMemExportToShareableHandle", &format!("no descriptor: {error}"));
        Status::OPERATING_SYSTEM
    })?;
    to.write(&descriptor.to_ne_bytes());
    Ok(())
}

pub(crate) fn import(to: Out<u64>, handle: ShareableHandle, kind: u32) -> Answer {
    const CALL: &str = "cuMemImportFromShareableHandle";
    let driver = driver()?;
    if kind != HANDLE_DESCRIPTOR {
        return Err(refuse(CALL, "only POSIX file descriptors are there"));
    }
    let token = descriptor::read(descriptor::Kind::Memory, &handle).map_err(|why| {
        report::refused(CALL, &why.to_string());
        Status::INVALID_VALUE
    })?;
    keep()?;
    let share = driver.session.receive(token).map_err(|error| {
        let status = failed(CALL, &error);
        // It was given back, or there never was any.
        let is_gone = matches!(error.code, ErrorCode::NotFound | ErrorCode::Revoked);
        if is_gone { Status::INVALID_HANDLE } else { status }
    })?;
    let properties = Properties::of_device(TYPE_PINNED, HANDLE_DESCRIPTOR, LOCATION_DEVICE);
    to.set(insert(driver, share, properties)?);
    Ok(())
}
