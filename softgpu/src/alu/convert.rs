//! `cvt`: every conversion between integers and floating-point formats.
//!
//! The frequent ones have a loop of their own; the others share [`Conversion::lane`], which looks at the
//! description lane by lane.

use bulkhead_ptx::ast::Type;

use super::float::{flushed, saturated};
use super::name::Name;
use super::rounding::{self, Exact, Rounding, bf16_to_f32, f16_to_f32};
use super::{LANES, Lanes, Unary, unary};

/// One side of a conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// An integer.
    Integer {
        /// Width in bits.
        bits: u32,
        /// Two's complement.
        signed: bool,
    },
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
    /// Single precision with a short mantissa; only ever a destination.
    Tf32,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
}

impl Side {
    /// By type; `None` for those that `cvt` does not take (or not here).
    pub(crate) fn of(ty: Type) -> Option<Self> {
        let integer = |bits, signed| Some(Self::Integer { bits, signed });
        match ty {
            Type::U8 => integer(8, false),
            Type::S8 => integer(8, true),
            Type::U16 => integer(16, false),
            Type::S16 => integer(16, true),
            Type::U32 => integer(32, false),
            Type::S32 => integer(32, true),
            Type::U64 => integer(64, false),
            Type::S64 => integer(64, true),
            Type::F16 => Some(Self::F16),
            Type::Bf16 => Some(Self::Bf16),
            Type::Tf32 => Some(Self::Tf32),
            Type::F32 => Some(Self::F32),
            Type::F64 => Some(Self::F64),
            Type::B8 | Type::B16 | Type::B32 | Type::B64 | Type::B128 => None,
            Type::F16x2 | Type::Bf16x2 | Type::Pred => None,
            Type::Texref | Type::Samplerref | Type::Surfref => None,
        }
    }

    fn is_integer(self) -> bool {
        matches!(self, Self::Integer { .. })
    }
}

/// Rounding to an integral value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Integral {
    /// `.rni`
    Nearest,
    /// `.rzi`
    Zero,
    /// `.rmi`
    Down,
    /// `.rpi`
    Up,
}

impl Integral {
    /// By modifier.
    pub(crate) fn named(word: &str) -> Option<Self> {
        Some(match word {
            "rni" => Self::Nearest,
            "rzi" => Self::Zero,
            "rmi" => Self::Down,
            "rpi" => Self::Up,
            _ => return None,
        })
    }

    #[inline(always)]
    fn apply(self, x: f64) -> f64 {
        match self {
            Self::Nearest => x.round_ties_even(),
            Self::Zero => x.trunc(),
            Self::Down => x.floor(),
            Self::Up => x.ceil(),
        }
    }
}

/// A conversion in full.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Conversion {
    /// What comes in.
    pub(crate) from: Side,
    /// What goes out.
    pub(crate) to: Side,
    /// Rounding of a result in floating point.
    pub(crate) rounding: Rounding,
    /// Rounding to an integral value first.
    pub(crate) integral: Option<Integral>,
    /// `.ftz`
    pub(crate) flush: bool,
    /// `.sat`
    pub(crate) saturate: bool,
    /// `.relu`
    pub(crate) relu: bool,
}

impl Conversion {
    /// A loop of its own, where there is one.
    pub(crate) fn fast(&self) -> Option<Unary> {
        let is_single = (self.from, self.to) == (Side::F32, Side::F32);
        if is_single && self.saturate && self.integral.is_none() && !self.flush && !self.relu {
            return Some(unary!(Some(Name::Saturate); |a: f32| saturated(a)));
        }
        if self.flush || self.saturate || self.relu {
            return None;
        }
        let int = |bits, signed| Side::Integer { bits, signed };
        let (from, to) = (self.from, self.to);
        if let (Side::Integer { bits, signed }, Side::Integer { bits: out, .. }) = (from, to) {
            return truncation(bits, signed, out);
        }
        if from.is_integer() && self.rounding == Rounding::Nearest {
            return Some(match (from, to) {
                (f, Side::F32) if f == int(32, true) => {
                    unary!(Some(Name::FromInteger { bits: 32, signed: true, to: 32 }); |a: i32| a as f32)
                }
                (f, Side::F32) if f == int(32, false) => {
                    unary!(Some(Name::FromInteger { bits: 32, signed: false, to: 32 }); |a: u32| a as f32)
                }
                (f, Side::F64) if f == int(32, true) => {
                    unary!(Some(Name::FromInteger { bits: 32, signed: true, to: 64 }); |a: i32| f64::from(a))
                }
                (f, Side::F64) if f == int(32, false) => {
                    unary!(Some(Name::FromInteger { bits: 32, signed: false, to: 64 }); |a: u32| f64::from(a))
                }
                (f, Side::F32) if f == int(64, true) => {
                    unary!(Some(Name::FromInteger { bits: 64, signed: true, to: 32 }); |a: i64| a as f32)
                }
                (f, Side::F32) if f == int(64, false) => {
                    unary!(Some(Name::FromInteger { bits: 64, signed: false, to: 32 }); |a: u64| a as f32)
                }
                (f, Side::F64) if f == int(64, true) => {
                    unary!(Some(Name::FromInteger { bits: 64, signed: true, to: 64 }); |a: i64| a as f64)
                }
                (f, Side::F64) if f == int(64, false) => {
                    unary!(Some(Name::FromInteger { bits: 64, signed: false, to: 64 }); |a: u64| a as f64)
                }
                _ => return None,
            });
        }
        match (from, to, self.integral) {
            (Side::F32, t, Some(Integral::Zero)) if t == int(32, true) => {
                Some(unary!(Some(Name::ToInteger { signed: true }); |a: f32| a as i32))
            }
            (Side::F32, t, Some(Integral::Zero)) if t == int(32, false) => {
                Some(unary!(Some(Name::ToInteger { signed: false }); |a: f32| a as u32))
            }
            (Side::F32, Side::F64, None) => Some(unary!(Some(Name::Widen); |a: f32| f64::from(a))),
            (Side::F64, Side::F32, None) if self.rounding == Rounding::Nearest => Some(
                unary!(Some(Name::Narrow); |a: f64| if a.is_nan() { f32::from_bits(0x7fff_ffff) } else { a as f32 }),
            ),
            _ => None,
        }
    }

    /// Converts all lanes.
    pub(crate) fn lanes(&self, a: &Lanes, out: &mut Lanes) {
        for i in 0..LANES {
            out[i] = self.lane(a[i]);
        }
    }

    /// Converts one lane; the result lies in the low bits of the word, zero-extended.
    pub(crate) fn lane(&self, word: u64) -> u64 {
        match (self.from, self.to) {
            (Side::Integer { bits, signed }, Side::Integer { bits: to, signed: to_signed }) => {
                let value = integer(word, bits, signed);
                truncated(if self.saturate { clamped(value, to, to_signed) } else { value }, to)
            }
            (Side::Integer { bits, signed }, _) => {
                let value = integer(word, bits, signed);
                let near = value as f64;
                self.finish(Exact { value: near, rest: (value - near as i128) as f64 }, true)
            }
            (_, Side::Integer { bits, signed }) => {
                let value = self.read(word);
                if value.is_nan() {
                    // ISA, cvt: zero for narrow pairs, the most negative number where 64 bits take part.
                    let wide = self.from == Side::F64 || bits == 64;
                    return if wide { 1 << (bits - 1) } else { 0 };
                }
                let value = self.integral.unwrap_or(Integral::Zero).apply(value);
                truncated(clamped(value as i128, bits, signed), bits)
            }
            _ => {
                let mut value = self.read(word);
                if let Some(integral) = self.integral {
                    value = integral.apply(value);
                }
                self.finish(Exact::of(value), value.is_finite())
            }
        }
    }

    #[inline(always)]
    fn read(&self, word: u64) -> f64 {
        match self.from {
            Side::F16 => f64::from(f16_to_f32(word as u16)),
            Side::Bf16 => f64::from(bf16_to_f32(word as u16)),
            Side::F32 | Side::Tf32 => {
                let value = f32::from_bits(word as u32);
                f64::from(if self.flush { flushed(value) } else { value })
            }
            Side::F64 => f64::from_bits(word),
            Side::Integer { .. } => 0.0,
        }
    }

    #[inline(always)]
    fn finish(&self, mut exact: Exact, finite: bool) -> u64 {
        if self.relu && exact.value <= 0.0 {
            exact = Exact::of(0.0);
        }
        if self.saturate && !(exact.value > 0.0 && exact.value < 1.0) {
            // Neither a NaN nor a negative zero is left.
            exact = Exact::of(if exact.value >= 1.0 { 1.0 } else { 0.0 });
        }
        match self.to {
            Side::F16 => u64::from(exact.narrow(rounding::F16, self.rounding)),
            Side::Bf16 => u64::from(exact.narrow(rounding::BF16, self.rounding)),
            Side::Tf32 => u64::from(exact.narrow(rounding::TF32, self.rounding) << 13),
            Side::F32 => {
                let mut value = exact.to_f32(self.rounding);
                if self.flush {
                    value = flushed(value);
                }
                u64::from(if self.saturate { saturated(value) } else { value }.to_bits())
            }
            Side::F64 => exact.to_f64(self.rounding, finite).to_bits(),
            Side::Integer { .. } => 0,
        }
    }
}

/// Extends a value of a register's low bits to the register's width.
pub(crate) fn sign_extend(from_bits: u32, to_bits: u32) -> Option<Unary> {
    truncation(from_bits, true, to_bits)
}

fn truncation(from_bits: u32, signed: bool, to_bits: u32) -> Option<Unary> {
    Some(match (from_bits, signed, to_bits) {
        (8, true, 8) | (8, false, _) => {
            unary!(Some(Name::Extend { from: 8, signed: false, to: 8 }); |a: u8| a)
        }
        (8, true, 16) => unary!(Some(Name::Extend { from: 8, signed: true, to: 16 }); |a: i8| a as u16),
        (8, true, 32) => unary!(Some(Name::Extend { from: 8, signed: true, to: 32 }); |a: i8| a as u32),
        (8, true, 64) => unary!(Some(Name::Extend { from: 8, signed: true, to: 64 }); |a: i8| a as u64),
        (16 | 32 | 64, _, 8) => unary!(Some(Name::Extend { from: 8, signed: false, to: 8 }); |a: u8| a),
        (16, true, 32) => unary!(Some(Name::Extend { from: 16, signed: true, to: 32 }); |a: i16| a as u32),
        (16, true, 64) => unary!(Some(Name::Extend { from: 16, signed: true, to: 64 }); |a: i16| a as u64),
        (16, _, _) | (32 | 64, _, 16) => {
            unary!(Some(Name::Extend { from: 16, signed: false, to: 16 }); |a: u16| a)
        }
        (32, true, 64) => unary!(Some(Name::Extend { from: 32, signed: true, to: 64 }); |a: i32| a as u64),
        (32, _, _) | (64, _, 32) => {
            unary!(Some(Name::Extend { from: 32, signed: false, to: 32 }); |a: u32| a)
        }
        (64, _, 64) => unary!(Some(Name::Extend { from: 64, signed: false, to: 64 }); |a: u64| a),
        _ => return None,
    })
}

#[inline(always)]
fn integer(word: u64, bits: u32, signed: bool) -> i128 {
    let shift = 64 - bits;
    if signed { i128::from(((word << shift) as i64) >> shift) } else { i128::from((word << shift) >> shift) }
}

#[inline(always)]
fn clamped(value: i128, bits: u32, signed: bool) -> i128 {
    if signed {
        value.clamp(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    } else {
        value.clamp(0, (1 << bits) - 1)
    }
}

#[inline(always)]
fn truncated(value: i128, bits: u32) -> u64 {
    (value as u64) & (u64::MAX >> (64 - bits))
}
