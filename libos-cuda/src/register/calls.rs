//! Calls that register memory of the program's, and give it back.

use super::{Exchanged, Failure, ONLY_PRIVATE, Registered, can_be_exchanged};
use crate::abi::{Host, Pages};
use crate::driver::driver_and_current;
use crate::memory::What;
use crate::moving::keep;
use crate::report;
use crate::status::{Answer, Status};

const MAPPED: u32 = 2;
const IO_MEMORY: u32 = 4;
const READ_ONLY: u32 = 8;
/// `CU_MEMHOSTREGISTER_PORTABLE | DEVICEMAP | IOMEMORY | READ_ONLY`.
const FLAGS: u32 = 15;

pub(crate) fn register(host: Host, bytes: usize, flags: u32) -> Answer {
    let (driver, context) = driver_and_current()?;
    if host.address() == 0 || bytes == 0 || flags & !FLAGS != 0 {
        return Err(Status::INVALID_VALUE);
    }
    driver.streams.captures.refuse_unsafe()?;
    if flags & (IO_MEMORY | READ_ONLY) != 0 {
        let why = "memory of devices, and memory that the program may only read, is not registered";
        report::refused("cuMemHostRegister", why);
        return Err(Status::NOT_SUPPORTED);
    }
    let pages = Pages::around(host, bytes).ok_or(Status::INVALID_VALUE)?;
    keep()?;
    let _turn = driver.memory.registering.lock();
    if driver.memory.overlaps(host.address(), bytes as u64) {
        return Err(Status::HOST_MEMORY_ALREADY_REGISTERED);
    }
    let exchanged = match can_be_exchanged(pages)? {
        true => match Exchanged::new(&driver.session, host, bytes, pages) {
            Ok(exchanged) => Some(exchanged),
            Err(Failure::Mapping) => None,
            Err(Failure::Memory(status)) => return Err(status),
        },
        false => None,
    };
    if exchanged.is_none() && flags & MAPPED != 0 {
        report::refused("cuMemHostRegister", ONLY_PRIVATE);
        return Err(Status::NOT_SUPPORTED);
    }
    let registered = Registered { flags, exchanged };
    driver.memory.insert(host.address(), bytes as u64, What::Registered(registered), context)
}

pub(crate) fn unregister(host: Host) -> Answer {
    let (driver, _) = driver_and_current()?;
    driver.streams.captures.refuse_unsafe()?;
    let _turn = driver.memory.registering.lock();
    let is = |what: &What| matches!(what, What::Registered(_));
    let is_registered = driver
        .memory
        .region(host.address())
        .is_some_and(|(start, _, region)| start == host.address() && is(&region.what));
    if !is_registered {
        return Err(Status::HOST_MEMORY_NOT_REGISTERED);
    }
    // The device may still copy from or to it, and kernels use it.
    let waited = driver.streams.synchronize_all(&driver.session);
    drop(driver.memory.take(host.address(), is)?);
    waited
}
