//! Bit fields, counts and byte permutation.

use bulkhead_ptx::ast::Type::{self, B32, B64, S32, S64, U32, U64};

use super::name::Name;
use super::{Binary, LANES, Lanes, Ternary, Unary, binary, ternary, unary};

/// `popc`, `clz`, `brev`.
pub(crate) fn count(opcode: &str, ty: Type) -> Option<Unary> {
    Some(match (opcode, ty) {
        ("popc", B32) => unary!(Some(Name::CountOnes(32)); |a: u32| a.count_ones()),
        ("popc", B64) => unary!(Some(Name::CountOnes(64)); |a: u64| a.count_ones()),
        ("clz", B32) => unary!(Some(Name::LeadingZeros(32)); |a: u32| a.leading_zeros()),
        ("clz", B64) => unary!(Some(Name::LeadingZeros(64)); |a: u64| a.leading_zeros()),
        ("brev", B32) => unary!(Some(Name::Reverse(32)); |a: u32| a.reverse_bits()),
        ("brev", B64) => unary!(Some(Name::Reverse(64)); |a: u64| a.reverse_bits()),
        _ => return None,
    })
}

/// `bfind`: the position of the most significant bit that is not the sign, or all ones;
/// with `shift_amount`, how far to shift left to bring it to the top.
pub(crate) fn find(ty: Type, shift_amount: bool) -> Option<Unary> {
    Some(match (ty, shift_amount) {
        (U32, false) => unary!(|a: u32| top32(a)),
        (S32, false) => unary!(|a: i32| top32((a ^ (a >> 31)) as u32)),
        (U64, false) => unary!(|a: u64| top64(a)),
        (S64, false) => unary!(|a: i64| top64((a ^ (a >> 63)) as u64)),
        (U32, true) => unary!(|a: u32| amount32(a)),
        (S32, true) => unary!(|a: i32| amount32((a ^ (a >> 31)) as u32)),
        (U64, true) => unary!(|a: u64| amount64(a)),
        (S64, true) => unary!(|a: i64| amount64((a ^ (a >> 63)) as u64)),
        _ => return None,
    })
}

/// `bfe`: a bit field, zero- or sign-extended.
pub(crate) fn extract(ty: Type) -> Option<Ternary> {
    Some(match ty {
        // Beyond 255 neither means anything; the device takes eight bits of either for words, and all for longer ones.
        U32 => ternary!(|a: u32, pos: u32, len: u32| field(u64::from(a), pos & 0xff, len & 0xff) as u32),
        U64 => ternary!(|a: u64, pos: u32, len: u32| field(a, pos, len)),
        S32 => ternary!(|a: i32, pos: u32, len: u32| {
            signed_field(i64::from(a), pos & 0xff, len & 0xff, 31) as i32
        }),
        S64 => ternary!(|a: i64, pos: u32, len: u32| signed_field(a, pos, len, 63)),
        _ => return None,
    })
}

/// `bfi`: puts the low bits of `a` into `b`.
pub(crate) fn insert(wide: bool, a: &Lanes, b: &Lanes, position: &Lanes, length: &Lanes, out: &mut Lanes) {
    for i in 0..LANES {
        out[i] = inserted(wide, a[i], b[i], position[i], length[i]);
    }
}

/// `bfi.b32` of one lane: the position in the lower half of `field`, the length in the upper one.
pub(crate) extern "C" fn insert_32(a: u64, b: u64, field: u64) -> u64 {
    inserted(false, a, b, field, field >> 32)
}

/// `bfi.b64` of one lane.
pub(crate) extern "C" fn insert_64(a: u64, b: u64, field: u64) -> u64 {
    inserted(true, a, b, field, field >> 32)
}

#[inline(always)]
fn inserted(wide: bool, a: u64, b: u64, position: u64, length: u64) -> u64 {
    let width = if wide { 64 } else { 32 };
    let all = if wide { u64::MAX } else { u64::from(u32::MAX) };
    // Beyond 255 neither means anything; the device takes eight bits of either for words, and all for longer ones.
    let bits = if wide { u64::from(u32::MAX) } else { 0xff };
    let (position, length) = (position & bits, length & bits);
    let ones = if length >= 64 { u64::MAX } else { (1u64 << length) - 1 };
    let mask = if position >= width { 0 } else { (ones << position) & all };
    let field = if position >= width { 0 } else { a << position };
    (b & !mask) | (field & mask)
}

/// `fns`: the n-th set bit counted from a base (positive: upwards, negative: downwards).
pub(crate) fn nth_set() -> Ternary {
    ternary!(|mask: u32, base: u32, offset: i32| {
        let step = if offset < 0 { -1i64 } else { 1 };
        let wanted = if offset == 0 { 1 } else { offset.unsigned_abs() };
        let mut seen = 0;
        let mut at = i64::from(base & 31);
        let mut found = u32::MAX;
        while base < 32 && (0..32).contains(&at) {
            if mask >> at & 1 == 1 {
                seen += 1;
                if seen == wanted {
                    found = at as u32;
                    break;
                }
            }
            // An offset of zero asks about the base itself only.
            if offset == 0 {
                break;
            }
            at += step;
        }
        found
    })
}

/// `szext.{wrap,clamp}`: extends from bit `n` of the low bits.
pub(crate) fn extend(ty: Type, clamp: bool) -> Option<Binary> {
    Some(match (ty, clamp) {
        (U32, true) => binary!(|a: u32, n: u32| zero_extended(a, n.min(32))),
        (U32, false) => binary!(|a: u32, n: u32| zero_extended(a, n & 31)),
        (S32, true) => binary!(|a: u32, n: u32| sign_extended(a, n.min(32))),
        (S32, false) => binary!(|a: u32, n: u32| sign_extended(a, n & 31)),
        _ => return None,
    })
}

/// `bmsk.{wrap,clamp}`: `length` ones from bit `position` on.
pub(crate) fn mask(clamp: bool) -> Binary {
    if clamp {
        binary!(|position: u32, length: u32| ones(position.min(32), length.min(32)))
    } else {
        binary!(|position: u32, length: u32| ones(position & 31, length & 31))
    }
}

/// `prmt.b32`, by its mode word (`None` for the default mode).
pub(crate) fn permute(mode: Option<&str>) -> Option<Ternary> {
    Some(match mode {
        None => ternary!(|a: u32, b: u32, s: u32| {
            let mut out = 0u32;
            for i in 0..4 {
                let selector = s >> (4 * i) & 0xf;
                let byte = pick(a, b, selector & 7);
                let byte = if selector & 8 == 0 { byte } else { ((byte as i8) >> 7) as u8 };
                out |= u32::from(byte) << (8 * i);
            }
            out
        }),
        Some("f4e") => ternary!(|a: u32, b: u32, s: u32| gather(a, b, |i| (s & 3) + i)),
        Some("b4e") => ternary!(|a: u32, b: u32, s: u32| gather(a, b, |i| (s & 3).wrapping_sub(i) & 7)),
        Some("rc8") => ternary!(|a: u32, b: u32, s: u32| gather(a, b, |_| s & 3)),
        Some("ecl") => ternary!(|a: u32, b: u32, s: u32| gather(a, b, |i| i.max(s & 3))),
        Some("ecr") => ternary!(|a: u32, b: u32, s: u32| gather(a, b, |i| i.min(s & 3))),
        Some("rc16") => ternary!(|a: u32, b: u32, s: u32| gather(a, b, |i| (s & 1) * 2 + (i & 1))),
        Some(_) => return None,
    })
}

#[inline(always)]
fn pick(a: u32, b: u32, index: u32) -> u8 {
    ((u64::from(b) << 32 | u64::from(a)) >> (8 * index)) as u8
}

#[inline(always)]
fn gather(a: u32, b: u32, index: impl Fn(u32) -> u32) -> u32 {
    (0..4).fold(0, |out, i| out | u32::from(pick(a, b, index(i) & 7)) << (8 * i))
}

#[inline(always)]
fn top32(a: u32) -> u32 {
    a.checked_ilog2().unwrap_or(u32::MAX)
}

#[inline(always)]
fn top64(a: u64) -> u32 {
    a.checked_ilog2().unwrap_or(u32::MAX)
}

#[inline(always)]
fn amount32(a: u32) -> u32 {
    if a == 0 { u32::MAX } else { a.leading_zeros() }
}

#[inline(always)]
fn amount64(a: u64) -> u32 {
    if a == 0 { u32::MAX } else { a.leading_zeros() }
}

#[inline(always)]
fn field(a: u64, position: u32, length: u32) -> u64 {
    let shifted = a.checked_shr(position).unwrap_or(0);
    if length >= 64 { shifted } else { shifted & ((1u64 << length) - 1) }
}

/// Beyond the top bit of the operand the field is filled with the operand's sign, as the ISA's
/// pseudo code says: the sign bit is bit `min(position + length - 1, msb)`.
#[inline(always)]
fn signed_field(a: i64, position: u32, length: u32, top: u32) -> i64 {
    if length == 0 {
        return 0;
    }
    let last = position.saturating_add(length - 1).min(top);
    let shifted = a >> position.min(63);
    let kept = if position > last { 0 } else { last - position + 1 };
    if kept == 0 {
        return if a < 0 { -1 } else { 0 };
    }
    (shifted << (64 - kept)) >> (64 - kept)
}

#[inline(always)]
fn zero_extended(a: u32, bits: u32) -> u32 {
    a & ones(0, bits)
}

#[inline(always)]
fn sign_extended(a: u32, bits: u32) -> u32 {
    match bits {
        0 => 0,
        32.. => a,
        bits => (((a << (32 - bits)) as i32) >> (32 - bits)) as u32,
    }
}

#[inline(always)]
fn ones(position: u32, length: u32) -> u32 {
    let run = 1u32.checked_shl(length).map_or(u32::MAX, |bit| bit - 1);
    run.checked_shl(position).unwrap_or(0)
}
