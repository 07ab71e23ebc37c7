//! Host memory that was given up waits for an idle device. While a kernel runs on, what waits is bounded, and whoever finds no
//! room holds nobody up.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{
    collections::VecDeque,
    fs,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use bulkhead_client::{Access, ErrorCode, Moment, Parameters, Received, Session, Stream, Uses};
use bulkhead_tests::{
    kernel::Kernel,
    patience::until,
    tenant::{ONE, PAGE_BYTES, Running, Tenant},
};

/// Three times that is more than may wait.
const MUCH: usize = (3 << 30) + 4096;

/// A kernel that runs on.
fn runs_on(kernel: &Kernel) -> (Tenant, Running) {
    let tenant = Tenant::new(kernel, "runs on");
    let arena = tenant.arena(PAGE_BYTES, 1);
    let running = tenant.runs(arena.address());
    (tenant, running)
}

/// Gives up so much host memory that nobody may register more while a kernel runs.
fn fill(kernel: &Kernel) {
    let filler = kernel.open("fills");
    for _ in 0..3 {
        drop(filler.allocate_host(MUCH).unwrap());
    }
}

#[test]
fn who_finds_no_room_for_host_memory_holds_nobody_up() {
    let kernel = Kernel::start();
    let (giver, taker) = (Tenant::new(&kernel, "gives"), Tenant::new(&kernel, "takes"));
    let arena = giver.arena(PAGE_BYTES, 7);
    let share = arena.share(0, PAGE_BYTES, Access::Read).unwrap();
    let token = share.token(Uses::One).unwrap();
    let Received::Share(given) = taker.session.restore(token).unwrap() else { panic!("no share") };
    let taken = taker.session.accept(&given).unwrap();
    let (_tenant, running) = runs_on(&kernel);
    fill(&kernel);
    thread::scope(|scope| {
        let wanting: Vec<_> = (0..2).map(|_| scope.spawn(|| taker.session.allocate_host(4096))).collect();
        thread::sleep(Duration::from_millis(200));
        // Its control thread takes the memory back in time, though two requests wait there.
        let revoked = share.revoke().unwrap().wait(Moment::Quiescent, Duration::from_secs(60)).unwrap();
        assert!(revoked.reached && !revoked.quarantined, "{revoked:?}");
        taker.session.status().unwrap();
        running.end();
        for wanting in wanting {
            // Where this machine is slow, they have waited for too long.
            if let Err(error) = wanting.join().unwrap() {
                assert_eq!(error.code, ErrorCode::OutOfMemory, "{error}");
            }
        }
    });
    drop(taken);
}

#[test]
fn pieces_that_wait_leave_the_executor_mappings() {
    let mappings: usize = fs::read_to_string("/proc/sys/vm/max_map_count").unwrap().trim().parse().unwrap();
    let kernel = Kernel::start();
    let (_tenant, running) = runs_on(&kernel);
    let gives_up = kernel.open("gives up");
    let mut given_up = 0;
    let refused = loop {
        match gives_up.allocate_host(4096) {
            Ok(memory) => drop(memory),
            Err(error) => break error,
        }
        given_up += 1;
        assert!(given_up <= mappings / 8 + 64, "{given_up} pieces wait");
    };
    assert_eq!(refused.code, ErrorCode::OutOfMemory, "{refused}");
    assert!(refused.message.contains("waits for the device"), "{refused}");
    assert!(given_up > 1000, "{given_up}");
    // Others still get a session.
    kernel.open("newcomer").status().unwrap();
    running.end();
    until("there is room", || gives_up.allocate_host(4096).is_ok());
}

#[test]
fn nobody_is_ended_for_room_that_nobody_wants() {
    let kernel = Kernel::with(&["--loading-seconds", "2"]);
    let (tenant, running) = runs_on(&kernel);
    fill(&kernel);
    thread::sleep(Duration::from_secs(5));
    tenant.session.status().unwrap();
    assert!(!running.is_over());
    // Now somebody does.
    let wants = kernel.open("wants");
    drop(wants.allocate_host(4096).unwrap());
    let ended = tenant.session.status().unwrap_err();
    assert_eq!(ended.code, ErrorCode::LaunchTimeout, "{ended}");
    assert!(kernel.log().contains("waited 2s to register host memory"));
}

#[test]
fn who_is_refused_room_keeps_a_standby() {
    let kernel = Kernel::with(&["--standby"]);
    let (_tenant, running) = runs_on(&kernel);
    fill(&kernel);
    let refused = kernel.open("is refused");
    let error = refused.allocate_host(4096).map(drop).unwrap_err();
    assert_eq!(error.code, ErrorCode::OutOfMemory, "{error}");
    running.end();
    until("there is room", || refused.allocate_host(4096).is_ok());
    let log = kernel.log();
    assert!(!log.contains("does not follow"), "{log}");
}

#[test]
fn a_slot_that_waits_for_an_idle_device_counts_for_who_had_it() {
    const SESSIONS: usize = 6;
    let kernel = Kernel::with(&["--process-limit", &format!("sessions={SESSIONS}")]);
    let (_tenant, running) = runs_on(&kernel);
    let mut opened = 1;
    let refused = loop {
        match Session::open(&kernel.options("comes and goes")) {
            Ok(session) => drop(session.allocate_mapped(4096).unwrap()),
            Err(error) => break error,
        }
        opened += 1;
        assert!(opened <= SESSIONS, "{opened} sessions have a slot");
    };
    assert_eq!((opened, refused.code), (SESSIONS, ErrorCode::LimitReached), "{refused}");
    running.end();
    until("slots come back", || Session::open(&kernel.options("newcomer")).is_ok());
}

/// Has short kernels in its stream all the time, until it is told or its session is over.
fn is_busy(kernel: &Kernel, goes_on: &AtomicBool) {
    /// Rounds of a loop, some milliseconds of them.
    const ROUNDS: u64 = 400_000;
    let tenant = Tenant::new(kernel, "busy");
    let words = tenant.session.allocate_mapped(8).unwrap();
    words.write(0, &[0; 8]);
    let (entry, at) = (tenant.entry("until"), words.address().unwrap());
    let parameters = Parameters::new().u64(ROUNDS).u64(at).u64(at + 4);
    let mut queued = VecDeque::new();
    while goes_on.load(Ordering::Relaxed) {
        let Ok(fence) = tenant.session.launch(Stream::DEFAULT, &entry, &ONE, &parameters) else { return };
        queued.push_back(fence);
        if queued.len() > 9 && queued.pop_front().is_some_and(|fence| tenant.session.wait(fence).is_err()) {
            return;
        }
    }
}

#[test]
fn a_slot_that_waits_gets_its_turn_beside_sessions_that_are_never_idle_together() {
    /// More than may wait.
    const ALL: usize = (8 << 30) + (4 << 20);
    let kernel = Kernel::with(&["--loading-seconds", "3"]);
    let goes_on = AtomicBool::new(true);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| is_busy(&kernel, &goes_on));
        }
        until("both are busy", || kernel.status().sessions.len() == 2);
        drop(kernel.open("closes").allocate_mapped(ALL).unwrap());
        let wants = kernel.open("wants");
        let found = (0..4).any(|_| wants.allocate_host(4096).is_ok());
        goes_on.store(false, Ordering::Relaxed);
        assert!(found, "there is no room for 40 s");
    });
}
