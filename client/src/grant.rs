//! Handing capabilities over, and what can be handed over besides memory.

use std::time::Duration;

use bulkhead_schema::{Error, ErrorCode, bulkhead_capnp as rpc};

use crate::{
    Entry, Fence, Gates, Image, ProtectedModule, Session, Share, SturdyToken, Terms,
    connection::{Context, answer, broken},
    share::Reference,
};

/// What the driver of an isolated session is asked ([`Session::ask_driver`](crate::Session::ask_driver)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// How many clusters of a launch of an entry are on the device at a time.
    ActiveClusters,
    /// How many blocks its largest cluster may have.
    ClusterSize,
    /// A tensor map of tiles.
    TensorMapTiled,
    /// A tensor map of the other kind.
    TensorMapIm2col,
    /// Nothing: what kernels have printed is written out ([`Session::output`](crate::Session::output) asks that).
    Output,
    /// A new CUDA array's number.
    MakeArray,
    /// Nothing: it is destroyed.
    FreeArray,
    /// A new texture, as kernels name it.
    MakeTexture,
    /// Nothing: it is destroyed.
    FreeTexture,
    /// A new surface, as kernels name it.
    MakeSurface,
    /// Nothing: it is destroyed.
    FreeSurface,
    /// Nothing: a limit of the context is set.
    SetLimit,
}

impl Question {
    pub(crate) fn wire(self) -> rpc::Question {
        match self {
            Self::ActiveClusters => rpc::Question::ActiveClusters,
            Self::ClusterSize => rpc::Question::ClusterSize,
            Self::TensorMapTiled => rpc::Question::TensorMapTiled,
            Self::TensorMapIm2col => rpc::Question::TensorMapIm2col,
            Self::Output => rpc::Question::Output,
            Self::MakeArray => rpc::Question::MakeArray,
            Self::FreeArray => rpc::Question::FreeArray,
            Self::MakeTexture => rpc::Question::MakeTexture,
            Self::FreeTexture => rpc::Question::FreeTexture,
            Self::MakeSurface => rpc::Question::MakeSurface,
            Self::FreeSurface => rpc::Question::FreeSurface,
            Self::SetLimit => rpc::Question::SetLimit,
        }
    }
}

/// A capability that came from somebody else.
pub enum Received {
    /// Memory.
    Share(Share),
    /// Entries to launch in a session of one's own.
    Program(Program),
    /// The authority to give a session things.
    Peer(Peer),
    /// A point to wait for.
    Fence(RemoteFence),
    /// A point to signal.
    Signal(Signal),
    /// The host half of a protected module.
    Module(ProtectedModule),
    /// Gates to accept.
    Gates(Gates),
}

macro_rules! capability {
    ($name:ident, $what:literal) => {
        #[doc = $what]
        pub struct $name(pub(crate) $crate::share::Reference);

        impl $name {
            /// Ends everything derived from it. It stays.
            ///
            /// # Errors
            /// Where it has ended itself.
            pub fn revoke(&self) -> Result<$crate::Revocation, $crate::Error> {
                self.0.revoke()
            }

            /// Ends it and everything derived from it.
            ///
            /// # Errors
            /// Where it has ended already.
            pub fn close(self) -> Result<$crate::Revocation, $crate::Error> {
                self.0.close()
            }

            /// A token for a process that shares no connection with this one.
            ///
            /// # Errors
            /// Where it has ended, or the session has as many tokens as it may.
            pub fn token(&self, uses: $crate::Uses) -> Result<$crate::SturdyToken, $crate::Error> {
                self.0.token(uses)
            }
        }
    };
}

pub(crate) use capability;

capability!(Program, "Entries that may be launched, and no others, in a session of one's own.");
capability!(Peer, "The authority to give a session things, and no other.");
capability!(RemoteFence, "A completion point of somebody's, to wait for only.");
capability!(Signal, "A completion point that its holder signals.");

impl Peer {
    /// Gives the session a share: a child of it waits there to be [received](Session::granted).
    ///
    /// # Errors
    /// Where the session is over, or has as much waiting as it may.
    pub fn grant(&self, share: &Share) -> Result<(), Error> {
        let (key, share) = (self.0.key(), share.key());
        self.0.session.inner.remote.call(move |context| async move {
            let mut grant = rpc::gpu_peer::Client { client: context.any(key)? }.grant_request();
            grant.get().set_view(rpc::gpu_buffer_view::Client { client: context.any(share)? });
            let response = grant.send().promise.await.map_err(broken)?;
            answer(response.get().and_then(|r| r.get_result()).map_err(broken)?).map(|_| ())
        })
    }
}

impl Peer {
    /// Gives the session gates: a child of them waits there to be [received](Session::granted).
    ///
    /// # Errors
    /// Where the session is over, or has as much waiting as it may.
    pub fn grant_gates(&self, gates: &Gates) -> Result<(), Error> {
        let (key, gates) = (self.0.key(), gates.0.key());
        self.0.session.inner.remote.call(move |context| async move {
            let mut grant = rpc::gpu_peer::Client { client: context.any(key)? }.grant_gates_request();
            grant.get().set_gates(rpc::gpu_gates::Client { client: context.any(gates)? });
            let response = grant.send().promise.await.map_err(broken)?;
            answer(response.get().and_then(|r| r.get_result()).map_err(broken)?).map(|_| ())
        })
    }
}

impl RemoteFence {
    /// Waits until it has passed or the time is up; whether it has.
    ///
    /// # Errors
    /// Where the session that it belongs to is over.
    pub fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        wait(&self.0, timeout)
    }
}

impl Signal {
    /// Lets everybody pass who waits.
    ///
    /// # Errors
    /// Where it has ended.
    pub fn signal(&self) -> Result<(), Error> {
        let key = self.0.key();
        self.0.session.inner.remote.call(move |context| async move {
            let signal = rpc::gpu_signal::Client { client: context.any(key)? };
            let response = signal.signal_request().send().promise.await.map_err(broken)?;
            answer(response.get().and_then(|r| r.get_result()).map_err(broken)?).map(|_| ())
        })
    }

    /// The same to wait for only.
    ///
    /// # Errors
    /// Where it has ended.
    pub fn fence(&self) -> Result<RemoteFence, Error> {
        let (session, key) = (self.0.session.clone(), self.0.key());
        self.0.session.inner.remote.call(move |context| async move {
            let signal = rpc::gpu_signal::Client { client: context.any(key)? };
            let response = signal.fence_request().send().promise.await.map_err(broken)?;
            let created = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
            let client = created.get_fence().map_err(broken)?.client;
            Ok(RemoteFence(Reference::hold(&session, &context, client)))
        })
    }

    /// Waits until it is signalled or the time is up; whether it was.
    ///
    /// # Errors
    /// Where it has ended.
    pub fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        wait(&self.0, timeout)
    }
}

fn wait(reference: &Reference, timeout: Duration) -> Result<bool, Error> {
    let key = reference.key();
    let milliseconds = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
    reference.session.inner.remote.call(move |context| async move {
        let mut wait = rpc::gpu_fence::Client { client: context.any(key)? }.wait_request();
        wait.get().set_timeout_ms(milliseconds);
        let response = wait.send().promise.await.map_err(broken)?;
        let state = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
        Ok(state.get_passed())
    })
}

async fn receive(
    session: &Session,
    context: &Context,
    any: rpc::any_capability::Reader<'_>,
) -> Result<Received, Error> {
    let hold = |client| Reference::hold(session, context, client);
    Ok(match any.which().map_err(|error| broken(error.into()))? {
        rpc::any_capability::View(view) => {
            Received::Share(Share::of_view(session, context, view.map_err(broken)?).await?)
        }
        rpc::any_capability::Buffer(buffer) => {
            let view = rpc::gpu_buffer_view::Client { client: buffer.map_err(broken)?.client };
            Received::Share(Share::of_view(session, context, view).await?)
        }
        rpc::any_capability::Program(program) => {
            Received::Program(Program(hold(program.map_err(broken)?.client)))
        }
        rpc::any_capability::Peer(peer) => Received::Peer(Peer(hold(peer.map_err(broken)?.client))),
        rpc::any_capability::Fence(fence) => {
            Received::Fence(RemoteFence(hold(fence.map_err(broken)?.client)))
        }
        rpc::any_capability::Signal(signal) => Received::Signal(Signal(hold(signal.map_err(broken)?.client))),
        rpc::any_capability::Module(module) => {
            Received::Module(ProtectedModule(hold(module.map_err(broken)?.client)))
        }
        rpc::any_capability::Gates(gates) => Received::Gates(Gates(hold(gates.map_err(broken)?.client))),
    })
}

impl Session {
    /// The capability that somebody made a token of.
    ///
    /// # Errors
    /// `notFound` where the token is not good, or not any more.
    pub fn restore(&self, token: SturdyToken) -> Result<Received, Error> {
        let session = self.clone();
        self.inner.remote.call(move |context| async move {
            let mut restore = context.connection.kernel.restore_request();
            token.write(restore.get().init_token());
            let response = restore.send().promise.await.map_err(broken)?;
            let any = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
            receive(&session, &context, any).await
        })
    }

    /// A capability with which others can give this session things.
    ///
    /// # Errors
    /// Where the session is over.
    pub fn peer(&self) -> Result<Peer, Error> {
        let session = self.clone();
        self.inner.remote.call(move |context| async move {
            let response = context.session()?.peer_request().send().promise.await.map_err(broken)?;
            let created = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
            Ok(Peer(Reference::hold(&session, &context, created.get_peer().map_err(broken)?.client)))
        })
    }

    /// The next capability that somebody gave this session, waited for up to `timeout`.
    ///
    /// # Errors
    /// Where the session is over.
    pub fn granted(&self, timeout: Duration) -> Result<Option<Received>, Error> {
        let session = self.clone();
        let milliseconds = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        self.inner.remote.call(move |context| async move {
            let mut granted = context.session()?.granted_request();
            granted.get().set_timeout_ms(milliseconds);
            let response = granted.send().promise.await.map_err(broken)?;
            let granted = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
            match granted.which().map_err(|error| broken(error.into()))? {
                rpc::granted::None(()) => Ok(None),
                rpc::granted::Capability(any) => {
                    receive(&session, &context, any.map_err(broken)?).await.map(Some)
                }
            }
        })
    }

    /// Entries of an image for others to launch in sessions of their own, which draw on this session's account. Without
    /// entries: sessions that can copy and not launch.
    ///
    /// # Errors
    /// Where the image was unloaded, or the terms exceed this session's.
    pub fn program(&self, image: Option<&Image>, entries: &[&Entry], terms: Terms) -> Result<Program, Error> {
        if image.is_none() && !entries.is_empty() {
            return Err(Error::new(ErrorCode::InvalidArgument, "entries without the image that they are of"));
        }
        let session = self.clone();
        let handles: Vec<_> = entries.iter().map(|entry| entry.handle).collect();
        self.inner.remote.call(move |context| async move {
            let mut derive = context.loader()?.derive_request();
            let count = u32::try_from(handles.len()).unwrap_or(u32::MAX);
            let mut list = derive.get().init_entries(count);
            for (at, handle) in (0..count).zip(&handles) {
                handle.write(list.reborrow().get(at));
            }
            terms.write(derive.get().init_terms());
            let response = derive.send().promise.await.map_err(broken)?;
            let created = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
            let client = created.get_program().map_err(broken)?.client;
            Ok(Program(Reference::hold(&session, &context, client)))
        })
    }

    /// A completion point that its holder signals.
    ///
    /// # Errors
    /// Where the session is over, or has as many fences as it may.
    pub fn signal(&self) -> Result<Signal, Error> {
        let session = self.clone();
        self.inner.remote.call(move |context| async move {
            let response = context.session()?.signal_request().send().promise.await.map_err(broken)?;
            let created = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
            let client = created.get_signal().map_err(broken)?.client;
            Ok(Signal(Reference::hold(&session, &context, client)))
        })
    }

    /// A fence of this session as a capability, for others to wait for.
    ///
    /// # Errors
    /// Where the session is over, or has as many fences as it may.
    pub fn publish(&self, fence: Fence) -> Result<RemoteFence, Error> {
        let session = self.clone();
        self.inner.remote.call(move |context| async move {
            let mut publish = context.session()?.fence_request();
            publish.get().set_stream(fence.stream.0);
            publish.get().set_position(fence.position);
            let response = publish.send().promise.await.map_err(broken)?;
            let created = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
            let client = created.get_fence().map_err(broken)?.client;
            Ok(RemoteFence(Reference::hold(&session, &context, client)))
        })
    }
}
