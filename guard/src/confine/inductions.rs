//! Compilers keep what a loop steps in a register of its own until the turn ends, or step a copy. Here the loop steps the
//! register itself: where that makes a loop one that ends by steps, and does what it did.

use super::steps::{Body, is_add, steps};
use super::turns;
use crate::ast::{Instruction, Operand, Statement};

/// Loops that are written so.
const LOOPS_MAX: usize = 256;

/// Writes such loops so.
pub(super) fn normalise(statements: &mut [Statement]) {
    for turns::Place { from, to } in turns::closed(statements).into_iter().take(LOOPS_MAX) {
        let Some(turn) = statements.get(from + 1..=to) else { continue };
        if steps(turn).is_some() {
            continue;
        }
        let written = written(turn).filter(|written| steps(written).is_some());
        if let (Some(written), Some(turn)) = (written, statements.get_mut(from + 1..=to)) {
            turn.clone_from_slice(&written);
        }
    }
}

/// The turn of a loop, with the branch back, where another form of it may do.
fn written(turn: &[Statement]) -> Option<Vec<Statement>> {
    let (Statement::Instruction(back), inside) = turn.split_last()? else { return None };
    let body = Body::of(inside)?;
    let (at, test) =
        body.once(&back.predicate.as_ref()?.register).filter(|(_, test)| test.opcode == "setp")?;
    let tested = register(test, 1)?;
    let (place, next) = body.once(tested)?;
    let mut turn = turn.to_vec();
    let fixed = |operand: &Operand| match operand {
        Operand::Integer(_) => true,
        Operand::Register(name) => !body.is_written(name),
        _ => false,
    };
    // What a register is, or what it was copied from in this turn.
    let source = |name: &str, before: usize| {
        let (copied, copy) = body.once(name).filter(|(_, copy)| copy.opcode == "mov")?;
        body.leads(copied, before).then(|| register(copy, 1)).flatten()
    };
    let is_sum = |sum: &Instruction, of: &str, before: usize| {
        let from = register(sum, 1).filter(|_| is_add(sum) && sum.operands.get(2).is_some_and(fixed));
        from.is_some_and(|from| from == of || source(from, before) == Some(of))
    };
    let add = |to: &str, sum: &Instruction| {
        let operands = [Operand::Register(to.to_owned()), Operand::Register(to.to_owned())];
        let step = sum.operands.get(2).cloned();
        let operands = operands.into_iter().chain(step).collect();
        Statement::Instruction(Instruction { operands, ..sum.clone() })
    };
    if is_sum(next, tested, place) {
        (place < at).then_some(())?;
        *turn.get_mut(place)? = add(tested, next);
    } else {
        // The test is of the sum.
        let of = register(next, 1).filter(|of| is_sum(next, of, place))?;
        let (moved, copy) = body.once(of).filter(|(_, copy)| copy.opcode == "mov")?;
        (register(copy, 1) == Some(tested) && body.leads(place, moved)).then_some(())?;
        *turn.get_mut(moved)? = add(of, next);
    }
    Some(turn)
}

fn register(instruction: &Instruction, index: usize) -> Option<&str> {
    match instruction.operands.get(index) {
        Some(Operand::Register(name)) => Some(name),
        _ => None,
    }
}
