//! Single and double precision arithmetic.

use bulkhead_ptx::ast::Type::{self, F32, F64};

use super::name::{Arithmetic, Name};
use super::rounding::{Exact, Rounding};
use super::{Binary, Property, Ternary, Unary, binary, property, ternary, unary};
use super::{double, fused};

/// `.ftz`, `.sat` and the rounding mode of one instruction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mode {
    /// Flushes subnormal operands and results of single precision to zero.
    pub(crate) flush: bool,
    /// Clamps the result to `[0, 1]`; NaN becomes zero.
    pub(crate) saturate: bool,
    /// How the result is rounded.
    pub(crate) rounding: Rounding,
}

/// Single-precision results of arithmetic have one NaN. Chosen among bits: among numbers one NaN is as good
/// as another to a compiler.
#[inline(always)]
pub(super) fn one_nan(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits(if bits & 0x7fff_ffff > 0x7f80_0000 { 0x7fff_ffff } else { bits })
}

/// A subnormal number becomes a zero of its sign.
#[inline(always)]
pub(crate) fn flushed(x: f32) -> f32 {
    if x.to_bits() & 0x7f80_0000 == 0 { f32::from_bits(x.to_bits() & 0x8000_0000) } else { x }
}

#[inline(always)]
pub(crate) fn saturated(x: f32) -> f32 {
    // NaN fails both comparisons and becomes zero.
    if x > 0.0 { if x < 1.0 { x } else { 1.0 } } else { 0.0 }
}

const fn named(what: Arithmetic, bits: u8, flush: bool) -> Option<Name> {
    Some(Name::Float { what, bits, flush })
}

const fn no_name(_: Arithmetic, _: u8, _: bool) -> Option<Name> {
    None
}

/// One single-precision expression in its four forms: with and without `.ftz` and `.sat`.
macro_rules! single {
    ($kind:ident, $mode:expr, |$($a:ident),*| $body:expr) => {
        single!($kind, $mode, no_name, Arithmetic::Add, |$($a),*| $body)
    };
    ($kind:ident, $mode:expr, $named:ident, $what:expr, |$($a:ident),*| $body:expr) => {
        match ($mode.flush, $mode.saturate) {
            (false, false) => $kind!($named($what, 32, false); |$($a: f32),*| one_nan($body)),
            (true, false) => $kind!($named($what, 32, true); |$($a: f32),*| { $(let $a = flushed($a);)* flushed(one_nan($body)) }),
            (false, true) => $kind!(|$($a: f32),*| saturated($body)),
            (true, true) => $kind!(|$($a: f32),*| { $(let $a = flushed($a);)* saturated(flushed($body)) }),
        }
    };
}

/// One single-precision expression in every rounding mode; the nearest one is the processor's own.
macro_rules! rounded_single {
    ($kind:ident, $mode:expr, $what:expr, |$($a:ident),*| $nearest:expr, |$r:ident| $exact:expr) => {
        match $mode.rounding {
            Rounding::Nearest => single!($kind, $mode, named, $what, |$($a),*| $nearest),
            Rounding::NearestAway => return None,
            Rounding::Zero => single!($kind, $mode, |$($a),*| {
                const $r: Rounding = Rounding::Zero;
                $(let $a = f64::from($a);)*
                $exact.to_f32($r)
            }),
            Rounding::Down => single!($kind, $mode, |$($a),*| {
                const $r: Rounding = Rounding::Down;
                $(let $a = f64::from($a);)*
                $exact.to_f32($r)
            }),
            Rounding::Up => single!($kind, $mode, |$($a),*| {
                const $r: Rounding = Rounding::Up;
                $(let $a = f64::from($a);)*
                $exact.to_f32($r)
            }),
        }
    };
}

/// The same for double precision, which has neither `.ftz` nor `.sat`.
macro_rules! rounded_double {
    ($kind:ident, $mode:expr, $what:expr, |$($a:ident),*| $nearest:expr, |$r:ident| $exact:expr) => {
        match $mode.rounding {
            _ if $mode.flush || $mode.saturate => return None,
            Rounding::Nearest => $kind!(named($what, 64, false); |$($a: f64),*| $nearest),
            Rounding::NearestAway => return None,
            Rounding::Zero => $kind!(|$($a: f64),*| {
                const $r: Rounding = Rounding::Zero;
                $exact.to_f64($r, true $(&& $a.is_finite())*)
            }),
            Rounding::Down => $kind!(|$($a: f64),*| {
                const $r: Rounding = Rounding::Down;
                $exact.to_f64($r, true $(&& $a.is_finite())*)
            }),
            Rounding::Up => $kind!(|$($a: f64),*| {
                const $r: Rounding = Rounding::Up;
                $exact.to_f64($r, true $(&& $a.is_finite())*)
            }),
        }
    };
}

/// The same where the exact result is rounded at once.
macro_rules! directed_double {
    ($kind:ident, $mode:expr, $what:expr, |$($a:ident),*| $nearest:expr, |$r:ident| $directed:expr) => {
        match $mode.rounding {
            _ if $mode.flush || $mode.saturate => return None,
            Rounding::Nearest => $kind!(named($what, 64, false); |$($a: f64),*| $nearest),
            Rounding::NearestAway => return None,
            Rounding::Zero => $kind!(|$($a: f64),*| { const $r: Rounding = Rounding::Zero; $directed }),
            Rounding::Down => $kind!(|$($a: f64),*| { const $r: Rounding = Rounding::Down; $directed }),
            Rounding::Up => $kind!(|$($a: f64),*| { const $r: Rounding = Rounding::Up; $directed }),
        }
    };
}

/// `add`, `sub`, `mul`.
pub(crate) fn arithmetic(opcode: &str, ty: Type, mode: Mode) -> Option<Binary> {
    Some(match (opcode, ty) {
        ("add", F32) => {
            rounded_single!(binary, mode, Arithmetic::Add, |a, b| a + b, |R| Exact::sum_toward(a, b, R))
        }
        ("sub", F32) => {
            rounded_single!(binary, mode, Arithmetic::Subtract, |a, b| a - b, |R| Exact::sum_toward(a, -b, R))
        }
        ("mul", F32) => {
            rounded_single!(binary, mode, Arithmetic::Multiply, |a, b| a * b, |R| Exact::of(a * b))
        }
        ("add", F64) => {
            rounded_double!(binary, mode, Arithmetic::Add, |a, b| a + b, |R| Exact::sum_toward(a, b, R))
        }
        ("sub", F64) => {
            // What is no number keeps its sign.
            rounded_double!(binary, mode, Arithmetic::Subtract, |a, b| a - b, |R| {
                Exact::sum_toward(a, if b.is_nan() { b } else { -b }, R)
            })
        }
        ("mul", F64) => {
            directed_double!(binary, mode, Arithmetic::Multiply, |a, b| a * b, |R| double::product(a, b, R))
        }
        _ => return None,
    })
}

/// `fma`, and `mad` on floating point, which is the same on every target since sm_20.
pub(crate) fn fma(ty: Type, mode: Mode) -> Option<Ternary> {
    let plain = !mode.flush && !mode.saturate && mode.rounding == Rounding::Nearest;
    let own = match ty {
        F32 if plain => fused::single(),
        F64 if plain => fused::double(),
        _ => None,
    };
    if own.is_some() {
        return own;
    }
    Some(match ty {
        F32 => {
            rounded_single!(ternary, mode, Arithmetic::Fused, |a, b, c| a.mul_add(b, c), |R| {
                Exact::fused_single_toward(a, b, c, R)
            })
        }
        F64 => {
            directed_double!(ternary, mode, Arithmetic::Fused, |a, b, c| a.mul_add(b, c), |R| {
                double::fused(a, b, c, R)
            })
        }
        _ => return None,
    })
}

/// `div` in its rounded forms, and `.full`, which is the nearest result too.
pub(crate) fn div(ty: Type, mode: Mode) -> Option<Binary> {
    Some(match ty {
        // What would be subnormal is flushed before it is rounded.
        F32 if mode.flush && mode.rounding == Rounding::Down => single!(binary, mode, |a, b| {
            let exact = Exact::quotient(f64::from(a), f64::from(b));
            let tiny = exact.value.abs() < f64::from(f32::MIN_POSITIVE);
            if tiny { 0f32.copysign(exact.value as f32) } else { exact.to_f32(Rounding::Down) }
        }),
        F32 if mode.flush && mode.rounding == Rounding::Up => single!(binary, mode, |a, b| {
            let exact = Exact::quotient(f64::from(a), f64::from(b));
            let tiny = exact.value.abs() < f64::from(f32::MIN_POSITIVE);
            if tiny { 0f32.copysign(exact.value as f32) } else { exact.to_f32(Rounding::Up) }
        }),
        F32 => rounded_single!(binary, mode, Arithmetic::Divide, |a, b| a / b, |R| Exact::quotient(a, b)),
        F64 => {
            directed_double!(binary, mode, Arithmetic::Divide, |a, b| a / b, |R| double::quotient(a, b, R))
        }
        _ => return None,
    })
}

/// `div.approx`, which multiplies by a reciprocal: that of a number beyond 2^126 is subnormal, and zero to it.
pub(crate) fn div_approx(ty: Type, mode: Mode) -> Option<Binary> {
    const LARGE: f32 = f32::from_bits((126 + 127) << 23);
    Some(match ty {
        F32 => single!(binary, mode, |a, b| {
            if b.abs() > LARGE && b.is_finite() { a * 0f32.copysign(b) } else { a / b }
        }),
        _ => return None,
    })
}

/// `rcp` and `sqrt` in their rounded forms.
pub(crate) fn rcp_sqrt(opcode: &str, ty: Type, mode: Mode) -> Option<Unary> {
    Some(match (opcode, ty) {
        ("rcp", F32) => {
            rounded_single!(unary, mode, Arithmetic::Reciprocal, |a| 1.0 / a, |R| Exact::quotient(1.0, a))
        }
        ("rcp", F64) => {
            directed_double!(unary, mode, Arithmetic::Reciprocal, |a| 1.0 / a, |R| double::quotient(
                1.0, a, R
            ))
        }
        ("sqrt", F32) => rounded_single!(unary, mode, Arithmetic::Root, |a| a.sqrt(), |R| Exact::root(a)),
        ("sqrt", F64) => {
            directed_double!(unary, mode, Arithmetic::Root, |a| a.sqrt(), |R| double::root(a, R))
        }
        _ => return None,
    })
}

/// `abs` and `neg`: bit operations, so a NaN keeps its payload.
pub(crate) fn abs_neg(opcode: &str, ty: Type, flush: bool) -> Option<Unary> {
    Some(match (opcode, ty, flush) {
        ("abs", F32, false) => unary!(Some(Name::FloatMagnitude(32)); |a: f32| a.abs()),
        ("abs", F32, true) => unary!(|a: f32| flushed(a).abs()),
        ("abs", F64, false) => unary!(Some(Name::FloatMagnitude(64)); |a: f64| a.abs()),
        ("neg", F32, false) => unary!(Some(Name::FloatNegate(32)); |a: f32| -a),
        ("neg", F32, true) => unary!(|a: f32| -flushed(a)),
        ("neg", F64, false) => unary!(Some(Name::FloatNegate(64)); |a: f64| -a),
        _ => return None,
    })
}

/// The smaller of two numbers; a NaN loses against a number, and -0 is smaller than +0.
#[inline(always)]
pub(crate) fn lesser(a: f32, b: f32) -> f32 {
    if a.is_nan() {
        b
    } else if b.is_nan() || a < b {
        a
    } else if a == b {
        f32::from_bits(a.to_bits() | b.to_bits())
    } else {
        b
    }
}

/// The larger of two numbers; a NaN loses against a number, and +0 is larger than -0.
#[inline(always)]
pub(crate) fn greater(a: f32, b: f32) -> f32 {
    if a.is_nan() {
        b
    } else if b.is_nan() || a > b {
        a
    } else if a == b {
        f32::from_bits(a.to_bits() & b.to_bits())
    } else {
        b
    }
}

#[inline(always)]
fn lesser_f64(a: f64, b: f64) -> f64 {
    if a.is_nan() {
        b
    } else if b.is_nan() || a < b {
        a
    } else if a == b {
        f64::from_bits(a.to_bits() | b.to_bits())
    } else {
        b
    }
}

#[inline(always)]
fn greater_f64(a: f64, b: f64) -> f64 {
    if a.is_nan() {
        b
    } else if b.is_nan() || a > b {
        a
    } else if a == b {
        f64::from_bits(a.to_bits() & b.to_bits())
    } else {
        b
    }
}

/// What the PTX modifiers of `min` and `max` ask for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extreme {
    /// `.ftz`
    pub(crate) flush: bool,
    /// `.NaN`: the result is NaN where an operand is.
    pub(crate) keep_nan: bool,
}

/// `min` and `max`.
pub(crate) fn min_max(opcode: &str, ty: Type, mode: Extreme) -> Option<Binary> {
    Some(match (opcode, ty, mode.flush, mode.keep_nan) {
        ("min", F32, false, false) => binary!(|a: f32, b: f32| one_nan(lesser(a, b))),
        ("min", F32, true, false) => binary!(|a: f32, b: f32| one_nan(lesser(flushed(a), flushed(b)))),
        ("min", F32, false, true) => binary!(|a: f32, b: f32| nan_or(a, b, lesser(a, b))),
        ("min", F32, true, true) => binary!(|a: f32, b: f32| nan_or(a, b, lesser(flushed(a), flushed(b)))),
        ("max", F32, false, false) => binary!(|a: f32, b: f32| one_nan(greater(a, b))),
        ("max", F32, true, false) => binary!(|a: f32, b: f32| one_nan(greater(flushed(a), flushed(b)))),
        ("max", F32, false, true) => binary!(|a: f32, b: f32| nan_or(a, b, greater(a, b))),
        ("max", F32, true, true) => binary!(|a: f32, b: f32| nan_or(a, b, greater(flushed(a), flushed(b)))),
        ("min", F64, false, false) => binary!(|a: f64, b: f64| lesser_f64(a, b)),
        ("max", F64, false, false) => binary!(|a: f64, b: f64| greater_f64(a, b)),
        _ => return None,
    })
}

/// The same with `.xorsign.abs`: of the magnitudes, with the sign that the product would have.
pub(crate) fn min_max_of_magnitudes(opcode: &str, ty: Type, mode: Extreme) -> Option<Binary> {
    macro_rules! signed {
        ($pick:ident) => {
            match (mode.flush, mode.keep_nan) {
                (false, false) => {
                    binary!(|a: f32, b: f32| with_sign(one_nan($pick(a.abs(), b.abs())), a, b))
                }
                (true, false) => binary!(|a: f32, b: f32| {
                    with_sign(one_nan($pick(flushed(a).abs(), flushed(b).abs())), a, b)
                }),
                (false, true) => {
                    binary!(|a: f32, b: f32| with_sign(nan_or(a, b, $pick(a.abs(), b.abs())), a, b))
                }
                (true, true) => binary!(|a: f32, b: f32| {
                    with_sign(nan_or(a, b, $pick(flushed(a).abs(), flushed(b).abs())), a, b)
                }),
            }
        };
    }
    Some(match (opcode, ty) {
        ("min", F32) => signed!(lesser),
        ("max", F32) => signed!(greater),
        _ => return None,
    })
}

#[inline(always)]
fn with_sign(magnitude: f32, a: f32, b: f32) -> f32 {
    let sign = (a.to_bits() ^ b.to_bits()) & 0x8000_0000;
    if magnitude.is_nan() { magnitude } else { f32::from_bits(magnitude.to_bits() | sign) }
}

#[inline(always)]
fn nan_or(a: f32, b: f32, otherwise: f32) -> f32 {
    if a.is_nan() || b.is_nan() { f32::from_bits(0x7fff_ffff) } else { otherwise }
}

/// `copysign`: the magnitude of the second operand with the sign of the first.
pub(crate) fn copysign(ty: Type) -> Option<Binary> {
    Some(match ty {
        F32 => binary!(|a: f32, b: f32| b.copysign(a)),
        F64 => binary!(|a: f64, b: f64| b.copysign(a)),
        _ => return None,
    })
}

/// `testp`.
pub(crate) fn testp(property: &str, ty: Type) -> Option<Property> {
    Some(match (property, ty) {
        ("finite", F32) => property!(|a: f32| a.is_finite()),
        ("infinite", F32) => property!(|a: f32| a.is_infinite()),
        ("number", F32) => property!(|a: f32| !a.is_nan()),
        ("notanumber", F32) => property!(|a: f32| a.is_nan()),
        // Zeros count.
        ("normal", F32) => property!(|a: f32| a.is_normal() || a == 0.0),
        ("subnormal", F32) => property!(|a: f32| a.is_subnormal()),
        ("finite", F64) => property!(|a: f64| a.is_finite()),
        ("infinite", F64) => property!(|a: f64| a.is_infinite()),
        ("number", F64) => property!(|a: f64| !a.is_nan()),
        ("notanumber", F64) => property!(|a: f64| a.is_nan()),
        ("normal", F64) => property!(|a: f64| a.is_normal() || a == 0.0),
        ("subnormal", F64) => property!(|a: f64| a.is_subnormal()),
        _ => return None,
    })
}
