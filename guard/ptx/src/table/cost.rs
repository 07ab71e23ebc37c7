//! What instructions cost, in what a thread may spend between two looks at its flag.

use super::lanes::waits_for_block;
use super::row::{CLEAR, Row, Treatment, WAIT_ALL};
use crate::ast::{Instruction, Operand};

/// A thread sleeps for no more than a millisecond (PTX ISA, "nanosleep"), in nanoseconds.
const NANOSLEEP_MAX: i128 = 1_000_000;

/// What a sleep of so many nanoseconds counts: it may last twice as long, a unit is some 20 ns where all threads of a
/// device contend, and lanes that are apart may sleep one after the other.
fn nanosleep_cost(nanoseconds: i128) -> u64 {
    16 + u64::try_from(nanoseconds).unwrap_or(u64::MAX)
}

/// What an instruction counts against the budget of a thread that has not looked at its session's flag: about how
/// many others it takes as long as at worst, where all threads of the device contend. A wait for the block counts more
/// besides: threads may do what they do between two of them one after the other.
pub fn cost(row: &Row, instruction: &Instruction) -> u64 {
    let global = instruction.modifiers.iter().any(|modifier| modifier == "global");
    match (row.treatment, row.name) {
        // Not merged and not cached, and not measured yet: as the slowest of what is.
        (Treatment::Load | Treatment::Store, _)
            if instruction.modifiers.iter().any(|word| word == "mmio") =>
        {
            512
        }
        (Treatment::Atomic | Treatment::Reduction, _) => match (global, is_ordered(instruction)) {
            (true, _) => 512,
            (false, true) => 96,
            (false, false) => 32,
        },
        (_, "wmma.load" | "wmma.store") => 64,
        (_, "mma" | "wmma.mma" | "ldmatrix" | "stmatrix" | "movmatrix") => 16,
        // As a fence.
        (Treatment::Load | Treatment::Store, _) if is_ordered(instruction) => 64,
        // It may be the host's: a word of each of 264 blocks of 1,024 threads takes 0.37 ms there (an H200).
        (Treatment::Load | Treatment::Store, _) if global => 16,
        (Treatment::Copy, _) => 16,
        (Treatment::Load | Treatment::Store, _) => {
            // Local memory is the device's too, as soon as lanes scatter there.
            if instruction.modifiers.iter().any(|modifier| modifier == "local") { 8 } else { 1 }
        }
        (Treatment::Barrier, _) if waits_for_block(row, instruction) => 32,
        (Treatment::Barrier, _) => LANES_COST,
        (_, "cp.async.wait_group" | WAIT_ALL) => 8,
        (_, "membar" | "fence") => 64,
        (_, "nanosleep") => match instruction.operands.first() {
            Some(Operand::Integer(nanoseconds @ 0..NANOSLEEP_MAX)) => nanosleep_cost(*nanoseconds),
            _ => nanosleep_cost(NANOSLEEP_MAX),
        },
        (Treatment::Gate, _) | (_, CLEAR) => match instruction.operands.last() {
            Some(Operand::Integer(cost)) => u64::try_from(*cost).unwrap_or(u64::MAX),
            _ => u64::MAX,
        },
        (Treatment::Pure, _) => pure_cost(row, instruction),
        (Treatment::Move | Treatment::Branch | Treatment::Hint | Treatment::Refused(_), _) => 1,
    }
}

/// Whether an access acquires or releases, be that for its block only: ptxas writes a fence beside it.
fn is_ordered(instruction: &Instruction) -> bool {
    let is = |modifier: &String| matches!(modifier.as_str(), "acquire" | "release" | "acq_rel");
    instruction.modifiers.iter().any(is)
}

/// What a wait for lanes of a warp counts. Where they are apart ptxas goes around it for each lane: some ten instructions, 190
/// cycles and more on an H200.
const LANES_COST: u64 = 16;

/// What an instruction counts that computes: about how many instructions ptxas makes of it for sm_90, where that are many
/// (CUDA 13.0; `div.rn.f32` 110, `rem.s64` 80, `sqrt.rn.f64` 56, `fns` and `vavrg4` 48).
fn pure_cost(row: &Row, instruction: &Instruction) -> u64 {
    let has = |word: &str| instruction.modifiers.iter().any(|modifier| modifier == word);
    let is_wide = has("f64") || has("u64") || has("s64");
    let is_short = has("u16") || has("s16");
    let is_rounded = ["rn", "rz", "rm", "rp"].into_iter().any(has);
    match row.name {
        "div" if has("full") || has("approx") => 8,
        "div" | "rem" if is_wide || is_rounded => 128,
        "div" | "rem" => 32,
        "rcp" | "sqrt" | "rsqrt" if is_wide || is_rounded => 64,
        "fns" => 64,
        _ if is_video(row) && row.name.ends_with(['2', '4']) => 48,
        _ if is_video(row) => 8,
        "mul" | "mad" | "madc" if is_wide && has("hi") => 24,
        "bfe" | "bfi" | "bfind" | "sad" if is_wide || has("b64") => 20,
        // Clamped, or rounded to whole numbers of another width.
        "cvt" if has("sat") && is_wide => 20,
        "shfl" | "vote" | "match" | "redux" | "elect" => LANES_COST,
        "mad24" | "mul24" if has("hi") => 16,
        "isspacep" | "testp" => 12,
        "set" | "setp" | "mad" | "madc" | "sad" if is_short => 12,
        "shl" | "shr" if is_short || has("b16") => 8,
        "add" | "sub" if has("sat") && has("s32") => 8,
        "abs" | "cnot" if is_wide || has("b64") => 8,
        "cvt" if has("sat") && (is_short || has("s8") || has("u8")) => 8,
        "rcp" | "sqrt" | "rsqrt" | "mul24" | "mad24" => 8,
        "bfi" => 4,
        "min" | "max" | "clz" | "popc" if is_wide || has("b64") => 8,
        _ => 1,
    }
}

/// Whether an instruction works on bytes and halves of words, and takes parts of registers.
pub fn is_video(row: &Row) -> bool {
    row.name.starts_with('v') && row.name != "vote"
}

/// Whether ptxas makes a function of an instruction, or branches in which lanes may be apart.
pub(super) fn is_of_several(row: &Row, instruction: &Instruction) -> bool {
    row.treatment == Treatment::Pure
        && matches!(row.name, "div" | "rem" | "rcp" | "sqrt" | "rsqrt" | "fns" | "bfind")
        && pure_cost(row, instruction) > 8
}
