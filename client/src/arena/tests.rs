//! The arenas against a reference that knows only which ranges are taken.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use super::*;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Arenas by start, with their ends; taken ranges by start, with their ends.
#[derive(Clone, Default)]
struct Reference {
    arenas: BTreeMap<u64, u64>,
    taken: BTreeMap<u64, u64>,
}

impl Reference {
    /// What no block takes, in pieces as large as can be: size and start.
    fn gaps(&self) -> BTreeSet<(u64, u64)> {
        let mut gaps = BTreeSet::new();
        for (&start, &end) in &self.arenas {
            let mut at = start;
            for (&taken, &after) in self.taken.range(start..end) {
                if at < taken {
                    gaps.insert((taken - at, at));
                }
                at = after;
            }
            if at < end {
                gaps.insert((end - at, at));
            }
        }
        gaps
    }

    /// Where best fit puts a block, trying every address that may be one.
    fn best(&self, bytes: u64) -> Option<u64> {
        let rounded = length(bytes);
        let alignment = if rounded >= MIB { 2 * MIB } else { 512 };
        self.gaps().into_iter().find_map(|(length, start)| {
            let first = start.div_ceil(alignment) * alignment;
            let mut places = (first..).step_by(usize::try_from(alignment).unwrap());
            places.by_ref().take_while(|at| at + rounded <= start + length).find(|at| !crosses(*at, rounded))
        })
    }
}

/// What a block takes.
fn length(bytes: u64) -> u64 {
    let unit = if bytes > 2 * MIB { 2 * MIB } else { 512 };
    bytes.div_ceil(unit) * unit
}

fn crosses(start: u64, bytes: u64) -> bool {
    let differ = |unit| start / unit != (start + bytes - 1) / unit;
    (bytes <= 4 * GIB && differ(4 * GIB)) || (bytes < MIB && differ(2 * MIB))
}

/// The arenas and the reference, side by side.
struct Pair {
    arenas: Arenas<u64>,
    reference: Reference,
    /// In no particular order: index, start, end.
    held: Vec<(BlockIndex, u64, u64)>,
}

impl Pair {
    fn new() -> Self {
        Self { arenas: Arenas::new(), reference: Reference::default(), held: Vec::new() }
    }

    fn grant(&mut self, start: u64, bytes: u64) {
        self.arenas.grant(start, bytes, start);
        self.reference.arenas.insert(start, start + bytes);
    }

    fn take(&mut self, bytes: u64) -> bool {
        let few = self.reference.gaps().len() <= TRIES;
        let best = self.reference.best(bytes);
        let taken = self.arenas.take(bytes);
        assert_eq!(taken.is_some(), best.is_some(), "{bytes} bytes");
        let Some(taken) = taken else { return false };
        let (start, end) = (taken.address, taken.address + length(bytes));
        if few {
            assert_eq!(Some(start), best, "{bytes} bytes go where best fit puts them");
        }
        let (arena, arena_end) = self.reference.arenas.range(..=start).next_back().unwrap();
        assert!(end <= *arena_end && (taken.arena, taken.offset) == (*arena, start - arena));
        assert!(
            !crosses(start, end - start) && start.is_multiple_of(if bytes >= MIB { 2 * MIB } else { 512 })
        );
        let before = self.reference.taken.range(..end).next_back();
        assert!(before.is_none_or(|(_, before)| *before <= start), "{start:x} is taken");
        assert_eq!(self.arenas.block_bytes(taken.index), end - start);
        self.reference.taken.insert(start, end);
        self.held.push((taken.index, start, end));
        true
    }

    fn release(&mut self, which: usize) {
        let (index, start, end) = self.held.swap_remove(which);
        self.reference.taken.remove(&start);
        let (arena, arena_end) = self.reference.arenas.range(..=start).next_back().unwrap();
        let page = 2 * MIB;
        let pages = (start / page * page).max(*arena)..end.next_multiple_of(page).min(*arena_end);
        let before = self.reference.taken.range(..pages.start).next_back();
        let beside = before.is_some_and(|(_, end)| *end > pages.start)
            || self.reference.taken.range(pages).next().is_some();
        assert_eq!(self.arenas.shares_pages(index, page), beside, "{start:x} to {end:x}");
        assert!(!beside || start / page == (end - 1) / page, "{start:x} to {end:x} shares pages");
        self.arenas.release(index);
    }

    fn withdraw(&mut self) {
        let empty = |start: u64, end: u64| self.reference.taken.range(start..end).next().is_none();
        let empty = self.reference.arenas.iter().filter(|(start, end)| empty(**start, **end));
        let largest = empty.map(|(start, end)| (end - start, *start)).max();
        assert_eq!(self.arenas.withdraw(), largest.map(|(bytes, start)| (start, bytes)));
        if let Some((_, start)) = largest {
            self.reference.arenas.remove(&start);
        }
    }

    fn check(&self) {
        let gaps = self.reference.gaps();
        let free: BTreeSet<_> = self.arenas.free.iter().map(|(bytes, start, _)| (*bytes, *start)).collect();
        assert!(free == gaps, "the free blocks are the gaps, joined");
        assert_eq!(self.arenas.free_bytes(), gaps.iter().map(|(bytes, _)| bytes).sum::<u64>());
        let ranges = self.reference.arenas.iter();
        assert_eq!(self.arenas.bytes(), ranges.clone().map(|(start, end)| end - start).sum::<u64>());
        let empty = ranges.filter(|(start, end)| self.reference.taken.range(**start..**end).next().is_none());
        let sizes: Vec<u64> = empty.map(|(start, end)| end - start).collect();
        assert_eq!((self.arenas.empty_count, self.arenas.empty_bytes), (sizes.len(), sizes.iter().sum()));
        assert_eq!(self.arenas.blocks.len(), gaps.len() + self.held.len());
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).unwrap()
    }
}

#[test]
fn random_allocations_are_those_of_the_reference() {
    for seed in 1..=40_u64 {
        println!("seed {seed}");
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut pair = Pair::new();
        // One arena begins below a multiple of 4 GiB and crosses it, as those beyond 4 GiB may.
        let mut next = 4 * GIB - 6 * MIB;
        for _ in 0..600 {
            match random.below(16) {
                0 => {
                    let bytes = [2, 4, 10, 64][random.index(4)] * MIB;
                    pair.grant(next, bytes);
                    next += bytes + 2 * MIB * random.below(2);
                }
                1 => pair.withdraw(),
                2..=9 => {
                    let bytes = match random.below(4) {
                        0 => 1 + random.below(2000),
                        1 => 1 + random.below(700 << 10),
                        2 => MIB - 1024 + random.below(2048),
                        _ => 1 + random.below(9 * MIB),
                    };
                    pair.take(bytes);
                }
                _ if pair.held.is_empty() => {}
                _ => {
                    let which = random.index(pair.held.len());
                    pair.release(which);
                }
            }
            pair.check();
        }
        while !pair.held.is_empty() {
            pair.release(0);
        }
        pair.check();
    }
}

/// Every sequence of up to seven steps in two tiny arenas side by side.
#[test]
fn all_short_sequences_are_those_of_the_reference() {
    fn walk(steps: &mut Vec<usize>, count: &mut u64) {
        let mut pair = Pair::new();
        pair.grant(1 << 30, 4 * 512);
        pair.grant((1 << 30) + 4 * 512, 2 * 512);
        for step in steps.iter() {
            match *step {
                0..=2 => drop(pair.take((*step as u64 + 1) * 512)),
                which if which < 3 + pair.held.len() => pair.release(which - 3),
                _ => return,
            }
            pair.check();
        }
        *count += 1;
        if steps.len() == 7 {
            return;
        }
        for step in 0..7 {
            steps.push(step);
            walk(steps, count);
            steps.pop();
        }
    }
    let mut count = 0;
    walk(&mut Vec::new(), &mut count);
    assert!(count > 40_000, "{count} sequences");
}

#[test]
fn blocks_of_up_to_four_gibibytes_cross_no_multiple_of_it() {
    let mut pair = Pair::new();
    pair.grant(2 * GIB, 20 * GIB);
    // The piece below the first multiple is too small for the second, and takes the third.
    for (bytes, address) in [
        (GIB, 2 * GIB),
        (4 * GIB, 4 * GIB),
        (GIB, 3 * GIB),
        (3 * GIB, 8 * GIB),
        (2 * GIB, 12 * GIB),
        (5 * GIB, 14 * GIB),
    ] {
        assert!(pair.take(bytes), "{bytes} bytes");
        assert_eq!(pair.held.last().unwrap().1, address);
        pair.check();
    }
}

#[test]
fn a_request_that_overflows_finds_no_room() {
    let mut arenas = Arenas::new();
    arenas.grant(1 << 32, 64 * MIB, ());
    for bytes in [u64::MAX, u64::MAX - 511, u64::MAX - 512, u64::MAX / 2, 64 * MIB + 1] {
        assert_eq!(arenas.take(bytes), None, "{bytes} bytes");
    }
    assert_eq!(arenas.free_bytes(), 64 * MIB);
    assert_eq!(arenas.take(64 * MIB).unwrap().address, 1 << 32);
}

/// Free blocks that are large enough and lie badly must not hide one that has room.
#[test]
fn many_free_blocks_that_lie_badly_do_not_hide_the_one_that_has_room() {
    let mut pair = Pair::new();
    pair.grant(1 << 33, 256 * MIB);
    // Gaps of a mebibyte and a half that begin a mebibyte after a large page, and at last one at a large page.
    for _ in 0..128 {
        assert!(pair.take(MIB) && pair.take(MIB - 512));
    }
    for which in (0..pair.held.len()).rev() {
        if !pair.held[which].1.is_multiple_of(2 * MIB) {
            pair.release(which);
        }
    }
    pair.check();
    assert!(!pair.take(MIB), "every gap lies badly");
    let at_page = pair.held.iter().position(|(_, start, _)| *start == (1 << 33) + 77 * 2 * MIB).unwrap();
    pair.release(at_page);
    assert!(pair.take(MIB));
    pair.check();
}

#[test]
fn no_more_than_is_worth_keeping_stays_empty() {
    let mut arenas = Arenas::new();
    arenas.grant(0, 128 * MIB, 'a');
    arenas.grant(GIB, 128 * MIB, 'b');
    assert!(!arenas.has_surplus());
    arenas.grant(2 * GIB, 64 * MIB, 'c');
    assert!(arenas.has_surplus());
    assert_eq!(arenas.withdraw(), Some(('b', 128 * MIB)));
    assert!(!arenas.has_surplus());
    let all: Vec<_> = (0..2).map(|_| arenas.take(64 * MIB).unwrap()).collect();
    let last = arenas.take(64 * MIB).unwrap();
    assert_eq!(arenas.withdraw(), None);
    // The only empty one stays, if it is of the usual sizes.
    arenas.grant(8 * GIB, GIB, 'd');
    assert!(!arenas.has_surplus());
    arenas.grant(12 * GIB, 5 * GIB, 'e');
    assert!(arenas.has_surplus());
    assert_eq!(arenas.withdraw(), Some(('e', 5 * GIB)));
    for taken in all {
        arenas.release(taken.index);
    }
    arenas.release(last.index);
    assert!(arenas.has_surplus());
    assert_eq!(arenas.withdraw(), Some(('d', GIB)));
    assert!(!arenas.has_surplus());
}

/// Prints what taking and releasing costs; asserts no time.
#[test]
fn taking_and_releasing_is_measured() {
    for held in [0_u64, 100, 10_000] {
        let mut arenas = Arenas::new();
        arenas.grant(1 << 36, 2 * GIB, ());
        let mut random = Random(held + 1);
        let mut live: Vec<_> =
            (0..2 * held).map(|_| arenas.take(1 + random.below(64 << 10)).unwrap()).collect();
        // Every other one is free again, so that there are holes.
        for _ in 0..held {
            let which = random.index(live.len());
            arenas.release(live.swap_remove(which).index);
        }
        for bytes in [4096, 64 << 10, MIB, 64 * MIB] {
            const ROUNDS: u32 = 1000;
            let mut batch = || {
                let begun = Instant::now();
                for _ in 0..ROUNDS {
                    let taken = arenas.take(std::hint::black_box(bytes)).unwrap();
                    arenas.release(std::hint::black_box(taken.index));
                }
                begun.elapsed() / ROUNDS
            };
            let mut each: Vec<_> = (0..31).map(|_| batch()).collect();
            each.sort_unstable();
            println!("{held} held, {held} freed: {bytes} bytes taken and released in {:?}", each[15]);
        }
    }
}
