//! What instructions do with the other lanes of their warp and the other threads of their block.

use super::cost::is_of_several;
use super::row::{Row, Treatment};

use crate::ast::{Instruction, Operand};
use crate::report::Reason;

/// Whether an instruction is for whole warps: what it does with lanes that are not there PTX leaves open, and a device
/// takes what their registers happen to hold.
pub fn is_for_warps(row: &Row) -> bool {
    matches!(
        row.name,
        "ldmatrix" | "stmatrix" | "movmatrix" | "mma" | "wmma.load" | "wmma.store" | "wmma.mma"
    )
}

/// Whether the lanes of a warp may go on apart behind an instruction: some branch or end, ptxas writes branches for it, or
/// lanes that are named wait for one another, which can be others for each.
pub fn parts(row: &Row, instruction: &Instruction) -> bool {
    let warp = || instruction.modifiers.first().is_some_and(|modifier| modifier == "warp");
    let is_shared = || instruction.modifiers.iter().any(|word| word.split("::").next() == Some("shared"));
    let is_atomic = matches!(row.treatment, Treatment::Atomic | Treatment::Reduction);
    // Behind a sleep ptxas joins them again, which may be after what comes next.
    row.name == "nanosleep"
        // Loops that compare and swap.
        || is_atomic && is_shared()
        // What may not be done under a predicate is branched around. So are two stores under one, but ptxas joins lanes again
        // before what comes next.
        || instruction.predicate.is_some() && (is_atomic || matches!(row.name, "membar" | "fence"))
        || is_of_several(row, instruction)
        || matches!(row.treatment, Treatment::Branch | Treatment::Gate)
        || matches!(row.name, "ret" | "exit" | "shfl" | "vote" | "match" | "redux" | "elect")
        || (row.treatment == Treatment::Barrier && warp())
}

/// Whether an instruction waits for the lanes of its warp that its last operand names.
pub fn waits_for_lanes(row: &Row, instruction: &Instruction) -> bool {
    let warp = || instruction.modifiers.iter().any(|modifier| modifier == "warp");
    matches!(row.name, "shfl" | "vote" | "match" | "redux" | "elect")
        || (row.treatment == Treatment::Barrier && warp())
}

/// Whether an instruction waits for the threads of its block.
pub fn waits_for_block(row: &Row, instruction: &Instruction) -> bool {
    row.treatment == Treatment::Barrier && !waits_for_lanes(row, instruction)
}

/// What a barrier of the warp says while a body is confined, where all lanes that are left of the warp come to it together
/// or threads end, as at a barrier of the block. No text has it.
pub const WHOLE: &str = "%whole";

/// Whether a barrier of the warp is such a one.
pub fn is_for_all_left(instruction: &Instruction) -> bool {
    instruction.opcode == "bar" && instruction.modifiers.last().is_some_and(|word| word == WHOLE)
}

/// What a barrier of the block does besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BarrierKind {
    /// Nothing.
    Wait,
    /// It counts the threads for which a predicate holds.
    Count,
    /// It tells whether the predicate holds for any.
    Any,
    /// It tells whether it holds for all.
    All,
}

/// Of what kind a barrier of the block is; none for other instructions.
pub fn barrier_kind(row: &Row, instruction: &Instruction) -> Option<BarrierKind> {
    let has = |word: &str| instruction.modifiers.iter().any(|modifier| modifier == word);
    waits_for_block(row, instruction).then(|| match (has("popc"), has("or"), has("and")) {
        (true, ..) => BarrierKind::Count,
        (_, true, _) => BarrierKind::Any,
        (.., true) => BarrierKind::All,
        (false, false, false) => BarrierKind::Wait,
    })
}

/// Whether a barrier promises that all lanes of a warp come to it together. Where that is not so, ptxas keeps words in
/// registers of the warp over points at which others of its lanes change them, and waits for lanes that wait elsewhere
/// (PTX ISA, "bar, barrier": `bar` is `barrier.aligned`).
pub fn promises_all_lanes(instruction: &Instruction) -> bool {
    instruction.opcode == "bar" || instruction.modifiers.iter().any(|modifier| modifier == "aligned")
}

/// Whether a mask names all lanes of a warp.
pub fn names_all_lanes(mask: &Operand) -> bool {
    matches!(mask, Operand::Integer(-1 | 0xffff_ffff))
}

/// Of all barriers only number 0, for the whole block and without a count, resolves itself whatever the
/// threads do: threads that exit count as arrived. Others can wait for ever.
pub(crate) fn check_barrier(instruction: &Instruction) -> Result<(), Reason> {
    let is = |word: &str| instruction.modifiers.iter().any(|modifier| modifier == word);
    let number = match (is("sync"), is("warp"), is("red"), instruction.operands.as_slice()) {
        (true, true, false, [Operand::Register(_) | Operand::Integer(_)]) => return Ok(()),
        (true, false, false, [number]) => number,
        (false, false, true, [Operand::Register(_), number, Operand::Register(_) | Operand::Not(_)]) => {
            number
        }
        _ => {
            return Err(Reason::NotAllowed {
                what: "a barrier with a count, or one that does not wait".to_owned(),
                why: "it can wait for ever",
            });
        }
    };
    if *number == Operand::Integer(0) {
        return Ok(());
    }
    Err(Reason::NotAllowed { what: "a barrier other than number 0".to_owned(), why: "it can wait for ever" })
}
