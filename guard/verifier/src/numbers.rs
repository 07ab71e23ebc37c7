//! What is known of the numbers in registers, of which the checker believes nothing that is claimed.
//!
//! Two kinds of claims. *Always*: whatever is ever written to a register is so. Each write is checked. No register is read
//! before it is written, so what is read was written before, and by induction over the instructions that a thread executes
//! each claim holds wherever its register is read. *At a label*: each way there is checked, the one from the statement
//! before and every branch, forth and back. Behind the label that is what is known, and nothing else.
//!
//! Between labels one pass follows the text. A loop needs nothing more than that: what its ways back arrive with has to
//! imply what its label claims. For registers that every turn adds to, a label may claim how often its loop turns at most,
//! what each of them is at first, and between what lies what a turn adds (`Turns`). The turns that a thread has behind it
//! are a number `t` that nobody stores. A way in has `t = 0`. A way back has to add to each register what is claimed, and to
//! show that one more turn is allowed: by a register that counts, of which the tests on the way say how far it may be.

use std::cell::Cell;

use crate::ast::{Address, AddressBase, Instruction, Operand, Predicate, Statement};
use crate::claims::numbers as claimed;
use crate::maps::{HashMap, HashSet};
use crate::names::{self, Class};
use crate::refusal::unverified;
use crate::report::Reason;
use crate::table::{self, Row};
use crate::values::number::{self, Number, Sign, Width};
use crate::values::refine::{Said, Tests};
use crate::values::transfer::is_word;
use crate::values::value::{Fact, Pointer};
use crate::values::{Bounding, Known};

/// What a label's loop adds in each turn.
struct Turns<'a> {
    most: u64,
    counter: Option<&'a str>,
    steps: Vec<(&'a str, Fact<'a>, Number)>,
}

impl<'a> Turns<'a> {
    /// What a register is in any turn that each adds this to; none where it may wrap around.
    fn stepped(&self, name: &str, first: Fact<'a>, step: Number) -> Option<Fact<'a>> {
        let turns = i128::from(self.most.saturating_sub(1));
        let (low, high) = ((step.low * turns).min(0), (step.high * turns).max(0));
        let far = Number::between(low, high).with_zeros(step.zeros).fits()?;
        first.plus(Fact::Number(far)).and_then(Fact::fits).filter(|fact| near(name, *fact))
    }
}

struct AtLabel<'a> {
    known: Vec<(&'a str, Fact<'a>)>,
    turns: Option<Turns<'a>>,
    /// How many claims it is, names that are long counted.
    count: usize,
}

impl<'a> AtLabel<'a> {
    fn new(known: Vec<(&'a str, Fact<'a>)>, turns: Option<Turns<'a>>) -> Self {
        let count = |(name, fact): (&str, Fact<'_>)| 1 + (name.len() + fact.name_bytes()) / NAME_BYTES_EACH;
        let steps = turns.iter().flat_map(|turns| &turns.steps).map(|(name, first, _)| (*name, *first));
        let count = 1 + known.iter().copied().chain(steps).map(count).sum::<usize>();
        Self { known, turns, count }
    }
}

/// A claim that is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong<'a> {
    /// Of a register, wherever it is read.
    Always(&'a str),
    /// Of a register at a label.
    Known(&'a str, &'a str),
    /// Of how the loop of a label turns.
    Turns(&'a str),
    /// There are too many of them.
    Many,
}

impl Wrong<'_> {
    /// As a refusal.
    pub fn reason(self) -> Reason {
        unverified(&match self {
            Self::Always(name) => format!("what is claimed of `{name}` is not always so"),
            Self::Known(label, name) => format!("what is claimed of `{name}` at `{label}` is not so"),
            Self::Turns(label) => format!("the loop of `{label}` does not turn as is claimed"),
            Self::Many => "too many claims".to_owned(),
        })
    }
}

/// A counter is stepped by so much at most.
const STEP_MAX: i128 = 1 << 30;
/// Claims that are looked at for each label and branch of a body, at most, and besides: each looks at all of its label. Of 569
/// bodies of our programs none looks at more than 55.
const LOOKED_EACH_MAX: usize = 64;
const LOOKED_MORE_MAX: usize = 1 << 16;
/// So many bytes of the names in a claim count as another.
const NAME_BYTES_EACH: usize = 256;

/// A register, and between what it lay at the last label.
type Range<'a> = (&'a str, (i128, i128));

/// Where the pass is.
#[derive(Default)]
pub struct Numbers<'a> {
    always: HashMap<&'a str, Fact<'a>>,
    labels: HashMap<&'a str, AtLabel<'a>>,
    /// The labels so far.
    seen: HashSet<&'a str>,
    /// What is known up to the next label, besides what always holds.
    here: HashMap<&'a str, Fact<'a>>,
    /// What was known before a test said more of registers, and still holds: where ways meet that may be what they have in common.
    untested: HashMap<&'a str, Fact<'a>>,
    /// Registers that are what another was at the last label and this much more.
    moved: HashMap<&'a str, (&'a str, Number)>,
    last: Option<&'a str>,
    /// Between what registers lay at the last label, where predicates do not hold and where they do.
    since: HashMap<&'a str, [Vec<Range<'a>>; 2]>,
    tests: Tests<'a>,
    bounding: Bounding<'a>,
    /// Whether control does not come here from the instruction before.
    cut: bool,
    /// How many pointers were checked; and whether that was for the next label.
    checked: usize,
    is_checked: bool,
    /// Writes of registers of which something is always claimed: all of the body's, and those that the pass saw.
    writes: usize,
    held: usize,
    /// How many claims may still be looked at.
    unlooked: Cell<usize>,
    /// What was found to be wrong.
    wrong: Vec<Wrong<'a>>,
    /// Whether whoever makes claims tries them: what is wrong of one is not taken for granted further down.
    tries: bool,
}

impl<'a> Known<'a> for Numbers<'a> {
    fn of_register(&self, name: &str) -> Option<Fact<'a>> {
        self.here.get(name).or_else(|| self.always.get(name)).copied()
    }
}

/// A state with what a test says besides.
struct With<'s, 'a> {
    numbers: &'s Numbers<'a>,
    said: &'s Said<'a>,
}

impl<'a> Known<'a> for With<'_, 'a> {
    fn of_register(&self, name: &str) -> Option<Fact<'a>> {
        self.said.get(name).copied().or_else(|| self.numbers.of_register(name))
    }
}

impl<'a> Numbers<'a> {
    /// Of a body of which this is claimed. Claims on names that it does not have are none.
    pub fn of(statements: &'a [Statement], claims: &claimed::Numbers) -> Self {
        let names = names(statements);
        let name = |name: &str| names.get(name).copied();
        let ways = statements.iter().filter(|statement| is_way(statement)).count();
        let unlooked = Cell::new(ways.saturating_mul(LOOKED_EACH_MAX) + LOOKED_MORE_MAX);
        let mut numbers = Self { unlooked, ..Self::default() };
        let mut registers: HashMap<&str, usize> = HashMap::default();
        for statement in statements {
            let Statement::Instruction(instruction) = statement else { continue };
            let Some(row) = table::row_of(instruction) else { continue };
            table::written(row, instruction, &mut |name| *registers.entry(name).or_default() += 1);
        }
        let register = |name: &str| registers.get_key_value(name).map(|(name, _)| *name);
        for (register, writes) in &registers {
            let claim = claims.always.get(*register).and_then(|claim| claim.fact(name));
            // Whether the guard's own were written before is not known of them.
            let is_own = names::is_reserved(register);
            if let Some(fact) = claim.filter(|fact| may_be(register, *fact) && !is_own) {
                numbers.writes += writes;
                numbers.always.insert(register, fact);
            }
        }
        for (index, statement) in statements.iter().enumerate() {
            let Statement::Label(label, _) = statement else { continue };
            let Some(claim) = claims.labels.get(&index) else { continue };
            let known = claim.known.iter();
            let known = known
                .filter_map(|(at, claim)| register(at).zip(claim.fact(name)))
                .filter(|(name, fact)| may_be(name, *fact))
                .collect();
            let turns = claim.turns.as_ref().map(|turns| Turns {
                most: turns.most,
                counter: turns.counter.as_deref().and_then(register),
                steps: turns
                    .steps
                    .iter()
                    .filter_map(|(at, first, step)| Some((register(at)?, first.fact(name)?, *step)))
                    .filter(|(name, first, step)| may_be(name, *first) && is_some(*step))
                    .collect(),
            });
            numbers.labels.insert(label, AtLabel::new(known, turns));
        }
        numbers
    }

    /// What was found to be wrong since this was asked last.
    pub fn wrong(&mut self) -> Vec<Wrong<'a>> {
        std::mem::take(&mut self.wrong)
    }

    /// Whether nothing was.
    pub fn are_right(&mut self) -> Result<(), Reason> {
        self.wrong().first().map_or(Ok(()), |wrong| Err(wrong.reason()))
    }

    /// How often the loop of the last label turns at most, as it claims and its ways back show.
    pub fn turns(&self, label: &str) -> Option<u64> {
        let turns = self.labels.get(label)?.turns.as_ref()?;
        turns.counter.map(|_| turns.most.max(1))
    }

    /// How often a loop may turn for what its label claims of pointers that were checked: for others to see to.
    pub fn turns_of_checked(&self, label: &str) -> Option<u64> {
        let turns = self.labels.get(label)?.turns.as_ref()?;
        turns.counter.is_none().then_some(turns.most.max(1))
    }

    /// The same to try claims by, before they are made.
    pub fn trying(self) -> Self {
        Self { tries: true, ..self }
    }

    /// Whether so many more may be looked at.
    fn looks_at(&self, count: usize) -> bool {
        let left = self.unlooked.get().checked_sub(count);
        self.unlooked.set(left.unwrap_or(0));
        left.is_some()
    }

    /// Learns from the next instruction.
    pub fn learn(&mut self, instruction: &'a Instruction) {
        let Some(row) = table::row_of(instruction) else { return };
        if let Some(target) = table::target(row, instruction) {
            return self.branch(target, instruction.predicate.as_ref());
        }
        if table::ends_path(row, instruction) {
            self.cut = true;
            return;
        }
        let mut tests = std::mem::take(&mut self.tests);
        tests.learn(self, row, instruction);
        let bound = self.bounding.next(instruction);
        let result = match instruction.operands.first() {
            Some(Operand::Register(name)) => Some(name.as_str()),
            _ => None,
        };
        self.since(&tests, row, instruction);
        let made = result.and_then(|name| self.made(name, instruction, bound)).and_then(Fact::fits);
        let moved = result.and_then(|name| Some((name, self.added(name, instruction)?)));
        let always = instruction.predicate.is_none();
        if let Some(name) = result.filter(|_| always) {
            tests.multiplies(self, name, instruction, made);
        }
        self.tests = tests;
        table::written(row, instruction, &mut |name| {
            let made = made.filter(|_| result == Some(name));
            if let Some(claim) = self.always.get(name) {
                self.held += 1;
                if !made.is_some_and(|made| claim.implied_by(made)) {
                    self.wrong.push(Wrong::Always(name));
                }
            }
            self.here.remove(name);
            self.untested.remove(name);
            self.moved.remove(name);
            if let Some(made) = made.filter(|_| always) {
                self.here.insert(name, made);
            }
        });
        if let Some((name, moved)) = moved.filter(|_| always) {
            self.moved.insert(name, moved);
        }
    }

    /// Passes what stands in one of the guard's forms, which is held against a text of its own: behind it nothing is known of
    /// what it writes.
    pub fn pass_over(&mut self, form: &'a [Statement]) {
        self.bounding = Bounding::Nothing;
        for statement in form {
            let Statement::Instruction(instruction) = statement else { continue };
            let Some(row) = table::row_of(instruction) else { continue };
            table::written(row, instruction, &mut |name| {
                if self.always.contains_key(name) {
                    self.wrong.push(Wrong::Always(name));
                }
                self.here.remove(name);
                self.untested.remove(name);
                self.moved.remove(name);
                self.since.remove(name);
                self.tests.written(name);
            });
        }
    }

    /// What a predicate that is computed here says of registers as they were at the last label: they may be stepped before it
    /// is asked.
    fn since(&mut self, tests: &Tests<'a>, row: &Row, instruction: &'a Instruction) {
        if !self.since.is_empty() {
            table::written(row, instruction, &mut |name| drop(self.since.remove(name)));
        }
        if self.moved.is_empty() {
            return;
        }
        let Some(Operand::Register(predicate)) = instruction.operands.first() else { return };
        let ranges = |holds| {
            let ranges = tests.ranges(self, predicate, holds).into_iter();
            let before = ranges.filter_map(|(register, (low, high))| {
                let (origin, added) = self.moved.get(register)?;
                let is_little = added.low == added.high && added.low.abs() <= STEP_MAX;
                is_little.then_some((*origin, (low - added.low, high - added.low)))
            });
            before.collect::<Vec<_>>()
        };
        let ranges = [ranges(false), ranges(true)];
        if ranges.iter().any(|ranges| !ranges.is_empty()) {
            self.since.insert(predicate, ranges);
        }
    }

    /// What follows of registers where a predicate holds, or does not; none where it never does.
    fn said(&self, predicate: &str, holds: bool) -> Option<Said<'a>> {
        let mut said = self.tests.said(self, predicate, holds)?;
        let ranges = self.since.get(predicate).map_or(&[][..], |ranges| &ranges[usize::from(holds)]);
        for (origin, (low, high)) in ranges {
            // Without it less is known.
            if !self.looks_at(self.moved.len()) {
                break;
            }
            for (name, (_, added)) in self.moved.iter().filter(|(_, (of, _))| of == origin) {
                let before = With { numbers: self, said: &said }.small(name);
                // So little does not wrap around: both are small.
                let is_little = added.low == added.high && added.low.abs() <= STEP_MAX;
                let Some(before) = before.filter(|_| is_little && is_word(name)) else { continue };
                let (low, high) = ((low + added.low).max(before.low), (high + added.low).min(before.high));
                if low > high {
                    return None;
                }
                let number = number::refined(Some(before), (low, high), Width::WORD);
                said.extend(number.map(|number| (*name, Fact::Number(number))));
            }
        }
        Some(said)
    }

    fn branch(&mut self, target: &'a str, predicate: Option<&Predicate>) {
        self.bounding = Bounding::Nothing;
        let Some(Predicate { register, negated }) = predicate else {
            self.goes(target);
            self.cut = true;
            return;
        };
        if let Some(said) = self.said(register, !negated) {
            let wrong = self.arrives(target, &said);
            self.note(wrong);
        }
        match self.said(register, *negated) {
            Some(said) => {
                for (name, fact) in said {
                    if let Some(before) = self.of_register(name) {
                        self.untested.entry(name).or_insert(before);
                    }
                    self.here.insert(name, fact);
                }
            }
            None => self.cut = true,
        }
    }

    fn class(&self, name: &str) -> Option<Class> {
        if is_word(name) { Some(Class::Word) } else { Class::parse(name).map(|(class, _)| class) }
    }

    /// What an instruction makes of its result, if it is executed.
    fn made(&self, name: &str, instruction: &'a Instruction, bound: Option<i128>) -> Option<Fact<'a>> {
        match self.class(name)? {
            Class::Word if bound.is_some() => bound.map(|most| Fact::Number(Number::between(0, most))),
            Class::Double => self.double(instruction),
            Class::Word => self.word(instruction),
            Class::Predicate | Class::Half => None,
        }
    }

    /// Which register the result of an instruction is, as it was at the last label, and how much more.
    fn added(&self, name: &str, instruction: &'a Instruction) -> Option<(&'a str, Number)> {
        let words = instruction.words();
        let class = Class::parse(name)?.0;
        let of = |index: usize| match instruction.operands.get(index) {
            Some(Operand::Register(name)) if Class::parse(name)?.0 == class => {
                self.moved.get(name.as_str()).copied()
            }
            _ => None,
        };
        let number = |index: usize| match class {
            Class::Word => self.narrow(instruction.operands.get(index), Sign::Signed),
            Class::Double => self.wide(instruction.operands.get(index))?.number(),
            Class::Predicate | Class::Half => None,
        };
        let fits = match class {
            Class::Word => matches!(words.as_slice(), ["b32" | "u32" | "s32"]),
            Class::Double => matches!(words.as_slice(), ["b64" | "u64" | "s64"]),
            Class::Predicate | Class::Half => false,
        };
        fits.then_some(())?;
        let (origin, added) = match instruction.opcode.as_str() {
            "mov" => of(1)?,
            "add" => match (of(1), of(2)) {
                (Some((origin, added)), None) => (origin, added.plus(number(2)?)),
                (None, Some((origin, added))) => (origin, added.plus(number(1)?)),
                _ => return None,
            },
            "sub" => {
                let (origin, added) = of(1).filter(|_| of(2).is_none())?;
                (origin, added.minus(number(2)?))
            }
            _ => return None,
        };
        Some((origin, added.fits()?))
    }

    /// The body ends; every write of a register of which something is always claimed was seen.
    pub fn end(&mut self) -> Result<(), Reason> {
        self.are_right()?;
        if self.held == self.writes {
            Ok(())
        } else {
            Err(unverified("a write that no claim was held against"))
        }
    }
}

/// Whether control comes together at a statement, or parts.
fn is_way(statement: &Statement) -> bool {
    match statement {
        Statement::Label(..) => true,
        Statement::Instruction(found) => found.opcode == "bra",
        Statement::Variable(_) | Statement::Block(..) | Statement::Directive(_) => false,
    }
}

/// The names of parameters and variables in a body.
fn names(statements: &[Statement]) -> HashSet<&str> {
    let mut names = HashSet::default();
    for statement in statements {
        let Statement::Instruction(instruction) = statement else { continue };
        for operand in &instruction.operands {
            match operand {
                Operand::Symbol(name) | Operand::SymbolOffset(name, _) => drop(names.insert(name.as_str())),
                Operand::Address(Address { base: AddressBase::Symbol(name), .. }) => {
                    names.insert(name.as_str());
                }
                _ => {}
            }
        }
    }
    names
}

/// Whether a number is one that is computed with.
fn is_some(number: Number) -> bool {
    let ends = number.low <= number.high && number.most.constant >= -number::FAR;
    ends && number.zeros <= 63 && number.fits().is_some()
}

/// Whether something like this may be known of a register.
fn may_be(name: &str, fact: Fact<'_>) -> bool {
    match fact {
        Fact::Number(number) if is_word(name) => {
            is_some(number) && number.low >= 0 && number.high < 1 << 32 && number.zeros <= 32
        }
        Fact::Number(number) | Fact::Pointer(Pointer { offset: number, .. }) => is_some(number),
    }
}

/// What wraps around is not as far as that.
fn near(name: &str, fact: Fact<'_>) -> bool {
    match (Class::parse(name), fact) {
        (Some((Class::Double, _)), _) => true,
        (_, Fact::Number(number)) => number.is_small(Width::WORD),
        (_, Fact::Pointer(Pointer { offset, .. })) => {
            offset.low >= i32::MIN.into() && offset.high <= i32::MAX.into()
        }
    }
}

#[cfg(test)]
mod tests;
mod ways;
