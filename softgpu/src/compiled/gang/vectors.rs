//! Values of all lanes of a gang as vectors of 128 bits: two of 64 bits or four of 32 in each.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{ConstantData, Endianness, InstBuilder, MemFlagsData, Type, Value, types};

use super::super::flow::Place;
use super::super::patterns::Pattern;
use super::Gang;
use crate::code::{Dst, Pred, PredSrc, Src};

/// Bytes of a vector.
pub(super) const BYTES: i32 = 16;

/// The vector of values of a type.
pub(super) fn of(kind: Type) -> Type {
    match kind {
        types::F32 => types::F32X4,
        types::F64 => types::F64X2,
        types::I64 => types::I64X2,
        _ => types::I32X4,
    }
}

/// Of each pair of vectors of 64-bit words the low halves.
const LOW_HALVES: [u8; 16] = [0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27];

impl Gang<'_, '_> {
    /// Vectors of a type that all hold one value.
    pub(super) fn splat(&mut self, value: Value, kind: Type) -> Vec<Value> {
        let vector = self.e.b.ins().splat(of(kind), value);
        vec![vector; self.lanes * kind.bytes() as usize / 16]
    }

    /// The values of all lanes, from that of the first one and a stride.
    pub(super) fn in_steps(&mut self, first: Value, kind: Type, stride: i64) -> Vec<Value> {
        if stride == 0 {
            return self.splat(first, kind);
        }
        let whole = kind.as_int();
        let base = self.e.turned(first, kind, whole);
        let base = self.splat(base, whole);
        let each = usize::try_from(BYTES).unwrap_or(0) / whole.bytes() as usize;
        let mut values = Vec::with_capacity(base.len());
        for (index, base) in base.into_iter().enumerate() {
            let steps = (index * each..(index + 1) * each)
                .map(|lane| stride.wrapping_mul(i64::try_from(lane).unwrap_or(0)));
            let bytes: Vec<u8> = match whole {
                types::I64 => steps.flat_map(i64::to_le_bytes).collect(),
                _ => steps.flat_map(|step| step.to_le_bytes().into_iter().take(4)).collect(),
            };
            let steps = self.e.b.func.dfg.constants.insert(ConstantData::from(&bytes[..]));
            let steps = self.e.b.ins().vconst(of(whole), steps);
            values.push(self.e.b.ins().iadd(base, steps));
        }
        self.cast(values, of(kind))
    }

    /// The same bits in vectors of another type.
    pub(super) fn cast(&mut self, values: Vec<Value>, ty: Type) -> Vec<Value> {
        values.into_iter().map(|value| self.cast_one(value, ty)).collect()
    }

    pub(super) fn cast_one(&mut self, value: Value, ty: Type) -> Value {
        if self.e.b.func.dfg.value_type(value) == ty {
            return value;
        }
        let flags = MemFlagsData::new().with_endianness(Endianness::Little);
        self.e.b.ins().bitcast(ty, flags, value)
    }

    /// The low halves of words of 64 bits.
    pub(super) fn low_halves(&mut self, wide: Vec<Value>) -> Vec<Value> {
        let wide = self.cast(wide, types::I8X16);
        let halves = self.e.b.func.dfg.immediates.push(ConstantData::from(&LOW_HALVES[..]));
        let pairs = wide.chunks(2).map(|pair| self.e.b.ins().shuffle(pair[0], pair[1], halves));
        let values: Vec<Value> = pairs.collect();
        self.cast(values, types::I32X4)
    }

    /// Words of 32 bits as words of 64.
    pub(super) fn widened(&mut self, narrow: &[Value], signed: bool) -> Vec<Value> {
        let mut values = Vec::with_capacity(narrow.len() * 2);
        for value in narrow {
            let value = self.cast_one(*value, types::I32X4);
            let b = &mut self.e.b;
            if signed {
                values.extend([b.ins().swiden_low(value), b.ins().swiden_high(value)]);
            } else {
                values.extend([b.ins().uwiden_low(value), b.ins().uwiden_high(value)]);
            }
        }
        values
    }

    /// The bits of values as values of another type; what is wider is zero above.
    pub(super) fn turned(&mut self, values: Vec<Value>, from: Type, to: Type) -> Vec<Value> {
        let values = match (from.bits(), to.bits()) {
            (32, 64) => self.widened(&values, false),
            (64, 32) => self.low_halves(values),
            _ => values,
        };
        self.cast(values, of(to))
    }

    /// An operand for all lanes, as values of some type.
    pub(super) fn src(&mut self, src: Src, ty: Type) -> Vec<Value> {
        let Some(index) = src.register_number().filter(|index| *index != Dst::SINK.0) else {
            let value = self.e.src(src, ty);
            return self.splat(value, ty);
        };
        let kind = self.e.kinds[index as usize];
        match self.patterns.src(src) {
            Pattern::Varying => {
                let values = self.values(index as usize);
                self.turned(values, kind, ty)
            }
            Pattern::Even(0) => {
                let value = self.e.src(src, ty);
                self.splat(value, ty)
            }
            Pattern::Even(stride) => {
                let first = self.e.b.use_var(self.e.registers[index as usize]);
                let values = self.in_steps(first, kind, stride);
                self.turned(values, kind, ty)
            }
        }
    }

    fn values(&mut self, register: usize) -> Vec<Value> {
        self.vectors[register].iter().map(|variable| self.e.b.use_var(*variable)).collect()
    }

    /// Gives a register that varies its values, of a type; only those of the mask if there is one.
    pub(super) fn set(&mut self, d: Dst, values: Vec<Value>, from: Type) {
        if d == Dst::SINK {
            return;
        }
        let register = d.0 as usize;
        let kind = self.e.kinds[register];
        let mut values = self.turned(values, from, kind);
        if let Some(mask) = self.mask.clone() {
            let before = self.values(register);
            values = self.select(&mask, values, before, kind);
        }
        for (variable, value) in self.vectors[register].iter().zip(values) {
            self.e.b.def_var(*variable, value);
        }
    }

    /// One or the other of two values, as masks say.
    pub(super) fn select(&mut self, masks: &[Value], a: Vec<Value>, b: Vec<Value>, kind: Type) -> Vec<Value> {
        let masks = if kind.bits() == 64 { self.widened(masks, true) } else { masks.to_vec() };
        let masks = self.cast(masks, of(kind));
        let all = masks.into_iter().zip(a).zip(b);
        all.map(|((mask, a), b)| self.e.b.ins().bitselect(mask, a, b)).collect()
    }

    /// Masks of a condition that all lanes share, one or zero.
    pub(super) fn mask_of_one(&mut self, value: Value) -> Vec<Value> {
        let value = self.e.b.ins().uextend(types::I32, value);
        let value = self.e.b.ins().ineg(value);
        self.splat(value, types::I32)
    }

    /// The lanes for which a predicate holds, as masks.
    pub(super) fn masks_of(&mut self, src: PredSrc) -> Vec<Value> {
        if !self.patterns.pred(src) {
            let value = self.e.predicate(src);
            return self.mask_of_one(value);
        }
        let masks = &self.masks[src.of.0 as usize];
        let masks: Vec<Value> = masks.iter().map(|mask| self.e.b.use_var(*mask)).collect();
        if src.negated { masks.into_iter().map(|mask| self.e.b.ins().bnot(mask)).collect() } else { masks }
    }

    /// Gives a predicate that differs its masks.
    pub(super) fn set_masks(&mut self, predicate: usize, mut masks: Vec<Value>) {
        if predicate == Pred::SINK.0 as usize {
            return;
        }
        if let Some(mask) = self.mask.clone() {
            let before: Vec<Value> =
                self.masks[predicate].iter().map(|mask| self.e.b.use_var(*mask)).collect();
            masks = self.select(&mask, masks, before, types::I32);
        }
        for (variable, mask) in self.masks[predicate].iter().zip(masks) {
            self.e.b.def_var(*variable, mask);
        }
    }

    /// A place's values come from the warp.
    pub(super) fn fetch_all(&mut self, place: Place) {
        let count = self.e.kinds.len();
        let flags = self.e.own_flags();
        let Some(predicate) = place.checked_sub(count) else {
            let row = self.e.b.use_var(self.e.row);
            let start = self.e.row_offset(place);
            let words = (0..self.lanes / 2).map(|index| {
                let offset = start + BYTES * i32::try_from(index).unwrap_or(0);
                self.e.b.ins().load(types::I64X2, flags, row, offset)
            });
            let words: Vec<Value> = words.collect();
            return self.set(Dst(u32::try_from(place).unwrap_or(0)), words, types::I64);
        };
        let word = self.predicate_word(predicate);
        let lane = self.e.b.use_var(self.e.lane);
        let bits = self.e.b.ins().ushr(word, lane);
        let bits = self.splat(bits, types::I32);
        let mut masks = Vec::with_capacity(bits.len());
        for (index, bits) in (0..).step_by(4).zip(bits) {
            let bytes: Vec<u8> = (0..4u32).flat_map(|lane| (1u32 << (lane + index)).to_le_bytes()).collect();
            let own = self.e.b.func.dfg.constants.insert(ConstantData::from(&bytes[..]));
            let own = self.e.b.ins().vconst(types::I32X4, own);
            let bits = self.e.b.ins().band(bits, own);
            masks.push(self.e.b.ins().icmp(IntCC::Equal, bits, own));
        }
        self.set_masks(predicate, masks);
    }

    /// A place's values go to the warp.
    pub(super) fn store_all(&mut self, place: Place) {
        let count = self.e.kinds.len();
        let flags = self.e.own_flags();
        let Some(predicate) = place.checked_sub(count) else {
            let src = Src::register(u32::try_from(place).unwrap_or(0));
            let words = self.src(src, types::I64);
            let row = self.e.b.use_var(self.e.row);
            let start = self.e.row_offset(place);
            for (index, word) in words.into_iter().enumerate() {
                let offset = start + BYTES * i32::try_from(index).unwrap_or(0);
                self.e.b.ins().store(flags, word, row, offset);
            }
            return;
        };
        let of = Pred(u32::try_from(predicate).unwrap_or(0));
        let ones = self.ones();
        let bits = if self.patterns.differs(predicate) {
            let masks = self.masks_of(PredSrc { of, negated: false });
            let parts = masks.into_iter().enumerate().map(|(index, mask)| {
                let bits = self.e.b.ins().vhigh_bits(types::I32, mask);
                self.e.b.ins().ishl_imm_u(bits, 4 * i64::try_from(index).unwrap_or(0))
            });
            let parts: Vec<Value> = parts.collect();
            super::tree(parts, |x, y| self.e.b.ins().bor(x, y))
        } else {
            let value = self.e.predicate(PredSrc { of, negated: false });
            let value = self.e.b.ins().uextend(types::I32, value);
            let value = self.e.b.ins().ineg(value);
            self.e.b.ins().band_imm_u(value, ones)
        };
        let lane = self.e.b.use_var(self.e.lane);
        let bits = self.e.b.ins().ishl(bits, lane);
        let ours = self.e.b.ins().iconst(types::I32, ones);
        let ours = self.e.b.ins().ishl(ours, lane);
        let word = self.predicate_word(predicate);
        let others = self.e.b.ins().band_not(word, ours);
        let word = self.e.b.ins().bor(others, bits);
        let predicates = self.e.field(types::I64, super::Field::Predicates);
        self.e.b.ins().store(flags, word, predicates, super::super::emit::word_offset(predicate));
    }

    /// A bit for each lane of a gang.
    fn ones(&self) -> i64 {
        (1 << self.lanes) - 1
    }

    fn predicate_word(&mut self, predicate: usize) -> Value {
        let flags = self.e.own_flags();
        let predicates = self.e.field(types::I64, super::Field::Predicates);
        self.e.b.ins().load(types::I32, flags, predicates, super::super::emit::word_offset(predicate))
    }
}
