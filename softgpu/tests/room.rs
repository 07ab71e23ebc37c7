//! Launches with large blocks that wait for host memory.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails by panicking")]

mod common;

use std::{
    thread,
    time::{Duration, Instant},
};

use bulkhead_gpu::{DeviceAddress, FillPattern, Gpu, Launch, StreamId};
use bulkhead_softgpu::Options;
use common::{Machine, kernel};

/// 1,024 threads of it take a quarter of all the host memory that there is for blocks.
const LARGE: &str = ".local .align 4 .b8 array[490000]; .reg .pred %p; .reg .b32 %a, %n;";

fn launches(machine: &Machine, entry: bulkhead_gpu::EntryId, blocks: u32, at: u64) -> StreamId {
    let stream = machine.gpu.create_stream(0).unwrap();
    let launch =
        Launch { grid: [blocks, 1, 1], block: [1024, 1, 1], shared_bytes: 0, parameters: &at.to_le_bytes() };
    machine.gpu.launch(stream, entry, &launch).unwrap();
    stream
}

fn fills(machine: &Machine, at: u64, value: u32, words: u64) {
    let stream = machine.gpu.create_stream(0).unwrap();
    machine.gpu.fill(stream, DeviceAddress(at), FillPattern::Bits32(value), words).unwrap();
    machine.gpu.synchronize(stream).unwrap();
}

#[test]
fn blocks_that_wait_for_each_other_begin_together_whoever_else_waits_for_room() {
    // Where they did not, two in three passed all the same.
    (0..6).for_each(|_| meet(2));
}

/// Each needs both threads of the pool, which others ask for help too that have no room yet.
#[test]
fn blocks_that_wait_for_each_other_begin_on_all_threads_whoever_else_waits_for_room() {
    meet(3);
}

fn meet(blocks: u32) {
    let words = 1024 * blocks as usize;
    let machine = &mut Machine::with(Options { threads: Some(blocks as usize), ..common::options() });
    let goes_on = machine.upload_u32(&[0; 1024]);
    let counts = machine.upload_u32(&vec![0; 4 * words]);
    // The second word counts those that have begun.
    let until = "st.local.u32 [array], 1; setp.ne.u32 %p, %lane, 0; @%p bra AGAIN; atom.global.add.u32 %a, [%at+4], 1; \
                 AGAIN: ld.volatile.global.u32 %a, [%at]; setp.eq.u32 %p, %a, 0; @%p bra AGAIN; \
                 mov.u32 %out, 1;";
    let holds = machine.entry(&kernel(LARGE, until));
    let meets = "st.local.u32 [array], 1; mov.u32 %n, %nctaid.x; setp.ne.u32 %p, %lane, 0; @%p bra AGAIN;\
                 atom.global.add.u32 %a, [%at], 1;\
                 AGAIN: ld.volatile.global.u32 %a, [%at]; setp.lt.u32 %p, %a, %n; @%p bra AGAIN; add.s64 %at, %at, 4;";
    let meets = machine.entry(&kernel(LARGE, meets));
    let holders: Vec<_> = (0..4).map(|_| launches(machine, holds.id, 1, goes_on)).collect();
    while machine.download_u32(goes_on, 2)[1] < 4 {
        thread::sleep(Duration::from_millis(20));
    }
    let streams: Vec<_> = (0..4)
        .map(|index| launches(machine, meets.id, blocks, counts + index * (words * 4) as u64))
        .collect();
    thread::sleep(Duration::from_millis(300));
    fills(machine, goes_on, 1, 1);
    let waits: Vec<_> = holders
        .into_iter()
        .chain(streams)
        .map(|stream| {
            let gpu = machine.gpu.clone();
            thread::spawn(move || gpu.synchronize(stream))
        })
        .collect();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60) && !waits.iter().all(thread::JoinHandle::is_finished) {
        thread::sleep(Duration::from_millis(20));
    }
    let passed = waits.iter().filter(|wait| wait.is_finished()).count();
    // Whatever still waits goes on, so that the test ends.
    fills(machine, counts, blocks, (4 * words) as u64);
    waits.into_iter().for_each(|wait| wait.join().unwrap().unwrap());
    assert_eq!(passed, 8);
}
