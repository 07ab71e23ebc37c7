#!/usr/bin/env python3
"""Finds the names of all attributes of entries that NVIDIA's tools know, and says what changed.

    attributes.py [--ptxas PATH] [--cuobjdump PATH]

An attribute is a record of `.nv.info` with a number of one byte. A small cubin is made, the number of one of its
records is set to each of the 256, and `cuobjdump -elf` names it. The names go to `../src/attribute_names.rs`, which the
linter reads; what each says is told by people, in `../src/attributes.rs`.

Exit status: 0 where nothing changed, 1 where something did, 2 where the tools cannot be used.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TABLE = HERE.parent / "src" / "attribute_names.rs"
PTX = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u32 n)\n{\n\tret;\n}\n"
# FRAME_SIZE, with its form and length.
RECORD = bytes([4, 0x11, 8, 0])


def names(ptxas, cuobjdump):
    """By number, what the attribute is called."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        text, cubin = pathlib.Path(folder, "k.ptx"), pathlib.Path(folder, "k.cubin")
        text.write_text(PTX)
        subprocess.run([ptxas, "-arch=sm_90", "-o", cubin, text], check=True)
        code = bytearray(cubin.read_bytes())
        at = code.index(RECORD)

        def told():
            ran = subprocess.run([cuobjdump, "-elf", cubin], capture_output=True, text=True, check=False)
            return re.findall(r"Attribute:\s*(\S+)", ran.stdout)

        place = told().index("EIATTR_FRAME_SIZE")
        for number in range(256):
            code[at + 1] = number
            cubin.write_bytes(code)
            now = told()
            if place < len(now) and now[place].startswith("EIATTR_"):
                found[number] = now[place].removeprefix("EIATTR_")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ptxas", default="ptxas")
    parser.add_argument("--cuobjdump", default="cuobjdump")
    arguments = parser.parse_args()
    try:
        after = names(arguments.ptxas, arguments.cuobjdump)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        print(f"the tools cannot be used (--ptxas, --cuobjdump): {error}", file=sys.stderr)
        return 2
    old = TABLE.read_text() if TABLE.exists() else ""
    before = {int(number, 16): name for number, name in re.findall(r'\(0x([0-9a-f]+), "(\w+)"\)', old)}
    changes = [f"- {number:02x} {before[number]}" for number in before if before[number] != after.get(number)]
    changes += [f"+ {number:02x} {after[number]}" for number in after if after[number] != before.get(number)]
    print("\n".join(changes) or "nothing changed")
    rows = "".join(f'    ({number:#04x}, "{name}"),\n' for number, name in sorted(after.items()))
    TABLE.write_text(
        "//! Attributes of entries by number. Written by `tools/attributes.py`: do not edit.\n\n"
        "/// Number and name, sorted by number.\n"
        "#[rustfmt::skip]\n"
        f"pub(crate) const NAMES: &[(u8, &str)] = &[\n{rows}];\n"
    )
    return 1 if changes else 0


if __name__ == "__main__":
    sys.exit(main())
