//! What can be found out of the numbers in registers, in one linear pass: between what they lie, how many of their low bits
//! are zero, and which parameter they are a pointer by. Nobody has to trust it: the rewriter chooses by it, and what a text is
//! verified by is claimed and checked ([`crate::verify`]).
//!
//! Something is known at all times of registers that exactly one instruction of the body writes, without a
//! predicate. A register is never read before it is written, so whatever is read there was computed by that instruction,
//! from operands of which something is known at all times, or from numbers of which the type alone says enough.
//! What is written further down in the text is not known yet: nothing rests on itself. Of other registers something is
//! known until they are written again, on all ways to a label that nothing goes back to (`edges`), and as far as a loop
//! leaves them alone; of those that a loop writes, what its test lets them be in any turn ([`Facts::label`]), or how far
//! they have come in any ([`Facts::turning`], and [`Facts::turn`] where pointers were checked).

mod counted;
mod edges;
mod incoming;
mod loops;
mod moved;
mod stepped;

use crate::maps::{HashMap, HashSet};
use std::sync::LazyLock;

use edges::{Edges, Extent, Passing};
use moved::Moved;
use stepped::Guards;

use crate::ast::{Instruction, Operand, Statement};
use crate::most::Most;
use crate::names::{self, Class};
use crate::table::{self, Row};
use crate::values::number::{Number, Width};
use crate::values::refine::Tests;
use crate::values::value::{Base, CheckedPointer, Fact, Pointer};
use crate::values::{Bounding, Known};

/// Of loops that begin anew at their own labels.
static NONE: LazyLock<HashMap<String, String>> = LazyLock::new(HashMap::default);

/// How the registers of a loop step.
pub(crate) struct Stepping<'a> {
    /// How often it turns at most.
    pub(crate) turns: u64,
    /// The register that says so; none where a counter of the guard's does.
    pub(crate) counter: Option<&'a str>,
    /// What is added to each in every turn, and what it is before the first.
    pub(crate) steps: Vec<(&'a str, Fact<'a>, Number)>,
}

/// What is known so far in a pass over a body, in the order of the text.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts<'a> {
    /// Registers that are written once more than the body says.
    zeroed: HashSet<&'a str>,
    /// 32-bit numbers are from 0 on; where one may be beyond `i32::MAX`, its low zeros are all that is known.
    known: HashMap<&'a str, Fact<'a>>,
    /// What bits can be ones of registers to which only such numbers are ever written.
    bits: HashMap<&'a str, i128>,
    /// What registers are that are only moved among one another.
    moved: Moved<'a>,
    guards: Guards<'a>,
    bounding: Bounding<'a>,
    /// What is known up to the next label, or that nothing is.
    passing: Passing<'a>,
    /// What was known when control came to the last label from before it, where something goes back there.
    entering: Passing<'a>,
    tests: Tests<'a>,
    edges: Edges<'a>,
    /// The label of the turns of a loop between polls, of which all is known that is at the loop's.
    settled: Option<&'a str>,
    /// How many pointers were checked.
    checked: usize,
}

impl<'a> Facts<'a> {
    /// Nothing is known yet of a body.
    pub(crate) fn of(statements: &'a [Statement]) -> Self {
        Self::of_versions(statements, &NONE)
    }

    /// Nor of one with loops that begin anew elsewhere than at their labels.
    pub(crate) fn of_versions(statements: &'a [Statement], begins: &'a HashMap<String, String>) -> Self {
        let edges = Edges::of(statements, begins);
        let ones_of = |name: &str, at: usize| match statements.get(at) {
            Some(Statement::Instruction(instruction)) => ones(name, instruction),
            _ => None,
        };
        let several = edges.writes().iter().filter_map(|(name, writes)| {
            let bits = writes.several()?.try_fold(0, |bits, at| Some(bits | ones_of(name, at)?))?;
            Some((*name, bits))
        });
        let bits = several.collect();
        let moved = Moved::of(&edges);
        Self { edges, bits, moved, ..Self::default() }
    }

    /// How much is known, in registers: what a copy of it costs.
    pub(crate) fn size(&self) -> usize {
        let passing = self.passing.len() + self.entering.len();
        self.known.len() + passing + self.bits.len() + self.guards.size() + self.edges.size()
    }

    /// A register is written once more than the body says: it is zeroed first.
    pub(crate) fn also_written(&mut self, name: &'a str) {
        self.zeroed.insert(name);
        self.moved.forget(name);
    }

    /// What is known at a label, behind which this stands: what is known on all ways there, and what each turn leaves as
    /// it was where something goes back.
    pub(crate) fn label(&mut self, name: &'a str, behind: &'a [Statement]) {
        self.bounding = Bounding::Nothing;
        if self.settled.take() == Some(name) {
            self.tests.clear();
            // Counters that are counted down are not.
            let closed = self.edges.closed(name);
            let counts = |name: &str| {
                names::is_counter(name)
                    && closed.is_none_or(|Extent { at, last }| self.edges.is_written(name, at, last))
            };
            self.passing.retain(|name, _| !counts(name));
            self.entering = self.passing.clone();
            return;
        }
        let known = self.arrive(name);
        match self.edges.ways(name) {
            (_, 0) => {
                self.passing = known;
                self.entering.clear();
            }
            (_, backs) => {
                let closed = self.edges.closed(name);
                self.passing =
                    closed.map_or_else(Passing::default, |closed| self.edges.left(closed, known.clone()));
                self.entering = known;
                if backs == 1 {
                    self.repeats(behind, name);
                }
                if let Some(closed) = closed {
                    self.stepped(closed);
                }
            }
        }
    }

    /// At the label of a loop whose turns stand in two places, one behind the other: how often it turns in each, nothing
    /// says.
    pub(crate) fn label_of_part(&mut self, name: &'a str) {
        let known = self.arrive(name);
        let closed = self.edges.closed(name);
        self.passing = closed.map_or_else(Passing::default, |closed| self.edges.left(closed, known.clone()));
        self.entering = known;
        if let Some(closed) = closed {
            self.stepped(closed);
        }
    }

    /// Learns from the next instruction.
    pub(crate) fn learn(&mut self, instruction: &'a Instruction) {
        let row = table::row_of(instruction);
        if let Some(row) = row {
            self.tests(row, instruction);
        }
        let bound = self.bounding.next(instruction);
        let Some(Operand::Register(name)) = instruction.operands.first() else {
            return self.forget(row, instruction);
        };
        let learned = match Class::parse(name) {
            _ if instruction.predicate.is_some() => None,
            Some((Class::Word, _)) if bound.is_some() => {
                bound.map(|most| Fact::Number(Number::between(0, most)))
            }
            Some((Class::Double, _)) => self.double(instruction),
            Some((Class::Word, _)) => self.word(instruction),
            None if names::is_counter(name) => self.word(instruction),
            Some((Class::Predicate | Class::Half, _)) | None => None,
        };
        let learned = learned.and_then(Fact::fits);
        let mut tests = std::mem::take(&mut self.tests);
        tests.multiplies(self, name, instruction, learned);
        self.tests = tests;
        if !self.is_written_once(name) {
            // Elsewhere nothing is known of it either.
            match learned {
                Some(_) => self.passing.insert(name, learned),
                None => self.passing.remove(name.as_str()),
            };
        } else if let Some(fact) = learned {
            self.passing.remove(name.as_str());
            self.known.insert(name, fact);
        } else {
            self.known.remove(name.as_str());
        }
    }

    /// What is known of a register that is written in several places, whatever the way.
    fn ever(&self, name: &str) -> Option<Fact<'a>> {
        match self.bits.get(name) {
            Some(bits) => {
                let zeros = Number::exactly(*bits).zeros.min(Width::WORD.0);
                // The checker knows of `or` and `xor` how many bits there are, and not which.
                let all = (1 << (i128::BITS - bits.leading_zeros())) - 1;
                Some(Fact::Number(Number::between(0, all).with_zeros(zeros)))
            }
            None => self.moved.of_register(name).map(Fact::Pointer),
        }
    }

    fn is_written_once(&self, name: &str) -> bool {
        self.edges.writes().get(name).is_some_and(|writes| writes.several().is_none())
            && !self.zeroed.contains(name)
    }

    /// Of what several registers are written by, nothing is known.
    fn forget(&mut self, row: Option<&Row>, instruction: &'a Instruction) {
        if let Some(row) = row {
            table::written(row, instruction, &mut |name| {
                self.passing.insert(name, None);
            });
        }
    }

    /// What was known of it when control came to the last label from before it.
    fn entering(&self, name: &str) -> Option<Fact<'a>> {
        self.entering.get(name).copied().unwrap_or_else(|| self.known.get(name).copied())
    }

    /// What is known up to the next label, besides what always is.
    pub(crate) fn here(&self) -> impl Iterator<Item = (&'a str, Fact<'a>)> + '_ {
        self.passing.iter().filter_map(|(name, fact)| Some((*name, (*fact)?)))
    }

    /// From where to where the loop of a label lies that is entered there only, and what it leaves as it is.
    pub(crate) fn of_loop(&mut self, label: &str) -> Option<(usize, Vec<(&'a str, Fact<'a>)>)> {
        let Extent { at, last } = (self.edges.ways(label).1 > 0).then(|| self.edges.closed(label))??;
        let left = self.here().filter(|(name, _)| !self.edges.is_written(name, at, last));
        Some((last, left.collect()))
    }

    /// What is known of registers at all times.
    pub(crate) fn always(&self) -> HashMap<&'a str, Fact<'a>> {
        let bits = self.bits.keys().chain(self.moved.names()).copied();
        let mut always: HashMap<_, _> = bits.filter_map(|name| Some((name, self.ever(name)?))).collect();
        always.extend(&self.known);
        always
    }

    /// The 32-bit registers that are known at all times to be from 1 on, and what each is at most.
    pub(crate) fn at_least_one(&self) -> HashMap<&'a str, i128> {
        let word = |name: &str| matches!(Class::parse(name), Some((Class::Word, _)));
        let known = self.known.iter().filter_map(|(name, fact)| Some((*name, fact.small()?)));
        known
            .filter(|(name, number)| word(name) && number.low >= 1)
            .map(|(name, number)| (name, number.high))
            .collect()
    }
}

impl<'a> Known<'a> for Facts<'a> {
    /// What is known of a register here.
    fn of_register(&self, name: &str) -> Option<Fact<'a>> {
        let known = self.passing.get(name).copied().unwrap_or_else(|| self.known.get(name).copied());
        known.or_else(|| self.ever(name))
    }
}

/// What bits can be ones of what an instruction writes to a register, whatever it was as long as no others were.
fn ones(name: &str, instruction: &Instruction) -> Option<i128> {
    let number = |index: usize| match instruction.operands.get(index) {
        Some(Operand::Integer(value @ 0..=0x7fff_ffff)) => Some(*value),
        _ => None,
    };
    let same = |index: usize| matches!(instruction.operands.get(index), Some(Operand::Register(read)) if read == name);
    let words = instruction.words();
    let modifiers = words.as_slice();
    let is_result = matches!(instruction.operands.first(), Some(Operand::Register(result)) if result == name);
    (is_result && matches!(Class::parse(name), Some((Class::Word, _)))).then_some(())?;
    match (instruction.opcode.as_str(), modifiers) {
        ("mov", ["b32" | "u32" | "s32"]) => number(1),
        ("and", ["b32"]) => number(2),
        ("or" | "xor", ["b32"]) => number(2).filter(|_| same(1)),
        ("selp", ["b32" | "u32" | "s32"]) => Some(number(1)? | number(2)?),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
