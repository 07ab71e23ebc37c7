//! The shapes of operands that an instruction may have, whatever its opcode.

use crate::ast::{Instruction, Operand};
use crate::names;
use crate::report::Reason;
use crate::table::{self, Row, Treatment};

/// Checks every operand's shape: destinations are registers, addresses stand only where the table has them,
/// symbols only where their address is taken or jumped to.
pub(crate) fn check(row: &Row, instruction: &Instruction) -> Result<(), Reason> {
    let vectors = matches!(row.treatment, Treatment::Load | Treatment::Store | Treatment::Move)
        || table::is_for_warps(row);
    for (index, operand) in instruction.operands.iter().enumerate() {
        let fits = match operand {
            Operand::Address(_) => row.memory_at(index).is_some(),
            _ if row.memory_at(index).is_some() => false,
            Operand::Selected(name, selector) => {
                if !table::is_video(row) {
                    return Err(Reason::NotImplemented {
                        what: format!("a part of a register, `{name}.{selector}`"),
                    });
                }
                (index >= row.destinations || !names::is_special(name)) && is_selector(selector)
            }
            _ if index < row.destinations => destination(operand, vectors),
            Operand::Negated(inner) => row.name == "vmad" && negated(inner),
            Operand::Symbol(_) => matches!(row.treatment, Treatment::Move | Treatment::Branch),
            Operand::SymbolOffset(..) => row.treatment == Treatment::Move,
            Operand::Vector(elements) => vectors && elements.iter().all(scalar),
            _ => row.treatment != Treatment::Branch && scalar(operand),
        };
        if !fits {
            let number = index + 1;
            return Err(Reason::Malformed(format!("`{}` does not take such an operand {number}", row.name)));
        }
    }
    Ok(())
}

fn destination(operand: &Operand, vectors: bool) -> bool {
    match operand {
        Operand::Vector(elements) => vectors && !elements.is_empty() && elements.iter().all(written),
        Operand::Pair(first, second) => written(first) && written(second),
        operand => written(operand),
    }
}

fn written(operand: &Operand) -> bool {
    match operand {
        Operand::Register(name) => !names::is_special(name),
        Operand::Sink => true,
        _ => false,
    }
}

/// What `vmad` takes with its sign inverted.
fn negated(operand: &Operand) -> bool {
    match operand {
        Operand::Register(_) => true,
        Operand::Selected(_, selector) => is_selector(selector),
        _ => false,
    }
}

/// Whether a word names bytes or halves of one or two registers.
fn is_selector(word: &str) -> bool {
    let (letter, parts) = word.split_at_checked(1).unwrap_or_default();
    matches!(letter, "b" | "h")
        && (1..=4).contains(&parts.len())
        && parts.bytes().all(|part| matches!(part, b'0'..=b'7'))
}

fn scalar(operand: &Operand) -> bool {
    matches!(
        operand,
        Operand::Register(_)
            | Operand::Not(_)
            | Operand::Integer(_)
            | Operand::Float32(_)
            | Operand::Float64(_)
    )
}
