//! Managed memory: pinned host memory that kernels reach at the host's address, slow for them and right.
//!
//! Nothing is ever moved, so prefetches and advice are kept, to be told of, and change nothing else.

mod hint_map;

use std::ffi::c_void;

use crate::abi::{InSlice, Location, NullStream, Out, Room};
use crate::driver::{Driver, driver_and_current};
use crate::memory::What;
use crate::moving::keep;
use crate::report;
use crate::status::{Answer, Status};

pub(crate) use hint_map::Hints;
use hint_map::{Hint, Where};

const ATTACH_GLOBAL: u32 = 1;
const ATTACH_HOST: u32 = 2;
const ATTACH_SINGLE: u32 = 4;
/// `CU_DEVICE_CPU`, `CU_DEVICE_INVALID`.
const CPU: i32 = -1;
const NO_DEVICE: i32 = -2;

pub(crate) fn allocate(to: Out<u64>, bytes: usize, flags: u32) -> Answer {
    let (driver, context) = driver_and_current()?;
    if bytes == 0 || !matches!(flags, ATTACH_GLOBAL | ATTACH_HOST) {
        return Err(Status::INVALID_VALUE);
    }
    driver.streams.captures.refuse_unsafe()?;
    // While the process moves its session has no addresses for it.
    keep()?;
    let buffer = driver.session.allocate_managed(bytes).map_err(|error| {
        report::refused("cuMemAllocManaged", &error.to_string());
        Status::of(&error)
    })?;
    let address = buffer.as_ptr().expose_provenance() as u64;
    driver.memory.insert(address, bytes as u64, What::Managed(buffer), context)?;
    to.set(address);
    Ok(())
}

/// Does something with what is known of a range of managed memory; offsets are those in its allocation.
fn with_hints<R>(
    driver: &Driver,
    address: u64,
    bytes: usize,
    work: impl FnOnce(&mut Hints, u64, u64) -> R,
) -> Result<R, Status> {
    let (start, length, region) = driver.memory.region(address).ok_or(Status::INVALID_VALUE)?;
    let (offset, bytes) = (address - start, bytes as u64);
    let last =
        bytes.checked_sub(1).and_then(|more| address.checked_add(more)).ok_or(Status::INVALID_VALUE)?;
    if !region.is_managed(address) || !region.is_managed(last) || bytes > length - offset {
        return Err(Status::INVALID_VALUE);
    }
    let mut hints = region.hints.lock();
    Ok(work(&mut hints, offset, offset + bytes))
}

impl Where {
    /// A device by number, or the host.
    fn of_device(device: i32) -> Result<Where, Status> {
        match device {
            CPU => Ok(Where::Host),
            0 => Ok(Where::Device),
            _ => Err(Status::INVALID_DEVICE),
        }
    }

    fn of(location: Location) -> Result<Where, Status> {
        match (location.kind, location.id) {
            (1, 0) => Ok(Where::Device),
            (1, _) => Err(Status::INVALID_DEVICE),
            (2 | 4, _) => Ok(Where::Host),
            (3, node) if node >= 0 => Ok(Where::Node(node)),
            _ => Err(Status::INVALID_VALUE),
        }
    }

    /// As `CUmemLocation` has it.
    fn location(self) -> (i32, i32) {
        match self {
            Where::Device => (1, 0),
            Where::Host => (2, 0),
            Where::Node(node) => (3, node),
        }
    }

    fn device(self) -> i32 {
        match self {
            Where::Device => 0,
            Where::Host | Where::Node(_) => CPU,
        }
    }
}

/// There is nothing to fetch; the call is in the stream's order as it is.
fn prefetch_to(null: NullStream, address: u64, bytes: usize, to: Where, stream: u64) -> Answer {
    let (driver, _) = driver_and_current()?;
    let target = driver.target(null, stream)?;
    driver.streams.captures.refuse(target)?;
    with_hints(driver, address, bytes, |hints, start, end| {
        hints.change(start, end, |hint| hint.prefetched = Some(to));
    })
}

pub(crate) fn prefetch(null: NullStream, address: u64, bytes: usize, device: i32, stream: u64) -> Answer {
    prefetch_to(null, address, bytes, Where::of_device(device)?, stream)
}

pub(crate) fn prefetch_by_location(
    null: NullStream,
    address: u64,
    bytes: usize,
    location: Location,
    flags: u32,
    stream: u64,
) -> Answer {
    if flags != 0 {
        return Err(Status::INVALID_VALUE);
    }
    prefetch_to(null, address, bytes, Where::of(location)?, stream)
}

/// Nothing is gained by forgetting what is there; the call is one about managed memory all the same.
pub(crate) fn discard(null: NullStream, address: u64, bytes: usize, stream: u64) -> Answer {
    let (driver, _) = driver_and_current()?;
    let target = driver.target(null, stream)?;
    driver.streams.captures.refuse(target)?;
    with_hints(driver, address, bytes, |_, _, _| ())
}

/// `place` is looked at only for advice that names one.
fn advise_of(address: u64, bytes: usize, advice: u32, place: Result<Where, Status>) -> Answer {
    let (driver, _) = driver_and_current()?;
    let place = match advice {
        1 | 2 | 4 => None,
        3 => Some(place?),
        5 | 6 => Some(place?).filter(|place| !matches!(place, Where::Node(_))),
        _ => return Err(Status::INVALID_VALUE),
    };
    if matches!(advice, 3 | 5 | 6) && place.is_none() {
        return Err(Status::INVALID_VALUE);
    }
    with_hints(driver, address, bytes, |hints, start, end| {
        hints.change(start, end, |hint| match (advice, place) {
            (3 | 4, place) => hint.preferred = place,
            (5 | 6, Some(Where::Device)) => hint.by_device = advice == 5,
            (5 | 6, _) => hint.by_host = advice == 5,
            (_, _) => hint.read_mostly = advice == 1,
        });
    })
}

pub(crate) fn advise(address: u64, bytes: usize, advice: u32, device: i32) -> Answer {
    advise_of(address, bytes, advice, Where::of_device(device))
}

pub(crate) fn advise_by_location(address: u64, bytes: usize, advice: u32, location: Location) -> Answer {
    advise_of(address, bytes, advice, Where::of(location))
}

/// Writes what is known of a range.
fn tell(driver: &Driver, to: Room, size: usize, attribute: u32, address: u64, bytes: usize) -> Answer {
    let is_list = attribute == 3;
    if !(1..=8).contains(&attribute) || size == 0 || !size.is_multiple_of(4) || (!is_list && size != 4) {
        return Err(Status::INVALID_VALUE);
    }
    let all = |of: fn(&Hint) -> bool| move |hints: &mut Hints, start, end| hints.common(start, end, of);
    if is_list {
        let by_device = with_hints(driver, address, bytes, all(|hint| hint.by_device))? == Some(true);
        let by_host = with_hints(driver, address, bytes, all(|hint| hint.by_host))? == Some(true);
        let listed = [by_device.then_some(0), by_host.then_some(CPU)].into_iter().flatten();
        let content: Vec<u8> =
            listed.chain(std::iter::repeat(NO_DEVICE)).take(size / 4).flat_map(i32::to_ne_bytes).collect();
        to.write(&content);
        return Ok(());
    }
    if attribute == 1 {
        let is_so = with_hints(driver, address, bytes, all(|hint| hint.read_mostly))? == Some(true);
        to.write(&i32::from(is_so).to_ne_bytes());
        return Ok(());
    }
    let of: fn(&Hint) -> Option<Where> =
        if matches!(attribute, 2 | 5 | 6) { |hint| hint.preferred } else { |hint| hint.prefetched };
    let place =
        with_hints(driver, address, bytes, |hints, start, end| hints.common(start, end, of))?.flatten();
    let value = match attribute {
        2 | 4 => place.map_or(NO_DEVICE, Where::device),
        5 | 7 => place.map_or(0, |place| place.location().0),
        _ => place.map_or(NO_DEVICE, |place| place.location().1),
    };
    to.write(&value.to_ne_bytes());
    Ok(())
}

pub(crate) fn range_attribute(to: Room, size: usize, attribute: u32, address: u64, bytes: usize) -> Answer {
    tell(driver_and_current()?.0, to, size, attribute, address, bytes)
}

pub(crate) fn range_attributes(
    to: InSlice<*mut c_void>,
    sizes: InSlice<usize>,
    attributes: InSlice<u32>,
    count: usize,
    address: u64,
    bytes: usize,
) -> Answer {
    let (driver, _) = driver_and_current()?;
    if count == 0 || count > 64 {
        return Err(Status::INVALID_VALUE);
    }
    let asked = to.rooms(count)?.into_iter().zip(sizes.read(count)?).zip(attributes.read(count)?);
    for ((to, size), attribute) in asked {
        tell(driver, to, size, attribute, address, bytes)?;
    }
    Ok(())
}

/// All streams reach all managed memory, whatever it is attached to.
pub(crate) fn attach(null: NullStream, stream: u64, address: u64, bytes: usize, flags: u32) -> Answer {
    let (driver, _) = driver_and_current()?;
    let target = driver.target(null, stream)?;
    driver.streams.captures.refuse(target)?;
    let is_single = match flags {
        ATTACH_GLOBAL | ATTACH_HOST => false,
        ATTACH_SINGLE => true,
        _ => return Err(Status::INVALID_VALUE),
    };
    let (start, length, region) = driver.memory.region(address).ok_or(Status::INVALID_VALUE)?;
    let is_whole = bytes == 0 || (matches!(region.what, What::Variables(_)) || bytes as u64 == length);
    let is_start = matches!(region.what, What::Variables(_)) || address == start;
    if !region.is_managed(address) || !is_whole || !is_start || (is_single && stream == 0) {
        return Err(Status::INVALID_VALUE);
    }
    Ok(())
}
