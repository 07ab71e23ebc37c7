//! Addresses of variables that lie in the module's block become sums of the block's address and a number.
//!
//! What this writes is PTX that a tenant might have written: the block's address is an ordinary parameter, and
//! what confines the accesses comes after.

use crate::ast::{Address, AddressBase, Instruction, Operand, Space, Span, Statement, Type, Variable};
use crate::confine::lines::{declared, instruction, register};
use crate::confine::runtime;
use crate::confine::scope::Scopes;
use crate::confine::symbols::Symbols;
use crate::names::{self, Class};
use crate::report::{Reason, Report};

/// What the parameter is called that the block's address comes in, where nothing else is called so.
pub(super) const BLOCK: &str = "module_data";
/// The same of the one that says where the grid waits.
pub(super) const GRID: &str = "grid_data";

/// A parameter for an address; its name is none that `is_taken`.
pub(super) fn parameter(
    wanted: &str,
    is_taken: &impl Fn(&str) -> bool,
    span: Span,
) -> Result<Variable, Reason> {
    let (name, _) = names::unused(wanted, 0, is_taken)?;
    Ok(declared(Space::Parameter, Type::U64, &name, None, span))
}

/// Replaces the names of variables in the block in a flat body, and that of the place at which the grid waits, by what
/// comes in parameters.
pub(super) fn replace(
    statements: Vec<Statement>,
    parameters: &[Variable],
    symbols: &Symbols,
    scopes: &mut Scopes,
    report: &mut Report,
) -> Vec<Statement> {
    let is_named = |statement: &Statement| match statement {
        Statement::Instruction(found) => {
            found.operands.iter().any(|operand| named(operand, symbols).is_some())
        }
        Statement::Label(..) | Statement::Variable(_) | Statement::Block(..) | Statement::Directive(_) => {
            false
        }
    };
    if !statements.iter().any(is_named) {
        return statements;
    }
    let waits = |statement: &Statement| matches!(statement, Statement::Instruction(found) if found.operands.iter().any(is_grid));
    let needed = if statements.iter().any(waits) { 2 } else { 1 };
    let mut replaced = Vec::with_capacity(statements.len());
    let mut bases = Vec::new();
    for parameter in parameters.iter().take(needed) {
        let base = scopes.fresh(Class::Double);
        let from = Address { base: AddressBase::Symbol(parameter.name.clone()), offset: 0 };
        let load = vec![register(&base), Operand::Address(from)];
        replaced.push(instruction("ld", &["param", "u64"], load, parameter.span));
        bases.push(base);
    }
    let Some((base, grid)) = bases.split_first() else { return statements };
    for statement in statements {
        match statement {
            Statement::Instruction(mut found) => {
                if let Some(grid) = grid.first() {
                    found.operands.iter_mut().filter(|operand| is_grid(operand)).for_each(|operand| {
                        *operand = register(grid);
                    });
                }
                let done = in_instruction(&mut found, base, symbols, scopes, &mut replaced);
                if let Err(reason) = done {
                    report.add(found.span, reason);
                }
                replaced.push(Statement::Instruction(found));
            }
            other => replaced.push(other),
        }
    }
    replaced
}

fn is_grid(operand: &Operand) -> bool {
    matches!(operand, Operand::Symbol(name) if name == runtime::GRID)
}

/// What an operand names in the block: where that begins, and how far beyond it is meant.
fn named(operand: &Operand, symbols: &Symbols) -> Option<(u64, i64)> {
    let (name, offset) = match operand {
        Operand::Symbol(name) => (name, 0),
        Operand::SymbolOffset(name, offset) => (name, *offset),
        Operand::Address(Address { base: AddressBase::Symbol(name), offset }) => (name, *offset),
        _ => return None,
    };
    Some((symbols.in_block(name)?, offset))
}

fn in_instruction(
    found: &mut Instruction,
    base: &str,
    symbols: &Symbols,
    scopes: &mut Scopes,
    into: &mut Vec<Statement>,
) -> Result<(), Reason> {
    let wide = found.modifiers.iter().any(|modifier| matches!(modifier.as_str(), "u64" | "s64" | "b64"));
    let span = found.span;
    for operand in &mut found.operands {
        let Some((start, beyond)) = named(operand, symbols) else { continue };
        let offset = i64::try_from(start).ok().and_then(|start| start.checked_add(beyond));
        let offset = offset.ok_or_else(|| Reason::Malformed(format!("{beyond} is no offset")))?;
        *operand = match operand {
            Operand::Address(_) => {
                Operand::Address(Address { base: AddressBase::Register(base.to_owned()), offset })
            }
            _ if !wide => {
                let text = "the address of a global variable has 64 bits";
                return Err(Reason::Malformed(text.to_owned()));
            }
            _ if offset == 0 => register(base),
            _ => {
                let sum = scopes.fresh(Class::Double);
                let operands = vec![register(&sum), register(base), Operand::Integer(i128::from(offset))];
                into.push(instruction("add", &["s64"], operands, span));
                register(&sum)
            }
        };
    }
    Ok(())
}
