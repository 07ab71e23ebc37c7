//! Kernels that run on are ended, and nobody else is.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use bulkhead_client::{
    Buffer, Domain, ErrorCode, Launch, Options, Parameters, Pattern, Session, Stream, Terms,
};
use bulkhead_tests::{
    child,
    kernel::{Kernel, on_gpu},
    neighbour::Neighbour,
    patience::{PATIENCE, until, within},
    place, process,
    tenant::{NEW, PAGE_BYTES, Tenant},
};

const FIRST: Stream = Stream::DEFAULT;

/// Fills the device with blocks that run for ever. What is returned keeps the session.
fn runs_away(tenant: &Tenant) -> Buffer {
    // More than any device runs at once, and few enough for the software GPU to start all of them soon.
    let forever = Launch { grid: [5_000, 1, 1], block: [256, 1, 1], shared_bytes: 0 };
    let at = tenant.session.allocate(1024).unwrap();
    let parameters = Parameters::new().u32(u32::MAX).u64(at.address()).u32(1);
    tenant.session.launch(FIRST, &tenant.entry("persist"), &forever, &parameters).unwrap();
    at
}

/// Where the code of these tests runs: it is PTX.
fn domains() -> &'static [Domain] {
    if on_gpu() { &[Domain::Guarded] } else { &[Domain::Guarded, Domain::Isolated] }
}

#[test]
fn whoever_waits_to_load_code_does_so_after_a_while_and_a_runaway_kernel_is_ended_for_it() {
    let kernel = Kernel::with(&["--loading-seconds", "2"]);
    let mut neighbour = Neighbour::new(&kernel, "neighbour");
    neighbour.work();
    let runaway = Tenant::new(&kernel, "runaway");
    let loader = kernel.open("loader");
    let word = runaway.session.allocate(4).unwrap();
    let running = runaway.runs(word.address());
    let loader = within("code is loaded", move || {
        loader.load_image(NEW).unwrap();
        Tenant::over(loader)
    });
    let error = runaway.session.wait(running.fence()).unwrap_err();
    assert_eq!(error.code, ErrorCode::LaunchTimeout, "{error}");
    assert_eq!(runaway.session.status().unwrap_err().code, ErrorCode::LaunchTimeout);
    neighbour.work();
    let arena = loader.arena(PAGE_BYTES, 3);
    assert_eq!(loader.loads(arena.address()), 3);
    drop((word, runaway));
    kernel.without(&["runaway"]);
}

#[test]
fn a_kernel_that_runs_for_longer_than_it_may_is_ended_whatever_other_streams_do() {
    let kernel = Kernel::with(&["--kernel-seconds", "1"]);
    for &domain in domains() {
        let terms = Terms { domain, ..Terms::default() };
        let session = Session::open(&Options { terms, ..kernel.options("runaway") }).unwrap();
        let runaway = Tenant::over(session);
        let word = runaway.session.allocate(4).unwrap();
        let other = runaway.session.create_stream(0).unwrap();
        let _stored = runs_away(&runaway);
        // Work that passes, all the time.
        until("the session is told", || {
            let filled = runaway.session.fill(other, word.range(0, 4), Pattern::Bits32(1));
            filled.and_then(|fence| runaway.session.wait(fence)).is_err()
        });
        assert_eq!(runaway.session.status().unwrap_err().code, ErrorCode::LaunchTimeout);
    }
}

#[test]
fn a_kernel_that_runs_for_longer_than_it_may_ends_its_session_and_no_other() {
    let kernel = Kernel::with(&["--kernel-seconds", "1"]);
    let mut neighbour = Neighbour::new(&kernel, "neighbour");
    let runaway = Tenant::new(&kernel, "runaway");
    let stored = runs_away(&runaway);
    let start = Instant::now();
    until("the session is told", || runaway.session.status().is_err());
    println!("told after {:?}", start.elapsed());
    let start = Instant::now();
    neighbour.work();
    println!("a neighbour's kernel ran to its end {:?} later", start.elapsed());
    assert_eq!(runaway.session.status().unwrap_err().code, ErrorCode::LaunchTimeout);
    until("the log says so", || kernel.log().contains("`persist`, or what was launched before it, ran for"));
    neighbour.work();
    let start = Instant::now();
    drop((stored, runaway));
    kernel.without(&["runaway"]);
    println!("gone after {:?}", start.elapsed());
    neighbour.work();
}

#[test]
fn closing_a_session_ends_its_kernels_and_gives_everything_back() {
    let kernel = Kernel::start();
    let mut neighbour = Neighbour::new(&kernel, "neighbour");
    let before = kernel.status();
    let runaway = Tenant::new(&kernel, "runaway");
    // A neighbour's kernels wait until then: on a GPU no multiprocessor is left.
    let stored = runs_away(&runaway);
    let start = Instant::now();
    drop((stored, runaway));
    neighbour.work();
    println!("a neighbour's kernel ran to its end {:?} later", start.elapsed());
    let after = kernel.without(&["runaway"]);
    println!("stopped after {:?}", start.elapsed());
    assert_eq!(after.charged_bytes, before.charged_bytes);
    assert_eq!((after.executor_pid, after.executor_starts), (before.executor_pid, before.executor_starts));
    neighbour.work();
    // The slot is as good as new: what runs in it is not ended.
    let next = Tenant::new(&kernel, "next");
    let arena = next.arena(PAGE_BYTES, 9);
    assert_eq!(next.loads(arena.address()), 9);
}

/// Each thread clears 2 KB first.
const CLEARS: &str = ".version 8.0\n.target sm_75\n.address_size 64\n
    .visible .entry clears(.param .u64 at)\n{\n
    .reg .b32 %r<3>;\n.reg .b64 %rd<4>;\n.local .align 8 .b8 own[2048];\n
    ld.param.u64 %rd1, [at];\nmov.u32 %r1, %clock;\nand.b32 %r1, %r1, 2047;\n
    mov.u64 %rd2, own;\ncvt.u64.u32 %rd3, %r1;\nadd.u64 %rd2, %rd2, %rd3;\n
    ld.local.u8 %r2, [%rd2];\nst.global.u32 [%rd1], %r2;\nret;\n}\n";

/// What it leaves takes minutes on the software GPU.
#[test]
fn whoever_leaves_much_to_fill_or_to_clear_ends_nobody_elses_work() {
    let kernel = Kernel::start();
    let mut neighbour = Neighbour::new(&kernel, "neighbour");
    neighbour.work();
    let before = kernel.status();
    let fills = Tenant::new(&kernel, "fills");
    let memory = fills.session.allocate(256 << 20).unwrap();
    for _ in 0..600 {
        fills.session.fill(FIRST, memory.all(), Pattern::Bits8(1)).unwrap();
    }
    drop((memory, fills));
    kernel.without(&["fills"]);
    let clears = Tenant::new(&kernel, "clears");
    let image = clears.session.load_image(CLEARS.as_bytes()).unwrap();
    let word = clears.session.allocate(4).unwrap();
    let all = Launch { grid: [1 << 17, 1, 1], block: [1024, 1, 1], shared_bytes: 0 };
    let parameters = Parameters::new().u64(word.address());
    clears.session.launch(FIRST, &image.entry("clears").unwrap(), &all, &parameters).unwrap();
    drop((word, image, clears));
    let after = kernel.without(&["clears"]);
    assert_eq!((after.executor_pid, after.executor_starts), (before.executor_pid, before.executor_starts));
    neighbour.work();
}

/// Opens a session with a kernel that never ends, says so, and waits to be killed.
fn be_a_client_with_a_runaway_kernel(socket: &Path) {
    let options = Options { socket: socket.to_owned(), name: "doomed".into(), ..Options::default() };
    let tenant = Tenant::over(Session::open(&options).unwrap());
    let word = tenant.session.allocate(4).unwrap();
    let _running = tenant.runs(word.address());
    println!("holding");
    thread::sleep(PATIENCE * 2);
}

#[test]
fn a_client_that_is_killed_takes_its_endless_kernel_along() {
    if let Some(socket) = child::role() {
        return be_a_client_with_a_runaway_kernel(&socket);
    }
    let kernel = Kernel::start();
    let mut neighbour = Neighbour::new(&kernel, "neighbour");
    neighbour.work();
    let before = kernel.status();
    let mut client = child::start("a_client_that_is_killed_takes_its_endless_kernel_along", &kernel.socket());
    let told = BufReader::new(client.stdout.take().unwrap()).lines();
    assert!(told.map_while(Result::ok).any(|line| line.ends_with("holding")));
    assert!(kernel.status().session("doomed").is_some());
    client.kill().unwrap();
    assert_eq!(client.wait().unwrap().signal(), Some(9));
    let start = Instant::now();
    assert_eq!(kernel.without(&["doomed"]), before);
    println!("stopped after {:?}", start.elapsed());
    neighbour.work();
}

/// Long, and without a loop: nothing looks at a flag on the way.
fn straight_on() -> String {
    let head = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry on(.param .u64 at)\n{\n\
        .reg .b32 %r<3>;\n.reg .b64 %d<2>;\nld.param.u64 %d1, [at];\nmov.u32 %r1, %tid.x;\nmov.u32 %r2, 1;\n";
    let line = "match.any.sync.b32 %r1, %r1, 0xffffffff;\nsin.approx.f32 %r1, %r1;\n";
    format!(
        "{head}st.global.u32 [%d1], %r2;\n{}st.global.u32 [%d1+4], %r1;\nret;\n}}\n",
        line.repeat(300_000)
    )
}

#[test]
#[ignore = "needs a processor on which one block of this runs for longer than the software GPU's grace of 5 s"]
fn where_a_kernel_does_not_end_the_executor_does_and_a_standby_goes_on_with_the_others() {
    if std::env::var("BULKHEAD_TESTS_BACKEND").is_ok_and(|backend| backend == "cuda") {
        println!("skipped: a device is done with a straight line too soon");
        return;
    }
    let kernel = Kernel::with(&["--standby"]);
    until("a standby is ready", || kernel.status().standby_pid != 0);
    let neighbour = Tenant::new(&kernel, "neighbour");
    let kept = neighbour.arena(PAGE_BYTES, 0xda7a);
    let hung = Tenant::new(&kernel, "hung");
    let image = hung.session.load_image(straight_on().as_bytes()).unwrap();
    let at = hung.session.allocate(8).unwrap();
    let many = Launch { grid: [64, 1, 1], block: [1024, 1, 1], shared_bytes: 0 };
    let parameters = Parameters::new().u64(at.address());
    hung.session.launch(FIRST, &image.entry("on").unwrap(), &many, &parameters).unwrap();
    let beside = hung.session.create_stream(0).unwrap();
    until("it runs", || {
        let mut began = [0; 4];
        hung.session.read(beside, &mut began, at.range(0, 4)).unwrap();
        began[0] == 1
    });
    let before = kernel.status();
    let moves = neighbour.session.moves();
    drop((image, at, hung));
    until("the neighbour has moved", || neighbour.session.moves() > moves);
    let after = kernel.without(&["hung"]);
    assert_ne!(after.executor_pid, before.executor_pid);
    assert!(!process::lives(before.executor_pid));
    // What was lost on the way is told once.
    let told = neighbour.session.fill(FIRST, kept.range(0, 4), Pattern::Bits32(0xda7a));
    if let Err(error) = told.and_then(|fence| neighbour.session.wait(fence)) {
        assert_eq!(error.code, ErrorCode::WorkLost, "{error}");
    }
    assert!(neighbour.words(kept.all()).iter().all(|word| *word == 0xda7a));
}

#[test]
fn many_short_kernels_are_not_taken_for_a_long_one() {
    let kernel = Kernel::with(&["--kernel-seconds", "1"]);
    for &domain in domains() {
        let terms = Terms { domain, ..Terms::default() };
        let tenant = Tenant::over(Session::open(&Options { terms, ..kernel.options("short") }).unwrap());
        let at = tenant.session.allocate(4096).unwrap();
        let short = Parameters::new().u32(1_000_000).u64(at.address()).u32(1);
        let begun = Instant::now();
        let mut last = tenant.launch("persist", &short);
        tenant.session.wait(last).unwrap();
        // Three seconds of them, queued at once.
        let many = Duration::from_secs(3).as_nanos() / begun.elapsed().as_nanos().max(1);
        for _ in 0..many.clamp(10, 5000) {
            last = tenant.launch("persist", &short);
        }
        tenant.session.wait(last).unwrap_or_else(|error| panic!("{domain:?}: {error}"));
    }
}

/// What `bulkhead status` says of the sessions of a kernel: the table, and by name for how long they are busy, in milliseconds.
fn busy(kernel: &Kernel) -> (String, std::collections::BTreeMap<String, u64>) {
    let socket = kernel.socket();
    let ask = |more: &[&str]| {
        let arguments = [&["status", "--socket", socket.to_str().unwrap()], more].concat();
        let done = process::run(&mut process::bulkhead(&arguments), PATIENCE);
        assert_eq!(done.code(), Some(0), "{}", done.told());
        done.stdout
    };
    let told: serde_json::Value = serde_json::from_str(&ask(&["--json"])).unwrap();
    let sessions = told["sessions"].as_array().unwrap().iter();
    let of = |session: &serde_json::Value| {
        (session["name"].as_str().unwrap().to_owned(), session["busy_ms"].as_u64().unwrap())
    };
    let busy = sessions.map(of).collect();
    (ask(&[]), busy)
}

#[test]
fn status_tells_for_how_long_a_kernel_has_run() {
    let kernel = Kernel::start();
    let neighbour = Tenant::new(&kernel, "neighbour");
    for &domain in domains() {
        let terms = Terms { domain, ..Terms::default() };
        let session = Session::open(&Options { terms, ..kernel.options("runaway") }).unwrap();
        let runaway = Tenant::over(session);
        let word = runaway.session.allocate(4).unwrap();
        let running = runaway.runs(word.address());
        // What it tells is no older than a moment, and grows.
        until("it is told", || busy(&kernel).1["runaway"] >= 1_200);
        let (table, told) = busy(&kernel);
        assert!(told["runaway"] >= 1_200 && told["neighbour"] == 0, "{domain:?}: {told:?}");
        let line = |name: &str| table.lines().find(|line| line.contains(name)).unwrap().to_owned();
        assert!(line("runaway").contains(", busy for ") && line("runaway").contains(" s"), "{table}");
        assert!(!line("neighbour").contains("busy"), "{table}");
        neighbour.session.wait(neighbour.session.fence(FIRST)).unwrap();
        drop((running, word, runaway));
        kernel.without(&["runaway"]);
    }
}

/// Loading waits until no kernel runs, and a kernel that runs on is ended for it after a while.
#[test]
fn a_program_that_waits_for_others_kernels_is_told_why() {
    let kernel = Kernel::with(&["--loading-seconds", "7"]);
    let runaway = Tenant::new(&kernel, "runaway");
    let word = runaway.session.allocate(4).unwrap();
    let running = runaway.runs(word.address());
    let mut command = kernel.run_command(&place::program("vecadd"));
    let done = process::run(&mut command, PATIENCE);
    let told = "loading code takes long";
    assert!(done.code() == Some(0) && done.stderr.matches(told).count() == 1, "{}", done.told());
    let error = runaway.session.wait(running.fence()).unwrap_err();
    assert_eq!(error.code, ErrorCode::LaunchTimeout, "{error}");
    let done = process::run(&mut kernel.run_command(&place::program("vecadd")), PATIENCE);
    assert!(done.code() == Some(0) && !done.stderr.contains(told), "{}", done.told());
}

/// The client hears it from the completion page, and may have gone before the kernel hears it.
#[test]
fn the_log_says_why_a_session_was_ended_whoever_hears_it_first() {
    const ROUNDS: usize = 8;
    let kernel = Kernel::with(&["--kernel-seconds", "1"]);
    for &domain in domains() {
        let told = || kernel.log().matches("code=\"LaunchTimeout\"").count();
        let before = told();
        for _ in 0..ROUNDS {
            let terms = Terms { domain, ..Terms::default() };
            let session = Session::open(&Options { terms, ..kernel.options("runaway") }).unwrap();
            let runaway = Tenant::over(session);
            let word = runaway.session.allocate(4).unwrap();
            let running = runaway.runs(word.address());
            let error = runaway.session.wait(running.fence()).unwrap_err();
            drop((word, running, runaway));
            assert_eq!(error.code, ErrorCode::LaunchTimeout, "{error}");
            kernel.without(&["runaway"]);
        }
        until("each is told", || told() - before >= ROUNDS);
        assert_eq!(told() - before, ROUNDS, "each is told once");
    }
}
