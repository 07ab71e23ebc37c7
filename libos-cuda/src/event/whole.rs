//! Events that stand for all work of a context (`cuCtxRecordEvent`), and that all later work of one waits for.

use super::calls::{record_in, wait_in};
use crate::abi::NullStream;
use crate::driver::driver;
use crate::order::Order;
use crate::status::{Answer, Status};

/// Records an event behind all that the context's streams were given.
pub(crate) fn record(context: u64, handle: u64) -> Answer {
    let driver = driver()?;
    driver.contexts.check(context)?;
    let event = driver.events.get(handle)?;
    if event.context != context {
        return Err(Status::INVALID_HANDLE);
    }
    driver.streams.captures.refuse_all()?;
    let session = &driver.session;
    // A stream of its own: in another the event would hold up what comes later there.
    let lane = driver.streams.create(session, Order::NonBlocking, 0, 0)?;
    let recorded = driver.target(NullStream::Legacy, lane).and_then(|target| {
        for other in driver.streams.of_context(context) {
            session
                .wait_on(target.stream, session.fence(other.stream))
                .map_err(|error| Status::of(&error))?;
        }
        record_in(driver, &event, target)
    });
    // What it was given is done all the same.
    driver.streams.destroy(session, lane)?;
    recorded
}

/// Has all later work of a context wait for an event, that of streams which are not there yet too.
pub(crate) fn wait(context: u64, handle: u64) -> Answer {
    let driver = driver()?;
    driver.contexts.check(context)?;
    let event = driver.events.get(handle)?;
    if let Some(point) = event.point() {
        driver.streams.captures.refuse_point(&point);
        return Err(Status::STREAM_CAPTURE_UNSUPPORTED);
    }
    driver.streams.captures.refuse_all()?;
    if !event.was_recorded()? {
        return Ok(());
    }
    let ahead = driver.streams.ahead_of(&driver.session, context)?;
    for target in driver.streams.of_context(context).chain([ahead]) {
        wait_in(driver, &event, target)?;
    }
    Ok(())
}
