//! Calls about streams.

use crate::abi::{NullStream, Out, OutMaybe};
use crate::context::{self, driver_and_current};
use crate::driver::Driver;
use crate::order::{Order, Target};
use crate::printf;
use crate::status::{Answer, Status};

/// Lower is more urgent, as everywhere in CUDA.
pub(crate) const PRIORITY_LEAST: i32 = 0;
/// What NVIDIA's drivers offer.
pub(crate) const PRIORITY_GREATEST: i32 = -5;

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
    to.set(driver.streams.create(&driver.session, order, priority, context)?);
    Ok(())
}

pub(crate) fn destroy(stream: u64) -> Answer {
    let (driver, _) = driver_and_current()?;
    driver.streams.destroy(&driver.session, stream)
}

fn named(null: NullStream, stream: u64) -> Result<(&'static Driver, Target), Status> {
    let (driver, _) = driver_and_current()?;
    Ok((driver, driver.streams.target(null, stream)?))
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

pub(crate) fn device(null: NullStream, stream: u64, to: Out<i32>) -> Answer {
    named(null, stream)?;
    to.set(0);
    Ok(())
}
