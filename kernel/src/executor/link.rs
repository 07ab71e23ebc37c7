//! The conversation with one executor process.
//!
//! Requests are sent in the order they were made and answered in any order. What is asked for a session waits for that
//! session's work, and on a full device for its neighbours', so no single answer has a deadline: one tenant's endless
//! kernel would end everybody. What has one is the executor itself: while something is pending and nothing was heard
//! for [`limits::REQUEST_SECONDS`], it is asked to describe its device, which waits for nothing, and an executor that
//! is silent for as long again is not there any more. Time in which the kernel itself was held up does not count.
//!
//! Where the system has no descriptors, or no room for them on their way, the request that needs them fails, and the
//! executor lives: a client can bring that about.
//!
//! What an executor passes along is received, and closed, by a thread of its link ([`passed`](super::passed)).
//!
//! An executor that breaks the protocol, stays silent, reports that its device is lost or goes away has failed: the link
//! ends, once, and everything that was asked and not answered fails.

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::HashMap,
    future::Future,
    io,
    os::fd::{AsFd, OwnedFd},
    pin::Pin,
    rc::Rc,
    time::Duration,
};

use bulkhead_schema::{Error, ErrorCode, executor_capnp, limits};
use capnp::{message, serialize};
use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    answer::{self, Answer},
    passed::{Packet, Passed, Receiver},
};
use crate::{
    packets::{Packets, is_shortage},
    principals::Lines,
};

/// Why the executor of an isolated session is hung up on.
pub(super) const SESSION_OVER: &str = "its session is over";
/// How long a request waits where the system has no memory for it.
const SHORTAGE: Duration = Duration::from_millis(10);
/// A timer that is late by this part of what it was set to was held up.
const LATE: u32 = 4;

/// So often an executor may tell of sessions of which nobody waits to hear, and once more for each that somebody did: what
/// crossed with the end of the wait. One that was taken over has no other way to keep the kernel busy unasked.
const UNAWAITED_MAX: u64 = 1024;

/// Why an executor is not there any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) reason: String,
    /// CUDA's number for it where the executor told one, else 0.
    pub(crate) device: u32,
}

impl Failure {
    fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), device: 0 }
    }

    /// What those who relied on it are told.
    pub(crate) fn error(&self) -> Error {
        Error::new(ErrorCode::DeviceLost, format!("the GPU's executor is lost: {}", self.reason))
            .remedy("open a new session: a new executor is being started")
            .device(self.device)
    }
}

/// What was asked and not answered.
struct Pending {
    /// The session that it was asked for.
    session: Option<u32>,
    /// Whoever asked. It may have gone away, and it may be the link itself, to hear whether the executor is there.
    caller: Option<oneshot::Sender<Result<Answer, Error>>>,
    /// Whoever waits for the first of two answers.
    quiescent: Option<oneshot::Sender<()>>,
}

impl Pending {
    fn answer(self, result: Result<Answer, Error>) {
        if let Some(caller) = self.caller {
            drop(caller.send(result));
        }
    }
}

struct Outgoing {
    id: u64,
    bytes: Vec<u8>,
    along: Along,
}

/// What goes along with a request.
#[derive(Default)]
struct Along {
    descriptors: Vec<OwnedFd>,
    /// From another executor.
    passed: Option<Passed>,
}

impl From<Vec<OwnedFd>> for Along {
    fn from(descriptors: Vec<OwnedFd>) -> Self {
        Self { descriptors, passed: None }
    }
}

/// One executor process, as seen over its socket.
pub(crate) struct Link {
    /// Above the receiver, whose thread closes the socket last.
    packets: Packets,
    receiver: Receiver,
    outgoing: mpsc::UnboundedSender<Outgoing>,
    pending: RefCell<HashMap<u64, Pending>>,
    next: Cell<u64>,
    /// When the executor last said something, or was first asked after it had nothing to answer.
    heard: Cell<Instant>,
    asked: Notify,
    failure: OnceCell<Failure>,
    /// What a lack of descriptors or memory may say in the log: whoever brings it about may do so without end.
    shortages: Lines,
    ended: CancellationToken,
    /// Sessions whose end the executor may tell.
    sessions: RefCell<HashMap<u32, oneshot::Sender<Error>>>,
    /// Sessions that are swapped out, and may want to come back.
    swapped: RefCell<HashMap<u32, oneshot::Sender<()>>>,
    /// How many were ever awaited of both, and how often it told of one that was not.
    awaited: Cell<u64>,
    unawaited: Cell<u64>,
    /// How long it may be silent.
    patience: Duration,
}

impl Link {
    /// Starts the conversation.
    ///
    /// # Errors
    /// Where there is no thread or no descriptor for it.
    pub(crate) fn start(packets: Packets, patience: Duration) -> io::Result<Rc<Self>> {
        let (outgoing, queue) = mpsc::unbounded_channel();
        let receiver = Receiver::start(packets.another()?)?;
        let link = Rc::new(Self {
            packets,
            receiver,
            outgoing,
            pending: RefCell::default(),
            next: Cell::new(1),
            heard: Cell::new(Instant::now()),
            asked: Notify::new(),
            failure: OnceCell::new(),
            shortages: Lines::new(),
            ended: CancellationToken::new(),
            sessions: RefCell::default(),
            swapped: RefCell::default(),
            awaited: Cell::new(0),
            unawaited: Cell::new(0),
            patience,
        });
        let running = Rc::clone(&link);
        tokio::task::spawn_local(async move {
            let failure = tokio::select! {
                biased;
                () = running.ended.cancelled() => return,
                failure = running.receive() => failure,
                failure = running.send(queue) => failure,
                failure = running.watch() => failure,
            };
            running.fail(failure);
        });
        Ok(link)
    }

    /// Why it ended; `None` while it lives.
    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.failure.get()
    }

    /// Waits for its end.
    pub(crate) async fn ended(&self) -> Failure {
        self.ended.cancelled().await;
        self.failure.get().cloned().unwrap_or_else(|| Failure::new("it ended"))
    }

    /// Ends it: everything pending fails, and nothing more is sent or received.
    pub(crate) fn fail(&self, failure: Failure) {
        if self.failure.set(failure.clone()).is_err() {
            return;
        }
        if failure.reason == SESSION_OVER {
            tracing::debug!("the executor of an isolated session is not needed any more");
        } else {
            tracing::warn!(reason = %failure.reason, "an executor failed");
        }
        self.packets.shut_down();
        self.ended.cancel();
        self.sessions.borrow_mut().clear();
        self.swapped.borrow_mut().clear();
        for (_, pending) in self.pending.take() {
            pending.answer(Err(failure.error()));
        }
    }

    /// The same, with the reason only.
    pub(crate) fn fail_with(&self, reason: impl Into<String>) {
        self.fail(Failure::new(reason));
    }

    /// Tells when the executor ends this session on its own. Ends with an error when the link does.
    pub(crate) fn session_ended(&self, session: u32) -> oneshot::Receiver<Error> {
        let (sender, receiver) = oneshot::channel();
        if self.failure.get().is_none() {
            self.awaited.set(self.awaited.get() + 1);
            self.sessions.borrow_mut().insert(session, sender);
        }
        receiver
    }

    /// Tells, once, when a session that is swapped out has something to do. Ends with an error when the link does, or the
    /// session.
    pub(crate) fn session_wanted(&self, session: u32) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        if self.failure.get().is_none() {
            self.awaited.set(self.awaited.get() + 1);
            self.swapped.borrow_mut().insert(session, sender);
        }
        receiver
    }

    /// Forgets what was asked for a session that the executor has closed: it answers nothing of that any more.
    pub(crate) fn forget_session(&self, session: u32) {
        self.sessions.borrow_mut().remove(&session);
        self.swapped.borrow_mut().remove(&session);
        self.pending.borrow_mut().retain(|_, pending| pending.session != Some(session));
    }

    /// Sends a request that is answered twice; the receiver gives the first answer, the future the second. Where the
    /// first never comes, because the request failed, the receiver ends with an error.
    pub(crate) fn call_twice(
        &self,
        session: Option<u32>,
        request: &mut Request,
    ) -> (oneshot::Receiver<()>, Answering) {
        let (sender, receiver) = oneshot::channel();
        let (first, quiescent) = oneshot::channel();
        let pending = Pending { session, caller: Some(sender), quiescent: Some(first) };
        let sent = self.enqueue(pending, Along::default(), request);
        (quiescent, answered(sent, receiver))
    }

    /// Sends a request at once; the future gives the answer. Dropping the future changes nothing for the executor.
    pub(crate) fn call(
        &self,
        session: Option<u32>,
        descriptors: Vec<OwnedFd>,
        build: impl FnOnce(executor_capnp::request::Builder<'_>),
    ) -> Answering {
        self.send_request(session, descriptors, &mut Request::new(build))
    }

    /// The same for a request that was written before, and may be sent to another executor too.
    pub(crate) fn send_request(
        &self,
        session: Option<u32>,
        descriptors: Vec<OwnedFd>,
        request: &mut Request,
    ) -> Answering {
        let (sender, receiver) = oneshot::channel();
        let pending = Pending { session, caller: Some(sender), quiescent: None };
        answered(self.enqueue(pending, descriptors.into(), request), receiver)
    }

    /// The same with what another executor has passed.
    pub(crate) fn call_with_passed(
        &self,
        session: u32,
        passed: Passed,
        build: impl FnOnce(executor_capnp::request::Builder<'_>),
    ) -> Answering {
        let (sender, receiver) = oneshot::channel();
        let pending = Pending { session: Some(session), caller: Some(sender), quiescent: None };
        let along = Along { passed: Some(passed), ..Along::default() };
        answered(self.enqueue(pending, along, &mut Request::new(build)), receiver)
    }

    fn enqueue(&self, pending: Pending, along: Along, request: &mut Request) -> Result<(), Error> {
        if let Some(failure) = self.failure.get() {
            return Err(failure.error());
        }
        if self.pending.borrow().len() >= limits::EXECUTOR_REQUESTS_MAX {
            return Err(Error::new(ErrorCode::LimitReached, "the executor has too many requests to answer"));
        }
        let id = self.next.get();
        self.next.set(id + 1);
        let bytes = request.with_id(id)?;
        if bytes.len() > limits::PACKET_BYTES_MAX {
            return Err(Error::new(ErrorCode::LimitReached, "the request to the executor is too long"));
        }
        if self.outgoing.send(Outgoing { id, bytes, along }).is_err() {
            return Err(Error::new(ErrorCode::DeviceLost, "the executor is gone"));
        }
        if self.pending.borrow().is_empty() {
            self.heard.set(Instant::now());
            self.asked.notify_one();
        }
        self.pending.borrow_mut().insert(id, pending);
        Ok(())
    }

    async fn send(&self, mut queue: mpsc::UnboundedReceiver<Outgoing>) -> Failure {
        while let Some(outgoing) = queue.recv().await {
            let Along { descriptors, passed } = &outgoing.along;
            let own = descriptors.iter().map(AsFd::as_fd);
            let descriptors: Vec<_> = own.chain(passed.iter().filter_map(Passed::descriptor)).collect();
            loop {
                match self.packets.send(&outgoing.bytes, &descriptors).await {
                    Ok(()) => break,
                    Err(error) if !is_shortage(&error) => return gone(&error),
                    // Others have as many descriptors on their way as the system allows: for how long is theirs to say.
                    Err(error) if !descriptors.is_empty() => {
                        if let Some(unsaid) = self.shortages.take() {
                            tracing::warn!(%error, unsaid, "an executor cannot be handed descriptors");
                        }
                        if let Some(pending) = self.pending.borrow_mut().remove(&outgoing.id) {
                            pending.answer(Err(no_descriptors()));
                        }
                        break;
                    }
                    // What says that something ends must arrive.
                    Err(error) => {
                        if let Some(unsaid) = self.shortages.take() {
                            tracing::warn!(%error, unsaid, "a request to an executor waits for the system's memory");
                        }
                        tokio::time::sleep(SHORTAGE).await;
                    }
                }
            }
        }
        Failure::new("nobody can ask it anything any more")
    }

    async fn receive(&self) -> Failure {
        let mut buffer = vec![0; limits::PACKET_BYTES_MAX];
        loop {
            let Packet { bytes, passed } = match self.packet(&mut buffer).await {
                Ok(packet) if packet.bytes.is_empty() => return Failure::new("its process ended"),
                Ok(packet) => packet,
                Err(error) => return gone(&error),
            };
            self.heard.set(Instant::now());
            match answer::decode(&bytes, passed) {
                // Not an answer to anything: it says why it ends.
                Ok(answer::Decoded::Reply(0, Err(error))) => return lost(error),
                Ok(answer::Decoded::Reply(id, result)) => {
                    let Some(pending) = self.pending.borrow_mut().remove(&id) else {
                        return Failure::new(format!("it answered request {id}, which is not waiting"));
                    };
                    let why =
                        result.as_ref().err().filter(|error| error.code == ErrorCode::DeviceLost).cloned();
                    pending.answer(result);
                    if let Some(error) = why {
                        return lost(error);
                    }
                }
                Ok(answer::Decoded::SessionEnded(session, error)) => {
                    let ended = self.sessions.borrow_mut().remove(&session);
                    match ended {
                        // Nobody may wait for it any more.
                        Some(ended) => drop(ended.send(error)),
                        None if self.tells_too_much() => return chatter(),
                        None => {}
                    }
                }
                Ok(answer::Decoded::Quiescent(id)) => {
                    let mut pending = self.pending.borrow_mut();
                    let first = pending.get_mut(&id).and_then(|pending| pending.quiescent.take());
                    let Some(first) = first else {
                        return Failure::new(format!(
                            "it answered request {id}, which is not waiting for that"
                        ));
                    };
                    // Nobody may wait for it any more.
                    first.send(()).unwrap_or_default();
                }
                Ok(answer::Decoded::Wanted(session)) => {
                    let wanted = self.swapped.borrow_mut().remove(&session);
                    match wanted {
                        // Nobody may wait for it any more.
                        Some(wanted) => wanted.send(()).unwrap_or_default(),
                        None if self.tells_too_much() => return chatter(),
                        None => {}
                    }
                }
                Err(error) => return Failure::new(format!("it sent a packet that makes no sense: {error}")),
            }
        }
    }

    /// Counts what it told of a session that nobody waits to hear of; true once that is too much.
    fn tells_too_much(&self) -> bool {
        self.unawaited.set(self.unawaited.get() + 1);
        self.unawaited.get() > UNAWAITED_MAX + self.awaited.get()
    }

    /// The next packet; an empty one means that the executor is gone.
    async fn packet(&self, buffer: &mut [u8]) -> io::Result<Packet> {
        if self.packets.wait().await? {
            return self.receiver.receive(buffer.len()).await;
        }
        let length = self.packets.receive_plain(buffer).await?;
        let bytes = buffer.get(..length);
        let bytes =
            bytes.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a packet is too long"))?;
        Ok(Packet { bytes: bytes.to_vec(), passed: Vec::new() })
    }

    /// Waits for a silence that means that nobody is there.
    async fn watch(&self) -> Failure {
        loop {
            if self.pending.borrow().is_empty() {
                self.asked.notified().await;
                continue;
            }
            let heard = self.heard.get();
            tokio::time::sleep_until(heard + self.patience).await;
            if self.heard.get() != heard || self.pending.borrow().is_empty() {
                continue;
            }
            let watch = Pending { session: None, caller: None, quiescent: None };
            let mut describe = Request::new(|mut request| request.set_describe(()));
            if let Err(error) = self.enqueue(watch, Along::default(), &mut describe) {
                return Failure::new(error.message);
            }
            if self.is_silent(heard).await {
                return Failure::new("it does not answer");
            }
        }
    }

    /// Waits for an answer to what was just asked. Where this process was held up meanwhile, it has to be waited for
    /// again: nothing was sent, or read, in that time.
    async fn is_silent(&self, heard: Instant) -> bool {
        loop {
            let due = Instant::now() + self.patience;
            tokio::time::sleep_until(due).await;
            if self.heard.get() != heard {
                return false;
            }
            let late = due.elapsed();
            if late < self.patience / LATE {
                return true;
            }
            tracing::warn!(?late, "the kernel was held up: its executor is waited for once more");
        }
    }
}

/// What is asked of an executor, or of two.
pub(crate) struct Request(message::Builder<message::HeapAllocator>);

impl Request {
    pub(crate) fn new(build: impl FnOnce(executor_capnp::request::Builder<'_>)) -> Self {
        let mut message = message::Builder::new_default();
        build(message.init_root());
        Self(message)
    }

    fn with_id(&mut self, id: u64) -> Result<Vec<u8>, Error> {
        let request: Result<executor_capnp::request::Builder<'_>, _> = self.0.get_root();
        let mut request = request.map_err(|error| Error::new(ErrorCode::Internal, error.to_string()))?;
        request.set_id(id);
        Ok(serialize::write_message_to_words(&self.0))
    }
}

/// A request that was sent, until it is answered.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Result<Answer, Error>>>>;

fn answered(sent: Result<(), Error>, answer: oneshot::Receiver<Result<Answer, Error>>) -> Answering {
    Box::pin(async move {
        sent?;
        answer.await.unwrap_or_else(|_| Err(never_answered()))
    })
}

/// Descriptors that could not be passed on.
pub(crate) fn no_descriptors() -> Error {
    Error::new(ErrorCode::LimitReached, "the system passes no more descriptors now")
        .remedy("try again when others were closed, or raise the limit of open files")
}

fn never_answered() -> Error {
    Error::new(ErrorCode::Internal, "a request to the executor was never answered")
}

fn lost(error: Error) -> Failure {
    Failure { reason: error.message, device: error.device }
}

fn chatter() -> Failure {
    Failure::new("it tells, again and again, of sessions that it does not have")
}

fn gone(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Failure::new("its process ended"),
        _ => Failure::new(format!("its socket failed: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{IoSlice, Write},
        mem::MaybeUninit,
        net::{TcpListener, TcpStream},
        thread,
    };

    use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sockopt};

    use super::*;

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
        while let Ok((_, bytes @ 1..)) = rustix::net::recv(&socket, buffer.as_mut_slice(), RecvFlags::empty())
        {
            let (id, describes) = id(&buffer[..bytes]);
            if !describes {
                continue;
            }
            let mut message = message::Builder::new_default();
            let mut reply: executor_capnp::reply::Builder<'_> = message.init_root();
            reply.set_id(id);
            reply.set_ok(());
            let words = serialize::write_message_to_words(&message);
            rustix::net::send(&socket, &words, SendFlags::NOSIGNAL).unwrap();
        }
    }

    fn with_link<F: Future<Output = ()>>(
        executor: impl FnOnce(OwnedFd) + Send + 'static,
        test: impl FnOnce(Rc<Link>) -> F,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let (ours, theirs) = Packets::pair().unwrap();
            let executor = thread::spawn(|| executor(theirs));
            let link = Link::start(ours, PATIENCE).unwrap();
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
    fn an_executor_that_says_nothing_is_lost() {
        let silent = |socket: OwnedFd| {
            while matches!(rustix::net::recv(&socket, &mut [0; 64], RecvFlags::empty()), Ok((1.., _))) {}
        };
        with_link(silent, async |link| {
            let pending = link.call(None, Vec::new(), |mut request| request.set_drain(1));
            assert_eq!(pending.await.err().map(|error| error.code), Some(ErrorCode::DeviceLost));
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
        with_link(
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
                let adopted = to.call_with_passed(1, exported().await, |mut request| request.set_drain(1));
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
}
