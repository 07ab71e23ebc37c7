//! A warp: 32 lanes, their registers, and which of them run next.
//!
//! Lanes at one place in the program form a *group*. Of a warp's ready groups the one lowest in the
//! program runs, which brings groups together again where compiler-made code does. A group that goes
//! round a loop for long while another is ready is set aside for a while, so that lanes of one warp may
//! wait for each other.
//!
//! # Invariants
//! 1. The masks of the groups are disjoint, and their union is `live`.
//! 2. At most one ready group stands at any place once [`Warp::pick`] has run.

use super::grid::Grid;
use super::mask::all_or_none;
use crate::alu::{LANES, Lanes};
use crate::code::{BarrierMode, Dst, Op, Pred, Program};
use crate::memory::Own;

/// Backward branches of a warp's groups in the usual order while others are ready, before those get a turn.
const PATIENCE: u32 = 1 << 10;
/// How often a group whose turn it is waits for those before it where it asks which lanes are with it. Lanes that spin
/// for other blocks are longer about it than anybody's patience, and come to where the group stands then; lanes that
/// spin for the group itself do so for as long.
const PUT_OFF_MAX: u32 = 1 << 13;
/// Backward branches of such a turn.
const TURN: u32 = 1 << 8;

/// What a group of lanes is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// It can run.
    Ready,
    /// It waits at a collective operation for lanes that are elsewhere.
    Collective,
    /// It waits at a warp barrier; its place is behind the barrier.
    WarpBarrier,
    /// It waits at this block barrier; its place is behind the barrier.
    Barrier(usize),
}

/// Lanes at one place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group {
    /// Index of the next instruction.
    pub(crate) pc: u32,
    /// The lanes.
    pub(crate) mask: u32,
    /// Whether they can run.
    pub(crate) state: State,
    /// When it last ran.
    pub(crate) ran: u64,
}

/// A warp.
#[derive(Debug)]
pub(crate) struct Warp {
    /// Number in its block.
    pub(crate) number: u32,
    /// Lanes that have not exited.
    pub(crate) live: u32,
    /// Registers.
    pub(crate) registers: Own<Lanes>,
    /// Predicate registers: one bit per lane.
    pub(crate) predicates: Vec<u32>,
    /// Local memory, lane after lane. It goes with the launch: nobody else's blocks ever have it.
    pub(crate) local: Own<u8>,
    /// `%tid`, per lane.
    pub(crate) threads: [Lanes; 3],
    /// All lanes that live, except while a group runs.
    pub(crate) groups: Vec<Group>,
    /// A running group stops where the next ready one stands.
    pub(crate) horizon: u32,
    /// The lanes that each lane at a warp barrier waits for.
    pub(crate) awaited: [u32; LANES],
    patience: u32,
    turn: u64,
    /// The next group to run is the one that has waited longest.
    rotate: bool,
    /// The running group is not the one lowest in the program.
    out_of_order: bool,
    /// How often a group has waited since one asked.
    put_off: u32,
    /// Whether gangs left compiled code as one where the only group stands, and nothing was done since.
    pub(crate) left_whole: bool,
    /// Whether lanes that have waited for the running group go on apart from it.
    pub(crate) stays_apart: bool,
}

impl Warp {
    /// A warp with nothing to do yet.
    pub(crate) fn new(number: u32, grid: &Grid) -> Self {
        let program = &grid.program;
        let mut predicates = vec![0; program.predicates as usize];
        predicates[Pred::TRUE.0 as usize] = u32::MAX;
        let first = number * 32;
        let [x, y, _] = grid.threads;
        let mut threads = [[0; LANES]; 3];
        for (lane, thread) in (first..first + 32).enumerate() {
            threads[0][lane] = u64::from(thread % x);
            threads[1][lane] = u64::from(thread / x % y);
            threads[2][lane] = u64::from(thread / x / y);
        }
        Self {
            number,
            live: 0,
            registers: Own::new(program.registers as usize),
            predicates,
            local: Own::new(program.local_bytes as usize * LANES),
            threads,
            groups: Vec::with_capacity(4),
            horizon: u32::MAX,
            awaited: [0; LANES],
            patience: PATIENCE,
            turn: 0,
            rotate: false,
            out_of_order: false,
            put_off: 0,
            left_whole: false,
            stays_apart: false,
        }
    }

    /// Puts all lanes that exist at the start of the entry. Registers and local memory keep what an earlier block of the
    /// same launch left in them, as on a real device: a block whose session is over ends as it starts, and must not take
    /// longer for it the more memory it has. Texts of the guard's clear what they use.
    pub(crate) fn restart(&mut self, grid: &Grid) {
        let threads = grid.block_threads() - self.number * 32;
        self.live = if threads >= 32 { u32::MAX } else { (1 << threads) - 1 };
        self.groups.clear();
        self.groups.push(Group { pc: 0, mask: self.live, state: State::Ready, ran: 0 });
        self.left_whole = false;
    }

    /// Where all lanes that live stand, if that is one place and they can run.
    #[inline(always)]
    pub(crate) fn stands(&self) -> Option<u32> {
        match self.groups[..] {
            [Group { pc, mask, state: State::Ready, ran: _ }] if mask == self.live => Some(pc),
            _ => None,
        }
    }

    /// Takes the group that runs next, joined with all others that stand where it does.
    pub(crate) fn pick(&mut self) -> Option<(u32, u32)> {
        self.turn += 1;
        self.left_whole = false;
        // All that run stand in one place, as where they start.
        if let [Group { pc, mask, state: State::Ready, ran: _ }] = self.groups[..] {
            self.groups.clear();
            if self.rotate {
                self.patience = PATIENCE;
            }
            self.horizon = u32::MAX;
            self.out_of_order = false;
            self.rotate = false;
            return Some((pc, mask));
        }
        let ready = self.groups.iter().filter(|group| group.state == State::Ready);
        let chosen = if self.rotate {
            ready.min_by_key(|group| group.ran)
        } else {
            ready.min_by_key(|group| group.pc)
        };
        let pc = chosen?.pc;
        let mut mask = 0;
        let mut horizon = u32::MAX;
        self.groups.retain(|group| {
            if group.state != State::Ready {
                return true;
            }
            if group.pc == pc {
                mask |= group.mask;
                return false;
            }
            horizon = horizon.min(group.pc);
            true
        });
        // A group whose turn it is runs on although others stand before it.
        self.out_of_order = self.rotate && horizon < pc;
        if self.rotate {
            self.patience = if self.out_of_order { TURN } else { PATIENCE };
        }
        self.horizon = if self.out_of_order { u32::MAX } else { horizon };
        self.rotate = false;
        Some((pc, mask))
    }

    /// Whether a backward branch ends the running group's turn, as others are ready.
    #[inline(always)]
    pub(crate) fn loses_patience(&mut self) -> bool {
        if self.groups.is_empty() {
            return false;
        }
        self.patience = self.patience.saturating_sub(1);
        if self.patience > 0 {
            return false;
        }
        self.yield_turn();
        true
    }

    /// The backward branches that a group may take while others are ready.
    pub(crate) fn allowance(&self, fuel: u32) -> u32 {
        fuel.min(self.patience)
    }

    /// The running group took so many backward branches; whether that ends its turn.
    pub(crate) fn spend(&mut self, branches: u32) -> bool {
        self.patience = self.patience.saturating_sub(branches.max(1));
        self.patience == 0
    }

    /// Whether a group that asks which lanes are with it waits for those that stand before it.
    pub(crate) fn puts_off(&mut self) -> bool {
        if !self.out_of_order || self.put_off == PUT_OFF_MAX {
            self.put_off = 0;
            return false;
        }
        self.put_off += 1;
        self.yield_turn();
        true
    }

    /// The next group to run is another one, where there is one. After a turn out of order the usual
    /// order rules again.
    pub(crate) fn yield_turn(&mut self) {
        self.rotate = !self.out_of_order;
        self.patience = PATIENCE;
    }

    /// Sets lanes aside.
    pub(crate) fn park(&mut self, pc: u32, mask: u32, state: State) {
        if mask != 0 {
            self.groups.push(Group { pc, mask, state, ran: self.turn });
        }
    }

    /// Ends lanes. Whoever waits for them looks again; answers the lanes that no longer wait at a warp barrier.
    pub(crate) fn exit(&mut self, mask: u32) -> u32 {
        self.live &= !mask;
        if self.groups.is_empty() {
            return 0;
        }
        for group in &mut self.groups {
            if group.state == State::Collective {
                group.state = State::Ready;
            }
        }
        self.settle_warp_barrier()
    }

    /// Lanes that wait at a block barrier go on; those of a reduction get its result.
    pub(crate) fn release(&mut self, barrier: usize, program: &Program, arrived: u32, holding: u32) {
        for index in 0..self.groups.len() {
            let group = self.groups[index];
            if group.state != State::Barrier(barrier) {
                continue;
            }
            self.groups[index].state = State::Ready;
            let Op::Barrier { mode, .. } = program.code[group.pc as usize - 1].op else { continue };
            match mode {
                BarrierMode::Sync | BarrierMode::Arrive => {}
                BarrierMode::Count(d) => self.write(d, &[u64::from(holding); LANES], group.mask),
                BarrierMode::All(p) => self.write_predicate(p, all_or_none(holding == arrived), group.mask),
                BarrierMode::Any(p) => self.write_predicate(p, all_or_none(holding > 0), group.mask),
            }
        }
    }

    /// Writes a register in the lanes of a mask.
    #[inline(always)]
    pub(crate) fn write(&mut self, d: Dst, value: &Lanes, mask: u32) {
        let register = &mut self.registers[d.0 as usize];
        if mask == u32::MAX {
            *register = *value;
            return;
        }
        for i in 0..LANES {
            let keep = u64::from(mask >> i & 1).wrapping_sub(1);
            register[i] = (register[i] & keep) | (value[i] & !keep);
        }
    }

    /// Writes a predicate in the lanes of a mask.
    #[inline(always)]
    pub(crate) fn write_predicate(&mut self, p: Pred, value: u32, mask: u32) {
        let predicate = &mut self.predicates[p.0 as usize];
        *predicate = (*predicate & !mask) | (value & mask);
    }
}
