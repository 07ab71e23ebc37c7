//! Sessions that do not rest: memory of theirs is changed or unmapped for as long as a kernel of theirs runs. They have no
//! standby meanwhile, and everybody else has.

use std::{
    collections::BTreeSet,
    fs,
    sync::{
        atomic::{AtomicBool, AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use bulkhead_client::{Access, ErrorCode, Pattern, Session, Stream, Uses};
use bulkhead_tests::{
    kernel::Kernel,
    neighbour::Neighbour,
    patience::until,
    place::repository,
    process,
    tenant::{PAGE_BYTES, Tenant},
};
use rustix::process::Signal;

/// How many ask for memory at a time, and wait.
const ASKING: u32 = 4;
const BEHIND: &str = "the session has no standby for now";
const AGAIN: &str = "the session has a standby again";

fn protected() -> Kernel {
    let kernel = Kernel::telling(&["--standby"]);
    until("a standby is ready", || kernel.status().standby_pid != 0);
    kernel
}

/// Kills the standby, and waits until the next is ready.
fn next_standby(kernel: &Kernel) -> u32 {
    let standby = kernel.status().standby_pid;
    process::kill(standby);
    until("another standby is ready", || ![0, standby].contains(&kernel.status().standby_pid));
    kernel.status().standby_pid
}

/// The processes that a kernel has started and that are there.
fn children(kernel: &Kernel) -> BTreeSet<u32> {
    let tasks = fs::read_dir(format!("/proc/{}/task", kernel.pid())).expect("the kernel runs");
    let of_task = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).unwrap_or_default();
    let numbers = tasks.filter_map(Result::ok).map(of_task).collect::<Vec<_>>().join(" ");
    numbers.split_whitespace().map(|number| number.parse().expect("a process")).collect()
}

fn lose_executor(kernel: &Kernel) {
    let executor = kernel.status().executor_pid;
    process::kill(executor);
    until("the standby serves", || ![0, executor].contains(&kernel.status().executor_pid));
}

/// Work that was in flight is reported once, by whoever waits next.
fn told_of_loss(session: &Session) {
    let word = session.allocate(4).expect("the session goes on");
    let filled = session.fill(Stream::DEFAULT, word.all(), Pattern::Bits32(1)).expect("the session goes on");
    if let Err(error) = session.wait(filled) {
        assert_eq!(error.code, ErrorCode::WorkLost, "{error}");
    }
}

/// Has a session with a kernel that runs on ask for memory all the time, which waits for that kernel.
fn with_restless<T>(tenant: &Tenant, test: impl FnOnce() -> T) -> T {
    let (over, asked) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        // The executor takes one after the other: while one is given up, others wait.
        for _ in 0..ASKING {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    asked.fetch_add(1, Ordering::Relaxed);
                    let refused = tenant.session.allocate_arena(PAGE_BYTES).err();
                    if refused.is_some_and(|error| error.code == ErrorCode::DeviceLost) {
                        break;
                    }
                }
            });
        }
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until("an allocation waits for the kernel", || {
                let before = asked.load(Ordering::Relaxed);
                thread::sleep(Duration::from_millis(500));
                before >= ASKING && before == asked.load(Ordering::Relaxed)
            });
            test()
        }));
        over.store(true, Ordering::Relaxed);
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[test]
fn a_session_that_does_not_rest_keeps_nobody_from_a_standby() {
    let kernel = protected();
    let mut neighbour = Neighbour::new(&kernel, "neighbour");
    let (giver, taker) = (Tenant::new(&kernel, "giver"), Tenant::new(&kernel, "taker"));
    let arena = giver.arena(PAGE_BYTES, 5);
    let share = arena.share(0, PAGE_BYTES, Access::ReadWrite).unwrap();
    let mapped = taker.session.accept(&taker.restore(share.token(Uses::One).unwrap())).unwrap();
    let restless = Tenant::new(&kernel, "restless");
    let word = restless.arena(PAGE_BYTES, 0);
    let running = restless.runs(word.address());
    with_restless(&restless, || {
        next_standby(&kernel);
        let standby = next_standby(&kernel);
        lose_executor(&kernel);
        assert_eq!(kernel.status().executor_pid, standby);
        told_of_loss(neighbour.session());
        neighbour.work();
        for tenant in [&giver, &taker] {
            told_of_loss(&tenant.session);
        }
        taker.stores(mapped.address(), 6);
        assert_eq!(giver.loads(arena.address()), 6, "what was shared is shared still");
    });
    // It was behind.
    assert_eq!(restless.session.allocate(4).err().unwrap().code, ErrorCode::DeviceLost);
    drop(running);
}

#[test]
fn a_session_has_a_standby_again_once_it_rests_and_so_has_who_shares_its_memory() {
    let kernel = protected();
    let restless = Tenant::new(&kernel, "restless");
    let arena = restless.arena(PAGE_BYTES, 0);
    let share = arena.share(0, PAGE_BYTES, Access::ReadWrite).unwrap();
    let taker = Tenant::new(&kernel, "taker");
    let mapped = taker.session.accept(&taker.restore(share.token(Uses::One).unwrap())).unwrap();
    let running = restless.runs(arena.address());
    with_restless(&restless, || {
        next_standby(&kernel);
        assert!(!kernel.log().contains(AGAIN));
        running.end();
    });
    until("both have a standby", || kernel.log().matches(AGAIN).count() == 2);
    lose_executor(&kernel);
    for tenant in [&restless, &taker] {
        told_of_loss(&tenant.session);
    }
    assert_eq!(taker.loads(mapped.address()), 1);
    taker.stores(mapped.address(), 7);
    assert_eq!(restless.loads(arena.address()), 7);
}

#[test]
fn a_standby_is_not_told_of_memory_that_is_on_its_way_back() {
    let kernel = protected();
    let tenant = Tenant::new(&kernel, "tenant");
    let word = tenant.arena(PAGE_BYTES, 0);
    let arena = tenant.arena(PAGE_BYTES, 1);
    let address = arena.address();
    let running = tenant.runs(word.address());
    drop(arena);
    let standby = next_standby(&kernel);
    running.end();
    until("it has a standby", || kernel.log().contains(AGAIN));
    // The standby has nothing at these addresses.
    let arenas: Vec<_> = (0..4).map(|_| tenant.arena(PAGE_BYTES, 2)).collect();
    assert!(arenas.iter().any(|arena| arena.address() == address), "other addresses are used");
    assert_eq!(kernel.status().standby_pid, standby);
    lose_executor(&kernel);
    told_of_loss(&tenant.session);
    assert!(arenas.iter().all(|arena| tenant.words(arena.all()).iter().all(|word| *word == 2)));
}

#[test]
fn a_standby_that_hangs_while_it_is_told_of_windows_holds_up_no_host_half() {
    const MODULES: usize = 12;
    let gates = repository().join("modules/examples/counter/gates.ptx");
    let modules: Vec<_> = (0..MODULES).map(|at| format!("m{at}={}:2MiB", gates.display())).collect();
    let named = modules.iter().flat_map(|module| ["--module", module]);
    let kernel = Kernel::telling(&["--standby"].into_iter().chain(named).collect::<Vec<_>>());
    until("a standby is ready", || kernel.status().standby_pid != 0);
    let session = kernel.open("host halves");
    let token = |at| kernel.module_token(&format!("m{at}"));
    let claimed = (0..MODULES).map(|at| session.claim_module(token(at)).expect("a module").0);
    let claimed: Vec<_> = claimed.collect();

    let standby = kernel.status().standby_pid;
    let before = children(&kernel);
    process::kill(standby);
    let mut next = None;
    until("another standby starts", || {
        next = children(&kernel).difference(&before).next().copied();
        next.is_some()
    });
    let next = next.expect("a process");
    // It hangs at one moment after the other, until it has been told of everything.
    let mut hung = 0;
    while kernel.status().standby_pid != next {
        process::signal(next, Signal::STOP);
        thread::scope(|scope| {
            let (done, read) = mpsc::channel();
            let claimed = &claimed;
            scope.spawn(move || {
                let read = claimed.iter().try_for_each(|module| module.read_u64(0).map(drop));
                done.send(read).unwrap_or_default();
            });
            let read = read.recv_timeout(Duration::from_secs(10));
            process::signal(next, Signal::CONT);
            read.unwrap_or_else(|_| panic!("a read waits for a standby that hangs, at stop {hung}"))
                .expect("a read");
        });
        hung += 1;
        thread::sleep(Duration::from_millis(1));
    }
    eprintln!("standby: hung {hung} times");
    // And it has all of them, at once or, where all the stops together took too long, once the reads are over.
    until("the session has a standby", || {
        let log = kernel.log();
        log.matches(BEHIND).count() == log.matches(AGAIN).count()
    });
    lose_executor(&kernel);
    until("the session has moved", || session.moves() == 1);
    told_of_loss(&session);
    for module in &claimed {
        assert_eq!(module.read_u64(0).expect("a window"), 0);
    }
}
