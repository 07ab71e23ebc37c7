"""Methods of integers, options, arrays and iterators that the executor knows."""

import domain
from values import NONE, Enum, Int, Range, Ref, Seq, copy, some


class Missing(Exception):
    """A method that is not known."""


def items(executor, node, scope):
    """What a `for` goes through."""
    found = executor.expression(node, scope)
    found = found.get() if isinstance(found, Ref) else found
    if isinstance(found, list):
        return found
    if not isinstance(found, Seq):
        raise Missing("a loop over this")
    mutable = node.type == "reference_expression" and any(part.type == "mutable_specifier" for part in node.children)
    return references(found) if mutable else list(found.items)


def references(sequence):
    """A reference to each part."""
    return [Ref(sequence.items, at) for at in range(len(sequence.items))]


def method(executor, receiver, name, arguments, node):
    """A method of a value that is none of the program's."""
    if isinstance(receiver, Int):
        table = INTEGERS
    elif isinstance(receiver, Enum) and receiver.type in ("Option", "Result"):
        table = OPTIONS
    elif isinstance(receiver, Seq):
        table = SEQUENCES
    elif isinstance(receiver, list):
        table = ITERATORS
    elif isinstance(receiver, Range):
        table = {"contains": contains}
    elif isinstance(receiver, bool) or hasattr(receiver, "sexpr"):
        table = BOOLEANS
    else:
        table = {}
    if name in ("clone", "copied", "into") and name not in table and not arguments:
        return receiver
    if name not in table:
        raise Missing(f"a method {name} of {type(receiver).__name__}")
    return table[name](executor, receiver, *arguments)


def taken(value):
    """Behind a reference."""
    return value.get() if isinstance(value, Ref) else value


# Integers


def typed(executor, one, other):
    """The common type of two integers."""
    return executor.common(one, other, executor.node)


def saturated(executor, term, kind):
    """A result, cut to its type."""
    low, high = domain.RANGES[kind]
    terms = executor.machine.domain
    return Int(terms.greatest(low, terms.least(high, term)), kind)


def checked(executor, term, kind):
    """A result, where it fits its type."""
    low, high = domain.RANGES[kind]
    return some(Int(term, kind)) if executor.machine.decide(domain.both(low <= term, term <= high)) else NONE


def checked_shl(executor, one, by):
    """Shifted to the left, which loses what it shifts out; none where that is too far."""
    low, high = domain.RANGES[one.type]
    if not executor.machine.decide(by.term < (high - low).bit_length()):
        return NONE
    return some(executor.fitting(executor.machine.domain.left(one.term, by.term), one.type, "loss of bits"))


def next_power(executor, one):
    """The least power of two that is no less."""
    for power in range(domain.RANGES[one.type][1].bit_length()):
        if executor.machine.decide(one.term <= 1 << power):
            return some(Int(1 << power, one.type))
    return NONE


def leading(executor, one):
    """How many high bits are zero, of what is not below zero."""
    low, high = domain.RANGES[one.type or "i128"]
    if executor.machine.decide(one.term < 0):
        return Int(0, "u32")
    return Int((high - low).bit_length() - executor.machine.domain.length(one.term), "u32")


def trailing(executor, one):
    """How many low bits are zero."""
    low, high = domain.RANGES[one.type or "i128"]
    return Int(executor.machine.domain.trailing(one.term, (high - low).bit_length()), "u32")


def magnitude(executor, one):
    """The number without its sign."""
    terms = executor.machine.domain
    size = abs(one.term) if domain.known(one.term) else terms.choose(one.term >= 0, one.term, -one.term)
    return executor.fitting(size, one.type)


INTEGERS = {
    "min": lambda e, a, b: Int(e.machine.domain.least(a.term, taken(b).term), typed(e, a, taken(b))),
    "max": lambda e, a, b: Int(e.machine.domain.greatest(a.term, taken(b).term), typed(e, a, taken(b))),
    "abs": magnitude,
    "trailing_zeros": trailing,
    "leading_zeros": leading,
    "saturating_mul": lambda e, a, b: saturated(e, a.term * b.term, typed(e, a, b)),
    "saturating_add": lambda e, a, b: saturated(e, a.term + b.term, typed(e, a, b)),
    "checked_add": lambda e, a, b: checked(e, a.term + b.term, typed(e, a, b)),
    "checked_shl": checked_shl,
    "checked_next_power_of_two": next_power,
}

# Conditions

BOOLEANS = {
    "then_some": lambda e, a, b: some(b) if e.machine.decide(a) else NONE,
    "then": lambda e, a, b: some(e.apply(b)) if e.machine.decide(a) else NONE,
}

# Options


def kept(executor, option, closure):
    """What is there, where a condition holds of it."""
    if option.variant == "Some" and executor.machine.decide(executor.apply(closure, option.fields[0])):
        return option
    return NONE


OPTIONS = {
    "unwrap_or": lambda e, a, b: a.fields[0] if a.variant == "Some" else b,
    "map_or": lambda e, a, b, f: e.apply(f, a.fields[0]) if a.variant == "Some" else b,
    "map": lambda e, a, f: some(e.apply(f, a.fields[0])) if a.variant == "Some" else a,
    "and_then": lambda e, a, f: e.apply(f, a.fields[0]) if a.variant == "Some" else a,
    "is_some": lambda e, a: a.variant == "Some",
    "is_none": lambda e, a: a.variant == "None",
    "ok": lambda e, a: some(a.fields[0]) if a.variant == "Ok" else NONE,
    "filter": kept,
}

# Arrays and iterators, which are lists here


def contains(executor, numbers, number):
    """Whether a number lies in a range."""
    typed(executor, numbers.low, number)
    above = number.term <= numbers.high.term if numbers.closed else number.term < numbers.high.term
    return domain.both(numbers.low.term <= number.term, above)


def places(executor, sequence, numbers):
    """References to some parts, where there are so many."""
    low, high = numbers.low.term, numbers.high.term
    if numbers.closed or not domain.known(low, high):
        raise Missing("such a part of an array")
    return some(references(sequence)[low:high]) if low <= high <= len(sequence.items) else NONE


def copy_from_slice(_, found, source):
    """Fills places."""
    for place, value in zip(found, source.items, strict=True):
        place.set(copy(value))
    return Seq([])


def fold(executor, found, start, closure):
    """From the first to the last."""
    for item in found:
        start = executor.apply(closure, start, item)
    return start


def sort_unstable(executor, sequence):
    """In order, as tuples are."""
    def less(one, other):
        for a, b in zip(one.items, other.items):
            if executor.machine.decide(a.term < b.term):
                return True
            if not executor.machine.decide(a.term == b.term):
                return False
        return False
    ordered = []
    for item in sequence.items:
        at = next((at for at, other in enumerate(ordered) if less(item, other)), len(ordered))
        ordered.insert(at, item)
    sequence.items[:] = ordered
    return Seq([])


def find(executor, found, closure):
    """The first of which that holds."""
    for item in found:
        if executor.machine.decide(executor.apply(closure, item)):
            return some(item)
    return NONE


ITERATORS = {
    "filter": lambda e, a, f: [item for item in a if e.machine.decide(e.apply(f, item))],
    "all": lambda e, a, f: domain.both(*[e.apply(f, item) for item in a]),
    "copied": lambda e, a: a,
    "copy_from_slice": copy_from_slice,
    "fold": fold,
    "find": find,
}

SEQUENCES = {
    "iter": lambda e, a: list(a.items),
    "into_iter": lambda e, a: list(a.items),
    "iter_mut": lambda e, a: references(a),
    "len": lambda e, a: Int(len(a.items), "usize"),
    "get_mut": places,
    "sort_unstable": sort_unstable,
}
