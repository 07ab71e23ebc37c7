//! Lines that stand before an access, an end or a wait, and only prepare it.

use super::copies;
use crate::ast::{Instruction, Operand};
use crate::names;

/// Whether an instruction only prepares an access or an end, or is one of those that zero the local variable, which stand together.
pub(super) fn is_lead(instruction: &Instruction) -> bool {
    let zero = |operand: &Operand| matches!(operand, Operand::Register(name) if name == "%bh_zero");
    match instruction.operands.first() {
        Some(Operand::Address(_)) => match instruction.operands.get(1) {
            Some(Operand::Vector(values)) => values.iter().all(zero),
            Some(value) => zero(value),
            None => false,
        },
        Some(Operand::Register(name)) => names::is_reserved(name),
        None => copies::waits(instruction),
        Some(Operand::Vector(names)) => {
            names.iter().all(|name| matches!(name, Operand::Register(name) if names::is_reserved(name)))
        }
        _ => false,
    }
}
