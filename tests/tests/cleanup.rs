//! A client that holds very much and is killed: everything returns, and nobody waits for that.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use bulkhead_schema::{bulkhead_capnp::bulkhead, limits};
use bulkhead_tests::{
    child,
    fuzz::{
        message::{Body, Call, Message, Pointer, Results, Target},
        neighbour::{self, Pings},
        schema,
    },
    kernel::Kernel,
    patience::{PATIENCE, until, within},
    process::{kill, lives},
};
use capnp::{message::ReaderOptions, serialize, traits::HasTypeId as _};

const SESSIONS: u32 = 2;
const SIGNALS_PER_SESSION: u32 = 10_000;
/// Calls that wait for their answers at a time.
const AT_ONCE: u32 = 100;

/// A client below the SDK, which would have one session a connection.
struct Client {
    stream: UnixStream,
    question: u32,
}

impl Client {
    /// Calls a method by its name, on an interface that has it; the question.
    fn call(&mut self, target: Target, interface: u64, method: &str, body: Body) -> u32 {
        let interfaces = schema::interfaces();
        let interface = interfaces.iter().find(|known| known.id == interface).unwrap();
        let method = interface.methods.iter().find(|known| known.name == method).unwrap();
        let (interface, method) = (method.interface, method.number);
        self.question += 1;
        let (question, table, results) = (self.question, Vec::new(), Results::Caller);
        self.send(&Message::Call(Call { question, target, interface, method, body, table, results }));
        question
    }

    fn send(&mut self, message: &Message) {
        self.stream.write_all(&message.encode()).unwrap();
    }

    fn receive(&mut self) {
        serialize::read_message(&mut self.stream, ReaderOptions::new()).unwrap();
    }
}

/// Holds more than one session can, leaves its socket to a process of its own, and waits to be killed.
#[expect(clippy::zombie_processes, reason = "its child outlives it")]
fn be_a_client_with_very_much(socket: &Path) {
    let mut client = Client { stream: UnixStream::connect(socket).unwrap(), question: 0 };
    let first = bulkhead::Client::TYPE_ID;
    client.send(&Message::Bootstrap(0));
    let name = || vec![(0, Pointer::Bytes(b"very much".to_vec()))];
    let hello = Body { data: vec![(32, 0, u64::from(limits::PROTOCOL_VERSION))], pointers: name() };
    client.call(Target::Answer(0, Vec::new()), first, "hello", hello);
    client.receive();
    client.receive();
    let interfaces = schema::interfaces();
    let opening = interfaces.iter().flat_map(|interface| &interface.methods);
    let (path, session) = opening
        .filter(|method| method.name == "openSession")
        .find_map(|method| method.capabilities.first())
        .unwrap();
    for _ in 0..SESSIONS {
        let body = Body { data: vec![(32, 0, 0)], pointers: name() };
        let opened = client.call(Target::Answer(0, Vec::new()), first, "openSession", body);
        client.receive();
        let session = interfaces[*session].id;
        // Capabilities without memory: the window has no room for as many pieces of its own.
        let body = Body { data: Vec::new(), pointers: Vec::new() };
        let target = || Target::Answer(opened, path.clone());
        let mut asked = client.call(target(), session, "signal", body.clone());
        client.receive();
        let method = interfaces.iter().find(|known| known.id == session).unwrap();
        let method = method.methods.iter().find(|method| method.name == "signal").unwrap();
        let (interface, method) = (method.interface, method.number);
        for at in 1..SIGNALS_PER_SESSION {
            client.question += 1;
            let (question, table, results) = (client.question, Vec::new(), Results::Caller);
            let (target, body) = (target(), body.clone());
            client.send(&Message::Call(Call { question, target, interface, method, body, table, results }));
            if at % AT_ONCE == 0 || at == SIGNALS_PER_SESSION - 1 {
                let count = client.question - asked;
                (0..count).for_each(|_| client.receive());
                // What they answered is kept, and only the answers are given up.
                (asked..=client.question).for_each(|question| client.send(&Message::Finish(question, false)));
                asked = client.question;
            }
        }
    }
    let copy = OwnedFd::from(client.stream.try_clone().unwrap());
    let child = Command::new("sleep").arg("120").stdin(Stdio::from(copy)).spawn().unwrap();
    println!("\nholding {}", child.id());
    loop {
        thread::park();
    }
}

/// Pings without a pause while something is done.
fn beside_pings<T>(kernel: &Kernel, work: impl FnOnce() -> T) -> (T, Pings) {
    let stop = AtomicBool::new(false);
    let socket = kernel.socket();
    thread::scope(|scope| {
        let pings = scope.spawn(|| neighbour::ping(&socket, &stop, Duration::ZERO, PATIENCE));
        thread::sleep(Duration::from_millis(200));
        let done = work();
        stop.store(true, Ordering::Relaxed);
        (done, pings.join().unwrap().unwrap())
    })
}

#[test]
fn a_client_killed_with_twenty_thousand_capabilities_gives_them_all_back() {
    let test = "a_client_killed_with_twenty_thousand_capabilities_gives_them_all_back";
    if let Some(socket) = child::role() {
        return be_a_client_with_very_much(&socket);
    }
    let kernel = Kernel::start();
    let before = kernel.status();
    let mut client = child::start(test, &kernel.socket());
    let stdout = BufReader::new(client.stdout.take().unwrap());
    let heir: u32 = within("the client gets ready", move || {
        let mut lines = stdout.lines().map_while(Result::ok);
        lines.find_map(|line| line.strip_prefix("holding ")?.parse().ok()).unwrap()
    });
    let held = kernel.status();
    let capabilities: u32 = held.sessions.iter().map(|session| session.capabilities).sum();
    assert!(capabilities >= SESSIONS * SIGNALS_PER_SESSION, "{capabilities} capabilities are held");
    let ((), idle) = beside_pings(&kernel, || thread::sleep(Duration::from_millis(300)));
    let (took, pings) = beside_pings(&kernel, || {
        let start = Instant::now();
        client.kill().unwrap();
        client.wait().unwrap();
        until("everything has returned", || kernel.status() == before);
        start.elapsed()
    });
    let outlived = lives(heir);
    kill(heir);
    assert!(outlived, "nobody held the socket");
    println!("{capabilities} capabilities were returned within {took:?}");
    println!("a neighbour's slowest ping: {:?} of {}; idle {:?}", pings.longest, pings.count, idle.longest);
}
