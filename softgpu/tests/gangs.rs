//! Lanes of a warp that run as one: they leave what the interpreter leaves, and the counts tell that they ran.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test stops where something is wrong"
)]

mod common;

use bulkhead_gpu::{Error, Gpu, Launch};
use bulkhead_softgpu::{Engine, GangCounts};
use common::{Machine, Parameters, WINDOW};

/// Words that each thread may write.
const WORDS: usize = 8;

/// An entry: `%id` is the thread's number in its block, `%mine` its words, `%from` 4 KiB of what all read, with
/// words 0 to 1023 in it.
fn entry(declarations: &str, body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n
         .visible .entry test(.param .u64 out, .param .u64 in, .param .u32 n)\n{{\n
         .reg .b64 %out, %from, %mine, %at, %bt, %ct; .reg .b32 %id, %x, %y, %z, %n, %i, %s, %t; .reg .pred %p, %q;
         .reg .b32 %a, %b, %c, %k; .reg .f32 %f, %g, %h; .reg .f64 %d, %e; .reg .b16 %u, %v;\n{declarations}\n
         ld.param.u64 %out, [out]; ld.param.u64 %from, [in]; ld.param.u32 %n, [n];
         mov.u32 %x, %tid.y; mov.u32 %y, %ntid.x; mov.u32 %z, %tid.x; mad.lo.u32 %id, %x, %y, %z;
         mul.wide.u32 %at, %id, 32; add.s64 %mine, %out, %at;
         mov.u32 %x, 0; mov.u32 %y, 0; mov.u32 %s, 0;\n
         {body}\n
         st.global.u32 [%mine], %s;\nret;\n}}\n"
    )
}

struct Ran {
    left: Result<Vec<u32>, Error>,
    counts: Option<GangCounts>,
}

fn run(engine: Engine, ptx: &str, block: [u32; 3], n: u32, out: Option<u64>) -> Ran {
    let mut machine = Machine::of(engine);
    let image = machine.gpu.load(ptx).unwrap_or_else(|error| panic!("{error}\n{ptx}"));
    let id = image.entries[0].id;
    let words: Vec<u32> = (0..1024).collect();
    let from = machine.upload_u32(&words);
    let threads = block.iter().product::<u32>() as usize;
    let out = out.unwrap_or_else(|| machine.buffer(threads * WORDS * 4));
    let parameters = Parameters::default().u64(out).u64(from).u32(n).0;
    let launch = Launch { grid: [1, 1, 1], block, shared_bytes: 0, parameters: &parameters };
    machine.gpu.launch(machine.stream, id, &launch).unwrap();
    let left = machine.gpu.synchronize(machine.stream);
    let counts = machine.gpu.gang_counts(id).unwrap();
    let left = left.map(|()| machine.download_u32(out, threads * WORDS));
    Ran { left, counts }
}

/// Runs it in both engines, which leave the same; answers how gangs ran.
fn both(block: [u32; 3], declarations: &str, body: &str, n: u32) -> GangCounts {
    let ptx = entry(declarations, body);
    let one = run(Engine::Interpreter, &ptx, block, n, None);
    let other = run(Engine::Compiled, &ptx, block, n, None);
    assert_eq!(one.left, other.left, "{block:?}, {n}: {body}");
    assert_eq!(one.counts, None);
    other.counts.unwrap_or_default()
}

/// What all lanes of a gang do together, with no need to part.
const TOGETHER: [&str; 27] = [
    // The same for all, with a loop.
    "mov.u32 %i, 0; $loop: add.u32 %s, %s, %n; xor.b32 %s, %s, %i; add.u32 %i, %i, 1; setp.lt.u32 %p, %i, %n; @%p bra $loop;",
    // Addresses that follow, of all sizes.
    "mul.wide.u32 %at, %id, 4; add.s64 %at, %from, %at; ld.global.u32 %s, [%at+8]; mad.lo.u32 %s, %s, %s, %id;",
    "cvt.u64.u32 %at, %id; add.s64 %at, %from, %at; ld.global.u8 %s, [%at+4]; ld.global.s8 %x, [%at+9]; add.u32 %s, %s, %x; st.global.u8 [%mine+9], %s;",
    "mul.wide.s32 %at, %id, 2; add.s64 %at, %from, %at; ld.global.u16 %u, [%at+4]; ld.global.s16 %x, [%at+512]; cvt.u32.u16 %s, %u; add.u32 %s, %s, %x;",
    "shl.b32 %x, %id, 3; cvt.u64.u32 %at, %x; add.s64 %at, %from, %at; ld.global.u64 %bt, [%at+8]; st.global.u64 [%mine+8], %bt; ld.global.f64 %d, [%at]; add.rn.f64 %d, %d, %d; st.global.f64 [%mine+16], %d;",
    "mul.wide.u32 %at, %id, 16; add.s64 %at, %from, %at; ld.global.v4.u32 {%s, %x, %y, %z}, [%at]; st.global.v2.u32 [%mine+8], {%x, %z}; add.u32 %s, %s, %y;",
    "mul.wide.u32 %at, %id, 12; add.s64 %at, %from, %at; ld.global.f32 %f, [%at+4]; fma.rn.f32 %f, %f, 0f40000000, %f; st.global.f32 [%mine+4], %f;",
    // Addresses as the guard confines them, in registers that are used for other things too.
    "mul.wide.u32 %at, %id, 4; add.s64 %at, %from, %at; mul.lo.u32 %x, %id, %id; mov.b64 {%x, %y}, %at; lop3.b32 %y, %y, -1, 0, 234; and.b32 %x, %x, -4; mov.b64 %bt, {%x, %y}; ld.global.u32 %s, [%bt]; mov.b64 {%x, %y}, %mine; lop3.b32 %y, %y, -1, 0, 234; and.b32 %x, %x, -4; mov.b64 %bt, {%x, %y}; st.global.u32 [%bt+4], %s; xor.b32 %s, %s, %x;",
    "mul.wide.u32 %at, %id, 4; add.s64 %at, %from, %at; mov.b64 {%x, %y}, %at; setp.ne.u32 %p, %n, 0; @%p and.b32 %x, %x, -8; mov.b64 %bt, {%x, %y}; ld.global.u32 %s, [%bt]; lop3.b32 %z, %x, 3, %y, 234; add.u32 %s, %s, %z;",
    "and.b32 %i, %id, 1; setp.eq.u32 %p, %i, 0; mul.wide.u32 %at, %id, 4; add.s64 %at, %from, %at; mov.b64 {%x, %y}, %at; @%p mov.b64 {%x, %y}, %from; mov.b64 %bt, {%x, %y}; ld.global.u32 %s, [%bt];",
    // One address, and what each lane has itself.
    "ld.global.u32 %s, [%from+40]; add.u32 %s, %s, %id; ld.global.v2.u32 {%x, %y}, [%from+64]; mad.lo.u32 %s, %x, %y, %s;",
    "st.global.u32 [%out+28], 77; st.global.u32 [%mine+8], 5;",
    // Addresses that do not follow, or go down.
    "mul.lo.u32 %x, %id, %id; and.b32 %x, %x, 1023; mul.wide.u32 %at, %x, 4; add.s64 %at, %from, %at; ld.global.u32 %s, [%at]; st.global.u32 [%mine+4], %x;",
    "sub.u32 %x, 1000, %id; mul.wide.u32 %at, %x, 4; add.s64 %at, %from, %at; ld.global.u32 %s, [%at];",
    "mul.lo.u32 %x, %id, 7; and.b32 %x, %x, 31; shl.b32 %x, %x, 2; mov.u32 %y, board; add.u32 %x, %x, %y; st.shared.u32 [%x], %id; ld.shared.u32 %s, [%x];",
    // Shared and local memory.
    "shl.b32 %x, %id, 2; mov.u32 %y, board; add.u32 %x, %x, %y; st.shared.u32 [%x], %id; bar.sync 0; xor.b32 %z, %x, 4; ld.shared.u32 %s, [%z]; ld.shared.u32 %t, [board+12]; add.u32 %s, %s, %t;",
    "shl.b32 %x, %id, 1; mov.u32 %y, board; add.u32 %x, %x, %y; cvt.u16.u32 %u, %id; st.shared.u16 [%x], %u; bar.sync 0; ld.shared.u16 %v, [board+6]; ld.shared.u16 %u, [%x]; mul.wide.u16 %s, %u, %v;",
    "mov.u32 %x, scratch; st.local.u32 [%x], %id; st.local.u32 [%x+4], 9; ld.local.v2.u32 {%s, %y}, [%x]; mad.lo.u32 %s, %s, %y, 1;",
    "mov.u32 %x, scratch; and.b32 %z, %id, 4; add.u32 %x, %x, %z; st.local.u32 [%x], %id; ld.local.u32 %s, [%x];",
    "mov.u64 %at, scratch; cvta.local.u64 %at, %at; st.u32 [%at], %id; ld.u32 %s, [%at]; ld.u32 %x, [%from+8]; add.u32 %s, %s, %x;",
    // Predicates that differ.
    "and.b32 %x, %id, 1; setp.eq.u32 %p, %x, 0; @%p add.u32 %s, %s, 5; @!%p st.global.u32 [%mine+8], %id; selp.u32 %x, 3, 4, %p; add.u32 %s, %s, %x;",
    "setp.gt.u32 %p, %id, 20; @%p ld.global.u32 %s, [%from+16]; mul.wide.u32 %at, %id, 4; add.s64 %at, %from, %at; @%p ld.global.u32 %x, [%at]; @!%p atom.global.add.u32 %y, [%mine+12], %id; add.u32 %s, %s, %x;",
    "setp.lt.u32 %p, %id, 5000; @%p st.global.u32 [%mine+8], %id; setp.gt.u32 %q, %id, 5000; @%q st.global.u32 [%mine+8], 1; setp.lt.and.u32 %p|%q, %id, 9, %p; @%q add.u32 %s, %s, 1;",
    // What vectors do not do, and calls.
    "popc.b32 %x, %id; clz.b32 %y, %id; bfe.u32 %z, %id, 1, 3; div.u32 %t, %id, 3; add.u32 %s, %x, %y; mad.lo.u32 %s, %z, %t, %s; cvt.rn.f64.u32 %d, %id; sqrt.rn.f64 %d, %d; st.global.f64 [%mine+16], %d;",
    "and.b32 %x, %id, 3; shl.b32 %s, %id, %x; shr.s32 %y, %s, %x; add.cc.u32 %s, %s, %y; addc.u32 %s, %s, 0; mov.u32 %t, %lanemask_lt; xor.b32 %s, %s, %t;",
    // Atomics of all lanes on one word, whose order is nobody's business.
    "mov.u32 %y, board; st.shared.u32 [%y], 0; bar.sync 0; atom.shared.add.u32 %x, [%y], %id; bar.sync 0; ld.shared.u32 %s, [%y];",
    // Meetings.
    "shfl.sync.bfly.b32 %s, %id, 3, 31, 0xffffffff; vote.sync.ballot.b32 %x, 1, 0xffffffff; add.u32 %s, %s, %x; redux.sync.add.u32 %y, %id, 0xffffffff; mad.lo.u32 %s, %s, %y, %id;",
];

const MEMORY: &str = ".shared .align 8 .b8 board[1024]; .local .align 8 .b8 scratch[16];";

#[test]
fn a_gang_does_what_its_lanes_do() {
    for body in TOGETHER {
        for block in [[32, 1, 1], [128, 1, 1], [32, 4, 1], [16, 8, 1], [8, 4, 1], [40, 2, 1], [64, 1, 2]] {
            // With 8 lanes in a row addresses of the shared board would run over it in blocks of two rows.
            let counts = both(block, MEMORY, body, 11);
            assert!(counts.ran > 0, "{block:?}: {body}");
            assert_eq!(counts.parted, 0, "{block:?}: {body}");
        }
    }
}

#[test]
fn lanes_that_do_not_stand_side_by_side_are_no_gang() {
    for block in [[12, 8, 1], [31, 1, 1], [5, 5, 5], [4, 16, 1]] {
        assert_eq!(both(block, MEMORY, TOGETHER[1], 3), GangCounts::default(), "{block:?}");
    }
    // The last lanes of a block are none either.
    assert_eq!(both([40, 1, 1], MEMORY, TOGETHER[1], 3), GangCounts { ran: 1, parted: 0 });
    // An entry compiled for one shape runs in another.
    let ptx = entry(MEMORY, TOGETHER[1]);
    let mut machine = Machine::of(Engine::Compiled);
    let id = machine.entry(&ptx).id;
    let words: Vec<u32> = (0..1024).collect();
    let (from, out) = (machine.upload_u32(&words), machine.buffer(128 * 32));
    let parameters = Parameters::default().u64(out).u64(from).u32(1).0;
    let mut first = None;
    for block in [[64, 1, 1], [16, 4, 1], [8, 8, 1]] {
        let launch = Launch { grid: [1, 1, 1], block, shared_bytes: 0, parameters: &parameters };
        machine.gpu.launch(machine.stream, id, &launch).unwrap();
        machine.gpu.synchronize(machine.stream).unwrap();
        assert_eq!(machine.gpu.gang_counts(id).unwrap(), Some(GangCounts { ran: 2, parted: 0 }));
        let left = machine.download_u32(out, 64 * WORDS);
        assert_eq!(*first.get_or_insert(left.clone()), left, "{block:?}");
    }
}

/// What makes lanes part, at each kind of place.
const APART: [&str; 13] = [
    // A branch forward, in one direction and the other; an exit.
    "setp.gt.u32 %p, %id, 5; mov.u32 %s, %id; @%p bra $end; mul.lo.u32 %s, %s, 3; $end: add.u32 %s, %s, 1;",
    "setp.gt.u32 %p, %id, 5; mov.u32 %s, %id; @!%p bra $end; mul.lo.u32 %s, %s, 3; st.global.u32 [%mine+4], %s; $end: add.u32 %s, %s, 1;",
    "setp.eq.u32 %p, %id, 9; st.global.u32 [%mine+4], 8; @%p exit; mov.u32 %s, 7;",
    // A loop of another number of turns for each lane, and one in which they part late.
    "and.b32 %x, %id, 7; $loop: mad.lo.u32 %s, %s, 3, %x; setp.ne.u32 %p, %x, 0; sub.u32 %x, %x, 1; @%p bra $loop;",
    "mov.u32 %i, 0; $loop: mad.lo.u32 %s, %s, 3, %id; add.u32 %i, %i, 1; add.u32 %x, %id, 50; setp.lt.u32 %p, %i, %x; @%p bra $loop;",
    // They come together again behind a meeting.
    "setp.gt.u32 %p, %id, 5; @%p bra $one; mov.u32 %s, 7; bra $both; $one: mov.u32 %s, 9; mul.lo.u32 %x, %id, 5; $both: bar.warp.sync 0xffffffff; add.u32 %s, %s, %x; ld.global.u32 %y, [%from+4]; add.u32 %s, %s, %y;",
    "setp.gt.u32 %p, %id, 5; @%p bra $one; mov.u32 %s, 7; bra $both; $one: mov.u32 %s, 9; $both: bar.warp.sync 0xffffffff; mov.u32 %t, %id; mul.lo.u32 %s, %s, %t; shl.b32 %t, %id, 2; cvt.u64.u32 %at, %t; add.s64 %at, %at, %from; ld.global.u32 %x, [%at]; add.u32 %s, %s, %x;",
    // Quotients, remainders and shifts that are not those of one row.
    "mov.u32 %k, %tid.x; div.u32 %a, %k, %n; rem.u32 %b, %k, %n; mad.lo.u32 %s, %a, 100, %b; st.global.u32 [%mine+4], %b;",
    "mov.u32 %k, %tid.x; add.u32 %a, %k, 29; shr.u32 %b, %a, 5; st.global.u32 [%mine+4], %b; and.b32 %c, %a, 31; add.u32 %s, %c, %b;",
    "mov.u32 %k, %tid.x; sub.u32 %a, %k, 4; div.s32 %b, %a, %n; st.global.u32 [%mine+4], %b; rem.s32 %c, %a, %n; mov.u32 %s, %c;",
    // The high half of a word that some lanes carry into.
    "mov.u32 %k, %tid.x; mul.wide.u32 %at, %k, 4; add.s64 %at, %at, 0x2fffffff4; mov.b64 {%a, %b}, %at; and.b32 %a, %a, -4; mov.b64 %bt, {%a, %b}; st.global.u64 [%mine+8], %bt; xor.b32 %s, %a, %b;",
    // Numbers that wrap on the way.
    "mov.u32 %k, %tid.x; sub.u32 %a, %k, 5; mul.wide.u32 %bt, %a, 4; st.global.u64 [%mine+8], %bt; cvt.u64.u32 %ct, %a; st.global.u64 [%mine+16], %ct;",
    "mov.u32 %k, %tid.x; add.u32 %a, %k, 0x7ffffffb; mul.wide.s32 %bt, %a, 4; st.global.u64 [%mine+8], %bt; cvt.s64.s32 %ct, %a; st.global.u64 [%mine+16], %ct;",
];

#[test]
fn a_gang_that_parts_leaves_what_its_lanes_would() {
    for body in APART {
        for (block, n) in
            [([32, 1, 1], 7), ([96, 1, 1], 40), ([16, 4, 1], 5), ([8, 8, 1], 3), ([64, 1, 1], 0)]
        {
            let counts = both(block, MEMORY, body, n);
            assert!(counts.ran > 0 && (counts.parted > 0 || n == 0), "{block:?}, {n}, {counts:?}: {body}");
        }
    }
}

#[test]
fn what_follows_from_lane_to_lane_is_not_taken_on_trust() {
    // Lanes come to a meeting with words that are even in the text and not in the lanes.
    let body = "setp.gt.u32 %p, %id, 5; mov.u32 %t, 0; @%p bra $one; mov.u32 %t, 4; bra $both; $one: mov.u32 %t, 8;
                $both: bar.warp.sync 0xffffffff; cvt.u64.u32 %at, %t; add.s64 %at, %at, %from; ld.global.u32 %s, [%at];
                bar.warp.sync 0xffffffff; add.u32 %s, %s, %t;";
    let counts = both([32, 1, 1], MEMORY, body, 1);
    assert_eq!(counts, GangCounts { ran: 1, parted: 1 });
    // Where they are, it comes in again.
    let counts = both([32, 1, 1], MEMORY, &body.replace("%id, 5", "%id, 50"), 1);
    assert_eq!(counts, GangCounts { ran: 3, parted: 0 });
}

#[test]
fn gangs_that_only_part_are_given_up() {
    let body = "mov.u32 %i, 0;
                $loop: shr.u32 %x, %id, 1; and.b32 %x, %x, 1; setp.eq.u32 %p, %x, 0; @%p bra $one; add.u32 %s, %s, %id;
                $one: add.u32 %s, %s, %i; bar.warp.sync 0xffffffff; add.u32 %i, %i, 1; setp.lt.u32 %p, %i, %n; @%p bra $loop;";
    let counts = both([32, 1, 1], MEMORY, body, 2000);
    assert!((200..600).contains(&counts.parted), "{counts:?}");
}

#[test]
fn a_loop_for_long_leaves_others_their_turns() {
    // The first warp waits for a word of the second one.
    let body = "st.shared.u32 [board], 0; bar.sync 0; setp.lt.u32 %p, %id, 32; @%p bra $wait;
                mov.u32 %i, 0; $count: add.u32 %i, %i, 1; setp.lt.u32 %q, %i, 20000; @%q bra $count;
                st.volatile.shared.u32 [board], 6; bra $end;
                $wait: ld.volatile.shared.u32 %s, [board]; setp.eq.u32 %q, %s, 0; @%q bra $wait; $end:";
    let counts = both([64, 1, 1], MEMORY, body, 1);
    assert!(counts.ran > 2, "{counts:?}");
    // And a lane for another one of its warp.
    let body = "st.shared.u32 [board], 0; bar.sync 0; setp.ne.u32 %p, %id, 17; @%p bra $wait;
                st.volatile.shared.u32 [board], 6; bra $end;
                $wait: ld.volatile.shared.u32 %s, [board]; setp.eq.u32 %q, %s, 0; @%q bra $wait; $end:";
    assert!(both([32, 1, 1], MEMORY, body, 1).parted > 0);
}

#[test]
fn faults_of_a_gang_are_those_of_its_lanes() {
    for body in [
        // The last lane, one in the middle, all of them.
        "mul.wide.u32 %at, %id, 4; add.s64 %at, %at, %from; add.s64 %at, %at, 0x3ffffc0; ld.global.u32 %s, [%at];",
        "mul.wide.u32 %at, %id, 8; add.s64 %at, %at, %from; add.s64 %at, %at, 0x3ffffc0; st.global.u64 [%at], %at;",
        "mul.lo.u32 %x, %id, %id; mul.wide.u32 %at, %x, 0x20000; add.s64 %at, %at, %from; ld.global.u32 %s, [%at];",
        "mov.u64 %at, 64; ld.global.u32 %s, [%at];",
        "mov.u64 %at, 64; mul.wide.u32 %bt, %id, 4; add.s64 %at, %at, %bt; ld.global.u32 %s, [%at];",
        // Misaligned.
        "mul.wide.u32 %at, %id, 4; add.s64 %at, %at, %from; ld.global.u32 %s, [%at+2];",
        "mul.wide.u32 %at, %id, 6; add.s64 %at, %at, %from; ld.global.u32 %s, [%at];",
        "mul.wide.u32 %at, %id, 8; add.s64 %at, %at, %from; ld.global.v4.u32 {%s, %x, %y, %z}, [%at];",
        // Of shared memory: beyond its end, before its start, and round the end of 32 bits.
        "mov.u32 %y, board; mad.lo.u32 %x, %id, 16, %y; ld.shared.u32 %s, [%x+900];",
        "mov.u32 %y, board; mad.lo.u32 %x, %id, 4, %y; ld.shared.u32 %s, [%x+-8];",
        "mov.u32 %y, board; cvt.u32.u32 %x, %id; add.u32 %x, %x, %y; ld.shared.u8 %s, [%x+-4];",
        "shl.b32 %x, %id, 2; add.u32 %x, %x, 0xffffffc0; ld.shared.u32 %s, [%x+1088];",
        "mov.u32 %x, scratch; st.local.u32 [%x+16], %id;",
        // For some of the lanes.
        "mov.u64 %at, 4096; setp.eq.u32 %p, %id, 21; @%p st.global.u32 [%at], 7;",
        "setp.eq.u32 %p, %id, 21; @%p trap;",
        "mov.u64 %at, 64; setp.eq.u32 %p, %id, 3; @%p atom.global.add.u32 %s, [%at], 1;",
    ] {
        let ptx = entry(MEMORY, body);
        for block in [[32, 1, 1], [16, 4, 1]] {
            let (one, other) =
                (run(Engine::Interpreter, &ptx, block, 1, None), run(Engine::Compiled, &ptx, block, 1, None));
            assert!(matches!(one.left, Err(Error::Lost { .. })), "{body}: {:?}", one.left);
            assert_eq!(one.left, other.left, "{body}");
            assert!(other.counts.unwrap().ran > 0, "{body}");
        }
    }
}

#[test]
fn a_page_may_end_inside_a_gang() {
    let body = "st.global.u32 [%mine+4], %id; ld.global.u32 %x, [%mine+4]; add.u32 %s, %x, 1; cvt.u64.u32 %at, %id; st.global.u64 [%mine+8], %at;
                mul.wide.u32 %at, %id, 4; sub.s64 %bt, %out, %at; mad.wide.u32 %bt, %id, 8, %bt; ld.global.u32 %y, [%bt]; st.global.u32 [%bt+512], %y;";
    // The first of a page's bytes beyond the threads' words, at several places of them.
    for back in [512u64, 260, 516, 32, 1000] {
        let out = WINDOW + (4 << 20) - (back & !31);
        let ptx = entry(MEMORY, body);
        let [one, other] =
            [Engine::Interpreter, Engine::Compiled].map(|engine| run(engine, &ptx, [32, 1, 1], 1, Some(out)));
        assert_eq!(one.left.unwrap(), other.left.unwrap(), "{back}");
        assert_eq!(other.counts, Some(GangCounts { ran: 1, parted: 0 }));
    }
}

/// All lanes store to one address: what varies, and under a predicate too.
#[test]
fn of_what_lanes_store_to_one_address_the_last_stays() {
    let body = "mul.wide.u32 %bt, %id, 8; add.s64 %ct, %bt, 5; st.global.u64 [%out+8], %ct; bar.sync 0;
        setp.gt.u32 %p, %id, 3; @%p st.global.u32 [%out+16], %id; bar.sync 0; st.global.u32 [%out+20], %n;";
    let counts = both([64, 1, 1], "", body, 3);
    assert!(counts.ran > 0, "{counts:?}");
}

#[test]
fn an_entry_of_many_short_blocks_is_compiled_for_gangs_while_it_runs() {
    let ptx = entry(
        "",
        "mov.u32 %i, 0; $loop: mad.lo.u32 %s, %s, 3, %id; add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 3000; @%p bra $loop;",
    );
    let mut machine = Machine::of(Engine::Mixed);
    let id = machine.entry(&ptx).id;
    let (from, out) = (machine.upload_u32(&[0; 64]), machine.buffer(32 * 32));
    let parameters = Parameters::default().u64(out).u64(from).u32(1).0;
    let launch = Launch { grid: [100, 1, 1], block: [32, 1, 1], shared_bytes: 0, parameters: &parameters };
    machine.gpu.launch(machine.stream, id, &launch).unwrap();
    machine.gpu.synchronize(machine.stream).unwrap();
    assert!(machine.gpu.gang_counts(id).unwrap().is_some_and(|counts| counts.ran > 0));
}

#[test]
fn barriers_that_all_warps_come_to_in_step_are_barriers() {
    // Words go round from warp to warp, through shared memory, with a barrier before and behind each load.
    let round = "shl.b32 %x, %id, 2; mov.u32 %y, board; add.u32 %x, %x, %y; add.u32 %z, %id, 96; rem.u32 %z, %z, 128; shl.b32 %z, %z, 2; add.u32 %z, %z, %y;
        mul.lo.u32 %s, %id, %id; mov.u32 %i, 0;
        $loop: st.shared.u32 [%x], %s; bar.sync 0; ld.shared.u32 %t, [%z]; BODY bar.sync 1; mad.lo.u32 %s, %t, 3, %i;
        add.u32 %i, %i, 1; setp.lt.u32 %p, %i, %n; @%p bra $loop;";
    for body in [
        "",
        // Lanes of some warps part, and have other words behind the barrier, in what is even in the text.
        "and.b32 %a, %i, 3; setp.ne.u32 %q, %a, 1; @%q bra $on; setp.gt.u32 %q, %id, 40; @%q bra $on; mov.u32 %i, %i; $on: add.u32 %t, %t, 1;",
        // What interpreted lanes do between two barriers.
        "shfl.sync.bfly.b32 %t, %t, 3, 31, 0xffffffff;",
        "bar.red.popc.u32 %a, 2, 128, %p; add.u32 %t, %t, %a;",
        "bar.arrive 3, 256; and.b32 %a, %id, 1; setp.eq.u32 %q, %a, 0; bar.red.or.pred %q, 4, %q; selp.u32 %a, 1, 2, %q; add.u32 %t, %t, %a;",
    ] {
        let counts = both([128, 1, 1], MEMORY, &round.replace("BODY", body), 9);
        assert!(counts.ran > 36, "{counts:?}: {body}");
    }
    // Some warps end early, and half a warp; the others meet without them.
    for end in ["%id, 63", "%id, 79", "%id, 15"] {
        let body = format!(
            "setp.gt.u32 %p, {end}; @%p exit; st.shared.u32 [board], 4; bar.sync 0; ld.shared.u32 %s, [board]; bar.sync 0; add.u32 %s, %s, %id;"
        );
        assert!(both([128, 1, 1], MEMORY, &body, 1).ran > 3, "{end}");
    }
    // Of different barriers none opens; of those that there are not, no lane passes one.
    for body in [
        "setp.gt.u32 %p, %id, 63; @%p bra $two; bar.sync 0; bra $end; $two: bar.sync 1; $end:",
        "bar.sync 16;",
    ] {
        let ptx = entry(MEMORY, body);
        let [one, other] =
            [Engine::Interpreter, Engine::Compiled].map(|engine| run(engine, &ptx, [128, 1, 1], 1, None));
        assert!(matches!(one.left, Err(Error::Lost { .. })), "{body}: {:?}", one.left);
        assert_eq!(one.left, other.left, "{body}");
    }
}
