//! Who holds capabilities.

use bulkhead_schema::Handle;

use crate::{Error, Tree, View, node::NONE};

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
    open: bool,
}

/// Every owner of a device.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    list: Vec<Holder>,
    free: Vec<u32>,
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

impl Tree {
    /// A new owner, of up to `limit` capabilities.
    pub fn open_owner(&mut self, limit: u32) -> Owner {
        let holder = Holder { held: 0, limit, first: NONE, lines: 0, walk: 0, open: true };
        let holders = &mut self.holders;
        if let Some(index) = holders.free.pop()
            && let Some(place) = holders.list.get_mut(index as usize)
        {
            *place = holder;
            return Owner(index);
        }
        let Ok(index) = u32::try_from(holders.list.len()) else { unreachable!("sessions are few") };
        holders.list.push(holder);
        Owner(index)
    }

    /// Forgets an owner that holds nothing and whose lines are closed. Nobody admits work for it any more: it counts as
    /// severed everywhere.
    pub fn close_owner(&mut self, owner: Owner) -> Result<(), Error> {
        let holder = self.holders.find_mut(owner)?;
        if holder.held > 0 || holder.lines > 0 {
            return Err(Error::InUse);
        }
        holder.open = false;
        self.holders.free.push(owner.0);
        self.revocations.sever_everywhere(owner);
        Ok(())
    }

    /// How many capabilities an owner holds.
    #[must_use]
    pub fn held(&self, owner: Owner) -> u32 {
        self.holders.find(owner).map_or(0, |holder| holder.held)
    }

    /// The capabilities of an owner, the latest first.
    pub fn of_owner(&self, owner: Owner) -> impl Iterator<Item = (Handle, View)> {
        let mut at = self.first_of(owner).unwrap_or(NONE);
        std::iter::from_fn(move || {
            let node = self.nodes.get(at as usize)?;
            let found = (node.handle(at), self.view(node));
            at = node.next_of_owner;
            Some(found)
        })
    }

    /// The latest capability of an owner.
    pub(crate) fn first_of(&self, owner: Owner) -> Option<u32> {
        self.holders.find(owner).map(|holder| holder.first).filter(|first| *first != NONE)
    }
}
