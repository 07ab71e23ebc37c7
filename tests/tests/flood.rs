//! A peer that asks for very much and reads nothing costs the kernel little, and nobody else anything.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{
    fs,
    io::Write as _,
    os::unix::net::UnixStream,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use bulkhead_schema::{bulkhead_capnp::bulkhead, limits};
use bulkhead_tests::{
    fuzz::{
        message::{Body, Call, Message, Pointer, Results, Target},
        neighbour, schema,
    },
    kernel::Kernel,
    patience::PATIENCE,
    process::resident_bytes,
};
use capnp::traits::HasTypeId as _;

/// How much is asked.
const FLOOD_BYTES: usize = 272_000;
/// What the kernel may grow by meanwhile, in bytes.
const GROWTH_BYTES_MAX: u64 = 32 << 20;

fn call(question: u32, name: &str, body: Body) -> Vec<u8> {
    let interfaces = schema::interfaces();
    let first = interfaces.iter().find(|known| known.id == bulkhead::Client::TYPE_ID).unwrap();
    let method = first.methods.iter().find(|method| method.name == name).unwrap();
    let (interface, method) = (method.interface, method.number);
    let (target, table, results) = (Target::Answer(0, Vec::new()), Vec::new(), Results::Caller);
    Message::Call(Call { question, target, interface, method, body, table, results }).encode()
}

/// How many descriptors the system's table of a process has room for.
fn table_of(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("FDSize:")).unwrap();
    size.trim().parse().unwrap()
}

/// Beside threads a table that is full grows only after all processors have come by: for seconds on a busy machine.
#[test]
fn nobody_who_connects_has_the_kernel_or_an_executor_wait_for_a_larger_table_of_descriptors() {
    let kernel = Kernel::start();
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(u64::MAX);
    for process in [kernel.pid(), kernel.status().executor_pid] {
        let room = table_of(process);
        assert!(room >= limit.min(1 << 16), "{room} of {limit}");
    }
}

#[test]
fn a_flood_of_requests_whose_replies_are_not_read_costs_less_than_32_mb() {
    let kernel = Kernel::start();
    let pointers = vec![(0, Pointer::Bytes(b"flood".to_vec()))];
    let hello = Body { data: vec![(32, 0, u64::from(limits::PROTOCOL_VERSION))], pointers };
    let mut flood = [Message::Bootstrap(0).encode(), call(1, "hello", hello)].concat();
    // The largest answers that there are without a session.
    for question in 2.. {
        if flood.len() >= FLOOD_BYTES {
            break;
        }
        flood.extend(call(question, "listDevices", Body::default()));
    }
    let before = resident_bytes(kernel.pid());
    let stop = AtomicBool::new(false);
    let (most, pings) = thread::scope(|scope| {
        let socket = kernel.socket();
        let stop = &stop;
        let pings = scope.spawn(move || neighbour::ping(&socket, stop, Duration::from_millis(1), PATIENCE));
        let mut stream = UnixStream::connect(kernel.socket()).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
        // The kernel may have stopped reading before the end.
        let sent = stream.write_all(&flood);
        let (start, mut most) = (Instant::now(), before);
        while start.elapsed() < Duration::from_secs(1) {
            most = most.max(resident_bytes(kernel.pid()));
            thread::sleep(Duration::from_millis(2));
        }
        stop.store(true, Ordering::Relaxed);
        println!("{} bytes of requests: {sent:?}", flood.len());
        (most, pings.join().unwrap().unwrap())
    });
    let grown = most.saturating_sub(before);
    println!("the kernel grew by {grown} bytes; {} pings, {:?} at most", pings.count, pings.longest);
    assert!(grown < GROWTH_BYTES_MAX, "the kernel grew by {grown} bytes");
    assert!(pings.count > 10, "the neighbour was hardly answered");
}
