//! Capabilities of a session that clients hold, what can be made of every one, and the tokens that stand for them.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::{Rc, Weak},
};

use bulkhead_caps::{Access, Extent, Kind, Need, View};
use bulkhead_mm::Resource;
use bulkhead_schema::{Error, ErrorCode, Handle, bulkhead_capnp::Uses};

use crate::{
    executor_proxy::EntryInfo,
    ledger::Charge,
    principals::{Counted, Party, Taken},
    registry::{Budget, Marked, Spent, SturdyToken},
    session::{Session, Terms, device::Device},
};

/// What a capability looks like to its holder.
#[derive(Clone)]
pub(crate) enum Facet {
    /// Memory to read; its address in the session that it belongs to.
    View { address: u64 },
    /// Memory to read and write.
    Buffer { address: u64 },
    /// Entries to launch in sessions of one's own.
    Program(Rc<Share>),
    /// The authority to give its session things.
    Peer,
    /// A completion point to wait for.
    Fence,
    /// A completion point to signal.
    Signal,
    /// A protected module, to read and write its window, and to give its gates away.
    Module,
    /// Gates to call, and what they read wherever they are called by this.
    Gates { badge: u64 },
}

impl Facet {
    /// What its holder may do with the memory, where it is some.
    pub(crate) fn access(&self) -> Access {
        match self {
            Self::Buffer { .. } => Access::ReadWrite,
            Self::View { .. }
            | Self::Program(_)
            | Self::Peer
            | Self::Fence
            | Self::Signal
            | Self::Module
            | Self::Gates { .. } => Access::Read,
        }
    }
}

/// What sessions that are opened from a program may do.
pub(crate) struct Share {
    /// In the order of their handles. What is known of each is the image's own.
    pub(crate) entries: Vec<(Handle, Rc<EntryInfo>)>,
    pub(crate) terms: Terms,
    /// What the list is charged to the session whose entries they are.
    _charge: Charge,
}

impl Share {
    /// Of entries of this session.
    pub(crate) fn new(
        session: &Session,
        entries: Vec<(Handle, Rc<EntryInfo>)>,
        terms: Terms,
    ) -> Result<Self, Error> {
        let each = size_of::<(Handle, Rc<EntryInfo>)>() as u64;
        let charge = session.charge(Resource::KernelBytes, each * entries.len() as u64)?;
        Ok(Self { entries, terms, _charge: charge })
    }
}

/// What a revocation or a token counts as: for the session whose capability it is of, or for who was given that. Nobody
/// who was given something takes places from its owner.
#[expect(dead_code, reason = "dropping it gives back")]
pub(crate) enum Paid {
    ByOwner(Charge),
    ByHolder(Taken),
}

/// One capability of a session's. Dropping it closes it.
pub(crate) struct Reference {
    pub(crate) session: Rc<Session>,
    pub(crate) handle: Handle,
    closed: Cell<bool>,
    tokens: RefCell<Vec<SturdyToken>>,
    /// Where it was given away, and so is not its session's client's.
    spent: Option<Spent>,
}

impl Reference {
    pub(crate) fn new(session: Rc<Session>, handle: Handle) -> Self {
        Self { session, handle, closed: Cell::new(false), tokens: RefCell::default(), spent: None }
    }

    /// What a token stands for; `None` where this device knows of no such token.
    pub(crate) fn restore(device: &Device, token: SturdyToken) -> Option<Result<(Self, Facet), Error>> {
        let sturdy = device.sturdy.find(token)?;
        let session = sturdy.session.upgrade()?;
        Some(Self::restore_from(session, token, sturdy))
    }

    fn restore_from(
        session: Rc<Session>,
        token: SturdyToken,
        sturdy: Sturdy,
    ) -> Result<(Self, Facet), Error> {
        session.live()?;
        let view = session.registry().look(session.owner, sturdy.handle).map_err(|_| taken_back())?;
        let held = Self::child_for(&session, sturdy.handle, view, &sturdy.facet, &sturdy.budget)?;
        if sturdy.uses == Uses::One {
            session.forget_token(token);
        }
        Ok((held, sturdy.facet))
    }

    /// Whether somebody else than its session's client holds it.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.spent.is_some()
    }

    /// A part of the budget of who was given it, where it was given away.
    pub(crate) fn spend(&self) -> Result<Option<Spent>, Error> {
        self.spent.as_ref().map(|spent| spent.0.take()).transpose()
    }

    /// What it is, if it is still any good.
    pub(crate) fn look(&self) -> Result<View, Error> {
        self.session.live()?;
        if self.closed.get() {
            return Err(Error::new(ErrorCode::InvalidHandle, "the capability was closed"));
        }
        self.session.registry().look(self.session.owner, self.handle).map_err(|_| taken_back())
    }

    /// A weaker capability for the same thing, of the same session.
    pub(crate) fn derive(&self, kind: Kind, access: Access, offset: u64, bytes: u64) -> Result<Self, Error> {
        self.look()?;
        Self::child(&self.session, self.handle, self.spend()?, Need { kind, access, offset, bytes })
    }

    /// A child that is as good as it, for somebody else.
    pub(crate) fn give(&self, facet: &Facet, budget: &Rc<Budget>) -> Result<Self, Error> {
        Self::child_for(&self.session, self.handle, self.look()?, facet, budget)
    }

    fn child_for(
        session: &Rc<Session>,
        parent: Handle,
        view: View,
        facet: &Facet,
        budget: &Rc<Budget>,
    ) -> Result<Self, Error> {
        let need = Need { kind: view.kind, access: facet.access(), offset: 0, bytes: view.bytes };
        Self::child(session, parent, Some(budget.take()?), need)
    }

    fn child(session: &Rc<Session>, parent: Handle, spent: Option<Spent>, need: Need) -> Result<Self, Error> {
        if spent.is_some() {
            session.may_others_end_more()?;
        }
        let charge = session.charge(Resource::Capabilities, 1)?;
        let handle = session.registry().derive(session.owner, parent, session.owner, need)?;
        charge.keep();
        let mut held = Self::new(Rc::clone(session), handle);
        held.spent = spent;
        Ok(held)
    }

    /// A budget for what is made of it elsewhere: a new one, or what is left of its own.
    pub(crate) fn budget(&self) -> Rc<Budget> {
        self.spent.as_ref().map_or_else(Budget::new, |spent| Rc::clone(&spent.0))
    }

    /// Ends what was derived from it, and itself where that is asked for. `party` is its holder, who pays where it was given.
    pub(crate) fn revoke(&self, extent: Extent, party: &Rc<Party>) -> Result<(Marked, Paid), Error> {
        self.look()?;
        let paid = self.pay(Resource::Revocations, party)?;
        let budget = self.spent.as_ref().map(|spent| &spent.0);
        let marked = self.session.revoke_asked(self.handle, extent, budget)?;
        tracing::debug!(session = self.session.id, ended = marked.count, "revoked");
        if extent == Extent::Whole {
            self.closed.set(true);
            self.drop_tokens();
        }
        Ok((marked, paid))
    }

    /// Closes it without asking what becomes of that.
    pub(crate) fn close(&self) -> Result<(), Error> {
        self.look()?;
        self.session.revoke_unasked(self.handle, self.spent.as_ref().map(|spent| &spent.0))?;
        self.closed.set(true);
        self.drop_tokens();
        Ok(())
    }

    fn pay(&self, resource: Resource, holder: &Rc<Party>) -> Result<Paid, Error> {
        if self.is_elsewhere() {
            Ok(Paid::ByHolder(holder.take(Counted::OfOthers, 1)?))
        } else {
            Ok(Paid::ByOwner(self.session.charge(resource, 1)?))
        }
    }

    /// A token that stands for it.
    pub(crate) fn token(&self, uses: Uses, facet: &Facet, party: &Rc<Party>) -> Result<SturdyToken, Error> {
        self.look()?;
        let sturdy = &self.session.device.sturdy;
        let mut tokens = self.tokens.borrow_mut();
        // Those that were used up.
        tokens.retain(|token| sturdy.find(*token).is_some());
        let paid = self.pay(Resource::Tokens, party)?;
        let token = sturdy.insert(Sturdy {
            session: Rc::downgrade(&self.session),
            handle: self.handle,
            facet: facet.clone(),
            uses,
            budget: self.budget(),
            paid: Rc::new(paid),
        })?;
        tokens.push(token);
        Ok(token)
    }

    /// Its tokens are good no more.
    pub(crate) fn drop_tokens(&self) {
        for token in self.tokens.take() {
            self.session.forget_token(token);
        }
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        self.drop_tokens();
        if !self.closed.get() && self.session.live().is_ok() {
            // It may have ended with what it was derived from.
            let budget = self.spent.as_ref().map(|spent| &spent.0);
            drop(self.session.revoke_unasked(self.handle, budget));
        }
    }
}

pub(crate) fn taken_back() -> Error {
    Error::new(ErrorCode::Revoked, "the capability was taken back").remedy("ask its owner for another")
}

/// What a token stands for.
#[derive(Clone)]
pub(crate) struct Sturdy {
    pub(crate) session: Weak<Session>,
    pub(crate) handle: Handle,
    pub(crate) facet: Facet,
    pub(crate) uses: Uses,
    /// What may be made of all that is restored from it.
    pub(crate) budget: Rc<Budget>,
    /// What it counts as, until it is dropped.
    #[expect(dead_code, reason = "dropping it gives back")]
    pub(crate) paid: Rc<Paid>,
}

/// The tokens of a device.
#[derive(Default)]
pub(crate) struct Sturdies {
    known: RefCell<HashMap<SturdyToken, Sturdy>>,
}

impl Sturdies {
    /// Those that are good although every session is gone. A token of what has ended is good for nothing, whoever still holds it.
    pub(crate) fn leftovers(&self) -> Option<String> {
        let is_good = |sturdy: &&Sturdy| {
            let session = sturdy.session.upgrade();
            session.is_some_and(|session| session.registry().look(session.owner, sturdy.handle).is_ok())
        };
        let count = self.known.borrow().values().filter(is_good).count();
        (count > 0).then(|| format!("{count} tokens"))
    }

    pub(crate) fn insert(&self, sturdy: Sturdy) -> Result<SturdyToken, Error> {
        let token = SturdyToken::random()?;
        self.known.borrow_mut().insert(token, sturdy);
        Ok(token)
    }

    pub(crate) fn find(&self, token: SturdyToken) -> Option<Sturdy> {
        self.known.borrow().get(&token).cloned()
    }

    pub(crate) fn remove(&self, token: SturdyToken) {
        let removed = self.known.borrow_mut().remove(&token);
        drop(removed);
    }
}
