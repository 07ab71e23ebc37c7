//! Groups in compiled code.

use super::frame::Frame;
use super::warp::{State, Warp};
use crate::compiled::{Code, Fuel, Leaving, Pass};
use crate::fault::Faulted;

/// Backward branches that a lane takes before the next lane of its group runs: lanes of a warp mostly want the
/// same or neighbouring memory, turn by turn.
pub(super) const AT_ONCE: u32 = 32;

/// Where a group stands after compiled code.
pub(super) enum Stands {
    /// All of it before one instruction.
    Together(u32, u32),
    /// Its lanes have been set aside, or have exited.
    Apart,
    /// The same, and the warp has run for long enough.
    Spent,
}

impl Warp {
    /// Runs the lanes of a group from a way in on, until they meet others, have exited, or others should have
    /// their turn.
    pub(super) fn run_compiled(
        &mut self,
        frame: &mut Frame<'_>,
        code: &Code,
        way: u32,
        mask: u32,
        fuel: &mut u32,
    ) -> Result<Stands, Faulted> {
        let alone = self.groups.is_empty();
        let limit = if alone { *fuel } else { self.allowance(*fuel) };
        let mut first = None;
        let mut apart = false;
        let pass = Pass { way, mask, fuel: Fuel { gang: limit, alone: AT_ONCE } };
        let used = code.pass(self, frame, pass, |warp, place, lanes| match place {
            Leaving::Exited => {
                apart = true;
                // Nobody watches compiled code.
                warp.exit(lanes);
            }
            Leaving::Before(pc) => match first {
                None => first = Some((pc, lanes)),
                Some(_) => {
                    apart = true;
                    warp.park(pc, lanes, State::Ready);
                }
            },
        })?;
        // A loop around a meeting costs fuel too, although no way back is inside of compiled code.
        *fuel = fuel.saturating_sub(used.max(1));
        let tired = used == limit || (!alone && self.spend(used));
        let spent = *fuel == 0;
        match first {
            Some((pc, lanes)) if !apart && !tired && !spent => return Ok(Stands::Together(pc, lanes)),
            Some((pc, lanes)) => self.park(pc, lanes, State::Ready),
            None => {}
        }
        if tired {
            self.yield_turn();
        }
        Ok(if spent { Stands::Spent } else { Stands::Apart })
    }
}
