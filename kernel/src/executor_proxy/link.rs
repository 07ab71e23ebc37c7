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
//! What an executor passes along is received, and closed, by a thread of its link ([`passed`](crate::executor_proxy::passed)).
//!
//! An executor that breaks the protocol, stays silent, reports that its device is lost or goes away has failed: the link
//! ends, once, and everything that was asked and not answered fails.

mod asked;

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
use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::executor_proxy::{
    answer::{self, Answer},
    passed::{Packet, Passed, Receiver},
    requests::{Place, Requests},
};
use crate::{
    ledger::Charge,
    principals::{Lines, Party},
    transport::packets::{Packets, is_shortage},
};

pub(crate) use asked::Request;

/// Why the executor of an isolated session is hung up on.
pub(super) const SESSION_OVER: &str = "its session is over";
/// What is told of the end of an executor, in bytes.
const REASON_BYTES_MAX: usize = 300;
/// Requests that an isolated session's executor has not read yet, in bytes.
const UNREAD_BYTES_MAX: usize = 32 << 20;
/// Descriptors that go along with them.
const UNREAD_DESCRIPTORS_MAX: usize = 32;
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
    /// What an executor has a hand in is cut: everybody who waits for it gets a copy.
    fn new(reason: impl Into<String>) -> Self {
        let mut reason = reason.into();
        reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX));
        Self { reason, device: 0 }
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
    /// Where it is one of those that are limited.
    place: Option<Place>,
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
    /// From another executor, and what whoever it is for is charged for it.
    passed: Option<(Passed, Option<Charge>)>,
}

impl Along {
    fn count(&self) -> usize {
        self.descriptors.len() + usize::from(self.passed.is_some())
    }
}

impl From<Vec<OwnedFd>> for Along {
    fn from(descriptors: Vec<OwnedFd>) -> Self {
        Self { descriptors, passed: None }
    }
}

/// One executor process, as seen over its socket.
pub(crate) struct Link {
    /// Until the end. Above the receiver, whose thread closes the socket last.
    packets: RefCell<Option<Rc<Packets>>>,
    receiver: RefCell<Option<Rc<Receiver>>>,
    outgoing: mpsc::UnboundedSender<Outgoing>,
    pending: RefCell<HashMap<u64, Pending>>,
    /// Those of them that are limited.
    requests: Requests,
    next: Cell<u64>,
    /// The last request that was sent, or is being sent, and how many bytes of others wait.
    sent: Cell<u64>,
    unread_bytes: Cell<usize>,
    unread_descriptors: Cell<usize>,
    /// Whose session's alone it is: what its executor brings about in the log is that principal's.
    party: RefCell<Option<Rc<Party>>>,
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
    /// How many bytes of local memory for a thread its driver keeps ready, as it said.
    local_bytes: Cell<u32>,
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
            packets: RefCell::new(Some(Rc::new(packets))),
            receiver: RefCell::new(Some(Rc::new(receiver))),
            outgoing,
            pending: RefCell::default(),
            requests: Requests::new(limits::EXECUTOR_REQUESTS_MAX),
            next: Cell::new(1),
            sent: Cell::new(0),
            unread_bytes: Cell::new(0),
            unread_descriptors: Cell::new(0),
            party: RefCell::default(),
            heard: Cell::new(Instant::now()),
            asked: Notify::new(),
            failure: OnceCell::new(),
            shortages: Lines::new(),
            ended: CancellationToken::new(),
            sessions: RefCell::default(),
            swapped: RefCell::default(),
            awaited: Cell::new(0),
            unawaited: Cell::new(0),
            local_bytes: Cell::new(0),
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
        } else if let Some(unsaid) = self.line() {
            tracing::warn!(reason = %failure.reason, unsaid, "an executor failed");
        }
        // Whoever still holds something of it costs no descriptor and no thread.
        if let Some(packets) = self.packets.take() {
            packets.shut_down();
        }
        self.receiver.take();
        self.ended.cancel();
        self.sessions.borrow_mut().clear();
        self.swapped.borrow_mut().clear();
        for (_, pending) in self.pending.take() {
            pending.answer(Err(failure.error()));
        }
    }

    /// From here on what its executor brings about in the log is that principal's.
    pub(super) fn belongs_to(&self, party: &Rc<Party>) {
        self.party.replace(Some(Rc::clone(party)));
    }

    /// Whether the log may have one more line of it, and how many it did not get.
    pub(super) fn line(&self) -> Option<u64> {
        self.party.borrow().as_ref().map_or(Some(0), |party| party.line())
    }

    /// The same, with the reason only.
    pub(crate) fn fail_with(&self, reason: impl Into<String>) {
        self.fail(Failure::new(reason));
    }

    /// How many bytes of local memory for a thread the executor's driver keeps ready, as it said.
    pub(crate) fn local_bytes(&self) -> u32 {
        self.local_bytes.get()
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
        let pending = Pending { session, caller: Some(sender), quiescent: Some(first), place: None };
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
        let pending = Pending { session, caller: Some(sender), quiescent: None, place: None };
        answered(self.enqueue(pending, descriptors.into(), request), receiver)
    }

    /// The same with what another executor has passed.
    pub(crate) fn call_with_passed(
        &self,
        session: u32,
        passed: Passed,
        charge: Option<Charge>,
        build: impl FnOnce(executor_capnp::request::Builder<'_>),
    ) -> Answering {
        let (sender, receiver) = oneshot::channel();
        let pending = Pending { session: Some(session), caller: Some(sender), quiescent: None, place: None };
        let along = Along { passed: Some((passed, charge)), ..Along::default() };
        answered(self.enqueue(pending, along, &mut Request::new(build)), receiver)
    }

    fn enqueue(&self, mut pending: Pending, along: Along, request: &mut Request) -> Result<(), Error> {
        if let Some(failure) = self.failure.get() {
            return Err(failure.error());
        }
        // What undoes something is bounded by what there is, and one tenant's keeps nobody's from being asked.
        if !request.undoes() {
            pending.place = Some(self.requests.take(pending.session)?);
        }
        let id = self.next.get();
        self.next.set(id + 1);
        let bytes = request.with_id(id)?;
        if bytes.len() > limits::PACKET_BYTES_MAX {
            return Err(Error::new(ErrorCode::LimitReached, "the request to the executor is too long"));
        }
        let unread = self.unread_bytes.get() + bytes.len();
        // Everybody's is no tenant's, and what says that something ends must arrive.
        let descriptors = self.unread_descriptors.get() + along.count();
        let is_too_much =
            unread > UNREAD_BYTES_MAX || descriptors > UNREAD_DESCRIPTORS_MAX && along.count() > 0;
        if is_too_much && self.party.borrow().is_some() {
            return Err(Error::new(ErrorCode::LimitReached, "the executor has too many requests to read"));
        }
        if self.outgoing.send(Outgoing { id, bytes, along }).is_err() {
            return Err(Error::new(ErrorCode::DeviceLost, "the executor is gone"));
        }
        self.unread_bytes.set(unread);
        self.unread_descriptors.set(descriptors);
        if self.pending.borrow().is_empty() {
            self.heard.set(Instant::now());
            self.asked.notify_one();
        }
        self.pending.borrow_mut().insert(id, pending);
        Ok(())
    }

    async fn send(&self, mut queue: mpsc::UnboundedReceiver<Outgoing>) -> Failure {
        let Some(packets) = self.packets.borrow().clone() else { return Failure::new("it ended") };
        while let Some(outgoing) = queue.recv().await {
            self.sent.set(outgoing.id);
            let Along { descriptors, passed } = &outgoing.along;
            let own = descriptors.iter().map(AsFd::as_fd);
            let descriptors: Vec<_> =
                own.chain(passed.iter().filter_map(|(passed, _)| passed.descriptor())).collect();
            loop {
                match packets.send(&outgoing.bytes, &descriptors).await {
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
            self.unread_bytes.set(self.unread_bytes.get().saturating_sub(outgoing.bytes.len()));
            let along = outgoing.along.count();
            self.unread_descriptors.set(self.unread_descriptors.get().saturating_sub(along));
        }
        Failure::new("nobody can ask it anything any more")
    }

    async fn receive(&self) -> Failure {
        let mut buffer = vec![0; limits::PACKET_BYTES_MAX];
        let (packets, receiver) = (self.packets.borrow().clone(), self.receiver.borrow().clone());
        let (Some(packets), Some(receiver)) = (packets, receiver) else { return Failure::new("it ended") };
        loop {
            let Packet { bytes, passed } = match packet(&packets, &receiver, &mut buffer).await {
                Ok(packet) if packet.bytes.is_empty() => return Failure::new("its process ended"),
                Ok(packet) => packet,
                Err(error) => return gone(&error),
            };
            self.heard.set(Instant::now());
            match answer::decode(&bytes, passed, &self.local_bytes) {
                // Not an answer to anything: it says why it ends.
                Ok(answer::Decoded::Reply(0, Err(error))) => return lost(error),
                // Whoever does not read what is sent could else have any number of requests wait.
                Ok(answer::Decoded::Reply(id, _)) if id > self.sent.get() => {
                    return Failure::new(format!("it answered request {id}, which was not sent yet"));
                }
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
            let watch = Pending { session: None, caller: None, quiescent: None, place: None };
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

/// The next packet; an empty one means that the executor is gone.
async fn packet(packets: &Packets, receiver: &Receiver, buffer: &mut [u8]) -> io::Result<Packet> {
    if packets.wait().await? {
        return receiver.receive(buffer.len()).await;
    }
    let length = packets.receive_plain(buffer).await?;
    let bytes = buffer.get(..length);
    let bytes = bytes.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a packet is too long"))?;
    Ok(Packet { bytes: bytes.to_vec(), passed: Vec::new() })
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
    Failure { device: error.device, ..Failure::new(error.message) }
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
mod tests;
