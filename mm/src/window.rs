//! Where a session's arenas and buffers lie.
//!
//! Planning changes nothing: [`Window::plan`] says where a buffer would go and which arena it needs first;
//! [`Window::grant`] and [`Window::take`] commit, once the executor has done its part. Arenas are granted
//! ahead in growing steps, so that most allocations find room without the executor.

use std::collections::{BTreeMap, BTreeSet};

use crate::{ARENA_GRANULE_BYTES, DeviceAddress, Range, Slot};

/// Every buffer starts at a multiple of this, and takes a multiple of it.
pub const BUFFER_ALIGNMENT: u64 = 512;
/// From this size on, buffers are aligned to [`LARGE_ALIGNMENT`].
pub const LARGE_BYTES: u64 = 1 << 20;
/// Alignment of large buffers: the device's large pages.
pub const LARGE_ALIGNMENT: u64 = 2 << 20;
/// A buffer of up to this size does not cross a multiple of it, so that its addresses share a high word.
pub const SEGMENT_BYTES: u64 = 4 << 30;
/// Largest arena granted ahead; a request that needs more gets more.
pub const ARENA_BYTES_MAX: u64 = 4 << 30;
/// Empty arenas worth keeping, in bytes, so that a loop of allocating and freeing maps nothing.
pub const EMPTY_BYTES_KEPT: u64 = 256 << 20;

const _: () = {
    assert!(LARGE_ALIGNMENT.is_multiple_of(BUFFER_ALIGNMENT));
    assert!(ARENA_GRANULE_BYTES.is_multiple_of(LARGE_ALIGNMENT));
    assert!(SEGMENT_BYTES.is_multiple_of(ARENA_GRANULE_BYTES));
};

/// Why a window refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// A buffer of no bytes has no address.
    #[error("a buffer holds at least one byte")]
    Empty,
    /// No part of the window is large enough.
    #[error("the window has no room for {bytes} bytes in one piece")]
    Full {
        /// What was asked for.
        bytes: u64,
    },
    /// The range is not what the operation needs it to be (free, an arena, a buffer): the caller's books are wrong.
    #[error("{range:?} is not {expected}")]
    Mismatch {
        /// The range.
        range: Range,
        /// What it should have been.
        expected: &'static str,
    },
}

/// How a buffer comes to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// There is room: [`Window::take`] it.
    Fits(Range),
    /// An arena has to be mapped and [`Window::grant`]ed first.
    Grow {
        /// The arena.
        arena: Range,
        /// The buffer in it, to [`Window::take`] then.
        buffer: Range,
    },
}

/// How large an arena to plan where one is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// With room for later buffers.
    Ahead,
    /// No larger than the buffer needs.
    Exact,
}

#[derive(Debug)]
struct Arena {
    end: u64,
    /// Bytes of buffers in it, rounded up as they are.
    taken: u64,
}

/// The read-write part of one slot.
#[derive(Debug)]
pub struct Window {
    bounds: Range,
    /// By start.
    arenas: BTreeMap<u64, Arena>,
    /// Free ranges of arenas by start, and their ends. None crosses from one arena to the next.
    free: BTreeMap<u64, u64>,
    /// The same by size.
    free_by_bytes: BTreeSet<(u64, u64)>,
    /// Buffers by start, and their ends.
    buffers: BTreeMap<u64, u64>,
    arena_bytes: u64,
}

impl Window {
    /// An empty window: no arena yet.
    #[must_use]
    pub fn new(slot: Slot) -> Self {
        Self {
            bounds: slot.read_write(),
            arenas: BTreeMap::new(),
            free: BTreeMap::new(),
            free_by_bytes: BTreeSet::new(),
            buffers: BTreeMap::new(),
            arena_bytes: 0,
        }
    }

    /// Bytes of all arenas.
    #[must_use]
    pub fn arena_bytes(&self) -> u64 {
        self.arena_bytes
    }

    /// Says where a buffer of `bytes` would go. Changes nothing.
    pub fn plan(&self, bytes: u64, growth: Growth) -> Result<Plan, WindowError> {
        if bytes == 0 {
            return Err(WindowError::Empty);
        }
        let full = WindowError::Full { bytes };
        let rounded = bytes.checked_next_multiple_of(BUFFER_ALIGNMENT).ok_or(full)?;
        if rounded > self.bounds.bytes() {
            return Err(full);
        }
        // Best fit: the smallest free range in which alignment and segments leave room.
        for &(_, start) in self.free_by_bytes.range((rounded, 0)..) {
            let end = self.free.get(&start).copied().unwrap_or(start);
            if let Some(buffer) = place(start, end, rounded) {
                return Ok(Plan::Fits(buffer));
            }
        }
        let exact = rounded.checked_next_multiple_of(ARENA_GRANULE_BYTES).ok_or(full)?;
        let ahead = exact.max(self.step_bytes());
        match growth {
            Growth::Ahead => self.plan_arena(rounded, ahead).or_else(|| self.plan_arena(rounded, exact)),
            Growth::Exact => self.plan_arena(rounded, exact),
        }
        .ok_or(full)
    }

    /// As much again as there is, within limits: 64 MiB, 64, 128, 256, ...
    fn step_bytes(&self) -> u64 {
        let step = if self.arena_bytes == 0 { 0 } else { 1 << self.arena_bytes.ilog2() };
        step.clamp(ARENA_GRANULE_BYTES, ARENA_BYTES_MAX)
    }

    fn plan_arena(&self, buffer_bytes: u64, arena_bytes: u64) -> Option<Plan> {
        let mut gap = self.bounds.start().0;
        let ends = self.arenas.iter().map(|(start, arena)| (*start, arena.end));
        for (next, after) in ends.chain([(self.bounds.end().0, self.bounds.end().0)]) {
            // The buffer goes to the start of its arena, so the arena starts where the buffer may; gaps and
            // segments start at multiples of the granule, so that place is one too.
            if let Some(buffer) = place(gap, next, buffer_bytes)
                && next - buffer.start().0 >= arena_bytes
            {
                let start = buffer.start().0;
                return Some(Plan::Grow { arena: Range::between(start, start + arena_bytes), buffer });
            }
            gap = after;
        }
        None
    }

    /// Notes an arena that the executor has mapped.
    pub fn grant(&mut self, arena: Range) -> Result<(), WindowError> {
        let (start, end) = (arena.start().0, arena.end().0);
        let aligned = start.is_multiple_of(ARENA_GRANULE_BYTES)
            && end.is_multiple_of(ARENA_GRANULE_BYTES)
            && start < end;
        let before = self.arenas.range(..end).next_back();
        if !aligned || !self.bounds.contains(arena) || before.is_some_and(|(_, before)| before.end > start) {
            return Err(WindowError::Mismatch { range: arena, expected: "a place for an arena" });
        }
        self.arenas.insert(start, Arena { end, taken: 0 });
        self.arena_bytes += arena.bytes();
        self.insert_free(start, end);
        Ok(())
    }

    /// Takes a planned buffer out of the free memory of its arena.
    pub fn take(&mut self, buffer: Range) -> Result<(), WindowError> {
        let (start, end) = (buffer.start().0, buffer.end().0);
        let mismatch = WindowError::Mismatch { range: buffer, expected: "free memory of an arena" };
        let (&free_start, &free_end) = self.free.range(..=start).next_back().ok_or(mismatch)?;
        if start >= end || free_end < end {
            return Err(mismatch);
        }
        let arena = self.arena_of(start).ok_or(mismatch)?;
        arena.taken += end - start;
        self.remove_free(free_start, free_end);
        if free_start < start {
            self.insert_free(free_start, start);
        }
        if end < free_end {
            self.insert_free(end, free_end);
        }
        self.buffers.insert(start, end);
        Ok(())
    }

    /// Gives a buffer's range back. No work that can reach it may be running or queued any more.
    pub fn release(&mut self, buffer: Range) -> Result<(), WindowError> {
        let (mut start, mut end) = (buffer.start().0, buffer.end().0);
        let mismatch = WindowError::Mismatch { range: buffer, expected: "a buffer" };
        if self.buffers.get(&start) != Some(&end) {
            return Err(mismatch);
        }
        let arena = self.arena_of(start).ok_or(mismatch)?;
        arena.taken -= end - start;
        let arena_end = arena.end;
        let (&arena_start, _) = self.arenas.range(..=start).next_back().ok_or(mismatch)?;
        self.buffers.remove(&start);
        if let Some((&before, &before_end)) = self.free.range(..start).next_back()
            && before_end == start
            && before >= arena_start
        {
            self.remove_free(before, before_end);
            start = before;
        }
        if end < arena_end
            && let Some(&after_end) = self.free.get(&end)
        {
            self.remove_free(end, after_end);
            end = after_end;
        }
        self.insert_free(start, end);
        Ok(())
    }

    /// The largest empty arena, where the empty ones together are more than is to be kept.
    #[must_use]
    pub fn returnable(&self, kept_bytes: u64) -> Option<Range> {
        let empty = || self.arenas.iter().filter(|(_, arena)| arena.taken == 0);
        let empty_bytes: u64 = empty().map(|(start, arena)| arena.end - start).sum();
        if empty_bytes <= kept_bytes {
            return None;
        }
        empty()
            .max_by_key(|(start, arena)| (arena.end - *start, **start))
            .map(|(start, arena)| Range::between(*start, arena.end))
    }

    /// Takes an empty arena out of use, before the executor unmaps it.
    pub fn withdraw(&mut self, arena: Range) -> Result<(), WindowError> {
        let (start, end) = (arena.start().0, arena.end().0);
        if !self.arenas.get(&start).is_some_and(|held| held.end == end && held.taken == 0) {
            return Err(WindowError::Mismatch { range: arena, expected: "an empty arena" });
        }
        self.arenas.remove(&start);
        self.arena_bytes -= arena.bytes();
        self.remove_free(start, end);
        Ok(())
    }

    fn arena_of(&mut self, address: u64) -> Option<&mut Arena> {
        let (_, arena) = self.arenas.range_mut(..=address).next_back()?;
        (address < arena.end).then_some(arena)
    }

    fn insert_free(&mut self, start: u64, end: u64) {
        self.free.insert(start, end);
        self.free_by_bytes.insert((end - start, start));
    }

    fn remove_free(&mut self, start: u64, end: u64) {
        self.free.remove(&start);
        self.free_by_bytes.remove(&(end - start, start));
    }
}

/// The first place for `bytes` between `start` and `end`.
fn place(start: u64, end: u64, bytes: u64) -> Option<Range> {
    let alignment = if bytes >= LARGE_BYTES { LARGE_ALIGNMENT } else { BUFFER_ALIGNMENT };
    let mut at = start.checked_next_multiple_of(alignment)?;
    if bytes <= SEGMENT_BYTES && at % SEGMENT_BYTES + bytes > SEGMENT_BYTES {
        at = at.checked_next_multiple_of(SEGMENT_BYTES)?;
    }
    let range = Range::new(DeviceAddress(at), bytes)?;
    (range.end().0 <= end).then_some(range)
}

#[cfg(test)]
mod tests;
