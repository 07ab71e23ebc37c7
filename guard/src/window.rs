//! A window that a person names, for looking at confined code outside of a session.

use crate::ast::{AddressBase, Item, Module, Operand, Statement};
use crate::names::{HIDDEN_PARAMETERS, HIDDEN_REGISTERS, SLICE_PARAMETERS, entry_of, is_fast_version};

/// The least window: masks and base are high words.
const BYTES_MIN: u64 = 1 << 32;
/// What a flag says that lets threads go on.
const GO: i128 = 0;

/// A range of addresses that all accesses of a confined text are kept in. It is a power of two long and begins
/// with a multiple of its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    base: u64,
    bytes: u64,
}

impl Window {
    /// The window of this base and length; in words, why there is none.
    pub fn new(base: u64, bytes: u64) -> Result<Self, &'static str> {
        if bytes < BYTES_MIN || !bytes.is_power_of_two() {
            return Err("a window is a power of two long, and at least 4 GiB");
        }
        if !base.is_multiple_of(bytes) {
            return Err("a window begins with a multiple of its length");
        }
        Ok(Self { base, bytes })
    }

    /// What the hidden parameters are, in the order of [`HIDDEN_PARAMETERS`]. Loads and stores have the same
    /// mask: all of the window may be written.
    #[must_use]
    pub fn values(self) -> [u32; 3] {
        let high = |word: u64| u32::try_from(word >> 32).unwrap_or(u32::MAX);
        let mask = high(self.bytes - 1);
        [high(self.base), mask, mask]
    }

    /// A confined module with the hidden parameters filled in: entries have the names and take the parameters that they had
    /// before they were confined. Fast versions are left out: their terms are for an executor to check. The result is no
    /// longer in the confined form, so no executor loads it.
    #[must_use]
    pub fn fill_in(self, confined: &Module) -> Module {
        let mut module = confined.clone();
        module
            .items
            .retain(|item| !matches!(item, Item::Function(function) if is_fast_version(&function.name)));
        for item in &mut module.items {
            let Item::Function(function) = item else { continue };
            function.name = entry_of(&function.name).to_owned();
            let is_hidden =
                |name: &str| HIDDEN_PARAMETERS.contains(&name) || SLICE_PARAMETERS.contains(&name);
            function.parameters.retain(|parameter| !is_hidden(&parameter.name));
            for statement in function.body.iter_mut().flatten() {
                let Statement::Instruction(instruction) = statement else { continue };
                let Some(Operand::Register(name)) = instruction.operands.first() else { continue };
                // Nobody ends such an entry.
                if name == "%bh_n" && instruction.opcode == "ld" {
                    instruction.opcode = "mov".to_owned();
                    instruction.modifiers = vec!["b32".to_owned()];
                    instruction.operands = vec![Operand::Register(name.clone()), Operand::Integer(GO)];
                    continue;
                }
                // Nor is it launched in slices.
                let of_slice = matches!(instruction.operands.get(1), Some(Operand::Address(address))
                    if matches!(&address.base, AddressBase::Symbol(name) if SLICE_PARAMETERS.contains(&name.as_str())));
                if of_slice {
                    instruction.opcode = "mov".to_owned();
                    instruction.modifiers = vec!["u32".to_owned()];
                    instruction.operands = vec![Operand::Register(name.clone()), Operand::Integer(0)];
                    continue;
                }
                let hidden =
                    HIDDEN_REGISTERS.iter().zip(self.values()).find(|(register, _)| *register == name);
                let Some((_, value)) = hidden.filter(|_| instruction.opcode == "ld") else { continue };
                instruction.opcode = "mov".to_owned();
                instruction.modifiers = vec!["u32".to_owned()];
                instruction.operands =
                    vec![Operand::Register(name.clone()), Operand::Integer(i128::from(value))];
            }
        }
        module
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_to_be_aligned_and_a_power_of_two() {
        assert_eq!(Window::new(1 << 40, 1 << 39).unwrap().values(), [0x100, 0x7f, 0x7f]);
        for (base, bytes) in [(0, 1 << 31), (1 << 32, 3 << 32), (1 << 33, 1 << 34), (0, 0)] {
            assert!(Window::new(base, bytes).is_err(), "{base:#x}:{bytes:#x}");
        }
    }

    #[test]
    fn a_window_that_is_filled_in_leaves_no_hidden_parameter() {
        let text = include_str!("../filetests/confine/store.ptx");
        let confined = crate::confine(&crate::parse(text).unwrap()).unwrap();
        let filled = crate::print(&Window::new(1 << 40, 1 << 39).unwrap().fill_in(&confined));
        assert!(!filled.contains("__bh_") && !filled.contains("bh_e_"), "{filled}");
        for line in ["mov.u32 %bh_base, 256;", "mov.u32 %bh_loadmask, 127;", "mov.u32 %bh_storemask, 127;"] {
            assert!(filled.contains(line), "{line} in\n{filled}");
        }
    }
}
