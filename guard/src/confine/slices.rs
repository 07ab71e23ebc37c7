//! Entries that may be launched in slices: what they read of the grid is that of all slices.

use super::lines::{instruction, register};
use crate::ast::{Address, AddressBase, Instruction, Operand, Span, Statement};
use crate::names::{SLICE_PARAMETERS, SLICE_REGISTERS, is_of_grid};
use crate::table;

/// What an entry reads of its grid that is added to, in the order of [`SLICE_REGISTERS`].
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Slices([bool; SLICE_REGISTERS.len()]);

impl Slices {
    /// Of a flat body; nothing where it reads what no sum can stand for, so that nobody cuts its grid.
    pub(super) fn of(statements: &[Statement]) -> Self {
        let mut read = [false; SLICE_REGISTERS.len()];
        for statement in statements {
            let Statement::Instruction(instruction) = statement else { continue };
            let words =
                instruction.modifiers.last().is_some_and(|ty| matches!(ty.as_str(), "b32" | "u32" | "s32"));
            for name in reads(instruction).into_iter().filter(|name| is_of_grid(name)) {
                match SLICE_REGISTERS.iter().position(|(_, special)| *special == name).filter(|_| words) {
                    Some(index) => read[index] = true,
                    None => return Self::default(),
                }
            }
        }
        Self(read)
    }

    /// Whether anything is read.
    pub(super) fn any(self) -> bool {
        self.0.contains(&true)
    }

    /// An instruction that reads the sums.
    pub(super) fn replace(self, mut instruction: Instruction) -> Instruction {
        let replace = |operand: &mut Operand| {
            let Operand::Register(name) = operand else { return };
            let read =
                SLICE_REGISTERS.iter().zip(self.0).find(|((_, special), read)| *read && special == name);
            if let Some(((register, _), _)) = read {
                *name = (*register).to_owned();
            }
        };
        for operand in &mut instruction.operands {
            match operand {
                Operand::Vector(elements) => elements.iter_mut().for_each(replace),
                operand => replace(operand),
            }
        }
        instruction
    }

    /// The part of the prologue that computes them.
    pub(super) fn prologue(self, span: Span) -> impl Iterator<Item = Statement> {
        let sums = SLICE_REGISTERS.iter().zip(SLICE_PARAMETERS).zip(self.0).filter(|(_, read)| *read);
        sums.flat_map(move |((&(sum, special), parameter), _)| {
            let base = AddressBase::Symbol(parameter.to_owned());
            let given = Operand::Address(Address { base, offset: 0 });
            [
                instruction("ld", &["param", "u32"], vec![register("%bh_lo"), given], span),
                instruction("mov", &["u32"], vec![register(sum), register(special)], span),
                instruction("add", &["s32"], vec![register(sum), register(sum), register("%bh_lo")], span),
            ]
        })
    }
}

fn reads(instruction: &Instruction) -> Vec<&str> {
    let mut reads = Vec::new();
    if let Some(row) = table::row_of(instruction) {
        table::registers(row, instruction, &mut |name| reads.push(name), &mut |_| {});
    }
    reads
}
