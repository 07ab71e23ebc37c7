//! Streams of the library's own, in which branches of graphs run.

use parking_lot::Mutex;

use crate::device::Session;
use crate::order::{Order, Streams, Target};
use crate::priorities::PRIORITY_LEAST;

/// How many there are at most: a session has 64 streams, and they are the program's.
const STREAMS: usize = 8;

/// They are made when a launch needs them first. What runs in one at a time is what was launched into one stream, which is in
/// order anyway: a launch that waits, for a function of the host's perhaps, holds up no launch into another stream.
#[derive(Default)]
pub(crate) struct Lanes {
    lanes: Mutex<Vec<Lane>>,
}

struct Lane {
    target: Target,
    /// The number of the stream whose launches it belongs to, until what they gave it has passed. That number is not another
    /// stream's before.
    owner: u32,
    /// Launches that submit to it at this moment.
    submitting: usize,
}

/// The streams of a launch while it submits: the one that it was launched into, and what it has of the lanes.
pub(super) struct Taken<'a> {
    lanes: &'a Lanes,
    pub(super) targets: Vec<Target>,
}

impl Lanes {
    /// As many streams as a launch wants, or as there are that no launch into another stream may hold.
    pub(super) fn take(
        &self,
        streams: &Streams,
        session: &Session,
        target: Target,
        count: usize,
    ) -> Taken<'_> {
        let owner = target.stream.index();
        let mut targets = vec![target];
        let mut lanes = self.lanes.lock();
        for own in [true, false] {
            for lane in lanes.iter_mut().filter(|lane| (lane.owner == owner) == own) {
                // What has become of the work there, whoever waits is told.
                let is_free =
                    || lane.submitting == 0 && session.has_passed(session.fence(lane.target.stream));
                if targets.len() < count && (own || is_free()) {
                    lane.owner = owner;
                    lane.submitting += 1;
                    targets.push(lane.target);
                }
            }
        }
        while targets.len() < count && lanes.len() < STREAMS {
            // Of no context: they outlive all of them.
            let made = streams.create(session, Order::NonBlocking, PRIORITY_LEAST, 0);
            let Ok(target) = made.and_then(|handle| streams.target(session, handle)) else {
                break;
            };
            lanes.push(Lane { target, owner, submitting: 1 });
            targets.push(target);
        }
        Taken { lanes: self, targets }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut lanes = self.lanes.lanes.lock();
        for lane in lanes.iter_mut().filter(|lane| self.targets.contains(&lane.target)) {
            lane.submitting -= 1;
        }
    }
}
