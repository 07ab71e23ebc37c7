//! What may be claimed of the numbers in registers, and how that is written.

use std::fmt;

use crate::maps::HashMap;
use crate::most::Most;
use crate::values::number::Number;
use crate::values::value::{Base, CheckedPointer, Fact, Pointer, Root};

/// What is claimed of a register: between what numbers it lies, or how far from where an address is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// What the number counts from.
    pub of: Of,
    /// Between what it lies.
    pub number: Number,
}

/// What a claimed number counts from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Of {
    /// Nothing: it is a number.
    Zero,
    /// The pointer in a parameter, at an offset.
    Parameter(String, i64),
    /// A variable in shared memory.
    Shared(String),
    /// A pointer when it was checked: which of them.
    Checked(CheckedPointer),
}

impl Claim {
    /// What a fact says.
    pub fn new(fact: Fact<'_>) -> Self {
        match fact {
            Fact::Number(number) => Self { of: Of::Zero, number },
            Fact::Pointer(Pointer { base, offset }) => {
                let of = match base {
                    Base::Parameter(root) => Of::Parameter(root.parameter.to_owned(), root.offset),
                    Base::Shared(variable) => Of::Shared(variable.to_owned()),
                    Base::Checked(pointer) => Of::Checked(pointer),
                };
                Self { of, number: offset }
            }
        }
    }

    /// The same for a body in which `name` finds names of parameters and variables.
    pub fn fact<'a>(&self, name: impl Fn(&str) -> Option<&'a str>) -> Option<Fact<'a>> {
        let base = match &self.of {
            Of::Zero => return Some(Fact::Number(self.number)),
            Of::Parameter(parameter, offset) => {
                Base::Parameter(Root { parameter: name(parameter)?, offset: *offset })
            }
            Of::Shared(variable) => Base::Shared(name(variable)?),
            Of::Checked(pointer) => Base::Checked(*pointer),
        };
        Some(Fact::Pointer(Pointer { base, offset: self.number }))
    }
}

/// What is claimed at a label.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AtLabel {
    /// Of registers, whichever way control came.
    pub known: Vec<(String, Claim)>,
    /// Of the turns of a loop that begins there.
    pub turns: Option<Turns>,
}

/// What is claimed of a loop without labels inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turns {
    /// How often it turns at most, each time that it is entered.
    pub most: u64,
    /// Which of the registers that step says so; none where the loop's counter does.
    pub counter: Option<String>,
    /// Registers that every turn adds something to: what they are at first, and between what lies what is added.
    pub steps: Vec<(String, Claim, Number)>,
}

/// What is claimed of one body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Of registers, wherever they are read.
    pub always: HashMap<String, Claim>,
    /// By the numbers of the labels' statements.
    pub labels: HashMap<usize, AtLabel>,
}

impl fmt::Display for Claim {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.of {
            Of::Zero => write!(out, "number")?,
            Of::Parameter(name, offset) => write!(out, "parameter {name} {offset}")?,
            Of::Shared(name) => write!(out, "shared {name}")?,
            Of::Checked(CheckedPointer { number, writes, align }) => {
                write!(out, "window {number} {} {align}", if *writes { "writes" } else { "reads" })?;
            }
        }
        let Number { low, high, most, zeros } = &self.number;
        write!(out, " {low} {high} {zeros}")?;
        if !self.number.is_plain() {
            write!(out, " most {}", most.constant)?;
            for (axis, shift, factor) in most.terms() {
                write!(out, " {axis} {shift} {factor}")?;
            }
        }
        Ok(())
    }
}

impl Claim {
    fn read(words: &[&str]) -> Option<Self> {
        let (of, rest) = match words {
            ["number", rest @ ..] => (Of::Zero, rest),
            ["parameter", name, offset, rest @ ..] => {
                (Of::Parameter((*name).to_owned(), offset.parse().ok()?), rest)
            }
            ["shared", name, rest @ ..] => (Of::Shared((*name).to_owned()), rest),
            ["window", number, access @ ("reads" | "writes"), align, rest @ ..] => {
                let (number, align) = (number.parse().ok()?, align.parse().ok()?);
                (Of::Checked(CheckedPointer { number, writes: *access == "writes", align }), rest)
            }
            _ => return None,
        };
        let [low, high, zeros, rest @ ..] = rest else { return None };
        let number = Number::between(low.parse().ok()?, high.parse().ok()?).with_zeros(zeros.parse().ok()?);
        let most = match rest {
            [] => number.most,
            ["most", constant, terms @ ..] if terms.len() % 3 == 0 => {
                let term = |term: &[&str]| match term {
                    [axis, shift, factor] => {
                        Some((axis.parse().ok()?, shift.parse().ok()?, factor.parse().ok()?))
                    }
                    _ => None,
                };
                let terms: Option<Vec<_>> = terms.chunks(3).map(term).collect();
                Most::of_terms(constant.parse().ok()?, &terms?)?
            }
            _ => return None,
        };
        Some(Self { of, number: Number { most, ..number } })
    }
}

impl fmt::Display for Numbers {
    /// A line for each claim, in order.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut always: Vec<_> = self.always.iter().collect();
        always.sort_unstable_by_key(|(name, _)| name.as_str());
        for (name, claim) in always {
            writeln!(out, "always {name} {claim}")?;
        }
        let mut labels: Vec<_> = self.labels.iter().collect();
        labels.sort_unstable_by_key(|(at, _)| **at);
        for (at, AtLabel { known, turns }) in labels {
            for (name, claim) in known {
                writeln!(out, "{at} known {name} {claim}")?;
            }
            let Some(turns) = turns else { continue };
            writeln!(out, "{at} turns {} {}", turns.most, turns.counter.as_deref().unwrap_or("checked"))?;
            for (name, first, step) in &turns.steps {
                writeln!(out, "{at} step {name} {} {} {} {first}", step.low, step.high, step.zeros)?;
            }
        }
        Ok(())
    }
}

/// Words of a line that are looked at: no claim has more.
const WORDS_MAX: usize = 40;

impl Numbers {
    /// Reads a line: whether it is one of these claims; none where it is one of them and wrong.
    pub fn read(&mut self, line: &str) -> Option<bool> {
        let words: Vec<&str> = line.split_ascii_whitespace().take(WORDS_MAX).collect();
        match words.as_slice() {
            ["always", name, claim @ ..] => {
                self.always.insert((*name).to_owned(), Claim::read(claim)?);
            }
            [at, "known", name, claim @ ..] => {
                let known = &mut self.labels.entry(at.parse().ok()?).or_default().known;
                known.push(((*name).to_owned(), Claim::read(claim)?));
            }
            [at, "turns", most, counter] => {
                let counter = (*counter != "checked").then(|| (*counter).to_owned());
                let turns = Turns { most: most.parse().ok()?, counter, steps: Vec::new() };
                self.labels.entry(at.parse().ok()?).or_default().turns = Some(turns);
            }
            [at, "step", name, low, high, zeros, first @ ..] => {
                let step =
                    Number::between(low.parse().ok()?, high.parse().ok()?).with_zeros(zeros.parse().ok()?);
                let turns = self.labels.get_mut(&at.parse().ok()?)?.turns.as_mut()?;
                turns.steps.push(((*name).to_owned(), Claim::read(first)?, step));
            }
            _ => return Some(false),
        }
        Some(true)
    }
}
