//! One client's world on one GPU.
//!
//! A session is *open* until somebody ends it: its client, the loss of the client, its executor, or the loss of the
//! executor. From then on everything it is asked answers why it is *over*; its *keeper*, a task of its own, has the
//! executor close it and gives everything back; then it is *gone*.

mod images;
mod memory;
mod server;

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    future::Future,
    os::fd::OwnedFd,
    rc::Rc,
};

use bulkhead_caps::Table;
use bulkhead_mm::{Account, Amounts, Range, Resource, SINK_BYTES, SLOT_BYTES, Slot, Window};
use bulkhead_ring::Control;
use bulkhead_schema::{Error, ErrorCode, Handle, executor_capnp, limits};
use tokio::sync::{Mutex, Notify, oneshot, watch};

pub(crate) use server::SessionServer;

use crate::{
    Limits,
    descriptors::Token,
    executor::{Answer, Device, Incarnation, SlotLease},
    refusal::{self, internal},
};

/// What a capability of a session names.
#[derive(Debug)]
pub(crate) enum Object {
    /// Device memory.
    Buffer(Range),
    /// Host memory, in bytes.
    HostBuffer(u64),
    /// Loaded code and its entries.
    Image(Vec<Handle>),
    /// A function of an image.
    Entry,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    Over,
    Gone,
}

/// One client's world on one GPU.
pub(crate) struct Session {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// The client's process, 0 where it is unknown.
    pub(crate) pid: u32,
    pub(crate) device: Rc<Device>,
    incarnation: Rc<Incarnation>,
    slot: Slot,
    lease: RefCell<Option<SlotLease>>,
    account: Account,
    pub(crate) limits: Limits,
    ring: Control,
    table: RefCell<Table<Object>>,
    window: RefCell<Window>,
    /// Images that were offered, and the descriptors of those that have arrived.
    offers: RefCell<HashMap<Token, images::Offer>>,
    /// Held while the executor changes this session's memory, so that one plan is made and committed at a time.
    changing: Mutex<()>,
    /// Held while an image of this session is compiled and loaded.
    loading: Mutex<()>,
    /// Fences that have not passed.
    fences: Cell<usize>,
    why_over: RefCell<Option<Error>>,
    phase: watch::Sender<Phase>,
    /// Capabilities that were closed and whose objects are still there.
    retired: RefCell<Vec<Handle>>,
    retired_more: Notify,
    /// How many capabilities are retired or being reclaimed.
    reclaiming: watch::Sender<usize>,
}

/// A session that was just opened, and what its client gets.
pub(crate) struct Opened {
    pub(crate) session: OpenSession,
    pub(crate) ring: OwnedFd,
    pub(crate) completions: OwnedFd,
}

/// The client's hold on a session: dropping it ends the session.
pub(crate) struct OpenSession(pub(crate) Rc<Session>);

impl Drop for OpenSession {
    fn drop(&mut self) {
        self.0.end(&Error::new(ErrorCode::SessionLost, "the session was closed"));
    }
}

impl Session {
    /// Opens a session on whichever executor serves the device.
    pub(crate) async fn open(
        device: Rc<Device>,
        id: u32,
        name: String,
        pid: u32,
        limits: Limits,
    ) -> Result<Opened, Error> {
        let incarnation = device.wait().await?;
        let lease = incarnation.lease().ok_or_else(|| {
            Error::new(ErrorCode::LimitReached, "the device has as many sessions as it can have")
                .remedy("close a session, or try again later")
        })?;
        let ring = bulkhead_ring::memory::create()
            .map_err(|error| internal(format!("no memory for the ring: {error}")))?;
        let control = Control::map(std::os::fd::AsFd::as_fd(&ring))
            .map_err(|error| internal(format!("the ring cannot be mapped: {error}")))?;
        let account = device.ledger.borrow_mut().open(
            Amounts::UNLIMITED
                .with(Resource::DeviceBytes, incarnation.info.memory_bytes)
                .with(Resource::BufferBytes, incarnation.info.memory_bytes)
                .with(Resource::HostBytes, limits.session_host_bytes)
                .with(Resource::Capabilities, u64::from(limits::CAPABILITIES_MAX))
                .with(Resource::Images, u64::from(limits::IMAGES_MAX)),
        );
        let slot = lease.slot;
        let session = Rc::new(Self {
            id,
            name,
            pid,
            device,
            incarnation,
            slot,
            lease: RefCell::new(Some(lease)),
            account,
            limits,
            ring: control,
            table: RefCell::new(Table::new(limits::CAPABILITIES_MAX)),
            window: RefCell::new(Window::new(slot)),
            offers: RefCell::default(),
            changing: Mutex::new(()),
            loading: Mutex::new(()),
            fences: Cell::new(0),
            why_over: RefCell::default(),
            phase: watch::Sender::new(Phase::Open),
            retired: RefCell::default(),
            retired_more: Notify::new(),
            reclaiming: watch::Sender::new(0),
        });
        match session.open_in_executor(&ring).await {
            Ok((completions, ended)) => {
                tracing::info!(
                    target: "bulkhead::audit",
                    session = id, name = session.name, pid, slot = slot.index(), "session opened"
                );
                tokio::task::spawn_local(Rc::clone(&session).keep(ended));
                Ok(Opened { session: OpenSession(session), ring, completions })
            }
            Err(error) => {
                session.end(&error);
                session.gone();
                Err(error)
            }
        }
    }

    async fn open_in_executor(&self, ring: &OwnedFd) -> Result<(OwnedFd, oneshot::Receiver<Error>), Error> {
        self.charge(Resource::DeviceBytes, SINK_BYTES)?.keep();
        let ring = ring
            .try_clone()
            .map_err(|error| internal(format!("the ring's descriptor cannot be copied: {error}")))?;
        let ended = self.incarnation.link.session_ended(self.id);
        let opened = self.ask(vec![ring], |request| {
            let mut open = request.init_open_session();
            open.set_session(self.id);
            open.set_slot(self.slot.index());
        });
        match opened.await? {
            Answer::Opened(completions) => Ok((completions, ended)),
            other => Err(self.nonsense(&other)),
        }
    }

    /// Its device addresses.
    pub(crate) fn addresses(&self) -> (u64, u64) {
        (self.slot.base().0, SLOT_BYTES)
    }

    /// Why it is over, or that it is not.
    pub(crate) fn live(&self) -> Result<(), Error> {
        match &*self.why_over.borrow() {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Whether its executor has let go of it.
    pub(crate) fn is_gone(&self) -> bool {
        *self.phase.borrow() == Phase::Gone
    }

    /// What it uses.
    pub(crate) fn used(&self) -> Amounts {
        self.device.ledger.borrow().used_by(self.account)
    }

    /// Ends it, for the first reason given. A client that polls its ring sees it at once.
    pub(crate) fn end(&self, why: &Error) {
        let mut why_over = self.why_over.borrow_mut();
        if why_over.is_some() {
            return;
        }
        *why_over = Some(why.clone());
        drop(why_over);
        tracing::info!(
            target: "bulkhead::audit",
            session = self.id, name = self.name, code = ?why.code, why = why.message, "session over"
        );
        self.ring.end(why.code.into(), why.device);
        self.phase.send_replace(Phase::Over);
    }

    /// Ends it and waits until its memory has been given back.
    pub(crate) async fn close(&self) -> Result<(), Error> {
        self.end(&Error::new(ErrorCode::SessionLost, "the session was closed"));
        let mut phase = self.phase.subscribe();
        match phase.wait_for(|phase| *phase == Phase::Gone).await {
            Ok(_) => Ok(()),
            Err(_) => Err(internal("nobody closes the session")),
        }
    }

    /// The keeper: gives back what was closed while the session is open, and everything once it is over.
    async fn keep(self: Rc<Self>, mut ended: oneshot::Receiver<Error>) {
        let lapse = Lapse { session: &self, expected: Cell::new(false) };
        let mut phase = self.phase.subscribe();
        let link = &self.incarnation.link;
        tokio::select! {
            biased;
            failure = link.ended() => self.end(&failure.error()),
            Ok(error) = &mut ended => self.end(&error),
            _ = phase.wait_for(|phase| *phase != Phase::Open) => {}
            never = self.reclaim_what_is_retired() => match never {},
        }
        // What is changing commits or rolls back first.
        let changing = self.changing.lock().await;
        // Its work passes first, however long that takes: until then what it had is out of everybody's reach.
        let closed = self.ask(Vec::new(), |mut request| request.set_close_session(self.id)).await;
        if let Err(error) = closed
            && link.failure().is_none()
            && !matches!(error.code, ErrorCode::NotFound | ErrorCode::InvalidHandle | ErrorCode::SessionLost)
        {
            // Who knows what of it is still there: nobody gets it while this executor lives.
            tracing::error!(session = self.id, %error, "the executor does not close a session");
            self.phase.send_replace(Phase::Gone);
            link.ended().await;
        }
        lapse.expected.set(true);
        drop(lapse);
        drop(changing);
        self.gone();
    }

    /// Gives everything back. The executor does not know the session any more.
    fn gone(&self) {
        self.incarnation.link.forget_session(self.id);
        match self.device.ledger.borrow_mut().close(self.account) {
            Ok(refunded) => {
                tracing::info!(target: "bulkhead::audit", session = self.id, ?refunded, "session gone");
            }
            Err(error) => tracing::error!(session = self.id, %error, "an account was closed twice"),
        }
        self.offers.borrow_mut().clear();
        self.lease.borrow_mut().take();
        self.phase.send_replace(Phase::Gone);
        self.reclaiming.send_replace(0);
    }

    /// Charges the account until the result is dropped, or for longer if that is [kept](Charge::keep).
    fn charge(&self, resource: Resource, amount: u64) -> Result<Charge<'_>, Error> {
        self.device.ledger.borrow_mut().charge(self.account, resource, amount).map_err(refusal::ledger)?;
        Ok(Charge { session: self, resource, amount, kept: false })
    }

    fn refund(&self, resource: Resource, amount: u64) {
        let refunded = self.device.ledger.borrow_mut().refund(self.account, resource, amount);
        // The account of a session that is gone has been closed, and everything with it refunded.
        if let Err(error) = refunded
            && !self.is_gone()
        {
            tracing::error!(session = self.id, %error, "the books are wrong");
        }
    }

    /// Asks the executor something about this session.
    fn ask(
        &self,
        descriptors: Vec<OwnedFd>,
        build: impl FnOnce(executor_capnp::request::Builder<'_>),
    ) -> impl Future<Output = Result<Answer, Error>> + 'static {
        self.incarnation.link.call(Some(self.id), descriptors, build)
    }

    /// An answer that was not one of those to what was asked.
    fn nonsense(&self, answer: &Answer) -> Error {
        self.incarnation.link.fail_with(format!("it gave the wrong kind of answer: {answer:?}"));
        internal("the executor gave the wrong kind of answer")
    }

    fn done(&self, answer: &Answer) -> Result<(), Error> {
        match answer {
            Answer::Done => Ok(()),
            Answer::Device(_)
            | Answer::Opened(_)
            | Answer::Loaded(_)
            | Answer::Exported(_)
            | Answer::Activity(_) => Err(self.nonsense(answer)),
        }
    }
}

/// Something charged, refunded on drop unless it is kept.
#[must_use]
struct Charge<'a> {
    session: &'a Session,
    resource: Resource,
    amount: u64,
    kept: bool,
}

impl Charge<'_> {
    /// Leaves it charged: the object it is for exists.
    fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.session.refund(self.resource, self.amount);
        }
    }
}

/// Notices a keeper that stops before its work is done (it panicked, or the kernel ends): its session is over, and
/// since nobody knows what the executor still holds, its slot and what it is charged stay taken.
struct Lapse<'a> {
    session: &'a Session,
    expected: Cell<bool>,
}

impl Drop for Lapse<'_> {
    fn drop(&mut self) {
        if !self.expected.get() {
            self.session.end(&internal("the session's keeper stopped"));
        }
    }
}
