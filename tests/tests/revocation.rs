//! Capabilities that are taken back: after a revocation is acknowledged as quiescent, no kernel that is running or queued
//! in the session that had the memory reads or changes it, even when it belongs to somebody else by then.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::time::{Duration, Instant};

use bulkhead_client::{Access, ErrorCode, Launch, Moment, Parameters, Pattern, Share, Stream, Uses};
use bulkhead_schema::limits;
use bulkhead_tests::{
    kernel::Kernel,
    neighbour::Neighbour,
    patience::{PATIENCE, until},
    tenant::{ONE, PAGE_BYTES, Tenant},
};

const FIRST: Stream = Stream::DEFAULT;
/// Turns of a kernel that takes a while: on the software GPU a good part of a second.
const LONG: u32 = 2_000_000;
/// Longer than an executor takes to end a kernel.
const LONG_ENOUGH: Duration = Duration::from_secs(1);

/// A giver's memory, mapped read-write in a taker.
fn shared(giver: &Tenant, taker: &Tenant, value: u32) -> (bulkhead_client::Buffer, Share, Share) {
    let arena = giver.arena(PAGE_BYTES, value);
    let share = arena.share(0, PAGE_BYTES, Access::ReadWrite).unwrap();
    let mapped = taker.session.accept(&taker.restore(share.token(Uses::One).unwrap())).unwrap();
    (arena, share, mapped)
}

#[test]
fn after_a_quiescent_revocation_no_running_or_queued_kernel_reaches_the_memory() {
    let kernel = Kernel::start();
    let (giver, taker) = (Tenant::new(&kernel, "giver"), Tenant::new(&kernel, "taker"));
    let (arena, share, mapped) = shared(&giver, &taker, 1);
    // One that runs, and many behind it, that all write where the memory was.
    let write = Parameters::new().u32(LONG).u64(mapped.address()).u32(0xbad0_0000);
    taker.launch("persist", &write);
    let more = Parameters::new().u32(10_000).u64(mapped.address()).u32(0xbad0_0000);
    let mut last = None;
    for _ in 0..400 {
        last = Some(taker.launch("persist", &more));
    }
    let revocation = share.revoke().unwrap();
    // What the token stood for, and what was accepted.
    assert_eq!(revocation.capabilities, 2);
    let reached = revocation.wait(Moment::Quiescent, PATIENCE).unwrap();
    assert!(reached.reached && !reached.quarantined, "{reached:?}");
    giver.fill(arena.all(), 0x600d);
    // Those that were queued run now, and land elsewhere.
    taker.session.wait(last.unwrap()).unwrap();
    taker.stores(mapped.address() + 512, 0xbad);
    assert!(
        giver.words(arena.all()).iter().all(|word| *word == 0x600d),
        "a revoked session wrote the memory"
    );
    assert_ne!(taker.loads(mapped.address() + 1024), 0x600d, "a revoked session read the memory");
    // By name, nothing is admitted either.
    let filled =
        taker.session.fill(FIRST, mapped.all(), Pattern::Bits32(0)).and_then(|f| taker.session.wait(f));
    assert_eq!(filled.unwrap_err().code, ErrorCode::InvalidHandle);
    let read = taker.session.read(FIRST, &mut [0; 4], mapped.range(0, 4));
    assert_eq!(read.unwrap_err().code, ErrorCode::InvalidHandle);
}

#[test]
fn memory_that_belongs_to_somebody_else_by_then_is_out_of_reach() {
    let kernel = Kernel::start();
    let (giver, taker) = (Tenant::new(&kernel, "giver"), Tenant::new(&kernel, "taker"));
    let (arena, share, mapped) = shared(&giver, &taker, 1);
    taker.launch("persist", &Parameters::new().u32(LONG).u64(mapped.address()).u32(0xbad0_0000));
    let revocation = share.close().unwrap();
    assert!(revocation.wait(Moment::Quiescent, PATIENCE).unwrap().reached);
    drop(arena);
    until("the memory is given back", || kernel.status().charged_bytes < 5 * 64 * 1024 * 1024);
    // Somebody new takes all the memory it can get, the taker's old pages among it.
    let heir = Tenant::new(&kernel, "heir");
    let legacy = heir.arena(PAGE_BYTES, 0);
    assert!(heir.words(legacy.all()).iter().all(|word| *word == 0), "memory was not scrubbed");
    heir.fill(legacy.all(), 0x5ec7e7);
    for offset in (0..PAGE_BYTES).step_by(4096) {
        assert_ne!(taker.loads(mapped.address() + offset), 0x5ec7e7);
    }
    let fence = taker.launch("persist", &Parameters::new().u32(10_000).u64(mapped.address()).u32(0xbad));
    taker.session.wait(fence).unwrap();
    assert!(heir.words(legacy.all()).iter().all(|word| *word == 0x5ec7e7));
}

#[test]
fn revoking_ends_ten_thousand_descendants_at_once_and_nothing_else() {
    const DESCENDANTS: u32 = 10_000;
    let kernel = Kernel::start();
    let giver = Tenant::new(&kernel, "giver");
    let arena = giver.arena(PAGE_BYTES, 5);
    let root = arena.share(0, PAGE_BYTES, Access::Read).unwrap();
    let beside = arena.share(0, PAGE_BYTES, Access::Read).unwrap();
    assert_eq!(giver.words(root.range(0, 4)), [5]);
    let before = kernel.status().session("giver").unwrap().capabilities;
    let mut made: Vec<Share> = Vec::new();
    for index in 0..DESCENDANTS {
        // Every tenth is a child of the one before: chains and stars.
        let parent = made.last().filter(|_| index % 10 == 0).unwrap_or(&root);
        made.push(parent.derive(0, 64, Access::Read).unwrap());
    }
    assert_eq!(kernel.status().session("giver").unwrap().capabilities, before + DESCENDANTS);
    let start = Instant::now();
    let revocation = root.revoke().unwrap();
    assert!(revocation.wait(Moment::Severed, PATIENCE).unwrap().reached);
    println!("severed after {:?}, seen from the client", start.elapsed());
    assert_eq!(revocation.capabilities, DESCENDANTS);
    for dead in made.iter().step_by(997) {
        let refused = giver.session.read(FIRST, &mut [0; 4], dead.range(0, 4));
        assert_eq!(refused.unwrap_err().code, ErrorCode::InvalidHandle);
        assert_eq!(dead.derive(0, 4, Access::Read).map(drop).unwrap_err().code, ErrorCode::Revoked);
    }
    assert_eq!(giver.words(root.range(0, 4)), [5]);
    assert_eq!(giver.words(beside.range(0, 4)), [5]);
    assert_eq!(kernel.status().session("giver").unwrap().capabilities, before);
}

#[test]
fn what_ends_twice_or_was_never_there_is_told_apart_from_what_is_there() {
    let kernel = Kernel::start();
    let giver = Tenant::new(&kernel, "giver");
    let arena = giver.arena(PAGE_BYTES, 5);
    let root = arena.share(0, PAGE_BYTES, Access::ReadWrite).unwrap();
    let child = root.derive(0, 512, Access::ReadWrite).unwrap();
    assert_eq!(root.revoke().unwrap().capabilities, 1);
    assert_eq!(root.revoke().unwrap().capabilities, 0);
    assert_eq!(child.revoke().map(drop).unwrap_err().code, ErrorCode::Revoked);
    assert_eq!(child.token(Uses::One).map(drop).unwrap_err().code, ErrorCode::Revoked);
    assert_eq!(child.close().map(drop).unwrap_err().code, ErrorCode::Revoked);
    assert_eq!(root.close().unwrap().capabilities, 1);
    assert_eq!(giver.words(arena.range(0, 4)), [5]);
}

#[test]
fn a_kernel_that_outlasts_the_deadline_is_ended_with_its_session_and_the_memory_is_the_givers() {
    let kernel = Kernel::start();
    let mut neighbour = Neighbour::new(&kernel, "neighbour");
    let (giver, taker) = (Tenant::new(&kernel, "giver"), Tenant::new(&kernel, "taker"));
    let (arena, share, mapped) = shared(&giver, &taker, 1);
    // Runs until the end of the test.
    let _running = taker.runs(mapped.address());
    let revocation = share.revoke().unwrap();
    assert!(revocation.wait(Moment::Severed, PATIENCE).unwrap().reached);
    let early = revocation.wait(Moment::Quiescent, Duration::from_millis(100)).unwrap();
    assert!(!early.reached && !early.quarantined, "{early:?}");
    neighbour.work();
    let late = Duration::from_secs(limits::DRAIN_SECONDS + 20);
    until("the kernel is ended", || {
        revocation.wait(Moment::Quiescent, Duration::from_millis(200)).unwrap().reached
    });
    let start = Instant::now();
    let ended = loop {
        match taker.session.status() {
            Err(error) => break error,
            Ok(()) => assert!(start.elapsed() < late, "the session lives on"),
        }
    };
    assert_eq!(ended.code, ErrorCode::Revoked);
    assert_eq!(kernel.without(&["taker"]).executor_starts, kernel.status().executor_starts);
    // The giver's memory is as it was, and stays the giver's.
    assert!(giver.words(arena.range(0, 4096)).iter().all(|word| *word == 1));
    neighbour.work();
}

#[test]
fn closing_a_session_takes_back_what_others_were_given() {
    let kernel = Kernel::start();
    let taker = Tenant::new(&kernel, "taker");
    let giver = Tenant::new(&kernel, "giver");
    let (arena, share, mapped) = shared(&giver, &taker, 0x61);
    assert_eq!(taker.loads(mapped.address()), 0x61);
    drop((arena, share, giver));
    kernel.without(&["giver"]);
    assert_ne!(taker.loads(mapped.address()), 0x61);
    let refused = taker.session.read(FIRST, &mut [0; 4], mapped.range(0, 4)).unwrap_err();
    assert!(refused.code == ErrorCode::InvalidHandle && refused.message.contains("taken back"), "{refused}");
    assert_eq!(kernel.status().session("taker").unwrap().granted, 0);
}

#[test]
fn a_session_that_sprays_its_slot_while_its_memory_changes_harms_nobody() {
    let kernel = Kernel::start();
    let mut neighbour = Neighbour::new(&kernel, "neighbour");
    let giver = Tenant::new(&kernel, "giver");
    let taker = Tenant::new(&kernel, "sprayer");
    let executor = kernel.status().executor_pid;
    let (base, bytes) = taker.session.window();
    let spray = |turns| {
        let mask = bytes - 4;
        let parameters = Parameters::new().u32(turns).u64(base).u64(mask).u32(0xdead);
        let launch = Launch { grid: [2, 1, 1], ..ONE };
        let launched = taker.session.launch(FIRST, &taker.entry("spray"), &launch, &parameters);
        launched.unwrap();
    };
    let theirs = giver.arena(PAGE_BYTES, 0x717);
    for round in 0..12 {
        spray(20_000);
        let arena = taker.session.allocate_arena((1 + round % 3) * 40 * (1 << 20)).unwrap();
        spray(20_000);
        let view = theirs.share(0, PAGE_BYTES, Access::Read).unwrap();
        let seen = taker.restore(view.token(Uses::One).unwrap());
        let mapped = taker.session.accept(&seen).unwrap();
        spray(20_000);
        assert!(view.revoke().unwrap().wait(Moment::Quiescent, PATIENCE).unwrap().reached);
        spray(20_000);
        drop((arena, mapped));
        neighbour.work();
    }
    assert!(giver.words(theirs.all()).iter().all(|word| *word == 0x717), "a spray reached another's memory");
    assert_eq!(kernel.status().executor_pid, executor, "a spray ended the context");
}

#[test]
fn whoever_is_ended_for_what_it_uses_is_told_whether_its_giver_has_ended() {
    let kernel = Kernel::start();
    for (has_ended, told) in
        [(true, "the session that gave memory or gates has ended"), (false, "was taken back")]
    {
        let (giver, taker) = (Tenant::new(&kernel, "giver"), Tenant::new(&kernel, "taker"));
        let (arena, share, _mapped) = shared(&giver, &taker, 1);
        let word = taker.session.allocate(4).unwrap();
        let running = taker.runs(word.address());
        let held = match has_ended {
            true => {
                drop((arena, share, giver));
                None
            }
            false => {
                share.revoke().unwrap();
                Some((arena, giver))
            }
        };
        until("the session that uses it is over", || taker.session.status().is_err());
        let error = taker.session.status().unwrap_err();
        assert_eq!(error.code, ErrorCode::Revoked, "{error}");
        assert!(error.message.contains(told), "{error}");
        // Whoever looks again only when its end has let the kernel's fence pass is told the same.
        std::thread::sleep(LONG_ENOUGH);
        assert_eq!(taker.session.wait(running.fence()).unwrap_err(), error);
        drop(held);
    }
}
