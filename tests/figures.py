#!/usr/bin/env python3
"""What the guard costs in machine code: registers, spills and instructions of every kernel, without and with it.

usage: tests/figures.py [--json] [--confined] [--guard BULKHEAD] [PROGRAM...]

Needs what `tests/programs.sh --ptx` leaves in tests/programs/bin/ptx, hostile programs left out, and a built `bulkhead` (target/release or
target/debug unless --guard names one). Both texts are assembled for sm_90 by ptxas of .toolchain. Instructions are
those of a kernel's code without the NOPs and the branch to itself that fill its end. Where a kernel has a fast version,
which runs where its pointers lie in the session's window, that is what counts, unless --confined is given.
"""

import argparse
import json
import math
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PTXAS = ROOT / ".toolchain/cuda/bin/ptxas"
NOP, BRA = 0x918, 0x947


def instructions(cubin):
    """Instructions of each entry, from the sections of its cubin."""
    offset, = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", cubin, offset + i * size) for i in range(count)]
    strings = sections[names][4]
    counts = {}
    for name, _, _, _, at, length in sections:
        end = cubin.index(b"\0", strings + name)
        name = cubin[strings + name:end].decode()
        if not name.startswith(".text."):
            continue
        opcodes = [struct.unpack_from("<H", cubin, at + i)[0] & 0xFFF for i in range(0, length, 16)]
        while opcodes and opcodes[-1] == NOP:
            opcodes.pop()
        if opcodes and opcodes[-1] == BRA:
            opcodes.pop()
        counts[name[len(".text."):]] = sum(opcode != NOP for opcode in opcodes)
    return counts


def assemble(text, folder):
    """Registers, spilled bytes and instructions of each entry of a text."""
    source, target = folder / "a.ptx", folder / "a.cubin"
    source.write_text(text)
    done = subprocess.run([PTXAS, "-arch=sm_90", "-v", source, "-o", target], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"figures: ptxas: {done.stderr}")
    counts = instructions(target.read_bytes())
    found = {}
    entry = None
    for line in done.stderr.splitlines():
        if match := re.search(r"Compiling entry function '(\w+)'", line):
            entry = match[1]
            found[entry] = {"instructions": counts[entry], "registers": 0, "spilled": 0}
        elif match := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            found[entry]["spilled"] = int(match[1]) + int(match[2])
        elif match := re.search(r"Used (\d+) registers", line):
            found[entry]["registers"] = int(match[1])
    return found


def demangled(name):
    done = subprocess.run(["c++filt", name], capture_output=True, text=True)
    return re.sub(r"\(.*|^void ", "", done.stdout.strip()) or name


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--guard", type=pathlib.Path)
    parser.add_argument("--confined", action="store_true")
    parser.add_argument("programs", nargs="*")
    arguments = parser.parse_args()
    built = [arguments.guard] if arguments.guard else [ROOT / "target" / kind / "bulkhead" for kind in ("release", "debug")]
    guard = next((path for path in built if path.is_file()), None)
    if guard is None:
        sys.exit("figures: there is no bulkhead: cargo build, or --guard")
    folder = ROOT / "tests/programs/bin/ptx"
    honest = (path.stem for path in folder.glob("*.ptx") if not path.stem.startswith(("attack_", "vecadd_shared")))
    names = arguments.programs or sorted(honest)
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        for name in names:
            path = folder / f"{name}.ptx"
            if ".entry" not in path.read_text():
                continue
            done = subprocess.run([guard, "guard", path], capture_output=True, text=True)
            if done.returncode != 0:
                print(f"figures: {name} is refused and left out", file=sys.stderr)
                continue
            before, after = assemble(path.read_text(), scratch), assemble(done.stdout, scratch)
            for entry, plain in before.items():
                fast = None if arguments.confined else after.get(f"__bh_fast_{entry}")
                guarded = fast or after[f"bh_e_{entry}"]
                rows.append({"program": name, "kernel": demangled(entry), "plain": plain, "guarded": guarded})
    if not rows:
        sys.exit("figures: no PTX: tests/programs.sh --ptx")
    ratios = [row["guarded"]["instructions"] / row["plain"]["instructions"] for row in rows]
    more = [row["guarded"]["registers"] - row["plain"]["registers"] for row in rows]
    spilled = sum(row["guarded"]["spilled"] > row["plain"]["spilled"] for row in rows)
    summary = {
        "kernels": len(rows),
        "instructions_geometric_mean": round(math.exp(sum(map(math.log, ratios)) / len(ratios)), 4),
        "instructions_worst": round(max(ratios), 4),
        "registers_mean": round(sum(more) / len(more), 3),
        "registers_most": max(more),
        "kernels_with_new_spills": spilled,
    }
    if arguments.json:
        json.dump({"kernels": rows, "summary": summary}, sys.stdout, indent=1)
        print()
        return
    print("| kernel | instructions | guarded | ratio | registers | guarded | spilled bytes | guarded |")
    print("|---|---|---|---|---|---|---|---|")
    for row, ratio in zip(rows, ratios):
        plain, guarded = row["plain"], row["guarded"]
        cells = [f"{row['program']}: {row['kernel']}", plain["instructions"], guarded["instructions"], f"{ratio:.2f}"]
        cells += [plain["registers"], guarded["registers"], plain["spilled"], guarded["spilled"]]
        print("| " + " | ".join(map(str, cells)) + " |")
    print("\n" + ", ".join(f"{word.replace('_', ' ')} {value}" for word, value in summary.items()))


main()
