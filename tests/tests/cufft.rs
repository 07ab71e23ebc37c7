//! The module `cufft`: programs transform with a library that forwards to the service, and reach nobody else's memory by it.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use bulkhead_client::Buffer;
use bulkhead_cufft::{
    BUFFERS_MAX, Kind, Layout, PLANS_MAX, Refused, SERVES, Shape, Side, Status, WORDS,
    shape::Way,
    socket,
    wire::{self, Answer, BufferSlot, Place, PlanSlot, Request},
};
use bulkhead_module::door;
use bulkhead_tests::{
    kernel::Kernel,
    patience::until,
    place::{host_half, repository, toolchain_libraries},
    process::{Done, bulkhead, kill, lives, run, signal},
    scratch::Scratch,
    tenant::Tenant,
};

#[path = "cufft/limits.rs"]
mod limits;

const PATIENCE: Duration = Duration::from_secs(120);

/// The program of `modules/cufft/tests`, compiled once.
fn tenant() -> &'static Path {
    static TENANT: OnceLock<(Scratch, PathBuf)> = OnceLock::new();
    let (_, program) = TENANT.get_or_init(|| {
        let scratch = Scratch::new();
        let program = scratch.path().join("tenant");
        let mut command = Command::new(toolchain_libraries().with_file_name("bin").join("nvcc"));
        command.args(["-std=c++17", "-gencode", "arch=compute_75,code=compute_75", "-o"]).arg(&program);
        command.arg(repository().join("modules/cufft/tests/tenant.cu")).arg("-L");
        let library = host_half("libcufft.so");
        let done = run(command.arg(library.with_file_name("")).arg("-l:libcufft.so"), PATIENCE);
        assert_eq!(done.code(), Some(0), "{}", done.told());
        (scratch, program)
    });
    program
}

/// A kernel that serves, and the service beside it.
struct Served {
    kernel: Kernel,
    starting: Child,
    scratch: Scratch,
}

impl Served {
    fn new() -> Self {
        Self::with(&[])
    }

    fn with(options: &[&str]) -> Self {
        Self::beside(Kernel::start(), options)
    }

    /// The same with a kernel that is there.
    fn beside(kernel: Kernel, options: &[&str]) -> Self {
        let scratch = Scratch::new();
        let manifest = scratch.path().join("module.toml");
        let program = host_half("cufft");
        let mut host = vec![program.to_str().expect("text"), "serve"];
        host.extend(options);
        fs::write(&manifest, format!("name = \"cufft\"\nkind = \"service\"\nhost = {host:?}\n"))
            .expect("a file");
        let mut command = bulkhead(&["module", "start", "--socket"]);
        command.arg(kernel.socket()).arg(&manifest).stdout(Stdio::null()).stderr(Stdio::null());
        let starting = command.env("TMPDIR", scratch.path()).spawn().expect("it starts");
        let served = Self { kernel, starting, scratch };
        let socket = served.socket();
        until("the service listens", || UnixStream::connect(&socket).is_ok());
        served
    }

    fn socket(&self) -> PathBuf {
        door::socket_of(&self.kernel.socket(), "cufft")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = bulkhead(&["run", "--module", "cufft", "--socket"]);
        command.arg(self.kernel.socket()).arg("--").arg(tenant()).args(arguments);
        command.env("TMPDIR", self.scratch.path());
        command
    }

    fn run(&self, arguments: &[&str]) -> Done {
        run(&mut self.command(arguments), PATIENCE)
    }

    fn right(&self, arguments: &[&str], told: &str) {
        let done = self.run(arguments);
        assert!(done.code() == Some(0) && done.stdout.contains(told), "{arguments:?}: {}", done.told());
    }

    /// The service's process, and those of its workers.
    fn processes(&self) -> (u32, Vec<u32>) {
        let service = children(self.starting.id()).first().copied().unwrap_or(0);
        (service, children(service))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if matches!(self.starting.try_wait(), Ok(None)) {
            signal(self.starting.id(), rustix::process::Signal::TERM);
        }
        self.starting.wait().expect("it ends");
    }
}

fn children(parent: u32) -> Vec<u32> {
    let path = format!("/proc/{parent}/task");
    let tasks = fs::read_dir(path).into_iter().flatten().filter_map(Result::ok);
    let texts = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    texts
        .flat_map(|text| text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>())
        .collect()
}

/// A caller that says what it likes.
struct Caller(UnixStream);

impl Caller {
    fn connect(served: &Served) -> UnixStream {
        let connection = UnixStream::connect(served.socket()).expect("it listens");
        connection.set_read_timeout(Some(PATIENCE)).expect("a socket");
        connection
    }

    fn open(served: &Served) -> Result<Self, String> {
        let mut connection = Self::connect(served);
        connection.write_all(format!("open {WORDS}\n").as_bytes()).expect("it listens");
        let mut line = String::new();
        BufReader::new(&connection).read_line(&mut line).expect("it answers");
        if line.starts_with(SERVES) { Ok(Self(connection)) } else { Err(line) }
    }

    fn new(served: &Served) -> Self {
        Self::open(served).expect("a worker")
    }

    fn say(&self, frame: &wire::Frame) -> Answer {
        socket::send(&self.0, frame).expect("it listens");
        wire::read_answer(&socket::receive(&self.0).expect("it answers").expect("it is there"))
    }

    fn ask(&self, request: &Request) -> Answer {
        self.say(&request.frame())
    }

    fn execute(&self, plan: usize, (buffer, offset): (usize, u64)) -> Answer {
        let place = Place { buffer: BufferSlot(buffer), offset };
        self.ask(&Request::Execute { plan: PlanSlot(plan), input: place, output: place, way: Way::Forward })
    }
}

fn status(answer: Answer) -> Status {
    match answer {
        Ok(_) => Status::Success,
        Err(Refused { status, message }) => {
            assert!(!message.is_empty(), "{status:?}: it does not say why");
            status
        }
    }
}

/// An IPC handle of memory, as the library OS makes them.
fn handle(buffer: &Buffer) -> [u8; 64] {
    let export = buffer.export().expect("a token");
    let parts = [
        &b"BHmemory"[..],
        &export.token.0,
        &export.offset.to_le_bytes(),
        &buffer.bytes().to_le_bytes(),
        &[0; 8],
    ];
    *parts.concat().first_chunk().expect("64 bytes")
}

fn shape(side: u64, batch: u64) -> Shape {
    Shape::new(Kind::C2c, &[side], batch, Layout::Basic).expect("a shape")
}

#[test]
fn transforms_of_all_kinds_are_those_of_sums_on_the_host() {
    Served::new().right(&["right", "64"], "PASS right plans=1040");
}

#[test]
fn calls_answer_as_those_of_cufft() {
    let served = Served::new();
    let done = served.run(&["calls"]);
    assert!(done.code() == Some(0) && done.stdout.contains("PASS calls"), "{}", done.told());
    // What is not there is told by name, once.
    let told = done.stderr.lines().filter(|line| line.contains("cufftXtSetGPUs: several GPUs")).count();
    assert_eq!(told, 1, "{}", done.stderr);
    until("the worker ends with its caller", || served.processes().1.is_empty());
}

/// What is called as NVIDIA's library is, compiled from kernels of `modules/cufft/tests`.
fn stand_in(scratch: &Scratch) -> PathBuf {
    let library = scratch.path().join("libcufft.so.12");
    let mut command = Command::new(toolchain_libraries().with_file_name("bin").join("nvcc"));
    command.args([
        "-std=c++17",
        "-shared",
        "-Xcompiler",
        "-fPIC",
        "-gencode",
        "arch=compute_75,code=compute_75",
    ]);
    command.arg("-o").arg(&library).arg(repository().join("modules/cufft/tests/stand_in.cu"));
    let done = run(&mut command, PATIENCE);
    assert_eq!(done.code(), Some(0), "{}", done.told());
    library
}

#[test]
fn workers_call_a_library_as_that_of_nvidia_is_called() {
    let scratch = Scratch::new();
    let library = stand_in(&scratch);
    let library = library.to_str().expect("text");
    let served = Served::with(&["--engine", "nvidia", "--library", library, "--work-memory", "1MiB"]);
    served.right(&["right", "6"], "PASS right");
    // One work area of all plans, which grows as they need it, and no further than it may.
    let caller = Caller::new(&served);
    let make = |slot, side, batch| caller.ask(&Request::Make(PlanSlot(slot), shape(side, batch)));
    assert_eq!(make(0, 100, 1), Ok(800));
    assert_eq!(make(1, 50, 1), Ok(800));
    assert_eq!(make(2, 1024, 128), Ok(1 << 20));
    assert_eq!(status(make(3, 1024, 129)), Status::AllocFailed);
    assert_eq!(make(3, 8, 1), Ok(1 << 20));
}

#[test]
fn a_work_area_that_does_not_fit_leaves_the_plans_before_it_theirs() {
    let scratch = Scratch::new();
    let library = stand_in(&scratch);
    let library = library.to_str().expect("text");
    let kernel = Kernel::with(&["--device-memory", "512MiB"]);
    let most = ["--work-memory-of-all", "1GiB", "--work-memory-of-process", "1GiB"];
    let served = Served::beside(kernel, &[&["--engine", "nvidia", "--library", library], &most[..]].concat());
    // One that does not fit is charged to nobody.
    let first = Caller::new(&served);
    assert_eq!(status(first.ask(&Request::Make(PlanSlot(0), shape(1024, 1 << 17)))), Status::AllocFailed);
    let tenant = Tenant::new(&served.kernel, "caller");
    let buffer = tenant.session.allocate(8 << 20).expect("memory");
    let caller = Caller::new(&served);
    caller.ask(&Request::Open(BufferSlot(0), handle(&buffer))).expect("it is there");
    // The first plan's area goes before the second one's is tried, which is more than the device has.
    assert_eq!(caller.ask(&Request::Make(PlanSlot(0), shape(1024, 64))), Ok(64 << 13));
    assert_eq!(caller.execute(0, (0, 0)), Ok(0));
    assert_eq!(status(caller.ask(&Request::Make(PlanSlot(1), shape(1024, 1 << 17)))), Status::AllocFailed);
    // It is made again as it was, and the library asks once more when it has closed what it may.
    assert_eq!(caller.execute(0, (0, 0)), Ok(0));
    assert_eq!(status(caller.ask(&Request::Make(PlanSlot(1), shape(1024, 1 << 17)))), Status::AllocFailed);
    assert_eq!(caller.ask(&Request::Make(PlanSlot(1), shape(1024, 128))), Ok(128 << 13));
    assert_eq!(caller.execute(0, (0, 0)), Ok(0));
}

#[test]
fn transforms_keep_the_order_of_streams() {
    Served::new().right(&["streams"], "PASS streams");
}

#[test]
fn a_child_gets_an_error_and_never_hangs() {
    Served::new().right(&["forks"], "PASS forks");
}

#[test]
fn a_worker_refuses_what_its_caller_does_not_have() {
    let served = Served::new();
    let tenant = Tenant::new(&served.kernel, "caller");
    let buffer = tenant.session.allocate(4096).expect("memory");
    let beside = tenant.session.allocate(4096).expect("memory");
    tenant.fill(beside.all(), 7);
    let caller = Caller::new(&served);
    let handle = handle(&buffer);
    assert_eq!(caller.ask(&Request::Open(BufferSlot(3), handle)), Ok(4096));
    assert_eq!(caller.ask(&Request::Make(PlanSlot(1), shape(512, 1))).map(drop), Ok(()));
    assert_eq!(caller.execute(1, (3, 0)), Ok(0));
    // Beyond the end by one element, by an offset that wraps, at no multiple, of a batch.
    caller.ask(&Request::Make(PlanSlot(2), shape(513, 1))).expect("a plan");
    caller.ask(&Request::Make(PlanSlot(4), shape(2, 257))).expect("a plan");
    let calls =
        [(1, (3, 8)), (1, (3, u64::MAX)), (1, (3, u64::MAX - 7)), (2, (3, 0)), (4, (3, 0)), (1, (3, 1))];
    for (plan, place) in calls {
        assert_eq!(status(caller.execute(plan, place)), Status::InvalidValue, "{plan} {place:?}");
    }
    // Plans and buffers that are not there.
    assert_eq!(status(caller.execute(0, (3, 0))), Status::InvalidPlan);
    assert_eq!(status(caller.execute(1, (2, 0))), Status::InvalidValue);
    assert_eq!(status(caller.execute(PLANS_MAX, (3, 0))), Status::InvalidPlan);
    assert_eq!(status(caller.execute(1, (BUFFERS_MAX, 0))), Status::InvalidPlan);
    // Handles that nobody gave: none, another's token, another length.
    for at in [0, 8, 39] {
        let mut forged = handle;
        forged[at] ^= 1;
        assert_eq!(
            status(caller.ask(&Request::Open(BufferSlot(4), forged))),
            Status::InvalidValue,
            "byte {at}"
        );
    }
    let mut longer = handle;
    longer[48..56].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    assert_eq!(status(caller.ask(&Request::Open(BufferSlot(4), longer))), Status::InvalidValue);
    assert_eq!(status(caller.execute(1, (4, 0))), Status::InvalidValue);
    // Messages that are none.
    let mut extra = Request::Destroy(PlanSlot(1)).frame();
    extra[wire::BYTES - 1] = 1;
    for frame in [[0; wire::BYTES], [0xFF; wire::BYTES], extra] {
        assert_eq!(status(caller.say(&frame)), Status::InternalError);
    }
    // After all that it works as before, and what lies beside the buffer is as it was.
    assert_eq!(caller.execute(1, (3, 0)), Ok(0));
    assert!(tenant.words(beside.all()).iter().all(|word| *word == 7));
    // What was freed is nobody's to transform; the worker may end by that, and not the service.
    drop(buffer);
    until("the buffer is gone", || {
        let place = Place { buffer: BufferSlot(3), offset: 0 };
        let request = Request::Execute { plan: PlanSlot(1), input: place, output: place, way: Way::Forward };
        let sent = socket::send(&caller.0, &request.frame());
        let answer = sent.and_then(|()| socket::receive(&caller.0)).ok().flatten();
        answer.is_none_or(|frame| wire::read_answer(&frame).is_err())
    });
    served.right(&["calls"], "PASS calls");
}

#[test]
fn a_worker_does_not_compute_on_for_a_caller_that_has_gone() {
    let served = Served::new();
    let tenant = Tenant::new(&served.kernel, "caller");
    let buffer = tenant.session.allocate(256 << 20).expect("memory");
    let caller = Caller::new(&served);
    caller.ask(&Request::Open(BufferSlot(0), handle(&buffer))).expect("it is there");
    // Primes take long.
    caller.ask(&Request::Make(PlanSlot(0), shape(2039, 16_000))).expect("a plan");
    let begun = Instant::now();
    assert_eq!(caller.execute(0, (0, 0)), Ok(0));
    let whole = begun.elapsed();
    let workers = served.processes().1;
    let place = Place { buffer: BufferSlot(0), offset: 0 };
    let request = Request::Execute { plan: PlanSlot(0), input: place, output: place, way: Way::Forward };
    socket::send(&caller.0, &request.frame()).expect("it listens");
    // What it says behind that hides nothing.
    socket::send(&caller.0, &Request::Destroy(PlanSlot(1)).frame()).expect("it listens");
    let gone = Instant::now();
    drop(caller);
    until("the worker ends", || !workers.iter().any(|worker| lives(*worker)));
    assert!(gone.elapsed() < whole / 2, "{:?} of {whole:?}", gone.elapsed());
    // What is written twice would be work without memory.
    let caller = Caller::new(&served);
    let near = |distance| Side { embed: [1; 3], stride: 1, distance };
    let layout = Layout::Advanced { input: near(1), output: near(1024) };
    let dense = Shape::new(Kind::C2c, &[1024], 1024, layout).expect("a shape");
    let mut frame = Request::Make(PlanSlot(0), dense).frame();
    assert_eq!(caller.say(&frame).map(drop), Ok(()));
    // The distance of what is written is the last word that is said of a shape.
    let said = frame.chunks_exact(8).rposition(|word| word.iter().any(|byte| *byte != 0)).expect("a word");
    frame[8 * said..8 * said + 8].copy_from_slice(&1_u64.to_le_bytes());
    assert_eq!(status(caller.say(&frame)), Status::InvalidValue);
}

#[test]
fn nonsense_ends_nobody() {
    let served = Served::new();
    let caller = Caller::new(&served);
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..2000 {
        let mut frame = [0; wire::BYTES];
        let words = 1 + round % 24;
        for word in frame.chunks_exact_mut(8).take(words) {
            // Small numbers get further.
            let value = if random() % 4 == 0 { random() } else { random() % 12 };
            word.copy_from_slice(&value.to_le_bytes());
        }
        drop(caller.say(&frame));
    }
    // Half a message, and lines that are none.
    drop(caller);
    for text in [&b"open transforms 1\n\x01"[..], b"\n", b"open \xFF\n", b"open transforms 2\n", b"gates\n"] {
        let mut connection = Caller::connect(&served);
        connection.write_all(text).expect("it listens");
        connection.shutdown(std::net::Shutdown::Write).expect("a socket");
        let mut told = Vec::new();
        connection.read_to_end(&mut told).unwrap_or_default();
    }
    served.right(&["right", "4"], "PASS right");
    assert!(lives(served.processes().0));
}

#[test]
fn no_caller_reaches_what_another_has() {
    let served = Served::new();
    let (one, other) = (Tenant::new(&served.kernel, "one"), Tenant::new(&served.kernel, "other"));
    let (mine, theirs) =
        (one.session.allocate(4096).expect("memory"), other.session.allocate(4096).expect("memory"));
    one.fill(mine.all(), 0);
    other.fill(theirs.all(), 7);
    let (first, second) = (Caller::new(&served), Caller::new(&served));
    second.ask(&Request::Open(BufferSlot(0), handle(&theirs))).expect("it is there");
    second.ask(&Request::Make(PlanSlot(0), shape(512, 1))).expect("a plan");
    // Slots are of a connection: what the one has under a number, the other has not.
    assert_eq!(status(first.execute(0, (0, 0))), Status::InvalidPlan);
    first.ask(&Request::Make(PlanSlot(0), shape(512, 1))).expect("a plan");
    assert_eq!(status(first.execute(0, (0, 0))), Status::InvalidValue);
    first.ask(&Request::Open(BufferSlot(1), handle(&mine))).expect("it is there");
    assert_eq!(first.execute(0, (1, 0)), Ok(0));
    // All the way through the addresses beside it.
    for bits in 12..64 {
        assert_eq!(status(first.execute(0, (1, 1 << bits))), Status::InvalidValue);
        assert_eq!(status(first.execute(0, (1, (1_u64 << bits).wrapping_neg()))), Status::InvalidValue);
    }
    assert!(other.words(theirs.all()).iter().all(|word| *word == 7));
    // Two programs at once.
    let programs: Vec<_> =
        (0..2).map(|_| served.command(&["right", "12"]).stdout(Stdio::piped()).spawn()).collect();
    for program in programs {
        let done = program.and_then(Child::wait_with_output).expect("it runs");
        let told = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(told.contains("PASS right"), "{told}");
    }
}

/// A program that executes a plan for each line.
struct Held {
    program: Child,
    told: BufReader<std::process::ChildStdout>,
}

impl Held {
    fn start(served: &Served) -> Self {
        let mut command = served.command(&["hold"]);
        let mut program = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let told = BufReader::new(program.stdout.take().expect("a pipe"));
        let mut held = Self { program, told };
        assert_eq!(held.line(), "ready");
        held
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.told.read_line(&mut line).expect("it tells");
        line.trim().to_owned()
    }

    fn say(&mut self, line: &str) -> String {
        let pipe = self.program.stdin.as_mut().expect("a pipe");
        writeln!(pipe, "{line}").expect("it listens");
        self.line()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.program.stdin.take());
        self.program.wait().expect("it ends");
    }
}

#[test]
fn a_killed_worker_fails_its_callers_plans_and_the_next_plan_has_another() {
    let served = Served::new();
    let (mut held, mut other) = (Held::start(&served), Held::start(&served));
    assert_eq!(held.say("run"), "code 0 made -1 found 64");
    assert_eq!(other.say("run"), "code 0 made -1 found 64");
    let workers = served.processes().1;
    assert_eq!(workers.len(), 2);
    // The first one's is the older.
    let worker = *workers.iter().min().expect("a worker");
    kill(worker);
    until("the worker has ended", || !lives(worker));
    let told = BTreeMap::from([(held.say("run"), "held"), (other.say("run"), "other")]);
    let codes: Vec<_> = told.keys().map(String::as_str).collect();
    assert_eq!(codes, ["code 0 made -1 found 64", "code 6 made -1 found 1"]);
    let failed = if told.get("code 6 made -1 found 1") == Some(&"held") { &mut held } else { &mut other };
    assert_eq!(failed.say("run"), "code 6 made -1 found 1");
    assert_eq!(failed.say("make"), "code 6 made 0 found 1");
    assert_eq!(failed.say("run"), "code 0 made -1 found 64");
}

#[test]
fn a_killed_service_is_started_again_and_serves_who_asks_again() {
    let served = Served::new();
    let mut held = Held::start(&served);
    assert_eq!(held.say("run"), "code 0 made -1 found 64");
    let (service, workers) = served.processes();
    let killed = Instant::now();
    kill(service);
    until("its workers end with it", || !workers.iter().any(|worker| lives(*worker)));
    assert_eq!(held.say("run"), "code 6 made -1 found 1");
    until("it serves again", || held.say("make").contains("made 0"));
    assert!(killed.elapsed() < Duration::from_secs(10), "{:?}", killed.elapsed());
    assert_eq!(held.say("run"), "code 0 made -1 found 64");
}

#[test]
fn a_service_is_listed_and_stopped_as_modules_are() {
    let mut served = Served::new();
    let socket = served.kernel.socket();
    let of = |words: &[&str]| run(bulkhead(words).arg("--socket").arg(&socket), PATIENCE);
    let listed = of(&["module", "list"]);
    assert!(listed.stdout.contains("cufft") && listed.stdout.contains("service, "), "{}", listed.told());
    let done = of(&["module", "stop", "cufft"]);
    assert_eq!(done.code(), Some(0), "{}", done.told());
    assert_eq!(served.starting.wait().expect("it ends").code(), Some(0));
    let listed = of(&["module", "list"]);
    assert!(!listed.stdout.contains("cufft"), "{}", listed.told());
    let done = of(&["module", "stop", "cufft"]);
    assert_ne!(done.code(), Some(0), "{}", done.told());
    let done = served.run(&["calls"]);
    assert!(done.code() != Some(0) && done.stderr.contains("bulkhead module start"), "{}", done.told());
}
