//! Operations that have instructions of the processor.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::immediates::{Ieee32, Ieee64};
use cranelift_codegen::ir::{InstBuilder as _, Value, types};

use super::super::emit::Emitter;
use super::{float_type, fuses, integer_type, sign_of};
use crate::alu::name::{Arithmetic, Name};
use crate::alu::{Binary, Ternary, Unary};
use crate::code::{Dst, Src};

impl Emitter<'_, '_> {
    pub(super) fn unary(&mut self, f: Unary, d: Dst, a: Src) {
        let value = f.name.and_then(|name| self.named_unary(name, d, a));
        let value = value.unwrap_or_else(|| {
            let a = self.src(a, types::I64);
            self.call((f.one as usize).cast_signed(), &[a])
        });
        self.set(d, value);
    }

    fn named_unary(&mut self, name: Name, d: Dst, a: Src) -> Option<Value> {
        Some(match name {
            Name::Copy => {
                let ty = self.kinds[d.0 as usize];
                self.src(a, ty)
            }
            Name::Extend { from, signed, to } => {
                let ty = integer_type(from.max(to));
                let value = self.src(a, ty);
                let value = if signed { self.extended(value, from) } else { self.low(value, from) };
                self.low(value, to)
            }
            Name::Not(bits) => {
                let a = self.src(a, integer_type(bits));
                let value = self.b.ins().bnot(a);
                self.low(value, bits)
            }
            Name::Negate(bits) => {
                let a = self.src(a, integer_type(bits));
                let value = self.b.ins().ineg(a);
                self.low(value, bits)
            }
            Name::Magnitude(bits) => {
                let a = self.signed(a, bits);
                let value = self.b.ins().iabs(a);
                self.low(value, bits)
            }
            Name::CountOnes(bits) => {
                let a = self.src(a, integer_type(bits));
                self.b.ins().popcnt(a)
            }
            Name::LeadingZeros(bits) => {
                let a = self.src(a, integer_type(bits));
                self.b.ins().clz(a)
            }
            Name::Reverse(bits) => {
                let a = self.src(a, integer_type(bits));
                self.b.ins().bitrev(a)
            }
            Name::Float { what, bits, flush } => {
                let ty = float_type(bits);
                let a = self.float(a, ty, flush);
                let result = match what {
                    Arithmetic::Root => self.b.ins().sqrt(a),
                    Arithmetic::Reciprocal => {
                        let one = match bits {
                            64 => self.b.ins().f64const(Ieee64::with_float(1.0)),
                            _ => self.b.ins().f32const(Ieee32::with_float(1.0)),
                        };
                        self.b.ins().fdiv(one, a)
                    }
                    _ => return None,
                };
                if bits == 64 { result } else { self.finished(result, flush) }
            }
            Name::FloatNegate(bits) => {
                let ty = integer_type(bits);
                let a = self.src(a, ty);
                let sign = self.b.ins().iconst(ty, sign_of(ty));
                self.b.ins().bxor(a, sign)
            }
            Name::FloatMagnitude(bits) => {
                let ty = integer_type(bits);
                let a = self.src(a, ty);
                let sign = self.b.ins().iconst(ty, sign_of(ty));
                self.b.ins().band_not(a, sign)
            }
            Name::FromInteger { bits, signed, to } => {
                let a = self.src(a, integer_type(bits));
                let ty = float_type(to);
                if signed { self.b.ins().fcvt_from_sint(ty, a) } else { self.b.ins().fcvt_from_uint(ty, a) }
            }
            Name::ToInteger { signed } => {
                let a = self.src(a, types::F32);
                if signed {
                    self.b.ins().fcvt_to_sint_sat(types::I32, a)
                } else {
                    self.b.ins().fcvt_to_uint_sat(types::I32, a)
                }
            }
            Name::Saturate => {
                let a = self.src(a, types::F32);
                let [zero, one] = [0, 1f32.to_bits()].map(|word| self.literal(word.into(), types::F32));
                let less = self.b.ins().fcmp(FloatCC::LessThan, a, one);
                let value = self.b.ins().select(less, a, one);
                let more = self.b.ins().fcmp(FloatCC::GreaterThan, a, zero);
                self.b.ins().select(more, value, zero)
            }
            Name::Widen => {
                let a = self.src(a, types::F32);
                self.b.ins().fpromote(types::F64, a)
            }
            Name::Narrow => {
                let a = self.src(a, types::F64);
                let value = self.b.ins().fdemote(types::F32, a);
                self.one_nan(value)
            }
            _ => return None,
        })
    }

    pub(super) fn binary(&mut self, f: Binary, d: Dst, a: Src, b: Src) {
        let value = f.name.and_then(|name| self.named_binary(name, a, b));
        let value = value.unwrap_or_else(|| {
            let (a, b) = (self.src(a, types::I64), self.src(b, types::I64));
            self.call((f.one as usize).cast_signed(), &[a, b])
        });
        self.set(d, value);
    }

    fn named_binary(&mut self, name: Name, a: Src, b: Src) -> Option<Value> {
        Some(match name {
            Name::Add(bits) => {
                let (a, b) = self.pair(a, b, bits);
                let value = self.b.ins().iadd(a, b);
                self.low(value, bits)
            }
            Name::Subtract(bits) => {
                let (a, b) = self.pair(a, b, bits);
                let value = self.b.ins().isub(a, b);
                self.low(value, bits)
            }
            Name::Multiply(bits) => {
                let (a, b) = self.pair(a, b, bits);
                let value = self.b.ins().imul(a, b);
                self.low(value, bits)
            }
            Name::MultiplyWide { bits, signed } => self.wide(a, b, bits, signed),
            Name::MultiplyHigh { bits: 32, signed } => {
                let value = self.wide(a, b, 32, signed);
                self.b.ins().ushr_imm_u(value, 32)
            }
            Name::MultiplyHigh { bits: _, signed } => {
                let (a, b) = self.pair(a, b, 64);
                if signed { self.b.ins().smulhi(a, b) } else { self.b.ins().umulhi(a, b) }
            }
            // What is narrower than its register is zero above: one width serves all.
            Name::And => self.bitwise(a, b, |s, a, b| s.b.ins().band(a, b)),
            Name::Or => self.bitwise(a, b, |s, a, b| s.b.ins().bor(a, b)),
            Name::Xor => self.bitwise(a, b, |s, a, b| s.b.ins().bxor(a, b)),
            Name::ShiftLeft(bits) => {
                let value = self.src(a, integer_type(bits));
                let value = self.shift(value, b, bits, |s, value, by| s.b.ins().ishl(value, by));
                self.low(value, bits)
            }
            Name::ShiftRight { bits, signed: false } => {
                let value = self.operand(a, bits, false);
                self.shift(value, b, bits, |s, value, by| s.b.ins().ushr(value, by))
            }
            Name::ShiftRight { bits, signed: true } => {
                let value = self.signed(a, bits);
                let by = self.src(b, types::I32);
                let most = self.b.ins().iconst(types::I32, i64::from(bits) - 1);
                let by = self.b.ins().umin(by, most);
                let value = self.b.ins().sshr(value, by);
                self.low(value, bits)
            }
            Name::Minimum { bits, signed } => {
                let (a, b) = (self.operand(a, bits, signed), self.operand(b, bits, signed));
                let value = if signed { self.b.ins().smin(a, b) } else { self.b.ins().umin(a, b) };
                self.low(value, bits)
            }
            Name::Maximum { bits, signed } => {
                let (a, b) = (self.operand(a, bits, signed), self.operand(b, bits, signed));
                let value = if signed { self.b.ins().smax(a, b) } else { self.b.ins().umax(a, b) };
                self.low(value, bits)
            }
            Name::Float { what, bits, flush } => {
                let ty = float_type(bits);
                let (x, y) = (self.float(a, ty, flush), self.float(b, ty, flush));
                let result = match what {
                    Arithmetic::Add => self.b.ins().fadd(x, y),
                    Arithmetic::Subtract => self.b.ins().fsub(x, y),
                    Arithmetic::Multiply => self.b.ins().fmul(x, y),
                    Arithmetic::Divide => self.b.ins().fdiv(x, y),
                    Arithmetic::Fused | Arithmetic::Root | Arithmetic::Reciprocal => return None,
                };
                if bits == 64 { result } else { self.finished(result, flush) }
            }
            _ => return None,
        })
    }

    pub(super) fn ternary(&mut self, f: Ternary, d: Dst, sources: [Src; 3]) {
        let value = f.name.and_then(|name| self.named_ternary(name, d, sources));
        let value = value.unwrap_or_else(|| {
            let words = sources.map(|src| self.src(src, types::I64));
            self.call((f.one as usize).cast_signed(), &words)
        });
        self.set(d, value);
    }

    fn named_ternary(&mut self, name: Name, d: Dst, [a, b, c]: [Src; 3]) -> Option<Value> {
        Some(match name {
            Name::MultiplyAdd(bits) => {
                let (a, b) = self.pair(a, b, bits);
                let c = self.src(c, integer_type(bits));
                let value = self.b.ins().imul(a, b);
                let value = self.b.ins().iadd(value, c);
                self.low(value, bits)
            }
            Name::MultiplyAddWide { bits, signed } => {
                let value = self.wide(a, b, bits, signed);
                let ty = self.b.func.dfg.value_type(value);
                let c = self.src(c, ty);
                self.b.ins().iadd(value, c)
            }
            Name::SelectBySign => {
                let ty = self.kinds[d.0 as usize];
                let (a, b) = (self.src(a, ty), self.src(b, ty));
                let c = self.src(c, types::I32);
                let keeps = self.b.ins().icmp_imm_s(IntCC::SignedGreaterThanOrEqual, c, 0);
                self.b.ins().select(keeps, a, b)
            }
            Name::Funnel { left, clamp } => {
                let (low, high) = (self.src(a, types::I32), self.src(b, types::I64));
                let low = self.b.ins().uextend(types::I64, low);
                let high = self.b.ins().ishl_imm_u(high, 32);
                let joined = self.b.ins().bor(low, high);
                let by = self.src(c, types::I32);
                let by = if clamp {
                    let most = self.b.ins().iconst(types::I32, 32);
                    self.b.ins().umin(by, most)
                } else {
                    self.b.ins().band_imm_u(by, 31)
                };
                let value = if left {
                    let shifted = self.b.ins().ishl(joined, by);
                    self.b.ins().ushr_imm_u(shifted, 32)
                } else {
                    self.b.ins().ushr(joined, by)
                };
                self.b.ins().ireduce(types::I32, value)
            }
            Name::Float { what: Arithmetic::Fused, bits, flush } if fuses() => {
                let ty = float_type(bits);
                let [x, y, z] = [a, b, c].map(|src| self.float(src, ty, flush));
                let result = self.b.ins().fma(x, y, z);
                if bits == 64 { result } else { self.finished(result, flush) }
            }
            _ => return None,
        })
    }
}
