//! Works out where all lanes that are left of a warp come to, whether they go there side by side or not.
//!
//! Lanes are together where a kernel begins. They stay so at a branch that goes by what is the same for all of them
//! ([`same`]), there and back. Where they take different ways further down, they are together again where all those ways
//! have met, if nothing waited on any of them: whoever is not there yet is on the way, and waits for nobody. The same holds
//! behind a loop in which nothing waits, however many turns each of them takes. Behind a barrier of the block they are
//! together, as they have to be before it.
//!
//! What is taken for granted of loops and registers is so until a pass finds that it is not; then all is looked at again.

use super::same::Values;
use bulkhead_verifier::claims::Uniformity;

use crate::ast::{Instruction, Statement};
use crate::maps::HashMap;
use crate::table::{self, Row, Treatment};
use bulkhead_verifier::convergence::behind_question;
use bulkhead_verifier::declarations::is_of_zeroing;

/// Ways that are followed at once, at most.
const WAYS_MAX: usize = 32;
/// How often a body is looked at, at most; after that nothing is taken for granted.
const ROUNDS_MAX: usize = 12;

/// What a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body {
    /// An entry. Lanes that are not all at a barrier of the block will be asked there.
    Unasked,
    /// An entry as it is.
    Entry,
    /// A gate, which lanes come to apart.
    Gate,
}

/// What was found of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// Nothing.
    Unknown,
    /// All are here.
    Here,
    /// All are on the way to places further down.
    Apart,
}

/// Before which statements of a body all that are left of a warp are together, and which registers hold the same in them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Together {
    /// How lanes come to each statement, and how they go on from it where it is a label.
    marks: Vec<(Mark, Mark)>,
    pub(super) registers: HashMap<String, Uniformity>,
}

impl Together {
    /// Of a body; of one in which nothing waits for others nothing is known. Where warps are `rows`, no two of a block's rows
    /// have a warp in common: it is a multiple of 32 wide, or has one row.
    pub(crate) fn of(statements: &[Statement], body: Body, rows: bool) -> Self {
        Pass::of(statements, body, rows).map_or_else(Self::default, Pass::run)
    }

    /// Of an entry as it is; and where that is another, of one whose warps are rows.
    pub(super) fn with_rows(statements: &[Statement]) -> (Self, Option<Self>) {
        let Some(pass) = Pass::of(statements, Body::Entry, false) else { return (Self::default(), None) };
        // Blocks of all widths have barriers: those are not worth a term.
        let by_rows = pass.values.by_rows() && statements.iter().any(waits_for_lanes);
        let together = pass.run();
        let differs = |rows: &Self| {
            let here = |marks: &(Mark, Mark)| marks.0 == Mark::Here;
            !rows.marks.iter().map(here).eq(together.marks.iter().map(here))
        };
        let rows = by_rows.then(|| Self::of(statements, Body::Entry, true)).filter(differs);
        (together, rows)
    }

    /// Whether they are together before a statement.
    pub(crate) fn holds(&self, index: usize) -> bool {
        self.marks.get(index).is_some_and(|(arrives, _)| *arrives == Mark::Here)
    }

    /// How lanes come to a statement; where it is a label, how they go on from it.
    pub(super) fn mark(&self, index: usize) -> Option<Mark> {
        self.marks.get(index).map(|(_, mark)| *mark)
    }
}

/// What an instruction is for those who go together.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// It goes on.
    On,
    /// A label, and which loop begins there.
    Label(Option<usize>),
    /// One of the zeroing, to which nothing else goes.
    Zeroing(Option<usize>),
    /// It may go elsewhere: to a statement, or to what loop begins there.
    Forward(usize),
    Back(usize),
    /// Lanes wait for one another.
    Wait,
    /// All of the block do.
    Block,
    /// Nothing is known of what it does.
    Gate,
}

/// A loop.
#[derive(Debug)]
struct Loop {
    /// Behind the last that goes back to its label.
    end: usize,
    waits: bool,
    /// Whether lanes leave it together, as far as is known.
    level: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Unknown,
    /// All are here.
    Here,
    /// All are here or on the way to these statements.
    Apart(Vec<usize>),
}

/// Where each label is; none where one is in two places.
fn labels(statements: &[Statement]) -> Option<HashMap<&str, usize>> {
    let mut labels: HashMap<&str, usize> = HashMap::default();
    for (index, statement) in statements.iter().enumerate() {
        if let Statement::Label(name, _) = statement
            && labels.insert(name, index).is_some()
        {
            return None;
        }
    }
    Some(labels)
}

/// Notes which loops wait, and at the label of each which loop that is: heads are their labels.
fn find_heads(heads: HashMap<usize, usize>, loops: &mut [Loop], steps: &mut [Step]) {
    // How many wait before each statement.
    let mut waiting = vec![0_usize];
    for step in &*steps {
        let waits = matches!(step, Step::Wait | Step::Block | Step::Gate);
        waiting.push(waiting.last().copied().unwrap_or(0) + usize::from(waits));
    }
    for (at, number) in heads {
        let Some(found) = loops.get_mut(number) else { continue };
        found.waits = waiting.get(at) != waiting.get(found.end);
        if let Some(Step::Label(head) | Step::Zeroing(head)) = steps.get_mut(at) {
            *head = Some(number);
        }
    }
}

struct Pass<'a> {
    body: Body,
    steps: Vec<Step>,
    loops: Vec<Loop>,
    values: Values<'a>,
    /// Behind which statements all have been asked.
    asked: Vec<usize>,
    state: State,
    /// Of each statement, whether lanes are on their way there while others may wait.
    waited: Vec<bool>,
    marks: Vec<(Mark, Mark)>,
    changed: bool,
}

impl<'a> Pass<'a> {
    /// `None` where nothing waits for others, a branch goes by an index, or labels are not each in one place.
    fn of(statements: &'a [Statement], body: Body, rows: bool) -> Option<Self> {
        let known = |statement: &'a Statement| match statement {
            Statement::Instruction(found) => Some((table::row_of(found)?, found)),
            _ => None,
        };
        let waits = |(row, found): (&Row, &Instruction)| {
            table::waits_for_lanes(row, found) || table::is_for_warps(row)
        };
        let blocks = |(row, found): (&Row, &Instruction)| table::waits_for_block(row, found);
        if !statements.iter().filter_map(known).any(|found| waits(found) || blocks(found)) {
            return None;
        }
        let labels = labels(statements)?;
        let (mut loops, mut heads): (Vec<Loop>, HashMap<usize, usize>) = (Vec::new(), HashMap::default());
        let mut steps = Vec::with_capacity(statements.len());
        let mut values = Values::with(statements.len(), rows);
        let mut asked = Vec::new();
        for (index, statement) in statements.iter().enumerate() {
            let Some((row, found)) = known(statement) else {
                steps.push(match statement {
                    Statement::Label(..) if is_of_zeroing(statement) => Step::Zeroing(None),
                    Statement::Label(..) => Step::Label(None),
                    _ => Step::On,
                });
                values.add(None);
                continue;
            };
            values.add(Some((row, found)));
            steps.push(match row.treatment {
                Treatment::Branch => {
                    let target = *labels.get(table::target(row, found)?)?;
                    if target > index && ends(statements.get(target + 1..).unwrap_or_default()) {
                        // Whoever goes there is none of those that are left.
                        Step::On
                    } else if target > index {
                        Step::Forward(target)
                    } else {
                        let fresh = loops.len();
                        let number = *heads.entry(target).or_insert(fresh);
                        if number == fresh {
                            loops.push(Loop { end: 0, waits: false, level: true });
                        }
                        if let Some(found) = loops.get_mut(number) {
                            found.end = index + 1;
                        }
                        Step::Back(number)
                    }
                }
                Treatment::Gate => Step::Gate,
                _ if table::waits_for_block(row, found) || table::is_for_all_left(found) => Step::Block,
                _ if waits((row, found)) => {
                    asked.extend(
                        statements
                            .get(index..)
                            .and_then(behind_question)
                            .map(|statements| index + statements),
                    );
                    Step::Wait
                }
                _ => Step::On,
            });
        }
        find_heads(heads, &mut loops, &mut steps);
        values.end();
        let waited = vec![false; steps.len() + 1];
        let marks = vec![(Mark::Unknown, Mark::Unknown); steps.len()];
        let state = State::Unknown;
        Some(Self { body, steps, loops, values, asked, state, waited, marks, changed: false })
    }

    /// Looks at the body until nothing is taken for granted that is not so.
    fn run(mut self) -> Together {
        let settled = (0..ROUNDS_MAX).any(|_| !self.round());
        if !settled {
            self.doubt();
            self.round();
        }
        Together { marks: self.marks, registers: self.values.registers() }
    }

    /// Takes nothing for granted any more.
    fn doubt(&mut self) {
        self.loops.iter_mut().for_each(|found| found.level = false);
        self.values.doubt();
    }

    /// Goes through the body. Answers whether something was not as it was taken for granted.
    fn round(&mut self) -> bool {
        self.state = if self.body == Body::Gate { State::Unknown } else { State::Here };
        self.waited.fill(false);
        self.values.begin();
        self.changed = false;
        for index in 0..self.steps.len() {
            self.arrive(index);
            let (arrives, here) = (self.mark(), self.state == State::Here);
            if let Some(step) = self.steps.get(index).copied() {
                self.step(index, step);
                let is_label = matches!(step, Step::Label(_) | Step::Zeroing(_));
                let goes_on = if is_label { self.mark() } else { arrives };
                if let Some(mark) = self.marks.get_mut(index) {
                    *mark = (arrives, goes_on);
                }
            }
            self.changed |= self.values.learn(index, here);
        }
        self.changed
    }

    fn mark(&self) -> Mark {
        match self.state {
            State::Unknown => Mark::Unknown,
            State::Here => Mark::Here,
            State::Apart(_) => Mark::Apart,
        }
    }

    /// Whoever was on the way to a statement is there.
    fn arrive(&mut self, index: usize) {
        if self.asked.binary_search(&index).is_ok() {
            self.waits();
            self.state = State::Here;
        }
        if self.waited.get(index).is_some_and(|waited| *waited) {
            self.part();
        } else if let State::Apart(ways) = &mut self.state {
            ways.retain(|to| *to != index);
            if ways.is_empty() {
                self.state = State::Here;
            }
        }
    }

    fn step(&mut self, index: usize, step: Step) {
        match step {
            Step::On => {}
            Step::Label(head) | Step::Zeroing(head) => {
                self.values.label(matches!(step, Step::Zeroing(_)));
                if let Some(head) = head {
                    self.enter(head);
                }
            }
            Step::Forward(to) => {
                if !(self.state == State::Here && self.values.is_same_way(index)) {
                    self.goes(to);
                }
            }
            Step::Back(head) => self.back(head, index),
            Step::Wait => self.waits(),
            Step::Block if self.body == Body::Unasked => {
                self.waits();
                self.state = State::Here;
            }
            Step::Block => self.waits(),
            Step::Gate => self.part(),
        }
    }

    /// A loop begins.
    fn enter(&mut self, head: usize) {
        let here = self.state == State::Here;
        let Some(found) = self.loops.get_mut(head) else { return };
        if found.level && !here {
            found.level = false;
            self.changed = true;
        }
        let Loop { end, waits, level } = *found;
        if waits && !level {
            self.part();
        } else if !level {
            // Whoever turns comes out of it; or ends, or goes to where it was seen to go.
            self.goes(end);
        }
    }

    /// A turn of a loop ends.
    fn back(&mut self, head: usize, index: usize) {
        let level = self.state == State::Here && self.values.is_same_way(index);
        let Some(found) = self.loops.get_mut(head) else { return };
        if found.level && !level {
            found.level = false;
            self.changed = true;
        }
        if !found.level && found.waits {
            self.part();
        }
    }

    /// Nothing is known any more.
    fn part(&mut self) {
        self.waits();
        self.state = State::Unknown;
    }

    /// Something waits here: whoever is on another way may come to where all would be together, and wait there.
    fn waits(&mut self) {
        if let State::Apart(ways) = &mut self.state {
            let ways = std::mem::take(ways);
            self.state = State::Unknown;
            ways.into_iter().for_each(|to| self.wait_for(to));
        }
    }

    fn wait_for(&mut self, to: usize) {
        if let Some(waited) = self.waited.get_mut(to) {
            *waited = true;
        }
    }

    /// Some go to a statement further down.
    fn goes(&mut self, to: usize) {
        match &mut self.state {
            State::Unknown => self.wait_for(to),
            State::Here => self.state = State::Apart(vec![to]),
            State::Apart(ways) if ways.contains(&to) => {}
            State::Apart(ways) => {
                ways.push(to);
                if ways.len() > WAYS_MAX {
                    self.part();
                }
            }
        }
    }
}

/// Whether a statement waits for lanes of its warp, or is for whole warps.
pub(crate) fn waits_for_lanes(statement: &Statement) -> bool {
    let Statement::Instruction(found) = statement else { return false };
    table::row_of(found).is_some_and(|row| table::waits_for_lanes(row, found) || table::is_for_warps(row))
}

/// Whether a thread that comes here ends, and waits for nobody before.
pub(super) fn ends(statements: &[Statement]) -> bool {
    let is = |index: usize, opcode: &str, modifiers: &[&str]| {
        matches!(statements.get(index), Some(Statement::Instruction(found))
            if found.predicate.is_none() && found.opcode == opcode && found.modifiers == modifiers)
    };
    let at = usize::from(is(0, "cp", &["async", "wait_all"]));
    is(at, "ret", &[]) || is(at, "exit", &[])
}
