//! The interpreter's loop.

use super::access::address_of;
use super::collective::Arrival;
use super::lanes;
use super::native::Stands;
use super::schedule::Steps;
use super::warp::{Frame, State, Warp};
use crate::alu::{LANES, Lanes, bits, carry, logic};
use crate::code::{
    CONSTANT_WINDOW, Collective, Inst, LOCAL_WINDOW, Op, PARAMETER_WINDOW, Pred, Region, SHARED_WINDOW,
    Special, Src, WINDOW_BYTES,
};
use crate::fault::Fault;
use crate::memory::tlb::PAGE_SHIFT;

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

/// A fault, the instruction, and a lane it happened in.
pub(crate) type Faulted = (Fault, u32, usize);

/// What a group does after an instruction that is not plain arithmetic.
pub(crate) enum Next {
    /// The group was set aside; another may run.
    Switch,
    /// The group was set aside; another warp may run.
    Leave,
}

impl Warp {
    /// Runs groups until none is ready or the fuel is spent; tells the frame's watch of all they do if it is `WATCHED`.
    pub(crate) fn run<const WATCHED: bool>(&mut self, frame: &mut Frame<'_>) -> Result<Outcome, Faulted> {
        let mut fuel = FUEL;
        let mut outcome = Outcome::Stuck;
        while let Some((pc, mask)) = self.pick() {
            outcome = Outcome::Ran;
            if matches!(self.run_group::<WATCHED>(frame, pc, mask, &mut fuel)?, Next::Leave) {
                break;
            }
        }
        Ok(outcome)
    }

    pub(super) fn run_group<const WATCHED: bool>(
        &mut self,
        frame: &mut Frame<'_>,
        mut pc: u32,
        mut mask: u32,
        fuel: &mut u32,
    ) -> Result<Next, Faulted> {
        let program = frame.program;
        // Compiled code tells nobody what it does.
        let code = if WATCHED { None } else { program.compiled.code() };
        loop {
            if pc >= self.horizon {
                self.park(pc, mask, State::Ready);
                return Ok(Next::Switch);
            }
            if let Some((code, way)) = code.and_then(|code| Some((code, code.way_in(pc)?))) {
                match self.run_compiled(frame, code, (way, mask), fuel)? {
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
            match *op {
                Op::Branch { .. } if active == 0 => {}
                Op::Branch { target } => match self.branch(pc, target, (mask, active), fuel) {
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
                    let index = *a.of(&self.registers, &program.constants);
                    let table = &program.tables[table as usize];
                    self.branch_indexed(table, &index, active).map_err(|(fault, lane)| (fault, pc, lane))?;
                    self.park(pc + 1, mask & !active, State::Ready);
                    // An indexed branch may go backwards, so it costs fuel wherever it goes.
                    *fuel -= 1;
                    self.loses_patience();
                    return Ok(if *fuel == 0 { Next::Leave } else { Next::Switch });
                }
                Op::Barrier { mode, id, count, a } => {
                    let arrival = Arrival { mode, id, count, a };
                    if let Some(next) = self.barrier::<WATCHED>(frame, pc, (mask, active), arrival)? {
                        return Ok(next);
                    }
                }
                Op::WarpBarrier { members } => {
                    self.wait_for_warp::<WATCHED>(frame, pc, (mask, active), members);
                    return Ok(Next::Switch);
                }
                Op::Collective { members, what } => {
                    mask = self.come_together::<WATCHED>(frame, pc, (mask, active), members, &what);
                    if mask == 0 {
                        return Ok(Next::Switch);
                    }
                }
                Op::Matrix { index } => {
                    mask = self.multiply::<WATCHED>(frame, pc, (mask, active), index)?;
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
                Op::Trap => return Err((Fault::trap(), pc, first(active))),
                ref plain => self.plain(frame, plain, active).map_err(|(fault, lane)| (fault, pc, lane))?,
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
    fn branch(&mut self, pc: u32, target: u32, (mask, active): (u32, u32), fuel: &mut u32) -> Option<Next> {
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

    /// Comes to a barrier of the block; goes on where it does not wait for others there.
    fn barrier<const WATCHED: bool>(
        &mut self,
        frame: &mut Frame<'_>,
        pc: u32,
        (mask, active): (u32, u32),
        arrival: Arrival,
    ) -> Result<Option<Next>, Faulted> {
        if WATCHED {
            self.tell_of_arrival(frame, pc, active, arrival.id);
        }
        let full = self.arrive(frame, active, arrival).map_err(|fault| (fault, pc, first(active)))?;
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
    fn wait_for_warp<const WATCHED: bool>(
        &mut self,
        frame: &mut Frame<'_>,
        pc: u32,
        (mask, active): (u32, u32),
        members: Src,
    ) {
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
        pc: u32,
        (mask, active): (u32, u32),
        members: Src,
        what: &Collective,
    ) -> u32 {
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
        pc: u32,
        (mask, active): (u32, u32),
        index: u32,
    ) -> Result<u32, Faulted> {
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
            self.matrix(frame, &frame.program.matrices[index as usize], together)
                .map_err(|(fault, lane)| (fault, pc, lane))?;
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

    /// A plain instruction for some lanes, for compiled code that does not do it itself.
    pub(crate) fn single(&mut self, frame: &mut Frame<'_>, pc: u32, mask: u32) -> Result<(), (Fault, usize)> {
        let program = frame.program;
        let op = &program.code[pc as usize].op;
        let mut reached = [0; LANES];
        let learns = match op {
            Op::Load { shape, at, .. } | Op::Store { shape, at, .. } => match shape.region {
                Region::Global | Region::Generic => {
                    for lane in lanes(mask) {
                        reached[lane] = address_of(*at, lane, &self.registers, &program.constants);
                    }
                    true
                }
                Region::Shared | Region::Local | Region::Constant | Region::Parameter => false,
            },
            _ => false,
        };
        self.plain(frame, op, mask)?;
        let mut known = None;
        for lane in lanes(if learns { mask } else { 0 }) {
            let page = reached[lane] >> PAGE_SHIFT;
            if known != Some(page) && region_of(reached[lane]) == Region::Global {
                frame.core.learn(reached[lane]);
                known = Some(page);
            }
        }
        Ok(())
    }

    /// A special register that is the same for all lanes.
    pub(crate) fn uniform(&self, frame: &Frame<'_>, what: Special) -> Option<u64> {
        let grid = frame.grid;
        Some(match what {
            Special::Threads(axis) => grid.threads[axis].into(),
            Special::Block(axis) => frame.block[axis].into(),
            Special::Blocks(axis) => grid.blocks[axis].into(),
            Special::Warp => self.number.into(),
            Special::Warps => frame.warps.into(),
            Special::Multiprocessor => frame.core.number.into(),
            Special::Multiprocessors => grid.multiprocessors.into(),
            Special::Grid => grid.number,
            Special::DynamicShared => grid.dynamic_shared.into(),
            Special::TotalShared => grid.shared_bytes().into(),
            Special::Fixed(value) => value.into(),
            Special::Time { bits, high } => {
                let elapsed = || u64::try_from(grid.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX);
                let now = frame.core.steps.map_or_else(elapsed, Steps::ns);
                let part = if high { now >> 32 } else { now };
                part & (u64::MAX >> (64 - bits))
            }
            Special::Thread(_)
            | Special::Lane
            | Special::LaneEqual
            | Special::LanesBelow
            | Special::LanesUpTo
            | Special::LanesAbove
            | Special::LanesFrom => return None,
        })
    }

    /// An instruction that only reads and writes registers and memory.
    #[inline(always)]
    fn plain(&mut self, frame: &mut Frame<'_>, op: &Op, active: u32) -> Result<(), (Fault, usize)> {
        let constants: &[Lanes] = &frame.program.constants;
        let mut out = [0; LANES];
        match *op {
            Op::Unary { f, d, a } => {
                (f.lanes)(a.of(&self.registers, constants), &mut out);
                self.write(d, &out, active);
            }
            Op::Binary { f, d, a, b } => {
                let registers = &self.registers;
                (f.lanes)(a.of(registers, constants), b.of(registers, constants), &mut out);
                self.write(d, &out, active);
            }
            Op::Ternary { f, d, a, b, c } => {
                let registers = &self.registers;
                let (a, b, c) =
                    (a.of(registers, constants), b.of(registers, constants), c.of(registers, constants));
                (f.lanes)(a, b, c, &mut out);
                self.write(d, &out, active);
            }
            Op::Lop3 { table, d, a, b, c } => {
                let registers = &self.registers;
                let (a, b, c) =
                    (a.of(registers, constants), b.of(registers, constants), c.of(registers, constants));
                logic::lop3(table, a, b, c, &mut out);
                self.write(d, &out, active);
            }
            Op::Insert { wide, d, a, b, position, length } => {
                let [a, b, position, length] =
                    [a, b, position, length].map(|operand| operand.of(&self.registers, constants));
                bits::insert(wide, a, b, position, length, &mut out);
                self.write(d, &out, active);
            }
            Op::Convert { conversion, d, a } => {
                frame.program.conversions[conversion as usize]
                    .lanes(a.of(&self.registers, constants), &mut out);
                self.write(d, &out, active);
            }
            Op::Carry { kind, wide, takes, gives, d, operands } => {
                let operands = operands.map(|operand| operand.of(&self.registers, constants));
                let flags = takes.then(|| self.predicates[Pred::CARRY.0 as usize]);
                let flags = carry::compute(kind, wide, operands, flags, &mut out);
                self.write(d, &out, active);
                if gives {
                    self.write_predicate(Pred::CARRY, flags, active);
                }
            }
            Op::Video { video, d, operands } => {
                let operands = operands.map(|operand| operand.of(&self.registers, constants));
                frame.program.videos[video as usize].lanes(operands, &mut out);
                self.write(d, &out, active);
            }
            Op::Test { .. }
            | Op::Set { .. }
            | Op::Property { .. }
            | Op::InRegion { .. }
            | Op::Logic { .. }
            | Op::Select { .. } => self.with_predicates(constants, op, active),
            Op::Special { what, d } => {
                let value = self.special(frame, what);
                self.write(d, &value, active);
            }
            Op::Pack { .. } | Op::Unpack { .. } => self.vector(constants, op, active),
            Op::Load { shape, at, d } => self.load(frame, active, shape, at, d)?,
            Op::Store { shape, at, a } => self.store(frame, active, shape, at, a)?,
            Op::Atomic { op, region, size, d, at, a, b } => {
                self.atomic(frame, active, (op, region, size), (d, at, a, b))?;
            }
            Op::Copy { bytes, to, from, valid } => self.copy(frame, active, bytes, (to, from), valid)?,
            Op::Fence => std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst),
            Op::ActiveMask { d } => self.write(d, &[u64::from(active); LANES], active),
            Op::Nop => {}
            // These change where lanes stand; `run_group` has taken them.
            Op::Branch { .. }
            | Op::Switch { .. }
            | Op::Exit
            | Op::Trap
            | Op::Yield
            | Op::Barrier { .. }
            | Op::WarpBarrier { .. }
            | Op::Matrix { .. }
            | Op::Collective { .. } => {}
        }
        Ok(())
    }

    /// Registers that are made one, or one that is made several.
    #[inline(always)]
    fn vector(&mut self, constants: &[Lanes], op: &Op, active: u32) {
        let mut out = [0; LANES];
        match *op {
            Op::Pack { bits, count, d, parts } => {
                for (index, part) in parts.iter().take(usize::from(count)).enumerate() {
                    let part = part.of(&self.registers, constants);
                    for i in 0..LANES {
                        out[i] |= part[i] << (usize::from(bits) * index);
                    }
                }
                self.write(d, &out, active);
            }
            Op::Unpack { bits, count, d, a } => {
                let whole = *a.of(&self.registers, constants);
                let mask = u64::MAX >> (64 - u32::from(bits));
                for (index, d) in d.into_iter().take(usize::from(count)).enumerate() {
                    for i in 0..LANES {
                        out[i] = whole[i] >> (usize::from(bits) * index) & mask;
                    }
                    self.write(d, &out, active);
                }
            }
            ref other => unreachable!("{other:?} is of one register"),
        }
    }

    /// One that reads or writes predicates.
    #[inline(always)]
    fn with_predicates(&mut self, constants: &[Lanes], op: &Op, active: u32) {
        let mut out = [0; LANES];
        match *op {
            Op::Test { f, p, q, a, b, combine, c } => {
                let registers = &self.registers;
                let holds = (f.lanes)(a.of(registers, constants), b.of(registers, constants));
                let c = c.lanes(&self.predicates);
                self.write_predicate(p, combine.of(holds, c), active);
                if q != Pred::SINK {
                    self.write_predicate(q, combine.of(!holds, c), active);
                }
            }
            Op::Set { f, truth, d, a, b, combine, c } => {
                let registers = &self.registers;
                let holds = (f.lanes)(a.of(registers, constants), b.of(registers, constants));
                let holds = combine.of(holds, c.lanes(&self.predicates));
                for (i, lane) in out.iter_mut().enumerate() {
                    *lane = if holds >> i & 1 == 1 { u64::from(truth) } else { 0 };
                }
                self.write(d, &out, active);
            }
            Op::Property { f, p, a } => {
                let holds = (f.lanes)(a.of(&self.registers, constants));
                self.write_predicate(p, holds, active);
            }
            Op::InRegion { region, p, a } => {
                let a = a.of(&self.registers, constants);
                let holds = (0..LANES).fold(0, |mask, i| mask | u32::from(lies_in(region, a[i])) << i);
                self.write_predicate(p, holds, active);
            }
            Op::Logic { op, p, a, b } => {
                let value = op.of(a.lanes(&self.predicates), b.lanes(&self.predicates));
                self.write_predicate(p, value, active);
            }
            Op::Select { d, a, b, c } => {
                let registers = &self.registers;
                let (a, b) = (a.of(registers, constants), b.of(registers, constants));
                let c = c.lanes(&self.predicates);
                for i in 0..LANES {
                    let keep = u64::from(c >> i & 1).wrapping_sub(1);
                    out[i] = (a[i] & !keep) | (b[i] & keep);
                }
                self.write(d, &out, active);
            }
            ref other => unreachable!("{other:?} has no predicates"),
        }
    }

    fn special(&self, frame: &Frame<'_>, what: Special) -> Lanes {
        let by_lane = |f: fn(u32) -> u32| std::array::from_fn(|lane| u64::from(f(lane as u32)));
        match what {
            Special::Thread(axis) => self.threads[axis],
            Special::Lane => by_lane(|lane| lane),
            Special::LaneEqual => by_lane(|lane| 1 << lane),
            Special::LanesBelow => by_lane(|lane| (1 << lane) - 1),
            Special::LanesUpTo => by_lane(|lane| u32::MAX >> (31 - lane)),
            Special::LanesAbove => by_lane(|lane| !(u32::MAX >> (31 - lane))),
            Special::LanesFrom => by_lane(|lane| u32::MAX << lane),
            shared => [self.uniform(frame, shared).unwrap_or(0); LANES],
        }
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

/// The lowest lane of a mask.
pub(crate) fn first(mask: u32) -> usize {
    mask.trailing_zeros() as usize & 31
}

/// Which memory a generic address means.
#[inline(always)]
pub(crate) fn region_of(address: u64) -> Region {
    let within = |window: u64| address.wrapping_sub(window) < WINDOW_BYTES;
    if within(SHARED_WINDOW) {
        Region::Shared
    } else if within(LOCAL_WINDOW) {
        Region::Local
    } else if within(CONSTANT_WINDOW) {
        Region::Constant
    } else if within(PARAMETER_WINDOW) {
        Region::Parameter
    } else {
        Region::Global
    }
}

/// `isspacep`: the windows of constants and parameters count as global memory too (ISA, "Generic
/// Addressing").
pub(crate) fn lies_in(region: Region, address: u64) -> bool {
    match (region, region_of(address)) {
        (Region::Generic, _) => true,
        (Region::Global, is) => !matches!(is, Region::Shared | Region::Local),
        (wanted, is) => wanted == is,
    }
}
