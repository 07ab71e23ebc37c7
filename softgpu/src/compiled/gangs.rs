//! Gangs of a warp: which may come in, and where they have gone.

use std::sync::atomic::{AtomicU32, Ordering};

use super::emit::{Doors as LaneDoors, Leaving};
use super::gang::{Doors, Ending};
use super::patterns::{Pattern, Patterns};
use super::sys::Memory;
use crate::code::Program;
use crate::exec::Warp;

/// Partings at a way in, beyond those that went well, after which gangs no longer come in there.
const PARTINGS_MAX: u32 = 256;

/// Gangs are counted up to here, and not for ever: threads share the counters.
const COUNTED_MAX: u32 = 1 << 16;

/// A place where gangs come in.
#[derive(Debug)]
struct WayIn {
    /// Registers of which the first lane's value says all: the stride, and the ones of their width.
    even: Vec<(usize, u64, u64)>,
    /// Predicates in which lanes do not differ.
    same: Vec<usize>,
    /// How many more have parted than have not.
    parted: AtomicU32,
}

/// Where a gang has gone.
#[derive(Debug, Clone, Copy)]
pub(super) enum Gone {
    /// Out, by number.
    Out(usize),
    /// Its lanes go on one by one from a way in.
    Apart(u32),
}

/// How often gangs of an entry have run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GangCounts {
    /// Came in.
    pub ran: u32,
    /// Parted on the way.
    pub parted: u32,
}

/// The code of an entry for gangs.
#[derive(Debug)]
pub(super) struct Gangs {
    pub(super) code: Memory,
    lanes: u32,
    ways_in: Vec<Option<WayIn>>,
    ways_out: Vec<Gone>,
    ran: AtomicU32,
    parted: AtomicU32,
}

impl Gangs {
    /// With what is known about the code, and the doors of the code for one lane.
    pub(super) fn new(
        program: &Program,
        patterns: &Patterns,
        code: Memory,
        doors: Doors,
        lanes: usize,
        alone: &LaneDoors,
    ) -> Option<Self> {
        let way_in = |places: Vec<usize>| {
            let mut way = WayIn { even: Vec::new(), same: Vec::new(), parted: AtomicU32::new(0) };
            for place in places {
                match place.checked_sub(program.widths.len()) {
                    Some(predicate) => way.same.push(predicate),
                    None => {
                        let Pattern::Even(stride) = patterns.register(place) else { continue };
                        let ones = if program.widths[place] > 32 { u64::MAX } else { u64::from(u32::MAX) };
                        way.even.push((place, stride.cast_unsigned(), ones));
                    }
                }
            }
            way
        };
        let ways_in = doors.ways_in.into_iter().map(|places| places.map(way_in)).collect();
        let place = |leaving: Leaving| alone.ways_out.iter().position(|known| *known == leaving);
        let gone = |ending: &Ending| match *ending {
            Ending::Together(leaving) => place(leaving).map(Gone::Out),
            Ending::Apart(pc) => alone.ways_in.get(pc as usize).copied().flatten().map(Gone::Apart),
        };
        Some(Self {
            code,
            lanes: u32::try_from(lanes).ok()?,
            ways_in,
            ways_out: doors.ways_out.iter().map(gone).collect::<Option<_>>()?,
            ran: AtomicU32::new(0),
            parted: AtomicU32::new(0),
        })
    }

    /// How often they have run.
    pub(super) fn counts(&self) -> GangCounts {
        GangCounts { ran: self.ran.load(Ordering::Relaxed), parted: self.parted.load(Ordering::Relaxed) }
    }

    fn lanes_from(&self, first: u32) -> u32 {
        (u32::MAX >> (32 - self.lanes)) << first
    }

    /// The gangs of a mask, by their first lanes, with their lanes.
    pub(super) fn of(&self, mask: u32) -> impl Iterator<Item = (u32, u32)> {
        let firsts = (0..32).step_by(self.lanes as usize);
        firsts.map(|first| (first, self.lanes_from(first))).filter(move |(_, lanes)| mask & lanes == *lanes)
    }

    /// The lanes of a mask that may come in as gangs at a way in.
    pub(super) fn ready(&self, warp: &Warp, way: u32, mask: u32) -> u32 {
        let Some(Some(way)) = self.ways_in.get(way as usize) else { return 0 };
        if way.parted.load(Ordering::Relaxed) >= PARTINGS_MAX {
            return 0;
        }
        // What gangs leave with fits where they come in again, if nothing was done in between.
        let ready = if warp.left_whole { mask } else { self.fitting(warp, way, mask) };
        debug_assert!(
            !warp.left_whole || self.fitting(warp, way, mask) == mask,
            "a gang has left otherwise than it came in"
        );
        if self.ran.load(Ordering::Relaxed) < COUNTED_MAX {
            self.ran.fetch_add(ready.count_ones() / self.lanes, Ordering::Relaxed);
        }
        ready
    }

    fn fitting(&self, warp: &Warp, way: &WayIn, mask: u32) -> u32 {
        let fits = |first| self.fits(warp, way, first) && self.side_by_side(warp, first);
        self.of(mask).filter(|(first, _)| fits(*first)).fold(0, |ready, (_, lanes)| ready | lanes)
    }

    /// Whether the threads of a gang follow each other in x.
    fn side_by_side(&self, warp: &Warp, first: u32) -> bool {
        let (first, last) = (first as usize, (first + self.lanes) as usize - 1);
        let [x, y, z] = &warp.threads;
        x[first] + u64::from(self.lanes) - 1 == x[last] && y[first] == y[last] && z[first] == z[last]
    }

    /// Whether the lanes' registers are as the code takes them to be.
    fn fits(&self, warp: &Warp, way: &WayIn, first: u32) -> bool {
        let lanes = first as usize..(first + self.lanes) as usize;
        let even = way.even.iter().all(|(register, stride, ones)| {
            let words = &warp.registers[*register][lanes.clone()];
            let base = words[0];
            if *stride == 0 {
                return words.iter().fold(0, |other, word| other | (word ^ base)) == 0;
            }
            let mut wanted = base;
            words.iter().fold(0, |other, word| {
                let differs = word ^ (wanted & ones);
                wanted = wanted.wrapping_add(*stride);
                other | differs
            }) == 0
        });
        let ours = self.lanes_from(first);
        let alike = |predicate: &usize| matches!(warp.predicates[*predicate] & ours, bits if bits == 0 || bits == ours);
        even && way.same.iter().all(alike)
    }

    /// Where a gang went that came in here.
    pub(super) fn gone(&self, number: u32, way: u32) -> Gone {
        let gone = self.ways_out[number as usize];
        if let Some(Some(way)) = self.ways_in.get(way as usize) {
            match gone {
                Gone::Apart(_) => {
                    if self.parted.load(Ordering::Relaxed) < COUNTED_MAX {
                        self.parted.fetch_add(1, Ordering::Relaxed);
                    }
                    way.parted.fetch_add(1, Ordering::Relaxed);
                }
                Gone::Out(_) => {
                    let parted = way.parted.load(Ordering::Relaxed);
                    if parted > 0 {
                        // Another thread's count may be lost.
                        way.parted.store(parted - 1, Ordering::Relaxed);
                    }
                }
            }
        }
        gone
    }
}
