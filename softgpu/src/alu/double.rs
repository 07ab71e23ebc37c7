//! Double precision in the directed rounding modes, from exact results: an operation's own result is too narrow to tell what
//! is missing from it where that lies below the least subnormal number.

use super::rounding::Rounding;

/// A finite number other than zero: its sign, and `mantissa * 2^exponent` with 53 bits of mantissa.
struct Parts {
    negative: bool,
    mantissa: u128,
    exponent: i32,
}

fn parts(x: f64) -> Option<Parts> {
    if !x.is_finite() || x == 0.0 {
        return None;
    }
    let (bits, negative) = (x.to_bits(), x.is_sign_negative());
    let fraction = u128::from(bits & ((1 << 52) - 1));
    Some(match (bits >> 52 & 0x7ff) as i32 {
        0 => {
            let shift = fraction.leading_zeros() as i32 - 75;
            Parts { negative, mantissa: fraction << shift, exponent: -1074 - shift }
        }
        exponent => Parts { negative, mantissa: fraction | 1 << 52, exponent: exponent - 1075 },
    })
}

/// Rounds `mantissa * 2^exponent`, which is not zero, and a little more where it is `sticky`.
fn round(negative: bool, mantissa: u128, exponent: i32, sticky: bool, rounding: Rounding) -> f64 {
    let top = 127 - mantissa.leading_zeros() as i32;
    let quantum = (top + exponent - 52).max(-1074);
    let drop = quantum - exponent;
    let (kept, lost) = match drop {
        ..=0 => (mantissa << -drop, sticky),
        1..=127 => (mantissa >> drop, sticky || mantissa & ((1 << drop) - 1) != 0),
        _ => (0, true),
    };
    let outwards = match rounding {
        Rounding::Nearest | Rounding::NearestAway | Rounding::Zero => false,
        Rounding::Down => negative,
        Rounding::Up => !negative,
    };
    // A carry out of the mantissa moves into the exponent by itself.
    let bits = kept as u64 + u64::from(lost && outwards) + (((quantum + 1074) as u64) << 52);
    let infinity = f64::INFINITY.to_bits();
    let bits = if bits < infinity {
        bits
    } else if outwards {
        infinity
    } else {
        infinity - 1
    };
    f64::from_bits(bits | u64::from(negative) << 63)
}

/// `a * b`.
pub(super) fn product(a: f64, b: f64, rounding: Rounding) -> f64 {
    let (Some(x), Some(y)) = (parts(a), parts(b)) else { return a * b };
    round(x.negative != y.negative, x.mantissa * y.mantissa, x.exponent + y.exponent, false, rounding)
}

/// `a / b`.
pub(super) fn quotient(a: f64, b: f64, rounding: Rounding) -> f64 {
    let (Some(x), Some(y)) = (parts(a), parts(b)) else { return a / b };
    let dividend = x.mantissa << 70;
    let (mantissa, rest) = (dividend / y.mantissa, dividend % y.mantissa);
    round(x.negative != y.negative, mantissa, x.exponent - y.exponent - 70, rest != 0, rounding)
}

/// The square root of `a`.
pub(super) fn root(a: f64, rounding: Rounding) -> f64 {
    let Some(Parts { negative: false, mantissa, exponent }) = parts(a) else { return a.sqrt() };
    let odd = exponent.rem_euclid(2);
    let square = mantissa << (64 + odd);
    let mantissa = square.isqrt();
    round(false, mantissa, (exponent - odd - 64) / 2, mantissa * mantissa != square, rounding)
}

/// `a * b + c`.
pub(super) fn fused(a: f64, b: f64, c: f64, rounding: Rounding) -> f64 {
    let (Some(x), Some(y)) = (parts(a), parts(b)) else { return sum(a * b, c, rounding) };
    let negative = x.negative != y.negative;
    let (product, exponent) = raised(x.mantissa * y.mantissa, x.exponent + y.exponent);
    let Some(z) = parts(c) else {
        return match c == 0.0 {
            true => round(negative, product, exponent, false, rounding),
            false => a.mul_add(b, c),
        };
    };
    let added = raised(z.mantissa, z.exponent);
    let ((mut large, high, negative), (small, low, other)) = if (exponent, product) >= (added.1, added.0) {
        ((product, exponent, negative), (added.0, added.1, z.negative))
    } else {
        ((added.0, added.1, z.negative), (product, exponent, negative))
    };
    let apart = high - low;
    let (near, lost) = match apart {
        0 => (small, false),
        1..=127 => (small >> apart, small & ((1 << apart) - 1) != 0),
        _ => (0, true),
    };
    large = if negative == other { large + near } else { large - near - u128::from(lost) };
    if large == 0 && !lost {
        return if rounding == Rounding::Down { -0.0 } else { 0.0 };
    }
    round(negative, large, high, lost, rounding)
}

/// With its highest bit where two can be added.
fn raised(mantissa: u128, exponent: i32) -> (u128, i32) {
    let shift = mantissa.leading_zeros() as i32 - 3;
    (mantissa << shift, exponent - shift)
}

/// The sum of a product without parts, zero or not finite, and a number.
fn sum(product: f64, c: f64, rounding: Rounding) -> f64 {
    let both_zero = product == 0.0 && c == 0.0;
    if both_zero && rounding == Rounding::Down && product.is_sign_negative() != c.is_sign_negative() {
        return -0.0;
    }
    product + c
}
