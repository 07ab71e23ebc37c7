//! Nobody waits for whoever reads the kernel's log, and clients cannot fill it.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{
    fs,
    io::{PipeReader, Read as _},
    os::unix::net::UnixStream,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use bulkhead_client::{Options, Session};
use bulkhead_tests::{kernel::Kernel, patience::until, process::bulkhead, scratch::Scratch, status};

struct Served {
    child: Child,
    place: Scratch,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// A kernel that says all it has to say to a pipe that nobody reads.
fn unread() -> (Served, PipeReader) {
    let place = Scratch::new();
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = bulkhead(&["serve", "--with-parent", "--backend", "software"]);
    command.args(["--process-limit", "connections=240"]);
    command.arg("--runtime-directory").arg(place.path().join("run")).env("BULKHEAD_LOG", "trace");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(writer);
    let child = command.spawn().unwrap();
    (Served { child, place }, reader)
}

#[test]
fn a_kernel_whose_log_nobody_reads_serves_on() {
    let (served, mut reader) = unread();
    let socket = served.place.path().join("run/kernel.sock");
    until("its executor runs", || status::of(&socket).is_ok_and(|status| status.executor_pid != 0));
    let options = |name: &str| Options { socket: socket.clone(), name: name.into(), ..Options::default() };
    let session = Session::open(&options("patient")).unwrap();
    // Much more than a pipe and the queue hold: each is a line, or several.
    let mut worst = Duration::ZERO;
    for _ in 0..50 {
        for _ in 0..100 {
            drop(UnixStream::connect(&socket).unwrap());
        }
        let before = Instant::now();
        // Those that were dropped have places until the kernel has seen that.
        until("the kernel answers", || status::of(&socket).is_ok());
        worst = worst.max(before.elapsed());
    }
    for _ in 0..20 {
        assert!(Session::open(&options(&"n".repeat(1000))).is_err());
    }
    println!("the slowest answer took {worst:?}");
    status::of(&socket).unwrap();
    drop(session);
    drop(served);
    let mut told = Vec::new();
    reader.read_to_end(&mut told).unwrap();
    assert!(told.len() < 1 << 20, "a pipe holds less");
}

#[test]
fn a_kernel_tells_who_came_and_who_went_and_not_without_end() {
    let kernel = Kernel::start();
    let session = kernel.open("a name\x1b[2J\nsession opened");
    drop(session);
    let log = || fs::read_to_string(kernel.log_path()).unwrap();
    until("the end is told", || log().contains("session over"));
    let told = log();
    assert_eq!(told.lines().filter(|line| line.contains("session opened session=")).count(), 1, "{told}");
    assert!(!told.contains('\x1b'), "{told}");
    let end = told.lines().find(|line| line.contains("session over")).unwrap();
    for part in ["pid=", "principal=", "code=SessionLost", "why=", "device_bytes="] {
        assert!(end.contains(part), "{end}");
    }
    for _ in 0..150 {
        drop(kernel.open("one of many"));
    }
    let lines = log().lines().count();
    assert!(lines < 400, "{lines} lines");
}
