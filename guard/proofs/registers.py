"""What registers hold, what is known of them, and what instructions compute of them."""

import dataclasses

import domain
from bounds import bound, of
from values import Enum, Int, Struct

PARTS = 4
ORDERS = ("Equal", "Differs", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
SIGNS = ("Signed", "Unsigned")


@dataclasses.dataclass
class Rule:
    """A statement and how it is proven."""

    name: str
    width: int
    body: object
    # `range`: all but zeros, in integers; `zeros`: they alone, in bits; `bits`: all at once, in bits.
    aspects: tuple = ("range", "zeros")
    # Cases that are proven one by one.
    cases: tuple = ((),)
    # Those that are proven where not all are asked for.
    few: tuple | None = None
    # What stands for functions that are not executed; what `most.rs` promises where nothing is said.
    contracts: dict | None = None

    def chosen(self, all_of_them):
        """The cases that are asked for."""
        return self.cases if all_of_them or self.few is None else self.few


def width(bits):
    """`Width`."""
    return Struct("Width", {"0": Int(bits, "u32")})


def of_numbers(low, high, most, zeros):
    """`Number`."""
    low, high, zeros = Int(low, "i128"), Int(high, "i128"), Int(zeros, "u32")
    return Struct("Number", {"low": low, "high": high, "most": most, "zeros": zeros})


def field(number, name):
    """The term of a field."""
    return number.fields[name].term


def multiple(machine, value, zeros, bits):
    """Whether that many low bits of a register are zero; beyond its width none is left to say anything of."""
    if machine.aspect == "range":
        return True
    terms = machine.domain
    return value & (terms.left(1, terms.least(zeros, bits)) - 1) == 0


def admits(machine, number, value, bits):
    """Whether a register may hold a value, of which that is known: what the aspect looks at of it."""
    if machine.aspect == "zeros":
        return multiple(machine, value, field(number, "zeros"), bits)
    return domain.both(
        field(number, "low") <= value, value <= field(number, "high"), value <= of(number.fields["most"]),
        multiple(machine, value, field(number, "zeros"), bits),
    )


def number(machine, name, farthest=None, reach=None):
    """A number that `fits`: what a claim may say, and what an instruction makes. Nothing is known of it besides.

    Its bound's constant may be further off than that, and all of it where it may be a constant in the text.
    """
    reach = reach or machine.far
    farthest = farthest or reach
    low, high = machine.number(f"{name}.low"), machine.number(f"{name}.high")
    constant, worth = machine.number(f"{name}.most"), machine.number(f"{name}.worth")
    zeros = machine.number(f"{name}.zeros")
    machine.assume(domain.both(-reach <= low, low <= high, high <= reach, 0 <= zeros, zeros <= 63))
    # Of four parts, each of 64 bits, times where a thread is.
    machine.assume(domain.both(-farthest <= constant, constant <= farthest, -(1 << 97) <= worth, worth <= 1 << 97))
    return of_numbers(low, high, bound(constant, worth), zeros)


def held(machine, name, bits, farthest=None, reach=None):
    """What is known of a register, and what it holds: of one of 32 bits without a sign, of one of 64 with one."""
    known, value = number(machine, name, farthest, reach), machine.number(name)
    machine.assume(admits(machine, known, value, bits))
    if bits < 64:
        machine.assume(domain.both(0 <= field(known, "low"), field(known, "high") < 1 << bits))
    return known, value


def operand(machine, name):
    """An operand of 64 bits: a register, or any constant."""
    known, value = held(machine, name, 64, reach=1 << 63)
    constant = known.fields["most"].fields["constant"].term
    machine.assume(domain.both(value < 1 << 63, field(known, "high") < 1 << 63, constant < 1 << 63))
    return known, value


def signed(machine, value, bits):
    """The number with a sign that a register holds."""
    return machine.domain.choose(value >= 1 << (bits - 1), value - (1 << bits), value)


def meant(machine, value, sign, bits):
    """The number that it holds for an instruction of this sign."""
    return signed(machine, value, bits) if sign == "Signed" else value


def wrapped(machine, value, bits):
    """What a register is left with: without a sign where it has 32 bits, with one where it has 64."""
    if machine.bits:
        low = value & ((1 << bits) - 1)
    else:
        rounds, low = machine.number(machine.name("rounds")), machine.number(machine.name("wrapped"))
        machine.assume(domain.both(value == rounds * (1 << bits) + low, 0 <= low, low < 1 << bits))
    return signed(machine, low, bits) if bits == 64 else low


def compute(machine, op, one, other, bits):
    """What an instruction computes of two registers."""
    terms = machine.domain
    if op in ("MinSigned", "MaxSigned"):
        choose = terms.least if op == "MinSigned" else terms.greatest
        result = choose(signed(machine, one, bits), signed(machine, other, bits))
    else:
        result = {
            "Add": lambda: one + other, "Sub": lambda: one - other, "Mul": lambda: one * other,
            "And": lambda: one & other, "Or": lambda: one | other, "Xor": lambda: one ^ other,
            "MinUnsigned": lambda: terms.least(one, other), "Select": lambda: one,
        }[op]()
    return wrapped(machine, result, bits)


def compares(order, one, other):
    """Whether two numbers compare so."""
    return {
        "Equal": lambda: one == other, "Differs": lambda: domain.negated(one == other), "Less": lambda: one < other,
        "LessOrEqual": lambda: one <= other, "Greater": lambda: one > other, "GreaterOrEqual": lambda: one >= other,
    }[order]()


def variant(kind, name):
    """A variant without fields."""
    return Enum(kind, name)
