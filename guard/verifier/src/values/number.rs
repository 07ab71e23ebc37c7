//! What is known of a number, and how instructions and tests change that.
//!
//! Everything here goes by the width of a register, so that tests can go through all numbers of narrow registers.
//! A number that is *small* is from 0 on and the same signed and unsigned. Of a register's number either that is known,
//! or no more than how many of its low bits are zero: then it is *whole*, anything of its width.

use crate::most::Most;

/// How many bits a register has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Width(pub u32);

impl Width {
    /// A register of 32 bits.
    pub const WORD: Self = Self(32);

    /// The largest signed number.
    #[inline]
    pub const fn most(self) -> i128 {
        (1 << (self.0 - 1)) - 1
    }

    /// How many numbers there are.
    const fn count(self) -> i128 {
        1 << self.0
    }
}

/// How a number of a register is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// The highest bit is a sign.
    Signed,
    /// All bits count up.
    Unsigned,
}

impl Sign {
    /// What a modifier of a type says.
    #[inline]
    pub fn of(modifier: &str) -> Option<Self> {
        match modifier {
            "s32" => Some(Self::Signed),
            "u32" => Some(Self::Unsigned),
            _ => None,
        }
    }

    /// The number that an immediate is to an instruction that means its operands so: PTX takes the low bits of either
    /// spelling, so that `-1` is the largest number without a sign. None where it has more bits than a register.
    #[inline]
    pub fn immediate(self, value: i128, width: Width) -> Option<i128> {
        let (signed, unsigned) = (Self::Signed.all(width), Self::Unsigned.all(width));
        (signed.low..=unsigned.high).contains(&value).then_some(())?;
        let all = self.all(width);
        Some(if value < all.low {
            value + width.count()
        } else if value > all.high {
            value - width.count()
        } else {
            value
        })
    }

    /// Any number.
    #[inline]
    pub const fn all(self, width: Width) -> Number {
        match self {
            Self::Signed => Number::between(-width.most() - 1, width.most()),
            Self::Unsigned => Number::between(0, width.count() - 1),
        }
    }
}

/// Nothing is known to be further off than this: sums of what is known cannot overflow.
pub const FAR: i128 = 1 << 62;

/// A number, as a signed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number {
    /// The least that it is.
    pub low: i128,
    /// In any block.
    pub high: i128,
    /// The same, by where in its block a thread is.
    pub most: Most,
    /// Low bits that are zero, at least.
    pub zeros: u32,
}

impl Number {
    /// Anything from `low` to `high`, both included.
    #[inline]
    pub const fn between(low: i128, high: i128) -> Self {
        Self { low, high, most: Most::constant(high), zeros: 0 }
    }

    /// One number.
    #[inline]
    pub fn exactly(value: i128) -> Self {
        Self { zeros: value.trailing_zeros().min(63), ..Self::between(value, value) }
    }

    /// Of which so many low bits are zero.
    #[inline]
    pub const fn with_zeros(self, zeros: u32) -> Self {
        Self { zeros, ..self }
    }

    /// Whether it is from 0 on, and the same signed and unsigned.
    #[inline]
    pub const fn is_small(&self, width: Width) -> bool {
        self.low >= 0 && self.high <= width.most()
    }

    /// Any product of the two.
    #[inline]
    pub fn times(self, other: Self) -> Self {
        let ends =
            [self.low * other.low, self.low * other.high, self.high * other.low, self.high * other.high];
        let (low, high) =
            ends.iter().fold((ends[0], ends[0]), |(low, high), end| (low.min(*end), high.max(*end)));
        let is_factor = |number: Self| number.low == number.high && number.low >= 0;
        let most = if is_factor(other) {
            self.most.times(other.low)
        } else if is_factor(self) {
            other.most.times(self.low)
        } else {
            Most::constant(high)
        };
        Self { low, high, most, zeros: (self.zeros + other.zeros).min(63) }
    }

    /// Any sum of the two.
    #[inline]
    pub fn plus(self, other: Self) -> Self {
        let (low, high) = (self.low + other.low, self.high + other.high);
        let most = self.most.plus(other.most).unwrap_or(Most::constant(high));
        Self { low, high, most, zeros: self.zeros.min(other.zeros) }
    }

    /// Any difference of the two.
    #[inline]
    pub fn minus(self, other: Self) -> Self {
        self.plus(Self::between(-other.high, -other.low).with_zeros(other.zeros))
    }

    /// Whichever of the two it is.
    #[inline]
    pub fn or(self, other: Self) -> Self {
        let (low, high) = (self.low.min(other.low), self.high.max(other.high));
        let most = if self.most == other.most { self.most } else { Most::constant(high) };
        Self { low, high, most, zeros: self.zeros.min(other.zeros) }
    }

    /// Of a conjunction of numbers that are from 0 on no more is left than of either.
    #[inline]
    pub fn and(self, other: Self) -> Self {
        Self::between(0, self.high.min(other.high)).with_zeros(self.zeros.max(other.zeros))
    }

    /// Whether it says no more of a number than this does.
    #[inline]
    pub fn holds(self, other: Self) -> bool {
        self.low <= other.low && other.high <= self.high && self.zeros <= other.zeros
    }

    /// What both say together, of the same number.
    #[inline]
    pub fn with(self, other: Self) -> Self {
        let (low, high) = (self.low.max(other.low), self.high.min(other.high));
        if low > high {
            // Nobody comes here.
            return self;
        }
        let most = if high < self.high { Most::constant(high) } else { self.most };
        Self { low, high, most, zeros: self.zeros.max(other.zeros) }
    }

    /// Whether it does not depend on where in its block a thread is.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.most == Most::constant(self.high)
    }

    /// The same wherever that is.
    #[inline]
    pub fn plain(self) -> Self {
        Self { most: Most::constant(self.high), ..self }
    }

    /// Whether it follows from what is known.
    #[inline]
    pub fn implied_by(self, known: Self) -> bool {
        self.holds(known) && self.most.implied_by(known.most, known.high)
    }

    /// Itself, where it lies in what is looked at at all.
    #[inline]
    pub fn fits(self) -> Option<Self> {
        let most = &self.most;
        (self.low >= -FAR && self.high <= FAR && most.is_below(FAR) && most.constant >= -FAR).then_some(self)
    }

    /// What a register of a width holds of it: a number beyond has wrapped around, which leaves its low bits.
    #[inline]
    pub fn settled(self, width: Width) -> Self {
        let zeros = self.zeros.min(width.0);
        let kept = if self.is_small(width) { self } else { Sign::Unsigned.all(width) };
        kept.with_zeros(zeros)
    }

    /// The same modulo the numbers of a width: with a sign, where that is known.
    fn near(self, width: Width) -> Self {
        if self.low <= width.most() {
            return self;
        }
        let zeros = self.zeros.min(width.0);
        Self::between(self.low - width.count(), self.high - width.count()).with_zeros(zeros)
    }

    /// What a register holds, as a number of this sign.
    #[inline]
    pub fn meant(self, sign: Sign, width: Width) -> Self {
        let all = sign.all(width);
        if self.high <= all.high { self } else { all.with_zeros(self.zeros) }
    }
}

/// An instruction on numbers of one width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// A sum.
    Add,
    /// A difference.
    Sub,
    /// A product.
    Mul,
    /// To the right by a constant, which the other is two to the power of.
    ShrUnsigned,
    /// A shift to the right that keeps the sign.
    ShrSigned,
    /// Bits that both have.
    And,
    /// Or exclusively.
    Or,
    /// The lesser, without signs.
    MinUnsigned,
    /// The lesser, with signs.
    MinSigned,
    /// The greater, with signs.
    MaxSigned,
    /// One of the two.
    Select,
}

impl Op {
    /// What it makes of two registers; none where nothing is known.
    #[inline]
    pub fn of(self, one: Number, other: Number, width: Width) -> Option<Number> {
        let signed = |number: Number| number.meant(Sign::Signed, width);
        let zeros = one.zeros.min(other.zeros);
        let number = match self {
            // What is added or taken off is the same number a whole round less.
            Self::Add if one.plus(other).is_small(width) => one.plus(other),
            Self::Add => one.near(width).plus(other.near(width)),
            Self::Sub if one.minus(other).is_small(width) => one.minus(other),
            Self::Sub => one.near(width).minus(other.near(width)),
            Self::Mul => one.times(other),
            // Without a sign it is the same either way.
            Self::ShrSigned if one.high > width.most() => return None,
            Self::ShrUnsigned | Self::ShrSigned => {
                let number = Number::between(one.low / other.high, one.high / other.high);
                let most = one.most.shifted(other.high.trailing_zeros());
                Number { most: most.unwrap_or(number.most), ..number }
            }
            Self::And => one.and(other),
            Self::Or => {
                let bits = i128::BITS - (one.high | other.high).leading_zeros();
                Number::between(0, (1 << bits) - (1 << zeros.min(bits))).with_zeros(zeros)
            }
            Self::MinUnsigned => {
                Number::between(one.low.min(other.low), one.high.min(other.high)).with_zeros(zeros)
            }
            Self::MinSigned => {
                let (one, other) = (signed(one), signed(other));
                Number::between(one.low.min(other.low), one.high.min(other.high)).with_zeros(zeros)
            }
            Self::MaxSigned => {
                let (one, other) = (signed(one), signed(other));
                Number::between(one.low.max(other.low), one.high.max(other.high)).with_zeros(zeros)
            }
            Self::Select => one.or(other),
        };
        Some(number.settled(width))
    }
}

/// How two numbers compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// `eq`.
    Equal,
    /// `ne`.
    Differs,
    /// `lt`, `lo`.
    Less,
    /// `le`, `ls`.
    LessOrEqual,
    /// `gt`, `hi`.
    Greater,
    /// `ge`, `hs`.
    GreaterOrEqual,
}

impl Order {
    /// What a modifier of a comparison says.
    #[inline]
    pub fn of(modifier: &str) -> Option<Self> {
        Some(match modifier {
            "eq" => Self::Equal,
            "ne" => Self::Differs,
            "lt" => Self::Less,
            "le" => Self::LessOrEqual,
            "gt" => Self::Greater,
            "ge" => Self::GreaterOrEqual,
            _ => return None,
        })
    }

    /// What holds where this does not.
    #[inline]
    pub const fn not(self) -> Self {
        match self {
            Self::Equal => Self::Differs,
            Self::Differs => Self::Equal,
            Self::Less => Self::GreaterOrEqual,
            Self::LessOrEqual => Self::Greater,
            Self::Greater => Self::LessOrEqual,
            Self::GreaterOrEqual => Self::Less,
        }
    }

    /// The same of the two the other way around.
    #[inline]
    pub const fn swapped(self) -> Self {
        match self {
            Self::Equal | Self::Differs => self,
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
        }
    }

    /// What is left of the numbers from `low` to `high` that compare so with one of `bound`.
    #[inline]
    pub fn cut(self, (low, high): (i128, i128), bound: (i128, i128)) -> (i128, i128) {
        let exact = bound.0 == bound.1;
        match self {
            Self::Less => (low, high.min(bound.1 - 1)),
            Self::LessOrEqual => (low, high.min(bound.1)),
            Self::Greater => (low.max(bound.0 + 1), high),
            Self::GreaterOrEqual => (low.max(bound.0), high),
            Self::Equal => (low.max(bound.0), high.min(bound.1)),
            Self::Differs if exact && low == bound.0 => (low + 1, high),
            Self::Differs if exact && high == bound.0 => (low, high - 1),
            Self::Differs => (low, high),
        }
    }
}

/// What tests say of a register of which that may be known, that it lies from `low` to `high`; none where that is no
/// small number, or nobody comes here.
pub fn refined(known: Option<Number>, (low, high): (i128, i128), width: Width) -> Option<Number> {
    let number = Number::between(low, high);
    (number.is_small(width) && low <= high).then_some(())?;
    let even = known.map_or(0, |known| known.zeros.min(width.0 - 1));
    let (low, high) = (((low + (1 << even) - 1) >> even) << even, (high >> even) << even);
    (low <= high).then_some(())?;
    let number = Number::between(low, high);
    Some(match known {
        // What it is at most by where a thread is still holds.
        Some(known) if known.high == high => Number { low, ..known },
        Some(known) => number.with_zeros(known.zeros),
        None => number,
    })
}

#[cfg(test)]
mod tests;
