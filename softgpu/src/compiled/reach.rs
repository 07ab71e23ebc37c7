//! Loads and stores. The common case is in the code; whatever else it may be, the interpreter does, who knows
//! all of memory and all faults.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, MemFlagsData, Type, Value, types};

use super::context::Field;
use super::emit::Emitter;
use super::sys;
use crate::code::{At, Atomic, Dst, Region, SHARED_BASE, Shape, Src};
use crate::memory::tlb::{ENTRY_SHIFT, INDEX_MASK, PAGE_SHIFT};

/// Whether memory is loaded from or stored to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Load,
    Store,
}

/// Where an access goes on the host, if it goes there.
pub(super) struct Reached {
    /// The host address, computed where the access is known to be fine.
    pub(super) host: Value,
    /// Where to go on if it is not.
    pub(super) misses: Option<Block>,
}

impl Emitter<'_, '_> {
    pub(super) fn load(&mut self, pc: usize, shape: Shape, at: At, d: [Dst; 4]) {
        let count = usize::from(shape.count);
        let Some(Reached { host, misses }) = self.reach(shape, at, Way::Load) else {
            return self.fall_back(pc);
        };
        let d = d.get(..count).unwrap_or_default();
        let values = self.elements(shape, host, 0, d);
        if shape.strong {
            self.b.ins().sequence_point();
        }
        let Some(misses) = misses else {
            for (d, value) in d.iter().zip(values) {
                self.set(*d, value);
            }
            return;
        };
        for (d, value) in d.iter().zip(&values) {
            self.set(*d, *value);
        }
        self.slowly(pc, misses);
    }

    pub(super) fn store_to(&mut self, pc: usize, shape: Shape, at: At, a: [Src; 4]) {
        let Some(Reached { host, misses }) = self.reach(shape, at, Way::Store) else {
            return self.fall_back(pc);
        };
        if shape.strong {
            self.b.ins().sequence_point();
        }
        let flags = self.their_flags();
        let a = a.get(..usize::from(shape.count)).unwrap_or_default();
        if is_whole(shape) {
            let ty = if shape.size == 8 { types::I64 } else { types::I32 };
            let parts: Vec<Value> = a.iter().map(|a| self.src(*a, ty)).collect();
            self.put_whole(shape, host, 0, &parts);
        }
        for (index, a) in a.iter().enumerate().filter(|_| !is_whole(shape)) {
            let offset = offset_of(shape, index);
            match shape.size {
                1 => {
                    let value = self.src(*a, types::I32);
                    self.b.ins().istore8(flags, value, host, offset);
                }
                2 => {
                    let value = self.src(*a, types::I32);
                    self.b.ins().istore16(flags, value, host, offset);
                }
                size => {
                    let ty = self.held(*a, size);
                    let value = self.src(*a, ty);
                    self.b.ins().store(flags, value, host, offset);
                }
            }
        }
        if shape.strong {
            self.b.ins().sequence_point();
        }
        if let Some(misses) = misses {
            self.slowly(pc, misses);
        }
    }

    pub(super) fn atomic(&mut self, pc: usize, atomic: Atomic) {
        let Atomic { op: _, region, size, d, at, a, b } = atomic;
        let shape = Shape { region, size, count: 1, extend: 0, strong: true };
        let known = matches!(region, Region::Global | Region::Generic | Region::Shared);
        let Some(Reached { host, misses }) = known.then(|| self.reach(shape, at, Way::Store)).flatten()
        else {
            return self.fall_back(pc);
        };
        let op = self.op_address(pc);
        let (a, b) = (self.src(a, types::I64), self.src(b, types::I64));
        let old = self.call((sys::update as *const () as usize).cast_signed(), &[op, host, a, b]);
        self.set(d, old);
        if let Some(misses) = misses {
            self.slowly(pc, misses);
        }
    }

    /// The block for accesses that the code cannot do, and where both go on.
    fn slowly(&mut self, pc: usize, misses: Block) {
        let done = self.b.create_block();
        self.b.ins().jump(done, &[]);
        self.b.switch_to_block(misses);
        self.fall_back(pc);
        self.b.ins().jump(done, &[]);
        self.b.switch_to_block(done);
    }

    pub(super) fn their_flags(&self) -> MemFlagsData {
        MemFlagsData::new().with_notrap().with_alias_region(Some(self.theirs))
    }

    /// The type in which an operand of 4 or 8 bytes is stored: as it is held, where that fits.
    pub(super) fn held(&self, src: Src, size: u8) -> Type {
        let bits = u32::from(size) * 8;
        let kind = src.register_number().map(|index| self.kinds[index as usize]);
        kind.filter(|kind| kind.bits() == bits).unwrap_or(if size == 8 { types::I64 } else { types::I32 })
    }

    /// What is loaded into these registers.
    pub(super) fn elements(&mut self, shape: Shape, host: Value, offset: i32, d: &[Dst]) -> Vec<Value> {
        if is_whole(shape) {
            return self.parts(shape, host, offset);
        }
        let one = |(index, d): (usize, &Dst)| self.element(shape, host, offset + offset_of(shape, index), *d);
        d.iter().enumerate().map(one).collect()
    }

    /// The parts of a vector that is loaded at once.
    fn parts(&mut self, shape: Shape, host: Value, offset: i32) -> Vec<Value> {
        let flags = self.their_flags();
        let bits = i64::from(shape.size) * 8;
        if bits * i64::from(shape.count) == 128 {
            let ty = if shape.size == 8 { types::I64X2 } else { types::I32X4 };
            let vector = self.b.ins().load(ty, flags, host, offset);
            let parts: Vec<Value> =
                (0..shape.count).map(|index| self.b.ins().extractlane(vector, index)).collect();
            let wider = shape.size == 4 && shape.extend > 0;
            return match wider {
                true => parts.into_iter().map(|part| self.b.ins().sextend(types::I64, part)).collect(),
                false => parts,
            };
        }
        let whole = match bits * i64::from(shape.count) {
            64 => self.b.ins().load(types::I64, flags, host, offset),
            32 => self.b.ins().load(types::I32, flags, host, offset),
            _ => self.b.ins().uload16(types::I32, flags, host, offset),
        };
        (0..i64::from(shape.count)).map(|index| self.part(shape, whole, index * bits)).collect()
    }

    /// A part of 32 bits at most of what was loaded, extended as it is asked for.
    fn part(&mut self, shape: Shape, whole: Value, from: i64) -> Value {
        let bits = i64::from(shape.size) * 8;
        let moved = self.b.ins().ushr_imm_u(whole, from);
        let low = self.turned(moved, self.b.func.dfg.value_type(whole), types::I32);
        match (bits, shape.extend) {
            (32, 0) => low,
            (32, _) => self.b.ins().sextend(types::I64, low),
            (_, 0) => self.b.ins().band_imm_u(low, (1 << bits) - 1),
            (_, extend) => {
                let top = self.b.ins().ishl_imm_u(low, 32 - bits);
                let wide = self.b.ins().sshr_imm_u(top, 32 - bits);
                match extend {
                    64 => self.b.ins().sextend(types::I64, wide),
                    16 => self.b.ins().band_imm_u(wide, 0xffff),
                    _ => wide,
                }
            }
        }
    }

    /// Stores a vector at once. Its parts are of 32 bits, where they are not of 64.
    pub(super) fn put_whole(&mut self, shape: Shape, host: Value, offset: i32, parts: &[Value]) {
        let flags = self.their_flags();
        let bits = i64::from(shape.size) * 8;
        let Some((first, others)) = parts.split_first() else { return };
        let whole = bits * i64::from(shape.count);
        if whole == 128 {
            let ty = if shape.size == 8 { types::I64X2 } else { types::I32X4 };
            let mut vector = self.b.ins().scalar_to_vector(ty, *first);
            for (index, part) in (1..).zip(others) {
                vector = self.b.ins().insertlane(vector, *part, index);
            }
            self.b.ins().store(flags, vector, host, offset);
            return;
        }
        let ty = if whole == 64 { types::I64 } else { types::I32 };
        let mut all = None;
        for (index, part) in (0..).zip(parts) {
            let part = if bits < 32 { self.b.ins().band_imm_u(*part, (1 << bits) - 1) } else { *part };
            let part = self.turned(part, types::I32, ty);
            let part = self.b.ins().ishl_imm_u(part, index * bits);
            all = Some(all.map_or(part, |before| self.b.ins().bor(before, part)));
        }
        let Some(all) = all else { return };
        if whole == 16 {
            self.b.ins().istore16(flags, all, host, offset);
        } else {
            self.b.ins().store(flags, all, host, offset);
        }
    }

    pub(super) fn element(&mut self, shape: Shape, host: Value, offset: i32, d: Dst) -> Value {
        let flags = self.their_flags();
        let kind = self.kinds[d.0 as usize];
        let signed = shape.extend > 0;
        match (shape.size, signed) {
            (1, false) => self.b.ins().uload8(types::I32, flags, host, offset),
            (2, false) => self.b.ins().uload16(types::I32, flags, host, offset),
            (1, true) if shape.extend == 64 => self.b.ins().sload8(types::I64, flags, host, offset),
            (2, true) if shape.extend == 64 => self.b.ins().sload16(types::I64, flags, host, offset),
            (1, true) => {
                let value = self.b.ins().sload8(types::I32, flags, host, offset);
                if shape.extend == 16 { self.b.ins().band_imm_u(value, 0xffff) } else { value }
            }
            (2, true) => self.b.ins().sload16(types::I32, flags, host, offset),
            (4, true) => {
                let value = self.b.ins().load(types::I32, flags, host, offset);
                self.b.ins().sextend(types::I64, value)
            }
            (4, false) => {
                let ty = if kind.bits() == 32 { kind } else { types::I32 };
                self.b.ins().load(ty, flags, host, offset)
            }
            _ => {
                let ty = if kind.bits() == 64 { kind } else { types::I64 };
                self.b.ins().load(ty, flags, host, offset)
            }
        }
    }

    /// Where an access goes; `None` where the code has no quick way.
    pub(super) fn reach(&mut self, shape: Shape, at: At, way: Way) -> Option<Reached> {
        let whole = u64::from(shape.size) * u64::from(shape.count);
        let known = self.constant(at.base).map(|base| base.wrapping_add_signed(at.offset));
        match (shape.region, way) {
            (Region::Parameter, Way::Load) => {
                let address = known?;
                let bytes = u64::from(self.program.parameter_bytes);
                let inside = address.is_multiple_of(whole) && address.checked_add(whole)? <= bytes;
                inside.then(|| {
                    let base = self.field(types::I64, Field::Parameters);
                    let host = self.b.ins().iadd_imm_s(base, address.cast_signed());
                    Reached { host, misses: None }
                })
            }
            (Region::Shared, _) => {
                let base = self.field(types::I64, Field::Shared);
                if let Some(offset) = known.and_then(|address| address.checked_sub(SHARED_BASE)) {
                    let bytes = u64::from(self.program.shared_bytes);
                    if offset.is_multiple_of(whole) && offset.checked_add(whole)? <= bytes {
                        let host = self.b.ins().iadd_imm_s(base, offset.cast_signed());
                        return Some(Reached { host, misses: None });
                    }
                }
                let address = self.address(at);
                let offset = self.b.ins().iadd_imm_s(address, -SHARED_BASE.cast_signed());
                let bytes = self.field(types::I64, Field::SharedBytes);
                let bytes = self.b.ins().ushr_imm_u(bytes, i64::from(whole.trailing_zeros()));
                Some(self.within(base, offset, bytes, whole))
            }
            (Region::Constant, Way::Load) => {
                let base = self.field(types::I64, Field::Constants);
                let offset = self.address(at);
                let bytes = self.field(types::I64, Field::ConstantBytes);
                let bytes = self.b.ins().ushr_imm_u(bytes, i64::from(whole.trailing_zeros()));
                Some(self.within(base, offset, bytes, whole))
            }
            (Region::Local, _) => {
                let each = i64::from(self.program.local_bytes);
                let all = self.field(types::I64, Field::Local);
                let lane = self.b.use_var(self.lane);
                let lane = self.b.ins().uextend(types::I64, lane);
                let before = self.b.ins().imul_imm_s(lane, each);
                let base = self.b.ins().iadd(all, before);
                let bytes = self.b.ins().iconst(types::I64, each >> whole.trailing_zeros());
                let offset = self.address(at);
                Some(self.within(base, offset, bytes, whole))
            }
            (Region::Global | Region::Generic, _) => Some(self.translated(at, way, whole)),
            (Region::Parameter | Region::Constant, Way::Store) => None,
        }
    }

    pub(super) fn address(&mut self, at: At) -> Value {
        let base = self.src(at.base, types::I64);
        if at.offset == 0 { base } else { self.b.ins().iadd_imm_s(base, at.offset) }
    }

    /// Goes on only where an offset is a multiple of the access's length and, counted in such lengths, below
    /// a limit.
    fn only_below(&mut self, offset: Value, limit: Value, whole: u64) -> Block {
        // What is misaligned has bits at the top then, and is beyond every limit.
        let index = self.b.ins().rotr_imm_u(offset, i64::from(whole.trailing_zeros()));
        let inside = self.b.ins().icmp(IntCC::UnsignedLessThan, index, limit);
        let (hits, misses) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(misses);
        self.b.ins().brif(inside, hits, &[], misses, &[]);
        self.b.switch_to_block(hits);
        misses
    }

    fn within(&mut self, base: Value, offset: Value, limit: Value, whole: u64) -> Reached {
        let misses = self.only_below(offset, limit, whole);
        let host = self.b.ins().iadd(base, offset);
        Reached { host, misses: Some(misses) }
    }

    /// Looks an address up among the translations.
    fn translated(&mut self, at: At, way: Way, whole: u64) -> Reached {
        let (address, offset, entry) = self.entry_of(at, way);
        let limit = self.b.ins().iconst(types::I64, 1 << (PAGE_SHIFT - whole.trailing_zeros()));
        let misses = self.only_below(offset, limit, whole);
        let flags = self.own_flags();
        let distance = self.b.ins().load(types::I64, flags, entry, 8);
        let host = self.b.ins().iadd(address, distance);
        Reached { host, misses: Some(misses) }
    }

    /// An address, its offset in the page of the one translation that may be its own, and that.
    pub(super) fn entry_of(&mut self, at: At, way: Way) -> (Value, Value, Value) {
        let address = self.address(at);
        let table = match way {
            Way::Load => self.field(types::I64, Field::Loads),
            Way::Store => self.field(types::I64, Field::Stores),
        };
        let shifted = self.b.ins().ushr_imm_u(address, i64::from(PAGE_SHIFT - ENTRY_SHIFT));
        let place = self.b.ins().band_imm_u(shifted, (INDEX_MASK << ENTRY_SHIFT).cast_signed());
        let entry = self.b.ins().iadd(table, place);
        let flags = self.own_flags();
        let start = self.b.ins().load(types::I64, flags, entry, 0);
        let offset = self.b.ins().isub(address, start);
        (address, offset, entry)
    }
}

/// Whether an access is of a vector in memory that others use at the same time: they see all of it or nothing.
pub(super) fn is_whole(shape: Shape) -> bool {
    shape.count > 1 && matches!(shape.region, Region::Global | Region::Generic)
}

pub(super) fn offset_of(shape: Shape, index: usize) -> i32 {
    i32::from(shape.size) * i32::try_from(index).unwrap_or(0)
}
