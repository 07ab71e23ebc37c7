//! What is known where control comes from several places: at a label that is only gone to from before it, what holds
//! on all ways; behind a branch, what its test says.

use super::Facts;
use super::edges::Passing;
use crate::ast::{Instruction, Predicate};
use crate::table::{self, Row};

/// What is remembered and joined of all branches together, in registers: beyond that nothing is known where they go but
/// what holds everywhere.
const REMEMBERED_MAX: usize = 1 << 18;

impl<'a> Facts<'a> {
    /// What is known at a label on all ways that come to it from before, the one that runs on into it among them;
    /// nothing where one of them was not seen.
    pub(super) fn arrive(&mut self, label: &str) -> Passing<'a> {
        let here = std::mem::take(&mut self.passing);
        let cut = std::mem::take(&mut self.edges.cut);
        self.tests.clear();
        let is_lost = self.edges.lost.remove(label);
        if !self.edges.may_keep(here.len()) || is_lost {
            self.edges.coming.remove(label);
            self.edges.ways_mut(label).into_iter().for_each(|ways| ways.before = 0);
            return Passing::default();
        }
        let expected = self.edges.ways_mut(label).map_or(0, |ways| std::mem::take(&mut ways.before));
        match self.edges.coming.remove(label) {
            None if expected == 0 && !cut => here,
            Some((seen, known)) if seen == expected => {
                let mut known = if cut { known } else { join(known, &here) };
                // What is known at all times may say more than what the ways have in common.
                known.retain(|name, fact| {
                    !fact.zip(self.known.get(name)).is_some_and(|(fact, ever)| fact.holds(*ever))
                });
                known
            }
            _ => Passing::default(),
        }
    }

    /// Control does not go on with the next instruction.
    pub(crate) fn end(&mut self) {
        self.edges.cut = true;
    }

    /// Control may go from here to a label.
    pub(crate) fn goes(&mut self, label: &'a str) {
        self.goes_with(label, None);
    }

    /// With what the predicate of the branch says there.
    fn goes_with(&mut self, label: &'a str, taken: Option<&Predicate>) {
        // Of ways back nothing is remembered.
        if self.edges.cut || self.edges.into.get(label).is_none_or(|ways| ways.before == 0) {
            return;
        }
        if self.edges.lost.contains(label) {
            return;
        }
        let known = self.edges.coming.get(label).map_or(0, |(_, known)| known.len());
        self.edges.remembered += self.passing.len() + known;
        if self.edges.remembered > REMEMBERED_MAX {
            self.edges.coming.remove(label);
            self.edges.lost.insert(label);
            return;
        }
        let mut there = self.passing.clone();
        if let Some(Predicate { register, negated }) = taken {
            there.extend(self.said(register, !negated));
        }
        match self.edges.coming.get_mut(label) {
            Some((seen, known)) => {
                *seen += 1;
                *known = join(std::mem::take(known), &there);
            }
            None => {
                self.edges.coming.insert(label, (1, there));
            }
        }
    }

    /// What follows of registers where a predicate holds, or does not.
    pub(super) fn said(&self, predicate: &str, holds: bool) -> Passing<'a> {
        let said = self.tests.said(self, predicate, holds).unwrap_or_default();
        said.into_iter().map(|(name, fact)| (name, Some(fact))).collect()
    }

    /// What an instruction says where control goes, and what its predicates will say.
    pub(super) fn tests(&mut self, row: &Row, instruction: &'a Instruction) {
        if let Some(target) = table::target(row, instruction) {
            match &instruction.predicate {
                None => {
                    self.goes(target);
                    self.end();
                }
                Some(predicate) => {
                    self.goes_with(target, Some(predicate));
                    let otherwise = self.said(&predicate.register, predicate.negated);
                    self.passing.extend(otherwise);
                }
            }
            return;
        }
        if table::ends_path(row, instruction) {
            return self.end();
        }
        let mut tests = std::mem::take(&mut self.tests);
        tests.learn(self, row, instruction);
        self.tests = tests;
    }
}

/// What holds on both of two ways. What is known of a register on one of them only is left to what is known of it
/// everywhere.
fn join<'a>(mut one: Passing<'a>, other: &Passing<'a>) -> Passing<'a> {
    one.retain(|name, fact| match (fact, other.get(name)) {
        (Some(known), Some(Some(there))) => known.or(*there).map(|joined| *known = joined).is_some(),
        (Some(_), _) => false,
        (None, _) => true,
    });
    one.extend(other.iter().filter(|(_, fact)| fact.is_none()).map(|(name, _)| (*name, None)));
    one
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::rc::Rc;

    use super::*;
    use crate::ast::Item;

    #[test]
    fn a_copy_has_no_labels_of_its_own_and_its_size_counts_what_it_has() {
        // As many loops as there are: each is tried with a copy.
        let loops: String =
            (0..100).map(|index| format!("L{index}: @%p bra L{index};\n@%p bra E;\n")).collect();
        let text = format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n.entry k()\n{{\n.reg .pred %p;\n{loops}E: ret;\n}}\n"
        );
        let module = bulkhead_ptx::parse(&text).unwrap();
        let Some(Item::Function(function)) = module.items.first() else { panic!("no entry") };
        let body = function.body.as_deref().unwrap();
        let mut facts = Facts::of(body);
        let before = facts.size();
        facts.goes("E");
        assert_eq!(facts.size(), before + 1);
        let copy = facts.clone();
        assert!(
            Rc::ptr_eq(&copy.edges.into, &facts.edges.into)
                && Rc::ptr_eq(&copy.edges.labels, &facts.edges.labels)
        );
        // What is seen of one is not seen of the other.
        facts.arrive("E");
        assert_eq!((facts.edges.ways("E"), copy.edges.ways("E")), ((0, 0), (100, 0)));
    }
}
