//! Pairs of 8-bit floating-point numbers, tf32, and `cvt.pack`.

use super::rounding::f16_to_f32;
use super::{Binary, Ternary, Unary, binary, ternary, unary};

/// An 8-bit format: there is no infinity to convert to, since all conversions saturate.
#[derive(Clone, Copy)]
struct Format {
    fraction_bits: i32,
    bias: i32,
    /// The largest finite number.
    most: u8,
    /// The least bits, without the sign, that are no number; and infinity, where there is one.
    nan: u8,
    infinity: Option<u8>,
}

const E4M3: Format = Format { fraction_bits: 3, bias: 7, most: 0x7e, nan: 0x7f, infinity: None };
const E5M2: Format = Format { fraction_bits: 2, bias: 15, most: 0x7b, nan: 0x7d, infinity: Some(0x7c) };

fn exponent_of(value: f64) -> i32 {
    (value.to_bits() >> 52 & 0x7ff) as i32 - 1023
}

/// To nearest, ties to even; what is too large becomes the largest number.
fn narrow(format: Format, value: f32, relu: bool) -> u8 {
    if value.is_nan() {
        return 0x7f;
    }
    if relu && value.is_sign_negative() {
        return 0;
    }
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let magnitude = f64::from(value.abs());
    let exponent = exponent_of(magnitude).max(1 - format.bias);
    // In units of the last bit that there is, which is exact.
    let units = magnitude * 2f64.powi(format.fraction_bits - exponent);
    let rounded = units.round_ties_even();
    if rounded >= 65536.0 {
        return sign | format.most;
    }
    let place = (exponent + format.bias - 1) << format.fraction_bits;
    let bits = place + rounded as i32;
    sign | if bits > i32::from(format.most) { format.most } else { bits as u8 }
}

fn widen(format: Format, bits: u8) -> u16 {
    let sign = u16::from(bits & 0x80) << 8;
    let magnitude = bits & 0x7f;
    if Some(magnitude) == format.infinity {
        return sign | 0x7c00;
    }
    if magnitude >= format.nan {
        return 0x7fff;
    }
    let fraction =
        f64::from(magnitude & ((1 << format.fraction_bits) - 1)) / f64::from(1 << format.fraction_bits);
    let exponent = i32::from(magnitude >> format.fraction_bits);
    let value = match exponent {
        0 => fraction * 2f64.powi(1 - format.bias),
        exponent => (1.0 + fraction) * 2f64.powi(exponent - format.bias),
    };
    // Every number of either format is one in half precision.
    let exact = super::rounding::Exact::of(value);
    sign | exact.narrow(super::rounding::F16, super::rounding::Rounding::Nearest) as u16
}

fn packed(high: u8, low: u8) -> u16 {
    u16::from(high) << 8 | u16::from(low)
}

fn of_halves(format: Format, pair: u32, relu: bool) -> u16 {
    let half = |bits: u32| narrow(format, f16_to_f32(bits as u16), relu);
    packed(half(pair >> 16), half(pair))
}

fn to_halves(format: Format, pair: u16, relu: bool) -> u32 {
    let half = |bits: u16| {
        let wide = widen(format, bits as u8);
        u32::from(if relu && wide & 0x8000 != 0 { 0 } else { wide })
    };
    half(pair >> 8) << 16 | half(pair)
}

/// From two single-precision numbers, the first of which goes to the upper half.
pub(crate) fn from_singles(format: &str, relu: bool) -> Option<Binary> {
    Some(match (format, relu) {
        ("e4m3x2", false) => {
            binary!(|a: f32, b: f32| packed(narrow(E4M3, a, false), narrow(E4M3, b, false)))
        }
        ("e4m3x2", true) => binary!(|a: f32, b: f32| packed(narrow(E4M3, a, true), narrow(E4M3, b, true))),
        ("e5m2x2", false) => {
            binary!(|a: f32, b: f32| packed(narrow(E5M2, a, false), narrow(E5M2, b, false)))
        }
        ("e5m2x2", true) => binary!(|a: f32, b: f32| packed(narrow(E5M2, a, true), narrow(E5M2, b, true))),
        _ => return None,
    })
}

/// From a pair in half precision.
pub(crate) fn from_halves(format: &str, relu: bool) -> Option<Unary> {
    Some(match (format, relu) {
        ("e4m3x2", false) => unary!(|a: u32| of_halves(E4M3, a, false)),
        ("e4m3x2", true) => unary!(|a: u32| of_halves(E4M3, a, true)),
        ("e5m2x2", false) => unary!(|a: u32| of_halves(E5M2, a, false)),
        ("e5m2x2", true) => unary!(|a: u32| of_halves(E5M2, a, true)),
        _ => return None,
    })
}

/// To a pair in half precision.
pub(crate) fn into_halves(format: &str, relu: bool) -> Option<Unary> {
    Some(match (format, relu) {
        ("e4m3x2", false) => unary!(|a: u16| to_halves(E4M3, a, false)),
        ("e4m3x2", true) => unary!(|a: u16| to_halves(E4M3, a, true)),
        ("e5m2x2", false) => unary!(|a: u16| to_halves(E5M2, a, false)),
        ("e5m2x2", true) => unary!(|a: u16| to_halves(E5M2, a, true)),
        _ => return None,
    })
}

/// `cvt.rna.tf32.f32`, to nearest with ties away from zero. Of what is no finite number the device drops the low bits; with
/// `.satfinite` it takes one step down from there.
pub(crate) fn tensor(finite: bool) -> Unary {
    match finite {
        false => unary!(|a: u32| short(a)),
        true => unary!(|a: u32| {
            let rounded = short(a);
            if rounded & 0x7f80_0000 == 0x7f80_0000 { rounded - 0x2000 } else { rounded }
        }),
    }
}

#[inline(always)]
fn short(a: u32) -> u32 {
    let half = if a & 0x7f80_0000 == 0x7f80_0000 { 0 } else { 0x1000 };
    (a + half) & !0x1fff
}

/// `cvt.pack` of two numbers into halves.
pub(crate) fn pack_halves(to: &str) -> Option<Binary> {
    Some(match to {
        "s16" => binary!(|a: i32, b: i32| {
            let half = |value: i32| u32::from(value.clamp(-0x8000, 0x7fff) as u16);
            half(a) << 16 | half(b)
        }),
        "u16" => binary!(|a: i32, b: i32| {
            let half = |value: i32| value.clamp(0, 0xffff) as u32;
            half(a) << 16 | half(b)
        }),
        _ => return None,
    })
}

/// `cvt.pack` of two numbers into the lower bytes, and the lower half of a third above them.
pub(crate) fn pack_bytes(to: &str) -> Option<Ternary> {
    Some(match to {
        "s8" => ternary!(|a: i32, b: i32, c: u32| {
            let byte = |value: i32| u32::from(value.clamp(-0x80, 0x7f) as u8);
            c << 16 | byte(a) << 8 | byte(b)
        }),
        "u8" => ternary!(|a: i32, b: i32, c: u32| {
            let byte = |value: i32| value.clamp(0, 0xff) as u32;
            c << 16 | byte(a) << 8 | byte(b)
        }),
        _ => return None,
    })
}
