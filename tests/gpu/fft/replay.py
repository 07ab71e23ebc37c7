"""Makes the plans that `record.c` wrote down, executes them on the same noise everywhere, and writes what comes out.

    replay.py LOG RESULTS [EXPECTED]

With EXPECTED, the results of another run, each transform is compared with that. Other code for the same transform rounds otherwise.
"""

import json
import sys

import numpy

from cufft import NUMBERS, R_32F, R_64F, Memory, Plan, begin


def extent(sides, embed, stride, distance, batch, halved):
    """How many elements an end reaches."""
    counts = list(sides)
    if halved:
        counts[-1] = counts[-1] // 2 + 1
    if embed is None:
        return int(numpy.prod(counts)) * batch
    last, pitch = counts[-1] - 1, 1
    for side in range(len(counts) - 2, -1, -1):
        pitch *= embed[side + 1]
        last += (counts[side] - 1) * pitch
    return last * stride + (batch - 1) * distance + 1


def main():
    log, results = sys.argv[1:3]
    expected = numpy.load(sys.argv[3]) if len(sys.argv) > 3 else None
    plans, work = {}, []
    with open(log, encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            if "plan" in line:
                plans[line["plan"]] = {name: value for name, value in line.items() if name != "plan"}
            elif line["execute"] in plans:
                case = (json.dumps(plans[line["execute"]], sort_keys=True), line["way"], line["in_place"])
                if case not in work:
                    work.append(case)
    begin()
    found = {}
    for text, way, in_place in work:
        case = json.loads(text)
        if case["input"][2] not in NUMBERS or case["output"][2] not in NUMBERS:
            continue
        source, target = NUMBERS[case["input"][2]], NUMBERS[case["output"][2]]
        reals = (R_32F, R_64F)
        real_in, real_out = case["input"][2] in reals, case["output"][2] in reals
        count_in = extent(case["sides"], case["inembed"], *case["input"][:2], case["batch"], real_out)
        count_out = extent(case["sides"], case["onembed"], *case["output"][:2], case["batch"], real_in)
        bytes_in, bytes_out = count_in * numpy.dtype(source).itemsize, count_out * numpy.dtype(target).itemsize
        real = numpy.dtype(numpy.float32 if source in (numpy.float32, numpy.complex64) else numpy.float64)
        room = max(bytes_in, bytes_out if in_place else 0) // real.itemsize + 4
        given = numpy.random.default_rng(9).standard_normal(room).astype(real)
        plan = Plan(case["sides"], (case["inembed"], *case["input"]), (case["onembed"], *case["output"]), case["batch"])
        memory = Memory(given)
        result = memory if in_place else Memory(numpy.zeros(bytes_out // 4 + 4, numpy.float32))
        plan.execute(memory, result, way)
        out = result.read(target, count_out)
        found[str(len(found))] = out
        memory.free()
        if not in_place:
            result.free()
        plan.destroy()
    numpy.savez(results, **found)
    wrong, worst = 0, 0.0
    for name, out in found.items() if expected is not None else ():
        double = out.dtype in (numpy.float64, numpy.complex128)
        right = expected[name].astype(numpy.complex128)
        error = float(numpy.linalg.norm(out - right) / max(numpy.linalg.norm(right), 1e-30))
        worst = max(worst, error * (1e8 if double else 1))
        if not error <= (1e-14 if double else 2e-6):
            print(f"WRONG by {error:.2e}: {work[int(name)]}")
            wrong += 1
    told = "" if expected is None else f", {wrong} otherwise than expected; worst {worst:.1e} (doubles times 1e8)"
    print(f"{len(found)} of {len(work)} different transforms replayed{told}")
    return 1 if wrong or len(found) < len(work) else 0


sys.exit(main())
