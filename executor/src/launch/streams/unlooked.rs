//! Launches that never look at the session's flag: how much of them may be in flight.
//!
//! What they do counts in units of the guard's opcode table, for each warp.

use bulkhead_gpu::DeviceInfo;

use super::{Held, Stream, Streams, Wait};

/// All launches of a session together: a tenth of a second of a device's time where they compute. Loads of scattered words of
/// the host's memory take up to 12 s (decision 0091).
const ALL_MAX: u64 = 1 << 32;
/// The same on the software GPU: some seconds. It takes a thousand times as long for what a thousandth of a GPU does at once.
const SOFTWARE_ALL_MAX: u64 = 1 << 24;
/// At least so much is done in a second.
const PER_SECOND: u64 = 1 << 31;
/// The same by the software GPU: 2^23 were measured where threads store to their local memory.
const SOFTWARE_PER_SECOND: u64 = 1 << 22;
/// A stream gets a mark at least once in this part of what may be there, so that room comes back in parts.
const MARKS: u64 = 16;
/// One launch has no more than this part of it.
const LAUNCHES: u64 = 4;

/// How much of that a device does in a second, at least.
pub(crate) fn unlooked_per_second(backend: &str) -> u64 {
    if backend == "software" { SOFTWARE_PER_SECOND } else { PER_SECOND }
}

/// How much of that a session may have in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unlooked {
    most: u64,
}

impl Unlooked {
    pub(super) fn of(info: &DeviceInfo) -> Self {
        Self { most: if info.backend == "software" { SOFTWARE_ALL_MAX } else { ALL_MAX } }
    }

    pub(super) fn per_mark(self) -> u64 {
        self.most / MARKS
    }

    /// A stream with so much of that in flight waits for room: its next launch could not begin before anyway.
    fn deep(self) -> u64 {
        2 * self.per_mark()
    }
}

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
