//! Names of the functions that compiled code computes itself.
//!
//! A function without a name is called, lane by lane. A name says the same as the expression that it stands
//! beside: the tests compare the two over all names.

/// A comparison of integers or of floating-point numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relation {
    /// Equal.
    Equal,
    /// Not equal; of floating-point numbers: both are numbers.
    NotEqual,
    /// Less.
    Less,
    /// Less or equal.
    LessEqual,
    /// Greater.
    Greater,
    /// Greater or equal.
    GreaterEqual,
}

/// An operation of floating-point arithmetic, rounded to nearest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    /// `a + b`
    Add,
    /// `a - b`
    Subtract,
    /// `a * b`
    Multiply,
    /// `a / b`
    Divide,
    /// `a * b + c`, rounded once.
    Fused,
    /// The square root of `a`.
    Root,
    /// `1 / a`
    Reciprocal,
}

/// What a function computes. Widths are in bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Name {
    /// The operand itself.
    Copy,
    /// The low `from` bits, extended to `to` bits and cut there.
    Extend { from: u8, signed: bool, to: u8 },
    /// All bits inverted.
    Not(u8),
    /// Two's complement.
    Negate(u8),
    /// The magnitude in two's complement.
    Magnitude(u8),
    /// Set bits.
    CountOnes(u8),
    /// Zeros above the highest set bit.
    LeadingZeros(u8),
    /// The bits in reverse.
    Reverse(u8),
    /// A sum, wrapping.
    Add(u8),
    /// A difference, wrapping.
    Subtract(u8),
    /// The low half of a product.
    Multiply(u8),
    /// A product in twice the width.
    MultiplyWide { bits: u8, signed: bool },
    /// The high half of a product.
    MultiplyHigh { bits: u8, signed: bool },
    /// The low half of a product, and a sum.
    MultiplyAdd(u8),
    /// A product in twice the width, and a sum there.
    MultiplyAddWide { bits: u8, signed: bool },
    /// A quotient, rounded toward zero.
    Divide { bits: u8, signed: bool },
    /// What a division leaves.
    Remainder { bits: u8, signed: bool },
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// A shift to the left; amounts beyond the width give zero.
    ShiftLeft(u8),
    /// A shift to the right; amounts beyond the width give zero, or the sign.
    ShiftRight { bits: u8, signed: bool },
    /// The smaller one.
    Minimum { bits: u8, signed: bool },
    /// The larger one.
    Maximum { bits: u8, signed: bool },
    /// `a` where `c` is not negative, else `b`.
    SelectBySign,
    /// A funnel shift.
    Funnel { left: bool, clamp: bool },
    /// Arithmetic in floating point.
    Float { what: Arithmetic, bits: u8, flush: bool },
    /// The sign of a floating-point number inverted.
    FloatNegate(u8),
    /// A floating-point number without its sign.
    FloatMagnitude(u8),
    /// An integer to the nearest floating-point number.
    FromInteger { bits: u8, signed: bool, to: u8 },
    /// A single-precision number to an integer of 32 bits, toward zero, clamped.
    ToInteger { signed: bool },
    /// A single-precision number clamped to `[0, 1]`; NaN becomes zero.
    Saturate,
    /// Single to double precision.
    Widen,
    /// Double to single precision.
    Narrow,
    /// A comparison of integers.
    Integers { relation: Relation, bits: u8, signed: bool },
    /// A comparison of floating-point numbers; where one is NaN it gives `unordered`.
    Floats { relation: Relation, bits: u8, unordered: bool },
}
