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
use super::touches::{Fence, How, Touches};
use crate::alu::LANES;
use crate::exec::lanes;
use across::Across;

/// Bytes whose state is kept together.
const PAGE: usize = 256;
/// Warps of a block at most.
const WARPS: usize = 32;
const NOBODY: u16 = u16::MAX;

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
            barriers: vec![Gathering::default(); crate::code::BARRIERS],
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
mod tests;
