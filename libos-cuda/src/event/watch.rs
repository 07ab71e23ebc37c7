//! Looking at recordings of other processes: whether they have ended, or never will.
//!
//! Whoever waits looks at the slot every millisecond, and now and then at whether the process that records is still there:
//! its recordings end with it, or never.

use std::time::{Duration, Instant};

use super::shared::Shared;
use super::slot::Recording;
use crate::presence::Other;
use crate::report;
use crate::status::{Answer, Status};

/// Between two looks at first, and at most.
pub(super) const NAP_MIN: Duration = Duration::from_micros(20);
const NAP_MAX: Duration = Duration::from_millis(1);
/// Between two questions whether somebody is still there.
const WATCH: Duration = Duration::from_millis(100);

/// Whether somebody is still there.
pub(super) struct Watch {
    asked: Instant,
    other: Option<Other>,
}

impl Default for Watch {
    fn default() -> Watch {
        Watch { asked: Instant::now(), other: None }
    }
}

/// Looks once: whether a recording has ended.
///
/// # Errors
/// `INVALID_HANDLE` where it never will.
pub(super) fn look(shared: &Shared, recording: Recording, watch: &mut Watch) -> Result<bool, Status> {
    let seen = shared.look()?;
    if seen.has_ended(recording) {
        return Ok(true);
    }
    if watch.asked.elapsed() < WATCH {
        return Ok(false);
    }
    watch.asked = Instant::now();
    let is_gone = match &watch.other {
        Some(other) => other.is_gone(),
        None => match Other::of(shared.session(), seen.recorder(recording)) {
            Ok(other) => {
                watch.other = other;
                false
            }
            Err(_) => true,
        },
    };
    if !is_gone {
        return Ok(false);
    }
    // It may have come there before it was gone.
    if shared.look()?.has_ended(recording) {
        return Ok(true);
    }
    report::once(
        "cudaEventInterprocess: the process that recorded the event has ended before its stream came there",
    );
    Err(Status::INVALID_HANDLE)
}

/// How long to sleep between looks.
pub(super) struct Nap(pub(super) Duration);

impl Nap {
    pub(super) fn sleep(&mut self) {
        std::thread::sleep(self.0);
        self.0 = (self.0 * 2).min(NAP_MAX);
    }
}

/// Waits here until a recording has ended.
pub(super) fn wait(shared: &Shared, recording: Recording) -> Answer {
    let (mut nap, mut watch) = (Nap(NAP_MIN), Watch::default());
    while !look(shared, recording, &mut watch)? {
        nap.sleep();
    }
    Ok(())
}
