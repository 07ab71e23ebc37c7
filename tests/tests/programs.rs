//! Unmodified CUDA programs run on Bulkhead, side by side with hostile ones.
//!
//! The programs are those of `tests/programs`: a new one is tested by being there.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{
    collections::BTreeSet,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use bulkhead_tests::{
    kernel::Kernel,
    neighbour::{Neighbour, SECRET},
    patience::until,
    place::{program, repository, toolchain_libraries},
    process::{Done, bulkhead, lives, run, run_privately, run_privately_with},
};

/// For one program; most take less than a second.
const PATIENCE: Duration = Duration::from_secs(180);

/// Names of the programs whose sources lie in a folder under `tests/programs`.
fn names(folder: &str) -> BTreeSet<String> {
    let folder = repository().join("tests/programs").join(folder);
    let source = |path: &Path| path.extension().is_some_and(|extension| extension == "cu");
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .filter(|path| source(path))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect()
}

fn passed(name: &str, done: &Done) {
    assert_eq!(done.code(), Some(0), "{name}: {}", done.told());
    let result = done.stdout.lines().last().unwrap_or_default();
    assert!(result.starts_with("PASS "), "{name}: {}", done.told());
}

/// A program on a kernel of its own.
fn alone(name: &str) -> Done {
    let path = program(name);
    let (mut command, _scratch) = run_privately(&[path.to_str().unwrap()]);
    run(&mut command, PATIENCE)
}

/// A program on a kernel that others use too.
fn on(kernel: &Kernel, name: &str) -> Command {
    kernel.run_command(&program(name))
}

#[test]
fn every_honest_program_passes() {
    let names = names("");
    let honest: Vec<_> = names.iter().filter(|name| !name.starts_with("attack_")).collect();
    assert!(honest.len() >= 11, "{honest:?}");
    for name in honest {
        passed(name, &alone(name));
    }
}

/// A program on a software GPU that is told something.
fn on_software(options: &[&str], name: &str) -> Done {
    let path = program(name);
    let (mut command, _scratch) = run_privately_with(options, &[path.to_str().unwrap()]);
    run(&mut command, PATIENCE)
}

#[test]
fn units_are_linked_where_an_isolated_session_does_not_run_their_machine_code() {
    passed("relocatable", &on_software(&["--domain", "isolated"], "relocatable"));
}

/// On the software GPU machine code itself runs nowhere: what is seen is that the program goes on.
#[test]
fn a_program_that_has_nothing_yet_moves_to_an_isolated_session_when_machine_code_comes() {
    let kernel = Kernel::telling(&[]);
    let done = run(&mut on(&kernel, "code_later"), PATIENCE);
    passed("code_later", &done);
    // The second time it has memory.
    assert_eq!(done.stderr.matches("an isolated session from here on").count(), 1, "{}", done.told());
    kernel.without(&["code_later"]);
    let over = |session: u32| {
        let log = kernel.log();
        log.find(&format!("session over session={session} ")).unwrap_or_else(|| panic!("{session}: {log}"))
    };
    assert!(over(1) < over(2), "the guarded one ends when the process goes on in the other");
    let opened = kernel.log().matches("session opened").count();
    assert_eq!(opened, 2);

    let mut stays = on(&kernel, "code_later");
    let done = run(stays.env("BULKHEAD_DOMAIN", "guarded"), PATIENCE);
    passed("code_later", &done);
    assert!(!done.told().contains("an isolated session"), "{}", done.told());
}

#[test]
fn what_another_thread_makes_while_the_process_moves_is_its_own() {
    for after in ["0", "1", "3", "8", "15", "25", "40"] {
        let kernel = Kernel::telling(&[]);
        passed("moves_race", &run(on(&kernel, "moves_race").arg(after), PATIENCE));
    }
    let kernel = Kernel::telling(&[]);
    for what in ["physical", "registered", "managed", "pinned", "object"] {
        for after in ["0", "2", "5", "9", "15", "25"] {
            passed("moves_race", &run(on(&kernel, "moves_race").args([after, what]), PATIENCE));
        }
    }
}

#[test]
fn the_order_of_warps_is_drawn_from_a_seed_and_is_the_same_for_the_same_seed() {
    let mut ends = BTreeSet::new();
    for seed in 1..=8 {
        let end = || {
            let done = on_software(&["--schedule", &seed.to_string()], "lost_updates");
            passed("lost_updates", &done);
            done.stdout
        };
        let first = end();
        assert_eq!(end(), first, "seed {seed}");
        ends.insert(first);
    }
    assert!(ends.len() > 1, "every seed ends the race alike: {ends:?}");
    for name in ["reduction", "scan", "histogram", "cooperative", "bitonic"] {
        passed(name, &on_software(&["--schedule", "5"], name));
    }
}

#[test]
fn groups_of_lanes_find_each_other_however_the_device_runs_them() {
    for seed in ["1", "2", "3"] {
        passed("partitions", &on_software(&["--schedule", seed], "partitions"));
    }
}

#[test]
fn programs_pass_on_each_engine() {
    for engine in ["interpreter", "compiled", "mixed"] {
        for name in ["vecadd", "reduction"] {
            let path = program(name);
            let arguments = ["run", "--private", "--backend", "soft", "--engine", engine, "--"];
            passed(name, &run(bulkhead(&arguments).arg(path), PATIENCE));
        }
    }
}

#[test]
fn a_program_with_the_shared_runtime_passes() {
    let path = program("vecadd_shared");
    let (mut command, _scratch) = run_privately(&[path.to_str().unwrap()]);
    command.env("LD_LIBRARY_PATH", toolchain_libraries());
    passed("vecadd_shared", &run(&mut command, PATIENCE));
}

#[test]
fn programs_that_run_at_once_on_one_kernel_pass() {
    let kernel = Kernel::start();
    thread::scope(|scope| {
        for name in ["vecadd", "reduction", "streams", "histogram"] {
            let kernel = &kernel;
            scope.spawn(move || {
                for _ in 0..2 {
                    passed(name, &run(&mut on(kernel, name), PATIENCE));
                }
            });
        }
    });
    let after = kernel.status();
    assert_eq!(after.executor_starts, 1);
    assert_eq!(kernel.without(&[]).sessions.len(), after.sessions.len());
}

#[test]
fn processes_that_share_memory_disturb_nobody_and_leave_nothing() {
    // Where processors are few, the software GPU has no idle moment for longer than who loads code waits by default.
    let kernel = Kernel::with(&["--loading-seconds", "600"]);
    let before = kernel.status();
    let mut neighbour = Neighbour::new(&kernel, "neighbour");
    thread::scope(|scope| {
        let shared = scope.spawn(|| {
            // Two pairs of processes of each program at once.
            thread::scope(|scope| {
                for name in ["ipc", "virtual_memory", "shared_events", "shared_pool"] {
                    for _ in 0..2 {
                        scope.spawn(|| passed(name, &run(&mut on(&kernel, name), PATIENCE)));
                    }
                }
            });
        });
        while !shared.is_finished() {
            neighbour.work();
        }
        shared.join().unwrap();
    });
    drop(neighbour);
    until("all that was shared has returned", || kernel.status() == before);
}

/// Runs a hostile program while an honest one and a session work beside it, and answers what it did.
fn attack(kernel: &Kernel, hostile: &mut Command, honest: &str) -> Done {
    let mut neighbour = Neighbour::new(kernel, "neighbour");
    neighbour.work();
    thread::scope(|scope| {
        let attack = scope.spawn(|| run(hostile, PATIENCE));
        let mut rounds = 0;
        while !attack.is_finished() || rounds < 2 {
            neighbour.work();
            passed(honest, &run(&mut on(kernel, honest), PATIENCE));
            rounds += 1;
        }
        attack.join().unwrap()
    })
}

#[test]
fn the_largest_grids_that_a_program_leaves_behind_disturb_nobody() {
    let kernel = Kernel::start();
    passed("vecadd", &run(&mut on(&kernel, "vecadd"), PATIENCE));
    let before = kernel.status();
    for kind in ["empty", "store", "endless"] {
        let mut hostile = on(&kernel, "attack_grid");
        hostile.arg(kind);
        passed("attack_grid", &attack(&kernel, &mut hostile, "vecadd"));
        let start = Instant::now();
        passed("vecadd", &run(&mut on(&kernel, "vecadd"), PATIENCE));
        println!("{kind}: an honest program is done {:?} later", start.elapsed());
    }
    until("their sessions are gone", || kernel.status().sessions.is_empty());
    let after = kernel.status();
    assert_eq!((after.executor_pid, after.executor_starts), (before.executor_pid, before.executor_starts));
}

#[test]
fn stores_and_loads_through_forged_addresses_disturb_nobody() {
    let kernel = Kernel::start();
    passed("vecadd", &run(&mut on(&kernel, "vecadd"), PATIENCE));
    let before = kernel.status();
    for class in ["null", "slots", "edges", "host", "random", "misaligned", "index", "all"] {
        let mut hostile = on(&kernel, "attack_wild");
        hostile.args([class, &format!("{SECRET:x}"), "1"]);
        passed(class, &attack(&kernel, &mut hostile, "vecadd"));
    }
    let after = kernel.status();
    assert!(lives(kernel.pid()));
    assert_eq!((after.executor_pid, after.executor_starts), (before.executor_pid, before.executor_starts));
}

#[test]
fn every_hostile_program_disturbs_nobody() {
    let kernel = Kernel::start();
    let before = kernel.status();
    let names = names("");
    let hostile: Vec<_> = names.iter().filter(|name| name.starts_with("attack_")).collect();
    assert!(hostile.len() >= 3, "{hostile:?}");
    for name in hostile {
        passed(name, &attack(&kernel, &mut on(&kernel, name), "reduction"));
    }
    let after = kernel.status();
    assert!(lives(kernel.pid()));
    assert_eq!((after.executor_pid, after.executor_starts), (before.executor_pid, before.executor_starts));
}

#[test]
fn what_kernels_print_comes_out_as_c_prints_it() {
    let done = alone("kernel_printf");
    passed("kernel_printf", &done);
    let (flood, others): (Vec<&str>, Vec<&str>) =
        done.stdout.lines().partition(|line| line.starts_with("flood "));
    let mut threads: Vec<&str> = others[1..5].to_vec();
    threads.sort_unstable();
    assert_eq!(threads, ["thread 0 of 4", "thread 1 of 4", "thread 2 of 4", "thread 3 of 4"]);
    let expected = [
        "42|   42|42   |00042|+42|-42",
        "4000000000 abcdef ABCDEF 0xff 10 ok",
        "-1234567890123 12345678901234567890 -5 -3 4",
        "1.500000 2.35    3.142 1.234568e+04 0.0001 1E+20",
        "a literal and     device, 100% fro",
        "     7|7     |1.00",
        "no conversion",
        "thread 100 of 1",
        "PASS kernel_printf all of it above",
    ];
    assert_eq!((others[0], others[5], &others[6..]), ("before", "between", &expected[..]));
    // 61,440 lines of 20 bytes, of which 1 MiB is kept, a header of 16 bytes included.
    assert_eq!(flood.len(), ((1 << 20) - 16) / 20, "{}", done.stderr);
    assert_eq!(done.stderr.matches("what kernels printed is lost").count(), 1, "{}", done.stderr);
}

#[test]
fn strings_of_kernels_may_lie_in_host_memory() {
    let done = alone("printf_managed");
    passed("printf_managed", &done);
    let lines = ["the answer is 42", "managed, pinned, device", "PASS printf_managed both lines above"];
    assert_eq!(done.stdout.lines().collect::<Vec<_>>(), lines, "{}", done.stderr);
}

#[test]
fn strings_are_printed_as_they_were_when_the_kernel_printed_them() {
    let done = alone("printf_strings");
    passed("printf_strings", &done);
    let long = format!("{} and more", "l".repeat(5));
    let expected = [
        "device, 7% of variable, abcdefg | 1.50|WXYZABC|(null)",
        "Xevice Yariable 1099511627776 Zbcdefg c ZXYZABC",
        "first, 7% of Y-riable, abcdefg | 1.50|YZABCDE|(null)",
        "Xirst Y-riable 1099511627776 Zbcdefg c ZZABCDE",
        "second, 7% of Y-riable, abcdefg | 1.50|LMNOPQR|(null)",
        "Xecond Y-riable 1099511627776 Zbcdefg c ZMNOPQR",
        &long,
        &long,
        "PASS printf_strings all of it above",
    ];
    assert_eq!(done.stdout.lines().collect::<Vec<_>>(), expected, "{}", done.stderr);
}

/// What a program that a kernel's thread ends says of it on stderr.
fn faulted(kind: &str) -> String {
    let path = program("faults");
    let (mut command, _scratch) = run_privately(&[path.to_str().unwrap(), "small", kind]);
    let done = run(&mut command, PATIENCE);
    passed(kind, &done);
    done.stderr
}

#[test]
fn a_failed_assertion_is_told_as_nvidias_driver_tells_it() {
    let told = faulted("assert");
    let text = "void asserts(unsigned int *): block: [2,0,0], thread: [5,0,0] Assertion `i != 133` failed.";
    let is_it = |line: &str| {
        let rest = line.split_once("faults.cu:").map(|(_, rest)| rest);
        let rest = rest.and_then(|rest| rest.split_once(": "));
        rest.is_some_and(|(line, rest)| line.parse::<u32>().is_ok() && rest == text)
    };
    assert_eq!(told.lines().filter(|line| is_it(line)).count(), 1, "{told}");
}

#[test]
fn traps_and_breakpoints_are_told_with_the_line_of_the_source() {
    let source = std::fs::read_to_string(repository().join("tests/programs/faults.cu")).unwrap();
    for (kind, text, told) in [
        ("trap", "trap;", "_Z5trapsPj: block: [1,0,0], thread: [13,0,0] met a trap"),
        ("brkpt", "brkpt;", "_Z6breaksPj: block: [0,0,0], thread: [1,0,0] met a breakpoint"),
    ] {
        let line = source.lines().position(|line| line.contains(text)).unwrap() + 1;
        let expected = format!("faults.cu:{line}: {told}");
        let stderr = faulted(kind);
        assert!(stderr.lines().any(|line| line.ends_with(&expected)), "no {expected} in {stderr}");
    }
}

#[test]
fn threads_that_wait_for_one_that_has_ended_are_ended_with_their_program() {
    let told = faulted("wait");
    assert_eq!(told.matches("met a trap").count(), 1, "{told}");
}

#[test]
fn a_storm_of_traps_is_told_in_a_few_lines() {
    let told = faulted("storm");
    assert!((1..=33).contains(&told.lines().count()), "{told}");
}

/// A program under `bulkhead run --check`.
fn checked(name: &str, arguments: &[&str]) -> Done {
    let path = program(name);
    let program = [&[path.to_str().unwrap()], arguments].concat();
    let (mut command, _scratch) = run_privately_with(&["--check", "--json"], &program);
    run(&mut command, PATIENCE)
}

#[test]
fn accesses_that_go_astray_are_told_with_line_address_kind_and_thread() {
    let source = std::fs::read_to_string(repository().join("tests/programs/out_of_range.cu")).unwrap();
    let line = |text: &str| source.lines().position(|line| line.ends_with(text)).unwrap() + 1;
    let done = checked("out_of_range", &[]);
    assert_eq!(done.code(), Some(1), "{}", done.told());
    let mut lines = done.stdout.lines().rev();
    let json: serde_json::Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    assert!(lines.next().unwrap().starts_with("PASS "), "{}", done.told());
    assert_eq!(json["errors"].as_u64(), Some(6), "{}", done.told());
    assert!(done.stderr.lines().any(|line| line == "bulkhead: 6 errors"), "{}", done.told());
    for (text, entry, block, thread, told) in [
        ("// read beyond", "reads_beyond", 3, 4, "0 bytes behind the end of 400 bytes at "),
        ("// write before", "writes_before", 0, 3, "write of 4 bytes at "),
        ("// atomic far away", "counts_far", 0, 0, "atomic access of 4 bytes at "),
        ("// misaligned", "misaligned", 0, 1, "misaligned"),
        (
            "// shared beyond",
            "shared_beyond",
            0,
            5,
            "read of 4 bytes of shared memory at 160: the block has 128 bytes",
        ),
        ("// after free", "after_free", 0, 0, "read of 4 bytes at "),
    ] {
        let expected = |record: &&serde_json::Value| {
            record["line"].as_u64() == Some(line(text) as u64)
                && record["file"].as_str().unwrap().ends_with("out_of_range.cu")
                && record["entry"].as_str().unwrap().contains(entry)
                && record["block"][0].as_u64() == Some(block)
                && record["thread"][0].as_u64() == Some(thread)
                && record["what"].as_str().unwrap().contains(told)
        };
        let records = json["records"].as_array().unwrap();
        let found = records.iter().filter(expected).count();
        assert_eq!(found, 1, "{text} in {}", done.told());
        let on_stderr = done.stderr.lines().any(|line| line.contains(entry) && line.contains(told));
        assert!(on_stderr, "{text} in {}", done.told());
    }
}

#[test]
fn a_warp_that_is_not_whole_where_it_has_to_be_is_told_and_ends_its_program() {
    let source = std::fs::read_to_string(repository().join("tests/programs/tensor_cores.cu")).unwrap();
    let line = source.lines().position(|line| line.ends_with("// for whole warps")).unwrap() + 1;
    let done = checked("tensor_cores", &["small", "part"]);
    assert_eq!(done.code(), Some(1), "{}", done.told());
    assert!(done.stdout.contains("cudaErrorLaunchFailure"), "{}", done.told());
    let json: serde_json::Value = serde_json::from_str(done.stdout.lines().last().unwrap()).unwrap();
    let [record] = &json["records"].as_array().unwrap()[..] else { panic!("{}", done.told()) };
    assert_eq!(record["line"].as_u64(), Some(line as u64), "{}", done.told());
    assert_eq!(record["thread"], serde_json::json!([32, 0, 0]), "{}", done.told());
    let told = "came to an instruction for whole warps with the lanes 0x1 alone";
    assert!(record["what"].as_str().unwrap().contains(told), "{}", done.told());
}

#[test]
fn programs_without_a_stray_access_have_no_errors() {
    let is_right = |name: &str, done: &Done| {
        assert_eq!(done.code(), Some(0), "{name}: {}", done.told());
        assert!(done.stderr.lines().any(|line| line == "bulkhead: 0 errors"), "{name}: {}", done.told());
    };
    is_right("out_of_range", &checked("out_of_range", &["small", "fine"]));
    // Where processes wait for each other's events, or host functions for who launches, launches that wait for what was launched
    // before do not get on.
    let astray = |name: &str| {
        let waits = matches!(name, "shared_events" | "host_functions");
        name.starts_with("attack_") || waits || matches!(name, "out_of_range" | "faults")
    };
    for name in names("").iter().filter(|name| !astray(name)) {
        is_right(name, &checked(name, &[]));
    }
}

#[test]
fn functions_that_call_themselves_have_a_stack_and_say_where_it_ends() {
    let path = program("recursion");
    let (mut command, _scratch) = run_privately(&[path.to_str().unwrap()]);
    passed("recursion", &run(&mut command, PATIENCE));
    let (mut command, _scratch) = run_privately(&[path.to_str().unwrap(), "--too-deep"]);
    let done = run(&mut command, PATIENCE);
    assert_eq!(done.code(), Some(1), "{}", done.told());
    let is_told = |line: &str| line.contains("too_deep") && line.contains("the stack of 16384 bytes");
    assert!(done.stderr.lines().any(is_told), "{}", done.told());
    assert!(done.told().contains("cudaErrorLaunchFailure"), "{}", done.told());
}

/// Whether a line begins with FILE:LINE:COLUMN: and has a reason behind it.
fn is_a_finding(line: &str) -> bool {
    let parts: Vec<&str> = line.splitn(4, ':').collect();
    let number = |part: &str| part.parse::<u32>().is_ok_and(|number| number > 0);
    matches!(parts.as_slice(), [file, line, column, reason]
        if !file.is_empty() && number(line) && number(column) && reason.len() > 10)
}

#[test]
fn programs_that_the_guard_refuses_are_told_where_and_why() {
    let mut by_the_guard = 0;
    for name in names("refused") {
        let done = alone(&format!("refused/{name}"));
        assert_eq!(done.code(), Some(1), "{name} does not fail as a program does: {}", done.told());
        assert!(!done.stdout.contains("PASS"), "{name}: {}", done.told());
        let findings = done.stderr.lines().filter(|line| is_a_finding(line)).count();
        if done.stderr.contains("the guard refuses") {
            assert!(findings > 0, "{name} is not told where: {}", done.told());
            by_the_guard += 1;
        } else {
            // A call that is not there is told by its name.
            let told = done.stderr.lines().any(|line| line.starts_with("bulkhead: cu"));
            assert!(told, "{name} is not told what is refused: {}", done.told());
        }
    }
    assert!(by_the_guard >= 2, "{by_the_guard} programs");
    let done = alone("refused/dynamic_parallelism");
    let lines: Vec<&str> = done.stderr.lines().collect();
    assert!(lines.len() <= 4 && lines[1].ends_with("launch from the host instead"), "{}", done.told());
    // Nothing of it was looked at, which is no clean bill.
    let done = on_software(&["--sanitize=memcheck"], "refused/dynamic_parallelism");
    assert!(done.stderr.ends_with("bulkhead: 1 error\n"), "{}", done.told());
}
