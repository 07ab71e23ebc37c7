//! The ledger of a device, and what is charged in it.
//!
//! A [`Charge`] is made before what it is for is taken, and goes back when it is dropped, once: whoever owns what it is
//! for owns it too.

use std::{
    cell::{Cell, Ref, RefCell, RefMut},
    rc::Rc,
    time::Duration,
};

use bulkhead_mm::{Account, Amounts, Ledger, LedgerError, Resource};
use bulkhead_schema::{Error, bulkhead_capnp::column};

use crate::{faults::Faults, refusal};

/// Who uses how much of a device.
pub(crate) struct DeviceLedger {
    ledger: RefCell<Ledger>,
    faults: Rc<Faults>,
}

impl DeviceLedger {
    /// An empty one. What it finds that cannot be it notes as a fault.
    pub(crate) fn new(faults: Rc<Faults>) -> Rc<Self> {
        Rc::new(Self { ledger: RefCell::new(Ledger::new(Amounts::default())), faults })
    }

    pub(crate) fn borrow(&self) -> Ref<'_, Ledger> {
        self.ledger.borrow()
    }

    pub(crate) fn borrow_mut(&self) -> RefMut<'_, Ledger> {
        self.ledger.borrow_mut()
    }
}

/// Something charged, given back on drop unless it is kept.
#[must_use]
pub(crate) struct Charge {
    ledger: Rc<DeviceLedger>,
    account: Account,
    resource: Resource,
    amount: u64,
}

impl Charge {
    /// Of an account.
    pub(crate) fn new(
        ledger: &Rc<DeviceLedger>,
        account: Account,
        resource: Resource,
        amount: u64,
    ) -> Result<Self, Error> {
        ledger.borrow_mut().charge(account, resource, amount).map_err(refusal::ledger)?;
        Ok(Self { ledger: Rc::clone(ledger), account, resource, amount })
    }

    /// The rest stays charged: so much less is given back on drop.
    pub(crate) fn spend(&mut self, amount: u64) {
        self.amount = self.amount.saturating_sub(amount);
    }

    /// Leaves it charged: what it is for says itself when it goes.
    pub(crate) fn keep(mut self) {
        self.amount = 0;
    }

    /// Makes it larger or smaller, or leaves it as it is.
    pub(crate) fn resize(&mut self, amount: u64) -> Result<(), Error> {
        if amount > self.amount {
            let more = Self::new(&self.ledger, self.account, self.resource, amount - self.amount)?;
            more.keep();
        } else {
            self.give_back(self.amount - amount);
        }
        self.amount = amount;
        Ok(())
    }

    /// How much it is.
    pub(crate) fn amount(&self) -> u64 {
        self.amount
    }

    fn give_back(&self, amount: u64) {
        if amount == 0 {
            return;
        }
        let released = self.ledger.borrow_mut().release(self.account, self.resource, amount);
        match released {
            // An account that was closed has given back whatever was charged to it.
            Ok(()) | Err(LedgerError::NoAccount) => {}
            Err(error) => self.ledger.faults.note::<()>(Err(refusal::ledger(error)), "give back a charge"),
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.give_back(self.amount);
    }
}

/// Time that may be spent, and that was.
pub(crate) struct Spending<'a> {
    pub(crate) most: Duration,
    pub(crate) spent: &'a Cell<Duration>,
}

/// How many columns there are.
pub(crate) fn columns() -> u32 {
    u32::try_from(Resource::ALL.len()).unwrap_or(u32::MAX)
}

/// Writes what is used of everything.
pub(crate) fn write_columns(
    used: Amounts,
    most: Amounts,
    mut columns: capnp::struct_list::Builder<'_, column::Owned>,
) {
    for (at, resource) in (0..columns.len()).zip(Resource::ALL) {
        let mut column = columns.reborrow().get(at);
        column.set_name(resource.key());
        column.set_used(used.get(resource));
        column.set_limit(most.get(resource));
    }
}
