//! Short loops that have to count their turns, several turns in one: what ends a loop is tested in each, but the turns are
//! counted once for all.

use crate::maps::HashMap;

use super::turns::{self, Place};
use super::versions::TOGETHER;
use crate::ast::{Instruction, Operand, Predicate, Statement};
use crate::table::{self, Treatment};

/// What all turns in one cost, at most.
const COST_MAX: u64 = 384;
/// What an access counts at most: what it costs is how long it may take, and it is as short as others.
const ACCESS_COST: u64 = 8;
/// Turns in one, at most.
const TURNS_MAX: u64 = 8;
/// Loops that are written so.
const LOOPS_MAX: usize = 64;

/// Writes short loops so.
pub(super) fn unroll(statements: &mut Vec<Statement>) {
    let loops = chosen(statements);
    let mut fresh = statements.iter().filter_map(turns::number).max().map_or(0, |most| most + 1);
    // From the last on, so that those before stay where they are.
    for Place { from, to } in loops.into_iter().rev() {
        let Some(body) = statements.get(from + 1..to).map(<[Statement]>::to_vec) else { continue };
        let turns = (COST_MAX / cost(&body).max(1)).min(TURNS_MAX);
        let Some(Statement::Instruction(back)) = statements.get(to).cloned() else { continue };
        let Some(test) = back.predicate.clone() else { continue };
        let mut label = || {
            fresh += 1;
            format!("$L{}", fresh - 1)
        };
        let behind = label();
        let mut more = Vec::new();
        for _ in 1..turns {
            more.push(Statement::Instruction(Instruction {
                predicate: Some(Predicate { negated: !test.negated, ..test.clone() }),
                operands: vec![Operand::Symbol(behind.clone())],
                ..back.clone()
            }));
            more.extend(copied(&body, &mut label));
        }
        let span = back.span;
        more.push(Statement::Instruction(back));
        more.push(Statement::Label(behind, span));
        statements.splice(to..=to, more);
    }
}

/// Those that are, in order and apart.
fn chosen(statements: &[Statement]) -> Vec<Place> {
    let mut loops = turns::counted(statements, |Place { from, to }| {
        let body = statements.get(from + 1..to).unwrap_or_default();
        let back =
            matches!(statements.get(to), Some(Statement::Instruction(back)) if back.predicate.is_some());
        back && !body.is_empty() && body.iter().all(fits) && cost(body) <= COST_MAX / 2
    });
    loops.sort_unstable();
    loops.truncate(LOOPS_MAX);
    loops
}

/// Whether a statement may be copied: nothing for which threads have to be at one place.
fn fits(statement: &Statement) -> bool {
    match statement {
        Statement::Instruction(instruction) => table::row_of(instruction).is_some_and(|row| {
            !matches!(row.treatment, Treatment::Barrier | Treatment::Gate)
                && !TOGETHER.contains(&instruction.opcode.as_str())
        }),
        Statement::Label(..) => true,
        Statement::Directive(_) | Statement::Variable(_) | Statement::Block(..) => false,
    }
}

fn cost(body: &[Statement]) -> u64 {
    let cost = |statement: &Statement| match statement {
        Statement::Instruction(instruction) => {
            table::row_of(instruction).map_or(u64::MAX, |row| match row.name {
                "ld" | "st" => table::cost(row, instruction).min(ACCESS_COST),
                _ => table::cost(row, instruction),
            })
        }
        _ => 0,
    };
    body.iter().map(cost).fold(0, u64::saturating_add)
}

/// The same statements with labels of their own.
fn copied(body: &[Statement], fresh: &mut impl FnMut() -> String) -> Vec<Statement> {
    // In their order: what comes out is the same each time.
    let names = body.iter().filter_map(|statement| match statement {
        Statement::Label(name, _) => Some((name.as_str(), fresh())),
        _ => None,
    });
    let names: HashMap<&str, String> = names.collect();
    let mut copy = body.to_vec();
    for statement in &mut copy {
        match statement {
            Statement::Label(name, _) => {
                if let Some(other) = names.get(name.as_str()) {
                    name.clone_from(other);
                }
            }
            Statement::Instruction(instruction) if instruction.opcode == "bra" => {
                if let Some(Operand::Symbol(target)) = instruction.operands.first_mut()
                    && let Some(other) = names.get(target.as_str())
                {
                    target.clone_from(other);
                }
            }
            _ => {}
        }
    }
    copy
}
