"""Numbers that the executor computes with: Python's where they are known, otherwise terms of z3.

A domain says what a machine integer is to z3. `Integers` has unbounded ones, which suit products. `Bits` has
two's complement of so many bits that no operation on what fits a type of Rust's leaves them, which suits shifts and
what is done to single bits. In both, an operation is the mathematical one; whether its result fits its type is an
obligation of its own (`rust.Machine`).
"""

import z3

# Sums of i128 and what is between them need one or two bits more.
BITS = 136
RANGES = {
    "i128": (-(1 << 127), (1 << 127) - 1), "u128": (0, (1 << 128) - 1), "i64": (-(1 << 63), (1 << 63) - 1),
    "u64": (0, (1 << 64) - 1), "u32": (0, (1 << 32) - 1), "i32": (-(1 << 31), (1 << 31) - 1), "u8": (0, 255),
    "usize": (0, (1 << 64) - 1),
}


class Unsupported(Exception):
    """Something that this domain has no term for."""


def known(*terms):
    """Whether all of them are Python's own."""
    return all(isinstance(term, (int, bool)) for term in terms)


def both(*conditions):
    """Their conjunction."""
    left = [condition for condition in conditions if condition is not True]
    if any(condition is False for condition in left):
        return False
    return z3.And(*left) if len(left) > 1 else left[0] if left else True


def either(*conditions):
    """Their disjunction."""
    left = [condition for condition in conditions if condition is not False]
    if any(condition is True for condition in left):
        return True
    return z3.Or(*left) if len(left) > 1 else left[0] if left else False


def negated(condition):
    """Its negation."""
    return not condition if isinstance(condition, bool) else z3.Not(condition)


def quotient(one, other):
    """As `/` of Rust: towards zero."""
    magnitude = abs(one) // abs(other)
    return magnitude if (one < 0) == (other < 0) else -magnitude


class Domain:
    """What both have in common."""

    def compare(self, operator, one, other):
        """A comparison with signs."""
        if operator == "==":
            return one == other
        if operator == "!=":
            return negated(one == other)
        return {"<": one < other, "<=": one <= other, ">": one > other, ">=": one >= other}[operator]

    def choose(self, condition, one, other):
        """One of two numbers."""
        if isinstance(condition, bool):
            return one if condition else other
        return z3.If(condition, self.term(one), self.term(other))

    def least(self, one, other):
        """The lesser."""
        return min(one, other) if known(one, other) else self.choose(one <= other, one, other)

    def greatest(self, one, other):
        """The greater."""
        return max(one, other) if known(one, other) else self.choose(one >= other, one, other)

    def remainder(self, one, other):
        """As `%` of Rust: of the sign of the first."""
        return one - other * self.divide(one, other)


class Integers(Domain):
    """Unbounded integers."""

    def __init__(self, machine):
        self.machine = machine

    def term(self, number):
        """A term of z3."""
        return z3.IntVal(number) if known(number) else number

    def fresh(self, name):
        """A number of which nothing is known."""
        return z3.Int(name)

    def divide(self, one, other):
        """Towards zero, by what is not zero; by what is not known with a quotient of its own."""
        if known(one, other):
            return quotient(one, other)
        if known(other):
            magnitude = z3.If(one >= 0, one / abs(other), -(-one / abs(other)))
            return magnitude if other > 0 else -magnitude
        result, rest = self.fresh(self.machine.name("quotient")), self.fresh(self.machine.name("rest"))
        size = self.choose(other >= 0, other, -other)
        self.machine.assume(one == result * other + rest)
        self.machine.assume(z3.If(self.term(one) >= 0, z3.And(rest >= 0, rest < size), z3.And(rest <= 0, -rest < size)))
        return result

    def power(self, exponent):
        """Two to a power that is known."""
        return 1 << self.machine.settle(exponent, 0, 127)

    def left(self, number, by):
        """Shifted to the left."""
        return number * self.power(by)

    def right(self, number, by):
        """Shifted to the right, rounded down."""
        by = self.machine.settle(by, 0, 127)
        return number >> by if known(number) else number / (1 << by)

    def bitwise(self, operator, one, other):
        """`&` and `|` of what is known."""
        if not known(one, other):
            raise Unsupported(f"`{operator}` of numbers that are not known")
        return one & other if operator == "&" else one | other

    def length(self, number):
        """How many bits a number from 0 on has."""
        return self.machine.search(number, lambda bits: number < 1 << bits, 128)

    def trailing(self, number, bits):
        """How many low bits are zero."""
        if known(number):
            return bits if number == 0 else (number & -number).bit_length() - 1
        raise Unsupported("the low zeros of a number that is not known")


class Bits(Domain):
    """Two's complement, wide enough."""

    def __init__(self, machine):
        self.machine = machine

    def term(self, number):
        """A term of z3."""
        return z3.BitVecVal(number, BITS) if known(number) else number

    def fresh(self, name):
        """A number of which nothing is known."""
        return z3.BitVec(name, BITS)

    def divide(self, one, other):
        """Towards zero."""
        return quotient(one, other) if known(one, other) else self.term(one) / self.term(other)

    def power(self, exponent):
        """Two to this power."""
        return 1 << exponent if known(exponent) else z3.BitVecVal(1, BITS) << exponent

    def left(self, number, by):
        """Shifted to the left."""
        return number << by if known(number, by) else self.term(number) << self.term(by)

    def right(self, number, by):
        """Shifted to the right, rounded down."""
        return number >> by if known(number, by) else self.term(number) >> self.term(by)

    def bitwise(self, operator, one, other):
        """`&` and `|`."""
        return one & other if operator == "&" else one | other

    def length(self, number):
        """How many bits a number from 0 on has."""
        if known(number):
            return number.bit_length()
        bits = self.term(0)
        for index in range(128):
            bits = z3.If(z3.Extract(index, index, number) == 1, self.term(index + 1), bits)
        return bits

    def trailing(self, number, bits):
        """How many low bits are zero."""
        if known(number):
            return bits if number == 0 else (number & -number).bit_length() - 1
        zeros = self.term(bits)
        for index in reversed(range(bits)):
            zeros = z3.If(z3.Extract(index, index, number) == 1, self.term(index), zeros)
        return zeros
