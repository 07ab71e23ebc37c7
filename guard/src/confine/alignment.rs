//! How many low bits of registers are zero wherever they are read, as far as that is easily seen.
//!
//! Nothing rests on it but speed: what is masked to be as aligned as it is anyway tells the assembler so, which then
//! makes one wide access of several.

use crate::maps::HashMap;

use crate::ast::{Instruction, Operand, Statement};
use crate::table;

/// Of what is not known to be anything else, and of zero.
const ALL: u32 = 64;
/// How often the text is gone through until nothing changes any more.
const PASSES_MAX: usize = 8;

/// The low bits that are zero, by register.
#[derive(Debug, Default)]
pub(super) struct Alignment<'a>(HashMap<&'a str, u32>);

impl<'a> Alignment<'a> {
    /// Of a flat body, whose variables are aligned for the widest access at least.
    pub(super) fn find(statements: &'a [Statement]) -> Self {
        let mut zeros = Self::default();
        // What has not been gone through yet may be as aligned as anything.
        for statement in statements {
            let Statement::Instruction(instruction) = statement else { continue };
            let Some(row) = table::row_of(instruction) else { continue };
            table::written(row, instruction, &mut |name| {
                zeros.0.insert(name, ALL);
            });
        }
        for _ in 0..PASSES_MAX {
            let mut next: HashMap<&str, u32> = HashMap::default();
            for statement in statements {
                let Statement::Instruction(instruction) = statement else { continue };
                let Some(row) = table::row_of(instruction) else { continue };
                let written = zeros.of_result(instruction);
                table::written(row, instruction, &mut |name| {
                    let known = next.entry(name).or_insert(ALL);
                    *known = written.min(*known);
                });
            }
            if next == zeros.0 {
                return zeros;
            }
            zeros = Self(next);
        }
        Self::default()
    }

    /// Of a register that nothing writes, none.
    pub(super) fn of(&self, name: &str) -> u32 {
        self.0.get(name).copied().unwrap_or(0)
    }

    fn of_operand(&self, operand: Option<&Operand>) -> u32 {
        match operand {
            Some(Operand::Integer(value)) => of_number(*value),
            Some(Operand::Register(name)) => self.of(name),
            Some(Operand::Symbol(_)) => 4,
            Some(Operand::SymbolOffset(_, offset)) => of_number(i128::from(*offset)).min(4),
            _ => 0,
        }
    }

    /// Of what an instruction writes.
    fn of_result(&self, instruction: &Instruction) -> u32 {
        if !matches!(instruction.operands.first(), Some(Operand::Register(_))) {
            return 0;
        }
        let of = |index: usize| self.of_operand(instruction.operands.get(index));
        let is = |word: &str| instruction.modifiers.iter().any(|modifier| modifier == word);
        let number = |index: usize| match instruction.operands.get(index) {
            Some(Operand::Integer(value)) => u32::try_from(*value).ok(),
            _ => None,
        };
        let is_float = ["f16", "f16x2", "bf16", "bf16x2", "f32", "f64"].iter().any(|word| is(word));
        match instruction.opcode.as_str() {
            _ if is_float => 0,
            "mov" | "cvta" => of(1),
            "cvt" if !is("sat") => of(1),
            "add" | "sub" | "min" | "max" | "or" | "xor" | "selp" => of(1).min(of(2)),
            "and" => of(1).max(of(2)),
            "mul" if !is("hi") => (of(1) + of(2)).min(ALL),
            "mad" if !is("hi") => (of(1) + of(2)).min(of(3)),
            "shl" => number(2).map_or_else(|| of(1), |by| of(1).saturating_add(by).min(ALL)),
            _ => 0,
        }
    }
}

/// Of a number.
pub(super) fn of_number(value: i128) -> u32 {
    value.trailing_zeros().min(ALL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::Item;

    #[test]
    fn what_is_written_in_several_places_is_as_aligned_as_the_least() {
        let text = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n.reg .pred %p<2>; .reg .b32 %r<20>;\n\
             .shared .align 16 .b8 tile[64];\nmov.u32 %r0, tile; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 4;\n\
             add.s32 %r3, %r0, %r2; mov.u32 %r4, 0; mov.u32 %r5, 32; L: add.s32 %r4, %r4, 8; add.s32 %r5, %r5, %r2;\n\
             mad.lo.s32 %r6, %r1, 12, %r4; and.b32 %r7, %r1, -16; mul.hi.s32 %r8, %r4, 8; mul.f32 %r9, %r4, %r4;\n\
             mov.u32 %r10, tile+8; add.s32 %r11, %r3, 64; bra L;\nret;\n}\n";
        let module = crate::parse(text).unwrap();
        let Some(Item::Function(function)) = module.items.first() else { unreachable!() };
        let zeros = Alignment::find(function.body.as_deref().unwrap());
        let of: Vec<u32> = (0..12).map(|number| zeros.of(&format!("%r{number}"))).collect();
        assert_eq!(of, [4, 0, 4, 4, 3, 4, 2, 4, 0, 0, 3, 4]);
        assert_eq!(zeros.of("%r12"), 0);
    }
}
