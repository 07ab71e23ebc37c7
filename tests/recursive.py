#!/usr/bin/env python3
"""Programs of functions that call each other and themselves, written at random: each compares the device with the host.

    tests/recursive.py FOLDER [--first SEED] [--count N]               writes and compiles N (20) programs
    tests/recursive.py FOLDER --run [BULKHEAD run [OPTION...] --]      runs what FOLDER has, with that before each program

Programs print `same`, or where they differ. --run prints a line for each that does not, and how many did; it ends with 1
where one did not. Without a command each runs natively. nvcc is that of NVCC, else tests/toolchain.sh's.
"""

import argparse
import os
import pathlib
import random
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
FLOATS = ["float", "double"]
TYPES = ["int", "unsigned", "long long", "short", "unsigned char", "bool"] + FLOATS
BOX = "struct Box { int whole; double real; char bytes[5]; short half; };"
SECONDS = 120


class Function:
    """What a function takes and returns: its own depth, numbers, and perhaps an array of its caller's."""

    def __init__(self, dice, number):
        self.name = f"f{number}"
        self.given = [dice.choice(TYPES) for _ in range(dice.randint(0, 4))]
        self.returned = dice.choice(TYPES + ["Box", "void"])
        self.has_array = dice.random() < 0.5

    def head(self):
        given = [f"{kind} p{number}" for number, kind in enumerate(self.given)]
        return f"__host__ __device__ __noinline__ {self.returned} {self.name}({', '.join(['int depth', *given, *['int *sums'] * self.has_array])})"


def converted(kind, value):
    """Through 64 bits: what a negative number with a point is as a small or unsigned one, C++ leaves open."""
    return f"(({kind})({value}))" if kind in FLOATS else f"(({kind})(long long)({value}))"


class Writer:
    def __init__(self, seed):
        self.dice = random.Random(seed)
        self.functions = [Function(self.dice, number) for number in range(self.dice.randint(1, 4))]

    def value(self, kind, names, nested=0):
        dice, drawn = self.dice, self.dice.random()
        if drawn < 0.5:
            return converted(kind, dice.choice(names))
        if drawn < 0.7 or nested > 2:
            return converted(kind, dice.randint(0, 9))
        return converted(kind, f"{self.value(kind, names, nested + 1)} {dice.choice('+-*')} {self.value(kind, names, nested + 1)}")

    def call(self, callee, depth, names, arrays):
        given = [self.value(kind, names) for kind in callee.given]
        return f"{callee.name}({', '.join([depth, *given, *[self.dice.choice(arrays)] * callee.has_array])})"

    def takes(self, callee, call):
        """A statement that puts what a call returns into `box`."""
        if callee.returned == "void":
            return f"{call};"
        if callee.returned == "Box":
            return f"const Box inner = {call}; box.whole += inner.whole; box.real += inner.real / 4; box.half = (short)(box.half + inner.half);"
        if callee.returned in FLOATS:
            return f"box.real = box.real / 2 + (double){call} / 8;"
        return f"box.whole += (int)(long long){call};"

    def body(self, function):
        dice = self.dice
        names = ["depth", *[f"p{number}" for number in range(len(function.given))]]
        lines = ["Box box; box.whole = depth; box.real = depth / 2.0; box.half = (short)(depth * 3);"]
        for number in range(dice.randint(0, 5)):
            kind = dice.choice(TYPES)
            lines.append(f"{kind} v{number} = {self.value(kind, names)};")
            names.append(f"v{number}")
        length = dice.choice([3, 8, 17])
        lines.append(f"int own[{length}]; for (int i = 0; i < {length}; i++) own[i] = i * depth;")
        names += [f"own[(unsigned)depth % {length}]", "box.whole", "box.real", "box.half"]
        arrays = ["own", *["sums"] * function.has_array]
        result = {"Box": "return box;", "void": "return;"}.get(function.returned) or f"return {self.value(function.returned, names)};"
        lines.append(f"if (depth <= 0) {{ {'sums[1] += depth + 1; ' * function.has_array}{result} }}")
        for number in range(dice.randint(1, 3)):
            callee = dice.choice(self.functions)
            taken = self.takes(callee, self.call(callee, f"depth - {dice.randint(1, 3)}", names, arrays))
            around = ["", f"if ({self.value('int', names)} % 3) ", "for (int turn = 0; turn < 2; turn++) "]
            lines.append(f"{dice.choice(around)}{{ {taken} }}")
        if function.has_array:
            lines.append("sums[0] += box.whole; sums[2] ^= depth;")
        lines.append(result)
        return f"{function.head()} {{\n    " + "\n    ".join(lines) + "\n}\n"

    def program(self):
        dice = self.dice
        calls = []
        for callee in [self.functions[0], *[dice.choice(self.functions) for _ in range(dice.randint(1, 3))]]:
            call = self.takes(callee, self.call(callee, f"i % {dice.randint(3, 6)}", [f"i * {dice.randint(1, 7)} % 11"], ["sums"]))
            around = ["", f"if (i % {dice.randint(2, 5)}) ", "for (int turn = 0; turn < 2; turn++) "]
            calls.append(f"    {dice.choice(around)}{{ {call} }}\n")
        heads = "".join(f"{function.head()};\n" for function in self.functions)
        bodies = "".join(self.body(function) for function in self.functions)
        return f"#include <cstdio>\n#include <cstring>\n{BOX}\n{heads}{bodies}{MAIN.replace('CALLS', ''.join(calls))}"


MAIN = """struct Found { int whole, half, sums[3]; double real; };
__host__ __device__ void work(int i, Found *found) {
    int sums[20] = {1, 2, 3};
    Box box = {0, 0, {}, 0};
CALLS    *found = {box.whole, box.half, {sums[0], sums[1], sums[2]}, box.real};
}
__global__ void kernel(Found *found) { work(threadIdx.x + blockIdx.x * blockDim.x, found + threadIdx.x + blockIdx.x * blockDim.x); }
int main() {
    static Found found[96];
    Found *device;
    cudaDeviceSetLimit(cudaLimitStackSize, 16 << 10);
    cudaMalloc(&device, sizeof found);
    kernel<<<3, 32>>>(device);
    const cudaError_t error = cudaMemcpy(found, device, sizeof found, cudaMemcpyDeviceToHost);
    if (error != cudaSuccess) return printf("%s\\n", cudaGetErrorString(error)), 1;
    for (int i = 0; i < 96; i++) {
        Found expected;
        work(i, &expected);
        const double off = expected.real - found[i].real;
        const bool near = off * off <= 1e-18 * expected.real * expected.real || (expected.real != expected.real && off != off);
        if (memcmp(&expected, &found[i], 5 * sizeof(int)) || !near) return printf("thread %d differs\\n", i), 1;
    }
    puts("same");
}
"""


def write(options):
    options.folder.mkdir(parents=True, exist_ok=True)
    nvcc = os.environ.get("NVCC", REPOSITORY / ".toolchain/cuda/bin/nvcc")
    for seed in range(options.first, options.first + options.count):
        source = options.folder / f"{seed}.cu"
        source.write_text(Writer(seed).program())
        # Fused or not, a sum has other bits.
        flags = ["-w", "--fmad=false", "-Xcompiler", "-ffp-contract=off"]
        subprocess.run([nvcc, *flags, "-o", options.folder / f"{seed}.run", source], check=True, timeout=SECONDS)


def run(options):
    wrong, programs = 0, sorted(options.folder.glob("*.run"), key=lambda path: int(path.stem))
    for program in programs:
        try:
            done = subprocess.run([*options.command, program], capture_output=True, text=True, timeout=SECONDS)
            said = done.stdout if done.returncode == 0 else f"{done.stdout}{done.stderr}ended with {done.returncode}"
        except subprocess.TimeoutExpired:
            said = f"not done after {SECONDS} s"
        if said != "same\n":
            wrong += 1
            print(f"{program.stem}: {said.strip()[-300:]}")
    print(f"{len(programs) - wrong} of {len(programs)} programs have the same results as the host")
    return 1 if wrong or not programs else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--first", type=int, default=1, metavar="SEED")
    parser.add_argument("--count", type=int, default=20, metavar="N")
    # All that stands behind --run is the command's, `--` too.
    arguments, command = sys.argv[1:], None
    if "--run" in arguments:
        at = arguments.index("--run")
        arguments, command = arguments[:at], arguments[at + 1:]
    options = parser.parse_args(arguments)
    if command is None:
        return write(options)
    options.command = command
    options.folder = options.folder.resolve()
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
