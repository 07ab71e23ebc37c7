//! Where functions return, at their end: compilers put a block that several branches share anywhere, also before code that
//! branches to it. That looks like a loop to whoever knows nothing but the order of labels, and is none.

use crate::ast::{Item, Module, Operand, Statement};

/// Moves blocks that a label begins, that end by a return and that nothing falls into behind what branches back to them. What a
/// function does stays the same.
pub(super) fn last(module: &mut Module) {
    for item in &mut module.items {
        let Item::Function(function) = item else { continue };
        if let Some(body) = &mut function.body {
            let mut at = 0;
            let mut moved = Vec::new();
            while at < body.len() {
                match block(body, at) {
                    Some(end) if at > 0 && ends(&body[..at]) && is_branched_to(&body[end..], &body[at]) => {
                        moved.extend(body.drain(at..end));
                    }
                    _ => at += 1,
                }
            }
            body.append(&mut moved);
        }
    }
}

/// Whether an instruction leaves for good, whatever its predicate.
fn is_end(statement: &Statement, opcodes: &[&str]) -> bool {
    matches!(statement, Statement::Instruction(found)
        if found.predicate.is_none() && opcodes.contains(&found.opcode.as_str()))
}

/// Whether nothing falls out of these statements.
fn ends(before: &[Statement]) -> bool {
    let last = before.iter().rfind(|statement| !matches!(statement, Statement::Directive(_)));
    last.is_some_and(|last| is_end(last, &["bra", "ret", "exit"]))
}

/// Where the block that a label here begins is over, if it ends by a return and has no other label.
fn block(body: &[Statement], at: usize) -> Option<usize> {
    let Statement::Label(..) = body.get(at)? else { return None };
    for (end, statement) in body.iter().enumerate().skip(at + 1) {
        match statement {
            _ if is_end(statement, &["ret"]) => return Some(end + 1),
            Statement::Instruction(_) | Statement::Directive(_) => {}
            Statement::Label(..) | Statement::Variable(_) | Statement::Block(..) => return None,
        }
    }
    None
}

fn is_branched_to(behind: &[Statement], label: &Statement) -> bool {
    let Statement::Label(name, _) = label else { return false };
    behind.iter().any(|statement| match statement {
        Statement::Instruction(found) => {
            let is_it = |operand: &Operand| matches!(operand, Operand::Symbol(symbol) if symbol == name);
            found.opcode == "bra" && found.operands.iter().any(is_it)
        }
        Statement::Block(inner, _) => is_branched_to(inner, label),
        Statement::Label(..) | Statement::Variable(_) | Statement::Directive(_) => false,
    })
}
