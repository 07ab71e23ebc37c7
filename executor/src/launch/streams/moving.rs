//! Copies and fills: how many bytes of them a session has on the device at a time.
//!
//! No copy looks at the session's flag, and nothing takes back what was submitted. So the device has no more of them than it
//! moves in a few seconds, at worst; the rest waits in the executor, and is forgotten where the session is over. Copies that
//! are larger than what may be there go in pieces.

use bulkhead_schema::limits::{IN_FLIGHT_MAX, STREAMS_MAX};

use super::{
    Held, Stream, Streams, Wait,
    rates::{MOVING_SECONDS, SOFTWARE_BYTES_PER_SECOND},
};

/// What goes at once is no more than this part of it, so that room comes back while the device has something to do.
const PIECES: u64 = 4;
/// A stream gets a mark at least once in this part of it, for the same reason.
const MARKS: u64 = 16;
/// A stream that has nothing there to be moved moves this part of it, where there is no room: what others have there may be
/// behind a kernel that waits for this. All streams together have a quarter so.
const ALWAYS: u64 = 4 * STREAMS_MAX as u64;
/// So much never waits.
const SMALL: u64 = 64 << 10;

const _: () = assert!(SMALL * IN_FLIGHT_MAX as u64 <= SOFTWARE_BYTES_PER_SECOND * MOVING_SECONDS / 4);

impl Streams {
    pub(super) fn moved_per_mark(&self) -> u64 {
        self.moving_max / MARKS
    }

    /// How many bytes of so many the stream may move now. Those that wait go in the ring's order, so that none waits for ever
    /// for room that smaller ones take.
    pub(crate) fn may_move(&mut self, index: u32, position: u64, bytes: u64) -> u64 {
        if bytes <= SMALL {
            return bytes;
        }
        let most = self.moving_max;
        let comes_first = |stream: &Stream| {
            let moves = matches!(stream.waits_for, Some(Wait::Moving(_)));
            moves && stream.held.front().is_some_and(|held| held.position < position)
        };
        let is_first = self.held == 0 || !self.streams.iter().flatten().any(comes_first);
        let piece = bytes.min(most / PIECES);
        let is_room = |streams: &Self| streams.moving().saturating_add(piece) <= most;
        if is_first && is_room(self) {
            return piece;
        }
        self.in_flight();
        if is_first && is_room(self) {
            return piece;
        }
        if self.moves(index) { 0 } else { bytes.min(most / ALWAYS) }
    }

    /// Holds the stream back, with a copy or what is left of it, until there is room for some of it.
    pub(crate) fn hold_moving(&mut self, index: u32, held: Held, bytes: u64) {
        self.hold_first(index, held, Wait::Moving(bytes));
    }

    fn moving(&self) -> u64 {
        self.load.moved.saturating_add(self.sliced.moved)
    }

    /// Whether the stream has anything there to be moved.
    fn moves(&self, index: u32) -> bool {
        let moves = |stream: &Stream| {
            let marked = stream.marks.iter().map(|mark| mark.load);
            let mut loads = marked.chain([stream.unmarked_load]).chain(stream.sliced.iter().copied());
            loads.any(|load| load.moved > 0)
        };
        self.get(index).is_some_and(moves)
    }
}
