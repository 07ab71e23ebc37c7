//! Mistakes of kernels that a sanitizer finds, and what looks like one and is none.
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

mod common;

use std::sync::Arc;

use bulkhead_gpu::{FillPattern, Gpu, Launch};
use bulkhead_softgpu::{Finding, Mistake, Options, Profiler, Sanitizer, SoftGpu, Tool};
use common::Machine;

fn text(body: &str) -> String {
    format!(
        ".version 8.7\n.target sm_90\n.address_size 64\n.visible .entry kernel(.param .u64 to)\n{{\n\
         .reg .b64 %d<9>; .reg .b32 %r<9>; .reg .pred %p<3>; .shared .align 16 .b8 own[1024];\n\
         ld.param.u64 %d1, [to];\nmov.u32 %r1, %tid.x;\nshl.b32 %r2, %r1, 2;\nmov.u32 %r3, own;\nadd.u32 %r3, %r3, %r2;\n\
         {body}\nret;\n}}\n"
    )
}

/// The first line of a body.
const BODY: u32 = 12;

/// What is found in a body that blocks of so many threads run; its parameter is an allocation of 256 bytes, of which the
/// first 128 are written.
fn found(body: &str, blocks: u32, threads: u32) -> Vec<Finding> {
    let sanitizer = Arc::new(Sanitizer::new(&Tool::ALL, None, false));
    let sanitized = Some(Arc::clone(&sanitizer));
    let options =
        Options { memory_bytes: 1 << 30, threads: Some(3), sanitizer: sanitized, ..common::options() };
    let mut machine = Machine::with(options);
    let image = machine.gpu.load(&text(body)).unwrap();
    let to = machine.buffer(1 << 20);
    assert!(sanitizer.allocated(to, 256));
    machine.gpu.fill(machine.stream, bulkhead_gpu::DeviceAddress(to), FillPattern::Bits8(1), 128).unwrap();
    let parameters = to.to_le_bytes();
    let launch =
        Launch { grid: [blocks, 1, 1], block: [threads, 1, 1], shared_bytes: 0, parameters: &parameters };
    machine.gpu.launch(machine.stream, image.entries[0].id, &launch).unwrap();
    machine.gpu.synchronize(machine.stream).unwrap();
    let mut list = sanitizer.findings().list;
    list.sort_by_key(|finding| finding.at);
    list
}

/// Mistake, line of the body, that of the other thread, and how often.
type Told = (Mistake, u32, Option<u32>, u64);

fn told(body: &str, blocks: u32, threads: u32) -> Vec<Told> {
    let line = |at: (u32, u32)| at.0 - BODY;
    let list = found(body, blocks, threads);
    list.iter()
        .map(|found| (found.mistake, line(found.at), found.other.map(|other| line(other.at)), found.count))
        .collect()
}

#[test]
fn a_read_of_what_nobody_wrote_is_told_once_a_line_and_counted() {
    let body = "cvt.u64.u32 %d2, %r2;\nadd.u64 %d2, %d1, %d2;\nld.global.u32 %r4, [%d2];\nst.global.u32 [%d2], %r4;\n\
                ld.global.u32 %r4, [%d2];";
    // 32 of 64 words are written before, and all of them when they are read again.
    let list = found(body, 1, 64);
    assert_eq!(list.len(), 1, "{list:?}");
    let finding = &list[0];
    assert_eq!((finding.mistake, finding.at.0 - BODY, finding.count), (Mistake::GlobalUnwritten, 2, 32));
    assert_eq!((finding.thread, finding.bytes), ([32, 0, 0], 4));
    assert_eq!(finding.allocation.map(|(start, bytes)| (finding.address - start, bytes)), Some((128, 256)));
}

#[test]
fn an_atomic_operation_on_what_nobody_wrote_is_told() {
    let body = "atom.global.add.u32 %r4, [%d1+252], 1;";
    // The lanes of a warp come at once: none finds what the other leaves.
    assert_eq!(told(body, 1, 2), [(Mistake::GlobalUnwritten, 0, None, 2)]);
    // Beyond the allocation nothing is known.
    assert_eq!(told("ld.global.u32 %r4, [%d1+256];", 1, 2), []);
}

#[test]
fn shared_memory_holds_nothing_where_a_block_begins() {
    let body = "setp.eq.u32 %p1, %r1, 0;\n@%p1 ld.shared.u32 %r4, [own];\nst.shared.u32 [%r3], %r1;";
    assert_eq!(told(body, 5, 8), [(Mistake::SharedUnwritten, 1, None, 5)]);
}

#[test]
fn a_neighbours_word_is_a_race_unless_a_barrier_is_between() {
    let body = |between: &str| {
        format!("st.shared.u32 [%r3], %r1;\n{between}\nxor.b32 %r4, %r3, 4;\nld.shared.u32 %r5, [%r4];")
    };
    assert_eq!(told(&body(""), 2, 64), [(Mistake::ReadAfterWrite, 3, Some(0), 128)]);
    for between in ["bar.sync 0;", "bar.warp.sync -1;", "shfl.sync.bfly.b32 %r6, %r1, 1, 31, -1;"] {
        assert_eq!(told(&body(between), 2, 64), [], "{between}");
    }
    // Pairs of lanes that meet are enough.
    let pair = "and.b32 %r6, %r1, 30;\nmov.b32 %r7, 3;\nshl.b32 %r7, %r7, %r6;\nbar.warp.sync %r7;";
    let body = format!("st.shared.u32 [%r3], %r1;\n{pair}\nxor.b32 %r4, %r3, 4;\nld.shared.u32 %r5, [%r4];");
    assert_eq!(told(&body, 1, 64), []);
}

#[test]
fn a_barrier_with_a_count_orders_the_warps_that_meet_at_it() {
    // Warps 0 and 1 meet; the third reads what the first wrote.
    let body = "st.shared.u32 [%r3], %r1;\nsetp.ge.u32 %p1, %r1, 64;\n@%p1 bra third;\nbar.sync 1, 64;\n\
                xor.b32 %r4, %r3, 128;\nld.shared.u32 %r5, [%r4];\nret;\nthird:\nsetp.ne.u32 %p1, %r1, 64;\n\
                @%p1 ret;\nld.shared.u32 %r5, [own];";
    assert_eq!(told(body, 1, 96), [(Mistake::ReadAfterWrite, 10, Some(0), 1)]);
}

/// The first warp passes a word of each of its lanes to the second by a barrier object.
fn handed_on(arrival: &str, wait: &str) -> String {
    format!(
        ".shared .align 8 .b64 bar;\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 mbarrier.init.shared.b64 [bar], 32;\nbar.sync 0;\n\
         setp.ge.u32 %p2, %r1, 32;\n@%p2 bra second;\nst.shared.u32 [%r3], %r1;\n{arrival}\nret;\n\
         second:\n{wait}\nld.shared.u32 %r4, [%r3-128];"
    )
}

#[test]
fn barrier_objects_order_those_who_arrive_before_those_who_wait() {
    let arrival = "mbarrier.arrive.shared.b64 %d5, [bar];";
    let wait = "mbarrier.test_wait.parity.acquire.cta.shared.b64 %p1, [bar], 0; @!%p1 bra second;";
    assert_eq!(told(&handed_on(arrival, wait), 2, 64), []);
    let relaxed = "mbarrier.test_wait.parity.relaxed.cta.shared.b64 %p1, [bar], 0; @!%p1 bra second;";
    assert_eq!(told(&handed_on(arrival, relaxed), 2, 64), [(Mistake::ReadAfterWrite, 11, Some(6), 64)]);
    // Without a wait either may come first.
    let list = told(&handed_on(arrival, ""), 2, 64);
    assert!(!list.is_empty() && list.iter().all(|(.., count)| *count <= 64), "{list:?}");
    // An arrival of another lane, that has not waited for those whose words it hands on.
    let one = "mov.b64 %d5, 0; @%p1 mbarrier.arrive.shared.b64 %d5, [bar], 32;";
    let list = told(&handed_on(one, wait), 1, 64);
    assert_eq!(list, [(Mistake::ReadAfterWrite, 11, Some(6), 31)]);
    assert_eq!(told(&handed_on(&format!("bar.warp.sync -1; {one}"), wait), 1, 64), []);
}

#[test]
fn a_lock_orders_what_it_protects_where_it_is_taken_and_given_back_behind_fences() {
    // Each warp's first lane adds to a word that is no atomic one.
    let body = |taken: &str, given: &str| {
        format!(
            ".shared .align 4 .b32 lock; .shared .align 4 .b32 sum;\nsetp.eq.u32 %p1, %r1, 0;\n\
             @%p1 st.shared.u32 [lock], 0;\n@%p1 st.shared.u32 [sum], 0;\nbar.sync 0;\n\
             and.b32 %r4, %r1, 31; setp.ne.u32 %p1, %r4, 0; @%p1 ret;\n\
             again: atom.{taken}shared.cas.b32 %r5, [lock], 0, 1; setp.ne.u32 %p1, %r5, 0; @%p1 bra again;\n\
             ld.shared.u32 %r6, [sum];\nadd.u32 %r6, %r6, 1;\nst.shared.u32 [sum], %r6;\n{given}"
        )
    };
    let given = "membar.cta; atom.shared.exch.b32 %r5, [lock], 0;";
    assert_eq!(told(&body("acquire.cta.", given), 2, 128), []);
    assert_eq!(told(&body("acquire.cta.", "st.release.cta.shared.u32 [lock], 0;"), 2, 128), []);
    for (taken, given) in [("acquire.cta.", "atom.shared.exch.b32 %r5, [lock], 0;"), ("", given)] {
        let list = told(&body(taken, given), 1, 128);
        assert!(!list.is_empty() && list.iter().all(|(_, line, ..)| [7, 9].contains(line)), "{list:?}");
    }
}

#[test]
fn atomic_operations_and_equal_values_are_no_races() {
    let first = "setp.eq.u32 %p1, %r1, 0;\n@%p1 st.shared.u32 [own], 0;\nbar.sync 0;\n";
    for (body, races) in [
        ("atom.shared.add.u32 %r4, [own], 1;", 0),
        ("st.shared.u32 [own], 7;", 0),
        ("st.shared.u32 [own], %r1;", 1),
        ("st.volatile.shared.u32 [own], %r1;\nld.volatile.shared.u32 %r4, [own];", 0),
    ] {
        let found = told(&format!("{first}{body}"), 1, 64);
        assert_eq!(found.len(), races, "{body}: {found:?}");
    }
}

#[test]
fn a_barrier_without_threads_that_exited_is_told() {
    let body = "setp.ge.u32 %p1, %r1, 40;\n@%p1 ret;\nbar.sync 0;";
    assert_eq!(told(body, 3, 64), [(Mistake::BarrierExited, 2, Some(1), 3)]);
    assert_eq!(told(body, 3, 40), []);
}

#[test]
fn lanes_of_a_block_that_is_no_whole_warp_are_missed_by_nobody() {
    assert_eq!(told("bar.warp.sync -1;\nshfl.sync.bfly.b32 %r6, %r1, 1, 31, -1;\nbar.sync 0;", 1, 20), []);
}

#[test]
fn leaks_are_what_is_neither_freed_nor_ended() {
    let sanitizer = Sanitizer::new(&[Tool::Leaks], None, false);
    for address in [0x1000, 0x2000, 0x3000] {
        assert!(sanitizer.allocated(address, 16));
    }
    assert!(sanitizer.freed(0x2000) && sanitizer.left(0x1000));
    let leaks: Vec<u64> = sanitizer.findings().leaks.iter().map(|leak| leak.number).collect();
    assert_eq!(leaks, [1, 3]);
    let sanitizer = Sanitizer::new(&[Tool::Races], None, false);
    assert!(sanitizer.allocated(0x1000, 16));
    assert_eq!(sanitizer.findings().leaks, []);
}

#[test]
fn a_profiler_and_a_sanitizer_at_once_are_refused() {
    let sanitizer = Some(Arc::new(Sanitizer::new(&[], None, false)));
    let options = Options { profiler: Some(Arc::new(Profiler::default())), sanitizer, ..Options::default() };
    assert!(SoftGpu::new(options).is_err());
}
