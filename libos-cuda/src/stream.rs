//! Calls about streams.

use crate::abi::{In, NullStream, Out, OutMaybe};
use crate::context;
use crate::driver::{Driver, driver_and_current};
use crate::moving::keep;
use crate::order::{Order, Target};
use crate::printf;
use crate::priorities::{PRIORITY_GREATEST, PRIORITY_LEAST};
use crate::report;
use crate::status::{Answer, Status};

const NON_BLOCKING: u32 = 1;

pub(crate) fn create(to: Out<u64>, flags: u32) -> Answer {
    create_with_priority(to, flags, PRIORITY_LEAST)
}

pub(crate) fn create_with_priority(to: Out<u64>, flags: u32, priority: i32) -> Answer {
    let (driver, context) = driver_and_current()?;
    let order = match flags {
        0 => Order::Blocking,
        NON_BLOCKING => Order::NonBlocking,
        _ => return Err(Status::INVALID_VALUE),
    };
    let priority = priority.clamp(PRIORITY_GREATEST, PRIORITY_LEAST);
    keep()?;
    to.set(driver.streams.create(&driver.session, order, priority, context)?);
    Ok(())
}

pub(crate) fn destroy(stream: u64) -> Answer {
    let (driver, _) = driver_and_current()?;
    driver.streams.destroy(&driver.session, stream)
}

fn named(null: NullStream, stream: u64) -> Result<(&'static Driver, Target), Status> {
    let (driver, _) = driver_and_current()?;
    Ok((driver, driver.target(null, stream)?))
}

pub(crate) fn synchronize(null: NullStream, stream: u64) -> Answer {
    let (driver, target) = named(null, stream)?;
    driver.streams.captures.refuse(target)?;
    let waited = driver.streams.synchronize(&driver.session, target);
    printf::flush(driver);
    waited
}

pub(crate) fn query(null: NullStream, stream: u64) -> Answer {
    let (driver, target) = named(null, stream)?;
    driver.streams.captures.refuse(target)?;
    match driver.streams.is_done(&driver.session, target)? {
        true => driver.session.check_violations().map_err(|error| Status::of(&error)),
        false => Err(Status::NOT_READY),
    }
}

pub(crate) fn priority(null: NullStream, stream: u64, to: Out<i32>) -> Answer {
    let (driver, target) = named(null, stream)?;
    to.set(driver.streams.facts(target)?.0);
    Ok(())
}

pub(crate) fn flags(null: NullStream, stream: u64, to: Out<u32>) -> Answer {
    let (_, target) = named(null, stream)?;
    to.set(match target.order {
        Order::NonBlocking => NON_BLOCKING,
        Order::Legacy | Order::Blocking => 0,
    });
    Ok(())
}

pub(crate) fn id(null: NullStream, stream: u64, to: Out<u64>) -> Answer {
    let (_, target) = named(null, stream)?;
    to.set(u64::from(target.stream.index()) + 1);
    Ok(())
}

pub(crate) fn context(null: NullStream, stream: u64, to: Out<u64>) -> Answer {
    let (driver, target) = named(null, stream)?;
    to.set(match target.order {
        Order::Legacy => context::current()?,
        Order::Blocking | Order::NonBlocking => driver.streams.facts(target)?.1,
    });
    Ok(())
}

pub(crate) fn context_or_green(null: NullStream, stream: u64, to: Out<u64>, green: OutMaybe<u64>) -> Answer {
    context(null, stream, to)?;
    green.set(0);
    Ok(())
}

/// `CUlaunchAttributeID` of streams: a window of the cache, how the host waits, and two of memory domains.
const WINDOW: u32 = 1;
const WAITING: u32 = 3;
const DOMAIN_MAP: u32 = 9;
const DOMAIN: u32 = 10;
/// `CU_LAUNCH_ATTRIBUTE_PRIORITY`.
const PRIORITY: u32 = 8;

/// What a stream was told, or what it begins with. All are hints.
pub(crate) fn attribute(null: NullStream, stream: u64, attribute: u32, to: Out<[u32; 16]>) -> Answer {
    let (driver, target) = named(null, stream)?;
    let mut value = [0; 16];
    match attribute {
        PRIORITY => value[0] = driver.streams.facts(target)?.0.cast_unsigned(),
        WINDOW | WAITING | DOMAIN_MAP | DOMAIN => {
            if let Some(kept) = driver.streams.attributes(target)?.lock().get(&attribute) {
                value = *kept;
            } else if attribute == WAITING {
                // `CU_SYNC_POLICY_AUTO`.
                value[0] = 1;
            } else if attribute == DOMAIN_MAP {
                // The default one is 0, the remote one 1: a byte each.
                value[0] = 1 << 8;
            }
        }
        _ => return Err(Status::INVALID_VALUE),
    }
    to.set(value);
    Ok(())
}

pub(crate) fn set_attribute(null: NullStream, stream: u64, attribute: u32, value: In<[u32; 16]>) -> Answer {
    let (driver, target) = named(null, stream)?;
    match attribute {
        WINDOW | WAITING | DOMAIN_MAP | DOMAIN => {
            driver.streams.attributes(target)?.lock().insert(attribute, value.0);
            Ok(())
        }
        PRIORITY if driver.streams.facts(target)?.0.cast_unsigned() == value.0[0] => Ok(()),
        PRIORITY => {
            report::refused(
                "cuStreamSetAttribute",
                "a stream has its priority from cuStreamCreateWithPriority",
            );
            Err(Status::NOT_SUPPORTED)
        }
        _ => Err(Status::INVALID_VALUE),
    }
}

pub(crate) fn copy_attributes(null: NullStream, to: u64, from: u64) -> Answer {
    let (driver, from) = named(null, from)?;
    let (_, to) = named(null, to)?;
    let copied = driver.streams.attributes(from)?.lock().clone();
    *driver.streams.attributes(to)?.lock() = copied;
    Ok(())
}

pub(crate) fn device(null: NullStream, stream: u64, to: Out<i32>) -> Answer {
    named(null, stream)?;
    to.set(0);
    Ok(())
}

/// No stream is of a part of the multiprocessors.
pub(crate) fn green_context(stream: u64, to: Out<u64>) -> Answer {
    named(NullStream::Legacy, stream)?;
    to.set(0);
    Ok(())
}
