//! Orders of warps and blocks that are drawn from seeds: the same again for the same seed, and others for others; and the
//! tests of the other files once more, each machine with another seed; but not those of lanes that meet again without being
//! told to, which nothing promises.
#![allow(clippy::duplicate_mod, reason = "each file brings the harness along, as it does alone")]
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

#[path = "barriers.rs"]
mod barriers;
#[path = "guarded.rs"]
mod guarded;
#[path = "mbarriers.rs"]
mod mbarriers;
#[path = "memory.rs"]
mod memory;
#[path = "programs.rs"]
mod programs;
#[path = "sharing.rs"]
mod sharing;
#[path = "streams.rs"]
mod streams;
#[path = "together.rs"]
mod together;
#[path = "triton.rs"]
mod triton;

mod common;

use std::collections::BTreeSet;

use bulkhead_softgpu::Options;
use common::{Machine, Parameters, kernel};

/// What an entry leaves in a buffer of so many words, which begins as zero.
fn result(seed: u64, ptx: &str, (grid, block): (u32, u32), words: usize) -> Vec<u32> {
    let mut machine =
        Machine::with(Options { memory_bytes: 1 << 30, schedule: Some(seed), ..Options::default() });
    let entry = machine.entry(ptx);
    let at = machine.upload_u32(&vec![0; words]);
    machine.run(entry.id, grid, block, &Parameters::default().u64(at).0).unwrap();
    machine.download_u32(at, words)
}

fn entry(declarations: &str, body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry test(.param .u64 p)\n{{\n\
         .reg .b64 %at; .reg .b32 %a, %b, %c; .reg .pred %p;\n{declarations}\nld.param.u64 %at, [p];\n{body}\nret;\n}}\n"
    )
}

/// Each thread adds to a word that others add to, without an atomic operation.
fn lost_updates() -> String {
    entry("", "ld.global.u32 %a, [%at]; add.u32 %a, %a, 1; st.global.u32 [%at], %a;")
}

#[test]
fn a_race_ends_the_same_for_the_same_seed_and_otherwise_for_others() {
    let ptx = lost_updates();
    let mut ends = BTreeSet::new();
    for seed in 1..=100 {
        let first = result(seed, &ptx, (4, 64), 1);
        assert_eq!(result(seed, &ptx, (4, 64), 1), first, "seed {seed}");
        ends.insert(first[0]);
    }
    assert!(ends.len() > 3, "the race always ends with {ends:?}");
}

#[test]
fn a_missing_barrier_shows_under_some_seeds_and_its_barrier_helps_under_all() {
    let tile = |barrier: &str| {
        entry(
            ".reg .b32 %t, %o; .reg .b64 %w; .shared .align 4 .b32 words[64];",
            &format!(
                "mov.u32 %t, %tid.x; mov.u32 %a, words; shl.b32 %b, %t, 2; add.u32 %c, %a, %b;
                 add.u32 %o, %t, 7; st.shared.u32 [%c], %o;
                 {barrier}
                 xor.b32 %b, %b, 252; add.u32 %c, %a, %b; ld.shared.u32 %o, [%c];
                 mul.wide.u32 %w, %t, 4; add.s64 %w, %at, %w; st.global.u32 [%w], %o;"
            ),
        )
    };
    let right: Vec<u32> = (0..64).map(|thread| 63 - thread + 7).collect();
    let wrong = (1..=50).filter(|seed| result(*seed, &tile(""), (1, 64), 64) != right).count();
    assert!(wrong > 0, "no seed shows the missing barrier");
    for seed in 1..=50 {
        assert_eq!(result(seed, &tile("bar.sync 0;"), (1, 64), 64), right, "seed {seed}");
    }
}

#[test]
fn lanes_that_wait_for_one_another_and_blocks_too_end_alike_under_all_seeds() {
    // A lock that every thread takes, over diverging lanes; then the last block to come tells the sum.
    let locked = entry(
        ".reg .b32 %n;",
        "$take: atom.global.cas.b32 %a, [%at], 0, 1; setp.ne.u32 %p, %a, 0; @%p bra $take;
         ld.volatile.global.u32 %b, [%at+4]; add.u32 %b, %b, 3; st.volatile.global.u32 [%at+4], %b;
         membar.gl; atom.global.exch.b32 %a, [%at], 0;
         bar.sync 0;
         mov.u32 %n, %tid.x; setp.ne.u32 %p, %n, 0; @%p exit;
         atom.global.add.u32 %a, [%at+8], 1;
         mov.u32 %n, %nctaid.x; add.u32 %a, %a, 1; setp.ne.u32 %p, %a, %n; @%p exit;
         ld.volatile.global.u32 %b, [%at+4]; st.global.u32 [%at+12], %b;",
    );
    for seed in 1..=50 {
        assert_eq!(result(seed, &locked, (3, 48), 4), [0, 432, 3, 432], "seed {seed}");
    }
}

#[test]
fn clocks_count_steps_and_are_the_same_for_the_same_seed() {
    let clock = entry(
        ".reg .b64 %t;",
        "mov.u32 %b, 0; $more: add.u32 %b, %b, 1; setp.lt.u32 %p, %b, 1000; @%p bra $more;
         mov.u64 %t, %globaltimer; cvt.u32.u64 %a, %t; st.global.u32 [%at], %a;",
    );
    let told: Vec<u32> = (1..=5).map(|seed| result(seed, &clock, (1, 64), 1)[0]).collect();
    let again: Vec<u32> = (1..=5).map(|seed| result(seed, &clock, (1, 64), 1)[0]).collect();
    assert_eq!(told, again);
    assert!(told.iter().all(|ns| *ns > 0), "{told:?}");
    assert!(told.iter().collect::<BTreeSet<_>>().len() > 1, "{told:?}");
}

/// Lanes part over a loop that they leave after turns that differ, wait for all lanes of the warp, then for the block.
fn parted(whole: &str) -> String {
    kernel(
        ".reg .pred %p; .reg .b32 %a, %b, %n, %m<4>; .shared .align 4 .b32 words[64];",
        &format!(
            "and.b32 %n, %lane, 3; mov.u32 %a, 0;
             $turn: add.u32 %a, %a, 5; sub.u32 %n, %n, 1; setp.ge.s32 %p, %n, 0; @%p bra $turn;
             shfl.sync.bfly.b32 %b, %a, 1, 31, -1; add.u32 %a, %a, %b;
             setp.lt.u32 %p, %lane, 9; @%p bra $low;
             add.u32 %a, %a, 1000;
             $low: shfl.sync.idx.b32 %b, %a, 31, 31, -1; xor.b32 %a, %a, %b;
             {whole}
             mov.u32 %b, words; shl.b32 %n, %lane, 2; add.u32 %b, %b, %n; st.shared.u32 [%b], %a;
             setp.lt.u32 %p, %lane, 17; @%p bra $wait;
             add.u32 %a, %a, 3;
             $wait: barrier.sync 0;
             mov.u32 %b, words; xor.b32 %n, %n, 252; add.u32 %b, %b, %n; ld.shared.u32 %b, [%b];
             add.u32 %out, %a, %b;"
        ),
    )
}

#[test]
fn lanes_that_the_device_runs_apart_wait_for_each_other_as_the_guard_writes_it() {
    let confined = |ptx: &str| {
        let module = bulkhead_guard::parse(ptx).unwrap();
        let confined = bulkhead_guard::print(&bulkhead_guard::confine(&module).unwrap());
        bulkhead_guard::verify(&confined).unwrap().text().to_owned()
    };
    let matrix = "mov.u32 %m0, %a; movmatrix.sync.aligned.m8n8.trans.b16 %m1, %m0; add.u32 %a, %a, %m1;";
    for whole in ["", matrix] {
        let (ptx, run) = (parted(whole), |seed: Option<u64>, text: &str, hidden: bool| {
            let mut machine =
                Machine::with(Options { memory_bytes: 1 << 30, schedule: seed, ..Options::default() });
            let entry = machine.entry(text);
            let at = machine.buffer(256);
            let parameters = Parameters::default().u64(at);
            let parameters = if hidden { parameters.hidden() } else { parameters };
            machine.run(entry.id, 1, 64, &parameters.0).unwrap();
            machine.download_u32(at, 64)
        });
        let right = run(None, &ptx, false);
        assert!(right.iter().collect::<BTreeSet<_>>().len() > 4, "{right:?}");
        let text = confined(&ptx);
        for seed in 1..=100 {
            assert_eq!(run(Some(seed), &text, true), right, "seed {seed}\n{text}");
        }
    }
}
