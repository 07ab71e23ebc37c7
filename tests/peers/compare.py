#!/usr/bin/env python3
"""The software GPU beside HIP-CPU and PoCL, seven kernels in one run.

    tests/peers/compare.py BULKHEAD [--hip-cpu CHECKOUT] [--turns N] [--json FILE]

BULKHEAD is a release build of `bulkhead` beside its `libcuda.so`. kernels.cu is compiled by nvcc (tests/toolchain.sh) and runs
under `bulkhead run --backend software`; by `c++ -O3 -march=native` with the headers of HIP-CPU
(https://github.com/ROCm/HIP-CPU); kernels.cl by PoCL. Each runs in turns with the others, and what counts is the least time of
a launch with its wait. Every result is checked on the host, so a peer that computes something else is told, not timed.

The peers come from the Python index: `pip install pyopencl pocl-binary-distribution numpy tbb tbb-devel`. One that is not
there is left out, and said so.
"""

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import sysconfig
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
TURNS = 5
BLOCK = 256
TILE = 16


def numbers(count, seed):
    """What `numbers` of kernels.cu gives: a linear congruence, by doubling what is there of it."""
    import numpy

    factor, step = numpy.array([1664525], numpy.uint32), numpy.array([1013904223], numpy.uint32)
    seeds = numpy.array([seed], numpy.uint32) * factor + step
    with numpy.errstate(over="ignore"):
        while len(seeds) < count:
            seeds = numpy.concatenate([seeds, seeds * factor + step])
            step = step * factor + step
            factor = factor * factor
    seeds = seeds[:count]
    return (numpy.float32(0.5) + (seeds >> 8).astype(numpy.float32) / numpy.float32(1 << 24)).astype(numpy.float32)


def open_cl():
    """Runs kernels.cl once, in this process: the least seconds of each kernel."""
    import numpy
    import pyopencl

    platform = next(platform for platform in pyopencl.get_platforms() if "Portable" in platform.name)
    context = pyopencl.Context(platform.get_devices())
    queue = pyopencl.CommandQueue(context)
    program = pyopencl.Program(context, (HERE / "kernels.cl").read_text()).build()
    flags = pyopencl.mem_flags

    def upload(values):
        return pyopencl.Buffer(context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=values)

    def download(buffer, count):
        values = numpy.empty(count, numpy.float32)
        pyopencl.enqueue_copy(queue, values, buffer)
        return values

    seconds = {}

    def timed(name, kernel, grid, block, *arguments):
        kernel = pyopencl.Kernel(program, kernel)
        kernel.set_args(*arguments)
        taken = []
        for _ in range(TURNS + 1):
            begun = time.perf_counter()
            pyopencl.enqueue_nd_range_kernel(queue, kernel, grid, block)
            queue.finish()
            taken.append(time.perf_counter() - begun)
        seconds[name] = min(taken[1:])

    def expect(name, values, should):
        if not numpy.allclose(values, should, rtol=1e-3, atol=1e-4):
            sys.exit(f"{name} computed something else")

    i32 = numpy.int32
    for name, n in (("vector_add_1M", 1 << 20), ("vector_add_16M", 1 << 24)):
        a, b = numbers(n, 1), numbers(n, 2)
        c = upload(a)
        timed(name, "vector_add", (n,), (BLOCK,), upload(a), upload(b), c, i32(n))
        expect(name, download(c, n), a + b)
    n = 2048
    values = numbers(n * n, 3)
    out = upload(values)
    timed("stencil_2048", "stencil", (n, n), (32, 8), upload(values), out, i32(n), i32(n))
    grid = values.reshape(n, n)
    inner = 0.2 * (grid[1:-1, 1:-1] + grid[1:-1, :-2] + grid[1:-1, 2:] + grid[:-2, 1:-1] + grid[2:, 1:-1])
    expect("stencil", download(out, n * n).reshape(n, n)[1:-1, 1:-1], inner)
    n = 1 << 20
    given = [numbers(n, seed) for seed in (4, 5, 6)]
    calls = upload(given[0])
    timed("black_scholes_1M", "black_scholes", (n,), (BLOCK,), *map(upload, given), calls, i32(n))
    price, strike, years = (values[::997].astype(float) for values in given)
    normal = numpy.vectorize(lambda d: 0.5 * math.erfc(-d / math.sqrt(2)))
    root = 0.3 * numpy.sqrt(years)
    d1 = (numpy.log(price / strike) + 0.065 * years) / root
    expect("black_scholes", download(calls, n)[::997], price * normal(d1) - strike * numpy.exp(-0.02 * years) * normal(d1 - root))
    n = 512
    a, b = numbers(n * n, 7), numbers(n * n, 8)
    c = upload(a)
    timed("matmul_512", "matmul", (n, n), (TILE, TILE), upload(a), upload(b), c, i32(n))
    expect("matmul", download(c, n * n).reshape(n, n), a.reshape(n, n) @ b.reshape(n, n))
    n = 1 << 22
    values = numbers(n, 9)
    sums = upload(values[: n // BLOCK])
    timed("sum_4M", "sum", (n,), (BLOCK,), upload(values), sums, i32(n))
    expect("sum", download(sums, n // BLOCK), values.reshape(-1, BLOCK).sum(1))
    n = 4096
    at = numbers(4 * n, 10)
    pull = upload(at[: 3 * n])
    timed("bodies_4096", "bodies", (n,), (BLOCK,), upload(at), pull, i32(n))
    places = at.reshape(n, 4).astype(float)
    away = places[None, :, :3] - places[:64, None, :3]
    square = (away * away).sum(2) + 0.01
    expect("bodies", download(pull, 3 * n).reshape(n, 3)[:64], (away * (places[None, :, 3] / square**1.5)[:, :, None]).sum(1))
    return seconds


def lines(command, environment=None):
    """What kernels.cu prints, as seconds by name."""
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}: {done.stdout[-300:]} {done.stderr[-300:]}")
    return {name: float(seconds) for name, seconds in (line.split() for line in done.stdout.splitlines())}


def build_hip(checkout, folder):
    """kernels.cu for HIP-CPU. Its parallel loops are those of the C++ library, which wants TBB."""
    wheel = pathlib.Path(sysconfig.get_path("data"))
    program = folder / "hip"
    subprocess.run(
        ["c++", "-std=c++17", "-O3", "-march=native", "-ffast-math", "-w", "-DPEER_HIP", "-x", "c++", HERE / "kernels.cu", f"-I{checkout}/include",
         f"-I{wheel}/include", "-o", program, "-x", "none", f"-L{wheel}/lib", f"-Wl,-rpath,{wheel}/lib", "-l:libtbb.so.12", "-lpthread"], check=True)
    return program


def main():
    parser = argparse.ArgumentParser(description="The software GPU beside HIP-CPU and PoCL, seven kernels in one run.")
    parser.add_argument("bulkhead", type=pathlib.Path, nargs="?", help="a release build of bulkhead")
    parser.add_argument("--hip-cpu", type=pathlib.Path, help="a checkout of https://github.com/ROCm/HIP-CPU")
    parser.add_argument("--turns", type=int, default=3, help="how often each runs, in turns with the others (3)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the seconds to FILE")
    parser.add_argument("--pocl-once", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.pocl_once:
        for name, seconds in open_cl().items():
            print(name, seconds)
        return
    if not options.bulkhead:
        parser.error("name a release build of bulkhead, such as target/release/bulkhead")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        subprocess.run([REPOSITORY / ".toolchain/cuda/bin/nvcc", "-O2", "-w", "-std=c++17", "-gencode", "arch=compute_80,code=compute_80",
                        HERE / "kernels.cu", "-o", folder / "cuda"], check=True)
        peers = {"bulkhead": [options.bulkhead.resolve(), "run", "--private", "--backend", "software", "--", folder / "cuda"]}
        if options.hip_cpu:
            peers["HIP-CPU"] = [build_hip(options.hip_cpu.resolve(), folder)]
        try:
            import pyopencl  # noqa: F401

            peers["PoCL"] = [sys.executable, __file__, "--pocl-once"]
        except ImportError:
            print("PoCL left out: pip install pyopencl pocl-binary-distribution numpy", file=sys.stderr)
        least = {peer: {} for peer in peers}
        for _ in range(options.turns):
            for peer, command in peers.items():
                for name, seconds in lines(command, {**os.environ, "PYOPENCL_NO_CACHE": "1"}).items():
                    least[peer][name] = min(seconds, least[peer].get(name, seconds))
    print("milliseconds        " + "".join(f"{peer:>12}" for peer in peers) + "   against the better peer")
    ratios = []
    for name, ours in least["bulkhead"].items():
        others = [least[peer][name] for peer in peers if peer != "bulkhead"]
        row = f"{name:20}" + "".join(f"{1e3 * least[peer][name]:12.3f}" for peer in peers)
        if others:
            ratios.append(ours / min(others))
            row += f"   {ratios[-1]:.2f}"
        print(row)
    if ratios:
        print(f"geometric mean of the ratios: {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}")
    if options.json:
        options.json.write_text(json.dumps(least, indent=1))


if __name__ == "__main__":
    main()
