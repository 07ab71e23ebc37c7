//! The conversation with one executor process.
//!
//! Requests are sent in the order they were made and answered in any order. Each has a deadline (a fence, which
//! waits for work, has none). An executor that breaks the protocol, misses a deadline, reports that its device is
//! lost or goes away has failed: the link ends, once, and everything that was asked and not answered fails.

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::HashMap,
    future::Future,
    io,
    os::fd::{AsFd, OwnedFd},
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

use super::answer::{self, Answer};
use crate::packets::Packets;

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

/// How long an answer may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deadline {
    /// An ordinary request.
    Request,
    /// A request that waits for a session's running work first.
    Drain,
    /// A request that compiles code.
    Load,
    /// It waits for work that may take for ever.
    Never,
}

impl Deadline {
    fn seconds(self) -> Option<u64> {
        match self {
            Self::Request => Some(limits::REQUEST_SECONDS),
            Self::Drain => Some(limits::REQUEST_SECONDS + limits::DRAIN_SECONDS),
            Self::Load => Some(limits::REQUEST_SECONDS + limits::DRAIN_SECONDS + limits::COMPILE_SECONDS),
            Self::Never => None,
        }
    }
}

struct Pending {
    answer: oneshot::Sender<Result<Answer, Error>>,
    deadline: Option<Instant>,
}

struct Outgoing {
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

/// One executor process, as seen over its socket.
pub(crate) struct Link {
    packets: Packets,
    outgoing: mpsc::UnboundedSender<Outgoing>,
    pending: RefCell<HashMap<u64, Pending>>,
    next: Cell<u64>,
    /// The earliest deadline of what is pending, as the watchdog knows it.
    earliest: Cell<Option<Instant>>,
    earlier: Notify,
    failure: OnceCell<Failure>,
    ended: CancellationToken,
    /// Sessions whose end the executor may tell.
    sessions: RefCell<HashMap<u32, oneshot::Sender<Error>>>,
    /// Stretches or shrinks every deadline; 1 but in tests.
    unit: Duration,
}

impl Link {
    /// Starts the conversation.
    pub(crate) fn start(packets: Packets, unit: Duration) -> Rc<Self> {
        let (outgoing, queue) = mpsc::unbounded_channel();
        let link = Rc::new(Self {
            packets,
            outgoing,
            pending: RefCell::default(),
            next: Cell::new(1),
            earliest: Cell::new(None),
            earlier: Notify::new(),
            failure: OnceCell::new(),
            ended: CancellationToken::new(),
            sessions: RefCell::default(),
            unit,
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
        link
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
        tracing::warn!(reason = %failure.reason, "an executor failed");
        self.packets.shut_down();
        self.ended.cancel();
        self.sessions.borrow_mut().clear();
        for (_, pending) in self.pending.take() {
            drop(pending.answer.send(Err(failure.error())));
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
            self.sessions.borrow_mut().insert(session, sender);
        }
        receiver
    }

    /// Stops listening for the end of a session.
    pub(crate) fn forget_session(&self, session: u32) {
        self.sessions.borrow_mut().remove(&session);
    }

    /// Sends a request at once; the future gives the answer. Dropping the future changes nothing for the executor.
    pub(crate) fn call(
        &self,
        deadline: Deadline,
        descriptors: Vec<OwnedFd>,
        build: impl FnOnce(executor_capnp::request::Builder<'_>),
    ) -> impl Future<Output = Result<Answer, Error>> + 'static {
        let sent = self.enqueue(deadline, descriptors, build);
        async move {
            match sent {
                Ok(answer) => answer.await.unwrap_or_else(|_| {
                    Err(Error::new(ErrorCode::Internal, "a request to the executor was never answered"))
                }),
                Err(error) => Err(error),
            }
        }
    }

    fn enqueue(
        &self,
        deadline: Deadline,
        descriptors: Vec<OwnedFd>,
        build: impl FnOnce(executor_capnp::request::Builder<'_>),
    ) -> Result<oneshot::Receiver<Result<Answer, Error>>, Error> {
        if let Some(failure) = self.failure.get() {
            return Err(failure.error());
        }
        if self.pending.borrow().len() >= limits::EXECUTOR_REQUESTS_MAX {
            return Err(Error::new(ErrorCode::LimitReached, "the executor has too many requests to answer"));
        }
        let id = self.next.get();
        self.next.set(id + 1);
        let mut message = message::Builder::new_default();
        let mut request: executor_capnp::request::Builder<'_> = message.init_root();
        request.set_id(id);
        build(request);
        let bytes = serialize::write_message_to_words(&message);
        if bytes.len() > limits::PACKET_BYTES_MAX {
            return Err(Error::new(ErrorCode::LimitReached, "the request to the executor is too long"));
        }
        let deadline = deadline.seconds().and_then(|seconds| u32::try_from(seconds).ok());
        let deadline = deadline.map(|seconds| Instant::now() + self.unit * seconds);
        let (sender, receiver) = oneshot::channel();
        self.pending.borrow_mut().insert(id, Pending { answer: sender, deadline });
        if let Some(deadline) = deadline
            && self.earliest.get().is_none_or(|earliest| deadline < earliest)
        {
            self.earliest.set(Some(deadline));
            self.earlier.notify_one();
        }
        // The queue is only gone when the link has ended, and then `pending` has been told.
        if self.outgoing.send(Outgoing { bytes, descriptors }).is_err() {
            self.pending.borrow_mut().remove(&id);
            return Err(Error::new(ErrorCode::DeviceLost, "the executor is gone"));
        }
        Ok(receiver)
    }

    async fn send(&self, mut queue: mpsc::UnboundedReceiver<Outgoing>) -> Failure {
        while let Some(outgoing) = queue.recv().await {
            let descriptors: Vec<_> = outgoing.descriptors.iter().map(AsFd::as_fd).collect();
            if let Err(error) = self.packets.send(&outgoing.bytes, &descriptors).await {
                return gone(&error);
            }
        }
        Failure::new("nobody can ask it anything any more")
    }

    async fn receive(&self) -> Failure {
        let mut buffer = vec![0; limits::PACKET_BYTES_MAX];
        loop {
            let (length, descriptors) = match self.packets.receive(&mut buffer).await {
                Ok((0, _)) => return Failure::new("its process ended"),
                Ok(received) => received,
                Err(error) => return gone(&error),
            };
            let packet = buffer.get(..length).unwrap_or_default();
            match answer::decode(packet, descriptors) {
                Ok(answer::Decoded::Reply(id, result)) => {
                    let Some(pending) = self.pending.borrow_mut().remove(&id) else {
                        return Failure::new(format!("it answered request {id}, which is not waiting"));
                    };
                    let lost = match &result {
                        Err(error) if error.code == ErrorCode::DeviceLost => Some(error.clone()),
                        Ok(_) | Err(_) => None,
                    };
                    // Whoever asked may have gone away.
                    drop(pending.answer.send(result));
                    if let Some(error) = lost {
                        return Failure { reason: error.message, device: error.device };
                    }
                }
                Ok(answer::Decoded::SessionEnded(session, error)) => {
                    if let Some(ended) = self.sessions.borrow_mut().remove(&session) {
                        drop(ended.send(error));
                    }
                }
                Err(error) => return Failure::new(format!("it sent a packet that makes no sense: {error}")),
            }
        }
    }

    /// Waits for a deadline to be missed.
    async fn watch(&self) -> Failure {
        loop {
            match self.earliest.get() {
                None => self.earlier.notified().await,
                Some(deadline) => tokio::select! {
                    () = tokio::time::sleep_until(deadline) => {
                        let now = Instant::now();
                        let pending = self.pending.borrow();
                        let missed = |pending: &&Pending| pending.deadline.is_some_and(|deadline| deadline <= now);
                        if pending.values().any(|pending| missed(&pending)) {
                            return Failure::new("it did not answer in time");
                        }
                        self.earliest.set(pending.values().filter_map(|pending| pending.deadline).min());
                    }
                    () = self.earlier.notified() => {}
                },
            }
        }
    }
}

fn gone(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Failure::new("its process ended"),
        _ => Failure::new(format!("its socket failed: {error}")),
    }
}
