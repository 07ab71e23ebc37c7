//! Ways to labels: what each has to arrive with, and what is known behind a label.

use crate::anchors::Check;
use crate::maps::{HashMap, HashSet};
use crate::numbers::{Numbers, STEP_MAX, Turns, With, Wrong};
use crate::values::number::Number;
use crate::values::refine::Said;
use crate::values::transfer::is_word;
use crate::values::value::{Base, CheckedPointer, Fact, Pointer};
use crate::values::{Bounding, Known as _};

impl<'a> Numbers<'a> {
    /// Here is a label, to which control may come from the statement before.
    pub fn label(&mut self, label: &'a str) {
        self.goes(label);
        self.seen.insert(label);
        (self.cut, self.bounding, self.last) = (false, Bounding::Nothing, Some(label));
        let is_checked = std::mem::take(&mut self.is_checked);
        self.tests.clear();
        // Not cleared: that takes as long as the largest of them was.
        (self.here, self.untested) = (HashMap::default(), HashMap::default());
        (self.moved, self.since) = (HashMap::default(), HashMap::default());
        let Some(claim) = self.labels.get(label) else { return };
        // How often it turns is shown by its ways back, or counted behind a check.
        if !is_checked && claim.turns.as_ref().is_some_and(|turns| turns.counter.is_none()) {
            self.wrong.push(Wrong::Turns(label));
            return;
        }
        for (name, first, step) in claim.turns.iter().flat_map(|turns| &turns.steps) {
            self.moved.insert(name, (name, Number::exactly(0)));
            let stepped = claim.turns.as_ref().and_then(|turns| turns.stepped(name, *first, *step));
            self.here.extend(stepped.map(|fact| (*name, fact)));
        }
        let mut before = None;
        for (name, fact) in &claim.known {
            // Two claims of one register stand one behind the other.
            if before.replace(*name) == Some(*name) {
                self.untested.insert(name, *fact);
                continue;
            }
            let stepped = self.here.get(name).copied();
            self.here.insert(name, stepped.map_or(*fact, |stepped| fact.with(stepped)));
        }
    }

    /// A check of pointers stands here: what it lets through is known.
    pub fn check(&mut self, check: &Check<'a>) {
        self.goes(check.label);
        for step in &check.steps {
            let bound = i128::from(step.bound);
            let zeros = self.number_in(step.register).map_or(0, |known| known.zeros);
            let number = Number::between(-bound, bound - 1).with_zeros(zeros);
            self.here.insert(step.register, Fact::Number(number));
        }
        for anchor in &check.anchors {
            let pointer = CheckedPointer { number: self.checked, writes: anchor.writes, align: anchor.align };
            self.here.insert(anchor.register, Fact::Pointer(Pointer::start(Base::Checked(pointer))));
            self.checked += 1;
        }
        self.is_checked = true;
    }

    /// Control may go from here to a label.
    pub fn goes(&mut self, label: &'a str) {
        let wrong = self.arrives(label, &Said::default());
        self.note(wrong);
    }

    pub(super) fn note(&mut self, wrong: Vec<Wrong<'a>>) {
        // All of them are of one label.
        if let (true, Some(Wrong::Known(label, _))) = (self.tries, wrong.first())
            && let Some(claim) = self.labels.get_mut(label)
        {
            let names: HashSet<&str> = wrong
                .iter()
                .filter_map(|wrong| match wrong {
                    Wrong::Known(_, name) => Some(*name),
                    _ => None,
                })
                .collect();
            claim.known.retain(|(known, _)| !names.contains(known));
        }
        self.wrong.extend(wrong);
    }

    /// What of the claims at a label does not follow from what is known here, and from what a test says besides.
    pub(super) fn arrives(&self, label: &'a str, said: &Said<'a>) -> Vec<Wrong<'a>> {
        let Some(claim) = self.labels.get(label).filter(|_| !self.cut) else { return Vec::new() };
        let steps = claim.turns.as_ref().map_or(&[][..], |turns| &turns.steps);
        if !self.looks_at(claim.count) {
            return vec![Wrong::Many];
        }
        let here = With { numbers: self, said };
        let turns = claim.turns.as_ref().filter(|_| self.seen.contains(label));
        if turns.is_some_and(|turns| !self.turns_again(label, turns, &here)) {
            return vec![Wrong::Turns(label)];
        }
        // Then it was shown that nobody goes back.
        if turns.is_some_and(|turns| turns.most <= 1) {
            return Vec::new();
        }
        // In a turn that is not the first this holds besides.
        let stepped: HashMap<&str, Fact<'a>> = turns
            .into_iter()
            .flat_map(|turns| {
                let far = |(name, first, step): &(&'a str, Fact<'a>, Number)| {
                    Some((*name, turns.stepped(name, *first, *step)?))
                };
                turns.steps.iter().filter_map(far)
            })
            .collect();
        let known = claim.known.iter().filter(|(name, fact)| {
            let known = [here.of_register(name), self.of_register(name), self.untested.get(name).copied()];
            let implies = |known: Fact<'a>| {
                fact.implied_by(stepped.get(name).map_or(known, |stepped| known.with(*stepped)))
            };
            !known.into_iter().flatten().any(implies)
        });
        // One is enough, but for whoever tries them.
        let most = if self.tries { usize::MAX } else { 1 };
        let mut wrong: Vec<_> = known.take(most).map(|(name, _)| Wrong::Known(label, name)).collect();
        let begins = |(name, first, _): &(&str, Fact<'a>, Number)| {
            here.of_register(name).is_some_and(|known| first.implied_by(known))
        };
        if turns.is_none() && !steps.iter().all(begins) {
            wrong.push(Wrong::Turns(label));
        }
        wrong
    }

    /// Whether a way back to a label adds what is claimed, and may be taken once more.
    fn turns_again(&self, label: &str, turns: &Turns<'a>, here: &With<'_, 'a>) -> bool {
        let adds = |(name, _, step): &(&str, Fact<'a>, Number)| {
            self.moved.get(name).is_some_and(|(of, added)| of == name && step.holds(*added))
        };
        if self.last != Some(label) || !turns.steps.iter().all(adds) {
            return false;
        }
        let Some(counter) = turns.counter else { return true };
        // A register that was small before a turn and is small behind it has not wrapped around: its step is too little for that.
        let behind = || {
            let (_, first, step) = turns.steps.iter().find(|(name, ..)| *name == counter)?;
            let (first, now) = (first.small()?, here.small(counter)?);
            let is_little = is_word(counter) && step.low == step.high && step.low.abs() <= STEP_MAX;
            match step.low {
                1.. if is_little => Some((now.high - first.low) / step.low),
                ..=-1 if is_little => Some((first.high - now.low) / -step.low),
                _ => None,
            }
        };
        behind().is_some_and(|behind| behind < i128::from(turns.most))
    }
}
