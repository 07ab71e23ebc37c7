//! What the guard puts before waits for lanes, so that a sanitizer can tell of those who do not come.

use bulkhead_guard::ast::{Instruction, Operand, Type};

use super::Refusal;
use super::entry::Builder;
use crate::code::{Ask, Collective, Op};

impl Builder<'_> {
    /// Remembers what an instruction asks, which is decoded next.
    pub(crate) fn asks(&mut self, instruction: &Instruction) -> Result<(), Refusal> {
        let is = |index: usize, name: &str| matches!(instruction.operands.get(index), Some(Operand::Register(found)) if found == name);
        let ne = || instruction.modifiers.first().is_some_and(|first| first == "ne");
        match instruction.opcode.as_str() {
            "activemask" if is(0, bulkhead_guard::LANES) => self.met(1, Ask::Lanes),
            "setp" if ne() && is(1, bulkhead_guard::LANES) => {
                let mask =
                    instruction.operands.get(2).ok_or_else(|| Refusal::new("an operand is missing"))?;
                let mask = self.src(mask, Type::B32)?;
                let pc = self.here();
                self.asked.push((pc, Ask::Mask(mask)));
            }
            "setp" if ne() && is(2, bulkhead_guard::LANES) => self.met(2, Ask::Block),
            _ => {}
        }
        Ok(())
    }

    /// Lanes have met so many operations before.
    fn met(&mut self, before: u32, ask: Ask) {
        let Some(pc) = self.here().checked_sub(before) else { return };
        let meets = matches!(
            self.code.get(pc as usize).map(|inst| &inst.op),
            Some(Op::WarpBarrier { .. } | Op::Collective { what: Collective::Ballot { .. }, .. })
        );
        if meets {
            self.asked.push((pc, ask));
        }
    }

    /// Where the next operation stands.
    fn here(&self) -> u32 {
        u32::try_from(self.code.len()).unwrap_or(u32::MAX)
    }
}
