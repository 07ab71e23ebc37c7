//! Loops whose pointers are checked before they turn: what that check is.
//!
//! Pointers that a loop steps, or that came from memory, are *anchors* of the loop: before its turns a check sees that each
//! lies in the window, and that what is added to it in each turn is little. While the loop turns, which is not
//! often before the check comes again, it cannot be carried further than the guard zones reach; so nothing has to be
//! confined inside. Where the check fails, control goes to a copy of the loop in which everything is.

use bulkhead_mm::{HALF_BYTES, WINDOW_BYTES, ZONE_BYTES};

use crate::ast::{Instruction, Operand, Predicate, Span, Spans, Statement};
use crate::limits::REACH_BYTES;
use crate::names::{self, Class};
use crate::print::Text;

/// The high word of where the window of a half begins, from the first byte of that half.
const WINDOW_BEGINS: i128 = (ZONE_BYTES >> 32) as i128;
/// Bits of a high word that may be anything in a window, counted from where that begins.
const IN_WINDOW: i128 = (WINDOW_BYTES >> 32) as i128 - 1;
/// The bit of a high word that chooses the half.
const HALF: i128 = (HALF_BYTES >> 32) as i128;

const _: () = {
    assert!(
        WINDOW_BYTES.is_power_of_two() && HALF_BYTES.is_power_of_two(),
        "bits tell what lies in a window"
    );
    assert!(ZONE_BYTES.is_multiple_of(1 << 32) && WINDOW_BYTES >= 1 << 32, "high words tell");
    assert!(ZONE_BYTES + WINDOW_BYTES < HALF_BYTES, "what is added does not carry into the next half");
    assert!(REACH_BYTES <= ZONE_BYTES, "turns end in the zones around the window");
};

/// A 64-bit register that points into the window of a half before the turns, zones not counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchor<'a> {
    /// The register that the pointer is in.
    pub register: &'a str,
    /// Whether it points where stores may go.
    pub writes: bool,
    /// Of what it is a multiple, in bytes: a power of two.
    pub align: u64,
}

/// A 64-bit register that holds a number between less than this and as much below zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step<'a> {
    /// The register that every turn adds to.
    pub register: &'a str,
    /// A power of two.
    pub bound: i64,
}

/// A check, and where control goes where it fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check<'a> {
    /// The pointers that are checked.
    pub anchors: Vec<Anchor<'a>>,
    /// What every turn adds to registers.
    pub steps: Vec<Step<'a>>,
    /// The label that the loop begins with.
    pub label: &'a str,
}

/// `lop3`'s table for `(first & ~second) ^ third`.
const OUTSIDE: i128 = 0x9A;
/// `lop3`'s table for `(first & second) | third`.
const AND_THEN_OR: i128 = 0xEA;
/// Where a check gathers what is wrong.
const SUM: &str = "%bh_s";
/// The largest bound of a step.
const BOUND_MAX: i64 = 1 << 40;

impl<'a> Check<'a> {
    /// The one text that this check may have.
    pub fn instructions(&self) -> Vec<Instruction> {
        let mut lines = vec![begins()];
        lines.extend(self.anchors.iter().flat_map(Anchor::lines));
        lines.push(tests());
        lines.extend(self.steps.iter().flat_map(Step::lines));
        lines.push(leaves(self.label));
        lines
    }

    /// The check that stands here, and how many instructions it is.
    pub fn parse(statements: &'a [Statement]) -> Option<(Self, usize)> {
        let at = |index: usize| match statements.get(index) {
            Some(Statement::Instruction(instruction)) => Some(instruction),
            _ => None,
        };
        // Each line is held against what it has to be before the next is read, so that what is none is read once.
        let is = |from: usize, lines: &[Instruction]| {
            lines.iter().zip(from..).all(|(line, index)| {
                at(index).is_some_and(|found| Text(found).to_string() == Text(line).to_string())
            })
        };
        // Most statements are none, and are asked.
        matches!(at(0)?.operands.first(), Some(Operand::Register(name)) if name == SUM).then_some(())?;
        is(0, &[begins()]).then_some(())?;
        let mut check = Check { anchors: Vec::new(), steps: Vec::new(), label: "" };
        let mut next = 1;
        while let Some(taken) = at(next).filter(|found| found.opcode == "mov") {
            let register = double(taken, 1)?;
            let writes = integer(at(next + 2)?, 2)? == IN_WINDOW;
            let bits = at(next + 4).filter(|found| found.opcode == "lop3");
            let align = match bits {
                Some(bits) => u64::try_from(integer(bits, 2)?).ok()?.checked_add(1)?,
                None => 1,
            };
            (align.is_power_of_two() && align <= names::WIDEST_ACCESS).then_some(())?;
            let anchor = Anchor { register, writes, align };
            let lines = anchor.lines();
            is(next, &lines).then_some(())?;
            next += lines.len();
            check.anchors.push(anchor);
        }
        is(next, &[tests()]).then_some(())?;
        next += 1;
        while let Some(added) = at(next).filter(|found| found.opcode == "add") {
            let bound = i64::try_from(integer(added, 2)?).ok()?;
            (bound > 0 && bound <= BOUND_MAX && bound.unsigned_abs().is_power_of_two()).then_some(())?;
            let step = Step { register: double(added, 1)?, bound };
            let lines = step.lines();
            is(next, &lines).then_some(())?;
            next += lines.len();
            check.steps.push(step);
        }
        let Some(Operand::Symbol(label)) = at(next)?.operands.first() else { return None };
        check.label = label;
        (is(next, &[leaves(label)]) && !check.anchors.is_empty()).then_some((check, next + 1))
    }
}

impl Anchor<'_> {
    fn lines(&self) -> Vec<Instruction> {
        let (lo, hi, s) = (|| register("%bh_lo"), || register("%bh_hi"), || register(SUM));
        let mask = number(if self.writes { IN_WINDOW } else { IN_WINDOW | HALF });
        let base = register("%bh_base");
        let halves = Operand::Vector(vec![lo(), hi()]);
        let mut lines = vec![
            plain("mov", &["b64"], vec![halves, register(self.register)]),
            plain("add", &["s32"], vec![hi(), hi(), number(-WINDOW_BEGINS)]),
            plain("lop3", &["b32"], vec![hi(), hi(), mask, base, number(OUTSIDE)]),
            plain("or", &["b32"], vec![s(), s(), hi()]),
        ];
        if self.align > 1 {
            let bits = number(i128::from(self.align) - 1);
            lines.push(plain("lop3", &["b32"], vec![s(), lo(), bits, s(), number(AND_THEN_OR)]));
        }
        lines
    }
}

impl Step<'_> {
    fn lines(&self) -> [Instruction; 2] {
        let (a, q) = (|| register("%bh_a"), || register("%bh_q"));
        let bound = i128::from(self.bound);
        [
            plain("add", &["s64"], vec![a(), register(self.register), number(bound)]),
            plain("setp", &["ge", "or", "u64"], vec![q(), a(), number(2 * bound), q()]),
        ]
    }
}

/// What a check begins with.
fn begins() -> Instruction {
    plain("mov", &["b32"], vec![register(SUM), number(0)])
}

/// What stands behind its anchors.
fn tests() -> Instruction {
    plain("setp", &["ne", "s32"], vec![register("%bh_q"), register(SUM), number(0)])
}

/// What it ends with.
fn leaves(label: &str) -> Instruction {
    let predicate = Some(Predicate { register: "%bh_q".to_owned(), negated: false });
    Instruction { predicate, ..plain("bra", &[], vec![Operand::Symbol(label.to_owned())]) }
}

const fn number(value: i128) -> Operand {
    Operand::Integer(value)
}

/// What turns in a loop without labels inside: from behind its label to the first branch back to it.
pub fn turns<'a>(behind: &'a [Statement], label: &str) -> Option<&'a [Statement]> {
    for (index, statement) in behind.iter().enumerate() {
        match statement {
            Statement::Instruction(found) if found.opcode == "bra" => {
                if matches!(found.operands.first(), Some(Operand::Symbol(to)) if to == label) {
                    return behind.get(..index);
                }
            }
            Statement::Instruction(_) | Statement::Directive(_) => {}
            Statement::Label(..) | Statement::Variable(_) | Statement::Block(..) => return None,
        }
    }
    None
}

/// The tenant's 64-bit register that an operand is.
fn double(instruction: &Instruction, index: usize) -> Option<&str> {
    match instruction.operands.get(index) {
        Some(Operand::Register(name)) if matches!(Class::parse(name), Some((Class::Double, _))) => Some(name),
        _ => None,
    }
}

fn integer(instruction: &Instruction, index: usize) -> Option<i128> {
    match instruction.operands.get(index) {
        Some(Operand::Integer(value)) => Some(*value),
        _ => None,
    }
}

fn register(name: &str) -> Operand {
    Operand::Register(name.to_owned())
}

fn plain(opcode: &str, modifiers: &[&str], operands: Vec<Operand>) -> Instruction {
    Instruction {
        predicate: None,
        opcode: opcode.to_owned(),
        modifiers: modifiers.iter().map(|modifier| (*modifier).to_owned()).collect(),
        operands,
        span: Span::default(),
        operand_spans: Spans::default(),
    }
}

#[cfg(test)]
mod tests;
