//! How each register is held in compiled code.

use cranelift_codegen::ir::{Type, types};

use crate::alu::name::{Name, Relation};
use crate::code::{Dst, Op, Program, Src};

/// Whether an operation has no effect but on its destination, and costs little: then it is done for lanes
/// that its predicate excludes too, and its result not taken.
pub(super) fn is_cheap(op: &Op) -> bool {
    match op {
        Op::Unary { f, .. } => f.name.is_some_and(|name| !is_dear(name)),
        Op::Binary { f, .. } => f.name.is_some_and(|name| !is_dear(name)),
        Op::Ternary { f, .. } => f.name.is_some_and(|name| !is_dear(name)),
        Op::Test { f, .. } | Op::Set { f, .. } => f.name.is_some(),
        Op::Lop3 { .. } | Op::Logic { .. } | Op::Select { .. } | Op::Pack { .. } | Op::Unpack { .. } => true,
        _ => false,
    }
}

fn is_dear(name: Name) -> bool {
    use crate::alu::name::Arithmetic::{Divide, Reciprocal, Root};
    matches!(
        name,
        Name::Float { what: Divide | Reciprocal | Root, .. } | Name::Divide { .. } | Name::Remainder { .. }
    )
}

/// The widths of a function's operands that are numbers in floating point: result, operands.
fn float_bits(name: Name) -> Option<(Option<u8>, Option<u8>)> {
    match name {
        Name::Float { bits, .. } | Name::FloatNegate(bits) | Name::FloatMagnitude(bits) => {
            Some((Some(bits), Some(bits)))
        }
        Name::FromInteger { to, .. } => Some((Some(to), None)),
        Name::ToInteger { .. } => Some((None, Some(32))),
        Name::Saturate => Some((Some(32), Some(32))),
        Name::Widen => Some((Some(64), Some(32))),
        Name::Narrow => Some((Some(32), Some(64))),
        Name::Floats { bits, .. } => Some((None, Some(bits))),
        _ => None,
    }
}

/// Votes of operations on what a register holds.
#[derive(Debug, Clone, Copy, Default)]
struct Votes {
    float: u32,
    integer: u32,
}

struct Poll<'a> {
    program: &'a Program,
    votes: Vec<Votes>,
}

impl Poll<'_> {
    fn vote(&mut self, index: u32, bits: Option<u8>) {
        let register = index as usize;
        match bits {
            Some(bits) if self.program.widths[register] == bits => self.votes[register].float += 1,
            _ => self.votes[register].integer += 1,
        }
    }

    fn form(&mut self, name: Option<Name>, d: Option<Dst>, sources: &[Src]) {
        let Some(name) = name else { return };
        if matches!(name, Name::Copy | Name::SelectBySign) {
            return;
        }
        let (result, operands) = float_bits(name).unwrap_or((None, None));
        if let Some(d) = d {
            self.vote(d.0, result);
        }
        for index in sources.iter().filter_map(|src| src.register_number()) {
            self.vote(index, operands);
        }
    }
}

/// The type that each register has in compiled code.
pub(super) fn of(program: &Program) -> Vec<Type> {
    let mut poll = Poll { program, votes: vec![Votes::default(); program.widths.len()] };
    for inst in &program.code {
        match inst.op {
            Op::Unary { f, d, a } => poll.form(f.name, Some(d), &[a]),
            Op::Binary { f, d, a, b } => poll.form(f.name, Some(d), &[a, b]),
            Op::Ternary { f, d, a, b, c } => poll.form(f.name, Some(d), &[a, b, c]),
            Op::Test { f, a, b, .. } | Op::Set { f, a, b, .. } => poll.form(f.name, None, &[a, b]),
            Op::Lop3 { d, a, b, c, .. } => {
                let name = Name::Integers { relation: Relation::Equal, bits: 32, signed: false };
                poll.form(Some(name), Some(d), &[a, b, c]);
            }
            _ => {}
        }
    }
    let held = poll.votes.iter().zip(&program.widths);
    held.map(|(votes, width)| match (width, votes.float > votes.integer) {
        (32, true) => types::F32,
        (33.., true) => types::F64,
        (0..=32, _) => types::I32,
        (33.., _) => types::I64,
    })
    .collect()
}
