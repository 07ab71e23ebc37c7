//! Integer arithmetic (PTX ISA, "Integer Arithmetic Instructions").

use bulkhead_ptx::ast::Type::{self, S16, S32, S64, U16, U32, U64};

use super::name::Name;
use super::{Binary, Ternary, Unary, binary, ternary, unary};

/// Which part of a product is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// `.lo`
    Low,
    /// `.hi`
    High,
    /// `.wide`: all of it, in a register of twice the width.
    Wide,
}

/// `add`, `sub` and their packed forms; wraps.
pub(crate) fn add_sub(opcode: &str, ty: Type) -> Option<Binary> {
    let add = opcode == "add";
    Some(match (add, ty) {
        (true, U16 | S16) => binary!(Some(Name::Add(16)); |a: u16, b: u16| a.wrapping_add(b)),
        (true, U32 | S32) => binary!(Some(Name::Add(32)); |a: u32, b: u32| a.wrapping_add(b)),
        (true, U64 | S64) => binary!(Some(Name::Add(64)); |a: u64, b: u64| a.wrapping_add(b)),
        (false, U16 | S16) => binary!(Some(Name::Subtract(16)); |a: u16, b: u16| a.wrapping_sub(b)),
        (false, U32 | S32) => binary!(Some(Name::Subtract(32)); |a: u32, b: u32| a.wrapping_sub(b)),
        (false, U64 | S64) => binary!(Some(Name::Subtract(64)); |a: u64, b: u64| a.wrapping_sub(b)),
        _ => return None,
    })
}

/// `add.sat.s32` and `sub.sat.s32`.
pub(crate) fn saturating(opcode: &str) -> Option<Binary> {
    Some(match opcode {
        "add" => binary!(|a: i32, b: i32| a.saturating_add(b)),
        "sub" => binary!(|a: i32, b: i32| a.saturating_sub(b)),
        _ => return None,
    })
}

/// `mul.{lo,hi,wide}`.
pub(crate) fn mul(part: Part, ty: Type) -> Option<Binary> {
    Some(match (part, ty) {
        (Part::Low, U16 | S16) => binary!(Some(Name::Multiply(16)); |a: u16, b: u16| a.wrapping_mul(b)),
        (Part::Low, U32 | S32) => binary!(Some(Name::Multiply(32)); |a: u32, b: u32| a.wrapping_mul(b)),
        (Part::Low, U64 | S64) => binary!(Some(Name::Multiply(64)); |a: u64, b: u64| a.wrapping_mul(b)),
        (Part::High, U16) => binary!(|a: u16, b: u16| ((u32::from(a) * u32::from(b)) >> 16) as u16),
        (Part::High, S16) => binary!(|a: i16, b: i16| ((i32::from(a) * i32::from(b)) >> 16) as i16),
        (Part::High, U32) => {
            binary!(Some(Name::MultiplyHigh { bits: 32, signed: false }); |a: u32, b: u32| high_u32(a, b))
        }
        (Part::High, S32) => {
            binary!(Some(Name::MultiplyHigh { bits: 32, signed: true }); |a: i32, b: i32| high_i32(a, b))
        }
        (Part::High, U64) => {
            binary!(Some(Name::MultiplyHigh { bits: 64, signed: false }); |a: u64, b: u64| high_u64(a, b))
        }
        (Part::High, S64) => {
            binary!(Some(Name::MultiplyHigh { bits: 64, signed: true }); |a: i64, b: i64| high_i64(a, b))
        }
        (Part::Wide, U16) => {
            binary!(Some(Name::MultiplyWide { bits: 16, signed: false }); |a: u16, b: u16| u32::from(a) * u32::from(b))
        }
        (Part::Wide, S16) => {
            binary!(Some(Name::MultiplyWide { bits: 16, signed: true }); |a: i16, b: i16| i32::from(a) * i32::from(b))
        }
        (Part::Wide, U32) => {
            binary!(Some(Name::MultiplyWide { bits: 32, signed: false }); |a: u32, b: u32| u64::from(a) * u64::from(b))
        }
        (Part::Wide, S32) => {
            binary!(Some(Name::MultiplyWide { bits: 32, signed: true }); |a: i32, b: i32| i64::from(a) * i64::from(b))
        }
        _ => return None,
    })
}

/// `mad.{lo,hi,wide}`.
pub(crate) fn mad(part: Part, ty: Type, saturate: bool) -> Option<Ternary> {
    if saturate {
        return (part == Part::High && ty == S32)
            .then(|| ternary!(|a: i32, b: i32, c: i32| high_i32(a, b).saturating_add(c)));
    }
    Some(match (part, ty) {
        (Part::Low, U16 | S16) => {
            ternary!(Some(Name::MultiplyAdd(16)); |a: u16, b: u16, c: u16| a.wrapping_mul(b).wrapping_add(c))
        }
        (Part::Low, U32 | S32) => {
            ternary!(Some(Name::MultiplyAdd(32)); |a: u32, b: u32, c: u32| a.wrapping_mul(b).wrapping_add(c))
        }
        (Part::Low, U64 | S64) => {
            ternary!(Some(Name::MultiplyAdd(64)); |a: u64, b: u64, c: u64| a.wrapping_mul(b).wrapping_add(c))
        }
        (Part::High, U16) => {
            ternary!(|a: u16, b: u16, c: u16| (((u32::from(a) * u32::from(b)) >> 16) as u16).wrapping_add(c))
        }
        (Part::High, S16) => {
            ternary!(|a: i16, b: i16, c: i16| (((i32::from(a) * i32::from(b)) >> 16) as i16).wrapping_add(c))
        }
        (Part::High, U32) => ternary!(|a: u32, b: u32, c: u32| high_u32(a, b).wrapping_add(c)),
        (Part::High, S32) => ternary!(|a: i32, b: i32, c: i32| high_i32(a, b).wrapping_add(c)),
        (Part::High, U64) => ternary!(|a: u64, b: u64, c: u64| high_u64(a, b).wrapping_add(c)),
        (Part::High, S64) => ternary!(|a: i64, b: i64, c: i64| high_i64(a, b).wrapping_add(c)),
        (Part::Wide, U16) => {
            ternary!(Some(Name::MultiplyAddWide { bits: 16, signed: false }); |a: u16, b: u16, c: u32| (u32::from(a) * u32::from(b)).wrapping_add(c))
        }
        (Part::Wide, S16) => {
            ternary!(Some(Name::MultiplyAddWide { bits: 16, signed: true }); |a: i16, b: i16, c: i32| (i32::from(a) * i32::from(b)).wrapping_add(c))
        }
        (Part::Wide, U32) => {
            ternary!(Some(Name::MultiplyAddWide { bits: 32, signed: false }); |a: u32, b: u32, c: u64| (u64::from(a) * u64::from(b)).wrapping_add(c))
        }
        (Part::Wide, S32) => {
            ternary!(Some(Name::MultiplyAddWide { bits: 32, signed: true }); |a: i32, b: i32, c: i64| (i64::from(a) * i64::from(b)).wrapping_add(c))
        }
        _ => return None,
    })
}

/// `mul24.{lo,hi}`: the low or high 32 bits of the 48-bit product of the operands' low 24 bits.
pub(crate) fn mul24(part: Part, ty: Type) -> Option<Binary> {
    Some(match (part, ty) {
        (Part::Low, U32) => binary!(|a: u32, b: u32| product24_u(a, b) as u32),
        (Part::High, U32) => binary!(|a: u32, b: u32| (product24_u(a, b) >> 16) as u32),
        (Part::Low, S32) => binary!(|a: i32, b: i32| product24_s(a, b) as i32),
        (Part::High, S32) => binary!(|a: i32, b: i32| (product24_s(a, b) >> 16) as i32),
        _ => return None,
    })
}

/// `mad24.{lo,hi}`.
pub(crate) fn mad24(part: Part, ty: Type, saturate: bool) -> Option<Ternary> {
    if saturate {
        return (part == Part::High && ty == S32).then(|| {
            ternary!(|a: i32, b: i32, c: i32| ((product24_s(a, b) >> 16) as i32).saturating_add(c))
        });
    }
    Some(match (part, ty) {
        (Part::Low, U32) => ternary!(|a: u32, b: u32, c: u32| (product24_u(a, b) as u32).wrapping_add(c)),
        (Part::High, U32) => {
            ternary!(|a: u32, b: u32, c: u32| ((product24_u(a, b) >> 16) as u32).wrapping_add(c))
        }
        (Part::Low, S32) => ternary!(|a: i32, b: i32, c: i32| (product24_s(a, b) as i32).wrapping_add(c)),
        (Part::High, S32) => {
            ternary!(|a: i32, b: i32, c: i32| ((product24_s(a, b) >> 16) as i32).wrapping_add(c))
        }
        _ => return None,
    })
}

/// `div` and `rem`. A division by zero does not trap: the quotient has all bits set, the remainder is the
/// dividend (the PTX ISA leaves both unspecified).
pub(crate) fn div_rem(opcode: &str, ty: Type) -> Option<Binary> {
    Some(match (opcode, ty) {
        ("div", U16) => binary!(|a: u16, b: u16| a.checked_div(b).unwrap_or(u16::MAX)),
        ("div", U32) => {
            binary!(Some(Name::Divide { bits: 32, signed: false }); |a: u32, b: u32| a.checked_div(b).unwrap_or(u32::MAX))
        }
        ("div", U64) => {
            binary!(Some(Name::Divide { bits: 64, signed: false }); |a: u64, b: u64| a.checked_div(b).unwrap_or(u64::MAX))
        }
        ("div", S16) => binary!(|a: i16, b: i16| if b == 0 { -1 } else { a.wrapping_div(b) }),
        ("div", S32) => {
            binary!(Some(Name::Divide { bits: 32, signed: true }); |a: i32, b: i32| if b == 0 { -1 } else { a.wrapping_div(b) })
        }
        ("div", S64) => {
            binary!(Some(Name::Divide { bits: 64, signed: true }); |a: i64, b: i64| if b == 0 { -1 } else { a.wrapping_div(b) })
        }
        ("rem", U16) => binary!(|a: u16, b: u16| a.checked_rem(b).unwrap_or(a)),
        ("rem", U32) => {
            binary!(Some(Name::Remainder { bits: 32, signed: false }); |a: u32, b: u32| a.checked_rem(b).unwrap_or(a))
        }
        ("rem", U64) => {
            binary!(Some(Name::Remainder { bits: 64, signed: false }); |a: u64, b: u64| a.checked_rem(b).unwrap_or(a))
        }
        ("rem", S16) => binary!(|a: i16, b: i16| if b == 0 { a } else { a.wrapping_rem(b) }),
        ("rem", S32) => {
            binary!(Some(Name::Remainder { bits: 32, signed: true }); |a: i32, b: i32| if b == 0 { a } else { a.wrapping_rem(b) })
        }
        ("rem", S64) => {
            binary!(Some(Name::Remainder { bits: 64, signed: true }); |a: i64, b: i64| if b == 0 { a } else { a.wrapping_rem(b) })
        }
        _ => return None,
    })
}

/// `abs` and `neg`; the most negative number stays as it is.
pub(crate) fn abs_neg(opcode: &str, ty: Type) -> Option<Unary> {
    Some(match (opcode, ty) {
        ("abs", S16) => unary!(Some(Name::Magnitude(16)); |a: i16| a.wrapping_abs()),
        ("abs", S32) => unary!(Some(Name::Magnitude(32)); |a: i32| a.wrapping_abs()),
        ("abs", S64) => unary!(Some(Name::Magnitude(64)); |a: i64| a.wrapping_abs()),
        ("neg", S16) => unary!(Some(Name::Negate(16)); |a: i16| a.wrapping_neg()),
        ("neg", S32) => unary!(Some(Name::Negate(32)); |a: i32| a.wrapping_neg()),
        ("neg", S64) => unary!(Some(Name::Negate(64)); |a: i64| a.wrapping_neg()),
        _ => return None,
    })
}

/// `min` and `max`; `relu` also clamps at zero from below (signed types only).
pub(crate) fn min_max(opcode: &str, ty: Type, relu: bool) -> Option<Binary> {
    if relu {
        return Some(match (opcode, ty) {
            ("min", S32) => binary!(|a: i32, b: i32| a.min(b).max(0)),
            ("max", S32) => binary!(|a: i32, b: i32| a.max(b).max(0)),
            _ => return None,
        });
    }
    Some(match (opcode, ty) {
        ("min", U16) => binary!(Some(Name::Minimum { bits: 16, signed: false }); |a: u16, b: u16| a.min(b)),
        ("min", S16) => binary!(Some(Name::Minimum { bits: 16, signed: true }); |a: i16, b: i16| a.min(b)),
        ("min", U32) => binary!(Some(Name::Minimum { bits: 32, signed: false }); |a: u32, b: u32| a.min(b)),
        ("min", S32) => binary!(Some(Name::Minimum { bits: 32, signed: true }); |a: i32, b: i32| a.min(b)),
        ("min", U64) => binary!(Some(Name::Minimum { bits: 64, signed: false }); |a: u64, b: u64| a.min(b)),
        ("min", S64) => binary!(Some(Name::Minimum { bits: 64, signed: true }); |a: i64, b: i64| a.min(b)),
        ("max", U16) => binary!(Some(Name::Maximum { bits: 16, signed: false }); |a: u16, b: u16| a.max(b)),
        ("max", S16) => binary!(Some(Name::Maximum { bits: 16, signed: true }); |a: i16, b: i16| a.max(b)),
        ("max", U32) => binary!(Some(Name::Maximum { bits: 32, signed: false }); |a: u32, b: u32| a.max(b)),
        ("max", S32) => binary!(Some(Name::Maximum { bits: 32, signed: true }); |a: i32, b: i32| a.max(b)),
        ("max", U64) => binary!(Some(Name::Maximum { bits: 64, signed: false }); |a: u64, b: u64| a.max(b)),
        ("max", S64) => binary!(Some(Name::Maximum { bits: 64, signed: true }); |a: i64, b: i64| a.max(b)),
        _ => return None,
    })
}

/// `add`, `min` and `max` of the halves of a word.
pub(crate) fn pairs(opcode: &str, signed: bool, relu: bool) -> Option<Binary> {
    Some(match (opcode, signed, relu) {
        ("add", _, false) => binary!(|a: u32, b: u32| halves(a, b, u16::wrapping_add)),
        ("min", false, false) => binary!(|a: u32, b: u32| halves(a, b, u16::min)),
        ("max", false, false) => binary!(|a: u32, b: u32| halves(a, b, u16::max)),
        ("min", true, false) => {
            binary!(|a: u32, b: u32| halves(a, b, |a, b| (a as i16).min(b as i16) as u16))
        }
        ("max", true, false) => {
            binary!(|a: u32, b: u32| halves(a, b, |a, b| (a as i16).max(b as i16) as u16))
        }
        ("min", true, true) => {
            binary!(|a: u32, b: u32| halves(a, b, |a, b| (a as i16).min(b as i16).max(0) as u16))
        }
        ("max", true, true) => {
            binary!(|a: u32, b: u32| halves(a, b, |a, b| (a as i16).max(b as i16).max(0) as u16))
        }
        _ => return None,
    })
}

#[inline(always)]
fn halves(a: u32, b: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
    u32::from(f((a >> 16) as u16, (b >> 16) as u16)) << 16 | u32::from(f(a as u16, b as u16))
}

/// `sad`: `c + |a - b|`.
pub(crate) fn sad(ty: Type) -> Option<Ternary> {
    Some(match ty {
        U16 => ternary!(|a: u16, b: u16, c: u16| c.wrapping_add(a.abs_diff(b))),
        S16 => ternary!(|a: i16, b: i16, c: u16| c.wrapping_add(a.abs_diff(b))),
        U32 => ternary!(|a: u32, b: u32, c: u32| c.wrapping_add(a.abs_diff(b))),
        S32 => ternary!(|a: i32, b: i32, c: u32| c.wrapping_add(a.abs_diff(b))),
        U64 => ternary!(|a: u64, b: u64, c: u64| c.wrapping_add(a.abs_diff(b))),
        S64 => ternary!(|a: i64, b: i64, c: u64| c.wrapping_add(a.abs_diff(b))),
        _ => return None,
    })
}

/// `dp4a.atype.btype`: four 8-bit products added to a 32-bit accumulator.
pub(crate) fn dp4a(a: Type, b: Type) -> Option<Ternary> {
    Some(match (a, b) {
        (U32, U32) => ternary!(|a: u32, b: u32, c: u32| dot4(a, b, c, false, false)),
        (U32, S32) => ternary!(|a: u32, b: u32, c: u32| dot4(a, b, c, false, true)),
        (S32, U32) => ternary!(|a: u32, b: u32, c: u32| dot4(a, b, c, true, false)),
        (S32, S32) => ternary!(|a: u32, b: u32, c: u32| dot4(a, b, c, true, true)),
        _ => return None,
    })
}

/// `dp2a.{lo,hi}.atype.btype`: two products of a 16-bit and an 8-bit number.
pub(crate) fn dp2a(part: Part, a: Type, b: Type) -> Option<Ternary> {
    Some(match (part, a, b) {
        (Part::Low, U32, U32) => ternary!(|a: u32, b: u32, c: u32| dot2(a, b, c, false, false)),
        (Part::Low, U32, S32) => ternary!(|a: u32, b: u32, c: u32| dot2(a, b, c, false, true)),
        (Part::Low, S32, U32) => ternary!(|a: u32, b: u32, c: u32| dot2(a, b, c, true, false)),
        (Part::Low, S32, S32) => ternary!(|a: u32, b: u32, c: u32| dot2(a, b, c, true, true)),
        (Part::High, U32, U32) => ternary!(|a: u32, b: u32, c: u32| dot2(a, b >> 16, c, false, false)),
        (Part::High, U32, S32) => ternary!(|a: u32, b: u32, c: u32| dot2(a, b >> 16, c, false, true)),
        (Part::High, S32, U32) => ternary!(|a: u32, b: u32, c: u32| dot2(a, b >> 16, c, true, false)),
        (Part::High, S32, S32) => ternary!(|a: u32, b: u32, c: u32| dot2(a, b >> 16, c, true, true)),
        _ => return None,
    })
}

#[inline(always)]
fn high_u32(a: u32, b: u32) -> u32 {
    ((u64::from(a) * u64::from(b)) >> 32) as u32
}

#[inline(always)]
fn high_i32(a: i32, b: i32) -> i32 {
    ((i64::from(a) * i64::from(b)) >> 32) as i32
}

#[inline(always)]
fn high_u64(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) >> 64) as u64
}

#[inline(always)]
fn high_i64(a: i64, b: i64) -> i64 {
    ((i128::from(a) * i128::from(b)) >> 64) as i64
}

#[inline(always)]
fn product24_u(a: u32, b: u32) -> u64 {
    u64::from(a & 0xff_ffff) * u64::from(b & 0xff_ffff)
}

#[inline(always)]
fn product24_s(a: i32, b: i32) -> i64 {
    i64::from((a << 8) >> 8) * i64::from((b << 8) >> 8)
}

#[inline(always)]
fn byte(word: u32, index: u32, signed: bool) -> u32 {
    let byte = (word >> (8 * index)) as u8;
    if signed { i32::from(byte as i8) as u32 } else { u32::from(byte) }
}

#[inline(always)]
fn dot4(a: u32, b: u32, c: u32, a_signed: bool, b_signed: bool) -> u32 {
    (0..4).fold(c, |sum, i| sum.wrapping_add(byte(a, i, a_signed).wrapping_mul(byte(b, i, b_signed))))
}

#[inline(always)]
fn dot2(a: u32, b: u32, c: u32, a_signed: bool, b_signed: bool) -> u32 {
    (0..2).fold(c, |sum, i| {
        let half = (a >> (16 * i)) as u16;
        let half = if a_signed { i32::from(half as i16) as u32 } else { u32::from(half) };
        sum.wrapping_add(half.wrapping_mul(byte(b, i, b_signed)))
    })
}
