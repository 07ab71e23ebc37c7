//! Launches that never look at the session's flag: how much of them may be in flight.
//!
//! What they do counts in units of the guard's opcode table, for each warp.

use super::{Held, Stream, Streams, Wait};

/// One launch has no more than this part of it.
const LAUNCHES: u64 = 4;

impl Streams {
    /// Whether one launch may do so much without a look at the session's flag.
    pub(crate) fn may_be_unlooked(&self, work: u64) -> bool {
        work <= self.unlooked.most / LAUNCHES
    }

    /// Whether so much more may be done without one.
    pub(crate) fn have_room(&mut self, work: u64) -> bool {
        let most = self.unlooked.most;
        let is_room = |streams: &Self| streams.load.unlooked.saturating_add(work) <= most;
        is_room(self) || {
            self.in_flight();
            is_room(self)
        }
    }

    /// Whether the stream itself has so much of that in flight that a launch may wait there for room.
    pub(crate) fn is_deep(&self, index: u32) -> bool {
        let unlooked = |stream: &Stream| {
            let marked = stream.marks.iter().map(|mark| mark.load.unlooked);
            marked.fold(stream.unmarked_load.unlooked, u64::saturating_add)
        };
        self.get(index).is_some_and(|stream| unlooked(stream) >= self.unlooked.deep())
    }

    /// Holds the stream back, with a launch that never looks at the flag, until there is room for so much, or the stream has
    /// little left to do.
    pub(crate) fn hold_unlooked(&mut self, index: u32, held: Held, work: u64) {
        self.hold_first(index, held, Wait::Unlooked(work));
    }
}
