//! The opcode table: what is not in it is refused.
//!
//! A row says which modifiers an opcode may carry, how many operands it takes, how many of them it writes,
//! and what the guard has to do about it. Which combinations of modifiers exist is left to the assembler; the
//! table only makes sure that no word it does not know gets there.

use crate::ast::{AddressBase, Instruction, Operand};
use crate::report::Reason;

/// What the guard does about an opcode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Treatment {
    /// Works on registers only: passes as it is.
    Pure,
    /// Moves registers, literals and the addresses of shared, local and constant variables.
    Move,
    /// Reads memory at its second operand.
    Load,
    /// Writes memory at its first operand.
    Store,
    /// Reads and writes memory at its second operand.
    Atomic,
    /// Reads and writes memory at its first operand.
    Reduction,
    /// Goes to a label.
    Branch,
    /// Waits for other threads: see [`check_barrier`].
    Barrier,
    /// Touches caches only: left out.
    Hint,
    /// Never passes, for this reason.
    Refused(Refusal),
}

/// Why an opcode never passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no rule for it yet.
    NotImplemented(&'static str),
    /// It would break a neighbour.
    NotAllowed(&'static str, &'static str),
}

/// One row of the table.
#[derive(Debug)]
pub(crate) struct Row {
    /// The first word of the opcode.
    pub(crate) opcode: &'static str,
    /// What to do about it.
    pub(crate) treatment: Treatment,
    /// How many operands, counted from the first, are written.
    pub(crate) destinations: usize,
    least: usize,
    most: usize,
    modifiers: &'static [&'static str],
}

const INT: &str = "u16 s16 u32 s32 u64 s64";
const BITS: &str = "b16 b32 b64";
const FLOAT: &str = "f16 f16x2 bf16 bf16x2 f32 f64";
const ROUND: &str = "rn rz rm rp ftz sat";
const COMPARE: &str = "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan and or xor ftz";
const ORDER: &str = "weak volatile relaxed acquire release acq_rel cta gpu sys";
const CACHE: &str = "ca cg cs lu cv wb wt";
const MEMORY: &str = "b8 u8 s8 b16 u16 s16 b32 u32 s32 b64 u64 s64 f32 f64 v2 v4";
const SPACES: &str = "global shared shared::cta local";

const fn row(
    opcode: &'static str,
    treatment: Treatment,
    (destinations, least, most): (usize, usize, usize),
    modifiers: &'static [&'static str],
) -> Row {
    Row { opcode, treatment, destinations, least, most, modifiers }
}

const fn pure(opcode: &'static str, operands: usize, modifiers: &'static [&'static str]) -> Row {
    row(opcode, Treatment::Pure, (1, operands, operands), modifiers)
}

const fn missing(opcode: &'static str, what: &'static str) -> Row {
    row(opcode, Treatment::Refused(Refusal::NotImplemented(what)), (0, 0, 0), &[])
}

const fn refused(opcode: &'static str, what: &'static str, why: &'static str) -> Row {
    row(opcode, Treatment::Refused(Refusal::NotAllowed(what, why)), (0, 0, 0), &[])
}

/// Sorted by opcode.
const ROWS: &[Row] = &[
    pure("abs", 2, &[INT, FLOAT, "ftz"]),
    row("activemask", Treatment::Pure, (1, 1, 1), &["b32"]),
    pure("add", 3, &[INT, FLOAT, ROUND, "cc u16x2 s16x2"]),
    pure("addc", 3, &[INT, "cc"]),
    missing("alloca", "stack allocation (`alloca`)"),
    pure("and", 3, &[BITS, "pred"]),
    refused("applypriority", "`applypriority`", "it evicts the neighbours' cache lines"),
    row(
        "atom",
        Treatment::Atomic,
        (1, 3, 4),
        &[ORDER, "global shared shared::cta and or xor cas exch add inc dec min max noftz", BITS, INT, FLOAT],
    ),
    row("bar", Treatment::Barrier, (0, 1, 3), BARRIER),
    row("barrier", Treatment::Barrier, (0, 1, 3), BARRIER),
    pure("bfe", 4, &["u32 s32 u64 s64"]),
    pure("bfi", 5, &["b32 b64"]),
    pure("bfind", 2, &["u32 s32 u64 s64 shiftamt"]),
    pure("bmsk", 3, &["clamp wrap b32"]),
    row("bra", Treatment::Branch, (0, 1, 1), &["uni"]),
    pure("brev", 2, &["b32 b64"]),
    refused("brkpt", "`brkpt`", "it stops the context"),
    missing("brx", "indirect branches (`brx`)"),
    missing("call", "function calls (`call`)"),
    missing("clusterlaunchcontrol", "clusters (`clusterlaunchcontrol`)"),
    pure("clz", 2, &["b32 b64"]),
    pure("cnot", 2, &[BITS]),
    pure("copysign", 3, &["f32 f64"]),
    pure("cos", 2, &["approx ftz f32"]),
    missing("cp", "asynchronous and bulk copies (`cp`)"),
    missing("createpolicy", "cache policies (`createpolicy`)"),
    row(
        "cvt",
        Treatment::Pure,
        (1, 2, 4),
        &[
            "rni rzi rmi rpi rna rs relu satfinite pack b8 u8 s8 b32 tf32 e4m3x2 e5m2x2 scaled",
            INT,
            FLOAT,
            ROUND,
        ],
    ),
    pure("cvta", 2, &["to global shared shared::cta local u32 u64"]),
    refused("discard", "`discard`", "it brings back what the memory held before it was scrubbed"),
    pure("div", 3, &[INT, FLOAT, ROUND, "approx full"]),
    pure("dp2a", 4, &["lo hi u32 s32"]),
    pure("dp4a", 4, &["u32 s32"]),
    missing("elect", "`elect`"),
    pure("ex2", 2, &["approx ftz f32 f16 f16x2 bf16 bf16x2"]),
    row("exit", Treatment::Pure, (0, 0, 0), &[]),
    row("fence", Treatment::Pure, (0, 0, 0), &["sc acq_rel acquire release cta gpu sys"]),
    pure("fma", 4, &[FLOAT, ROUND, "relu"]),
    pure("fns", 4, &["b32"]),
    missing("getctarank", "clusters (`getctarank`)"),
    refused("griddepcontrol", "`griddepcontrol`", "kernels would overtake one another"),
    pure("isspacep", 2, &["global shared shared::cta local"]),
    missing("istypep", "textures and surfaces (`istypep`)"),
    row("ld", Treatment::Load, (1, 2, 2), &[SPACES, "param const nc", ORDER, CACHE, MEMORY]),
    missing("ldmatrix", "matrix loads (`ldmatrix`)"),
    missing("ldu", "`ldu`"),
    pure("lg2", 2, &["approx ftz f32"]),
    row("lop3", Treatment::Pure, (1, 5, 6), &["b32 or and"]),
    pure("mad", 4, &[INT, FLOAT, ROUND, "hi lo wide cc"]),
    pure("mad24", 4, &["hi lo sat u32 s32"]),
    pure("madc", 4, &[INT, "hi lo cc"]),
    missing("mapa", "clusters (`mapa`)"),
    pure("match", 3, &["any all sync b32 b64"]),
    pure("max", 3, &[INT, FLOAT, "ftz NaN xorsign relu u16x2 s16x2 abs"]),
    missing("mbarrier", "memory barriers objects (`mbarrier`)"),
    row("membar", Treatment::Pure, (0, 0, 0), &["cta gl sys"]),
    pure("min", 3, &[INT, FLOAT, "ftz NaN xorsign relu u16x2 s16x2 abs"]),
    missing("mma", "matrix instructions (`mma`)"),
    row("mov", Treatment::Move, (1, 2, 2), &[BITS, INT, "f16 f16x2 bf16 bf16x2 f32 f64 pred"]),
    missing("movmatrix", "matrix instructions (`movmatrix`)"),
    pure("mul", 3, &[INT, FLOAT, ROUND, "hi lo wide"]),
    pure("mul24", 3, &["hi lo u32 s32"]),
    refused("multimem", "`multimem`", "it takes addresses that no window confines"),
    row("nanosleep", Treatment::Pure, (0, 1, 1), &["u32"]),
    pure("neg", 2, &[INT, FLOAT, "ftz"]),
    pure("not", 2, &[BITS, "pred"]),
    pure("or", 3, &[BITS, "pred"]),
    refused("pmevent", "`pmevent`", "it triggers the profiler of others"),
    pure("popc", 2, &["b32 b64"]),
    row("prefetch", Treatment::Hint, (0, 1, 1), &["global local L1 L2"]),
    row("prefetchu", Treatment::Hint, (0, 1, 1), &["L1"]),
    pure("prmt", 4, &["b32 f4e b4e rc8 ecl ecr rc16"]),
    pure("rcp", 2, &["approx f32 f64", ROUND]),
    row(
        "red",
        Treatment::Reduction,
        (0, 2, 2),
        &[ORDER, "global shared shared::cta and or xor add inc dec min max noftz", BITS, INT, FLOAT],
    ),
    pure("redux", 3, &["sync add min max and or xor abs NaN u32 s32 b32 f32"]),
    pure("rem", 3, &[INT]),
    row("ret", Treatment::Pure, (0, 0, 0), &["uni"]),
    pure("rsqrt", 2, &["approx ftz f32 f64"]),
    pure("sad", 4, &[INT]),
    pure("selp", 4, &[BITS, INT, "f32 f64"]),
    row("set", Treatment::Pure, (1, 3, 4), &[COMPARE, BITS, INT, FLOAT]),
    refused("setmaxnreg", "`setmaxnreg`", "it waits for registers without end"),
    row("setp", Treatment::Pure, (1, 3, 4), &[COMPARE, BITS, INT, FLOAT]),
    pure("shf", 4, &["l r clamp wrap b32"]),
    pure("shfl", 5, &["sync up down bfly idx b32"]),
    pure("shl", 3, &[BITS]),
    pure("shr", 3, &[BITS, INT]),
    pure("sin", 2, &["approx ftz f32"]),
    pure("slct", 4, &[BITS, INT, "f32 f64 ftz"]),
    pure("sqrt", 2, &["approx f32 f64", ROUND]),
    row("st", Treatment::Store, (0, 2, 2), &[SPACES, ORDER, CACHE, MEMORY]),
    missing("stackrestore", "stack allocation (`stackrestore`)"),
    missing("stacksave", "stack allocation (`stacksave`)"),
    missing("stmatrix", "matrix stores (`stmatrix`)"),
    pure("sub", 3, &[INT, FLOAT, ROUND, "cc"]),
    pure("subc", 3, &[INT, "cc"]),
    missing("suld", "surfaces (`suld`)"),
    missing("suq", "surfaces (`suq`)"),
    missing("sured", "surfaces (`sured`)"),
    missing("sust", "surfaces (`sust`)"),
    pure("szext", 3, &["clamp wrap u32 s32"]),
    pure("tanh", 2, &["approx f32 f16 f16x2 bf16 bf16x2"]),
    missing("tcgen05", "matrix instructions (`tcgen05`)"),
    missing("tensormap", "tensor maps (`tensormap`)"),
    pure("testp", 2, &["finite infinite number notanumber normal subnormal f32 f64"]),
    missing("tex", "textures (`tex`)"),
    missing("tld4", "textures (`tld4`)"),
    refused("trap", "`trap`", "it ends the context of every session"),
    missing("txq", "textures (`txq`)"),
    pure("vote", 3, &["sync all any uni ballot pred b32"]),
    missing("wgmma", "matrix instructions (`wgmma`)"),
    missing("wmma", "matrix instructions (`wmma`)"),
    pure("xor", 3, &[BITS, "pred"]),
];

const BARRIER: &[&str] = &["sync warp cta red aligned popc and or pred u32"];

fn find(opcode: &str) -> Option<&'static Row> {
    ROWS.binary_search_by(|row| row.opcode.cmp(opcode)).ok().and_then(|index| ROWS.get(index))
}

fn reason(refusal: Refusal) -> Reason {
    match refusal {
        Refusal::NotImplemented(what) => Reason::NotImplemented { what: what.to_owned() },
        Refusal::NotAllowed(what, why) => Reason::NotAllowed { what: what.to_owned(), why },
    }
}

/// Why an opcode never passes, where that is so.
pub(crate) fn refusal(opcode: &str) -> Option<Reason> {
    match find(opcode) {
        None => Some(Reason::NotImplemented { what: format!("the instruction `{opcode}`") }),
        Some(Row { treatment: Treatment::Refused(refusal), .. }) => Some(reason(*refusal)),
        Some(_) => None,
    }
}

/// The row of an instruction, whose opcode, modifiers and number of operands are all in the table.
pub(crate) fn check(instruction: &Instruction) -> Result<&'static Row, Reason> {
    if let Some(reason) = refusal(&instruction.opcode) {
        return Err(reason);
    }
    let Some(row) = find(&instruction.opcode) else {
        return Err(Reason::NotImplemented { what: format!("the instruction `{}`", instruction.opcode) });
    };
    let known = |modifier: &str| row.modifiers.iter().any(|words| holds_word(words, modifier));
    if let Some(modifier) = instruction.modifiers.iter().find(|modifier| !known(modifier)) {
        return Err(Reason::NotImplemented { what: format!("`.{modifier}` of `{}`", row.opcode) });
    }
    if !(row.least..=row.most).contains(&instruction.operands.len()) {
        let expected = if row.least == row.most {
            row.least.to_string()
        } else {
            format!("{} to {}", row.least, row.most)
        };
        let found = instruction.operands.len();
        return Err(Reason::Malformed(format!("`{}` takes {expected} operands, not {found}", row.opcode)));
    }
    if row.treatment == Treatment::Barrier {
        check_barrier(instruction)?;
    }
    Ok(row)
}

/// Whether one of the words of `words`, which blanks part, is `word`.
fn holds_word(words: &str, word: &str) -> bool {
    words.as_bytes().split(|byte| *byte == b' ').any(|found| found == word.as_bytes())
}

/// Of all barriers only number 0, for the whole block and without a count, resolves itself whatever the
/// threads do: threads that exit count as arrived. Others can wait for ever.
fn check_barrier(instruction: &Instruction) -> Result<(), Reason> {
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

/// The register that stands for the carry flag among an instruction's reads and writes.
pub(crate) const CARRY: &str = "%cc";

/// Calls `read` for every register that the instruction reads, then `write` for every register that it
/// writes; special registers and the carry flag count.
pub(crate) fn registers<'a>(
    row: &Row,
    instruction: &'a Instruction,
    read: &mut dyn FnMut(&'a str),
    write: &mut dyn FnMut(&'a str),
) {
    // A reducing barrier writes its first operand.
    let reducing = row.treatment == Treatment::Barrier && instruction.operands.len() > 1;
    let destinations = if reducing { 1 } else { row.destinations };
    if let Some(predicate) = &instruction.predicate {
        read(&predicate.register);
    }
    for operand in instruction.operands.iter().skip(destinations) {
        each(operand, read);
    }
    if matches!(row.opcode, "addc" | "subc" | "madc") {
        read(CARRY);
    }
    for operand in instruction.operands.iter().take(destinations) {
        each(operand, write);
    }
    if instruction.modifiers.iter().any(|modifier| modifier == "cc") {
        write(CARRY);
    }
}

/// Calls `see` for every register in an operand.
pub(crate) fn each<'a>(operand: &'a Operand, see: &mut dyn FnMut(&'a str)) {
    match operand {
        Operand::Register(name) | Operand::Not(name) | Operand::Selected(name, _) => see(name),
        Operand::Address(address) | Operand::Coordinates(address, _) | Operand::Subscript(_, address) => {
            match &address.base {
                AddressBase::Register(name) => see(name),
                AddressBase::Symbol(_) | AddressBase::Absolute => {}
            }
        }
        Operand::Vector(_)
        | Operand::List(_)
        | Operand::Pair(..)
        | Operand::Negated(_)
        | Operand::Masked(..)
        | Operand::Field(..)
        | Operand::Symbol(_)
        | Operand::SymbolOffset(..)
        | Operand::Integer(_)
        | Operand::Float32(_)
        | Operand::Float64(_)
        | Operand::Generic(..)
        | Operand::Difference(..)
        | Operand::Sink => {}
    }
    for inner in operand.inner() {
        each(inner, see);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_are_sorted_and_no_opcode_has_two() {
        assert!(ROWS.windows(2).all(|pair| pair[0].opcode < pair[1].opcode));
    }

    #[test]
    fn an_opcode_that_is_not_in_the_table_is_refused() {
        assert!(refusal("frobnicate").is_some());
        assert!(refusal("add").is_none());
    }
}
