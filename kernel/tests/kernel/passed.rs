//! Descriptors that clients pass along: none is ever closed where that holds up anybody else.

use std::{
    io::{IoSlice, Write},
    mem::MaybeUninit,
    net::{TcpListener, TcpStream},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    time::{Duration, Instant},
};

use bulkhead_kernel::Relay;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sockopt};

use crate::{
    fake::Manners,
    harness::{Client, descriptor_socket, everything_given_back, until, with_changed_kernel},
};

/// How long closing a trap takes.
const LINGER: Duration = Duration::from_secs(8);
/// Whoever is held up for so long waits for a trap.
const STOPPED: Duration = Duration::from_secs(2);

/// A TCP socket whose last close waits for a peer that never reads, and that peer.
fn trap() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut trap = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    trap.set_nonblocking(true).unwrap();
    while trap.write(&[0; 1 << 16]).is_ok() {}
    trap.set_nonblocking(false).unwrap();
    sockopt::set_socket_linger(&trap, Some(LINGER)).unwrap();
    (trap.into(), peer)
}

/// Passes a descriptor along with some bytes, and keeps no copy.
fn pass(socket: impl AsFd, bytes: &[u8], passed: OwnedFd) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [passed.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    // Refused where the system can.
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)
        .unwrap_or_default();
    // Closed by a thread that has the time, where nobody took it.
    std::thread::spawn(move || drop(passed));
}

/// Lets a client ping while traps are set, and the kernel end.
fn nobody_waits(relay: Relay, set: impl FnOnce(&Path) -> Vec<TcpStream> + Send + 'static) {
    let mut peers = Vec::new();
    let mut start = Instant::now();
    with_changed_kernel(
        Manners::default(),
        |config| config.relay = relay,
        async |harness| {
            let client = Client::new(&harness.directory).await;
            let session = client.open("neighbour").await.unwrap();
            let directory = harness.directory.clone();
            let set = tokio::task::spawn_blocking(move || set(&directory));
            let until_then = Instant::now() + Duration::from_secs(1);
            while Instant::now() < until_then || !set.is_finished() {
                let asked = Instant::now();
                assert!(client.alive().await);
                drop(session.allocate(4096).await.unwrap());
                assert!(asked.elapsed() < STOPPED, "the kernel was stopped");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            peers = set.await.unwrap();
            drop(session);
            client.leave();
            everything_given_back(&harness.directory).await;
            start = Instant::now();
        },
    );
    assert!(start.elapsed() < STOPPED, "the kernel could not end");
    drop(peers);
}

/// Traps in a connection that is read, in one that is closed unread, and on the socket for descriptors.
fn everywhere(directory: &Path) -> Vec<TcpStream> {
    let mut peers = Vec::new();
    let mut next = || {
        let (trap, peer) = trap();
        peers.push(peer);
        trap
    };
    let stream = || UnixStream::connect(directory.join("kernel.sock")).unwrap();
    // The first word of a message.
    pass(stream(), &[0; 8], next());
    // No message at all: the kernel hangs up.
    pass(stream(), &[0xff; 64], next());
    let silent = stream();
    pass(&silent, &[0; 4], next());
    let packets = descriptor_socket(directory);
    pass(&packets, &[7; 16], next());
    pass(&packets, &[7; 3], next());
    pass(descriptor_socket(directory), &[7; 16], next());
    peers
}

#[test]
fn a_passed_descriptor_that_is_slow_to_close_stops_nobody() {
    nobody_waits(Relay::WhereNeeded, everywhere);
}

#[test]
fn a_relay_closes_what_is_slow_to_close_by_itself() {
    nobody_waits(Relay::Always, everywhere);
}

#[test]
fn what_is_passed_to_a_connection_beyond_the_limit_stops_nobody_either() {
    for relay in [Relay::WhereNeeded, Relay::Always] {
        let change = move |config: &mut bulkhead_kernel::Config| {
            (config.relay, config.limits.connections_max) = (relay, 2);
        };
        with_changed_kernel(Manners::default(), change, async |harness| {
            let client = Client::new(&harness.directory).await;
            let other = Client::new(&harness.directory).await;
            let mut peers = Vec::new();
            for _ in 0..4 {
                let (trap, peer) = trap();
                peers.push(peer);
                pass(UnixStream::connect(harness.directory.join("kernel.sock")).unwrap(), &[0; 8], trap);
                let asked = Instant::now();
                assert!(client.alive().await);
                assert!(asked.elapsed() < STOPPED, "the kernel was stopped");
            }
            other.leave();
            until(async || client.alive().await).await;
        });
    }
}

#[test]
fn a_relayed_client_is_served_as_any_other() {
    with_changed_kernel(
        Manners::default(),
        |config| config.relay = Relay::Always,
        async |harness| {
            let client = Client::new(&harness.directory).await;
            let session = client.open("relayed").await.unwrap();
            let socket = descriptor_socket(&harness.directory);
            let (answer, given) = crate::harness::exchange(&socket, &session.ring, None).unwrap();
            assert_eq!((answer, given.len()), (vec![0], 2), "descriptors pass through it");
            drop(session);
            client.leave();
            everything_given_back(&harness.directory).await;
        },
    );
}
