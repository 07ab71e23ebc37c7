//! Streams, events, launches and what is refused.
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

mod common;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bulkhead_gpu::{DeviceAddress, Error, FillPattern, Gpu, HostAddress, HostRange, Launch};
use bulkhead_softgpu::Options;
use common::{Host, Machine, Parameters, kernel};

const SPIN: &str = "$spin: ld.volatile.global.u32 %a, [%at]; setp.eq.u32 %p, %a, 0; @%p bra $spin;
    add.s64 %at, %at, 128;";

#[test]
fn a_stream_keeps_its_order() {
    let mut machine = Machine::new();
    let entry = machine.entry(&kernel(
        ".reg .b32 %a; .reg .b64 %x;",
        "mul.wide.u32 %x, %lane, 4; add.s64 %x, %at, %x; ld.global.u32 %a, [%x]; mad.lo.u32 %out, %a, 3, 1;",
    ));
    let at = machine.upload_u32(&[1; 32]);
    for _ in 0..200 {
        machine.launch(entry.id, 1, 32, &at.to_le_bytes()).unwrap();
    }
    let expected = (0..200).fold(1u32, |x, _| x.wrapping_mul(3).wrapping_add(1));
    assert_eq!(machine.download_u32(at, 32), [expected; 32]);
}

#[test]
fn streams_run_at_once_and_asynchronous_calls_return_at_once() {
    let mut machine = Machine::new();
    let flag = machine.upload_u32(&[0]);
    let waiting = machine.entry(&kernel(".reg .pred %p; .reg .b32 %a;", SPIN));
    // The first stream waits for a word that only the second one writes.
    machine.launch(waiting.id, 64, 32, &flag.to_le_bytes()).unwrap();
    let second = machine.gpu.create_stream(0).unwrap();
    machine.gpu.fill(second, DeviceAddress(flag), FillPattern::Bits32(1), 1).unwrap();
    machine.gpu.synchronize(second).unwrap();
    machine.gpu.synchronize(machine.stream).unwrap();
    machine.gpu.destroy_stream(second).unwrap();
    assert!(machine.gpu.synchronize(second).is_err());
}

#[test]
fn two_launches_that_wait_for_each_other_both_end() {
    let mut machine = Machine::new();
    let words = machine.upload_u32(&[0; 256]);
    let (second, third) = (machine.gpu.create_stream(0).unwrap(), machine.gpu.create_stream(0).unwrap());
    let entry = machine.entry(&kernel(
        ".reg .pred %p; .reg .b32 %a; .reg .b64 %other;",
        "xor.b64 %other, %at, 512;
         st.volatile.global.u32 [%at], 1;
         $spin: ld.volatile.global.u32 %a, [%other]; setp.eq.u32 %p, %a, 0; @%p bra $spin;
         add.s64 %at, %at, 256;",
    ));
    for (stream, at) in [(second, words), (third, words ^ 512)] {
        let parameters = at.to_le_bytes();
        let launch = Launch { grid: [40, 1, 1], block: [32, 1, 1], shared_bytes: 0, parameters: &parameters };
        machine.gpu.launch(stream, entry.id, &launch).unwrap();
    }
    machine.gpu.synchronize(second).unwrap();
    machine.gpu.synchronize(third).unwrap();
}

#[test]
fn blocks_may_wait_for_blocks_that_fit_the_device_together() {
    let mut machine = Machine::with(Options { threads: Some(2), ..common::options() });
    let count = machine.upload_u32(&[0; 64]);
    // A grid barrier: every block adds one and waits until all have.
    let entry = machine.entry(&kernel(
        ".reg .pred %p; .reg .b32 %a, %n;",
        "mov.u32 %n, %nctaid.x;
         atom.global.add.u32 %a, [%at], 1;
         $spin: ld.volatile.global.u32 %a, [%at]; setp.lt.u32 %p, %a, %n; @%p bra $spin;
         add.s64 %at, %at, 4;",
    ));
    machine.run(entry.id, 12, 1, &count.to_le_bytes()).unwrap();
    assert_eq!(machine.download_u32(count, 1), [12]);
}

#[test]
fn a_completion_value_follows_everything_before_it() {
    let mut machine = Machine::new();
    let results = Host::new(4096);
    machine.gpu.register_host(results.range()).unwrap();
    let entry = machine.entry(&kernel(
        ".reg .pred %p; .reg .b32 %i;",
        "mov.u32 %i, 0; $loop: add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 2000; @%p bra $loop; mov.u32 %out, %i;",
    ));
    let at = machine.buffer(128);
    let mark = HostAddress(results.range().at.0 + 2048);
    for round in 1..=50u64 {
        machine.gpu.fill(machine.stream, DeviceAddress(at), FillPattern::Bits8(0), 128).unwrap();
        machine.launch(entry.id, 1, 32, &at.to_le_bytes()).unwrap();
        let range = HostRange { bytes: 128, ..results.range() };
        machine.gpu.copy_to_host(machine.stream, range, DeviceAddress(at)).unwrap();
        machine.gpu.write_value(machine.stream, mark, round).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while results.word(256).load(Ordering::Acquire) != round {
            assert!(Instant::now() < deadline, "the value never came");
            std::hint::spin_loop();
        }
        assert_eq!(results.word(15).load(Ordering::Relaxed), 2000 << 32 | 2000);
        results.word(15).store(0, Ordering::Relaxed);
    }
    assert!(machine.gpu.write_value(machine.stream, HostAddress(mark.0 + 4), 1).is_err());
    assert!(machine.gpu.write_value(machine.stream, HostAddress(8), 1).is_err());
    machine.gpu.unregister_host(results.range()).unwrap();
}

#[test]
fn a_destroyed_stream_still_does_its_work() {
    let mut machine = Machine::new();
    let at = machine.upload_u32(&[0; 4]);
    let stream = machine.gpu.create_stream(-1).unwrap();
    for value in 1..=100 {
        machine.gpu.fill(stream, DeviceAddress(at), FillPattern::Bits32(value), 4).unwrap();
    }
    let event = machine.gpu.create_event().unwrap();
    machine.gpu.record(event, stream).unwrap();
    machine.gpu.destroy_stream(stream).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while machine.gpu.elapsed_ns(event, event).unwrap().is_none() {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
    assert_eq!(machine.download_u32(at, 4), [100; 4]);
}

#[test]
fn events_measure_what_lies_between_them() {
    let mut machine = Machine::new();
    let (start, end) = (machine.gpu.create_event().unwrap(), machine.gpu.create_event().unwrap());
    assert_eq!(machine.gpu.elapsed_ns(start, end).unwrap(), None);
    let flag = machine.upload_u32(&[0]);
    let waiting = machine.entry(&kernel(".reg .pred %p; .reg .b32 %a;", SPIN));
    machine.gpu.record(start, machine.stream).unwrap();
    machine.launch(waiting.id, 1, 1, &flag.to_le_bytes()).unwrap();
    machine.gpu.record(end, machine.stream).unwrap();
    let second = machine.gpu.create_stream(0).unwrap();
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(machine.gpu.elapsed_ns(start, end).unwrap(), None);
    machine.gpu.fill(second, DeviceAddress(flag), FillPattern::Bits32(1), 1).unwrap();
    machine.gpu.synchronize(machine.stream).unwrap();
    let elapsed = machine.gpu.elapsed_ns(start, end).unwrap().unwrap();
    assert!(elapsed >= 25e6, "{elapsed}");
    assert_eq!(machine.gpu.elapsed_ns(end, start).unwrap(), Some(-elapsed));
    machine.gpu.destroy_event(start).unwrap();
    assert!(machine.gpu.record(start, machine.stream).is_err());
}

#[test]
fn an_entry_has_no_more_registers_than_its_largest_block_leaves_to_a_thread() {
    let machine = Machine::new();
    for (threads, most) in [(1024, 64), (512, 128), (392, 128), (256, 248), (32, 248)] {
        let registers: String =
            (0..300).map(|number| format!("add.u32 %r{number}, %r{number}, 1;\n")).collect();
        let entry = machine.entry(&format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n
.visible .entry test(.param .u64 p, .param .u32 n) .maxntid {threads}\n{{ .reg .b32 %r<300>;\n{registers} ret; }}"
        ));
        assert!(entry.registers <= most, "{threads} threads, {} registers", entry.registers);
        let warps = entry.threads_max.div_ceil(32).next_multiple_of(4);
        assert!(entry.registers * 32 * warps <= 65_536, "{threads} threads, {} registers", entry.registers);
    }
}

#[test]
fn a_launch_that_does_not_fit_is_refused_and_changes_nothing() {
    let mut machine = Machine::new();
    let entry = machine.entry(
        ".version 8.0\n.target sm_90\n.address_size 64\n
.visible .entry test(.param .u64 p, .param .u32 n) .maxntid 128, 2, 1
{ .reg .b64 %a; .shared .b8 buf[1024]; ld.param.u64 %a, [p]; st.global.u32 [%a], 1; mov.u64 %a, buf; ret; }",
    );
    assert_eq!((entry.threads_max, entry.shared_bytes), (256, 1024));
    let at = machine.upload_u32(&[0]);
    let good = Parameters::default().u64(at).u32(0).0;
    let launch = |grid, block, shared_bytes, parameters| {
        machine.gpu.launch(machine.stream, entry.id, &Launch { grid, block, shared_bytes, parameters })
    };
    let one = [1, 1, 1];
    assert!(matches!(launch([0, 1, 1], one, 0, &good), Err(Error::Refused(_))));
    assert!(matches!(launch([1, 65_536, 1], one, 0, &good), Err(Error::Refused(_))));
    assert!(matches!(launch(one, [1, 0, 1], 0, &good), Err(Error::Refused(_))));
    assert!(matches!(launch(one, [1, 1, 65], 0, &good), Err(Error::Refused(_))));
    assert!(matches!(launch(one, [1025, 1, 1], 0, &good), Err(Error::Refused(_))));
    assert!(matches!(launch(one, [257, 1, 1], 0, &good), Err(Error::LaunchResources(_))));
    assert!(matches!(launch(one, one, 48 << 10, &good), Err(Error::LaunchResources(_))));
    assert!(matches!(launch(one, one, 0, &good[..8]), Err(Error::Refused(_))));
    machine.gpu.synchronize(machine.stream).unwrap();
    assert_eq!(machine.download_u32(at, 1), [0]);
    let launch = |shared_bytes| {
        let launch = Launch { grid: one, block: one, shared_bytes, parameters: &good };
        machine.gpu.launch(machine.stream, entry.id, &launch)
    };
    assert!(machine.gpu.allow_dynamic_shared(entry.id, 227 << 10).is_err());
    machine.gpu.allow_dynamic_shared(entry.id, 226 << 10).unwrap();
    launch(226 << 10).unwrap();
    machine.gpu.synchronize(machine.stream).unwrap();
    assert_eq!(machine.download_u32(at, 1), [1]);
}

#[test]
fn what_is_not_supported_is_refused_with_its_place() {
    let machine = Machine::new();
    let module = |body: &str| {
        format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry t()\n{{\n.reg .b32 %r<4>;\n{body}\nret;\n}}\n"
        )
    };
    let cases = [
        ("add.u32 %r1, %r2, %r3;\nvavrg.u32.u32.u32 %r1, %r2, %r3;", "line 8 column 1"),
        ("vadd.u32.u32.u32 %r1, %r2.b4, %r3;", "`.b4`"),
        ("vadd2.u32.u32.u32 %r1.h01, %r2, %r3, %r3;", "`.h01`"),
        ("vset4.u32.u32.lt %r1, %r2.b3218, %r3, %r3;", "`.b3218`"),
        ("vadd4.u32.u32.u32.sat.add %r1, %r2, %r3, %r3;", "this form"),
        ("vadd.u32.u32.u32.max %r1.h0, %r2, %r3, %r3;", "this form"),
        ("vmad.u32.u32.u32 %r1, -%r2, %r3, -%r3;", "not negated together"),
        ("vshl.u32.u32.s32.clamp %r1, %r2, %r3;", "this form"),
        ("mbarrier.init.shared.b32 [%r1], 1;", "this form"),
        ("mbarrier.arrive.expect_tx.shared.b64 _, [%r1];", "this form"),
        ("mbarrier.test_wait.shared.b64 _, [%r1], %r2;", "register of 32 bits"),
        ("add.sat.u32 %r1, %r2, %r3;", "`add.sat.u32`"),
        ("add.u64 %r1, %r2, %r3;", "register of 32 bits"),
        ("add.u32 %r1, %r2, %q;", "`%q`"),
        ("bra $nowhere;", "$nowhere"),
        ("ld.global.u32.weird %r1, [%r2];", "weird"),
        ("call foo;", "`call`"),
    ];
    for (body, words) in cases {
        match machine.gpu.load(&module(body)) {
            Err(Error::Image(text)) => assert!(text.contains(words), "{body}: {text}"),
            other => panic!("{body}: {other:?}"),
        }
    }
    let global = ".version 8.0\n.target sm_90\n.address_size 64\n.global .b32 counter;\n";
    assert!(matches!(machine.gpu.load(global), Err(Error::Image(text)) if text.contains("line 4")));
    machine.gpu.check().unwrap();
}

#[test]
fn an_unloaded_image_has_no_entries() {
    let machine = Machine::new();
    let ptx = kernel("", "");
    let (first, second) = (machine.gpu.load(&ptx).unwrap(), machine.gpu.load(&ptx).unwrap());
    machine.gpu.unload(first.id).unwrap();
    assert!(matches!(machine.gpu.unload(first.id), Err(Error::Refused(_))));
    assert!(machine.launch(first.entries[0].id, 1, 1, &[0; 8]).is_err());
    assert!(machine.gpu.allow_dynamic_shared(second.entries[0].id, 100).is_ok());
}

#[test]
fn a_failure_can_be_asked_for() {
    let mut machine = Machine::with(Options { lost_after_launches: Some(2), ..common::options() });
    let entry = machine.entry(&kernel("", "mov.u32 %out, 3;"));
    let at = machine.buffer(128);
    machine.run(entry.id, 1, 32, &at.to_le_bytes()).unwrap();
    machine.run(entry.id, 1, 32, &at.to_le_bytes()).unwrap();
    assert!(matches!(machine.launch(entry.id, 1, 32, &at.to_le_bytes()), Err(Error::Lost { code: 719, .. })));
    assert!(matches!(machine.gpu.check(), Err(Error::Lost { .. })));
}

#[test]
fn a_device_that_is_dropped_ends_its_kernels() {
    let mut machine = Machine::new();
    let entry = machine.entry(&kernel("", "$for: bra $for;"));
    let at = machine.buffer(128);
    machine.launch(entry.id, 100, 32, &at.to_le_bytes()).unwrap();
    let started = Instant::now();
    drop(machine);
    assert!(started.elapsed() < Duration::from_secs(10));
}
