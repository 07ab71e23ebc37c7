//! How many workers there are, how much memory they have, and for whom.

use super::*;

#[test]
fn a_caller_has_so_many_workers_and_the_service_so_many_callers() {
    let served = Served::with(&["--callers", "5", "--callers-of-process", "3"]);
    let workers: Vec<_> = (0..3).map(|_| Caller::new(&served)).collect();
    let refused = Caller::open(&served).err().expect("a fourth is refused");
    assert!(refused.starts_with("refused LimitReached process "), "{refused}");
    // Another process has the rest.
    served.right(&["right", "2"], "PASS right");
    drop(workers);
    until("workers end with their callers", || Caller::open(&served).is_ok());
    // Of a thousand who say nothing, 350 at a time, some are turned away, and none of them stays.
    for _ in 0..3 {
        let silent: Vec<_> = (0..350).filter_map(|_| UnixStream::connect(served.socket()).ok()).collect();
        assert!(silent.len() > door::CALLERS_MAX);
    }
    until("it serves again", || Caller::open(&served).is_ok());
    served.right(&["right", "2"], "PASS right");
}

#[test]
fn a_worker_ends_with_the_process_that_connected_whoever_has_the_connection() {
    let served = Served::new();
    let done = served.run(&["leaves"]);
    let child = done.stdout.trim().strip_prefix("PASS leaves ").and_then(|child| child.parse().ok());
    let child: u32 = child.unwrap_or_else(|| panic!("{}", done.told()));
    assert!(lives(child), "it has the connection");
    until("the worker has ended", || served.processes().1.is_empty());
    assert!(lives(child), "it was not the child's end");
    kill(child);
    served.right(&["right", "4"], "PASS right");
}

#[test]
fn workers_have_so_much_memory_together_and_their_sessions_a_quota() {
    let scratch = Scratch::new();
    let library = stand_in(&scratch);
    let library = library.to_str().expect("text");
    let device = ["--engine", "nvidia", "--library", library, "--work-memory", "2MiB"];
    let services = [
        [&device[..], &["--work-memory-of-all", "1MiB"]].concat(),
        vec!["--engine", "host", "--host-memory-of-all", "3MiB"],
    ];
    for options in services {
        let served = Served::with(&options);
        let (one, other) = (Caller::new(&served), Caller::new(&served));
        let make = |caller: &Caller, batch| caller.ask(&Request::Make(PlanSlot(0), shape(1024, batch)));
        assert_eq!(status(make(&one, 96)), Status::Success, "{options:?}");
        let refused = make(&other, 128).expect_err("one has the most of it");
        assert_eq!(refused.status, Status::AllocFailed, "{options:?}: {refused}");
        assert!(refused.message.contains("all workers have"), "{refused}");
        // What is left it may have, and the rest once the other is gone.
        assert_eq!(status(make(&other, 16)), Status::Success, "{options:?}");
        drop(one);
        until("what the other had is free", || make(&other, 112).is_ok());
        // Its session has a limit, which the library OS asks for.
        let worker = *served.processes().1.first().expect("a worker");
        let environment = fs::read(format!("/proc/{worker}/environ")).expect("it is there");
        let environment = String::from_utf8_lossy(&environment).into_owned();
        assert!(environment.contains("BULKHEAD_LIMITS=device_bytes="), "{environment}");
    }
    let served = Served::new();
    let with = |limits| run(served.command(&["right", "2"]).env("BULKHEAD_LIMITS", limits), PATIENCE);
    let done = with("device_bytes=1073741824");
    assert!(done.code() == Some(0) && done.stdout.contains("PASS right"), "{}", done.told());
    let done = with("device_bytes=68157440");
    assert!(done.code() != Some(0) && done.stdout.contains("out of memory"), "{}", done.told());
    let done = with("device_bytes");
    assert!(done.code() != Some(0) && done.stderr.contains("BULKHEAD_LIMITS"), "{}", done.told());
}

#[test]
fn a_process_leaves_others_their_part_of_the_memory_of_all() {
    let scratch = Scratch::new();
    let library = stand_in(&scratch);
    let library = library.to_str().expect("text");
    let device = ["--engine", "nvidia", "--library", library, "--work-memory", "1MiB"];
    let services = [
        ([&device[..], &["--work-memory-of-all", "4MiB"]].concat(), "--work-memory-of-process"),
        (
            vec!["--engine", "host", "--host-memory", "3MiB", "--host-memory-of-all", "12MiB"],
            "--host-memory-of-process",
        ),
    ];
    for (options, option) in services {
        let served = Served::with(&options);
        let callers: Vec<_> = (0..4).map(|_| Caller::new(&served)).collect();
        let make = |caller: &Caller, batch| caller.ask(&Request::Make(PlanSlot(0), shape(1024, batch)));
        // All of them together have what one may have.
        let made: Vec<_> = callers.iter().map(|caller| status(make(caller, 96))).collect();
        let full = Status::AllocFailed;
        assert_eq!(made, [Status::Success, full, full, full], "{options:?}");
        let refused = make(&callers[3], 96).expect_err("one has the most of it");
        for part in ["this process", option] {
            assert!(refused.message.contains(part), "{refused}");
        }
        assert_eq!(status(make(&callers[3], 16)), Status::Success, "{options:?}");
        // Another process has its own part.
        served.right(&["right", "6"], "PASS right");
    }
}
