#!/usr/bin/env python3
"""Proves what the rules for numbers of the trusted checker promise, for all registers of 32 and 64 bits, by z3.

The rules are read from `guard/verifier/src/values/number.rs` and `guard/verifier/src/most.rs` themselves: their
functions are executed on numbers of which nothing is known. A row of the table is a rule of `rules.py` or `mosts.py`.
Ends with 0 where everything is proven, otherwise with 1. Progress goes to stderr.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = {"number.rs": "values/number.rs", "most.rs": "most.rs"}


def arguments():
    """What is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="RULE", action="append", help="rules with this in their name")
    parser.add_argument("--all", action="store_true", help="the cases that take long, too")
    parser.add_argument("--mutations", action="store_true", help="only that the proofs refute mistakes in the text")
    parser.add_argument("--no-mutations", action="store_true", help="without that")
    parser.add_argument("--json", action="store_true", help="prints the table as JSON")
    parser.add_argument("--timeout", type=int, default=60, metavar="SECONDS", help="of a question to z3 (%(default)s)")
    return parser.parse_args()


def packages():
    """Makes z3 and the parser importable."""
    found = subprocess.run([ROOT / "guard/proofs/install.sh"], stdout=subprocess.PIPE, text=True, check=False,
                           env={**os.environ, "PYTHON": sys.executable})
    if found.returncode != 0:
        sys.exit(1)
    sys.path.insert(0, found.stdout.strip())


def say(line):
    """Progress."""
    print(f"prove.py: {line}", file=sys.stderr, flush=True)


def prove(rule, program, options):
    """A row of the table."""
    import bounds
    import machine
    import rust

    begun, paths, verdict, note = time.monotonic(), 0, "proved", ""
    reader = machine.Machine("range", 0, 0)
    reader.begin()
    far = rust.Executor(program, reader).constant("FAR", None).term
    contracts = bounds.CONTRACTS if rule.contracts is None else rule.contracts
    widths = [rule.width] if rule.contracts is None else []
    cases = [(aspect, case) for aspect in rule.aspects for case in rule.chosen(options.all)]
    for aspect, case in cases:
        explored = machine.Machine(aspect, options.timeout * 1000, far)
        outcome = explored.explore(
            lambda machine_, case=case: rule.body(rust.Executor(program, machine_, contracts), *widths, *case))
        paths += outcome.paths
        if outcome.verdict != "proved":
            verdict, note = outcome.verdict, outcome.refuted or outcome.unknown
            note = f"{' '.join(map(str, case))}: {note}" if case else note
            break
    seconds = round(time.monotonic() - begun, 1)
    found = {"verdict": verdict, "paths": paths, "seconds": seconds, "note": note}
    return {"rule": rule.name, "width": rule.width, **found}


def refuted(mutation, sources, rules, options):
    """Whether a mistake is noticed, as a row of the table."""
    import rust

    program = rust.Program({**sources, mutation.file: mutation.of(sources[mutation.file])})
    rows = [prove(rule, program, options) for rule in rules if rule.name == mutation.rule]
    if not rows:
        raise SystemExit(f"prove.py: no rule {mutation.rule}")
    row = next((row for row in rows if row["verdict"] == "refuted"), rows[0])
    verdict = "noticed" if row["verdict"] == "refuted" else "missed"
    return {**row, "rule": f"mistake: {mutation.name}", "verdict": verdict, "note": f"{mutation.rule}: {row['note']}"}


def stops(sources, rules, options):
    """Whether the executor stops at what it does not know, as a row of the table."""
    import rust
    import values

    before, after = "self.low >= 0 && self.high <= width.most()", "self.low.signum() >= 0 && self.high <= width.most()"
    line = sources["number.rs"][:sources["number.rs"].index(before)].count("\n") + 1
    program = rust.Program({**sources, "number.rs": sources["number.rs"].replace(before, after)})
    row = {"rule": "mistake: a method that is not known", "width": 32, "paths": 0, "seconds": 0.0}
    try:
        prove(next(rule for rule in rules if rule.name == "Number::is_small, Width"), program, options)
    except values.Unknown as unknown:
        if str(unknown).startswith(f"number.rs:{line}: "):
            return {**row, "verdict": "noticed", "note": f"error: {unknown}"}
    return {**row, "verdict": "missed", "note": ""}


def table(rows, as_json):
    """Prints what came of all."""
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    wide = max(len(row["rule"]) for row in rows)
    print(f"{'rule':{wide}}  width  verdict  paths  seconds")
    for row in rows:
        print(f"{row['rule']:{wide}}  {row['width']:5}  {row['verdict']:7}  {row['paths']:5}  {row['seconds']:7.1f}")
        if row["note"]:
            print(f"    {row['note']}")
    good = sum(row["verdict"] in ("proved", "noticed") for row in rows)
    print(f"{good} of {len(rows)} as they should be, in {sum(row['seconds'] for row in rows):.0f} s")


def main():
    """Proves what is asked for."""
    options = arguments()
    packages()
    import mosts
    import mutations
    import rules
    import rust
    import values

    known = rules.RULES + mosts.RULES
    wanted = [rule for rule in known if not options.only or any(name in rule.name for name in options.only)]
    sources = {name: (ROOT / "guard/verifier/src" / path).read_text() for name, path in SOURCES.items()}
    rows = []
    try:
        program = rust.Program(sources)
        for rule in wanted if not options.mutations else ():
            rows.append(prove(rule, program, options))
            say(f"{rule.name}, {rule.width} bits: {rows[-1]['verdict']} in {rows[-1]['seconds']} s")
        for mutation in mutations.MUTATIONS if not options.no_mutations else ():
            if options.only and not any(name in mutation.rule for name in options.only):
                continue
            rows.append(refuted(mutation, sources, known, options))
            say(f"{rows[-1]['rule']}: {rows[-1]['verdict']} in {rows[-1]['seconds']} s")
        if not options.no_mutations and not options.only:
            rows.append(stops(sources, known, options))
    except values.Unknown as unknown:
        say(f"error: {unknown}")
        return 1
    if not rows:
        say("error: no such rule")
        return 1
    table(rows, options.json)
    return 0 if all(row["verdict"] in ("proved", "noticed") for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
