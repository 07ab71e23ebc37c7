//! Accesses to global memory of one launch: who wrote and who read each word, and what was passed on by words.
//!
//! Of each word that a launch reaches it is kept who wrote it last, and two threads that read it since. Whether an access
//! comes behind another is the block's to say ([`race`](super::race)): here is only what all blocks share.
//!
//! # Invariants
//! 1. What finds no room is not kept, and then nothing is told of it. Where what orders accesses finds no room, nothing more
//!    is told of the launch.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::found::Mistake;
use super::held::Held;
use super::known::Blocks;
use super::touches::How;
use crate::alu::Lanes;
use crate::exec::lanes;

/// Bytes of memory whose records are kept together.
const PAGE: u64 = 1024;
/// Parts that are locked apart.
const SHARDS: u64 = 64;
/// Bytes that pass on as one word.
const WORD: u64 = 8;
/// Words that pass something on, in one launch.
const WORDS_MAX: usize = 1 << 20;
/// Blocks of which it is known when they told others something.
const BLOCKS_MAX: u64 = 1 << 22;
const NOBODY: u16 = u16::MAX;

/// Who may see an access while it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// Nobody: it is a plain one.
    Own,
    /// Threads of its block.
    Block,
    /// All.
    Device,
}

/// An access as a word remembers it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    pub(super) block: u32,
    /// Of its block.
    pub(super) time: u32,
    pub(super) pc: u32,
    /// Number in its block.
    pub(super) thread: u16,
    pub(super) scope: Scope,
}

const NONE: Mark = Mark { block: 0, time: 0, pc: 0, thread: NOBODY, scope: Scope::Own };

impl Mark {
    fn is_some(&self) -> bool {
        self.thread != NOBODY
    }

    fn is_same_thread(&self, other: &Self) -> bool {
        (self.block, self.thread) == (other.block, other.thread)
    }

    /// Whether two accesses may happen at once, since both are made for that.
    pub(super) fn may_meet(&self, other: &Self) -> bool {
        match (self.scope, other.scope) {
            (Scope::Own, _) | (_, Scope::Own) => false,
            (Scope::Device, Scope::Device) => true,
            (Scope::Block, _) | (_, Scope::Block) => self.block == other.block,
        }
    }
}

/// What lanes of a warp do to memory.
#[derive(Debug)]
pub(super) struct Does<'a> {
    pub(super) pc: u32,
    pub(super) how: How,
    pub(super) scope: Scope,
    /// Whether it is an atomic operation that adds: whoever reads such a sum plainly beside it has a part of it.
    pub(super) counts: bool,
    pub(super) lanes: u32,
    pub(super) addresses: &'a Lanes,
    /// Of each lane.
    pub(super) bytes: u64,
}

/// Two accesses that nothing orders; this is the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Race {
    pub(super) mistake: Mistake,
    pub(super) block: u32,
    pub(super) thread: usize,
    pub(super) pc: u32,
    /// The first byte of which it holds.
    pub(super) address: u64,
}

#[derive(Debug, Clone, Copy)]
struct Written {
    mark: Mark,
    /// Whether plain reads may come beside it: what an atomic operation leaves is always whole.
    may_be_read: bool,
    /// What was written, where that is known.
    value: Option<u32>,
}

/// Records of some memory, each of the same number of bytes: 4, or less where accesses are smaller.
#[derive(Debug)]
struct Page {
    shift: u32,
    writes: Option<Box<[Written]>>,
    reads: Option<Box<[[Mark; 2]]>>,
    held: Vec<Held>,
}

impl Page {
    /// One without records; none where there is no room for it.
    fn new() -> Option<Self> {
        let held = Held::some(size_of::<(u64, Self)>())?;
        Some(Self { shift: 2, writes: None, reads: None, held: vec![held] })
    }

    fn records(&self) -> usize {
        PAGE as usize >> self.shift
    }

    /// Keeps records of as few bytes as an access may have.
    fn split(&mut self, shift: u32) {
        while self.shift > shift {
            // The smaller records take twice as much. They are made in any case: they say what the larger ones said.
            self.shift -= 1;
            let half = 8 << self.shift;
            if let Some(writes) = &mut self.writes {
                let parts = |of: &Written| {
                    let value = |shift: u32| of.value.map(|value| value >> shift & (u32::MAX >> (32 - half)));
                    [Written { value: value(0), ..*of }, Written { value: value(half), ..*of }]
                };
                *writes = writes.iter().flat_map(parts).collect();
                self.held.push(Held::new(writes.len() / 2 * size_of::<Written>()));
            }
            if let Some(reads) = &mut self.reads {
                *reads = reads.iter().flat_map(|of| [*of; 2]).collect();
                self.held.push(Held::new(reads.len() / 2 * size_of::<[Mark; 2]>()));
            }
        }
    }

    /// Makes room for what an access leaves; `false` where there is none.
    fn prepare(&mut self, how: How) -> bool {
        let records = self.records();
        if how == How::Read && self.reads.is_none() {
            let Some(held) = Held::some(records * size_of::<[Mark; 2]>()) else { return false };
            self.held.push(held);
            self.reads = Some(vec![[NONE; 2]; records].into());
        }
        if how != How::Read && self.writes.is_none() {
            let Some(held) = Held::some(records * size_of::<Written>()) else { return false };
            self.held.push(held);
            self.writes = Some(vec![Written { mark: NONE, may_be_read: false, value: None }; records].into());
        }
        true
    }

    /// A lane's access; the first race of it, where `races` says of an access before whether nothing orders them.
    fn touch(
        &mut self,
        mark: &Mark,
        how: How,
        counts: bool,
        bytes: Range<usize>,
        value: impl Fn(usize, u32) -> Option<u32>,
        races: impl Fn(&Mark, bool) -> bool,
    ) -> Option<(Mistake, Mark, usize)> {
        let shift = self.shift;
        let may_be_read = how == How::Update && !counts;
        let mut found = None;
        for record in bytes.start >> shift..bytes.end.div_ceil(1 << shift) {
            let at = (record << shift).max(bytes.start);
            let value = if how == How::Write { value(at - bytes.start, shift) } else { None };
            let before = self.writes.as_ref().map(|writes| writes[record]);
            // What is written again and again is there whoever comes last.
            let same = value.is_some() && before.is_some_and(|before| before.value == value);
            let mut tell = |mistake: Mistake, before: &Mark| {
                let was_read = mistake == Mistake::GlobalWriteAfterRead;
                if found.is_none()
                    && before.is_some()
                    && !before.is_same_thread(mark)
                    && races(before, was_read)
                {
                    found = Some((mistake, *before, at));
                }
            };
            if let Some(before) = before
                && !same
                && !(how == How::Read && before.may_be_read)
            {
                let mistake = match how {
                    How::Write => Mistake::GlobalWriteAfterWrite,
                    How::Read | How::Update => Mistake::GlobalReadAfterWrite,
                };
                tell(mistake, &before.mark);
            }
            if how == How::Read {
                if let Some(reads) = &mut self.reads {
                    note(&mut reads[record], mark);
                }
                continue;
            }
            if let Some(reads) = &mut self.reads {
                if !same && !may_be_read {
                    reads[record].iter().for_each(|read| tell(Mistake::GlobalWriteAfterRead, read));
                }
                reads[record] = [NONE; 2];
            }
            if let Some(writes) = &mut self.writes {
                writes[record] = Written { mark: *mark, may_be_read, value };
            }
        }
        found
    }
}

/// Remembers who read: the last one first, and one of another block if there is any.
fn note([first, second]: &mut [Mark; 2], mark: &Mark) {
    let is_others = |of: &Mark| of.is_some() && of.block != mark.block;
    if first.is_some() && !first.is_same_thread(mark) && (is_others(first) || !is_others(second)) {
        *second = *first;
    }
    *first = *mark;
}

/// A launch.
#[derive(Debug)]
pub(super) struct Launch {
    depth: u32,
    shards: Vec<Mutex<HashMap<u64, Page>>>,
    /// What each word passes on.
    words: Mutex<HashMap<u64, Blocks>>,
    /// How many words there are.
    released: AtomicUsize,
    /// When each block last wrote so that others may see it meanwhile; nothing where there are too many blocks.
    told: Vec<AtomicU32>,
    /// Something that orders accesses found no room.
    gave_up: AtomicBool,
}

impl Launch {
    /// Of so many blocks.
    pub(super) fn new(blocks: u64) -> Self {
        Self {
            depth: Blocks::depth(blocks),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            words: Mutex::default(),
            released: AtomicUsize::new(0),
            told: (0..if blocks <= BLOCKS_MAX { blocks } else { 0 }).map(|_| AtomicU32::new(0)).collect(),
            gave_up: AtomicBool::new(false),
        }
    }

    /// Levels of what is known of its blocks.
    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    /// A block writes at a time of its own so that others may see it meanwhile.
    pub(super) fn tells(&self, block: u32, time: u32) {
        if let Some(told) = self.told.get(block as usize) {
            told.fetch_max(time, Ordering::AcqRel);
        }
    }

    /// Whether a block has told others something since a time, as far as that is known: what it has read by then, it has.
    pub(super) fn has_told(&self, block: u32, time: u32) -> bool {
        self.told.get(block as usize).is_none_or(|told| told.load(Ordering::Acquire) >= time)
    }

    /// Whether some word passes something on.
    pub(super) fn has_words(&self) -> bool {
        self.released.load(Ordering::Acquire) > 0
    }

    /// The words that some bytes are in.
    pub(super) fn words_of(address: u64, bytes: u64) -> std::ops::RangeInclusive<u64> {
        address / WORD..=(address.saturating_add(bytes.max(1)) - 1) / WORD
    }

    /// A word passes on what a thread knows.
    pub(super) fn release(&self, word: u64, knows: &Blocks) {
        if Held::is_full() {
            self.give_up();
        }
        if self.has_given_up() {
            return;
        }
        let mut words = self.words.lock();
        words.entry(word).or_default().join(knows);
        if words.len() > WORDS_MAX {
            self.give_up();
        }
        self.released.store(words.len(), Ordering::Release);
    }

    /// Hands out what words pass on.
    pub(super) fn acquire(
        &self,
        words: impl Iterator<Item = (u64, u32)>,
        mut each: impl FnMut(u64, &Blocks, u32),
    ) {
        let known = self.words.lock();
        for (word, lanes) in words {
            if let Some(knows) = known.get(&word) {
                each(word, knows, lanes);
            }
        }
    }

    /// Nothing is told any more.
    pub(super) fn give_up(&self) {
        self.gave_up.store(true, Ordering::Release);
    }

    /// Whether nothing is told any more.
    pub(super) fn has_given_up(&self) -> bool {
        self.gave_up.load(Ordering::Acquire)
    }

    /// Lanes of a warp, whose marks `mark` gives, reach for memory. `races` says of a lane's mark and an earlier one, of
    /// which it is told whether that was a read, whether nothing orders them; `value` is what a lane writes.
    pub(super) fn touch(
        &self,
        does: &Does<'_>,
        mark: impl Fn(usize) -> Mark,
        value: impl Fn(usize) -> Option<[u8; 16]>,
        races: impl Fn(&Mark, &Mark, (u64, bool)) -> bool,
        mut tell: impl FnMut(usize, Race),
    ) {
        let Does { how, counts, lanes: mask, addresses, bytes, .. } = *does;
        let shift_of = |address: u64| (address | bytes).trailing_zeros().min(2);
        let mut open: Option<(u64, MutexGuard<'_, HashMap<u64, Page>>)> = None;
        for lane in lanes(mask) {
            let address = addresses[lane];
            let (page, start) = (address / PAGE, (address % PAGE) as usize);
            let end = (start as u64 + bytes).min(PAGE) as usize;
            let shard = page % SHARDS;
            // Neighbours are mostly in one.
            let guard = match &mut open {
                Some((known, guard)) if *known == shard => guard,
                _ => {
                    drop(open.take());
                    let locked = self.shards[shard as usize].lock();
                    &mut open.insert((shard, locked)).1
                }
            };
            let page = match guard.entry(page) {
                Entry::Occupied(found) => found.into_mut(),
                Entry::Vacant(place) => {
                    let Some(page) = Page::new() else { continue };
                    place.insert(page)
                }
            };
            page.split(shift_of(address));
            if !page.prepare(how) {
                continue;
            }
            let own = mark(lane);
            let values = if how == How::Write { value(lane) } else { None };
            let value = |from: usize, shift: u32| {
                let mut word = [0; 4];
                let part = values.as_ref()?.get(from..from + (1 << shift))?;
                word[..part.len()].copy_from_slice(part);
                // What goes beyond what is known of it is not known.
                ((from + part.len()) as u64 <= bytes).then_some(u32::from_le_bytes(word))
            };
            let from = address - start as u64;
            let found = page.touch(&own, how, counts, start..end, value, |before, was_read| {
                races(&own, before, (address, was_read))
            });
            if let Some((mistake, before, at)) = found {
                let (block, thread) = (before.block, before.thread.into());
                tell(lane, Race { mistake, block, thread, pc: before.pc, address: from + at as u64 });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::held::TURN;
    use super::*;
    use crate::alu::LANES;

    const SIZE: usize = size_of::<Written>() + size_of::<[Mark; 2]>();

    fn touch(launch: &Launch, block: u32, how: How, address: u64, bytes: u64, value: u8) -> Option<Race> {
        let addresses = [address; LANES];
        let does =
            Does { pc: 1, how, scope: Scope::Own, counts: false, lanes: 1, addresses: &addresses, bytes };
        let mark = |_| Mark { block, time: 1, pc: 1, thread: 0, scope: Scope::Own };
        let mut found = None;
        let tell = |_, race| found = Some(race);
        launch.touch(&does, mark, |_| Some([value; 16]), |_, _, _| true, tell);
        found
    }

    #[test]
    fn records_of_words_say_the_same_of_their_bytes_once_those_are_accessed_alone() {
        let launch = Launch::new(2);
        let at = 0x4000_0000;
        assert_eq!(touch(&launch, 0, How::Write, at, 8, 7), None);
        for byte in 0..8 {
            // The value is there already, in each byte.
            assert_eq!(touch(&launch, 1, How::Write, at + byte, 1, 7), None, "{byte}");
            let race = touch(&launch, 0, How::Write, at + byte, 1, 8).unwrap();
            assert_eq!((race.mistake, race.address), (Mistake::GlobalWriteAfterWrite, at + byte));
        }
        assert_eq!(touch(&launch, 0, How::Read, at + 8, 4, 0), None);
        let race = touch(&launch, 1, How::Write, at + 10, 2, 0).unwrap();
        assert_eq!((race.mistake, race.address), (Mistake::GlobalWriteAfterRead, at + 10));
    }

    #[test]
    fn what_a_launch_reaches_is_held_for_as_long_as_it_runs() {
        let _turn = TURN.lock();
        let launch = Launch::new(1);
        let before = Held::bytes();
        let pages = 4096;
        for page in 0..pages {
            touch(&launch, 0, How::Read, page * PAGE, 4, 0);
            touch(&launch, 0, How::Write, page * PAGE, 4, 0);
        }
        let records = pages as usize * (PAGE as usize / 4);
        // Other tests hold little meanwhile.
        let held = Held::bytes() - before;
        assert!(held.abs_diff(records * SIZE) < 8 << 20, "{held}");
        drop(launch);
        assert!(Held::bytes().abs_diff(before) < 8 << 20);
    }

    #[test]
    fn a_page_without_records_is_held_too() {
        let _turn = TURN.lock();
        let before = Held::bytes();
        let pages: Vec<_> = (0..1 << 18).map_while(|_| Page::new()).collect();
        let wanted = pages.len() * size_of::<(u64, Page)>();
        assert!(wanted > 16 << 20);
        // Other tests hold little meanwhile.
        assert!((Held::bytes() - before).abs_diff(wanted) < 8 << 20);
    }
}
