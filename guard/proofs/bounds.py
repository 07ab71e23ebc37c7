"""What the rules of `most.rs` promise those of `number.rs`, and nothing more.

A `Most` is a constant and parts of where in its block a thread is. To the rules of numbers it is that constant and
`worth`, what the parts come to for the thread that is looked at. Each function here stands for the function of its name
and says what it may return: the proofs in `mosts.py` show from the text of `most.rs` that it keeps to that.
"""

import domain
from values import NONE, Int, Struct, some

# No constant may be further off.
FARTHEST = 1 << 126


def bound(constant, worth):
    """A bound."""
    return Struct("Most", {"constant": Int(constant, "i128"), "worth": Int(worth, "worth")})


def of(most):
    """What a bound comes to for the thread that is looked at."""
    return most.fields["constant"].term + most.fields["worth"].term


def near(most):
    """Whether its constant is one that the functions here are proven for."""
    return domain.both(-FARTHEST <= most.fields["constant"].term, most.fields["constant"].term <= FARTHEST)


def no_more(one, other):
    """Whether the sum of both constants is an `i128`."""
    low, high = domain.RANGES["i128"]
    total = one.fields["constant"].term + other.fields["constant"].term
    return domain.both(low <= total, total <= high)


def constant(_, number):
    """No parts."""
    return bound(number.term, 0)


def plus(executor, one, other):
    """The sum, or none."""
    executor.machine.oblige("sums of bounds do not saturate", domain.both(near(one), near(other), no_more(one, other)))
    if executor.machine.decide(executor.machine.flag("too many parts")):
        return NONE
    fields = [one.fields[name].term + other.fields[name].term for name in ("constant", "worth")]
    return some(bound(*fields))


def times(executor, most, factor):
    """The product by what is not below zero, or a constant beyond everything that is looked at."""
    executor.machine.oblige("bounds are multiplied by what is not below zero", factor.term >= 0)
    small = domain.both(-(1 << 63) <= most.fields["constant"].term, most.fields["constant"].term < 1 << 63)
    executor.machine.oblige("bounds and factors are words of 64 bits", domain.both(small, factor.term < 1 << 63))
    if executor.machine.decide(executor.machine.flag("too large a factor")):
        return bound(beyond(executor), 0)
    product = most.fields["constant"].term * factor.term
    low, high = domain.RANGES["i128"]
    executor.machine.oblige("products of bounds do not saturate", domain.both(low <= product, product <= high))
    return bound(product, most.fields["worth"].term * factor.term)


def beyond(executor):
    """The constant that stands for what is too large."""
    return executor.constant("BEYOND", executor.node).term


def shifted(executor, most, by):
    """No less than the whole quotient, or none."""
    executor.machine.oblige("no bound that is divided is too far", near(most))
    if executor.machine.decide(executor.machine.flag("no quotient")):
        return NONE
    machine = executor.machine
    part, worth = machine.number("quotient's constant"), machine.number("quotient's worth")
    machine.assume(domain.both(part >= 0, part <= most.fields["constant"].term + 4))
    machine.assume(domain.either(of(most) < 0, (part + worth + 1) * (1 << by.term) > of(most)))
    return some(bound(part, worth))


def is_below(executor, most, number):
    """If so, then at least the constant is."""
    return domain.both(executor.machine.flag("small parts"), most.fields["constant"].term <= number.term)


def implied_by(executor, most, known, high):
    """If so, what is bounded by both is bounded by it."""
    least = executor.machine.domain.least(of(known), high.term)
    return domain.both(executor.machine.flag("implied"), least <= of(most))


def equal(executor, one, other):
    """If so, then both come to the same."""
    same = [one.fields[name].term == other.fields[name].term for name in ("constant", "worth")]
    return domain.both(executor.machine.flag("equal"), *same)


CONTRACTS = {
    "Most::constant": constant, "Most::plus": plus, "Most::times": times, "Most::shifted": shifted,
    "Most::is_below": is_below, "Most::implied_by": implied_by, "Most::eq": equal,
}
