//! One client's world on one GPU.
//!
//! A session is *open* until somebody ends it: its client, the loss of the client, its executor, or the loss of the
//! executor. From then on everything it is asked answers why it is *over*, and all that it holds has ended, with all that
//! was derived from it, everywhere. Its *keeper*, a task of its own, has the executor close it; then it is *closed*. It is
//! *gone* once nobody else has its memory mapped any more, and everything was given back.

pub(crate) mod account;
pub(crate) mod code;
pub(crate) mod device;
pub(crate) mod failover;
pub(crate) mod holder;
pub(crate) mod memory;
pub(crate) mod opening;
mod passing;
pub(crate) mod reclaim;
pub(crate) mod reference;
pub(crate) mod requests;
mod states;
mod supervising;
pub(crate) mod swap;
pub(crate) mod terms;

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, HashSet, VecDeque},
    os::fd::OwnedFd,
    rc::{Rc, Weak},
    time::Duration,
};

use bulkhead_caps::{Access, Kind, Line, Need, ObjectId, Owner};
use bulkhead_mm::{Account, Region, Reservations, Resource, Slot};
use bulkhead_ring::{Control, layout};
use bulkhead_schema::{Error, ErrorCode, Handle, limits};
use tokio::sync::{Mutex, Notify, oneshot, watch};
use tokio::time::Instant;

pub(crate) use crate::session::memory::Home;
pub(crate) use crate::session::opening::{OpenSession, Opening};
pub(crate) use crate::session::requests::Bound;
pub(crate) use crate::session::states::{Phase, Told};
pub(crate) use crate::session::terms::Terms;

use crate::{
    Limits,
    executor_proxy::{self, ExecutorProxy, Incarnation, SlotLease},
    ledger::Charge,
    principals::{Counted, Party, Taken},
    refusal::{self, internal},
    registry::{self, Batch, Loaded, SturdyToken, Tally, What},
    session::{
        code::{gates::Accepted, offer::Offer},
        device::Device,
        memory::{cuts::Cuts, mapping::Mapping},
        passing::{Drains, Passing},
        reference::{Facet, Reference, Share},
        swap::state::Swap,
    },
    transport::descriptors::{Descriptors, Token},
};

/// The capabilities of sessions, and what these name.
pub(crate) type Registry = registry::Registry<Session>;
/// What capabilities of sessions name.
pub(crate) type Object = registry::Object<Session>;

/// Descriptors that a session has from its start: those of its ring and its completion page.
const DESCRIPTORS: u64 = 2;
/// What these take, in bytes.
const SHARED_BYTES: u64 = (layout::RING_BYTES + layout::COMPLETION_BYTES) as u64;

/// How long an executor that is to end is heard.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// A session's ring.
struct Ring {
    /// For whichever executor goes on.
    memory: OwnedFd,
    control: Control,
}

/// One client's world on one GPU.
pub(crate) struct Session {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// The client's process, 0 where it is unknown.
    pub(crate) pid: u32,
    pub(crate) device: Rc<Device>,
    /// The executor that serves it.
    incarnation: RefCell<Rc<Incarnation>>,
    /// Another that knows all of it, and goes on with it when that is lost.
    standby: RefCell<Option<Rc<Incarnation>>>,
    slot: Slot,
    lease: RefCell<Option<SlotLease>>,
    told: watch::Sender<Told>,
    /// The standby that it is told to, or was.
    follows: RefCell<Option<Rc<Incarnation>>>,
    /// How often memory of it is being handed to the standby.
    adopting: watch::Sender<usize>,
    /// The same slot of the standby's, once that knows the session.
    standby_lease: RefCell<Option<SlotLease>>,
    /// Counts what the executor was asked.
    asked: Cell<u64>,
    /// How often it has moved to another executor.
    moves: watch::Sender<u32>,
    /// The completion page since it last moved.
    page: RefCell<Option<OwnedFd>>,
    /// Its ring; `None` once it is gone, which may be long before the last capability of it is dropped.
    ring: RefCell<Option<Ring>>,
    /// Descriptors on their way to its client.
    on_the_way_out: RefCell<Vec<Weak<Descriptors>>>,
    account: Account,
    /// Ends the executor of an isolated session.
    alone: RefCell<Option<Alone>>,
    /// What it is charged for as long as it is there.
    charges: RefCell<Vec<Charge>>,
    /// Local memory of its kernels.
    local: RefCell<Option<Charge>>,
    /// What its process takes beside all that, and what that is known by.
    beside: RefCell<Option<Charge>>,
    meter: RefCell<executor_proxy::Meter>,
    /// Whoever fetches what its executor has written.
    outputs: Mutex<()>,
    /// How many streams and events its records may name.
    reserved: Cell<(u32, u32)>,
    /// How many of them its executor has said that it knows of.
    reserved_there: Cell<(u32, u32)>,
    pub(crate) owner: Owner,
    line: Line,
    pub(crate) limits: Limits,
    pub(crate) terms: Terms,
    /// The program that it runs, and the session whose account it draws on.
    parent: Option<Parent>,
    /// Its own capability for being there: it ends when the program is taken back.
    root: Cell<Option<Handle>>,
    /// Sessions that were opened from programs of it and are not gone.
    children: watch::Sender<u32>,
    /// Those of them that an executor knows: they may run its code.
    running: watch::Sender<u32>,
    /// Where memory of its own lies, and what others gave it to write.
    lower: RefCell<Region>,
    /// Where memory lies that others gave it to read.
    upper: RefCell<Region>,
    /// Names of memory of its own that lies nowhere.
    shelf: RefCell<Region>,
    /// Addresses of the lower half that its client put aside.
    reservations: RefCell<Reservations>,
    /// Memory of others that is mapped here, by the handles of the capabilities it was accepted for.
    mappings: RefCell<HashMap<Handle, Rc<Mapping<Self>>>>,
    /// Gates of modules that its kernels may call, by the handles of the capabilities they were accepted for.
    gates: RefCell<HashMap<Handle, Accepted>>,
    /// Objects of its own.
    objects: RefCell<HashSet<ObjectId>>,
    /// Those of them that are device memory: all that `status` goes through, since signals are many and cheap.
    memories: RefCell<HashSet<ObjectId>>,
    /// What that comes to.
    tally: Rc<Tally>,
    /// Told when one of them is no more.
    fewer: Notify,
    /// Entries of its parent's that it was lent, by its own handles.
    lent: RefCell<Vec<(Handle, Handle)>>,
    /// How much dynamic shared memory its entries were allowed.
    allowed: RefCell<HashMap<Handle, u32>>,
    /// What others gave it and it has not looked at yet.
    pub(crate) granted: RefCell<VecDeque<(Reference, Facet, Charge)>>,
    pub(crate) granted_more: Notify,
    /// Images that were offered, and the descriptors of those that have arrived.
    offers: RefCell<HashMap<Token, Offer>>,
    /// How many changes of this session's memory or code the executor is busy with.
    changes: watch::Sender<usize>,
    /// Held while an image of this session is compiled and loaded.
    loading: Mutex<()>,
    why_over: RefCell<Option<Error>>,
    over_since: Cell<Option<Instant>>,
    cuts: Cuts,
    phase: watch::Sender<Phase>,
    /// What ended and was not told to the executor yet.
    dying: RefCell<Option<Rc<Batch>>>,
    /// What was severed and is not quiescent, in order.
    passing: Passing,
    /// How many batches there were.
    batches: Cell<u64>,
    dying_more: Notify,
    /// Capabilities that ended, and whose way back is not over.
    on_their_way: Cell<u32>,
    /// The same of what others made of what it gave them.
    others_on_their_way: Rc<Cell<u32>>,
    /// Batches that the executor was not told of yet.
    unsevered: watch::Sender<usize>,
    drains: Drains,
    /// Batches that are on their way back.
    reaping: watch::Sender<usize>,
    /// Those of them whose device memory may be mapped still.
    unmapping: Cell<usize>,
    /// The executor does not close it, and nobody knows what is left of it there.
    stuck: Cell<bool>,
    /// Whether and how its memory lies in host memory.
    swap: Swap,
    /// Whose it is.
    pub(crate) party: Rc<Party>,
    /// Its place among the sessions of its process, until it is gone.
    place: RefCell<Option<Taken>>,
    /// Counts it from when it is gone until nobody holds anything of it.
    kept: RefCell<Option<Taken>>,
    /// Whether it was opened whole.
    known: Cell<bool>,
}

/// The program that a session is opened from.
pub(crate) struct Parent {
    pub(crate) session: Rc<Session>,
    pub(crate) program: Handle,
    pub(crate) share: Rc<Share>,
}

impl Session {
    /// A session that runs a program is a capability derived from it, so that it ends with it.
    fn take_root(&self) -> Result<(), Error> {
        let Some(parent) = &self.parent else { return Ok(()) };
        parent.session.live()?;
        let charge = self.charge(Resource::Capabilities, 1)?;
        let need = Need { kind: Kind::Program, access: Access::Read, offset: 0, bytes: 0 };
        let root = self.registry().derive(parent.session.owner, parent.program, self.owner, need)?;
        charge.keep();
        self.root.set(Some(root));
        Ok(())
    }

    /// Its client gets it: from here on it is told of.
    pub(crate) fn be_known(&self) {
        self.known.set(true);
    }

    /// Whether it was opened whole.
    pub(crate) fn is_known(&self) -> bool {
        self.known.get()
    }

    /// Its device addresses.
    pub(crate) fn addresses(&self) -> (u64, u64) {
        (self.slot.base().0, self.slot.range().bytes())
    }

    /// The capabilities of its device.
    pub(crate) fn registry(&self) -> &Registry {
        &self.device.registry
    }

    /// The session whose program it runs.
    pub(crate) fn parent(&self) -> Option<u32> {
        self.parent.as_ref().map(|parent| parent.session.id)
    }

    /// Whether it ends with this capability for a program.
    pub(crate) fn is_opened_by(&self, handle: Handle) -> bool {
        self.root.get() == Some(handle)
    }

    /// Whether it is still open; if not, why.
    pub(crate) fn live(&self) -> Result<(), Error> {
        match &*self.why_over.borrow() {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Waits until it is over; why it is.
    pub(crate) async fn over(&self) -> Error {
        let mut phase = self.phase.subscribe();
        // The sender is a field of `self`, so the wait cannot fail.
        drop(phase.wait_for(|phase| *phase != Phase::Open).await);
        self.live().err().unwrap_or_else(|| internal("a session is neither open nor over"))
    }

    /// Whether everything was given back.
    pub(crate) fn is_gone(&self) -> bool {
        *self.phase.borrow() == Phase::Gone
    }

    fn is_closed(&self) -> bool {
        *self.phase.borrow() >= Phase::Closed
    }

    pub(crate) async fn until(&self, wanted: Phase) {
        let mut phase = self.phase.subscribe();
        // The sender is a field of `self`, so the wait cannot fail.
        drop(phase.wait_for(|phase| *phase >= wanted).await);
    }

    /// Ends it, for the first reason given, with all that it holds. A client that polls its ring sees it at once.
    pub(crate) fn end(&self, why: &Error) {
        let mut why_over = self.why_over.borrow_mut();
        if why_over.is_some() {
            return;
        }
        *why_over = Some(why.clone());
        drop(why_over);
        self.over_since.set(Some(Instant::now()));
        if let Some(unsaid) = self.party.line() {
            let (principal, used) = (self.party.principal(), self.used());
            let (device_bytes, host_bytes) = (used.get(Resource::DeviceBytes), used.get(Resource::HostBytes));
            // Whoever is told to end has no error of its own.
            let code = (why.code != ErrorCode::SessionLost).then(|| format!("{:?}", why.code));
            tracing::info!(
                target: "bulkhead::audit::session",
                session = self.id, name = self.name, pid = self.pid, principal, code, why = why.message,
                device_bytes, host_bytes, unsaid, "session over"
            );
        }
        if let Some(ring) = &*self.ring.borrow() {
            ring.control.end(why.code.into(), why.device);
        }
        let patience = self.limits.seconds(limits::DRAIN_SECONDS);
        match self.registry().revoke_owner(self.owner, patience) {
            Ok(marked) => self.registry().forget(marked.id),
            Err(error) => self.registry().expect::<()>(Err(error), "end a session"),
        }
        drop(self.granted.take());
        drop(self.offers.take());
        self.phase.send_replace(Phase::Over);
    }

    /// Ends it and waits until its memory has been given back.
    pub(crate) async fn close(&self) {
        self.end(&Error::new(ErrorCode::SessionLost, "the session was closed"));
        let mut phase = self.phase.subscribe();
        // The sender is a field of `self`, so the wait cannot fail.
        drop(phase.wait_for(|phase| *phase == Phase::Gone || self.stuck.get()).await);
    }

    /// The keeper: has everything given back once it is over.
    async fn keep(self: Rc<Self>, mut ended: oneshot::Receiver<Error>) {
        let lapse = Lapse { session: &self, expected: Cell::new(false) };
        loop {
            let link = self.link();
            tokio::select! {
                biased;
                failure = link.ended() => match self.go_on().await {
                    Some(next) => {
                        ended = next;
                        continue;
                    }
                    None => self.end(&failure.error()),
                },
                Ok(error) = &mut ended => self.end(&error),
                () = self.until(Phase::Over) => {}
                () = self.until_behind() => {
                    self.fall_behind("the standby does not do what its executor does").await;
                    continue;
                }
            }
            break;
        }
        self.hear_out().await;
        // Its kernels know no flag that ends them: their process ends.
        self.end_alone().await;
        // What changes may wait for its kernels, as code does that is loaded: so they end before it is waited for.
        self.ask_to_end();
        // What is changing commits or rolls back first; those that run its code are closed first. Nothing new begins. They
        // need not be gone: it may be this session that has their memory mapped.
        drop(self.changes.subscribe().wait_for(|changes| *changes == 0).await);
        drop(self.running.subscribe().wait_for(|running| *running == 0).await);
        // Whoever waits for what ended with it learns early that no new work names it.
        drop(self.unsevered.subscribe().wait_for(|batches| *batches == 0).await);
        // Its work passes first, however long that takes: until then what it had is out of everybody's reach.
        if let Err(error) = self.close_in_executor().await
            && self.link().failure().is_none()
            && !matches!(error.code, ErrorCode::NotFound | ErrorCode::InvalidHandle | ErrorCode::SessionLost)
        {
            // Who knows what of it is still there: nobody gets it while this executor lives.
            tracing::error!(session = self.id, %error, "the executor does not close a session");
            self.stuck.set(true);
            self.phase.send_modify(|_| {});
            self.link().ended().await;
        }
        if let Ok(error) = ended.try_recv() {
            self.note_ended(&error);
        }
        lapse.expected.set(true);
        drop(lapse);
        self.closed();
        self.gone().await;
    }

    /// The executor had ended it, and its client heard that first, and left: whoever reads the log wants to know why.
    fn note_ended(&self, error: &Error) {
        // What the kernel ended it for, the executor says again.
        let said = self.why_over.borrow().as_ref().is_some_and(|why| why.code == error.code);
        if said || error.code == ErrorCode::SessionLost {
            return;
        }
        if let Some(unsaid) = self.party.line() {
            tracing::info!(
                target: "bulkhead::audit::session",
                session = self.id, name = self.name, pid = self.pid, code = format!("{:?}", error.code),
                why = error.message, unsaid, "session had been ended"
            );
        }
    }

    /// Hears why an executor that is its alone had ended it, where it did, before the process ends. That was said before the
    /// session's client could know, and what is asked now is answered after it.
    async fn hear_out(&self) {
        if self.device.executor.is_isolated() {
            let answer = self.link().call(None, Vec::new(), |mut request| request.set_describe(()));
            drop(tokio::time::timeout(LAST_WORDS, answer).await);
        }
    }

    /// Ends an executor that is its alone, and waits until the process is gone, and with it all that was the device's.
    async fn end_alone(&self) {
        if self.alone.take().is_some() {
            self.device.executor.until_ended().await;
        }
    }

    /// Has the executor close it. The slot may be in use for longer: then nobody gets it before the executor says so.
    async fn close_in_executor(&self) -> Result<(), Error> {
        let (left, mut closed) = self.ask_to_close();
        tokio::select! {
            biased;
            closed = &mut closed => closed.map(drop),
            Ok(()) = left => {
                // Whoever opened it has one session less to open until its slot is somebody's again.
                let leases = (self.lease.take(), self.standby_lease.take(), self.place.take());
                let link = self.link();
                tokio::task::spawn_local(async move {
                    if let Err(error) = closed.await && link.failure().is_none() {
                        tracing::error!(%error, "the executor does not clean a slot");
                        link.ended().await;
                    }
                    drop(leases);
                });
                Ok(())
            }
        }
    }

    /// The executor does not know the session any more: nothing is mapped in it, none of its work runs.
    fn closed(&self) {
        self.link().forget_session(self.id);
        if let Some(parent) = &self.parent {
            parent.session.running.send_modify(|count| *count = count.saturating_sub(1));
        }
        if let Some(standby) = self.standby.take() {
            standby.link.forget_session(self.id);
        }
        self.standby_lease.borrow_mut().take();
        self.follows.borrow_mut().take();
        for (_, mapping) in self.mappings.take() {
            self.unmapped(&mapping);
        }
        self.release_all_addresses();
        drop(self.gates.take());
        let objects: Vec<ObjectId> = self.objects.borrow().iter().copied().collect();
        for thing in objects.iter().filter_map(|object| self.registry().thing(*object).ok()) {
            match &thing.what {
                What::Memory(memory) => memory.set_mapped(false),
                What::Code(code) => code.state.set(Loaded::No),
                What::Host { mapped, .. } => mapped.set(false),
                // Its window outlives the session there until it is removed.
                What::Point(_) | What::Program | What::Peer | What::Module(_) => {}
            }
        }
        // Before anything is given back: the task that reclaims lets go of what it holds.
        self.phase.send_replace(Phase::Closed);
        self.registry().close_line(self.line);
        self.registry().may_give_back_all(objects);
        self.lease.borrow_mut().take();
    }

    /// Gives the rest back once nobody has any of it.
    async fn gone(&self) {
        let (mut children, mut reaping) = (self.children.subscribe(), self.reaping.subscribe());
        drop(children.wait_for(|children| *children == 0).await);
        drop(reaping.wait_for(|batches| *batches == 0).await);
        while !self.objects.borrow().is_empty() {
            self.fewer.notified().await;
        }
        self.registry().close_owner(self.owner);
        let regions = [&self.lower, &self.upper, &self.shelf].map(|region| region.borrow().taken_bytes());
        let regions: u64 = regions.into_iter().sum();
        if regions > 0 {
            let left = internal(format!("{regions} bytes of addresses are still taken"));
            self.registry().expect::<()>(Err(left), "leave a slot");
        }
        let (mapped, lent) = (self.tally.mapped_bytes(), self.tally.lent());
        if mapped > 0 || lent > 0 {
            let left = internal(format!("{mapped} bytes are counted as mapped, {lent} memories as lent"));
            self.registry().expect::<()>(Err(left), "count memory");
        }
        self.close_account();
        self.place.borrow_mut().take();
        self.kept.replace(Some(self.party.count(Counted::GoneSessions, 1)));
        drop((self.ring.take(), self.page.take()));
        for descriptors in self.on_the_way_out.take().iter().filter_map(Weak::upgrade) {
            drop(descriptors.take());
        }
        self.phase.send_replace(Phase::Gone);
        if let Some(parent) = &self.parent {
            parent.session.children.send_modify(|count| *count = count.saturating_sub(1));
        }
    }

    /// An object of it is no more.
    pub(crate) fn gave_back(&self, object: ObjectId, thing: &Object) {
        self.objects.borrow_mut().remove(&object);
        self.memories.borrow_mut().remove(&object);
        self.fewer.notify_one();
        match &thing.what {
            What::Memory(memory) => {
                let home = self.home_of(memory.range);
                let released = home.borrow_mut().release(memory.range).map_err(refusal::region);
                self.registry().expect(released, "release");
                self.refund(Resource::Pieces, memory.pieces().len() as u64);
                if !memory.away.get() {
                    self.refund(Resource::DeviceBytes, memory.range.bytes());
                }
            }
            What::Host { place, charges, .. } => {
                let released = place.map_or(Ok(()), |place| self.lower.borrow_mut().release(place));
                self.registry().expect(released.map_err(refusal::region), "release");
                drop(charges.take());
            }
            What::Code(code) => {
                drop(code.charges.take());
                let settled = self.settle_local(0);
                self.registry().expect(settled, "give local memory back");
            }
            What::Module(owned) => owned.gave_back(),
            What::Point(_) | What::Program | What::Peer => {}
        }
    }

    /// A sturdy token is good no more.
    pub(crate) fn forget_token(&self, token: SturdyToken) {
        self.device.sturdy.remove(token);
    }
}

/// An executor that ends with this, where it is one session's alone.
struct Alone {
    executor: Rc<ExecutorProxy>,
    /// What is charged for it as long as there is no session.
    charges: Vec<Charge>,
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.executor.end_isolated();
        let (executor, charges) = (Rc::clone(&self.executor), std::mem::take(&mut self.charges));
        if executor.is_isolated() && !charges.is_empty() {
            tokio::task::spawn_local(async move {
                executor.until_ended().await;
                drop(charges);
            });
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
