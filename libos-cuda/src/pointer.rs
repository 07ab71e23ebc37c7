//! What programs may ask about an address.

use std::ffi::c_void;

use crate::abi::{InSlice, Room};
use crate::driver::{Driver, driver};
use crate::memory::{self, What};
use crate::status::{Answer, Status};

const MEMORY_HOST: u32 = 1;
const MEMORY_DEVICE: u32 = 2;
/// `CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE`.
const ACCESS_READ_WRITE: u32 = 3;
/// `CU_DEVICE_INVALID`.
const NO_DEVICE: i32 = -2;
const SYNC_MEMOPS: u32 = 6;
const IS_MANAGED: u32 = 8;
/// `CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE`.
const IS_IPC_CAPABLE: u32 = 10;

/// An attribute's value, with the size that C reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    Word(u32),
    Number(i32),
    Long(u64),
}

impl Value {
    fn write(self, to: Room) {
        match self {
            Value::Word(value) => to.write(&value.to_ne_bytes()),
            Value::Number(value) => to.write(&value.to_ne_bytes()),
            Value::Long(value) => to.write(&value.to_ne_bytes()),
        }
    }
}

/// The value of an attribute for an address; `None` where the address is not CUDA's or does not have it.
fn value(driver: &Driver, attribute: u32, address: u64) -> Result<Option<Value>, Status> {
    let Some((start, bytes, region)) = driver.memory.object(address) else { return Ok(None) };
    let is_device = !matches!(region.what, What::Pinned(..) | What::Registered(_));
    let is_managed = region.is_managed(address);
    Ok(match attribute {
        1 => Some(Value::Long(region.context)),
        2 => Some(Value::Word(if is_device { MEMORY_DEVICE } else { MEMORY_HOST })),
        3 if is_device => Some(Value::Long(address)),
        3 => memory::device_pointer(driver, address).map(Value::Long),
        4 => (!is_device || is_managed).then_some(Value::Long(address)),
        7 | 20 => Some(Value::Long(region.id)),
        // Booleans too: NVIDIA's runtime reads four bytes.
        IS_MANAGED => Some(Value::Word(u32::from(is_managed))),
        SYNC_MEMOPS | 15 | 21 => Some(Value::Word(0)),
        IS_IPC_CAPABLE => Some(Value::Word(u32::from(matches!(region.what, What::Device(_))))),
        9 => Some(Value::Number(0)),
        11 | 19 => Some(Value::Long(start)),
        12 | 18 => Some(Value::Long(bytes)),
        13 => Some(Value::Word(u32::from(is_device || memory::device_pointer(driver, address).is_some()))),
        14 => Some(Value::Long(match &region.what {
            What::Reached(reached) => u64::from(reached.handle_types),
            What::Device(_) | What::Opened(_) if region.pooled.is_some() => {
                region.pooled.as_ref().map_or(0, |pooled| u64::from(pooled.pool.handle_types()))
            }
            What::Device(_)
            | What::OfGraph(_)
            | What::Opened(_)
            | What::Variables(_)
            | What::Foreign(_)
            | What::Pinned(..)
            | What::Registered(_)
            | What::Managed(_) => 0,
        })),
        17 => Some(Value::Long(region.pooled.as_ref().map_or(0, |pooled| pooled.pool.handle()))),
        16 => Some(Value::Word(ACCESS_READ_WRITE)),
        _ => return Err(Status::INVALID_VALUE),
    })
}

/// What `cuPointerGetAttributes` gives for what is not there: null, or the invalid device.
fn absent(attribute: u32) -> Result<Value, Status> {
    Ok(match attribute {
        1 | 3 | 4 | 7 | 11 | 12 | 14 | 17 | 18 | 19 | 20 => Value::Long(0),
        2 | SYNC_MEMOPS | 8 | 10 | 13 | 15 | 16 | 21 => Value::Word(0),
        9 => Value::Number(NO_DEVICE),
        _ => return Err(Status::INVALID_VALUE),
    })
}

pub(crate) fn attribute(to: Room, attribute: u32, address: u64) -> Answer {
    value(driver()?, attribute, address)?.ok_or(Status::INVALID_VALUE)?.write(to);
    Ok(())
}

pub(crate) fn attributes(
    count: u32,
    attributes: InSlice<u32>,
    to: InSlice<*mut c_void>,
    address: u64,
) -> Answer {
    let driver = driver()?;
    let count = usize::try_from(count).map_err(|_| Status::INVALID_VALUE)?;
    for (attribute, room) in attributes.read(count)?.into_iter().zip(to.rooms(count)?) {
        match value(driver, attribute, address)? {
            Some(value) => value.write(room),
            None => absent(attribute)?.write(room),
        }
    }
    Ok(())
}

/// Synchronous copies are synchronous always, which is all that the one settable attribute asks for.
pub(crate) fn set_attribute(_value: Room, attribute: u32, address: u64) -> Answer {
    driver()?.memory.region(address).ok_or(Status::INVALID_VALUE)?;
    if attribute == SYNC_MEMOPS { Ok(()) } else { Err(Status::INVALID_VALUE) }
}
