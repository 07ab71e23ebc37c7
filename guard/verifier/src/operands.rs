//! The shapes of operands that an instruction may have, whatever its opcode.

use crate::ast::{Instruction, Operand};
use crate::names::{self, Class};
use crate::report::Reason;
use crate::table::{self, Row, Treatment};

/// Checks every operand's shape: destinations are registers, addresses stand only where the table has them,
/// symbols only where their address is taken or jumped to.
pub fn check(row: &Row, instruction: &Instruction) -> Result<(), Reason> {
    let vectors = matches!(row.treatment, Treatment::Load | Treatment::Store | Treatment::Move)
        || table::is_for_warps(row);
    if row.treatment == Treatment::Move {
        packs(instruction)?;
    }
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

/// Checks that the registers which a `mov` packs or unpacks are together as wide as its type says. Registers of 8 bits
/// are kept in 16, so that theirs are not.
fn packs(instruction: &Instruction) -> Result<(), Reason> {
    let ty = instruction.modifiers.last().map_or("", String::as_str);
    let bits = ty.strip_prefix('b').and_then(|bits| bits.parse::<usize>().ok());
    for operand in &instruction.operands {
        let Operand::Vector(elements) = operand else { continue };
        let fits = |element: &Operand| match element {
            Operand::Register(name) => {
                Class::parse(name).is_none_or(|(class, _)| bits == Some(class.bits() * elements.len()))
            }
            _ => true,
        };
        if !elements.iter().all(fits) {
            let count = elements.len();
            let what = format!("`mov.{ty}` of {count} registers that are not together as wide");
            return Err(Reason::NotImplemented { what });
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

#[cfg(test)]
mod tests;
