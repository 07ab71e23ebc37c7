//! What statements spend of what a thread may do before it looks at its session's flag.

use crate::ast::{Instruction, Statement};
use crate::limits::BLOCK_WAIT_COST;
use crate::table::{self, Row, Treatment};

/// What lines spend that gather all lanes before a wait for them: a match and a vote.
const ALL_COST: u64 = 32;
/// The same among the lanes of a mask.
const SOME_COST: u64 = 48;
/// What those spend that see to it that all that are left of the warp come to a barrier of the block.
const LEFT_COST: u64 = 40;
/// What those spend that see to it that a warp is whole.
const WHOLE_COST: u64 = 64;
/// What any of them count as where turns are chosen: most loops keep their lanes together, and then need fewer lines.
const IN_LOOPS_COST: u64 = 16;

/// Whether a statement waits for lanes of its warp, or is for all of them together.
pub(crate) fn waits_for_lanes(statement: &Statement) -> bool {
    let Statement::Instruction(found) = statement else { return false };
    table::row_of(found).is_some_and(|row| is_of_lanes(row, found))
}

fn is_of_lanes(row: &Row, instruction: &Instruction) -> bool {
    table::waits_for_lanes(row, instruction) || table::is_for_warps(row)
}

/// What the lines will spend, at most, that gather lanes along a path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gathered {
    /// Whether the body waits for lanes at all.
    lanes: bool,
    /// Whether those are known that are here.
    all: bool,
    /// Whether the warp is whole.
    whole: bool,
}

impl Gathered {
    pub(crate) fn of(statements: &[Statement]) -> Self {
        Self { lanes: statements.iter().any(waits_for_lanes), all: false, whole: false }
    }

    /// A label stands here.
    pub(crate) fn label(&mut self) {
        (self.all, self.whole) = (false, false);
    }

    /// What an instruction spends, with what will gather lanes before it.
    pub(crate) fn cost(&mut self, row: &Row, instruction: &Instruction) -> u64 {
        let gathers = if table::is_for_warps(row) {
            if std::mem::replace(&mut self.whole, true) { 0 } else { WHOLE_COST }
        } else if table::waits_for_lanes(row, instruction) {
            let names_all = instruction.operands.last().is_some_and(table::names_all_lanes);
            match (names_all, std::mem::replace(&mut self.all, names_all)) {
                (true, true) => 0,
                (true, false) => ALL_COST,
                (false, _) => SOME_COST,
            }
        } else if table::waits_for_block(row, instruction) && self.lanes {
            self.all = true;
            LEFT_COST
        } else {
            0
        };
        if table::parts(row, instruction) {
            self.whole = false;
        }
        if matches!(row.treatment, Treatment::Branch | Treatment::Gate) {
            self.all = false;
        }
        table::cost(row, instruction).saturating_add(gathers)
    }
}

/// What is spent until the next poll, and until the first look: a wait for the block counts more until the next poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Spent {
    pub(crate) poll: u64,
    pub(crate) look: u64,
}

impl Spent {
    /// As much of both.
    pub(crate) const fn both(cost: u64) -> Self {
        Self { poll: cost, look: cost }
    }

    /// What an instruction spends in a loop at most, with what will gather lanes before it; and how much less is likely.
    pub(crate) fn in_loop(row: &Row, instruction: &Instruction) -> (Self, u64) {
        let gathers = if table::is_for_warps(row) {
            WHOLE_COST
        } else if table::waits_for_lanes(row, instruction) {
            SOME_COST
        } else if table::waits_for_block(row, instruction) {
            LEFT_COST
        } else {
            0
        };
        let most = Self::of(row, instruction, table::cost(row, instruction).saturating_add(gathers));
        (most, gathers.saturating_sub(IN_LOOPS_COST))
    }

    /// What an instruction spends that costs so much.
    pub(crate) fn of(row: &Row, instruction: &Instruction, cost: u64) -> Self {
        let waits = if table::waits_for_block(row, instruction) { BLOCK_WAIT_COST } else { 0 };
        Self { poll: cost.saturating_add(waits), look: cost }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self { poll: self.poll.saturating_add(other.poll), look: self.look.saturating_add(other.look) }
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        Self { poll: self.poll.saturating_sub(other.poll), look: self.look.saturating_sub(other.look) }
    }

    pub(crate) fn times(self, count: u64) -> Self {
        Self { poll: self.poll.saturating_mul(count), look: self.look.saturating_mul(count) }
    }

    /// The most of either.
    pub(crate) fn max(self, other: Self) -> Self {
        Self { poll: self.poll.max(other.poll), look: self.look.max(other.look) }
    }
}
