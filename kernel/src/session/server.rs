//! The RPC face of a session.

use std::rc::Rc;

use bulkhead_mm::Resource;
use bulkhead_schema::{
    Error, ErrorCode,
    bulkhead_capnp::{gpu_copy_session, gpu_session},
    limits,
};
use tokio::sync::watch;

use super::{OpenSession, Phase, Session};
use crate::{
    connection::Connection,
    descriptors::{Purpose, Token},
    fence::Fence,
    refusal::internal,
    task::detached,
};

/// A session, as its client holds it.
pub(crate) struct SessionServer {
    open: OpenSession,
    connection: Rc<Connection>,
}

impl SessionServer {
    pub(crate) fn new(open: OpenSession, connection: Rc<Connection>) -> Self {
        Self { open, connection }
    }

    /// The session.
    pub(crate) fn session(&self) -> Rc<Session> {
        Rc::clone(&self.open.0)
    }

    fn offer(&self, bytes: u64) -> Result<Token, Error> {
        let session = self.session();
        session.may_offer(bytes)?;
        // The token is not known before it is given out, and nobody else can use it before this method ends.
        let token = Rc::new(std::cell::OnceCell::new());
        let (own_token, weak) = (Rc::clone(&token), Rc::downgrade(&session));
        let purpose = Purpose::Send(Box::new(move |descriptor| {
            let session = weak.upgrade().ok_or_else(|| internal("the session is gone"))?;
            let token = own_token.get().copied().ok_or_else(|| internal("a token without a name"))?;
            session.receive_image(token, descriptor)
        }));
        let given = self.connection.give(purpose)?;
        session.offer(given, bytes);
        token.set(given).map_err(|_| internal("a token with two names"))?;
        Ok(given)
    }
}

impl Session {
    /// Waits until it is over; why it is.
    pub(crate) async fn over(&self) -> Error {
        let mut phase = self.phase.subscribe();
        // The sender is a field of `self`, so the wait cannot fail.
        drop(phase.wait_for(|phase| *phase != Phase::Open).await);
        self.live().err().unwrap_or_else(|| internal("a session is neither open nor over"))
    }

    /// A capability for a point of a stream. It is charged until the executor answers.
    fn fence(self: &Rc<Self>, stream: u32, position: u64) -> Result<Fence, Error> {
        self.live()?;
        if stream >= limits::STREAMS_MAX {
            let message = format!("stream {stream} does not exist; {} are the most", limits::STREAMS_MAX);
            return Err(Error::new(ErrorCode::InvalidArgument, message));
        }
        if self.fences.get() >= limits::FENCES_MAX {
            let message = format!("{} fences of the session have not passed", limits::FENCES_MAX);
            return Err(Error::new(ErrorCode::LimitReached, message).remedy("wait for some of them"));
        }
        self.charge(Resource::Capabilities, 1)?.keep();
        self.fences.set(self.fences.get() + 1);
        let passed = self.ask(Vec::new(), |request| {
            let mut fence = request.init_fence();
            fence.set_session(self.id);
            fence.set_stream(stream);
            fence.set_position(position);
        });
        let (sender, receiver) = watch::channel(None);
        let session = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let answer = tokio::select! {
                biased;
                error = session.over() => Err(error),
                passed = passed => passed.and_then(|answer| session.done(&answer)),
            };
            session.fences.set(session.fences.get().saturating_sub(1));
            session.refund(Resource::Capabilities, 1);
            // Nobody may wait any more.
            drop(sender.send(Some(answer)));
        });
        Ok(Fence::new(Rc::clone(self), receiver))
    }
}

impl gpu_copy_session::Server for SessionServer {
    async fn allocate(
        self: Rc<Self>,
        params: gpu_copy_session::AllocateParams,
        mut results: gpu_copy_session::AllocateResults,
    ) -> Result<(), capnp::Error> {
        let bytes = params.get()?.get_bytes();
        drop(params);
        let made = detached(self.open.0.limits.answer(), self.session().allocate(bytes)).await;
        let result = results.get().init_result();
        match made {
            Ok(buffer) => {
                let mut created = result.init_ok();
                buffer.handle.write(created.reborrow().init_handle());
                created.set_address(buffer.address);
                created.set_bytes(buffer.bytes);
                created.set_buffer(capnp_rpc::new_client(buffer));
            }
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn allocate_host(
        self: Rc<Self>,
        params: gpu_copy_session::AllocateHostParams,
        mut results: gpu_copy_session::AllocateHostResults,
    ) -> Result<(), capnp::Error> {
        let bytes = params.get()?.get_bytes();
        drop(params);
        let made = detached(self.open.0.limits.answer(), self.session().allocate_host(bytes)).await;
        let made = made.and_then(|host| {
            let token = self.connection.give(Purpose::Fetch(vec![host.memory]))?;
            Ok((host.buffer, token))
        });
        let result = results.get().init_result();
        match made {
            Ok((buffer, token)) => {
                let mut created = result.init_ok();
                buffer.handle.write(created.reborrow().init_handle());
                token.write(created.reborrow().init_memory());
                created.set_bytes(buffer.bytes);
                created.set_buffer(capnp_rpc::new_client(buffer));
            }
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn fence(
        self: Rc<Self>,
        params: gpu_copy_session::FenceParams,
        mut results: gpu_copy_session::FenceResults,
    ) -> Result<(), capnp::Error> {
        let params = params.get()?;
        let fence = self.open.0.fence(params.get_stream(), params.get_position());
        let result = results.get().init_result();
        match fence {
            Ok(fence) => result.init_ok().set_fence(capnp_rpc::new_client(fence)),
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn memory(
        self: Rc<Self>,
        _: gpu_copy_session::MemoryParams,
        mut results: gpu_copy_session::MemoryResults,
    ) -> Result<(), capnp::Error> {
        let result = results.get().init_result();
        match self.open.0.memory() {
            Ok((free, total)) => {
                let mut memory = result.init_ok();
                memory.set_free_bytes(free);
                memory.set_total_bytes(total);
            }
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn close(
        self: Rc<Self>,
        params: gpu_copy_session::CloseParams,
        mut results: gpu_copy_session::CloseResults,
    ) -> Result<(), capnp::Error> {
        drop(params);
        let closed = self.open.0.close().await;
        let result = results.get().init_result();
        match closed {
            Ok(()) => drop(result.init_ok()),
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }
}

impl gpu_session::Server for SessionServer {
    async fn offer_image(
        self: Rc<Self>,
        params: gpu_session::OfferImageParams,
        mut results: gpu_session::OfferImageResults,
    ) -> Result<(), capnp::Error> {
        let offered = self.offer(params.get()?.get_bytes());
        let result = results.get().init_result();
        match offered {
            Ok(token) => token.write(result.init_ok()),
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn load_image(
        self: Rc<Self>,
        params: gpu_session::LoadImageParams,
        mut results: gpu_session::LoadImageResults,
    ) -> Result<(), capnp::Error> {
        let token = Token::read(params.get()?.get_image()?);
        drop(params);
        let (session, kernel) = (self.session(), Rc::clone(&self.connection.kernel));
        let patience = session.limits.load();
        let loaded =
            detached(patience, async move { session.load_image(token, &kernel.compiler).await }).await;
        let result = results.get().init_result();
        match loaded {
            Ok(image) => {
                let mut loaded = result.init_ok();
                image.write(loaded.reborrow().init_entries(image.count()));
                loaded.set_module(capnp_rpc::new_client(image));
            }
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }
}
