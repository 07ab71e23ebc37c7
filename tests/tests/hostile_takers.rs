//! Whoever was given memory, and does not let go of it, cuts it up, or has an executor that answers nothing: whose memory it is
//! goes on, and ends when it wants to.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bulkhead_client::{
    Access, Buffer, Domain, ErrorCode, Moment, Options, Pattern, Received, Session, Share, Terms, Uses,
};
use bulkhead_tests::{
    kernel::Kernel,
    patience::until,
    process,
    tenant::{PAGE_BYTES, Tenant},
};
use rustix::process::Signal;

/// What a session has to let go within, and more than enough.
const LATE: Duration = Duration::from_secs(13);

fn open(kernel: &Kernel, name: &str, domain: Domain) -> Session {
    let terms = Terms { domain, ..Terms::default() };
    Session::open(&Options { terms, ..kernel.options(name) }).unwrap()
}

fn isolated(kernel: &Kernel, name: &str) -> Session {
    open(kernel, name, Domain::Isolated)
}

/// Stops the executor of an isolated session: it answers nothing from here on.
fn stop(kernel: &Kernel, name: &str) {
    process::signal(kernel.status().session(name).unwrap().executor_pid, Signal::STOP);
}

/// Gives a page to another session, which has not mapped it yet.
fn give(of: &Buffer, to: &Session) -> (Share, Share) {
    let share = of.share(0, PAGE_BYTES, Access::ReadWrite).unwrap();
    match to.restore(share.token(Uses::One).unwrap()).unwrap() {
        Received::Share(given) => (share, given),
        _ => panic!("something else was given"),
    }
}

/// Whether a session lives for as long as it could be ended for what others do.
fn lives_on(session: &Session) {
    let start = Instant::now();
    while start.elapsed() < LATE {
        session.status().unwrap_or_else(|error| panic!("ended after {:?}: {error}", start.elapsed()));
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_session_ends_though_what_it_gave_is_in_the_hands_of_an_executor_that_is_mute() {
    let kernel = Kernel::start();
    let (giver, taker) = (isolated(&kernel, "giver"), isolated(&kernel, "taker"));
    let arena = giver.allocate_arena(PAGE_BYTES).unwrap();
    let (share, given) = give(&arena, &taker);
    let mapped = taker.accept(&given).unwrap();
    stop(&kernel, "taker");
    drop((share, arena));
    drop(giver);
    kernel.without(&["giver"]);
    until("the taker is told", || taker.status().is_err());
    assert_eq!(taker.status().unwrap_err().code, ErrorCode::Revoked);
    drop((mapped, given));
}

#[test]
fn a_session_ends_though_what_it_gave_is_being_mapped_by_an_executor_that_is_mute() {
    let kernel = Kernel::start();
    let (giver, taker) = (isolated(&kernel, "giver"), isolated(&kernel, "taker"));
    let arena = giver.allocate_arena(PAGE_BYTES).unwrap();
    let (share, given) = give(&arena, &taker);
    stop(&kernel, "taker");
    thread::scope(|scope| {
        let accepting = scope.spawn(|| taker.accept(&given).err().unwrap().code);
        thread::sleep(Duration::from_millis(300));
        drop((share, arena));
        drop(giver);
        assert_eq!(accepting.join().unwrap(), ErrorCode::Revoked);
    });
    kernel.without(&["giver"]);
}

#[test]
fn freeing_what_a_mute_executor_is_mapping_ends_nobody_else() {
    const PAGES: usize = 24;
    let kernel = Kernel::with(&["--device-memory", "1GiB"]);
    let [owner, victim, taker] = ["owner", "victim", "taker"].map(|name| isolated(&kernel, name));
    let arenas =
        |of: &Session| (0..PAGES).map(|_| of.allocate_arena(PAGE_BYTES).unwrap()).collect::<Vec<_>>();
    let (own, lent) = (arenas(&victim), arenas(&owner));
    let given: Vec<_> = own.iter().map(|arena| give(arena, &taker)).collect();
    let taken: Vec<_> = lent.iter().map(|arena| give(arena, &victim)).collect();
    let _mapped: Vec<_> = taken.iter().map(|(_, given)| victim.accept(given).unwrap()).collect();
    stop(&kernel, "taker");
    let begin = Barrier::new(2);
    thread::scope(|scope| {
        for (_, given) in &given {
            let taker = &taker;
            scope.spawn(move || drop(taker.accept(given)));
        }
        thread::sleep(Duration::from_millis(500));
        // What others take back, and what the victim frees, ends at the same time.
        scope.spawn(|| {
            begin.wait();
            taken.iter().for_each(|(share, _)| drop(share.revoke().unwrap()));
        });
        begin.wait();
        drop(own);
        lives_on(&victim);
    });
}

#[test]
fn cuts_that_others_ask_for_do_not_halt_a_session() {
    const PAGES: u64 = 16;
    let kernel = Kernel::with(&["--device-memory", "1GiB"]);
    for domain in [Domain::Guarded, Domain::Isolated] {
        let [giver, taker] = ["giver", "taker"].map(|name| Tenant::over(open(&kernel, name, domain)));
        let arena = giver.arena(PAGES * PAGE_BYTES, 7);
        let share = arena.share(0, PAGES * PAGE_BYTES, Access::ReadWrite).unwrap();
        let given = taker.restore(share.token(Uses::One).unwrap());
        let word = giver.session.allocate(64).unwrap();
        let other = giver.session.create_stream(0).unwrap();
        let running = giver.runs(word.address());
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let part = given.derive(PAGE_BYTES, PAGE_BYTES, Access::ReadWrite).unwrap();
                    drop(taker.session.accept(&part));
                }
            });
            let start = Instant::now();
            let mut longest = Duration::ZERO;
            while start.elapsed() < Duration::from_secs(4) {
                let begun = Instant::now();
                let filled = giver.session.fill(other, arena.range(0, 4096), Pattern::Bits32(7)).unwrap();
                giver.session.wait(filled).unwrap();
                longest = longest.max(begun.elapsed());
            }
            // As long as a change of the session's own memory may take, they were halted before.
            assert!(longest < Duration::from_secs(3), "{domain:?}: {longest:?}");
            done.store(true, Ordering::Relaxed);
            running.end();
        });
    }
}

#[test]
fn who_maps_what_is_taken_back_before_it_was_handed_over_goes_on() {
    let kernel = Kernel::telling(&[]);
    let (owner, taker) = (isolated(&kernel, "owner"), isolated(&kernel, "taker"));
    let arena = owner.allocate_arena(PAGE_BYTES).unwrap();
    let (share, given) = give(&arena, &taker);
    stop(&kernel, "owner");
    thread::scope(|scope| {
        let accepting = scope.spawn(|| taker.accept(&given).err().unwrap().code);
        thread::sleep(Duration::from_millis(300));
        drop(share.revoke().unwrap());
        assert_eq!(accepting.join().unwrap(), ErrorCode::Revoked);
    });
    thread::sleep(Duration::from_secs(1));
    taker.status().unwrap();
    assert!(!kernel.log().contains("does not let go"), "{}", kernel.log());
}

#[test]
fn memory_is_not_called_quiescent_while_a_session_that_frees_its_own_has_it_mapped() {
    let kernel = Kernel::with(&["--device-memory", "1GiB"]);
    let [owner, victim, taker] = ["owner", "victim", "taker"].map(|name| Tenant::new(&kernel, name));
    let own = victim.session.allocate_arena(PAGE_BYTES).unwrap();
    let (own_share, given) = give(&own, &taker.session);
    let arena = owner.arena(PAGE_BYTES, 7);
    let (share, lent) = give(&arena, &victim.session);
    let (first, second) = (victim.session.accept(&lent).unwrap(), victim.session.accept(&lent).unwrap());
    let at = first.address();
    let word = taker.session.allocate(64).unwrap();
    let running = taker.runs(word.address());
    thread::scope(|scope| {
        // It waits for the taker's kernel, and what the victim frees waits for it.
        scope.spawn(|| drop(taker.session.accept(&given)));
        thread::sleep(Duration::from_millis(200));
        drop((own_share, own, first));
        thread::sleep(Duration::from_millis(300));
        drop(second);
        let revocation = share.revoke().unwrap();
        let start = Instant::now();
        while !revocation.wait(Moment::Quiescent, Duration::from_millis(100)).unwrap().reached {
            assert!(start.elapsed() < 2 * LATE, "it never is");
        }
        // What the victim's kernels find there now is not the owner's.
        assert!(victim.session.status().is_err() || victim.loads(at) != 7, "it is mapped still");
        running.end();
    });
}

#[test]
fn who_drops_what_it_was_given_again_and_again_leaves_its_giver_alone() {
    let kernel = Kernel::start();
    let (giver, taker) = (Tenant::new(&kernel, "giver"), open(&kernel, "taker", Domain::Guarded));
    let arena = giver.arena(PAGE_BYTES, 7);
    let share = arena.share(0, PAGE_BYTES, Access::ReadWrite).unwrap();
    let token = share.token(Uses::UntilRevoked).unwrap();
    let word = giver.session.allocate(64).unwrap();
    let running = giver.runs(word.address());
    let refused = (0..5000).find_map(|_| taker.restore(token).err());
    let refused = refused.expect("what it dropped is remembered while the giver's kernel runs");
    assert!(refused.code == ErrorCode::LimitReached && !refused.remedy.is_empty(), "{refused}");
    // What it takes back itself counts the same.
    let other = arena.share(0, PAGE_BYTES, Access::ReadWrite).unwrap();
    let token_of_other = other.token(Uses::UntilRevoked).unwrap();
    let refused = (0..5000).find_map(|_| match taker.restore(token_of_other) {
        Ok(Received::Share(given)) => given.revoke().err(),
        Ok(_) => panic!("something else was given"),
        Err(error) => Some(error),
    });
    assert_eq!(refused.expect("it is remembered too").code, ErrorCode::LimitReached);
    drop(arena.share(0, PAGE_BYTES, Access::ReadWrite).unwrap());
    drop(giver.session.allocate_host(1 << 20).unwrap());
    running.end();
    until("the taker may again", || taker.restore(token).is_ok());
}

#[test]
fn who_borrows_and_fetches_nothing_takes_none_of_its_lenders_descriptors() {
    let kernel = Kernel::start();
    let lender = kernel.open("lender");
    let memory = lender.allocate_lendable(1 << 20).unwrap();
    let lending = memory.lend().unwrap();
    let descriptors = || {
        let status = kernel.status();
        let ledger = &status.session("lender").unwrap().ledger;
        ledger.iter().find(|column| column.name == "descriptors").unwrap().used
    };
    let before = descriptors();
    let borrower = kernel.open("borrower");
    let (socket, away) = (kernel.descriptor_socket(), kernel.descriptor_socket().with_extension("away"));
    std::fs::rename(&socket, &away).unwrap();
    for _ in 0..64 {
        assert!(borrower.borrow_host(lending.token()).is_err(), "it cannot fetch it");
    }
    std::fs::rename(&away, &socket).unwrap();
    assert_eq!(descriptors(), before);
    drop(lender.allocate_lendable(1 << 20).unwrap());
}

#[test]
fn a_loan_whose_capability_was_closed_is_waited_for() {
    let kernel = Kernel::start();
    let (lender, borrower) = (kernel.open("lender"), kernel.open("borrower"));
    let memory = lender.allocate_lendable(1 << 20).unwrap();
    let lending = memory.lend().unwrap();
    let Received::Share(given) = borrower.restore(lending.token()).unwrap() else { panic!("no share") };
    let (borrowed, recall) = borrower.borrow_host(given.token(Uses::UntilRevoked).unwrap()).unwrap();
    drop(given);
    until("the borrower is told", || recall.wait(Duration::from_millis(100)).unwrap());
    let taken = lending.take_back().unwrap();
    assert!(!taken.wait(Moment::Quiescent, Duration::from_millis(300)).unwrap().reached, "it has it still");
    drop((borrowed, recall));
    assert!(taken.wait(Moment::Reclaimed, Duration::from_secs(5)).unwrap().reached);
}

#[test]
fn a_lender_that_is_busy_is_not_ended_for_whoever_maps_a_part_of_its_memory() {
    let kernel = Kernel::start();
    let (giver, taker) = (isolated(&kernel, "giver"), isolated(&kernel, "taker"));
    let arena = giver.allocate_arena(2 * PAGE_BYTES).unwrap();
    let (share, given) = give(&arena, &taker);
    stop(&kernel, "giver");
    let Err(refused) = taker.accept(&given) else { panic!("nobody cut it") };
    assert_eq!(refused.code, ErrorCode::Unavailable, "{refused}");
    process::signal(kernel.status().session("giver").unwrap().executor_pid, Signal::CONT);
    until("the giver hands it over", || taker.accept(&given).is_ok());
    giver.status().unwrap();
    drop((share, arena));
}

#[test]
fn a_session_that_was_chosen_to_be_swapped_out_and_maps_others_memory_meanwhile_stays() {
    const MIB: u64 = 1 << 20;
    let kernel = Kernel::with(&["--device-memory", "1GiB", "--swap-memory", "4GiB"]);
    let of = |name: &str, terms: Terms| {
        Tenant::over(Session::open(&Options { terms, ..kernel.options(name) }).unwrap())
    };
    let giver = of("giver", Terms { keep_resident: true, ..Terms::default() });
    let first = of("first", Terms { priority: 5, ..Terms::default() });
    let taker = of("taker", Terms { priority: 1, ..Terms::default() });
    let asker = of("asker", Terms::default());
    let secret = giver.arena(PAGE_BYTES, 7);
    let (share, given) = give(&secret, &taker.session);
    let (_first, _own) = (first.arena(200 * MIB, 1), taker.arena(200 * MIB, 2));
    let word = first.session.allocate(64).unwrap();
    // The first that is chosen does not leave while this runs: meanwhile the other takes what it was given.
    let running = first.runs(word.address());
    thread::sleep(Duration::from_millis(300));
    let mapped = thread::scope(|scope| {
        let asking = scope.spawn(|| asker.session.allocate_arena(600 * MIB));
        thread::sleep(Duration::from_millis(40));
        let mapped = taker.session.accept(&given);
        thread::sleep(Duration::from_secs(2));
        let told = kernel.status();
        let (away, granted) =
            told.session("taker").map(|taker| (taker.swapped_bytes, taker.granted)).unwrap();
        assert!(away == 0 || granted == 0, "{away} bytes away, with {granted} of others'");
        running.end();
        drop(asking.join().unwrap());
        mapped
    });
    let revocation = share.revoke().unwrap();
    assert!(revocation.wait(Moment::Reclaimed, Duration::from_secs(10)).unwrap().reached);
    giver.fill(secret.all(), 4242);
    if let Ok(mapped) = mapped {
        assert_ne!(taker.loads(mapped.address()), 4242, "what was taken back is read still");
    }
}

#[test]
fn those_who_were_given_things_let_go_of_no_more_than_may_wait_however_often_they_are_given_anew() {
    let kernel = Kernel::quiet(&[]);
    let (giver, taker) = (Tenant::new(&kernel, "giver"), kernel.open("taker"));
    let arena = giver.arena(PAGE_BYTES, 7);
    let share = arena.share(0, PAGE_BYTES, Access::ReadWrite).unwrap();
    let word = giver.session.allocate(64).unwrap();
    let running = giver.runs(word.address());
    let mut ended = 0;
    let refused = 'all: loop {
        let token = share.token(Uses::UntilRevoked).unwrap();
        for _ in 0..250 {
            if let Err(error) = taker.restore(token) {
                break 'all error;
            }
            ended += 1;
        }
        share.drop_tokens().unwrap();
        assert!(ended <= 17_000, "refused by nothing");
    };
    assert_eq!(refused.code, ErrorCode::LimitReached);
    assert!(ended >= 16_000, "{ended}: {refused}");
    // What is its own is not in the way of that.
    giver.session.allocate(64).unwrap();
    running.end();
    until("they may again", || share.token(Uses::One).and_then(|token| taker.restore(token)).is_ok());
}

/// What a taker derives in its own session is its own, however much of it ends at once.
#[test]
fn what_takers_derive_for_themselves_takes_nobody_elses_place() {
    let kernel = Kernel::quiet(&[]);
    let giver = Tenant::new(&kernel, "giver");
    let takers = ["first", "second"].map(|name| kernel.open(name));
    let honest = kernel.open("honest");
    let [taken, other, word] = [1, 2, 0].map(|value| giver.arena(PAGE_BYTES, value));
    let [taken, other] = [&taken, &other].map(|arena| arena.share(0, PAGE_BYTES, Access::ReadWrite).unwrap());
    let [taken, other] = [&taken, &other].map(|share| share.token(Uses::UntilRevoked).unwrap());
    let mut kept = Vec::new();
    let restored: Vec<_> = takers
        .iter()
        .zip([16_000, 500])
        .map(|(taker, count)| {
            let Received::Share(restored) = taker.restore(taken).unwrap() else { panic!("no share") };
            let mine = taker.accept(&restored).unwrap();
            kept.extend((0..count).map(|_| mine.derive(0, PAGE_BYTES, Access::ReadWrite).unwrap()));
            kept.push(mine);
            restored
        })
        .collect();
    let running = giver.runs(word.address());
    let ended: Vec<_> = restored.into_iter().map(|share| share.close().unwrap()).collect();
    drop(honest.restore(other).unwrap());
    running.end();
    drop((kept, ended));
}
