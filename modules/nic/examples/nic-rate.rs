//! How many datagrams of 64 bytes a second the model NIC sends when a thread of the host drives it, and how long a datagram
//! takes to a peer and back, by the model and by a socket.
//!
//! `cargo run --release -p bulkhead-nic --example nic-rate`, or with `--answer PORT COUNT` a peer at that port until it is ended:
//! one that answers so many datagrams, or all (-1), and reads no more.

#![expect(clippy::unwrap_used, reason = "an example that fails may panic")]
#![expect(unreachable_pub, dead_code, reason = "a module of the tests")]

#[path = "../tests/nic/driver.rs"]
mod driver;

use std::{
    io::ErrorKind,
    net::{SocketAddr, SocketAddrV4, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use bulkhead_nic::{Sockets, Stepped};
use driver::{Driver, ENTRIES, Which, address, flow, framed, link};

const MEASURED: Duration = Duration::from_secs(1);
const TURNS: usize = 2000;

/// A socket that answers all that comes, until a datagram of no byte.
fn answers() -> (SocketAddrV4, thread::JoinHandle<()>) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let SocketAddr::V4(at) = socket.local_addr().unwrap() else { panic!("not IPv4") };
    socket.set_nonblocking(true).unwrap();
    let answering = thread::spawn(move || {
        let mut bytes = [0; 2048];
        loop {
            let (length, from) = come(&socket, &mut bytes);
            if length == 0 {
                return;
            }
            socket.send_to(&bytes[..length], from).unwrap();
        }
    });
    (at, answering)
}

/// What comes next to a socket that does not block. It is looked for without a pause: how long a core takes to wake up is not to be measured.
fn come(socket: &UdpSocket, bytes: &mut [u8]) -> (usize, SocketAddr) {
    loop {
        match socket.recv_from(bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            came => return came.unwrap(),
        }
    }
}

fn driver(remote: SocketAddrV4) -> (Driver<Sockets>, SocketAddrV4) {
    let mut sockets = Sockets::new().unwrap();
    let local = sockets.open(address("127.0.0.1:0"), Some(remote)).unwrap();
    (Driver::new(vec![flow(0, local, Some(remote))], sockets), local)
}

fn rate() {
    // Whoever is not there hears nothing, as fast as can be; whoever is there and does not read keeps what fits.
    let sink = UdpSocket::bind("127.0.0.1:0").unwrap();
    let SocketAddr::V4(at) = sink.local_addr().unwrap() else { panic!("not IPv4") };
    let (mut driver, local) = driver(at);
    let frame = framed(link(0), local, at, &[7; 64]);
    let mut free: Vec<u16> = (0..ENTRIES).collect();
    let (begun, mut sent) = (Instant::now(), 0_u64);
    while begun.elapsed() < MEASURED {
        while let Some(entry) = free.pop() {
            driver.send(entry, &frame);
        }
        driver.step();
        while let Some((entry, _)) = driver.take(Which::Sends) {
            free.push(entry);
            sent += 1;
        }
    }
    assert_eq!(driver.nic.record_count(), 0);
    println!("host thread, model NIC: {} thousand datagrams of 64 bytes a second", sent / 1000);
}

fn tell(name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let (median, slow) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    println!(
        "{name}: round trip p50 {:.2} us, p99 {:.2} us",
        median.as_secs_f64() * 1e6,
        slow.as_secs_f64() * 1e6
    );
}

fn turns_of_the_model(to: SocketAddrV4) {
    let (mut driver, local) = driver(to);
    let frame = framed(link(0), local, to, &[7; 64]);
    let turns = (0..TURNS).map(|_| {
        driver.give(0);
        let begun = Instant::now();
        driver.send(0, &frame);
        while driver.take(Which::Receives).is_none() {
            driver.step();
        }
        while driver.take(Which::Sends).is_none() {
            assert_ne!(driver.step(), Stepped::Waits);
        }
        begun.elapsed()
    });
    tell("host thread, model NIC", turns.collect());
}

fn turns_of_a_socket(to: SocketAddrV4) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(to).unwrap();
    // As the model does: it spins.
    socket.set_nonblocking(true).unwrap();
    let mut bytes = [0; 2048];
    let turns = (0..TURNS).map(|_| {
        let begun = Instant::now();
        socket.send(&[7; 64]).unwrap();
        while socket.recv(&mut bytes).is_err() {}
        begun.elapsed()
    });
    tell("host thread, socket", turns.collect());
    socket.send(&[]).unwrap();
}

/// A peer for kernels.
fn answer(port: &str, count: &str) {
    let socket = UdpSocket::bind(("127.0.0.1", port.parse().unwrap())).unwrap();
    socket.set_nonblocking(true).unwrap();
    let count: i64 = count.parse().unwrap();
    let mut bytes = [0; 2048];
    for _ in 0..u64::try_from(count).unwrap_or(u64::MAX) {
        let (length, from) = come(&socket, &mut bytes);
        // Whoever has gone meanwhile is not answered.
        socket.send_to(&bytes[..length], from).unwrap_or_default();
    }
    loop {
        thread::park();
    }
}

fn main() {
    let words: Vec<_> = std::env::args().skip(1).collect();
    if let [what, port, count] = &words[..]
        && what == "--answer"
    {
        return answer(port, count);
    }
    rate();
    let (to, answering) = answers();
    turns_of_the_model(to);
    turns_of_a_socket(to);
    answering.join().unwrap();
}
