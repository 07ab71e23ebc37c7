//! What the link does with executors of every kind.

use std::{
    io::{IoSlice, Write},
    mem::MaybeUninit,
    net::{TcpListener, TcpStream},
    thread,
};

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sockopt};

use capnp::{message, serialize};

use super::*;
use crate::{Quota, principals::Principals, transport::door::Peer};

const PATIENCE: Duration = Duration::from_millis(200);

fn id(packet: &[u8]) -> (u64, bool) {
    let message = serialize::read_message(packet, message::ReaderOptions::new()).unwrap();
    let request: executor_capnp::request::Reader<'_> = message.get_root().unwrap();
    let describes = matches!(request.which().unwrap(), executor_capnp::request::Which::Describe(()));
    (request.get_id(), describes)
}

/// An executor that says that it is there, and never is done with anything else.
fn busy(socket: OwnedFd) {
    let mut buffer = vec![0; limits::PACKET_BYTES_MAX];
    while let Ok((_, bytes @ 1..)) = rustix::net::recv(&socket, buffer.as_mut_slice(), RecvFlags::empty()) {
        let (id, describes) = id(&buffer[..bytes]);
        if !describes {
            continue;
        }
        let mut message = message::Builder::new_default();
        let mut reply: executor_capnp::reply::Builder<'_> = message.init_root();
        reply.set_id(id);
        reply.set_ok(());
        let words = serialize::write_message_to_words(&message);
        // The test may be over by now.
        if rustix::net::send(&socket, &words, SendFlags::NOSIGNAL).is_err() {
            break;
        }
    }
}

fn with_link<F: Future<Output = ()>>(
    executor: impl FnOnce(OwnedFd) + Send + 'static,
    test: impl FnOnce(Rc<Link>) -> F,
) {
    with_patient_link(PATIENCE, executor, test);
}

fn with_patient_link<F: Future<Output = ()>>(
    patience: Duration,
    executor: impl FnOnce(OwnedFd) + Send + 'static,
    test: impl FnOnce(Rc<Link>) -> F,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let (ours, theirs) = Packets::pair().unwrap();
        let executor = thread::spawn(|| executor(theirs));
        let link = Link::start(ours, patience).unwrap();
        test(Rc::clone(&link)).await;
        link.fail_with("the test ends");
        drop(link);
        tokio::task::yield_now().await;
        executor.join().unwrap();
    });
}

#[test]
fn an_executor_is_not_blamed_for_a_kernel_that_was_held_up() {
    with_link(busy, async |link| {
        let pending = link.call(None, Vec::new(), |mut request| request.set_drain(1));
        for stall in [3, 10] {
            thread::sleep(PATIENCE * stall);
            tokio::time::sleep(PATIENCE / 2).await;
            assert_eq!(link.failure(), None);
        }
        tokio::time::sleep(PATIENCE * 3).await;
        assert_eq!(link.failure(), None, "it says that it is there");
        drop(pending);
    });
}

#[test]
fn what_undoes_something_is_asked_however_much_waits() {
    with_link(busy, async |link| {
        let activity = |of| link.call(Some(of), Vec::new(), |mut request| request.set_activity(()));
        let mut all: Vec<_> = std::iter::from_fn(|| link.requests.take(None).ok()).collect();
        assert_eq!(all.len(), limits::EXECUTOR_REQUESTS_MAX);
        all.pop();
        let waiting = activity(1);
        let refused = activity(2).await.map(drop).unwrap_err();
        assert_eq!(refused.code, ErrorCode::LimitReached);
        let closing = link.call(Some(2), Vec::new(), |mut request| request.set_close_session(2));
        let closed = tokio::time::timeout(PATIENCE * 4, closing).await;
        assert!(closed.is_err(), "it is sent, and waits for its answer");
        assert_eq!(link.failure(), None, "whether the executor is there is asked too");
        // What is forgotten with its session makes room.
        link.forget_session(1);
        assert!(tokio::time::timeout(PATIENCE, activity(2)).await.is_err(), "it is sent");
        drop((waiting, all));
    });
}

#[test]
fn an_executor_that_says_nothing_is_lost() {
    let silent = |socket: OwnedFd| {
        while matches!(rustix::net::recv(&socket, &mut [0; 64], RecvFlags::empty()), Ok((1.., _))) {}
    };
    with_link(silent, async |link| {
        let pending = link.call(None, Vec::new(), |mut request| request.set_drain(1));
        assert_eq!(pending.await.err().map(|error| error.code), Some(ErrorCode::DeviceLost));
    });
}

/// An executor that reads nothing, and answers what it thinks is asked.
fn deaf(socket: OwnedFd) {
    for id in 1..200 {
        let mut message = message::Builder::new_default();
        let mut reply: executor_capnp::reply::Builder<'_> = message.init_root();
        reply.set_id(id);
        reply.set_ok(());
        let words = serialize::write_message_to_words(&message);
        thread::sleep(Duration::from_millis(2));
        if rustix::net::send(&socket, &words, SendFlags::NOSIGNAL).is_err() {
            break;
        }
    }
}

fn party() -> Rc<Party> {
    let all = Quota::UNLIMITED;
    Principals::new(all, all, all, Vec::new()).of(Peer { uid: 1, pid: None })
}

fn long(link: &Link) -> Answering {
    let words = u32::try_from(limits::PACKET_BYTES_MAX / 8 - 100).unwrap();
    link.call(None, Vec::new(), |request| {
        request.init_ask_driver().init_words(words);
    })
}

#[test]
fn an_executor_that_answers_what_it_was_not_sent_is_lost() {
    with_link(deaf, async |link| {
        let pending: Vec<_> = (0..100).map(|_| long(&link)).collect();
        let failure = link.ended().await;
        assert!(failure.reason.contains("was not sent yet"), "{failure:?}");
        drop(pending);
    });
}

#[test]
fn what_waits_for_an_executor_that_does_not_read_is_bounded() {
    let (over, wait) = std::sync::mpsc::channel::<()>();
    let mute = move |socket: OwnedFd| {
        wait.recv().unwrap_err();
        drop(socket);
    };
    with_link(mute, async move |link| {
        link.belongs_to(&party());
        let mut pending = Vec::new();
        while link.unread_bytes.get() + limits::PACKET_BYTES_MAX <= UNREAD_BYTES_MAX {
            pending.push(long(&link));
        }
        assert!(pending.len() < 300, "{}", pending.len());
        assert_eq!(long(&link).await.err().map(|error| error.code), Some(ErrorCode::LimitReached));
        drop(over);
    });
}

#[test]
fn who_has_failed_costs_no_descriptor_and_its_reason_is_short() {
    with_link(busy, async |link| {
        let pending = link.call(None, Vec::new(), |mut request| request.set_drain(1));
        link.fail_with("\u{e9}".repeat(1 << 20));
        let error = pending.await.err().unwrap();
        assert!(error.message.len() < 2 * REASON_BYTES_MAX, "{}", error.message.len());
        assert!(link.packets.borrow().is_none() && link.receiver.borrow().is_none());
    });
}

#[test]
fn what_an_executor_brings_about_in_the_log_is_its_principals() {
    with_link(busy, async |link| {
        assert!((0..1000).all(|_| link.line().is_some()), "it is everybody's");
        link.belongs_to(&party());
        assert!((0..1000).filter(|_| link.line().is_some()).count() < 500);
    });
}

/// An executor that tells so often that a session wants to come back.
fn teller(socket: OwnedFd, times: u64) {
    for _ in 0..times {
        let mut message = message::Builder::new_default();
        let mut reply: executor_capnp::reply::Builder<'_> = message.init_root();
        reply.set_wanted(7);
        let words = serialize::write_message_to_words(&message);
        if rustix::net::send(&socket, &words, SendFlags::NOSIGNAL).is_err() {
            break;
        }
    }
    busy(socket);
}

#[test]
fn an_executor_that_tells_without_end_of_sessions_it_does_not_have_is_lost() {
    let crossing = |socket| teller(socket, UNAWAITED_MAX);
    with_link(crossing, async |link| {
        tokio::time::sleep(PATIENCE * 2).await;
        assert_eq!(link.failure(), None, "it may have crossed with the end of a wait");
    });
    let endless = |socket| teller(socket, UNAWAITED_MAX * 4);
    with_link(endless, async |link| {
        let failure = link.ended().await;
        assert!(failure.reason.contains("again and again"), "{failure:?}");
    });
}

/// How long closing a trap takes.
const LINGER: Duration = Duration::from_secs(30);

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

/// An executor that exports traps.
fn exporter(socket: &OwnedFd, traps: impl IntoIterator<Item = OwnedFd>) {
    let mut buffer = vec![0; limits::PACKET_BYTES_MAX];
    for trap in traps {
        let received = rustix::net::recv(socket, buffer.as_mut_slice(), RecvFlags::empty());
        let Ok((_, bytes @ 1..)) = received else { return };
        let mut message = message::Builder::new_default();
        let mut reply: executor_capnp::reply::Builder<'_> = message.init_root();
        reply.set_id(id(&buffer[..bytes]).0);
        reply.set_exported(());
        let words = serialize::write_message_to_words(&message);
        let passed = [trap.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&passed)));
        rustix::net::sendmsg(socket, &[IoSlice::new(&words)], &mut control, SendFlags::NOSIGNAL).unwrap();
    }
    // It says nothing more until it is hung up on.
    while matches!(rustix::net::recv(socket, buffer.as_mut_slice(), RecvFlags::empty()), Ok((_, 1..))) {}
}

#[test]
fn what_was_exported_is_handed_on_and_holds_up_its_own_link_only() {
    let (traps, peers): (Vec<_>, Vec<_>) = (0..3).map(|_| trap()).unzip();
    // A busy machine may take some time to hand on the first two.
    with_patient_link(
        PATIENCE * 15,
        move |socket| exporter(&socket, traps),
        async |link| {
            let export = || link.call(None, Vec::new(), |mut request| request.set_drain(1));
            let exported = async || match export().await {
                Ok(Answer::Exported(Some(passed))) => passed,
                other => panic!("{other:?}"),
            };
            let start = std::time::Instant::now();
            let (packets, theirs) = Packets::pair().unwrap();
            let theirs = Packets::new(theirs).unwrap();
            let to = Link::start(packets, LINGER).unwrap();
            let adopted = to.call_with_passed(1, exported().await, None, |mut request| request.set_drain(1));
            assert!(theirs.wait().await.unwrap(), "it comes with a descriptor");
            drop(exported().await);
            // What comes next waits until that is closed, which is too long.
            assert_eq!(export().await.err().map(|error| error.code), Some(ErrorCode::DeviceLost));
            assert!(start.elapsed() < LINGER / 2, "it was closed on this thread");
            to.fail_with("the test ends");
            drop(adopted);
            thread::spawn(move || drop(theirs));
        },
    );
    drop(peers);
}
