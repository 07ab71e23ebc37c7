//! Names of variables and parameters, which the confined form begins with [`names::TENANTS`]: the assembler has names that
//! mean something of its own (a variable `A7` is one of its registers), and no list of those is known to be whole.
//!
//! All get the same prefix, so two names stay as different as they were. Entries have one of their own from the beginning
//! ([`names::entry`]).

use crate::ast::{Address, AddressBase, Function, Item, Operand, Space, Span, Statement};
use crate::limits::NAME_BYTES_MAX;
use crate::names;
use crate::report::{Reason, Report};

/// Renames what the items of a confined module declare and use.
pub(super) fn rename(items: &mut [Item], report: &mut Report) {
    for item in items {
        match item {
            Item::Variable(variable) => declared(&mut variable.name, variable.span, report),
            Item::Function(Function { parameters, body, .. }) => {
                for parameter in parameters {
                    declared(&mut parameter.name, parameter.span, report);
                }
                for statement in body.iter_mut().flatten() {
                    match statement {
                        Statement::Variable(variable) if variable.space != Space::Register => {
                            declared(&mut variable.name, variable.span, report);
                        }
                        Statement::Instruction(found) => found.operands.iter_mut().for_each(operand),
                        // The confined form has no blocks.
                        Statement::Variable(_)
                        | Statement::Label(..)
                        | Statement::Block(..)
                        | Statement::Directive(_) => {}
                    }
                }
            }
            Item::Section(_) | Item::Directive(_) => {}
        }
    }
}

fn declared(name: &mut String, span: Span, report: &mut Report) {
    prefix(name);
    if name.len() > NAME_BYTES_MAX {
        report.add(span, Reason::Limit { what: "bytes of a name", most: NAME_BYTES_MAX as u64 });
    }
}

/// Recursion is bounded by the parser's limit on how deep operands nest.
fn operand(operand: &mut Operand) {
    match operand {
        Operand::Symbol(name) | Operand::SymbolOffset(name, _) => prefix(name),
        Operand::Address(Address { base: AddressBase::Symbol(name), .. }) => prefix(name),
        Operand::Vector(list) | Operand::List(list) => list.iter_mut().for_each(self::operand),
        // The others name no variable in the confined form.
        _ => {}
    }
}

fn prefix(name: &mut String) {
    if !names::is_reserved(name) && !names::is_canonical_label(name) {
        name.insert_str(0, names::TENANTS);
    }
}
