//! Hostile acts: whatever one client does, the kernel answers the others, and nobody else loses anything.
//!
//! Each act runs beside a client that pings and one that computes; how long the pings took is printed.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::Path,
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use bulkhead_client::{Connection, ErrorCode, Session};
use bulkhead_schema::{
    bulkhead_capnp::{gpu_copy_session, result},
    limits,
};
use bulkhead_tests::{
    act::{STOPPED, act, act_on},
    hostile::{descriptor_socket, flood, pass, trap},
    kernel::Kernel,
    neighbour::Neighbour,
    patience::PATIENCE,
    place,
    process::{self, descriptors_max, set_descriptors_max},
    skip::skipped,
    status::local,
};
use rustix::process::{Rlimit, Signal};

/// How long the closing of a trap takes.
const LINGER: Duration = Duration::from_secs(6);

/// Passes sockets that are slow to close wherever something can be passed.
fn set_traps(kernel: &Kernel) {
    let (mut peers, mut silent) = (Vec::new(), Vec::new());
    let mut next = || {
        let (trap, peer) = trap(LINGER);
        peers.push(peer);
        trap
    };
    let stream = || UnixStream::connect(kernel.socket()).unwrap();
    for _ in 0..3 {
        // The first word of a message; no message at all; a connection that stays; packets of the wrong length and the right.
        pass(stream(), &[0; 8], next());
        pass(stream(), &[0xff; 64], next());
        let stays = stream();
        pass(&stays, &[0; 4], next());
        silent.push(stays);
        pass(descriptor_socket(&kernel.descriptor_socket()), &[7; 16], next());
        pass(descriptor_socket(&kernel.descriptor_socket()), &[7; 3], next());
        thread::sleep(Duration::from_millis(300));
    }
}

#[test]
fn sockets_that_are_slow_to_close_are_passed() {
    act("passed sockets that linger", set_traps);
}

#[test]
fn sockets_that_are_slow_to_close_are_passed_where_connections_are_relayed() {
    let kernel = Kernel::with(&["--relay"]);
    act_on(&kernel, "passed sockets that linger, relayed", STOPPED, set_traps);
}

/// A kernel that has not the rights of the system's administrator, for whom there is no limit on descriptors that are
/// on their way, and at most so many open files.
fn humble_kernel(files: u32, arguments: &[&str]) -> Option<Kernel> {
    let script = format!("ulimit -n {files} && exec \"$0\" \"$@\"");
    let unprivileged = ["unshare", "--user", "--map-root-user"];
    let wrapped: Vec<&str> = match rustix::process::geteuid().is_root() {
        true if !process::runs(&["unshare", "--user", "--map-root-user", "true"]) => return None,
        true => unprivileged.into_iter().chain(["sh", "-c", &script]).collect(),
        false => vec!["sh", "-c", &script],
    };
    Some(Kernel::wrapped(&wrapped, arguments))
}

/// Held by tests of which one takes the descriptors that the system lets a user have on their way.
static ON_THEIR_WAY: Mutex<()> = Mutex::new(());

#[test]
fn as_many_descriptors_are_on_their_way_as_the_system_allows() {
    let _alone = ON_THEIR_WAY.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(kernel) = humble_kernel(4096, &[]) else { return skipped("no user namespaces") };
    act_on(&kernel, "descriptors on their way", STOPPED, |kernel| {
        let file = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let flooded = flood(&file, 8192);
        for attempt in 0..20 {
            let refused =
                Session::open(&kernel.options("refused")).err().expect("no descriptor can be passed");
            assert_eq!(refused.code, ErrorCode::LimitReached, "{attempt}: {refused}");
        }
        drop(flooded);
        Neighbour::new(kernel, "afterwards").work();
    });
}

#[test]
fn the_executor_has_no_place_for_more_descriptors() {
    act("an executor without descriptors", |kernel| {
        let executor = kernel.status().executor_pid;
        let before = descriptors_max(executor);
        set_descriptors_max(executor, Rlimit { current: Some(0), ..before });
        for attempt in 0..20 {
            let refused =
                Session::open(&kernel.options("refused")).err().expect("no descriptor can be passed");
            assert_eq!(refused.code, ErrorCode::LimitReached, "{attempt}: {refused}");
        }
        set_descriptors_max(executor, before);
        Neighbour::new(kernel, "afterwards").work();
    });
}

#[test]
fn the_kernel_has_no_place_for_more_descriptors() {
    act("a kernel without descriptors", |kernel| {
        let before = descriptors_max(kernel.pid());
        // A connection of before, which needs none but the session's.
        let other = Neighbour::new(kernel, "other");
        set_descriptors_max(kernel.pid(), Rlimit { current: Some(0), ..before });
        let waiting: Vec<_> = (0..8).map(|_| UnixStream::connect(kernel.socket()).unwrap()).collect();
        let refused = other.session().load_image(b"no image").err().expect("nothing can be made");
        assert_ne!(refused.code, ErrorCode::DeviceLost, "{refused}");
        thread::sleep(Duration::from_millis(300));
        set_descriptors_max(kernel.pid(), before);
        drop(waiting);
        Neighbour::new(kernel, "afterwards").work();
    });
}

/// Opens sessions, closes each, and keeps the capability for it.
async fn kept(socket: &Path, sessions: usize) -> Result<(), bulkhead_client::Error> {
    let (mut connections, mut held) = (Vec::new(), Vec::new());
    for session in 0..sessions {
        // Descriptors that nobody fetches are so many a connection.
        if session % limits::TOKENS_MAX == 0 {
            connections.push(Connection::open(socket, "keeps what it closed").await?);
        }
        let connection = connections.last().unwrap();
        let response = connection.kernel.open_session_request().send().promise.await.unwrap();
        let opened = match response.get().unwrap().get_result().unwrap().which().unwrap() {
            result::Ok(opened) => opened.unwrap(),
            result::Error(error) => return Err(bulkhead_client::Error::read(error.unwrap())),
        };
        let session = gpu_copy_session::Client { client: opened.get_session().unwrap().client };
        session.close_request().send().promise.await.unwrap();
        held.push(session);
    }
    Ok(())
}

#[test]
fn sessions_are_closed_and_their_capabilities_kept() {
    let _alone = ON_THEIR_WAY.lock().unwrap_or_else(PoisonError::into_inner);
    let more = ["--process-limit", "gone_sessions=1000"];
    let Some(kernel) = humble_kernel(600, &more) else { return skipped("no user namespaces") };
    act_on(&kernel, "sessions that were closed and kept", STOPPED, |kernel| {
        local(kept(&kernel.socket(), 700)).unwrap();
        Neighbour::new(kernel, "meanwhile").work();
    });
    let kernel = Kernel::start();
    let refused = local(kept(&kernel.socket(), 300)).unwrap_err();
    assert_eq!(refused.code, ErrorCode::LimitReached, "{refused}");
    assert!(refused.message.contains("closed sessions of which capabilities are held"), "{refused}");
}

/// An image that nobody has loaded before, long enough to be seen while it is written.
fn new_image(number: usize) -> Vec<u8> {
    let text = ".version 8.0\n.target sm_75\n.address_size 64\n";
    let padding = format!("// {number} {}\n", " ".repeat(1 << 20));
    format!("{text}{padding}.visible .entry e(.param .u64 to)\n{{\n\tret;\n}}\n\0").into_bytes()
}

#[test]
fn leases_are_taken_on_images_that_are_loaded() {
    if !process::runs(&["python3", "--version"]) {
        return skipped("there is no python3");
    }
    let loads_and_leases = |kernel: &Kernel| {
        let options = bulkhead_client::Options { socket: kernel.socket(), ..Default::default() };
        let session = Session::open(&options).unwrap();
        let pid = std::process::id().to_string();
        let mut thief = Command::new("python3")
            .args(["-c", include_str!("../src/leases.py"), &pid])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut told = BufReader::new(thief.stdout.take().unwrap());
        told.read_line(&mut String::new()).unwrap();
        let begun = Instant::now();
        let (mut tried, mut loaded) = (0, 0);
        while begun.elapsed() < Duration::from_secs(2) {
            tried += 1;
            loaded += usize::from(session.load_image(&new_image(tried)).is_ok());
        }
        drop(thief.stdin.take());
        let mut counts = String::new();
        told.read_to_string(&mut counts).unwrap();
        thief.wait().unwrap();
        let counts: Vec<u32> = counts.split_whitespace().map(|count| count.parse().unwrap()).collect();
        println!("{loaded} of {tried} images loaded, of leases on them tried and had: {counts:?}");
        assert!(counts[0] > 0, "no image was seen while it was loaded");
    };
    act("leases on images", loads_and_leases);
}

#[test]
fn the_kernel_is_held_up() {
    let kernel = Kernel::start();
    act_on(&kernel, "a kernel that was stopped for 3 s", Duration::from_secs(10), |kernel| {
        process::signal(kernel.pid(), Signal::STOP);
        thread::sleep(Duration::from_secs(3));
        process::signal(kernel.pid(), Signal::CONT);
        thread::sleep(Duration::from_millis(500));
    });
}

/// What a process of this user could do to another.
fn can_reach(number: u32) -> bool {
    let memory = format!("/proc/{number}/mem");
    std::fs::OpenOptions::new().read(true).write(true).open(memory).is_ok()
        || std::fs::read(format!("/proc/{number}/environ")).is_ok()
}

#[test]
fn nobody_of_the_same_user_reaches_the_memory_of_kernel_and_executor() {
    let kernel = Kernel::start();
    let executor = kernel.status().executor_pid;
    for number in [kernel.pid(), executor] {
        let status = std::fs::read_to_string(format!("/proc/{number}/status")).unwrap();
        assert!(status.contains("NoNewPrivs:\t1"), "it could get more rights");
    }
    if rustix::process::geteuid().is_root() {
        return skipped("the administrator reaches everything");
    }
    for number in [kernel.pid(), executor] {
        assert!(!can_reach(number), "the memory of {number} is in reach");
    }
}

#[test]
fn a_compile_process_is_confined_before_it_has_an_image() {
    let text = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry nothing()\n{\n\tret;\n}\n";
    let mut command = Command::new(place::bulkhead());
    command.args(["compiler", "--architecture", "90"]).env_clear();
    let mut compiler = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut image = compiler.stdin.take().unwrap();
    let status = format!("/proc/{}/status", compiler.id());
    let deadline = Instant::now() + PATIENCE;
    // It has nothing to read yet, and its filter stands.
    while !std::fs::read_to_string(&status).unwrap().contains("Seccomp:\t2\n") {
        assert!(Instant::now() < deadline, "the compile process waits for its image without a filter");
        thread::sleep(Duration::from_millis(10));
    }
    image.write_all(text.as_bytes()).unwrap();
    drop(image);
    let done = compiler.wait_with_output().unwrap();
    assert!(done.status.success(), "{}", done.status);
    assert!(
        String::from_utf8_lossy(&done.stdout).contains(".entry bh_e_nothing"),
        "it has not compiled the image"
    );
}

#[test]
fn a_program_in_a_pid_namespace_of_its_own_connects() {
    let apart = ["unshare", "--pid", "--fork", "--user", "--map-root-user"];
    if !process::runs(&[&apart[..], &["true"]].concat()) {
        return skipped("no namespaces");
    }
    let kernel = Kernel::start();
    let mut command = process::bulkhead_in(&apart, &["status", "--socket"]);
    let done = process::run(command.arg(kernel.socket()), PATIENCE);
    assert_eq!(done.code(), Some(0), "{}", done.told());
}
