//! Events: a point of a stream, with the time at which it was reached.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::abi::{NullStream, Out};
use crate::capture::Point;
use crate::context::driver_and_current;
use crate::device::{self, Fence, Session};
use crate::driver::{Driver, driver};
use crate::graph::Work;
use crate::order::Target;
use crate::printf;
use crate::status::{Answer, Status};

const DISABLE_TIMING: u32 = 2;
const INTERPROCESS: u32 = 4;
const FLAGS: u32 = 7;
/// `CU_EVENT_RECORD_EXTERNAL` and `CU_EVENT_WAIT_EXTERNAL`.
const EXTERNAL: u32 = 1;

/// An event.
pub(crate) struct Event {
    pub(crate) context: u64,
    timing: bool,
    driver: &'static Driver,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Where it was recorded last.
    fence: Option<Fence>,
    /// The session's event, taken when it is recorded first.
    device: Option<device::Event>,
    /// Where a stream that captures had come to, where it was recorded there last.
    point: Option<Point>,
}

impl Drop for Event {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        if let Some(event) = state.device.take() {
            self.driver.timers.put(event, state.fence);
        }
    }
}

impl Event {
    fn fence(&self) -> Option<Fence> {
        self.state.lock().fence
    }

    fn point(&self) -> Option<Point> {
        self.state.lock().point.clone()
    }

    /// That its last recording is one that gets done, and the thread may ask about it.
    fn check(&self, driver: &Driver) -> Answer {
        if let Some(point) = self.point() {
            return Err(driver.streams.captures.refuse_point(&point));
        }
        driver.streams.captures.refuse_unsafe()
    }

    fn is_reached(&self, session: &Session) -> Result<bool, Status> {
        self.fence().map_or(Ok(true), |fence| session.is_done(fence).map_err(|error| Status::of(&error)))
    }
}

/// The session's events that no event uses: programs make and destroy them at a rate, and here that costs nothing.
/// One is used again only once its last recording has passed: a late one would overwrite the new one's time.
#[derive(Default)]
pub(crate) struct Timers(Mutex<VecDeque<(device::Event, Option<Fence>)>>);

impl Timers {
    fn put(&self, event: device::Event, fence: Option<Fence>) {
        self.0.lock().push_back((event, fence));
    }

    fn take(&self, session: &Session) -> Result<device::Event, Status> {
        let mut unused = self.0.lock();
        if let Some((event, fence)) = unused.pop_front() {
            let passed = fence.map_or(Ok(true), |fence| session.is_done(fence));
            if passed.map_err(|error| Status::of(&error))? {
                return Ok(event);
            }
            unused.push_back((event, fence));
        }
        drop(unused);
        session.create_event().map_err(|error| Status::of(&error))
    }
}

pub(crate) fn create(to: Out<u64>, flags: u32) -> Answer {
    let (driver, context) = driver_and_current()?;
    if flags & !FLAGS != 0 || flags & (INTERPROCESS | DISABLE_TIMING) == INTERPROCESS {
        return Err(Status::INVALID_VALUE);
    }
    if flags & INTERPROCESS != 0 {
        return Err(Status::NOT_SUPPORTED);
    }
    let event = Event { context, timing: flags & DISABLE_TIMING == 0, driver, state: Mutex::default() };
    to.set(driver.events.insert(event.into())?);
    Ok(())
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
    let target = driver.streams.target(null, stream)?;
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
    match event.is_reached(&driver.session)? {
        true => driver.session.check_violations().map_err(|error| Status::of(&error)),
        false => Err(Status::NOT_READY),
    }
}

pub(crate) fn synchronize(event: u64) -> Answer {
    let driver = driver()?;
    let event = driver.events.get(event)?;
    event.check(driver)?;
    match event.fence() {
        Some(fence) => {
            let waited = driver.session.wait(fence).map_err(|error| Status::of(&error));
            printf::flush(driver);
            waited
        }
        None => Ok(()),
    }
}

/// Later work of the stream starts after the event's point.
pub(crate) fn wait(null: NullStream, stream: u64, handle: u64, flags: u32) -> Answer {
    let (driver, _) = driver_and_current()?;
    if flags & !EXTERNAL != 0 {
        return Err(Status::INVALID_VALUE);
    }
    let target = driver.streams.target(null, stream)?;
    let event = driver.events.get(handle)?;
    let point = event.point();
    match (driver.streams.captures.of(target)?, point) {
        (None, _) if flags & EXTERNAL != 0 => Err(Status::INVALID_VALUE),
        (None, None) => wait_in(driver, &event, target),
        (None, Some(point)) => driver.streams.captures.join(target, &point),
        (Some(capturing), _) if flags & EXTERNAL != 0 => capturing.add(Work::Wait(handle)),
        // An event that was never recorded is nothing to wait for.
        (Some(_), None) if event.fence().is_none() => Ok(()),
        (Some(capturing), point) => capturing.wait(point.as_ref()),
    }
}

/// Has a stream that does not capture wait for an event.
pub(crate) fn wait_in(driver: &Driver, event: &Event, target: Target) -> Answer {
    let Some(fence) = event.fence() else { return Ok(()) };
    let session = &driver.session;
    driver
        .streams
        .submit(session, target, |stream| session.wait_on(stream, fence).map_err(|error| Status::of(&error)))
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
