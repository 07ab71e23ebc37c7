//! What a register is in the turns of a loop, with whatever labels and loops inside, that one instruction adds to, where
//! the ways back are taken only while it is no more than something.
//!
//! From behind that instruction control comes to it again by a branch back over it, and between the test before that
//! branch and the instruction nothing else writes the register. So before it the register is no more than what it was when
//! the loop began, or than what the tests let through; and nothing wraps around where that and the step are little enough.

use std::rc::Rc;

use super::edges::Extent;
use super::{Fact, Facts, Known as _};
use crate::ast::{Instruction, Operand, Predicate, Statement};
use crate::maps::{HashMap, HashSet};
use crate::names::Class;
use crate::table;
use crate::values::number::{Number, Sign, Width};

/// Statements before a branch back that are looked at for the tests that lead there, at most; and in all.
const BEFORE_MAX: usize = 64;
const LOOKED_MAX: usize = 1 << 24;
/// Registers of a loop that are looked at, and instructions that make one the least of several, at most.
const REGISTERS_MAX: usize = 4;
const LEAST_MAX: usize = 8;
/// What one of those costs of what is looked at in all.
const LOOKED_OF_A_WRITE: usize = 8;

/// What holds where a branch back is taken: a register is less than something, or no more.
#[derive(Debug, Clone, Copy)]
struct Guard<'a> {
    register: &'a str,
    bound: &'a Operand,
    sign: Sign,
    or_equal: bool,
}

/// What holds where branches back are taken.
#[derive(Debug, Clone, Default)]
pub(super) struct Guards<'a> {
    known: HashMap<usize, Rc<Vec<Guard<'a>>>>,
    looked: usize,
}

impl Guards<'_> {
    /// How many entries a copy has.
    pub(super) fn size(&self) -> usize {
        self.known.len()
    }
}

impl<'a> Facts<'a> {
    /// At the label of such a loop.
    pub(super) fn stepped(&mut self, extent: Extent) {
        let mut names: Vec<&str> = Vec::new();
        for guard in self.guards(extent.last).iter() {
            let known = matches!(self.passing.get(guard.register), Some(Some(_)));
            if !(known || names.contains(&guard.register)) {
                names.push(guard.register);
            }
        }
        for name in names.into_iter().take(REGISTERS_MAX) {
            if let Some(fact) = self.in_turns(name, extent) {
                self.passing.insert(name, Some(Fact::Number(fact)));
            }
        }
    }

    fn in_turns(&mut self, name: &'a str, extent: Extent) -> Option<Number> {
        let Extent { at, last } = extent;
        (self.guards.looked <= LOOKED_MAX).then_some(())?;
        let places: Vec<usize> = self.edges.writes().get(name)?.between(at, last).take(2).collect();
        let [place] = places[..] else { return None };
        let Some(Statement::Instruction(add)) = self.edges.statements.get(place) else { return None };
        let step = match step(add, name)? {
            Operand::Register(step) if self.edges.is_written(step, at, last) => return None,
            step => self.narrow(Some(step), Sign::Signed)?,
        };
        let first = self.entering(name).and_then(Fact::small)?;
        let backs = self.edges.backs(at, last);
        self.guards.looked += backs.len();
        (self.guards.looked <= LOOKED_MAX).then_some(())?;
        let over: Vec<_> = backs.iter().copied().filter(|(from, to)| *to < place && place < *from).collect();
        let mut high = first.high;
        for (from, to) in over {
            let guards = self.guards(from);
            self.guards.looked += 1 + guards.len();
            (self.guards.looked <= LOOKED_MAX).then_some(())?;
            let mut bounds = guards.iter().filter(|guard| guard.register == name);
            let bound = bounds.find_map(|guard| self.most(guard, to, extent))?;
            high = bound.max(high);
        }
        let fits = step.is_small(Width::WORD) && high + step.high <= Width::WORD.most();
        let number = Number::between(first.low, high).with_zeros(first.zeros.min(step.zeros));
        fits.then_some(number)
    }

    /// What holds where the branch at `from` is taken, of what stands straight before it.
    fn guards(&mut self, from: usize) -> Rc<Vec<Guard<'a>>> {
        if let Some(known) = self.guards.known.get(&from) {
            return Rc::clone(known);
        }
        let (mut guards, mut holding) = (Vec::new(), Vec::new());
        let mut written: HashSet<&str> = HashSet::default();
        let begin = from.saturating_sub(BEFORE_MAX);
        let before = self.edges.statements.get(begin..=from).unwrap_or_default();
        for (index, statement) in before.iter().enumerate().rev() {
            self.guards.looked += 1;
            let instruction = match statement {
                Statement::Instruction(instruction) if self.guards.looked <= LOOKED_MAX => instruction,
                Statement::Directive(_) => continue,
                _ => break,
            };
            let Some(row) = table::row_of(instruction) else { break };
            let is_last = begin + index == from;
            if !is_last && table::ends_path(row, instruction) {
                break;
            }
            if let (Some(_), Some(Predicate { register, negated })) =
                (table::target(row, instruction), &instruction.predicate)
                && !written.contains(register.as_str())
            {
                // It is taken there, and not before.
                holding.push((register.as_str(), is_last != *negated));
            }
            if let [Operand::Register(test), ..] = instruction.operands.as_slice()
                && instruction.predicate.is_none()
                && !written.contains(test.as_str())
                && holding.iter().any(|(name, _)| name == test)
            {
                let said: Vec<bool> =
                    holding.iter().filter(|(name, _)| name == test).map(|(_, holds)| *holds).collect();
                for holds in said {
                    let fresh = |name: &str| !written.contains(name);
                    guards.extend(guard(instruction, holds).filter(|guard| {
                        let fixed = !matches!(guard.bound, Operand::Register(name) if !fresh(name));
                        fixed && fresh(guard.register)
                    }));
                    for part in parts(instruction, holds).filter(|(name, _)| fresh(name) && name != test) {
                        // Once: chains of tests of themselves would double what is held.
                        if !holding.contains(&part) {
                            holding.push(part);
                        }
                    }
                }
            }
            table::written(row, instruction, &mut |name| {
                written.insert(name);
            });
        }
        let guards = Rc::new(guards);
        self.guards.known.insert(from, Rc::clone(&guards));
        guards
    }

    /// What a register is at most where a guard of a branch back to the label at `to` holds, in a loop.
    fn most(&mut self, guard: &Guard<'a>, to: usize, extent: Extent) -> Option<i128> {
        let most = match guard.bound {
            Operand::Integer(value) => guard.sign.immediate(*value, Width::WORD)?,
            Operand::Register(name) => {
                let fixed = self.small(name).filter(|_| !self.edges.is_written(name, extent.at, extent.last));
                fixed.map(|fact| fact.high).or_else(|| self.least_of(name, guard.sign, to, extent))?
            }
            _ => return None,
        };
        let most = if guard.or_equal { most } else { most - 1 };
        (-1..=i32::MAX.into()).contains(&most).then_some(most)
    }

    /// What a register is at most that is written in one place only, straight through, whose end makes it the least of
    /// what it would be and of what is known: at all times, or in the loop, which control then runs into there only.
    fn least_of(&mut self, name: &str, sign: Sign, to: usize, extent: Extent) -> Option<i128> {
        let Extent { at, last } = extent;
        let places: Vec<usize> = self.edges.writes().get(name)?.all().take(LEAST_MAX + 1).collect();
        // Each is a look at names, in several maps.
        self.guards.looked += LOOKED_OF_A_WRITE * (1 + places.len());
        let (first, end) = (*places.first()?, *places.last()?);
        (places.len() <= LEAST_MAX && end - first + 1 == places.len()).then_some(())?;
        let (runs, looked) = if end + 1 == to { self.edges.is_run_into(to) } else { (false, 0) };
        self.guards.looked += looked;
        let ty = if sign == Sign::Signed { "s32" } else { "u32" };
        let mut least: Option<i128> = None;
        for place in places {
            let Some(Statement::Instruction(found)) = self.edges.statements.get(place) else { return None };
            let is_it = |operand: &Operand| matches!(operand, Operand::Register(other) if other == name);
            let bound = match found.operands.as_slice() {
                [one, other, bound]
                    if is_it(one)
                        && is_it(other)
                        && found.predicate.is_none()
                        && (found.opcode.as_str(), found.words().as_slice()) == ("min", &[ty]) =>
                {
                    bound
                }
                _ => {
                    least = None;
                    continue;
                }
            };
            let bound = match bound {
                Operand::Integer(value) => Some(*value).filter(|value| *value >= 0),
                Operand::Register(bound) => {
                    let ever = self.known.get(bound.as_str()).filter(|_| self.is_written_once(bound));
                    let fixed = runs && !self.edges.is_written(bound, at.min(first), last);
                    let here = self.small(bound).filter(|_| fixed);
                    ever.copied().and_then(Fact::small).or(here).map(|number| number.high)
                }
                _ => None,
            };
            least = match (least, bound) {
                (Some(least), Some(bound)) => Some(bound.min(least)),
                (least, bound) => least.or(bound),
            };
        }
        least
    }
}

/// The predicates that hold, or do not, where one does that is made from them, or does not.
fn parts(test: &Instruction, holds: bool) -> impl Iterator<Item = (&str, bool)> {
    let words = test.words();
    let operands = test.operands.get(1..).unwrap_or_default();
    let (of, same) = match (test.opcode.as_str(), words.as_slice(), holds) {
        ("setp", [_, "and", _], true) | ("setp", [_, "or", _], false) => (operands.get(2..), true),
        ("and", ["pred"], true) | ("or", ["pred"], false) => (Some(operands), true),
        ("not", ["pred"], _) => (Some(operands), false),
        _ => (None, true),
    };
    of.unwrap_or_default().iter().filter_map(move |operand| match operand {
        Operand::Register(name) => Some((name.as_str(), holds == same)),
        Operand::Not(name) => Some((name.as_str(), holds != same)),
        _ => None,
    })
}

/// What an instruction adds to a register.
fn step<'b>(add: &'b Instruction, name: &str) -> Option<&'b Operand> {
    let plain = add.opcode == "add" && add.predicate.is_none();
    (plain && matches!(add.words().as_slice(), ["s32" | "u32"])).then_some(())?;
    let is_it = |operand: &Operand| matches!(operand, Operand::Register(other) if other == name);
    match add.operands.as_slice() {
        [to, from, step] | [to, step, from] if is_it(to) && is_it(from) && !is_it(step) => Some(step),
        _ => None,
    }
}

/// What a test says where it holds, or does not.
fn guard(test: &Instruction, holds: bool) -> Option<Guard<'_>> {
    let words = test.words();
    let (order, ty) = match (test.opcode.as_str(), words.as_slice()) {
        ("setp", [order, ty]) => (order, ty),
        ("setp", [order, "and", ty]) if holds => (order, ty),
        ("setp", [order, "or", ty]) if !holds => (order, ty),
        _ => return None,
    };
    let [_, one, other, ..] = test.operands.as_slice() else { return None };
    let sign = Sign::of(ty)?;
    let (less, or_equal) = match (*order, holds) {
        ("lt", true) | ("ge", false) => ((one, other), false),
        ("le", true) | ("gt", false) => ((one, other), true),
        ("gt", true) | ("le", false) => ((other, one), false),
        ("ge", true) | ("lt", false) => ((other, one), true),
        _ => return None,
    };
    let (Operand::Register(register), bound) = less else { return None };
    let word = matches!(Class::parse(register), Some((Class::Word, _)));
    word.then_some(Guard { register, bound, sign, or_equal })
}
