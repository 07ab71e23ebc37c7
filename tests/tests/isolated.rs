//! Isolated sessions: an executor and a context of one's own, which nobody else notices.
//!
//! On the software GPU their code is PTX that the guard confines, as everybody's; what a GPU's driver takes besides is for
//! `tests/gpu/torch.sh`.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::time::Instant;

use bulkhead_client::{Access, Domain, ErrorCode, Options, Session, Terms, Uses};
use bulkhead_tests::{
    kernel::Kernel,
    neighbour::Neighbour,
    patience::{PATIENCE, until},
    place::program,
    process,
    tenant::{PAGE_BYTES, Tenant},
};

fn isolated(kernel: &Kernel, name: &str) -> Session {
    let terms = Terms { domain: Domain::Isolated, ..Terms::default() };
    Session::open(&Options { terms, ..kernel.options(name) }).unwrap()
}

/// The process of a session's own executor.
fn executor_of(kernel: &Kernel, name: &str) -> u32 {
    let status = kernel.status();
    status.sessions.iter().find(|session| session.name == name).unwrap().executor_pid
}

#[test]
fn an_isolated_session_has_an_executor_of_its_own_which_ends_with_it() {
    let kernel = Kernel::start();
    let mut neighbour = Neighbour::new(&kernel, "neighbour");
    let before = kernel.status();
    let (one, two) = (isolated(&kernel, "one"), isolated(&kernel, "two"));
    let executors = [executor_of(&kernel, "one"), executor_of(&kernel, "two")];
    assert_eq!(executor_of(&kernel, "neighbour"), 0);
    assert!(
        executors[0] != executors[1] && !executors.contains(&0) && !executors.contains(&before.executor_pid)
    );
    let (one, two) = (Tenant::over(one), Tenant::over(two));
    let arenas = [(&one, 5), (&two, 6)].map(|(tenant, value)| {
        let arena = tenant.arena(PAGE_BYTES, value);
        assert_eq!(tenant.loads(arena.address()), value);
        arena
    });
    // Both have the same addresses, and neither finds what the other has.
    assert_eq!(arenas[0].address(), arenas[1].address());
    assert_eq!(one.loads(arenas[0].address()), 5);
    kernel.status().check_ledgers();
    neighbour.work();
    drop((arenas, one, two));
    let after = kernel.without(&["one", "two"]);
    assert_eq!(after.charged_bytes, before.charged_bytes);
    assert_eq!((after.executor_pid, after.executor_starts), (before.executor_pid, before.executor_starts));
    for executor in executors {
        until("its process is gone", || !process::lives(executor));
    }
    neighbour.work();
}

#[test]
fn the_loss_of_its_executor_ends_an_isolated_session_and_no_other() {
    let kernel = Kernel::start();
    let mut neighbour = Neighbour::new(&kernel, "neighbour");
    let (doomed, other) = (isolated(&kernel, "doomed"), Tenant::over(isolated(&kernel, "other")));
    let arena = other.arena(PAGE_BYTES, 7);
    process::kill(executor_of(&kernel, "doomed"));
    until("the session is told", || doomed.status().is_err());
    assert_eq!(doomed.status().unwrap_err().code, ErrorCode::DeviceLost);
    neighbour.work();
    assert_eq!(other.loads(arena.address()), 7);
    drop(doomed);
    kernel.without(&["doomed"]);
    // And the loss of everybody's executor ends no isolated one.
    process::kill(kernel.status().executor_pid);
    until("another serves", || kernel.status().executor_starts > 1);
    assert_eq!(other.loads(arena.address()), 7);
}

#[test]
fn a_kernel_without_end_is_gone_with_its_isolated_session() {
    let kernel = Kernel::start();
    let mut neighbour = Neighbour::new(&kernel, "neighbour");
    let before = kernel.status();
    let runaway = Tenant::over(isolated(&kernel, "runaway"));
    let executor = executor_of(&kernel, "runaway");
    let word = runaway.session.allocate(4).unwrap();
    let running = runaway.runs(word.address());
    neighbour.work();
    let start = Instant::now();
    drop((word, running, runaway));
    let after = kernel.without(&["runaway"]);
    println!("gone after {:?}", start.elapsed());
    assert_eq!(after.charged_bytes, before.charged_bytes);
    assert!(!process::lives(executor));
    neighbour.work();
}

#[test]
fn nothing_is_shared_between_an_isolated_session_and_another() {
    let kernel = Kernel::start();
    let (owner, other) = (Tenant::over(isolated(&kernel, "owner")), Tenant::new(&kernel, "other"));
    let arena = owner.arena(PAGE_BYTES, 3);
    let share = arena.share(0, PAGE_BYTES, Access::ReadWrite).unwrap();
    let accepted = other.session.accept(&other.restore(share.token(Uses::One).unwrap()));
    let error = accepted.err().unwrap();
    assert_eq!(error.code, ErrorCode::NotPermitted, "{error}");
    assert_eq!(owner.loads(arena.address()), 3);
}

#[test]
fn programs_run_isolated_as_they_do_guarded() {
    let kernel = Kernel::start();
    for name in ["vecadd", "reduction", "streams", "graphs", "device_variable"] {
        let mut run = kernel.run_command(&program(name));
        run.env("BULKHEAD_DOMAIN", "isolated");
        let done = process::run(&mut run, PATIENCE);
        assert_eq!(done.code(), Some(0), "{name}: {}", done.told());
    }
    let status = kernel.without(&["vecadd", "reduction", "streams", "graphs", "device_variable"]);
    assert_eq!(status.executor_starts, 1);
}

#[test]
fn many_streams_are_made_and_few_are_used() {
    let kernel = Kernel::start();
    for domain in ["guarded", "isolated"] {
        let mut run = kernel.run_command(&program("many_streams"));
        run.env("BULKHEAD_DOMAIN", domain);
        let done = process::run(&mut run, PATIENCE);
        assert_eq!(done.code(), Some(0), "{domain}: {}", done.told());
    }
}

#[test]
fn an_open_that_is_refused_starts_no_process() {
    let kernel = Kernel::start();
    // The log tells of the end of each.
    let ends = || kernel.log().matches("executor ended").count();
    let limits: &[_] = &[("kernel_bytes", 1)];
    let terms = Terms { domain: Domain::Isolated, limits, ..Terms::default() };
    for _ in 0..20 {
        let refused = Session::open(&Options { terms, ..kernel.options("refused") });
        assert_eq!(refused.err().unwrap().code, ErrorCode::OutOfMemory);
    }
    drop(isolated(&kernel, "opened"));
    kernel.without(&["opened"]);
    until("its executor has ended", || ends() > 0);
    assert_eq!(ends(), 1);
}

#[test]
fn an_isolated_session_gives_no_programs_away() {
    let kernel = Kernel::start();
    let session = isolated(&kernel, "owner");
    let refused = session.program(None, &[], Terms::default());
    assert_eq!(refused.err().unwrap().code, ErrorCode::NotSupported);
}
