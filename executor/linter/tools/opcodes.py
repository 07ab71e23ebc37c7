#!/usr/bin/env python3
"""Finds the numbers of all instructions that NVIDIA's disassembler can name, and says what changed.

    opcodes.py [--nvdisasm PATH] [--rounds N] [--only SM90,SM90a] [--jobs N]

NVIDIA publishes no encoding. An instruction of sm_75 and later has 16 bytes; its number is bit 91 above the lowest
twelve. For each architecture, words with each of the 8,192 numbers and many fillings of the other bits go through
`nvdisasm --binary`, which tells every word that is none. The first word that is named for a number is kept as its
*witness*, so that a later run of this script, with a newer toolkit, begins with what earlier ones found.

What is found is kept in `opcodes.txt` beside this script, and written to `../src/opcodes.rs`, which the linter reads.
What an instruction does is said by people, in `../src/effects.rs`, by its name: names that this file lacks are
printed, and refused by the linter until they are in it. `cargo test -p bulkhead-linter` fails until then.

Exit status: 0 where nothing changed, 1 where something did, 2 where the disassembler cannot be used.
"""

import argparse
import concurrent.futures
import pathlib
import random
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE / "opcodes.txt"
TABLE = HERE.parent / "src" / "opcodes.rs"
EFFECTS = HERE.parent / "src" / "effects.rs"

# What the disassembler calls them, by the number in the header of a cubin. The order is that of the bits in the table.
ARCHITECTURES = {
    75: ["SM75"],
    80: ["SM80"],
    86: ["SM86"],
    89: ["SM89"],
    90: ["SM90", "SM90a"],
    100: ["SM100", "SM100a"],
    103: ["SM103", "SM103a"],
    120: ["SM120", "SM120a"],
}
NUMBERS = 1 << 13
UNIFORM = 91
NUMBER_MASK = 0xFFF | 1 << UNIFORM
# Without a predicate, and a wait that every instruction may have.
ALWAYS = 7 << 12 | 0xFC000 << 96
REGISTERS = [0xFF << at for at in (16, 24, 32, 64)]
UNIFORM_REGISTERS = [0x3F << at for at in (16, 24, 32, 64)]
PREDICATES = [7 << at for at in (81, 84, 87)]
MODIFIERS = range(72, 91)


def placed(number):
    """A word's bits for a number."""
    return number & 0xFFF | (number >> 12) << UNIFORM


class Disassembler:
    """Names words for one architecture."""

    def __init__(self, path, architecture):
        self.path, self.architecture = path, architecture

    def run(self, words):
        with tempfile.NamedTemporaryFile(suffix=".bin") as file:
            file.write(b"".join(word.to_bytes(16, "little") for word in words))
            file.flush()
            command = [self.path, "--no-dataflow", "--binary", self.architecture, file.name]
            return subprocess.run(command, capture_output=True, text=True, check=False)

    def texts(self, words):
        """By place in `words`, the texts of those that are instructions."""
        left = list(range(len(words)))
        while left:
            ran = self.run([words[place] for place in left])
            bad = {int(at, 16) // 16 for at in re.findall(r"at address (0x[0-9a-f]+)", ran.stderr)}
            if not bad:
                found = re.findall(r"/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;", ran.stdout)
                if not found:
                    raise RuntimeError(f"{self.path} --binary {self.architecture}: {ran.stderr[:300]}")
                return {left[int(at, 16) // 16]: text for at, text in found}
            left = [place for index, place in enumerate(left) if index not in bad]
        return {}


def mnemonic(text):
    """The name of an instruction, without predicate and modifiers."""
    words = text.split()
    return words[1 if words[0].startswith("@") else 0].split(".")[0]


def fillings(rounds):
    """Of the bits that are no number: first the usual ones, then each modifier's bit alone, then what chance brings."""
    usual = [0, sum(PREDICATES), sum(REGISTERS), sum(UNIFORM_REGISTERS)]
    usual += [sum(PREDICATES) | sum(REGISTERS), sum(PREDICATES) | sum(UNIFORM_REGISTERS)]
    yield from usual
    for bit in MODIFIERS:
        for filling in (0, usual[5]):
            yield filling ^ 1 << bit
    chance = random.Random(1)
    for _ in range(rounds):
        operands = REGISTERS if chance.random() < 0.6 else UNIFORM_REGISTERS
        filling = sum(part for part in operands + PREDICATES if chance.random() < 0.5)
        if chance.random() < 0.5:
            filling ^= chance.getrandbits(len(MODIFIERS)) << MODIFIERS.start
        else:
            for _ in range(chance.randrange(4)):
                filling ^= 1 << chance.choice(MODIFIERS)
        yield filling


def enumerate_numbers(path, architecture, witnesses, rounds):
    """By number: name and witness."""
    disassembler = Disassembler(path, architecture)
    found = {}

    def look(words):
        for place, text in disassembler.texts(words).items():
            number = words[place] & 0xFFF | (words[place] >> UNIFORM & 1) << 12
            name = mnemonic(text)
            # Where fillings have several names (none is known), all of them are to be classified.
            found.setdefault(number, {}).setdefault(name, words[place])

    look(witnesses)
    for filling in fillings(rounds):
        fill = (ALWAYS ^ filling) & ~NUMBER_MASK
        look([placed(number) | fill for number in range(NUMBERS)])
    # Where bit 91 says nothing, the number without it stands for both; the linter refuses the other.
    upper = [(number, word) for number in found if number >> 12 for word in found[number].values()]
    whole = disassembler.texts([word for _, word in upper])
    lower = disassembler.texts([word ^ 1 << UNIFORM for _, word in upper])
    for place, (number, _) in enumerate(upper):
        # Numbers in texts depend on where the disassembler was shown the word.
        one, other = (re.sub("0x[0-9a-f]+", "", texts.get(place, "")) for texts in (whole, lower))
        if one == other:
            found.pop(number, None)
    return found


def read_data():
    """By number and name: witnesses, and by these the architectures that name them so."""
    known = {}
    if DATA.exists():
        for line in DATA.read_text().splitlines():
            if line and not line.startswith("#"):
                number, name, architectures, witness = line.split()
                numbers = {int(one) for one in architectures.split(",")}
                known.setdefault((int(number, 16), name), {})[int(witness, 16)] = numbers
    return known


def architectures_of(witnesses):
    return set().union(*witnesses.values())


def write(known):
    lines = ["# Instructions: number, name, architectures, an example. Written by opcodes.py."]
    order, rows = list(ARCHITECTURES), []
    rust = [
        "//! Instructions by number, with the architectures that have them. Written by `tools/opcodes.py`: do not edit.",
        "",
        "/// The architectures, by the bits of the third column from the lowest.",
        f"pub(crate) const ARCHITECTURES: [u32; {len(order)}] = {order};",
        "",
        "/// Number (bit 91 above the lowest twelve), name, architectures: sorted by number.",
        "#[rustfmt::skip]",
        "pub(crate) const OPCODES: &[(u16, &str, u8)] = &[",
    ]
    for (number, name), witnesses in sorted(known.items()):
        for witness, architectures in sorted(witnesses.items()):
            lines.append(f"{number:04x} {name} {','.join(map(str, sorted(architectures)))} {witness:032x}")
        bits = sum(1 << order.index(one) for one in architectures_of(witnesses))
        rows.append(f'({number:#06x}, "{name}", {bits:#04x}),')
    rust += ["    " + " ".join(rows[first : first + 3]) for first in range(0, len(rows), 3)]
    DATA.write_text("\n".join(lines) + "\n")
    TABLE.write_text("\n".join(rust) + "\n];\n")


def report(before, after):
    """Prints what changed, by name, and what has no effect yet. Whether anything did."""
    changes = []
    for key in sorted(before.keys() | after.keys()):
        was, now = (architectures_of(of.get(key, {})) for of in (before, after))
        for sign, difference in (("+", now - was), ("-", was - now)):
            if difference:
                which = ", ".join(f"sm_{one}" for one in sorted(difference))
                changes.append(f"{sign} {key[0]:04x} {key[1]}: {which}")
    print("\n".join(changes) or "nothing changed")
    classified = set(re.findall(r'"([A-Z_][A-Z0-9_]*)"', EFFECTS.read_text())) if EFFECTS.exists() else set()
    names = {name for _, name in after}
    for name in sorted(names - classified):
        numbers = ", ".join(f"{number:04x}" for number, of in sorted(after) if of == name)
        print(f"no effect in {EFFECTS.name}: {name} ({numbers})")
    return bool(changes)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nvdisasm", default="nvdisasm", help="the disassembler of the toolkit")
    parser.add_argument("--rounds", type=int, default=300, help="fillings by chance, for each architecture")
    parser.add_argument("--only", help="the disassembler's names of architectures; what is known of others is kept")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    wanted = set(arguments.only.split(",")) if arguments.only else None
    plan = [
        (number, name)
        for number, names in ARCHITECTURES.items()
        for name in names
        if wanted is None or name in wanted
    ]
    before = read_data()
    witnesses = sorted({witness for witnesses in before.values() for witness in witnesses})
    after = {}
    try:
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            work = [
                (number, pool.submit(enumerate_numbers, arguments.nvdisasm, name, witnesses, arguments.rounds))
                for number, name in plan
            ]
            for number, job in work:
                for of, names in job.result().items():
                    for name, witness in names.items():
                        after.setdefault((of, name), {}).setdefault(witness, set()).add(number)
    except (OSError, RuntimeError) as error:
        print(f"the disassembler cannot be used (--nvdisasm): {error}", file=sys.stderr)
        return 2
    # What was not looked at stays.
    looked = {number for number, _ in plan if wanted is None or set(ARCHITECTURES[number]) <= wanted}
    for key, kept in before.items():
        for witness, architectures in kept.items():
            if architectures - looked:
                after.setdefault(key, {}).setdefault(witness, set()).update(architectures - looked)
    changed = report(before, after)
    write(after)
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
