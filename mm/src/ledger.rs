//! Who has used how much: accounts, in a tree.
//!
//! A *charge* counts for the account it is made to, for every account above that one, and for the whole, and each of
//! them may refuse it. What a resource is used up for good is *consumed*: an account never gets that back while it
//! is open, not even when an account below it is closed.

mod resource;

use std::collections::BTreeMap;

pub use resource::{Amounts, Resource};

/// How many accounts may lie one below the other.
pub const ACCOUNT_DEPTH_MAX: u32 = 8;

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
    /// The limit of an account above.
    #[error(
        "{asked} more {} would exceed the limit of an account above: {used} of {limit} are used",
        resource.name()
    )]
    AncestorLimit {
        /// Which.
        ancestor: Account,
        /// Of what.
        resource: Resource,
        /// How much was asked for.
        asked: u64,
        /// How much the account above uses.
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
    /// There are as many accounts above as there may be.
    #[error("an account lies at most {ACCOUNT_DEPTH_MAX} deep")]
    TooDeep,
    /// There is no such account: the caller's books are wrong.
    #[error("no such account")]
    NoAccount,
    /// More is to be refunded than was charged to this very account: the caller's books are wrong.
    #[error("{asked} {} are to be refunded and {used} were charged", resource.name())]
    Underflow {
        /// Of what.
        resource: Resource,
        /// How much was to be refunded.
        asked: u64,
        /// How much is charged.
        used: u64,
    },
    /// What is consumed is never refunded: the caller's books are wrong.
    #[error("{} are never refunded", resource.name())]
    Consumed {
        /// What.
        resource: Resource,
    },
    /// An account is closed after those below it: the caller's books are wrong.
    #[error("{children} accounts below are open")]
    OpenChildren {
        /// How many.
        children: u32,
    },
}

/// Names an account of one ledger; never used again once closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Account(u64);

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct Entry {
    parent: Option<Account>,
    /// 1 where there is no account above.
    depth: u32,
    /// Open accounts right below.
    children: u32,
    /// What was charged to this very account.
    own: Amounts,
    /// The same with what the accounts below use.
    used: Amounts,
    limits: Amounts,
}

/// The accounts of one device.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
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
        Self { accounts: BTreeMap::new(), next: 0, used: Amounts::NONE, limits }
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

    /// What one account and those below it use; nothing where there is no such account.
    #[must_use]
    pub fn used_by(&self, account: Account) -> Amounts {
        self.accounts.get(&account).map(|entry| entry.used).unwrap_or_default()
    }

    /// What all accounts together may use.
    #[must_use]
    pub fn limits(&self) -> Amounts {
        self.limits
    }

    /// What one account could use at most, were the others empty; nothing where there is no such account.
    #[must_use]
    pub fn limits_of(&self, account: Account) -> Amounts {
        let limits = self.chain(account).map(|(_, entry)| entry.limits).reduce(Amounts::min);
        limits.unwrap_or_default().min(self.limits)
    }

    /// How much more an account could be charged; nothing where there is no such account.
    #[must_use]
    pub fn left(&self, account: Account, resource: Resource) -> u64 {
        self.allowance(account, resource).min(self.room(resource))
    }

    /// How much more an account could be charged if there were enough for all accounts together.
    #[must_use]
    pub fn allowance(&self, account: Account, resource: Resource) -> u64 {
        let room = |used: Amounts, limits: Amounts| limits.get(resource).saturating_sub(used.get(resource));
        self.chain(account).map(|(_, entry)| room(entry.used, entry.limits)).min().unwrap_or(0)
    }

    /// How much more all accounts together could be charged.
    #[must_use]
    pub fn room(&self, resource: Resource) -> u64 {
        self.limits.get(resource).saturating_sub(self.used.get(resource))
    }

    /// Opens an account that may use up to `limits`.
    pub fn open(&mut self, limits: Amounts) -> Account {
        self.insert(None, 1, limits)
    }

    /// Opens an account below another: whatever it uses, that one uses too. Its `limits` may exceed what is left there.
    pub fn open_below(&mut self, parent: Account, limits: Amounts) -> Result<Account, LedgerError> {
        let above = self.accounts.get_mut(&parent).ok_or(LedgerError::NoAccount)?;
        if above.depth >= ACCOUNT_DEPTH_MAX {
            return Err(LedgerError::TooDeep);
        }
        above.children += 1;
        let depth = above.depth + 1;
        Ok(self.insert(Some(parent), depth, limits))
    }

    fn insert(&mut self, parent: Option<Account>, depth: u32, limits: Amounts) -> Account {
        let account = Account(self.next);
        self.next += 1;
        let entry = Entry { parent, depth, children: 0, own: Amounts::NONE, used: Amounts::NONE, limits };
        self.accounts.insert(account, entry);
        account
    }

    /// Closes an account, below which none is open, and refunds whatever it still used; answers what it used. What it
    /// consumed stays with the account above.
    pub fn close(&mut self, account: Account) -> Result<Amounts, LedgerError> {
        let children = self.accounts.get(&account).ok_or(LedgerError::NoAccount)?.children;
        if children > 0 {
            return Err(LedgerError::OpenChildren { children });
        }
        let entry = self.accounts.remove(&account).ok_or(LedgerError::NoAccount)?;
        let mut refunded = entry.used;
        if let Some(parent) = entry.parent
            && let Some(above) = self.accounts.get_mut(&parent)
        {
            above.children -= 1;
            for resource in Resource::ALL.into_iter().filter(|resource| resource.is_consumed()) {
                *above.own.get_mut(resource) += entry.used.get(resource);
                *refunded.get_mut(resource) = 0;
            }
        }
        for resource in Resource::ALL {
            self.credit(entry.parent, resource, refunded.get(resource));
        }
        Ok(entry.used)
    }

    /// Charges an account, those above it and the whole, or changes nothing.
    pub fn charge(&mut self, account: Account, resource: Resource, amount: u64) -> Result<(), LedgerError> {
        if !self.accounts.contains_key(&account) {
            return Err(LedgerError::NoAccount);
        }
        let exceeds = |used: u64, limit: u64| used.checked_add(amount).is_none_or(|sum| sum > limit);
        for (at, entry) in self.chain(account) {
            let (used, limit) = (entry.used.get(resource), entry.limits.get(resource));
            if exceeds(used, limit) {
                return Err(if at == account {
                    LedgerError::AccountLimit { resource, asked: amount, used, limit }
                } else {
                    LedgerError::AncestorLimit { ancestor: at, resource, asked: amount, used, limit }
                });
            }
        }
        let (used, limit) = (self.used.get(resource), self.limits.get(resource));
        if exceeds(used, limit) {
            return Err(LedgerError::TotalLimit { resource, asked: amount, used, limit });
        }
        *self.used.get_mut(resource) += amount;
        let mut at = Some(account);
        while let Some(entry) = at.and_then(|at| self.accounts.get_mut(&at)) {
            if at == Some(account) {
                *entry.own.get_mut(resource) += amount;
            }
            *entry.used.get_mut(resource) += amount;
            at = entry.parent;
        }
        Ok(())
    }

    /// Undoes a charge to this very account, or changes nothing.
    pub fn refund(&mut self, account: Account, resource: Resource, amount: u64) -> Result<(), LedgerError> {
        if !self.accounts.contains_key(&account) {
            return Err(LedgerError::NoAccount);
        }
        if resource.is_consumed() {
            return Err(LedgerError::Consumed { resource });
        }
        self.release(account, resource, amount)
    }

    /// Undoes the part of a charge to this very account that was not used up, also of what is consumed, or changes
    /// nothing.
    pub fn release(&mut self, account: Account, resource: Resource, amount: u64) -> Result<(), LedgerError> {
        let entry = self.accounts.get_mut(&account).ok_or(LedgerError::NoAccount)?;
        let used = entry.own.get(resource);
        if amount > used {
            return Err(LedgerError::Underflow { resource, asked: amount, used });
        }
        *entry.own.get_mut(resource) -= amount;
        self.credit(Some(account), resource, amount);
        Ok(())
    }

    /// Takes what an account and those above it use, and the whole, down by an amount that was charged there.
    fn credit(&mut self, mut at: Option<Account>, resource: Resource, amount: u64) {
        *self.used.get_mut(resource) -= amount;
        while let Some(entry) = at.and_then(|at| self.accounts.get_mut(&at)) {
            *entry.used.get_mut(resource) -= amount;
            at = entry.parent;
        }
    }

    /// An account, if it is open, and those above it.
    fn chain(&self, account: Account) -> impl Iterator<Item = (Account, &Entry)> {
        let mut at = Some(account);
        std::iter::from_fn(move || {
            let account = at?;
            let entry = self.accounts.get(&account)?;
            at = entry.parent;
            Some((account, entry))
        })
    }
}

#[cfg(test)]
mod tests;
