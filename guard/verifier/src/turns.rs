//! Loops that are left after so many turns: how they begin, and how they go back.
//!
//! Directly before the label of such a loop its counter, `%bh_c` and a number that no other loop has, is set: to the
//! turns, which each turn takes one off; or to where a register of the tenant's, which every turn adds the same
//! step to, is then at most. However that register wraps around, after that many turns it is the counter or beyond what
//! the counter was bounded by, so that the test fails. Where it fails beyond the counter only, the next step leads there, as
//! the counter is no closer to the greatest number than a step.

use crate::ast::{Instruction, Operand, Predicate, Statement};
use crate::lines::strip;
use crate::maps::HashSet;
use crate::names::{self, Class};
use crate::print::Text;

/// What ends a loop in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By<'a> {
    /// The counter says how many turns are left.
    Count(u64),
    /// A register goes up or down to the counter.
    Step {
        /// The register.
        register: &'a str,
        /// How it is compared with its bound.
        test: Test,
        /// Which way it steps.
        way: Way<'a>,
    },
}

impl<'a> By<'a> {
    /// The registers that lead to the counter: the one that is tested, and the one that is added to it.
    pub(crate) fn registers(self) -> impl Iterator<Item = &'a str> {
        let registers = match self {
            Self::Count(_) => [None, None],
            Self::Step { register, way, .. } => [Some(register), way.register()],
        };
        registers.into_iter().flatten()
    }
}

/// The registers that lead to the counters of a body.
pub(crate) fn watched(statements: &[Statement]) -> HashSet<&str> {
    let mut watched = HashSet::default();
    for (index, statement) in statements.iter().enumerate() {
        let Statement::Instruction(found) = statement else { continue };
        let Some(Operand::Register(name)) = found.operands.first() else { continue };
        let number = name.strip_prefix(names::COUNTER).and_then(|number| number.parse().ok());
        let here = statements.get(index..).unwrap_or_default();
        if let Some(opening) = number.and_then(|number| opening(here, number)) {
            watched.extend(opening.by.registers());
        }
    }
    watched
}

/// How a register is compared with the counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test {
    /// `lt`.
    Less(Sign),
    /// `le`.
    LessOrEqual(Sign),
}

impl Test {
    /// In how many turns more it may hold than a test that fails at the counter.
    pub const fn more(self) -> u64 {
        match self {
            Self::Less(_) => 0,
            Self::LessOrEqual(_) => 1,
        }
    }
}

/// How numbers are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// The highest bit is a sign.
    Signed,
    /// All bits count up.
    Unsigned,
}

impl Sign {
    const fn name(self) -> &'static str {
        match self {
            Self::Signed => "s32",
            Self::Unsigned => "u32",
        }
    }

    fn most(self) -> i128 {
        match self {
            Self::Signed => i32::MAX.into(),
            Self::Unsigned => u32::MAX.into(),
        }
    }
}

/// How far the counter is from the register before the first turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way<'a> {
    /// So many times what this register holds, or less.
    Times(&'a str, u64),
    /// So far, or less.
    Far(i128),
}

impl<'a> Way<'a> {
    /// The register that is added in each turn.
    pub const fn register(self) -> Option<&'a str> {
        match self {
            Self::Times(register, _) => Some(register),
            Self::Far(_) => None,
        }
    }

    /// How many turns that is at most, with the step of each.
    pub fn turns(self, step: &Operand) -> Option<u64> {
        match (self, step) {
            (Way::Times(register, turns), Operand::Register(name)) => (name == register).then_some(turns),
            (Way::Far(far), Operand::Integer(step)) if *step != 0 && far % step == 0 => {
                u64::try_from(far / step).ok().filter(|turns| *turns > 0)
            }
            _ => None,
        }
    }
}

/// How a loop begins.
pub(crate) struct Opening<'a> {
    pub(crate) by: By<'a>,
    /// A register that has to be known to be from 1 to this: the counter is so far from the greatest number.
    pub(crate) step: Option<(&'a str, i128)>,
    pub(crate) label: &'a str,
    /// What sets the counter.
    pub(crate) sets: &'a [Statement],
    /// What comes behind the label.
    pub(crate) rest: &'a [Statement],
}

/// The counter of this number.
pub(crate) fn counter(number: u32) -> String {
    format!("{}{number}", names::COUNTER)
}

/// The beginning of a loop with the counter of this number, where one stands here.
pub(crate) fn opening(statements: &[Statement], number: u32) -> Option<Opening<'_>> {
    let counter = counter(number);
    let Statement::Instruction(first) = statements.first()? else { return None };
    let sets = matches!(first.operands.first(), Some(Operand::Register(name)) if *name == counter);
    if !sets {
        return None;
    }
    let (by, lines) = match first.opcode.as_str() {
        "mov" => {
            let turns =
                u64::try_from(integer(first, 1)?).ok().filter(|turns| (1..1 << 31).contains(turns))?;
            (By::Count(turns), vec![format!("mov.u32 {counter}, {turns}")])
        }
        "mad" => {
            let (step, turns, register) = (word(first, 1)?, integer(first, 2)?, word(first, 3)?);
            // A register that is added to itself does not grow by what it was.
            (step != register).then_some(())?;
            let set = format!("mad.lo.s32 {counter}, {step}, {turns}, {register}");
            let turns = u64::try_from(turns).ok().filter(|turns| (1..1 << 31).contains(turns))?;
            bounded(register, Way::Times(step, turns), set, statements, &counter)?
        }
        "add" => {
            let (register, far) = (word(first, 1)?, integer(first, 2)?);
            let set = format!("add.s32 {counter}, {register}, {far}");
            (far.abs() < 1 << 31).then_some(())?;
            bounded(register, Way::Far(far), set, statements, &counter)?
        }
        _ => return None,
    };
    let expected: Vec<&str> = lines.iter().map(String::as_str).collect();
    let behind = strip(statements, &expected)?;
    let (Statement::Label(label, _), rest) = behind.split_first()? else { return None };
    // Those of gates and of the zeroing stand in these alone.
    if !names::is_canonical_label(label) {
        return None;
    }
    let (sets, _) = statements.split_at(lines.len());
    let mut step = None;
    if let By::Step { test: Test::LessOrEqual(sign), way, .. } = by {
        let Some(Statement::Instruction(least)) = sets.last() else { return None };
        // Spelled as a number of the sign that it is compared by: `-1` is the largest one without.
        let room = sign.most() - integer(least, 2).filter(|least| (0..=sign.most()).contains(least))?;
        match way {
            Way::Times(register, _) => step = Some((register, room)),
            // The step divides it.
            Way::Far(far) => (far > 0 && far <= room).then_some(())?,
        }
    }
    Some(Opening { by, step, label, sets, rest })
}

/// The counter is where the register is after all turns, or the tenant's own bound where that is less.
fn bounded<'a>(
    register: &'a str,
    way: Way<'a>,
    set: String,
    statements: &[Statement],
    counter: &str,
) -> Option<(By<'a>, Vec<String>)> {
    let at = |index: usize| match statements.get(index) {
        Some(Statement::Instruction(found)) => Some(found),
        _ => None,
    };
    let second = at(1)?;
    let bound = bound(second, 2)?;
    let sign = if second.modifiers.as_slice() == ["s32"] { Sign::Signed } else { Sign::Unsigned };
    let ty = sign.name();
    let mut lines = vec![set, format!("min.{ty} {counter}, {counter}, {bound}")];
    let third = at(2).filter(|third| third.opcode == "min").and_then(|third| integer(third, 2));
    lines.extend(third.map(|most| format!("min.{ty} {counter}, {counter}, {most}")));
    let test = if third.is_some() { Test::LessOrEqual(sign) } else { Test::Less(sign) };
    Some((By::Step { register, test, way }, lines))
}

/// How a loop goes back.
pub(crate) struct Closing<'a> {
    pub(crate) number: u32,
    pub(crate) label: &'a str,
    /// The tenant's predicate that it goes back by, where there is one.
    pub(crate) reads: Option<&'a str>,
    /// How many instructions that is.
    pub(crate) length: usize,
}

/// What goes back to a loop that ends by a counter, where that stands here.
pub(crate) fn closing<'a>(
    statements: &'a [Statement],
    by: impl Fn(u32) -> Option<By<'a>>,
) -> Option<Closing<'a>> {
    let Statement::Instruction(first) = statements.first()? else { return None };
    let number = match (first.opcode.as_str(), first.operands.as_slice()) {
        ("add", [Operand::Register(name), ..]) | ("setp", [_, _, Operand::Register(name)]) => {
            name.strip_prefix(names::COUNTER)?.parse::<u32>().ok()?
        }
        _ => return None,
    };
    let counter = counter(number);
    let mut reads = None;
    let at = |index: usize| match statements.get(index) {
        Some(Statement::Instruction(found)) => Some(found),
        _ => None,
    };
    let second = at(1)?;
    let lines = match by(number)? {
        By::Count(_) => {
            let test = match second.operands.get(3) {
                None => format!("setp.gt.s32 %bh_q, {counter}, 0"),
                Some(Operand::Register(name)) => {
                    reads = Some(name.as_str());
                    format!("setp.gt.and.s32 %bh_q, {counter}, 0, {name}")
                }
                Some(Operand::Not(name)) => {
                    reads = Some(name.as_str());
                    format!("setp.gt.and.s32 %bh_q, {counter}, 0, !{name}")
                }
                Some(_) => return None,
            };
            vec![format!("add.s32 {counter}, {counter}, -1"), test]
        }
        By::Step { register, test, .. } => {
            let (order, sign) = match test {
                Test::Less(sign) => ("lt", sign),
                Test::LessOrEqual(sign) => ("le", sign),
            };
            vec![format!("setp.{order}.{} %bh_q, {register}, {counter}", sign.name())]
        }
    };
    let expected: Vec<&str> = lines.iter().map(String::as_str).collect();
    let Some(Statement::Instruction(branch)) = strip(statements, &expected)?.first() else { return None };
    let by_test =
        matches!(&branch.predicate, Some(Predicate { register, negated: false }) if register == "%bh_q");
    let Some(Operand::Symbol(label)) = branch.operands.first() else { return None };
    let goes = by_test && Text(branch).is(&format!("@%bh_q bra {label}"));
    goes.then_some(Closing { number, label, reads, length: lines.len() + 1 })
}

fn integer(instruction: &Instruction, index: usize) -> Option<i128> {
    match instruction.operands.get(index) {
        Some(Operand::Integer(value)) => Some(*value),
        _ => None,
    }
}

/// The tenant's 32-bit register that an operand is.
fn word(instruction: &Instruction, index: usize) -> Option<&str> {
    match instruction.operands.get(index) {
        Some(Operand::Register(name)) if matches!(Class::parse(name), Some((Class::Word, _))) => Some(name),
        _ => None,
    }
}

/// A 32-bit register of the tenant's or a number.
fn bound(instruction: &Instruction, index: usize) -> Option<String> {
    let number = || integer(instruction, index).map(|value| value.to_string());
    word(instruction, index).map(str::to_owned).or_else(number)
}
