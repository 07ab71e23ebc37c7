#!/usr/bin/env python3
"""Builds the tests of the workspace and runs them, several programs of tests at a time: many of them wait more than they work.

What a program printed stands together when it has ended, with how long it took. Those that took
longest, as `times.json` says, begin first.
Ends with 0 where all passed, otherwise with 1.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

# What the fast tier runs took at most so long, in seconds.
FAST_SECONDS = 5.0

HERE = Path(__file__).resolve().parent
TIMES = HERE / "times.json"


class Tests(NamedTuple):
    """A program of tests: the package and the target that it is of, and where it runs."""

    package: str
    target: str
    folder: Path
    program: Path

    @property
    def name(self) -> str:
        return f"{self.package} {self.target}"


def build(cargo: str) -> list[Tests]:
    """Builds all of them."""
    command = [cargo, "test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"]
    built = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if built.returncode != 0:
        sys.exit(1)
    found = []
    for line in built.stdout.splitlines():
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("reason") == "compiler-artifact" and message.get("executable") and message["profile"]["test"]:
            folder = Path(message["manifest_path"]).parent
            package = folder.name if folder != HERE else "tests"
            found.append(Tests(package, message["target"]["name"], folder, Path(message["executable"])))
    return found


def run(tests: Tests) -> tuple[Tests, int, float, str]:
    """Runs one: its exit status, the seconds that it took and what it printed."""
    began = time.monotonic()
    done = subprocess.run(
        [tests.program], cwd=tests.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", check=False,
    )
    return tests, done.returncode, time.monotonic() - began, done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2, help="programs of tests at a time")
    parser.add_argument("--fast", action="store_true", help=f"only those that took at most {FAST_SECONDS:.0f} s, or are new")
    parser.add_argument("--keep", action="store_true", help=f"write how long each took to {TIMES.name}")
    parser.add_argument("names", nargs="*", help="packages or targets; all where none is named")
    arguments = parser.parse_args()
    cargo = os.environ.get("CARGO", "cargo")
    times: dict[str, float] = json.loads(TIMES.read_text())
    began = time.monotonic()
    programs = [tests for tests in build(cargo) if not arguments.names or {tests.package, tests.target} & set(arguments.names)]
    print(f"built in {time.monotonic() - began:.0f} s: {len(programs)} programs of tests", flush=True)
    if arguments.fast:
        left_out = len(programs)
        programs = [tests for tests in programs if times.get(tests.name, 0.0) <= FAST_SECONDS]
        left_out -= len(programs)
        print(f"fast: {len(programs)} programs of tests, {left_out} longer ones left out", flush=True)
    # One of which nothing is known may be long.
    programs.sort(key=lambda tests: -times.get(tests.name, 60.0))
    failed = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for done in as_completed(pool.submit(run, tests) for tests in programs):
            tests, status, seconds, printed = done.result()
            print(f"\n     Running {tests.name}: {seconds:.1f} s\n{printed}", end="", flush=True)
            times[tests.name] = round(seconds, 1)
            if status != 0:
                failed.append(tests.name)
    if not arguments.names and not arguments.fast and subprocess.run([cargo, "test", "--workspace", "--doc"], check=False).returncode != 0:
        failed.append("the examples of the documentation")
    if arguments.keep:
        TIMES.write_text(json.dumps(dict(sorted(times.items())), indent=1) + "\n")
    for name in failed:
        print(f"test {name} ... FAILED")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
