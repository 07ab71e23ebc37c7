//! The `.approx` functions. The ISA bounds their error; these stay well inside every bound but are not
//! bit-identical to any NVIDIA chip.

use bulkhead_ptx::ast::Type::{self, F32, F64};

use super::float::{flushed, one_nan};
use super::name::{Arithmetic, Name};
use super::{Unary, unary};

/// `rcp`, `rsqrt`, `sqrt`, `sin`, `cos`, `ex2`, `lg2`, `tanh`, all `.approx`.
pub(crate) fn function(opcode: &str, ty: Type, flush: bool) -> Option<Unary> {
    macro_rules! single {
        (|$a:ident| $body:expr) => {
            single!(None; |$a| $body)
        };
        ($what:expr; |$a:ident| $body:expr) => {
            if flush {
                unary!(named($what, true); |$a: f32| {
                    let $a = flushed($a);
                    flushed(one_nan($body))
                })
            } else {
                unary!(named($what, false); |$a: f32| one_nan($body))
            }
        };
    }
    Some(match (opcode, ty) {
        ("rcp", F32) => single!(Some(Arithmetic::Reciprocal); |a| 1.0 / a),
        ("sqrt", F32) => single!(Some(Arithmetic::Root); |a| a.sqrt()),
        ("rsqrt", F32) => single!(|a| (1.0 / f64::from(a).sqrt()) as f32),
        ("sin", F32) => single!(|a| a.sin()),
        ("cos", F32) => single!(|a| a.cos()),
        ("ex2", F32) => single!(|a| exp2(a)),
        ("lg2", F32) => single!(|a| log2(a)),
        ("tanh", F32) => single!(|a| a.tanh()),
        // The double-precision seeds carry no more than the upper word (ISA: "rcp.approx.ftz.f64").
        ("rcp", F64) if flush => unary!(|a: f64| flushed_f64(upper_word(1.0 / flushed_f64(upper_word(a))))),
        ("rsqrt", F64) if flush => unary!(|a: f64| upper_word(1.0 / flushed_f64(upper_word(a)).sqrt())),
        ("rsqrt", F64) => unary!(|a: f64| 1.0 / a.sqrt()),
        _ => return None,
    })
}

const fn named(what: Option<Arithmetic>, flush: bool) -> Option<Name> {
    match what {
        Some(what) => Some(Name::Float { what, bits: 32, flush }),
        None => None,
    }
}

#[inline(always)]
fn flushed_f64(x: f64) -> f64 {
    if x.is_subnormal() { 0f64.copysign(x) } else { x }
}

#[inline(always)]
fn upper_word(x: f64) -> f64 {
    f64::from_bits(x.to_bits() & 0xffff_ffff_0000_0000)
}

/// `2^a`, without branches, so that the host's compiler makes vectors of a loop over lanes.
#[inline(always)]
fn exp2(a: f32) -> f32 {
    /// What is added to it has no bits behind the point, and its last bits are those of the sum.
    const WHOLE: f64 = 3.0 * (1u64 << 51) as f64;
    // Beyond these bounds all results are zero, or infinite. NaN stays.
    let x = f64::from(a);
    let x = if x < -200.0 { -200.0 } else { x };
    let x = if x > 200.0 { 200.0 } else { x };
    let whole = x + WHOLE;
    let rest = (x - (whole - WHOLE)) * std::f64::consts::LN_2;
    let terms =
        [1.0 / 40_320.0, 1.0 / 5_040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];
    let power = terms.into_iter().fold(0.0, |sum, term| sum * rest + term);
    let scale = f64::from_bits((whole.to_bits() << 52).wrapping_add(1023 << 52));
    (power * scale) as f32
}

/// The logarithm to base 2, without branches as [`exp2`].
#[inline(always)]
fn log2(a: f32) -> f32 {
    /// Above every exponent's magnitude.
    const BIAS: u64 = 1100;
    /// With a small whole number in its last bits it is the sum of both.
    const WHOLE: f64 = (1u64 << 52) as f64;
    let x = f64::from(a);
    let above = x.to_bits().wrapping_sub(std::f64::consts::FRAC_1_SQRT_2.to_bits());
    let exponent = above.wrapping_add(BIAS << 52) >> 52;
    let mantissa = f64::from_bits(x.to_bits().wrapping_sub(exponent.wrapping_sub(BIAS) << 52));
    let exponent = f64::from_bits(WHOLE.to_bits() | exponent) - (WHOLE + BIAS as f64);
    let part = (mantissa - 1.0) / (mantissa + 1.0);
    let square = part * part;
    let terms = [1.0 / 13.0, 1.0 / 11.0, 1.0 / 9.0, 1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0, 1.0];
    let sum = terms.into_iter().fold(0.0, |sum, term| sum * square + term);
    let value = exponent + part * sum * (2.0 * std::f64::consts::LOG2_E);
    let value = if x == 0.0 { f64::NEG_INFINITY } else { value };
    let value = if x < 0.0 { f64::NAN } else { value };
    // What is infinite stays, and NaN too.
    (if x < f64::INFINITY { value } else { x }) as f32
}
