"""Transforms of many lengths, each compared with numpy's.

    lengths.py LENGTHS TYPES SECONDS PART PARTS

LENGTHS are numbers and ranges FIRST-LAST[/STEP], with commas between; TYPES some of c2c, r2c, c2r, z2z, d2z, z2d. As many as are done
in SECONDS, in an order that does not prefer short ones; of these each PARTS-th from PART on.
"""

import random
import sys
import time

import numpy

from cufft import C_32F, C_64F, FORWARD, INVERSE, NUMBERS, R_32F, R_64F, Memory, Plan, begin

TYPES = {"c2c": (C_32F, C_32F), "r2c": (R_32F, C_32F), "c2r": (C_32F, R_32F),
         "z2z": (C_64F, C_64F), "d2z": (R_64F, C_64F), "z2d": (C_64F, R_64F)}
BATCH = 2
# Relative to the root of the mean square, per bit of the length.
MOST = {C_32F: 4e-7, R_32F: 4e-7, C_64F: 8e-16, R_64F: 8e-16}


def lengths(text):
    for part in text.split(","):
        ends, _, step = part.partition("/")
        first, _, last = ends.partition("-")
        yield from range(int(first), int(last or first) + 1, int(step or 1))


def error_of(length, name, noise):
    """How far off a transform is, and how far it may be."""
    source, target = TYPES[name]
    wide = numpy.float64 if NUMBERS[source] in (numpy.float64, numpy.complex128) else numpy.float32
    values = noise.standard_normal((BATCH, length)).astype(wide)
    if name in ("c2r", "z2d"):
        given = numpy.fft.rfft(values.astype(numpy.float64)).astype(NUMBERS[source])
        wanted, ways = numpy.fft.irfft(given.astype(numpy.complex128), length) * length, [INVERSE]
        wanted = [wanted]
    elif name in ("r2c", "d2z"):
        given, ways = values, [FORWARD]
        wanted = [numpy.fft.rfft(values.astype(numpy.float64))]
    else:
        given = (values + 1j * noise.standard_normal((BATCH, length))).astype(NUMBERS[source])
        ways = [FORWARD, INVERSE]
        exact = given.astype(numpy.complex128)
        wanted = [numpy.fft.fft(exact), numpy.fft.ifft(exact) * length]
    plan = Plan([length], (None, 1, 0, source), (None, 1, 0, target), BATCH)
    worst = 0.0
    for way, right in zip(ways, wanted):
        memory, result = Memory(given), Memory(numpy.zeros(right.shape, NUMBERS[target]))
        plan.execute(memory, result, way)
        found = result.read(NUMBERS[target], right.size).reshape(right.shape)
        scale = numpy.sqrt(numpy.mean(numpy.abs(right) ** 2))
        worst = max(worst, float(numpy.sqrt(numpy.mean(numpy.abs(found - right) ** 2)) / scale))
        memory.free()
        result.free()
    plan.destroy()
    return worst, MOST[target] * max(1.0, numpy.log2(length))


def main():
    all_lengths, types, seconds, part, parts = sys.argv[1:6]
    work = [(length, name) for length in lengths(all_lengths) for name in types.split(",")]
    random.Random(11).shuffle(work)
    work = work[int(part)::int(parts)]
    begin()
    until, noise, done, wrong = time.time() + float(seconds), numpy.random.default_rng(5), 0, 0
    for length, name in work:
        if time.time() > until:
            break
        try:
            worst, most = error_of(length, name, noise)
            if not worst <= most:
                print(f"WRONG {name} of {length}: {worst:.2e}, and {most:.2e} may be")
                wrong += 1
        except RuntimeError as refused:
            print(f"REFUSED {name} of {length}: {refused}")
            wrong += 1
        done += 1
    print(f"{done} of {len(work)} done, {wrong} wrong")
    return 1 if wrong else 0


sys.exit(main())
