//! Weaker capabilities: sessions that copy and do not launch, sessions that launch what they were given, fences to wait
//! for only, shares of an account.

use std::{thread, time::Duration};

use bulkhead_client::{ErrorCode, Parameters, Received, Session, Stream, Terms, Uses};
use bulkhead_tests::{
    kernel::Kernel,
    tenant::{ONE, PAGE_BYTES, SHARING, Tenant},
};

const FIRST: Stream = Stream::DEFAULT;
const SOON: Duration = Duration::from_secs(30);

#[test]
fn a_program_launches_its_entries_and_no_others() {
    let kernel = Kernel::start();
    let owner = Tenant::new(&kernel, "owner");
    let (store, load) = (owner.entry("store"), owner.entry("load"));
    let program = owner.session.program(Some(owner.image()), &[&store], Terms::default()).unwrap();
    let token = program.token(Uses::One).unwrap();
    let runner = Session::open_program(&kernel.options("runner"), token).unwrap();
    let names: Vec<_> = runner.entries().iter().map(|entry| entry.name.clone()).collect();
    assert_eq!(names, ["store"]);

    let word = runner.allocate(4).unwrap();
    let own = runner.entries()[0].clone();
    let launch = |entry, parameters: &Parameters| {
        runner.launch(FIRST, entry, &ONE, parameters).and_then(|fence| runner.wait(fence))
    };
    launch(&own, &Parameters::new().buffer(&word).u32(42)).unwrap();
    let mut found = [0; 4];
    runner.read(FIRST, &mut found, word.all()).unwrap();
    assert_eq!(u32::from_ne_bytes(found), 42);

    // Not by the owner's handles, not code of its own, not further than its own slot.
    for foreign in [&load, &store] {
        let parameters = Parameters::new().buffer(&word);
        let parameters = if foreign.name == "load" { parameters.buffer(&word) } else { parameters.u32(1) };
        assert_eq!(launch(foreign, &parameters).unwrap_err().code, ErrorCode::InvalidHandle);
    }
    assert_eq!(runner.load_image(SHARING).map(drop).unwrap_err().code, ErrorCode::NotPermitted);
    let arena = owner.arena(PAGE_BYTES, 7);
    launch(&own, &Parameters::new().u64(arena.address()).u32(1)).unwrap();
    assert!(owner.words(arena.all()).iter().all(|word| *word == 7), "a program reached its owner's memory");
}

#[test]
fn a_session_without_entries_copies_and_does_not_launch() {
    let kernel = Kernel::start();
    let owner = Tenant::new(&kernel, "owner");
    let program = owner.session.program(None, &[], Terms::default()).unwrap();
    let copier = Session::open_program(&kernel.options("copier"), program.token(Uses::One).unwrap()).unwrap();
    assert!(copier.entries().is_empty());
    let (from, to) = (copier.allocate(4096).unwrap(), copier.allocate(4096).unwrap());
    copier.write(FIRST, from.all(), &[9; 4096]).unwrap();
    copier.copy_on_device(FIRST, to.all(), from.all()).unwrap();
    let mut found = [0; 4096];
    copier.read(FIRST, &mut found, to.all()).unwrap();
    assert_eq!(found, [9; 4096]);
    let launched = copier.launch(FIRST, &owner.entry("store"), &ONE, &Parameters::new().buffer(&to).u32(1));
    let refused = launched.and_then(|fence| copier.wait(fence)).unwrap_err();
    assert_eq!(refused.code, ErrorCode::InvalidHandle);
    assert_eq!(copier.load_image(SHARING).map(drop).unwrap_err().code, ErrorCode::NotPermitted);
    assert_eq!(
        copier.program(None, &[], Terms::default()).map(drop).unwrap_err().code,
        ErrorCode::NotPermitted
    );
}

#[test]
fn a_programs_sessions_draw_on_its_owners_account_and_end_with_it() {
    let kernel = Kernel::start();
    let owner = Tenant::new(&kernel, "owner");
    let terms = Terms { device_bytes: 256 << 20, ..Terms::default() };
    let program = owner.session.program(None, &[], terms).unwrap();
    let token = program.token(Uses::UntilRevoked).unwrap();
    let first = Session::open_program(&kernel.options("first"), token).unwrap();
    let before = kernel.status().session("owner").unwrap().arena_bytes;
    let held = first.allocate_arena(64 << 20).unwrap();
    assert!(kernel.status().session("owner").unwrap().arena_bytes >= before + (64 << 20));
    let refused = first.allocate_arena(256 << 20).map(drop).unwrap_err();
    assert!(matches!(refused.code, ErrorCode::OutOfMemory | ErrorCode::LimitReached), "{refused}");
    drop(held);

    let second = Session::open_program(&kernel.options("second"), token).unwrap();
    program.revoke().unwrap();
    let start = std::time::Instant::now();
    for session in [&first, &second] {
        while session.status().is_ok() {
            assert!(start.elapsed() < SOON, "a program's session outlives its revocation");
            thread::sleep(Duration::from_millis(5));
        }
    }
    assert_eq!(owner.words(owner.arena(PAGE_BYTES, 3).range(0, 4)), [3]);
    drop((first, second));
    kernel.without(&["first", "second"]);
}

#[test]
fn a_fence_is_waited_for_and_only_its_signal_is_signalled() {
    let kernel = Kernel::start();
    let (one, other) = (Tenant::new(&kernel, "one"), Tenant::new(&kernel, "other"));
    let signal = one.session.signal().unwrap();
    let fence = signal.fence().unwrap();
    let Received::Fence(theirs) = other.session.restore(fence.token(Uses::One).unwrap()).unwrap() else {
        panic!("a fence is a fence");
    };
    assert!(!theirs.wait(Duration::from_millis(20)).unwrap());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| theirs.wait(SOON).unwrap());
        signal.signal().unwrap();
        assert!(waiting.join().unwrap());
    });
    assert!(signal.wait(Duration::ZERO).unwrap());

    // One that is handed on as a signal is signalled by the other side.
    let handed = one.session.signal().unwrap();
    let Received::Signal(theirs) = other.session.restore(handed.token(Uses::One).unwrap()).unwrap() else {
        panic!("a signal is a signal");
    };
    theirs.signal().unwrap();
    assert!(handed.wait(SOON).unwrap());
}
