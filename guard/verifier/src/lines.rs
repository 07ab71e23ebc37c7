//! Statements that stand in one text only.

use crate::ast::Statement;
use crate::print::Text;

/// What is left after exactly these instructions.
pub(crate) fn strip<'a>(statements: &'a [Statement], lines: &[&str]) -> Option<&'a [Statement]> {
    let (found, rest) = statements.split_at_checked(lines.len())?;
    let same = found
        .iter()
        .zip(lines)
        .all(|(found, line)| matches!(found, Statement::Instruction(found) if Text(found).is(line)));
    same.then_some(rest)
}
