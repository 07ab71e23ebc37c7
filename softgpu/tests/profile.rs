//! Profiles of kernels whose counts are found with pencil and paper.
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

mod common;

use std::sync::Arc;

use bulkhead_gpu::{FillPattern, Gpu, Launch};
use bulkhead_softgpu::{Counts, Kernel, Options, Profiler, Report, Traffic, What, text_number};
use common::Machine;

/// Threads of a block: two warps.
const BLOCK: u32 = 64;

fn text(body: &str) -> String {
    format!(
        ".version 8.7\n.target sm_90\n.address_size 64\n.visible .entry kernel(.param .u64 to)\n{{\n\
         .reg .b64 %d<9>; .reg .b32 %r<9>; .reg .pred %p<3>; .shared .align 16 .b8 own[8192];\n\
         ld.param.u64 %d1, [to];\nmov.u32 %r1, %tid.x;\n{body}\nret;\n}}\n"
    )
}

/// The first line of a body.
const BODY: u32 = 9;

fn profiled(body: &str, blocks: u32, threads: u32) -> Report {
    let profiler = Arc::new(Profiler::default());
    let options = Options {
        memory_bytes: 1 << 30,
        threads: Some(3),
        profiler: Some(Arc::clone(&profiler)),
        ..common::options()
    };
    let mut machine = Machine::with(options);
    let image = machine.gpu.load(&text(body)).unwrap();
    let to = machine.buffer(1 << 20).to_le_bytes();
    let launch = Launch { grid: [blocks, 1, 1], block: [threads, 1, 1], shared_bytes: 0, parameters: &to };
    machine.gpu.launch(machine.stream, image.entries[0].id, &launch).unwrap();
    machine.gpu.synchronize(machine.stream).unwrap();
    profiler.report()
}

fn kernel(body: &str, blocks: u32, threads: u32) -> Kernel {
    let mut report = profiled(body, blocks, threads);
    assert_eq!(report.kernels.len(), 1);
    report.kernels.remove(0)
}

/// What the line of a body did, counted from zero.
fn line(kernel: &Kernel, line: u32) -> Counts {
    let row = kernel.rows.iter().find(|row| row.line == BODY + line);
    row.unwrap_or_else(|| panic!("{:?}", kernel.rows)).counts
}

/// Instructions of so many warps, of whose lanes so many stood there, and for so many the predicate held.
fn ran(warps: u64, standing: u64, threads: u64) -> Counts {
    Counts { warps, standing, threads, ..Counts::default() }
}

#[test]
fn every_instruction_of_every_thread_is_counted_once() {
    // Two before, `ret` behind.
    let kernel = kernel("add.u32 %r2, %r1, 1;\nmul.lo.u32 %r2, %r2, %r2;", 100, BLOCK);
    let total = kernel.total();
    assert_eq!((total.warps, total.threads), (5 * 2 * 100, 5 * 64 * 100));
    assert_eq!(line(&kernel, 0), ran(200, 6400, 6400));
    assert_eq!((kernel.launches, kernel.uncounted, kernel.blocks, kernel.threads), (1, 0, 100, 6400));
    assert_eq!((kernel.name.as_str(), kernel.rows.len()), ("kernel", 5));
}

#[test]
fn turns_of_a_loop_and_lanes_that_leave_it_are_counted() {
    // Lane n goes round n + 1 times.
    let kernel = kernel("again:\nsub.u32 %r1, %r1, 1;\nsetp.ge.s32 %p1, %r1, 0;\n@%p1 bra again;", 1, 32);
    let turns: u64 = (1..=32).sum();
    assert_eq!(line(&kernel, 1), ran(32, turns, turns));
    // Lanes that take the branch are counted at it, and it splits them in all turns but the last.
    assert_eq!(line(&kernel, 3), Counts { divergent: 31, ..ran(32, turns, turns - 32) });
}

#[test]
fn a_branch_on_which_all_lanes_agree_does_not_diverge() {
    let kernel = kernel("setp.lt.u32 %p1, %r1, 32;\n@%p1 bra end;\nadd.u32 %r1, %r1, 1;\nend:", 1, BLOCK);
    assert_eq!(line(&kernel, 1), ran(2, 64, 32));
    assert_eq!(line(&kernel, 2), ran(1, 32, 32));
}

#[test]
fn a_partial_warp_and_a_predicate_are_counted_by_their_lanes() {
    let kernel = kernel("setp.lt.u32 %p1, %r1, 3;\n@%p1 add.u32 %r1, %r1, 1;", 1, 40);
    assert_eq!(line(&kernel, 0), ran(2, 40, 40));
    assert_eq!(line(&kernel, 1), ran(2, 40, 3));
}

#[test]
fn strides_decide_how_many_sectors_a_load_moves() {
    for (stride, sectors) in [(4, 4), (8, 8), (16, 16), (32, 32), (256, 32)] {
        let body =
            format!("mul.wide.u32 %d2, %r1, {stride};\nadd.u64 %d3, %d1, %d2;\nld.global.u32 %r2, [%d3];");
        let kernel = kernel(&body, 3, BLOCK);
        let loaded = Traffic { requests: 6, asked: 6 * 128, useful: 6 * 128, sectors: 6 * sectors };
        let expected = Counts { loaded, ..ran(6, 192, 192) };
        assert_eq!(line(&kernel, 2), expected, "{stride}");
    }
}

#[test]
fn loads_stores_and_atomic_operations_are_told_apart() {
    let kernel = kernel(
        "mul.wide.u32 %d2, %r1, 16;\nadd.u64 %d3, %d1, %d2;\nst.global.v4.u32 [%d3], {%r1, %r1, %r1, %r1};\n\
         ld.global.v2.u32 {%r2, %r3}, [%d3];\natom.global.add.u32 %r4, [%d1], 1;\nred.global.add.u32 [%d3], 1;",
        1,
        32,
    );
    let stored = Traffic { requests: 1, asked: 512, useful: 512, sectors: 16 };
    let loaded = Traffic { requests: 1, asked: 256, useful: 256, sectors: 16 };
    let same = Traffic { requests: 1, asked: 128, useful: 4, sectors: 1 };
    let apart = Traffic { requests: 1, asked: 128, useful: 128, sectors: 16 };
    let one = ran(1, 32, 32);
    assert_eq!(line(&kernel, 2), Counts { stored, ..one });
    assert_eq!(line(&kernel, 3), Counts { loaded, ..one });
    assert_eq!(
        line(&kernel, 4),
        Counts { updated: same, updates: 1, update_lanes: 32, update_rounds: 32, ..one }
    );
    assert_eq!(
        line(&kernel, 5),
        Counts { updated: apart, updates: 1, update_lanes: 32, update_rounds: 1, ..one }
    );
}

#[test]
fn strides_decide_how_many_passes_shared_memory_takes() {
    for (stride, ways) in [(4, 1), (8, 2), (16, 4), (128, 32), (132, 1)] {
        let body =
            format!("mov.u32 %r2, own;\nmad.lo.u32 %r3, %r1, {stride}, %r2;\nst.shared.u32 [%r3], %r1;");
        let kernel = kernel(&body, 2, 32);
        let expected = Counts {
            shared_requests: 2,
            shared_asked: 256,
            shared_passes: 2 * ways,
            shared_least: 2,
            shared_ways: ways,
            ..ran(2, 64, 64)
        };
        assert_eq!(line(&kernel, 2), expected, "{stride}");
    }
}

#[test]
fn what_many_threads_of_the_host_count_adds_up() {
    let body = "mul.wide.u32 %d2, %r1, 4;\nadd.u64 %d3, %d1, %d2;\natom.global.add.u32 %r2, [%d3], 1;";
    let kernel = kernel(body, 10_000, 32);
    assert_eq!(line(&kernel, 2).update_lanes, 320_000);
    assert_eq!(kernel.total().warps, 60_000);
}

#[test]
fn streams_tell_what_they_did_and_when() {
    let profiler = Arc::new(Profiler::default());
    let options = Options { profiler: Some(Arc::clone(&profiler)), ..common::options() };
    let mut machine = Machine::with(options);
    let text = text("");
    let image = machine.gpu.load(&text).unwrap();
    let before = profiler.report().events.len();
    let at = machine.upload_u32(&[1; 64]);
    machine.gpu.fill(machine.stream, bulkhead_gpu::DeviceAddress(at), FillPattern::Bits8(0), 16).unwrap();
    let parameters = at.to_le_bytes();
    let launch = Launch { grid: [2, 3, 1], block: [32, 1, 1], shared_bytes: 16, parameters: &parameters };
    machine.gpu.launch(machine.stream, image.entries[0].id, &launch).unwrap();
    machine.download_u32(at, 8);
    let report = profiler.report();
    let events = &report.events[before..];
    let whats: Vec<What> = events.iter().map(|event| event.what).collect();
    // The entry's own 8 KiB count too.
    let launched = What::Launch { kernel: 0, grid: [2, 3, 1], block: [32, 1, 1], shared_bytes: 8208 };
    assert_eq!(whats, [What::ToDevice(256), What::Fill(16), launched, What::ToHost(32)]);
    assert!(events.iter().all(|event| event.stream == machine.stream.0 && event.from_ns <= event.until_ns));
    assert!(events.windows(2).all(|pair| pair[0].until_ns <= pair[1].from_ns));
    assert_eq!(report.kernels[0].text, text_number(&text));
    assert_eq!(Report::from_bytes(&report.to_bytes()), Ok(report));
}
