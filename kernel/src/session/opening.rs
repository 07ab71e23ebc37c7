//! Opening a session: what it is charged, the executor that serves it, and what its client is given.

use std::{
    cell::{Cell, RefCell},
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
};

use bulkhead_caps::{Line, Owner};
use bulkhead_mm::{Account, Region, Resource, SINK_BYTES};
use bulkhead_ring::Control;
use bulkhead_schema::{Error, ErrorCode, Handle, limits};
use tokio::sync::{Mutex, Notify, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    Limits,
    executor_proxy::{self, Answer, EntryInfo, Incarnation, SlotLease, no_descriptors},
    ledger::Charge,
    principals::{Party, Taken},
    refusal::internal,
    session::{
        Alone, DESCRIPTORS, Parent, Phase, Ring, SHARED_BYTES, Session,
        account::NewAccount,
        device::Device,
        memory::{self, cuts::Cuts},
        passing::{Drains, Passing},
        states::Told,
        swap::state::Swap,
        terms::{Domain, Terms},
    },
};

impl Ring {
    /// A ring, once for its client and once as its own.
    fn create() -> Result<(OwnedFd, Self), Error> {
        let ring = bulkhead_ring::memory::create()
            .map_err(|error| internal(format!("no memory for the ring: {error}")))?;
        let memory = ring
            .try_clone()
            .map_err(|error| internal(format!("the ring's descriptor cannot be copied: {error}")))?;
        let control = Control::map(ring.as_fd())
            .map_err(|error| internal(format!("the ring cannot be mapped: {error}")))?;
        Ok((ring, Self { memory, control }))
    }
}

/// A session to be opened.
pub(crate) struct Opening {
    pub(crate) device: Rc<Device>,
    pub(crate) name: String,
    pub(crate) pid: u32,
    pub(crate) limits: Limits,
    pub(crate) terms: Terms,
    pub(crate) parent: Option<Parent>,
    pub(crate) party: Rc<Party>,
    pub(crate) place: Taken,
    /// Told when its client has gone away.
    pub(crate) left: CancellationToken,
}

/// A session that was just opened, and what its client gets.
pub(crate) struct Opened {
    pub(crate) session: OpenSession,
    pub(crate) ring: OwnedFd,
    pub(crate) completions: OwnedFd,
    pub(crate) entries: Vec<(Handle, Rc<EntryInfo>)>,
    /// For the descriptors.
    pub(crate) on_the_way: Charge,
}

/// The client's hold on a session: dropping it ends the session.
pub(crate) struct OpenSession(pub(crate) Rc<Session>);

impl Drop for OpenSession {
    fn drop(&mut self) {
        self.0.end(&Error::new(ErrorCode::SessionLost, "the session was closed"));
    }
}

/// What a session begins with.
struct Begun {
    id: u32,
    name: String,
    pid: u32,
    device: Rc<Device>,
    incarnation: Rc<Incarnation>,
    lease: SlotLease,
    ring: Ring,
    account: Account,
    owner: Owner,
    line: Line,
    limits: Limits,
    terms: Terms,
    parent: Option<Parent>,
    party: Rc<Party>,
    place: Taken,
    alone: Alone,
}

/// Whether what is guarded there reaches nobody's memory but the session's.
fn is_confined(incarnation: &Incarnation, isolated: bool) -> Result<(), Error> {
    if incarnation.info.reaches_its_process() && !isolated {
        let message = "HMM is on, so guarded kernels could reach the memory of everybody's executor";
        return Err(Error::new(ErrorCode::NotSupported, message).remedy(
            "open an isolated session (`bulkhead run --domain isolated`), or load the driver with `uvm_disable_hmm=1`",
        ));
    }
    Ok(())
}

impl Session {
    /// Opens a session on whichever executor serves the device, or its parent.
    pub(crate) async fn open(opening: Opening, number: impl FnOnce() -> u32) -> Result<Opened, Error> {
        let Opening { device, name, pid, limits, terms, parent, party, place, left } = opening;
        let isolated = parent.is_none() && terms.domain == Domain::Isolated;
        let incarnation = match &parent {
            Some(parent) => parent.session.incarnation(),
            None => device.executor.wait().await?,
        };
        is_confined(&incarnation, isolated)?;
        let account = NewAccount::open(
            &device,
            parent.as_ref(),
            terms.most.min(limits.session_amounts(&incarnation.info)),
        )?;
        // What an isolated session's process takes is charged before there is one.
        let context = if isolated { executor_proxy::context_bytes(&incarnation.info) } else { 0 };
        memory::room::wait_to_open(&device, context, &limits).await;
        let charges = Self::charges(&account, isolated, context)?;
        let on_the_way = account.charge(Resource::Descriptors, DESCRIPTORS)?;
        let (device, incarnation, charges) = match isolated {
            true => device.isolate(&party, charges).await?,
            false => (device, incarnation, charges),
        };
        // From when its session is over on, an executor of its own ends.
        let alone = Alone { executor: Rc::clone(&device.executor), charges };
        let is_wide = device.executor.is_isolated() && incarnation.runs_machine_code();
        let lease = if is_wide { incarnation.lease_wide() } else { incarnation.lease() };
        let lease = lease.ok_or_else(|| {
            Error::new(ErrorCode::LimitReached, "the device has as many sessions as it can have")
                .remedy("close a session, or try again later")
        })?;
        let (ring, own_ring) = Ring::create()?;
        let capabilities = u32::try_from(account.most().get(Resource::Capabilities)).unwrap_or(u32::MAX);
        let (owner, line) = device.registry.open(capabilities);
        let session = Rc::new(Self::begin(Begun {
            id: number(),
            name,
            pid,
            device,
            incarnation,
            lease,
            ring: own_ring,
            account: account.keep(),
            owner,
            line,
            limits,
            terms,
            parent,
            party,
            place,
            alone,
        }));
        session.registry().know(owner, Rc::downgrade(&session));
        if let Some(parent) = &session.parent {
            parent.session.children.send_modify(|count| *count += 1);
            parent.session.running.send_modify(|count| *count += 1);
        }
        tokio::task::spawn_local(Rc::clone(&session).reap_what_dies());
        match session.open_in_executor(&ring, &left).await {
            Ok((completions, ended)) => {
                let (session, entries) = session.serve(ended).await?;
                Ok(Opened { session, ring, completions, entries, on_the_way })
            }
            Err(error) => {
                session.end(&error);
                session.end_alone().await;
                session.closed();
                session.gone().await;
                Err(error)
            }
        }
    }

    /// What a session takes of its account, whatever it does.
    fn charges(account: &NewAccount, isolated: bool, context: u64) -> Result<Vec<Charge>, Error> {
        let output = if isolated { executor_proxy::OUTPUT_KEPT_BYTES } else { 0 };
        Ok(vec![
            account.charge(Resource::DeviceBytes, context)?,
            account.charge(Resource::Sessions, 1)?,
            account.charge(Resource::Descriptors, DESCRIPTORS)?,
            account.charge(Resource::KernelBytes, SHARED_BYTES + limits::HELD_BYTES_MAX)?,
            account.charge(Resource::KernelBytes, output)?,
        ])
    }

    /// A session that no executor knows yet.
    fn begin(begun: Begun) -> Self {
        let Begun { id, name, pid, device, incarnation, lease, ring, account, owner, line, .. } = begun;
        let Begun { limits, terms, parent, party, place, mut alone, .. } = begun;
        let slot = lease.slot;
        Self {
            id,
            name,
            pid,
            device,
            incarnation: RefCell::new(incarnation),
            standby: RefCell::default(),
            slot,
            lease: RefCell::new(Some(lease)),
            told: watch::Sender::new(Told::Nothing),
            follows: RefCell::default(),
            adopting: watch::Sender::new(0),
            standby_lease: RefCell::default(),
            asked: Cell::new(0),
            moves: watch::Sender::new(0),
            page: RefCell::default(),
            ring: RefCell::new(Some(ring)),
            on_the_way_out: RefCell::default(),
            account,
            charges: RefCell::new(std::mem::take(&mut alone.charges)),
            local: RefCell::default(),
            beside: RefCell::default(),
            meter: RefCell::default(),
            outputs: Mutex::default(),
            reserved: Cell::new((0, 0)),
            reserved_there: Cell::new((0, 0)),
            owner,
            line,
            limits,
            terms,
            parent,
            root: Cell::new(None),
            children: watch::Sender::new(0),
            running: watch::Sender::new(0),
            lower: RefCell::new(Region::new(slot.read_write())),
            upper: RefCell::new(Region::new(slot.read_only())),
            shelf: RefCell::new(Region::new(slot.shelf())),
            reservations: RefCell::default(),
            mappings: RefCell::default(),
            gates: RefCell::default(),
            objects: RefCell::default(),
            memories: RefCell::default(),
            tally: Rc::default(),
            fewer: Notify::new(),
            lent: RefCell::default(),
            allowed: RefCell::default(),
            granted: RefCell::default(),
            granted_more: Notify::new(),
            offers: RefCell::default(),
            changes: watch::Sender::new(0),
            loading: Mutex::new(()),
            why_over: RefCell::default(),
            over_since: Cell::new(None),
            cuts: Cuts::default(),
            phase: watch::Sender::new(Phase::Open),
            dying: RefCell::default(),
            passing: Passing::default(),
            batches: Cell::new(0),
            dying_more: Notify::new(),
            on_their_way: Cell::new(0),
            others_on_their_way: Rc::default(),
            unsevered: watch::Sender::new(0),
            drains: Drains::default(),
            reaping: watch::Sender::new(0),
            unmapping: Cell::new(0),
            stuck: Cell::new(false),
            swap: Swap::new(),
            party,
            place: RefCell::new(Some(place)),
            kept: RefCell::default(),
            known: Cell::new(false),
            alone: RefCell::new(Some(alone)),
        }
    }

    /// The executor has it: tells so, and answers what its client is given.
    async fn serve(
        self: Rc<Self>,
        ended: oneshot::Receiver<Error>,
    ) -> Result<(OpenSession, Vec<(Handle, Rc<EntryInfo>)>), Error> {
        if let Some(unsaid) = self.party.line() {
            let principal = self.party.principal();
            let domain = if self.device.executor.is_isolated() { "isolated" } else { "guarded" };
            let (session, slot) = (self.id, self.slot.index());
            tracing::info!(
                target: "bulkhead::audit::session",
                session, name = self.name, pid = self.pid, principal, domain, slot, unsaid, "session opened"
            );
        }
        tokio::task::spawn_local(Rc::clone(&self).keep(ended));
        let session = OpenSession(self);
        // Where it has ended meanwhile, its keeper has the executor close it.
        session.0.live()?;
        let entries = session.0.take_entries().await?;
        if let Some(standby) = session.0.device.executor.standby() {
            // Its client may rely on the standby from here on, unless that takes very long.
            let (awaited, told) = oneshot::channel();
            tokio::task::spawn_local(Rc::clone(&session.0).follow(standby, awaited));
            drop(tokio::time::timeout(session.0.limits.second, told).await);
        }
        Ok((session, entries))
    }

    async fn open_in_executor(
        &self,
        ring: &OwnedFd,
        left: &CancellationToken,
    ) -> Result<(OwnedFd, oneshot::Receiver<Error>), Error> {
        self.take_root()?;
        self.reserve_first()?;
        // A plain slot has none.
        let sink =
            self.charge_device(if self.device.executor.is_isolated() { 0 } else { SINK_BYTES }).await?;
        self.keep_charge(sink);
        let ring = ring
            .try_clone()
            .map_err(|error| internal(format!("the ring's descriptor cannot be copied: {error}")))?;
        let ended = self.link().session_ended(self.id);
        let opened = self.ask_alone(vec![ring], |request| {
            let mut open = request.init_open_session();
            open.set_session(self.id);
            open.set_slot(self.slot.index());
            let (streams, events) = self.reserved();
            open.set_streams(streams);
            open.set_events(events);
        });
        // The device's executor is waited for: it has the session, whatever its client does. An isolated one ends with it.
        let given_up = async {
            if !self.device.executor.is_isolated() {
                std::future::pending::<()>().await;
            }
            let late = Error::new(ErrorCode::Unavailable, "the session's executor does not open it")
                .remedy("try again: it may be busy");
            tokio::select! {
                () = tokio::time::sleep(self.limits.request()) => late,
                () = left.cancelled() => Error::new(ErrorCode::SessionLost, "the client's connection has ended"),
                why = self.over() => why,
            }
        };
        let opened = tokio::select! {
            biased;
            opened = opened => opened,
            why = given_up => Err(why),
        };
        match opened? {
            Answer::Opened(Some(completions)) => Ok((completions, ended)),
            Answer::Opened(None) => {
                // The executor has it all the same, and its slot.
                let close =
                    self.link().call(None, Vec::new(), |mut request| request.set_close_session(self.id));
                self.done(&close.await?)?;
                Err(no_descriptors())
            }
            other => Err(self.nonsense(&other)),
        }
    }
}
