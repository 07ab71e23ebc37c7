//! Addresses in shared memory that are known are written as such, and not as sums, where registers take turns in holding
//! them: what is only moved among them is then known of all.

use crate::ast::{Instruction, Operand, Statement};
use crate::facts::Facts;
use crate::maps::HashSet;
use crate::names::Class;
use crate::table;
use crate::values::Known as _;

/// Writes such addresses so.
pub(super) fn fold(statements: &mut [Statement]) {
    for (index, variable, offset) in found(statements) {
        if let Some(Statement::Instruction(sum)) = statements.get_mut(index) {
            let address = match offset {
                0 => Operand::Symbol(variable),
                offset => Operand::SymbolOffset(variable, offset),
            };
            sum.opcode = "mov".to_owned();
            sum.modifiers = vec!["b32".to_owned()];
            sum.operands.truncate(1);
            sum.operands.push(address);
        }
    }
}

/// The sums that are known to be addresses, and which.
fn found(statements: &[Statement]) -> Vec<(usize, String, i64)> {
    let wanted = wanted(statements);
    if wanted.is_empty() {
        return Vec::new();
    }
    let mut facts = Facts::of(statements);
    let mut found = Vec::new();
    for (index, statement) in statements.iter().enumerate() {
        match statement {
            Statement::Label(name, _) => {
                facts.label(name, statements.get(index + 1..).unwrap_or_default());
            }
            Statement::Instruction(instruction) => {
                facts.learn(instruction);
                if let Some(Operand::Register(name)) = instruction.operands.first()
                    && kind(instruction) == Some(Kind::Sum)
                    && wanted.contains(name.as_str())
                    && let Some((variable, offset)) = facts.shared_address(name)
                {
                    found.push((index, variable.to_owned(), offset));
                }
            }
            Statement::Variable(_) | Statement::Block(..) | Statement::Directive(_) => {}
        }
    }
    found
}

/// How a register is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Move,
    Sum,
}

fn kind(instruction: &Instruction) -> Option<Kind> {
    let words = instruction.words();
    let plain = instruction.predicate.is_none() && matches!(words.as_slice(), ["b32" | "u32" | "s32"]);
    match (instruction.opcode.as_str(), instruction.operands.as_slice()) {
        ("mov", [_, Operand::Register(_) | Operand::Symbol(_) | Operand::SymbolOffset(..)]) if plain => {
            Some(Kind::Move)
        }
        ("add", [_, Operand::Register(_), Operand::Integer(_)]) if plain => Some(Kind::Sum),
        _ => None,
    }
}

/// The registers that are written in several places, by moves and at least one such sum.
fn wanted(statements: &[Statement]) -> HashSet<&str> {
    let instructions = || {
        statements.iter().filter_map(|statement| match statement {
            Statement::Instruction(instruction) => Some(instruction),
            _ => None,
        })
    };
    let of_kind = |wanted: Kind| {
        instructions().filter_map(move |found| match found.operands.first() {
            Some(Operand::Register(name)) if matches!(found.opcode.as_str(), "mov" | "add") => {
                (kind(found) == Some(wanted)).then_some(name.as_str())
            }
            _ => None,
        })
    };
    let moved: HashSet<&str> = of_kind(Kind::Move).collect();
    let is_word = |name: &&str| matches!(Class::parse(name), Some((Class::Word, _)));
    let mut wanted: HashSet<&str> =
        of_kind(Kind::Sum).filter(|name| moved.contains(name)).filter(is_word).collect();
    if wanted.is_empty() {
        return wanted;
    }
    for instruction in instructions().filter(|found| kind(found).is_none()) {
        let Some(row) = table::row_of(instruction) else { continue };
        table::written(row, instruction, &mut |name| {
            wanted.remove(name);
        });
    }
    wanted
}
