//! What scripts rely on: commands, exit codes, JSON, and errors on standard error.

use std::{
    io::BufRead as _,
    os::unix::fs::PermissionsExt as _,
    process::{Command, Stdio},
    time::Duration,
};

use bulkhead_tests::{
    kernel::Kernel,
    patience::until,
    place::repository,
    process::{Done, bulkhead, lives, run, run_privately, run_privately_with},
    scratch::Scratch,
    skip::skipped,
    status,
};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(120);

fn done(arguments: &[&str]) -> Done {
    run(&mut bulkhead(arguments), PATIENCE)
}

#[test]
fn every_command_explains_itself() {
    let all = done(&["--help"]);
    assert_eq!(all.code(), Some(0), "{}", all.told());
    for command in ["serve", "run", "demo", "doctor", "bench", "guard", "coverage", "completions"] {
        assert!(all.stdout.contains(command), "{command} is not told of:\n{}", all.stdout);
        let one = done(&[command, "--help"]);
        assert_eq!(one.code(), Some(0), "{}", one.told());
        assert!(one.stdout.contains("Usage: bulkhead"), "{}", one.told());
        assert!(one.stderr.is_empty(), "{}", one.told());
    }
    let version = done(&["--version"]);
    assert_eq!(
        (version.code(), version.stdout.starts_with("bulkhead ")),
        (Some(0), true),
        "{}",
        version.told()
    );
}

#[test]
fn arguments_that_make_no_sense_end_with_2_and_a_usage() {
    for arguments in [
        &[][..],
        &["run"],
        &["run", "--"],
        &["nonsense"],
        &["serve", "--no-such-option"],
        &["demo", "--backend", "abacus"],
        &["completions", "no-such-shell"],
        &["guard"],
        &["guard", "-", "--window", "0x10000000000"],
        &["guard", "-", "--window", "1:2"],
        &["guard", "-", "--explain=poem"],
        &["run", "--private", "--socket", "/nowhere", "--", "true"],
        &["status", "--watch", "0"],
        &["serve", "--device-memory", "0"],
        &["serve", "--device-memory", "1KiB"],
    ] {
        let done = done(arguments);
        assert_eq!(done.code(), Some(2), "{arguments:?}: {}", done.told());
        assert!(done.stdout.is_empty(), "{arguments:?}: {}", done.told());
        assert!(done.stderr.contains("Usage:") || done.stderr.contains("--help"), "{}", done.told());
    }
}

/// As a shell ends, which a script can tell from a program that failed.
#[test]
fn a_program_that_is_not_there_ends_a_run_with_127_and_one_that_cannot_be_run_with_126() {
    let run = |program: &str| done(&["run", "--private", "--backend", "software", "--", program]);
    let failed = run("/nonexistent/program");
    assert_eq!(failed.code(), Some(127), "{}", failed.told());
    assert!(failed.stderr.starts_with("bulkhead: /nonexistent/program"), "{}", failed.told());
    let scratch = Scratch::new();
    let failed = run(scratch.path().to_str().unwrap());
    assert_eq!(failed.code(), Some(126), "{}", failed.told());
}

#[test]
fn a_failure_ends_with_1_and_one_message() {
    let scratch = Scratch::new();
    std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let open_to_all = scratch.path().to_str().unwrap();
    let failed = done(&["serve", "--backend", "software", "--runtime-directory", open_to_all]);
    assert_eq!(failed.code(), Some(1), "{}", failed.told());
    let told = failed.stderr.starts_with("bulkhead: ") && failed.stderr.contains("chmod 700");
    assert!(told, "{}", failed.told());
}

#[test]
fn a_table_that_is_asked_for_again_has_no_screen_codes_in_a_pipe() {
    let kernel = Kernel::start();
    let socket = kernel.socket();
    let mut command = Command::new(bulkhead_tests::place::bulkhead());
    command.args(["status", "--watch", "0.01", "--socket"]).arg(socket).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let read = std::io::BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let tables: Vec<String> = read.filter(|line| line.contains("device 0")).take(2).collect();
    assert!(child.wait().unwrap().success(), "who stops reading ends it");
    assert!(tables.len() == 2 && tables.iter().all(|line| line.starts_with("device 0")), "{tables:?}");
}

#[test]
fn what_the_software_gpu_is_told_has_to_make_sense() {
    for (arguments, told) in [
        (&["run", "--backend", "cuda", "--engine", "compiled", "--", "true"][..], "for the software GPU"),
        (&["demo", "--backend", "cuda", "--schedule", "1"], "for the software GPU"),
        (&["run", "--engine", "compiled", "--schedule", "1", "--", "true"], "for the interpreter"),
        (&["run", "--socket", "/nowhere", "--schedule", "1", "--", "true"], "for a private kernel"),
        (&["serve", "--backend", "software", "--ordinal", "3"], "--ordinal is for --backend cuda"),
    ] {
        let failed = done(arguments);
        assert_eq!(failed.code(), Some(1), "{arguments:?}: {}", failed.told());
        assert!(failed.stderr.contains(told), "{arguments:?}: {}", failed.told());
    }
    for arguments in [
        &["run", "--engine", "abacus"][..],
        &["demo", "--schedule", "-1"],
        &["serve", "--no-cache", "--cache-size", "2GiB"],
    ] {
        assert_eq!(done(arguments).code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_program_that_is_to_run_on_another_device_than_the_kernel_that_serves_has_is_not_started() {
    let kernel = Kernel::start();
    let mut asked = bulkhead(&["run", "--backend", "cuda", "--", "echo", "started"]);
    let refused = run(asked.env("BULKHEAD_SOCKET", kernel.socket()), PATIENCE);
    assert_eq!((refused.code(), refused.stdout.as_str()), (Some(1), ""), "{}", refused.told());
    for told in ["drives software", "--private", kernel.socket().to_str().unwrap()] {
        assert!(refused.stderr.contains(told), "{told}: {}", refused.told());
    }
    for backend in [&["--backend", "software"][..], &[]] {
        let mut asked = bulkhead(&[&["run"], backend, &["--", "echo", "started"]].concat());
        let done = run(asked.env("BULKHEAD_SOCKET", kernel.socket()), PATIENCE);
        assert_eq!((done.code(), done.stdout.as_str()), (Some(0), "started\n"), "{}", done.told());
    }
}

#[test]
fn whoever_names_a_socket_by_variable_means_that_kernel_as_with_the_option() {
    let mut named = bulkhead(&["run", "--", "echo", "started"]);
    let refused = run(named.env("BULKHEAD_SOCKET", "/nowhere/kernel.sock"), PATIENCE);
    assert_eq!((refused.code(), refused.stdout.as_str()), (Some(1), ""), "{}", refused.told());
    for told in ["BULKHEAD_SOCKET /nowhere/kernel.sock", "`bulkhead serve`"] {
        assert!(refused.stderr.contains(told), "{told}: {}", refused.told());
    }
}

#[test]
fn who_asks_for_a_gpu_that_is_not_there_is_told_of_the_software_gpu() {
    if done(&["doctor", "--backend"]).stdout.trim() == "cuda" {
        return skipped("there is a GPU");
    }
    let refused = done(&["run", "--private", "--backend", "cuda", "--", "echo", "started"]);
    assert_eq!((refused.code(), refused.stdout.as_str()), (Some(1), ""), "{}", refused.told());
    for told in ["`bulkhead doctor`", "`--backend software`"] {
        assert!(refused.stderr.contains(told), "{}", refused.told());
    }
}

#[test]
fn doctor_tells_what_is_there_and_how_to_get_what_is_missing() {
    let told = done(&["doctor", "--json"]);
    let report: Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!(told.code(), Some(if report["healthy"] == true { 0 } else { 1 }), "{}", told.told());
    let checks = report["checks"].as_array().unwrap();
    let check = |name: &str| checks.iter().find(|check| check["name"] == name);
    let names = ["driver module", "libcuda", "ptxas", "library OS", "memory seals", "storage", "kernel"];
    let held = [
        "non-dumpable",
        "no_new_privs",
        "namespaces",
        "Landlock",
        "seccomp",
        "isolated: files",
        "isolated: users",
        "isolated: cgroups",
        "isolated: calls",
        "SO_PASSRIGHTS",
        "SO_PEERPIDFD",
    ];
    for name in names.into_iter().chain(held) {
        let check = check(name).unwrap_or_else(|| panic!("{name} is not checked: {report:#}"));
        let state = check["state"].as_str().unwrap();
        assert!(["found", "missing", "absent"].contains(&state), "{check:#}");
        assert!(!check["detail"].as_str().unwrap().is_empty(), "{check:#}");
        assert!(state == "found" || !check["remedy"].as_str().unwrap().is_empty(), "no remedy: {check:#}");
    }
    for name in ["non-dumpable", "no_new_privs", "seccomp", "isolated: calls"] {
        assert_eq!(check(name).unwrap()["state"], "found", "no image is read here: {report:#}");
    }
    let landlock = check("Landlock").unwrap();
    assert!(
        landlock["state"] != "found" || landlock["detail"].as_str().unwrap().starts_with("ABI "),
        "{landlock:#}"
    );
    assert_eq!(check("isolated: files").unwrap()["state"], landlock["state"], "{report:#}");
    let backend = done(&["doctor", "--backend"]).stdout;
    assert_eq!(report["backend"], backend.trim());
    let human = done(&["doctor"]);
    for check in checks {
        assert!(human.stdout.contains(check["name"].as_str().unwrap()), "{}", human.told());
    }
}

/// Compile processes give theirs up by the same call.
#[test]
fn an_assembler_has_namespaces_of_its_own_where_the_system_gives_them() {
    let given = Command::new("unshare").args(["-Un", "true"]).status();
    if !given.is_ok_and(|status| status.success()) {
        return skipped("no user namespaces");
    }
    let told = done(&["assembler", "--", "/bin/readlink", "/proc/self/ns/user", "/proc/self/ns/net"]);
    assert_eq!(told.stdout.lines().count(), 2, "{}", told.told());
    for (name, own) in ["user", "net"].into_iter().zip(told.stdout.lines()) {
        let ours = std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
        assert_ne!(ours.to_str(), Some(own), "{name}");
    }
    let doctor: Value = serde_json::from_str(&done(&["doctor", "--json"]).stdout).unwrap();
    let checks = doctor["checks"].as_array().unwrap();
    let namespaces = checks.iter().find(|check| check["name"] == "namespaces").unwrap();
    assert_eq!(namespaces["state"], "found", "{namespaces:#}");
}

#[test]
fn doctor_misses_a_library_os_that_is_not_there() {
    // The binary alone, without what lies beside it. Another process writes the copy: a descriptor of
    // ours, open for writing, would be inherited by what other threads start meanwhile, and a file that
    // somebody has open for writing cannot be started (ETXTBSY).
    let scratch = Scratch::new();
    let alone = scratch.path().join("bulkhead");
    let copied = run(Command::new("cp").arg(bulkhead_tests::place::bulkhead()).arg(&alone), PATIENCE);
    assert_eq!(copied.code(), Some(0), "{}", copied.told());
    let mut doctor = Command::new(&alone);
    let done = run(
        doctor.args(["doctor", "--json"]).env_remove("BULKHEAD_LIBCUDA").env_remove("BULKHEAD_LIBNVML"),
        PATIENCE,
    );
    assert_eq!(done.code(), Some(1), "{}", done.told());
    let report: Value = serde_json::from_str(&done.stdout).unwrap();
    let missing: Vec<_> =
        report["checks"].as_array().unwrap().iter().filter(|check| check["state"] == "missing").collect();
    assert_eq!(missing.len(), 1, "{report:#}");
    assert_eq!(missing[0]["name"], "library OS");
    assert!(missing[0]["detail"].as_str().unwrap().contains("cargo build"), "{report:#}");
}

#[test]
fn completions_are_printed() {
    for (shell, sign) in
        [("bash", "complete -F"), ("zsh", "#compdef bulkhead"), ("fish", "complete -c bulkhead")]
    {
        let done = done(&["completions", shell]);
        assert_eq!(done.code(), Some(0), "{}", done.told());
        assert!(done.stdout.contains(sign), "{}", done.told());
        // Twice: for `module stop`, and behind `run --module`.
        let names = done.stdout.matches("bulkhead module list --names").count();
        assert_eq!(names, if shell == "bash" { 1 } else { 2 }, "{shell}: {}", done.told());
        for own in ["demo-tenant", "bench-worker", "assembler"] {
            assert!(!done.stdout.contains(own), "{shell} offers {own}, which only Bulkhead itself calls");
        }
    }
}

#[test]
fn who_stops_reading_ends_a_command_without_a_word() {
    let kernel = Kernel::start();
    let socket = kernel.socket();
    let file = repository().join("client/examples/saxpy.ptx");
    let (socket, file) = (socket.to_str().unwrap(), file.to_str().unwrap());
    let status = ["status", "--socket", socket, "--watch", "0.01"];
    for arguments in
        [&["completions", "bash"][..], &["doctor"], &["cache"], &["guard", file], &status, &status[..3]]
    {
        let mut command = Command::new(bulkhead_tests::place::bulkhead());
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success() && done.stderr.is_empty(), "{arguments:?}: {done:?}");
    }
}

#[test]
fn run_ends_as_its_program_does() {
    for (script, code) in
        [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -TERM $$", 143), ("kill -9 $$", 137)]
    {
        let (mut command, _scratch) = run_privately(&["sh", "-c", script]);
        let done = run(&mut command, PATIENCE);
        assert_eq!(done.code(), Some(code), "{script}: {}", done.told());
        assert_eq!(done.stderr.is_empty(), code <= 7 || code == 255, "{script}: {}", done.told());
    }
}

#[test]
fn a_program_gets_its_arguments_its_streams_and_the_library_os() {
    let kernel = Kernel::start();
    let mut command = kernel.run_command("sh".as_ref());
    command.args(["-c", r#"echo "$0 $1"; echo heard >&2; echo "$BULKHEAD_SOCKET"; readlink "${LD_LIBRARY_PATH%%:*}"/libcuda.so.1; echo "$LD_LIBRARY_PATH""#]);
    command.args(["first argument", "--help"]).env("LD_LIBRARY_PATH", "/somewhere");
    let done = run(&mut command, PATIENCE);
    assert_eq!(done.code(), Some(0), "{}", done.told());
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert_eq!(lines[0], "first argument --help");
    assert_eq!(lines[1], kernel.socket().to_str().unwrap());
    let library = bulkhead_tests::place::bulkhead().with_file_name("libcuda.so").canonicalize().unwrap();
    assert_eq!(lines[2], library.to_str().unwrap());
    assert!(lines[3].ends_with(":/somewhere"), "the program's own path stays: {}", lines[3]);
    assert!(done.stderr.contains("heard"));
}

#[test]
fn run_leaves_nothing_behind() {
    let (mut command, scratch) = run_privately(&["sh", "-c", "cat /proc/$PPID/task/*/children; echo $PPID"]);
    let done = run(&mut command, PATIENCE);
    assert_eq!(done.code(), Some(0), "{}", done.told());
    let processes: Vec<u32> = done.stdout.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(processes.len() >= 3, "run, its kernel and the program: {}", done.told());
    until("run's kernel is gone", || processes.iter().all(|process| !lives(*process)));
    let left: Vec<_> = std::fs::read_dir(scratch.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_kernels_program_that_is_missing_or_of_another_build_is_told_with_what_to_do() {
    let scratch = Scratch::new();
    let alone = scratch.path().join("bulkhead");
    std::fs::copy(bulkhead_tests::place::bulkhead(), &alone).unwrap();
    let mut serve = Command::new(&alone);
    serve.args(["serve", "--backend", "software", "--runtime-directory"]).arg(scratch.path().join("run"));
    let missing = run(&mut serve, PATIENCE);
    assert_eq!(missing.code(), Some(1), "{}", missing.told());
    assert!(
        missing.stderr.contains("bulkhead-kernel (`cargo build --release` makes it"),
        "{}",
        missing.told()
    );
    let kernel = bulkhead_tests::place::bulkhead().with_file_name("bulkhead-kernel");
    for (arguments, why) in
        [(&["contracts", "0"][..], "of different builds: build both"), (&["--help"], "bulkhead serve --help")]
    {
        let refused = run(Command::new(&kernel).args(arguments), PATIENCE);
        assert_eq!(refused.code(), Some(1), "{}", refused.told());
        assert!(refused.stderr.contains(why), "{}", refused.told());
    }
}

#[test]
fn serve_says_when_it_serves_and_ends_when_asked() {
    let scratch = Scratch::new();
    let place = scratch.path().join("run");
    let mut command = bulkhead(&["serve", "--backend", "software", "--runtime-directory"]);
    let log = std::fs::File::create(scratch.path().join("log")).unwrap();
    let mut child = command.arg(&place).stderr(log).spawn().unwrap();
    let said = || std::fs::read_to_string(scratch.path().join("log")).unwrap();
    until("the kernel says that it serves", || said().contains("serving the software backend"));
    assert!(std::os::unix::net::UnixStream::connect(place.join("kernel.sock")).is_ok());
    let second =
        run(bulkhead(&["serve", "--backend", "software", "--runtime-directory"]).arg(&place), PATIENCE);
    assert_eq!(second.code(), Some(1), "{}", second.told());
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    until("the kernel ends", || child.try_wait().unwrap().is_some());
    assert!(child.wait().unwrap().success(), "{}", said());
    assert!(!place.join("kernel.sock").exists());
}

#[test]
fn executors_see_nothing_of_the_environment_that_the_kernel_was_started_in() {
    let scratch = Scratch::new();
    let place = scratch.path().join("run");
    let mut command = bulkhead(&["serve", "--with-parent", "--backend", "software", "--runtime-directory"]);
    command.arg(&place).env("LD_LIBRARY_PATH", "/somewhere/else").env("A_USERS_OWN", "secret");
    command.env("CUDA_VISIBLE_DEVICES", "").stderr(std::process::Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut executor = 0;
    until("an executor runs", || {
        executor = status::of(&place.join("kernel.sock")).map_or(0, |status| status.executor_pid);
        executor != 0
    });
    // Nobody reads it but the administrator: elsewhere there is nothing to look at.
    let environment = std::fs::read_to_string(format!("/proc/{executor}/environ")).unwrap_or_default();
    let names: Vec<&str> = environment.split('\0').filter_map(|pair| pair.split('=').next()).collect();
    for name in ["LD_LIBRARY_PATH", "LD_PRELOAD", "A_USERS_OWN", "CUDA_VISIBLE_DEVICES", "HOME", "PATH"] {
        assert!(!names.contains(&name), "{name} is among {names:?}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn who_asks_a_run_to_end_asks_its_program_and_nothing_stays() {
    // The program has its say: it may end otherwise than by the signal.
    let script = "trap 'exit 9' TERM INT HUP; echo $$; while :; do sleep 0.05; done";
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT, rustix::process::Signal::HUP]
    {
        let (mut command, scratch) = run_privately(&["sh", "-c", script]);
        let mut running = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufReader::new(running.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let program = line.trim().parse().unwrap();
        let pid = rustix::process::Pid::from_raw(i32::try_from(running.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
        assert_eq!(running.wait().unwrap().code(), Some(9), "{signal:?}");
        until("the program has ended", || !lives(program));
        let left: Vec<_> = std::fs::read_dir(scratch.path()).unwrap().collect();
        assert!(left.is_empty(), "{signal:?}: {left:?}");
    }
}

#[test]
fn triton_is_given_an_assembler_that_leaves_ptx_as_it_is_where_only_ptx_runs() {
    let scratch = Scratch::new();
    let (input, output) = (scratch.path().join("in.ptx"), scratch.path().join("out.cubin"));
    std::fs::write(&input, ".version 9.0\n").unwrap();
    let told = |domain: &str, variables: &[(&str, &str)], script: &str| {
        let (mut command, _scratch) = run_privately_with(&["--domain", domain], &["sh", "-c", script]);
        command.env_remove("TRITON_PTXAS_PATH").envs(variables.iter().copied());
        let done = run(&mut command, PATIENCE);
        assert_eq!(done.code(), Some(0), "{}", done.told());
        done.stdout
    };
    let script = format!(
        "\"$TRITON_PTXAS_PATH\" --version && \"$TRITON_PTXAS_PATH\" -lineinfo -v --gpu-name=sm_90a {} -o {}",
        input.display(),
        output.display()
    );
    // Triton looks for these words, and keeps what it compiled by all of them: machine code is not taken for text.
    let version = told("guarded", &[], &script);
    assert!(version.contains("release 13.0, ") && version.contains("Bulkhead"), "{version}");
    assert_eq!(std::fs::read(&output).unwrap(), b".version 9.0\n\0");
    let asked = "echo \"${TRITON_PTXAS_PATH-none}\"";
    assert_eq!(told("isolated", &[], asked), "none\n");
    assert_eq!(told("guarded", &[("TRITON_PTXAS_PATH", "/opt/ptxas")], asked), "/opt/ptxas\n");
    let failed =
        told("guarded", &[], "\"$TRITON_PTXAS_PATH\" /nonexistent/x.ptx -o /dev/null 2>&1 || echo failed");
    assert!(failed.contains("/nonexistent/x.ptx") && failed.contains("failed"), "{failed}");
}

#[test]
fn a_command_that_is_asked_to_end_leaves_nothing_behind() {
    let scratch = Scratch::new();
    let mut command = bulkhead(&["demo", "--backend", "software"]);
    let mut running = command.env("TMPDIR", scratch.path()).stdout(Stdio::null()).spawn().unwrap();
    let left = || std::fs::read_dir(scratch.path()).unwrap().count();
    until("it has a directory", || left() > 0);
    let pid = rustix::process::Pid::from_raw(i32::try_from(running.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(143));
    until("nothing is left", || left() == 0);
    let kernel = done(&["serve", "--with-parent=1", "--backend", "software"]);
    assert!(kernel.stderr.contains("whoever started this has ended"), "{}", kernel.told());
}

#[test]
fn what_cannot_come_out_well_is_said_before_a_program_runs() {
    let scratch = Scratch::new();
    std::fs::write(scratch.path().join("here"), "").unwrap();
    for (arguments, told) in [
        (
            &["run", "--private", "--backend", "software", "--trace", "/nonexistent/x", "--", "true"][..],
            "/nonexistent/x",
        ),
        (
            &["run", "--private", "--backend", "software", "--profile=/nonexistent/x", "--", "true"],
            "/nonexistent/x",
        ),
        (&["run", "--private", "--backend", "software", "--", "here"], "the one in this folder is ./here"),
        (&["run", "--socket", "/nonexistent/kernel.sock", "--", "true"], "no kernel serves there"),
        (
            &["run", "--domain", "isolated", "--module", "log", "--", "true"],
            "leave --domain isolated (or BULKHEAD_DOMAIN) out",
        ),
        (&["run", "--gates", "/nonexistent/token", "--", "true"], "--gates /nonexistent/token"),
        (&["run", "--private", "--backend", "software", "--", "./here"], "it is no program that may be run"),
    ] {
        let failed = run(bulkhead(arguments).current_dir(scratch.path()), PATIENCE);
        // As shells say it.
        let code = match told {
            "the one in this folder is ./here" => 127,
            "it is no program that may be run" => 126,
            _ => 1,
        };
        assert_eq!(failed.code(), Some(code), "{arguments:?}: {}", failed.told());
        assert!(failed.stderr.contains(told), "{arguments:?}: {}", failed.told());
    }
    // Nothing was started that could tell of mistakes.
    let missing = done(&["run", "--sanitize", "--", "./not_there"]);
    assert_eq!((missing.code(), missing.stderr.lines().count()), (Some(127), 1), "{}", missing.told());
    let size = done(&["serve", "--module", "log=log.ptx:3MiB"]);
    assert!(size.code() == Some(2) && size.stderr.contains("a power of two"), "{}", size.told());
}

#[test]
fn the_operators_socket_tells_the_status_too() {
    let kernel = Kernel::start();
    let socket = kernel.socket().with_file_name("operator.sock");
    let told = done(&["status", "--json", "--socket", socket.to_str().unwrap()]);
    assert_eq!(told.code(), Some(0), "{}", told.told());
    assert!(serde_json::from_str::<Value>(&told.stdout).is_ok(), "{}", told.told());
}

#[test]
fn a_kernel_is_named_by_either_socket_or_by_their_directory() {
    let kernel = Kernel::start();
    let clients = kernel.socket();
    for socket in
        [clients.clone(), clients.with_file_name("operator.sock"), clients.parent().unwrap().to_owned()]
    {
        let socket = socket.to_str().unwrap();
        for command in [&["status", "--socket", socket][..], &["run", "--socket", socket, "--", "true"]] {
            let told = done(command);
            assert_eq!(told.code(), Some(0), "{command:?}: {}", told.told());
        }
        let nobody = done(&["suspend", "4711", "--socket", socket]);
        assert!(nobody.code() == Some(1) && nobody.stderr.contains("no session 4711"), "{}", nobody.told());
    }
    let named = done(&["suspend", "trainer"]);
    assert!(named.code() == Some(2) && named.stderr.contains("bulkhead status"), "{}", named.told());
}

#[test]
fn a_program_ends_with_the_run_that_started_it() {
    let (mut command, _scratch) = run_privately(&["sh", "-c", "echo $$; exec sleep 1000"]);
    let mut running = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufReader::new(running.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let program = line.trim().parse().unwrap();
    assert!(lives(program));
    running.kill().unwrap();
    running.wait().unwrap();
    until("the program has ended", || !lives(program));
}

#[test]
fn a_program_has_what_whoever_runs_it_left_open() {
    let open = ["sh", "-c", "exec 9</etc/passwd; exec \"$@\"", "sh"];
    let mut program = bulkhead_tests::process::bulkhead_in(
        &open,
        &["run", "--backend", "software", "--", "sh", "-c", "cat <&9"],
    );
    let done = run(&mut program, PATIENCE);
    assert!(done.code() == Some(0) && done.stdout.contains("root:"), "{}", done.told());
}
