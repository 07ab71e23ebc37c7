//! Fast versions of entries: for launches whose pointers are what the guard's proofs rest on.

use bulkhead_gpu::{EntryId, ParameterLayout};
use bulkhead_mm::{HALF_BYTES, WINDOW_BYTES, ZONE_BYTES};
use bulkhead_verifier::{BoundTerm, FastVersion, PointerTerm, SharedTerm};

// What is proven reaches no further from a window than a zone.
const _: () = assert!(bulkhead_verifier::limits::REACH_BYTES <= ZONE_BYTES);

/// What a pointer among the parameters has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Term {
    /// Where in the parameter block it lies, in bytes.
    at: usize,
    /// Of what it is a multiple, in bytes.
    align: u64,
    /// Whether it lies in the window that stores reach; where not, in either.
    writes: bool,
}

/// What a word among the parameters is at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bound {
    /// Where in the parameter block it lies, in bytes.
    at: usize,
    most: u32,
}

/// The fast version of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fast {
    pub(crate) id: EntryId,
    terms: Vec<Term>,
    bounds: Vec<Bound>,
    shared: Vec<SharedTerm>,
    /// What a thread does that never looks at the flag; 0 where threads look.
    work: u32,
    /// Whether no two rows of a block may have a warp in common.
    rows: bool,
}

/// What the warps of a launch do if each of their threads does so much.
pub(crate) fn work_of(each: u64, blocks: u64, block: [u32; 3]) -> u64 {
    let threads = block.iter().fold(1_u64, |threads, side| threads.saturating_mul((*side).into()));
    each.saturating_mul(blocks).saturating_mul(threads.div_ceil(32))
}

impl Fast {
    /// The version with these terms; none where one is about what lies in none of the parameters.
    pub(crate) fn new(id: EntryId, version: &FastVersion, visible: &[ParameterLayout]) -> Option<Self> {
        let place = |parameter: usize, offset: u32, bytes: u32| {
            let layout = visible.get(parameter)?;
            let inside = offset.checked_add(bytes).is_some_and(|end| end <= layout.bytes);
            (layout.offset as usize).checked_add(offset as usize).filter(|_| inside)
        };
        let term = |term: &PointerTerm| {
            let at = place(term.parameter, term.offset, 8)?;
            Some(Term { at, align: term.align.into(), writes: term.writes })
        };
        let bound =
            |term: &BoundTerm| Some(Bound { at: place(term.parameter, term.offset, 4)?, most: term.most });
        let terms = version.pointers.iter().map(term).collect::<Option<_>>()?;
        let bounds = version.bounds.iter().map(bound).collect::<Option<_>>()?;
        let (shared, work, rows) = (version.shared.clone(), version.work, version.rows);
        Some(Self { id, terms, bounds, shared, work, rows })
    }

    /// Whether blocks of this shape with so much dynamic shared memory keep the terms.
    #[inline]
    pub(crate) fn admits_blocks(&self, block: [u32; 3], dynamic_bytes: u32) -> bool {
        let [width, height, depth] = block;
        let rows = width.is_multiple_of(32) || (height == 1 && depth == 1);
        (rows || !self.rows) && self.shared.iter().all(|term| term.admits(block, dynamic_bytes.into()))
    }

    /// What a launch does without a look at the flag, of which each thread does `zeroing` first.
    #[inline]
    pub(crate) fn unlooked(&self, zeroing: u64, blocks: u64, block: [u32; 3]) -> u64 {
        if self.work == 0 {
            return 0;
        }
        work_of(zeroing.saturating_add(self.work.into()), blocks, block)
    }

    /// Whether a parameter block keeps the terms, in the slot whose first address has this high word.
    #[inline]
    pub(crate) fn admits(&self, block: &[u8], base: u32) -> bool {
        let slot = u64::from(base) << 32;
        let is_within = |bound: &Bound| {
            let bytes = block.get(bound.at..).and_then(|rest| rest.first_chunk());
            bytes.is_some_and(|bytes| u32::from_ne_bytes(*bytes) <= bound.most)
        };
        let pointers = self.terms.iter().all(|term| {
            let bytes = block.get(term.at..).and_then(|rest| rest.first_chunk());
            let Some(pointer) = bytes.map(|bytes| u64::from_ne_bytes(*bytes)) else { return false };
            let from = pointer.wrapping_sub(slot);
            let stores = from.wrapping_sub(ZONE_BYTES) < WINDOW_BYTES;
            let loads = from.wrapping_sub(HALF_BYTES + ZONE_BYTES) < WINDOW_BYTES;
            (stores || (loads && !term.writes)) && pointer & (term.align - 1) == 0
        });
        pointers && self.bounds.iter().all(is_within)
    }
}

#[cfg(test)]
mod tests {
    use bulkhead_mm::{Slot, WORKBENCH};
    use bulkhead_verifier::{Part, along};

    use super::*;

    const LAYOUT: [ParameterLayout; 2] =
        [ParameterLayout { offset: 0, bytes: 4 }, ParameterLayout { offset: 8, bytes: 16 }];

    fn term(parameter: usize, offset: u32, align: u32, writes: bool) -> PointerTerm {
        PointerTerm { parameter, offset, align, writes }
    }

    fn admits(terms: &[PointerTerm], slot: Slot, pointers: [u64; 2]) -> bool {
        let mut block = vec![0xff; 8];
        block.extend(pointers.iter().flat_map(|pointer| pointer.to_ne_bytes()));
        let base = u32::try_from(slot.base().0 >> 32).unwrap();
        Fast::new(EntryId(7), &version(terms, &[]), &LAYOUT).unwrap().admits(&block, base)
    }

    fn version(pointers: &[PointerTerm], shared: &[SharedTerm]) -> FastVersion {
        let (pointers, shared) = (pointers.to_vec(), shared.to_vec());
        FastVersion { symbol: "k".to_owned(), pointers, shared, bounds: Vec::new(), work: 0, rows: false }
    }

    #[test]
    fn a_pointer_has_to_lie_in_a_window_of_its_own_slot() {
        for slot in [0, 3, 31].map(|index| Slot::new(index).unwrap()) {
            let (lower, upper) = (slot.read_write(), slot.read_only());
            let (reads, writes) = ([term(1, 8, 4, false)], [term(1, 8, 4, true)]);
            let of = |terms: &[PointerTerm], pointer: u64| admits(terms, slot, [1, pointer]);
            for at in [lower.start().0, lower.end().0 - 4] {
                assert!(of(&reads, at) && of(&writes, at), "{at:#x}");
            }
            for at in [upper.start().0, upper.end().0 - 4] {
                assert!(of(&reads, at) && !of(&writes, at), "{at:#x}");
            }
            let next = slot.base().0 + bulkhead_mm::SLOT_STRIDE_BYTES;
            let outside = [
                0,
                u64::MAX - 3,
                slot.base().0,
                lower.start().0 - 4,
                lower.end().0,
                upper.start().0 - 4,
                upper.end().0,
                slot.range().end().0,
                slot.shelf().start().0,
                next + ZONE_BYTES,
                WORKBENCH.start().0,
            ];
            for at in outside {
                assert!(!of(&reads, at) && !of(&writes, at), "{at:#x}");
            }
        }
    }

    #[test]
    fn what_does_not_look_at_the_flag_counts_for_each_warp() {
        let fast = |work| Fast::new(EntryId(7), &FastVersion { work, ..version(&[], &[]) }, &LAYOUT).unwrap();
        assert_eq!(fast(0).unlooked(0, u64::MAX, [u32::MAX; 3]), 0, "it looks");
        assert_eq!(fast(40).unlooked(0, 10, [33, 2, 1]), 40 * 10 * 3);
        assert_eq!(fast(256).unlooked(0, 1 << 17, [1024, 1, 1]), 1 << 30);
        assert_eq!(fast(40).unlooked(60, 10, [33, 2, 1]), 100 * 10 * 3, "it zeroes shared memory first");
        assert!(fast(18).unlooked(72_640, 1 << 22, [1, 1, 1]) > 1 << 30);
        for (blocks, block) in [((1 << 17) + 1, [1024, 1, 1]), (1, [u32::MAX; 3]), (u64::MAX, [1, 1, 1])] {
            assert!(fast(256).unlooked(0, blocks, block) > 1 << 30, "{blocks} {block:?}");
        }
    }

    #[test]
    fn every_term_has_to_be_kept() {
        let slot = Slot::new(2).unwrap();
        let (lower, upper) = (slot.read_write().start().0, slot.read_only().start().0);
        let terms = [term(1, 0, 16, false), term(1, 8, 2, true)];
        assert!(admits(&terms, slot, [upper + 16, lower + 2]));
        for pointers in [[upper + 8, lower + 2], [upper + 16, lower + 1], [upper + 16, upper], [0, lower]] {
            assert!(!admits(&terms, slot, pointers), "{pointers:x?}");
        }
        assert!(admits(&[], slot, [0, 0]));
    }

    #[test]
    fn a_term_outside_of_the_parameters_makes_no_version() {
        for bad in
            [term(0, 0, 4, false), term(1, 9, 4, false), term(2, 0, 4, false), term(1, u32::MAX, 4, false)]
        {
            assert_eq!(Fast::new(EntryId(7), &version(&[bad], &[]), &LAYOUT), None);
        }
    }

    #[test]
    fn rows_of_a_block_may_have_no_warp_in_common_where_that_is_a_term() {
        let fast = |rows| Fast::new(EntryId(7), &FastVersion { rows, ..version(&[], &[]) }, &LAYOUT).unwrap();
        for (block, rows) in [
            ([32, 7, 3], true),
            ([96, 2, 1], true),
            ([33, 1, 1], true),
            ([1, 1, 1], true),
            ([33, 2, 1], false),
            ([16, 16, 1], false),
            ([48, 1, 2], false),
        ] {
            assert_eq!(fast(true).admits_blocks(block, 0), rows, "{block:?}");
            assert!(fast(false).admits_blocks(block, 0));
        }
    }

    #[test]
    fn words_have_to_be_within_their_bounds() {
        let version = |terms: &[BoundTerm]| FastVersion { bounds: terms.to_vec(), ..version(&[], &[]) };
        let admits = |terms: &[BoundTerm], words: [u32; 6]| {
            let block: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            Fast::new(EntryId(7), &version(terms), &LAYOUT).unwrap().admits(&block, 0)
        };
        let (first, last) = (
            BoundTerm { parameter: 0, offset: 0, most: 255 },
            BoundTerm { parameter: 1, offset: 12, most: 0 },
        );
        let (more, most) = (256, u32::MAX);
        assert!(admits(&[first], [255, most, most, most, most, most]) && admits(&[first, last], [0; 6]));
        for word in [more, 1 << 31, most] {
            assert!(
                !admits(&[first], [word, 0, 0, 0, 0, 0]) && !admits(&[first, last], [0, 0, 0, 0, 0, word])
            );
        }
        for (parameter, offset) in [(0, 1), (0, 4), (1, 13), (1, u32::MAX), (2, 0)] {
            let bad = BoundTerm { parameter, offset, most };
            assert_eq!(Fast::new(EntryId(7), &version(&[bad]), &LAYOUT), None);
        }
    }

    #[test]
    fn blocks_have_to_be_small_enough_for_every_variable() {
        let tile = SharedTerm { by: along([4, 132, 0]), constant: 4, at_most: Some(32 * 132) };
        let dynamic = SharedTerm { by: along([8, 0, 0]), constant: 24, at_most: None };
        let admits = |terms: &[SharedTerm], block: [u32; 3], bytes: u32| {
            Fast::new(EntryId(7), &version(&[], terms), &LAYOUT).unwrap().admits_blocks(block, bytes)
        };
        assert!(admits(&[tile], [32, 32, 1], 0) && admits(&[tile], [32, 32, 64], 0));
        assert!(admits(&[tile], [33, 32, 1], 0), "the last column is padding");
        for block in [[34, 32, 1], [32, 33, 1], [1024, 1, 1], [1, 1024, 1], [u32::MAX; 3]] {
            assert_eq!(admits(&[tile], block, u32::MAX), block == [1024, 1, 1], "{block:?}");
        }
        assert!(admits(&[dynamic], [64, 1, 1], 63 * 8 + 24) && !admits(&[dynamic], [64, 1, 1], 63 * 8 + 23));
        assert!(!admits(&[tile, dynamic], [32, 32, 1], 0) && admits(&[tile, dynamic], [32, 32, 1], 4096));
        // A part of a row at a time: the last of 64 threads is in the last of 16 rows.
        let rows =
            [Part { axis: 0, shift: 2, factor: 64 }, Part::default(), Part::default(), Part::default()];
        let rows = SharedTerm { by: rows, constant: 64, at_most: Some(16 * 64) };
        assert!(admits(&[rows], [64, 1, 1], 0) && !admits(&[rows], [65, 1, 1], 0));
        let widest = SharedTerm { by: along([u64::MAX; 3]), constant: u64::MAX, at_most: Some(u64::MAX) };
        assert!(!admits(&[widest], [1024, 1024, 64], 0) && admits(&[widest], [1, 1, 1], 0));
    }
}
