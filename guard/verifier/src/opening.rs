//! What stands before loops that end by a counter, and what a fast version checks: parameters that are bounded, pointers.

use crate::anchors::{self, Check};
use crate::ast::{Space, Statement};
use crate::body::Pass;
use crate::bounds;
use crate::limits::BOUND_TERMS_MAX;
use crate::refusal::unverified;
use crate::report::Reason;
use crate::table;
use crate::turns::Opening;
use crate::values::{Known as _, Root};

impl<'a> Pass<'a> {
    /// Threads end here that are given more of a parameter than a bound, which is asked of the launch.
    pub(crate) fn bound(
        &mut self,
        root: Root<'a>,
        most: u32,
        here: &'a [Statement],
    ) -> Result<&'a [Statement], Reason> {
        let without = || unverified("a bound on what is no word of a parameter");
        let extent = self.declared.extents.get(root.parameter);
        let extent = extent.filter(|extent| extent.space == Space::Parameter);
        let end = u64::try_from(root.offset).ok().filter(|offset| offset.is_multiple_of(4));
        let end = end.and_then(|offset| offset.checked_add(4));
        let inside = extent.zip(end).is_some_and(|(extent, end)| extent.align >= 4 && end <= extent.bytes);
        // Who has copies would have to wait for them.
        if !inside || self.awaits.is_some() {
            return Err(without());
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
    pub(crate) fn open(&mut self, opening: &Opening<'a>) -> Result<(), Reason> {
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
    pub(crate) fn begin(&mut self, opening: &Opening<'a>) -> Result<(), Reason> {
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
    pub(crate) fn check(
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
