//! Which shared array an address was made of: accesses by it are held against that array, not against all of the block's
//! shared memory.
//!
//! An address that a register holds is the array's whose name went into it, by moves, conversions and sums with numbers;
//! what is loaded is a number. Where more than one name did, or something else was done with one, nothing is known. No
//! access is confined by this: what is wrong here is told or not told, and reaches nothing.

use crate::ast::{Address, AddressBase, Instruction, Operand, Statement};
use crate::maps::HashMap;
use crate::table;

/// How often the text is gone through; what is not known by then is not known.
const PASSES_MAX: usize = 16;

/// What a register holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Root<'a> {
    Number,
    /// An address in it, or beyond it.
    Array(&'a str),
    Unknown,
}

impl<'a> Root<'a> {
    /// One of both.
    fn join(self, other: Self) -> Self {
        if self == other { self } else { Self::Unknown }
    }

    /// The sum of both.
    fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Number, known) | (known, Self::Number) => known,
            (Self::Array(_) | Self::Unknown, Self::Array(_) | Self::Unknown) => Self::Unknown,
        }
    }
}

/// The roots of registers, and of what calls pass.
#[derive(Debug, Default)]
pub(super) struct Roots<'a>(HashMap<&'a str, Root<'a>>);

impl<'a> Roots<'a> {
    /// Of a flat body, in which these are the shared arrays.
    pub(super) fn of(statements: &'a [Statement], is_array: &dyn Fn(&str) -> bool) -> Self {
        let mut roots = Self::default();
        for _ in 0..PASSES_MAX {
            let mut changed = false;
            for statement in statements {
                if let Statement::Instruction(instruction) = statement {
                    changed |= roots.see(instruction, is_array);
                }
            }
            if !changed {
                return roots;
            }
        }
        Self::default()
    }

    /// The array that an address in a register is made of.
    pub(super) fn array(&self, register: &str) -> Option<&'a str> {
        match self.0.get(register) {
            Some(Root::Array(name)) => Some(name),
            Some(Root::Number | Root::Unknown) | None => None,
        }
    }

    /// Whether it told something new.
    fn see(&mut self, instruction: &'a Instruction, is_array: &dyn Fn(&str) -> bool) -> bool {
        let Some(row) = table::row_of(instruction) else { return false };
        let Some(value) = self.value(instruction, row.destinations, is_array) else { return false };
        let mut changed = false;
        let mut write = |name: &'a str| {
            let before = self.0.get(name).copied();
            let after = before.map_or(value, |before| before.join(value));
            changed |= before != Some(after);
            self.0.insert(name, after);
        };
        if let Some(argument) = stored_argument(instruction) {
            write(argument);
        } else {
            table::written(row, instruction, &mut write);
        }
        changed
    }

    /// What an instruction computes; none where that is of registers of which nothing was seen yet.
    fn value(
        &self,
        instruction: &'a Instruction,
        destinations: usize,
        is_array: &dyn Fn(&str) -> bool,
    ) -> Option<Root<'a>> {
        let given = |index: usize| self.operand(instruction.operands.get(index)?, is_array);
        match instruction.opcode.as_str() {
            "mov" | "cvt" | "cvta" if !matches!(instruction.operands.first(), Some(Operand::Vector(_))) => {
                given(1)
            }
            "add" | "or" => Some(given(1)?.plus(given(2)?)),
            "sub" if given(2)? == Root::Number => given(1),
            "mad" | "mad24" if given(1)? == Root::Number && given(2)? == Root::Number => given(3),
            "selp" => Some(given(1)?.join(given(2)?)),
            "st" if stored_argument(instruction).is_some() => given(1),
            "ld" => loaded_argument(instruction).map_or(Some(Root::Number), |name| self.0.get(name).copied()),
            _ => {
                let mut all = Some(Root::Number);
                for operand in instruction.operands.iter().skip(destinations) {
                    match self.operand(operand, is_array) {
                        Some(Root::Number) => {}
                        Some(Root::Array(_) | Root::Unknown) => return Some(Root::Unknown),
                        None => all = None,
                    }
                }
                all
            }
        }
    }

    fn operand(&self, operand: &'a Operand, is_array: &dyn Fn(&str) -> bool) -> Option<Root<'a>> {
        match operand {
            Operand::Register(name) | Operand::Not(name) | Operand::Selected(name, _) => {
                if crate::names::is_special(name) {
                    Some(Root::Number)
                } else {
                    self.0.get(name.as_str()).copied()
                }
            }
            Operand::Symbol(name) | Operand::SymbolOffset(name, _) if is_array(name) => {
                Some(Root::Array(name))
            }
            Operand::Vector(elements) => {
                let mut all = Root::Number;
                for element in elements {
                    if self.operand(element, is_array)? != Root::Number {
                        all = Root::Unknown;
                    }
                }
                Some(all)
            }
            // What lies at an address is a number.
            _ => Some(Root::Number),
        }
    }
}

/// The argument of a call that an instruction stores.
fn stored_argument(instruction: &Instruction) -> Option<&str> {
    argument(instruction, "st", 0)
}

/// The one that it loads.
fn loaded_argument(instruction: &Instruction) -> Option<&str> {
    argument(instruction, "ld", 1)
}

fn argument<'a>(instruction: &'a Instruction, opcode: &str, index: usize) -> Option<&'a str> {
    let passes = instruction.opcode == opcode && instruction.modifiers.iter().any(|word| word == "param");
    match instruction.operands.get(index).filter(|_| passes) {
        Some(Operand::Address(Address { base: AddressBase::Symbol(name), .. }))
            if name.starts_with(super::calls::ARGUMENT) =>
        {
            Some(name)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::Item;

    /// The array that `%d0` or `%r0` is of in a body with the arrays `a` and `b`.
    fn found(body: &str) -> Option<String> {
        let text = format!(
            ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 p)\n{{\n.reg .b32 %r<9>;\n.reg \
             .b64 %d<9>;\n.reg .pred %p<3>;\n{body}\nret;\n}}\n"
        );
        let module = crate::parse(&text).unwrap();
        let Some(Item::Function(function)) = module.items.first() else { panic!("{text}") };
        let roots = Roots::of(function.body.as_deref().unwrap(), &|name| matches!(name, "a" | "b"));
        roots.array("%r0").or(roots.array("%d0")).map(str::to_owned)
    }

    #[test]
    fn an_address_is_the_arrays_whose_name_went_into_it() {
        for (body, array) in [
            ("mov.u32 %r0, a;", Some("a")),
            ("mov.u32 %r1, %tid.x;\nmov.u32 %r2, b;\nmad.lo.s32 %r0, %r1, 4, %r2;", Some("b")),
            ("ld.shared.u32 %r1, [a];\nmov.u32 %r2, b;\nadd.s32 %r0, %r1, %r2;", Some("b")),
            ("mov.u32 %r0, a;\nadd.s32 %r0, %r0, 4;", Some("a")),
            ("mov.u32 %r1, a;\ncvt.u64.u32 %d1, %r1;\ncvta.shared.u64 %d0, %d1;", Some("a")),
            ("mov.u32 %r1, a;\nmov.u32 %r2, b;\nselp.b32 %r0, %r1, %r2, %p1;", None),
            ("mov.u32 %r1, a;\nmov.u32 %r2, b;\nsub.s32 %r3, %r2, %r1;\nadd.s32 %r0, %r1, %r3;", None),
            ("mov.u32 %r0, a;\nmov.u32 %r0, b;", None),
            ("mov.u32 %r1, a;\nshl.b32 %r0, %r1, 1;", None),
            ("mov.u32 %r0, 5;", None),
            ("mov.u32 %r1, a;\nmov.b64 {%r0, %r2}, %d3;", None),
        ] {
            assert_eq!(found(body).as_deref(), array, "{body}");
        }
    }
}
