//! Who has used how much.

use std::collections::BTreeMap;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resource {
    /// Physical device memory: arenas and sinks, in bytes.
    DeviceBytes,
    /// Device memory that buffers take of the arenas, in bytes.
    BufferBytes,
    /// Host memory pinned for the device, in bytes.
    HostBytes,
    /// Capabilities.
    Capabilities,
    /// Loaded images.
    Images,
}

impl Resource {
    /// Every one of them.
    pub const ALL: [Self; 5] =
        [Self::DeviceBytes, Self::BufferBytes, Self::HostBytes, Self::Capabilities, Self::Images];

    /// What it is called in a message.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DeviceBytes => "bytes of device memory",
            Self::BufferBytes => "bytes of buffers",
            Self::HostBytes => "bytes of host memory",
            Self::Capabilities => "capabilities",
            Self::Images => "images",
        }
    }
}

/// An amount of every resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amounts {
    /// See [`Resource::DeviceBytes`].
    pub device_bytes: u64,
    /// See [`Resource::BufferBytes`].
    pub buffer_bytes: u64,
    /// See [`Resource::HostBytes`].
    pub host_bytes: u64,
    /// See [`Resource::Capabilities`].
    pub capabilities: u64,
    /// See [`Resource::Images`].
    pub images: u64,
}

impl Amounts {
    /// The amount of one resource.
    #[must_use]
    pub const fn get(&self, resource: Resource) -> u64 {
        match resource {
            Resource::DeviceBytes => self.device_bytes,
            Resource::BufferBytes => self.buffer_bytes,
            Resource::HostBytes => self.host_bytes,
            Resource::Capabilities => self.capabilities,
            Resource::Images => self.images,
        }
    }

    fn get_mut(&mut self, resource: Resource) -> &mut u64 {
        match resource {
            Resource::DeviceBytes => &mut self.device_bytes,
            Resource::BufferBytes => &mut self.buffer_bytes,
            Resource::HostBytes => &mut self.host_bytes,
            Resource::Capabilities => &mut self.capabilities,
            Resource::Images => &mut self.images,
        }
    }
}

/// Why a ledger refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// The account's own limit.
    #[error("{asked} more {} would exceed the limit of {limit} ({used} are used)", resource.name())]
    AccountLimit {
        /// Of what.
        resource: Resource,
        /// How much was asked for.
        asked: u64,
        /// How much the account uses.
        used: u64,
        /// How much it may use.
        limit: u64,
    },
    /// The limit of all accounts together.
    #[error("{asked} more {} are not left: {used} of {limit} are used", resource.name())]
    TotalLimit {
        /// Of what.
        resource: Resource,
        /// How much was asked for.
        asked: u64,
        /// How much all accounts use.
        used: u64,
        /// How much there is.
        limit: u64,
    },
    /// There is no such account: the caller's books are wrong.
    #[error("no such account")]
    NoAccount,
    /// More is to be refunded than was charged: the caller's books are wrong.
    #[error("{asked} {} are to be refunded and {used} were charged", resource.name())]
    Underflow {
        /// Of what.
        resource: Resource,
        /// How much was to be refunded.
        asked: u64,
        /// How much is charged.
        used: u64,
    },
}

/// Names an account of one ledger; never used again once closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Account(u64);

#[derive(Debug)]
struct Entry {
    used: Amounts,
    limits: Amounts,
}

/// The accounts of one device.
#[derive(Debug)]
pub struct Ledger {
    accounts: BTreeMap<Account, Entry>,
    next: u64,
    used: Amounts,
    limits: Amounts,
}

impl Ledger {
    /// A ledger whose accounts together may use up to `limits`.
    #[must_use]
    pub fn new(limits: Amounts) -> Self {
        Self { accounts: BTreeMap::new(), next: 0, used: Amounts::default(), limits }
    }

    /// Sets anew what all accounts together may use. What is charged stays charged.
    pub fn set_limits(&mut self, limits: Amounts) {
        self.limits = limits;
    }

    /// What all accounts together use.
    #[must_use]
    pub fn used(&self) -> Amounts {
        self.used
    }

    /// What one account uses; nothing where there is no such account.
    #[must_use]
    pub fn used_by(&self, account: Account) -> Amounts {
        self.accounts.get(&account).map(|entry| entry.used).unwrap_or_default()
    }

    /// Opens an account that may use up to `limits`.
    pub fn open(&mut self, limits: Amounts) -> Account {
        let account = Account(self.next);
        self.next += 1;
        self.accounts.insert(account, Entry { used: Amounts::default(), limits });
        account
    }

    /// Closes an account and refunds whatever it still used; answers how much that was.
    pub fn close(&mut self, account: Account) -> Result<Amounts, LedgerError> {
        let entry = self.accounts.remove(&account).ok_or(LedgerError::NoAccount)?;
        for resource in Resource::ALL {
            *self.used.get_mut(resource) -= entry.used.get(resource);
        }
        Ok(entry.used)
    }

    /// Charges an account, or changes nothing.
    pub fn charge(&mut self, account: Account, resource: Resource, amount: u64) -> Result<(), LedgerError> {
        let entry = self.accounts.get_mut(&account).ok_or(LedgerError::NoAccount)?;
        let (used, limit) = (entry.used.get(resource), entry.limits.get(resource));
        if used.checked_add(amount).is_none_or(|sum| sum > limit) {
            return Err(LedgerError::AccountLimit { resource, asked: amount, used, limit });
        }
        let (used, limit) = (self.used.get(resource), self.limits.get(resource));
        if used.checked_add(amount).is_none_or(|sum| sum > limit) {
            return Err(LedgerError::TotalLimit { resource, asked: amount, used, limit });
        }
        *entry.used.get_mut(resource) += amount;
        *self.used.get_mut(resource) += amount;
        Ok(())
    }

    /// Undoes a charge, or changes nothing.
    pub fn refund(&mut self, account: Account, resource: Resource, amount: u64) -> Result<(), LedgerError> {
        let entry = self.accounts.get_mut(&account).ok_or(LedgerError::NoAccount)?;
        let used = entry.used.get(resource);
        if amount > used {
            return Err(LedgerError::Underflow { resource, asked: amount, used });
        }
        *entry.used.get_mut(resource) -= amount;
        *self.used.get_mut(resource) -= amount;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Choices, seeds};

    fn limits(each: u64) -> Amounts {
        Amounts { device_bytes: each, buffer_bytes: each, host_bytes: each, capabilities: each, images: each }
    }

    #[test]
    fn a_charge_beyond_the_account_changes_nothing() {
        let mut ledger = Ledger::new(limits(100));
        let account = ledger.open(limits(10));
        ledger.charge(account, Resource::Images, 10).unwrap();
        let error = ledger.charge(account, Resource::Images, 1).unwrap_err();
        assert_eq!(
            error,
            LedgerError::AccountLimit { resource: Resource::Images, asked: 1, used: 10, limit: 10 }
        );
        assert!(ledger.charge(account, Resource::Images, u64::MAX).is_err());
        assert_eq!(ledger.used().images, 10);
    }

    #[test]
    fn a_charge_beyond_the_whole_changes_nothing() {
        let mut ledger = Ledger::new(limits(15));
        let (first, second) = (ledger.open(limits(10)), ledger.open(limits(10)));
        ledger.charge(first, Resource::DeviceBytes, 10).unwrap();
        assert!(matches!(
            ledger.charge(second, Resource::DeviceBytes, 6),
            Err(LedgerError::TotalLimit { used: 10, limit: 15, .. })
        ));
        assert_eq!(ledger.used_by(second).device_bytes, 0);
    }

    #[test]
    fn a_refund_of_what_was_not_charged_is_an_error() {
        let mut ledger = Ledger::new(limits(15));
        let account = ledger.open(limits(10));
        assert!(matches!(
            ledger.refund(account, Resource::HostBytes, 1),
            Err(LedgerError::Underflow { asked: 1, used: 0, .. })
        ));
    }

    #[test]
    fn closing_an_account_refunds_what_it_used() {
        let mut ledger = Ledger::new(limits(15));
        let account = ledger.open(limits(10));
        ledger.charge(account, Resource::HostBytes, 7).unwrap();
        assert_eq!(ledger.close(account).unwrap().host_bytes, 7);
        assert_eq!(ledger.used(), Amounts::default());
        assert_eq!(ledger.close(account), Err(LedgerError::NoAccount));
        assert_eq!(ledger.charge(account, Resource::HostBytes, 1), Err(LedgerError::NoAccount));
    }

    #[test]
    fn a_ledger_agrees_with_a_naive_model() {
        for seed in seeds() {
            println!("seed {seed}");
            let mut choices = Choices::new(seed);
            let mut ledger = Ledger::new(limits(500));
            let mut model: Vec<(Account, [u64; 5])> = Vec::new();
            for _ in 0..5_000 {
                let resource = usize::try_from(choices.below(5)).unwrap();
                let amount = choices.below(120);
                match choices.below(20) {
                    0 => model.push((ledger.open(limits(200)), [0; 5])),
                    1 if !model.is_empty() => {
                        let index = usize::try_from(choices.below(model.len() as u64)).unwrap();
                        let (account, used) = model.swap_remove(index);
                        let closed = ledger.close(account).unwrap();
                        assert_eq!(Resource::ALL.map(|resource| closed.get(resource)), used);
                    }
                    2..12 if !model.is_empty() => {
                        let index = usize::try_from(choices.below(model.len() as u64)).unwrap();
                        let total: u64 = model.iter().map(|(_, used)| used[resource]).sum();
                        let (account, used) = &mut model[index];
                        let fits = used[resource] + amount <= 200 && total + amount <= 500;
                        assert_eq!(ledger.charge(*account, Resource::ALL[resource], amount).is_ok(), fits);
                        if fits {
                            used[resource] += amount;
                        }
                    }
                    _ if !model.is_empty() => {
                        let index = usize::try_from(choices.below(model.len() as u64)).unwrap();
                        let (account, used) = &mut model[index];
                        let fits = amount <= used[resource];
                        assert_eq!(ledger.refund(*account, Resource::ALL[resource], amount).is_ok(), fits);
                        if fits {
                            used[resource] -= amount;
                        }
                    }
                    _ => {}
                }
                for (index, resource) in Resource::ALL.into_iter().enumerate() {
                    let total: u64 = model.iter().map(|(_, used)| used[index]).sum();
                    assert_eq!(ledger.used().get(resource), total);
                    for (account, used) in &model {
                        assert_eq!(ledger.used_by(*account).get(resource), used[index]);
                    }
                }
            }
        }
    }
}
