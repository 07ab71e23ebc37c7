//! Barriers of the block that reduce, and others beside them.
//!
//! PTX leaves open what becomes of threads that wait at a barrier that reduces while others of their block wait at one that
//! does not ("bar, barrier"). On an H200 they wait for ever, and no poll is reached. So where a body has barriers of
//! several kinds, all become one: a count of the threads for which a predicate holds, from which the other
//! reductions follow.

use super::lines::{plain, register};
use super::scope::Scopes;
use crate::ast::{Instruction, Operand, Statement};
use crate::names::Class;
use crate::table::{self, BarrierKind};

/// Makes all barriers of a flat body of one kind, where they are of several.
pub(super) fn of_one_kind(statements: &mut Vec<Statement>, scopes: &mut Scopes) {
    let kinds: Vec<BarrierKind> = statements.iter().filter_map(kind).collect();
    if kinds.windows(2).all(|pair| pair[0] == pair[1]) {
        return;
    }
    let mut counted = Vec::with_capacity(statements.len() + 4 * kinds.len());
    for statement in statements.drain(..) {
        match (kind(&statement), statement) {
            (Some(kind), Statement::Instruction(barrier)) => counts(kind, barrier, scopes, &mut counted),
            (_, statement) => counted.push(statement),
        }
    }
    *statements = counted;
}

/// Of what kind a barrier of the block is.
fn kind(statement: &Statement) -> Option<BarrierKind> {
    let Statement::Instruction(instruction) = statement else { return None };
    table::barrier_kind(table::row_of(instruction)?, instruction)
}

/// What a barrier is as a count. What writes the tenant's result does so under the barrier's own predicate.
fn counts(kind: BarrierKind, barrier: Instruction, scopes: &mut Scopes, into: &mut Vec<Statement>) {
    let span = barrier.span;
    let number = Operand::Integer;
    let found = register(&scopes.fresh(Class::Word));
    let count = |of: Operand| {
        let operands = vec![found.clone(), number(0), of];
        let predicate = barrier.predicate.clone();
        Instruction { predicate, ..plain("bar", &["red", "popc", "u32"], operands, span) }
    };
    let lines = match (kind, barrier.operands.as_slice()) {
        (BarrierKind::Any | BarrierKind::All, [result, _, of]) => {
            // All hold where there is none that does not.
            let (of, order) = match (kind, of) {
                (BarrierKind::All, Operand::Register(name)) => (Operand::Not(name.clone()), "eq"),
                (BarrierKind::All, Operand::Not(name)) => (Operand::Register(name.clone()), "eq"),
                (_, of) => (of.clone(), "ne"),
            };
            let operands = vec![result.clone(), found.clone(), number(0)];
            let predicate = barrier.predicate.clone();
            vec![count(of), Instruction { predicate, ..plain("setp", &[order, "u32"], operands, span) }]
        }
        (BarrierKind::Wait, _) => {
            // It counts nothing that anybody reads.
            let holds = register(&scopes.fresh(Class::Predicate));
            vec![
                plain("mov", &["u32"], vec![found.clone(), number(0)], span),
                plain("setp", &["eq", "u32"], vec![holds.clone(), found.clone(), number(0)], span),
                count(holds),
            ]
        }
        (BarrierKind::Count | BarrierKind::Any | BarrierKind::All, _) => vec![barrier],
    };
    into.extend(lines.into_iter().map(Statement::Instruction));
}
