//! The opcode table: what is not in it is refused.
//!
//! A row says what is known of an opcode or, where its forms differ, of one form of it: which operands it
//! writes, which are addresses and what is accessed there, which modifiers it may carry, and what the guard
//! has to do about it. Which combinations of modifiers exist is left to the assembler; the table only makes
//! sure that no word it does not know gets there.
//!
//! A *form* is an opcode with the modifiers it starts with, `cp.async.bulk`. Of the rows that fit, the one with
//! the most words counts. An instruction whose modifiers stand in another order falls back to its opcode's row,
//! so that row must not know the words of a form that it does not describe.

mod lanes;
mod memory;
mod refused;
mod registers;
#[cfg(test)]
mod support;

use std::sync::LazyLock;

use crate::ast::{AddressBase, Instruction, Operand};
use crate::report::Reason;

use lanes::check_barrier;
pub use lanes::{
    BarrierKind, WHOLE, barrier_kind, is_for_all_left, is_for_warps, names_all_lanes, parts,
    promises_all_lanes, waits_for_block, waits_for_lanes,
};

/// What the guard does about an opcode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Treatment {
    /// Works on registers only: passes as it is.
    Pure,
    /// Moves registers, literals and the addresses of shared, local and constant variables.
    Move,
    /// Reads memory.
    Load,
    /// Writes memory.
    Store,
    /// Reads and writes memory and returns what was there.
    Atomic,
    /// Reads and writes memory.
    Reduction,
    /// Reads memory and writes it elsewhere, some time before the thread has waited for that.
    Copy,
    /// Goes to a label.
    Branch,
    /// Waits for other threads: see `check_barrier`.
    Barrier,
    /// Touches caches only, or says when kernels may start early, which none does: left out.
    Hint,
    /// Calls a gate: stands for the text of that while a body is confined. What its name begins with no text has.
    Gate,
    /// Never passes, for this reason.
    Refused(Refusal),
}

/// Why an opcode never passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// There is no rule for it yet.
    NotImplemented(&'static str),
    /// It would break a neighbour.
    NotAllowed(&'static str, &'static str),
}

/// What an access does to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Reads it.
    Reads,
    /// Writes it.
    Writes,
    /// Reads and writes it.
    Updates,
    /// Neither, but caches or their policies are told of the address.
    Touches,
}

/// How many bytes an access covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// Those of the type and vector that the modifiers name.
    Typed,
    /// So many.
    Bytes(u64),
    /// As many as this operand says.
    Operand(usize),
    /// Rows of a matrix, a stride apart that an operand gives.
    Matrix,
    /// The box of a tensor map.
    Tensor,
    /// What a texture or surface handle stands for.
    Handle,
}

/// The alignment that an access needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// That of its width.
    Natural,
    /// So many bytes.
    Bytes(u64),
}

/// One address among an instruction's operands. Where it is optional and not there, nothing is accessed. Where
/// an instruction names several state spaces, they are those of its addresses in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Which operand it is.
    pub operand: usize,
    /// What is done there.
    pub effect: Effect,
    /// The state spaces that PTX permits, by their modifiers; `generic` where none has to be named.
    pub spaces: &'static str,
    /// How much is accessed.
    pub width: Width,
    /// How it has to be aligned.
    pub align: Align,
}

impl Memory {
    /// Whether PTX permits a state space here.
    pub fn permits(&self, space: &str) -> bool {
        holds_word(self.spaces, space)
    }
}

/// One row of the table.
#[derive(Debug)]
pub struct Row {
    /// The opcode, for a form with the modifiers that it starts with.
    pub name: &'static str,
    /// What to do about it.
    pub treatment: Treatment,
    /// How many operands, counted from the first, are written.
    pub destinations: usize,
    least: usize,
    most: usize,
    modifiers: &'static [&'static str],
    /// The operands that are addresses.
    pub memory: &'static [Memory],
}

const INT: &str = "u16 s16 u32 s32 u64 s64";
const BITS: &str = "b16 b32 b64";
const FLOAT: &str = "f16 f16x2 bf16 bf16x2 f32 f64";

const fn row(
    name: &'static str,
    treatment: Treatment,
    (destinations, least, most): (usize, usize, usize),
    modifiers: &'static [&'static str],
) -> Row {
    Row { name, treatment, destinations, least, most, modifiers, memory: &[] }
}

impl Row {
    /// The modifiers that an instruction of this form starts with.
    fn form(&self) -> impl Iterator<Item = &'static str> {
        self.name.split('.').skip(1)
    }

    /// The address at an operand.
    pub fn memory_at(&self, operand: usize) -> Option<&'static Memory> {
        self.memory.iter().find(|memory| memory.operand == operand)
    }
}

/// Each sorted by name.
const TABLES: [&[Row]; 3] = [registers::ROWS, memory::ROWS, refused::ROWS];

/// A row, the words after its opcode that make up its form, and all that it knows, in order.
struct Form {
    words: Vec<&'static str>,
    known: Vec<&'static str>,
    row: &'static Row,
}

/// An opcode and its forms, those with most words last.
type Forms = (&'static str, Vec<Form>);

/// How many places opcodes are spread over.
const PLACES: usize = 1 << 9;

/// Where the forms of an opcode are. Which opcodes there are nobody can choose, so that this need not be hard to foresee.
fn place(opcode: &str) -> usize {
    let begin = opcode.bytes().take(8).fold(0_u64, |begin, byte| begin << 8 | u64::from(byte));
    usize::try_from(begin.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 55).unwrap_or(0) % PLACES
}

/// The forms of all opcodes, by place.
static FORMS: LazyLock<Vec<Vec<Forms>>> = LazyLock::new(|| {
    let mut forms: Vec<Vec<Forms>> = (0..PLACES).map(|_| Vec::new()).collect();
    for row in TABLES.into_iter().flatten() {
        let opcode = row.name.split('.').next().unwrap_or_default();
        let mut known: Vec<_> = row.modifiers.iter().flat_map(|words| words.split(' ')).collect();
        known.sort_unstable();
        let form = Form { words: row.form().collect(), known, row };
        let Some(place) = forms.get_mut(place(opcode)) else { continue };
        match place.iter_mut().find(|(name, _)| *name == opcode) {
            Some((_, forms)) => forms.push(form),
            None => place.push((opcode, vec![form])),
        }
    }
    for (_, forms) in forms.iter_mut().flatten() {
        forms.sort_by_key(|form| form.words.len());
    }
    forms
});

fn find(opcode: &str, modifiers: &[String]) -> Option<&'static Form> {
    let fits = |form: &&Form| {
        let words = &form.words;
        words.len() <= modifiers.len() && words.iter().zip(modifiers).all(|(word, modifier)| word == modifier)
    };
    let (_, forms) = FORMS.get(place(opcode))?.iter().find(|(name, _)| *name == opcode)?;
    forms.iter().rev().find(fits)
}

fn reason(refusal: Refusal) -> Reason {
    match refusal {
        Refusal::NotImplemented(what) => Reason::NotImplemented { what: what.to_owned() },
        Refusal::NotAllowed(what, why) => Reason::NotAllowed { what: what.to_owned(), why },
    }
}

fn lookup(opcode: &str, modifiers: &[String]) -> Result<&'static Form, Reason> {
    let Some(form) = find(opcode, modifiers) else {
        return Err(Reason::NotImplemented { what: format!("the instruction `{opcode}`") });
    };
    match form.row.treatment {
        Treatment::Refused(refusal) => Err(reason(refusal)),
        Treatment::Pure
        | Treatment::Move
        | Treatment::Load
        | Treatment::Store
        | Treatment::Atomic
        | Treatment::Reduction
        | Treatment::Copy
        | Treatment::Branch
        | Treatment::Barrier
        | Treatment::Hint
        | Treatment::Gate => Ok(form),
    }
}

/// The row of an instruction, whether or not it passes.
pub fn row_of(instruction: &Instruction) -> Option<&'static Row> {
    find(&instruction.opcode, &instruction.modifiers).map(|form| form.row)
}

/// Why an opcode with these modifiers never passes, where that is so.
pub fn refusal(opcode: &str, modifiers: &[String]) -> Option<Reason> {
    lookup(opcode, modifiers).err()
}

/// The row of an instruction, whose opcode, modifiers and number of operands are all in the table.
pub fn check(instruction: &Instruction) -> Result<&'static Row, Reason> {
    let Form { known, row, .. } = lookup(&instruction.opcode, &instruction.modifiers)?;
    let known = |modifier: &str| known.binary_search(&modifier).is_ok();
    if let Some(modifier) = instruction.modifiers.iter().find(|modifier| !known(modifier)) {
        return Err(Reason::NotImplemented { what: format!("`.{modifier}` of `{}`", instruction.opcode) });
    }
    if !(row.least..=row.most).contains(&instruction.operands.len()) {
        let expected = if row.least == row.most {
            row.least.to_string()
        } else {
            format!("{} to {}", row.least, row.most)
        };
        let found = instruction.operands.len();
        return Err(Reason::Malformed(format!("`{}` takes {expected} operands, not {found}", row.name)));
    }
    if row.treatment == Treatment::Barrier {
        check_barrier(instruction)?;
    }
    if let Some(name) = written_twice(row, instruction) {
        return Err(Reason::Malformed(format!("`{}` writes `{name}` twice", row.name)));
    }
    Ok(row)
}

/// A register that an instruction writes more than once: PTX does not say what it holds then, and whoever counts
/// writes takes it for two instructions.
fn written_twice<'a>(row: &Row, instruction: &'a Instruction) -> Option<&'a str> {
    let destinations = instruction.operands.get(..row.destinations)?;
    if let [] | [Operand::Register(_)] = destinations {
        return None;
    }
    let (mut seen, mut twice) = (Vec::new(), None);
    written(row, instruction, &mut |name| {
        if seen.contains(&name) {
            twice = Some(name);
        }
        seen.push(name);
    });
    twice
}

/// A thread sleeps for no more than a millisecond (PTX ISA, "nanosleep"), in nanoseconds.
const NANOSLEEP_MAX: i128 = 1_000_000;

/// What a sleep of so many nanoseconds counts: it may last twice as long, and a unit is some 20 ns where all threads of a
/// device contend.
fn nanosleep_cost(nanoseconds: i128) -> u64 {
    16 + u64::try_from(nanoseconds / 10).unwrap_or(u64::MAX)
}

/// What an instruction counts against the budget of a thread that has not looked at its session's flag: about how
/// many others it takes as long as at worst, where all threads of the device contend.
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
        // Whose order all the device or the system sees: as a fence.
        (Treatment::Load | Treatment::Store, _) if is_ordered(instruction) => 64,
        (Treatment::Load | Treatment::Store, _) => {
            // Local memory is the device's too, as soon as lanes scatter there.
            if global || instruction.modifiers.iter().any(|modifier| modifier == "local") { 8 } else { 1 }
        }
        (Treatment::Barrier | Treatment::Copy, _) => 8,
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

/// Whether an access acquires or releases for more than its block.
fn is_ordered(instruction: &Instruction) -> bool {
    let has = |word: &str| instruction.modifiers.iter().any(|modifier| modifier == word);
    (has("acquire") || has("release") || has("acq_rel")) && !has("cta")
}

/// What an instruction counts that computes: about how many instructions ptxas makes of it for sm_90, where that are many
/// (CUDA 13.0; `div.rn.f32` 110, `rem.s64` 80, `sqrt.rn.f64` 56, `fns` and `vavrg4` 48).
fn pure_cost(row: &Row, instruction: &Instruction) -> u64 {
    let has = |word: &str| instruction.modifiers.iter().any(|modifier| modifier == word);
    let is_wide = has("f64") || has("u64") || has("s64");
    let is_rounded = ["rn", "rz", "rm", "rp"].into_iter().any(has);
    match row.name {
        "div" if has("full") || has("approx") => 8,
        "div" | "rem" if is_wide || is_rounded => 128,
        "div" | "rem" => 32,
        "rcp" | "sqrt" | "rsqrt" if is_wide || is_rounded => 64,
        "fns" => 64,
        _ if is_video(row) && row.name.ends_with(['2', '4']) => 48,
        _ if is_video(row) => 8,
        "mul" | "mad" if is_wide && has("hi") => 20,
        "bfe" | "bfi" | "bfind" | "sad" if is_wide || has("b64") => 20,
        _ => 1,
    }
}

/// Whether ptxas makes a function of an instruction, or branches in which lanes may be apart.
fn is_of_several(row: &Row, instruction: &Instruction) -> bool {
    row.treatment == Treatment::Pure
        && matches!(row.name, "div" | "rem" | "rcp" | "sqrt" | "rsqrt" | "fns")
        && pure_cost(row, instruction) > 8
}

/// Whether an instruction works on bytes and halves of words, and takes parts of registers.
pub fn is_video(row: &Row) -> bool {
    row.name.starts_with('v') && row.name != "vote"
}

/// Waits for all copies that the thread has begun.
pub const WAIT_ALL: &str = "cp.async.wait_all";

/// Whether an instruction begins a copy that goes on beside its thread.
pub fn copies(instruction: &Instruction) -> bool {
    row_of(instruction).is_some_and(|row| row.treatment == Treatment::Copy)
}

/// What calls a gate: what it returns, which of the gates it is, what it is called with and what it costs.
pub const GATE: &str = "%gate";

/// What zeroes the local variable in a loop, and what that costs, until all else is confined. What its name begins with no
/// text has.
pub const CLEAR: &str = "%clear";

/// Whether an instruction writes global memory.
pub fn writes_global(row: &Row, instruction: &Instruction) -> bool {
    row.treatment == Treatment::Gate
        || matches!(row.treatment, Treatment::Store | Treatment::Atomic | Treatment::Reduction)
            && instruction.modifiers.iter().any(|modifier| modifier == "global")
}

/// The label that a branch goes to; none for other instructions.
pub fn target<'a>(row: &Row, instruction: &'a Instruction) -> Option<&'a str> {
    match (row.treatment, instruction.operands.first()) {
        (Treatment::Branch, Some(Operand::Symbol(name))) => Some(name),
        _ => None,
    }
}

/// Whether nothing that stands after an instruction is reached from it.
pub fn ends_path(row: &Row, instruction: &Instruction) -> bool {
    let away = row.treatment == Treatment::Branch || matches!(row.name, "ret" | "exit");
    away && instruction.predicate.is_none()
}

/// Whether one of the words of `words`, which blanks part, is `word`.
fn holds_word(words: &str, word: &str) -> bool {
    words.as_bytes().split(|byte| *byte == b' ').any(|found| found == word.as_bytes())
}

/// The register that stands for the carry flag among an instruction's reads and writes.
pub const CARRY: &str = "%cc";

/// Calls `read` for every register that the instruction reads, then `write` for every register that it
/// writes; special registers and the carry flag count.
pub fn registers<'a>(
    row: &Row,
    instruction: &'a Instruction,
    read: &mut dyn FnMut(&'a str),
    write: &mut dyn FnMut(&'a str),
) {
    if let Some(predicate) = &instruction.predicate {
        read(&predicate.register);
    }
    for operand in instruction.operands.iter().skip(row.destinations) {
        each(operand, read);
    }
    if matches!(row.name, "addc" | "subc" | "madc") {
        read(CARRY);
    }
    written(row, instruction, write);
}

/// Calls `write` for every register that the instruction writes.
pub fn written<'a>(row: &Row, instruction: &'a Instruction, write: &mut dyn FnMut(&'a str)) {
    for operand in instruction.operands.iter().take(row.destinations) {
        each(operand, write);
    }
    if instruction.modifiers.iter().any(|modifier| modifier == "cc") {
        write(CARRY);
    }
}

/// Calls `see` for every register in an operand.
pub fn each<'a>(operand: &'a Operand, see: &mut dyn FnMut(&'a str)) {
    match operand {
        Operand::Register(name) | Operand::Not(name) | Operand::Selected(name, _) => return see(name),
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
        | Operand::Field(..) => {}
        Operand::Symbol(_)
        | Operand::SymbolOffset(..)
        | Operand::Integer(_)
        | Operand::Float32(_)
        | Operand::Float64(_)
        | Operand::Generic(..)
        | Operand::Difference(..)
        | Operand::Sink => return,
    }
    for inner in operand.inner() {
        each(inner, see);
    }
}

#[cfg(test)]
mod tests;
