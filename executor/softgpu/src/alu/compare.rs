//! Comparisons: `setp`, `set`, `slct`, `isspacep`'s ranges are elsewhere.

use bulkhead_guard::ast::Type::{self, B16, B32, B64, Bf16, F16, F32, F64, S16, S32, S64, U16, U32, U64};

use super::float::flushed;
use super::rounding::{bf16_to_f32, f16_to_f32};
use super::{Ternary, Test, Word, ternary, test};

/// A half-precision operand of a comparison.
#[derive(Clone, Copy)]
struct Half(f32);
/// A bfloat16 operand of a comparison.
#[derive(Clone, Copy)]
struct Brain(f32);
/// A single-precision operand of a comparison with `.ftz`.
#[derive(Clone, Copy)]
struct Flushed(f32);

impl Word for Half {
    #[inline(always)]
    fn of(word: u64) -> Self {
        Self(f16_to_f32(word as u16))
    }
    fn word(self) -> u64 {
        self.0.word()
    }
}
impl Word for Brain {
    #[inline(always)]
    fn of(word: u64) -> Self {
        Self(bf16_to_f32(word as u16))
    }
    fn word(self) -> u64 {
        self.0.word()
    }
}
impl Word for Flushed {
    #[inline(always)]
    fn of(word: u64) -> Self {
        Self(flushed(f32::of(word)))
    }
    fn word(self) -> u64 {
        self.0.word()
    }
}

macro_rules! floats {
    ($op:expr, $ty:ty, |$x:ident| $value:expr) => {{
        type T = $ty;
        #[inline(always)]
        fn v($x: T) -> impl PartialOrd + Copy {
            $value
        }
        match $op {
            "eq" => test!(|a: T, b: T| v(a) == v(b)),
            "ne" => test!(|a: T, b: T| v(a) < v(b) || v(a) > v(b)),
            "lt" => test!(|a: T, b: T| v(a) < v(b)),
            "le" => test!(|a: T, b: T| v(a) <= v(b)),
            "gt" => test!(|a: T, b: T| v(a) > v(b)),
            "ge" => test!(|a: T, b: T| v(a) >= v(b)),
            "equ" => test!(|a: T, b: T| !(v(a) < v(b) || v(a) > v(b))),
            "neu" => test!(|a: T, b: T| !(v(a) == v(b))),
            "ltu" => test!(|a: T, b: T| !(v(a) >= v(b))),
            "leu" => test!(|a: T, b: T| !(v(a) > v(b))),
            "gtu" => test!(|a: T, b: T| !(v(a) <= v(b))),
            "geu" => test!(|a: T, b: T| !(v(a) < v(b))),
            "num" => test!(|a: T, b: T| v(a).partial_cmp(&v(b)).is_some()),
            "nan" => test!(|a: T, b: T| v(a).partial_cmp(&v(b)).is_none()),
            _ => return None,
        }
    }};
}

macro_rules! integers {
    ($op:expr, $ty:ty) => {
        match $op {
            "eq" => test!(|a: $ty, b: $ty| a == b),
            "ne" => test!(|a: $ty, b: $ty| a != b),
            "lt" | "lo" => test!(|a: $ty, b: $ty| a < b),
            "le" | "ls" => test!(|a: $ty, b: $ty| a <= b),
            "gt" | "hi" => test!(|a: $ty, b: $ty| a > b),
            "ge" | "hs" => test!(|a: $ty, b: $ty| a >= b),
            _ => return None,
        }
    };
}

/// The comparison `op` on `ty`.
#[allow(clippy::neg_cmp_op_on_partial_ord, reason = "unordered comparisons are the negation of ordered ones")]
pub(crate) fn comparison(op: &str, ty: Type, flush: bool) -> Option<Test> {
    let unsigned_only = matches!(op, "lo" | "ls" | "hi" | "hs");
    if unsigned_only && !matches!(ty, U16 | U32 | U64) {
        return None;
    }
    Some(match ty {
        B16 | B32 | B64 if !matches!(op, "eq" | "ne") => return None,
        B16 | U16 => integers!(op, u16),
        B32 | U32 => integers!(op, u32),
        B64 | U64 => integers!(op, u64),
        S16 => integers!(op, i16),
        S32 => integers!(op, i32),
        S64 => integers!(op, i64),
        F32 if flush => floats!(op, Flushed, |x| x.0),
        F32 => floats!(op, f32, |x| x),
        F64 => floats!(op, f64, |x| x),
        F16 => floats!(op, Half, |x| x.0),
        Bf16 => floats!(op, Brain, |x| x.0),
        _ => return None,
    })
}

/// `slct.dtype.{s32,f32} d, a, b, c`: `a` where `c >= 0`, else `b`.
pub(crate) fn select_by_sign(selector: Type, flush: bool) -> Option<Ternary> {
    Some(match selector {
        S32 => ternary!(|a: u64, b: u64, c: i32| if c >= 0 { a } else { b }),
        F32 if flush => ternary!(|a: u64, b: u64, c: f32| if flushed(c) >= 0.0 { a } else { b }),
        F32 => ternary!(|a: u64, b: u64, c: f32| if c >= 0.0 { a } else { b }),
        _ => return None,
    })
}
