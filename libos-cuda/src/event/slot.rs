//! What an event that processes share says of itself: a slot in memory of the device's that all of them write.
//!
//! A recording takes a *cell* of the slot that no recording is under way in. It counts the cell's `begun` up at once, and
//! has its stream bring `ended` to the same number behind the work. So the latest recording is never hidden by an
//! earlier one that ends later. Beside it lies the token by which others see whether whoever records is still there.
//!
//! Whoever has the event may write anything into its slot. That makes others wait, or go on early, and no more.

use crate::device::SturdyToken;

/// One slot.
pub(super) const BYTES: usize = 512;
/// Recordings of one event that can be under way at once.
const CELLS: usize = 8;
const TOKEN_BYTES: usize = 32;

/// Words of 32 bits: which event it is, never 0; the latest recording's cell, counted from 1; the cells.
const GENERATION: usize = 0;
const LATEST: usize = 1;
const BEGUN: usize = 8;
const ENDED: usize = BEGUN + CELLS;
/// Bytes before the cells' tokens.
const TOKENS: usize = 256;
const _: () = assert!((ENDED + CELLS) * 4 <= TOKENS && TOKENS + CELLS * TOKEN_BYTES == BYTES);

/// A recording of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Recording {
    cell: usize,
    number: u32,
}

impl Recording {
    pub(super) fn number(self) -> u32 {
        self.number
    }

    /// What `LATEST` says of it.
    pub(super) fn latest(self) -> u32 {
        u32::try_from(self.cell + 1).unwrap_or(1)
    }

    /// Where its words and its token lie in the slot.
    pub(super) fn begun_at(self) -> u64 {
        at(BEGUN + self.cell)
    }

    pub(super) fn ended_at(self) -> u64 {
        at(ENDED + self.cell)
    }

    pub(super) fn token_at(self) -> u64 {
        (TOKENS + self.cell * TOKEN_BYTES) as u64
    }
}

pub(super) const GENERATION_AT: u64 = at(GENERATION);
pub(super) const LATEST_AT: u64 = at(LATEST);

const fn at(word: usize) -> u64 {
    word as u64 * 4
}

/// A slot as it was at one moment.
pub(super) struct Seen(pub(super) [u8; BYTES]);

impl Seen {
    fn word(&self, word: usize) -> u32 {
        let bytes = self.0.get(word * 4..).and_then(|rest| rest.first_chunk::<4>());
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    pub(super) fn generation(&self) -> u32 {
        self.word(GENERATION)
    }

    /// The latest recording.
    pub(super) fn latest(&self) -> Option<Recording> {
        let cell = (self.word(LATEST) as usize).checked_sub(1)? % CELLS;
        Some(self.in_cell(cell))
    }

    fn in_cell(&self, cell: usize) -> Recording {
        Recording { cell, number: self.word(BEGUN + cell) }
    }

    /// Whether a recording has ended. Its cell is used again only once it has, or whoever made it is not there any more.
    pub(super) fn has_ended(&self, recording: Recording) -> bool {
        self.word(ENDED + recording.cell) == recording.number
            || self.word(BEGUN + recording.cell) != recording.number
    }

    /// By which one sees whether whoever made a recording is still there.
    pub(super) fn recorder(&self, recording: Recording) -> SturdyToken {
        let token = usize::try_from(recording.token_at()).ok().and_then(|at| self.0.get(at..));
        SturdyToken(token.and_then(|rest| rest.first_chunk()).copied().unwrap_or_default())
    }

    /// The recording to begin next, and the one that has to end before it, where that has not.
    pub(super) fn next(&self) -> (Recording, Option<Recording>) {
        let after = self.latest().map_or(0, |latest| latest.cell + 1);
        let mut cells = (after..after + CELLS).map(|cell| self.in_cell(cell % CELLS));
        let free = cells.clone().find(|last| self.has_ended(*last));
        let first = cells.next().unwrap_or(Recording { cell: 0, number: 0 });
        let (last, busy) = free.map_or((first, Some(first)), |free| (free, None));
        (Recording { number: last.number.wrapping_add(1), ..last }, busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(seen: &mut Seen, at: u64, word: u32) {
        let at = usize::try_from(at).unwrap();
        seen.0[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }

    fn begin(seen: &mut Seen) -> Recording {
        let (recording, busy) = seen.next();
        assert_eq!(busy, None);
        set(seen, recording.begun_at(), recording.number());
        set(seen, LATEST_AT, recording.latest());
        recording
    }

    #[test]
    fn an_event_is_recorded_once_its_latest_recording_has_ended_whatever_becomes_of_earlier_ones() {
        let mut seen = Seen([0; BYTES]);
        assert_eq!(seen.latest(), None);
        let (one, two) = (begin(&mut seen), begin(&mut seen));
        assert_eq!(seen.latest(), Some(two));
        assert!(!seen.has_ended(one) && !seen.has_ended(two));
        set(&mut seen, two.ended_at(), two.number());
        assert!(!seen.has_ended(one) && seen.has_ended(two));
        set(&mut seen, one.ended_at(), one.number());
        assert!(seen.has_ended(one) && seen.has_ended(two));
    }

    #[test]
    fn a_cell_is_used_again_when_its_recording_has_ended() {
        let mut seen = Seen([0; BYTES]);
        let all: Vec<_> = (0..CELLS).map(|_| begin(&mut seen)).collect();
        let (next, busy) = seen.next();
        assert_eq!((next.cell, busy), (0, Some(all[0])));
        set(&mut seen, all[5].ended_at(), all[5].number());
        let again = begin(&mut seen);
        assert_eq!((again.cell, again.number), (5, 2));
        assert!(seen.has_ended(all[5]) && !seen.has_ended(again));
    }

    #[test]
    fn any_bytes_are_a_slot() {
        for byte in 0..=255 {
            let seen = Seen([byte; BYTES]);
            let (next, _) = seen.next();
            assert!(next.cell < CELLS && seen.latest().is_none_or(|latest| latest.cell < CELLS));
            assert_eq!(seen.recorder(next).0, [byte; 32]);
        }
    }
}
