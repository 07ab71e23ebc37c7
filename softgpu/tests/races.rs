//! Races for global memory that a sanitizer finds, and orders of accesses that are none.
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

mod common;

use std::sync::Arc;

use bulkhead_gpu::{FillPattern, Gpu, Launch};
use bulkhead_softgpu::{Finding, Mistake, Options, Sanitizer, Tool};
use common::Machine;

/// Bytes of the memory that an entry is given, all of them zero.
const BYTES: u64 = 1 << 16;

/// An entry whose `%d1` is its memory, `%d2` a word of the thread's own there, behind the first 4096 bytes; `%r1` and `%r2`
/// are the numbers of the thread and its block.
fn text(body: &str) -> String {
    format!(
        ".version 8.7\n.target sm_90\n.address_size 64\n.visible .entry kernel(.param .u64 to)\n{{\n\
         .reg .b64 %d<9>; .reg .b32 %r<9>; .reg .b16 %h<3>; .reg .pred %p<5>; .shared .align 16 .b8 own[64];\n\
         ld.param.u64 %d1, [to];\nmov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\nmov.u32 %r3, %ntid.x;\n\
         mad.lo.u32 %r3, %r2, %r3, %r1;\nmul.wide.u32 %d2, %r3, 4;\nadd.u64 %d2, %d2, %d1;\nadd.u64 %d2, %d2, 4096;\n\
         setp.eq.u32 %p1, %r1, 0;\n\
         {body}\nret;\n}}\n"
    )
}

/// The first line of a body.
const BODY: u32 = 16;

fn found_with(body: &str, blocks: u32, threads: u32, options: Options) -> Vec<Finding> {
    let sanitizer = Arc::new(Sanitizer::new(&[Tool::Races], None, false));
    let options = Options {
        memory_bytes: 1 << 30,
        threads: Some(3),
        sanitizer: Some(Arc::clone(&sanitizer)),
        ..options
    };
    let mut machine = Machine::with(options);
    let image = machine.gpu.load(&text(body)).unwrap();
    let to = machine.buffer(1 << 20);
    assert!(sanitizer.allocated(to, BYTES));
    machine.gpu.fill(machine.stream, bulkhead_gpu::DeviceAddress(to), FillPattern::Bits8(0), BYTES).unwrap();
    let parameters = to.to_le_bytes();
    let launch =
        Launch { grid: [blocks, 1, 1], block: [threads, 1, 1], shared_bytes: 0, parameters: &parameters };
    machine.gpu.launch(machine.stream, image.entries[0].id, &launch).unwrap();
    machine.gpu.synchronize(machine.stream).unwrap();
    let mut list = sanitizer.findings().list;
    list.sort_by_key(|finding| finding.at);
    list
}

fn found(body: &str, blocks: u32, threads: u32) -> Vec<Finding> {
    found_with(body, blocks, threads, common::options())
}

/// The kinds of what is told, each once.
fn told(body: &str, blocks: u32, threads: u32) -> Vec<Mistake> {
    let mut kinds: Vec<Mistake> = found(body, blocks, threads).iter().map(|found| found.mistake).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

#[test]
fn what_two_threads_do_to_one_byte_is_told_unless_both_read_or_nothing_changes() {
    use Mistake::{
        GlobalReadAfterWrite as Read, GlobalWriteAfterRead as Late, GlobalWriteAfterWrite as Write,
    };
    for (body, kinds) in [
        ("ld.global.u32 %r4, [%d1];", &[][..]),
        ("st.global.u32 [%d2], %r1;\nld.global.u32 %r4, [%d2];", &[]),
        ("st.global.u32 [%d1], 7;", &[]),
        ("st.global.u32 [%d1], %r3;", &[Write]),
        ("st.global.v2.u32 [%d1], {7, %r3};", &[Write]),
        ("@%p1 st.global.u32 [%d1], 7;\nld.global.u8 %r4, [%d1+3];", &[Read, Late]),
        ("atom.global.add.u32 %r4, [%d1], 1;\nred.global.add.u32 [%d1], 1;", &[]),
        ("atom.global.add.u32 %r4, [%d1], 1;\nld.volatile.global.u32 %r4, [%d1];", &[]),
        ("atom.global.add.u32 %r4, [%d1], 1;\nld.global.u32 %r4, [%d1];", &[Read, Late]),
        // What others leave may be read at any time, as before a loop that tries to exchange it.
        ("atom.global.cas.b32 %r4, [%d1], 0, %r3;\nld.global.u32 %r4, [%d1];", &[]),
        ("atom.global.max.u32 %r4, [%d1], %r3;\nld.global.u32 %r4, [%d1];", &[]),
        ("@%p1 st.global.u32 [%d1], 7;\n@!%p1 red.global.add.u32 [%d1], 1;", &[Read, Write]),
        ("st.volatile.global.u32 [%d1], %r3;\nld.relaxed.gpu.global.u32 %r4, [%d1];", &[]),
        // Each thread's own byte, and its own half.
        ("sub.u64 %d3, %d2, %d1; shr.u64 %d3, %d3, 2; add.u64 %d3, %d1, %d3;\nst.global.u8 [%d3], %r1;", &[]),
        (
            "sub.u64 %d3, %d2, %d1; shr.u64 %d3, %d3, 1; add.u64 %d3, %d1, %d3;\nst.global.u16 [%d3], %h1;",
            &[],
        ),
        // A word, then bytes of it.
        ("@%p1 st.global.u32 [%d1], 7;\n@!%p1 st.global.u8 [%d1+1], %r3;", &[Write]),
        // Nobody's memory.
        ("st.global.u32 [%d1+131072], %r3;", &[]),
    ] {
        for (blocks, threads) in [(2, 32), (1, 64), (1, 2), (40, 8)] {
            let kinds_found = told(body, blocks, threads);
            let expected = kinds_found.iter().all(|kind| kinds.contains(kind));
            assert!(
                expected && kinds_found.is_empty() == kinds.is_empty(),
                "{body} {blocks} {threads}: {kinds_found:?}"
            );
        }
    }
}

#[test]
fn a_race_is_told_with_both_threads_their_blocks_and_the_allocation() {
    let body = "setp.eq.u32 %p2, %r2, 3;\nand.pred %p1, %p1, %p2;\n@%p1 st.global.u32 [%d1+8], 7;\nld.global.u32 %r4, [%d1+8];";
    let list = found(body, 5, 1);
    assert!(!list.is_empty());
    for finding in list {
        let other = finding.other.unwrap();
        let lines = [finding.at.0 - BODY, other.at.0 - BODY];
        assert!(lines == [2, 3] || lines == [3, 2], "{finding:?}");
        assert!((finding.block[0] == 3) != (other.block[0] == 3), "{finding:?}");
        let (start, bytes) = finding.allocation.unwrap();
        assert_eq!((finding.address - start, bytes, finding.bytes), (8, BYTES, 4));
    }
}

#[test]
fn barriers_order_a_blocks_threads_and_nobody_else() {
    // Each thread reads its neighbour's word, in the block or in the next one.
    let body = |between: &str, neighbour: &str| {
        format!(
            "st.global.u32 [%d2], %r3;\n{between}\nxor.b64 %d3, %d2, {neighbour};\nld.global.u32 %r4, [%d3];"
        )
    };
    for between in ["bar.sync 0;", "bar.sync 1;", "bar.red.popc.u32 %r4, 0, %p1;"] {
        assert_eq!(told(&body(between, "128"), 2, 64), [], "{between}");
        assert_ne!(told(&body(between, "256"), 2, 64), [], "{between}");
    }
    for between in
        ["bar.warp.sync -1;", "shfl.sync.bfly.b32 %r6, %r1, 1, 31, -1;", "vote.sync.ballot.b32 %r6, %p1, -1;"]
    {
        assert_eq!(told(&body(between, "4"), 2, 64), [], "{between}");
        assert_ne!(told(&body(between, "128"), 2, 64), [], "{between}");
    }
    for between in ["", "membar.gl;", "fence.sc.gpu;", "bar.arrive 1, 128;"] {
        assert_ne!(told(&body(between, "4"), 2, 64), [], "{between}");
    }
    // Half of a block by a barrier with a count.
    let half = "setp.ge.u32 %p2, %r1, 64;\n@%p2 ret;\nst.global.u32 [%d2], %r3;\nbar.sync 1, 64;\n\
                xor.b64 %d3, %d2, 128;\nld.global.u32 %r4, [%d3];";
    assert_eq!(told(half, 2, 96), []);
}

/// The last block of all gathers what each thread has found.
fn gathered(fence: &str, met: &str, ticket: &str, behind: &str) -> String {
    format!(
        "st.global.u32 [%d2], %r3;\n{fence}\n{met}\nmov.u32 %r7, %nctaid.x;\nsub.u32 %r7, %r7, 1;\n\
         @%p1 {ticket} %r6, [%d1], %r7;\n@%p1 st.shared.u32 [own], %r6;\nbar.sync 0;\nld.shared.u32 %r6, [own];\n\
         setp.ne.u32 %p2, %r6, %r7;\n@%p2 ret;\n{behind}\nmul.wide.u32 %d3, %r1, 4;\nadd.u64 %d3, %d3, %d1;\n\
         ld.global.u32 %r5, [%d3+4096];\nld.global.u32 %r5, [%d3+4352];\n@%p1 st.global.u32 [%d1], 0;"
    )
}

#[test]
fn the_last_block_may_gather_what_others_wrote_before_a_fence() {
    for (fence, met, ticket, behind) in [
        // As NVIDIA's guide has it: a fence of each thread, or of the one that takes the ticket.
        ("membar.gl;", "bar.sync 0;", "atom.global.inc.u32", ""),
        ("membar.sys;", "bar.sync 0;", "atom.global.inc.u32", "fence.acq_rel.gpu;"),
        ("", "bar.sync 0;\n@%p1 membar.gl;", "atom.global.inc.u32", ""),
        ("", "bar.sync 0;", "atom.acq_rel.gpu.global.inc.u32", ""),
        ("", "bar.sync 0;", "atom.release.gpu.global.inc.u32", ""),
    ] {
        for blocks in [1, 2, 70] {
            let body = gathered(fence, met, ticket, behind);
            assert_eq!(told(&body, blocks, 64), [], "{fence} {met} {ticket} {behind} {blocks}");
        }
    }
    for (fence, met, ticket) in [
        ("", "bar.sync 0;", "atom.global.inc.u32"),
        ("", "bar.sync 0;", "atom.acquire.gpu.global.inc.u32"),
        // Nobody else sees what a fence of the block is for.
        ("membar.cta;", "bar.sync 0;", "atom.global.inc.u32"),
        ("", "bar.sync 0;", "atom.acq_rel.cta.global.inc.u32"),
        // The others of the block may come later than the ticket.
        ("membar.gl;", "", "atom.global.inc.u32"),
        ("", "", "atom.acq_rel.gpu.global.inc.u32"),
    ] {
        let list = told(&gathered(fence, met, ticket, "membar.gl;"), 8, 64);
        assert_eq!(list, [Mistake::GlobalReadAfterWrite], "{fence} {met} {ticket}");
    }
}

#[test]
fn each_block_may_wait_for_the_one_before_it() {
    // Blocks are numbered by a ticket; each adds to what the one before found, and sets a flag.
    let body = |store: &str, load: &str, behind: &str| {
        format!(
            "@!%p1 ret;\natom.global.add.u32 %r4, [%d1], 1;\nmul.wide.u32 %d3, %r4, 8;\nadd.u64 %d3, %d3, %d1;\nmov.u32 %r7, 1;\n\
             setp.eq.u32 %p2, %r4, 0;\n@%p2 bra first;\nwaits: {load} %r5, [%d3+8184];\nsetp.eq.u32 %p3, %r5, 0;\n\
             @%p3 bra waits;\n{behind}\nld.global.u32 %r7, [%d3+12280];\nadd.u32 %r7, %r7, 1;\n\
             first: st.global.u32 [%d3+12288], %r7;\n{store} [%d3+8192], 1;"
        )
    };
    for (store, load, behind) in [
        ("membar.gl;\nst.volatile.global.u32", "ld.volatile.global.u32", "membar.gl;"),
        ("membar.gl;\nst.relaxed.gpu.global.u32", "ld.relaxed.gpu.global.u32", "fence.acq_rel.gpu;"),
        ("st.release.gpu.global.u32", "ld.acquire.gpu.global.u32", ""),
        ("membar.gl;\nred.global.add.u32", "ld.acquire.gpu.global.u32", ""),
        (
            "membar.gl;\nred.global.add.u32",
            "mov.u32 %r8, 0; atom.global.add.u32 %r5, [%d3+8184], %r8; mov.u32 %r8, %r5; //",
            "",
        ),
    ] {
        assert_eq!(told(&body(store, load, behind), 60, 32), [], "{store} {load} {behind}");
    }
    for (store, load, behind) in [
        ("st.relaxed.gpu.global.u32", "ld.acquire.gpu.global.u32", ""),
        ("st.release.gpu.global.u32", "ld.relaxed.gpu.global.u32", ""),
        ("membar.cta;\nst.volatile.global.u32", "ld.volatile.global.u32", "membar.gl;"),
    ] {
        assert_eq!(
            told(&body(store, load, behind), 60, 32),
            [Mistake::GlobalReadAfterWrite],
            "{store} {load} {behind}"
        );
    }
}

#[test]
fn a_block_may_write_where_another_has_read_before_it_told_something_of_that() {
    // In place: each block waits for the one before, and then writes what that one has read. No fence is there, since the
    // flag is the value that was read.
    let body = |told: &str| {
        format!(
            "ld.global.u32 %r4, [%d2+128];\nbar.sync 0;\n@!%p1 bra met;\nmul.wide.u32 %d3, %r2, 4;\nadd.u64 %d3, %d3, %d1;\n\
             add.u32 %r4, %r4, 1;\nsetp.eq.u32 %p2, %r2, 0;\n@%p2 bra first;\nwaits: ld.relaxed.gpu.global.u32 %r5, [%d3+-4];\n\
             setp.eq.u32 %p3, %r5, 0;\n@%p3 bra waits;\nfirst: {told} [%d3], %r4;\nmet: bar.sync 0;\nst.global.u32 [%d2], %r3;"
        )
    };
    assert_eq!(told(&body("st.relaxed.gpu.global.u32"), 12, 32), []);
    let apart = "ld.global.u32 %r4, [%d2+128];\nbar.sync 0;\nst.global.u32 [%d2], %r3;";
    assert_ne!(told(apart, 12, 32), []);
}

#[test]
fn a_lock_orders_blocks_where_it_is_given_back_behind_a_fence() {
    let body = |given: &str| {
        format!(
            "and.b32 %r4, %r1, 31; setp.ne.u32 %p2, %r4, 0; @%p2 ret;\n\
             again: atom.global.cas.b32 %r5, [%d1], 0, 1;\nsetp.ne.u32 %p2, %r5, 0;\n@%p2 bra again;\n\
             ld.global.u32 %r6, [%d1+64];\nadd.u32 %r6, %r6, 1;\nst.global.u32 [%d1+64], %r6;\n{given}"
        )
    };
    let exchange = "atom.global.exch.b32 %r5, [%d1], 0;";
    assert_eq!(told(&body(&format!("membar.gl;\n{exchange}")), 20, 64), []);
    assert_eq!(told(&body("st.release.gpu.global.u32 [%d1], 0;"), 20, 64), []);
    for given in [exchange, "membar.cta; atom.global.exch.b32 %r5, [%d1], 0;"] {
        assert_ne!(told(&body(given), 20, 64), [], "{given}");
    }
    // In one block that is enough.
    assert_eq!(told(&body(&format!("membar.cta;\n{exchange}")), 1, 128), []);
}

#[test]
fn blocks_that_all_wait_for_each_other_are_ordered() {
    // Twice, as a barrier of a grid does it: who comes last lets the others go.
    let barrier = |fence: &str, round: u32| {
        format!(
            "bar.sync 0;\n@!%p1 bra met{round};\nmov.u32 %r7, %nctaid.x;\nmul.lo.u32 %r7, %r7, {round};\n{fence}\n\
             red.global.add.u32 [%d1], 1;\nwaits{round}: ld.volatile.global.u32 %r6, [%d1];\nsetp.lt.u32 %p2, %r6, %r7;\n\
             @%p2 bra waits{round};\n{fence}\nmet{round}:\nbar.sync 0;"
        )
    };
    let body = |fence: &str| {
        format!(
            "st.global.u32 [%d2], %r3;\n{}\nxor.b64 %d3, %d2, 256;\nld.global.u32 %r4, [%d3];\n{}\n\
             add.u32 %r4, %r4, 9;\nst.global.u32 [%d2], %r4;",
            barrier(fence, 1),
            barrier(fence, 2)
        )
    };
    assert_eq!(told(&body("membar.gl;"), 8, 64), []);
    assert_ne!(told(&body(""), 8, 64), []);
}

#[test]
fn atomic_operations_of_a_block_race_with_those_of_another() {
    let body = "atom.cta.global.add.u32 %r4, [%d1], 1;";
    assert_eq!(told(body, 1, 64), []);
    assert_ne!(told(body, 2, 64), []);
}

#[test]
fn what_is_told_does_not_hang_on_the_order_of_warps() {
    let right = gathered("membar.gl;", "bar.sync 0;", "atom.global.inc.u32", "");
    let wrong = gathered("", "bar.sync 0;", "atom.global.inc.u32", "");
    for seed in 1..12 {
        let drawn =
            |body: &str| found_with(body, 5, 64, Options { schedule: Some(seed), ..common::options() });
        assert_eq!(drawn(&right), [], "{seed}");
        assert_ne!(drawn(&wrong), [], "{seed}");
    }
}
