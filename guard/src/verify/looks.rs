//! That no thread runs on for long without a look at its session's flag.
//!
//! A branch that goes back goes to a label with a *poll* directly behind it, which takes at least what lies between
//! off the thread's budget; so every cycle costs budget, and whoever has none left loads the flag. The flag
//! that was loaded at entry is *looked* at on every path before global memory is written and before more than
//! [`UNLOOKED_COST_MAX`] is done. Paths are followed in the order of the text: what goes back is met by a poll.

use std::collections::HashMap;

use super::unverified;
use crate::ast::{Instruction, Operand, Statement};
use crate::limits::{POLL_COST_MAX, UNLOOKED_COST_MAX};
use crate::print::Text;
use crate::report::Reason;
use crate::table::{self, Row};

/// What the prologue has where anything looks: the address of the word for this multiprocessor, and its first load.
pub(super) const START: [&str; 6] = [
    "or.b32 %bh_hi, %bh_base, %bh_loadmask",
    "mov.u32 %bh_lo, %smid",
    "shl.b32 %bh_lo, %bh_lo, 7",
    "lop3.b32 %bh_lo, %bh_lo, 65408, -65536, 234",
    "mov.b64 %bh_k, {%bh_lo, %bh_hi}",
    "ld.relaxed.sys.global.b32 %bh_n, [%bh_k]",
];
const LOOK: [&str; 2] = ["setp.lt.s32 %bh_q, %bh_n, 0", "@%bh_q exit"];
const POLL: [&str; 4] = [LOOK[0], "@%bh_q ld.relaxed.sys.global.b32 %bh_n, [%bh_k]", LOOK[0], LOOK[1]];

/// Where the pass is.
pub(super) struct Looks<'a> {
    /// Whether the prologue has loaded the flag.
    started: bool,
    /// What all instructions so far cost.
    cost: u64,
    /// What was done since entry on the longest path to here that has not looked; none where all have.
    since: Option<u64>,
    /// The same at labels to come, on the branches to them.
    joins: HashMap<&'a str, Option<u64>>,
    /// The labels so far: what came before them, and what their poll takes off the budget.
    labels: HashMap<&'a str, (u64, Option<u64>)>,
}

impl<'a> Looks<'a> {
    pub(super) fn new(started: bool) -> Self {
        Self { started, cost: 0, since: Some(0), joins: HashMap::new(), labels: HashMap::new() }
    }

    /// A label, and what comes behind it; returns what is left after its poll, if it has one.
    pub(super) fn label(&mut self, name: &'a str, rest: &'a [Statement]) -> &'a [Statement] {
        self.since = self.since.max(self.joins.remove(name).flatten());
        let poll = self.poll(rest);
        self.labels.insert(name, (self.cost, poll.map(|(cost, _)| cost)));
        let Some((_, rest)) = poll else { return rest };
        self.since = None;
        rest
    }

    fn poll(&self, rest: &'a [Statement]) -> Option<(u64, &'a [Statement])> {
        let (Statement::Instruction(first), rest) = rest.split_first()? else { return None };
        let Some(Operand::Integer(less)) = first.operands.get(2) else { return None };
        let cost = u64::try_from(-less).ok().filter(|cost| (1..=POLL_COST_MAX).contains(cost))?;
        let counts = Text(first).to_string() == format!("add.s32 %bh_n, %bh_n, {less}");
        let rest = strip(rest, &POLL)?;
        (counts && self.started).then_some((cost, rest))
    }

    /// What is left after a look, where one stands here.
    pub(super) fn look(&mut self, statements: &'a [Statement]) -> Option<&'a [Statement]> {
        let rest = strip(statements, &LOOK).filter(|_| self.started)?;
        self.since = None;
        Some(rest)
    }

    /// Any other instruction.
    pub(super) fn instruction(&mut self, row: &Row, instruction: &'a Instruction) -> Result<(), Reason> {
        let cost = table::cost(row, instruction);
        self.cost = self.cost.saturating_add(cost);
        if let Some(since) = self.since.as_mut() {
            *since += cost;
            if *since > UNLOOKED_COST_MAX || table::writes_global(row, instruction) {
                self.since = None;
                return Err(unverified("the flag is not looked at in time"));
            }
        }
        if let Some(target) = table::target(row, instruction) {
            match self.labels.get(target) {
                Some((at, poll)) => {
                    let between = (self.cost - at).min(POLL_COST_MAX);
                    if poll.is_none_or(|poll| poll < between) {
                        return Err(unverified("a branch back without a poll that counts what lies between"));
                    }
                }
                None => {
                    let join = self.joins.entry(target).or_default();
                    *join = (*join).max(self.since);
                }
            }
        }
        if table::ends_path(row, instruction) {
            self.since = None;
        }
        Ok(())
    }
}

/// What is left after exactly these instructions.
pub(super) fn strip<'a>(statements: &'a [Statement], lines: &[&str]) -> Option<&'a [Statement]> {
    let (found, rest) = statements.split_at_checked(lines.len())?;
    let same = found.iter().zip(lines).all(
        |(found, line)| matches!(found, Statement::Instruction(found) if Text(found).to_string() == *line),
    );
    same.then_some(rest)
}
