//! One executor process, and its slots of device addresses.

use std::{cell::RefCell, rc::Rc};

use bulkhead_mm::Slot;
use bulkhead_schema::{Error, ErrorCode};
use tokio::{process::Child, sync::Notify};

use crate::executor_proxy::{answer::DeviceInfo, busy::BusyTimes, cell, link::Link};

/// One executor process and what lives and dies with it.
pub(crate) struct Incarnation {
    pub(crate) link: Rc<Link>,
    pub(crate) info: DeviceInfo,
    /// 0 where the executor is not a child of this process.
    pub(crate) pid: u32,
    memory_bound: Option<Rc<cell::MemoryBound>>,
    slots_taken: RefCell<Vec<bool>>,
    /// Told when a slot is free again.
    slot_freed: Notify,
    pub(super) busy: BusyTimes,
}

impl Incarnation {
    pub(super) fn new(
        link: Rc<Link>,
        info: DeviceInfo,
        pid: u32,
        memory_bound: Option<Rc<cell::MemoryBound>>,
        slots: u32,
    ) -> Self {
        Self {
            link,
            info,
            pid,
            memory_bound,
            slots_taken: RefCell::new(vec![false; slots as usize]),
            slot_freed: Notify::new(),
            busy: BusyTimes::default(),
        }
    }

    /// Lets the process have an area of so many bytes beside its memory, where something bounds that.
    pub(crate) fn allow_area(&self, bytes: u64) -> Result<(), Error> {
        let allowed = self.memory_bound.as_ref().map_or(Ok(()), |bound| bound.allow_beside(bytes));
        allowed.map_err(|error| Error::new(ErrorCode::OutOfMemory, format!("the executor's cgroup: {error}")))
    }

    /// Takes a free slot of device addresses, until the lease is dropped.
    pub(crate) fn lease(self: &Rc<Self>) -> Option<SlotLease> {
        let mut taken = self.slots_taken.borrow_mut();
        let free = taken.iter().position(|taken| !taken)?;
        let slot = u32::try_from(free).ok().and_then(Slot::new)?;
        *taken.get_mut(free)? = true;
        drop(taken);
        Some(SlotLease { incarnation: Rc::clone(self), slot })
    }

    /// Takes the wide slot of an executor that has no other.
    pub(crate) fn lease_wide(self: &Rc<Self>) -> Option<SlotLease> {
        let mut lease = self.lease()?;
        (lease.slot.index() == 0).then(|| {
            lease.slot = Slot::wide();
            lease
        })
    }

    /// Whether its device takes machine code: the software GPU runs guarded PTX, whoever's it is.
    pub(crate) fn runs_machine_code(&self) -> bool {
        self.info.backend != "software"
    }

    /// Takes the same slot as in another executor, until the lease is dropped; `None` where somebody has it.
    pub(crate) fn lease_same(self: &Rc<Self>, slot: Slot) -> Option<SlotLease> {
        let mut taken = self.slots_taken.borrow_mut();
        let place = taken.get_mut(slot.index() as usize).filter(|taken| !**taken)?;
        *place = true;
        drop(taken);
        Some(SlotLease { incarnation: Rc::clone(self), slot })
    }

    /// The same once nobody has it any more; `None` where this executor is lost before.
    pub(crate) async fn lease_same_when_free(self: &Rc<Self>, slot: Slot) -> Option<SlotLease> {
        loop {
            let freed = self.slot_freed.notified();
            if let Some(lease) = self.lease_same(slot) {
                return Some(lease);
            }
            tokio::select! {
                () = freed => {}
                _ = self.link.ended() => return None,
            }
        }
    }
}

/// A slot of device addresses that is nobody else's.
pub(crate) struct SlotLease {
    incarnation: Rc<Incarnation>,
    pub(crate) slot: Slot,
}

impl Drop for SlotLease {
    fn drop(&mut self) {
        if let Some(taken) = self.incarnation.slots_taken.borrow_mut().get_mut(self.slot.index() as usize) {
            *taken = false;
        }
        self.incarnation.slot_freed.notify_waiters();
    }
}

/// A second executor.
pub(super) struct Standby {
    pub(super) incarnation: Rc<Incarnation>,
    pub(super) child: Option<Child>,
    /// Whether it knows every session that was there when it came, but those that did not rest.
    pub(super) is_ready: bool,
}
