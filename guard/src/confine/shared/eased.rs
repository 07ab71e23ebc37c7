//! Clamps that stand twice, or that offsets take in.

use crate::maps::HashSet;

use crate::ast::{AddressBase, Instruction, Operand, Statement};
use crate::confine::lines::register;
use crate::facts::Facts;
use crate::values::Known as _;

/// Has clamps of what is known to be aligned make the last place so, which no turn of a loop changes, and not each address.
pub(crate) fn ease(statements: &mut Vec<Statement>) {
    let mut gone = HashSet::default();
    for (last, cut) in eased(statements) {
        let min = statements.get(last);
        if matches!(min, Some(Statement::Instruction(min)) if matches!(min.operands.get(2), Some(Operand::Integer(_))))
        {
            // The number is one already.
            gone.insert(cut);
            continue;
        }
        // The last place, `min`, perhaps `max`, `and` of the address; then the last place, `and` of that, and the others.
        let Some(sequence) = statements.get_mut(last..=cut) else { continue };
        sequence.rotate_right(1);
        if let Some(Statement::Instruction(and)) = sequence.first_mut() {
            for operand in and.operands.iter_mut().take(2) {
                *operand = register("%bh_lo");
            }
        }
    }
    let mut index = 0;
    statements.retain(|_| {
        index += 1;
        !gone.contains(&(index - 1))
    });
}

/// Where each such clamp has computed the last place, and where its address is cut.
pub(crate) fn eased(statements: &[Statement]) -> Vec<(usize, usize)> {
    let own = |index: usize, opcode: &str| match statements.get(index) {
        Some(Statement::Instruction(found)) if found.opcode == opcode => {
            let of_clamp = matches!(found.operands.first(), Some(Operand::Register(name)) if name == "%bh_s");
            of_clamp.then_some(found)
        }
        _ => None,
    };
    // From the `min` on: where the address is cut.
    let cut = |min: usize| {
        own(min, "min")?;
        let cut = if own(min + 1, "max").is_some() { min + 2 } else { min + 1 };
        own(cut, "and").map(|found| (cut, found))
    };
    if !(0..statements.len()).any(|index| cut(index).is_some()) {
        return Vec::new();
    }
    let number = |found: &Instruction| match found.operands.get(2) {
        Some(Operand::Integer(value)) => Some(*value),
        _ => None,
    };
    let mut facts = Facts::of(statements);
    let mut eased = Vec::new();
    for (index, statement) in statements.iter().enumerate() {
        match statement {
            // What is known of turns is not asked.
            Statement::Label(name, _) => facts.label(name, &[]),
            Statement::Instruction(instruction) => {
                if let Some(source) = own(index, "mov")
                    && let Some(Operand::Register(base)) = source.operands.get(1)
                {
                    let added = own(index + 1, "add");
                    let next = index + 1 + usize::from(added.is_some());
                    // A number, or how far it is to the last place; or that place.
                    let min = match own(next, "sub") {
                        Some(_) if own(next + 1, "min").is_some() => next + 1,
                        Some(_) => next + 3,
                        None => next + 1,
                    };
                    let least = added.map_or(Some(0), number);
                    if let (Some(least), Some((cut, and))) = (least, cut(min))
                        && let Some(bytes) = number(and)
                        && u64::try_from(-bytes).is_ok_and(|bytes| facts.is_multiple(base, least, bytes))
                    {
                        eased.push((min, cut));
                    }
                }
                facts.learn(instruction);
            }
            Statement::Variable(_) | Statement::Block(..) | Statement::Directive(_) => {}
        }
    }
    eased
}

/// The value of an offset in the 32-bit address arithmetic of shared memory.
pub(crate) fn wrapped(offset: i64) -> Operand {
    let [a, b, c, d, ..] = offset.to_le_bytes();
    Operand::Integer(i128::from(i32::from_le_bytes([a, b, c, d])))
}

/// The symbols that stand in a flat body.
pub(crate) fn named(statements: &[Statement]) -> HashSet<&str> {
    let mut names = HashSet::default();
    for statement in statements {
        let Statement::Instruction(instruction) = statement else { continue };
        for operand in &instruction.operands {
            match operand {
                Operand::Symbol(name) | Operand::SymbolOffset(name, _) => {
                    names.insert(name.as_str());
                }
                Operand::Address(address) => {
                    if let AddressBase::Symbol(name) = &address.base {
                        names.insert(name.as_str());
                    }
                }
                _ => {}
            }
        }
    }
    names
}
