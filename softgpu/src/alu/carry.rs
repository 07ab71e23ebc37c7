//! Extended-precision arithmetic: the carry flag is one bit per lane.

use super::{LANES, Lanes};

/// What an extended-precision instruction adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `a + b (+ carry)`
    Add,
    /// `a - b (- borrow)`
    Sub,
    /// Low half of `a * b`, plus `c (+ carry)`.
    MulLow,
    /// High half of `a * b` unsigned, plus `c (+ carry)`.
    MulHighUnsigned,
    /// High half of `a * b` signed, plus `c (+ carry)`.
    MulHighSigned,
}

/// Computes one instruction, which takes the lanes' carry where there is one; answers the carry out of each lane.
pub(crate) fn compute(
    kind: Kind,
    wide: bool,
    operands: [&Lanes; 3],
    carry: Option<u32>,
    out: &mut Lanes,
) -> u32 {
    let [a, b, c] = operands;
    let (takes, carry) = (carry.is_some(), carry.unwrap_or(0));
    let width = if wide { 64 } else { 32 };
    let all: u128 = (1u128 << width) - 1;
    let mut flags = 0;
    for i in 0..LANES {
        let carry_in = u128::from(carry >> i & 1);
        let (x, y, z) = (u128::from(a[i]) & all, u128::from(b[i]) & all, u128::from(c[i]) & all);
        let (sum, flag) = match kind {
            Kind::Add => {
                let sum = x + y + carry_in;
                (sum, sum > all)
            }
            // A borrow is the absence of a carry, as programs see that mix both.
            Kind::Sub => {
                let borrow = u128::from(takes) & (carry_in ^ 1);
                (x.wrapping_sub(y).wrapping_sub(borrow), x >= y + borrow)
            }
            Kind::MulLow => {
                let sum = ((x * y) & all) + z + carry_in;
                (sum, sum > all)
            }
            Kind::MulHighUnsigned => {
                let sum = ((x * y) >> width) + z + carry_in;
                (sum, sum > all)
            }
            Kind::MulHighSigned => {
                let product = signed(a[i], wide).wrapping_mul(signed(b[i], wide));
                let sum = ((product >> width) as u128 & all) + z + carry_in;
                (sum, sum > all)
            }
        };
        out[i] = (sum & all) as u64;
        flags |= u32::from(flag) << i;
    }
    flags
}

#[inline(always)]
fn signed(word: u64, wide: bool) -> i128 {
    if wide { i128::from(word as i64) } else { i128::from(word as u32 as i32) }
}
