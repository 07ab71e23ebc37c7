//! What the guard puts before waits for lanes, so that a sanitizer can tell of those who do not come.
//!
//! Lanes of a group go around a loop until all that are left of it have come. A meeting there is for nobody in particular;
//! whom the group names, a match among those that came tells, directly before the wait.

use bulkhead_ptx::ast::{Instruction, Operand, Type};

use super::entry::Builder;
use super::refusal::Refusal;
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
            "match" if is(0, bulkhead_verifier::LANES) && is(2, bulkhead_verifier::LANES) => {
                let mask =
                    instruction.operands.get(1).ok_or_else(|| Refusal::new("an operand is missing"))?;
                let mask = self.src(mask, Type::B32)?;
                let pc = self.here();
                self.asks_anew(pc.saturating_sub(2), Ask::Group);
                self.asked.push((pc, Ask::Mask(mask)));
            }
            "vote" if is(0, LEFT) || is(0, LEFT_OF_WHOLE) => {
                let pc = self.here();
                self.asked.push((pc, Ask::Left));
            }
            // The guard votes among all behind a match only where lanes of a group find each other.
            "vote" if meets() && self.asks_anew(self.here().saturating_sub(1), Ask::Group) => {
                let pc = self.here();
                self.asked.push((pc, Ask::Left));
            }
            // And then find out who is here.
            "match" if is(2, bulkhead_verifier::LANES) => {
                let pc = self.here();
                if matches!(self.asked.last(), Some((at, Ask::Left)) if at + 1 == pc) {
                    self.asked.push((pc, Ask::Left));
                }
            }
            // Nobody is waited for where a loop polls.
            "or" if is(0, LEFT_OF_WHOLE) => {
                let pc = self.here().saturating_sub(2);
                if let Some((_, ask @ Ask::Group)) = self.asked.iter_mut().rev().find(|(at, _)| *at == pc) {
                    *ask = Ask::Poll;
                }
            }
            // The match and the vote before were for a barrier of the block.
            "setp" if ne() && is(2, bulkhead_verifier::LANES) => {
                self.asks_anew(self.here().saturating_sub(2), Ask::Block);
            }
            _ => {}
        }
        Ok(())
    }

    /// Lanes that meet at a place do so for something else. Answers whether they meet there.
    fn asks_anew(&mut self, pc: u32, other: Ask) -> bool {
        let found = self.asked.iter_mut().rev().find(|(at, _)| *at == pc);
        if let Some((_, ask @ Ask::Lanes)) = found {
            *ask = other;
            true
        } else {
            false
        }
    }

    /// Where the next operation stands.
    fn here(&self) -> u32 {
        u32::try_from(self.code.len()).unwrap_or(u32::MAX)
    }
}
