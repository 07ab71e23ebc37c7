//! Loops that turn seldom where one number is small get a copy for that: a test before the loop says so, and the copy ends by
//! itself, as the tenant wrote it.

use super::scope::Scopes;
use super::steps::steps;
use super::turns::{self, ENDS_COST_MAX, Place, WAITS_COST_MAX, own_cost};
use super::versions::TOGETHER;
use crate::access;
use crate::ast::{Instruction, Operand, Predicate, Space, Span, Statement};
use crate::confine::lines::{instruction, plain, register};
use crate::facts::Facts;
use crate::maps::HashSet;
use crate::names::Class;
use crate::table::{self, Treatment};

/// Loops that get copies, and statements of each, at most.
const LOOPS_MAX: usize = 16;
const BODY_MAX: usize = 256;
/// A copy turns so often at least, or it is not worth its place.
const TURNS_MIN: u64 = 64;

/// A loop with a copy.
struct Bounded {
    /// Where its label stands, and the branch back.
    from: usize,
    to: usize,
    bound: String,
    most: i128,
}

/// Gives such loops their copies.
pub(super) fn copy(statements: &mut Vec<Statement>, scopes: &mut Scopes) {
    let mut fresh = statements.iter().filter_map(turns::number).max().map_or(0, |most| most + 1);
    // From the last on, so that those before stay where they are.
    for Bounded { from, to, bound, most } in found(statements).into_iter().rev() {
        let Some(turn) = statements.get(from + 1..=to).map(<[Statement]>::to_vec) else { continue };
        let mut label = || {
            fresh += 1;
            format!("$L{}", fresh - 1)
        };
        let (fast, many_turns, behind) = (label(), label(), label());
        let many = scopes.fresh(Class::Predicate);
        let to_label = |label: &str| vec![Operand::Symbol(label.to_owned())];
        let test = vec![register(&many), register(&bound), Operand::Integer(most)];
        let mut away = plain("bra", &[], to_label(&many_turns), Span::default());
        away.predicate = Some(Predicate { register: many, negated: false });
        let mut copy = vec![
            instruction("setp", &["gt", "u32"], test, Span::default()),
            Statement::Instruction(away),
            Statement::Label(fast.clone(), Span::default()),
        ];
        copy.extend(turn);
        if let Some(Statement::Instruction(back)) = copy.last_mut() {
            back.operands = to_label(&fast);
        }
        copy.push(instruction("bra", &[], to_label(&behind), Span::default()));
        copy.push(Statement::Label(many_turns, Span::default()));
        statements.insert(to + 1, Statement::Label(behind, Span::default()));
        statements.splice(from..from, copy);
    }
}

fn found(statements: &[Statement]) -> Vec<Bounded> {
    let mut loops = turns::closed(statements);
    loops.retain(|Place { from, to }| {
        let turn = statements.get(from + 1..=*to).unwrap_or_default();
        turn.len() <= BODY_MAX && turn.iter().all(fits) && steps(turn).is_some()
    });
    if loops.is_empty() {
        return Vec::new();
    }
    let parameters = parameters(statements);
    let mut facts = Facts::of(statements);
    let mut found = Vec::new();
    for (index, statement) in statements.iter().enumerate() {
        match statement {
            Statement::Label(name, _) => {
                let behind = statements.get(index + 1..).unwrap_or_default();
                facts.label(name, behind);
                let Some(Place { from, to }) = loops.iter().find(|place| place.from == index) else {
                    continue;
                };
                let Some(turn) = statements.get(from + 1..=*to).filter(|_| found.len() < LOOPS_MAX) else {
                    continue;
                };
                let Some(steps) = steps(turn).filter(|_| facts.turns(name, behind).is_none()) else {
                    continue;
                };
                let (Operand::Integer(step), Operand::Register(bound)) = (steps.step, steps.bound) else {
                    continue;
                };
                let once = own_cost(turn);
                let all = (ENDS_COST_MAX / once.look).min(WAITS_COST_MAX / once.poll);
                // Threads that have to meet turn together.
                let together = !turn.iter().any(meets) || parameters.contains(bound.as_str());
                let Some(turns) = all.checked_sub(2).filter(|turns| *turns >= TURNS_MIN && together) else {
                    continue;
                };
                let most = i128::from(turns).saturating_mul(*step).min(1 << 29);
                if facts.turns_if(name, behind, bound, most).is_some_and(|turns| turns <= all) {
                    found.push(Bounded { from: *from, to: *to, bound: bound.clone(), most });
                }
            }
            Statement::Instruction(instruction) => facts.learn(instruction),
            Statement::Variable(_) | Statement::Block(..) | Statement::Directive(_) => {}
        }
    }
    found
}

/// Whether a statement may stand in such a loop: nothing that checks of pointers are for.
fn fits(statement: &Statement) -> bool {
    match statement {
        Statement::Instruction(instruction) => {
            let Some(row) = table::row_of(instruction) else { return false };
            let accesses = access::decode(row, instruction).unwrap_or_default();
            let plain = accesses.iter().all(|access| {
                access.space != Space::Local
                    && (access.space != Space::Global || access.extent != access.bytes)
            });
            plain && !matches!(row.treatment, Treatment::Barrier | Treatment::Gate | Treatment::Copy)
        }
        Statement::Directive(_) => true,
        Statement::Label(..) | Statement::Variable(_) | Statement::Block(..) => false,
    }
}

fn meets(statement: &Statement) -> bool {
    let Statement::Instruction(found) = statement else { return false };
    TOGETHER.contains(&found.opcode.as_str()) || table::row_of(found).is_some_and(table::is_for_warps)
}

/// The registers that hold a parameter, and nothing else: the same in all threads.
fn parameters(statements: &[Statement]) -> HashSet<&str> {
    let (mut once, mut others) = (HashSet::default(), HashSet::default());
    for statement in statements {
        let Statement::Instruction(found) = statement else { continue };
        let Some(row) = table::row_of(found) else { continue };
        let loads = is_load(found);
        table::registers(row, found, &mut |_| {}, &mut |name| {
            if !(loads && once.insert(name)) {
                others.insert(name);
            }
        });
    }
    once.retain(|name| !others.contains(name));
    once
}

fn is_load(found: &Instruction) -> bool {
    let words = found.modifiers.first().is_some_and(|word| word == "param");
    found.opcode == "ld" && words && found.predicate.is_none()
}
