//! Who holds capabilities.

use crate::Error;

/// Who holds capabilities: a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(pub(crate) u32);

#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) held: u32,
    pub(crate) limit: u32,
    /// The latest of its capabilities.
    pub(crate) first: u32,
    /// Lines of its own that are open.
    pub(crate) lines: u32,
    /// The latest walk that ended a capability of it.
    pub(crate) walk: u64,
    pub(crate) open: bool,
}

/// Every owner of a device.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    pub(crate) list: Vec<Holder>,
    pub(crate) free: Vec<u32>,
}

impl Holders {
    pub(crate) fn find(&self, owner: Owner) -> Option<&Holder> {
        self.list.get(owner.0 as usize).filter(|holder| holder.open)
    }

    #[inline]
    pub(crate) fn find_mut(&mut self, owner: Owner) -> Result<&mut Holder, Error> {
        let holder = self.list.get_mut(owner.0 as usize).filter(|holder| holder.open);
        holder.ok_or(Error::Unknown("owner"))
    }

    /// Whether an owner may hold one more capability.
    pub(crate) fn may_hold(&self, owner: Owner) -> Result<(), Error> {
        let holder = self.find(owner).ok_or(Error::Unknown("owner"))?;
        if holder.held >= holder.limit { Err(Error::Full { limit: holder.limit }) } else { Ok(()) }
    }
}
