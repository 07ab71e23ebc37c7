//! What a session is charged for, and what gives it back.

use std::{
    cell::{Cell, RefCell},
    os::fd::OwnedFd,
    rc::Rc,
    time::Duration,
};

use bulkhead_mm::{Account, Amounts, Resource};
use bulkhead_schema::{Error, ErrorCode, bulkhead_capnp::column, limits};

use crate::session::{Parent, Session, device::Device};
use crate::{
    executor_proxy::{self, Answer},
    ledger::{Charge, Spending, write_columns},
    refusal,
    transport::descriptors::{OnTheWay, Parcel},
};

/// Streams that a session has from its start.
const STREAMS_AT_FIRST: u32 = 1;

/// An account that is closed with whatever is charged to it, unless a session takes it over.
pub(super) struct NewAccount {
    device: Rc<Device>,
    account: Account,
    kept: bool,
}

impl NewAccount {
    /// An account of a session's own, or one below its parent's.
    pub(super) fn open(device: &Rc<Device>, parent: Option<&Parent>, most: Amounts) -> Result<Self, Error> {
        let mut ledger = device.executor.ledger.borrow_mut();
        let account = match parent {
            None => ledger.open(most),
            Some(parent) => {
                parent.session.live()?;
                ledger.open_below(parent.session.account, most).map_err(refusal::ledger)?
            }
        };
        Ok(Self { device: Rc::clone(device), account, kept: false })
    }

    pub(super) fn charge(&self, resource: Resource, amount: u64) -> Result<Charge, Error> {
        Charge::new(&self.device.executor.ledger, self.account, resource, amount)
    }

    pub(super) fn most(&self) -> Amounts {
        self.device.executor.ledger.borrow().limits_of(self.account)
    }

    pub(super) fn keep(mut self) -> Account {
        self.kept = true;
        self.account
    }
}

impl Drop for NewAccount {
    fn drop(&mut self) {
        if !self.kept {
            let closed = self.device.executor.ledger.borrow_mut().close(self.account);
            self.device.registry.expect(closed.map_err(refusal::ledger), "close a new account");
        }
    }
}

/// Time to compile: charged ahead, and what was not spent goes back when it is dropped.
pub(super) struct CompileTime {
    charge: Charge,
    spent: Cell<Duration>,
}

impl CompileTime {
    /// For whoever compiles: how long that may take, and how long it took.
    pub(super) fn spending(&self) -> Spending<'_> {
        Spending { most: Duration::from_millis(self.charge.amount()), spent: &self.spent }
    }

    pub(super) fn spend(&self, more: Duration) {
        self.spent.set(self.spent.get().saturating_add(more));
    }
}

impl Drop for CompileTime {
    fn drop(&mut self) {
        let spent = u64::try_from(self.spent.get().as_micros().div_ceil(1000)).unwrap_or(u64::MAX);
        // What was spent stays consumed.
        self.charge.spend(spent);
    }
}

impl Session {
    /// Descriptors for its client to fetch: they are gone with the session.
    pub(crate) fn parcel(&self, descriptors: Vec<OwnedFd>, charge: Charge) -> Parcel {
        self.parcel_of(descriptors.into_iter().map(Rc::new).collect(), Some(charge)).0
    }

    /// The same of descriptors that may be open in any case; and the means to have them not handed over.
    pub(crate) fn parcel_of(
        &self,
        descriptors: Vec<Rc<OwnedFd>>,
        charge: Option<Charge>,
    ) -> (Parcel, OnTheWay) {
        let descriptors = Rc::new(RefCell::new(descriptors));
        let mut known = self.on_the_way_out.borrow_mut();
        known.retain(|known| known.strong_count() > 0);
        known.push(Rc::downgrade(&descriptors));
        (Parcel::new(Rc::clone(&descriptors), charge), descriptors)
    }

    /// What it uses.
    pub(crate) fn used(&self) -> Amounts {
        self.device.executor.ledger.borrow().used_by(self.account)
    }

    /// What it is charged of the device's memory for what its process is known to have taken.
    pub(crate) fn charged_for_process(&self) -> u64 {
        let (used, beside) = (self.used(), self.beside.borrow());
        let known = used.get(Resource::DeviceBytes).saturating_add(used.get(Resource::LocalBytes));
        known.saturating_sub(beside.as_ref().map_or(0, Charge::amount))
    }

    /// Charges what its process takes beside that; `before` is what it was charged for when that was asked. Where that cannot be
    /// charged, and is more than is tolerated, the session ends.
    pub(crate) fn meter(&self, taken: u64, before: u64) {
        let charged = self.charged_for_process().max(before);
        let beside = self.meter.borrow_mut().read(taken, charged);
        let done = {
            let mut kept = self.beside.borrow_mut();
            match &mut *kept {
                Some(charge) => charge.resize(beside),
                None if beside == 0 => Ok(()),
                None => self.charge(Resource::DeviceBytes, beside).map(|charge| *kept = Some(charge)),
            }
        };
        let uncharged = beside - self.beside.borrow().as_ref().map_or(0, Charge::amount).min(beside);
        let (used, most) = (self.used().get(Resource::DeviceBytes), self.most().get(Resource::DeviceBytes));
        if let Err(error) = done
            && uncharged > executor_proxy::TOLERATED_BYTES
            // Where others have all of the device, that is none of this session's doing.
            && used.saturating_add(uncharged) > most
        {
            let message = format!(
                "its process has taken {uncharged} bytes of the device beside what it allocated: {}",
                error.message
            );
            self.end(&Error::new(ErrorCode::OutOfMemory, message));
        }
    }

    /// What it could use at most, were it alone.
    pub(super) fn most(&self) -> Amounts {
        self.device.executor.ledger.borrow().limits_of(self.account)
    }

    /// Charges the account until the result is dropped, or for longer if that is [kept](Charge::keep).
    pub(crate) fn charge(&self, resource: Resource, amount: u64) -> Result<Charge, Error> {
        if resource == Resource::Capabilities {
            self.may_end_more()?;
        }
        Charge::new(&self.device.executor.ledger, self.account, resource, amount)
    }

    /// Keeps a charge for as long as the session is there.
    pub(super) fn keep_charge(&self, charge: Charge) {
        self.charges.borrow_mut().push(charge);
    }

    pub(crate) fn refund(&self, resource: Resource, amount: u64) {
        let refunded = self.device.executor.ledger.borrow_mut().refund(self.account, resource, amount);
        // The account of a session that is gone has been closed, and everything with it refunded.
        if let Err(error) = refunded
            && !self.is_gone()
        {
            self.registry().expect::<()>(Err(refusal::ledger(error)), "refund");
        }
    }

    /// Time for an image: as much as its compilers may take, or what is left.
    pub(super) fn compile_time(&self) -> Result<CompileTime, Error> {
        let left = self.device.executor.ledger.borrow().left(self.account, Resource::CompileMilliseconds);
        let wanted = (2 * limits::COMPILE_SECONDS * 1000).min(left).max(1);
        let charge = self.charge(Resource::CompileMilliseconds, wanted)?;
        Ok(CompileTime { charge, spent: Cell::new(Duration::ZERO) })
    }

    /// What the executor is told at the start that records may name.
    pub(super) fn reserved(&self) -> (u32, u32) {
        self.reserved.get()
    }

    pub(super) fn reserve_first(&self) -> Result<(), Error> {
        self.keep_charge(self.charge(Resource::Streams, u64::from(STREAMS_AT_FIRST))?);
        self.reserved.set((STREAMS_AT_FIRST, 0));
        self.reserved_there.set((STREAMS_AT_FIRST, 0));
        Ok(())
    }

    /// Has records name streams and events below these numbers; what they may name then.
    pub(crate) async fn reserve(&self, streams: u32, events: u32) -> Result<(u32, u32), Error> {
        self.live()?;
        let many = |what: &str, most: u32| {
            Err(Error::new(ErrorCode::LimitReached, format!("a session has at most {most} {what}"))
                .remedy("give up those that are not needed any more"))
        };
        if streams > limits::STREAMS_MAX {
            return many("streams", limits::STREAMS_MAX);
        }
        if events > limits::EVENTS_MAX {
            return many("events", limits::EVENTS_MAX);
        }
        let before = self.reserved();
        let wanted = (streams.max(before.0), events.max(before.1));
        if wanted != before {
            let _change = self.change()?;
            let streams = self.charge(Resource::Streams, u64::from(wanted.0 - before.0))?;
            let events = self.charge(Resource::Events, u64::from(wanted.1 - before.1))?;
            self.keep_charge(streams);
            self.keep_charge(events);
            self.reserved.set(wanted);
        }
        let known = self.reserved_there.get();
        if streams > known.0 || events > known.1 {
            // Also where somebody else has asked: records may name nothing that the executor does not know of.
            let asked = self.ask(Vec::new(), |request| {
                let mut reserve = request.init_reserve();
                reserve.set_session(self.id);
                reserve.set_streams(wanted.0);
                reserve.set_events(wanted.1);
            });
            match asked.await? {
                Answer::Done => {}
                other => return Err(self.nonsense(&other)),
            }
            let known = self.reserved_there.get();
            self.reserved_there.set((wanted.0.max(known.0), wanted.1.max(known.1)));
        }
        Ok(self.reserved_there.get())
    }

    /// Closes its account, to which nothing but what others still hold of it may be charged.
    pub(super) fn close_account(&self) {
        drop(self.charges.take());
        drop(self.local.take());
        drop(self.beside.take());
        self.swap.forget_area();
        // Descriptors on their way to the client, revocations and tokens that are held, gifts and fences that somebody
        // is just letting go of: what they are charged goes with the account.
        let outlive = [
            Resource::Descriptors,
            Resource::KernelBytes,
            Resource::Revocations,
            Resource::Tokens,
            Resource::Fences,
            Resource::Gifts,
            Resource::Uploads,
            Resource::Images,
            Resource::CompileMilliseconds,
        ];
        let left = Resource::ALL.into_iter().filter(|resource| !outlive.contains(resource));
        let used = self.used();
        let left = left.fold(Amounts::NONE, |left, resource| left.with(resource, used.get(resource)));
        if left != Amounts::NONE {
            let error = refusal::internal(format!("{left:?} are charged to a session that has nothing"));
            self.registry().expect::<()>(Err(error), "close an account");
        }
        match self.device.executor.ledger.borrow_mut().close(self.account) {
            Ok(refunded) => {
                if let Some(unsaid) = self.party.line() {
                    tracing::info!(target: "bulkhead::audit", session = self.id, ?refunded, unsaid, "session gone");
                }
            }
            Err(error) => self.registry().expect::<()>(Err(refusal::ledger(error)), "close an account"),
        }
    }

    /// Writes what it uses of everything.
    pub(crate) fn write_ledger(&self, columns: capnp::struct_list::Builder<'_, column::Owned>) {
        self.expire_offers();
        write_columns(self.used(), self.most(), columns);
    }
}
