//! Protected modules: kernels call gates, which alone reach the modules' memory.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::Stdio,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use bulkhead_client::{
    AcceptedGates, Connection, Error, ErrorCode, Gates, Image, Launch, Moment, Options, Parameters,
    ProtectedModule, Received, Session, Stream, SturdyToken, Terms, Uses,
};
use bulkhead_schema::{
    bulkhead_capnp::{gpu_copy_session, result},
    limits,
};
use bulkhead_tests::{
    child, kernel::Kernel, patience::until, place, process, scratch::Scratch, skip::skipped, status,
    tenant::ONE,
};
use capnp::capability::FromClientHook as _;

#[path = "gates/modules.rs"]
mod modules;

#[path = "gates/claims.rs"]
mod claims;

/// A log. In its window: how often somebody appended, and from byte 64 on 4095 records of 16 bytes: who, what.
const GATES: &str = include_str!("../src/log.ptx");

/// What calls the gates, and what would do without.
const CALLS: &[u8] = concat!(include_str!("../src/log_calls.ptx"), "\0").as_bytes();

/// Where the windows of modules lie.
const WINDOWS: u64 = 0x1C00_0000_0000;

/// The module's window.
const WINDOW_BYTES: u64 = 2 << 20;
const PATIENCE: Duration = Duration::from_secs(20);
const PROGRAM_PATIENCE: Duration = Duration::from_secs(120);

/// Says where a test is, for whoever sees it take long (`--nocapture`).
fn step(what: &str) {
    eprintln!("gates: {:?}: {what}", thread::current().name().unwrap_or("a test"));
}

fn gates(scratch: &Scratch, text: &str) -> PathBuf {
    let path = scratch.path().join("log.ptx");
    std::fs::write(&path, text).expect("scratch can be written");
    path
}

fn serving(scratch: &Scratch) -> Kernel {
    step("starts a kernel");
    let module = format!("log={}:2MiB", gates(scratch, GATES).display());
    let kernel = Kernel::with(&["--module", &module]);
    step("the kernel serves");
    kernel
}

/// The host half of the log.
struct Log {
    module: ProtectedModule,
    /// What others are given is derived from these.
    gates: Gates,
    session: Session,
}

impl Log {
    fn claim(kernel: &Kernel) -> Self {
        let session = kernel.open("log");
        step("claims the module");
        let (module, bytes) = session.claim_module(kernel.module_token("log")).expect("the module");
        assert_eq!(bytes, WINDOW_BYTES);
        step("has the module");
        let gates = module.gates().expect("gates");
        Self { module, gates, session }
    }

    /// How often somebody appended.
    fn count(&self) -> u64 {
        self.module.read_u64(0).expect("a word") & u64::from(u32::MAX)
    }

    /// Who, what.
    fn record(&self, ticket: u64) -> (u64, u64) {
        let word = |at| self.module.read_u64(64 + 16 * ticket + at).expect("a word");
        (word(0), word(8))
    }
}

struct Caller {
    session: Session,
    image: Image,
    gates: Option<AcceptedGates>,
}

/// The gates that a token stands for.
fn restored(session: &Session, token: SturdyToken) -> Gates {
    match session.restore(token).expect("the token is good") {
        Received::Gates(gates) => gates,
        _ => panic!("a token of gates stands for something else"),
    }
}

impl Caller {
    /// A session that is given the gates.
    fn new(kernel: &Kernel, name: &str, gates: &Gates) -> Self {
        Self::of(kernel.open(name), gates.token(Uses::One).expect("a token"))
    }

    fn of(session: Session, token: SturdyToken) -> Self {
        let gates = session.accept_gates(restored(&session, token)).expect("gates are accepted");
        step("loads what calls gates");
        let image = session.load_image(CALLS).expect("the code loads");
        step("has it loaded");
        Self { session, image, gates: Some(gates) }
    }

    /// Runs an entry with a place for what it answers, and reads so many words of that.
    fn try_run(&self, entry: &str, launch: &Launch, value: u64, words: usize) -> Result<Vec<u32>, Error> {
        let to = self.session.allocate(4 * words as u64)?;
        let parameters = Parameters::new().buffer(&to).u64(value);
        let fence = self.session.launch(Stream::DEFAULT, &self.image.entry(entry)?, launch, &parameters)?;
        self.session.wait(fence)?;
        let mut found = vec![0; 4 * words];
        self.session.read(Stream::DEFAULT, &mut found, to.all())?;
        Ok(found.as_chunks::<4>().0.iter().map(|word| u32::from_ne_bytes(*word)).collect())
    }

    fn run(&self, entry: &str, launch: &Launch, value: u64, words: usize) -> Vec<u32> {
        self.try_run(entry, launch, value, words).expect("it runs")
    }

    fn try_append(&self, value: u64) -> Result<u32, Error> {
        self.try_run("append", &ONE, value, 1).map(|words| words[0])
    }

    fn append(&self, value: u64) -> u32 {
        self.try_append(value).expect("it runs")
    }

    fn own(&self, ticket: u64) -> u64 {
        let words = self.run("own", &ONE, ticket, 2);
        u64::from(words[1]) << 32 | u64::from(words[0])
    }

    fn peek(&self, at: u64) -> u64 {
        let words = self.run("peek", &ONE, at, 2);
        u64::from(words[1]) << 32 | u64::from(words[0])
    }

    fn poke(&self, at: u64, value: u64) {
        let parameters = Parameters::new().u64(value).u64(at);
        let entry = self.image.entry("poke").expect("the entry");
        let fence = self.session.launch(Stream::DEFAULT, &entry, &ONE, &parameters).expect("a launch");
        self.session.wait(fence).expect("it passes");
    }

    fn number(&self) -> u64 {
        self.session.number().into()
    }
}

#[test]
fn kernels_write_into_a_modules_memory_through_its_gates_and_read_their_own_only() {
    let scratch = Scratch::new();
    let kernel = serving(&scratch);
    let log = Log::claim(&kernel);
    let first = Caller::new(&kernel, "first", &log.gates);
    let second = Caller::new(&kernel, "second", &log.gates);
    // One text, which was compiled once.
    assert_eq!(kernel.images()[2], 1);
    assert_eq!((first.append(500), second.append(600), first.append(501)), (0, 1, 2));
    step("three records are there");
    assert_eq!((first.own(0), first.own(1), first.own(2)), (500, 0, 501));
    assert_eq!((second.own(0), second.own(1), second.own(2)), (0, 600, 0));
    assert_eq!((first.own(3), first.own(u64::from(u32::MAX))), (0, 0));
    // The host half sees who it was, which no caller says.
    assert_eq!(log.count(), 3);
    let records = [0, 1, 2].map(|ticket| log.record(ticket));
    assert_eq!(records, [(first.number(), 500), (second.number(), 600), (first.number(), 501)]);
    // Many at once: nobody's record is lost or taken for another's.
    let wide = Launch { grid: [8, 1, 1], block: [64, 1, 1], shared_bytes: 0 };
    let tickets = first.run("append", &wide, 1 << 40, 512);
    step("many have appended");
    let mut sorted = tickets.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (3..515).collect::<Vec<_>>());
    for (thread, ticket) in (0..).zip(&tickets).step_by(61) {
        assert_eq!(first.own(u64::from(*ticket)), (1 << 40) + thread);
        assert_eq!(second.own(u64::from(*ticket)), 0);
    }
}

#[test]
fn the_host_half_writes_what_gates_read() {
    let scratch = Scratch::new();
    let kernel = serving(&scratch);
    let log = Log::claim(&kernel);
    let caller = Caller::new(&kernel, "caller", &log.gates);
    log.module.write(0, &4000_u32.to_le_bytes()).expect("it lies in the window");
    assert_eq!((caller.append(7), log.record(4000)), (4000, (caller.number(), 7)));
    // A record in the caller's name, and one in another's.
    let record = |who: u64, what: u64| [who.to_le_bytes(), what.to_le_bytes()].concat();
    log.module.write(64, &record(caller.number(), 41)).expect("it lies in the window");
    log.module.write(80, &record(caller.number() + 1, 42)).expect("it lies in the window");
    assert_eq!((caller.own(0), caller.own(1)), (41, 0));
    // More than goes at a time, up to the window's end.
    let bytes: Vec<u8> = (0..150_000_u32).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect();
    let at = WINDOW_BYTES - bytes.len() as u64;
    log.module.write(at, &bytes).expect("it lies in the window");
    let mut read = vec![0; bytes.len()];
    log.module.read(at, &mut read).expect("it lies in the window");
    assert!(read == bytes);
}

#[test]
fn forged_pointers_do_not_reach_a_modules_memory() {
    let scratch = Scratch::new();
    let kernel = serving(&scratch);
    let log = Log::claim(&kernel);
    let first = Caller::new(&kernel, "first", &log.gates);
    let second = Caller::new(&kernel, "second", &log.gates);
    assert_eq!(first.append(0x5ec2_e700_5ec2_e700), 0);
    // The counter, and the record: who, what.
    for offset in [0, 64, 72, 80] {
        let at = WINDOWS + offset;
        assert_ne!(second.peek(at), 0x5ec2_e700_5ec2_e700, "{at:#x}");
        second.poke(at, 77);
    }
    assert_eq!((first.own(0), second.own(0)), (0x5ec2_e700_5ec2_e700, 0));
    assert_eq!(second.append(9), 1, "the counter is as it was");
    assert_eq!(log.record(0), (first.number(), 0x5ec2_e700_5ec2_e700));
}

/// What the guard has against an entry of a text that it lets in otherwise.
fn refusal(session: &Session, text: &[u8], entry: &str) -> String {
    let image = session.load_image(text).expect("the others are let in");
    image.entry(entry).map(drop).expect_err("the guard refuses the entry").to_string()
}

#[test]
fn without_a_grant_what_calls_gates_is_refused_by_name() {
    let scratch = Scratch::new();
    let kernel = serving(&scratch);
    let refused = |session: &Session| {
        for (entry, call) in [("append", "a call of `log_append`"), ("own", "a call of `log_own`")] {
            let refused = refusal(session, CALLS, entry);
            for part in [call, "no gate that the session was granted"] {
                assert!(refused.contains(part), "{refused}");
            }
        }
    };
    let nobody = kernel.open("nobody");
    refused(&nobody);
    // Neither that somebody has the module nor that somebody else may call it makes a difference.
    let log = Log::claim(&kernel);
    refused(&nobody);
    let friend = Caller::new(&kernel, "friend", &log.gates);
    assert_eq!(friend.append(1), 0);
    refused(&nobody);
    refused(&log.session);
    // Nor are entries that somebody lends who may: it is the session that launches them that needs the grant.
    let append = friend.image.entry("append").expect("the entry");
    let program =
        friend.session.program(Some(&friend.image), &[&append], Terms::default()).expect("a program");
    let token = program.token(Uses::One).expect("a token");
    let borrower = Session::open_program(&kernel.options("borrower"), token).expect("a session");
    let [lent] = borrower.entries() else { panic!("one entry was lent") };
    let to = borrower.allocate(4).expect("memory");
    let parameters = Parameters::new().buffer(&to).u64(5);
    let launched = borrower.launch(Stream::DEFAULT, lent, &ONE, &parameters);
    let refused = launched.and_then(|fence| borrower.wait(fence)).expect_err("it was granted nothing");
    assert_eq!(refused.code, ErrorCode::NotPermitted, "{refused}");
    assert_eq!((friend.append(2), log.count()), (1, 2));
    // With one it runs, and in its own name.
    let gates = restored(&borrower, log.gates.token(Uses::One).expect("a token"));
    let _accepted = borrower.accept_gates(gates).expect("gates are accepted");
    let fence = borrower.launch(Stream::DEFAULT, lent, &ONE, &parameters).expect("a launch");
    borrower.wait(fence).expect("it passes");
    assert_eq!(log.record(2), (borrower.number().into(), 5));
}

#[test]
fn a_tenants_function_of_a_gates_name_is_its_own() {
    let scratch = Scratch::new();
    let kernel = serving(&scratch);
    let log = Log::claim(&kernel);
    let session = kernel.open("impostor");
    let own = |pragma: &str| {
        let calls = String::from_utf8_lossy(CALLS).into_owned();
        let declared = ".extern .func (.param .b32 ticket) log_append(.param .b64 value);\n";
        let function = format!(
            ".visible .func (.param .b32 ticket) log_append(.param .b64 value)\n{{\n.reg .b32 %r<2>;\n.reg .b64 %rd<2>;\n\
             ld.param.b64 %rd1, [value];\n{pragma}atom.global.add.u32 %r1, [%rd1], 1;\nst.param.b32 [ticket], %r1;\nret;\n}}\n"
        );
        let start = calls.find(".visible .entry own").expect("the entry");
        let end = calls.find(".visible .entry peek").expect("the entry");
        let calls = format!("{}{}", &calls[..start], &calls[end..]);
        let extern_own = ".extern .func (.param .b64 value) log_own(.param .b32 ticket);\n";
        calls.replace(declared, &function).replace(extern_own, "")
    };
    // Only a gate's author marks accesses.
    let refused = refusal(&session, own(".pragma \"bulkhead protected\";\n").as_bytes(), "append");
    assert!(refused.contains("bulkhead protected"), "{refused}");
    // Its own code does what it says, in its own window, for whatever address.
    let image = session.load_image(own("").as_bytes()).expect("it is the tenant's own affair");
    let caller = Caller { session, image, gates: None };
    caller.try_append(WINDOWS).expect("it runs");
    assert_eq!(log.count(), 0, "the module's counter is as it was");
}

#[test]
fn what_calls_gates_that_were_taken_back_is_refused_and_neighbours_go_on() {
    let scratch = Scratch::new();
    let kernel = serving(&scratch);
    let log = Log::claim(&kernel);
    let given = log.gates.derive().expect("gates");
    let first = Caller::new(&kernel, "first", &given);
    let second = Caller::new(&kernel, "second", &log.gates);
    assert_eq!((first.append(1), second.append(2)), (0, 1));
    let is_over = AtomicBool::new(false);
    let appended = thread::scope(|scope| {
        let neighbour = scope.spawn(|| {
            let mut appended = 0;
            while !is_over.load(Ordering::Relaxed) {
                second.append(3);
                appended += 1;
            }
            appended
        });
        step("takes the first one's gates back");
        let revocation = given.revoke().expect("it is there");
        let reached = revocation.wait(Moment::Quiescent, PATIENCE).expect("an answer");
        step("they are taken back");
        is_over.store(true, Ordering::Relaxed);
        let appended = neighbour.join().expect("the neighbour goes on");
        assert!(reached.reached);
        appended
    });
    // It was loaded before, and is refused at its launch.
    let refused = first.try_append(4).expect_err("its gates were taken back");
    assert_eq!(refused.code, ErrorCode::Revoked, "{refused}");
    // So is what it loads now, by name; what calls no gates runs on.
    let refused = refusal(&first.session, CALLS, "append");
    assert!(refused.contains("no gate that the session was granted"), "{refused}");
    let to = first.session.allocate(4).expect("memory");
    first.session.write(Stream::DEFAULT, to.all(), &[9, 0, 0, 0]).expect("a copy");
    assert_eq!(log.count(), 2 + appended, "every record of the neighbour's is there, and no other");
    // Whoever is given them again goes on with what it has loaded.
    let Caller { session, image, gates: ended } = first;
    drop(ended);
    let again = restored(&session, log.gates.token(Uses::One).expect("a token"));
    let again = Some(session.accept_gates(again).expect("gates are accepted"));
    let first = Caller { session, image, gates: again };
    assert_eq!(u64::from(first.append(5)), 2 + appended);
    // Giving them up is as good as losing them.
    let Caller { session, image, gates: accepted } = first;
    let revocation = accepted.expect("gates").close().expect("they are there");
    assert!(revocation.wait(Moment::Quiescent, PATIENCE).expect("an answer").reached);
    let first = Caller { session, image, gates: None };
    assert_eq!(first.try_append(6).expect_err("given up").code, ErrorCode::Revoked);
}

#[test]
fn a_peer_is_given_gates_and_accepts_those_of_a_module_once() {
    let scratch = Scratch::new();
    let kernel = serving(&scratch);
    let log = Log::claim(&kernel);
    let tenant = kernel.open("tenant");
    let own = tenant.peer().expect("a peer");
    let token = own.token(Uses::One).expect("a token");
    let Received::Peer(peer) = log.session.restore(token).expect("the token is good") else {
        panic!("a peer's token stands for something else")
    };
    for _ in 0..2 {
        peer.grant_gates(&log.gates).expect("they are given");
    }
    let granted = || match tenant.granted(PATIENCE).expect("an answer") {
        Some(Received::Gates(gates)) => gates,
        _ => panic!("gates were given"),
    };
    let accepted = tenant.accept_gates(granted()).expect("gates are accepted");
    let twice = tenant.accept_gates(granted()).map(drop).expect_err("once is enough");
    assert_eq!(twice.code, ErrorCode::InvalidArgument, "{twice}");
    let image = tenant.load_image(CALLS).expect("the code loads");
    let caller = Caller { session: tenant, image, gates: Some(accepted) };
    assert_eq!(caller.append(1), 0);
}

#[test]
fn a_host_half_that_dies_takes_its_gates_along_and_the_next_finds_nothing() {
    const NAME: &str = "a_host_half_that_dies_takes_its_gates_along_and_the_next_finds_nothing";
    if let Some(socket) = child::role() {
        let token = SturdyToken::read_file(&socket.with_file_name("log.token")).expect("a token");
        let options = Options { socket, name: "mortal".into(), ..Options::default() };
        let session = Session::open(&options).expect("a session");
        let (module, _) = session.claim_module(token).expect("the module");
        module.write(4096, b"remember me").expect("it lies in the window");
        let gates = module.gates().expect("gates");
        println!("{:x}", gates.token(Uses::One).expect("a token"));
        loop {
            thread::park();
        }
    }
    let scratch = Scratch::new();
    let kernel = serving(&scratch);
    let mut host = child::start(NAME, &kernel.socket());
    let lines = BufReader::new(host.stdout.take().expect("it is piped")).lines();
    let token = lines.map_while(Result::ok).find_map(|line| line.parse().ok()).expect("a token");
    let caller = Caller::of(kernel.open("caller"), token);
    assert_eq!(caller.append(1), 0);
    let session = kernel.open("heir");
    let taken = session.claim_module(kernel.module_token("log")).map(drop).expect_err("somebody has it");
    assert_eq!(taken.code, ErrorCode::Unavailable, "{taken}");
    step("kills the host half");
    host.kill().expect("it can be killed");
    host.wait().expect("it ends");
    let start = Instant::now();
    let refused = loop {
        match caller.try_append(2) {
            Err(error) => break error,
            Ok(_) => assert!(start.elapsed() < PATIENCE, "its gates are still called"),
        }
    };
    assert_eq!(refused.code, ErrorCode::Revoked, "{refused}");
    step("waits for the module");
    let mut claimed = None;
    until("the module is free again", || {
        claimed = session.claim_module(kernel.module_token("log")).ok();
        claimed.is_some()
    });
    let (module, _) = claimed.expect("it is there");
    let mut window = vec![1; usize::try_from(WINDOW_BYTES).expect("a size")];
    module.read(0, &mut window).expect("it lies in the window");
    assert!(window.iter().all(|byte| *byte == 0), "the last one's records are there");
    // The tenant lives, and what it had loaded is not good for the next module.
    assert_eq!(caller.try_append(3).expect_err("other gates").code, ErrorCode::Revoked);
    let gates = module.gates().expect("gates");
    let next = Caller::new(&kernel, "next", &gates);
    assert_eq!(next.append(4), 0);
}

#[test]
fn a_tenant_that_is_killed_leaves_no_record_half_written() {
    const NAME: &str = "a_tenant_that_is_killed_leaves_no_record_half_written";
    const TOKEN: &str = "BULKHEAD_TEST_GATES";
    const WIDE: Launch = Launch { grid: [4, 1, 1], block: [64, 1, 1], shared_bytes: 0 };
    if let Some(socket) = child::role() {
        let options = Options { socket, name: "mortal".into(), ..Options::default() };
        let token = std::env::var(TOKEN).expect("a token").parse().expect("a token");
        let caller = Caller::of(Session::open(&options).expect("a session"), token);
        println!("number {}", caller.number());
        loop {
            caller.run("append", &WIDE, 1 << 32, 256);
        }
    }
    let scratch = Scratch::new();
    let kernel = serving(&scratch);
    let log = Log::claim(&kernel);
    let token = log.gates.token(Uses::One).expect("a token");
    let mut tenant = child::command(NAME, &kernel.socket());
    let mut tenant =
        tenant.env(TOKEN, format!("{token:x}")).stdout(Stdio::piped()).spawn().expect("it starts");
    let lines = BufReader::new(tenant.stdout.take().expect("it is piped")).lines();
    let number = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("number ")?.parse().ok());
    let number: u64 = number.expect("its number");
    until("it appends", || log.count() > 300);
    step("kills the tenant");
    tenant.kill().expect("it can be killed");
    tenant.wait().expect("it ends");
    let status = kernel.without(&["mortal"]);
    assert!(status.session("log").is_some_and(|session| !session.lost));
    let mut window = vec![0; 64 + 16 * 4095];
    log.module.read(0, &mut window).expect("it lies in the window");
    let words: Vec<_> = window.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let count = usize::try_from(log.count()).expect("a count");
    step("reads what it has left");
    for (ticket, record) in words[8..].as_chunks::<2>().0.iter().enumerate() {
        if ticket >= count {
            assert_eq!(*record, [0, 0], "{ticket} of {count}");
        } else {
            assert_eq!(record[0], number, "{ticket} of {count}");
            assert!((1 << 32..(1 << 32) + 256).contains(&record[1]), "{ticket} of {count}: {record:x?}");
        }
    }
    let next = Caller::new(&kernel, "next", &log.gates);
    let ticket = if count < 4095 { u32::try_from(count).expect("a ticket") } else { u32::MAX };
    assert_eq!(next.append(1), ticket);
}

#[test]
fn an_unmodified_cuda_program_calls_gates_that_it_is_given_and_no_others() {
    let scratch = Scratch::new();
    let kernel = serving(&scratch);
    let log = Log::claim(&kernel);
    let program = place::program("gates/append");
    let done = process::run(&mut kernel.run_command(&program), PROGRAM_PATIENCE);
    assert_ne!(done.code(), Some(0), "{}", done.told());
    assert!(done.stderr.contains("a call of `log_append`"), "{}", done.told());
    assert_eq!(log.count(), 0);
    let file = scratch.path().join("gates.token");
    let token = log.gates.token(Uses::One).expect("a token");
    std::fs::write(&file, format!("{token:x}")).expect("scratch can be written");
    let mut given = process::bulkhead(&["run", "--socket"]);
    given.arg(kernel.socket()).arg("--gates").arg(&file).arg("--").arg(&program);
    given.env("TMPDIR", scratch.path());
    let done = process::run(&mut given, PROGRAM_PATIENCE);
    assert_eq!(done.code(), Some(0), "{}", done.told());
    assert_eq!(log.count(), 96);
    let mut records: Vec<_> = (0..96).map(|ticket| log.record(ticket)).collect();
    records.sort_unstable();
    let (who, _) = records[0];
    assert_eq!(records, (1000..1096).map(|what| (who, what)).collect::<Vec<_>>());
    // The token was good once.
    let done = process::run(&mut given, PROGRAM_PATIENCE);
    assert_ne!(done.code(), Some(0), "{}", done.told());
    assert!(done.stderr.contains("no gates by"), "{}", done.told());
    assert_eq!(log.count(), 96);
}
