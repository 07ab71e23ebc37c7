//! Isolated sessions: an executor and a context of one's own, which nobody else notices.
//!
//! On the software GPU their code is PTX that the guard confines, as everybody's; what a GPU's driver takes besides is for
//! `tests/gpu/torch.sh`.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::time::Instant;

use bulkhead_client::{
    Access, Domain, ErrorCode, Moment, Options, Parameters, Pattern, Session, Stream, Terms, Uses,
};
use bulkhead_tests::{
    kernel::Kernel,
    neighbour::Neighbour,
    patience::{PATIENCE, until},
    place::program,
    process,
    tenant::{PAGE_BYTES, Tenant},
};
use rustix::process::Signal;

#[path = "isolated/mapped.rs"]
mod mapped;

#[path = "isolated/suspended.rs"]
mod suspended;

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
fn what_an_executor_has_written_is_asked_for_while_the_session_lives_and_after() {
    let kernel = Kernel::start();
    let (alone, guarded) = (isolated(&kernel, "alone"), Tenant::new(&kernel, "guarded"));
    // The software GPU's writes nothing.
    assert_eq!(alone.output().unwrap(), (Vec::new(), Vec::new()));
    assert_eq!(guarded.session.output().unwrap(), (Vec::new(), Vec::new()));
    process::kill(executor_of(&kernel, "alone"));
    until("the session is told", || alone.status().is_err());
    assert_eq!(alone.output().unwrap(), (Vec::new(), Vec::new()));
}

/// Whether any user can run the program under test.
fn is_for_everybody(path: &std::path::Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.ancestors().all(|part| {
        part.as_os_str().is_empty()
            || std::fs::metadata(part).is_ok_and(|found| found.permissions().mode() & 0o001 != 0)
    })
}

#[test]
fn an_executor_of_its_own_has_a_user_and_a_bound_on_memory_of_its_own() {
    let root = std::fs::read_to_string("/proc/self/status").unwrap().contains("\nUid:\t0\t0\t0\t0\n");
    if !root || !is_for_everybody(bulkhead_tests::place::bulkhead()) {
        println!(
            "skipped: only root starts processes as other users, and they must be able to run the program"
        );
        return;
    }
    let kernel = Kernel::with(&["--executor-uids", "70000-70001", "--executor-memory", "3GiB"]);
    let (one, two) = (isolated(&kernel, "one"), isolated(&kernel, "two"));
    for (name, uid) in [("one", 70_000), ("two", 70_001)] {
        let told = |file: &str| {
            std::fs::read_to_string(format!("/proc/{}/{file}", executor_of(&kernel, name))).unwrap()
        };
        assert!(
            told("status").contains(&format!("\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")),
            "{}",
            told("status")
        );
        assert!(told("status").contains("\nGroups:\t \n"), "{}", told("status"));
        let limits = told("limits");
        let limit = |name: &str| limits.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(limit("Max data size").contains(" 3221225472 "), "{limits}");
        assert!(limit("Max core file size").contains(" 0 "), "{limits}");
    }
    let terms = Terms { domain: Domain::Isolated, ..Terms::default() };
    let third = Session::open(&Options { terms, ..kernel.options("third") });
    assert!(third.err().unwrap().message.contains("--executor-uids"));
    // Work is done as ever, and a user is free again when its executor is gone.
    let tenant = Tenant::over(one);
    let arena = tenant.arena(PAGE_BYTES, 5);
    assert_eq!(tenant.loads(arena.address()), 5);
    drop((arena, tenant));
    kernel.without(&["one"]);
    let again = isolated(&kernel, "again");
    let status = std::fs::read_to_string(format!("/proc/{}/status", executor_of(&kernel, "again"))).unwrap();
    assert!(status.contains("\nUid:\t70000\t"), "{status}");
    drop((two, again));
}

#[test]
fn limits_of_executors_that_cannot_work_are_refused_at_the_start() {
    let refused = |arguments: &[&str]| {
        let scratch = bulkhead_tests::scratch::Scratch::new();
        let directory = scratch.path().join("run");
        let mut serve = process::bulkhead(&["serve", "--backend", "software", "--runtime-directory"]);
        let done = process::run(serve.arg(directory).args(arguments), PATIENCE);
        assert_ne!(done.code(), Some(0), "{}", done.told());
        done.stderr
    };
    let plain = bulkhead_tests::scratch::Scratch::new();
    std::fs::write(plain.path().join("cgroup.subtree_control"), "memory pids").unwrap();
    for no_cgroup in ["/proc/self", "/nonexistent", plain.path().to_str().unwrap()] {
        assert!(refused(&["--executor-cgroup", no_cgroup]).contains("--executor-cgroup: /"));
    }
    assert!(refused(&["--executor-memory", "1MiB"]).contains("128MiB"));
    assert!(refused(&["--executor-uids", "0-7"]).contains("FIRST-LAST"));
    assert!(refused(&["--executor-uids", "9-7"]).contains("FIRST-LAST"));
    if rustix::process::geteuid().is_root() {
        assert!(refused(&["--executor-uids", "70000-70001", "--warm", "2"]).contains("at least one more"));
        assert!(refused(&["--executor-uids", "1-5"]).contains("/etc/passwd"));
        assert!(refused(&["--executor-uids", "65000-65534"]).contains("nobody"));
    }
}

#[test]
fn isolated_sessions_share_memory_for_reading_and_writing() {
    let kernel = Kernel::start();
    let before = kernel.status();
    let (owner, taker) = (Tenant::over(isolated(&kernel, "owner")), Tenant::over(isolated(&kernel, "taker")));
    let arena = owner.arena(4 * PAGE_BYTES, 3);
    // A part: the rest stays the owner's.
    let share = arena.share(PAGE_BYTES, 2 * PAGE_BYTES, Access::ReadWrite).unwrap();
    let mapped = taker.session.accept(&taker.restore(share.token(Uses::One).unwrap())).unwrap();
    assert_eq!(mapped.bytes(), 2 * PAGE_BYTES);
    assert_eq!(taker.loads(mapped.address() + 2 * PAGE_BYTES - 4), 3);
    taker.stores(mapped.address() + 8, 4);
    taker.fill(mapped.range(12, 4), 5);
    owner.stores(arena.address() + PAGE_BYTES + 16, 6);
    for (tenant, range) in [(&owner, arena.range(PAGE_BYTES, 20)), (&taker, mapped.range(0, 20))] {
        assert_eq!(tenant.words(range), [3, 3, 4, 5, 6]);
    }
    // What is read only would be read only by the word of the other's executor.
    let view = arena.share(3 * PAGE_BYTES, PAGE_BYTES, Access::Read).unwrap();
    let error = taker.session.accept(&taker.restore(view.token(Uses::One).unwrap())).err().unwrap();
    assert_eq!(error.code, ErrorCode::NotSupported, "{error}");
    // Unmapped, it is as it was; taken back, it is out of reach.
    drop(mapped);
    assert_eq!(owner.words(arena.range(PAGE_BYTES, 20)), [3, 3, 4, 5, 6], "nothing of it is scrubbed");
    let again = arena.share(PAGE_BYTES, 2 * PAGE_BYTES, Access::ReadWrite).unwrap();
    let mapped = taker.session.accept(&taker.restore(again.token(Uses::One).unwrap())).unwrap();
    let address = mapped.address();
    assert_eq!(taker.loads(address + 8), 4);
    let revocation = again.revoke().unwrap();
    revocation.wait(Moment::Quiescent, PATIENCE).unwrap();
    let filled = taker.session.fill(Stream::DEFAULT, mapped.all(), Pattern::Bits32(9));
    assert!(filled.and_then(|fence| taker.session.wait(fence)).is_err());
    drop(revocation);
    assert_eq!(owner.words(arena.range(PAGE_BYTES, 20)), [3, 3, 4, 5, 6]);
    drop((share, view, again, mapped, arena, owner, taker));
    let after = kernel.without(&["owner", "taker"]);
    assert_eq!(after.charged_bytes, before.charged_bytes);
}

#[test]
fn an_isolated_session_outlives_whoever_shared_memory_with_it_and_whoever_it_shared_with() {
    let kernel = Kernel::start();
    for dies in ["owner", "taker"] {
        let (owner, taker) =
            (Tenant::over(isolated(&kernel, "owner")), Tenant::over(isolated(&kernel, "taker")));
        let (arena, own) = (owner.arena(PAGE_BYTES, 3), taker.arena(PAGE_BYTES, 7));
        let share = arena.share(0, PAGE_BYTES, Access::ReadWrite).unwrap();
        let mapped = taker.session.accept(&taker.restore(share.token(Uses::One).unwrap())).unwrap();
        assert_eq!(taker.loads(mapped.address()), 3);
        process::kill(executor_of(&kernel, dies));
        let (left, kept, value) = match dies {
            "owner" => (&taker, &own, 7),
            _ => (&owner, &arena, 3),
        };
        kernel.without(&[dies]);
        assert_eq!(left.loads(kept.address()), value, "after the end of {dies}");
        let fresh = left.arena(PAGE_BYTES, 11);
        assert_eq!(left.loads(fresh.address()), 11);
        drop((share, mapped, arena, own, fresh, owner, taker));
        kernel.without(&["owner", "taker"]).check_ledgers();
    }
}

#[test]
fn an_owner_whose_executor_is_mute_holds_up_whoever_maps_its_memory_for_seconds_only() {
    let kernel = Kernel::start();
    let (owner, taker) = (Tenant::over(isolated(&kernel, "owner")), Tenant::over(isolated(&kernel, "taker")));
    let (arena, own) = (owner.arena(PAGE_BYTES, 3), taker.arena(PAGE_BYTES, 7));
    let share = arena.share(0, PAGE_BYTES, Access::ReadWrite).unwrap();
    let share = taker.restore(share.token(Uses::One).unwrap());
    let executor = executor_of(&kernel, "owner");
    process::signal(executor, Signal::STOP);
    let error = taker.session.accept(&share).err().unwrap();
    process::signal(executor, Signal::CONT);
    assert_eq!(error.code, ErrorCode::Unavailable, "{error}");
    assert_eq!(taker.loads(own.address()), 7);
    let mapped = taker.session.accept(&share).unwrap();
    assert_eq!(taker.loads(mapped.address()), 3, "nothing is left of it");
}

#[test]
fn an_owner_that_does_not_cut_its_memory_ends_and_its_taker_goes_on() {
    let kernel = Kernel::start();
    let (owner, taker) = (Tenant::over(isolated(&kernel, "owner")), Tenant::over(isolated(&kernel, "taker")));
    let (arena, own) = (owner.arena(4 * PAGE_BYTES, 3), taker.arena(PAGE_BYTES, 7));
    // A part: the rest has to be cut off.
    let share = arena.share(PAGE_BYTES, PAGE_BYTES, Access::ReadWrite).unwrap();
    let share = taker.restore(share.token(Uses::One).unwrap());
    process::signal(executor_of(&kernel, "owner"), Signal::STOP);
    let error = taker.session.accept(&share).err().unwrap();
    assert!(
        matches!(error.code, ErrorCode::Unavailable | ErrorCode::SessionLost | ErrorCode::Revoked),
        "{error}"
    );
    kernel.without(&["owner"]);
    assert_eq!(taker.loads(own.address()), 7);
    drop((arena, share, own, taker, owner));
    kernel.without(&["taker"]).check_ledgers();
}

#[test]
fn what_is_held_of_a_session_whose_executor_is_gone_costs_no_thread_and_no_descriptor() {
    let kernel = Kernel::start();
    let count = |of: &str| std::fs::read_dir(format!("/proc/{}/{of}", kernel.pid())).unwrap().count();
    drop(isolated(&kernel, "first"));
    kernel.without(&["first"]);
    let before = (count("task"), count("fd"));
    let held: Vec<_> = (0..4).map(|_| isolated(&kernel, "one")).collect();
    let sessions = kernel.status().sessions;
    let executors: Vec<_> = sessions.iter().map(|session| session.executor_pid).collect();
    executors.iter().for_each(|executor| process::kill(*executor));
    kernel.without(&["one"]);
    // Each has its client's connection: two descriptors of the kernel's.
    until("nothing but connections is left", || {
        count("task") <= before.0 && count("fd") <= before.1 + 2 * held.len()
    });
}

#[test]
fn whoever_has_the_pipes_of_an_executor_that_is_gone_costs_the_kernel_nothing() {
    let kernel = Kernel::start();
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", kernel.pid())).unwrap().count();
    drop(isolated(&kernel, "first"));
    kernel.without(&["first"]);
    let before = descriptors();
    let session = isolated(&kernel, "one");
    let executor = executor_of(&kernel, "one");
    // As an executor that hands them on does.
    let kept = [1, 2].map(|number| {
        let pipe = format!("/proc/{executor}/fd/{number}");
        std::fs::OpenOptions::new().write(true).open(pipe).unwrap()
    });
    drop(session);
    kernel.without(&["one"]);
    until("the kernel has closed its ends", || descriptors() <= before);
    drop(kept);
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
    for name in [
        "vecadd",
        "reduction",
        "streams",
        "graphs",
        "graph_shapes",
        "graph_memory",
        "device_variable",
        "shared_events",
        "textures",
    ] {
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
    let kernel = Kernel::telling(&[]);
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

/// Isolated executors of a kernel, whether they have a session or not.
fn executors_of(kernel: &Kernel) -> Vec<u32> {
    let status = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let parent = format!("PPid:\t{}\n", kernel.pid());
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| status(*pid).contains(&parent))
        .filter(|pid| {
            let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            command.split(|byte| *byte == 0).any(|word| word == b"--isolated")
        })
        .collect()
}

#[test]
fn an_isolated_session_gets_an_executor_that_waited_and_another_takes_its_place() {
    let kernel = Kernel::with(&["--warm", "2"]);
    until("two wait", || kernel.status().warm == 2);
    let waited = executors_of(&kernel);
    assert_eq!(waited.len(), 2, "{waited:?}");
    let (one, two) = (Tenant::over(isolated(&kernel, "one")), Tenant::over(isolated(&kernel, "two")));
    for name in ["one", "two"] {
        assert!(waited.contains(&executor_of(&kernel, name)), "{name} waited for a start");
    }
    for tenant in [&one, &two] {
        assert_eq!(tenant.loads(tenant.arena(PAGE_BYTES, 5).address()), 5);
    }
    until("two wait again", || kernel.status().warm == 2);
    // One that ends while it waits is nobody's, and replaced.
    let idle = executors_of(&kernel).into_iter().find(|pid| !waited.contains(pid)).unwrap();
    process::kill(idle);
    until("it is gone", || !executors_of(&kernel).contains(&idle));
    let third = isolated(&kernel, "third");
    assert_ne!(executor_of(&kernel, "third"), idle);
    third.status().unwrap();
    drop((one, two, third));
    kernel.without(&["one", "two", "third"]).check_ledgers();
}

#[test]
fn isolated_executors_have_given_up_what_they_do_not_need() {
    let kernel = Kernel::start();
    let session = isolated(&kernel, "one");
    let pid = executor_of(&kernel, "one");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    for held in
        ["Seccomp:\t2\n", "NoNewPrivs:\t1\n", "CapEff:\t0000000000000000\n", "CapPrm:\t0000000000000000\n"]
    {
        assert!(status.contains(held), "{held}: {status}");
    }
    // The kernel's own log is not its to cut short.
    assert_ne!(
        std::fs::read_link(format!("/proc/{pid}/fd/2")).ok(),
        std::fs::read_link(format!("/proc/{}/fd/2", kernel.pid())).ok(),
    );
    // All of its threads, those of the device too.
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        assert!(status.is_empty() || status.contains("Seccomp:\t2\n"), "{status}");
    }
    session.status().unwrap();
}

#[test]
fn an_executor_that_says_much_fills_no_log() {
    let kernel = Kernel::start();
    let session = isolated(&kernel, "one");
    // What it writes to its standard error; nobody listens any more after so much.
    let said = format!("{}{}end\n", "\n".repeat(30_000), "x\n".repeat(10_000));
    std::fs::write(format!("/proc/{}/fd/2", executor_of(&kernel, "one")), said).unwrap();
    let lines = || {
        std::fs::read_to_string(kernel.log_path())
            .unwrap()
            .lines()
            .filter(|line| line.contains("bulkhead::executor"))
            .count()
    };
    until("something is told", || lines() > 50);
    session.status().unwrap();
    // A hundred at once, and ten for each second that it takes.
    assert!(lines() < 1000, "{}", lines());
    drop(session);
    kernel.without(&["one"]).check_ledgers();
    assert!(lines() < 1000, "{}", lines());
}

#[test]
fn what_whoever_started_the_kernel_left_open_reaches_no_executor() {
    let open = ["sh", "-c", "exec 9</etc/passwd; exec \"$@\"", "sh"];
    let kernel = Kernel::wrapped(&open, &["--warm", "1"]);
    drop(isolated(&kernel, "opened"));
    let session = isolated(&kernel, "isolated");
    let has = |pid: u32| {
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        open.filter_map(|one| std::fs::read_link(one.ok()?.path()).ok()).any(|to| to.ends_with("passwd"))
    };
    let status = kernel.status();
    for pid in [kernel.pid(), status.executor_pid, executor_of(&kernel, "isolated")] {
        assert!(!has(pid), "process {pid}");
    }
    drop(session);
}

#[test]
fn memory_of_a_session_that_ends_is_waited_for_by_the_next() {
    let kernel = Kernel::with(&["--device-memory", "2GiB"]);
    for domain in [Domain::Guarded, Domain::Isolated, Domain::Isolated, Domain::Guarded] {
        let terms = Terms { domain, ..Terms::default() };
        let session = Session::open(&Options { terms, ..kernel.options("one") }).unwrap();
        // Nearly all that there is, and nobody looks whether that of the session before is back.
        let memory = session.allocate(1700 << 20);
        assert!(memory.is_ok(), "{domain:?}: {:?}", memory.err());
    }
}

#[test]
fn graphs_beyond_what_a_session_may_have_are_refused_to_the_client_and_their_room_comes_back() {
    use bulkhead_client::GraphWork;
    let kernel = Kernel::start();
    let session = isolated(&kernel, "graphs");
    let fill = |graph: &mut bulkhead_client::Graph| {
        (0..=65_536).map(|_| graph.add(None, &GraphWork::Nothing)).find_map(Result::err).unwrap()
    };
    let mut graphs: Vec<_> = (0..16).map(|_| session.create_graph().unwrap()).collect();
    for graph in &mut graphs {
        assert_eq!(fill(graph).code, ErrorCode::LimitReached);
    }
    let mut one_more = session.create_graph().unwrap();
    let refused = one_more.add(None, &GraphWork::Nothing).err().unwrap();
    assert_eq!(refused.code, ErrorCode::LimitReached, "{refused}");
    // Nothing of that reached the executor, which would have told it when somebody waits.
    session.wait(session.fence(Stream::DEFAULT)).unwrap();
    graphs.clear();
    one_more.add(None, &GraphWork::Nothing).unwrap();
    one_more.finish().unwrap();
    let fence = one_more.launch(Stream::DEFAULT).unwrap();
    session.wait(fence).unwrap();
}
