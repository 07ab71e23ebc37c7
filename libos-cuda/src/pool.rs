//! The device's one memory pool. It keeps nothing back: freed memory is the session's again once its stream has passed.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::abi::{NullStream, Out, Room};
use crate::driver::driver;
use crate::handle::{Kind, encode};
use crate::memory;
use crate::query::of;
use crate::status::{Answer, Status};

const RELEASE_THRESHOLD: u32 = 4;

/// Remembered for the program to read back; a threshold for what is kept back has nothing to act on.
static THRESHOLD: AtomicU64 = AtomicU64::new(0);

fn pool() -> u64 {
    encode(Kind::Pool, 1, 0)
}

fn check(handle: u64) -> Answer {
    driver()?;
    if handle == pool() { Ok(()) } else { Err(Status::INVALID_VALUE) }
}

pub(crate) fn default(to: Out<u64>, device: i32) -> Answer {
    of(device)?;
    to.set(pool());
    Ok(())
}

pub(crate) fn set(device: i32, handle: u64) -> Answer {
    of(device)?;
    check(handle)
}

pub(crate) fn allocate(null: NullStream, to: Out<u64>, bytes: usize, handle: u64, stream: u64) -> Answer {
    check(handle)?;
    memory::allocate_ordered(null, to, bytes, stream)
}

pub(crate) fn set_attribute(handle: u64, attribute: u32, value: Room) -> Answer {
    check(handle)?;
    match attribute {
        // Reuse policies: memory is reused when it is free, whatever they say.
        1..=3 => {}
        RELEASE_THRESHOLD => THRESHOLD.store(value.read_u64(), Ordering::Relaxed),
        // High-water marks can only be reset.
        6 | 8 if value.read_u64() == 0 => {}
        _ => return Err(Status::INVALID_VALUE),
    }
    Ok(())
}

pub(crate) fn attribute(handle: u64, attribute: u32, value: Room) -> Answer {
    check(handle)?;
    match attribute {
        1..=3 => value.write(&1u32.to_ne_bytes()),
        RELEASE_THRESHOLD => value.write(&THRESHOLD.load(Ordering::Relaxed).to_ne_bytes()),
        5..=8 => value.write(&driver()?.memory.device_bytes().to_ne_bytes()),
        _ => return Err(Status::INVALID_VALUE),
    }
    Ok(())
}

pub(crate) fn trim(handle: u64, _bytes: usize) -> Answer {
    check(handle)
}
