//! `bulkhead module start`: modules come and go while a kernel serves, and who opens one has an instance until it lets go.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use bulkhead_client::{AcceptedGates, Buffer, ErrorCode, Launch, Parameters, Session, Stream};
use bulkhead_module::{codes, door};
use bulkhead_tests::{
    kernel::Kernel,
    patience::until,
    place::{host_half, repository, toolchain_libraries},
    process::{Done, bulkhead, run},
    scratch::Scratch,
};
use serde_json::Value;

#[path = "module_kit/host_half.rs"]
mod host_half;

#[path = "module_kit/mistakes.rs"]
mod mistakes;

const PATIENCE: Duration = Duration::from_secs(120);

/// Adds to counters, reads them, and asks until the answer is another.
const TENANT: &[u8] = b".version 6.0
.target sm_70
.address_size 64
.extern .func (.param .b32 code) counter_add(.param .b32 key, .param .b64 by, .param .b64 before);
.extern .func (.param .b32 code) counter_get(.param .b32 key, .param .b64 value);
.visible .entry add(.param .u64 out, .param .u32 key, .param .u64 by)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [key];
    ld.param.u64 %rd2, [by];
    add.s64 %rd3, %rd1, 8;
    call (%r2), counter_add, (%r1, %rd2, %rd3);
    st.global.u32 [%rd1], %r2;
    ret;
}
.visible .entry get(.param .u64 out, .param .u32 key)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [key];
    add.s64 %rd3, %rd1, 8;
    call (%r2), counter_get, (%r1, %rd3);
    st.global.u32 [%rd1], %r2;
    ret;
}
.visible .entry forever(.param .u64 out)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    add.s64 %rd3, %rd1, 8;
    st.global.u32 [%rd1+16], 1;
TURN:
    call (%r2), counter_get, (0, %rd3);
    bra TURN;
}
.visible .entry watch(.param .u64 out)
{
    .reg .pred %p;
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    add.s64 %rd3, %rd1, 8;
    st.global.u32 [%rd1+16], 1;
TURN:
    call (%r2), counter_get, (0, %rd3);
    setp.eq.u32 %p, %r2, 0;
    @%p bra TURN;
    st.global.u32 [%rd1], %r2;
    ret;
}
\0";

/// A `bulkhead module start` that is asked to end when this is dropped.
struct Started {
    child: Child,
    told: BufReader<std::process::ChildStderr>,
}

impl Started {
    fn new(kernel: &Kernel, manifest: &Path) -> Self {
        let mut started = Self::begun(kernel, manifest);
        started.line("serves at");
        started
    }

    /// It may not serve yet.
    fn begun(kernel: &Kernel, manifest: &Path) -> Self {
        let mut command = bulkhead(&["module", "start", "--socket"]);
        command.arg(kernel.socket()).arg(manifest).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let told = BufReader::new(child.stderr.take().expect("a pipe"));
        Self { child, told }
    }

    /// Reads until it tells this.
    fn line(&mut self, what: &str) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            assert!(self.told.read_line(&mut line).expect("it tells") > 0, "it has ended: {all}");
            if line.contains(what) {
                return line;
            }
            all.push_str(&line);
        }
    }

    fn ends(&mut self) -> i32 {
        let mut rest = String::new();
        self.told.read_to_string(&mut rest).expect("its end");
        self.child.wait().expect("its status").code().unwrap_or(-1)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(i32::try_from(self.child.id()).unwrap_or(0)) {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap_or_default();
        }
        self.child.wait().expect("it ends");
    }
}

/// The counter's manifest, with as many instances.
fn manifest(scratch: &Scratch, instances: usize) -> PathBuf {
    let gates = repository().join("modules/examples/counter/gates.ptx");
    let text = format!(
        "name = \"counter\"\ngates = {gates:?}\nhost = [{:?}]\ninstances = {instances}\n[quota]\ndevice_bytes = \"128MiB\"\n",
        host_half("counter")
    );
    let path = scratch.path().join("module.toml");
    fs::write(&path, text).expect("scratch can be written");
    path
}

fn open(kernel: &Kernel, words: &str) -> door::Opened {
    match door::open(&door::socket_of(&kernel.socket(), "counter"), words) {
        Ok(opened) => opened,
        Err(error) => panic!("{words}: {error}"),
    }
}

fn accept(session: &Session, opened: &door::Opened) -> AcceptedGates {
    session.accept_gates_of(opened.token).expect("gates")
}

/// Runs an entry on one thread: what the gate answers, and the word behind.
fn call(
    session: &Session,
    entry: &str,
    parameters: impl Fn(Parameters) -> Parameters,
) -> Result<(u32, u64), ErrorCode> {
    let image = session.load_image(TENANT).map_err(|error| error.code)?;
    let to = session.allocate(24).expect("memory");
    let entry = image.entry(entry).expect("an entry");
    let parameters = parameters(Parameters::new().buffer(&to));
    session
        .launch(Stream::DEFAULT, &entry, &Launch::linear(1, 1), &parameters)
        .map_err(|error| error.code)?;
    let mut found = [0; 24];
    session.read(Stream::DEFAULT, &mut found, to.all()).map_err(|error| error.code)?;
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| found[at + byte]));
    Ok((u32::try_from(word(0)).expect("a code"), word(8)))
}

/// Launches an entry that runs on, and waits until it does.
fn running(session: &Session, entry: &str) -> Buffer {
    let image = session.load_image(TENANT).expect("the code loads");
    let (to, beside) = (session.allocate(24).expect("memory"), session.create_stream(0).expect("a stream"));
    let entry = image.entry(entry).expect("an entry");
    let parameters = Parameters::new().buffer(&to);
    session.launch(Stream::DEFAULT, &entry, &Launch::linear(1, 1), &parameters).expect("a launch");
    until("the kernel runs", || {
        let mut word = [0; 4];
        session.read(beside, &mut word, to.range(16, 4)).expect("it is read");
        word[0] == 1
    });
    to
}

/// What a kernel that ran has stored: what the gate answered.
fn answered(session: &Session, to: &Buffer) -> Result<u32, ErrorCode> {
    let mut found = [0; 4];
    session.read(Stream::DEFAULT, &mut found, to.range(0, 4)).map_err(|error| error.code)?;
    Ok(u32::from_le_bytes(found))
}

fn add(session: &Session, key: u32, by: u64) -> (u32, u64) {
    call(session, "add", |parameters| parameters.u32(key).u64(by)).expect("a call")
}

fn get(session: &Session, key: u32) -> (u32, u64) {
    call(session, "get", |parameters| parameters.u32(key)).expect("a call")
}

fn module(kernel: &Kernel, arguments: &[&str]) -> Done {
    let mut command = bulkhead(&["module"]);
    command.args(arguments).arg("--socket").arg(kernel.socket());
    run(&mut command, PATIENCE)
}

fn kill_host_half(kernel: &Kernel) {
    let listed: Value = serde_json::from_str(&module(kernel, &["list", "--json"]).stdout).expect("JSON");
    let pid = listed["modules"][0]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
    let pid = rustix::process::Pid::from_raw(pid.expect("a process")).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it is killed");
}

/// Compiles a program for tenants.
fn compile(source: &Path, to: &Path) {
    let mut command = Command::new(toolchain_libraries().with_file_name("bin").join("nvcc"));
    command.args(["-gencode", "arch=compute_75,code=compute_75", "-o"]).arg(to).arg(source);
    let done = run(&mut command, PATIENCE);
    assert_eq!(done.code(), Some(0), "{}", done.told());
}

#[test]
fn a_module_comes_and_goes_while_the_kernel_serves_and_a_program_calls_its_gates() {
    let (scratch, kernel) = (Scratch::new(), Kernel::start());
    let none = module(&kernel, &["list", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&none.stdout).expect("JSON")["modules"], serde_json::json!([]));
    let mut started = Started::new(&kernel, &manifest(&scratch, 64));
    let listed = module(&kernel, &["list", "--json"]);
    let listed: Value = serde_json::from_str(&listed.stdout).expect("JSON");
    assert_eq!(listed["modules"][0]["name"], "counter", "{listed}");
    assert_eq!(listed["modules"][0]["bytes"], 2 << 20, "{listed}");
    assert_eq!(module(&kernel, &["list", "--names"]).stdout, "counter\n");
    let program = scratch.path().join("tenant");
    compile(&repository().join("modules/examples/counter/tenant.cu"), &program);
    let mut command = bulkhead(&["run", "--module", "counter=limit=10", "--socket"]);
    command.arg(kernel.socket()).arg("--").arg(&program).env("TMPDIR", scratch.path());
    let done = run(&mut command, PATIENCE);
    let told = "counter 3 holds 32; then came DONE; RIGHTS (more than the limit); RANGE (no such counter)";
    assert!(done.code() == Some(0) && done.stdout.contains(told), "{}", done.told());
    // What is refused is told in the service's own words; a module that is not there by its name.
    for (asked, told) in [("counter=limit=x", "\"x\" is no limit"), ("nothing", "no module serves at")] {
        let mut command = bulkhead(&["run", "--module", asked, "--socket"]);
        command.arg(kernel.socket()).arg("--").arg(&program).env("TMPDIR", scratch.path());
        let done = run(&mut command, PATIENCE);
        assert!(done.code() == Some(1) && done.stderr.contains(told), "{}", done.told());
    }
    // There is one of a name.
    let again = run(
        bulkhead(&["module", "start", "--socket"]).arg(kernel.socket()).arg(manifest(&scratch, 64)),
        PATIENCE,
    );
    assert!(
        again.code() == Some(1) && again.stderr.contains("bulkhead module stop counter"),
        "{}",
        again.told()
    );
    let stopped = module(&kernel, &["stop", "counter"]);
    assert_eq!(stopped.code(), Some(0), "{}", stopped.told());
    assert_eq!(started.ends(), 0);
    let stopped = module(&kernel, &["stop", "counter"]);
    assert!(stopped.code() == Some(1) && stopped.stderr.contains("no module counter"), "{}", stopped.told());
    assert_eq!(kernel.without(&["module counter"]).charged_bytes, 0);
    let left = fs::read_dir(kernel.socket().parent().expect("a folder")).expect("a folder");
    let left: Vec<_> = left.map(|entry| entry.expect("an entry").file_name()).collect();
    // But for the lock of `module start`, as the kernel's own.
    let of_module = |name: &&std::ffi::OsString| name.to_string_lossy().starts_with("counter");
    assert!(left.iter().filter(of_module).all(|name| *name == "counter.module.lock"), "{left:?}");
    // And it may come again.
    drop(Started::new(&kernel, &manifest(&scratch, 64)));
}

#[test]
fn instances_have_counters_of_their_own_and_the_next_finds_zeros() {
    let (scratch, kernel) = (Scratch::new(), Kernel::start());
    let _started = Started::new(&kernel, &manifest(&scratch, 2));
    let (first, second) = (kernel.open("first"), kernel.open("second"));
    let (for_first, for_second) = (open(&kernel, "limit=100"), open(&kernel, ""));
    let _second = accept(&second, &for_second);
    {
        let _first = accept(&first, &for_first);
        assert_eq!(add(&first, 7, 100), (codes::DONE, 0));
        assert_eq!(add(&first, 7, 101), (codes::RIGHTS, 0));
        assert_eq!(add(&first, 1024, 1), (codes::RANGE, 0));
        assert_eq!(add(&first, u32::MAX, 1), (codes::RANGE, 0));
        assert_eq!(get(&second, 7), (codes::DONE, 0));
        assert_eq!(add(&second, 7, u64::MAX), (codes::DONE, 0));
        assert_eq!(get(&first, 7), (codes::DONE, 100));
    }
    // There are two at a time.
    let refused = door::open(&door::socket_of(&kernel.socket(), "counter"), "").err().expect("all are taken");
    assert_eq!(refused.code, ErrorCode::LimitReached, "{refused}");
    drop(for_first);
    let mut again = None;
    until("the place of the first is free", || {
        again = door::open(&door::socket_of(&kernel.socket(), "counter"), "").ok();
        again.is_some()
    });
    let again = again.expect("an instance");
    let third = kernel.open("third");
    let _third = accept(&third, &again);
    assert_eq!(get(&third, 7), (codes::DONE, 0), "what the first left");
    assert_eq!(get(&second, 7), (codes::DONE, u64::MAX));
}

#[test]
fn calls_of_kernels_that_run_answer_that_they_are_revoked_before_the_gates_are_taken_back() {
    let (scratch, kernel) = (Scratch::new(), Kernel::start());
    let _started = Started::new(&kernel, &manifest(&scratch, 64));
    let (tenant, neighbour) = (kernel.open("tenant"), kernel.open("neighbour"));
    let (opened, for_neighbour) = (open(&kernel, ""), open(&kernel, ""));
    let _gates = accept(&tenant, &opened);
    let _others = accept(&neighbour, &for_neighbour);
    let to = running(&tenant, "watch");
    drop(opened);
    assert_eq!(answered(&tenant, &to), Ok(codes::REVOKED));
    // What it launches from then on is refused; the neighbour goes on.
    until("its gates are gone", || call(&tenant, "get", |parameters| parameters.u32(0)).is_err());
    assert_eq!(add(&neighbour, 0, 5), (codes::DONE, 0));
    assert_eq!(tenant.status().map_err(|error| error.code), Ok(()));
}

#[test]
fn who_gives_its_gates_up_by_itself_while_its_kernel_calls_them_is_waited_for() {
    let (scratch, kernel) = (Scratch::new(), Kernel::start());
    let _started = Started::new(&kernel, &manifest(&scratch, 1));
    let tenant = kernel.open("tenant");
    let opened = open(&kernel, "");
    let gates = accept(&tenant, &opened);
    let _to = running(&tenant, "forever");
    gates.close().expect("it gives them up");
    thread::sleep(Duration::from_millis(200));
    let token = opened.token;
    drop(opened);
    // The place is nobody's while a kernel may be in a gate on that authority: that is until the session is ended.
    let begun = Instant::now();
    let socket = door::socket_of(&kernel.socket(), "counter");
    let mut next = None;
    until("the place is free", || {
        next = door::open(&socket, "").ok();
        assert!(
            next.is_none() || tenant.status().is_err(),
            "the place was given away beside a kernel in a gate"
        );
        next.is_some()
    });
    println!("the place was free {:?} later", begun.elapsed());
    // Nor is the token good any more.
    let other = kernel.open("other");
    let refused = other.accept_gates_of(token).err().expect("no gates");
    assert_eq!(refused.code, ErrorCode::NotFound, "{refused}");
}

#[test]
fn who_gives_its_gates_up_and_runs_on_keeps_no_place_but_its_own() {
    let (scratch, kernel) = (Scratch::new(), Kernel::start());
    let _started = Started::new(&kernel, &manifest(&scratch, 2));
    let (attacker, neighbour) = (kernel.open("attacker"), kernel.open("neighbour"));
    let (its, others) = (open(&kernel, ""), open(&kernel, ""));
    let gates = accept(&attacker, &its);
    let _others = accept(&neighbour, &others);
    assert_eq!(add(&neighbour, 0, 5), (codes::DONE, 0));
    let _to = running(&attacker, "forever");
    gates.close().expect("it gives them up");
    // Nobody has taken anything back that the attacker has: while it runs the neighbour's place comes back, again and again.
    let mut others = Some(others);
    for _ in 0..3 {
        drop(others.take());
        let socket = door::socket_of(&kernel.socket(), "counter");
        until("the neighbour's place is free", || {
            others = door::open(&socket, "").ok();
            others.is_some()
        });
    }
    assert_eq!(attacker.status().map_err(|error| error.code), Ok(()), "its kernel runs on meanwhile");
}

#[test]
fn a_stop_and_a_start_at_once_leave_one_module_that_serves() {
    let (scratch, kernel) = (Scratch::new(), Kernel::start());
    for _ in 0..5 {
        let mut old = Started::new(&kernel, &manifest(&scratch, 64));
        let stopped = module(&kernel, &["stop", "counter"]);
        assert_eq!(stopped.code(), Some(0), "{}", stopped.told());
        let new = Started::new(&kernel, &manifest(&scratch, 64));
        assert_eq!(old.ends(), 0);
        let tenant = kernel.open("tenant");
        let opened = open(&kernel, "");
        let _gates = accept(&tenant, &opened);
        assert_eq!(add(&tenant, 1, 1), (codes::DONE, 0));
        drop(new);
    }
}

#[test]
fn a_start_beside_another_says_what_it_waits_for() {
    let (scratch, kernel) = (Scratch::new(), Kernel::start());
    let first = Started::new(&kernel, &manifest(&scratch, 64));
    let mut second = Started::begun(&kernel, &manifest(&scratch, 64));
    second.line("counter runs already; waiting up to");
    drop(first);
    second.line("serves at");
}

#[test]
fn a_host_half_of_other_gates_or_of_too_many_instances_does_not_serve() {
    let (scratch, kernel) = (Scratch::new(), Kernel::start());
    let good = fs::read_to_string(manifest(&scratch, 64)).expect("a manifest");
    let storage = good.replace("examples/counter/gates.ptx", "storage/gates.ptx");
    for (text, told) in [
        (good.replace("instances = 64", "instances = 65"), "65 instances are more than the gates keep: 64"),
        (storage, "other gates than this host half was built for"),
    ] {
        let path = scratch.path().join("bad.toml");
        fs::write(&path, text).expect("scratch can be written");
        let mut command = bulkhead(&["module", "start", "--socket"]);
        let done = run(command.arg(kernel.socket()).arg(&path), PATIENCE);
        assert!(done.code() == Some(1) && done.stderr.contains(told), "{told}: {}", done.told());
        // It is not tried again: nothing would change.
        assert!(!done.stderr.contains("started again"), "{told}: {}", done.told());
    }
}

#[test]
fn a_host_half_that_does_not_look_ends_with_its_module() {
    let (scratch, kernel) = (Scratch::new(), Kernel::start());
    let good = fs::read_to_string(manifest(&scratch, 64)).expect("a manifest");
    let host = format!("host = [{:?}]", host_half("counter"));
    let path = scratch.path().join("sleeps.toml");
    fs::write(&path, good.replace(&host, "host = [\"sleep\", \"1000\"]")).expect("scratch can be written");
    let mut command = bulkhead(&["module", "start", "--socket"]);
    command.arg(kernel.socket()).arg(&path).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut told = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    told.read_line(&mut line).expect("it tells");
    assert!(line.contains("does not serve yet"), "{line}");
    assert_eq!(module(&kernel, &["stop", "counter"]).code(), Some(0));
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn a_kernel_that_ends_beside_open_instances_gives_everything_back() {
    let (scratch, mut kernel) = (Scratch::new(), Kernel::start());
    let mut started = Started::new(&kernel, &manifest(&scratch, 64));
    let opened: Vec<_> = (0..3).map(|_| open(&kernel, "")).collect();
    let tenant = kernel.open("tenant");
    let _gates = accept(&tenant, &opened[0]);
    let ended = kernel.end();
    assert!(ended.success(), "{ended}: {}", kernel.log());
    // Whoever looks after the module is told what became of it, and what to do.
    let told = started.line("the kernel has ended, and with it the module counter");
    assert!(told.contains("bulkhead serve"), "{told}");
    assert_eq!(started.ends(), 1);
}

#[test]
fn what_run_is_asked_to_open_is_looked_at_first() {
    let (scratch, kernel) = (Scratch::new(), Kernel::start());
    for (arguments, told) in [
        (vec!["--module", "=x"], "is no module's name"),
        (vec!["--module", "../x=x"], "is no module's name"),
        (vec!["--module", "a", "--module", "a=2"], "twice"),
    ] {
        let mut command = bulkhead(&["run"]);
        command.args(arguments).arg("--socket").arg(kernel.socket()).args(["--", "true"]);
        let done = run(command.env("TMPDIR", scratch.path()), PATIENCE);
        assert!(done.code() == Some(1) && done.stderr.contains(told), "{told}: {}", done.told());
    }
    let mut command = bulkhead(&["run", "--module", "a", "--", "true"]);
    let done = run(command.env("BULKHEAD_SOCKET", scratch.path().join("none.sock")), PATIENCE);
    assert!(done.code() == Some(1) && done.stderr.contains("no kernel serves at"), "{}", done.told());
}

/// Calls a gate, waits for a byte, and calls it again.
const CALLS_TWICE: &str = r#"
#include <cstdio>
#include <unistd.h>
extern "C" __device__ unsigned counter_get(unsigned key, unsigned long long *value);
__global__ void ask(unsigned long long *values) { values[1] = counter_get(3, values); }
int main() {
    unsigned long long *values;
    if (cudaMallocManaged(&values, 64) != cudaSuccess) return 1;
    for (int turn = 0; turn < 2; turn++) {
        ask<<<1, 1>>>(values);
        cudaError_t error = cudaDeviceSynchronize();
        if (error == cudaSuccess) error = cudaGetLastError();
        printf("%s\n", cudaGetErrorName(error));
        fflush(stdout);
        char byte;
        if (turn == 0 && read(0, &byte, 1) < 0) return 1;
    }
}
"#;

#[test]
fn a_program_whose_module_has_ended_is_told_which_and_what_to_do() {
    let (scratch, kernel) = (Scratch::new(), Kernel::start());
    let _started = Started::new(&kernel, &manifest(&scratch, 64));
    let (source, program) = (scratch.path().join("twice.cu"), scratch.path().join("twice"));
    fs::write(&source, CALLS_TWICE).expect("scratch can be written");
    compile(&source, &program);
    let mut command = bulkhead(&["run", "--module", "counter", "--socket"]);
    command.arg(kernel.socket()).arg("--").arg(&program).env("TMPDIR", scratch.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.spawn().expect("it starts");
    let mut told = BufReader::new(running.stdout.take().expect("a pipe"));
    let mut line = String::new();
    told.read_line(&mut line).expect("a line");
    assert_eq!(line, "cudaSuccess\n");
    assert_eq!(module(&kernel, &["stop", "counter"]).code(), Some(0));
    // What it waits for is that its input ends.
    drop(running.stdin.take());
    line.clear();
    told.read_to_string(&mut line).expect("the rest");
    assert_eq!(line, "cudaErrorNotPermitted\n");
    let done = running.wait_with_output().expect("it ends");
    let why = String::from_utf8_lossy(&done.stderr);
    assert!(why.contains("the module counter") && why.contains("bulkhead module start"), "{why}");
}
