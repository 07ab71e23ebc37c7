//! What the confined form adds at the top of an entry.

use super::lines::{declared, instruction, plain, register};
use super::poll;
use super::slices::Slices;
use super::variables::Own;
use crate::ast::{Address, AddressBase, Operand, Predicate, Space, Span, Statement, Type};
use crate::limits::{LOCAL_BYTES_IN_LINE_MAX, LOCAL_BYTES_PER_TURN};
use crate::maps::HashMap;
use crate::names::{self, Class};
use crate::table;

/// The declarations: the tenant's registers by class, the guard's own, the variables.
pub(super) fn declarations(
    registers: &HashMap<Class, u32>,
    counters: u32,
    slices: Slices,
    of_gates: Vec<Statement>,
    variables: &[Own],
) -> Vec<Statement> {
    let span = Span::default();
    let tenant = Class::ALL
        .iter()
        .filter_map(|class| Some((class, *registers.get(class).filter(|count| **count > 0)?)))
        .map(|(class, count)| declared(Space::Register, class.ty(), class.prefix(), Some(count), span));
    let own = |ty| move |name: &&str| declared(Space::Register, ty, name, None, span);
    tenant
        .chain(names::SCRATCH_PREDICATES.iter().map(own(Type::Pred)))
        .chain(names::HIDDEN_REGISTERS.iter().map(own(Type::B32)))
        .chain(names::SCRATCH_32.iter().map(own(Type::B32)))
        .chain(names::SCRATCH_64.iter().map(own(Type::B64)))
        .chain(names::SLICE_REGISTERS.iter().filter(|_| slices.any()).map(|(name, _)| own(Type::B32)(name)))
        .chain(
            (counters > 0)
                .then(|| declared(Space::Register, Type::B32, names::COUNTER, Some(counters), span)),
        )
        .map(Statement::Variable)
        .chain(of_gates)
        .chain(variables.iter().map(|own| Statement::Variable(own.variable.clone())))
        .collect()
}

/// The instructions: the hidden parameters are loaded, then the flag that looks look at.
pub(super) fn instructions(looks: bool, span: Span) -> Vec<Statement> {
    let hidden = names::HIDDEN_REGISTERS.iter().zip(names::HIDDEN_PARAMETERS);
    let mut statements: Vec<Statement> = hidden
        .map(|(name, parameter)| {
            let address = symbol_address(parameter, 0);
            instruction("ld", &["param", "u32"], vec![register(name), address], span)
        })
        .collect();
    if looks {
        statements.extend(poll::start());
    }
    statements
}

/// The local variable is zeroed, since it lies in memory where another session's threads have been. A large one is by what
/// [`clear_locals`] writes.
pub(super) fn zero_locals(variables: &[Own], span: Span) -> Vec<Statement> {
    let local = variables.iter().find(|own| own.symbol.space == Space::Local);
    match local {
        Some(Own { symbol, .. }) if symbol.bytes > LOCAL_BYTES_IN_LINE_MAX => {
            // A store for each 16 bytes, which costs 8, and at most four instructions more for each turn and at the end.
            let cost = symbol.bytes / 2 + symbol.bytes / 16;
            vec![instruction(table::CLEAR, &[], vec![Operand::Integer(cost.into())], span)]
        }
        _ => zeroed(variables, 0, span),
    }
}

/// Writes the loop that zeroes a large local variable, wherever that stands. Nothing that looks at loops comes behind.
pub(super) fn clear_locals(statements: &mut Vec<Statement>, variables: &[Own]) {
    let is_one = |statement: &Statement| matches!(statement, Statement::Instruction(found) if found.opcode == table::CLEAR);
    let Some(place) = statements.iter().position(is_one) else { return };
    let local = variables.iter().find(|own| own.symbol.space == Space::Local);
    let Some(Own { variable, symbol }) = local else { return };
    let span = Span::default();
    let (at, left, zero) = (|| register("%bh_o"), || register("%bh_lo"), || register("%bh_zero"));
    let number = |value: u64| Operand::Integer(value.into());
    let turns = symbol.bytes / LOCAL_BYTES_PER_TURN;
    let mut lines = vec![
        instruction("mov", &["b32"], vec![zero(), number(0)], span),
        instruction("mov", &["b64"], vec![at(), Operand::Symbol(variable.name.clone())], span),
        instruction("mov", &["u32"], vec![left(), number(turns)], span),
        Statement::Label(names::CLEARING.to_owned(), span),
    ];
    for offset in (0..i64::try_from(LOCAL_BYTES_PER_TURN).unwrap_or(0)).step_by(16) {
        let address = Address { base: AddressBase::Register("%bh_o".to_owned()), offset };
        let four = Operand::Vector(vec![zero(), zero(), zero(), zero()]);
        lines.push(instruction("st", &["local", "v4", "b32"], vec![Operand::Address(address), four], span));
    }
    let mut again = plain("bra", &[], vec![Operand::Symbol(names::CLEARING.to_owned())], span);
    again.predicate = Some(Predicate { register: "%bh_q".to_owned(), negated: false });
    lines.extend([
        instruction("add", &["s64"], vec![at(), at(), number(LOCAL_BYTES_PER_TURN)], span),
        instruction("add", &["s32"], vec![left(), left(), Operand::Integer(-1)], span),
        instruction("setp", &["ne", "s32"], vec![register("%bh_q"), left(), number(0)], span),
        Statement::Instruction(again),
    ]);
    lines.extend(zeroed(variables, turns * LOCAL_BYTES_PER_TURN, span).into_iter().skip(1));
    statements.splice(place..=place, lines);
}

/// Zeroes the local variable from so many bytes on.
fn zeroed(variables: &[Own], first: u64, span: Span) -> Vec<Statement> {
    let mut statements = Vec::new();
    let locals = variables.iter().filter(|own| own.symbol.space == Space::Local);
    for Own { variable, symbol } in locals {
        let zero = || register("%bh_zero");
        statements.push(instruction("mov", &["b32"], vec![zero(), Operand::Integer(0)], span));
        let mut at = first;
        while at < symbol.bytes {
            let (bytes, modifiers, elements): (u64, &[&str], usize) = match symbol.bytes - at {
                16.. => (16, &["local", "v4", "b32"], 4),
                4.. => (4, &["local", "b32"], 1),
                _ => (1, &["local", "b8"], 1),
            };
            let value = match elements {
                1 => zero(),
                count => Operand::Vector(std::iter::repeat_with(zero).take(count).collect()),
            };
            let offset = i64::try_from(at).unwrap_or(i64::MAX);
            statements.push(instruction(
                "st",
                modifiers,
                vec![symbol_address(&variable.name, offset), value],
                span,
            ));
            at += bytes;
        }
    }
    statements
}

fn symbol_address(name: &str, offset: i64) -> Operand {
    Operand::Address(Address { base: AddressBase::Symbol(name.to_owned()), offset })
}
