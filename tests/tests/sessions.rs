//! What a service may rely on in a session: work in order, right results, limits that are told, and memory that
//! comes back.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use bulkhead_client::{
    Buffer, Entry, ErrorCode, Image, Launch, Options, Parameters, Pattern, Session, Stream,
};
use bulkhead_schema::limits;
use bulkhead_tests::{
    kernel::Kernel,
    leftovers,
    neighbour::{KERNELS, bytes, numbers},
    patience::{until, within},
};

#[path = "sessions/refused.rs"]
mod refused;

const FIRST: Stream = Stream::DEFAULT;
const ONE: Launch = Launch { grid: [1, 1, 1], block: [1, 1, 1], shared_bytes: 0 };

/// A session with the tests' image loaded.
struct Loaded {
    session: Session,
    image: Image,
}

impl Loaded {
    fn new(kernel: &Kernel, name: &str) -> Self {
        let session = kernel.open(name);
        let image = session.load_image(KERNELS).unwrap();
        Self { session, image }
    }

    fn entry(&self, name: &str) -> Entry {
        self.image.entry(name).unwrap()
    }
}

fn word(session: &Session, stream: Stream, buffer: &Buffer) -> u32 {
    let mut found = [0; 4];
    session.read(stream, &mut found, buffer.all()).unwrap();
    u32::from_ne_bytes(found)
}

fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|index| ((index + seed).wrapping_mul(167) >> 3).to_le_bytes()[0]).collect()
}

#[test]
fn a_launch_computes_what_the_cpu_computes() {
    let kernel = Kernel::start();
    let loaded = Loaded::new(&kernel, "launch");
    let count = 10_007_u32;
    let start: Vec<u32> = (0..count).map(|index| index * 3 + 1).collect();
    let buffer = loaded.session.allocate(u64::from(count) * 4).unwrap();
    loaded.session.write(FIRST, buffer.all(), &bytes(&start)).unwrap();
    let parameters = Parameters::new().u32(count).buffer(&buffer);
    let launch = Launch::linear(count, 192);
    let fence = loaded.session.launch(FIRST, &loaded.entry("scramble"), &launch, &parameters).unwrap();
    loaded.session.wait(fence).unwrap();
    assert!(loaded.session.is_done(fence).unwrap());
    let mut found = vec![0; start.len() * 4];
    loaded.session.read(FIRST, &mut found, buffer.all()).unwrap();
    let expected: Vec<u32> =
        start.iter().map(|number| number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223)).collect();
    assert!(numbers(&found) == expected);
}

#[test]
fn copies_of_every_size_and_offset_arrive_whole_and_touch_nothing_else() {
    let kernel = Kernel::start();
    let session = kernel.open("copies");
    // More than the SDK stages at once, so that pieces and threads show.
    let large = (20 << 20) + 13;
    let buffer = session.allocate(large as u64 + 64).unwrap();
    for (offset, length) in
        [(0, 1), (1, 1), (3, 5), (7, 4095), (0, 4096), (511, 65_537), (1, (4 << 20) + 1), (17, large)]
    {
        let all = usize::try_from(buffer.bytes()).unwrap().min(offset + length + 64);
        session.fill(FIRST, buffer.range(0, all as u64), Pattern::Bits8(0xee)).unwrap();
        let sent = pattern(length, offset);
        session.write(FIRST, buffer.range(offset as u64, length as u64), &sent).unwrap();
        let mut found = vec![0; all];
        session.read(FIRST, &mut found, buffer.range(0, all as u64)).unwrap();
        assert!(found[offset..offset + length] == sent, "{length} bytes at {offset}");
        let around = found[..offset].iter().chain(&found[offset + length..]);
        assert!(around.into_iter().all(|byte| *byte == 0xee), "around {length} bytes at {offset}");
    }
}

#[test]
fn copies_on_the_device_and_through_pinned_memory_arrive_whole() {
    let kernel = Kernel::start();
    let session = kernel.open("pinned");
    let (from, to) = (session.allocate(100_000).unwrap(), session.allocate(100_000).unwrap());
    let (sent, received) = (session.allocate_host(100_000).unwrap(), session.allocate_host(100_000).unwrap());
    sent.write(0, &pattern(100_000, 9));
    session.copy_to_device(FIRST, from.range(1, 99_999), sent.span(0, 99_999)).unwrap();
    session.copy_on_device(FIRST, to.range(0, 99_998), from.range(2, 99_998)).unwrap();
    let fence = session.copy_to_host(FIRST, received.span(5, 99_998), to.range(0, 99_998)).unwrap();
    session.wait(fence).unwrap();
    let mut found = vec![0; 99_998];
    received.read(5, &mut found);
    assert!(found == pattern(100_000, 9)[1..99_999]);
}

#[test]
fn fills_of_every_width_write_their_range_and_no_more() {
    let kernel = Kernel::start();
    let session = kernel.open("fills");
    let buffer = session.allocate(64).unwrap();
    for (fill, element) in [
        (Pattern::Bits8(0xab), vec![0xab]),
        (Pattern::Bits16(0x1234), 0x1234_u16.to_ne_bytes().to_vec()),
        (Pattern::Bits32(0xdead_beef), 0xdead_beef_u32.to_ne_bytes().to_vec()),
    ] {
        session.fill(FIRST, buffer.all(), Pattern::Bits8(0)).unwrap();
        session.fill(FIRST, buffer.range(8, 20), fill).unwrap();
        let mut found = [0; 64];
        session.read(FIRST, &mut found, buffer.all()).unwrap();
        assert_eq!(found[8..28], element.repeat(20 / element.len()));
        assert!(found[..8].iter().chain(&found[28..]).all(|byte| *byte == 0), "{fill:?}");
    }
    let odd = session.fill(FIRST, buffer.range(0, 7), Pattern::Bits32(1)).unwrap_err();
    assert_eq!(odd.code, ErrorCode::InvalidArgument);
}

/// Two streams pass a number back and forth; every step waits for the one before on the other stream.
#[test]
fn a_stream_that_waits_on_another_sees_its_results_in_both_directions() {
    let kernel = Kernel::start();
    let loaded = Loaded::new(&kernel, "order");
    let session = &loaded.session;
    let successor = loaded.entry("successor");
    let second = session.create_stream(0).unwrap();
    let (a, b) = (session.allocate(4).unwrap(), session.allocate(4).unwrap());
    session.fill(FIRST, a.all(), Pattern::Bits32(0)).unwrap();
    let rounds = 20;
    for _ in 0..rounds {
        // Slow first, so that who does not wait reads too early.
        let there = Parameters::new().u32(5_000).buffer(&a).buffer(&b);
        let fence = session.launch(FIRST, &successor, &ONE, &there).unwrap();
        session.wait_on(second, fence).unwrap();
        let back = Parameters::new().u32(5_000).buffer(&b).buffer(&a);
        let fence = session.launch(second, &successor, &ONE, &back).unwrap();
        session.wait_on(FIRST, fence).unwrap();
    }
    assert_eq!(word(session, FIRST, &a), 2 * rounds);
    session.destroy_stream(second).unwrap();
}

#[test]
fn a_wait_for_another_stream_has_passed_when_that_stream_has() {
    let kernel = Kernel::start();
    let loaded = Loaded::new(&kernel, "waits");
    let session = &loaded.session;
    let successor = loaded.entry("successor");
    let number = session.allocate(4).unwrap();
    for round in 0..5 {
        let (slow, waiting) = (session.create_stream(0).unwrap(), session.create_stream(0).unwrap());
        session.fill(slow, number.all(), Pattern::Bits32(round)).unwrap();
        let parameters = Parameters::new().u32(2_000_000).buffer(&number).buffer(&number);
        let fence = session.launch(slow, &successor, &ONE, &parameters).unwrap();
        session.wait_on(waiting, fence).unwrap();
        session.wait(session.fence(waiting)).unwrap();
        assert!(session.is_done(fence).unwrap(), "round {round}");
        // What has passed can be destroyed at once, and its index used again.
        session.destroy_stream(waiting).unwrap();
        session.destroy_stream(slow).unwrap();
        assert_eq!(word(session, FIRST, &number), round + 1);
    }
}

#[test]
fn work_of_one_stream_is_done_in_order() {
    let kernel = Kernel::start();
    let loaded = Loaded::new(&kernel, "one stream");
    let session = &loaded.session;
    let successor = loaded.entry("successor");
    let (a, b) = (session.allocate(4).unwrap(), session.allocate(4).unwrap());
    session.fill(FIRST, a.all(), Pattern::Bits32(7)).unwrap();
    for turns in (0..40).rev() {
        let parameters = Parameters::new().u32(turns * 100).buffer(&a).buffer(&b);
        session.launch(FIRST, &successor, &ONE, &parameters).unwrap();
        session.copy_on_device(FIRST, a.all(), b.all()).unwrap();
    }
    assert_eq!(word(session, FIRST, &a), 47);
}

#[test]
fn time_passes_between_two_events() {
    let kernel = Kernel::start();
    let loaded = Loaded::new(&kernel, "events");
    let session = &loaded.session;
    let (start, end) = (session.create_event().unwrap(), session.create_event().unwrap());
    assert_eq!(session.elapsed_ns(start, end).unwrap_err().code, ErrorCode::InvalidArgument);
    let buffer = session.allocate(4).unwrap();
    session.record(start, FIRST).unwrap();
    let parameters = Parameters::new().u32(20_000).buffer(&buffer).buffer(&buffer);
    session.launch(FIRST, &loaded.entry("successor"), &ONE, &parameters).unwrap();
    let reached = session.record(end, FIRST).unwrap();
    session.wait(reached).unwrap();
    let (there, back) = (session.elapsed_ns(start, end).unwrap(), session.elapsed_ns(end, start).unwrap());
    assert!(there > 0.0 && back < 0.0, "{there} ns and {back} ns");
    session.destroy_event(start).unwrap();
    assert_eq!(session.destroy_event(start).unwrap_err().code, ErrorCode::InvalidHandle);
}

#[test]
fn memory_that_is_freed_comes_back() {
    let kernel = Kernel::start();
    let session = kernel.open("memory");
    let empty = kernel.status().session("memory").unwrap().clone();
    let before = session.memory().unwrap();
    for round in 0..3_u64 {
        let buffers: Vec<Buffer> =
            (0..150).map(|index| session.allocate_arena(1 + index * 997 * (round + 1)).unwrap()).collect();
        let addresses: std::collections::BTreeMap<u64, u64> =
            buffers.iter().map(|buffer| (buffer.address(), buffer.bytes())).collect();
        assert_eq!(addresses.len(), buffers.len());
        let apart = addresses.iter().zip(addresses.iter().skip(1)).all(|(a, b)| a.0 + a.1 <= *b.0);
        assert!(apart, "buffers overlap");
        let host = session.allocate_host(10_000).unwrap();
        let held = kernel.status().session("memory").unwrap().clone();
        assert_eq!(held.capabilities, empty.capabilities + 151);
        assert!(held.buffer_bytes > empty.buffer_bytes && held.host_bytes > empty.host_bytes);
        drop((buffers, host));
        until("the buffers are given back", || {
            let now = kernel.status().session("memory").unwrap().clone();
            (now.buffer_bytes, now.host_bytes, now.capabilities)
                == (empty.buffer_bytes, empty.host_bytes, empty.capabilities)
        });
    }
    assert_eq!(session.memory().unwrap().total_bytes, before.total_bytes);
}

#[test]
fn closing_a_session_gives_all_of_it_back() {
    let kernel = Kernel::start();
    let before = kernel.status();
    let loaded = Loaded::new(&kernel, "closing");
    let _buffer = loaded.session.allocate(100 << 20).unwrap();
    let pinned = loaded.session.allocate_host(1 << 20).unwrap();
    loaded.session.write(FIRST, loaded.session.allocate(10).unwrap().all(), &[1; 10]).unwrap();
    assert!(kernel.status().charged_bytes >= before.charged_bytes + (100 << 20));
    drop((loaded, _buffer, pinned));
    assert_eq!(kernel.without(&["closing"]), before);
}

#[test]
fn nothing_of_a_session_that_is_gone_is_seen_by_the_next() {
    leftovers::are_none(&Kernel::start()).unwrap();
}

#[test]
fn a_handle_of_a_freed_buffer_is_refused_and_touches_nothing() {
    let kernel = Kernel::start();
    let session = kernel.open("stale");
    let freed = session.allocate_arena(4096).unwrap();
    let (stale, address) = (freed.range(0, 4096), freed.address());
    session.write(FIRST, stale, &[1; 4096]).unwrap();
    drop(freed);
    // The copy is refused on the device's side, so that a later wait tells.
    until("the handle is refused", || {
        let fence = session.fill(FIRST, stale, Pattern::Bits8(2)).unwrap();
        session.wait(fence).is_err()
    });
    // Whoever gets the place next is out of the old handle's reach.
    let mut kept = Vec::new();
    until("the place is used again", || {
        kept.push(session.allocate_arena(4096).unwrap());
        kept.iter().any(|buffer| buffer.address() == address)
    });
    let next = kept.iter().find(|buffer| buffer.address() == address).unwrap();
    assert_ne!(next.handle(), stale.handle);
    session.write(FIRST, next.range(0, 4096), &[3; 4096]).unwrap();
    let fence = session.fill(FIRST, stale, Pattern::Bits8(2)).unwrap();
    let refused = session.wait(fence).unwrap_err();
    assert!(matches!(refused.code, ErrorCode::InvalidHandle | ErrorCode::InvalidArgument), "{refused:?}");
    let mut found = [0; 4096];
    session.read(FIRST, &mut found, next.range(0, 4096)).unwrap();
    assert_eq!(found, [3; 4096]);
}

#[test]
fn a_range_that_leaves_its_buffer_is_refused_and_touches_nothing() {
    let kernel = Kernel::start();
    let session = kernel.open("ranges");
    let (low, high) = (session.allocate(4096).unwrap(), session.allocate(4096).unwrap());
    session.write(FIRST, low.all(), &[5; 4096]).unwrap();
    session.write(FIRST, high.all(), &[5; 4096]).unwrap();
    for (offset, length) in
        [(0, 4097), (4096, 1), (4000, 200), (u64::MAX, 1), (u64::MAX - 3, 8), (1 << 40, 4)]
    {
        let fence = session.fill(FIRST, low.range(offset, length), Pattern::Bits8(6)).unwrap();
        assert!(session.wait(fence).is_err(), "{length} bytes at {offset}");
    }
    for buffer in [low, high] {
        let mut found = [0; 4096];
        session.read(FIRST, &mut found, buffer.all()).unwrap();
        assert_eq!(found, [5; 4096]);
    }
}

#[test]
fn a_handle_of_another_session_means_nothing() {
    let kernel = Kernel::start();
    let (owner, thief) = (kernel.open("owner"), kernel.open("thief"));
    // Handles are small numbers: take one that the thief has nothing under.
    let arenas: Vec<Buffer> = (0..20).map(|_| owner.allocate_arena(64).unwrap()).collect();
    let buffers: Vec<_> = arenas.iter().map(|arena| arena.range(0, 64)).collect();
    for buffer in &buffers {
        owner.write(FIRST, *buffer, &[8; 64]).unwrap();
    }
    for buffer in &buffers {
        let fence = thief.fill(FIRST, *buffer, Pattern::Bits8(9)).unwrap();
        assert!(thief.wait(fence).is_err());
        let mut stolen = [0; 64];
        drop(thief.read(FIRST, &mut stolen, *buffer));
        assert_ne!(stolen, [8; 64]);
    }
    for buffer in &buffers {
        let mut found = [0; 64];
        owner.read(FIRST, &mut found, *buffer).unwrap();
        assert_eq!(found, [8; 64]);
    }
}

#[test]
fn a_full_ring_makes_its_producer_wait_and_loses_nothing() {
    let kernel = Kernel::start();
    let loaded = Loaded::new(&kernel, "full ring");
    let (session, successor) = (loaded.session.clone(), loaded.entry("successor"));
    let found = within("5,000 launches", move || {
        let number = session.allocate(4).unwrap();
        session.fill(FIRST, number.all(), Pattern::Bits32(0)).unwrap();
        let parameters = Parameters::new().u32(0).buffer(&number).buffer(&number);
        for _ in 0..5_000 {
            session.launch(FIRST, &successor, &ONE, &parameters).unwrap();
        }
        word(&session, FIRST, &number)
    });
    assert_eq!(found, 5_000);
}

#[test]
fn parameters_of_four_thousand_bytes_arrive_in_every_launch() {
    let kernel = Kernel::start();
    let loaded = Loaded::new(&kernel, "parameters");
    let (session, corners) = (&loaded.session, loaded.entry("corners"));
    assert_eq!(corners.parameters.iter().map(|place| place.bytes).collect::<Vec<_>>(), [4000, 8]);
    let results: Vec<Buffer> = (0..600).map(|_| session.allocate(4).unwrap()).collect();
    let large = |seed: u32| -> Vec<u32> { (0..1000).map(|index| index * 7 + seed).collect() };
    for (seed, result) in (0..).zip(&results) {
        let parameters = Parameters::new().raw(&bytes(&large(seed))).buffer(result);
        session.launch(FIRST, &corners, &ONE, &parameters).unwrap();
    }
    for (seed, result) in (0..).zip(&results) {
        let large = large(seed);
        assert_eq!(word(session, FIRST, result), large[0] + large[1] + large[500] + large[999]);
    }
}

#[test]
fn threads_share_a_session() {
    let kernel = Kernel::start();
    let loaded = Loaded::new(&kernel, "threads");
    let successor = loaded.entry("successor");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (session, successor) = (loaded.session.clone(), &successor);
            scope.spawn(move || {
                let stream = session.create_stream(0).unwrap();
                let number = session.allocate(4).unwrap();
                session.fill(stream, number.all(), Pattern::Bits32(0)).unwrap();
                let parameters = Parameters::new().u32(10).buffer(&number).buffer(&number);
                for expected in 1..=50 {
                    session.launch(stream, successor, &ONE, &parameters).unwrap();
                    assert_eq!(word(&session, stream, &number), expected);
                }
            });
        }
    });
}

#[test]
fn an_event_that_is_destroyed_before_its_stream_comes_to_it_leaves_the_next_alone() {
    let kernel = Kernel::start();
    let session = kernel.open("events");
    let stream = session.create_stream(0).unwrap();
    let barrier = session.barrier(stream).unwrap();
    let gone = session.create_event().unwrap();
    session.record(gone, stream).unwrap();
    session.destroy_event(gone).unwrap();
    let error = session.destroy_event(gone).expect_err("it is gone");
    assert_eq!(error.code, ErrorCode::InvalidHandle);
    let next = session.create_event().unwrap();
    assert_ne!(next, gone);
    session.wait(session.record(next, FIRST).unwrap()).unwrap();
    barrier.open();
    session.wait(session.fence(stream)).unwrap();
    assert!(session.elapsed_ns(next, next).is_ok());
    // Now its index is free again, and whoever has it is alone with it.
    let again = session.create_event().unwrap();
    assert_eq!(again, gone);
    session.wait(session.record(again, stream).unwrap()).unwrap();
    assert!(session.elapsed_ns(again, again).is_ok());
}

/// One thread copies in a stream that another gives barriers to all the time, each of which is opened when a third has
/// copied in a stream of its own.
#[test]
fn a_copy_that_a_barrier_overtakes_holds_up_no_copy_of_another_stream() {
    const BYTES: usize = 9 << 20;
    const BARRIERS: u64 = 100;
    let kernel = Kernel::start();
    let session = kernel.open("copies");
    let (held, free) = (session.create_stream(0).unwrap(), session.create_stream(0).unwrap());
    let (large, small) = (session.allocate(BYTES as u64).unwrap(), session.allocate(4).unwrap());
    let (over, copied) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0_usize.. {
                let content: Vec<u8> = (0..BYTES).map(|at| (at / 4096 + round).to_le_bytes()[0]).collect();
                session.write(held, large.all(), &content).unwrap();
                let mut found = vec![0; BYTES];
                session.read(held, &mut found, large.all()).unwrap();
                assert!(content == found, "round {round}");
                if over.load(Ordering::Acquire) {
                    return;
                }
            }
        });
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                session.write(free, small.all(), &[1; 4]).unwrap();
                session.read(free, &mut [0; 4], small.all()).unwrap();
                copied.fetch_add(1, Ordering::AcqRel);
            }
        });
        let mut waited = Ok(());
        for number in 0..BARRIERS {
            let barrier = session.barrier(held).unwrap();
            // What was under way may have begun before.
            let enough = copied.load(Ordering::Acquire) + 3;
            let begun = Instant::now();
            while copied.load(Ordering::Acquire) < enough && waited.is_ok() {
                if begun.elapsed() > Duration::from_secs(10) {
                    waited = Err(number);
                }
                thread::yield_now();
            }
            barrier.open();
            thread::sleep(Duration::from_millis(number % 7));
        }
        over.store(true, Ordering::Release);
        assert_eq!(waited, Ok(()), "a copy waits for another stream's barrier");
    });
}
