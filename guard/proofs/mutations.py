"""Mistakes that are put into the texts of `number.rs` and `most.rs`, one at a time: the proofs have to refute each."""

import dataclasses


@dataclasses.dataclass
class Mutation:
    """A place in the text, what stands there instead, and a rule that then does not hold."""

    name: str
    before: str
    after: str
    rule: str
    file: str = "number.rs"

    def of(self, text):
        """The text with the mistake in it."""
        if text.count(self.before) != 1:
            raise SystemExit(f"prove.py: the mistake '{self.name}' has no place of its own in {self.file}")
        return text.replace(self.before, self.after)


MUTATIONS = [
    Mutation("cut: `greater` leaves one more out", "low.max(bound.0 + 1)", "low.max(bound.0 + 2)", "Order::cut"),
    Mutation("cut: `ge` by the wrong end", "Self::GreaterOrEqual => (low.max(bound.0), high)",
             "Self::GreaterOrEqual => (low.max(bound.1), high)", "Order::cut"),
    Mutation("cut: `ne` also of a range", "Self::Differs if exact && high == bound.0",
             "Self::Differs if high == bound.0", "Order::cut"),
    Mutation("not: `less` and `greater`", "Self::Less => Self::GreaterOrEqual", "Self::Less => Self::Greater",
             "Order::not, swapped"),
    Mutation("the largest number of a register", "(1 << (self.0 - 1)) - 1", "(1 << (self.0 - 1))", "Sign::all"),
    Mutation("plus: the zeros of either", "Self { low, high, most, zeros: self.zeros.min(other.zeros) }\n    }\n\n    "
             "/// Any difference", "Self { low, high, most, zeros: self.zeros.max(other.zeros) }\n    }\n\n    "
             "/// Any difference", "Op::Add"),
    Mutation("minus: the ends not crossed", "Self::between(-other.high, -other.low)",
             "Self::between(-other.low, -other.low)", "Number::minus"),
    Mutation("times: one corner is forgotten", "self.low * other.high, self.high * other.low",
             "self.low * other.high, self.low * other.high", "Number::times"),
    Mutation("times: one zero too many", "zeros: (self.zeros + other.zeros).min(63)",
             "zeros: (self.zeros + other.zeros + 1).min(63)", "Op::Mul"),
    Mutation("times: a factor below zero", "number.low == number.high && number.low >= 0", "number.low == number.high",
             "Number::times"),
    Mutation("or: the bound of the first", "if self.most == other.most { self.most }", "if true { self.most }",
             "Number::or"),
    Mutation("with: the greater end", "(self.low.max(other.low), self.high.min(other.high))",
             "(self.low.max(other.low), self.low.min(other.high))", "Number::with"),
    Mutation("holds: its zeros are not asked for", "other.high <= self.high && self.zeros <= other.zeros",
             "other.high <= self.high", "Number::implied_by, holds"),
    Mutation("fits: four times as far", "self.high <= FAR && most", "self.high <= FAR * 4 && most", "Number::plus"),
    Mutation("near: a round more", "self.low - width.count(), self.high - width.count()",
             "self.low - width.most(), self.high - width.most()", "Op::Add"),
    Mutation("meant: by the low end", "if self.high <= all.high { self }", "if self.low <= all.high { self }",
             "Number::meant"),
    Mutation("immediate: half a round", "value - width.count()\n", "value - width.most()\n", "Sign::immediate"),
    Mutation("or: one bit too few", "i128::BITS - (one.high | other.high)", "i128::BITS - 1 - (one.high | other.high)",
             "Op::Or"),
    Mutation("refined: rounded down", "((low + (1 << even) - 1) >> even)", "((low + (1 << even)) >> even)", "refined"),
    Mutation("shr: of what may be below zero", "Self::ShrSigned if one.high > width.most() => return None",
             "Self::ShrSigned if one.low > width.most() => return None", "Op::ShrSigned"),
    Mutation("products that overflow", "pub const FAR: i128 = 1 << 62", "pub const FAR: i128 = 1 << 64",
             "Number::times"),
    Mutation("times: a bound that is too large is kept", "Err(_) => return Self::constant(BEYOND)", "Err(_) => *of = 0",
             "Most::times", "most.rs"),
    Mutation("plus: a part's factor is replaced", "*known = known.checked_add(factor)?", "*known = factor",
             "Most::plus", "most.rs"),
    Mutation("shifted: the constant is rounded down", "(self.constant + power - 1) / power", "self.constant / power",
             "Most::shifted, one part", "most.rs"),
    Mutation("shifted: parts leave less over", "(several - 1).max(0)", "(several - 2).max(0)",
             "Most::shifted, several parts", "most.rs"),
    Mutation("in_order: parts without a factor come first", "*part = (u8::MAX, 0, 0)", "*part = (0, 0, 0)",
             "Most::in_order", "most.rs"),
    Mutation("implied_by: by the constant of what has parts", "self.is_constant() && high <= self.constant",
             "high <= self.constant", "Most::implied_by, eq, is_below", "most.rs"),
    Mutation("of_terms: any axis", "all(|(axis, ..)| *axis < 3)", "all(|(axis, ..)| *axis < 4)",
             "Most::of_terms", "most.rs"),
]
