//! Lanes that go different ways, and what they do when they meet.
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

mod common;

use common::Machine;

#[test]
fn lanes_that_part_meet_again() {
    let mut machine = Machine::new();
    // After the two arms the whole warp votes: both arms must be there.
    let got = machine.warp(
        ".reg .pred %p; .reg .b32 %a, %b;",
        "and.b32 %a, %lane, 3;
         setp.lt.u32 %p, %a, 2;
         @%p bra $low;
         mul.lo.u32 %out, %lane, 100;
         bra.uni $join;
         $low: add.u32 %out, %lane, 7;
         $join: activemask.b32 %b;
         setp.ne.u32 %p, %b, 0xffffffff;
         @%p mov.u32 %out, 0;",
    );
    let expected: Vec<u32> = (0..32).map(|i| if i % 4 < 2 { i + 7 } else { i * 100 }).collect();
    assert_eq!(got, expected);
}

#[test]
fn each_lane_leaves_a_loop_at_its_own_time() {
    let mut machine = Machine::new();
    let got = machine.warp(
        ".reg .pred %p; .reg .b32 %i;",
        "mov.u32 %i, %lane;
         $loop: setp.eq.u32 %p, %i, 0;
         @%p bra $done;
         add.u32 %out, %out, %i;
         sub.u32 %i, %i, 1;
         bra $loop;
         $done: add.u32 %out, %out, 1000;",
    );
    let expected: Vec<u32> = (0..32).map(|i| i * (i + 1) / 2 + 1000).collect();
    assert_eq!(got, expected);
}

#[test]
fn predicated_instructions_touch_only_their_lanes() {
    let mut machine = Machine::new();
    let got = machine.warp(
        ".reg .pred %p, %q; .reg .b32 %a;",
        "and.b32 %a, %lane, 1;
         setp.eq.u32 %p|%q, %a, 1;
         mov.u32 %out, 5;
         @%p mov.u32 %out, 6;
         @!%p add.u32 %out, %out, 10;
         @%q add.u32 %out, %out, 100;
         @%p bra $end;
         add.u32 %out, %out, 1000;
         $end:",
    );
    let expected: Vec<u32> = (0..32).map(|i| if i % 2 == 1 { 6 } else { 1115 }).collect();
    assert_eq!(got, expected);
}

#[test]
fn an_exited_lane_stops_and_the_others_go_on() {
    let mut machine = Machine::new();
    let got = machine.warp(
        ".reg .pred %p, %q; .reg .b32 %a;",
        "setp.ge.u32 %p, %lane, 20;
         @%p exit;
         setp.ne.u32 %q, %lane, 99;
         vote.sync.ballot.b32 %out, %q, 0xffffffff;",
    );
    let expected: Vec<u32> = (0..32).map(|i| if i < 20 { 0xf_ffff } else { 0 }).collect();
    assert_eq!(got, expected);
}

#[test]
fn a_lane_may_wait_for_another_lane_of_its_warp() {
    let mut machine = Machine::new();
    // Lane 0 spins, lowest in the program, on a word that lane 31 sets behind it.
    let got = machine.warp(
        ".reg .pred %p; .reg .b32 %a; .shared .align 4 .b32 flag;",
        "st.volatile.shared.u32 [flag], 0;
         bar.warp.sync 0xffffffff;
         setp.eq.u32 %p, %lane, 0;
         @!%p bra $others;
         $spin: ld.volatile.shared.u32 %a, [flag];
         setp.eq.u32 %p, %a, 0;
         @%p bra $spin;
         bra $join;
         $others: setp.ne.u32 %p, %lane, 31;
         @%p bra $join;
         st.volatile.shared.u32 [flag], 77;
         $join: ld.volatile.shared.u32 %out, [flag];",
    );
    assert_eq!(got[0], 77);
    assert_eq!(got[31], 77);
}

#[test]
fn lanes_that_ask_who_is_there_wait_for_those_that_turn_for_long() {
    let mut machine = Machine::new();
    let got = machine.warp(
        ".reg .pred %p; .reg .b32 %i;",
        "mov.u32 %i, 0;
         setp.lt.u32 %p, %lane, 16; @%p bra $join;
         $turn: add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 100000; @%p bra $turn;
         $join: activemask.b32 %out;",
    );
    assert_eq!(got, [u32::MAX; 32]);
}

#[test]
fn lanes_that_wait_for_one_that_asks_who_is_there_do_not_wait_for_ever() {
    let mut machine = Machine::new();
    let got = machine.warp(
        ".reg .pred %p; .reg .b32 %i; .shared .b32 flag;",
        "mov.u32 %i, 0; st.shared.u32 [flag], %i; bar.warp.sync -1;
         setp.eq.u32 %p, %lane, 7; @%p bra $ask;
         $turn: ld.volatile.shared.u32 %i, [flag]; setp.eq.u32 %p, %i, 0; @%p bra $turn;
         mov.u32 %out, %i; bra $end;
         $ask: activemask.b32 %out; st.volatile.shared.u32 [flag], 5;
         $end:",
    );
    let expected: Vec<u32> = (0..32).map(|lane| if lane == 7 { 1 << 7 } else { 5 }).collect();
    assert_eq!(got, expected);
}

#[test]
fn lanes_of_a_warp_take_turns_at_a_lock() {
    let mut machine = Machine::new();
    let got = machine.warp(
        ".reg .pred %p; .reg .b32 %a; .shared .align 4 .b32 lock; .shared .align 4 .b32 sum;",
        "st.volatile.shared.u32 [lock], 0;
         st.volatile.shared.u32 [sum], 0;
         bar.warp.sync 0xffffffff;
         $try: atom.shared.cas.b32 %a, [lock], 0, 1;
         setp.ne.u32 %p, %a, 0;
         @%p bra $try;
         ld.volatile.shared.u32 %a, [sum];
         add.u32 %a, %a, %lane;
         st.volatile.shared.u32 [sum], %a;
         atom.shared.exch.b32 %a, [lock], 0;
         bar.warp.sync 0xffffffff;
         ld.volatile.shared.u32 %out, [sum];",
    );
    assert_eq!(got, vec![496; 32]);
}

#[test]
fn an_indexed_branch_reaches_every_target() {
    let mut machine = Machine::new();
    let got = machine.warp(
        ".reg .b32 %a;",
        "and.b32 %a, %lane, 3;
         $table: .branchtargets $zero, $one, $two, $three;
         brx.idx %a, $table;
         $zero: mov.u32 %out, 10; bra $end;
         $one: mov.u32 %out, 11; bra $end;
         $two: mov.u32 %out, 12; bra $end;
         $three: mov.u32 %out, 13;
         $end:",
    );
    let expected: Vec<u32> = (0..32).map(|i| 10 + i % 4).collect();
    assert_eq!(got, expected);
}

#[test]
fn names_of_an_inner_block_hide_those_outside() {
    let mut machine = Machine::new();
    let got = machine.warp(
        ".reg .b32 t;",
        "mov.u32 t, 3;
         { .reg .b32 t; mov.u32 t, 40; add.u32 %out, %out, t; }
         add.u32 %out, %out, t;",
    );
    assert_eq!(got, vec![43; 32]);
}

#[test]
fn special_registers_say_where_a_thread_is() {
    let mut machine = Machine::new();
    let got = machine.block(
        70,
        ".reg .b32 %a, %b;",
        "mov.u32 %a, %warpid; mov.u32 %b, %laneid; shl.b32 %a, %a, 8; or.b32 %out, %a, %b;
         mov.u32 %a, %lanemask_lt; popc.b32 %a, %a; shl.b32 %a, %a, 16; or.b32 %out, %out, %a;",
    );
    let expected: Vec<u32> = (0..70).map(|i| (i / 32) << 8 | (i % 32) | (i % 32) << 16).collect();
    assert_eq!(got, expected);
}

/// What the lanes that go one way do, those from 16 on, and those that go the other.
fn two_ways(low: &str, high: &str) -> String {
    format!(
        "setp.ge.u32 %p, %lane, 16;
         @%p bra $high;
         {low}
         bra $out;
         $high: {high}
         $out:"
    )
}

#[test]
fn lanes_meet_at_warp_barriers_wherever_those_stand() {
    let mut machine = Machine::new();
    // Three of one way, five of the other: whoever is through is not waited for.
    let turns = |count: u32, label: &str| {
        format!(
            "mov.u32 %a, 0;
             {label}: bar.warp.sync -1;
             activemask.b32 %b;
             add.u32 %out, %out, %b;
             add.u32 %a, %a, 1;
             setp.lt.u32 %q, %a, {count};
             @%q bra {label};"
        )
    };
    let body = two_ways(&turns(3, "$l"), &turns(5, "$h"));
    let got = machine.warp(
        ".reg .pred %p, %q; .reg .b32 %a, %b;",
        &format!("mov.u32 %out, 0; {body} bar.warp.sync -1; bar.warp.sync -1;"),
    );
    let expected: Vec<u32> =
        (0..32).map(|i| if i < 16 { 3 * 0xffff } else { 0xffff_0000_u32.wrapping_mul(5) }).collect();
    assert_eq!(got, expected);
}

#[test]
fn votes_of_a_kind_are_one_wherever_they_stand() {
    let mut machine = Machine::new();
    let body = two_ways(
        "setp.lt.u32 %q, %lane, 4; vote.sync.ballot.b32 %a, %q, -1; activemask.b32 %out; add.u32 %out, %out, %a;",
        "setp.lt.u32 %q, %lane, 20; setp.eq.u32 %p, %lane, 31; @%p exit;
         vote.sync.ballot.b32 %b, %q, -1; activemask.b32 %out; add.u32 %out, %out, %b;",
    );
    let got = machine.warp(".reg .pred %p, %q; .reg .b32 %a, %b;", &body);
    for (lane, got) in got.iter().enumerate().take(31) {
        let here = if lane < 16 { 0xffff } else { 0x7fff_0000 };
        assert_eq!(*got, here + 0x000f_000f, "{lane}");
    }
}

#[test]
fn lanes_that_come_late_to_a_warp_barrier_go_on_with_those_before_it() {
    let mut machine = Machine::new();
    let got = machine.warp(
        ".reg .pred %p; .reg .b32 %i, %b;",
        "mul.lo.u32 %i, %lane, 7;
         setp.lt.u32 %p, %lane, 3;
         @%p exit;
         $loop: sub.u32 %i, %i, 1;
         setp.gt.u32 %p, %i, 1;
         @%p bra $loop;
         bar.warp.sync -1;
         activemask.b32 %out;",
    );
    assert!(got.iter().skip(3).all(|here| *here == 0xffff_fff8), "{got:x?}");
}
