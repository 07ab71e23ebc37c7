//! What is known where control comes from several places: at a label that is only gone to from before it, what holds
//! on all ways; behind a branch, what its test says.

use crate::maps::{HashMap, HashSet};

use std::collections::hash_map::Entry;
use std::rc::Rc;

use super::{Fact, Facts};
use crate::ast::{Instruction, Predicate, Statement};
use crate::table::{self, Row};

/// What is known of registers up to the next label.
pub(super) type Passing<'a> = HashMap<&'a str, Option<Fact<'a>>>;

/// What is remembered and joined of all branches together, in registers: beyond that nothing is known where they go but
/// what holds everywhere.
const REMEMBERED_MAX: usize = 1 << 18;
/// What is gone through at all labels together, in registers: at those behind nothing is known that does not hold
/// everywhere. So the time is bounded that loops times registers take.
const KEPT_MAX: usize = 1 << 18;

/// Labels that are gone through to find out whether loops are entered at their own, at most.
const LABELS_MAX: usize = 1 << 20;

/// The branches to a label.
#[derive(Debug, Clone, Copy, Default)]
struct Ways {
    /// Which statement it is.
    at: usize,
    /// How many go there from before it that were not seen to, and how many from behind it.
    before: usize,
    behind: usize,
    /// Where the first and the last stand.
    first: Option<usize>,
    last: usize,
}

/// Where a register is written, in order; most are in one place.
#[derive(Debug, Clone)]
pub(super) struct Writes {
    first: usize,
    more: Vec<usize>,
}

impl Writes {
    /// Where first, and all other places.
    pub(super) fn all(&self) -> impl Iterator<Item = usize> + '_ {
        std::iter::once(self.first).chain(self.more.iter().copied())
    }

    /// The places from one statement to another, with both.
    pub(super) fn between(&self, from: usize, to: usize) -> impl Iterator<Item = usize> + '_ {
        let more = self.more.get(self.more.partition_point(|at| *at < from)..).unwrap_or_default();
        let first = (from <= self.first).then_some(self.first);
        first.into_iter().chain(more.iter().copied()).take_while(move |at| *at <= to)
    }

    /// Where, if that is more than once.
    pub(super) fn several(&self) -> Option<impl Iterator<Item = usize> + '_> {
        (!self.more.is_empty()).then(|| std::iter::once(self.first).chain(self.more.iter().copied()))
    }
}

/// The branches to labels, and where registers are written.
#[derive(Debug, Clone, Default)]
pub(super) struct Edges<'a> {
    pub(super) statements: &'a [Statement],
    into: Rc<HashMap<&'a str, Ways>>,
    /// The labels, in order.
    labels: Rc<Vec<Ways>>,
    /// The branches that go back, in order: which statement, and that of the label.
    backs: Rc<Vec<(usize, usize)>>,
    looked: usize,
    writes: Rc<HashMap<&'a str, Writes>>,
    /// How many branches from before were seen, and what is known on all of them.
    coming: HashMap<&'a str, (usize, Passing<'a>)>,
    /// Labels of which no more is remembered.
    lost: HashSet<&'a str>,
    remembered: usize,
    /// What was gone through at labels, in registers.
    kept: usize,
    /// Whether control does not come here from the instruction before.
    cut: bool,
}

impl<'a> Edges<'a> {
    /// Of a body. What goes back to a label that `begins` has goes back to what it says too.
    pub(super) fn of(statements: &'a [Statement], begins: &'a HashMap<String, String>) -> Self {
        let mut edges = Self { statements, ..Self::default() };
        let mut seen: HashSet<&str> = HashSet::default();
        let mut into: HashMap<&str, Ways> = HashMap::default();
        let mut backs = Vec::new();
        let mut writes: HashMap<&str, Writes> = HashMap::default();
        for (at, statement) in statements.iter().enumerate() {
            match statement {
                Statement::Label(name, _) => {
                    seen.insert(name);
                    into.entry(name).or_default().at = at;
                }
                Statement::Instruction(instruction) => {
                    let Some(row) = table::row_of(instruction) else { continue };
                    table::written(row, instruction, &mut |name| match writes.entry(name) {
                        Entry::Occupied(known) => known.into_mut().more.push(at),
                        Entry::Vacant(new) => {
                            new.insert(Writes { first: at, more: Vec::new() });
                        }
                    });
                    let target = table::target(row, instruction);
                    let begin =
                        target.filter(|target| seen.contains(target)).and_then(|target| begins.get(target));
                    for target in target.into_iter().chain(begin.map(String::as_str)) {
                        let ways = into.entry(target).or_default();
                        if seen.contains(target) {
                            ways.behind += 1;
                            backs.push((at, ways.at));
                        } else {
                            ways.before += 1;
                        }
                        ways.first.get_or_insert(at);
                        ways.last = at;
                    }
                }
                Statement::Variable(_) | Statement::Directive(_) | Statement::Block(..) => {}
            }
        }
        (edges.writes, edges.backs) = (Rc::new(writes), Rc::new(backs));
        let mut labels: Vec<Ways> = seen.into_iter().filter_map(|name| into.get(name).copied()).collect();
        labels.sort_unstable_by_key(|ways| ways.at);
        (edges.into, edges.labels) = (Rc::new(into), Rc::new(labels));
        edges
    }

    /// How many entries a copy has of its own.
    pub(super) fn size(&self) -> usize {
        self.coming.len() + self.lost.len()
    }

    /// The ways to a label, to be changed.
    fn ways_mut(&mut self, label: &str) -> Option<&mut Ways> {
        Rc::make_mut(&mut self.into).get_mut(label)
    }

    /// Where registers are written.
    pub(super) fn writes(&self) -> &HashMap<&'a str, Writes> {
        &self.writes
    }

    /// How many branches go to a label from before it that were not seen to, and how many go back to it.
    pub(super) fn ways(&self, label: &str) -> (usize, usize) {
        self.into.get(label).map_or((0, 0), |ways| (ways.before, ways.behind))
    }

    /// From where to where a loop lies that is entered at its label only: to where the last branch goes back.
    pub(super) fn closed(&mut self, label: &str) -> Option<(usize, usize)> {
        let ways = *self.into.get(label)?;
        if self.looked > LABELS_MAX {
            return None;
        }
        let (closed, looked) = self.is_closed(ways);
        self.looked += looked;
        (self.looked <= LABELS_MAX && closed).then_some((ways.at, ways.last))
    }

    /// Whether a loop is, and how many labels lie inside.
    fn is_closed(&self, Ways { at, last, .. }: Ways) -> (bool, usize) {
        let begin = self.labels.partition_point(|ways| ways.at <= at);
        let end = self.labels.partition_point(|ways| ways.at <= last);
        let inside = self.labels.get(begin..end).unwrap_or_default();
        let closed = |ways: &Ways| ways.first.is_none_or(|first| first >= at && ways.last <= last);
        (inside.iter().all(closed), inside.len())
    }

    /// What of this such a loop leaves as it is.
    pub(super) fn left(&self, (at, last): (usize, usize), mut known: Passing<'a>) -> Passing<'a> {
        known.retain(|name, _| !self.is_written(name, at, last));
        known
    }

    /// Whether a register is written from one statement to another.
    pub(super) fn is_written(&self, name: &str, from: usize, to: usize) -> bool {
        self.writes.get(name).is_some_and(|writes| writes.between(from, to).next().is_some())
    }

    /// The branches from one statement to another that go back.
    pub(super) fn backs(&self, from: usize, to: usize) -> &[(usize, usize)] {
        let begin = self.backs.partition_point(|(at, _)| *at < from);
        let end = self.backs.partition_point(|(at, _)| *at <= to);
        self.backs.get(begin..end).unwrap_or_default()
    }

    /// Whether the loop of the label that stands there is entered from the statement before that only, and how many labels
    /// lie inside.
    pub(super) fn is_run_into(&self, at: usize) -> (bool, usize) {
        let Some(Statement::Label(name, _)) = self.statements.get(at) else { return (false, 0) };
        let ways = self.into.get(name.as_str()).filter(|ways| ways.first.is_some_and(|first| first > at));
        ways.map_or((false, 0), |ways| self.is_closed(*ways))
    }

    /// Whether so many registers may be gone through at one more label.
    fn may_keep(&mut self, registers: usize) -> bool {
        self.kept = self.kept.saturating_add(registers);
        self.kept <= KEPT_MAX
    }

    /// Has branches be forgotten, or not; answers whether they were.
    pub(super) fn forget(&mut self, cut: bool) -> bool {
        std::mem::replace(&mut self.cut, cut)
    }
}

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

    /// With what a predicate says there.
    fn goes_with(&mut self, label: &'a str, taken: Option<(&str, bool)>) {
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
        if let Some((predicate, holds)) = taken {
            there.extend(self.said(predicate, holds));
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
                Some(Predicate { register, negated }) => {
                    self.goes_with(target, Some((register, !negated)));
                    let otherwise = self.said(register, *negated);
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
