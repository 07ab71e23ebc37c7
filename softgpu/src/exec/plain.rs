//! What lanes do each by itself: instructions that only read and write registers and memory.

use super::access::address_of;
use super::cores::Steps;
use super::frame::Frame;
use super::mask::lanes;
use super::warp::Warp;
use crate::alu::{LANES, Lanes, bits, carry, logic};
use crate::code::{Op, Pred, Region, Special, lies_in, region_of};
use crate::fault::Fault;
use crate::memory::tlb::PAGE_SHIFT;

impl Warp {
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
    pub(super) fn plain(
        &mut self,
        frame: &mut Frame<'_>,
        op: &Op,
        active: u32,
    ) -> Result<(), (Fault, usize)> {
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
            Op::Atomic(atomic) => self.atomic(frame, active, atomic)?,
            Op::Copy { bytes, to, from, valid } => self.copy(frame, active, bytes, to, from, valid)?,
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
}
