//! What statements spend of what a thread may do before it looks at its session's flag.

use crate::ast::Instruction;
use crate::limits::BLOCK_WAIT_COST;
use crate::table::{self, Row};

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

    /// What an instruction spends.
    pub(crate) fn of(row: &Row, instruction: &Instruction) -> Self {
        let cost = table::cost(row, instruction);
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
