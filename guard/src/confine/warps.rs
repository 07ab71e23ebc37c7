//! Instructions for whole warps run where their warp is whole.
//!
//! Where lanes are missing, a device takes what their registers hold, which may be another session's, and addresses from
//! them that nothing has confined. So directly before the first such instruction on any straight way, all lanes of the
//! warp meet, and threads whose warp is not whole end.

use crate::ast::{Instruction, Operand, Predicate, Span, Statement};
use crate::confine::copies;
use crate::confine::meets::Meeting;
use crate::confine::poll::is_lead;
use crate::confine::prologue::{instruction, plain, register};
use crate::table;

/// Puts checks that the warp is whole into a confined body that looks at the flag already.
pub(super) fn check(statements: Vec<Statement>, copies: bool, meeting: Meeting) -> Vec<Statement> {
    let for_warps = |statement: &Statement| {
        matches!(statement, Statement::Instruction(instruction)
            if table::row_of(instruction).is_some_and(table::is_for_warps))
    };
    if !statements.iter().any(for_warps) {
        return statements;
    }
    let mut checked: Vec<Statement> = Vec::with_capacity(statements.len() + 16);
    let mut is_whole = false;
    for statement in statements {
        match &statement {
            Statement::Label(..) => is_whole = false,
            Statement::Instruction(instruction) => {
                let row = table::row_of(instruction);
                if !is_whole && row.is_some_and(table::is_for_warps) {
                    let waits = |before: &Instruction| {
                        table::row_of(before).is_some_and(|row| table::waits_for_lanes(row, before))
                    };
                    let leads = |before: &&Statement| matches!(before, Statement::Instruction(before) if is_lead(before) && !waits(before));
                    let at = checked.len() - checked.iter().rev().take_while(leads).count();
                    checked.splice(at..at, whole(copies, meeting));
                    is_whole = true;
                }
                if row.is_some_and(|row| table::parts(row, instruction)) {
                    is_whole = false;
                }
            }
            Statement::Variable(_) | Statement::Block(..) | Statement::Directive(_) => {}
        }
        checked.push(statement);
    }
    checked
}

fn whole(copies: bool, meeting: Meeting) -> Vec<Statement> {
    let (lo, q) = (|| register("%bh_lo"), || register("%bh_q"));
    let span = Span::default();
    let all = || Operand::Integer(-1);
    let predicate = || Some(Predicate { register: "%bh_q".to_owned(), negated: false });
    let mut lines = vec![
        meeting.line("%bh_lo"),
        instruction("activemask", &["b32"], vec![lo()], span),
        instruction("setp", &["ne", "s32"], vec![q(), lo(), all()], span),
    ];
    if copies {
        lines.push(copies::wait(predicate(), span));
    }
    let mut exit = plain("exit", &[], Vec::new(), span);
    exit.predicate = predicate();
    lines.push(Statement::Instruction(exit));
    lines
}
