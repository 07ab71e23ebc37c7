//! Calls about events.

use std::sync::Arc;

use parking_lot::Mutex;

use super::Event;
use super::awaited;
use super::shared::{Latest, Refused, Shared};
use super::watch;
use crate::abi::{IpcHandle, NullStream, Out};
use crate::device;
use crate::driver::{Driver, driver, driver_and_current};
use crate::graph::Work;
use crate::ipc;
use crate::moving::keep;
use crate::order::Target;
use crate::printf;
use crate::status::{Answer, Status};

impl Event {
    /// That its last recording is one that gets done, and the thread may ask about it.
    fn check(&self, driver: &Driver) -> Answer {
        if let Some(point) = self.point() {
            return Err(driver.streams.captures.refuse_point(&point));
        }
        driver.streams.captures.refuse_unsafe()
    }
}

const DISABLE_TIMING: u32 = 2;
const INTERPROCESS: u32 = 4;
const FLAGS: u32 = 7;
/// `CU_EVENT_RECORD_EXTERNAL` and `CU_EVENT_WAIT_EXTERNAL`.
const EXTERNAL: u32 = 1;

pub(crate) fn create(to: Out<u64>, flags: u32) -> Answer {
    let (driver, context) = driver_and_current()?;
    if flags & !FLAGS != 0 || flags & (INTERPROCESS | DISABLE_TIMING) == INTERPROCESS {
        return Err(Status::INVALID_VALUE);
    }
    keep()?;
    let shared =
        (flags & INTERPROCESS != 0).then(|| Shared::new(&driver.session, &driver.pages)).transpose()?;
    insert(driver, &to, context, flags & DISABLE_TIMING == 0, shared)
}

fn insert(
    driver: &'static Driver,
    to: &Out<u64>,
    context: u64,
    timing: bool,
    shared: Option<Shared>,
) -> Answer {
    keep()?;
    let timers = &driver.timers;
    let event = Event { context, timing, timers, shared: shared.map(Arc::new), state: Mutex::default() };
    to.set(driver.events.insert(event.into())?);
    Ok(())
}

/// What another process opens the event with.
pub(crate) fn handle(to: Out<IpcHandle>, event: u64) -> Answer {
    let event = driver()?.events.get(event)?;
    to.set(event.shared.as_ref().ok_or(Status::INVALID_HANDLE)?.handle()?);
    Ok(())
}

/// An event of another process.
pub(crate) fn open(to: Out<u64>, handle: IpcHandle) -> Answer {
    let (driver, context) = driver_and_current()?;
    let shared = Shared::open(&driver.session, &driver.pages, &handle).map_err(|refused| match refused {
        Refused::Status(status) => status,
        Refused::Error(error) => ipc::refused("cuIpcOpenEventHandle", &error),
    })?;
    insert(driver, &to, context, false, Some(shared))
}

pub(crate) fn destroy(event: u64) -> Answer {
    driver()?.events.remove(event).map(drop)
}

pub(crate) fn record(null: NullStream, event: u64, stream: u64) -> Answer {
    record_with_flags(null, event, stream, 0)
}

pub(crate) fn record_with_flags(null: NullStream, handle: u64, stream: u64, flags: u32) -> Answer {
    let (driver, _) = driver_and_current()?;
    if flags & !EXTERNAL != 0 {
        return Err(Status::INVALID_VALUE);
    }
    let event = driver.events.get(handle)?;
    let target = driver.target(null, stream)?;
    match driver.streams.captures.of(target)? {
        None if flags & EXTERNAL != 0 => Err(Status::INVALID_VALUE),
        None => record_in(driver, &event, target),
        Some(capturing) if flags & EXTERNAL != 0 => capturing.add(Work::Record(handle)),
        Some(capturing) => {
            event.state.lock().point = Some(capturing.point()?);
            Ok(())
        }
    }
}

/// Records an event in a stream that does not capture.
pub(crate) fn record_in(driver: &Driver, event: &Event, target: Target) -> Answer {
    let session = &driver.session;
    if let Some(shared) = &event.shared {
        shared.record(&driver.streams, target)?;
        event.state.lock().point = None;
        return Ok(());
    }
    let mut state = event.state.lock();
    if event.timing && state.device.is_none() {
        state.device = Some(driver.timers.take(session)?);
    }
    let fence = driver.streams.submit(session, target, |stream| match state.device {
        Some(device) => session.record(device, stream).map_err(|error| Status::of(&error)),
        None => Ok(session.fence(stream)),
    })?;
    state.fence = Some(fence);
    state.point = None;
    Ok(())
}

/// An event that was never recorded counts as reached.
pub(crate) fn query(event: u64) -> Answer {
    let driver = driver()?;
    let event = driver.events.get(event)?;
    event.check(driver)?;
    let is_reached = match event.latest()? {
        Latest::Reached => true,
        Latest::Own(fence) => {
            let is_done = driver.session.is_done(fence).map_err(|error| Status::of(&error))?;
            driver.streams.tell_failure_before(fence)?;
            is_done
        }
        Latest::Elsewhere(_) => false,
    };
    match is_reached {
        true => driver.session.check_violations().map_err(|error| Status::of(&error)),
        false => Err(Status::NOT_READY),
    }
}

pub(crate) fn synchronize(event: u64) -> Answer {
    let driver = driver()?;
    let event = driver.events.get(event)?;
    event.check(driver)?;
    match (event.latest()?, &event.shared) {
        (Latest::Own(fence), _) => {
            let waited = driver.session.wait(fence).map_err(|error| Status::of(&error));
            printf::flush(driver);
            waited?;
            driver.streams.tell_failure_before(fence)
        }
        (Latest::Elsewhere(recording), Some(shared)) => watch::wait(shared, recording),
        (Latest::Elsewhere(_), None) | (Latest::Reached, _) => Ok(()),
    }
}

/// Later work of the stream starts after the event's point.
pub(crate) fn wait(null: NullStream, stream: u64, handle: u64, flags: u32) -> Answer {
    let (driver, _) = driver_and_current()?;
    if flags & !EXTERNAL != 0 {
        return Err(Status::INVALID_VALUE);
    }
    let target = driver.target(null, stream)?;
    let event = driver.events.get(handle)?;
    let point = event.point();
    match (driver.streams.captures.of(target)?, point) {
        (None, _) if flags & EXTERNAL != 0 => Err(Status::INVALID_VALUE),
        (None, None) => wait_in(driver, &event, target),
        (None, Some(point)) => driver.streams.captures.join(target, &point),
        (Some(capturing), _) if flags & EXTERNAL != 0 => capturing.add(Work::Wait(handle)),
        // An event that was never recorded is nothing to wait for.
        (Some(_), None) if !event.was_recorded()? => Ok(()),
        (Some(capturing), point) => capturing.wait(point.as_ref()),
    }
}

/// Has a stream that does not capture wait for an event.
pub(crate) fn wait_in(driver: &'static Driver, event: &Event, target: Target) -> Answer {
    match (event.latest()?, &event.shared) {
        (Latest::Own(fence), _) => {
            let session = &driver.session;
            driver.streams.submit(session, target, |stream| {
                session.wait_on(stream, fence).map_err(|error| Status::of(&error))
            })
        }
        (Latest::Elsewhere(recording), Some(shared)) => awaited::have_wait(driver, shared, recording, target),
        (Latest::Elsewhere(_), None) | (Latest::Reached, _) => Ok(()),
    }
}

pub(crate) fn elapsed(to: Out<f32>, start: u64, end: u64) -> Answer {
    let driver = driver()?;
    let nanoseconds = elapsed_ns(driver, start, end)?;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "CUDA gives milliseconds with half a microsecond's precision"
    )]
    to.set((nanoseconds / 1e6) as f32);
    Ok(())
}

fn elapsed_ns(driver: &Driver, start: u64, end: u64) -> Result<f64, Status> {
    let times = [start, end].map(|event| -> Result<device::Event, Status> {
        let event = driver.events.get(event)?;
        if let Some(point) = event.point() {
            return Err(driver.streams.captures.refuse_point(&point));
        }
        let state = event.state.lock();
        let (Some(fence), Some(device)) = (state.fence, state.device) else {
            return Err(Status::INVALID_HANDLE);
        };
        match driver.session.is_done(fence).map_err(|error| Status::of(&error))? {
            true => Ok(device),
            false => Err(Status::NOT_READY),
        }
    });
    let [start, end] = times;
    driver.session.elapsed_ns(start?, end?).map_err(|error| Status::of(&error))
}
