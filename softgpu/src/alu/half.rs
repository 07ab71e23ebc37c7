//! Half precision and bfloat16, single and packed in pairs.

use bulkhead_ptx::ast::Type::{self, Bf16, Bf16x2, F16, F16x2};

use super::float::{greater, lesser};
use super::rounding::{self, Exact, Rounding, bf16_to_f32, f16_to_f32};
use super::{Binary, Ternary, Unary, binary, ternary, unary};

/// A 16-bit floating-point format.
trait Half {
    fn read(bits: u16) -> f32;
    fn round(exact: Exact) -> u16;
    const SIGN_FREE: u16 = 0x7fff;
    const NAN: u16 = 0x7fff;
}

struct Ieee;
struct Brain;

impl Half for Ieee {
    #[inline(always)]
    fn read(bits: u16) -> f32 {
        f16_to_f32(bits)
    }
    #[inline(always)]
    fn round(exact: Exact) -> u16 {
        exact.narrow(rounding::F16, Rounding::Nearest) as u16
    }
}

impl Half for Brain {
    #[inline(always)]
    fn read(bits: u16) -> f32 {
        bf16_to_f32(bits)
    }
    #[inline(always)]
    fn round(exact: Exact) -> u16 {
        exact.narrow(rounding::BF16, Rounding::Nearest) as u16
    }
}

#[inline(always)]
fn wide<H: Half>(bits: u16) -> f64 {
    f64::from(H::read(bits))
}

#[inline(always)]
fn clamp<H: Half>(bits: u16) -> u16 {
    let value = H::read(bits);
    if value > 0.0 { if value < 1.0 { bits } else { H::round(Exact::of(1.0)) } } else { 0 }
}

#[inline(always)]
fn relu(bits: u16) -> u16 {
    // NaN becomes the canonical NaN, as fma.relu says; only negative numbers become zero.
    if bits & 0x8000 != 0 { 0 } else { bits }
}

fn add<H: Half>(a: u16, b: u16) -> u16 {
    H::round(Exact::sum(wide::<H>(a), wide::<H>(b)))
}

fn sub<H: Half>(a: u16, b: u16) -> u16 {
    H::round(Exact::sum(wide::<H>(a), -wide::<H>(b)))
}

fn mul<H: Half>(a: u16, b: u16) -> u16 {
    H::round(Exact::product(wide::<H>(a), wide::<H>(b)))
}

fn fused<H: Half>(a: u16, b: u16, c: u16) -> u16 {
    H::round(Exact::fused(wide::<H>(a), wide::<H>(b), wide::<H>(c)))
}

fn smaller<H: Half>(a: u16, b: u16) -> u16 {
    extreme::<H>(a, b, lesser)
}

fn larger<H: Half>(a: u16, b: u16) -> u16 {
    extreme::<H>(a, b, greater)
}

#[inline(always)]
fn extreme<H: Half>(a: u16, b: u16, pick: fn(f32, f32) -> f32) -> u16 {
    let value = pick(H::read(a), H::read(b));
    if value.is_nan() { H::NAN } else { H::round(Exact::of(f64::from(value))) }
}

fn nan_smaller<H: Half>(a: u16, b: u16) -> u16 {
    if H::read(a).is_nan() || H::read(b).is_nan() { H::NAN } else { smaller::<H>(a, b) }
}

fn nan_larger<H: Half>(a: u16, b: u16) -> u16 {
    if H::read(a).is_nan() || H::read(b).is_nan() { H::NAN } else { larger::<H>(a, b) }
}

#[inline(always)]
fn pair1(a: u32, f: impl Fn(u16) -> u16) -> u32 {
    u32::from(f((a >> 16) as u16)) << 16 | u32::from(f(a as u16))
}

#[inline(always)]
fn pair2(a: u32, b: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
    u32::from(f((a >> 16) as u16, (b >> 16) as u16)) << 16 | u32::from(f(a as u16, b as u16))
}

#[inline(always)]
fn pair3(a: u32, b: u32, c: u32, f: impl Fn(u16, u16, u16) -> u16) -> u32 {
    u32::from(f((a >> 16) as u16, (b >> 16) as u16, (c >> 16) as u16)) << 16
        | u32::from(f(a as u16, b as u16, c as u16))
}

/// One function of two halves in all four types.
macro_rules! two {
    ($ty:expr, $f:ident) => {
        match $ty {
            F16 => binary!(|a: u16, b: u16| $f::<Ieee>(a, b)),
            Bf16 => binary!(|a: u16, b: u16| $f::<Brain>(a, b)),
            F16x2 => binary!(|a: u32, b: u32| pair2(a, b, $f::<Ieee>)),
            Bf16x2 => binary!(|a: u32, b: u32| pair2(a, b, $f::<Brain>)),
            _ => return None,
        }
    };
}

/// The same, clamped to `[0, 1]`.
macro_rules! two_clamped {
    ($ty:expr, $f:ident) => {
        match $ty {
            F16 => binary!(|a: u16, b: u16| clamp::<Ieee>($f::<Ieee>(a, b))),
            F16x2 => binary!(|a: u32, b: u32| pair2(a, b, |a, b| clamp::<Ieee>($f::<Ieee>(a, b)))),
            _ => return None,
        }
    };
}

/// `add`, `sub`, `mul`; `.ftz` is for whoever asks for [`flush`].
pub(crate) fn arithmetic(opcode: &str, ty: Type, saturate: bool) -> Option<Binary> {
    Some(match (opcode, saturate) {
        ("add", false) => two!(ty, add),
        ("sub", false) => two!(ty, sub),
        ("mul", false) => two!(ty, mul),
        ("add", true) => two_clamped!(ty, add),
        ("sub", true) => two_clamped!(ty, sub),
        ("mul", true) => two_clamped!(ty, mul),
        _ => return None,
    })
}

/// What follows a fused multiply-add.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// Nothing.
    Keep,
    /// `.sat`
    Saturate,
    /// `.relu`
    Relu,
}

/// `fma`.
pub(crate) fn fma(ty: Type, after: After) -> Option<Ternary> {
    Some(match (ty, after) {
        (F16, After::Keep) => ternary!(|a: u16, b: u16, c: u16| fused::<Ieee>(a, b, c)),
        (F16, After::Saturate) => ternary!(|a: u16, b: u16, c: u16| clamp::<Ieee>(fused::<Ieee>(a, b, c))),
        (F16, After::Relu) => ternary!(|a: u16, b: u16, c: u16| relu(fused::<Ieee>(a, b, c))),
        (Bf16, After::Keep) => ternary!(|a: u16, b: u16, c: u16| fused::<Brain>(a, b, c)),
        (Bf16, After::Relu) => ternary!(|a: u16, b: u16, c: u16| relu(fused::<Brain>(a, b, c))),
        (F16x2, After::Keep) => ternary!(|a: u32, b: u32, c: u32| pair3(a, b, c, fused::<Ieee>)),
        (F16x2, After::Saturate) => {
            ternary!(|a: u32, b: u32, c: u32| pair3(a, b, c, |a, b, c| clamp::<Ieee>(fused::<Ieee>(a, b, c))))
        }
        (F16x2, After::Relu) => {
            ternary!(|a: u32, b: u32, c: u32| pair3(a, b, c, |a, b, c| relu(fused::<Ieee>(a, b, c))))
        }
        (Bf16x2, After::Keep) => ternary!(|a: u32, b: u32, c: u32| pair3(a, b, c, fused::<Brain>)),
        (Bf16x2, After::Relu) => {
            ternary!(|a: u32, b: u32, c: u32| pair3(a, b, c, |a, b, c| relu(fused::<Brain>(a, b, c))))
        }
        _ => return None,
    })
}

/// `min` and `max`; `keep_nan` as in `.NaN`.
pub(crate) fn min_max(opcode: &str, ty: Type, keep_nan: bool) -> Option<Binary> {
    Some(match (opcode, keep_nan) {
        ("min", false) => two!(ty, smaller),
        ("max", false) => two!(ty, larger),
        ("min", true) => two!(ty, nan_smaller),
        ("max", true) => two!(ty, nan_larger),
        _ => return None,
    })
}

/// `min` and `max` with `.xorsign.abs`: of the magnitudes, with the sign that the product would have.
pub(crate) fn min_max_of_magnitudes(opcode: &str, ty: Type, keep_nan: bool) -> Option<Binary> {
    Some(match (opcode, keep_nan) {
        ("min", false) => two!(ty, signed_smaller),
        ("max", false) => two!(ty, signed_larger),
        ("min", true) => two!(ty, signed_nan_smaller),
        ("max", true) => two!(ty, signed_nan_larger),
        _ => return None,
    })
}

#[inline(always)]
fn signed<H: Half>(a: u16, b: u16, pick: fn(u16, u16) -> u16) -> u16 {
    let magnitude = pick(a & H::SIGN_FREE, b & H::SIGN_FREE);
    if H::read(magnitude).is_nan() { magnitude } else { magnitude | ((a ^ b) & !H::SIGN_FREE) }
}

fn signed_smaller<H: Half>(a: u16, b: u16) -> u16 {
    signed::<H>(a, b, smaller::<H>)
}

fn signed_larger<H: Half>(a: u16, b: u16) -> u16 {
    signed::<H>(a, b, larger::<H>)
}

fn signed_nan_smaller<H: Half>(a: u16, b: u16) -> u16 {
    signed::<H>(a, b, nan_smaller::<H>)
}

fn signed_nan_larger<H: Half>(a: u16, b: u16) -> u16 {
    signed::<H>(a, b, nan_larger::<H>)
}

/// `abs` and `neg`: bit operations.
pub(crate) fn abs_neg(opcode: &str, ty: Type) -> Option<Unary> {
    Some(match (opcode, ty) {
        ("abs", F16 | Bf16) => unary!(|a: u16| a & Ieee::SIGN_FREE),
        ("abs", F16x2 | Bf16x2) => unary!(|a: u32| pair1(a, |a| a & Ieee::SIGN_FREE)),
        ("neg", F16 | Bf16) => unary!(|a: u16| a ^ 0x8000),
        ("neg", F16x2 | Bf16x2) => unary!(|a: u32| pair1(a, |a| a ^ 0x8000)),
        _ => return None,
    })
}

/// A subnormal number becomes a zero of its sign.
pub(crate) fn flush(ty: Type) -> Option<Unary> {
    Some(match ty {
        F16 => unary!(|a: u16| flushed(a)),
        F16x2 => unary!(|a: u32| pair1(a, flushed)),
        _ => return None,
    })
}

#[inline(always)]
pub(super) fn flushed(a: u16) -> u16 {
    if a & 0x7c00 == 0 { a & 0x8000 } else { a }
}

/// `ex2.approx.ftz`, which there is of bfloat16 alone.
fn exp2_flushed(a: u16) -> u16 {
    let result = exp2::<Brain>(a);
    if result & 0x7f80 == 0 { result & 0x8000 } else { result }
}

fn exp2<H: Half>(a: u16) -> u16 {
    H::round(Exact::of(wide::<H>(a).exp2()))
}

fn tanh<H: Half>(a: u16) -> u16 {
    H::round(Exact::of(wide::<H>(a).tanh()))
}

/// `ex2.approx` and `tanh.approx`.
pub(crate) fn function(opcode: &str, ty: Type) -> Option<Unary> {
    Some(match (opcode, ty) {
        ("ex2", F16) => unary!(|a: u16| exp2::<Ieee>(a)),
        ("ex2", Bf16) => unary!(|a: u16| exp2_flushed(a)),
        ("ex2", F16x2) => unary!(|a: u32| pair1(a, exp2::<Ieee>)),
        ("ex2", Bf16x2) => unary!(|a: u32| pair1(a, exp2_flushed)),
        ("tanh", F16) => unary!(|a: u16| tanh::<Ieee>(a)),
        ("tanh", Bf16) => unary!(|a: u16| tanh::<Brain>(a)),
        ("tanh", F16x2) => unary!(|a: u32| pair1(a, tanh::<Ieee>)),
        ("tanh", Bf16x2) => unary!(|a: u32| pair1(a, tanh::<Brain>)),
        _ => return None,
    })
}
