"""What `most.rs` promises the rules of numbers, from its own text: `bounds.py` says nothing else.

A part is an axis, a shift and a factor. What it comes to for a thread is the factor times `place(axis, shift)`: where
the thread is along that axis, shifted to the right. Of places it is known that they are not below zero, and what
shifting them further makes of them.
"""

import z3

import bounds
import domain
from registers import PARTS, Rule
from values import NONE, Int, Seq, Struct, some

PLACE = z3.Function("place", z3.IntSort(), z3.IntSort(), z3.IntSort())
RULES = []


def rule(name, **how):
    """Adds a rule that executes `most.rs`."""
    def add(body):
        RULES.append(Rule(name, 64, body, aspects=("range",), **{"contracts": {}, **how}))
        return body
    return add


def place(axis, shift):
    """Where the thread is."""
    return PLACE(z3.IntVal(axis) if domain.known(axis) else axis, z3.IntVal(shift) if domain.known(shift) else shift)


def worth(most):
    """What the parts come to."""
    if "worth" in most.fields:
        return most.fields["worth"].term
    total = 0
    for part in most.fields["parts"].items:
        axis, shift, factor = (item.term for item in part.items)
        total = total + (0 if domain.known(factor) and factor == 0 else factor * place(axis, shift))
    return total


def constant(most):
    """The term of its constant."""
    return most.fields["constant"].term


def bound(machine, name, count=PARTS):
    """A bound with so many parts, those without a factor last, as every function here leaves it."""
    least, parts = machine.number(f"{name}.constant"), []
    machine.assume(domain.both(-bounds.FARTHEST <= least, least <= bounds.FARTHEST))
    for index in range(PARTS):
        if index >= count:
            parts.append(Seq([Int(0, "u8"), Int(0, "u8"), Int(0, "i64")]))
            continue
        axis, shift, factor = (machine.number(f"{name}.{field}{index}") for field in ("axis", "shift", "factor"))
        low, high = domain.RANGES["i64"]
        machine.assume(domain.both(0 <= axis, axis <= 2, 0 <= shift, shift <= 255))
        machine.assume(domain.both(low <= factor, factor <= high, factor != 0))
        machine.assume(domain.both(place(axis, shift) >= 0, place(axis, shift) < 1 << 32))
        parts.append(Seq([Int(axis, "u8"), Int(shift, "u8"), Int(factor, "i64")]))
    return Struct("Most", {"constant": Int(least, "i128"), "parts": Seq(parts)})


def ordered(_, most):
    """What `in_order` promises: the same comes of all parts."""
    return bounds.bound(constant(most), worth(most))


def added(executor, one, other):
    """What `plus` promises, of what has parts or comes to something already."""
    if executor.machine.decide(executor.machine.flag("too many parts")):
        return NONE
    return some(bounds.bound(constant(one) + constant(other), worth(one) + worth(other)))


COUNTS = tuple((count,) for count in range(PARTS + 1))


WITHOUT = tuple((tuple(index for index in range(PARTS) if lost >> index & 1),) for lost in range(1 << PARTS))


@rule("Most::in_order", cases=WITHOUT, few=tuple(case for case in WITHOUT if len(case[0]) >= 2))
def in_order(executor, without):
    """The same comes of all parts, and those without a factor come last, whichever they were."""
    machine = executor.machine
    given = bound(machine, "given")
    for index in without:
        given.fields["parts"].items[index].items[2] = Int(0, "i64")
    found = executor.call("Most::in_order", given)
    machine.want("the same comes of it", domain.both(worth(found) == worth(given), constant(found) == constant(given)))
    factors = [part.items[2].term for part in found.fields["parts"].items]
    machine.want("what has no factor comes last", factors_first(factors))


@rule("Most::of_terms", cases=(*COUNTS, (PARTS + 1,)), few=((0,), (1,), (2,), (PARTS + 1,)))
def of_terms(executor, count):
    """Whatever is claimed, a bound has parts along axes alone, and those without a factor come last."""
    machine = executor.machine
    terms, total, (low, high) = [], 0, domain.RANGES["i64"]
    for index in range(count):
        axis, shift, factor = (machine.number(f"{field}{index}") for field in ("axis", "shift", "factor"))
        machine.assume(domain.both(0 <= axis, axis <= 255, 0 <= shift, shift <= 255, low <= factor, factor <= high))
        terms.append(Seq([Int(axis, "u8"), Int(shift, "u8"), Int(factor, "i64")]))
        total = total + factor * place(axis, shift)
    found = executor.call("Most::of_terms", Int(machine.number("constant"), "i128"), Seq(terms))
    machine.want("too many parts are none", count <= PARTS or found.variant == "None")
    if found.variant == "None":
        machine.want("no part is a bound too", count > 0)
        return
    parts = [[item.term for item in part.items] for part in found.fields[0].fields["parts"].items]
    machine.want("the same comes of it", worth(found.fields[0]) == total)
    machine.want("parts are along an axis", domain.both(*[domain.both(0 <= axis, axis <= 2) for axis, _, _ in parts]))
    machine.want("what has no factor comes last", factors_first([factor for _, _, factor in parts]))


def factors_first(factors):
    """Whether those that are zero come last."""
    pairs = zip(factors, factors[1:])
    return domain.both(*[domain.either(domain.negated(before == 0), after == 0) for before, after in pairs])


PAIRS = tuple((one, other) for one in range(PARTS + 1) for other in range(PARTS + 1))


@rule("Most::plus", cases=PAIRS, few=tuple(pair for pair in PAIRS if sum(pair) <= PARTS),
      contracts={"Most::in_order": ordered})
def plus(executor, one, other):
    """The sum comes to the sum of both."""
    machine = executor.machine
    one, other = bound(machine, "one", one), bound(machine, "other", other)
    machine.assume(bounds.no_more(one, other))
    found = executor.call("Most::plus", one, other)
    if found.variant == "Some":
        total = found.fields[0]
        machine.want("the constants are added", constant(total) == constant(one) + constant(other))
        machine.want("the parts are added", worth(total) == worth(one) + worth(other))


@rule("Most::times", cases=COUNTS, contracts={"Most::in_order": ordered})
def times(executor, count):
    """The product, or what is beyond everything."""
    machine = executor.machine
    given, factor = bound(machine, "given", count), machine.number("factor")
    machine.assume(domain.both(0 <= factor, factor < 1 << 63))
    machine.assume(domain.both(-(1 << 63) <= constant(given), constant(given) < 1 << 63))
    found = executor.call("Most::times", given, Int(factor, "i128"))
    beyond = domain.both(constant(found) == bounds.beyond(executor), worth(found) == 0)
    same = domain.both(constant(found) == constant(given) * factor, worth(found) == worth(given) * factor)
    machine.want("it is the product, or beyond everything", domain.either(same, beyond))
    machine.want("what is beyond everything does not fit", bounds.beyond(executor) - (1 << 63) > machine.far)


@rule("Most::implied_by, eq, is_below", cases=PAIRS)
def implied(executor, one, other):
    """What is bounded by the known one and by a number is bounded by the one that is implied."""
    machine = executor.machine
    claim, known = bound(machine, "claim", one), bound(machine, "known", other)
    high, value = machine.number("high"), machine.number("value")
    machine.assume(domain.both(value <= high, value <= constant(known) + worth(known)))
    if machine.decide(executor.call("Most::implied_by", claim, known, Int(high, "i128"))):
        machine.want("it is bounded", value <= constant(claim) + worth(claim))
    if machine.decide(executor.equal(claim, known, executor.node)):
        same = domain.both(constant(claim) == constant(known), worth(claim) == worth(known))
        machine.want("what is equal comes to the same", same)
    if machine.decide(executor.call("Most::is_below", claim, Int(high, "i128"))):
        machine.want("the constant is below", constant(claim) <= high)


@rule("Most::thread", cases=((0,), (1,), (2,)))
def thread(executor, axis):
    """It comes to where the thread is."""
    found = executor.call("Most::thread", Int(axis, "u8"))
    executor.machine.want("it is the place", domain.both(constant(found) == 0, worth(found) == place(axis, 0)))


def further(machine, axis, shift, by):
    """What a place is that is shifted so much further."""
    machine.assume(domain.both(place(axis, shift + by) * (1 << by) <= place(axis, shift),
                               place(axis, shift) < (place(axis, shift + by) + 1) * (1 << by)))


SHIFTS = (0, 1, 5, 31)


@rule("Most::shifted, one part", cases=tuple((by,) for by in range(32)), few=tuple((by,) for by in SHIFTS),
      contracts={"Most::plus": added, "Most::constant": bounds.constant})
def shifted(executor, by):
    """No less than the whole quotient, of a bound with one part."""
    machine = executor.machine
    given = bound(machine, "given", 1)
    axis, shift, _ = (item.term for item in given.fields["parts"].items[0].items)
    found = executor.call("Most::shifted", given, Int(by, "u32"))
    if found.variant == "Some":
        for more in range(by + 1):
            further(machine, axis, shift, more)
        quotient(machine, given, found.fields[0], by)


def quotient(machine, given, found, by):
    """The quotient is none below what is rounded down of the whole."""
    whole = constant(found) + worth(found)
    machine.want("it is no less than the quotient", (whole + 1) * (1 << by) > constant(given) + worth(given))
    machine.want("its constant is near", domain.both(0 <= constant(found), constant(found) <= constant(given) + PARTS))


def next_power(executor, _):
    """Some power of two, or none: which one matters to each part alone."""
    if executor.machine.decide(executor.machine.flag("too large a factor")):
        return NONE
    exponent = executor.machine.number(executor.machine.name("exponent"))
    executor.machine.assume(domain.both(0 <= exponent, exponent <= 31))
    return some(Struct("Power", {"exponent": Int(exponent, "u32")}))


SEVERAL = tuple((by, count) for by in range(32) for count in range(2, PARTS + 1))


@rule("Most::shifted, several parts", cases=SEVERAL, few=tuple(case for case in SEVERAL if case[0] in SHIFTS),
      contracts={"Most::constant": bounds.constant, "u32::checked_next_power_of_two": next_power,
                 "Power::trailing_zeros": lambda _, power: power.fields["exponent"]})
def shifted_several(executor, by, count):
    """The same of several: of each part alone it was shown."""
    machine = executor.machine
    given, left = bound(machine, "given", count), []
    left.extend(given.fields["parts"].items)

    def add(executor, one, part):
        axis, shift, factor = (item.term for item in left.pop(0).items)
        machine.assume((worth(part) + 1) * (1 << by) > factor * place(axis, shift))
        return added(executor, one, part)

    def power(exponent):
        if domain.known(exponent):
            return 1 << exponent
        result = machine.number(machine.name("power"))
        machine.assume(domain.both(1 <= result, result <= 1 << 31))
        return result

    executor.contracts = {**executor.contracts, "Most::plus": add}
    machine.domain.power = power
    found = executor.call("Most::shifted", given, Int(by, "u32"))
    if found.variant == "Some":
        quotient(machine, given, found.fields[0], by)
