//! What programs may rely on when they allocate from arenas: places of their own, limits, and memory that goes back.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::collections::BTreeMap;

use bulkhead_client::{Buffer, ErrorCode, Launch, Parameters, Pattern, Session, Stream};
use bulkhead_tests::{kernel::Kernel, neighbour::KERNELS, patience::until};

const FIRST: Stream = Stream::DEFAULT;
const ONE: Launch = Launch { grid: [1, 1, 1], block: [1, 1, 1], shared_bytes: 0 };
const MIB: u64 = 1 << 20;

fn words(session: &Session, buffer: &Buffer) -> Vec<u8> {
    let mut found = vec![0; usize::try_from(buffer.bytes()).unwrap()];
    session.read(FIRST, &mut found, buffer.all()).unwrap();
    found
}

#[test]
fn allocations_are_aligned_apart_and_within_four_gibibytes() {
    let kernel = Kernel::start();
    let session = kernel.open("places");
    // More than 4 GiB in all, so that one would cross if it went where the one before ends.
    let large = [1400, 1400, 1400].map(|mebibytes| session.allocate(mebibytes * MIB).unwrap());
    let small: Vec<Buffer> =
        (0..200).map(|index| session.allocate(1 + index * index * 97).unwrap()).collect();
    let ranges: BTreeMap<u64, u64> =
        large.iter().chain(&small).map(|buffer| (buffer.address(), buffer.bytes())).collect();
    assert_eq!(ranges.len(), large.len() + small.len());
    for (start, bytes) in &ranges {
        let alignment = if *bytes >= MIB { 2 * MIB } else { 512 };
        assert!(start.is_multiple_of(alignment), "{bytes} bytes at {start:x}");
        assert_eq!(start >> 32, (start + bytes - 1) >> 32, "{bytes} bytes at {start:x}");
    }
    assert!(ranges.iter().zip(ranges.iter().skip(1)).all(|(a, b)| a.0 + a.1 <= *b.0), "they overlap");
}

/// The place of a buffer that is dropped while a kernel is still to write it is nobody's until it has.
#[test]
fn memory_that_submitted_work_still_writes_is_not_given_to_the_next() {
    let kernel = Kernel::start();
    let session = kernel.open("quarantine");
    let image = session.load_image(KERNELS).unwrap();
    let (slow, fast) = (session.create_stream(0).unwrap(), session.create_stream(0).unwrap());
    let from = session.allocate(4).unwrap();
    session.fill(FIRST, from.all(), Pattern::Bits32(41)).unwrap();
    session.wait(session.fence(FIRST)).unwrap();
    for ordered in [false, true] {
        let to = session.allocate(4).unwrap();
        let place = to.address();
        let parameters = Parameters::new().u32(3_000_000).buffer(&from).buffer(&to);
        let fence = session.launch(slow, &image.entry("successor").unwrap(), &ONE, &parameters).unwrap();
        assert!(!session.is_done(fence).unwrap(), "the kernel takes its time");
        if ordered {
            to.free_after(fence);
        } else {
            drop(to);
        }
        let next: Vec<Buffer> = (0..4).map(|_| session.allocate(4).unwrap()).collect();
        assert!(!session.is_done(fence).unwrap(), "an allocation that has room waits for nothing");
        assert!(next.iter().all(|buffer| buffer.address() != place));
        for buffer in &next {
            session.fill(fast, buffer.all(), Pattern::Bits32(7)).unwrap();
        }
        session.wait(session.fence(slow)).unwrap();
        session.wait(session.fence(fast)).unwrap();
        assert!(next.iter().all(|buffer| words(&session, buffer) == 7_u32.to_ne_bytes()));
        // Now that it has passed, the place is the next one's.
        assert_eq!(session.allocate(4).unwrap().address(), place);
    }
}

#[test]
fn free_memory_falls_and_rises_with_allocations() {
    let kernel = Kernel::start();
    let session = kernel.open("free");
    let free = || session.memory().unwrap().free_bytes;
    let start = free();
    for bytes in [1, 4096, 3 * MIB, 64 * MIB, 100 * MIB] {
        let before = free();
        let buffer = session.allocate(bytes).unwrap();
        let during = free();
        assert!(during + bytes <= before, "{bytes} bytes: {before} were free, then {during}");
        drop(buffer);
        assert_eq!(free(), before, "{bytes} bytes came back");
    }
    assert_eq!(free(), start);
    let total = session.memory().unwrap().total_bytes;
    for bytes in [total + 1, u64::MAX] {
        assert_eq!(session.allocate(bytes).err().unwrap().code, ErrorCode::OutOfMemory);
        assert_eq!(free(), start, "nothing is lost by a refusal");
    }
    assert_eq!(session.allocate(0).err().unwrap().code, ErrorCode::InvalidArgument);
}

#[test]
fn memory_that_nobody_uses_goes_back_to_the_kernel() {
    let kernel = Kernel::start();
    let session = kernel.open("idle");
    let held = || kernel.status().session("idle").unwrap().buffer_bytes;
    let empty = held();
    let buffers = [4096, 70 * MIB].map(|bytes| session.allocate(bytes).unwrap());
    assert!(held() >= empty + 70 * MIB);
    drop(buffers);
    // Kept at first, for the next allocation; with nothing left that the program could do, it goes back.
    until("the empty arenas are given back", || held() == empty);
    assert_eq!(words(&session, &session.allocate(64).unwrap()).len(), 64);
}

#[test]
fn more_than_is_worth_keeping_goes_back_at_once_and_comes_again() {
    let kernel = Kernel::start();
    let session = kernel.open("surplus");
    let before = session.memory().unwrap().free_bytes;
    for _ in 0..3 {
        let buffers: Vec<Buffer> = (0..4).map(|_| session.allocate(200 * MIB).unwrap()).collect();
        session.fill(FIRST, buffers[3].all(), Pattern::Bits8(1)).unwrap();
        drop(buffers);
    }
    until("all of it is free", || session.memory().unwrap().free_bytes == before);
    until("what is not worth keeping is given back", || {
        kernel.status().session("surplus").unwrap().buffer_bytes <= 256 * MIB
    });
}

/// Also where the device has less than the ledger, whose sinks it counts: what was charged is back with the answer.
#[test]
fn a_refusal_leaves_as_much_as_there_was() {
    let kernel = Kernel::start();
    let session = kernel.open("modest");
    let free = session.memory().unwrap().free_bytes;
    for bytes in [free, free + 64 * MIB, u64::MAX - 64 * MIB] {
        for _ in 0..5 {
            let refused = session.allocate(bytes).map(drop).unwrap_err();
            assert_eq!(refused.code, ErrorCode::OutOfMemory, "{bytes}: {refused}");
            assert_eq!(session.memory().unwrap().free_bytes, free, "after {bytes} bytes were refused");
        }
    }
}
