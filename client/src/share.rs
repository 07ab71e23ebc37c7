//! Memory as a capability: parts of it, handed to other sessions and taken back.

use std::{sync::Arc, time::Duration};

use bulkhead_schema::{Error, ErrorCode, Handle, bulkhead_capnp as rpc};

use crate::{
    Buffer, DeviceRange, Session, SturdyToken, Uses,
    buffer::Held,
    connection::{Capability, Context, answer, broken},
    token,
};

/// What may be done to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// To read it.
    Read,
    /// To read and write it.
    ReadWrite,
}

/// How far a revocation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// No new work that names what was revoked is admitted.
    Severed,
    /// No work that can reach it is running or queued.
    Quiescent,
    /// It is scrubbed and given back, where nobody keeps it.
    Reclaimed,
}

/// What a wait for a moment of a revocation came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reached {
    /// Whether the moment has come; else the time was up first.
    pub reached: bool,
    /// Whether work ran on beyond the kernel's deadline, so that the memory is kept from everybody.
    pub quarantined: bool,
}

/// A capability that this process holds, of whatever kind: what can be done with all of them.
pub(crate) struct Reference {
    pub(crate) session: Session,
    key: usize,
}

impl Reference {
    pub(crate) fn hold(session: &Session, context: &Context, client: capnp::capability::Client) -> Self {
        Self { session: session.clone(), key: context.hold(Capability::Any(client)) }
    }

    pub(crate) fn key(&self) -> usize {
        self.key
    }

    pub(crate) fn revoke(&self) -> Result<Revocation, Error> {
        let (session, key) = (self.session.clone(), self.key);
        self.session.inner.remote.call(move |context| async move {
            let capability = context.capability(key)?;
            let response = capability.revoke_request().send().promise.await.map_err(broken)?;
            Revocation::read(&session, &context, response.get().and_then(|r| r.get_result()).map_err(broken)?)
        })
    }

    pub(crate) fn close(&self) -> Result<Revocation, Error> {
        let (session, key) = (self.session.clone(), self.key);
        self.session.inner.remote.call(move |context| async move {
            let capability = context.capability(key)?;
            let response = capability.close_request().send().promise.await.map_err(broken)?;
            Revocation::read(&session, &context, response.get().and_then(|r| r.get_result()).map_err(broken)?)
        })
    }

    pub(crate) fn token(&self, uses: Uses) -> Result<SturdyToken, Error> {
        let key = self.key;
        let remote = &self.session.inner.remote;
        remote.call(move |context| async move { token::make(&context.capability(key)?, uses).await })
    }

    pub(crate) fn drop_tokens(&self) -> Result<(), Error> {
        let key = self.key;
        self.session.inner.remote.call(move |context| async move {
            let response =
                context.capability(key)?.drop_tokens_request().send().promise.await.map_err(broken)?;
            answer(response.get().and_then(|r| r.get_result()).map_err(broken)?).map(|_| ())
        })
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        self.session.release(self.key);
    }
}

/// A revocation that has begun. Dropping it does not stop it.
pub struct Revocation {
    held: Reference,
    /// How many capabilities ended.
    pub capabilities: u32,
}

impl Revocation {
    fn read(
        session: &Session,
        context: &Context,
        result: rpc::result::Reader<'_, rpc::revoking::Owned>,
    ) -> Result<Self, Error> {
        let revoking = answer(result)?;
        let client = revoking.get_revocation().map_err(broken)?.client;
        Ok(Self {
            held: Reference::hold(session, context, client),
            capabilities: revoking.get_capabilities(),
        })
    }

    /// Waits for a moment.
    ///
    /// # Errors
    /// Where the kernel is gone.
    pub fn wait(&self, moment: Moment, timeout: Duration) -> Result<Reached, Error> {
        let key = self.held.key;
        let milliseconds = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        self.held.session.inner.remote.call(move |context| async move {
            let revocation = rpc::gpu_revocation::Client { client: context.any(key)? };
            let mut wait = revocation.wait_request();
            wait.get().set_moment(match moment {
                Moment::Severed => rpc::Moment::Severed,
                Moment::Quiescent => rpc::Moment::Quiescent,
                Moment::Reclaimed => rpc::Moment::Reclaimed,
            });
            wait.get().set_timeout_ms(milliseconds);
            let response = wait.send().promise.await.map_err(broken)?;
            let reached = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
            Ok(Reached { reached: reached.get_reached(), quarantined: reached.get_quarantined() })
        })
    }
}

/// Device memory as a capability of its own. Dropping it closes it, and ends all that was derived from it.
pub struct Share {
    held: Arc<Reference>,
    /// What it was accepted from: closing that would end it.
    _given: Option<Arc<Reference>>,
    handle: Handle,
    address: u64,
    bytes: u64,
    access: Access,
}

impl Share {
    /// What its holder may do.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// Its device address, in the session that it belongs to: whoever accepted it, else whoever allocated it. 0 where it
    /// was [created](Session::create) and not mapped.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The name by which ring records of the session that it belongs to know it.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// All of it.
    #[must_use]
    pub fn all(&self) -> DeviceRange {
        DeviceRange { handle: self.handle, offset: 0, bytes: self.bytes }
    }

    /// A part of it; the executor refuses one that does not lie in it.
    #[must_use]
    pub fn range(&self, offset: u64, bytes: u64) -> DeviceRange {
        DeviceRange { handle: self.handle, offset, bytes }
    }

    /// A weaker one. A remote call.
    ///
    /// # Errors
    /// `notPermitted` where it allows less than is asked for, `invalidArgument` where the part does not lie in it.
    pub fn derive(&self, offset: u64, bytes: u64, access: Access) -> Result<Self, Error> {
        derive(&self.held.session, self.held.key, offset, bytes, access)
    }

    /// Ends everything derived from it. It stays.
    ///
    /// # Errors
    /// Where it has ended itself.
    pub fn revoke(&self) -> Result<Revocation, Error> {
        self.held.revoke()
    }

    /// Ends it and everything derived from it.
    ///
    /// # Errors
    /// Where it has ended already.
    pub fn close(self) -> Result<Revocation, Error> {
        self.held.close()
    }

    /// A token for a process that shares no connection with this one.
    ///
    /// # Errors
    /// Where it has ended, or the session has as many tokens as it may.
    pub fn token(&self, uses: Uses) -> Result<SturdyToken, Error> {
        self.held.token(uses)
    }

    /// No token of it is good any more.
    ///
    /// # Errors
    /// Where it has ended.
    pub fn drop_tokens(&self) -> Result<(), Error> {
        self.held.drop_tokens()
    }

    pub(crate) fn key(&self) -> usize {
        self.held.key
    }

    /// What was just made, to read and to write.
    pub(crate) fn created(
        session: &Session,
        context: &Context,
        created: rpc::buffer_created::Reader<'_>,
    ) -> Result<Self, Error> {
        let client = created.get_buffer().map_err(broken)?.client;
        Ok(Self {
            held: Arc::new(Reference::hold(session, context, client)),
            _given: None,
            handle: Handle::read(created.get_handle().map_err(broken)?),
            address: created.get_address(),
            bytes: created.get_bytes(),
            access: Access::ReadWrite,
        })
    }

    pub(crate) async fn of_view(
        session: &Session,
        context: &Context,
        view: rpc::gpu_buffer_view::Client,
    ) -> Result<Self, Error> {
        let response = view.info_request().send().promise.await.map_err(broken)?;
        let info = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
        Ok(Self {
            held: Arc::new(Reference::hold(session, context, view.client)),
            _given: None,
            handle: Handle::read(info.get_handle().map_err(broken)?),
            address: info.get_address(),
            bytes: info.get_bytes(),
            access: if info.get_writable() { Access::ReadWrite } else { Access::Read },
        })
    }
}

/// A part of the memory behind the capability that is held under `key`.
fn derive(session: &Session, key: usize, offset: u64, bytes: u64, access: Access) -> Result<Share, Error> {
    let own = session.clone();
    session.inner.remote.call(move |context| async move {
        let client = context.any(key)?;
        macro_rules! derived {
            ($call:expr, $get:ident, $failed:expr) => {{
                let mut derive = $call;
                derive.get().set_offset(offset);
                derive.get().set_bytes(bytes);
                let response = derive.send().promise.await.map_err($failed)?;
                let created = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
                let client = created.$get().map_err(broken)?.client;
                Share {
                    held: Arc::new(Reference::hold(&own, &context, client)),
                    _given: None,
                    handle: Handle::read(created.get_handle().map_err(broken)?),
                    address: created.get_address(),
                    bytes: created.get_bytes(),
                    access,
                }
            }};
        }
        Ok(match access {
            Access::Read => {
                derived!(rpc::gpu_buffer_view::Client { client }.derive_request(), get_view, broken)
            }
            Access::ReadWrite => {
                let request = rpc::gpu_buffer::Client { client }.derive_buffer_request();
                derived!(request, get_buffer, not_writable)
            }
        })
    })
}

/// A view has no method that gives more than a view.
fn not_writable(error: capnp::Error) -> Error {
    match error.kind {
        capnp::ErrorKind::Unimplemented => {
            Error::new(ErrorCode::NotPermitted, "this capability allows reading only")
        }
        _ => broken(error),
    }
}

impl Buffer {
    /// A part of a buffer of [`Session::allocate_arena`] as a capability of its own, to be handed to other sessions. A
    /// remote call. What other sessions accept are whole pages of 2 MiB: share parts at multiples of that.
    ///
    /// # Errors
    /// `invalidArgument` where the part does not lie in it, or the buffer comes from [`Session::allocate`]: once it is
    /// freed, other buffers would lie in what is shared.
    pub fn share(&self, offset: u64, bytes: u64, access: Access) -> Result<Share, Error> {
        let inside = offset <= self.bytes() && bytes <= self.bytes() - offset;
        if !inside {
            return Err(Error::new(ErrorCode::InvalidArgument, "the part does not lie in the buffer"));
        }
        let Held::Arena(key) = self.held else {
            let message = "the buffer is part of an arena, whose other parts are not shared with it";
            return Err(Error::new(ErrorCode::InvalidArgument, message)
                .remedy("share a buffer of its own: allocate it with `allocate_arena`"));
        };
        derive(&self.session, key, offset, bytes, access)
    }
}

impl Session {
    /// Maps memory of another session into this one: where kernels can write it if the share allows that, else where they
    /// can only read it. A remote call; this session pauses meanwhile. The share may be dropped afterwards. When it is
    /// revoked, work of this session that runs on beyond the kernel's deadline ends the session.
    ///
    /// # Errors
    /// `notSupported` where it is not whole pages of 2 MiB, `outOfMemory` where work of this session does not end.
    pub fn accept(&self, share: &Share) -> Result<Share, Error> {
        self.accept_in(share, 0)
    }

    /// The same at an address, or where the kernel likes for 0.
    pub(crate) fn accept_in(&self, share: &Share, address: u64) -> Result<Share, Error> {
        let (own, key, given) = (self.clone(), share.key(), Arc::clone(&share.held));
        self.inner.remote.call(move |context| async move {
            let mut accept = context.session()?.accept_request();
            accept.get().set_view(rpc::gpu_buffer_view::Client { client: context.any(key)? });
            accept.get().set_at(address);
            let response = accept.send().promise.await.map_err(broken)?;
            let accepted = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
            let (client, access) = match accepted.which().map_err(|error| broken(error.into()))? {
                rpc::accepted::Buffer(buffer) => (buffer.map_err(broken)?.client, Access::ReadWrite),
                rpc::accepted::View(view) => (view.map_err(broken)?.client, Access::Read),
            };
            Ok(Share {
                held: Arc::new(Reference::hold(&own, &context, client)),
                _given: Some(given),
                handle: Handle::read(accepted.get_handle().map_err(broken)?),
                address: accepted.get_address(),
                bytes: accepted.get_bytes(),
                access,
            })
        })
    }
}
