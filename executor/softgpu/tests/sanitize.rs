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
