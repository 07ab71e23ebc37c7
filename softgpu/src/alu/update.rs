//! What an atomic operation makes of the value in memory.

use bulkhead_ptx::ast::Type::{self, B32, B64, Bf16, Bf16x2, F16, F16x2, F32, F64, S32, S64, U32, U64};

use super::Word;
use super::float::flushed;
use super::rounding::{self, Exact, Rounding, bf16_to_f32, f16_to_f32};

/// Old value and operand in, new value out.
pub(crate) type Update = fn(u64, u64) -> u64;

macro_rules! update {
    (|$a:ident: $ty:ty, $b:ident| $body:expr) => {{
        fn apply(old: u64, operand: u64) -> u64 {
            let $a = <$ty as Word>::of(old);
            let $b = <$ty as Word>::of(operand);
            Word::word($body)
        }
        apply as Update
    }};
}

/// The update of `atom` and `red`, all but `cas`.
pub(crate) fn named(op: &str, ty: Type) -> Option<Update> {
    Some(match (op, ty) {
        ("add", U32 | S32) => update!(|a: u32, b| a.wrapping_add(b)),
        ("add", U64 | S64) => update!(|a: u64, b| a.wrapping_add(b)),
        ("add", F32) => update!(|a: f32, b| a + b),
        ("add.ftz", F32) => update!(|a: f32, b| flushed(flushed(a) + flushed(b))),
        ("add", F64) => update!(|a: f64, b| a + b),
        ("add", F16) => update!(|a: u16, b| add_f16(a, b)),
        ("add", Bf16) => update!(|a: u16, b| add_bf16(a, b)),
        ("add", F16x2) => update!(|a: u32, b| pair(a, b, add_f16)),
        ("add", Bf16x2) => update!(|a: u32, b| pair(a, b, add_bf16)),
        ("min", U32) => update!(|a: u32, b| a.min(b)),
        ("min", S32) => update!(|a: i32, b| a.min(b)),
        ("min", U64) => update!(|a: u64, b| a.min(b)),
        ("min", S64) => update!(|a: i64, b| a.min(b)),
        ("max", U32) => update!(|a: u32, b| a.max(b)),
        ("max", S32) => update!(|a: i32, b| a.max(b)),
        ("max", U64) => update!(|a: u64, b| a.max(b)),
        ("max", S64) => update!(|a: i64, b| a.max(b)),
        ("and", B32 | B64) => update!(|a: u64, b| a & b),
        ("or", B32 | B64) => update!(|a: u64, b| a | b),
        ("xor", B32 | B64) => update!(|a: u64, b| a ^ b),
        ("exch", B32 | B64 | U32 | U64 | S32 | S64 | F32) => update!(|_old: u64, b| b),
        ("inc", U32) => update!(|a: u32, b| if a >= b { 0 } else { a + 1 }),
        ("dec", U32) => update!(|a: u32, b| if a == 0 || a > b { b } else { a - 1 }),
        _ => return None,
    })
}

fn add_f16(a: u16, b: u16) -> u16 {
    let sum = Exact::sum(f64::from(f16_to_f32(a)), f64::from(f16_to_f32(b)));
    sum.narrow(rounding::F16, Rounding::Nearest) as u16
}

fn add_bf16(a: u16, b: u16) -> u16 {
    let sum = Exact::sum(f64::from(bf16_to_f32(a)), f64::from(bf16_to_f32(b)));
    sum.narrow(rounding::BF16, Rounding::Nearest) as u16
}

fn pair(a: u32, b: u32, add: fn(u16, u16) -> u16) -> u32 {
    u32::from(add((a >> 16) as u16, (b >> 16) as u16)) << 16 | u32::from(add(a as u16, b as u16))
}
