#!/usr/bin/env python3
"""Puts mistakes into kernels of tests/programs, one at a time, and counts what `bulkhead run --sanitize` tells of them.

The mistakes are the table mutants.toml beside this. Each program also runs as it is, and then nothing may be told.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
PROGRAMS = REPOSITORY / "tests" / "programs"
SECONDS_MAX = 300
# PTX alone: no machine code is needed, and making it takes longest.
FLAGS = ["-lineinfo", "-gencode", "arch=compute_90,code=compute_90", f"-I{PROGRAMS}", "-w"]


def fail(message):
    sys.exit(f"mutants: error: {message}")


def mutated(source, mutant):
    """The text of a program with a mistake in it."""
    name = f"{mutant['in'][0]}: {mutant['name']}"
    start = 0
    if "behind" in mutant:
        if source.count(mutant["behind"]) < 1:
            fail(f"{name}: nothing stands behind {mutant['behind']!r}")
        # Of several, the first one in the kernel.
        kernel = source.find(f" {mutant['kernel']}(")
        start = source.find(mutant["behind"], max(kernel, 0))
        if start < 0:
            fail(f"{name}: {mutant['behind']!r} does not stand in {mutant['kernel']}")
        start += len(mutant["behind"])
    at = source.find(mutant["cut"], start)
    if at < 0 or ("behind" not in mutant and source.count(mutant["cut"]) != 1):
        fail(f"{name}: {mutant['cut']!r} does not stand there once")
    return source[:at] + mutant.get("put", "") + source[at + len(mutant["cut"]):]


def run(command, seconds=SECONDS_MAX):
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=seconds, check=False)
        return done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired:
        return 124, "", "out of time"


def sanitized(bulkhead, binary, arguments):
    """What is told of a program: the tools and kinds, each once, and whether its own check was right."""
    code, out, err = run([bulkhead, "run", "--backend", "software", "--sanitize", "--json", "--", binary, *arguments])
    lines = out.splitlines()
    try:
        told = json.loads(lines[-1])
    except (IndexError, ValueError):
        return {"code": code, "right": False, "findings": [], "broken": (err or out)[-400:]}
    findings = [f"{found['tool']} {found['kind']}" for found in told["findings"]] + ["leakcheck leak"] * len(told["leaks"])
    right = any(line.startswith("PASS ") for line in lines[:-1])
    if not right:
        # Whoever gives up frees nothing.
        findings = [found for found in findings if found != "leakcheck leak"]
    return {"code": code, "right": right, "findings": sorted(set(findings))}


def build(nvcc, name, text, folder):
    source = folder / f"{name}.cu"
    source.write_text(text)
    first = next((line for line in text.splitlines() if line.startswith("// nvcc: ")), "// nvcc: ")
    # Flags that name other architectures are not for here.
    words = first.removeprefix("// nvcc: ").split()
    words = [word for at, word in enumerate(words) if "arch=" not in word and word not in ("-gencode", "-lineinfo")]
    binary = folder / name
    code, _, err = run([nvcc, *FLAGS, *words, "-o", str(binary), str(source)])
    if code != 0:
        return None, err[-400:]
    return str(binary), ""


def try_mutant(tools, mutant):
    program, *arguments = mutant["in"]
    arguments = [] if arguments == ["small"] else arguments
    source = (PROGRAMS / f"{program}.cu").read_text()
    since = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        text = mutated(source, mutant) if "cut" in mutant else source
        binary, why = build(tools.nvcc, program, text, pathlib.Path(folder))
        found = sanitized(tools.bulkhead, binary, arguments) if binary else {"broken": why, "findings": [], "right": False}
    found["seconds"] = round(time.monotonic() - since, 1)
    named = {finding.split()[0] for finding in found["findings"]}
    if "cut" not in mutant:
        found["good"] = not found["findings"] and found["right"]
    elif mutant["told"]:
        found["good"] = bool(named & set(mutant["told"]))
    else:
        # What is not told today may be one day: then the table is to say so.
        found["good"] = not named
    return found | {"program": program, "arguments": arguments} | {key: mutant[key] for key in ("name", "kernel", "why") if key in mutant}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", nargs="*", metavar="WORD", help="only mutants of programs or kernels with this name")
    parser.add_argument("--sample", action="store_true", help="only the few that run with each change")
    parser.add_argument("--json", action="store_true", help="print what was told as one JSON document")
    parser.add_argument("--bulkhead", default=os.environ.get("BULKHEAD", str(REPOSITORY / "target/debug/bulkhead")))
    parser.add_argument("--nvcc", default=str(REPOSITORY / ".toolchain/cuda/bin/nvcc"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    for tool in (options.bulkhead, options.nvcc):
        if not os.access(tool, os.X_OK):
            fail(f"{tool} is not there: cargo build --workspace, tests/toolchain.sh")
    mutants = tomllib.loads((HERE / "mutants.toml").read_text())["mutant"]
    if options.sample:
        mutants = [mutant for mutant in mutants if mutant.get("sample")]
    if options.only:
        mutants = [mutant for mutant in mutants if {mutant["in"][0], mutant["kernel"]} & set(options.only)]
    as_they_are = sorted({tuple(mutant["in"]) for mutant in mutants})
    tried = [{"in": list(program), "name": "as it is"} for program in as_they_are] + mutants
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda mutant: try_mutant(options, mutant), tried))
    plain, changed = results[:len(as_they_are)], results[len(as_they_are):]
    expected = [result for result, mutant in zip(changed, mutants) if mutant["told"]]
    counts = {
        "programs": len(plain),
        "programsWithoutFindings": sum(result["good"] for result in plain),
        "mutants": len(changed),
        "found": sum(bool(result["findings"]) for result in changed),
        "expected": len(expected),
        "expectedAndFound": sum(result["good"] for result in expected),
        "resultsDiffer": sum(not result["right"] for result in changed),
    }
    bad = [result for result in results if not result["good"]]
    if options.json:
        print(json.dumps(counts | {"results": results, "good": not bad}))
    else:
        for result in results:
            told = ", ".join(result["findings"]) or result.get("broken") or result.get("why") or "nothing"
            verdict = "" if result["good"] else "  <-- not as the table has it"
            kernel = result.get("kernel", "")
            print(f"{result['program']:15} {kernel:21} {result['name']:44} {'right' if result['right'] else 'wrong'}  {told}{verdict}")
        print(f"{counts['programsWithoutFindings']} of {counts['programs']} programs as they are: nothing told")
        print(f"{counts['expectedAndFound']} of {counts['expected']} mutants that break a rule found, of {counts['mutants']} in all; "
              f"the program's own check saw {counts['resultsDiffer']}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
