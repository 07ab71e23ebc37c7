//! Operations one by one.

mod named;

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, Type, Value, types};

use super::context::{Field, UNIFORM};
use super::emit::Emitter;
use super::sys;
use crate::alu::name::{Name, Relation};
use crate::alu::{Test, bits};
use crate::code::{Dst, Logic, Op, PredSrc, Special, Src};

/// The one NaN of single precision.
pub(super) const NAN: i64 = 0x7fff_ffff;

pub(super) fn float_type(bits: u8) -> Type {
    if bits == 64 { types::F64 } else { types::F32 }
}

/// The type that holds an integer of so many bits.
pub(super) fn integer_type(bits: u8) -> Type {
    if bits == 64 { types::I64 } else { types::I32 }
}

pub(super) fn integer_relation(relation: Relation, signed: bool) -> IntCC {
    match (relation, signed) {
        (Relation::Equal, _) => IntCC::Equal,
        (Relation::NotEqual, _) => IntCC::NotEqual,
        (Relation::Less, true) => IntCC::SignedLessThan,
        (Relation::Less, false) => IntCC::UnsignedLessThan,
        (Relation::LessEqual, true) => IntCC::SignedLessThanOrEqual,
        (Relation::LessEqual, false) => IntCC::UnsignedLessThanOrEqual,
        (Relation::Greater, true) => IntCC::SignedGreaterThan,
        (Relation::Greater, false) => IntCC::UnsignedGreaterThan,
        (Relation::GreaterEqual, true) => IntCC::SignedGreaterThanOrEqual,
        (Relation::GreaterEqual, false) => IntCC::UnsignedGreaterThanOrEqual,
    }
}

pub(super) fn float_relation(relation: Relation, unordered: bool) -> FloatCC {
    match (relation, unordered) {
        (Relation::Equal, false) => FloatCC::Equal,
        (Relation::Equal, true) => FloatCC::UnorderedOrEqual,
        (Relation::NotEqual, false) => FloatCC::OrderedNotEqual,
        (Relation::NotEqual, true) => FloatCC::NotEqual,
        (Relation::Less, false) => FloatCC::LessThan,
        (Relation::Less, true) => FloatCC::UnorderedOrLessThan,
        (Relation::LessEqual, false) => FloatCC::LessThanOrEqual,
        (Relation::LessEqual, true) => FloatCC::UnorderedOrLessThanOrEqual,
        (Relation::Greater, false) => FloatCC::GreaterThan,
        (Relation::Greater, true) => FloatCC::UnorderedOrGreaterThan,
        (Relation::GreaterEqual, false) => FloatCC::GreaterThanOrEqual,
        (Relation::GreaterEqual, true) => FloatCC::UnorderedOrGreaterThanOrEqual,
    }
}

impl Emitter<'_, '_> {
    /// An operation that lanes do by themselves.
    pub(super) fn op(&mut self, pc: usize, op: &Op) {
        match *op {
            Op::Nop => {}
            Op::Fence => {
                self.b.ins().fence();
            }
            Op::Unary { f, d, a } => self.unary(f, d, a),
            Op::Binary { f, d, a, b } => self.binary(f, d, a, b),
            Op::Ternary { f, d, a, b, c } => self.ternary(f, d, [a, b, c]),
            Op::Lop3 { table, d, a, b, c } => self.lop3(table, d, [a, b, c]),
            Op::Test { f, p, q, a, b, combine, c } => {
                let holds = self.test(f, a, b);
                let with = self.predicate(c);
                let value = self.logic(combine, holds, with);
                let fails = self.b.ins().bxor_imm_u(holds, 1);
                let other = self.logic(combine, fails, with);
                self.set_predicate(p, value);
                self.set_predicate(q, other);
            }
            Op::Set { f, truth, d, a, b, combine, c } => {
                let holds = self.test(f, a, b);
                let with = self.predicate(c);
                let holds = self.logic(combine, holds, with);
                let truth = self.b.ins().iconst(types::I32, i64::from(truth));
                let zero = self.b.ins().iconst(types::I32, 0);
                let value = self.b.ins().select(holds, truth, zero);
                self.set(d, value);
            }
            Op::Property { f, p, a } => {
                let a = self.src(a, types::I64);
                let value = self.call((f.one as usize).cast_signed(), &[a]);
                let value = self.b.ins().ireduce(types::I8, value);
                self.set_predicate(p, value);
            }
            Op::Logic { op, p, a, b } => {
                let (a, b) = (self.predicate(a), self.predicate(b));
                let value = self.logic(op, a, b);
                self.set_predicate(p, value);
            }
            Op::Select { d, a, b, c } => self.select(d, a, b, c),
            Op::Special { what, d } => match self.special(what) {
                Some(value) => self.set(d, value),
                None => self.fall_back(pc),
            },
            Op::Pack { bits, count, d, parts } => {
                let mut whole = self.b.ins().iconst(types::I64, 0);
                for (index, part) in (0..i64::from(count)).zip(parts) {
                    let part = self.src(part, types::I64);
                    let part = self.b.ins().ishl_imm_u(part, i64::from(bits) * index);
                    whole = self.b.ins().bor(whole, part);
                }
                self.set(d, whole);
            }
            Op::Unpack { bits, count, d, a } => {
                let whole = self.src(a, types::I64);
                for (index, d) in (0..i64::from(count)).zip(d) {
                    let part = self.b.ins().ushr_imm_u(whole, i64::from(bits) * index);
                    let part = self.low(part, bits);
                    self.set(d, part);
                }
            }
            Op::Load { shape, at, d } => self.load(pc, shape, at, d),
            Op::Store { shape, at, a } => self.store_to(pc, shape, at, a),
            Op::Atomic(atomic) => self.atomic(pc, atomic),
            Op::Convert { conversion, d, a } => {
                let conversion = &raw const self.kept.conversions[conversion as usize];
                let conversion = self.literal(conversion.expose_provenance() as u64, types::I64);
                let a = self.src(a, types::I64);
                let value = self.call((sys::convert as *const () as usize).cast_signed(), &[conversion, a]);
                self.set(d, value);
            }
            Op::Insert { wide, d, a, b, position, length } => self.insert(wide, d, [a, b, position, length]),
            Op::InRegion { region: _, p, a } => {
                let op = self.op_address(pc);
                let a = self.src(a, types::I64);
                let value = self.call((sys::in_region as *const () as usize).cast_signed(), &[op, a]);
                let value = self.b.ins().ireduce(types::I8, value);
                self.set_predicate(p, value);
            }
            Op::Carry { .. } | Op::Video { .. } | Op::Copy { .. } => self.fall_back(pc),
            // Where lanes go, or meet, is not for here.
            Op::Yield
            | Op::Branch { .. }
            | Op::Switch { .. }
            | Op::Exit
            | Op::Trap
            | Op::Barrier { .. }
            | Op::WarpBarrier { .. }
            | Op::Collective { .. }
            | Op::Matrix { .. }
            | Op::ActiveMask { .. } => {}
        }
    }

    /// `bfi`: the low bits of one number are put into another at a position.
    fn insert(&mut self, wide: bool, d: Dst, [a, b, position, length]: [Src; 4]) {
        let [position, length] = [position, length].map(|src| {
            let value = self.src(src, types::I64);
            self.low(value, 32)
        });
        let length = self.b.ins().ishl_imm_u(length, 32);
        let field = self.b.ins().bor(position, length);
        let (a, b) = (self.src(a, types::I64), self.src(b, types::I64));
        let function = if wide { bits::insert_64 } else { bits::insert_32 };
        let value = self.call((function as *const () as usize).cast_signed(), &[a, b, field]);
        self.set(d, value);
    }

    /// Where the operation itself lies, for functions that look at it.
    pub(super) fn op_address(&mut self, pc: usize) -> Value {
        let op = &raw const self.kept.code[pc].op;
        self.literal(op.expose_provenance() as u64, types::I64)
    }

    /// Calls a function on words.
    pub(super) fn call(&mut self, address: isize, arguments: &[Value]) -> Value {
        let address = i64::try_from(address).unwrap_or(0);
        let callee = self.b.ins().iconst(types::I64, address);
        let call = self.b.ins().call_indirect(self.calls[arguments.len()], callee, arguments);
        self.b.inst_results(call)[0]
    }

    /// The low bits of an integer.
    fn low(&mut self, value: Value, bits: u8) -> Value {
        let ty = self.b.func.dfg.value_type(value);
        if u32::from(bits) >= ty.bits() {
            return value;
        }
        self.b.ins().band_imm_u(value, (1 << bits) - 1)
    }

    /// An operand of so many bits as a signed number of the type that holds it.
    fn signed(&mut self, src: Src, bits: u8) -> Value {
        let value = self.src(src, integer_type(bits));
        self.extended(value, bits)
    }

    fn extended(&mut self, value: Value, bits: u8) -> Value {
        let ty = self.b.func.dfg.value_type(value);
        match bits {
            8 => {
                let low = self.b.ins().ireduce(types::I8, value);
                self.b.ins().sextend(ty, low)
            }
            16 => {
                let low = self.b.ins().ireduce(types::I16, value);
                self.b.ins().sextend(ty, low)
            }
            32 if ty == types::I64 => {
                let low = self.b.ins().ireduce(types::I32, value);
                self.b.ins().sextend(ty, low)
            }
            _ => value,
        }
    }

    fn operand(&mut self, src: Src, bits: u8, signed: bool) -> Value {
        if signed {
            return self.signed(src, bits);
        }
        let value = self.src(src, integer_type(bits));
        self.low(value, bits)
    }

    fn pair(&mut self, a: Src, b: Src, bits: u8) -> (Value, Value) {
        let ty = integer_type(bits);
        (self.src(a, ty), self.src(b, ty))
    }

    fn bitwise(&mut self, a: Src, b: Src, f: fn(&mut Self, Value, Value) -> Value) -> Value {
        let narrow = |s: &Self, src: Src| match (s.constant(src), src.register_number()) {
            (Some(word), _) => u32::try_from(word).is_ok(),
            (None, Some(index)) => s.kinds[index as usize].bits() == 32,
            (None, None) => false,
        };
        let ty = if narrow(self, a) && narrow(self, b) { types::I32 } else { types::I64 };
        let (a, b) = (self.src(a, ty), self.src(b, ty));
        f(self, a, b)
    }

    /// A product in twice the width.
    fn wide(&mut self, a: Src, b: Src, bits: u8, signed: bool) -> Value {
        if bits == 16 {
            let (a, b) = (self.operand(a, 16, signed), self.operand(b, 16, signed));
            return self.b.ins().imul(a, b);
        }
        let (a, b) = (self.src(a, types::I32), self.src(b, types::I32));
        let [a, b] = [a, b].map(|value| {
            if signed {
                self.b.ins().sextend(types::I64, value)
            } else {
                self.b.ins().uextend(types::I64, value)
            }
        });
        self.b.ins().imul(a, b)
    }

    /// A shift that brings in zeros, of which amounts beyond the width leave nothing.
    fn shift(
        &mut self,
        value: Value,
        by: Src,
        bits: u8,
        f: impl Fn(&mut Self, Value, Value) -> Value,
    ) -> Value {
        let known = self.constant(by);
        let by = self.src(by, types::I32);
        let ty = self.b.func.dfg.value_type(value);
        match known {
            Some(amount) if amount & 0xffff_ffff < u64::from(bits) => f(self, value, by),
            Some(_) => self.b.ins().iconst(ty, 0),
            None => {
                let shifted = f(self, value, by);
                let inside = self.b.ins().icmp_imm_u(IntCC::UnsignedLessThan, by, i64::from(bits));
                let zero = self.b.ins().iconst(ty, 0);
                self.b.ins().select(inside, shifted, zero)
            }
        }
    }

    fn lop3(&mut self, table: u8, d: Dst, sources: [Src; 3]) {
        let [a, b, c] = sources.map(|src| self.src(src, types::I32));
        let value = if table == 0xea {
            let both = self.b.ins().band(a, b);
            self.b.ins().bor(both, c)
        } else {
            let mut all = self.b.ins().iconst(types::I32, 0);
            for bit in (0..8u8).filter(|bit| table >> bit & 1 == 1) {
                let [x, y, z] = [(a, 4), (b, 2), (c, 1)]
                    .map(|(value, place)| if bit & place == 0 { self.b.ins().bnot(value) } else { value });
                let term = self.b.ins().band(x, y);
                let term = self.b.ins().band(term, z);
                all = self.b.ins().bor(all, term);
            }
            all
        };
        self.set(d, value);
    }

    fn select(&mut self, d: Dst, a: Src, b: Src, c: PredSrc) {
        if d == Dst::SINK {
            return;
        }
        let ty = self.kinds[d.0 as usize];
        let (a, b) = (self.src(a, ty), self.src(b, ty));
        let c = self.predicate(c);
        let value = self.b.ins().select(c, a, b);
        self.set(d, value);
    }

    /// One or zero.
    fn test(&mut self, f: Test, a: Src, b: Src) -> Value {
        match f.name {
            Some(Name::Integers { relation, bits, signed }) => {
                let order = !matches!(relation, Relation::Equal | Relation::NotEqual);
                let signed = signed && order;
                let (a, b) = (self.operand(a, bits, signed), self.operand(b, bits, signed));
                self.b.ins().icmp(integer_relation(relation, signed), a, b)
            }
            Some(Name::Floats { relation, bits, unordered }) => {
                let ty = float_type(bits);
                let (a, b) = (self.src(a, ty), self.src(b, ty));
                self.b.ins().fcmp(float_relation(relation, unordered), a, b)
            }
            _ => {
                let (a, b) = (self.src(a, types::I64), self.src(b, types::I64));
                let value = self.call((f.one as usize).cast_signed(), &[a, b]);
                self.b.ins().ireduce(types::I8, value)
            }
        }
    }

    fn logic(&mut self, op: Logic, a: Value, b: Value) -> Value {
        match op {
            Logic::And => self.b.ins().band(a, b),
            Logic::Or => self.b.ins().bor(a, b),
            Logic::Xor => self.b.ins().bxor(a, b),
        }
    }

    /// An operand in floating point.
    fn float(&mut self, src: Src, ty: Type, flush: bool) -> Value {
        let value = self.src(src, ty);
        if flush { self.flushed(value) } else { value }
    }

    /// A subnormal number becomes a zero of its sign.
    fn flushed(&mut self, value: Value) -> Value {
        let bits = self.b.ins().bitcast(types::I32, MemFlagsData::new(), value);
        let exponent = self.b.ins().band_imm_u(bits, 0x7f80_0000);
        let sign = self.b.ins().band_imm_u(bits, 0x8000_0000);
        let bits = self.b.ins().select(exponent, bits, sign);
        self.b.ins().bitcast(types::F32, MemFlagsData::new(), bits)
    }

    fn one_nan(&mut self, value: Value) -> Value {
        let nan = self.b.ins().fcmp(FloatCC::Unordered, value, value);
        let one = self.b.ins().iconst(types::I32, NAN);
        let one = self.b.ins().bitcast(types::F32, MemFlagsData::new(), one);
        self.b.ins().select(nan, one, value)
    }

    /// A result of single precision, as PTX has it.
    fn finished(&mut self, value: Value, flush: bool) -> Value {
        let value = self.one_nan(value);
        if flush { self.flushed(value) } else { value }
    }

    /// A special register; `None` for those that somebody else has to look up.
    fn special(&mut self, what: Special) -> Option<Value> {
        if let Some(index) = UNIFORM.iter().position(|known| *known == what) {
            return Some(self.field(types::I64, Field::Uniform(index)));
        }
        let lane = self.b.use_var(self.lane);
        Some(match what {
            Special::Thread(axis) => {
                let threads = self.field(types::I64, Field::Threads);
                let lane = self.b.ins().uextend(types::I64, lane);
                let offset = self.b.ins().ishl_imm_u(lane, 3);
                let at = self.b.ins().iadd(threads, offset);
                let flags = self.own_flags();
                self.b.ins().load(types::I64, flags, at, i32::try_from(axis * 256).unwrap_or(0))
            }
            Special::Lane => lane,
            Special::LaneEqual => {
                let one = self.b.ins().iconst(types::I32, 1);
                self.b.ins().ishl(one, lane)
            }
            Special::LanesBelow => {
                let all = self.b.ins().iconst(types::I32, 0xffff_ffff);
                let from = self.b.ins().ishl(all, lane);
                self.b.ins().bnot(from)
            }
            Special::LanesFrom => {
                let all = self.b.ins().iconst(types::I32, 0xffff_ffff);
                self.b.ins().ishl(all, lane)
            }
            Special::Fixed(value) => self.b.ins().iconst(types::I32, i64::from(value)),
            _ => return None,
        })
    }
}

fn sign_of(ty: Type) -> i64 {
    if ty == types::I64 { i64::MIN } else { 0x8000_0000 }
}

/// Whether the processor multiplies and adds in one instruction; else the function is called.
pub(super) fn fuses() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    return cfg!(target_arch = "aarch64");
}
