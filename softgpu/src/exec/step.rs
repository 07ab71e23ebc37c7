//! The interpreter's loop.

use super::collective::Arrival;
use super::frame::Frame;
use super::mask::first;
use super::native::Stands;
use super::warp::{State, Warp};
use crate::alu::{LANES, Lanes};
use crate::code::{Collective, Inst, Op, Src};
use crate::compiled::Compiled;
use crate::fault::{Fault, Faulted};

/// Backward branches that a warp may take before the next warp of its block runs.
pub(super) const FUEL: u32 = 1 << 12;

/// Why a warp stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It did something.
    Ran,
    /// No lane of it could run.
    Stuck,
}

/// An instruction that a group has come to.
#[derive(Debug, Clone, Copy)]
struct Issue {
    /// Where it is.
    pc: u32,
    /// The lanes of the group.
    mask: u32,
    /// Those of them that do it, as its guard says.
    active: u32,
}

/// What a group does after an instruction that is not plain arithmetic.
pub(crate) enum Next {
    /// The group was set aside; another may run.
    Switch,
    /// The group was set aside; another warp may run.
    Leave,
}

impl Warp {
    /// Runs groups until none is ready or the fuel is spent; tells the frame's watch of all they do if it is `WATCHED`.
    pub(crate) fn run<const WATCHED: bool>(
        &mut self,
        frame: &mut Frame<'_>,
        compiled: &Compiled,
    ) -> Result<Outcome, Faulted> {
        let mut fuel = FUEL;
        let mut outcome = Outcome::Stuck;
        while let Some((pc, mask)) = self.pick() {
            outcome = Outcome::Ran;
            if matches!(self.run_group::<WATCHED>(frame, compiled, pc, mask, &mut fuel)?, Next::Leave) {
                break;
            }
        }
        Ok(outcome)
    }

    pub(super) fn run_group<const WATCHED: bool>(
        &mut self,
        frame: &mut Frame<'_>,
        compiled: &Compiled,
        mut pc: u32,
        mut mask: u32,
        fuel: &mut u32,
    ) -> Result<Next, Faulted> {
        let program = frame.program;
        // Compiled code tells nobody what it does.
        let code = if WATCHED { None } else { compiled.code() };
        loop {
            if pc >= self.horizon {
                self.park(pc, mask, State::Ready);
                return Ok(Next::Switch);
            }
            if let Some((code, way)) = code.and_then(|code| Some((code, code.way_in(pc)?))) {
                match self.run_compiled(frame, code, way, mask, fuel)? {
                    Stands::Together(next, lanes) => (pc, mask) = (next, lanes),
                    Stands::Apart => return Ok(Next::Switch),
                    Stands::Spent => return Ok(Next::Leave),
                }
                continue;
            }
            let Inst { guard, op } = &program.code[pc as usize];
            let active = match guard {
                None => mask,
                Some(guard) => mask & guard.lanes(&self.predicates),
            };
            // What lanes do together is told when they do it.
            if WATCHED
                && (active == 0 || !matches!(op, Op::Collective { .. } | Op::Matrix { .. }))
                && self.tell(frame, pc, mask, active)
            {
                return Ok(self.end(frame, mask));
            }
            let issue = Issue { pc, mask, active };
            match *op {
                Op::Branch { .. } if active == 0 => {}
                Op::Branch { target } => match self.branch(issue, target, fuel) {
                    Some(next) => return Ok(next),
                    None => {
                        pc = target;
                        continue;
                    }
                },
                Op::Exit => {
                    mask &= !active;
                    self.leave::<WATCHED>(frame, active);
                    if mask == 0 {
                        return Ok(Next::Switch);
                    }
                }
                _ if active == 0 => {}
                Op::Switch { table, a } => {
                    let table = &program.tables[table as usize];
                    return self.switch(frame, issue, table, a, fuel);
                }
                Op::Barrier { mode, id, count, a } => {
                    let arrival = Arrival { mode, id, count, a };
                    if let Some(next) = self.barrier::<WATCHED>(frame, issue, arrival)? {
                        return Ok(next);
                    }
                }
                Op::WarpBarrier { members } => {
                    self.wait_for_warp::<WATCHED>(frame, issue, members);
                    return Ok(Next::Switch);
                }
                Op::Collective { members, what } => {
                    mask = self.come_together::<WATCHED>(frame, issue, members, &what);
                    if mask == 0 {
                        return Ok(Next::Switch);
                    }
                }
                Op::Matrix { index } => {
                    mask = self.multiply::<WATCHED>(frame, issue, index)?;
                    if mask == 0 {
                        return Ok(Next::Switch);
                    }
                }
                // Who is here is asked by whoever means to wait for them.
                Op::ActiveMask { .. } if self.puts_off() => {
                    self.park(pc, mask, State::Ready);
                    return Ok(Next::Switch);
                }
                Op::Yield => {
                    self.park(pc + 1, mask, State::Ready);
                    self.yield_turn();
                    return Ok(Next::Leave);
                }
                Op::Trap => return Err(Faulted { fault: Fault::trap(), pc, lane: first(active) }),
                ref plain => self.plain(frame, plain, active).map_err(Faulted::at(pc))?,
            }
            pc += 1;
        }
    }

    /// Lanes end.
    #[inline(always)]
    fn leave<const WATCHED: bool>(&mut self, frame: &mut Frame<'_>, active: u32) {
        let released = self.exit(active);
        if WATCHED && released != 0 {
            self.tell_of_meeting(frame, released);
        }
    }

    /// Goes to a branch's target, unless the group is set aside for it.
    #[inline(always)]
    fn branch(&mut self, issue: Issue, target: u32, fuel: &mut u32) -> Option<Next> {
        let Issue { pc, mask, active } = issue;
        if active != mask {
            self.park(target, active, State::Ready);
            self.park(pc + 1, mask & !active, State::Ready);
            return Some(Next::Switch);
        }
        if target <= pc {
            *fuel -= 1;
            if *fuel == 0 {
                self.park(target, mask, State::Ready);
                return Some(Next::Leave);
            }
            if self.loses_patience() {
                self.park(target, mask, State::Ready);
                return Some(Next::Switch);
            }
        }
        None
    }

    /// Goes where an index says, each lane by its own: the group is set aside.
    #[inline]
    fn switch(
        &mut self,
        frame: &Frame<'_>,
        issue: Issue,
        table: &[u32],
        a: Src,
        fuel: &mut u32,
    ) -> Result<Next, Faulted> {
        let Issue { pc, mask, active } = issue;
        let index = *a.of(&self.registers, &frame.program.constants);
        self.branch_indexed(table, &index, active).map_err(Faulted::at(pc))?;
        self.park(pc + 1, mask & !active, State::Ready);
        // An indexed branch may go backwards, so it costs fuel wherever it goes.
        *fuel -= 1;
        self.loses_patience();
        Ok(if *fuel == 0 { Next::Leave } else { Next::Switch })
    }

    /// Comes to a barrier of the block; goes on where it does not wait for others there.
    fn barrier<const WATCHED: bool>(
        &mut self,
        frame: &mut Frame<'_>,
        issue: Issue,
        arrival: Arrival,
    ) -> Result<Option<Next>, Faulted> {
        let Issue { pc, mask, active } = issue;
        if WATCHED {
            self.tell_of_arrival(frame, pc, active, arrival.id);
        }
        let full = self.arrive(frame, active, arrival).map_err(|fault| Faulted {
            fault,
            pc,
            lane: first(active),
        })?;
        if let (Some(id), false) = (full.waits_at, full.completes) {
            self.park(pc + 1, active, State::Barrier(id));
            self.park(pc + 1, mask & !active, State::Ready);
            return Ok(Some(Next::Switch));
        }
        if full.completes {
            // The block opens the barrier before any lane of this warp can arrive again.
            let state = full.waits_at.map_or(State::Ready, State::Barrier);
            self.park(pc + 1, active, state);
            self.park(pc + 1, mask & !active, State::Ready);
            return Ok(Some(Next::Leave));
        }
        Ok(None)
    }

    /// Comes to a barrier of the warp, where the group is set aside.
    fn wait_for_warp<const WATCHED: bool>(&mut self, frame: &mut Frame<'_>, issue: Issue, members: Src) {
        let Issue { pc, mask, active } = issue;
        let members = *members.of(&self.registers, &frame.program.constants);
        if WATCHED {
            self.tell_of_coming(frame, pc, active, &members);
        }
        self.park(pc + 1, mask & !active, State::Ready);
        let released = self.warp_barrier(pc + 1, active, &members);
        if WATCHED && released != 0 {
            self.tell_of_meeting(frame, released);
        }
    }

    /// Does something together with other lanes where all have come; who goes on.
    fn come_together<const WATCHED: bool>(
        &mut self,
        frame: &mut Frame<'_>,
        issue: Issue,
        members: Src,
        what: &Collective,
    ) -> u32 {
        let Issue { pc, mask, active } = issue;
        let program = frame.program;
        let members = *members.of(&self.registers, &program.constants);
        if WATCHED {
            self.tell_of_coming(frame, pc, active, &members);
        }
        let apart = active != self.live;
        let alone = matches!(what, Collective::Ballot { .. } | Collective::MatchAny { .. });
        let (together, met) = if alone && apart {
            self.apart(program, pc, active)
        } else {
            let together = self.gather(pc, active, &members);
            (together, together)
        };
        if WATCHED
            && (together | (mask & !active)) != 0
            && self.tell(frame, pc, (mask & !active) | together, together)
        {
            self.end(frame, mask | together);
            return 0;
        }
        if WATCHED && met != 0 {
            self.tell_of_meeting(frame, met);
        }
        if !(apart && alone) {
            self.collective(&program.constants, what, &members, together);
        }
        self.park(pc, active & !together, State::Collective);
        let waited = if self.stays_apart { together & !active } else { 0 };
        self.park(pc + 1, waited, State::Ready);
        (mask & !active) | (together & !waited)
    }

    /// Multiplies matrices where the whole warp has come; who goes on.
    fn multiply<const WATCHED: bool>(
        &mut self,
        frame: &mut Frame<'_>,
        issue: Issue,
        index: u32,
    ) -> Result<u32, Faulted> {
        let Issue { pc, mask, active } = issue;
        let together = self.gather(pc, active, &[u64::from(u32::MAX); LANES]);
        self.park(pc, active & !together, State::Collective);
        let mask = (mask & !active) | together;
        if mask == 0 {
            return Ok(0);
        }
        if WATCHED && self.tell(frame, pc, mask, together) {
            self.end(frame, mask);
            return Ok(0);
        }
        if together != 0 {
            self.matrix(frame, &frame.program.matrices[index as usize], together).map_err(Faulted::at(pc))?;
        }
        Ok(mask)
    }

    /// Lanes end that a watch has end.
    #[cold]
    fn end(&mut self, frame: &mut Frame<'_>, mask: u32) -> Next {
        let released = self.exit(mask);
        if released != 0 {
            self.tell_of_meeting(frame, released);
        }
        Next::Switch
    }

    fn branch_indexed(&mut self, table: &[u32], index: &Lanes, active: u32) -> Result<(), (Fault, usize)> {
        let mut left = active;
        while left != 0 {
            let lane = first(left);
            let target = usize::try_from(index[lane] & 0xffff_ffff).ok().and_then(|index| table.get(index));
            let Some(target) = target else {
                return Err((Fault::illegal("indexed branch beyond its table"), lane));
            };
            let same = (0..LANES)
                .filter(|lane| left >> lane & 1 == 1 && index[*lane] == index[first(left)])
                .fold(0, |mask, lane| mask | 1 << lane);
            self.park(*target, same, State::Ready);
            left &= !same;
        }
        Ok(())
    }
}
