//! Remainders by powers of two, as compilers write them for signed numbers: what is left of a number when its multiple
//! of the power is taken off, which for a number below zero is rounded up. Of a number that is known to be from 0 on the
//! same is one conjunction, of which more is known.

use crate::maps::HashMap;

use crate::ast::{Instruction, Operand, Statement};
use crate::facts::Facts;
use crate::names::Class;
use crate::table;
use crate::values::Known as _;

/// What is remembered of registers at a time.
const REMEMBERED_MAX: usize = 64;

/// What registers are made from, up to the next label.
#[derive(Default)]
struct Made<'a> {
    /// The same number as another register.
    same: HashMap<&'a str, &'a str>,
    /// Another register without so many of its low bits.
    without: HashMap<&'a str, (&'a str, i128)>,
}

impl<'a> Made<'a> {
    fn root(&self, name: &'a str) -> &'a str {
        self.same.get(name).copied().unwrap_or(name)
    }

    fn written(&mut self, name: &str) {
        self.same.retain(|copy, of| *copy != name && *of != name);
        self.without.retain(|rest, (of, _)| *rest != name && *of != name);
    }
}

/// Writes such remainders as conjunctions.
pub(super) fn fold(statements: &mut [Statement]) {
    let folded: Vec<(usize, Operand, i128)> = found(statements);
    for (index, number, bits) in folded {
        if let Some(Statement::Instruction(instruction)) = statements.get_mut(index) {
            "and".clone_into(&mut instruction.opcode);
            instruction.modifiers = vec!["b32".to_owned()];
            instruction.operands.truncate(1);
            instruction.operands.extend([number, Operand::Integer(bits)]);
        }
    }
}

fn found(statements: &[Statement]) -> Vec<(usize, Operand, i128)> {
    // Most bodies have nothing that could be one.
    let cuts =
        |statement: &Statement| matches!(statement, Statement::Instruction(found) if cut(found).is_some());
    if !statements.iter().any(cuts) {
        return Vec::new();
    }
    let mut facts = Facts::of(statements);
    let mut made = Made::default();
    let mut found = Vec::new();
    for (index, statement) in statements.iter().enumerate() {
        match statement {
            Statement::Label(name, _) => {
                let behind = statements.get(index + 1..).unwrap_or_default();
                facts.label(name, behind);
                facts.turning(behind, name);
                made = Made::default();
            }
            Statement::Instruction(instruction) => {
                let learned = learn(&facts, &made, instruction);
                if let Some(Learned::Remainder(number, bits)) = &learned {
                    found.push((index, Operand::Register((*number).to_owned()), *bits));
                }
                if let Some(row) = table::row_of(instruction) {
                    table::written(row, instruction, &mut |name| made.written(name));
                }
                facts.learn(instruction);
                let room = made.same.len() + made.without.len() < REMEMBERED_MAX;
                let Some(result) = word(instruction, 0).filter(|_| room) else { continue };
                match learned {
                    Some(Learned::Same(number)) if number != result => {
                        made.same.insert(result, number);
                    }
                    Some(Learned::Without(number, bits)) if number != result => {
                        made.without.insert(result, (number, bits));
                    }
                    _ => {}
                }
            }
            Statement::Variable(_) | Statement::Block(..) | Statement::Directive(_) => {}
        }
    }
    found
}

/// What an instruction makes of a register.
enum Learned<'a> {
    Same(&'a str),
    Without(&'a str, i128),
    Remainder(&'a str, i128),
}

fn learn<'a>(facts: &Facts<'a>, made: &Made<'a>, instruction: &'a Instruction) -> Option<Learned<'a>> {
    instruction.predicate.is_none().then_some(())?;
    let words = instruction.words();
    let modifiers = words.as_slice();
    match (instruction.opcode.as_str(), modifiers) {
        ("mov", ["b32" | "u32" | "s32"]) => Some(Learned::Same(made.root(word(instruction, 1)?))),
        ("add", ["u32" | "s32"]) => {
            let (one, other) = (word(instruction, 1)?, word(instruction, 2)?);
            facts.is_zero(other).then(|| Learned::Same(made.root(one)))
        }
        ("and", ["b32"]) => {
            let number = made.root(word(instruction, 1)?);
            cut(instruction).map(|bits| Learned::Without(number, bits))
        }
        ("sub", ["u32" | "s32"]) => {
            let number = word(instruction, 1)?;
            let (of, bits) = made.without.get(word(instruction, 2)?).copied()?;
            (of == made.root(number) && facts.is_from_zero(number))
                .then_some(Learned::Remainder(number, bits))
        }
        _ => None,
    }
}

/// The low bits that a conjunction takes off a number.
fn cut(instruction: &Instruction) -> Option<i128> {
    let Some(Operand::Integer(mask)) = instruction.operands.get(2).filter(|_| instruction.opcode == "and")
    else {
        return None;
    };
    let bits = -mask - 1;
    let power = u64::try_from(bits + 1).ok().filter(|power| power.is_power_of_two() && *power < 1 << 31);
    power.map(|_| bits)
}

fn word(instruction: &Instruction, index: usize) -> Option<&str> {
    match instruction.operands.get(index) {
        Some(Operand::Register(name)) if matches!(Class::parse(name), Some((Class::Word, _))) => Some(name),
        _ => None,
    }
}
