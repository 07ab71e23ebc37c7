"""What each rule of `number.rs` promises, and at which width."""

import domain
from bounds import bound, of
from registers import (ORDERS, SIGNS, Rule, admits, compares, compute, field, held, meant, number, of_numbers, operand,
                       signed, variant, width, wrapped)
from values import NONE, Int, Seq, some


RULES = []


def rule(name, *widths, **how):
    """Adds a rule at these widths."""
    def add(body):
        RULES.extend(Rule(name, bits, body, **how) for bits in widths)
        return body
    return add


def valid(machine, found, bits):
    """What the rules take for granted of any register's number holds of a result too."""
    low, high, zeros = (field(found, name) for name in ("low", "high", "zeros"))
    if bits < 64:
        machine.want("the result is of its width", domain.both(0 <= low, high < 1 << bits))
    machine.want("the result has no more zeros than a number may", domain.both(0 <= zeros, zeros <= 63))


def admitted(executor, found, value, bits, label="the result and its zeros are admitted"):
    """Wants that a result is what is said of it."""
    executor.machine.want(label, admits(executor.machine, found, value, bits))
    valid(executor.machine, found, bits)


def operation(op, names=None, zeros=False):
    """A rule of `Op::of`: whatever both registers hold, the result is what is said of it."""
    def body(executor, bits):
        machine = executor.machine
        # A product of an instruction that adds besides has a constant that does not fit.
        farthest = None if op == "Mul" else 1 << 100
        (one, a), (other, b) = held(machine, "one", bits, farthest), held(machine, "other", bits, farthest)
        found = executor.call("Op::of", variant("Op", op), one, other, width(bits))
        if found.variant == "None":
            return
        result = found.fields[0]
        for name in names or (op,):
            value = compute(machine, name, a, b, bits)
            machine.show(f"{name} of both", value)
            admitted(executor, result, value, bits)
            if op == "Select":
                admitted(executor, result, b, bits)
        constant = result.fields["most"].fields["constant"].term
        machine.want("its bound stays near", domain.both(-(1 << 101) <= constant, constant <= 1 << 101))
        if zeros:
            sum_of = machine.domain.least(field(one, "zeros") + field(other, "zeros"), bits)
            machine.want("a product has the zeros of both", field(result, "zeros") <= sum_of)
    return body


rule("Op::And", 32, aspects=("bits",))(operation("And"))
for OP in ("Add", "Sub", "MinUnsigned", "MinSigned", "MaxSigned", "Select"):
    rule(f"Op::{OP}", 32)(operation(OP))
rule("Op::Or", 32, aspects=("bits",))(operation("Or", ("Or", "Xor")))
rule("Op::Mul", 32, aspects=("range",))(operation("Mul", zeros=True))


def shift(op):
    """A shift to the right by each constant that an instruction may have."""
    def body(executor, bits, by):
        machine = executor.machine
        known, value = held(machine, "one", bits)
        power = executor.call("Number::exactly", Int(1 << by, "i128"))
        found = executor.call("Op::of", variant("Op", op), known, power, width(bits))
        if found.variant == "None":
            return
        if op == "ShrSigned":
            value = signed(machine, value, bits)
        machine.show("by", by)
        admitted(executor, found.fields[0], wrapped(machine, machine.domain.right(value, by), bits), bits)
        machine.want("nothing is said of its zeros", field(found.fields[0], "zeros") == 0)
    return body


for OP in ("ShrUnsigned", "ShrSigned"):
    rule(f"Op::{OP}", 32, aspects=("range",), cases=tuple((by,) for by in range(32)))(shift(OP))


def kept(executor, found, value, bits, zeros=None):
    """What `fits` keeps of a result of 64 bits admits what the register is left with: nothing has wrapped around."""
    machine = executor.machine
    fitting = executor.call("Number::fits", found)
    if fitting.variant == "None":
        return
    result = fitting.fields[0]
    admitted(executor, result, wrapped(machine, value, bits), bits)
    for name in ("low", "high"):
        end = field(result, name)
        machine.want("what fits is near", domain.both(-machine.far <= end, end <= machine.far))
    if zeros is not None:
        machine.want("a result has the zeros of what it is made of", field(result, "zeros") <= zeros)


def product(executor, found, value):
    """What is known of a product that need not fit: its bound may be beyond everything."""
    most, beyond = found.fields["most"], executor.constant("BEYOND", executor.node).term
    constant, worth = (most.fields[name].term for name in ("constant", "worth"))
    bounded = domain.either(domain.both(constant == beyond, worth == 0), value <= of(most))
    low, high = field(found, "low"), field(found, "high")
    near = [domain.both(-(1 << 126) <= end, end <= 1 << 126) for end in (low, high, constant)]
    return domain.both(low <= value, value <= high, bounded, *near)


def wide(method, operator, **how):
    """A rule of two operands of 64 bits."""
    def body(executor, bits):
        machine = executor.machine
        (one, a), (other, b) = operand(machine, "one"), operand(machine, "other")
        found, value, zeros = executor.call(f"Number::{method}", one, other), operator(a, b), None
        if method == "times":
            zeros = field(one, "zeros") + field(other, "zeros")
            machine.want("it is as any product is", product(executor, found, value))
        kept(executor, found, value, bits, zeros)
    rule(f"Number::{method}", 64, **how)(body)


wide("plus", lambda a, b: a + b)
wide("minus", lambda a, b: a - b)
wide("times", lambda a, b: a * b, aspects=("range",))


@rule("times, plus: mad", 64, aspects=("range",))
def multiply_and_add(executor, bits):
    """What is too large of a product is still too large of the sum, whatever `times` may make of it."""
    machine = executor.machine
    (third, c), value = operand(machine, "third"), machine.number("product")
    ends = [machine.number(f"product.{name}") for name in ("low", "high", "most", "worth")]
    one = of_numbers(*ends[:2], bound(*ends[2:]), 0)
    machine.assume(product(executor, one, value))
    kept(executor, executor.call("Number::plus", one, third), value + c, bits)


@rule("meant, times: mul.wide", 32, aspects=("range",), cases=tuple((sign,) for sign in SIGNS))
def multiply_wide(executor, bits, sign):
    """The whole product of two words."""
    machine = executor.machine
    (one, a), (other, b) = held(machine, "one", bits), held(machine, "other", bits)
    one, other = (executor.call("Number::meant", known, variant("Sign", sign), width(bits)) for known in (one, other))
    found = executor.call("Number::times", one, other)
    zeros = field(one, "zeros") + field(other, "zeros")
    kept(executor, found, meant(machine, a, sign, bits) * meant(machine, b, sign, bits), 64, zeros)


@rule("Number::and", 64, aspects=("bits",))
def conjunction(executor, bits):
    """Of two numbers from 0 on; and of one such number with anything."""
    machine = executor.machine
    (one, a), (other, b) = operand(machine, "one"), operand(machine, "other")
    anything = machine.number("anything")
    machine.assume(domain.both(-(1 << 63) <= anything, anything < 1 << 63))
    machine.assume(domain.both(field(one, "low") >= 0, field(other, "low") >= 0))
    kept(executor, executor.call("Number::and", one, other), a & b, bits)
    kept(executor, executor.call("Number::and", one, one), a & anything, bits)


@rule("Number::or", 32, 64)
def whichever(executor, bits):
    """It admits what either does."""
    machine = executor.machine
    one, other = number(machine, "one"), number(machine, "other")
    value = machine.number("value")
    machine.assume(domain.either(admits(machine, one, value, bits), admits(machine, other, value, bits)))
    found = executor.call("Number::or", one, other)
    machine.want("either is admitted, its zeros too", admits(machine, found, value, bits))


@rule("Number::with", 32, 64)
def together(executor, bits):
    """It admits what both do, and says no less than the first."""
    machine = executor.machine
    one, other = number(machine, "one"), number(machine, "other")
    value = machine.number("value")
    machine.assume(domain.both(admits(machine, one, value, bits), admits(machine, other, value, bits)))
    found = executor.call("Number::with", one, other)
    machine.want("what both admit is admitted, its zeros too", admits(machine, found, value, bits))
    machine.want("the first holds it", executor.call("Number::holds", one, found))


@rule("Number::implied_by, holds", 32, 64)
def implied(executor, bits):
    """A claim that is implied admits all that the known number does."""
    machine = executor.machine
    claim, known = number(machine, "claim"), number(machine, "known")
    value = machine.number("value")
    machine.assume(admits(machine, known, value, bits))
    if machine.decide(executor.call("Number::implied_by", claim, known)):
        machine.want("what is known is admitted, its zeros too", admits(machine, claim, value, bits))
    if machine.decide(executor.call("Number::holds", claim, known)):
        inside = domain.both(field(claim, "low") <= value, value <= field(claim, "high"))
        machine.want("what is known lies in it", inside)


@rule("Number::plain, is_plain", 32, 64)
def without_place(executor, bits):
    """Without where a thread is, less is said."""
    machine = executor.machine
    known, value = number(machine, "known"), machine.number("value")
    machine.assume(admits(machine, known, value, bits))
    machine.want("it is admitted, its zeros too", admits(machine, executor.call("Number::plain", known), value, bits))
    if machine.decide(executor.call("Number::is_plain", known)):
        machine.want("its bound is its high end", of(known.fields["most"]) == field(known, "high"))


@rule("Number::fits", 64, aspects=("range",))
def fitting(executor, _):
    """It is the number itself, and near."""
    machine = executor.machine
    low, high, constant = (machine.number(name) for name in ("low", "high", "most"))
    machine.assume(low <= high)
    given = of_numbers(low, high, executor.call("Most::constant", Int(constant, "i128")), 0)
    found = executor.call("Number::fits", given)
    if found.variant == "Some":
        same = [field(found.fields[0], name) == field(given, name) for name in ("low", "high", "zeros")]
        machine.want("it is the same", domain.both(*same))
        near = [domain.both(-machine.far <= end, end <= machine.far) for end in (low, constant)]
        machine.want("it is near", domain.both(*near, high <= machine.far))


@rule("Number::exactly", 32, 64, aspects=("bits",))
def one_number(executor, bits):
    """A number from what 32 bits hold up to what fits, and its zeros."""
    machine = executor.machine
    value = machine.number("value")
    machine.assume(domain.both(-(1 << 63) <= value, value < 1 << 63) if bits == 64 else
                   domain.both(-(1 << 31) <= value, value < 1 << 32))
    found = executor.call("Number::exactly", Int(value, "i128"))
    machine.want("it is admitted, its zeros too", admits(machine, found, value, bits))
    valid(machine, found, 64)


@rule("Number::is_small, Width", 32, aspects=("range",))
def small(executor, bits):
    """From 0 on, and the same signed and unsigned."""
    machine = executor.machine
    known = number(machine, "known")
    found = executor.call("Number::is_small", known, width(bits))
    ends = domain.both(0 <= field(known, "low"), field(known, "high") <= 0x7FFF_FFFF)
    machine.want("exactly then", found == ends)
    machine.want("the largest", executor.call("Width::most", width(bits)).term == 0x7FFF_FFFF)
    machine.want("how many there are", executor.call("Width::count", width(bits)).term == 1 << bits)


@rule("Sign::all", 32, cases=tuple((sign,) for sign in SIGNS))
def anything(executor, bits, sign):
    """It admits whatever a register holds, and nothing else."""
    machine = executor.machine
    value, other = machine.number("value"), machine.number("other")
    machine.assume(domain.both(0 <= value, value < 1 << bits))
    found = executor.call("Sign::all", variant("Sign", sign), width(bits))
    machine.want("it is admitted, its zeros too", admits(machine, found, meant(machine, value, sign, bits), bits))
    low, high = (-(1 << 31), (1 << 31) - 1) if sign == "Signed" else (0, (1 << 32) - 1)
    inside = domain.both(low <= other, other <= high)
    machine.want("nothing else", domain.either(domain.negated(admits(machine, found, other, bits)), inside))


@rule("Number::settled", 32)
def settles(executor, bits):
    """A register is left with the low bits of any number that does not go too far."""
    machine = executor.machine
    known, value = number(machine, "known", 1 << 100), machine.number("value")
    machine.assume(admits(machine, known, value, 64))
    found = executor.call("Number::settled", known, width(bits))
    admitted(executor, found, wrapped(machine, value, bits), bits)


@rule("Number::near", 32)
def nearest(executor, bits):
    """The same register, perhaps as a number a whole round less."""
    machine = executor.machine
    known, value = held(machine, "known", bits)
    found = executor.call("Number::near", known, width(bits))
    less = machine.domain.choose(field(known, "low") >= 1 << 31, value - (1 << bits), value)
    machine.want("it is admitted, its zeros too", admits(machine, found, less, bits))
    machine.want("it is the same register", wrapped(machine, less, bits) == value)


@rule("Number::meant", 32, cases=tuple((sign,) for sign in SIGNS))
def means(executor, bits, sign):
    """The number of a sign that a register holds."""
    machine = executor.machine
    known, value = held(machine, "known", bits)
    found = executor.call("Number::meant", known, variant("Sign", sign), width(bits))
    machine.want("it is admitted, its zeros too", admits(machine, found, meant(machine, value, sign, bits), bits))


@rule("Sign::immediate", 32, aspects=("range",), cases=tuple((sign,) for sign in SIGNS))
def immediate(executor, bits, sign):
    """The number that the low bits of either spelling are; none of what has more bits."""
    machine = executor.machine
    value = machine.number("value")
    low, high = domain.RANGES["i128"]
    machine.assume(domain.both(low <= value, value <= high))
    found = executor.call("Sign::immediate", variant("Sign", sign), Int(value, "i128"), width(bits))
    spelled = domain.both(-(1 << 31) <= value, value < 1 << 32)
    if found.variant == "None":
        machine.want("it has more bits", domain.negated(spelled))
        return
    machine.want("it has no more bits", spelled)
    low = meant(machine, wrapped(machine, value, bits), sign, bits)
    machine.want("it is its low bits", found.fields[0].term == low)


@rule("Order::not, swapped", 64, aspects=("range",), cases=tuple((order,) for order in ORDERS))
def orders(executor, _, order):
    """What holds where a comparison does not, and of both the other way around."""
    machine = executor.machine
    one, other = machine.number("one"), machine.number("other")
    holds = compares(order, one, other)
    opposite, swapped = (executor.call(f"Order::{name}", variant("Order", order)) for name in ("not", "swapped"))
    machine.want("one of both holds", compares(opposite.variant, one, other) == domain.negated(holds))
    machine.want("it is the same", compares(swapped.variant, other, one) == holds)


def pair(low, high):
    """Two numbers."""
    return Seq([Int(low, "i128"), Int(high, "i128")])


@rule("Order::cut", 32, 64, aspects=("range",), cases=tuple((order,) for order in ORDERS))
def cuts(executor, bits, order):
    """What passes a comparison with some number of a range is left, and nothing else comes in."""
    machine = executor.machine
    ends = [machine.number(name) for name in ("low", "high", "from", "to")]
    value, other = machine.number("value"), machine.number("bound")
    far = 1 << bits - 2 if bits == 64 else 1 << bits
    machine.assume(domain.both(*[domain.both(-far <= end, end <= far) for end in ends]))
    machine.assume(domain.both(ends[0] <= value, value <= ends[1], ends[2] <= other, other <= ends[3]))
    machine.assume(compares(order, value, other))
    found = executor.call("Order::cut", variant("Order", order), pair(*ends[:2]), pair(*ends[2:]))
    low, high = (item.term for item in found.items)
    machine.want("what passes is left", domain.both(low <= value, value <= high))
    machine.want("no more than before is left", domain.both(ends[0] <= low, high <= ends[1]))


def refines(executor, known, value, ends, sign, bits):
    """What is refined of a register admits what it holds, where a test says that it lies in a range."""
    machine = executor.machine
    seen = meant(machine, value, sign, bits)
    machine.assume(domain.both(ends[0] <= seen, seen <= ends[1]))
    found = executor.call("refined", known, pair(*ends), width(bits))
    if found.variant == "Some":
        admitted(executor, found.fields[0], value, bits)
        machine.want("it is a small number", field(found.fields[0], "high") <= 0x7FFF_FFFF)


@rule("refined", 32, aspects=("bits",), cases=tuple((sign, how) for sign in SIGNS for how in ("known", "unknown")))
def refine(executor, bits, sign, how):
    """Of any range that a register lies in as a number of a sign, whatever was known of it."""
    machine = executor.machine
    known, value = held(machine, "known", bits)
    ends = [machine.number(name) for name in ("from", "to")]
    machine.assume(domain.both(*[domain.both(-(1 << 33) <= end, end <= 1 << 33) for end in ends]))
    refines(executor, some(known) if how == "known" else NONE, value, ends, sign, bits)
