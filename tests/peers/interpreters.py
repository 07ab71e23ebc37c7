#!/usr/bin/env python3
"""The software GPU beside others that run kernels without a GPU, in one run.

    tests/peers/interpreters.py BULKHEAD [--json FILE]

BULKHEAD is a release build of `bulkhead`. The peers are numba's CUDA simulator (a Python thread for each CUDA thread) and
Triton's interpreter (numpy, a block at a time). Needs Python packages that nothing else here needs:
`pip install numba-cuda numba triton torch`; a peer that is not installed is left out, and said so.

Each runs the kernels of `bulkhead bench --software`, with as many elements as it manages in seconds, and what counts is
nanoseconds an element (for the product, a multiplication with its sum), the least of three runs after a first one.
"""

import importlib.util
import json
import os
import subprocess
import sys
import time

# Before the packages are imported: neither is to look for a GPU.
os.environ.setdefault("NUMBA_ENABLE_CUDASIM", "1")
os.environ.setdefault("TRITON_INTERPRET", "1")
MILLION = 1 << 20


def least(run):
    times = []
    for _ in range(4):
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    return min(times[1:])


def bulkhead(binary):
    """`bench --software`: what it prints for people goes to stderr."""
    done = subprocess.run([binary, "bench", "--software", "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    figures = {figure["name"]: figure["value"] for figure in json.loads(done.stdout)["figures"]}
    return {
        "sum": figures["add, 16 M floats, all cores"] / (16 * MILLION) * 1e9,
        "product": figures["matmul, 512 x 512, all cores"] / 512**3 * 1e9,
    }, {
        "sum": figures["add, C at -O2, one thread"] / (16 * MILLION) * 1e9,
        "product": figures["matmul, C at -O2, one thread"] / 512**3 * 1e9,
    }


def numba_simulator():
    # The simulator finds it among the globals of a kernel.
    global cuda
    import numpy as np
    from numba import cuda

    @cuda.jit
    def add(a, b, c):
        i = cuda.grid(1)
        if i < c.size:
            c[i] = a[i] + b[i]

    @cuda.jit
    def product(n, a, b, c):
        column, row = cuda.grid(2)
        if row < n and column < n:
            total = np.float32(0)
            for k in range(n):
                total += a[row, k] * b[k, column]
            c[row, column] = total

    n = 2048
    a, b, c = (np.full(n, value, np.float32) for value in (1, 2, 0))
    found = {"sum": least(lambda: add[n // 128, 128](a, b, c)) / n * 1e9}
    assert (c == 3).all()
    n = 32
    a, b, c = (np.full((n, n), value, np.float32) for value in (1, 2, 0))
    found["product"] = least(lambda: product[(n // 16, n // 16), (16, 16)](n, a, b, c)) / n**3 * 1e9
    assert (c == 2 * n).all()
    return found


def triton_interpreter():
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def add(a, b, c, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(c + at, tl.load(a + at, mask=at < n) + tl.load(b + at, mask=at < n), mask=at < n)

    @triton.jit
    def product(a, b, c, n, BLOCK: tl.constexpr):
        row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
        for k in range(0, n, BLOCK):
            step = k + tl.arange(0, BLOCK)
            total += tl.dot(tl.load(a + row[:, None] * n + step[None, :]), tl.load(b + step[:, None] * n + column[None, :]))
        tl.store(c + row[:, None] * n + column[None, :], total)

    n = MILLION
    a, b, c = (torch.full((n,), float(value)) for value in (1, 2, 0))
    found = {"sum": least(lambda: add[(n // 1024,)](a, b, c, n, BLOCK=1024)) / n * 1e9}
    assert bool((c == 3).all())
    n = 256
    a, b, c = (torch.full((n, n), float(value)) for value in (1, 2, 0))
    found["product"] = least(lambda: product[(n // 32, n // 32)](a, b, c, n, BLOCK=32)) / n**3 * 1e9
    assert bool((c == 2 * n).all())
    return found


def main():
    if len(sys.argv) not in (2, 4) or sys.argv[1].startswith("-") or (len(sys.argv) == 4 and sys.argv[2] != "--json"):
        print(__doc__)
        return 0 if sys.argv[1:] in (["--help"], ["-h"]) else 2
    own, compiled = bulkhead(sys.argv[1])
    rows = {"C, `cc -O2`, one thread": compiled, "Bulkhead's software GPU": own}
    for name, package, run in (("Triton's interpreter", "triton", triton_interpreter), ("numba's CUDA simulator", "numba", numba_simulator)):
        if importlib.util.find_spec(package) is None:
            print(f"skipped: {name}: `{package}` is not installed", file=sys.stderr)
            continue
        print(f"{name} ...", file=sys.stderr)
        rows[name] = run()
    print(f"{'nanoseconds an element':28}{'sum':>12}{'product':>12}{'product, to Bulkhead':>24}")
    for name, row in rows.items():
        print(f"{name:28}{row['sum']:12.2f}{row['product']:12.3f}{row['product'] / own['product']:24.1f}")
    if len(sys.argv) == 4:
        with open(sys.argv[3], "w") as file:
            json.dump(rows, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
