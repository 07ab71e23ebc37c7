//! Accesses to a block's shared memory that nothing orders; those to global memory are the matter of [`across`].
//!
//! Of each byte it is known who wrote it last, and two threads that read it since. An *epoch* ends where a barrier opens at
//! which all threads of the block were: nothing before it races with anything behind. Within an epoch warps are ordered by
//! barriers at which some of them meet: each warp has a *time*, and knows up to which time of each other warp it has
//! waited. Lanes of a warp are ordered by what they meet at, and single threads by words that they pass on ([`heard`]).
//!
//! # Invariants
//! 1. What is told is not ordered by a barrier, a warp barrier, a collective operation, the end of a thread, or a word that
//!    one thread has written behind a fence and the other has read before one.
//! 2. It may be that less is told: where more than two threads have read a byte, or part of a warp has waited for another.

mod across;

use std::sync::Arc;

use super::found::Mistake;
use super::global::Launch;
use super::heard::{self, Heard, Lane, Words};
use super::known::Blocks;
use crate::alu::LANES;
use crate::exec::lanes;
use across::Across;

/// Bytes whose state is kept together.
const PAGE: usize = 256;
/// Warps of a block at most.
const WARPS: usize = 32;
const NOBODY: u16 = u16::MAX;

/// What a thread does to a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Read,
    Write,
    /// Reads and writes at once.
    Update,
}

/// What a fence does beside making known what was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fence {
    /// Nothing.
    Acquires,
    /// What is before may be passed on to the block.
    Block,
    /// What is before may be passed on to all.
    Device,
}

/// One thread's access to some bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Touches {
    pub(super) warp: usize,
    pub(super) lane: usize,
    pub(super) pc: u32,
    pub(super) how: How,
    /// Whether others may see it meanwhile.
    pub(super) strong: bool,
    /// From the beginning of the block's shared memory on.
    pub(super) at: usize,
    pub(super) bytes: usize,
    /// What it writes, where that is known.
    pub(super) values: Option<[u8; 16]>,
}

/// Two accesses that nothing orders; this is the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Race {
    pub(super) mistake: Mistake,
    pub(super) warp: usize,
    pub(super) lane: usize,
    pub(super) pc: u32,
    /// The first byte of which it holds.
    pub(super) at: usize,
}

/// An access as a byte remembers it.
#[derive(Debug, Clone, Copy)]
struct Mark {
    /// Number in the block.
    thread: u16,
    strong: bool,
    pc: u32,
    /// Of its warp.
    time: u32,
}

const NONE: Mark = Mark { thread: NOBODY, strong: false, pc: 0, time: 0 };

#[derive(Debug, Clone, Copy)]
struct Byte {
    epoch: u64,
    write: Mark,
    reads: [Mark; 2],
    /// What was written, where that is known.
    value: Option<u8>,
}

const FRESH: Byte = Byte { epoch: 0, write: NONE, reads: [NONE; 2], value: None };

/// What a warp knows.
#[derive(Debug)]
struct Warp {
    /// The block's clock when it last passed something by which others know it.
    time: u32,
    /// Up to which time of each warp it has waited.
    waited: [u32; WARPS],
    /// Up to which time all lanes have met.
    met: u32,
    /// Up to which time each lane has met each other.
    seen: Box<[[u32; LANES]; LANES]>,
    lanes: Box<[Lane; LANES]>,
    /// Whether the lanes have anything that they did not begin with.
    is_fresh: bool,
    /// Words of global memory that lanes have read, and that nothing stands behind yet which makes them known; and words that
    /// they update now.
    read: Vec<(u64, u32)>,
    updates: Vec<(u64, u32)>,
    /// What lanes heard last, by which word: who waits hears it again and again.
    heard: Option<(u64, u32, Blocks)>,
}

impl Default for Warp {
    fn default() -> Self {
        let seen = Box::new([[0; LANES]; LANES]);
        Self {
            time: 1,
            waited: [0; WARPS],
            met: 0,
            seen,
            lanes: Box::default(),
            is_fresh: true,
            read: Vec::new(),
            updates: Vec::new(),
            heard: None,
        }
    }
}

/// Lanes that wait at a barrier, or have only told that they were there.
#[derive(Debug, Clone, Default)]
struct Gathering {
    arrived: Vec<(usize, u32)>,
    waiting: Vec<(usize, u32)>,
    times: [u32; WARPS],
    heard: Heard,
}

/// A block's shared memory, and what it knows of global memory.
#[derive(Debug)]
pub(super) struct Races {
    pages: Vec<Option<Box<[Byte; PAGE]>>>,
    epoch: u64,
    /// What its warps' times are taken from.
    clock: u32,
    warps: Vec<Warp>,
    barriers: Vec<Gathering>,
    words: Words,
    across: Option<Across>,
}

impl Races {
    /// Of blocks with so many bytes and warps, of a launch of which global memory is looked at too.
    pub(super) fn new(bytes: usize, warps: usize, launch: Option<Arc<Launch>>) -> Self {
        Self {
            pages: vec![None; bytes.div_ceil(PAGE)],
            epoch: 1,
            clock: 1,
            across: launch.map(Across::new),
            warps: (0..warps.min(WARPS)).map(|_| Warp::default()).collect(),
            barriers: vec![Gathering::default(); crate::exec::BARRIERS],
            words: Words::default(),
        }
    }

    /// Another block begins, of this number.
    pub(super) fn restart(&mut self, block: u32) {
        self.begin_epoch();
        self.barriers.fill(Gathering::default());
        if let Some(across) = &mut self.across {
            across.restart(block);
        }
    }

    fn begin_epoch(&mut self) {
        self.gather();
        self.epoch += 1;
        self.words.clear();
        self.clock = self.clock.saturating_add(1);
        for warp in &mut self.warps {
            warp.time = self.clock;
            warp.heard = None;
            if !warp.is_fresh {
                warp.lanes.fill_with(Lane::default);
                warp.is_fresh = true;
            }
        }
        if let Some(across) = &mut self.across {
            across.began(self.clock);
        }
    }

    /// Lanes arrive at a barrier, and wait there or do not.
    pub(super) fn arrive(&mut self, warp: usize, lanes: u32, barrier: usize, waits: bool) {
        self.acquire(warp, lanes);
        self.put_together(warp, lanes);
        let (Some(gathering), Some(own)) = (self.barriers.get_mut(barrier), self.warps.get_mut(warp)) else {
            return;
        };
        for (known, waited) in gathering.times.iter_mut().zip(own.waited) {
            *known = (*known).max(waited);
        }
        gathering.times[warp] = own.time;
        own.pass(&mut self.clock);
        crate::exec::lanes(lanes).for_each(|lane| gathering.heard.join(&own.lanes[lane].heard));
        gathering.arrived.push((warp, lanes));
        if waits {
            gathering.waiting.push((warp, lanes));
        }
    }

    /// A barrier opens; whether all threads of the block that live waited at it.
    pub(super) fn open(&mut self, barrier: usize, all: bool) {
        let Some(gathering) = self.barriers.get_mut(barrier).map(std::mem::take) else { return };
        if all {
            self.begin_epoch();
            return;
        }
        for (warp, lanes) in gathering.waiting {
            let own = &mut self.warps[warp];
            for (waited, known) in own.waited.iter_mut().zip(gathering.times) {
                *waited = (*waited).max(known);
            }
            if !gathering.heard.is_empty() {
                own.is_fresh = false;
                crate::exec::lanes(lanes).for_each(|lane| own.lanes[lane].hear(&gathering.heard));
            }
            own.meet(lanes, u32::MAX, &mut self.clock);
        }
    }

    /// How many threads wait at a barrier.
    pub(super) fn waiting(&self, barrier: usize) -> u32 {
        let waiting = self.barriers.get(barrier).into_iter().flat_map(|barrier| &barrier.waiting);
        waiting.map(|(_, lanes)| lanes.count_ones()).sum()
    }

    /// Lanes of a warp, of which some live, have met.
    pub(super) fn meet(&mut self, warp: usize, lanes: u32, live: u32) {
        self.acquire(warp, lanes);
        self.put_together(warp, lanes);
        if let Some(warp) = self.warps.get_mut(warp) {
            warp.meet(lanes, live, &mut self.clock);
        }
    }

    /// Lanes of a warp go through a fence.
    pub(super) fn fence(&mut self, warp: usize, lanes: u32, what: Fence) {
        self.acquire(warp, lanes);
        if let Some(warp) = self.warps.get_mut(warp) {
            warp.is_fresh = false;
            crate::exec::lanes(lanes).for_each(|lane| {
                let own = &mut warp.lanes[lane];
                own.fence(warp.time);
                match what {
                    Fence::Acquires => {}
                    Fence::Block => own.fenced_narrowly = true,
                    Fence::Device => {
                        own.fenced_widely = warp.time;
                        own.passes_on = None;
                    }
                }
            });
            warp.pass(&mut self.clock);
        }
    }

    /// A thread is about to access bytes that others may see meanwhile: what it knows, it passes on, or learns.
    fn pass_on(&mut self, touches: &Touches) {
        let Touches { warp, lane, how, at, bytes, .. } = *touches;
        self.settle(warp);
        let Some(own) = self.warps.get_mut(warp) else { return };
        own.is_fresh = false;
        if how != How::Write {
            own.lanes[lane].reads(&self.words, at, bytes);
        }
        if how != How::Read && own.lanes[lane].fenced != 0 {
            self.release(warp, lane, at, bytes);
        }
    }

    /// A thread that has gone through a fence passes on what it knows, by bytes that others of its block will read.
    fn release(&mut self, warp: usize, lane: usize, at: usize, bytes: usize) {
        self.put_together(warp, 1 << lane);
        let Some(own) = self.warps.get(warp) else { return };
        let knows = (0..self.warps.len() * LANES).map(|thread| match (thread / LANES, thread % LANES) {
            (other, of) if other == warp && of == lane => own.lanes[lane].fenced,
            _ => own.knows(warp, lane, thread),
        });
        let mut heard = Heard::new(knows.collect());
        heard.others = own.lanes[lane].heard.others.clone();
        heard.fenced = own.lanes[lane].heard.fenced.clone();
        self.words.release(at, bytes, &heard);
    }

    /// A thread is about to access bytes; the first race of them.
    pub(super) fn touch(&mut self, touches: &Touches) -> Option<Race> {
        if touches.strong {
            self.pass_on(touches);
        }
        let Self { pages, epoch, warps, .. } = self;
        let Touches { warp, lane, pc, how, strong, at, bytes, values } = *touches;
        let own = warps.get(warp)?;
        let thread = u16::try_from(warp * LANES + lane).ok()?;
        let mark = Mark { thread, strong, pc, time: own.time };
        let races = |before: &Mark| {
            before.thread != NOBODY
                && before.thread != thread
                && !(strong && before.strong)
                && before.time > own.knows(warp, lane, before.thread.into())
        };
        let mut found = None;
        for index in 0..bytes {
            let at = at + index;
            let Some(page) = pages.get_mut(at / PAGE) else { break };
            let byte = &mut page.get_or_insert_with(|| Box::new([FRESH; PAGE]))[at % PAGE];
            if byte.epoch != *epoch {
                *byte = Byte { epoch: *epoch, ..FRESH };
            }
            let value = values.and_then(|values| values.get(index).copied());
            let mut tell = |mistake: Mistake, before: &Mark| {
                let (warp, lane) = (usize::from(before.thread) / LANES, usize::from(before.thread) % LANES);
                found.get_or_insert(Race { mistake, warp, lane, pc: before.pc, at });
            };
            if how != How::Write && races(&byte.write) {
                tell(Mistake::ReadAfterWrite, &byte.write);
            }
            // What is written again and again is there whoever comes last.
            let same = value.is_some() && value == byte.value;
            if how == How::Write && races(&byte.write) && !same {
                tell(Mistake::WriteAfterWrite, &byte.write);
            }
            if how != How::Read {
                for read in &byte.reads {
                    if races(read) && !same {
                        tell(Mistake::WriteAfterRead, read);
                    }
                }
            }
            match how {
                How::Read => byte.read(mark),
                How::Write | How::Update => {
                    byte.write = mark;
                    byte.value = value;
                    byte.reads = [NONE; 2];
                }
            }
        }
        found
    }
}

impl Byte {
    fn read(&mut self, mark: Mark) {
        let [first, second] = &mut self.reads;
        // The one that read last stands first.
        if first.thread != mark.thread && first.thread != NOBODY {
            *second = *first;
        }
        *first = mark;
    }
}

impl Warp {
    /// Its next accesses come later than those before.
    fn pass(&mut self, clock: &mut u32) {
        *clock = clock.saturating_add(1);
        self.time = *clock;
    }

    /// Up to which time of its warp a lane of this one, of this number, knows another thread.
    fn knows(&self, own: usize, lane: usize, thread: usize) -> u32 {
        let (warp, other) = (thread / LANES, thread % LANES);
        let together = if warp == own { self.met.max(self.seen[lane][other]) } else { self.waited[warp] };
        together.max(self.lanes[lane].heard.of(thread))
    }

    fn meet(&mut self, together: u32, live: u32, clock: &mut u32) {
        let time = self.time;
        self.pass(clock);
        if !self.is_fresh {
            heard::meet(&mut self.lanes, together);
        }
        if live & !together == 0 {
            self.met = time;
            return;
        }
        let mut known = [0; LANES];
        for lane in lanes(together) {
            for (known, seen) in known.iter_mut().zip(self.seen[lane]) {
                *known = (*known).max(seen);
            }
        }
        for lane in lanes(together) {
            known[lane] = time;
        }
        for lane in lanes(together) {
            self.seen[lane] = known;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touches(warp: usize, lane: usize, how: How, at: usize) -> Touches {
        Touches { warp, lane, pc: 1, how, strong: false, at, bytes: 4, values: None }
    }

    fn mistake(races: &mut Races, touches: Touches) -> Option<Mistake> {
        races.touch(&touches).map(|race| race.mistake)
    }

    fn blocks() -> Races {
        Races::new(1024, 4, None)
    }

    #[test]
    fn what_two_threads_do_to_one_byte_is_told_unless_both_read() {
        for (first, second, told) in [
            (How::Read, How::Read, None),
            (How::Write, How::Read, Some(Mistake::ReadAfterWrite)),
            (How::Read, How::Write, Some(Mistake::WriteAfterRead)),
            (How::Write, How::Write, Some(Mistake::WriteAfterWrite)),
            (How::Write, How::Update, Some(Mistake::ReadAfterWrite)),
            (How::Update, How::Read, Some(Mistake::ReadAfterWrite)),
        ] {
            for (warp, lane) in [(0, 1), (1, 0)] {
                let mut races = blocks();
                assert_eq!(mistake(&mut races, touches(0, 0, first, 8)), None);
                // The last byte of four.
                assert_eq!(
                    mistake(&mut races, touches(warp, lane, second, 11)),
                    told,
                    "{first:?} {second:?}"
                );
                assert_eq!(mistake(&mut races, touches(warp, lane, How::Write, 100)), None);
            }
            let mut races = blocks();
            assert_eq!(mistake(&mut races, touches(0, 0, first, 8)), None);
            assert_eq!(mistake(&mut races, touches(0, 0, second, 8)), None);
            assert_eq!(mistake(&mut races, touches(1, 0, second, 12)), None);
        }
    }

    #[test]
    fn a_barrier_of_all_threads_orders_everything() {
        let mut races = blocks();
        assert_eq!(mistake(&mut races, touches(0, 0, How::Write, 8)), None);
        for warp in 0..4 {
            races.arrive(warp, u32::MAX, 0, true);
        }
        assert_eq!(races.waiting(0), 128);
        races.open(0, true);
        assert_eq!(races.waiting(0), 0);
        assert_eq!(mistake(&mut races, touches(1, 0, How::Read, 8)), None);
        assert_eq!(mistake(&mut races, touches(2, 0, How::Write, 8)), Some(Mistake::WriteAfterRead));
        races.restart(1);
        assert_eq!(mistake(&mut races, touches(3, 0, How::Write, 8)), None);
    }

    #[test]
    fn a_barrier_of_some_warps_orders_those_and_whom_they_waited_for() {
        let mut races = blocks();
        assert_eq!(mistake(&mut races, touches(0, 0, How::Write, 8)), None);
        // The first only tells the second, which meets the third.
        races.arrive(0, u32::MAX, 1, false);
        races.arrive(1, u32::MAX, 1, true);
        races.open(1, false);
        races.arrive(1, u32::MAX, 2, true);
        races.arrive(2, u32::MAX, 2, true);
        races.open(2, false);
        assert_eq!(mistake(&mut races, touches(1, 5, How::Read, 8)), None);
        assert_eq!(mistake(&mut races, touches(2, 5, How::Read, 8)), None);
        assert_eq!(mistake(&mut races, touches(3, 5, How::Read, 8)), Some(Mistake::ReadAfterWrite));
        // The first has waited for nobody.
        assert_eq!(mistake(&mut races, touches(0, 0, How::Write, 8)), Some(Mistake::WriteAfterRead));
        assert_eq!(mistake(&mut races, touches(2, 0, How::Write, 100)), None);
        assert_eq!(mistake(&mut races, touches(0, 0, How::Read, 100)), Some(Mistake::ReadAfterWrite));
    }

    #[test]
    fn lanes_that_have_met_are_ordered_and_others_are_not() {
        let mut races = blocks();
        assert_eq!(mistake(&mut races, touches(0, 0, How::Write, 8)), None);
        races.meet(0, 0b0011, u32::MAX);
        races.meet(0, 0b0110, u32::MAX);
        assert_eq!(mistake(&mut races, touches(0, 1, How::Read, 8)), None);
        // By way of lane 1.
        assert_eq!(mistake(&mut races, touches(0, 2, How::Read, 8)), None);
        assert_eq!(mistake(&mut races, touches(0, 3, How::Read, 8)), Some(Mistake::ReadAfterWrite));
        races.meet(0, 0b1111, 0b1111);
        assert_eq!(mistake(&mut races, touches(0, 3, How::Write, 8)), None);
        assert_eq!(mistake(&mut races, touches(1, 3, How::Write, 8)), Some(Mistake::WriteAfterWrite));
    }

    #[test]
    fn atomic_and_strong_accesses_do_not_race_with_each_other() {
        let mut races = blocks();
        let strong = |lane, how| Touches { strong: true, ..touches(0, lane, how, 8) };
        assert_eq!(mistake(&mut races, strong(0, How::Update)), None);
        assert_eq!(mistake(&mut races, strong(1, How::Update)), None);
        assert_eq!(mistake(&mut races, strong(2, How::Read)), None);
        assert_eq!(mistake(&mut races, strong(3, How::Write)), None);
        assert_eq!(mistake(&mut races, touches(0, 4, How::Read, 8)), Some(Mistake::ReadAfterWrite));
    }

    #[test]
    fn a_word_that_is_passed_on_between_fences_orders_what_came_before_and_what_comes_behind() {
        let flag = |warp, lane, how| Touches { strong: true, ..touches(warp, lane, how, 512) };
        // Who releases, and who acquires: a thread of another warp, and of the same.
        for (warp, lane) in [(2, 3), (0, 3)] {
            for (releases, acquires, update) in
                [(true, true, false), (true, true, true), (false, true, false), (true, false, true)]
            {
                let mut races = blocks();
                assert_eq!(mistake(&mut races, touches(0, 0, How::Write, 8)), None);
                if releases {
                    races.fence(0, 1, Fence::Device);
                }
                let (write, read) = if update { (How::Update, How::Update) } else { (How::Write, How::Read) };
                assert_eq!(mistake(&mut races, flag(0, 0, write)), None);
                assert_eq!(mistake(&mut races, flag(warp, lane, read)), None);
                if acquires {
                    races.fence(warp, 1 << lane, Fence::Device);
                }
                let ordered = releases && acquires;
                let told = (!ordered).then_some(Mistake::ReadAfterWrite);
                assert_eq!(mistake(&mut races, touches(warp, lane, How::Read, 8)), told);
                // Another lane has heard nothing; one that it has met then has.
                let third = touches(warp, lane + 1, How::Read, 8);
                if ordered {
                    races.meet(warp, 0b11 << lane, u32::MAX);
                    assert_eq!(mistake(&mut races, third), None);
                } else {
                    assert_eq!(mistake(&mut races, third), Some(Mistake::ReadAfterWrite));
                }
                // What the first does behind its fence is not ordered.
                assert_eq!(mistake(&mut races, touches(0, 0, How::Write, 100)), None);
                assert_eq!(
                    mistake(&mut races, touches(warp, lane, How::Read, 100)),
                    Some(Mistake::ReadAfterWrite)
                );
            }
        }
    }

    #[test]
    fn what_was_heard_is_passed_on_by_words_and_barriers() {
        let flag = |warp, how, at| Touches { strong: true, ..touches(warp, 0, how, at) };
        let mut races = blocks();
        assert_eq!(mistake(&mut races, touches(0, 0, How::Write, 8)), None);
        races.fence(0, 1, Fence::Device);
        assert_eq!(mistake(&mut races, flag(0, How::Write, 512)), None);
        assert_eq!(mistake(&mut races, flag(1, How::Update, 512)), None);
        races.fence(1, 1, Fence::Device);
        assert_eq!(mistake(&mut races, flag(1, How::Write, 520)), None);
        assert_eq!(mistake(&mut races, flag(2, How::Read, 520)), None);
        races.fence(2, 1, Fence::Device);
        for warp in [2, 3] {
            races.arrive(warp, u32::MAX, 1, true);
        }
        races.open(1, false);
        for warp in 1..4 {
            assert_eq!(mistake(&mut races, touches(warp, 0, How::Read, 8)), None, "{warp}");
        }
        assert_eq!(mistake(&mut races, touches(1, 1, How::Read, 8)), Some(Mistake::ReadAfterWrite));
        // Another block's words are its own.
        races.restart(1);
        assert_eq!(mistake(&mut races, touches(0, 0, How::Write, 8)), None);
        assert_eq!(mistake(&mut races, flag(2, How::Read, 520)), None);
        races.fence(2, 1, Fence::Device);
        assert_eq!(mistake(&mut races, touches(2, 0, How::Read, 8)), Some(Mistake::ReadAfterWrite));
    }

    #[test]
    fn the_same_value_may_be_written_by_many() {
        let mut races = blocks();
        let write = |lane, value: u32| {
            let mut values = [0; 16];
            values[..4].copy_from_slice(&value.to_le_bytes());
            Touches { values: Some(values), ..touches(0, lane, How::Write, 8) }
        };
        assert_eq!(mistake(&mut races, write(0, 1)), None);
        assert_eq!(mistake(&mut races, write(1, 1)), None);
        let told = races.touch(&write(2, 257)).unwrap();
        assert_eq!((told.mistake, told.at, told.lane), (Mistake::WriteAfterWrite, 9, 1));
    }

    #[test]
    fn bytes_beyond_the_memory_and_warps_that_are_not_there_are_nobodys() {
        let mut races = blocks();
        assert_eq!(mistake(&mut races, touches(0, 0, How::Write, 1022)), None);
        assert_eq!(mistake(&mut races, touches(40, 0, How::Write, 0)), None);
        races.arrive(0, 1, 99, true);
        races.open(99, false);
    }
}
