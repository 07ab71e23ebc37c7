//! Limits that capnp-rpc does not have, around its two-party network.
//!
//! A peer may send `Bootstrap`, `Call`, `Finish`, `Release` and `Abort`, and nothing else; a call names no capability
//! that the peer hosts. Its outstanding calls, their parameters, what it holds and what it was sent and does not read
//! are counted. What exceeds a limit ends the connection; a peer that does not read is not read from either. Nor is one
//! whose process, or principal, has too much in calls that are not answered, unless its own part of that is small.
//!
//! What a peer that leaves held is released a piece at a time, as if it had released it itself: dropping all of it at
//! once would keep everybody else waiting.
//!
//! The counts mirror capnp-rpc's own tables (`rpc.capnp`, level 1): a question is open until both its `Return` has
//! been sent and its `Finish` has come, except that a `Return` may say that it needs none; an export has as many
//! references as it was sent, less what `Release` and `Finish.releaseResultCaps` give back. A call that is finished
//! before it returned keeps an entry in those tables for as long as the connection lives, so these are counted apart.

mod network;

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashMap, VecDeque},
    rc::Rc,
    task::{Poll, Waker},
};

use bulkhead_schema::limits;
use capnp::{Error, message::ReaderOptions};
use capnp_rpc::{
    IncomingMessage,
    rpc_capnp::{call, cap_descriptor, message, return_},
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub(crate) use crate::rpc::firewall::network::network;

use crate::principals::{Counted, Party, Taken};

/// How a message from the kernel's clients is read.
pub(crate) fn reader_options() -> ReaderOptions {
    let mut options = ReaderOptions::new();
    options.traversal_limit_in_words(Some(limits::MESSAGE_WORDS_MAX));
    options.nesting_limit(limits::MESSAGE_NESTING_MAX);
    options
}

/// A call, or a bootstrap, that is not over.
#[derive(Default)]
struct Question {
    bytes: usize,
    /// The same, as it is counted for the process.
    held: Option<Taken>,
    finished: bool,
    /// Exports of its results, once they were sent.
    returned: Option<Vec<u32>>,
}

/// A message on its way out.
#[derive(Debug)]
struct Queued {
    /// What is left of it to write, in bytes.
    left: usize,
    /// What it takes in memory, in bytes.
    cost: usize,
}

/// What one connection has, and whether that is too much.
pub(crate) struct Firewall {
    /// Whose connection it is.
    party: Rc<Party>,
    questions: RefCell<HashMap<u32, Question>>,
    outstanding: Cell<usize>,
    cancelled: Cell<usize>,
    question_bytes: Cell<usize>,
    /// References to each export. In order, because taking the first of a hash table again and again takes long.
    exports: RefCell<BTreeMap<u32, usize>>,
    references: Cell<usize>,
    bytes_read: Cell<usize>,
    /// Messages that were sent and are not written yet, in order.
    queue: RefCell<VecDeque<Queued>>,
    /// What they take in memory, in bytes.
    queue_bytes: Cell<usize>,
    /// Nothing can be written any more.
    broken: Cell<bool>,
    drained: RefCell<Option<Waker>>,
    tripped: CancellationToken,
    /// Nothing is read any more.
    leaving: CancellationToken,
    /// Told when a peer that leaves holds nothing any more.
    empty: Notify,
    /// Told of each message.
    heard: Notify,
}

impl Firewall {
    /// Notified of each message.
    pub(crate) fn heard(&self) -> &Notify {
        &self.heard
    }

    pub(crate) fn new(party: &Rc<Party>) -> Rc<Self> {
        Rc::new(Self {
            party: Rc::clone(party),
            questions: RefCell::default(),
            outstanding: Cell::default(),
            cancelled: Cell::default(),
            question_bytes: Cell::default(),
            exports: RefCell::default(),
            references: Cell::default(),
            bytes_read: Cell::default(),
            queue: RefCell::default(),
            queue_bytes: Cell::default(),
            broken: Cell::default(),
            drained: RefCell::default(),
            tripped: CancellationToken::new(),
            leaving: CancellationToken::new(),
            empty: Notify::new(),
            heard: Notify::new(),
        })
    }

    /// Waits until the peer has broken the rules, or has hung up.
    pub(crate) async fn tripped(&self) {
        self.tripped.cancelled().await;
    }

    /// Reads no more, and begins to release what the peer holds.
    pub(crate) fn leave(&self) {
        self.leaving.cancel();
    }

    /// Waits until a peer that leaves holds nothing any more.
    pub(crate) async fn empty(&self) {
        self.empty.notified().await;
    }

    /// Takes one of the peer's exports off the tables: its number, and its references.
    fn give_up_one(&self) -> Option<(u32, u32)> {
        let (id, held) = self.exports.borrow().first_key_value().map(|(id, held)| (*id, *held))?;
        self.forget(id, held);
        Some((id, u32::try_from(held).unwrap_or(u32::MAX)))
    }

    /// Lets a message in, or says why not.
    fn admit(&self, incoming: &dyn IncomingMessage, bytes: usize) -> Result<(), Error> {
        self.heard.notify_one();
        let admitted = self.check(incoming, bytes);
        if let Err(error) = &admitted {
            if let Some(unsaid) = self.party.line() {
                let principal = self.party.principal();
                tracing::warn!(target: "bulkhead::audit", principal, unsaid, %error, "protocol broken");
            }
            self.tripped.cancel();
        }
        admitted
    }

    fn check(&self, incoming: &dyn IncomingMessage, bytes: usize) -> Result<(), Error> {
        let body: message::Reader<'_> = incoming.get_body()?.get_as()?;
        match body.which() {
            Ok(message::Bootstrap(bootstrap)) => self.open(bootstrap?.get_question_id(), bytes),
            Ok(message::Call(call)) => {
                let call = call?;
                check_call(call)?;
                self.open(call.get_question_id(), bytes)
            }
            Ok(message::Finish(finish)) => {
                let finish = finish?;
                self.finish(finish.get_question_id(), finish.get_release_result_caps())
            }
            Ok(message::Release(release)) => {
                let release = release?;
                self.release(release.get_id(), release.get_reference_count() as usize)
            }
            Ok(message::Abort(_)) => Ok(()),
            Ok(
                message::Unimplemented(_)
                | message::Return(_)
                | message::Resolve(_)
                | message::Disembargo(_)
                | message::ObsoleteSave(_)
                | message::ObsoleteDelete(_)
                | message::Provide(_)
                | message::Accept(_)
                | message::Join(_),
            )
            | Err(_) => Err(Error::failed("clients do not send messages of this type".into())),
        }
    }

    fn open(&self, id: u32, bytes: usize) -> Result<(), Error> {
        let outstanding = self.outstanding.get() + 1;
        let question_bytes = self.question_bytes.get().saturating_add(bytes);
        if outstanding > limits::QUESTIONS_MAX {
            return Err(Error::overloaded("too many outstanding calls".into()));
        }
        if question_bytes > limits::QUESTION_BYTES_MAX {
            return Err(Error::overloaded("outstanding calls have too large parameters".into()));
        }
        if self.references.get() >= limits::EXPORTS_MAX {
            return Err(Error::overloaded("too many capabilities are held".into()));
        }
        let held = Some(self.party.count(Counted::MessageBytes, bytes as u64));
        let question = Question { bytes, held, ..Question::default() };
        if self.questions.borrow_mut().insert(id, question).is_some() {
            return Err(Error::failed("a question is asked twice".into()));
        }
        self.outstanding.set(outstanding);
        self.question_bytes.set(question_bytes);
        Ok(())
    }

    /// Takes a question off the counts; its entry stays while it is finished and not returned.
    fn settle(&self, question: &mut Question) {
        drop(question.held.take());
        self.outstanding.set(self.outstanding.get().saturating_sub(1));
        self.question_bytes.set(self.question_bytes.get().saturating_sub(question.bytes));
    }

    fn finish(&self, id: u32, release: bool) -> Result<(), Error> {
        let mut questions = self.questions.borrow_mut();
        // A question that needed no finish may get one all the same.
        let Some(question) = questions.get_mut(&id) else { return Ok(()) };
        if std::mem::replace(&mut question.finished, true) {
            return Ok(());
        }
        self.settle(question);
        if question.returned.is_none() {
            // It is remembered, here and in `capnp_rpc`, until it is answered, or for ever.
            let held = self.party.take(Counted::GivenUp, 1);
            question.held = Some(held.map_err(|error| Error::overloaded(error.to_string()))?);
            self.cancelled.set(self.cancelled.get() + 1);
            return Ok(());
        }
        let exports = questions.remove(&id).and_then(|question| question.returned).unwrap_or_default();
        drop(questions);
        if release {
            for export in exports {
                self.forget(export, 1);
            }
        }
        Ok(())
    }

    fn release(&self, id: u32, count: usize) -> Result<(), Error> {
        if self.exports.borrow().get(&id).is_none_or(|held| *held < count) {
            return Err(Error::failed("a capability is released that is not held".into()));
        }
        self.forget(id, count);
        Ok(())
    }

    fn forget(&self, id: u32, count: usize) {
        let mut exports = self.exports.borrow_mut();
        if let Some(held) = exports.get_mut(&id) {
            let forgotten = count.min(*held);
            *held -= forgotten;
            self.references.set(self.references.get().saturating_sub(forgotten));
            if *held == 0 {
                exports.remove(&id);
            }
        }
    }

    /// Notes what goes out.
    fn note(&self, outgoing: message::Reader<'_>) {
        let Ok(message::Return(Ok(answer))) = outgoing.which() else { return };
        let mut sent = Vec::new();
        if let Ok(return_::Results(Ok(results))) = answer.which()
            && let Ok(table) = results.get_cap_table()
        {
            for descriptor in table {
                if let Ok(cap_descriptor::SenderHosted(id) | cap_descriptor::SenderPromise(id)) =
                    descriptor.which()
                {
                    sent.push(id);
                }
            }
        }
        for id in &sent {
            *self.exports.borrow_mut().entry(*id).or_default() += 1;
        }
        self.references.set(self.references.get() + sent.len());
        let mut questions = self.questions.borrow_mut();
        let id = answer.get_answer_id();
        let Some(question) = questions.get_mut(&id) else { return };
        if question.finished {
            self.cancelled.set(self.cancelled.get().saturating_sub(1));
            questions.remove(&id);
        } else if answer.get_no_finish_needed() {
            self.settle(question);
            questions.remove(&id);
        } else {
            question.returned = Some(sent);
        }
    }

    /// Whether more may be read now.
    fn poll_ready(&self, waker: &Waker) -> Poll<Result<(), Error>> {
        if self.cancelled.get() > limits::CANCELLED_MAX {
            self.tripped.cancel();
            return Poll::Ready(Err(Error::overloaded("too many calls were given up".into())));
        }
        if self.broken.get() {
            return Poll::Ready(Err(Error::disconnected("the peer is gone".into())));
        }
        // What it has of its own is too little to matter, or there is room for more.
        let is_small = self.question_bytes.get() < limits::MESSAGE_BYTES_AT_LEAST;
        let has_room = is_small || !self.party.is_over(Counted::MessageBytes);
        if has_room && self.queue_bytes.get() < limits::QUEUED_BYTES_MAX {
            return Poll::Ready(Ok(()));
        }
        if !has_room {
            self.party.wake_when_there_is_room(waker);
        }
        self.drained.replace(Some(waker.clone()));
        Poll::Pending
    }

    fn read(&self, bytes: usize) {
        self.bytes_read.set(self.bytes_read.get().wrapping_add(bytes));
    }

    fn queued(&self, left: usize, cost: usize) {
        self.queue.borrow_mut().push_back(Queued { left, cost });
        self.queue_bytes.set(self.queue_bytes.get().saturating_add(cost));
        if self.queue_bytes.get() > limits::UNREAD_BYTES_MAX {
            self.tripped.cancel();
        }
    }

    fn written(&self, mut bytes: usize) {
        let mut queue = self.queue.borrow_mut();
        while let Some(first) = queue.front_mut() {
            if bytes < first.left {
                first.left -= bytes;
                break;
            }
            bytes -= first.left;
            self.queue_bytes.set(self.queue_bytes.get().saturating_sub(first.cost));
            queue.pop_front();
        }
        if self.queue_bytes.get() < limits::QUEUED_BYTES_MAX {
            self.wake();
        }
    }

    /// Writing has failed. Without this, whoever waits for the queue to drain would wait for ever.
    fn broke(&self) {
        self.broken.set(true);
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = self.drained.take() {
            waker.wake();
        }
    }
}

/// A call's results go to the caller, and its capabilities are the kernel's own.
fn check_call(call: call::Reader<'_>) -> Result<(), Error> {
    match call.get_send_results_to().which() {
        Ok(call::send_results_to::Caller(())) => {}
        Ok(call::send_results_to::Yourself(()) | call::send_results_to::ThirdParty(_)) | Err(_) => {
            return Err(Error::failed("results go to the caller".into()));
        }
    }
    let table = call.get_params()?.get_cap_table()?;
    if table.len() > limits::CAPABILITIES_PER_MESSAGE_MAX {
        return Err(Error::failed("too many capabilities in one message".into()));
    }
    for descriptor in table {
        match descriptor.which() {
            Ok(
                cap_descriptor::None(())
                | cap_descriptor::ReceiverHosted(_)
                | cap_descriptor::ReceiverAnswer(_),
            ) => {}
            Ok(
                cap_descriptor::SenderHosted(_)
                | cap_descriptor::SenderPromise(_)
                | cap_descriptor::ThirdPartyHosted(_),
            )
            | Err(_) => return Err(Error::failed("clients host no capabilities".into())),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
