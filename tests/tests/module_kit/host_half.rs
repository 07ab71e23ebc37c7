//! Host halves that end, are ended, and are started again.

use super::*;

#[test]
fn a_host_half_that_is_killed_is_started_again_and_callers_open_again() {
    let (scratch, kernel) = (Scratch::new(), Kernel::start());
    let mut started = Started::new(&kernel, &manifest(&scratch, 64));
    let tenant = kernel.open("tenant");
    for _ in 0..3 {
        let mut opened = open(&kernel, "");
        let gates = accept(&tenant, &opened);
        assert_eq!(add(&tenant, 1, 1), (codes::DONE, 0));
        let begun = Instant::now();
        kill_host_half(&kernel);
        opened.wait();
        println!("callers are told {:?} later", begun.elapsed());
        started.line("is started again");
        started.line("serves at");
        println!("it serves again {:?} later", begun.elapsed());
        let refused = call(&tenant, "get", |parameters| parameters.u32(1)).err();
        assert!(matches!(refused, Some(ErrorCode::Revoked | ErrorCode::ImageRefused)), "{refused:?}");
        drop(gates);
    }
    assert_eq!(tenant.status().map_err(|error| error.code), Ok(()));
}

#[test]
fn a_module_that_needs_what_is_not_there_is_refused_before_it_starts() {
    let (scratch, kernel) = (Scratch::new(), Kernel::start());
    let path = manifest(&scratch, 4);
    let text = fs::read_to_string(&path).expect("a manifest");
    for (needs, told) in [
        ("bulkhead = \"99.1\"", "counter needs Bulkhead 99.1.0, and this is "),
        ("backend = \"cuda\"", "counter needs a device of the backend cuda, and the kernel has software"),
    ] {
        fs::write(&path, format!("{text}\n[needs]\n{needs}\n")).expect("a manifest");
        let done = module(&kernel, &["start", path.to_str().expect("text")]);
        assert!(done.code() == Some(1) && done.stderr.contains(told), "{needs}: {}", done.told());
    }
    fs::write(&path, format!("{text}\n[needs]\nbulkhead = \"0.1\"\nbackend = \"software\"\n"))
        .expect("a manifest");
    let _started = Started::new(&kernel, &path);
}

#[test]
fn a_program_that_is_started_with_its_module_waits_until_that_serves() {
    let (scratch, kernel) = (Scratch::new(), Kernel::start());
    let manifest = manifest(&scratch, 4);
    let mut starting = bulkhead(&["module", "start", "--socket"]);
    starting.arg(kernel.socket()).arg(&manifest).stdout(Stdio::null()).stderr(Stdio::null());
    let mut starting = starting.spawn().expect("it starts");
    let mut command = bulkhead(&["run", "--module", "counter", "--socket"]);
    let done = run(command.arg(kernel.socket()).args(["--", "true"]), PATIENCE);
    assert_eq!(done.code(), Some(0), "{}", done.told());
    assert_eq!(module(&kernel, &["stop", "counter"]).code(), Some(0));
    starting.wait().expect("it ends");
    // What nobody starts is refused soon.
    let mut command = bulkhead(&["run", "--module", "counter", "--socket"]);
    let done = run(command.arg(kernel.socket()).args(["--", "true"]), PATIENCE);
    assert!(done.code() == Some(1) && done.stderr.contains("no module serves"), "{}", done.told());
}

#[test]
fn a_module_whose_reports_nobody_reads_is_started_again_all_the_same() {
    let (scratch, kernel) = (Scratch::new(), Kernel::start());
    let manifest = manifest(&scratch, 4);
    let (_, nobody_reads) = std::io::pipe().expect("a pipe");
    let mut command = bulkhead(&["module", "start", "--socket"]);
    command.arg(kernel.socket()).arg(&manifest).stdout(Stdio::null()).stderr(nobody_reads);
    let mut starting = command.spawn().expect("it starts");
    let socket = door::socket_of(&kernel.socket(), "counter");
    until("it serves", || door::open(&socket, "").is_ok());
    kill_host_half(&kernel);
    until("it serves again", || door::open(&socket, "").is_ok());
    assert_eq!(module(&kernel, &["stop", "counter"]).code(), Some(0));
    assert_eq!(starting.wait().expect("its status").code(), Some(0));
}

#[test]
fn gates_of_a_module_that_was_killed_answer_kernels_that_run_that_nothing_is_open() {
    let (scratch, kernel) = (Scratch::new(), Kernel::start());
    let _started = Started::new(&kernel, &manifest(&scratch, 64));
    let tenant = kernel.open("tenant");
    let opened = open(&kernel, "");
    let _gates = accept(&tenant, &opened);
    let to = running(&tenant, "watch");
    kill_host_half(&kernel);
    let begun = Instant::now();
    let told = answered(&tenant, &to);
    println!("a kernel that runs is told {:?} later", begun.elapsed());
    assert_eq!(told, Ok(codes::NOT_OPEN));
    assert_eq!(tenant.status().map_err(|error| error.code), Ok(()));
}

#[test]
fn a_supervisor_that_is_killed_takes_the_host_half_along_and_the_next_takes_over() {
    let (scratch, kernel) = (Scratch::new(), Kernel::start());
    let mut started = Started::new(&kernel, &manifest(&scratch, 64));
    started.child.kill().expect("it is killed");
    kernel.without(&["module counter"]);
    let _next = Started::new(&kernel, &manifest(&scratch, 64));
    let tenant = kernel.open("tenant");
    let opened = open(&kernel, "");
    let _gates = accept(&tenant, &opened);
    assert_eq!(add(&tenant, 1, 1), (codes::DONE, 0));
}
