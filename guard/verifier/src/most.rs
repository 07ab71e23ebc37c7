//! How much a number is at most, by where in its block a thread is.

/// Different multiples of where in its block a thread is, at most.
pub const PARTS: usize = 4;

/// A multiple of a whole part of where in its block a thread is along x, y or z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Part {
    /// Along which axis: 0, 1 or 2.
    pub axis: u8,
    /// How many bits it is shifted to the right by first.
    pub shift: u8,
    /// How often that is taken; 0 where there is no such part.
    pub factor: u64,
}

/// Parts in order, without a factor those that there are not.
pub type Parts = [Part; PARTS];

/// So much for every thread along x, y and z.
#[must_use]
pub fn along(factors: [u64; 3]) -> Parts {
    let mut parts = Parts::default();
    let some = (0..).zip(factors).filter(|(_, factor)| *factor != 0);
    for (part, (axis, factor)) in parts.iter_mut().zip(some) {
        *part = Part { axis, shift: 0, factor };
    }
    parts
}

/// What parts are together for the last thread of a block.
#[must_use]
pub fn of_last(parts: &Parts, block: [u32; 3]) -> u128 {
    parts.iter().fold(0, |sum, part| {
        let last = block.get(usize::from(part.axis)).map_or(u32::MAX, |side| side.saturating_sub(1));
        sum + u128::from(part.factor) * u128::from(last.checked_shr(part.shift.into()).unwrap_or(0))
    })
}

/// A number that is no more than a constant and parts of where in its block a thread is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Most {
    /// What is added besides the terms.
    pub constant: i128,
    /// Axis, shift and factor: in order, without a factor those that there are not.
    parts: [(u8, u8, i64); PARTS],
}

/// A constant beyond which nothing is looked at: what stands for a sum with a factor that is too large.
const BEYOND: i128 = 1 << 100;

impl Most {
    /// A number that does not depend on where a thread is.
    pub const fn constant(constant: i128) -> Self {
        Self { constant, parts: [(0, 0, 0); PARTS] }
    }

    /// Where a thread is along an axis.
    pub const fn thread(axis: u8) -> Self {
        let mut most = Self::constant(0);
        most.parts[0] = (axis, 0, 1);
        most
    }

    /// The bound on so many times what this bounds.
    pub fn times(self, factor: i128) -> Self {
        let mut product = Self { constant: self.constant.saturating_mul(factor), ..self };
        for (.., of) in &mut product.parts {
            match i64::try_from(i128::from(*of) * factor) {
                Ok(times) => *of = times,
                Err(_) => return Self::constant(BEYOND),
            }
        }
        product.in_order()
    }

    /// The sum; none where it has too many parts, or too large ones.
    pub fn plus(self, other: Self) -> Option<Self> {
        // Far too little is no more than that, and what is far too much is never used.
        let constant = self.constant.saturating_add(other.constant);
        if other.is_constant() {
            return Some(Self { constant, ..self });
        }
        if self.is_constant() {
            return Some(Self { constant, ..other });
        }
        let mut sum = Self { constant, ..self };
        for (axis, shift, factor) in other.parts.into_iter().filter(|(.., factor)| *factor != 0) {
            let same = |(a, s, f): &&mut (u8, u8, i64)| *f != 0 && (*a, *s) == (axis, shift);
            if let Some((.., known)) = sum.parts.iter_mut().find(same) {
                *known = known.checked_add(factor)?;
            } else {
                *sum.parts.iter_mut().find(|(.., factor)| *factor == 0)? = (axis, shift, factor);
            }
        }
        Some(sum.in_order())
    }

    /// Of the whole quotient by two to this power, where nothing is below zero.
    pub fn shifted(self, by: u32) -> Option<Self> {
        let power = 1_i128.checked_shl(by).filter(|power| *power > 0)?;
        let positive = self.constant >= 0 && self.parts.iter().all(|(.., factor)| *factor >= 0);
        positive.then_some(())?;
        let mut quotient = Self::constant((self.constant + power - 1) / power);
        let mut several = 0;
        for (axis, shift, factor) in self.parts.into_iter().filter(|(.., factor)| *factor != 0) {
            several += 1;
            // A power of two is taken off the shift; of another the quotient is no more than that of the next one.
            let of = u32::try_from(factor).ok()?.checked_next_power_of_two()?.trailing_zeros();
            let part = if of <= by {
                (axis, u8::try_from(u32::from(shift) + by - of).ok().filter(|shift| *shift < 32)?, 1)
            } else {
                (axis, shift, 1 << (of - by))
            };
            quotient = quotient.plus(Self { constant: 0, parts: [part, (0, 0, 0), (0, 0, 0), (0, 0, 0)] })?;
        }
        // What the parts leave over may make one more together, but for one of them.
        quotient.constant += (several - 1).max(0);
        Some(quotient)
    }

    /// Whether all of it is between zero and this, but for the constant, which may be below.
    pub fn is_below(&self, most: i128) -> bool {
        self.constant <= most && self.parts.iter().all(|(.., factor)| i128::from(*factor) <= most)
    }

    /// The parts, where none is below zero.
    pub fn parts(&self) -> Option<Parts> {
        let mut parts = Parts::default();
        for (part, (axis, shift, factor)) in parts.iter_mut().zip(self.parts) {
            *part = Part { axis, shift, factor: u64::try_from(factor).ok()? };
        }
        Some(parts)
    }

    /// Its parts: axis, shift and factor of each.
    pub fn terms(&self) -> impl Iterator<Item = (u8, u8, i64)> + '_ {
        self.parts.iter().copied().filter(|(.., factor)| *factor != 0)
    }

    /// A constant and such parts; none where there are too many, or one is along no axis.
    pub fn of_terms(constant: i128, terms: &[(u8, u8, i64)]) -> Option<Self> {
        terms.iter().all(|(axis, ..)| *axis < 3).then_some(())?;
        let mut most = Self::constant(constant);
        most.parts.get_mut(..terms.len())?.copy_from_slice(terms);
        Some(most.in_order())
    }

    /// Whether a number is no more than this that is no more than what is known, nor than `high`.
    pub fn implied_by(self, known: Self, high: i128) -> bool {
        self == known || self.is_constant() && high <= self.constant
    }

    /// Whether it has no parts: those that there are come first.
    fn is_constant(&self) -> bool {
        matches!(self.parts, [(.., 0), ..])
    }

    fn in_order(mut self) -> Self {
        for part in &mut self.parts {
            if part.2 == 0 {
                *part = (u8::MAX, 0, 0);
            }
        }
        self.parts.sort_unstable();
        for part in &mut self.parts {
            if part.2 == 0 {
                *part = (0, 0, 0);
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_thread_of_a_block_is_beyond_what_is_computed_for_the_last() {
        let (x, y) = (Most::thread(0), Most::thread(1));
        for shift in 0..6 {
            for (factor, other, constant) in
                [(1, 0, 0), (4, 0, 3), (3, 0, 8), (16, 5, 0), (4, 4, 7), (0, 9, 1)]
            {
                let sum =
                    x.times(factor).plus(y.times(other)).and_then(|sum| sum.plus(Most::constant(constant)));
                let most = sum.and_then(|sum| sum.shifted(shift)).unwrap();
                let parts = most.parts().unwrap();
                for (width, height) in [(1_u32, 1_u32), (32, 1), (33, 7), (64, 4), (100, 3), (256, 2)] {
                    let bound = i128::try_from(of_last(&parts, [width, height, 1])).unwrap() + most.constant;
                    let (column, row) = (i128::from(width - 1), i128::from(height - 1));
                    let value = (column * factor + row * other + constant) >> shift;
                    assert!(
                        value <= bound,
                        "{factor} {other} {constant} >> {shift} in {width} {height}: {bound}"
                    );
                    if (factor, other, constant) == (1, 0, 0)
                        || (factor, other) == (4, 0) && shift > 2 && constant == 0
                    {
                        assert_eq!(value, bound);
                    }
                }
            }
        }
    }

    #[test]
    fn a_part_is_along_an_axis() {
        // Behind those that have no factor nobody would look for it.
        assert_eq!(Most::of_terms(7, &[(u8::MAX, 1, -5)]), None);
        assert_eq!(Most::of_terms(7, &[(3, 0, 1)]), None);
        let last = Most::of_terms(7, &[(2, 1, -5)]).unwrap();
        assert!(!last.is_constant() && !last.implied_by(Most::constant(7), 7));
    }

    #[test]
    fn what_has_too_large_parts_is_below_nothing() {
        let large = Most::thread(0).times(1 << 62);
        assert!(
            large.is_below(1 << 62)
                && !large.times(2).is_below(1 << 99)
                && !large.times(-4).is_below(1 << 99)
        );
        assert_eq!(large.plus(large), None);
        assert_eq!(large.plus(Most::constant(7)).map(|sum| sum.constant), Some(7));
    }

    #[test]
    fn what_has_too_many_parts_is_told() {
        let part = |shift| Most::thread(0).shifted(shift).unwrap();
        let four = (1..4).fold(part(0), |sum, shift| sum.plus(part(shift)).unwrap());
        assert_eq!(four.plus(part(4)), None);
        assert_eq!(
            four.plus(part(3)).and_then(|sum| sum.plus(part(3).times(-2))),
            (1..3).try_fold(part(0), |sum, shift| sum.plus(part(shift)))
        );
    }
}
