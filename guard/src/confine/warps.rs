//! Instructions for whole warps run where their warp is whole.
//!
//! Where lanes are missing, a device takes what their registers hold, which may be another session's, and addresses from
//! them that nothing has confined. So directly before the first such instruction on any straight way, all lanes of the
//! warp meet, and threads whose warp is not whole end. Lanes that are at one place may still be apart on the device: they
//! wait for each other, and threads end where it runs them apart all the same.

use crate::ast::{Instruction, Operand, Predicate, Span, Statement};
use crate::confine::copies;
use crate::confine::leads::is_lead;
use crate::confine::lines::{instruction, plain, register};
use crate::confine::meets::Meetings;
use crate::table;

/// Puts checks that the warp is whole into a confined body that looks at the flag already.
pub(super) fn check(statements: Vec<Statement>, copies: bool, mut meetings: Meetings) -> Vec<Statement> {
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
                    checked.splice(at..at, whole(copies, &mut meetings));
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

fn whole(copies: bool, meetings: &mut Meetings) -> Vec<Statement> {
    let span = Span::default();
    let all = || Operand::Integer(-1);
    let mut lines = meetings.next("%bh_lo", "%bh_hi");
    let end_others = |lines: &mut Vec<Statement>| {
        let predicate = || Some(Predicate { register: "%bh_q".to_owned(), negated: false });
        let operands = vec![register("%bh_q"), register("%bh_lo"), all()];
        lines.push(instruction("setp", &["ne", "s32"], operands, span));
        if copies {
            lines.push(copies::wait(predicate(), span));
        }
        let exit = plain("exit", &[], Vec::new(), span);
        lines.push(Statement::Instruction(Instruction { predicate: predicate(), ..exit }));
    };
    end_others(&mut lines);
    lines.push(instruction("bar", &["warp", "sync"], vec![all()], span));
    lines.push(instruction("activemask", &["b32"], vec![register("%bh_lo")], span));
    end_others(&mut lines);
    lines
}
