//! Addresses that a program reserved, cut from larger reservations of the kernel's.
//!
//! The kernel reserves whole granules of 64 MiB, and not very many ranges; programs reserve two MiB for each allocation.

use std::collections::BTreeMap;

use crate::device::{Error, ErrorCode, Reservation, Session};

/// What memory and mappings are multiples of.
pub(crate) const PAGE_BYTES: u64 = 2 << 20;

/// What several small ranges are cut from.
const CHUNK_BYTES: u64 = 1 << 30;
/// The least that the kernel reserves; ranges from here on are reservations of their own.
const GRANULE_BYTES: u64 = 64 << 20;

/// A reservation of the kernel's.
struct Chunk {
    reservation: Reservation,
    /// What the program has of it, by start, and how long it is.
    given: BTreeMap<u64, u64>,
}

impl Chunk {
    fn end(&self) -> u64 {
        self.reservation.address() + self.reservation.bytes()
    }

    /// The first place for so much.
    fn place(&self, bytes: u64, alignment: u64) -> Option<u64> {
        let aligned = |at: u64| at.checked_next_multiple_of(alignment.max(PAGE_BYTES));
        let mut at = aligned(self.reservation.address())?;
        for (start, length) in &self.given {
            if at.checked_add(bytes)? <= *start {
                break;
            }
            at = aligned(start + length)?.max(at);
        }
        (at.checked_add(bytes)? <= self.end()).then_some(at)
    }

    fn is_free(&self, start: u64, bytes: u64) -> bool {
        let Some(end) = start.checked_add(bytes) else { return false };
        let before = self.given.range(..end).next_back();
        self.reservation.address() <= start
            && end <= self.end()
            && before.is_none_or(|(at, length)| at + length <= start)
    }
}

/// All of a process's.
#[derive(Default)]
pub(super) struct Addresses {
    /// By start.
    chunks: BTreeMap<u64, Chunk>,
}

impl Addresses {
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    fn chunk(&self, address: u64) -> Option<&Chunk> {
        self.chunks.range(..=address).next_back().map(|(_, chunk)| chunk)
    }

    /// Takes a range out of the session's window, at `wish` if that can be.
    pub(super) fn reserve(
        &mut self,
        session: &Session,
        bytes: u64,
        alignment: u64,
        wish: u64,
    ) -> Result<u64, Error> {
        let is_wish = wish != 0 && wish.is_multiple_of(alignment.max(PAGE_BYTES));
        if is_wish && self.chunk(wish).is_some_and(|chunk| chunk.is_free(wish, bytes)) {
            return Ok(self.give(wish, bytes));
        }
        // Only a wish for a whole granule is one that the kernel may meet.
        let is_wish = is_wish && wish.is_multiple_of(GRANULE_BYTES);
        if bytes < GRANULE_BYTES && alignment <= GRANULE_BYTES && !is_wish {
            let place = self.chunks.values().find_map(|chunk| chunk.place(bytes, alignment));
            if let Some(at) = place {
                return Ok(self.give(at, bytes));
            }
            if let Ok(reservation) = session.reserve_addresses(CHUNK_BYTES, None, 0) {
                return self.add(reservation, bytes);
            }
        }
        self.add(session.reserve_addresses(bytes, is_wish.then_some(wish), alignment)?, bytes)
    }

    fn add(&mut self, reservation: Reservation, bytes: u64) -> Result<u64, Error> {
        let start = reservation.address();
        if reservation.bytes() < bytes {
            return Err(Error::new(ErrorCode::Internal, "less was reserved than was asked for"));
        }
        self.chunks.insert(start, Chunk { reservation, given: BTreeMap::new() });
        Ok(self.give(start, bytes))
    }

    fn give(&mut self, start: u64, bytes: u64) -> u64 {
        if let Some((_, chunk)) = self.chunks.range_mut(..=start).next_back() {
            chunk.given.insert(start, bytes);
        }
        start
    }

    /// Whether the program reserved exactly this.
    pub(super) fn is(&self, start: u64, bytes: u64) -> bool {
        self.chunk(start).is_some_and(|chunk| chunk.given.get(&start) == Some(&bytes))
    }

    /// Whether a range lies in one that the program reserved.
    pub(super) fn holds(&self, start: u64, bytes: u64) -> bool {
        let given = self.chunk(start).and_then(|chunk| chunk.given.range(..=start).next_back());
        let (Some((at, length)), Some(end)) = (given, start.checked_add(bytes)) else { return false };
        end <= at + length
    }

    /// Gives back what the program reserved.
    pub(super) fn unreserve(&mut self, start: u64) {
        let Some((first, chunk)) = self.chunks.range_mut(..=start).next_back() else { return };
        let first = *first;
        chunk.given.remove(&start);
        if chunk.given.is_empty() {
            self.chunks.remove(&first);
        }
    }
}
