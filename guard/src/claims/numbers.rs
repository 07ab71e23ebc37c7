//! What can be claimed of the numbers in registers: what the inference of [`Facts`] found, written down for each label.

use std::fmt;

use crate::anchors::{self, Check};
use crate::ast::Statement;
use crate::facts::{Facts, Stepping};
use crate::maps::{HashMap, HashSet};
use crate::most::Most;
use crate::values::number::{Number, Sign, Width};
use crate::values::value::{Base, Fact, Pointer, Root, Window};
use crate::verify::numbers::{self as verify, Wrong};

/// What is claimed of a register: between what numbers it lies, or how far from where an address is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) of: Of,
    pub(crate) number: Number,
}

/// What a claimed number counts from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Of {
    Zero,
    /// The pointer in a parameter, at an offset.
    Parameter(String, i64),
    /// A variable in shared memory.
    Shared(String),
    /// A pointer when it was checked: which of them.
    Window(Window),
}

impl Claim {
    fn new(fact: Fact<'_>) -> Self {
        match fact {
            Fact::Number(number) => Self { of: Of::Zero, number },
            Fact::Pointer(Pointer { base, offset }) => {
                let of = match base {
                    Base::Parameter(root) => Of::Parameter(root.parameter.to_owned(), root.offset),
                    Base::Shared(variable) => Of::Shared(variable.to_owned()),
                    Base::Window(window) => Of::Window(window),
                };
                Self { of, number: offset }
            }
        }
    }

    /// The same for a body in which `name` finds names of parameters and variables.
    pub(crate) fn fact<'a>(&self, name: impl Fn(&str) -> Option<&'a str>) -> Option<Fact<'a>> {
        let base = match &self.of {
            Of::Zero => return Some(Fact::Number(self.number)),
            Of::Parameter(parameter, offset) => {
                Base::Parameter(Root { parameter: name(parameter)?, offset: *offset })
            }
            Of::Shared(variable) => Base::Shared(name(variable)?),
            Of::Window(window) => Base::Window(*window),
        };
        Some(Fact::Pointer(Pointer { base, offset: self.number }))
    }
}

/// What is claimed at a label.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AtLabel {
    /// Of registers, whichever way control came.
    pub(crate) known: Vec<(String, Claim)>,
    /// Of the turns of a loop that begins there.
    pub(crate) turns: Option<Turns>,
}

/// What is claimed of a loop without labels inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Turns {
    /// How often it turns at most, each time that it is entered.
    pub(crate) most: u64,
    /// Which of the registers that step says so; none where the loop's counter does.
    pub(crate) counter: Option<String>,
    /// Registers that every turn adds something to: what they are at first, and between what lies what is added.
    pub(crate) steps: Vec<(String, Claim, Number)>,
}

/// What is claimed of one body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    /// Of registers, wherever they are read.
    pub(crate) always: HashMap<String, Claim>,
    /// By the numbers of the labels' statements.
    pub(crate) labels: HashMap<usize, AtLabel>,
}

/// Claims that are made at labels, at most.
const CLAIMS_MAX: usize = 1 << 18;
/// How often claims are tried, at most; then none is made. After so many times one that is wrong at one label is made at none.
const ROUNDS_MAX: usize = 12;
const PATIENCE: usize = 4;

impl Numbers {
    /// What can be said of a body: what the inference finds, without what the checker does not follow.
    pub(crate) fn of(statements: &[Statement]) -> Self {
        let mut claims = Self::found(statements);
        let labels = statements.iter().enumerate().filter_map(|(at, statement)| match statement {
            Statement::Label(name, _) => Some((name.as_str(), at)),
            _ => None,
        });
        let at: HashMap<&str, usize> = labels.collect();
        for round in 0..ROUNDS_MAX {
            let wrong = claims.wrong(statements);
            if wrong.is_empty() {
                return claims;
            }
            claims.weaken(&at, &wrong, round >= PATIENCE);
        }
        Self::default()
    }

    /// What the inference finds.
    fn found(statements: &[Statement]) -> Self {
        let mut facts = Facts::of(statements);
        let mut claims = Self::default();
        let mut checked: Option<Check<'_>> = None;
        // What loops leave as it is, up to where each ends: it holds at their labels too.
        let mut left: Vec<(usize, Vec<(&str, Fact<'_>)>)> = Vec::new();
        let mut room = CLAIMS_MAX;
        for (index, statement) in statements.iter().enumerate() {
            match statement {
                Statement::Instruction(instruction) => {
                    let here = statements.get(index..).unwrap_or_default();
                    if let Some((check, _)) = Check::parse(here) {
                        checked = Some(check);
                    }
                    facts.learn(instruction);
                }
                Statement::Label(label, _) => {
                    let behind = statements.get(index + 1..).unwrap_or_default();
                    facts.label(label, behind);
                    // The label behind the check is the loop's.
                    let stepping = match checked.take() {
                        Some(check) => {
                            let body = anchors::turns(behind, label).unwrap_or_default();
                            facts.turn(&check, body)
                        }
                        None => facts.turning(behind, label),
                    };
                    let mut claim = at_label(&facts, stepping);
                    left.retain(|(last, _)| *last >= index);
                    if room > 0 && !left.is_empty() {
                        let known: HashMap<&str, Fact<'_>> = facts.here().collect();
                        // Where ways met that a test parted, less is known than before it.
                        let says_more = |(name, fact): &&(&str, Fact<'_>)| {
                            known.get(name).is_none_or(|known| known != fact && !fact.is_plain())
                        };
                        let all = left.iter().flat_map(|(_, left)| left);
                        for (name, fact) in all.take(room).filter(says_more) {
                            claim.known.push(((*name).to_owned(), Claim::new(*fact)));
                        }
                        room = room.saturating_sub(left.iter().map(|(_, left)| left.len()).sum());
                        claim.known.sort_by(|one, other| one.0.cmp(&other.0));
                        claim.known.dedup();
                    }
                    room = room.saturating_sub(claim.known.len());
                    if room == 0 {
                        claim.known.clear();
                    }
                    if claim != AtLabel::default() {
                        claims.labels.insert(index, claim);
                    }
                    left.extend(facts.of_loop(label));
                }
                Statement::Variable(_) | Statement::Directive(_) | Statement::Block(..) => {}
            }
        }
        claims.always =
            facts.always().into_iter().map(|(name, fact)| (name.to_owned(), Claim::new(fact))).collect();
        claims
    }

    /// Which of them the checker finds wrong.
    fn wrong<'a>(&self, statements: &'a [Statement]) -> Vec<Wrong<'a>> {
        let mut checker = verify::Numbers::of(statements, self).trying();
        let mut check: Option<(Check<'_>, usize)> = None;
        for (index, statement) in statements.iter().enumerate() {
            match statement {
                Statement::Instruction(instruction) => {
                    let here = statements.get(index..).unwrap_or_default();
                    if check.is_none() {
                        check = Check::parse(here);
                    }
                    checker.learn(instruction);
                    // What it lets through is known behind it.
                    check = match check.take() {
                        Some((check, 1)) => {
                            checker.check(&check);
                            None
                        }
                        left => left.map(|(check, left)| (check, left - 1)),
                    };
                }
                Statement::Label(label, _) => checker.label(label),
                Statement::Variable(_) | Statement::Directive(_) | Statement::Block(..) => {}
            }
        }
        checker.wrong()
    }

    /// Claims less than what was wrong, at the labels that are `at` these statements. All of a label is gone through once.
    fn weaken(&mut self, at: &HashMap<&str, usize>, wrong: &[Wrong<'_>], everywhere: bool) {
        let mut of_labels: HashMap<&str, HashSet<&str>> = HashMap::default();
        for wrong in wrong {
            match wrong {
                Wrong::Always(name) => drop(self.always.remove(*name)),
                Wrong::Known(label, name) => {
                    of_labels.entry(label).or_default().insert(name);
                }
                Wrong::Turns(label) => {
                    if let Some(claims) = at.get(label).and_then(|at| self.labels.get_mut(at)) {
                        claims.turns = None;
                    }
                }
                Wrong::Many => return *self = Self::default(),
            }
        }
        if everywhere {
            let names: HashSet<&str> = of_labels.into_values().flatten().collect();
            for claims in self.labels.values_mut() {
                claims.known.retain(|(known, _)| !names.contains(known.as_str()));
            }
            return;
        }
        for (label, names) in of_labels {
            let Some(claims) = at.get(label).and_then(|at| self.labels.get_mut(at)) else { continue };
            // What depends on where in its block a thread is, is claimed without that first.
            let depends =
                |(known, claim): &(String, Claim)| names.contains(known.as_str()) && !claim.number.is_plain();
            let depend: HashSet<String> =
                claims.known.iter().filter(|claim| depends(claim)).map(|(name, _)| name.clone()).collect();
            claims.known.retain_mut(|(known, claim)| {
                if depend.contains(known) {
                    claim.number = claim.number.plain();
                    return true;
                }
                !names.contains(known.as_str())
            });
        }
    }
}

fn at_label(facts: &Facts<'_>, stepping: Option<Stepping<'_>>) -> AtLabel {
    let turns = stepping.map(|stepping| Turns {
        most: stepping.turns,
        counter: stepping.counter.map(str::to_owned),
        steps: stepping
            .steps
            .iter()
            .map(|(name, first, step)| ((*name).to_owned(), Claim::new(*first), *step))
            .collect(),
    });
    let steps = |name: &str| {
        turns.as_ref().is_some_and(|turns| turns.steps.iter().any(|(register, ..)| register == name))
    };
    let counter = turns.as_ref().and_then(|turns| turns.counter.as_deref());
    // Of which any number is possible nothing is said.
    let says = |fact: Fact<'_>| fact.number().is_none_or(|number| number != Sign::Unsigned.all(Width::WORD));
    let known = facts.here().filter(|(name, fact)| says(*fact) && (!steps(name) || counter == Some(*name)));
    let mut known: Vec<_> = known.map(|(name, fact)| (name.to_owned(), Claim::new(fact))).collect();
    known.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    AtLabel { known, turns }
}

impl fmt::Display for Claim {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.of {
            Of::Zero => write!(out, "number")?,
            Of::Parameter(name, offset) => write!(out, "parameter {name} {offset}")?,
            Of::Shared(name) => write!(out, "shared {name}")?,
            Of::Window(Window { number, writes, align }) => {
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
                (Of::Window(Window { number, writes: *access == "writes", align }), rest)
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
    pub(crate) fn read(&mut self, line: &str) -> Option<bool> {
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
