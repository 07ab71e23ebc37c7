//! What stands in the guard's own forms: where lanes meet, zeroing, polls, how loops begin and go back that end by a counter,
//! and what a fast version checks: parameters that are bounded, pointers.

use crate::anchors::{self, Check};
use crate::ast::{Instruction, Operand, Statement};
use crate::body::{Pass, ZEROED};
use crate::limits::BOUND_TERMS_MAX;
use crate::meets::Met;
use crate::names::{self, Class};
use crate::refusal::unverified;
use crate::report::Reason;
use crate::table;
use crate::turns::Opening;
use crate::values::{Known as _, Root};
use crate::{bounds, declarations};

impl<'a> Pass<'a> {
    /// What is left where lanes of a warp meet, or find out which of them are here.
    pub(super) fn gathers(
        &mut self,
        first: &Instruction,
        here: &'a [Statement],
    ) -> Result<Option<&'a [Statement]>, Reason> {
        let begins = matches!(first.opcode.as_str(), "bar" | "match");
        if !begins || !self.lead.is_empty() || self.left {
            return Ok(None);
        }
        let Some((met, rest)) = self.lanes.meets(here, self.awaits.is_some()) else { return Ok(None) };
        match met {
            Met::Whole => self.whole = true,
            Met::Others => {}
            Met::Fewer => self.whole = false,
        }
        let gathered = here.get(..here.len() - rest.len()).unwrap_or_default();
        for found in gathered {
            let Statement::Instruction(line) = found else { continue };
            self.fuel.costs(table::cost(table::check(line)?, line));
            // A mask in a register is the tenant's.
            if line.opcode == "match"
                && let Some(Operand::Register(mask)) = line.operands.get(1)
            {
                if !matches!(Class::parse(mask), Some((Class::Word, _))) {
                    return Err(unverified("a mask of lanes that is no register of 32 bits"));
                }
                self.assigned(&[mask.as_str()], &[])?;
            }
        }
        self.awaits = self.awaits.map(|_| None);
        Ok(Some(rest))
    }

    /// What has to do with the flag: a look, a poll, how a loop begins or goes back that ends by a counter. Answers what
    /// is left behind it.
    pub(super) fn flag(&mut self, here: &'a [Statement]) -> Result<Option<&'a [Statement]>, Reason> {
        if self.left
            && let Some(after) = declarations::zeroes_shared(&self.declared, here)
        {
            self.fuel.pass()?;
            // It ends with a barrier for all lanes of each warp.
            if !self.lanes.together() {
                return Err(unverified(
                    "shared memory that is zeroed where lanes of a warp may be elsewhere",
                ));
            }
            self.left = false;
            self.apart();
            return Ok(Some(self.over(here, after)));
        }
        if let Some(after) = self.fuel.poll(here).or_else(|| self.fuel.look(here)) {
            self.whole = false;
            self.cleared()?;
            return Ok(Some(self.over(here, after)));
        }
        if let Some((after, cost)) = declarations::zeroes_local(&self.declared, here) {
            self.fuel.costs(cost);
            self.flow.write(ZEROED);
            return Ok(Some(self.over(here, after)));
        }
        if let Some((root, most)) = bounds::parse(here).filter(|_| self.is_fast) {
            return self.bound(root, most, here).map(Some);
        }
        if let Some((check, count)) = Check::parse(here) {
            return self.check(&check, count, here).map(Some);
        }
        if let Some(opening) = self.fuel.opening(here) {
            self.open(&opening)?;
            self.begin(&opening)?;
            return Ok(Some(opening.rest));
        }
        self.closing(here)
    }

    /// What is left behind how a loop goes back that ends by a counter.
    fn closing(&mut self, here: &'a [Statement]) -> Result<Option<&'a [Statement]>, Reason> {
        let Some((closing, after)) = self.fuel.closing(here)? else { return Ok(None) };
        self.apart();
        if !self.labels.contains(closing.label) {
            return Err(unverified("a branch back to what is no label"));
        }
        self.tests(closing.reads)?;
        // The counter, and the register that it is compared with, were written where it was set, or `fuel` refuses: only what
        // came by there has fuel for it.
        for statement in here.iter().take(closing.length) {
            if let Statement::Instruction(line) = statement {
                self.numbers.learn(line);
            }
        }
        self.numbers.are_right()?;
        self.goes_to(closing.label)?;
        Ok(Some(after))
    }

    /// A branch back asks a predicate: the tenant's, since what the guard's say is nobody's to know.
    fn tests(&mut self, predicate: Option<&'a str>) -> Result<(), Reason> {
        // Of another class it is none of the guard's either: ptxas refuses it.
        if predicate.is_some_and(names::is_reserved) {
            return Err(unverified("a branch back on a predicate of the guard's"));
        }
        self.assigned(predicate.as_slice(), &[])
    }

    /// Threads end here that are given more of a parameter than a bound, which is asked of the launch.
    fn bound(&mut self, root: Root<'a>, most: u32, here: &'a [Statement]) -> Result<&'a [Statement], Reason> {
        let without = || unverified("a bound on a parameter without its lines");
        // That the word lies in its parameter is checked where it is loaded, directly behind. Who has copies would have to
        // wait for them.
        if self.awaits.is_some() {
            return Err(unverified("a bound on a parameter where copies may be on their way"));
        }
        self.cleared()?;
        let known = self.terms.bounds.entry(root).or_insert(most);
        *known = most.min(*known);
        if self.terms.bounds.len() > BOUND_TERMS_MAX {
            return Err(unverified("a fast version with too many terms"));
        }
        let (lines, rest) = here.split_at_checked(bounds::LENGTH).ok_or_else(without)?;
        self.fuel.costs(lines.len() as u64);
        for line in lines {
            if let Statement::Instruction(line) = line {
                self.numbers.learn(line);
                let mut writes = Vec::new();
                table::written(table::check(line)?, line, &mut |name| writes.push(name));
                self.fuel.writes(line, &writes);
            }
        }
        Ok(rest)
    }

    /// A loop that ends by a counter begins.
    fn open(&mut self, opening: &Opening<'a>) -> Result<(), Reason> {
        self.apart();
        if let Some((step, most)) = opening.step
            && !self.numbers.is_between(step, 1, most)
        {
            return Err(unverified("a step that may be none, or too far"));
        }
        for statement in opening.sets {
            let Statement::Instruction(instruction) = statement else { continue };
            let mut reads = Vec::new();
            let row = table::check(instruction)?;
            table::registers(row, instruction, &mut |name| reads.push(name), &mut |_| {});
            self.assigned(&reads, &[])?;
        }
        self.flow.label(opening.label);
        Ok(())
    }

    /// Its counter is set, and its label stands there.
    fn begin(&mut self, opening: &Opening<'a>) -> Result<(), Reason> {
        for statement in opening.sets {
            if let Statement::Instruction(line) = statement {
                self.numbers.learn(line);
            }
        }
        self.fuel.label(opening.label);
        self.numbers.label(opening.label);
        self.numbers.are_right()
    }

    /// A check of pointers, directly before a loop that ends by a counter and has no labels inside.
    fn check(
        &mut self,
        check: &Check<'a>,
        count: usize,
        here: &'a [Statement],
    ) -> Result<&'a [Statement], Reason> {
        let without = || unverified("a check without its loop");
        if !self.is_fast {
            return Err(without());
        }
        let anchors = check.anchors.iter().map(|anchor| anchor.register);
        let read: Vec<&str> = anchors.chain(check.steps.iter().map(|step| step.register)).collect();
        let (_, rest) = here.split_at_checked(count).ok_or_else(without)?;
        self.fuel.costs(count as u64);
        if !self.labels.contains(check.label) {
            return Err(without());
        }
        self.fuel.goes(check.label)?;
        let opening = self.fuel.opening(rest).ok_or_else(without)?;
        anchors::turns(opening.rest, opening.label).ok_or_else(without)?;
        self.numbers.check(check);
        let turns = self.numbers.turns_of_checked(opening.label);
        let turns = turns.ok_or_else(|| unverified("a pointer whose turns were not checked"))?;
        self.fuel.checked(opening.label, turns)?;
        self.begin(&opening)?;
        self.assigned(&read, &[])?;
        self.goes_to(check.label)?;
        self.open(&opening)?;
        Ok(opening.rest)
    }
}
