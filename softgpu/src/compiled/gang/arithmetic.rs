//! Operations in vectors. They compute what those for one lane do, which `tests/engines.rs` compares.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Type, Value, types};

use super::super::ops::{NAN, float_relation, float_type, fuses, integer_relation, integer_type};
use super::super::patterns::Pattern;
use super::Gang;
use super::vectors::of;
use crate::alu::name::{Arithmetic, Name, Relation};
use crate::alu::{Binary, Ternary, Test, Unary};
use crate::code::{Dst, Logic, Op, Pred, Src};

type Values = Vec<Value>;

/// Which of two numbers is looked for.
#[derive(Debug, Clone, Copy)]
enum Extreme {
    Least,
    Most,
}

impl Gang<'_, '_> {
    /// Does an operation in vectors; says whether it is one of those that it knows.
    pub(super) fn in_vectors(&mut self, op: &Op) -> bool {
        match *op {
            Op::Unary { f, d, a } => self.unary(f, d, a),
            Op::Binary { f, d, a, b } => self.binary(f, d, a, b),
            Op::Ternary { f, d, a, b, c } => self.ternary(f, d, [a, b, c]),
            Op::Lop3 { table, d, a, b, c } => {
                let values = self.lop3(table, [a, b, c]);
                self.set(d, values, types::I32);
                true
            }
            Op::Test { f, p, q, a, b, combine, c } => {
                let Some(holds) = self.test(f, a, b) else { return false };
                let with = self.masks_of(c);
                let fails = self.each_of(&holds, |s, holds| s.e.b.ins().bnot(holds));
                let value = self.logic(combine, &holds, &with);
                let other = self.logic(combine, &fails, &with);
                self.give(p, value);
                self.give(q, other);
                true
            }
            Op::Set { f, truth, d, a, b, combine, c } => {
                let Some(holds) = self.test(f, a, b) else { return false };
                let with = self.masks_of(c);
                let holds = self.logic(combine, &holds, &with);
                let truth = self.e.b.ins().iconst(types::I32, i64::from(truth));
                let truth = self.splat(truth, types::I32);
                let values = self.pairs(&holds, &truth, |s, x, y| s.e.b.ins().band(x, y));
                self.set(d, values, types::I32);
                true
            }
            Op::Logic { op, p, a, b } => {
                let (a, b) = (self.masks_of(a), self.masks_of(b));
                let value = self.logic(op, &a, &b);
                self.give(p, value);
                true
            }
            Op::Select { d, a, b, c } => {
                if d != Dst::SINK {
                    let kind = self.e.kinds[d.0 as usize];
                    let (a, b) = (self.src(a, kind), self.src(b, kind));
                    let masks = self.masks_of(c);
                    let values = self.select(&masks, a, b, kind);
                    self.set(d, values, kind);
                }
                true
            }
            Op::Pack { bits: 32, count: 2, d, parts: [low, high, ..] } => {
                let (low, high) = (self.src(low, types::I64), self.src(high, types::I64));
                let high = self.each_of(&high, |s, high| s.e.b.ins().ishl_imm_u(high, 32));
                let values = self.pairs(&low, &high, |s, x, y| s.e.b.ins().bor(x, y));
                self.set(d, values, types::I64);
                true
            }
            Op::Unpack { bits: 32, count: 2, d: [low, high, ..], a } => {
                let whole = self.src(a, types::I64);
                let above = self.each_of(&whole, |s, whole| s.e.b.ins().ushr_imm_u(whole, 32));
                let below = self.low_halves(whole);
                let above = self.low_halves(above);
                self.set(low, below, types::I32);
                self.set(high, above, types::I32);
                true
            }
            _ => false,
        }
    }

    fn give(&mut self, p: Pred, masks: Values) {
        self.set_masks(p.0 as usize, masks);
    }

    /// The same for each vector.
    fn each_of(&mut self, values: &[Value], mut f: impl FnMut(&mut Self, Value) -> Value) -> Values {
        values.iter().map(|value| f(self, *value)).collect()
    }

    /// The same for each pair of vectors.
    fn pairs(
        &mut self,
        a: &[Value],
        b: &[Value],
        mut f: impl FnMut(&mut Self, Value, Value) -> Value,
    ) -> Values {
        a.iter().zip(b).map(|(a, b)| f(self, *a, *b)).collect()
    }

    fn word(&mut self, word: u64, kind: Type) -> Values {
        let value = self.e.literal(word, kind);
        self.splat(value, kind)
    }

    /// The low bits of integers.
    fn low(&mut self, values: Values, ty: Type, bits: u8) -> Values {
        if u32::from(bits) >= ty.bits() {
            return values;
        }
        let ones = self.word((1 << bits) - 1, ty);
        self.pairs(&values, &ones, |s, value, ones| s.e.b.ins().band(value, ones))
    }

    /// Signed numbers of so many bits in the type that holds them.
    fn extended(&mut self, values: Values, ty: Type, bits: u8) -> Values {
        if u32::from(bits) >= ty.bits() {
            return values;
        }
        if ty == types::I64 && bits == 32 {
            let low = self.low_halves(values);
            return self.widened(&low, true);
        }
        if ty == types::I64 {
            let low = self.low_halves(values);
            let low = self.extended(low, types::I32, bits);
            return self.widened(&low, true);
        }
        let by = 32 - i64::from(bits);
        self.each_of(&values, |s, value| {
            let value = s.e.b.ins().ishl_imm_u(value, by);
            s.e.b.ins().sshr_imm_u(value, by)
        })
    }

    fn operand(&mut self, src: Src, bits: u8, signed: bool) -> Values {
        let ty = integer_type(bits);
        let values = self.src(src, ty);
        if signed { self.extended(values, ty, bits) } else { self.low(values, ty, bits) }
    }

    fn unary(&mut self, f: Unary, d: Dst, a: Src) -> bool {
        if d == Dst::SINK {
            return true;
        }
        let Some((values, ty)) = f.name.and_then(|name| self.named_unary(name, d, a)) else { return false };
        self.set(d, values, ty);
        true
    }

    fn named_unary(&mut self, name: Name, d: Dst, a: Src) -> Option<(Values, Type)> {
        Some(match name {
            Name::Copy => {
                let ty = self.e.kinds[d.0 as usize];
                (self.src(a, ty), ty)
            }
            Name::Extend { from, signed, to } => {
                let ty = integer_type(from.max(to));
                let values = self.src(a, ty);
                let values =
                    if signed { self.extended(values, ty, from) } else { self.low(values, ty, from) };
                (self.low(values, ty, to), ty)
            }
            Name::Not(bits) => {
                let ty = integer_type(bits);
                let values = self.src(a, ty);
                let values = self.each_of(&values, |s, value| s.e.b.ins().bnot(value));
                (self.low(values, ty, bits), ty)
            }
            Name::Negate(bits) => {
                let ty = integer_type(bits);
                let values = self.src(a, ty);
                let values = self.each_of(&values, |s, value| s.e.b.ins().ineg(value));
                (self.low(values, ty, bits), ty)
            }
            Name::Magnitude(bits) => {
                let ty = integer_type(bits);
                let values = self.operand(a, bits, true);
                let values = self.each_of(&values, |s, value| s.e.b.ins().iabs(value));
                (self.low(values, ty, bits), ty)
            }
            Name::Float { what, bits, flush } => {
                let ty = float_type(bits);
                let values = self.float(a, ty, flush);
                let values = match what {
                    Arithmetic::Root => self.each_of(&values, |s, value| s.e.b.ins().sqrt(value)),
                    Arithmetic::Reciprocal => {
                        let one = if bits == 64 { 1f64.to_bits() } else { u64::from(1f32.to_bits()) };
                        let one = self.word(one, ty);
                        self.pairs(&one, &values, |s, one, value| s.e.b.ins().fdiv(one, value))
                    }
                    _ => return None,
                };
                (self.finished(values, bits, flush), ty)
            }
            Name::FloatNegate(bits) => {
                let ty = integer_type(bits);
                let sign = self.word(1 << (bits - 1), ty);
                let values = self.src(a, ty);
                (self.pairs(&values, &sign, |s, value, sign| s.e.b.ins().bxor(value, sign)), ty)
            }
            Name::FloatMagnitude(bits) => {
                let ty = integer_type(bits);
                let sign = self.word((1 << (bits - 1)) - 1, ty);
                let values = self.src(a, ty);
                (self.pairs(&values, &sign, |s, value, sign| s.e.b.ins().band(value, sign)), ty)
            }
            Name::Saturate => {
                let values = self.src(a, types::F32);
                let [zero, one] = [0, 1f32.to_bits()].map(|word| self.word(word.into(), types::F32));
                let less = self.pairs(&values, &one, |s, x, y| s.e.b.ins().fcmp(FloatCC::LessThan, x, y));
                let more = self.pairs(&values, &zero, |s, x, y| s.e.b.ins().fcmp(FloatCC::GreaterThan, x, y));
                let [less, more] = [less, more].map(|masks| self.cast(masks, types::I32X4));
                let values = self.select(&less, values, one, types::F32);
                (self.select(&more, values, zero, types::F32), types::F32)
            }
            Name::FromInteger { bits: 32, signed, to: 32 } => {
                let values = self.src(a, types::I32);
                let values = self.each_of(&values, |s, value| {
                    let ins = s.e.b.ins();
                    if signed {
                        ins.fcvt_from_sint(types::F32X4, value)
                    } else {
                        ins.fcvt_from_uint(types::F32X4, value)
                    }
                });
                (values, types::F32)
            }
            Name::ToInteger { signed } => {
                let values = self.src(a, types::F32);
                let values = self.each_of(&values, |s, value| {
                    let ins = s.e.b.ins();
                    if signed {
                        ins.fcvt_to_sint_sat(types::I32X4, value)
                    } else {
                        ins.fcvt_to_uint_sat(types::I32X4, value)
                    }
                });
                (values, types::I32)
            }
            _ => return None,
        })
    }

    fn binary(&mut self, f: Binary, d: Dst, a: Src, b: Src) -> bool {
        let Some((values, ty)) = f.name.and_then(|name| self.named_binary(name, d, a, b)) else {
            return false;
        };
        self.set(d, values, ty);
        true
    }

    fn named_binary(&mut self, name: Name, d: Dst, a: Src, b: Src) -> Option<(Values, Type)> {
        Some(match name {
            Name::Add(bits) => self.whole(a, b, bits, |s, a, b| s.e.b.ins().iadd(a, b)),
            Name::Subtract(bits) => self.whole(a, b, bits, |s, a, b| s.e.b.ins().isub(a, b)),
            Name::Multiply(bits) => self.whole(a, b, bits, |s, a, b| s.e.b.ins().imul(a, b)),
            Name::MultiplyWide { bits, signed } => self.wide(a, b, bits, signed),
            Name::And => self.bitwise(d, a, b, |s, a, b| s.e.b.ins().band(a, b)),
            Name::Or => self.bitwise(d, a, b, |s, a, b| s.e.b.ins().bor(a, b)),
            Name::Xor => self.bitwise(d, a, b, |s, a, b| s.e.b.ins().bxor(a, b)),
            Name::ShiftLeft(bits) => {
                let ty = integer_type(bits);
                let values = self.src(a, ty);
                let values = self.shift(values, ty, b, bits, |s, value, by| s.e.b.ins().ishl(value, by))?;
                (self.low(values, ty, bits), ty)
            }
            Name::ShiftRight { bits, signed: false } => {
                let ty = integer_type(bits);
                let values = self.operand(a, bits, false);
                (self.shift(values, ty, b, bits, |s, value, by| s.e.b.ins().ushr(value, by))?, ty)
            }
            Name::ShiftRight { bits, signed: true } => {
                if self.patterns.src(b) != Pattern::Even(0) {
                    return None;
                }
                let ty = integer_type(bits);
                let values = self.operand(a, bits, true);
                let by = self.e.src(b, types::I32);
                let most = self.e.b.ins().iconst(types::I32, i64::from(bits) - 1);
                let by = self.e.b.ins().umin(by, most);
                let values = self.each_of(&values, |s, value| s.e.b.ins().sshr(value, by));
                (self.low(values, ty, bits), ty)
            }
            Name::Minimum { bits, signed } => self.extreme(a, b, bits, signed, Extreme::Least),
            Name::Maximum { bits, signed } => self.extreme(a, b, bits, signed, Extreme::Most),
            Name::Float { what, bits, flush } => {
                let ty = float_type(bits);
                let (x, y) = (self.float(a, ty, flush), self.float(b, ty, flush));
                let values = match what {
                    Arithmetic::Add => self.pairs(&x, &y, |s, x, y| s.e.b.ins().fadd(x, y)),
                    Arithmetic::Subtract => self.pairs(&x, &y, |s, x, y| s.e.b.ins().fsub(x, y)),
                    Arithmetic::Multiply => self.pairs(&x, &y, |s, x, y| s.e.b.ins().fmul(x, y)),
                    Arithmetic::Divide => self.pairs(&x, &y, |s, x, y| s.e.b.ins().fdiv(x, y)),
                    Arithmetic::Fused | Arithmetic::Root | Arithmetic::Reciprocal => return None,
                };
                (self.finished(values, bits, flush), ty)
            }
            _ => return None,
        })
    }

    fn ternary(&mut self, f: Ternary, d: Dst, sources: [Src; 3]) -> bool {
        if d == Dst::SINK {
            return true;
        }
        let Some((values, ty)) = f.name.and_then(|name| self.named_ternary(name, d, sources)) else {
            return false;
        };
        self.set(d, values, ty);
        true
    }

    fn named_ternary(&mut self, name: Name, d: Dst, [a, b, c]: [Src; 3]) -> Option<(Values, Type)> {
        Some(match name {
            Name::MultiplyAdd(bits) => {
                let ty = integer_type(bits);
                let (a, b, c) = (self.src(a, ty), self.src(b, ty), self.src(c, ty));
                let values = self.pairs(&a, &b, |s, a, b| s.e.b.ins().imul(a, b));
                let values = self.pairs(&values, &c, |s, value, c| s.e.b.ins().iadd(value, c));
                (self.low(values, ty, bits), ty)
            }
            Name::MultiplyAddWide { bits, signed } => {
                let (values, ty) = self.wide(a, b, bits, signed);
                let c = self.src(c, ty);
                (self.pairs(&values, &c, |s, value, c| s.e.b.ins().iadd(value, c)), ty)
            }
            Name::SelectBySign => {
                let ty = self.e.kinds[d.0 as usize];
                let (a, b) = (self.src(a, ty), self.src(b, ty));
                let c = self.src(c, types::I32);
                let zero = self.word(0, types::I32);
                let keeps = self.pairs(&c, &zero, |s, c, zero| {
                    s.e.b.ins().icmp(IntCC::SignedGreaterThanOrEqual, c, zero)
                });
                (self.select(&keeps, a, b, ty), ty)
            }
            Name::Float { what: Arithmetic::Fused, bits, flush } if fuses() => {
                let ty = float_type(bits);
                let [x, y, z] = [a, b, c].map(|src| self.float(src, ty, flush));
                let mut z = z.into_iter();
                let values = self.pairs(&x, &y, |s, x, y| match z.next() {
                    Some(z) => s.e.b.ins().fma(x, y, z),
                    None => x,
                });
                (self.finished(values, bits, flush), ty)
            }
            _ => return None,
        })
    }

    fn whole(&mut self, a: Src, b: Src, bits: u8, f: fn(&mut Self, Value, Value) -> Value) -> (Values, Type) {
        let ty = integer_type(bits);
        let (a, b) = (self.src(a, ty), self.src(b, ty));
        let values = self.pairs(&a, &b, f);
        (self.low(values, ty, bits), ty)
    }

    /// In the width of the result: both operands are as wide, or zero above.
    fn bitwise(&mut self, d: Dst, a: Src, b: Src, f: fn(&mut Self, Value, Value) -> Value) -> (Values, Type) {
        let ty = self.e.kinds[d.0 as usize].as_int();
        let (a, b) = (self.src(a, ty), self.src(b, ty));
        (self.pairs(&a, &b, f), ty)
    }

    /// A product in twice the width.
    fn wide(&mut self, a: Src, b: Src, bits: u8, signed: bool) -> (Values, Type) {
        if bits == 16 {
            let (a, b) = (self.operand(a, 16, signed), self.operand(b, 16, signed));
            return (self.pairs(&a, &b, |s, a, b| s.e.b.ins().imul(a, b)), types::I32);
        }
        let (a, b) = (self.src(a, types::I32), self.src(b, types::I32));
        let (a, b) = (self.widened(&a, signed), self.widened(&b, signed));
        (self.pairs(&a, &b, |s, a, b| s.e.b.ins().imul(a, b)), types::I64)
    }

    /// A shift that brings in zeros, of which amounts beyond the width leave nothing; `None` where lanes
    /// shift by different amounts.
    fn shift(
        &mut self,
        values: Values,
        ty: Type,
        by: Src,
        bits: u8,
        f: impl Fn(&mut Self, Value, Value) -> Value,
    ) -> Option<Values> {
        if self.patterns.src(by) != Pattern::Even(0) {
            return None;
        }
        let known = self.e.constant(by);
        let by = self.e.src(by, types::I32);
        let shifted = |s: &mut Self| s.each_of(&values, |s, value| f(s, value, by));
        Some(match known {
            Some(amount) if amount & 0xffff_ffff < u64::from(bits) => shifted(self),
            Some(_) => self.word(0, ty),
            None => {
                let values = shifted(self);
                let inside = self.e.b.ins().icmp_imm_u(IntCC::UnsignedLessThan, by, i64::from(bits));
                let masks = self.mask_of_one(inside);
                let zero = self.word(0, ty);
                self.select(&masks, values, zero, ty)
            }
        })
    }

    fn extreme(&mut self, a: Src, b: Src, bits: u8, signed: bool, extreme: Extreme) -> (Values, Type) {
        let ty = integer_type(bits);
        let (a, b) = (self.operand(a, bits, signed), self.operand(b, bits, signed));
        let values = if ty == types::I64 {
            let order = if signed { IntCC::SignedLessThan } else { IntCC::UnsignedLessThan };
            self.pairs(&a, &b, |s, a, b| {
                let less = s.e.b.ins().icmp(order, a, b);
                match extreme {
                    Extreme::Least => s.e.b.ins().bitselect(less, a, b),
                    Extreme::Most => s.e.b.ins().bitselect(less, b, a),
                }
            })
        } else {
            self.pairs(&a, &b, |s, a, b| match (signed, extreme) {
                (true, Extreme::Least) => s.e.b.ins().smin(a, b),
                (true, Extreme::Most) => s.e.b.ins().smax(a, b),
                (false, Extreme::Least) => s.e.b.ins().umin(a, b),
                (false, Extreme::Most) => s.e.b.ins().umax(a, b),
            })
        };
        (self.low(values, ty, bits), ty)
    }

    fn lop3(&mut self, table: u8, sources: [Src; 3]) -> Values {
        let [a, b, c] = sources.map(|src| self.src(src, types::I32));
        let mut all = self.word(0, types::I32);
        for bit in (0..8u8).filter(|bit| table >> bit & 1 == 1) {
            let [x, y, z] = [(&a, 4), (&b, 2), (&c, 1)].map(|(values, place)| {
                if bit & place == 0 {
                    self.each_of(values, |s, value| s.e.b.ins().bnot(value))
                } else {
                    values.clone()
                }
            });
            let term = self.pairs(&x, &y, |s, x, y| s.e.b.ins().band(x, y));
            let term = self.pairs(&term, &z, |s, x, y| s.e.b.ins().band(x, y));
            all = self.pairs(&all, &term, |s, x, y| s.e.b.ins().bor(x, y));
        }
        all
    }

    fn logic(&mut self, op: Logic, a: &[Value], b: &[Value]) -> Values {
        self.pairs(a, b, |s, a, b| match op {
            Logic::And => s.e.b.ins().band(a, b),
            Logic::Or => s.e.b.ins().bor(a, b),
            Logic::Xor => s.e.b.ins().bxor(a, b),
        })
    }

    /// Masks of the lanes for which a comparison holds.
    fn test(&mut self, f: Test, a: Src, b: Src) -> Option<Values> {
        let (holds, ty) = match f.name? {
            Name::Integers { relation, bits, signed } => {
                let order = !matches!(relation, Relation::Equal | Relation::NotEqual);
                let signed = signed && order;
                let (a, b) = (self.operand(a, bits, signed), self.operand(b, bits, signed));
                let relation = integer_relation(relation, signed);
                (self.pairs(&a, &b, |s, a, b| s.e.b.ins().icmp(relation, a, b)), integer_type(bits))
            }
            Name::Floats { relation, bits, unordered } => {
                let ty = float_type(bits);
                let (a, b) = (self.src(a, ty), self.src(b, ty));
                let holds = self.pairs(&a, &b, |s, a, b| s.compared(relation, unordered, a, b));
                (self.cast(holds, of(ty.as_int())), ty.as_int())
            }
            _ => return None,
        };
        Some(if ty == types::I64 { self.low_halves(holds) } else { holds })
    }

    /// Two of the relations the processor knows as two.
    fn compared(&mut self, relation: Relation, unordered: bool, a: Value, b: Value) -> Value {
        let ins = |s: &mut Self, relation| s.e.b.ins().fcmp(relation, a, b);
        match float_relation(relation, unordered) {
            FloatCC::UnorderedOrEqual => {
                let (either, none) = (ins(self, FloatCC::Equal), ins(self, FloatCC::Unordered));
                self.e.b.ins().bor(either, none)
            }
            FloatCC::OrderedNotEqual => {
                let (either, both) = (ins(self, FloatCC::NotEqual), ins(self, FloatCC::Ordered));
                self.e.b.ins().band(either, both)
            }
            known => ins(self, known),
        }
    }

    /// An operand in floating point.
    fn float(&mut self, src: Src, ty: Type, flush: bool) -> Values {
        let values = self.src(src, ty);
        if flush { self.flushed(values) } else { values }
    }

    /// Subnormal numbers become zeros of their signs.
    fn flushed(&mut self, values: Values) -> Values {
        let bits = self.cast(values, types::I32X4);
        let [exponent, sign, zero] = [0x7f80_0000, 0x8000_0000, 0].map(|word| self.word(word, types::I32));
        let exponents = self.pairs(&bits, &exponent, |s, bits, ones| s.e.b.ins().band(bits, ones));
        let small = self.pairs(&exponents, &zero, |s, bits, zero| s.e.b.ins().icmp(IntCC::Equal, bits, zero));
        let signs = self.pairs(&bits, &sign, |s, bits, sign| s.e.b.ins().band(bits, sign));
        let values = self.select(&small, signs, bits, types::I32);
        self.cast(values, types::F32X4)
    }

    /// Results as PTX has them: single precision has one NaN.
    fn finished(&mut self, values: Values, bits: u8, flush: bool) -> Values {
        if bits == 64 {
            return values;
        }
        let one = self.word(NAN.cast_unsigned(), types::F32);
        let values = self.pairs(&values, &one, |s, value, one| {
            let none = s.e.b.ins().fcmp(FloatCC::Unordered, value, value);
            let none = s.cast_one(none, types::F32X4);
            s.e.b.ins().bitselect(none, one, value)
        });
        if flush { self.flushed(values) } else { values }
    }
}
