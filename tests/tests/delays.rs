//! A kernel that runs for long and leaves multiprocessors free: it delays nobody's allocations, copies, launches, opens
//! and closes, also while a third session waits to load code.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{
    thread,
    time::{Duration, Instant},
};

use bulkhead_client::{Pattern, Session, Stream};
use bulkhead_tests::{
    kernel::Kernel,
    neighbour::Neighbour,
    tenant::{NEW, PAGE_BYTES, Tenant},
};

const FIRST: Stream = Stream::DEFAULT;
/// How long the kernel runs at least.
const LONG: Duration = Duration::from_secs(10);

/// Everything that must not wait, once: the longest of it, and what that was.
fn round(kernel: &Kernel, session: &Session) -> (Duration, &'static str) {
    let mut worst = (Duration::ZERO, "");
    let mut timed = |what: &'static str, work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        worst = worst.max((start.elapsed(), what));
    };
    let mut arena = None;
    timed("allocation", &mut || arena = Some(session.allocate_arena(64 << 20).unwrap()));
    let arena = arena.unwrap();
    timed("copy to the device", &mut || {
        session.write(FIRST, arena.range(0, 1 << 20), &[7; 1 << 20]).unwrap()
    });
    timed("copy to the host", &mut || {
        session.read(FIRST, &mut [0; 1 << 20], arena.range(0, 1 << 20)).unwrap()
    });
    timed("fill", &mut || {
        let fence = session.fill(FIRST, arena.all(), Pattern::Bits32(9)).unwrap();
        session.wait(fence).unwrap();
    });
    timed("stream", &mut || {
        let stream = session.create_stream(0).unwrap();
        let fence = session.fill(stream, arena.range(0, 4), Pattern::Bits32(1)).unwrap();
        session.wait(fence).unwrap();
        session.destroy_stream(stream).unwrap();
    });
    drop(arena);
    let mut opened = None;
    timed("open", &mut || opened = Some(kernel.open("visitor")));
    let visitor = opened.unwrap();
    let pinned = visitor.allocate_host(1 << 20).unwrap();
    timed("first allocation", &mut || drop(visitor.allocate(PAGE_BYTES).unwrap()));
    drop(pinned);
    timed("close", &mut || {
        drop(visitor.clone());
        kernel.without(&["nobody"]);
    });
    drop(visitor);
    timed("gone", &mut || drop(kernel.without(&["visitor"])));
    worst
}

#[test]
fn a_kernel_that_runs_for_ten_seconds_delays_no_neighbour() {
    let kernel = Kernel::start();
    let mut neighbour = Neighbour::new(&kernel, "neighbour");
    let busy = Tenant::new(&kernel, "busy");
    let done = busy.session.allocate(4).unwrap();
    busy.fill(done.all(), 0);
    let start = Instant::now();
    let long = busy.runs(done.address());
    let mut worst = (Duration::ZERO, "");
    let mut rounds = 0;
    thread::scope(|scope| {
        // Somebody who loads code waits, as loading does; nobody else waits for him.
        let loader = scope.spawn(|| {
            let session = kernel.open("loader");
            session.load_image(NEW).map(drop)
        });
        while start.elapsed() < LONG {
            let began = Instant::now();
            neighbour.work();
            worst = worst.max((began.elapsed(), "launch"));
            worst = worst.max(round(&kernel, neighbour.session()));
            rounds += 1;
        }
        assert!(!long.is_over(), "the long kernel did not last");
        long.end();
        loader.join().unwrap().unwrap();
    });
    println!(
        "{rounds} rounds beside a kernel of {:?}; the longest wait was {:?}, for {}",
        start.elapsed(),
        worst.0,
        worst.1
    );
    // Not a speed: whoever waited for the kernel waited for seconds.
    assert!(worst.0 < LONG / 3, "{} took {:?}", worst.1, worst.0);
    assert_eq!(busy.words(done.all()), [1]);
}
