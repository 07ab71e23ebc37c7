//! What lanes and warps do together: barriers, shuffles, votes, matches, reductions.
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

mod common;

use common::Machine;

#[test]
fn a_barrier_makes_every_store_visible() {
    let mut machine = Machine::new();
    let got = machine.block(
        1024,
        ".reg .b32 %a, %b; .shared .align 4 .b32 words[1024];",
        "mov.u32 %a, words; shl.b32 %b, %lane, 2; add.u32 %b, %a, %b;
         st.shared.u32 [%b], %lane;
         bar.sync 0;
         xor.b32 %b, %lane, 1023; shl.b32 %b, %b, 2; add.u32 %b, %a, %b;
         ld.shared.u32 %out, [%b];",
    );
    let expected: Vec<u32> = (0..1024).map(|i| 1023 - i).collect();
    assert_eq!(got, expected);
}

#[test]
fn a_barrier_does_not_wait_for_threads_that_exited() {
    let mut machine = Machine::new();
    let got = machine.block(
        100,
        ".reg .pred %p; .reg .b32 %a; .shared .align 4 .b32 count;",
        "st.shared.u32 [count], 0;
         barrier.sync 0;
         setp.ge.u32 %p, %lane, 50;
         @%p exit;
         atom.shared.add.u32 %a, [count], 1;
         barrier.sync 0;
         ld.shared.u32 %out, [count];",
    );
    assert_eq!(got[..50], [50; 50]);
    assert_eq!(got[50..], [0; 50]);
}

#[test]
fn a_barrier_reached_from_different_places_is_one_barrier() {
    let mut machine = Machine::new();
    let got = machine.block(
        64,
        ".reg .pred %p; .reg .b32 %a; .shared .align 4 .b32 count;",
        "st.shared.u32 [count], 0;
         barrier.sync 0;
         atom.shared.add.u32 %a, [count], 1;
         setp.lt.u32 %p, %lane, 40;
         @%p bra $low;
         barrier.sync 0;
         bra $end;
         $low: barrier.sync 0;
         $end: ld.shared.u32 %out, [count];",
    );
    assert_eq!(got, vec![64; 64]);
}

#[test]
fn producers_arrive_and_consumers_wait() {
    let mut machine = Machine::new();
    // Warp 1 waits at barrier 3 for warp 0, which only arrives and goes on.
    let got = machine.block(
        64,
        ".reg .pred %p; .shared .align 4 .b32 word;",
        "setp.ge.u32 %p, %lane, 32;
         @%p bra $wait;
         st.shared.u32 [word], 9;
         bar.arrive 3, 64;
         bra $end;
         $wait: bar.sync 3, 64;
         ld.shared.u32 %out, [word];
         $end:",
    );
    assert_eq!(got[32..], [9; 32]);
}

#[test]
fn a_reducing_barrier_counts_and_combines() {
    let mut machine = Machine::new();
    let got = machine.block(
        96,
        ".reg .pred %p, %all, %any; .reg .b32 %n;",
        "setp.lt.u32 %p, %lane, 37;
         bar.red.popc.u32 %n, 0, %p;
         bar.red.and.pred %all, 1, %p;
         bar.red.or.pred %any, 2, !%p;
         selp.b32 %out, 1000, 0, %all;
         add.u32 %out, %out, %n;
         @%any add.u32 %out, %out, 500;",
    );
    assert_eq!(got, vec![537; 96]);
}

#[test]
fn shuffles_find_their_lane_and_say_whether_it_was_in_range() {
    let mut machine = Machine::new();
    let mut shuffle = |mode: &str, b: u32, c: u32| {
        machine.warp(
            ".reg .pred %p; .reg .b32 %a, %v;",
            &format!(
                "add.u32 %v, %lane, 100;
                 shfl.sync.{mode}.b32 %out|%p, %v, {b}, {c}, 0xffffffff;
                 @%p add.u32 %out, %out, 1000;"
            ),
        )
    };
    let expect = |f: &dyn Fn(i64) -> Option<i64>| -> Vec<u32> {
        (0..32).map(|i| u32::try_from(f(i).map_or(100 + i, |j| 1100 + j)).unwrap()).collect()
    };
    assert_eq!(shuffle("down", 5, 31), expect(&|i| (i + 5 < 32).then_some(i + 5)));
    assert_eq!(shuffle("up", 3, 0), expect(&|i| (i >= 3).then_some(i - 3)));
    assert_eq!(shuffle("bfly", 9, 31), expect(&|i| Some(i ^ 9)));
    assert_eq!(shuffle("idx", 7, 31), expect(&|_| Some(7)));
    // Segments of 8 lanes: mask 0x18 above, clamp 7 below.
    assert_eq!(shuffle("down", 2, 0x1807), expect(&|i| (i % 8 + 2 < 8).then_some(i + 2)));
    assert_eq!(shuffle("up", 2, 0x1800), expect(&|i| (i % 8 >= 2).then_some(i - 2)));
    assert_eq!(shuffle("idx", 3, 0x1807), expect(&|i| Some(i / 8 * 8 + 3)));
}

#[test]
fn a_shuffle_waits_for_lanes_that_are_still_elsewhere() {
    let mut machine = Machine::new();
    // The upper half arrives later, from a loop above; the shuffle stands below both.
    let got = machine.warp(
        ".reg .pred %p; .reg .b32 %i, %v;",
        "mov.u32 %i, 0;
         setp.lt.u32 %p, %lane, 16;
         @%p bra $meet;
         $loop: add.u32 %i, %i, 1;
         setp.lt.u32 %p, %i, %lane;
         @%p bra $loop;
         $meet: add.u32 %v, %lane, 1;
         shfl.sync.bfly.b32 %out, %v, 16, 31, 0xffffffff;",
    );
    let expected: Vec<u32> = (0..32).map(|i| (i ^ 16) + 1).collect();
    assert_eq!(got, expected);
}

#[test]
fn a_shuffle_in_a_loop_waits_for_lanes_that_lag_behind() {
    let mut machine = Machine::new();
    // Even lanes take a detour placed behind the shuffle, so they come back to it from below.
    let got = machine.warp(
        ".reg .pred %p, %q; .reg .b32 %a, %i;",
        "mov.u32 %i, 0;
         and.b32 %a, %lane, 1;
         setp.eq.u32 %p, %a, 0;
         mov.u32 %a, %lane;
         $loop: @%p bra $detour;
         $back: shfl.sync.bfly.b32 %a, %a, 1, 31, 0xffffffff;
         add.u32 %i, %i, 1;
         setp.lt.u32 %q, %i, 3;
         @%q bra $loop;
         bra $end;
         $detour: add.u32 %a, %a, 100;
         bra $back;
         $end: mov.u32 %out, %a;",
    );
    // Three exchanges: the even lane adds 100 to what it holds before each.
    let expected: Vec<u32> =
        (0..32).map(|i| if i % 2 == 0 { (i + 1) + 100 } else { (i - 1) + 200 }).collect();
    assert_eq!(got, expected);
}

#[test]
fn lanes_with_different_masks_form_parties_of_their_own() {
    let mut machine = Machine::new();
    let got = machine.warp(
        ".reg .pred %p; .reg .b32 %m, %g;",
        "shr.u32 %g, %lane, 3; shl.b32 %g, %g, 3; shl.b32 %m, 255, %g;
         redux.sync.add.u32 %out, %lane, %m;",
    );
    let expected: Vec<u32> = (0..32).map(|i| (i / 8 * 8..i / 8 * 8 + 8).sum()).collect();
    assert_eq!(got, expected);
}

#[test]
fn votes_count_their_members_only() {
    let mut machine = Machine::new();
    let got = machine.warp(
        ".reg .pred %p, %a, %b, %c; .reg .b32 %n;",
        "setp.lt.u32 %p, %lane, 10;
         vote.sync.any.pred %a, %p, 0xffffffff;
         vote.sync.all.pred %b, !%p, 0xffffffff;
         vote.sync.uni.pred %c, %p, 0xffffffff;
         vote.sync.ballot.b32 %out, %p, 0xffffffff;
         @%a add.u32 %out, %out, 0x10000;
         @%b add.u32 %out, %out, 0x20000;
         @%c add.u32 %out, %out, 0x40000;",
    );
    assert_eq!(got, vec![0x103ff; 32]);
}

#[test]
fn matches_find_equal_lanes() {
    let mut machine = Machine::new();
    let got = machine.warp(
        ".reg .pred %p; .reg .b32 %k, %m;",
        "rem.u32 %k, %lane, 3;
         match.any.sync.b32 %out, %k, 0xffffffff;
         match.all.sync.b32 %m|%p, %k, 0xffffffff;
         @%p mov.u32 %out, 0;
         or.b32 %out, %out, %m;",
    );
    let mask = |k: u32| (0..32).filter(|i| i % 3 == k).fold(0u32, |mask, i| mask | 1 << i);
    let expected: Vec<u32> = (0..32).map(|i| mask(i % 3)).collect();
    assert_eq!(got, expected);
}

#[test]
fn one_leader_is_elected() {
    let mut machine = Machine::new();
    let got = machine.warp(
        ".reg .pred %p; .reg .b32 %n;",
        "elect.sync %n|%p, 0xfffffff0;
         @%p mov.u32 %out, 1;",
    );
    assert_eq!(got.iter().sum::<u32>(), 1);
}

#[test]
fn a_wait_that_cannot_end_is_reported() {
    for (threads, body) in [
        (64, "setp.lt.u32 %p, %lane, 32; @%p barrier.sync 1; @!%p barrier.sync 2;"),
        (64, "setp.lt.u32 %p, %lane, 32; @%p barrier.sync 1, 1024;"),
        (32, "setp.lt.u32 %p, %lane, 16; @%p bar.warp.sync 0xffffffff; @!%p barrier.sync 0;"),
        (
            32,
            "setp.lt.u32 %p, %lane, 16; @%p bra $x; barrier.sync 0; $x: redux.sync.add.u32 %out, %lane, 0xffffffff;",
        ),
    ] {
        let (code, reason) = Machine::new().fault(threads, ".reg .pred %p;", body);
        assert_eq!(code, 715, "{reason}");
        assert!(reason.contains("every thread waits"), "{reason}");
    }
}
