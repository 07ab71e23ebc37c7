"""Kernels of Triton in a guarded session: `bulkhead run --domain guarded -- python3 tests/gpu/triton_guarded.py`.

Prints a line for each kernel, and ends with 1 where one is wrong. Sums and products are those of the CPU; nothing of PyTorch's own
kernels runs, since they are machine code.
"""

import sys

import torch
import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    values = tl.load(x + row * columns + at, mask=inside, other=float("-inf"))
    values = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * columns + at, values / tl.sum(values, 0), mask=inside)


@triton.jit
def total(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + at, mask=at < n, other=0), 0))


@triton.jit
def matmul(a, b, c, m, n, k, SIDE: tl.constexpr):
    rows = tl.program_id(0) * SIDE + tl.arange(0, SIDE)
    columns = tl.program_id(1) * SIDE + tl.arange(0, SIDE)
    steps = tl.arange(0, SIDE)
    sums = tl.zeros((SIDE, SIDE), dtype=tl.float32)
    for step in range(0, k, SIDE):
        left = tl.load(a + rows[:, None] * k + (step + steps)[None, :])
        right = tl.load(b + (step + steps)[:, None] * n + columns[None, :])
        sums = tl.dot(left, right, sums, input_precision="ieee")
    tl.store(c + rows[:, None] * n + columns[None, :], sums)


def to_device(values):
    there = torch.empty(values.shape, dtype=values.dtype, device="cuda")
    there.copy_(values)
    return there


def check(name, kernel, grid, out, arguments, expected, **constants):
    try:
        kernel[grid](*arguments, **constants)
        right = torch.allclose(out.cpu(), expected, rtol=1e-4, atol=1e-4)
        print(f"{name}: {'right' if right else 'WRONG'}", flush=True)
        return right
    except Exception as error:  # Whatever it is, the others are tried too.
        print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}", flush=True)
        return False


def main():
    torch.manual_seed(1)
    n = 100_003
    x, y = torch.randn(n), torch.randn(n)
    out = to_device(torch.zeros(n))
    done = check("add", add, (triton.cdiv(n, 1024),), out, (to_device(x), to_device(y), out, n), x + y, BLOCK=1024)

    table = torch.randn(64, 1000)
    out = to_device(torch.zeros(64, 1000))
    expected = torch.softmax(table, 1)
    done &= check("softmax", softmax, (64,), out, (to_device(table), out, 1000), expected, BLOCK=1024)

    numbers = torch.randint(-1000, 1000, (n,), dtype=torch.int32)
    out = to_device(torch.zeros(1, dtype=torch.int32))
    expected = numbers.sum(dtype=torch.int32).reshape(1)
    done &= check("total", total, (triton.cdiv(n, 1024),), out, (to_device(numbers), out, n), expected, BLOCK=1024)

    side = 256
    for kind in (torch.float32, torch.float16):
        a, b = torch.randn(side, side).to(kind), torch.randn(side, side).to(kind)
        out = to_device(torch.zeros(side, side))
        arguments = (to_device(a), to_device(b), out, side, side, side)
        expected = a.float() @ b.float()
        name = f"matmul of {kind}".replace("torch.", "")
        done &= check(name, matmul, (side // 32, side // 32), out, arguments, expected, SIDE=32)
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main())
