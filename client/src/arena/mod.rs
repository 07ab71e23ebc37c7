//! Memory that the kernel granted in large pieces, cut up for the program.
//!
//! An *arena* is one buffer of the kernel's; a *block* is a part of one, free or taken. [`Arenas`] is arithmetic on
//! addresses and knows of no session, [`growth`] says how much to ask the kernel for, [`Quarantine`] keeps freed
//! blocks until the work that may use them has passed, and [`Kept`] keeps them for longer where uses after free are told.
//!
//! # Invariants
//! 1. Blocks fill their arena without gaps and do not overlap.
//! 2. No two free blocks of an arena lie next to each other.
//! 3. A taken block of up to [`SEGMENT_BYTES`] does not cross a multiple of it.
//! 4. A taken block lies in one page of [`LARGE_ALIGNMENT`], or has its pages for itself: what sessions map of each
//!    other is pages, and these two are never in each other's way.

pub(crate) mod growth;
mod kept;
mod quarantine;

pub(crate) use kept::Kept;
pub(crate) use quarantine::Quarantine;

use std::collections::BTreeSet;

use slab::Slab;

/// Every block starts at a multiple of this, and takes a multiple of it; beyond a page, of pages.
pub(crate) const BLOCK_ALIGNMENT: u64 = 512;
/// From this size on, blocks are aligned to [`LARGE_ALIGNMENT`].
pub(crate) const LARGE_BYTES: u64 = 1 << 20;
/// Alignment of large blocks: the device's large pages.
pub(crate) const LARGE_ALIGNMENT: u64 = 2 << 20;
/// A block of up to this size does not cross a multiple of it, so that its addresses share a high word.
pub(crate) const SEGMENT_BYTES: u64 = 4 << 30;
/// Empty arenas worth keeping, in bytes, so that a loop of allocating and freeing asks the kernel for nothing.
pub(crate) const EMPTY_BYTES_KEPT: u64 = 256 << 20;

/// How many of the smallest free blocks are looked at one by one; many may be large enough and lie badly.
const TRIES: usize = 16;
/// In place of a block's neighbour, at either end of an arena.
const NONE: usize = usize::MAX;

/// The index of a block in the tables of [`Arenas`]. Good until it is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockIndex(usize);

/// A block that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken<T> {
    pub(crate) index: BlockIndex,
    /// Its first address.
    pub(crate) address: u64,
    /// Where it begins in its arena, in bytes.
    pub(crate) offset: u64,
    /// What the owner keeps with the arena.
    pub(crate) arena: T,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Taken,
}

#[derive(Debug)]
struct Block {
    start: u64,
    bytes: u64,
    arena: usize,
    state: State,
    before: usize,
    after: usize,
}

#[derive(Debug)]
struct Arena<T> {
    start: u64,
    bytes: u64,
    /// Bytes of the taken blocks in it.
    taken_bytes: u64,
    /// The block at its start.
    first: usize,
    owner: T,
}

/// A free block, ordered by size and then by address.
type FreeBlock = (u64, u64, usize);

/// Arenas and their blocks. `T` is what the owner keeps with an arena.
#[derive(Debug)]
pub(crate) struct Arenas<T> {
    arenas: Slab<Arena<T>>,
    blocks: Slab<Block>,
    free: BTreeSet<FreeBlock>,
    bytes: u64,
    taken_bytes: u64,
    empty_bytes: u64,
    empty_count: usize,
}

impl<T: Copy> Arenas<T> {
    pub(crate) fn new() -> Self {
        Self {
            arenas: Slab::new(),
            blocks: Slab::new(),
            free: BTreeSet::new(),
            bytes: 0,
            taken_bytes: 0,
            empty_bytes: 0,
            empty_count: 0,
        }
    }

    /// Bytes of all arenas.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of all arenas without a taken block.
    pub(crate) fn empty_bytes(&self) -> u64 {
        self.empty_bytes
    }

    /// Bytes of all free blocks.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.bytes - self.taken_bytes
    }

    /// Adds an arena, which overlaps no other.
    pub(crate) fn grant(&mut self, start: u64, bytes: u64, owner: T) {
        let arena = self.arenas.vacant_key();
        let first =
            self.blocks.insert(Block { start, bytes, arena, state: State::Free, before: NONE, after: NONE });
        self.arenas.insert(Arena { start, bytes, taken_bytes: 0, first, owner });
        self.free.insert((bytes, start, first));
        self.bytes += bytes;
        self.empty_bytes += bytes;
        self.empty_count += 1;
    }

    /// Takes a block for `bytes`, from about the smallest free one that has room; `None` where none has.
    pub(crate) fn take(&mut self, bytes: u64) -> Option<Taken<T>> {
        let bytes = rounded(bytes)?;
        let ((free_bytes, free_start, index), address) = self.find(bytes)?;
        self.free.remove(&(free_bytes, free_start, index));
        let (mut index, lead) = (index, address - free_start);
        if lead > 0 {
            self.free.insert((lead, free_start, index));
            index = self.split(index, lead);
        }
        if free_bytes - lead > bytes {
            let rest = self.split(index, bytes);
            self.free.insert((free_bytes - lead - bytes, address + bytes, rest));
        }
        let block = &mut self.blocks[index];
        block.state = State::Taken;
        let arena = &mut self.arenas[block.arena];
        if arena.taken_bytes == 0 {
            self.empty_bytes -= arena.bytes;
            self.empty_count -= 1;
        }
        arena.taken_bytes += bytes;
        self.taken_bytes += bytes;
        let offset = address - arena.start;
        Some(Taken { index: BlockIndex(index), address, offset, arena: arena.owner })
    }

    /// Best fit: the smallest free block in which alignment and segments leave room. Where many are large enough
    /// and lie badly, the smallest that has room wherever it lies, and only then the others.
    fn find(&self, bytes: u64) -> Option<(FreeBlock, u64)> {
        let fits =
            |block: &FreeBlock| place(block.1, block.1 + block.0, bytes).map(|address| (*block, address));
        let enough = || self.free.range((bytes, 0, 0)..);
        let slack = if bytes >= LARGE_BYTES { LARGE_ALIGNMENT } else { bytes } - BLOCK_ALIGNMENT;
        let anywhere = bytes.checked_add(slack)?;
        enough()
            .take(TRIES)
            .find_map(fits)
            .or_else(|| self.free.range((anywhere, 0, 0)..).find_map(fits))
            .or_else(|| enough().skip(TRIES).find_map(fits))
    }

    /// Cuts a block after `bytes`; the index of the second part.
    fn split(&mut self, index: usize, bytes: u64) -> usize {
        let block = &mut self.blocks[index];
        let second = Block {
            start: block.start + bytes,
            bytes: block.bytes - bytes,
            arena: block.arena,
            state: block.state,
            before: index,
            after: block.after,
        };
        block.bytes = bytes;
        let after = block.after;
        let second = self.blocks.insert(second);
        self.blocks[index].after = second;
        if after != NONE {
            self.blocks[after].before = second;
        }
        second
    }

    /// Frees a block that was taken. Nothing uses it any more.
    pub(crate) fn release(&mut self, index: BlockIndex) {
        let mut index = index.0;
        let block = &mut self.blocks[index];
        debug_assert_eq!(block.state, State::Taken, "a block is released once");
        block.state = State::Free;
        let (bytes, arena, before, after) = (block.bytes, block.arena, block.before, block.after);
        if after != NONE && self.blocks[after].state == State::Free {
            self.join(index, after);
        }
        if before != NONE && self.blocks[before].state == State::Free {
            let block = &self.blocks[before];
            self.free.remove(&(block.bytes, block.start, before));
            self.append(before, index);
            index = before;
        }
        let block = &self.blocks[index];
        self.free.insert((block.bytes, block.start, index));
        let arena = &mut self.arenas[arena];
        arena.taken_bytes -= bytes;
        self.taken_bytes -= bytes;
        if arena.taken_bytes == 0 {
            self.empty_bytes += arena.bytes;
            self.empty_count += 1;
        }
    }

    /// Appends the free block `after`.
    fn join(&mut self, index: usize, after: usize) {
        let block = &self.blocks[after];
        self.free.remove(&(block.bytes, block.start, after));
        self.append(index, after);
    }

    fn append(&mut self, index: usize, after: usize) {
        let gone = self.blocks.remove(after);
        self.blocks[index].bytes += gone.bytes;
        self.blocks[index].after = gone.after;
        if gone.after != NONE {
            self.blocks[gone.after].before = index;
        }
    }

    /// Whether more is empty than is worth keeping. One empty arena of the usual sizes is kept, however large: a
    /// program that allocates and frees at an arena's edge would have it come and go.
    #[inline]
    pub(crate) fn has_surplus(&self) -> bool {
        self.empty_bytes > EMPTY_BYTES_KEPT
            && (self.empty_count > 1 || self.empty_bytes > growth::STEP_BYTES_MAX)
    }

    /// Takes the largest empty arena out of use; its bytes and what the owner kept with it.
    pub(crate) fn withdraw(&mut self) -> Option<(T, u64)> {
        let empty = self.arenas.iter().filter(|(_, arena)| arena.taken_bytes == 0);
        let (key, _) = empty.max_by_key(|(_, arena)| (arena.bytes, arena.start))?;
        let arena = self.arenas.remove(key);
        self.blocks.remove(arena.first);
        self.free.remove(&(arena.bytes, arena.start, arena.first));
        self.bytes -= arena.bytes;
        self.empty_bytes -= arena.bytes;
        self.empty_count -= 1;
        Some((arena.owner, arena.bytes))
    }

    /// What its owner keeps with the arena of a taken block.
    pub(crate) fn arena_of(&self, index: BlockIndex) -> T {
        self.arenas[self.blocks[index.0].arena].owner
    }

    /// Whether other taken blocks lie in the pages that a taken block lies in.
    pub(crate) fn shares_pages(&self, index: BlockIndex, page_bytes: u64) -> bool {
        let block = &self.blocks[index.0];
        let first = block.start - block.start % page_bytes;
        let end = (block.start + block.bytes).next_multiple_of(page_bytes);
        let is_taken = |block: &Block| block.state == State::Taken;
        let beside = |next: fn(&Block) -> usize| {
            std::iter::successors(self.blocks.get(next(block)), move |block| self.blocks.get(next(block)))
        };
        beside(|block| block.before).take_while(|block| block.start + block.bytes > first).any(is_taken)
            || beside(|block| block.after).take_while(|block| block.start < end).any(is_taken)
    }

    /// Length of a taken block, rounded up as it is.
    pub(crate) fn block_bytes(&self, index: BlockIndex) -> u64 {
        self.blocks[index.0].bytes
    }
}

/// What a block for so many bytes takes.
fn rounded(bytes: u64) -> Option<u64> {
    let unit = if bytes > LARGE_ALIGNMENT { LARGE_ALIGNMENT } else { BLOCK_ALIGNMENT };
    bytes.max(1).checked_next_multiple_of(unit)
}

fn alignment(bytes: u64) -> u64 {
    if bytes >= LARGE_BYTES { LARGE_ALIGNMENT } else { BLOCK_ALIGNMENT }
}

/// The first place for `bytes` between `start` and `end`.
fn place(start: u64, end: u64, bytes: u64) -> Option<u64> {
    let mut at = start.checked_next_multiple_of(alignment(bytes))?;
    let whole = if bytes < LARGE_BYTES { LARGE_ALIGNMENT } else { SEGMENT_BYTES };
    if bytes <= whole && at % whole + bytes > whole {
        at = at.checked_next_multiple_of(whole)?;
    }
    (at.checked_add(bytes)? <= end).then_some(at)
}

#[cfg(test)]
mod tests;
