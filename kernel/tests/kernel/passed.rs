//! Descriptors that clients and executors pass along: none is ever closed where that holds up anybody else.

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
use bulkhead_schema::ErrorCode;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sockopt};

use crate::{
    fake::{Asked, Fake, Manners},
    harness::{Client, descriptor_socket, everything_given_back, until, with_changed_kernel, with_kernel},
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

/// Has an executor do something with traps while a session is being opened in it. It is lost by that, and nobody else
/// waits.
fn an_executor_is_lost(traps: usize, misbehave: impl FnOnce(&Fake, &[OwnedFd])) {
    let mut peers = Vec::new();
    with_kernel(async |harness| {
        let neighbour = Client::new(&harness.directory).await;
        let client = Client::new(&harness.directory).await;
        harness.fake.behave(Manners { holds_opens: true, ..Manners::default() });
        let opening = client.open("victim");
        let misbehaves = async {
            let opens = |asked: &Asked| matches!(asked, Asked::Open { .. });
            until(async || harness.fake.asked().iter().any(opens)).await;
            harness.fake.behave(Manners::default());
            let (passed, theirs): (Vec<_>, Vec<_>) = (0..traps).map(|_| trap()).unzip();
            peers = theirs;
            misbehave(&harness.fake, &passed);
            // Closed by a thread that has the time, where nobody took them.
            std::thread::spawn(move || drop(passed));
            let start = Instant::now();
            while harness.fake.starts() < 2 || start.elapsed() < Duration::from_millis(500) {
                let asked = Instant::now();
                assert!(neighbour.alive().await);
                assert!(asked.elapsed() < STOPPED, "the kernel was stopped");
                assert!(start.elapsed() < LINGER, "the executor was not replaced");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let (opened, ()) = futures::join!(opening, misbehaves);
        assert_eq!(opened.err().map(|error| error.code), Some(ErrorCode::DeviceLost));
        let asked = Instant::now();
        drop(client.open("next").await.unwrap());
        assert!(asked.elapsed() < STOPPED, "the kernel was stopped");
        client.leave();
        neighbour.leave();
        everything_given_back(&harness.directory).await;
    });
    drop(peers);
}

#[test]
fn what_an_executor_passes_for_a_page_and_is_none_stops_nobody() {
    an_executor_is_lost(1, |fake, traps| fake.open_with(&traps[0]));
}

#[test]
fn what_an_executor_passes_along_with_anything_stops_nobody() {
    an_executor_is_lost(1, |fake, traps| fake.pass(traps));
    // More than anything is passed with.
    an_executor_is_lost(8, |fake, traps| fake.pass(traps));
}

#[test]
fn what_an_executor_passed_and_nobody_received_stops_nobody() {
    an_executor_is_lost(3, |fake, traps| traps.chunks(1).for_each(|trap| fake.pass(trap)));
}

#[test]
fn a_page_that_can_shrink_or_is_of_another_size_is_none() {
    use bulkhead_ring::{layout::COMPLETION_BYTES, memory::Completion};
    use rustix::fs::{MemfdFlags, SealFlags};

    let good = rustix::fs::fcntl_get_seals(Completion::create().unwrap().1).unwrap();
    for (bytes, seals) in [(COMPLETION_BYTES as u64, good - SealFlags::SHRINK), (1 << 40, good)] {
        an_executor_is_lost(0, |fake, _| {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let page = rustix::fs::memfd_create("page", flags).unwrap();
            rustix::fs::ftruncate(&page, bytes).unwrap();
            rustix::fs::fcntl_add_seals(&page, seals).unwrap();
            fake.open_with(&page);
        });
    }
}
