#!/usr/bin/env python3
"""Texts for overdue.cu that do as much between two looks at the flag as the checker lets through (decision 0090).

    tests/gpu/overdue.py serial > serial.ptx     loads that wait for each other: a block's warps work one after the other, and so do
                                                 the lanes of each
    tests/gpu/overdue.py stores > stores.ptx     stores of all threads, each to a sector of its own
    tests/gpu/overdue.py gathers > gathers.ptx   as the first, but that the lanes gather each other (decision 0091)
    tests/gpu/overdue.py spills > spills.ptx     steps that each load a spilled register (decision 0092)
    tests/gpu/overdue.py code > code.ptx         steps that each fetch far code (decision 0092)
    tests/gpu/overdue.py updates > updates.ptx   updates of one word by all threads, for a window in host memory (0092)

In `spills` and `code` one thread of each block does as many steps, one after the other, as all of a block's may in an accepted
text: their texts would take the assembler hours.
Each is the fast version of an entry alone, without its claims: overdue.cu runs it natively. --access COST (16) says what a
load or store counts, --wait COST (8224) what a wait for the block takes, --lanes COST (16) what a match or a vote counts: before
0091 a round of both was free.
"""

import argparse

FUEL = 1 << 19
WARPS = LANES = 32
LOADS = 16
STORES = 32
LOOK = """    or.b32 %bh_hi, %bh_base, %bh_loadmask;
    mov.u32 %bh_lo, %smid;
    shl.b32 %bh_lo, %bh_lo, 7;
    lop3.b32 %bh_lo, %bh_lo, 65408, -65536, 234;
    mov.b64 %bh_k, {%bh_lo, %bh_hi};
    ld.relaxed.sys.global.b32 %bh_n, [%bh_k];
    setp.lt.s32 %bh_q, %bh_n, 0;
    @%bh_q exit;
"""


def serial(access, wait, _):
    """Behind the n-th wait the lanes of warp n go to loops of their own, and all others wait for the next."""
    text = ["    mov.u32 %r0, %tid.x;\n    shr.u32 %r1, %r0, 5;\n    and.b32 %r2, %r0, 31;\n    mov.b32 %r3, %r0;\n$again:\n", LOOK]
    left, loops, loads = FUEL, [], 0
    for warp in range(WARPS):
        text.append(f"$U{warp}:\n    barrier.sync 0;\n    setp.ne.s32 %p0, %r1, {warp};\n    @%p0 bra $U{warp + 1};\n")
        left -= wait + 2
        for lane in range(LANES):
            text.append(f"    setp.eq.s32 %p0, %r2, {lane};\n    @%p0 bra $K{warp}_{lane};\n")
            loops.append((warp, lane, left - 2 * (lane + 1)))
    text.append(f"$U{WARPS}:\n    bra $again;\n")
    text += [f"$W{warp}:\n    barrier.sync 0;\n" for warp in range(WARPS)]
    text.append(f"$W{WARPS}:\n    bra $again;\n")
    turn = LOADS * (access + 2) + 3
    for warp, lane, fuel in loops:
        # Other code for each: the assembler would join what is the same.
        offset = 8 * lane + 256 * warp
        load = f"    and.b32 %r3, %r3, 1073741820;\n    mad.wide.u32 %d1, %r3, 2, %d0;\n    ld.global.u32 %r3, [%d1+{offset}];\n"
        turns = (fuel - 21) // turn
        loads += turns * LOADS
        text.append(f"$K{warp}_{lane}:\n    mov.u32 %r4, {turns};\n$L{warp}_{lane}:\n{load * LOADS}")
        text.append(f"    add.s32 %r4, %r4, -1;\n    setp.gt.s32 %p0, %r4, 0;\n    @%p0 bra $L{warp}_{lane};\n")
        text.append(f"    st.global.u32 [%d0], %r3;\n{LOOK}    bra $W{warp + 1};\n")
    return "".join(text), f"{loads} loads of a block, one after the other"


def gathers(_, wait, lanes):
    """The same, with loops that groups of warps share: else the assembler takes minutes."""
    groups, rounds = 2, 2
    of_group = WARPS // groups
    text = ["    mov.u32 %r0, %tid.x;\n    shr.u32 %r1, %r0, 5;\n    and.b32 %r2, %r0, 31;\n    mov.b32 %r3, 0;\n$again:\n", LOOK]
    place, left, total = 0, FUEL, 0
    least = [0] * groups
    for warp in range(WARPS):
        text.append(f"    bar.sync 0;\n    setp.ne.s32 %p0, %r1, {warp};\n    @%p0 bra $U{warp};\n")
        left -= wait + 2
        group = warp // of_group
        for lane in range(LANES):
            text.append(f"    setp.eq.s32 %p0, %r2, {lane};\n    @%p0 bra $K{group}_{lane};\n")
        least[group] = left - 2 * LANES
        place += 1
        text.append(f"$U{warp}:\n    match.any.sync.b32 %bh_m, {place}, -1;\n    vote.sync.ballot.b32 %bh_lo, 1, -1;\n")
        text.append("    setp.ne.s32 %bh_q, %bh_lo, %bh_m;\n    @%bh_q exit;\n")
        left -= 2 * lanes + 2
    text.append("    bra $again;\n")
    turn = rounds * (1 + 2 * lanes) + 3
    for group, fuel in enumerate(least):
        turns = (fuel - 2) // turn
        total += turns * rounds * of_group
        for lane in range(LANES):
            text.append(f"$K{group}_{lane}:\n    mov.u32 %r4, {turns};\n$L{group}_{lane}:\n")
            for _ in range(rounds):
                place += 1
                text.append(f"    add.s32 %r3, %r3, 1;\n    match.any.sync.b32 %bh_m, {place}, -1;\n    vote.sync.ballot.b32 %bh_lo, 1, -1;\n")
            text.append(f"    add.s32 %r4, %r4, -1;\n    setp.gt.s32 %bh_q, %r4, 0;\n    @%bh_q bra $L{group}_{lane};\n{LOOK}")
            first = group * of_group
            for warp in range(first, first + of_group - 1):
                text.append(f"    setp.eq.s32 %p0, %r1, {warp};\n    @%p0 bra $U{warp};\n")
            text.append(f"    bra $U{first + of_group - 1};\n")
    return "".join(text), f"{total} rounds of {LANES} lanes that are apart, one warp after the other"


def stores(access, *_):
    turn = STORES * access + 3
    turns = (FUEL - 20) // turn
    place = "    mov.u32 %r0, %tid.x;\n    mov.u32 %r1, %ctaid.x;\n    and.b32 %r1, %r1, 255;\n    mad.lo.s32 %r2, %r1, 1024, %r0;\n"
    store = "".join(f"    st.global.u32 [%d1+{at << 23}], %r0;\n" for at in range(STORES))
    back = "    add.s32 %r4, %r4, -1;\n    setp.gt.s32 %p0, %r4, 0;\n    @%p0 bra $turn;\n    bra $again;\n"
    body = f"{place}    mad.wide.u32 %d1, %r2, 32, %d0;\n$again:\n{LOOK}    mov.u32 %r4, {turns};\n$turn:\n{store}{back}"
    return body, f"{turns * STORES} stores of each thread"


# Threads of a block whose lanes are apart and that wait for each other do as much as so many may alone (decision 0090).
APART = 760


def alone(steps):
    """The beginning of a text whose first thread of each block does all, in rounds of so many steps, and the end of a round."""
    begin = f"    mov.u32 %r0, %tid.x;\n    setp.ne.s32 %p0, %r0, 0;\n    @%p0 exit;\n$again:\n{LOOK}    mov.u32 %r4, {steps};\n"
    return begin, f"    @%p0 bra $turn;\n    st.global.u32 [%d0], %r3;\n    bra $again;\n"


def spills(*_):
    """1,900 registers that live on under .maxnreg 32: each step compares one and branches, so that the next load waits."""
    live, step = 1900, 3
    turns = APART * FUEL // step // live
    begin, end = alone(turns)
    text = [begin.replace("$again:\n", "    ld.global.u32 %r3, [%d0];\n" + "".join(f"    ld.global.u32 %s{n}, [%d0+{4 * n}];\n" for n in range(live)) + "$again:\n")]
    text.append("$turn:\n")
    # Other code behind each, which seldom runs: what is the same would become a selection.
    for n in range(live):
        text.append(f"    setp.ne.s32 %p0, %s{n}, %r3;\n    @%p0 bra $N{n};\n    add.s32 %r3, %r3, {2 * n + 1};\n    st.global.u32 [%d0+{4 * n}], %r3;\n$N{n}:\n")
    text.append("    add.s32 %r4, %r4, -1;\n    setp.gt.s32 %p0, %r4, 0;\n" + end)
    return "".join(text), f"{turns * live} steps of a thread, each with a spilled register,"


def code(*_):
    """9,600 places, each of which goes to one of two far ones."""
    nodes, step = 9600, 5
    steps = APART * FUEL // step
    begin, end = alone(steps)
    text = [begin, "    mov.u32 %r3, 12345;\n    bra $N0;\n"]
    for n in range(nodes):
        one, other = (n * 4801 + 2111) % nodes, (n * 7207 + 5003) % nodes
        text.append(f"$N{n}:\n    mad.lo.u32 %r3, %r3, 1664525, {2 * n + 1};\n    add.s32 %r4, %r4, -1;\n    setp.lt.s32 %p1, %r3, %r4;\n")
        text.append(f"    @%p1 bra $N{one};\n" + (f"    bra $N{other};\n" if n % 16 else f"    setp.gt.s32 %p0, %r4, 0;\n    @%p0 bra $N{other};\n    bra $end;\n"))
    text.append("$turn:\n    bra $N0;\n$end:\n    setp.lt.s32 %p0, %r3, %r4;\n    @%p0 exit;\n    st.global.u32 [%d0], %r3;\n    bra $again;\n")
    return "".join(text), f"{steps} steps of a thread between far places,"


def updates(*_):
    turns = FUEL // 512 - 1
    body = f"$again:\n{LOOK}    mov.u32 %r4, {turns};\n$turn:\n    atom.global.add.u32 %r3, [%d0], 1;\n"
    return body + "    add.s32 %r4, %r4, -1;\n    setp.gt.s32 %p0, %r4, 0;\n    @%p0 bra $turn;\n    bra $again;\n", f"{turns} updates of each thread"


TEXTS = {"serial": serial, "stores": stores, "gathers": gathers, "spills": spills, "code": code, "updates": updates}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=list(TEXTS))
    parser.add_argument("--access", type=int, default=16)
    parser.add_argument("--wait", type=int, default=32 + 8192)
    parser.add_argument("--lanes", type=int, default=16)
    options = parser.parse_args()
    body, tells = TEXTS[options.what](options.access, options.wait, options.lanes)
    registers = ".pred %p<2> .b32 %r<5> .b32 %s<1900> .b64 %d<2> .pred %bh_q .b32 %bh_base .b32 %bh_loadmask .b32 %bh_lo .b32 %bh_hi .b32 %bh_n .b32 %bh_m .b64 %bh_k"
    words = registers.split()
    declared = "".join(f"    .reg {kind} {name};\n" for kind, name in zip(words[::2], words[1::2]))
    hidden = "".join(f",\n    .param .u32 __bh_{name}" for name in ("base", "load", "store"))
    bound = " .maxnreg 32" if options.what == "spills" else ""
    print(f"// {tells} between two looks\n.version 9.0\n.target sm_90\n.address_size 64")
    print(f".visible .entry __bh_fast_k(\n    .param .u64 bh_v_p{hidden}\n){bound}\n{{\n{declared}    ld.param.u32 %bh_base, [__bh_base];")
    print(f"    ld.param.u32 %bh_loadmask, [__bh_load];\n    ld.param.u64 %d0, [bh_v_p];\n{body}}}")


if __name__ == "__main__":
    main()
