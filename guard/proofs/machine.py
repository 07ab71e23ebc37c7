"""Goes through every path of what is executed, and asks z3 at the end of each whether all that is wanted holds.

A path is executed from its beginning: wherever a condition is not known, `decide` takes one side, and a later run takes
the other. A side is left out only where z3 proves that nobody comes there.
"""

import time

import z3

import domain

# How long z3 may think about whether anybody comes to a place: where it does not know, somebody may.
FEASIBLE_MS = 1000
PATHS_MAX = 20000


class Speculation(Exception):
    """What was tried is not without consequences."""


class Outcome:
    """What became of a rule."""

    def __init__(self):
        self.paths = 0
        self.reached = 0
        self.goals = 0
        self.refuted = None
        self.unknown = None
        self.seconds = 0.0

    @property
    def verdict(self):
        """In one word."""
        if self.refuted:
            return "refuted"
        if self.unknown or not self.reached:
            return "unknown"
        return "proved"


class Machine:
    """One rule's execution."""

    def __init__(self, aspect, timeout_ms, far):
        self.bits = aspect != "range"
        self.domain = domain.Bits(self) if self.bits else domain.Integers(self)
        self.aspect = aspect
        # How far numbers are looked at: `FAR`.
        self.far = far
        self.timeout_ms = timeout_ms
        self.script = []
        self.trying = False

    def attempt(self, evaluate):
        """What it evaluates to, where that decides, assumes and wants nothing; otherwise none."""
        before, self.trying = self.trying, True
        try:
            return evaluate()
        except Speculation:
            if before:
                raise
            return None
        finally:
            self.trying = before

    def begin(self):
        """The start of a path."""
        self.at = 0
        self.path = []
        self.goals = []
        self.wanted = 0
        self.shown = {}
        self.names = {}
        self.solver = z3.Solver()
        self.solver.set("timeout", FEASIBLE_MS)

    def name(self, name):
        """The same name in each run, and another each time in one run."""
        self.names[name] = self.names.get(name, 0) + 1
        return f"{name}#{self.names[name]}"

    def number(self, name):
        """A number of which nothing is known, which counterexamples show."""
        return self.show(name, self.domain.fresh(name))

    def flag(self, name):
        """A condition of which nothing is known."""
        return z3.Bool(self.name(name))

    def show(self, name, term):
        """Has counterexamples show a term."""
        self.shown[name] = term
        return term

    def assume(self, condition):
        """Holds from here on."""
        if condition is True:
            return
        if self.trying:
            raise Speculation
        condition = z3.BoolVal(False) if condition is False else condition
        self.path.append(condition)
        self.solver.add(condition)

    def want(self, label, condition):
        """Is to be proven of this path; where only zeros are looked at, the rest is shown elsewhere."""
        if self.aspect == "zeros" and "zeros" not in label:
            return
        self.wanted += 1
        self.oblige(label, condition)

    def oblige(self, label, condition):
        """Has to hold at the end of the path, beside what is to be proven of it."""
        if self.aspect == "zeros" and "zeros" not in label:
            return
        if condition is not True:
            if self.trying:
                raise Speculation
            self.goals.append((label, z3.BoolVal(False) if condition is False else condition))

    def feasible(self, condition):
        """Whether it may hold here."""
        return self.solver.check(condition) != z3.unsat

    def decide(self, condition):
        """Takes a side of a condition, and later the other."""
        if isinstance(condition, bool):
            return condition
        condition = z3.simplify(condition)
        if z3.is_true(condition) or z3.is_false(condition):
            return z3.is_true(condition)
        if self.trying:
            raise Speculation
        if self.at == len(self.script):
            holds = self.feasible(condition)
            self.script.append([holds, holds and self.feasible(z3.Not(condition))])
        side = self.script[self.at][0]
        self.at += 1
        self.assume(condition if side else z3.Not(condition))
        return side

    def settle(self, term, low, high):
        """Which number it is, where it is one from `low` to `high`."""
        if domain.known(term):
            return term
        for number in range(low, high):
            if self.decide(term == number):
                return number
        self.assume(term == high)
        return high

    def search(self, number, holds, most):
        """The first of which that holds."""
        if domain.known(number):
            return number.bit_length()
        return next((index for index in range(most) if self.decide(holds(index))), most)

    def ask(self, outcome):
        """Whether all that is wanted follows at the end of a path."""
        solver = z3.SolverFor("QF_BV") if self.bits else z3.Solver()
        solver.set("timeout", self.timeout_ms)
        solver.add(*self.path)
        solver.add(z3.Or([z3.Not(condition) for _, condition in self.goals]))
        answer = solver.check()
        if answer == z3.unsat:
            return
        if answer == z3.unknown:
            labels = sorted({label for label, _ in self.goals})
            outcome.unknown = f"path {outcome.paths}: {solver.reason_unknown()}; wanted: {', '.join(labels)}"
            return
        model = solver.model()
        broken = [label for label, condition in self.goals if z3.is_false(model.eval(condition, True))]
        shown = ", ".join(f"{name} = {value(model, term)}" for name, term in self.shown.items())
        outcome.refuted = f"{' and '.join(dict.fromkeys(broken))}: {shown}"

    def explore(self, body):
        """Executes all paths; ends at the first that does not show what is wanted."""
        outcome, begun = Outcome(), time.monotonic()
        while True:
            self.begin()
            body(self)
            outcome.paths += 1
            outcome.goals += len(self.goals)
            if self.wanted:
                # Of a path that nobody takes nothing would be said.
                outcome.reached += outcome.reached > 0 or self.solver.check() == z3.sat
            if self.goals:
                self.ask(outcome)
            while self.script and not self.script[-1][1]:
                self.script.pop()
            if outcome.refuted or outcome.unknown or not self.script:
                break
            if outcome.paths == PATHS_MAX:
                outcome.unknown = f"more than {PATHS_MAX} paths"
                break
            self.script[-1] = [not self.script[-1][0], False]
        if not (outcome.reached or outcome.refuted or outcome.unknown):
            outcome.unknown = "no path comes to anything that is wanted"
        outcome.seconds = time.monotonic() - begun
        return outcome


def value(model, term):
    """What a term is in a counterexample."""
    if domain.known(term):
        return term
    found = model.eval(term, True)
    if z3.is_bv_value(found):
        return found.as_signed_long()
    return found.as_long() if z3.is_int_value(found) else found
