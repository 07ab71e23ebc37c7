#!/usr/bin/env python3
"""What instructions compute: the cases, and the values that a GPU computes for them.

    conformance.py cases PTXAS     writes cases.txt, without the forms that this assembler refuses
    conformance.py inputs          writes inputs.txt
    conformance.py record FILE     runs all cases on the first GPU and writes what they left to FILE
    conformance.py programs FOLDER FILE
                                   runs the programs in FOLDER there, writes a hash of what each left to FILE, and tells
                                   where that is not what the software GPU left

A line of cases.txt is a case: a rule of comparison, the results' types, the operands' pools, and the text of the
instructions, whose operands are %a, %b, ... and whose results are %d0, %d1, ... A line of inputs.txt is a pool of values.
`kernel` and `operand` say what a case runs on; softgpu/tests/conformance.rs does the same.
"""

import ctypes
import itertools
import math
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
THREADS = 256
OPERANDS = "abcefghijklmno"
BITS = {"b16": 16, "b32": 32, "b64": 64, "f16": 16, "bf16": 16, "f16x2": 32, "bf16x2": 32, "f32": 32, "f64": 64}
# The width of the register that a value of each pool is in.
POOLS = {
    "i16": 16, "i32": 32, "i64": 64, "count": 32, "f16": 16, "bf16": 16, "f16x2": 32, "bf16x2": 32, "f32": 32,
    "f64": 64, "odd16": 16, "odd32": 32, "odd64": 64, "whole16": 32, "wholeb16": 32, "whole32": 32, "whole64": 64, "tiny32": 32,
}


# ---- inputs ----

def floats(seed, exponent_bits, fraction_bits, extra):
    """Values of a floating-point format, as bits: what lies at its edges first, then some of everything."""
    rng = random.Random(seed)
    bits = 1 + exponent_bits + fraction_bits
    one = 1 << fraction_bits
    infinity = ((1 << exponent_bits) - 1) << fraction_bits
    bias = (1 << (exponent_bits - 1)) - 1

    def power(exponent, fraction=0):
        return ((exponent + bias) << fraction_bits) | fraction

    edges = [0, 1, 2, one - 1, one // 2, one, one + 1, infinity - 1, infinity, infinity + 1, infinity + one // 2,
             infinity + one // 2 + 1, infinity + one - 1, power(0), power(0, 1), power(0) - 1, power(-1), power(1),
             power(0, one // 2), power(1, one // 4), power(1, one // 2), power(2, one // 8), power(-1) - 1,
             power(-1, 1), power(-2), power(3, 5), power(-bias + 2, 3)]
    edges += [power(fraction_bits), power(fraction_bits + 1), power(fraction_bits, 1), power(fraction_bits - 1, 1)]
    edges += [power(e) + d for e in (7, 8, 15) for d in (-1, 0, 1)]
    edges += extra
    values = [value ^ sign for value in edges for sign in (0, 1 << (bits - 1))]
    while len(values) < 256:
        if rng.random() < 0.4:
            values.append(rng.getrandbits(bits))
        else:
            exponent = rng.randint(max(-bias + 1, -12), min(bias, 12))
            values.append(power(exponent, rng.getrandbits(fraction_bits)) | rng.getrandbits(1) << (bits - 1))
    return values[:256]


def integers(seed, bits):
    rng = random.Random(seed)
    top = 1 << bits
    edges = [0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 31, 32, 33, 63, 64, 127, 128, 129, 255, 256, 257, 0x55, 0xAA, 0x8080, 0x7F7F,
             0x7FFF, 0x8000, 0x8001, 0xFFFE, 0xFFFF]
    edges += [value << (bits - 16) for value in (0x7FFF, 0x8000, 0x8001, 0xFFFF, 0x5555, 0xAAAA)]
    edges += [top // 2 - 1, top // 2, top // 2 + 1, top - 1, top - 2, top // 4, top // 3, top - 128, top - 129, top - 256]
    if bits > 16:
        edges += [0x10000, 0xFFFFFF, 0x1000000, 0x1000001, 0x7FFFFF, 0x800000, 0x7FFFFFFF, 0x80000000, 0xFFFFFF7F, 0xFFFFFFFF]
    if bits > 32:
        edges += [0x100000000, 0x80000000FFFFFFFF, 0x1FFFFFFFFFFFFF, 0x20000000000001, 0x3FFFFFFFFFFFFF, 0x7FFFFFFFFFFFFC00,
                  0xFFFFFFFF80000000, 0xFFFFFFFF7FFFFFFF]
    values = [value % top for value in edges]
    while len(values) < 256:
        values.append(rng.getrandbits(bits) >> rng.choice([0, 0, 0, bits // 4, bits // 2]))
    return values[:256]


def of_double(value):
    return struct.unpack("<Q", struct.pack("<d", value))[0]


def of_single(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def inputs():
    some = [65504.0, 65519.0, 65520.0, 65535.5, 127.5, 128.5, 254.5, 255.5, 32767.5, 2.0**31, 2.0**31 - 128, 2.0**32, 2.0**63,
            2.0**64, 448.0, 464.0, 57344.0, 61440.0, 2.0**-9, 2.0**-10, 2.0**-16, 2.0**-24, 2.0**-25, 1.5 * 2.0**-25,
            math.pi, math.pi / 2, 100.25, 126.5, 128.0, 149.5, 88.7]
    f32 = floats(1, 8, 23, [of_single(value) for value in some] + [0x33800000, 0x38800000, 0x387FC000, 0x3F800800, 0x3F801000,
                                                                    0x3F808000, 0x3F818000, 0x3F80F000, 0x3F802000])
    f64 = floats(2, 11, 52, [of_double(value) for value in some] + [of_double(value) for value in
                 (1.5 * 2.0**-149, 2.0**-150, 2.0**-149, 2.0**-126, 2.0**128 - 2.0**103, 3.4028235677973366e38, 1 + 2.0**-24,
                  1 + 3 * 2.0**-24, 2147483647.5, 4294967295.5, -2147483648.5)])
    f16 = floats(3, 5, 10, [0x7BFF, 0x0001, 0x03FF, 0x6400, 0x6401, 0x63FF, 0x57FF])
    bf16 = floats(4, 8, 7, [0x4EFF, 0x4F00, 0x5F00, 0x42FE])
    rng = random.Random(5)
    pairs = lambda halves: [rng.choice(halves) | rng.choice(halves) << 16 for _ in range(256)]
    count = list(range(70)) + [95, 96, 127, 128, 129, 255, 256, 257, 0x101, 0x120, 0x10020, 0x7FFFFFFF, 0x80000000, 0xFFFFFFE0,
                               0xFFFFFFFF]
    small = lambda one, negative: [0] + [value for value in (one(k) for k in range(1, 9))] + [negative(k) for k in range(1, 9)]
    half = lambda k: struct.unpack("<H", struct.pack("<e", k))[0]
    wholes = small(half, lambda k: half(-k))
    bwholes = small(lambda k: of_single(k) >> 16, lambda k: of_single(-k) >> 16)
    pools = {
        "i16": integers(6, 16), "i32": integers(7, 32), "i64": integers(8, 64), "count": count, "f16": f16, "bf16": bf16,
        "f16x2": pairs(f16), "bf16x2": pairs(bf16), "f32": f32, "f64": f64,
        "odd16": [value | 1 for value in integers(9, 16)], "odd32": [value | 1 for value in integers(10, 32)],
        "odd64": [value | 1 for value in integers(11, 64)],
        "whole16": pairs(wholes), "wholeb16": pairs(bwholes),
        "whole32": small(of_single, lambda k: of_single(-k)), "whole64": small(of_double, lambda k: of_double(-k)),
        # What is subnormal, and what sums to that, among some that is not.
        "tiny32": f32[::8] + [rng.getrandbits(1) << 31 | rng.getrandbits(1) << 23 | rng.getrandbits(rng.choice((3, 12, 23)))
                              for _ in range(96)],
    }
    return "".join(f"{name} {' '.join(f'{value:x}' for value in values)}\n" for name, values in pools.items())


# ---- cases ----

class Cases:
    def __init__(self):
        self.lines = []

    def add(self, text, results, operands, rule="exact"):
        """`text` is instructions; with {} for its operands, in order, where it is one of one result."""
        if "%d" not in text:
            names = "".join(f", %{name}" for name in OPERANDS[: len(operands.split())])
            text = f"{text} %d0{names};"
        line = f"{rule}; {results}; {operands}; {text}"
        if line not in self.lines:
            self.lines.append(line)


def is_signed(ty):
    return ty.startswith("s")


def integer_cases(cases):
    for ty in ("u16", "s16", "u32", "s32", "u64", "s64"):
        bits = int(ty[1:])
        pool, odd, result = f"i{bits}", f"odd{bits}", f"b{bits}"
        for op in ("add", "sub", "min", "max", "mul.lo", "mul.hi"):
            cases.add(f"{op}.{ty}", result, f"{pool} {pool}")
        for op in ("div", "rem"):
            cases.add(f"{op}.{ty}", result, f"{pool} {odd}")
        for op in ("mad.lo", "mad.hi", "sad"):
            cases.add(f"{op}.{ty}", result, f"{pool} {pool} {pool}")
        if bits < 64:
            wide = f"b{2 * bits}"
            cases.add(f"mul.wide.{ty}", wide, f"{pool} {pool}")
            cases.add(f"mad.wide.{ty}", wide, f"{pool} {pool} i{2 * bits}")
        if is_signed(ty):
            cases.add(f"abs.{ty}", result, pool)
            cases.add(f"neg.{ty}", result, pool)
        cases.add(f"shr.{ty}", result, f"{pool} count")
        for comparison in ("eq", "ne", "lt", "le", "gt", "ge") + (() if is_signed(ty) else ("lo", "ls", "hi", "hs")):
            cases.add(f"setp.{comparison}.{ty} %p, %a, %b; selp.u32 %d0, 1, 0, %p;", "b32", f"{pool} {pool}")
            cases.add(f"set.{comparison}.u32.{ty}", "b32", f"{pool} {pool}")
        cases.add(f"set.lt.f32.{ty}", "b32", f"{pool} {pool}")
        if bits >= 32:
            cases.add(f"bfind.{ty}", "b32", pool)
            cases.add(f"bfind.shiftamt.{ty}", "b32", pool)
            cases.add(f"bfe.{ty}", result, f"{pool} count count")
            up = ty.replace("s", "u") if bits == 64 else ty
            cases.add(f"add.cc.{ty} %d0, %a, %b; addc.{ty} %d1, %c, %e;", f"{result} {result}", f"{pool} {pool} {pool} {pool}")
            cases.add(f"sub.cc.{ty} %d0, %a, %b; subc.{ty} %d1, %c, %e;", f"{result} {result}", f"{pool} {pool} {pool} {pool}")
            cases.add(f"add.cc.{ty} %d0, %a, %b; addc.cc.{ty} %d1, %c, %e; addc.{up} %d2, 0, 0;", f"{result} {result} {result}",
                      f"{pool} {pool} {pool} {pool}")
            cases.add(f"mad.lo.cc.{ty} %d0, %a, %b, %c; madc.hi.{ty} %d1, %a, %b, %e;", f"{result} {result}",
                      f"{pool} {pool} {pool} {pool}")
            cases.add(f"sub.cc.{ty} %d0, %a, %b; madc.lo.cc.{ty} %d1, %a, %b, %c; subc.{ty} %d2, %c, %e;",
                      f"{result} {result} {result}", f"{pool} {pool} {pool} {pool}")
        cases.add(f"slct.{ty}.s32", result, f"{pool} {pool} i32")
        cases.add(f"slct.{ty}.f32", result, f"{pool} {pool} f32")
        cases.add(f"slct.ftz.{ty}.f32", result, f"{pool} {pool} f32")
        cases.add(f"setp.lt.{ty} %p, %a, %b; selp.{ty} %d0, %a, %b, %p;", result, f"{pool} {pool}")
    for op in ("add.sat", "sub.sat", "mul24.lo", "mul24.hi", "min.relu", "max.relu"):
        cases.add(f"{op}.s32", "b32", "i32 i32")
    for op in ("mad.hi.sat", "mad24.lo", "mad24.hi", "mad24.hi.sat"):
        cases.add(f"{op}.s32", "b32", "i32 i32 i32")
    for op, operands in (("mul24.lo", 2), ("mul24.hi", 2), ("mad24.lo", 3), ("mad24.hi", 3)):
        cases.add(f"{op}.u32", "b32", " ".join(["i32"] * operands))
    for ty in ("u16x2", "s16x2"):
        for op in ("add", "min", "max"):
            cases.add(f"{op}.{ty}", "b32", "i32 i32")
    cases.add("min.relu.s16x2", "b32", "i32 i32")
    cases.add("max.relu.s16x2", "b32", "i32 i32")
    for bits in (16, 32, 64):
        for op in ("and", "or", "xor"):
            cases.add(f"{op}.b{bits}", f"b{bits}", f"i{bits} i{bits}")
        cases.add(f"not.b{bits}", f"b{bits}", f"i{bits}")
        cases.add(f"cnot.b{bits}", f"b{bits}", f"i{bits}")
        cases.add(f"shl.b{bits}", f"b{bits}", f"i{bits} count")
        cases.add(f"shr.b{bits}", f"b{bits}", f"i{bits} count")
    for bits in (32, 64):
        for op in ("popc", "clz"):
            cases.add(f"{op}.b{bits}", "b32", f"i{bits}")
        cases.add(f"brev.b{bits}", f"b{bits}", f"i{bits}")
        cases.add(f"bfi.b{bits}", f"b{bits}", f"i{bits} i{bits} count count")
    for way, how in itertools.product("lr", ("clamp", "wrap")):
        cases.add(f"shf.{way}.{how}.b32", "b32", "i32 i32 count")
    for mode in ("", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"):
        cases.add(f"prmt.b32{mode}", "b32", "i32 i32 i32")
    for table in (0x01, 0x1B, 0x6A, 0x80, 0x96, 0xCA, 0xE8, 0xFE):
        cases.add(f"lop3.b32 %d0, %a, %b, %c, {table};", "b32", "i32 i32 i32")
    cases.add("lop3.or.b32 %d0|%p, %a, %b, %c, 0x80, %q; selp.u32 %d1, 1, 0, %p;", "b32 b32", "i32 i32 i32")
    cases.add("fns.b32", "b32", "i32 count i16x")
    cases.add("fns.b32 %d0, %a, %b, 1;", "b32", "i32 count")
    cases.add("fns.b32 %d0, %a, %b, -2;", "b32", "i32 count")
    for how in ("clamp", "wrap"):
        cases.add(f"bmsk.{how}.b32", "b32", "count count")
        for ty in ("u32", "s32"):
            cases.add(f"szext.{how}.{ty}", "b32", "i32 count")
    for a, b in itertools.product(("u32", "s32"), repeat=2):
        cases.add(f"dp4a.{a}.{b}", "b32", "i32 i32 i32")
        for part in ("lo", "hi"):
            cases.add(f"dp2a.{part}.{a}.{b}", "b32", "i32 i32 i32")
    for op in ("and", "or", "xor"):
        cases.add(f"setp.lt.{op}.s32 %p|%q, %a, %b, %q0; selp.u32 %d0, 1, 0, %p; selp.u32 %d1, 1, 0, %q;".replace("%q0", "%q"),
                  "b32 b32", "i32 i32")


def video_cases(cases):
    """Video instructions, but where the assembler's sequence for an H200 does not do what the ISA says: results that are
    clamped to `.u32` or into a part of a word, `.min` and `.max` of results beyond 32 bits, products of unsigned words that
    are scaled or clamped."""
    words, three = "i32 i32", "i32 i32 i32"
    types = ["u32.u32.u32", "s32.s32.s32", "u32.s32.u32", "s32.u32.s32"]
    for op, ty in itertools.product(("vadd", "vsub", "vabsdiff", "vmin", "vmax"), types):
        cases.add(f"{op}.{ty} %d0, %a, %b;", "b32", words)
        cases.add(f"{op}.{ty} %d0, %a.b1, %b.h1;", "b32", words)
        cases.add(f"{op}.{ty}.add %d0, %a, %b, %c;", "b32", three)
        if ty.startswith("s32"):
            cases.add(f"{op}.{ty}.sat %d0, %a, %b;", "b32", words)
            cases.add(f"{op}.{ty}.sat.max %d0, %a.h0, %b.b3, %c;", "b32", three)
            cases.add(f"{op}.{ty}.min %d0, %a.b0, %b.h0, %c;", "b32", three)
        cases.add(f"{op}.{ty} %d0.h0, %a, %b.b1, %c;", "b32", three)
    for op, ty, mode in itertools.product(("vshl", "vshr"), ("u32.u32", "s32.s32"), ("clamp", "wrap")):
        cases.add(f"{op}.{ty}.u32.{mode} %d0, %a, %b;", "b32", "i32 count")
        cases.add(f"{op}.{ty}.u32.sat.{mode} %d0, %a, %b;", "b32", "i32 count")
        cases.add(f"{op}.{ty}.u32.{mode} %d0.b1, %a, %b.b0, %c;", "b32", "i32 count i32")
        cases.add(f"{op}.{ty}.u32.{mode}.add %d0, %a.h1, %b, %c;", "b32", "i32 count i32")
    for ty in ("u32.u32", "u32.s32", "s32.u32", "s32.s32"):
        for scale in ("", ".po") if ty == "u32.u32" else ("", ".shr7", ".shr15", ".sat", ".sat.shr7", ".po", ".po.sat.shr15"):
            cases.add(f"vmad.s32.{ty}{scale} %d0, %a.h0, %b.b1, %c;", "b32", three)
            if ty == "s32.s32" or scale in ("", ".po"):
                cases.add(f"vmad.s32.{ty}{scale} %d0, %a, %b, %c;", "b32", three)
    cases.add("vmad.s32.s32.s32.shr7 %d0, -%a, %b, %c;", "b32", three)
    cases.add("vmad.s32.s32.s32.sat %d0, %a, %b.h1, -%c;", "b32", three)
    for relation, ty in itertools.product(("eq", "ne", "lt", "le", "gt", "ge"), ("u32.u32", "s32.s32", "s32.u32")):
        cases.add(f"vset.{ty}.{relation} %d0, %a, %b.b0;", "b32", words)
        cases.add(f"vset.{ty}.{relation}.add %d0, %a, %b, %c;", "b32", three)
        cases.add(f"vset2.{ty}.{relation} %d0, %a, %b, %c;", "b32", three)
        cases.add(f"vset4.{ty}.{relation} %d0.b310, %a, %b, %c;", "b32", three)
        cases.add(f"vset4.{ty}.{relation}.add %d0, %a, %b, %c;", "b32", three)
    for op, ty in itertools.product(("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax"), types):
        for width, pick, other, part in ((2, "h12", "h30", "h1"), (4, "b5310", "b0426", "b20")):
            cases.add(f"{op}{width}.{ty} %d0, %a, %b, %c;", "b32", three)
            cases.add(f"{op}{width}.{ty}.sat %d0, %a, %b, %c;", "b32", three)
            cases.add(f"{op}{width}.{ty}.add %d0, %a, %b, %c;", "b32", three)
            cases.add(f"{op}{width}.{ty} %d0.{part}, %a.{pick}, %b.{other}, %c;", "b32", three)


def float_cases(cases):
    rounds = ("rn", "rz", "rm", "rp")
    for op, count in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3)):
        for rounding, ftz, sat in itertools.product(rounds, ("", ".ftz"), ("", ".sat")):
            cases.add(f"{op}.{rounding}{ftz}{sat}.f32", "f32", " ".join(["f32"] * count))
        for rounding in rounds:
            cases.add(f"{op}.{rounding}.f64", "f64", " ".join(["f64"] * count))
        for ty in ("f16", "f16x2"):
            for ftz, end in itertools.product(("", ".ftz"), ("", ".sat") + ((".relu",) if op == "fma" else ())):
                cases.add(f"{op}.rn{ftz}{end}.{ty}", ty, " ".join([ty] * count))
        for ty in ("bf16", "bf16x2"):
            for end in ("",) + ((".relu",) if op == "fma" else ()):
                cases.add(f"{op}.rn{end}.{ty}", ty, " ".join([ty] * count))
    for rounding, ftz in itertools.product(rounds, ("", ".ftz")):
        cases.add(f"div.{rounding}{ftz}.f32", "f32", "f32 f32")
        for op in ("rcp", "sqrt"):
            cases.add(f"{op}.{rounding}{ftz}.f32", "f32", "f32")
    for rounding in rounds:
        cases.add(f"div.{rounding}.f64", "f64", "f64 f64")
        for op in ("rcp", "sqrt"):
            cases.add(f"{op}.{rounding}.f64", "f64", "f64")
    for ftz in ("", ".ftz"):
        cases.add(f"div.approx{ftz}.f32", "f32", "f32 f32", "ulp 2")
        cases.add(f"div.full{ftz}.f32", "f32", "f32 f32", "ulp 2")
        # Bounds of the PTX ISA: units in the last place, or an absolute error that is told as one.
        for op, rule in (("rcp", "ulp 1"), ("sqrt", "ulp 2"), ("rsqrt", "ulp 3"), ("sin", "sine"), ("cos", "sine"),
                         ("lg2", "log"), ("ex2", "ulp 3"), ("tanh", "relative 11")):
            cases.add(f"{op}.approx{ftz}.f32", "f32", "f32", rule)
    cases.add("rcp.approx.ftz.f64", "f64", "f64", "relative 20")
    cases.add("rsqrt.approx.f64", "f64", "f64", "relative 20")
    cases.add("rsqrt.approx.ftz.f64", "f64", "f64", "relative 20")
    for ty in ("f16", "f16x2"):
        cases.add(f"ex2.approx.{ty}", ty, ty, "relative 9")
        cases.add(f"tanh.approx.{ty}", ty, ty, "relative 10")
    for ty in ("bf16", "bf16x2"):
        cases.add(f"ex2.approx.ftz.{ty}", ty, ty, "relative 7")
        cases.add(f"tanh.approx.{ty}", ty, ty, "relative 7")
    for op in ("min", "max"):
        for ftz, nan, sign in itertools.product(("", ".ftz"), ("", ".NaN"), ("", ".xorsign.abs")):
            cases.add(f"{op}{ftz}{nan}{sign}.f32", "f32", "f32 f32")
            for ty in ("f16", "f16x2"):
                cases.add(f"{op}{ftz}{nan}{sign}.{ty}", ty, f"{ty} {ty}")
            if not ftz:
                for ty in ("bf16", "bf16x2"):
                    cases.add(f"{op}{nan}{sign}.{ty}", ty, f"{ty} {ty}")
        cases.add(f"{op}.f64", "f64", "f64 f64")
    for op in ("abs", "neg"):
        for ftz, ty in itertools.product(("", ".ftz"), ("f32", "f64", "f16", "f16x2", "bf16", "bf16x2")):
            cases.add(f"{op}{ftz}.{ty}", ty, ty)
    for ty in ("f32", "f64"):
        cases.add(f"copysign.{ty}", ty, f"{ty} {ty}")
        for what in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
            cases.add(f"testp.{what}.{ty} %p, %a; selp.u32 %d0, 1, 0, %p;", "b32", ty)
        cases.add(f"slct.{ty}.s32", ty, f"{ty} {ty} i32")
    comparisons = ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
    for comparison, ty, ftz in itertools.product(comparisons, ("f32", "f64", "f16", "bf16"), ("", ".ftz")):
        cases.add(f"setp.{comparison}{ftz}.{ty} %p, %a, %b; selp.u32 %d0, 1, 0, %p;", "b32", f"{ty} {ty}")
    for comparison, ty in itertools.product(comparisons, ("f16x2", "bf16x2")):
        cases.add(f"setp.{comparison}.{ty} %p|%q, %a, %b; selp.u32 %d0, 1, 0, %p; selp.u32 %d1, 1, 0, %q;", "b32 b32", f"{ty} {ty}")
    for comparison in ("eq", "ltu", "num"):
        for out, ty in itertools.product(("u32", "f32", "s32"), ("f32", "f64", "f16", "bf16")):
            cases.add(f"set.{comparison}.{out}.{ty}", "b32", f"{ty} {ty}")
        for out, ty in (("f16", "f16"), ("bf16", "bf16"), ("u16", "f16"), ("f16x2", "f16x2"), ("bf16x2", "bf16x2")):
            cases.add(f"set.{comparison}.{out}.{ty}", ty, f"{ty} {ty}")


def conversion_cases(cases):
    whole = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"]
    width = lambda ty: max(16, int(ty[1:]))
    register = lambda ty: 32 if ty.endswith("8") and ty[0] in "us" else width(ty)
    for to, ty in itertools.product(whole, repeat=2):
        for sat in ("", ".sat"):
            cases.add(f"cvt{sat}.{to}.{ty}", f"b{register(to)}", f"i{register(ty)}")
    for to, ty in itertools.product(whole, ("f16", "bf16", "f32", "f64")):
        for rounding, ftz in itertools.product(("rni", "rzi", "rmi", "rpi"), ("", ".ftz")):
            cases.add(f"cvt.{rounding}{ftz}.{to}.{ty}", f"b{register(to)}", ty)
    for to, ty in itertools.product(("f16", "bf16", "f32", "f64"), whole):
        for rounding in ("rn", "rz", "rm", "rp"):
            cases.add(f"cvt.{rounding}.{to}.{ty}", to, f"i{register(ty)}")
    for to, ty in itertools.product(("f16", "bf16", "f32", "f64"), repeat=2):
        for rounding, ftz, sat in itertools.product(("", ".rn", ".rz", ".rm", ".rp", ".rni", ".rzi", ".rmi", ".rpi"),
                                                    ("", ".ftz"), ("", ".sat", ".relu")):
            cases.add(f"cvt{rounding}{ftz}{sat}.{to}.{ty}", to, ty)
    for to in ("f16x2", "bf16x2"):
        for rounding, relu in itertools.product(("rn", "rz"), ("", ".relu")):
            cases.add(f"cvt.{rounding}{relu}.{to}.f32", to, "f32 f32")
    for end in ("", ".satfinite"):
        for rounding in ("rna", "rn", "rz"):
            cases.add(f"cvt.{rounding}{end}.tf32.f32", "b32", "f32")
    for to, relu in itertools.product(("e4m3x2", "e5m2x2"), ("", ".relu")):
        cases.add(f"cvt.rn.satfinite{relu}.{to}.f32", "b16", "f32 f32")
        cases.add(f"cvt.rn.satfinite{relu}.{to}.f16x2", "b16", "f16x2")
        cases.add(f"cvt.rn{relu}.f16x2.{to}", "f16x2", "i16")
    for to, ty in (("s16", "s32"), ("u16", "s32")):
        cases.add(f"cvt.pack.sat.{to}.{ty}", "b32", "i32 i32")
    for to in ("u8", "s8"):
        cases.add(f"cvt.pack.sat.{to}.s32.b32", "b32", "i32 i32 i32")


def warp_cases(cases):
    for op, types in (("add", ("u32", "s32")), ("min", ("u32", "s32")), ("max", ("u32", "s32")), ("and", ("b32",)),
                      ("or", ("b32",)), ("xor", ("b32",))):
        for ty in types:
            cases.add(f"redux.sync.{op}.{ty} %d0, %a, -1;", "b32", "i32")
    for mode, by in itertools.product(("up", "down", "bfly", "idx"), ("0", "1", "5", "31", "%b")):
        for bounds in ("0", "0x1f", "0x1c03", "0x181f"):
            cases.add(f"shfl.sync.{mode}.b32 %d0|%p, %a, {by}, {bounds}, -1; selp.u32 %d1, 1, 0, %p;", "b32 b32",
                      "i32 count" if by == "%b" else "i32")
    for mode in ("any", "all"):
        cases.add(f"and.b32 %s, %a, 3; match.{mode}.sync.b32 %d0{'|%p' if mode == 'all' else ''}, %s, -1;", "b32", "i32")
    for mode in ("all", "any", "uni"):
        cases.add(f"setp.lt.s32 %p, %a, %b; vote.sync.{mode}.pred %q, %p, -1; selp.u32 %d0, 1, 0, %q;", "b32", "i32 i32")
    cases.add("setp.lt.s32 %p, %a, %b; vote.sync.ballot.b32 %d0, %p, -1;", "b32", "i32 i32")
    cases.add("movmatrix.sync.aligned.m8n8.trans.b16 %d0, %a;", "b32", "i32")
    vector = lambda names: "{" + ", ".join(names) + "}"

    def product(name, results, pools):
        counts = [len(group) for group in pools]
        names = iter(f"%{name}" for name in OPERANDS)
        operands = ", ".join(vector([next(names) for _ in range(count)]) for count in counts)
        out = vector([f"%d{index}" for index in range(len(results))])
        cases.add(f"{name} {out}, {operands};", " ".join(results), " ".join(pool for group in pools for pool in group))

    half, bhalf, single, double, word = "whole16", "wholeb16", "whole32", "whole64", "i32"
    product("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16", ["f16x2"] * 2, [[half] * 2, [half], [half] * 2])
    product("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", ["f32"] * 4, [[half] * 2, [half], [single] * 4])
    product("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", ["f16x2"] * 2, [[half] * 4, [half] * 2, [half] * 2])
    product("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", ["f32"] * 4, [[half] * 4, [half] * 2, [single] * 4])
    product("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", ["f32"] * 4, [[bhalf] * 2, [bhalf], [single] * 4])
    product("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", ["f32"] * 4, [[bhalf] * 4, [bhalf] * 2, [single] * 4])
    product("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32", ["f32"] * 4, [[single] * 2, [single], [single] * 4])
    product("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", ["f32"] * 4, [[single] * 4, [single] * 2, [single] * 4])
    product("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", ["f64"] * 2, [[double], [double], [double] * 2])
    for a, b, sat in itertools.product(("u8", "s8"), ("u8", "s8"), ("", ".satfinite")):
        product(f"mma.sync.aligned.m8n8k16.row.col{sat}.s32.{a}.{b}.s32", ["b32"] * 2, [[word], [word], [word] * 2])
        product(f"mma.sync.aligned.m16n8k16.row.col{sat}.s32.{a}.{b}.s32", ["b32"] * 4, [[word] * 2, [word], [word] * 4])
        product(f"mma.sync.aligned.m16n8k32.row.col{sat}.s32.{a}.{b}.s32", ["b32"] * 4, [[word] * 4, [word] * 2, [word] * 4])


def memory_cases(cases):
    """On a word of each thread's own: in global memory that of its first result, in shared memory one of a box."""
    places = {
        "global": ("{0}", "%to"),
        "shared": ("{{ .shared .align 8 .b64 box[256]; mov.u32 %s, box; mad.lo.u32 %s, %thread, 8, %s; {0} }}", "%s"),
    }

    def atomic(op, ty, result, pools, count=1):
        width = BITS[result]
        operands = ", ".join(f"%{name}" for name in OPERANDS[1:1 + count])
        for space, (frame, at) in places.items():
            begin, end = f"st.{space}.b{width} [{at}], %a;", f"ld.{space}.b{width} %d1, [{at}];"
            both = f"{begin} atom.{space}.{op}.{ty} %d0, [{at}], {operands}; {end}"
            cases.add(frame.format(both), f"{result} {result}", pools)
            if op not in ("exch", "cas"):
                alone = f"{begin} red.{space}.{op}.{ty} [{at}], {operands}; {end.replace('%d1', '%d0')}"
                cases.add(frame.format(alone), result, pools)

    for bits in (32, 64):
        word = f"i{bits}"
        for ty in (f"u{bits}", f"s{bits}"):
            for op in ("min", "max"):
                atomic(op, ty, f"b{bits}", f"{word} {word}")
        for op in ("and", "or", "xor", "exch"):
            atomic(op, f"b{bits}", f"b{bits}", f"{word} {word}")
        atomic("cas", f"b{bits}", f"b{bits}", f"{word} {word} {word}", 2)
        atomic("add", f"u{bits}", f"b{bits}", f"{word} {word}")
    atomic("add", "s32", "b32", "i32 i32")
    atomic("cas", "b16", "b16", "i16 i16 i16", 2)
    for op in ("inc", "dec"):
        atomic(op, "u32", "b32", "count count")
    atomic("add", "f32", "f32", "tiny32 tiny32")
    atomic("add", "f64", "f64", "f64 f64")
    for ty in ("f16", "f16x2", "bf16", "bf16x2"):
        atomic("add.noftz", ty, ty, f"{ty} {ty}")

    # Each warp has 512 bytes of a box; which line a lane names is scattered.
    frame = ("{{ .shared .align 16 .b8 box[4096]; .reg .b32 %own, %line; mov.u32 %s, box; mad.lo.u32 %own, %thread, 16, %s; "
             "mul.lo.u32 %line, %thread, 11; xor.b32 %line, %line, %thread; and.b32 %line, %line, 31; xor.b32 %line, %line, %thread; "
             "mad.lo.u32 %line, %line, 16, %s; {0} }}")
    four, fill = "i32 i32 i32 i32", "st.shared.v4.b32 [%own], {%a, %b, %c, %e}; bar.warp.sync -1;"
    for number, trans in itertools.product((1, 2, 4), ("", ".trans")):
        into = "{" + ", ".join(f"%d{index}" for index in range(number)) + "}"
        load = f"{fill} ldmatrix.sync.aligned.m8n8.x{number}{trans}.shared.b16 {into}, [%line];"
        cases.add(frame.format(load), " ".join(["b32"] * number), four)
        out = "{" + ", ".join(f"%{name}" for name in OPERANDS[4:4 + number]) + "}"
        store = (f"{fill} stmatrix.sync.aligned.m8n8.x{number}{trans}.shared.b16 [%line], {out}; bar.warp.sync -1; "
                 "ld.shared.v4.b32 {%d0, %d1, %d2, %d3}, [%own];")
        cases.add(frame.format(store), " ".join(["b32"] * 4), " ".join(["i32"] * (4 + number)))

    # The operands are the matrices; what comes out goes through memory, since which lane has what is the device's.
    def wmma(shape, a, b, c, d, pool, element, counts, layouts, end=""):
        na, nb, nc, nd = counts
        m, n = (int(number) for number in re.match(r"m(\d+)n(\d+)", shape).groups())
        kind = "f64" if d == "f64" else "b32"
        names = lambda name, count: "{" + ", ".join(f"%{name}{index}" for index in range(count)) + "}"
        la, lb = layouts
        width = BITS[d] if d in BITS else 32
        each = m * n * width // 8 // 32
        out = [f"ld.global.b{min(width * 2, 32) if width < 64 else 64} %d{index}, [%mine+{(4 if width < 64 else 8) * index}];"
               for index in range(each // (4 if width < 64 else 8))]
        text = (f"{{ .reg .{kind} %fa<{na}>, %fb<{nb}>, %fc<{nc}>, %fd<{nd}>; .reg .b64 %in, %box, %mine; .reg .b32 %lane; "
                "sub.s64 %in, %from, %offset; sub.s64 %box, %to, %offset; shr.u32 %lane, %thread, 5; "
                f"mul.wide.u32 %mine, %lane, {m * n * width // 8}; add.s64 %box, %box, %mine; add.s64 %box, %box, 16384; "
                f"and.b32 %lane, %thread, 31; mul.wide.u32 %mine, %lane, {each}; add.s64 %mine, %box, %mine; "
                f"wmma.load.a.sync.aligned.{la}.{shape}.global.{a} {names('fa', na)}, [%in], 32; "
                f"wmma.load.b.sync.aligned.{lb}.{shape}.global.{b} {names('fb', nb)}, [%in+2048], 32; "
                f"wmma.load.c.sync.aligned.row.{shape}.global.{c} {names('fc', nc)}, [%in+4096], {max(n, 16)}; "
                f"wmma.mma.sync.aligned.{la}.{lb}.{shape}{element} {names('fd', nd)}, {names('fa', na)}, {names('fb', nb)}, "
                f"{names('fc', nc)}; "
                f"wmma.store.d.sync.aligned.row.{shape}.global.{d} [%box], {names('fd', nd)}, {n}; bar.warp.sync -1; {' '.join(out)} }}")
        result = "f64" if d == "f64" else {"f16": "f16x2", "f32": "f32", "s32": "b32"}[d]
        cases.add(text, " ".join([result] * len(out)), pool)

    layouts = list(itertools.product(("row", "col"), repeat=2))
    for shape, (la, lb) in itertools.product(("m16n16k16", "m8n32k16", "m32n8k16"), layouts):
        wmma(shape, "f16", "f16", "f32", "f32", "whole16 whole16 whole32", ".f32.f32", (8, 8, 8, 8), (la, lb))
        wmma(shape, "f16", "f16", "f16", "f16", "whole16 whole16 whole16", ".f16.f16", (8, 8, 4, 4), (la, lb))
        counts = {"m16n16k16": (4, 4), "m8n32k16": (2, 8), "m32n8k16": (8, 2)}[shape]
        wmma(shape, "bf16", "bf16", "f32", "f32", "wholeb16 wholeb16 whole32", ".f32.bf16.bf16.f32", (*counts, 8, 8), (la, lb))
        counts = {"m16n16k16": (2, 2), "m8n32k16": (1, 4), "m32n8k16": (4, 1)}[shape]
        for ty in ("u8", "s8"):
            wmma(shape, ty, ty, "s32", "s32", "i64 i64 i32", f".s32.{ty}.{ty}.s32", (*counts, 8, 8), (la, lb))
    for la, lb in layouts:
        wmma("m16n16k8", "tf32", "tf32", "f32", "f32", "whole32 whole32 whole32", ".f32.tf32.tf32.f32", (4, 4, 8, 8), (la, lb))
        wmma("m8n8k4", "f64", "f64", "f64", "f64", "whole64 whole64 whole64", ".f64.f64.f64.f64", (1, 1, 2, 2), (la, lb))


def make_cases(ptxas):
    cases = Cases()
    for add in (integer_cases, float_cases, conversion_cases, warp_cases, memory_cases, video_cases):
        add(cases)
    lines = [line for line in cases.lines if all(pool in POOLS for pool in line.split("; ")[2].split())]
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "cases.ptx")
        while True:
            text, owner = [HEADER], [None] * HEADER.count("\n")
            for index, line in enumerate(lines):
                entry = kernel(f"c{index}", line)
                text.append(entry)
                owner += [index] * entry.count("\n")
            source.write_text("".join(text))
            done = subprocess.run([ptxas, "-arch=sm_90a", "-O0", "-o", "/dev/null", source], capture_output=True, text=True)
            refused = {owner[int(number) - 1] for number in re.findall(r"line (\d+); error", done.stdout + done.stderr)}
            if done.returncode == 0:
                break
            if not refused:
                sys.exit(done.stderr)
            lines = [line for index, line in enumerate(lines) if index not in refused]
    return "".join(f"{line}\n" for line in lines)


# ---- kernels ----

HEADER = ".version 8.4\n.target sm_90a\n.address_size 64\n"


def kernel(name, line):
    """The entry of a case: a thread's operands lie 8 bytes apart, all of one operand together; so do its results."""
    _, results, operands, text = line.split("; ", 3)
    results, operands = results.split(), operands.split()
    body = [f".visible .entry {name}(.param .u64 from, .param .u64 to)", "{", ".reg .pred %p, %q;", ".reg .b32 %s, %thread;",
            ".reg .b64 %from, %to, %offset;"]
    body += [f".reg .b{POOLS[pool]} %{name};" for name, pool in zip(OPERANDS, operands)]
    body += [f".reg .b{BITS[result]} %d{index};" for index, result in enumerate(results)]
    body += ["ld.param.u64 %from, [from];", "ld.param.u64 %to, [to];", "mov.u32 %thread, %tid.x;",
             "mul.wide.u32 %offset, %thread, 8;", "add.s64 %from, %from, %offset;", "add.s64 %to, %to, %offset;",
             "setp.eq.u32 %q, %thread, 3;"]
    body += [f"ld.global.b{POOLS[pool]} %{name}, [%from+{8 * THREADS * index}];"
             for index, (name, pool) in enumerate(zip(OPERANDS, operands))]
    body += [text]
    body += [f"st.global.b{BITS[result]} [%to+{8 * THREADS * index}], %d{index};" for index, result in enumerate(results)]
    return "\n".join(body + ["ret;", "}", ""])


def mixed(word):
    """SplitMix64."""
    mask = (1 << 64) - 1
    word = (word + 0x9E3779B97F4A7C15) & mask
    word = ((word ^ word >> 30) * 0xBF58476D1CE4E5B9) & mask
    word = ((word ^ word >> 27) * 0x94D049BB133111EB) & mask
    return word ^ word >> 31


def operand(text, operands, index, thread):
    """Which value of its pool an operand of a thread is: each in turn where there is one operand only."""
    if operands == 1:
        return thread
    seed = 0
    for byte in text.encode():
        seed = mixed(seed ^ byte)
    return mixed(seed + (index << 32) + thread) >> 8


# ---- recording ----

class Gpu:
    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, 256, device)
        version = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(version))
        self.name = f"{name.value.decode()}, driver for CUDA {version.value // 1000}.{version.value % 1000 // 10}"
        self.at = [self.allocate(8 * THREADS * len(OPERANDS)) for _ in range(2)]

    def call(self, name, *arguments):
        status = getattr(self.cuda, name)(*arguments)
        if status != 0:
            raise RuntimeError(f"{name}: {status}")

    def allocate(self, size):
        at = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size))
        return at

    def load(self, text):
        module = ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), text.encode() + b"\0")
        return module

    def run(self, module, name, words, count):
        function = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        given = struct.pack(f"<{len(words)}Q", *words)
        self.call("cuMemcpyHtoD_v2", self.at[0], given, ctypes.c_size_t(len(given)))
        self.call("cuMemsetD8_v2", self.at[1], ctypes.c_ubyte(0), ctypes.c_size_t(8 * count))
        parameters = (ctypes.c_void_p * 2)(*[ctypes.cast(ctypes.byref(at), ctypes.c_void_p) for at in self.at])
        self.call("cuLaunchKernel", function, 1, 1, 1, THREADS, 1, 1, 0, None, parameters, None)
        found = ctypes.create_string_buffer(8 * count)
        self.call("cuMemcpyDtoH_v2", found, self.at[1], ctypes.c_size_t(8 * count))
        return struct.unpack(f"<{count}Q", found.raw)


def record(path):
    pools = {}
    for line in (HERE / "inputs.txt").read_text().splitlines():
        name, *values = line.split()
        pools[name] = [int(value, 16) for value in values]
    lines = (HERE / "cases.txt").read_text().splitlines()
    gpu = Gpu()
    out = [f"# {gpu.name}\n"]
    refused = []
    # Small modules: one that does not load takes few along, which are then tried alone.
    for start in range(0, len(lines), 64):
        some = list(enumerate(lines[start:start + 64], start))
        try:
            module = gpu.load(HEADER + "".join(kernel(f"c{index}", line) for index, line in some))
            modules = {index: module for index, _ in some}
        except RuntimeError:
            modules = {}
            for index, line in some:
                try:
                    modules[index] = gpu.load(HEADER + kernel(f"c{index}", line))
                except RuntimeError as error:
                    refused.append(f"{line}: {error}")
        for index, line in some:
            if index not in modules:
                continue
            _, results, operands, text = line.split("; ", 3)
            results, operands = results.split(), operands.split()
            words = []
            for at, pool in enumerate(operands):
                values = pools[pool]
                words += [values[operand(text, len(operands), at, thread) % len(values)] for thread in range(THREADS)]
            found = gpu.run(modules[index], f"c{index}", words, THREADS * len(results))
            out.append(f"{text}\t{' '.join(f'{word:x}' for word in found)}\n")
    pathlib.Path(path).write_text("".join(out))
    print(f"{len(out) - 1} cases recorded, {len(refused)} refused, on {gpu.name}")
    print("".join(f"refused: {line}\n" for line in refused), end="")
    return 1 if refused else 0


def hashed(words):
    """FNV-1a of what a program left, all numbers in double precision that are none as one."""
    value = 0xCBF29CE484222325
    for place, word in enumerate(words):
        double = place % 64 >= 8 and place % 4 == 2
        if double and word & 0x7FFFFFFFFFFFFFFF > 0x7FF0000000000000:
            word = 0x7FF8000000000000
        value = (value ^ word) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def programs(folder, path):
    gpu = Gpu()
    out, differing = [f"# {gpu.name}\n"], []
    files = sorted(pathlib.Path(folder).glob("*.ptx"), key=lambda file: int(file.stem))
    for file in files:
        expected = file.with_suffix(".left").read_bytes()
        at = gpu.allocate(len(expected))
        gpu.call("cuMemsetD8_v2", at, ctypes.c_ubyte(0), ctypes.c_size_t(len(expected)))
        function = ctypes.c_void_p()
        module = gpu.load(file.read_text())
        gpu.call("cuModuleGetFunction", ctypes.byref(function), module, b"t")
        parameters = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(at), ctypes.c_void_p))
        gpu.call("cuLaunchKernel", function, 2, 1, 1, 64, 1, 1, 0, None, parameters, None)
        found = ctypes.create_string_buffer(len(expected))
        gpu.call("cuMemcpyDtoH_v2", found, at, ctypes.c_size_t(len(expected)))
        gpu.call("cuMemFree_v2", at)
        gpu.call("cuModuleUnload", module)
        form = f"<{len(expected) // 8}Q"
        words, others = struct.unpack(form, found.raw), struct.unpack(form, expected)
        out.append(f"{file.stem} {hashed(words):x}\n")
        if hashed(words) != hashed(others):
            place = next(place for place, pair in enumerate(zip(words, others)) if pair[0] != pair[1])
            differing.append(f"{file.name}: word {place % 64} of thread {place // 64} is {words[place]:x}, "
                             f"on the software GPU {others[place]:x}\n")
    pathlib.Path(path).write_text("".join(out))
    print(f"{len(files)} programs run, {len(differing)} leave something else than on the software GPU, on {gpu.name}")
    print("".join(differing), end="")
    return 0


def main():
    what = sys.argv[1] if len(sys.argv) > 1 else ""
    if what == "cases":
        (HERE / "cases.txt").write_text(make_cases(sys.argv[2]))
    elif what == "inputs":
        (HERE / "inputs.txt").write_text(inputs())
    elif what == "record":
        return record(sys.argv[2])
    elif what == "programs":
        return programs(sys.argv[2], sys.argv[3])
    else:
        print(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
