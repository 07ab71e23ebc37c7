//! Logic and shifts (PTX ISA, "Logic and Shift Instructions").

use bulkhead_ptx::ast::Type::{self, B16, B32, B64, S16, S32, S64, U16, U32, U64};

use super::name::Name;
use super::{Binary, LANES, Lanes, Ternary, Unary, binary, ternary, unary};

/// `and`, `or`, `xor` on 16, 32 or 64 bits: words have zeros above their width, so one form serves all.
pub(crate) fn bitwise(opcode: &str) -> Option<Binary> {
    Some(match opcode {
        "and" => binary!(Some(Name::And); |a: u64, b: u64| a & b),
        "or" => binary!(Some(Name::Or); |a: u64, b: u64| a | b),
        "xor" => binary!(Some(Name::Xor); |a: u64, b: u64| a ^ b),
        _ => return None,
    })
}

/// `not` and `cnot` (one where the operand is zero).
pub(crate) fn complement(opcode: &str, ty: Type) -> Option<Unary> {
    Some(match (opcode, ty) {
        ("not", B16) => unary!(Some(Name::Not(16)); |a: u16| !a),
        ("not", B32) => unary!(Some(Name::Not(32)); |a: u32| !a),
        ("not", B64) => unary!(Some(Name::Not(64)); |a: u64| !a),
        ("cnot", B16) => unary!(|a: u16| u16::from(a == 0)),
        ("cnot", B32) => unary!(|a: u32| u32::from(a == 0)),
        ("cnot", B64) => unary!(|a: u64| u64::from(a == 0)),
        _ => return None,
    })
}

/// `shl` and `shr`: amounts beyond the width give zero, or the sign.
pub(crate) fn shift(opcode: &str, ty: Type) -> Option<Binary> {
    Some(match (opcode, ty) {
        ("shl", B16) => binary!(Some(Name::ShiftLeft(16)); |a: u16, n: u32| a.checked_shl(n).unwrap_or(0)),
        ("shl", B32) => binary!(Some(Name::ShiftLeft(32)); |a: u32, n: u32| a.checked_shl(n).unwrap_or(0)),
        ("shl", B64) => binary!(Some(Name::ShiftLeft(64)); |a: u64, n: u32| a.checked_shl(n).unwrap_or(0)),
        ("shr", B16 | U16) => {
            binary!(Some(Name::ShiftRight { bits: 16, signed: false }); |a: u16, n: u32| a.checked_shr(n).unwrap_or(0))
        }
        ("shr", B32 | U32) => {
            binary!(Some(Name::ShiftRight { bits: 32, signed: false }); |a: u32, n: u32| a.checked_shr(n).unwrap_or(0))
        }
        ("shr", B64 | U64) => {
            binary!(Some(Name::ShiftRight { bits: 64, signed: false }); |a: u64, n: u32| a.checked_shr(n).unwrap_or(0))
        }
        ("shr", S16) => {
            binary!(Some(Name::ShiftRight { bits: 16, signed: true }); |a: i16, n: u32| a >> n.min(15))
        }
        ("shr", S32) => {
            binary!(Some(Name::ShiftRight { bits: 32, signed: true }); |a: i32, n: u32| a >> n.min(31))
        }
        ("shr", S64) => {
            binary!(Some(Name::ShiftRight { bits: 64, signed: true }); |a: i64, n: u32| a >> n.min(63))
        }
        _ => return None,
    })
}

/// `shf.{l,r}.{clamp,wrap}.b32`: a shift of the 64 bits `b:a`.
pub(crate) fn funnel(left: bool, clamp: bool) -> Ternary {
    match (left, clamp) {
        (true, true) => {
            ternary!(Some(Name::Funnel { left: true, clamp: true }); |a: u32, b: u32, n: u32| ((joined(a, b) << n.min(32)) >> 32) as u32)
        }
        (true, false) => {
            ternary!(Some(Name::Funnel { left: true, clamp: false }); |a: u32, b: u32, n: u32| ((joined(a, b) << (n & 31)) >> 32) as u32)
        }
        (false, true) => {
            ternary!(Some(Name::Funnel { left: false, clamp: true }); |a: u32, b: u32, n: u32| (joined(a, b) >> n.min(32)) as u32)
        }
        (false, false) => {
            ternary!(Some(Name::Funnel { left: false, clamp: false }); |a: u32, b: u32, n: u32| (joined(a, b) >> (n & 31)) as u32)
        }
    }
}

#[inline(always)]
fn joined(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// `lop3.b32`: any function of three bits, by its truth table.
pub(crate) fn lop3(table: u8, a: &Lanes, b: &Lanes, c: &Lanes, out: &mut Lanes) {
    // The guard's own confinement is by far the most frequent one.
    if table == 0xEA {
        for i in 0..LANES {
            out[i] = (a[i] & b[i]) | c[i];
        }
        return;
    }
    let term = |bit: u32| if table >> bit & 1 == 1 { u64::from(u32::MAX) } else { 0 };
    let terms: [u64; 8] = std::array::from_fn(|bit| term(bit as u32));
    for i in 0..LANES {
        let (a, b, c) = (a[i], b[i], c[i]);
        out[i] = (terms[0] & !a & !b & !c)
            | (terms[1] & !a & !b & c)
            | (terms[2] & !a & b & !c)
            | (terms[3] & !a & b & c)
            | (terms[4] & a & !b & !c)
            | (terms[5] & a & !b & c)
            | (terms[6] & a & b & !c)
            | (terms[7] & a & b & c);
    }
}
