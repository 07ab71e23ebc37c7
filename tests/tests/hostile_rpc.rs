//! Whatever a client sends over the RPC socket hurts only itself: hostile connections by the thousand, beside a
//! neighbour whose pings are answered, and after which nothing is left.
//!
//! `BULKHEAD_FUZZ_CONNECTIONS`, `BULKHEAD_SEED` and `BULKHEAD_FUZZ_FIRST` choose others than usual.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{
    fs::File,
    os::unix::net::UnixStream,
    process::{Child, Stdio},
    time::Duration,
};

use bulkhead_client::SturdyToken;
use bulkhead_tests::{
    child,
    fuzz::{Campaign, Failure, Report, Target, faulty, faulty::Fault},
    kernel::Kernel,
    patience::until,
    process::resident_bytes,
    scratch::Scratch,
};

/// How many connections run where nobody asks for more.
const CONNECTIONS: u64 = 20_000;

/// Methods of results that may tell of a refusal, and that find nothing to refuse.
const NEVER_REFUSE: &[&str] = &[
    "GpuSession.output",
    "GpuSession.close",
    "GpuCopySession.close",
    "GpuLoan.recalled",
    "GpuLoan.giveBack",
];

/// Only isolated sessions on a GPU answer these.
const NEVER_ANSWER: &[&str] =
    &["GpuSession.askDriver", "GpuModule.entry", "GpuModule.setAttribute", "GpuModule.variable"];

#[test]
fn hostile_connections_hurt_only_themselves() {
    let scratch = Scratch::new();
    // Two modules to claim: what one session holds another cannot have.
    let module = |name: &str| {
        let gates = scratch.path().join(format!("{name}.ptx"));
        let text = include_str!("../src/log.ptx").replace("log_", &format!("{name}_"));
        // With host memory, which a host half maps.
        let text = format!("{text}\n.visible .global .attribute(.managed) .align 8 .b64 {name}_bell;\n");
        std::fs::write(&gates, text).expect("scratch can be written");
        format!("{name}={}:4MiB", gates.display())
    };
    let kernel = Kernel::quiet(&["--module", &module("log"), "--module", &module("other")]);
    let before = kernel.status();
    let executor = before.executor_pid;
    let resident = resident_bytes(executor);
    let left = || {
        let status = kernel.status();
        (status != before).then(|| format!("{status:?}, where there was {before:?}"))
    };
    // Attackers may claim them.
    let tokens = ["log", "other"].map(|name| {
        let SturdyToken(token) = kernel.module_token(name);
        let word = |index: usize| u64::from_le_bytes(*token[8 * index..].first_chunk().expect("32 bytes"));
        [word(0), word(1), word(2), word(3)]
    });
    let tokens = tokens.to_vec();
    let (pid, socket, log) = (kernel.pid(), kernel.socket(), kernel.log_path());
    let target = Target { pid, socket, log, tokens, left: &left };
    let report = match Campaign::of(CONNECTIONS).run(&target) {
        Ok(report) => report,
        Err(failure) => panic!("{failure}"),
    };
    println!("{report}");
    let after = resident_bytes(executor);
    println!("{resident} bytes of the executor were resident, {after} at the end");
    let gaps = report.coverage.gaps(NEVER_REFUSE, NEVER_ANSWER);
    assert!(gaps.is_empty(), "{gaps:#?}");
    if report.connections >= CONNECTIONS {
        assert!(report.turned_away < report.connections / 100, "{report}");
    }
}

/// A campaign against a server with something wrong; what it finds.
fn campaign_against(test: &str, fault: Fault, connections: u64) -> Result<Report, Box<Failure>> {
    struct Server(Child);
    impl Drop for Server {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }
    if let Some(socket) = child::role() {
        faulty::serve(&socket, fault);
    }
    let scratch = Scratch::new();
    let (socket, log) = (scratch.path().join("socket"), scratch.path().join("log"));
    let mut command = child::command(test, &socket);
    command.stdout(Stdio::null()).stderr(File::create(&log).unwrap());
    let server = Server(command.spawn().unwrap());
    until("the server listens", || UnixStream::connect(&socket).is_ok());
    // Chance finds each fault soon with this one.
    let campaign = Campaign { seed: 2, first: 0, connections, patience: Duration::from_secs(3), led: false };
    campaign.run(&Target { pid: server.0.id(), socket, log, tokens: Vec::new(), left: &|| None })
}

fn is_found(test: &str, fault: Fault, telling: &[&str]) {
    match campaign_against(test, fault, 60_000) {
        Ok(report) => panic!("{fault:?} is not noticed\n{report}"),
        Err(failure) => {
            assert!(telling.iter().any(|telling| failure.what.contains(telling)), "{}", failure.what);
            assert!(!failure.suspects.is_empty());
            println!("found: {}", failure.what);
        }
    }
}

#[test]
fn a_server_that_calls_what_its_clients_host_is_noticed() {
    // It panics, or it looks for the end of a promise for ever, and keeps what it does so for.
    let test = "a_server_that_calls_what_its_clients_host_is_noticed";
    is_found(test, Fault::TrustsItsClients, &["panicked at", "ping", "is gone", "grown"]);
}

#[test]
fn a_panic_is_noticed() {
    is_found("a_panic_is_noticed", Fault::Panics, &["panicked at"]);
}

#[test]
fn a_server_that_stops_answering_is_noticed() {
    is_found("a_server_that_stops_answering_is_noticed", Fault::Hangs, &["ping"]);
}

#[test]
fn memory_that_is_kept_is_noticed() {
    is_found("memory_that_is_kept_is_noticed", Fault::KeepsMemory, &["grown"]);
}

#[test]
fn sockets_that_are_kept_are_noticed() {
    is_found("sockets_that_are_kept_are_noticed", Fault::KeepsSockets, &["descriptors"]);
}
