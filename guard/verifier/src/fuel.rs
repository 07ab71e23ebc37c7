//! That no thread runs on for long without a look at its session's flag.
//!
//! Each statement costs something ([`table::cost`]). A *poll* loads the flag and ends the thread where that says so; between two
//! polls a thread may spend [`PATH_COST_MAX`](crate::limits::PATH_COST_MAX), its *fuel*. Before the first look at the flag that was loaded at entry it may spend
//! little, and write nothing to global memory. How much fuel is left at a label is claimed, as `A + B1 * e1 + B2 * e2 ...`:
//! each `e` is a number that is never negative and that its loop takes one off in each turn.
//!
//! | `e` of | is | is one less |
//! |---|---|---|
//! | a counter that is set to a number of turns | that counter, or zero where it is less | behind what takes one off it |
//! | a counter that is where a register is after all turns | in how many steps the register is there | behind each step |
//! | a label whose turns are claimed ([`Numbers`](super::numbers::Numbers)) | how often it may still be come to | on each branch back to it |
//!
//! One pass follows the text. What is left where control goes to a label, forth or back, has to be as much as the label claims;
//! behind the label that is what is left, and nothing else. So what a path from one poll to the next spends is never more
//! than the fuel behind the first: each statement takes its cost off, each way to a label goes to no more than there was,
//! and no `A + B1 * e1 ...` may become negative. That needs no word on what a loop is, or on how a claim was found.
//!
//! Why a register steps to its counter so often only: it is `m - step * e`, as numbers that wrap around, where `m` is what it
//! is after all turns and the counter is no more than `m`. With `e = 0` it is `m`, and the test for going back fails.
//! Nothing else writes the register or the step, or `e` is forgotten. Where the test lets the counter itself pass too, one step more leads
//! beyond it, since the counter is no closer to the greatest number than a step; there `e` counts one more.

mod checker;
mod state;

pub use checker::{TERMS_MAX, given, turns_of};

use crate::ast::{Instruction, Span, Statement};
use crate::claims::fuel as claimed;
use crate::limits::BLOCK_WAIT_COST;
use crate::lines::strip;
use crate::maps::{HashMap, HashSet};
use crate::refusal::unverified;
use crate::report::Reason;
use crate::table::{self, Row};
use crate::turns::{self, By};

/// How the flag is loaded: in the prologue of what looks, and at the end of every poll.
pub(crate) const START: [&str; 6] = [
    "or.b32 %bh_hi, %bh_base, %bh_loadmask",
    "mov.u32 %bh_lo, %smid",
    "shl.b32 %bh_lo, %bh_lo, 7",
    "lop3.b32 %bh_lo, %bh_lo, 65408, -65536, 234",
    "mov.b64 %bh_k, {%bh_lo, %bh_hi}",
    "ld.relaxed.sys.global.b32 %bh_n, [%bh_k]",
];
const LOOK: [&str; 2] = ["setp.lt.s32 %bh_q, %bh_n, 0", "@%bh_q exit"];
/// Where threads may have copies to wait for.
const LOOK_AND_WAIT: [&str; 3] = ["setp.lt.s32 %bh_q, %bh_n, 0", "@%bh_q cp.async.wait_all", "@%bh_q exit"];

/// What a statement has to do with fuel.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// What a statement spends.
    Costs(u64),
    /// A wait for the block: what is left until the next poll is so much less besides.
    BlockWait(u64),
    /// A label.
    Label(&'a str),
    /// The flag that was loaded at entry is looked at. The first costs nothing, others so much: a text may hold many.
    Look(u64),
    /// A poll: a thread has all its fuel again.
    Poll,
    /// Global memory is written, or may be.
    Writes,
    /// A register is written that leads to a counter, or is its step.
    Register(&'a Instruction, &'a str),
    /// A counter is set.
    Set(u32, By<'a>),
    /// The loop of this label, which comes next, has this counter and may turn so often at most: pointers were checked for that.
    Checked(&'a str, u32, u64),
    /// A loop goes back to this label, as its counter says.
    Turns(u32, &'a str),
    /// Control may go to a label.
    Goes(&'a str),
    /// Control does not go on.
    Ends,
}

/// What a body may spend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It looks at the flag.
    Looks,
    /// A fast version that never does: its launches are bounded by what is claimed that a thread spends.
    Short,
    /// It looks at no flag, and no launch is bounded by that.
    Plain,
    /// A gate, where nothing looks: whoever calls one has looked. It spends what is claimed.
    Gate,
}

/// What the statements of a body have to do with fuel, in order.
pub struct Events<'a> {
    kind: Kind,
    look: &'static [&'static str],
    events: Vec<(Event<'a>, Span)>,
    /// What counts the turns of loops, by their numbers.
    counters: Vec<By<'a>>,
    /// The registers that lead to counters, and those that are added to them in each turn.
    watched: HashSet<&'a str>,
    labels: HashSet<&'a str>,
    /// The labels to come that were branched to.
    coming: HashSet<&'a str>,
    /// Those that nothing may go back to any more.
    passed: HashSet<&'a str>,
    span: Span,
}

impl<'a> Events<'a> {
    pub(crate) fn new(kind: Kind, copies: bool, statements: &'a [Statement]) -> Self {
        Self {
            kind,
            look: if copies { &LOOK_AND_WAIT } else { &LOOK },
            events: Vec::new(),
            counters: Vec::new(),
            watched: turns::watched(statements),
            labels: HashSet::default(),
            coming: HashSet::default(),
            passed: HashSet::default(),
            span: Span::default(),
        }
    }

    /// What kind of body it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// All of them, in the order of the text.
    pub fn all(&self) -> impl Iterator<Item = Event<'a>> {
        self.events.iter().map(|(event, _)| *event)
    }

    /// What counts the turns of a loop.
    pub fn counter(&self, number: u32) -> Option<By<'a>> {
        self.counters.get(usize::try_from(number).ok()?).copied()
    }

    /// How many counters there have to be.
    pub(crate) fn counters(&self) -> u32 {
        u32::try_from(self.counters.len()).unwrap_or(u32::MAX)
    }

    /// The statement that what comes is of.
    pub(crate) fn at(&mut self, span: Span) {
        self.span = span;
    }

    fn push(&mut self, event: Event<'a>) {
        if let (Event::Costs(more), Some((Event::Costs(cost), _))) = (event, self.events.last_mut()) {
            *cost = cost.saturating_add(more);
            return;
        }
        self.events.push((event, self.span));
    }

    /// A place that every thread comes by once: nothing goes around it, nor back to before it.
    pub(crate) fn pass(&mut self) -> Result<(), Reason> {
        if !self.coming.is_empty() {
            return Err(unverified("a place that a branch goes around"));
        }
        self.passed = self.labels.clone();
        Ok(())
    }

    /// A call of a gate, which may write anything.
    pub(crate) fn gate(&mut self, cost: u64) {
        self.push(Event::Writes);
        self.costs(cost);
    }

    pub(crate) fn label(&mut self, name: &'a str) {
        self.labels.insert(name);
        self.coming.remove(name);
        self.push(Event::Label(name));
    }

    /// The beginning of a loop that ends by a counter, where one stands here.
    pub(crate) fn opening(&mut self, statements: &'a [Statement]) -> Option<turns::Opening<'a>> {
        let number = self.counters();
        let opening = turns::opening(statements, number)?;
        // Else nobody would have seen them written.
        opening.by.registers().all(|name| self.watched.contains(name)).then_some(())?;
        self.costs(opening.sets.len() as u64);
        self.counters.push(opening.by);
        self.push(Event::Set(number, opening.by));
        Some(opening)
    }

    /// The label of the loop that begins here, whose pointers are proven for so many turns.
    pub(crate) fn checked(&mut self, label: &'a str, turns: u64) -> Result<(), Reason> {
        if self.coming.contains(label) {
            return Err(unverified("a branch around a check of pointers"));
        }
        let counter = self.counters().checked_sub(1).ok_or_else(|| unverified("a check without its loop"))?;
        self.push(Event::Checked(label, counter, turns));
        Ok(())
    }

    /// What goes back to a loop with a counter, where that stands here, and what is left behind it.
    pub(crate) fn closing(
        &mut self,
        statements: &'a [Statement],
    ) -> Result<Option<(turns::Closing<'a>, &'a [Statement])>, Reason> {
        let closing = turns::closing(statements, |number| self.counter(number));
        let Some(closing) = closing else { return Ok(None) };
        self.leads(closing.label)?;
        self.costs(closing.length as u64);
        self.push(Event::Turns(closing.number, closing.label));
        let rest = statements.get(closing.length..).unwrap_or_default();
        Ok(Some((closing, rest)))
    }

    /// What is left after a look at the flag that was loaded at entry, where one stands here.
    pub(crate) fn look(&mut self, statements: &'a [Statement]) -> Option<&'a [Statement]> {
        let rest = strip(statements, self.look).filter(|_| self.kind == Kind::Looks)?;
        self.push(Event::Look(self.look.len() as u64));
        Some(rest)
    }

    /// What is left after a poll, where one stands here.
    pub(crate) fn poll(&mut self, statements: &'a [Statement]) -> Option<&'a [Statement]> {
        let rest = strip(strip(statements, &START)?, self.look).filter(|_| self.kind == Kind::Looks)?;
        self.push(Event::Poll);
        Some(rest)
    }

    /// So many instructions of the guard's own stand here, or one that costs so much.
    pub(crate) fn costs(&mut self, cost: u64) {
        self.push(Event::Costs(cost));
    }

    /// An instruction that is consumed with others writes these registers.
    pub(crate) fn writes(&mut self, instruction: &'a Instruction, writes: &[&'a str]) {
        for name in writes {
            if self.watched.contains(name) {
                self.push(Event::Register(instruction, name));
            }
        }
    }

    /// Any other instruction, which writes these registers.
    pub(crate) fn instruction(
        &mut self,
        row: &Row,
        instruction: &'a Instruction,
        writes: &[&'a str],
    ) -> Result<(), Reason> {
        self.costs(table::cost(row, instruction));
        if table::waits_for_block(row, instruction) {
            self.push(Event::BlockWait(BLOCK_WAIT_COST));
        }
        if table::writes_global(row, instruction) {
            self.push(Event::Writes);
        }
        self.writes(instruction, writes);
        let went = match table::target(row, instruction) {
            Some(target) => self.goes(target),
            None => Ok(()),
        };
        if table::ends_path(row, instruction) {
            self.push(Event::Ends);
        }
        went
    }

    /// Control may go to a label.
    pub(crate) fn goes(&mut self, label: &'a str) -> Result<(), Reason> {
        self.leads(label)?;
        self.push(Event::Goes(label));
        Ok(())
    }

    fn leads(&mut self, label: &'a str) -> Result<(), Reason> {
        if self.passed.contains(label) {
            return Err(unverified("a branch back to before what is done once"));
        }
        if !self.labels.contains(label) {
            self.coming.insert(label);
        }
        Ok(())
    }

    /// For whoever claims: the most that could be claimed to be left at labels besides the terms of `claims`, and the least
    /// that is left anywhere of what is given at first (until the first look, or the end of a gate).
    pub fn left(
        &self,
        claims: &claimed::Fuel,
        turns: impl Fn(&str) -> Option<u64>,
    ) -> (HashMap<&'a str, (i64, Option<i64>)>, i64) {
        checker::left(self, claims, turns)
    }

    /// Whether all is as is claimed. `turns` tells of labels how often they are come to at most, once they were come to from
    /// before.
    ///
    /// # Errors
    /// The first place where it is not.
    pub(crate) fn check(
        &self,
        claims: &claimed::Fuel,
        turns: impl Fn(&str) -> Option<u64>,
    ) -> Result<(), (Span, Reason)> {
        checker::check(self, claims, turns)
    }
}

#[cfg(test)]
mod tests;
