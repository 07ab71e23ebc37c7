//! Freed blocks that nobody gets for a while, and room behind blocks that nobody gets at all: what kernels do there is
//! told as a use after free, or as an access beyond a block, and not taken for one to the block that has come or lies there.
//!
//! Only sessions that are told of such accesses ([`Stray::Told`]) keep anything.

use std::collections::VecDeque;

use bulkhead_schema::Stray;

use super::{Arenas, BlockIndex};

/// Freed blocks that are kept: those freed last, up to so many, and so many bytes. The last one stays however large it is.
const BLOCKS_MAX: usize = 4096;
const BYTES_MAX: u64 = 256 << 20;
/// What lies behind a block is an eighth of it, but no less than the first and no more than the second.
const ZONE_BYTES: u64 = 512;
const ZONE_BYTES_MAX: u64 = 64 << 10;

/// Freed blocks, in the order in which they were freed.
#[derive(Debug)]
pub(crate) struct Kept {
    blocks: VecDeque<(BlockIndex, u64)>,
    bytes: u64,
    most: usize,
}

impl Kept {
    pub(crate) fn new(stray: Stray) -> Self {
        let most = if stray == Stray::Told { BLOCKS_MAX } else { 0 };
        Self { blocks: VecDeque::new(), bytes: 0, most }
    }

    /// Whether anything is ever kept.
    pub(crate) fn keeps(&self) -> bool {
        self.most > 0
    }

    /// Bytes of all blocks that are kept.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many bytes a block takes so that nobody's lies right behind it.
    pub(crate) fn with_zone(&self, bytes: u64) -> u64 {
        if !self.keeps() {
            return bytes;
        }
        bytes.saturating_add((bytes / 8).clamp(ZONE_BYTES, ZONE_BYTES_MAX))
    }

    /// Takes a block that nothing uses any more, and releases those that were kept for longest.
    pub(crate) fn put<T: Copy>(&mut self, block: BlockIndex, arenas: &mut Arenas<T>) {
        let bytes = arenas.block_bytes(block);
        self.blocks.push_back((block, bytes));
        self.bytes += bytes;
        while self.blocks.len() > self.most || (self.bytes > BYTES_MAX && self.blocks.len() > 1) {
            self.release_oldest(arenas);
        }
    }

    /// Releases all of them; `false` where there were none.
    pub(crate) fn release<T: Copy>(&mut self, arenas: &mut Arenas<T>) -> bool {
        let any = !self.blocks.is_empty();
        while !self.blocks.is_empty() {
            self.release_oldest(arenas);
        }
        any
    }

    fn release_oldest<T: Copy>(&mut self, arenas: &mut Arenas<T>) {
        if let Some((block, bytes)) = self.blocks.pop_front() {
            self.bytes -= bytes;
            arenas.release(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn arenas() -> Arenas<()> {
        let mut arenas = Arenas::new();
        arenas.grant(0, 2048 * MIB, ());
        arenas
    }

    #[test]
    fn a_session_that_is_not_told_keeps_nothing() {
        let (mut arenas, mut kept) = (arenas(), Kept::new(Stray::Silent));
        let first = arenas.take(kept.with_zone(512)).unwrap();
        kept.put(first.index, &mut arenas);
        assert_eq!((kept.bytes(), arenas.take(512).unwrap().address), (0, first.address));
    }

    #[test]
    fn a_freed_block_is_given_out_again_only_after_so_many_others() {
        let (mut arenas, mut kept) = (arenas(), Kept::new(Stray::Told));
        let first = arenas.take(512).unwrap();
        kept.put(first.index, &mut arenas);
        for _ in 0..BLOCKS_MAX {
            let next = arenas.take(512).unwrap();
            assert_ne!(next.address, first.address);
            kept.put(next.index, &mut arenas);
        }
        assert_eq!(arenas.take(512).unwrap().address, first.address);
    }

    #[test]
    fn so_many_bytes_are_kept_and_the_last_block_whatever_it_has() {
        let (mut arenas, mut kept) = (arenas(), Kept::new(Stray::Told));
        for _ in 0..3 {
            let block = arenas.take(100 * MIB).unwrap();
            kept.put(block.index, &mut arenas);
        }
        assert_eq!(kept.bytes(), 200 * MIB);
        let block = arenas.take(1000 * MIB).unwrap();
        kept.put(block.index, &mut arenas);
        assert_eq!(kept.bytes(), 1000 * MIB);
        assert!(kept.release(&mut arenas) && !kept.release(&mut arenas));
        assert_eq!((kept.bytes(), arenas.free_bytes()), (0, 2048 * MIB));
    }

    #[test]
    fn behind_a_block_lies_what_is_nobodys() {
        let (mut arenas, kept) = (arenas(), Kept::new(Stray::Told));
        let mut end = 0;
        for bytes in [1, 511, 512, 513, 4096, MIB, 2 * MIB, 100 * MIB] {
            let block = arenas.take(kept.with_zone(bytes)).unwrap();
            let zone = arenas.block_bytes(block.index) - bytes;
            assert!(zone >= ZONE_BYTES.max((bytes / 8).min(ZONE_BYTES_MAX)), "{bytes}");
            assert!(block.address >= end, "{bytes}");
            end = block.address + bytes + zone;
        }
        assert_eq!(kept.with_zone(u64::MAX), u64::MAX);
        assert_eq!(Kept::new(Stray::Silent).with_zone(512), 512);
    }
}
