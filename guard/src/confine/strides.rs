//! Strides of matrices that are numbers are written as such: what lies in shared memory has to be known.

use crate::maps::HashMap;

use crate::ast::{Instruction, Operand, Statement};
use crate::table;

/// Writes numbers for the strides that a register always is.
pub(super) fn fold(statements: &mut [Statement]) {
    if !statements
        .iter()
        .any(|statement| matches!(statement, Statement::Instruction(found) if is_strided(found)))
    {
        return;
    }
    // What each register is, where one instruction writes it; none where several do.
    let mut known: HashMap<String, Option<i128>> = HashMap::default();
    for statement in statements.iter() {
        let Statement::Instruction(instruction) = statement else { continue };
        let Some(row) = table::row_of(instruction) else { continue };
        let number = match (row.name, instruction.operands.get(1), &instruction.predicate) {
            ("mov", Some(Operand::Integer(number)), None) => Some(*number),
            _ => None,
        };
        table::written(row, instruction, &mut |name| {
            known.entry(name.to_owned()).and_modify(|before| *before = None).or_insert(number);
        });
    }
    for statement in statements {
        let Statement::Instruction(instruction) = statement else { continue };
        if is_strided(instruction)
            && let Some(stride) = instruction.operands.get_mut(2)
            && let Operand::Register(name) = stride
            && let Some(Some(number)) = known.get(name)
        {
            *stride = Operand::Integer(*number);
        }
    }
}

fn is_strided(instruction: &Instruction) -> bool {
    let form = instruction.modifiers.first().map(String::as_str);
    instruction.opcode == "wmma" && matches!(form, Some("load" | "store"))
}
