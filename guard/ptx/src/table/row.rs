//! Rows of the table: what is known of an opcode, or of one form of it.

use std::ops::RangeInclusive;

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
    pub(super) least: usize,
    pub(super) most: usize,
    pub(super) modifiers: &'static [&'static str],
    /// The operands that are addresses.
    pub memory: &'static [Memory],
}

pub(super) const INT: &str = "u16 s16 u32 s32 u64 s64";
pub(super) const BITS: &str = "b16 b32 b64";
pub(super) const FLOAT: &str = "f16 f16x2 bf16 bf16x2 f32 f64";

pub(super) const fn row(
    name: &'static str,
    treatment: Treatment,
    destinations: usize,
    operands: RangeInclusive<usize>,
    modifiers: &'static [&'static str],
) -> Row {
    let (least, most) = (*operands.start(), *operands.end());
    Row { name, treatment, destinations, least, most, modifiers, memory: &[] }
}

impl Row {
    /// The modifiers that an instruction of this form starts with.
    pub(super) fn form(&self) -> impl Iterator<Item = &'static str> {
        self.name.split('.').skip(1)
    }

    /// The address at an operand.
    pub fn memory_at(&self, operand: usize) -> Option<&'static Memory> {
        self.memory.iter().find(|memory| memory.operand == operand)
    }
}

/// Waits for all copies that the thread has begun.
pub const WAIT_ALL: &str = "cp.async.wait_all";

/// What calls a gate: what it returns, which of the gates it is, what it is called with and what it costs.
pub const GATE: &str = "%gate";

/// What zeroes the local variable in a loop, and what that costs, until all else is confined. What its name begins with no
/// text has.
pub const CLEAR: &str = "%clear";

/// Whether one of the words of `words`, which blanks part, is `word`.
pub(super) fn holds_word(words: &str, word: &str) -> bool {
    words.as_bytes().split(|byte| *byte == b' ').any(|found| found == word.as_bytes())
}
