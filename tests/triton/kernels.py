#!/usr/bin/env python3
"""Prints the PTX that Triton makes of a few kernels, for tests/triton: no GPU is needed.

usage: tests/triton/kernels.py FOLDER      with Triton 3.6.0 (pip install triton==3.6.0)
"""

import pathlib
import re
import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def vector_add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)


@triton.jit
def softmax(out, x, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + at, mask=at < columns, other=-float("inf"))
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * stride + at, values / tl.sum(values, axis=0), mask=at < columns)


@triton.jit
def layer_norm(x, out, weight, bias, stride, columns, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    sums = tl.zeros([BLOCK], dtype=tl.float32)
    for begin in range(0, columns, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        sums += tl.load(x + row * stride + at, mask=at < columns, other=0.0)
    mean = tl.sum(sums, axis=0) / columns
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for begin in range(0, columns, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        value = tl.load(x + row * stride + at, mask=at < columns, other=0.0)
        value = tl.where(at < columns, value - mean, 0.0)
        squares += value * value
    scale = 1 / tl.sqrt(tl.sum(squares, axis=0) / columns + epsilon)
    for begin in range(0, columns, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        mask = at < columns
        value = (tl.load(x + row * stride + at, mask=mask, other=0.0) - mean) * scale
        tl.store(out + row * stride + at, value * tl.load(weight + at, mask=mask) + tl.load(bias + at, mask=mask), mask=mask)


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    left = a + rows[:, None] * K + depth[None, :]
    right = b + depth[:, None] * N + columns[None, :]
    sums = tl.zeros([BM, BN], dtype=tl.float32)
    for k in range(0, K, BK):
        sums = tl.dot(tl.load(left, mask=depth[None, :] < K - k, other=0.0), tl.load(right, mask=depth[:, None] < K - k, other=0.0), sums)
        left += BK
        right += BK * N
    tl.store(c + rows[:, None] * N + columns[None, :], sums)


@triton.jit
def attention(q, k, v, out, length, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    depth = tl.arange(0, D)
    query = tl.load(q + rows[:, None] * D + depth[None, :])
    most = tl.full([BM], -float("inf"), dtype=tl.float32)
    total = tl.zeros([BM], dtype=tl.float32)
    sums = tl.zeros([BM, D], dtype=tl.float32)
    for begin in range(0, length, BN):
        at = begin + tl.arange(0, BN)
        keys = tl.load(k + at[None, :] * D + depth[:, None])
        scores = tl.dot(query, keys) * scale
        now = tl.maximum(most, tl.max(scores, 1))
        weights = tl.exp(scores - now[:, None])
        shrink = tl.exp(most - now)
        total = total * shrink + tl.sum(weights, 1)
        values = tl.load(v + at[:, None] * D + depth[None, :])
        sums = tl.dot(weights.to(tl.float16), values, sums * shrink[:, None])
        most = now
    tl.store(out + rows[:, None] * D + depth[None, :], sums / total[:, None])


F16, F32, I32 = "*fp16", "*fp32", "i32"
KERNELS = [
    (vector_add, {"x": F32, "y": F32, "out": F32, "n": I32}, {"BLOCK": 1024}),
    (softmax, {"out": F32, "x": F32, "stride": I32, "columns": I32}, {"BLOCK": 256}),
    (layer_norm, {"x": F32, "out": F32, "weight": F32, "bias": F32, "stride": I32, "columns": I32, "epsilon": "fp32"}, {"BLOCK": 128}),
    (matmul, {"a": F16, "b": F16, "c": F32, "M": I32, "N": I32, "K": I32}, {"BM": 64, "BN": 64, "BK": 32}),
    (attention, {"q": F16, "k": F16, "v": F16, "out": F32, "length": I32, "scale": "fp32"}, {"BM": 64, "BN": 32, "D": 64}),
]


def main():
    folder = pathlib.Path(sys.argv[1])
    for capability in (80, 90):
        for kernel, types, constants in KERNELS:
            signature = types | {name: "constexpr" for name in constants}
            # What Triton finds out about arguments when it compiles for a launch: pointers are multiples of 16.
            names = list(signature)
            attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in types if types[name].startswith("*") or name in ("K", "N", "stride")}
            source = ASTSource(kernel, signature, constexprs=constants, attrs=attributes)
            made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": 4, "num_stages": 3})
            text = made.asm["ptx"]
            # Where the script lay, and what debuggers are told.
            text = re.sub(r"(?ms)^\s*\.section\s+\.debug.*?\n\s*\}\n", "", text)
            lines = [line for line in text.splitlines() if not re.match(r"\s*(\.loc|\.file|//)", line)]
            text = re.sub(r"(, debug)", "", "\n".join(lines)) + "\n"
            shared = made.metadata.shared
            threads = made.metadata.num_warps * 32
            header = f"// {kernel.__name__}: threads {threads}, shared {shared}, Triton {triton.__version__}\n"
            (folder / f"{kernel.__name__}_sm_{capability}.ptx").write_text(header + text)


if __name__ == "__main__":
    main()
