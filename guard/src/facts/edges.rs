//! Where branches go, where registers are written, and what was known on the ways to labels.

use crate::maps::{HashMap, HashSet};

use std::collections::hash_map::Entry;
use std::rc::Rc;

use super::Fact;
use crate::ast::Statement;
use crate::table;

/// What is known of registers up to the next label.
pub(super) type Passing<'a> = HashMap<&'a str, Option<Fact<'a>>>;

/// What is gone through at all labels together, in registers: at those behind nothing is known that does not hold
/// everywhere. So the time is bounded that loops times registers take.
const KEPT_MAX: usize = 1 << 18;

/// Labels that are gone through to find out whether loops are entered at their own, at most.
const LABELS_MAX: usize = 1 << 20;

/// A loop that is entered at its label only: the statements from that to the last branch back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    /// Where the label stands.
    pub(super) at: usize,
    /// Where that branch does.
    pub(super) last: usize,
}

/// The branches to a label.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ways {
    /// Which statement it is.
    at: usize,
    /// How many go there from before it that were not seen to, and how many from behind it.
    pub(super) before: usize,
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
    pub(super) into: Rc<HashMap<&'a str, Ways>>,
    /// The labels, in order.
    pub(super) labels: Rc<Vec<Ways>>,
    /// The branches that go back, in order: which statement, and that of the label.
    backs: Rc<Vec<(usize, usize)>>,
    looked: usize,
    writes: Rc<HashMap<&'a str, Writes>>,
    /// How many branches from before were seen, and what is known on all of them.
    pub(super) coming: HashMap<&'a str, (usize, Passing<'a>)>,
    /// Labels of which no more is remembered.
    pub(super) lost: HashSet<&'a str>,
    pub(super) remembered: usize,
    /// What was gone through at labels, in registers.
    kept: usize,
    /// Whether control does not come here from the instruction before.
    pub(super) cut: bool,
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
    pub(super) fn ways_mut(&mut self, label: &str) -> Option<&mut Ways> {
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

    /// Where the loop of a label lies, where it is entered there only.
    pub(super) fn closed(&mut self, label: &str) -> Option<Extent> {
        let ways = *self.into.get(label)?;
        if self.looked > LABELS_MAX {
            return None;
        }
        let (closed, looked) = self.is_closed(ways);
        self.looked += looked;
        (self.looked <= LABELS_MAX && closed).then_some(Extent { at: ways.at, last: ways.last })
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
    pub(super) fn left(&self, Extent { at, last }: Extent, mut known: Passing<'a>) -> Passing<'a> {
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
    pub(super) fn may_keep(&mut self, registers: usize) -> bool {
        self.kept = self.kept.saturating_add(registers);
        self.kept <= KEPT_MAX
    }

    /// Has branches be forgotten, or not; answers whether they were.
    pub(super) fn forget(&mut self, cut: bool) -> bool {
        std::mem::replace(&mut self.cut, cut)
    }
}
