//! Hostile acts with what clients share: connections, sessions, places to compile, the log, the standby. Each runs beside
//! a client that pings and one that computes; where places are counted for processes, in a process of its own.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{
    io::Read as _,
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::Path,
    sync::{
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use bulkhead_client::{ErrorCode, Options, Session};
use bulkhead_schema::limits;
use bulkhead_tests::{
    act::{STOPPED, act_on},
    apart::{act_apart, hold, tell},
    calls, child,
    churn::{SESSIONS_A_SECOND, come_and_go},
    hostile::{descriptor_socket, exchange},
    kernel::{Kernel, UNREAD_BYTES},
    neighbour::Neighbour,
    patience::until,
    status::{self, local},
    tenant::NEW,
};

/// A kernel that gives a process no more places than any does: those of other tests give more.
fn strict_kernel() -> Kernel {
    let places = [
        ("connections", limits::CONNECTIONS_OF_PROCESS_MAX),
        ("descriptor_connections", limits::DESCRIPTOR_CONNECTIONS_OF_PROCESS_MAX),
        ("sessions", limits::SESSIONS_OF_PROCESS_MAX),
    ];
    let limits = places.map(|(name, most)| format!("{name}={most}"));
    let arguments: Vec<_> = limits.iter().flat_map(|limit| ["--process-limit", limit]).collect();
    Kernel::with(&arguments)
}

/// Somebody of another process gets in, and does what needs every kind of place.
fn newcomer(kernel: &Kernel) {
    let mut newcomer = Neighbour::new(kernel, "newcomer");
    newcomer.session().load_image(NEW).unwrap();
    newcomer.work();
    let status = status::of_operator(&kernel.socket()).unwrap();
    assert!(status.session("newcomer").is_some(), "the operator is told of everybody");
}

/// How many of these the kernel has hung up on.
fn refused(silent: &mut [UnixStream]) -> usize {
    let mut words = [0; 4096];
    // Why, and then nothing more.
    silent.iter_mut().filter_map(|stream| stream.read(&mut words).ok()).count()
}

#[test]
fn one_process_connects_hundreds_of_times_and_says_nothing() {
    const NAME: &str = "one_process_connects_hundreds_of_times_and_says_nothing";
    const SILENT: usize = 300;
    if let Some(socket) = child::role() {
        let connect = |_| {
            let stream = UnixStream::connect(&socket).unwrap();
            stream.set_nonblocking(true).unwrap();
            stream
        };
        let mut silent: Vec<_> = (0..SILENT).map(connect).collect();
        let most = usize::try_from(limits::CONNECTIONS_OF_PROCESS_MAX).unwrap();
        until("all are refused that are too many", || refused(&mut silent) >= SILENT - most);
        let held = SILENT - refused(&mut silent);
        tell(&format!("{held} of {SILENT} silent connections are held"));
        return hold();
    }
    act_apart(&strict_kernel(), "silent connections", NAME, newcomer);
}

/// Takes every session and every call that connections of one process may have.
async fn take_all(socket: &Path) {
    const CONNECTIONS: usize = 4;
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        let connection = calls::connect(socket, "greedy").await;
        let session = calls::open(&connection, "greedy").await.unwrap().copying();
        connections.push((connection, session));
    }
    let (mut sessions, mut refused, mut held) = (Vec::new(), 0, Vec::new());
    for (connection, _) in &connections {
        for _ in 1..limits::SESSIONS_PER_CONNECTION_MAX {
            match calls::open(connection, "greedy").await {
                Ok(opened) => sessions.push(opened),
                Err(error) => {
                    assert_eq!(error.code, ErrorCode::LimitReached, "{error}");
                    refused += 1;
                }
            }
        }
    }
    let most = usize::try_from(limits::SESSIONS_OF_PROCESS_MAX).unwrap();
    assert_eq!(sessions.len(), most - CONNECTIONS);
    assert_eq!(refused, CONNECTIONS * limits::SESSIONS_PER_CONNECTION_MAX - most);
    // An answer with a capability has a place until its client gives it up; so has the bootstrap.
    for (_, session) in &connections {
        let asked: Vec<_> =
            (1..limits::QUESTIONS_MAX).map(|_| session.signal_request().send().promise).collect();
        for asked in asked {
            held.push(asked.await.unwrap());
        }
    }
    tell(&format!("{most} sessions are held, {refused} were refused; {} calls are held", held.len()));
    hold();
    for (connection, _) in &connections {
        assert!(connection.ping(0).await.is_err(), "one call more than there may be was answered");
    }
}

#[test]
fn four_connections_take_every_session_and_every_call_that_they_may() {
    const NAME: &str = "four_connections_take_every_session_and_every_call_that_they_may";
    if let Some(socket) = child::role() {
        return local(take_all(&socket));
    }
    act_apart(&strict_kernel(), "connections that take all they may", NAME, newcomer);
}

/// Has whatever can be refused, for a while; how often it was.
fn be_refused(socket: &Path, longest: Duration) -> usize {
    let start = Instant::now();
    let descriptors = socket.with_file_name("descriptors.sock");
    let named = |name: String| Options { socket: socket.to_owned(), name, ..Options::default() };
    let mut refusals = 0;
    while start.elapsed() < longest {
        let crowd: Vec<_> = (0..40).map(|_| UnixStream::connect(socket).unwrap()).collect();
        let tokens = descriptor_socket(&descriptors);
        for guess in 0..50 {
            refusals +=
                usize::from(exchange(&tokens, &[guess; 16], None).is_some_and(|(word, _)| word == [1]));
        }
        drop(crowd);
        // A name that is too long, where there is a place for its connection again.
        refusals += usize::from(Session::open(&named("n".repeat(1000))).is_err());
    }
    refusals
}

#[test]
fn refusals_are_a_flood_and_nobody_reads_the_log() {
    const NAME: &str = "refusals_are_a_flood_and_nobody_reads_the_log";
    if let Some(socket) = child::role() {
        tell(&format!("{} refusals", be_refused(&socket, Duration::from_secs(3))));
        return hold();
    }
    let (kernel, reader) = Kernel::unread(&["--process-limit", "connections=32"]);
    act_apart(&kernel, "refusals in a flood, and a log that nobody reads", NAME, |kernel| {
        let unread = usize::try_from(rustix::io::ioctl_fionread(&reader).unwrap()).unwrap();
        assert!(unread > UNREAD_BYTES - 1024, "there is room for a line: {unread} bytes are unread");
        newcomer(kernel);
    });
    drop((kernel, reader));
}

#[test]
fn sessions_come_and_go_all_the_time() {
    const SECONDS: u32 = 3;
    let kernel = Kernel::with(&["--standby"]);
    until("a standby is ready", || kernel.status().standby_pid != 0);
    let standby = kernel.status().standby_pid;
    act_on(&kernel, "sessions that come and go", STOPPED, |kernel| {
        let (over, opened) = (AtomicBool::new(false), AtomicU32::new(0));
        thread::scope(|scope| {
            scope.spawn(|| come_and_go(kernel, &over, &opened));
            until("many have come", || opened.load(Ordering::Relaxed) >= SECONDS * SESSIONS_A_SECOND);
            over.store(true, Ordering::Relaxed);
        });
        println!("  {} sessions came and went", opened.load(Ordering::Relaxed));
        assert_eq!(kernel.status().standby_pid, standby, "it is the same standby");
    });
}

/// An image that takes long to compile, and that nobody has compiled before.
fn long_image(number: usize) -> Vec<u8> {
    let body = "\tadd.u32 %r1, %r1, 1;\n".repeat(40_000);
    let text = format!(
        ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry long_{number}(.param .u64 to)\n{{\n\
         \t.reg .u32 %r<2>;\n\t.reg .u64 %rd<2>;\n\tmov.u32 %r1, 0;\n\tld.param.u64 %rd1, [to];\n{body}\
         \tst.global.u32 [%rd1], %r1;\n\tret;\n}}\n\0"
    );
    text.into_bytes()
}

/// Sessions of a process that fills the places to compile at: each has one image compiled at a time.
const COMPILING: usize = 20;

/// Loads more images than a process may have wait, until those are in that may; and leaves them there.
fn fill_compile_places(socket: &Path) {
    static LOADED: AtomicUsize = AtomicUsize::new(0);
    let most = usize::try_from(limits::COMPILES_OF_PROCESS_MAX).unwrap();
    let (sender, refusals) = mpsc::channel();
    let open = |_| Session::open(&Options { socket: socket.to_owned(), ..Options::default() }).unwrap();
    let sessions: Vec<_> = (0..COMPILING).map(open).collect();
    for (number, session) in sessions.into_iter().enumerate() {
        let sender = sender.clone();
        thread::spawn(move || match session.load_image(&long_image(number)) {
            Ok(_) => drop(LOADED.fetch_add(1, Ordering::Relaxed)),
            Err(error) => sender.send(error).unwrap(),
        });
    }
    for _ in 0..COMPILING - most {
        let refused = refusals.recv().unwrap();
        assert_eq!(refused.code, ErrorCode::LimitReached, "{refused}");
        assert!(refused.message.contains(&format!("{most} compiles")), "{refused}");
    }
    tell(&format!("{most} images are compiled or wait"));
    hold();
    let loaded = LOADED.load(Ordering::Relaxed);
    tell(&format!("{loaded} of {most} were compiled meanwhile"));
    assert!(loaded < most, "the newcomer's image has come last");
}

#[test]
fn one_process_fills_the_places_to_compile_at() {
    const NAME: &str = "one_process_fills_the_places_to_compile_at";
    if let Some(socket) = child::role() {
        return fill_compile_places(&socket);
    }
    // Enough sessions to come to the limit of places.
    let kernel = Kernel::with(&["--process-limit", &format!("sessions={}", COMPILING + 2)]);
    act_apart(&kernel, "images that take long to compile", NAME, newcomer);
}

#[test]
fn one_process_connects_for_descriptors_and_asks_for_none() {
    const NAME: &str = "one_process_connects_for_descriptors_and_asks_for_none";
    const SILENT: usize = 2 * limits::DESCRIPTOR_CONNECTIONS_MAX;
    if let Some(socket) = child::role() {
        let path = socket.with_file_name("descriptors.sock");
        let silent: Vec<OwnedFd> = (0..SILENT).map(|_| descriptor_socket(&path)).collect();
        // Whoever is let in is told that a guess is none.
        let served = silent.iter().filter(|socket| exchange(socket, &[7; 16], None).is_some()).count();
        assert_eq!(served as u64, limits::DESCRIPTOR_CONNECTIONS_OF_PROCESS_MAX);
        tell(&format!("{served} of {SILENT} connections are held"));
        return hold();
    }
    act_apart(&strict_kernel(), "connections for descriptors", NAME, |kernel| {
        (0..10).for_each(|_| newcomer(kernel));
    });
}
