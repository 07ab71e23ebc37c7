//! Capabilities as clients hold them, and what can be done with every one.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use bulkhead_caps::{Access, Extent, Kind, Need, View};
use bulkhead_mm::Resource;
use bulkhead_schema::{
    Error, ErrorCode, Handle,
    bulkhead_capnp::{Uses, any_capability, nothing, result, revoking, sturdy_token},
    limits,
};

use crate::{
    executor_proxy::EntryInfo,
    principals::{Counted, Party, Taken},
    registry::{Registry, Sturdy, SturdyToken},
    rpc::{buffer, connection::Connection, fence, module, peer, program, revocation::Revocation},
    session::{Charge, Session, Terms},
};

/// What may be derived from a capability by those to whom its session gave it: they do it at that session's expense.
pub(crate) struct Budget {
    left: Cell<u32>,
    /// How many they have let go of that work of that session may still reach: they are remembered until then.
    on_their_way: Cell<u32>,
}

impl Budget {
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self { left: Cell::new(limits::DERIVED_ELSEWHERE_MAX), on_their_way: Cell::new(0) })
    }

    fn take(self: &Rc<Self>) -> Result<Spent, Error> {
        if self.on_their_way.get() >= limits::DERIVED_ELSEWHERE_MAX {
            let message = format!(
                "{} capabilities that were made of one that was given, and dropped, wait for work that runs",
                self.on_their_way.get()
            );
            return Err(Error::new(ErrorCode::LimitReached, message)
                .remedy("wait until the kernels of whoever gave it have ended"));
        }
        let left = self.left.get().checked_sub(1).ok_or_else(|| {
            let message =
                format!("{} capabilities were made of one that was given", limits::DERIVED_ELSEWHERE_MAX);
            Error::new(ErrorCode::LimitReached, message).remedy("drop some of them")
        })?;
        self.left.set(left);
        Ok(Spent(Rc::clone(self)))
    }

    /// So many of it are on their way until what is answered is dropped, and so many of all budgets of its giver's.
    pub(crate) fn let_go(self: &Rc<Self>, of_all: &Rc<Cell<u32>>, count: u32) -> LetGo {
        for on_their_way in [&self.on_their_way, &**of_all] {
            on_their_way.update(|all| all.saturating_add(count));
        }
        LetGo { budget: Rc::clone(self), of_all: Rc::clone(of_all), count }
    }
}

/// What was made of a capability elsewhere and is on its way back.
pub(crate) struct LetGo {
    budget: Rc<Budget>,
    of_all: Rc<Cell<u32>>,
    count: u32,
}

impl Drop for LetGo {
    fn drop(&mut self) {
        for on_their_way in [&self.budget.on_their_way, &*self.of_all] {
            on_their_way.update(|all| all.saturating_sub(self.count));
        }
    }
}

/// One capability's part of a budget.
pub(crate) struct Spent(Rc<Budget>);

impl Drop for Spent {
    fn drop(&mut self) {
        self.0.left.update(|left| left.saturating_add(1));
    }
}

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
    pub(crate) fn restore(registry: &Registry, token: SturdyToken) -> Option<Result<(Self, Facet), Error>> {
        let sturdy = registry.sturdy.find(token)?;
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
        let access = match facet {
            Facet::Buffer { .. } => Access::ReadWrite,
            Facet::View { .. }
            | Facet::Program(_)
            | Facet::Peer
            | Facet::Fence
            | Facet::Signal
            | Facet::Module
            | Facet::Gates { .. } => Access::Read,
        };
        let need = Need { kind: view.kind, access, offset: 0, bytes: view.bytes };
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

    /// Ends what was derived from it, and itself where that is asked for.
    pub(crate) fn revoke(&self, extent: Extent, asker: &Connection) -> Result<Revocation, Error> {
        self.look()?;
        let paid = self.pay(Resource::Revocations, &asker.party)?;
        let budget = self.spent.as_ref().map(|spent| &spent.0);
        let revocation = Revocation::begin(&self.session, &asker.party, (self.handle, extent), budget, paid)?;
        if extent == Extent::Whole {
            self.closed.set(true);
            self.drop_tokens();
        }
        Ok(revocation)
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

    fn token(&self, uses: Uses, facet: &Facet, asker: &Connection) -> Result<SturdyToken, Error> {
        self.look()?;
        let registry = self.session.registry();
        let mut tokens = self.tokens.borrow_mut();
        // Those that were used up.
        tokens.retain(|token| registry.sturdy.find(*token).is_some());
        let paid = self.pay(Resource::Tokens, &asker.party)?;
        let token = registry.sturdy.insert(Sturdy {
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

    fn drop_tokens(&self) {
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

/// A capability as one client holds it.
pub(crate) struct Served {
    pub(crate) held: Reference,
    pub(crate) facet: Facet,
    pub(crate) connection: Rc<Connection>,
}

impl Served {
    pub(crate) fn new(held: Reference, facet: Facet, connection: &Rc<Connection>) -> Self {
        Self { held, facet, connection: Rc::clone(connection) }
    }

    pub(crate) fn revoke(&self, extent: Extent, result: result::Builder<'_, revoking::Owned>) {
        match self.held.revoke(extent, &self.connection) {
            Ok(revocation) => {
                let mut revoking = result.init_ok();
                revoking.set_capabilities(revocation.count);
                revoking.set_revocation(capnp_rpc::new_client(revocation));
            }
            Err(error) => error.write(result.init_error()),
        }
    }

    pub(crate) fn token(
        &self,
        uses: Result<Uses, capnp::NotInSchema>,
        result: result::Builder<'_, sturdy_token::Owned>,
    ) {
        let uses =
            uses.map_err(|_| Error::new(ErrorCode::InvalidArgument, "a token is good once or until revoked"));
        match uses.and_then(|uses| self.held.token(uses, &self.facet, &self.connection)) {
            Ok(token) => token.write(result.init_ok()),
            Err(error) => error.write(result.init_error()),
        }
    }

    pub(crate) fn drop_tokens(&self, result: result::Builder<'_, nothing::Owned>) {
        match self.held.look() {
            Ok(_) => {
                self.held.drop_tokens();
                result.init_ok();
            }
            Err(error) => error.write(result.init_error()),
        }
    }
}

/// Hands a capability to a client.
pub(crate) fn write_any(
    held: Reference,
    facet: Facet,
    connection: &Rc<Connection>,
    mut any: any_capability::Builder<'_>,
) {
    let served = Served::new(held, facet, connection);
    match served.facet {
        Facet::View { .. } => any.set_view(connection.servers.view(buffer::View(served))),
        Facet::Buffer { .. } => any.set_buffer(connection.servers.buffer(buffer::Buffer(served))),
        Facet::Program(_) => any.set_program(capnp_rpc::new_client(program::Program(served))),
        Facet::Peer => any.set_peer(capnp_rpc::new_client(peer::Peer(served))),
        Facet::Fence => any.set_fence(capnp_rpc::new_client(fence::Fence(served))),
        Facet::Signal => any.set_signal(capnp_rpc::new_client(fence::Signal(served))),
        Facet::Module => any.set_module(capnp_rpc::new_client(module::Module(served))),
        Facet::Gates { badge } => any.set_gates(connection.servers.gates(module::Gates(served, badge))),
    }
}

/// Serves `GpuCapability` for what wraps a [`Served`].
macro_rules! capability {
    ($server:ty) => {
        impl bulkhead_schema::bulkhead_capnp::gpu_capability::Server for $server {
            async fn revoke(
                self: std::rc::Rc<Self>,
                _: bulkhead_schema::bulkhead_capnp::gpu_capability::RevokeParams,
                mut results: bulkhead_schema::bulkhead_capnp::gpu_capability::RevokeResults,
            ) -> Result<(), capnp::Error> {
                self.0.revoke(bulkhead_caps::Extent::Descendants, results.get().init_result());
                Ok(())
            }

            async fn close(
                self: std::rc::Rc<Self>,
                _: bulkhead_schema::bulkhead_capnp::gpu_capability::CloseParams,
                mut results: bulkhead_schema::bulkhead_capnp::gpu_capability::CloseResults,
            ) -> Result<(), capnp::Error> {
                self.0.revoke(bulkhead_caps::Extent::Whole, results.get().init_result());
                Ok(())
            }

            async fn token(
                self: std::rc::Rc<Self>,
                params: bulkhead_schema::bulkhead_capnp::gpu_capability::TokenParams,
                mut results: bulkhead_schema::bulkhead_capnp::gpu_capability::TokenResults,
            ) -> Result<(), capnp::Error> {
                let uses = params.get()?.get_uses();
                self.0.token(uses, results.get().init_result());
                Ok(())
            }

            async fn drop_tokens(
                self: std::rc::Rc<Self>,
                _: bulkhead_schema::bulkhead_capnp::gpu_capability::DropTokensParams,
                mut results: bulkhead_schema::bulkhead_capnp::gpu_capability::DropTokensResults,
            ) -> Result<(), capnp::Error> {
                self.0.drop_tokens(results.get().init_result());
                Ok(())
            }
        }
    };
}

pub(crate) use capability;
