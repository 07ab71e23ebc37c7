//! What the guard puts before waits for lanes, so that a sanitizer can tell of those who do not come.

use bulkhead_ptx::ast::{Instruction, Operand, Type};

use super::Refusal;
use super::entry::Builder;
use crate::code::Ask;

/// The guard's registers in which a vote tells who is left.
const LEFT: &str = "%bh_lo";
const LEFT_OF_WHOLE: &str = "%bh_hi";

impl Builder<'_> {
    /// Remembers what an instruction asks, which is decoded next.
    pub(crate) fn asks(&mut self, instruction: &Instruction) -> Result<(), Refusal> {
        let is = |index: usize, name: &str| matches!(instruction.operands.get(index), Some(Operand::Register(found)) if found == name);
        let ne = || instruction.modifiers.first().is_some_and(|first| first == "ne");
        let meets = || matches!(instruction.operands.get(2), Some(Operand::Integer(-1)));
        match instruction.opcode.as_str() {
            "match" if is(0, bulkhead_verifier::LANES) && meets() => {
                let pc = self.here();
                self.asked.push((pc, Ask::Lanes));
            }
            "vote" if is(0, LEFT) || is(0, LEFT_OF_WHOLE) => {
                let pc = self.here();
                self.asked.push((pc, Ask::Left));
            }
            "setp" if ne() && is(1, bulkhead_verifier::LANES) => {
                let mask =
                    instruction.operands.get(2).ok_or_else(|| Refusal::new("an operand is missing"))?;
                let mask = self.src(mask, Type::B32)?;
                let pc = self.here();
                self.asked.push((pc, Ask::Mask(mask)));
            }
            // The match and the vote before were for a barrier of the block.
            "setp" if ne() && is(2, bulkhead_verifier::LANES) => {
                let pc = self.here().saturating_sub(2);
                if let Some((_, ask)) = self.asked.iter_mut().rev().find(|(at, _)| *at == pc) {
                    *ask = Ask::Block;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Where the next operation stands.
    fn here(&self) -> u32 {
        u32::try_from(self.code.len()).unwrap_or(u32::MAX)
    }
}
