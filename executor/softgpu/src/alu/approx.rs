//! The `.approx` functions. The ISA bounds their error; these stay well inside every bound but are not
//! bit-identical to any NVIDIA chip.

use bulkhead_guard::ast::Type::{self, F32, F64};

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
        ("ex2", F32) => single!(|a| a.exp2()),
        ("lg2", F32) => single!(|a| a.log2()),
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
