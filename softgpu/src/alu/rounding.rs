//! Rounding an exact result to a format, in any of PTX's rounding modes.
//!
//! The exact result of an operation is given as the nearest 64-bit number and the sign of what is
//! missing from it. For every format with at most 24 bits of precision that is enough to round
//! correctly, as the missing part is far below the last bit that counts.

use std::cmp::Ordering;

/// PTX's rounding modes for results in floating point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// `.rn`: to nearest, ties to even.
    Nearest,
    /// `.rna`: to nearest, ties away from zero.
    NearestAway,
    /// `.rz`: towards zero.
    Zero,
    /// `.rm`: towards minus infinity.
    Down,
    /// `.rp`: towards plus infinity.
    Up,
}

impl Rounding {
    /// By modifier.
    pub(crate) fn named(word: &str) -> Option<Self> {
        Some(match word {
            "rn" => Self::Nearest,
            "rna" => Self::NearestAway,
            "rz" => Self::Zero,
            "rm" => Self::Down,
            "rp" => Self::Up,
            _ => return None,
        })
    }
}

/// A binary floating-point format of at most 32 bits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Format {
    exponent_bits: u32,
    mantissa_bits: u32,
    /// The one NaN that arithmetic in this format produces.
    nan: u32,
}

/// IEEE half precision.
pub(crate) const F16: Format = Format { exponent_bits: 5, mantissa_bits: 10, nan: 0x7fff };
/// The upper half of single precision.
pub(crate) const BF16: Format = Format { exponent_bits: 8, mantissa_bits: 7, nan: 0x7fff };
/// Single precision with 10 mantissa bits, to be shifted to the top of 32 bits.
pub(crate) const TF32: Format = Format { exponent_bits: 8, mantissa_bits: 10, nan: 0x3ffff };
/// IEEE single precision.
pub(crate) const F32: Format = Format { exponent_bits: 8, mantissa_bits: 23, nan: 0x7fff_ffff };

/// A result before rounding: `value` plus something of the sign of `rest`, below half a unit of `value`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exact {
    /// The nearest 64-bit number.
    pub(crate) value: f64,
    /// What is missing; only its sign counts.
    pub(crate) rest: f64,
}

impl Exact {
    /// A number that is exact already.
    pub(crate) fn of(value: f64) -> Self {
        Self { value, rest: 0.0 }
    }

    /// `a + b`.
    pub(crate) fn sum(a: f64, b: f64) -> Self {
        let value = a + b;
        let b_part = value - a;
        let rest = (a - (value - b_part)) + (b - b_part);
        Self { value, rest }
    }

    /// `a * b`.
    pub(crate) fn product(a: f64, b: f64) -> Self {
        let value = a * b;
        Self { value, rest: a.mul_add(b, -value) }
    }

    /// `a / b`.
    pub(crate) fn quotient(a: f64, b: f64) -> Self {
        let value = a / b;
        let remainder = (-value).mul_add(b, a);
        Self { value, rest: if b < 0.0 { -remainder } else { remainder } }
    }

    /// The square root of `a`.
    pub(crate) fn root(a: f64) -> Self {
        let value = a.sqrt();
        Self { value, rest: (-value).mul_add(value, a) }
    }

    /// `a * b + c` (Boldo and Muller's error of a fused multiply-add).
    pub(crate) fn fused(a: f64, b: f64, c: f64) -> Self {
        let value = a.mul_add(b, c);
        let product = Self::product(a, b);
        let low = Self::sum(c, product.rest);
        let high = Self::sum(product.value, low.value);
        Self { value, rest: ((high.value - value) + high.rest) + low.rest }
    }

    /// `a * b + c` for rounding in one mode, of numbers of single precision: their products are exact. Zeros as in
    /// [`Exact::sum_toward`].
    pub(crate) fn fused_single_toward(a: f64, b: f64, c: f64, rounding: Rounding) -> Self {
        let both_positive = a.is_sign_positive() == b.is_sign_positive() && c.is_sign_positive();
        Self::sum(a * b, c).zero_toward(rounding, both_positive)
    }

    /// `a + b` for rounding in one mode: an exact zero is negative when rounding downwards, unless both
    /// operands are positive zeros (IEEE 754, 6.3).
    pub(crate) fn sum_toward(a: f64, b: f64, rounding: Rounding) -> Self {
        Self::sum(a, b).zero_toward(rounding, a.is_sign_positive() && b.is_sign_positive())
    }

    fn zero_toward(self, rounding: Rounding, positive: bool) -> Self {
        let zero = self.value == 0.0 && self.rest == 0.0;
        if zero && rounding == Rounding::Down && !positive { Self::of(-0.0) } else { self }
    }

    fn rest_sign(self) -> Ordering {
        // Overflow on the way makes the rest a NaN; then nothing is missing that counts.
        self.rest.partial_cmp(&0.0).unwrap_or(Ordering::Equal)
    }

    /// Rounds to single precision.
    #[inline(always)]
    pub(crate) fn to_f32(self, rounding: Rounding) -> f32 {
        match rounding {
            Rounding::Nearest | Rounding::NearestAway => f32::from_bits(self.narrow(F32, rounding)),
            Rounding::Zero | Rounding::Down | Rounding::Up => self.directed_f32(rounding),
        }
    }

    /// The nearest number of single precision, or the one beside it where that is on the wrong side. Without branches,
    /// so that the host's compiler makes vectors of a loop over lanes.
    #[inline(always)]
    fn directed_f32(self, rounding: Rounding) -> f32 {
        let Self { value, rest } = self;
        let near = value as f32;
        let wide = f64::from(near);
        let same = (wide == value) & (value != 0.0) & (value.abs() < f64::INFINITY);
        let above = (wide > value) | (same & (rest < 0.0));
        let below = (wide < value) | (same & (rest > 0.0));
        let bits = near.to_bits();
        let negative = bits >> 31 == 1;
        let (outwards, inwards) = (bits.wrapping_add(1), bits.wrapping_sub(1));
        let (down, up) = if negative { (outwards, inwards) } else { (inwards, outwards) };
        let bits = match rounding {
            Rounding::Down => {
                if above {
                    down
                } else {
                    bits
                }
            }
            Rounding::Up => {
                if below {
                    up
                } else {
                    bits
                }
            }
            _ => {
                if (negative & below) | (!negative & above) {
                    inwards
                } else {
                    bits
                }
            }
        };
        f32::from_bits(if value.is_nan() { F32.nan } else { bits })
    }

    /// Rounds to double precision in a directed mode; `finite` says that all operands were finite.
    pub(crate) fn to_f64(self, rounding: Rounding, finite: bool) -> f64 {
        let value = self.value;
        if value.is_nan() {
            return value;
        }
        if value.is_infinite() {
            let inwards = match rounding {
                Rounding::Nearest | Rounding::NearestAway => false,
                Rounding::Zero => true,
                Rounding::Down => value > 0.0,
                Rounding::Up => value < 0.0,
            };
            return if finite && inwards { f64::MAX.copysign(value) } else { value };
        }
        match (rounding, self.rest_sign()) {
            (Rounding::Nearest | Rounding::NearestAway, _) | (_, Ordering::Equal) => value,
            (Rounding::Down, Ordering::Less) => value.next_down(),
            (Rounding::Up, Ordering::Greater) => value.next_up(),
            (Rounding::Zero, Ordering::Less) if value > 0.0 => value.next_down(),
            (Rounding::Zero, Ordering::Greater) if value < 0.0 => value.next_up(),
            (Rounding::Down | Rounding::Up | Rounding::Zero, _) => value,
        }
    }

    /// Rounds to a narrower format; answers its bits.
    pub(crate) fn narrow(self, format: Format, rounding: Rounding) -> u32 {
        let Format { exponent_bits, mantissa_bits, nan } = format;
        let infinity = ((1u32 << exponent_bits) - 1) << mantissa_bits;
        let sign_bit = 1u32 << (exponent_bits + mantissa_bits);
        let bits = self.value.to_bits();
        let sign = if bits >> 63 == 1 { sign_bit } else { 0 };
        if self.value.is_nan() {
            return nan;
        }
        if self.value.is_infinite() {
            return sign | infinity;
        }
        if self.value == 0.0 {
            return sign;
        }
        // value = mantissa * 2^scale, with two spare bits below for what is missing.
        let raw_exponent = (bits >> 52 & 0x7ff) as i32;
        let fraction = bits & ((1 << 52) - 1);
        let (mantissa, scale) =
            if raw_exponent == 0 { (fraction, -1074) } else { (fraction | 1 << 52, raw_exponent - 1075) };
        let outwards = match self.rest_sign() {
            Ordering::Equal => 0i64,
            Ordering::Greater => {
                if sign == 0 {
                    1
                } else {
                    -1
                }
            }
            Ordering::Less => {
                if sign == 0 {
                    -1
                } else {
                    1
                }
            }
        };
        let mantissa = (mantissa << 2).wrapping_add_signed(outwards);
        let scale = scale - 2;

        let bias = (1 << (exponent_bits - 1)) - 1;
        let lowest_exponent = 1 - bias;
        let exponent = mantissa.ilog2() as i32 + scale;
        let quantum = exponent.max(lowest_exponent) - mantissa_bits as i32;
        let drop = quantum - scale;
        let (kept, lost, half) = if drop <= 0 {
            (mantissa << -drop, 0, 1)
        } else if drop >= 63 {
            (0, 1, 2)
        } else {
            (mantissa >> drop, mantissa & ((1 << drop) - 1), 1u64 << (drop - 1))
        };
        let up = match rounding {
            Rounding::Nearest => lost > half || (lost == half && kept & 1 == 1),
            Rounding::NearestAway => lost >= half,
            Rounding::Zero => false,
            Rounding::Down => lost != 0 && sign != 0,
            Rounding::Up => lost != 0 && sign == 0,
        };
        let kept = kept + u64::from(up);
        // A carry out of the mantissa moves into the exponent by itself.
        let steps = (exponent.max(lowest_exponent) - lowest_exponent) as u64;
        let encoded = kept + (steps << mantissa_bits);
        if encoded < u64::from(infinity) {
            return sign | encoded as u32;
        }
        let stays_finite = match rounding {
            Rounding::Nearest | Rounding::NearestAway => false,
            Rounding::Zero => true,
            Rounding::Down => sign == 0,
            Rounding::Up => sign != 0,
        };
        sign | if stays_finite { infinity - 1 } else { infinity }
    }
}

/// Reads a half-precision number.
pub(crate) fn f16_to_f32(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let exponent = u32::from(bits >> 10 & 0x1f);
    let fraction = u32::from(bits & 0x3ff);
    match (exponent, fraction) {
        (0, _) => {
            let magnitude = fraction as f32 * f32::from_bits(0x3380_0000);
            if sign == 0 { magnitude } else { -magnitude }
        }
        (0x1f, 0) => f32::from_bits(sign | 0x7f80_0000),
        (0x1f, _) => f32::from_bits(sign | 0x7fc0_0000 | fraction << 13),
        _ => f32::from_bits(sign | (exponent + 112) << 23 | fraction << 13),
    }
}

/// Reads a number in the upper half of single precision.
pub(crate) fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}
