//! Comparisons: `setp`, `set`, `slct`, `isspacep`'s ranges are elsewhere.

use bulkhead_ptx::ast::Type::{self, B16, B32, B64, Bf16, F16, F32, F64, S16, S32, S64, U16, U32, U64};

use super::float::flushed;
use super::name::{Name, Relation};
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

/// A half-precision operand of a comparison with `.ftz`.
#[derive(Clone, Copy)]
struct FlushedHalf(f32);

impl Word for FlushedHalf {
    #[inline(always)]
    fn of(word: u64) -> Self {
        Self(f16_to_f32(super::half::flushed(word as u16)))
    }
    fn word(self) -> u64 {
        self.0.word()
    }
}
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

const fn no_name(_: Relation, _: bool) -> Option<Name> {
    None
}

const fn single_named(relation: Relation, unordered: bool) -> Option<Name> {
    Some(Name::Floats { relation, bits: 32, unordered })
}

const fn double_named(relation: Relation, unordered: bool) -> Option<Name> {
    Some(Name::Floats { relation, bits: 64, unordered })
}

const fn integers_named(relation: Relation, bits: u32, signed: bool) -> Option<Name> {
    Some(Name::Integers { relation, bits: bits as u8, signed })
}

macro_rules! floats {
    ($op:expr, $ty:ty, $name:path, |$x:ident| $value:expr) => {{
        type T = $ty;
        #[inline(always)]
        fn v($x: T) -> impl PartialOrd + Copy {
            $value
        }
        match $op {
            "eq" => test!($name(Relation::Equal, false); |a: T, b: T| v(a) == v(b)),
            "ne" => test!($name(Relation::NotEqual, false); |a: T, b: T| v(a) < v(b) || v(a) > v(b)),
            "lt" => test!($name(Relation::Less, false); |a: T, b: T| v(a) < v(b)),
            "le" => test!($name(Relation::LessEqual, false); |a: T, b: T| v(a) <= v(b)),
            "gt" => test!($name(Relation::Greater, false); |a: T, b: T| v(a) > v(b)),
            "ge" => test!($name(Relation::GreaterEqual, false); |a: T, b: T| v(a) >= v(b)),
            "equ" => test!($name(Relation::Equal, true); |a: T, b: T| !(v(a) < v(b) || v(a) > v(b))),
            "neu" => test!($name(Relation::NotEqual, true); |a: T, b: T| !(v(a) == v(b))),
            "ltu" => test!($name(Relation::Less, true); |a: T, b: T| !(v(a) >= v(b))),
            "leu" => test!($name(Relation::LessEqual, true); |a: T, b: T| !(v(a) > v(b))),
            "gtu" => test!($name(Relation::Greater, true); |a: T, b: T| !(v(a) <= v(b))),
            "geu" => test!($name(Relation::GreaterEqual, true); |a: T, b: T| !(v(a) < v(b))),
            "num" => test!(|a: T, b: T| v(a).partial_cmp(&v(b)).is_some()),
            "nan" => test!(|a: T, b: T| v(a).partial_cmp(&v(b)).is_none()),
            _ => return None,
        }
    }};
}

macro_rules! integers {
    ($op:expr, $ty:ty) => {
        match $op {
            "eq" => test!(integers_named(Relation::Equal, <$ty>::BITS, <$ty>::MIN != 0); |a: $ty, b: $ty| a == b),
            "ne" => test!(integers_named(Relation::NotEqual, <$ty>::BITS, <$ty>::MIN != 0); |a: $ty, b: $ty| a != b),
            "lt" | "lo" => test!(integers_named(Relation::Less, <$ty>::BITS, <$ty>::MIN != 0); |a: $ty, b: $ty| a < b),
            "le" | "ls" => test!(integers_named(Relation::LessEqual, <$ty>::BITS, <$ty>::MIN != 0); |a: $ty, b: $ty| a <= b),
            "gt" | "hi" => test!(integers_named(Relation::Greater, <$ty>::BITS, <$ty>::MIN != 0); |a: $ty, b: $ty| a > b),
            "ge" | "hs" => test!(integers_named(Relation::GreaterEqual, <$ty>::BITS, <$ty>::MIN != 0); |a: $ty, b: $ty| a >= b),
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
        F32 if flush => floats!(op, Flushed, no_name, |x| x.0),
        F32 => floats!(op, f32, single_named, |x| x),
        F64 => floats!(op, f64, double_named, |x| x),
        F16 if flush => floats!(op, FlushedHalf, no_name, |x| x.0),
        F16 => floats!(op, Half, no_name, |x| x.0),
        Bf16 => floats!(op, Brain, no_name, |x| x.0),
        _ => return None,
    })
}

/// `slct.dtype.{s32,f32} d, a, b, c`: `a` where `c >= 0`, else `b`.
pub(crate) fn select_by_sign(selector: Type, flush: bool) -> Option<Ternary> {
    Some(match selector {
        S32 => ternary!(Some(Name::SelectBySign); |a: u64, b: u64, c: i32| if c >= 0 { a } else { b }),
        F32 if flush => ternary!(|a: u64, b: u64, c: f32| if flushed(c) >= 0.0 { a } else { b }),
        F32 => ternary!(|a: u64, b: u64, c: f32| if c >= 0.0 { a } else { b }),
        _ => return None,
    })
}
