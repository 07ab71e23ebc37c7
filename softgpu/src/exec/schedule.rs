//! Seeded schedules: which warp of which block goes on, and for how long, is drawn from a number.
//!
//! One host thread runs all blocks of a launch. The same seed gives the same order of everything, so that a launch whose
//! result depends on that order can be repeated; other seeds give other orders. Lanes that a branch has parted may go on
//! apart where they come to one place again, and behind a shuffle or a vote that they wait for each other at, as on an
//! H200; whether they do is drawn too. Code that has met at a warp barrier finds its warp whole.

use super::frame::Frame;
use super::step::Outcome;
use super::warp::{State, Warp};
use crate::compiled::Compiled;
use crate::fault::Faulted;

/// Operations in a row that a group does at most in a short and in a long step.
const SHORT: u64 = 8;
const LONG: u64 = 256;
/// Backward branches of a step at most.
const BRANCHES: u64 = 32;

/// Numbers that look drawn by lot, and are the same for the same seed (SplitMix64).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// Those of one launch.
    pub(crate) fn new(seed: u64, launch: u64) -> Self {
        let mut random = Self(seed);
        let mixed = random.next() ^ launch;
        Self(mixed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below another, which is not zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// One of so many.
    pub(crate) fn index(&mut self, count: usize) -> usize {
        self.below(count as u64) as usize
    }
}

impl Warp {
    /// Whether some group of it can run.
    pub(super) fn is_ready(&self) -> bool {
        self.groups.iter().any(|group| group.state == State::Ready)
    }

    /// Runs one group for a while; both are drawn.
    pub(super) fn run_drawn<const WATCHED: bool>(
        &mut self,
        frame: &mut Frame<'_>,
        compiled: &Compiled,
        random: &mut Random,
    ) -> Result<Outcome, Faulted> {
        let ready = |warp: &Self| warp.groups.iter().filter(|group| group.state == State::Ready).count();
        let count = ready(self);
        if count == 0 {
            return Ok(Outcome::Stuck);
        }
        let drawn = random.index(count);
        let mut groups = self.groups.iter().filter(|group| group.state == State::Ready);
        let Some(pc) = groups.nth(drawn).map(|group| group.pc) else { return Ok(Outcome::Stuck) };
        let long = random.below(4) == 0;
        let length = 1 + random.below(if long { LONG } else { SHORT });
        let mut horizon = pc.saturating_add(length as u32);
        let mut mask = 0;
        self.groups.retain(|group| {
            let here = group.state == State::Ready && group.pc == pc;
            let joins = here && (mask == 0 || random.below(2) == 0);
            if joins {
                mask |= group.mask;
            } else if group.state == State::Ready && group.pc > pc {
                // Where others stand, they go on together.
                horizon = horizon.min(group.pc);
            }
            !joins
        });
        self.horizon = horizon;
        self.stays_apart = random.below(2) == 0;
        let mut fuel = 1 + random.below(if long { BRANCHES } else { 2 }) as u32;
        if let Some(steps) = &mut frame.core.steps {
            steps.more();
        }
        self.run_group::<WATCHED>(frame, compiled, pc, mask, &mut fuel)?;
        Ok(Outcome::Ran)
    }
}
