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

mod cost;
mod lanes;
mod memory;
mod refused;
mod registers;
mod row;
#[cfg(test)]
mod support;

use std::sync::LazyLock;

use crate::ast::{AddressBase, Instruction, Operand};
use crate::report::Reason;

pub use cost::{cost, is_video};
use lanes::check_barrier;
pub use lanes::{
    BarrierKind, WHOLE, barrier_kind, is_for_all_left, is_for_warps, names_all_lanes, parts,
    promises_all_lanes, waits_for_block, waits_for_lanes,
};
pub use row::{Align, CLEAR, Effect, GATE, Memory, Refusal, Row, Treatment, WAIT_ALL, Width};

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

/// Whether an instruction begins a copy that goes on beside its thread.
pub fn copies(instruction: &Instruction) -> bool {
    row_of(instruction).is_some_and(|row| row.treatment == Treatment::Copy)
}

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
