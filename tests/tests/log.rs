//! Nobody waits for whoever reads the kernel's log, and clients cannot fill it.

use std::{
    fs,
    io::Read as _,
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use bulkhead_client::Session;
use bulkhead_tests::{kernel::Kernel, patience::until, status};

#[test]
fn a_kernel_whose_log_nobody_reads_serves_on() {
    let (kernel, mut reader) = Kernel::unread(&[]);
    let socket = kernel.socket();
    let session = kernel.open("patient");
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
        assert!(Session::open(&kernel.options(&"n".repeat(1000))).is_err());
    }
    println!("the slowest answer took {worst:?}");
    status::of(&socket).unwrap();
    drop(session);
    // Nor does its end wait for whoever reads.
    drop(kernel);
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
    for part in ["pid=", "principal=", "why=", "device_bytes="] {
        assert!(end.contains(part), "{end}");
    }
    assert!(!end.contains("code="), "a client that leaves has made no mistake: {end}");
    for _ in 0..150 {
        drop(kernel.open("one of many"));
    }
    let lines = log().lines().count();
    assert!(lines < 400, "{lines} lines");
}
