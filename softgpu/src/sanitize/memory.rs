//! Device memory that a program allocated, and which bytes of it anybody has written.
//!
//! # Invariants
//! 1. Allocations do not overlap.
//! 2. What nobody allocated here counts as written: nothing is known of it.

use std::collections::{BTreeMap, HashMap, hash_map::Entry};

use super::bits;

/// Allocations that are known at once; what comes beyond them is not known.
const ALLOCATIONS_MAX: usize = 1 << 18;
/// Bytes whose state is kept together.
const CHUNK: u64 = 64 << 10;

/// Which bytes of a chunk were written.
#[derive(Debug)]
enum Chunk {
    All,
    Some(Box<[u64; (CHUNK / 64) as usize]>),
}

/// One allocation.
#[derive(Debug)]
struct Allocation {
    bytes: u64,
    /// The first one made is 1.
    number: u64,
    /// Those of which something was written: what a program says of its memory costs nothing by itself.
    chunks: HashMap<u64, Chunk>,
    /// Others may write it, whom nobody sees.
    is_shared: bool,
}

/// All allocations of the sessions.
#[derive(Debug, Default)]
pub(super) struct Allocations {
    map: BTreeMap<u64, Allocation>,
    made: u64,
    /// What ended with its context.
    left: Vec<Known>,
    left_out: u64,
}

/// Where an allocation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) number: u64,
}

impl Allocations {
    /// Memory was allocated, and holds nothing yet; `false` where that cannot be.
    pub(super) fn add(&mut self, address: u64, bytes: u64) -> bool {
        // Behind it there is an address.
        let Some(end) = address.checked_add(bytes).filter(|_| bytes > 0) else { return false };
        let before = self.map.range(..end).next_back();
        let overlaps = before.is_some_and(|(start, known)| start + known.bytes > address);
        if overlaps || self.map.len() >= ALLOCATIONS_MAX {
            return false;
        }
        self.made += 1;
        let allocation = Allocation { bytes, number: self.made, chunks: HashMap::new(), is_shared: false };
        self.map.insert(address, allocation);
        true
    }

    /// Memory was freed.
    pub(super) fn remove(&mut self, address: u64) -> bool {
        self.map.remove(&address).is_some()
    }

    /// Memory ended with its context, and nobody had freed it.
    pub(super) fn leave(&mut self, address: u64) -> bool {
        let Some(Allocation { bytes, number, .. }) = self.map.remove(&address) else { return false };
        if self.left.len() < ALLOCATIONS_MAX {
            self.left.push(Known { address, bytes, number });
        } else {
            self.left_out += 1;
        }
        true
    }

    /// What of it is too much to be told.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Others may write an allocation from now on.
    pub(super) fn share(&mut self, address: u64) -> bool {
        self.map.get_mut(&address).is_some_and(|allocation| {
            allocation.is_shared = true;
            allocation.chunks = HashMap::new();
            true
        })
    }

    /// How many were made.
    pub(super) fn made(&self) -> u64 {
        self.made
    }

    /// All that nobody has freed, in the order in which it was allocated.
    pub(super) fn all(&self) -> Vec<Known> {
        let known = |(address, of): (&u64, &Allocation)| Known {
            address: *address,
            bytes: of.bytes,
            number: of.number,
        };
        let mut all: Vec<Known> = self.map.iter().map(known).chain(self.left.iter().copied()).collect();
        all.sort_by_key(|known| known.number);
        all
    }

    /// Bytes were written.
    pub(super) fn write(&mut self, address: u64, bytes: u64) {
        self.set(address, bytes, true);
    }

    /// The allocation that a range lies in, if it is known and nobody else's too.
    pub(super) fn known(&self, address: u64, bytes: u64) -> Option<Known> {
        let (start, found) = self.find(address, address.checked_add(bytes)?)?;
        let inside = start <= address && bytes <= found.bytes - (address - start);
        let known = Known { address: start, bytes: found.bytes, number: found.number };
        (inside && !found.is_shared).then_some(known)
    }

    /// The first byte of a range that nobody has written, and what it lies in.
    pub(super) fn unwritten(&self, address: u64, bytes: u64) -> Option<(u64, Known)> {
        let end = address.checked_add(bytes)?;
        let mut at = address;
        while at < end {
            // What is not known is passed over.
            let (start, allocation) = self.find(at, end)?;
            let from = at.max(start);
            let to = end.min(start + allocation.bytes);
            if let Some(offset) = allocation.unwritten(from - start, to - start) {
                let known = Known { address: start, bytes: allocation.bytes, number: allocation.number };
                return Some((start + offset, known));
            }
            at = to;
        }
        None
    }

    /// Bytes were copied, with whether anybody had written them.
    pub(super) fn copy(&mut self, to: u64, from: u64, bytes: u64) {
        if to.checked_add(bytes).is_none() || from.checked_add(bytes).is_none() {
            return;
        }
        let mut done = 0;
        while done < bytes {
            let gap = self.unwritten(from + done, bytes - done).map(|(address, _)| address - from);
            let written = gap.unwrap_or(bytes);
            self.set(to + done, written - done, true);
            done = written;
            if done < bytes {
                let missing = self.missing(from + done, bytes - done);
                self.set(to + done, missing, false);
                done += missing;
            }
        }
    }

    /// Bytes from an address on, at least one, that nobody has written.
    fn missing(&self, address: u64, bytes: u64) -> u64 {
        let Some((start, allocation)) = self.find(address, address + 1) else { return 1 };
        let from = address - start;
        allocation
            .written(from, allocation.bytes.min(from + bytes))
            .map_or_else(|| allocation.bytes.min(from + bytes) - from, |offset| (offset - from).max(1))
    }

    /// The first allocation that has bytes in a range.
    fn find(&self, address: u64, end: u64) -> Option<(u64, &Allocation)> {
        let before = self.map.range(..=address).next_back();
        let before = before.filter(|(start, allocation)| address - **start < allocation.bytes);
        let found = before.or_else(|| self.map.range(address..end).next());
        found.map(|(start, allocation)| (*start, allocation))
    }

    fn set(&mut self, address: u64, bytes: u64, written: bool) {
        let Some(end) = address.checked_add(bytes) else { return };
        let mut at = address;
        while at < end {
            let Some(start) = self.find(at, end).map(|(start, _)| start) else { return };
            let Some(allocation) = self.map.get_mut(&start) else { return };
            let from = at.max(start);
            let to = end.min(start + allocation.bytes);
            allocation.set(from - start, to - start, written);
            at = to;
        }
    }
}

/// A chunk that a range has a part of, and the part.
struct Part {
    chunk: u64,
    from: usize,
    to: usize,
}

/// The parts of a range.
fn parts(from: u64, to: u64) -> impl Iterator<Item = Part> {
    let small = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let chunks = if from < to { from / CHUNK..to.div_ceil(CHUNK) } else { 0..0 };
    chunks.map(move |chunk| {
        let start = chunk * CHUNK;
        let (from, to) = (from.max(start) - start, to.min(start + CHUNK) - start);
        Part { chunk, from: small(from), to: small(to) }
    })
}

impl Allocation {
    fn set(&mut self, from: u64, to: u64, written: bool) {
        if self.is_shared {
            return;
        }
        for Part { chunk, from, to } in parts(from, to) {
            let bytes = usize::try_from((self.bytes - chunk * CHUNK).min(CHUNK)).unwrap_or(0);
            if from == 0 && to >= bytes {
                if written {
                    self.chunks.insert(chunk, Chunk::All);
                } else {
                    self.chunks.remove(&chunk);
                }
                continue;
            }
            match self.chunks.entry(chunk) {
                Entry::Occupied(mut known) => known.get_mut().set(from, to, written),
                Entry::Vacant(_) if !written => {}
                Entry::Vacant(fresh) => {
                    let mut bits = Box::new([0; (CHUNK / 64) as usize]);
                    bits::set(&mut bits[..], from, to, true);
                    fresh.insert(Chunk::Some(bits));
                }
            }
        }
    }

    /// The first byte that nobody has written.
    fn unwritten(&self, from: u64, to: u64) -> Option<u64> {
        if self.is_shared || from >= to {
            return None;
        }
        self.first(from, to, false)
    }

    /// The first byte that somebody has written.
    fn written(&self, from: u64, to: u64) -> Option<u64> {
        if self.is_shared {
            return Some(from);
        }
        self.first(from, to, true)
    }

    fn first(&self, from: u64, to: u64, written: bool) -> Option<u64> {
        parts(from, to).find_map(|Part { chunk, from, to }| {
            let found = match self.chunks.get(&chunk) {
                None => (!written).then_some(from),
                Some(Chunk::All) => written.then_some(from),
                Some(Chunk::Some(bits)) => bits::first(&bits[..], from, to, written),
            };
            found.map(|at| chunk * CHUNK + at as u64)
        })
    }
}

impl Chunk {
    /// Sets a part that is not all of it.
    fn set(&mut self, from: usize, to: usize, written: bool) {
        if matches!(self, Self::All) && !written {
            *self = Self::Some(Box::new([u64::MAX; (CHUNK / 64) as usize]));
        }
        if let Self::Some(bits) = self {
            bits::set(&mut bits[..], from, to, written);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 1 << 45;

    fn memory(allocations: &[(u64, u64)]) -> Allocations {
        let mut memory = Allocations::default();
        for (offset, bytes) in allocations {
            assert!(memory.add(AT + offset, *bytes));
        }
        memory
    }

    fn unwritten(memory: &Allocations, offset: u64, bytes: u64) -> Option<u64> {
        memory.unwritten(AT + offset, bytes).map(|(address, _)| address - AT)
    }

    #[test]
    fn what_was_allocated_is_unwritten_until_somebody_writes_it() {
        let mut memory = memory(&[(0, 3 * CHUNK + 5)]);
        assert_eq!(unwritten(&memory, 7, 4), Some(7));
        memory.write(AT + 7, 3);
        assert_eq!(unwritten(&memory, 7, 3), None);
        assert_eq!(unwritten(&memory, 7, 4), Some(10));
        memory.write(AT, 3 * CHUNK + 5);
        assert_eq!(unwritten(&memory, 0, 3 * CHUNK + 5), None);
        // The last chunk is a short one.
        assert!(memory.map[&AT].chunks.values().all(|chunk| matches!(chunk, Chunk::All)));
    }

    #[test]
    fn nothing_is_known_beside_allocations_nor_of_what_was_freed() {
        let mut memory = memory(&[(100, 10), (200, 10)]);
        assert_eq!(unwritten(&memory, 0, 100), None);
        assert_eq!(unwritten(&memory, 0, 101), Some(100));
        assert_eq!(unwritten(&memory, 110, 90), None);
        assert_eq!(unwritten(&memory, 110, 95), Some(200));
        assert!(memory.remove(AT + 100) && !memory.remove(AT + 100));
        assert_eq!(unwritten(&memory, 0, 200), None);
        assert!(memory.add(AT + 100, 10));
        assert_eq!(unwritten(&memory, 104, 1), Some(104));
    }

    #[test]
    fn a_copy_takes_along_what_was_written_and_what_was_not() {
        let mut memory = memory(&[(0, 100), (1000, 100)]);
        memory.write(AT + 10, 20);
        memory.write(AT + 1000, 100);
        memory.copy(AT + 1000, AT, 50);
        assert_eq!(unwritten(&memory, 1010, 20), None);
        assert_eq!(unwritten(&memory, 1009, 1), Some(1009));
        assert_eq!(unwritten(&memory, 1030, 30), Some(1030));
        assert_eq!(unwritten(&memory, 1050, 50), None);
        // What is not known counts as written.
        memory.copy(AT + 1000, AT + 5000, 100);
        assert_eq!(unwritten(&memory, 1000, 100), None);
    }

    #[test]
    fn allocations_do_not_overlap_nor_wrap_around() {
        let mut memory = memory(&[(100, 10)]);
        for (offset, bytes) in [(100, 1), (109, 1), (99, 2), (0, 1000), (50, 0)] {
            assert!(!memory.add(AT + offset, bytes), "{offset} {bytes}");
        }
        assert!(!memory.add(u64::MAX, 2) && !memory.add(u64::MAX, 1) && memory.add(u64::MAX - 1, 1));
        memory.write(u64::MAX - 3, 10);
        memory.copy(u64::MAX - 3, AT + 100, 10);
        assert!(memory.add(AT + 110, 1));
        assert_eq!(memory.all().iter().map(|known| known.number).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(memory.made(), 3);
        assert!(memory.leave(AT + 110) && !memory.leave(AT + 110));
        assert!(memory.add(AT + 110, 1));
        assert_eq!(memory.all().iter().map(|known| known.number).collect::<Vec<_>>(), [1, 2, 3, 4]);
    }

    #[test]
    fn a_program_may_say_that_it_has_more_memory_than_there_is() {
        let mut memory = memory(&[(0, 1 << 62)]);
        memory.write(AT + (1 << 61), 1);
        assert_eq!(unwritten(&memory, 1 << 61, 2), Some((1 << 61) + 1));
        assert_eq!(memory.map[&AT].chunks.len(), 1);
    }

    #[test]
    fn what_others_may_write_counts_as_written() {
        let mut memory = memory(&[(0, 100)]);
        assert!(memory.share(AT) && !memory.share(AT + 1));
        assert_eq!(unwritten(&memory, 0, 100), None);
    }
}
