//! Asynchronous copies are awaited wherever their thread may end: what is left of one would write into shared memory that
//! is another block's by then.

use crate::ast::{Instruction, Predicate, Span, Statement};
use crate::confine::lines::plain;
use crate::table;

/// Whether a body begins copies that go on beside their threads.
pub(super) fn are_in(statements: &[Statement]) -> bool {
    statements.iter().any(
        |statement| matches!(statement, Statement::Instruction(instruction) if table::copies(instruction)),
    )
}

/// Puts a wait directly before every place where a thread may end, where none is.
pub(super) fn await_at_exits(statements: Vec<Statement>) -> Vec<Statement> {
    let mut awaited = Vec::with_capacity(statements.len() + 8);
    for statement in statements {
        if let Statement::Instruction(instruction) = &statement
            && matches!(instruction.opcode.as_str(), "ret" | "exit")
            && !awaited.last().is_some_and(|before| {
                matches!(before, Statement::Instruction(before)
                    if waits(before) && before.predicate == instruction.predicate)
            })
        {
            awaited.push(wait(instruction.predicate.clone(), instruction.span));
        }
        awaited.push(statement);
    }
    awaited
}

/// Whether an instruction is such a wait.
pub(super) fn waits(instruction: &Instruction) -> bool {
    table::row_of(instruction).is_some_and(|row| row.name == table::WAIT_ALL)
}

/// Waits for all copies that the thread has begun.
pub(super) fn wait(predicate: Option<Predicate>, span: Span) -> Statement {
    Statement::Instruction(Instruction { predicate, ..plain("cp", &["async", "wait_all"], Vec::new(), span) })
}
