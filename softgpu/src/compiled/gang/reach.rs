//! Loads and stores of a gang. Where addresses go up from lane to lane by a known stride, one look finds out
//! for all of them; elsewhere lane after lane does it.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, Type, Value, types};

use super::super::context::Field;
use super::super::patterns::Pattern;
use super::super::reach::{Reached, Way, is_whole, offset_of};
use super::Gang;
use super::vectors::{BYTES, of};
use crate::code::{At, Dst, Region, SHARED_BASE, Shape, Src};
use crate::memory::tlb::PAGE_SHIFT;

/// Where the accesses of all lanes go.
struct Places {
    /// The host address of the first.
    host: Value,
    /// From lane to lane.
    stride: i64,
    /// Where to go on if it is not known to be fine for all of them.
    misses: Option<Block>,
}

impl Gang<'_, '_> {
    pub(super) fn load(&mut self, pc: usize, shape: Shape, at: At, d: [Dst; 4]) {
        let count = usize::from(shape.count);
        let Some(Places { host, stride, misses }) = self.places(shape, at, Way::Load) else {
            return self.lane_by_lane(pc, None, &self.e.program.code[pc].op);
        };
        let d = d.get(..count).unwrap_or_default();
        let loaded = match d {
            [d] if stride == i64::from(shape.size) => vec![self.in_a_row(shape, host, *d)],
            _ => self.one_by_one(shape, host, stride, d),
        };
        if shape.strong {
            self.e.b.ins().sequence_point();
        }
        for (d, (values, ty)) in d.iter().zip(loaded) {
            self.set(*d, values, ty);
        }
        self.slowly(pc, misses);
    }

    pub(super) fn store_to(&mut self, pc: usize, shape: Shape, at: At, a: [Src; 4]) {
        // What all lanes store to one address, the last of them leaves there.
        let one = shape.region != Region::Local && self.patterns.src(at.base) == Pattern::Even(0);
        let places = if one { None } else { self.places(shape, at, Way::Store) };
        let Some(Places { host, stride, misses }) = places else {
            return self.lane_by_lane(pc, None, &self.e.program.code[pc].op);
        };
        if shape.strong {
            self.e.b.ins().sequence_point();
        }
        let flags = self.e.their_flags();
        let a = a.get(..usize::from(shape.count)).unwrap_or_default();
        if is_whole(shape) {
            self.put_wholes(shape, host, stride, a);
        }
        for (index, a) in a.iter().enumerate().filter(|_| !is_whole(shape)) {
            let offset = offset_of(shape, index);
            let ty = self.e.held(*a, shape.size);
            let values = self.src(*a, ty);
            if shape.count == 1 && stride == i64::from(shape.size) {
                let values = self.narrowed(values, shape.size);
                for (index, value) in (0..).zip(values) {
                    self.e.b.ins().store(flags, value, host, BYTES * index);
                }
                continue;
            }
            for (lane, value) in (0..).zip(self.singles(&values, ty)) {
                let offset = offset + lane * i32::try_from(stride).unwrap_or(0);
                match shape.size {
                    1 => self.e.b.ins().istore8(flags, value, host, offset),
                    2 => self.e.b.ins().istore16(flags, value, host, offset),
                    _ => self.e.b.ins().store(flags, value, host, offset),
                };
            }
        }
        if shape.strong {
            self.e.b.ins().sequence_point();
        }
        self.slowly(pc, misses);
    }

    /// Stores vectors, that of each lane at once.
    fn put_wholes(&mut self, shape: Shape, host: Value, stride: i64, a: &[Src]) {
        let ty = if shape.size == 8 { types::I64 } else { types::I32 };
        let mut columns = Vec::with_capacity(a.len());
        for a in a {
            let values = self.src(*a, ty);
            columns.push(self.singles(&values, ty));
        }
        for lane in 0..self.lanes {
            let parts: Vec<Value> = columns.iter().filter_map(|column| column.get(lane).copied()).collect();
            let offset = i32::try_from(stride).unwrap_or(0) * i32::try_from(lane).unwrap_or(0);
            self.e.put_whole(shape, host, offset, &parts);
        }
    }

    /// The interpreter does what the code does not.
    fn slowly(&mut self, pc: usize, misses: Option<Block>) {
        let Some(misses) = misses else { return };
        let done = self.e.b.create_block();
        self.e.b.ins().jump(done, &[]);
        self.e.b.switch_to_block(misses);
        self.interpreted(pc);
        self.e.b.ins().jump(done, &[]);
        self.e.b.switch_to_block(done);
    }

    /// The single values of vectors.
    fn singles(&mut self, values: &[Value], kind: Type) -> Vec<Value> {
        let each = u8::try_from(16 / kind.bytes()).unwrap_or(1);
        let all = values.iter().flat_map(|value| (0..each).map(|index| (*value, index)));
        all.map(|(value, index)| self.e.b.ins().extractlane(value, index)).collect()
    }

    /// The low bytes of words of 32 bits, where less is stored, one beside the other.
    fn narrowed(&mut self, values: Vec<Value>, size: u8) -> Vec<Value> {
        if size >= 4 {
            return values;
        }
        let ones = self.e.literal((1 << (8 * size)) - 1, types::I32);
        let ones = self.e.b.ins().splat(types::I32X4, ones);
        let b = &mut self.e.b;
        let values: Vec<Value> = values.into_iter().map(|value| b.ins().band(value, ones)).collect();
        let values: Vec<Value> = values.chunks(2).map(|pair| b.ins().unarrow(pair[0], pair[1])).collect();
        if size == 2 {
            return values;
        }
        let pair = |pair: &[Value]| b.ins().unarrow(pair[0], pair.get(1).copied().unwrap_or(pair[0]));
        values.chunks(2).map(pair).collect()
    }

    /// Elements that lie one behind the other.
    fn in_a_row(&mut self, shape: Shape, host: Value, d: Dst) -> (Vec<Value>, Type) {
        let flags = self.e.their_flags();
        let signed = shape.extend > 0;
        let kind = self.e.kinds[d.0 as usize];
        let narrow = |values: Vec<Value>, s: &mut Self| match (signed, shape.extend) {
            (true, 64) => (s.widened(&values, true), types::I64),
            (true, 16) => {
                let ones = s.e.literal(0xffff, types::I32);
                let ones = s.e.b.ins().splat(types::I32X4, ones);
                let values = values.into_iter().map(|value| s.e.b.ins().band(value, ones));
                (values.collect(), types::I32)
            }
            _ => (values, types::I32),
        };
        let count = i32::try_from(self.lanes).unwrap_or(0);
        match shape.size {
            1 => {
                let mut values = Vec::with_capacity(self.lanes / 4);
                for index in 0..count / 8 {
                    let b = &mut self.e.b;
                    if signed {
                        let eight = b.ins().sload8x8(flags, host, 8 * index);
                        values.extend([b.ins().swiden_low(eight), b.ins().swiden_high(eight)]);
                    } else {
                        let eight = b.ins().uload8x8(flags, host, 8 * index);
                        values.extend([b.ins().uwiden_low(eight), b.ins().uwiden_high(eight)]);
                    }
                }
                narrow(values, self)
            }
            2 => {
                let four = |index: i32| {
                    let ins = self.e.b.ins();
                    if signed {
                        ins.sload16x4(flags, host, 8 * index)
                    } else {
                        ins.uload16x4(flags, host, 8 * index)
                    }
                };
                let values = (0..count / 4).map(four).collect();
                narrow(values, self)
            }
            4 => {
                let ty = if kind == types::F32 { kind } else { types::I32 };
                let values: Vec<Value> = (0..count / 4)
                    .map(|index| self.e.b.ins().load(of(ty), flags, host, BYTES * index))
                    .collect();
                if signed { narrow(values, self) } else { (values, ty) }
            }
            _ => {
                let ty = if kind == types::F64 { kind } else { types::I64 };
                let values = (0..count / 2)
                    .map(|index| self.e.b.ins().load(of(ty), flags, host, BYTES * index))
                    .collect();
                (values, ty)
            }
        }
    }

    /// Elements that lie some way apart, or are one, for each of these registers.
    fn one_by_one(&mut self, shape: Shape, host: Value, stride: i64, d: &[Dst]) -> Vec<(Vec<Value>, Type)> {
        let kinds: Vec<Type> = d.iter().map(|d| self.e.kinds[d.0 as usize]).collect();
        let lanes = if stride == 0 { 1 } else { self.lanes };
        let mut columns = vec![Vec::with_capacity(lanes); d.len()];
        for lane in 0..i32::try_from(lanes).unwrap_or(0) {
            let offset = lane * i32::try_from(stride).unwrap_or(0);
            let values = self.e.elements(shape, host, offset, d);
            for ((column, kind), value) in columns.iter_mut().zip(&kinds).zip(values) {
                let from = self.e.b.func.dfg.value_type(value);
                column.push(self.e.turned(value, from, *kind));
            }
        }
        let together = |(column, kind): (Vec<Value>, Type)| match column.as_slice() {
            [one] if stride == 0 => (self.splat(*one, kind), kind),
            singles => (self.side_by_side(singles, kind), kind),
        };
        columns.into_iter().zip(kinds).map(together).collect()
    }

    /// Vectors of single values.
    fn side_by_side(&mut self, singles: &[Value], kind: Type) -> Vec<Value> {
        let mut values = Vec::with_capacity(singles.len());
        for part in singles.chunks(16 / kind.bytes() as usize) {
            let mut vector = self.e.b.ins().scalar_to_vector(of(kind), part[0]);
            for (lane, single) in (0u8..).zip(part).skip(1) {
                vector = self.e.b.ins().insertlane(vector, *single, lane);
            }
            values.push(vector);
        }
        values
    }

    /// Where the accesses of all lanes go; `None` where that takes a look at each.
    fn places(&mut self, shape: Shape, at: At, way: Way) -> Option<Places> {
        let Pattern::Even(stride) = self.patterns.src(at.base) else { return None };
        let whole = u64::from(shape.size) * u64::from(shape.count);
        if shape.region == Region::Local {
            // One address, in each lane's own memory.
            let each = i64::from(self.e.program.local_bytes);
            let far = each * i64::try_from(self.lanes).ok()?;
            if stride != 0 || each == 0 || i32::try_from(far).is_err() {
                return None;
            }
            let Reached { host, misses } = self.e.reach(shape, at, way)?;
            return Some(Places { host, stride: each, misses });
        }
        if stride == 0 {
            let Reached { host, misses } = self.e.reach(shape, at, way)?;
            return Some(Places { host, stride, misses });
        }
        let far = u64::try_from(stride).ok()? * (u64::try_from(self.lanes).ok()? - 1);
        if far + whole > 1 << PAGE_SHIFT || far % whole != 0 || stride.cast_unsigned() % whole != 0 {
            return None;
        }
        let shift = i64::from(whole.trailing_zeros());
        let (base, offset, limit, host) = match (shape.region, way) {
            (Region::Shared, _) | (Region::Constant, Way::Load) => {
                let (base, bytes, start) = match shape.region {
                    Region::Shared => (Field::Shared, Field::SharedBytes, SHARED_BASE.cast_signed()),
                    _ => (Field::Constants, Field::ConstantBytes, 0),
                };
                let address = self.e.address(at);
                let offset = self.e.b.ins().iadd_imm_s(address, -start);
                let bytes = self.e.field(types::I64, bytes);
                let limit = self.e.b.ins().ushr_imm_u(bytes, shift);
                let base = self.e.field(types::I64, base);
                (base, offset, limit, offset)
            }
            (Region::Global | Region::Generic, _) => {
                let (address, offset, entry) = self.e.entry_of(at, way);
                let limit = self.e.b.ins().iconst(types::I64, 1 << (i64::from(PAGE_SHIFT) - shift));
                let flags = self.e.own_flags();
                let distance = self.e.b.ins().load(types::I64, flags, entry, 8);
                (distance, offset, limit, address)
            }
            (Region::Local | Region::Parameter | Region::Constant, _) => return None,
        };
        let inside = self.all_inside(offset, limit, whole, far);
        let fine = self.counts(at, far, inside);
        let (hits, misses) = (self.e.b.create_block(), self.e.b.create_block());
        self.e.b.set_cold_block(misses);
        self.e.b.ins().brif(fine, hits, &[], misses, &[]);
        self.e.b.switch_to_block(hits);
        let host = self.e.b.ins().iadd(base, host);
        Some(Places { host, stride, misses: Some(misses) })
    }

    /// Whether the first offset and the last one are multiples of the access's length and, counted in such
    /// lengths, below a limit. Then all between them are.
    fn all_inside(&mut self, offset: Value, limit: Value, whole: u64, far: u64) -> Value {
        let shift = i64::from(whole.trailing_zeros());
        let b = &mut self.e.b;
        // What is misaligned has bits at the top then, and is beyond every limit.
        let index = b.ins().rotr_imm_u(offset, shift);
        let last = b.ins().iadd_imm_s(index, (far / whole).cast_signed());
        let first = b.ins().icmp(IntCC::UnsignedLessThan, index, limit);
        let last = b.ins().icmp(IntCC::UnsignedLessThan, last, limit);
        b.ins().band(first, last)
    }

    /// Whether addresses of 32 bits go up to the last lane's without wrapping, too.
    fn counts(&mut self, at: At, far: u64, holds: Value) -> Value {
        let Some(register) = at.base.register_number() else { return holds };
        if self.e.kinds[register as usize].bits() == 64 {
            return holds;
        }
        let base = self.e.src(at.base, types::I32);
        let most = i64::from(u32::MAX) - i64::try_from(far).unwrap_or(0);
        let counts = self.e.b.ins().icmp_imm_u(IntCC::UnsignedLessThanOrEqual, base, most);
        self.e.b.ins().band(holds, counts)
    }
}
