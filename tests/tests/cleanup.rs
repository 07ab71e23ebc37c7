//! A client that holds very much and is killed: everything returns, and nobody waits for that.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{
    io::{BufRead as _, BufReader},
    os::fd::OwnedFd,
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use bulkhead_schema::bulkhead_capnp::gpu_session;
use bulkhead_tests::{
    child,
    fuzz::{
        message::{Body, Message, Target},
        neighbour::{self, Pings},
    },
    kernel::Kernel,
    patience::{PATIENCE, until, within},
    process::{kill, lives},
    raw::Raw,
};
use capnp::traits::HasTypeId as _;

const SESSIONS: u32 = 2;
const SIGNALS_PER_SESSION: u32 = 10_000;
/// Calls that wait for their answers at a time.
const AT_ONCE: u32 = 100;

/// Holds more than one session can, leaves its socket to a process of its own, and waits to be killed.
#[expect(clippy::zombie_processes, reason = "its child outlives it")]
fn be_a_client_with_very_much(socket: &Path) {
    let mut client = Raw::connect(socket, "very much");
    for _ in 0..SESSIONS {
        let (opened, path) = client.open_session("very much");
        client.receive();
        // Capabilities without memory: the window has no room for as many pieces of its own.
        let mut asked = Vec::new();
        for at in 1..=SIGNALS_PER_SESSION {
            let target = Target::Answer(opened, path.clone());
            asked.push(client.call(target, gpu_session::Client::TYPE_ID, "signal", Body::default()));
            if at % AT_ONCE == 0 || at == SIGNALS_PER_SESSION {
                asked.iter().for_each(|_| client.receive());
                // What they answered is kept, and only the answers are given up.
                for question in asked.drain(..) {
                    client.send(&Message::Finish(question, false)).unwrap();
                }
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
