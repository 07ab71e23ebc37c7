//! Video instructions (PTX ISA, "Scalar Video Instructions" and "SIMD Video Instructions"): arithmetic on bytes and
//! halves of words.
//!
//! They are as the ISA's section says. A device of today has instructions for few of them; for the others its assembler
//! writes sequences, and some of these leave cases out: results that are clamped to `.u32` or into a part of a word, `.min`
//! and `.max` of results beyond 32 bits, products of unsigned words that are scaled or clamped.

use super::{LANES, Lanes};

/// What a video instruction does to two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// `a + b`
    Add,
    /// `a - b`
    Subtract,
    /// Half of `a + b`, rounded away from zero where that is not negative, else down.
    Average,
    /// The magnitude of `a - b`.
    Difference,
    /// The smaller one.
    Minimum,
    /// The larger one.
    Maximum,
    /// `a` to the left by `b`; `wraps` where only the low five bits of `b` count, else 32 at most.
    ShiftLeft { wraps: bool },
    /// `a` to the right by `b`, likewise.
    ShiftRight { wraps: bool },
    /// One where `a` stands in one of these relations to `b`, else zero.
    Compare { less: bool, equal: bool, greater: bool },
}

impl Action {
    fn of(self, a: i64, b: i64) -> i64 {
        match self {
            Self::Add => a + b,
            Self::Subtract => a - b,
            Self::Average => (a + b + i64::from(a + b >= 0)) >> 1,
            Self::Difference => (a - b).abs(),
            Self::Minimum => a.min(b),
            Self::Maximum => a.max(b),
            // What is shifted out of 34 bits is lost.
            Self::ShiftLeft { wraps } => (((i128::from(a) << amount(b, wraps)) as i64) << 30) >> 30,
            Self::ShiftRight { wraps } => a >> amount(b, wraps),
            Self::Compare { less, equal, greater } => i64::from(match a.cmp(&b) {
                std::cmp::Ordering::Less => less,
                std::cmp::Ordering::Equal => equal,
                std::cmp::Ordering::Greater => greater,
            }),
        }
    }
}

fn amount(b: i64, wraps: bool) -> i64 {
    if wraps { b & 31 } else { b.min(32) }
}

/// A part of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field {
    /// Its lowest bit.
    pub(crate) at: u32,
    /// How many it has: 8, 16 or 32.
    pub(crate) bits: u32,
}

impl Field {
    /// All of a word.
    pub(crate) const WORD: Self = Self { at: 0, bits: 32 };

    /// The bits it covers.
    fn mask(self) -> u32 {
        (u32::MAX >> (32 - self.bits)) << self.at
    }

    /// The number it holds.
    fn read(self, word: u64, signed: bool) -> i64 {
        let bits = (word >> self.at) << (64 - self.bits);
        if signed { (bits as i64) >> (64 - self.bits) } else { (bits >> (64 - self.bits)) as i64 }
    }

    /// A word with this part replaced by the low bits of a number.
    fn replaced(self, word: u32, number: i64) -> u32 {
        word & !self.mask() | ((number as u32) << self.at) & self.mask()
    }

    /// The nearest number to one that it can hold.
    fn clamp(self, number: i128, signed: bool) -> i64 {
        let clamped = if signed {
            number.clamp(-1 << (self.bits - 1), (1 << (self.bits - 1)) - 1)
        } else {
            number.clamp(0, (1 << self.bits) - 1)
        };
        clamped as i64
    }
}

/// An operand that a part is taken of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// Which part.
    pub(crate) field: Field,
    /// Whether it is a signed number.
    pub(crate) signed: bool,
}

impl Part {
    fn of(self, word: u64) -> i64 {
        self.field.read(word, self.signed)
    }
}

/// What becomes of a scalar result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Second {
    /// It is the result.
    None,
    /// It replaces a part of `c`.
    Merge(Field),
    /// `.add`: the sum with `c`.
    Add,
    /// `.min`: the smaller of it and `c`.
    Minimum,
    /// `.max`: the larger of it and `c`.
    Maximum,
}

/// Which parts of a word stand for the elements of operands and results, the first of them last.
pub(crate) type Picks = [u8; 4];

/// What a video instruction computes of three words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Video {
    /// One result.
    Scalar {
        action: Action,
        a: Part,
        b: Part,
        /// Whether the result is signed.
        signed: bool,
        saturates: bool,
        second: Second,
    },
    /// `vmad`: `a * b + c`, shifted to the right.
    Product {
        a: Part,
        b: Part,
        /// Whether the product is negated.
        negated: bool,
        /// Whether `c` is.
        negated_c: bool,
        /// Whether one is added.
        plus_one: bool,
        saturates: bool,
        shift: u32,
    },
    /// Two halves or four bytes at once.
    Parallel {
        action: Action,
        /// Bits of an element.
        bits: u32,
        /// Of which elements of `a` and then `b` the left operands are.
        a: (Picks, bool),
        /// Of which the right ones are.
        b: (Picks, bool),
        /// Whether the results are signed.
        signed: bool,
        saturates: bool,
        /// Which results count, a bit for each.
        mask: u8,
        /// Whether they are added to `c`; else they replace parts of it.
        sums: bool,
    },
}

impl Video {
    /// All lanes.
    pub(crate) fn lanes(&self, operands: [&Lanes; 3], out: &mut Lanes) {
        let [a, b, c] = operands;
        for i in 0..LANES {
            out[i] = u64::from(self.one(a[i], b[i], c[i]));
        }
    }

    /// One lane.
    pub(crate) fn one(&self, a: u64, b: u64, c: u64) -> u32 {
        match *self {
            Self::Scalar { action, a: left, b: right, signed, saturates, second } => {
                let number = action.of(left.of(a), right.of(b));
                let field = if let Second::Merge(field) = second { field } else { Field::WORD };
                let number = if saturates { field.clamp(number.into(), signed) } else { number };
                let with = Field::WORD.read(c, signed);
                match second {
                    Second::None => number as u32,
                    Second::Merge(field) => field.replaced(c as u32, number),
                    Second::Add => (number + with) as u32,
                    Second::Minimum => number.min(with) as u32,
                    Second::Maximum => number.max(with) as u32,
                }
            }
            Self::Product { a: left, b: right, negated, negated_c, plus_one, saturates, shift } => {
                let signed = left.signed || right.signed || negated || negated_c;
                let product = i128::from(left.of(a)) * i128::from(right.of(b));
                let product = if negated { !product } else { product };
                let c = if negated_c && !negated && !plus_one { !c } else { c };
                let one = i128::from(plus_one || negated || negated_c);
                let sum = product + i128::from(Field::WORD.read(c, signed)) + one;
                let result = sum >> shift;
                if saturates { Field::WORD.clamp(result, signed) as u32 } else { result as u32 }
            }
            Self::Parallel { action, bits, a: left, b: right, signed, saturates, mask, sums } => {
                let both = a & u64::from(u32::MAX) | b << 32;
                let mut word = c as u32;
                for element in 0..32 / bits {
                    if mask >> element & 1 == 0 {
                        continue;
                    }
                    let operand = |(picks, signed): (Picks, bool)| {
                        let at = u32::from(picks[element as usize]) * bits;
                        Field { at, bits }.read(both, signed)
                    };
                    let field = Field { at: element * bits, bits };
                    let number = action.of(operand(left), operand(right));
                    let number = if saturates { field.clamp(number.into(), signed) } else { number };
                    word = if sums { word.wrapping_add(number as u32) } else { field.replaced(word, number) };
                }
                word
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

    use super::*;

    const HIGH: Field = Field { at: 16, bits: 16 };
    const THIRD: Field = Field { at: 16, bits: 8 };

    fn word(signed: bool) -> Part {
        Part { field: Field::WORD, signed }
    }

    fn scalar(action: Action, [signed, a, b]: [bool; 3], saturates: bool, second: Second) -> Video {
        Video::Scalar { action, a: word(a), b: word(b), signed, saturates, second }
    }

    #[test]
    fn numbers_have_more_bits_than_words_until_they_are_written() {
        let (unsigned, signed) = ([false; 3], [true; 3]);
        let all = u64::from(u32::MAX);
        let one =
            |action, signs, saturates, a, b| scalar(action, signs, saturates, Second::None).one(a, b, 0);
        assert_eq!(one(Action::Add, unsigned, false, all, 2), 1);
        assert_eq!(one(Action::Add, unsigned, true, all, 2), u32::MAX);
        assert_eq!(one(Action::Subtract, unsigned, true, 1, 2), 0);
        assert_eq!(one(Action::Subtract, signed, true, 0x8000_0000, 1), 0x8000_0000);
        // -1 and 4294967295.
        assert_eq!(one(Action::Minimum, [true, true, false], false, all, all), u32::MAX);
        assert_eq!(one(Action::Add, [true, true, false], true, all, all), 0x7fff_ffff);
        assert_eq!(one(Action::Difference, [false, true, false], false, all, all), 0);
        assert_eq!(one(Action::Difference, [false, true, false], true, all, all), u32::MAX);
        assert_eq!(one(Action::ShiftLeft { wraps: false }, unsigned, false, 3, 40), 0);
        assert_eq!(one(Action::ShiftLeft { wraps: true }, unsigned, false, 3, 40), 0x300);
        // Of 34 bits the upper one is the sign, and what was above them is gone.
        assert_eq!(one(Action::ShiftLeft { wraps: false }, unsigned, true, 1, 32), u32::MAX);
        assert_eq!(one(Action::ShiftLeft { wraps: false }, unsigned, true, 2, 32), 0);
        assert_eq!(one(Action::ShiftLeft { wraps: false }, unsigned, true, 4, 32), 0);
        assert_eq!(one(Action::ShiftRight { wraps: false }, signed, false, 0x8000_0000, 99), u32::MAX);
        assert_eq!(one(Action::ShiftRight { wraps: true }, signed, false, 0x8000_0000, 33), 0xc000_0000);
    }

    #[test]
    fn what_comes_second_takes_the_third_operand() {
        let with = |signed, second| scalar(Action::Add, [signed; 3], false, second);
        assert_eq!(with(false, Second::Minimum).one(1, 2, u64::from(u32::MAX)), 3);
        assert_eq!(with(true, Second::Minimum).one(1, 2, u64::from(u32::MAX)), u32::MAX);
        assert_eq!(with(true, Second::Maximum).one(1, 2, u64::from(u32::MAX)), 3);
        assert_eq!(with(true, Second::Add).one(1, 2, u64::from(u32::MAX)), 2);
        assert_eq!(with(true, Second::Merge(THIRD)).one(0x1ff, 2, 0x1234_5678), 0x1201_5678);
        let saturating = scalar(Action::Subtract, [true; 3], true, Second::Merge(HIGH));
        assert_eq!(saturating.one(0, 0x1_0000, 0x1234_5678), 0x8000_5678);
        let part = Part { field: THIRD, signed: true };
        let parts = Video::Scalar {
            action: Action::Maximum,
            a: part,
            b: Part { signed: false, ..part },
            signed: true,
            saturates: false,
            second: Second::None,
        };
        assert_eq!(parts.one(0x00ff_0000, 0, 0), 0);
        assert_eq!(parts.one(0x0080_0000, 0x0080_0000, 0), 0x80);
        let less = Action::Compare { less: true, equal: false, greater: false };
        assert_eq!(
            scalar(less, [false, true, false], false, Second::Add).one(u64::from(u32::MAX), 0, 41),
            42
        );
    }

    #[test]
    fn a_product_is_negated_scaled_and_clamped() {
        let product = |a, b, [negated, negated_c, plus_one]: [bool; 3], saturates, shift| Video::Product {
            a: word(a),
            b: word(b),
            negated,
            negated_c,
            plus_one,
            saturates,
            shift,
        };
        let all = u64::from(u32::MAX);
        assert_eq!(product(false, false, [false; 3], false, 0).one(5, 6, 7), 37);
        assert_eq!(product(false, false, [true, false, false], false, 0).one(5, 6, 7) as i32, -23);
        assert_eq!(product(false, false, [false, true, false], false, 0).one(5, 6, 7), 23);
        assert_eq!(product(true, true, [false, false, true], false, 0).one(all, 6, 7), 2);
        assert_eq!(product(false, false, [false; 3], true, 15).one(all, all, all), u32::MAX);
        assert_eq!(product(true, true, [false; 3], true, 0).one(0x8000_0000, 0x8000_0000, 0), 0x7fff_ffff);
        assert_eq!(product(true, false, [false; 3], false, 7).one(all, 129, 0) as i32, -2);
        assert_eq!(
            product(false, false, [false; 3], false, 7).one(all, 129, 0),
            ((0xffff_ffff_u64 * 129) >> 7) as u32
        );
    }

    #[test]
    fn elements_are_picked_from_both_words_and_computed_apart() {
        let parallel = |action, bits, picks: [Picks; 2], signed, saturates, mask, sums| Video::Parallel {
            action,
            bits,
            a: (picks[0], signed),
            b: (picks[1], signed),
            signed,
            saturates,
            mask,
            sums,
        };
        let halves = [[0, 1, 2, 3], [2, 3, 4, 5]];
        let bytes = [[0, 1, 2, 3], [4, 5, 6, 7]];
        let add = |bits, picks, saturates, mask, sums| {
            parallel(Action::Add, bits, picks, false, saturates, mask, sums)
        };
        assert_eq!(add(16, halves, false, 3, false).one(0xffff_0001, 0x0001_0002, 0), 0x0000_0003);
        assert_eq!(add(16, halves, true, 3, false).one(0xffff_0001, 0x0001_0002, 0), 0xffff_0003);
        assert_eq!(add(16, halves, false, 3, true).one(0xffff_0001, 0x0001_0002, 5), 0x1_0008);
        assert_eq!(add(16, halves, false, 2, false).one(0x0001_0001, 0x0001_0002, 0x7777_7777), 0x0002_7777);
        let swapped = [[3, 0, 0, 0], [1, 1, 0, 0]];
        assert_eq!(add(16, swapped, false, 3, false).one(0x0001_0010, 0x0100_1000, 0), 0x0011_0101);
        assert_eq!(add(8, bytes, true, 15, false).one(0xff01_02fe, 0x0101_0101, 0), 0xff02_03ff);
        let average = parallel(Action::Average, 8, bytes, true, false, 15, false);
        // Of 1 and 2, -1 and -2, -3 and 0, -1 and 1.
        assert_eq!(average.one(0x01ff_fdff, 0x02fe_0001, 0), 0x02fe_fe00);
        let apart = parallel(Action::Difference, 8, bytes, false, false, 15, true);
        assert_eq!(apart.one(0x0010_ff01, 0x0511_00ff, 100), 100 + 5 + 1 + 255 + 254);
    }
}
