//! Events: a point of a stream, with the time at which it was reached.

mod awaited;
mod calls;
mod pages;
mod shared;
mod slot;
mod watch;
mod whole;

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

pub(crate) use calls::*;

use crate::capture::Point;
use crate::device::{self, Fence, Session};
use crate::status::Status;
pub(crate) use pages::Pages;
use shared::{Latest, Shared};
pub(crate) use whole::{record as record_context, wait as have_context_wait};

/// An event.
pub(crate) struct Event {
    pub(crate) context: u64,
    timing: bool,
    timers: &'static Timers,
    /// Where other processes may see it.
    shared: Option<Arc<Shared>>,
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
            self.timers.put(event, state.fence);
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

    fn was_recorded(&self) -> Result<bool, Status> {
        match &self.shared {
            None => Ok(self.fence().is_some()),
            Some(shared) => shared.was_recorded(),
        }
    }

    /// Its latest recording.
    fn latest(&self) -> Result<Latest, Status> {
        match &self.shared {
            None => Ok(self.fence().map_or(Latest::Reached, Latest::Own)),
            Some(shared) => shared.latest(),
        }
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
