//! What a warp tells whoever watches it.

use super::access::{addresses, parties};
use super::frame::Frame;
use super::mask::{first, lanes};
use super::observe::{Access, Touch};
use super::warp::Warp;
use crate::alu::Lanes;
use crate::code::{At, Atomic, Op, Program, Region, Shape, Src};
use crate::matrix::Matrix;

/// An access before it is known which memory the addresses mean.
struct Reach {
    region: Region,
    touch: Touch,
    lanes: u32,
    bytes: u64,
    strong: bool,
}

impl Reach {
    /// What nobody else may see meanwhile.
    fn weak(region: Region, touch: Touch, lanes: u32, bytes: u64) -> Self {
        Self { region, touch, lanes, bytes, strong: false }
    }
}

impl Warp {
    /// Tells a watch of a step and all it reaches for. Whether the lanes end instead.
    pub(super) fn tell(&self, frame: &mut Frame<'_>, pc: u32, mask: u32, active: u32) -> bool {
        let Some(watch) = frame.watch.take() else { return false };
        watch.step(self, pc, mask, active);
        if active != 0 {
            self.reaches(frame, pc, active, |reach, addresses| {
                let told = parties(reach.region, addresses, reach.lanes, |party| {
                    let access = Access {
                        pc,
                        region: party.region,
                        touch: reach.touch,
                        lanes: party.lanes,
                        addresses: &party.addresses,
                        bytes: reach.bytes,
                        strong: reach.strong,
                    };
                    watch.access(self, &access);
                    Ok(())
                });
                debug_assert!(told.is_ok(), "telling of an access fails nowhere");
            });
        }
        let ends = watch.ends();
        frame.watch = Some(watch);
        ends
    }

    /// Tells a watch of lanes that come to what lanes do together.
    pub(super) fn tell_of_coming(&self, frame: &mut Frame<'_>, pc: u32, lanes: u32, members: &Lanes) {
        if let Some(watch) = &mut frame.watch {
            watch.come(self, pc, lanes, members);
        }
    }

    /// Tells a watch of lanes that have met.
    pub(super) fn tell_of_meeting(&self, frame: &mut Frame<'_>, lanes: u32) {
        if let Some(watch) = &mut frame.watch {
            watch.meet(self, lanes);
        }
    }

    /// Tells a watch of lanes that arrive at a barrier, if there is such a one.
    pub(super) fn tell_of_arrival(&self, frame: &mut Frame<'_>, pc: u32, active: u32, id: Src) {
        let id = id.of(&self.registers, &frame.program.constants)[first(active)];
        if let (Some(watch), Ok(id)) = (&mut frame.watch, usize::try_from(id)) {
            watch.arrive(self, pc, active, id);
        }
    }

    /// The first bytes that a store of a lane's writes, where it is a plain one: up to 16.
    pub(crate) fn stored(&self, program: &Program, pc: u32, lane: usize) -> Option<[u8; 16]> {
        let Op::Store { shape, a, at: _ } = program.code[pc as usize].op else { return None };
        let mut bytes = [0; 16];
        let size = usize::from(shape.size);
        for (place, a) in bytes.chunks_mut(size).zip(a.iter().take(usize::from(shape.count))) {
            let word = a.of(&self.registers, &program.constants)[lane].to_le_bytes();
            place.copy_from_slice(word.get(..place.len())?);
        }
        Some(bytes)
    }

    /// Everything that the active lanes reach for with one operation.
    fn reaches(&self, frame: &Frame<'_>, pc: u32, active: u32, mut each: impl FnMut(Reach, Lanes)) {
        let program = frame.program;
        let places = |at: At| addresses(at, &self.registers, &program.constants);
        let whole = |shape: Shape| u64::from(shape.size) * u64::from(shape.count);
        match program.code[pc as usize].op {
            Op::Load { shape, at, d: _ } => {
                let weak = Reach::weak(shape.region, Touch::Read, active, whole(shape));
                each(Reach { strong: shape.strong, ..weak }, places(at));
            }
            Op::Store { shape, at, a: _ } => {
                let weak = Reach::weak(shape.region, Touch::Write, active, whole(shape));
                each(Reach { strong: shape.strong, ..weak }, places(at));
            }
            Op::Atomic(Atomic { region, size, at, .. }) => {
                let weak = Reach::weak(region, Touch::Update, active, size.into());
                each(Reach { strong: true, ..weak }, places(at));
            }
            Op::Copy { bytes, to, from, valid } => {
                let bytes = u64::from(bytes);
                let valid = valid.of(&self.registers, &program.constants);
                let read = |lane: usize| (valid[lane] & 0xffff_ffff).min(bytes);
                let mut left = active;
                while left != 0 {
                    // Lanes that copy as much as each other.
                    let bytes = read(first(left));
                    let party = lanes(left)
                        .filter(|lane| read(*lane) == bytes)
                        .fold(0, |mask, lane| mask | 1 << lane);
                    left &= !party;
                    if bytes != 0 {
                        each(Reach::weak(Region::Global, Touch::Read, party, bytes), places(from));
                    }
                }
                each(Reach::weak(Region::Shared, Touch::Write, active, bytes), places(to));
            }
            Op::Matrix { index } => {
                self.matrix_reaches(frame, &program.matrices[index as usize], active, each);
            }
            Op::Nop
            | Op::Unary { .. }
            | Op::Binary { .. }
            | Op::Ternary { .. }
            | Op::Lop3 { .. }
            | Op::Insert { .. }
            | Op::Convert { .. }
            | Op::Carry { .. }
            | Op::Video { .. }
            | Op::Test { .. }
            | Op::Set { .. }
            | Op::Property { .. }
            | Op::InRegion { .. }
            | Op::Logic { .. }
            | Op::Select { .. }
            | Op::Special { .. }
            | Op::Pack { .. }
            | Op::Unpack { .. }
            | Op::Fence
            | Op::Yield
            | Op::Branch { .. }
            | Op::Switch { .. }
            | Op::Exit
            | Op::Trap
            | Op::Barrier { .. }
            | Op::WarpBarrier { .. }
            | Op::Collective { .. }
            | Op::ActiveMask { .. } => {}
        }
    }

    fn matrix_reaches(
        &self,
        frame: &Frame<'_>,
        what: &Matrix,
        active: u32,
        mut each: impl FnMut(Reach, Lanes),
    ) {
        // A lane names a row of 16 bytes; those of the first matrices do.
        let rows = |at: At, count: usize| {
            let named = if count >= 4 { u32::MAX } else { (1 << (8 * count)) - 1 };
            (addresses(at, &self.registers, &frame.program.constants), named & active)
        };
        let (fragment, memory, registers, touch) = match what {
            Matrix::Load { at, transposed: _, d } => {
                let (rows, lanes) = rows(*at, d.len());
                return each(Reach::weak(Region::Shared, Touch::Read, lanes, 16), rows);
            }
            Matrix::Store { at, transposed: _, a } => {
                let (rows, lanes) = rows(*at, a.len());
                return each(Reach::weak(Region::Shared, Touch::Write, lanes, 16), rows);
            }
            Matrix::Transpose { .. } | Matrix::Multiply { .. } => return,
            Matrix::LoadLines { fragment, lines, d } => (*fragment, *lines, d.len(), Touch::Read),
            Matrix::StoreLines { fragment, lines, a } => (*fragment, *lines, a.len(), Touch::Write),
        };
        for register in 0..registers {
            for place in 0..fragment.element.in_a_register() {
                let bytes = fragment.element.bytes() as u64;
                let reach = Reach::weak(memory.region, touch, active, bytes);
                each(reach, self.places_in(frame, fragment, memory, register, place));
            }
        }
    }
}
