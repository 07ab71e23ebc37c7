//! The RPC face of a session that loads no code.

use std::{collections::VecDeque, rc::Rc, time::Duration};

use bulkhead_caps::Kind;
use bulkhead_mm::{DeviceAddress, Resource};
use bulkhead_schema::{
    Error, ErrorCode,
    bulkhead_capnp::{buffer_created, gpu_copy_session, result},
    limits,
};
use tokio::sync::watch;

use crate::{
    executor_proxy::kept,
    ledger::columns,
    principals::Counted,
    registry::{SturdyToken, What},
    rpc::{
        any::write_any,
        connection::{Connection, Servers},
        fence,
        module::{Module, write_gates},
        peer,
        served::{Buffer, Served, View},
    },
    session::{
        Home, OpenSession, Phase, Session,
        memory::{
            HostReach, NewMemory,
            reserved::{Wanted, Where},
        },
        reference::{Facet, Reference},
    },
    task::{counted, detached},
};

/// A session, as a client holds it who may load no code.
pub(crate) struct CopyServer {
    open: OpenSession,
    pub(crate) connection: Rc<Connection>,
}

impl CopyServer {
    pub(crate) fn new(open: OpenSession, connection: Rc<Connection>) -> Self {
        Self { open, connection }
    }

    /// The session.
    pub(crate) fn session(&self) -> Rc<Session> {
        Rc::clone(&self.open.0)
    }

    fn serve(&self, held: Reference, facet: Facet) -> Served {
        Served::new(held, facet, &self.connection)
    }

    /// Hands new memory to the client.
    fn made(
        &self,
        made: Result<NewMemory, Error>,
        home: Home,
        result: result::Builder<'_, buffer_created::Owned>,
    ) {
        match made {
            Ok(made) => {
                let mut created = result.init_ok();
                let address = match home {
                    Home::Window => made.range.start().0,
                    Home::Shelf => 0,
                };
                made.held.handle.write(created.reborrow().init_handle());
                created.set_address(address);
                created.set_bytes(made.range.bytes());
                let served = self.serve(made.held, Facet::Buffer { address });
                created.set_buffer(self.connection.servers.buffer(Buffer(served)));
            }
            Err(error) => error.write(result.init_error()),
        }
    }
}

impl Session {
    /// A capability for a point of a stream.
    fn fence(self: &Rc<Self>, stream: u32, position: u64) -> Result<Reference, Error> {
        self.live()?;
        if stream >= limits::STREAMS_MAX {
            let message = format!("stream {stream} does not exist; {} are the most", limits::STREAMS_MAX);
            return Err(Error::new(ErrorCode::InvalidArgument, message));
        }
        let waiting = self.charge(Resource::Fences, 1)?;
        let held = self.hold(Kind::Fence, What::Point(watch::Sender::new(None)))?;
        let thing = self.registry().thing(held.look()?.object)?;
        let ask = move |session: &Self| {
            session.ask_alone(Vec::new(), |request| {
                let mut fence = request.init_fence();
                fence.set_session(session.id);
                fence.set_stream(stream);
                fence.set_position(position);
            })
        };
        let mut asked = Some(ask(self));
        let session = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let passed = session.again(|| {
                let asked = asked.take().unwrap_or_else(|| ask(&session));
                let session = &session;
                async move { session.done(&asked.await?) }
            });
            let answer = tokio::select! {
                biased;
                error = session.over() => Err(error),
                passed = passed => passed,
            };
            drop(waiting);
            if let What::Point(sender) = &thing.what {
                sender.send_replace(Some(answer.map_err(kept)));
            }
        });
        Ok(held)
    }

    /// Has somebody's gift wait for the session's client.
    pub(crate) fn be_given(
        &self,
        make: impl FnOnce() -> Result<(Reference, Facet), Error>,
    ) -> Result<(), Error> {
        self.live()?;
        let waiting = self.charge(Resource::Gifts, 1)?;
        let (held, facet) = make()?;
        self.granted.borrow_mut().push_back((held, facet, waiting));
        self.granted_more.notify_one();
        Ok(())
    }

    /// The next gift that is still any good; `None` where none comes in time.
    async fn next_granted(&self, timeout: Duration) -> Result<Option<(Reference, Facet)>, Error> {
        let next = async {
            loop {
                self.live()?;
                let given = self.granted.borrow_mut().pop_front();
                match given {
                    Some((held, facet, _)) if held.look().is_ok() => return Ok(Some((held, facet))),
                    // It was taken back meanwhile.
                    Some(_) => {}
                    None => tokio::select! {
                        () = self.granted_more.notified() => {}
                        () = self.until(Phase::Over) => {}
                    },
                }
            }
        };
        let answer = tokio::time::timeout(timeout, next).await.unwrap_or(Ok(None));
        // Whoever else waits looks too.
        let more = !VecDeque::is_empty(&self.granted.borrow());
        if more {
            self.granted_more.notify_one();
        }
        answer
    }
}

impl gpu_copy_session::Server for CopyServer {
    async fn allocate(
        self: Rc<Self>,
        params: gpu_copy_session::AllocateParams,
        mut results: gpu_copy_session::AllocateResults,
    ) -> Result<(), capnp::Error> {
        let bytes = params.get()?.get_bytes();
        drop(params);
        let made = detached(self.open.0.limits.answer(), self.session().allocate(bytes, Home::Window)).await;
        self.made(made, Home::Window, results.get().init_result());
        Ok(())
    }

    async fn create(
        self: Rc<Self>,
        params: gpu_copy_session::CreateParams,
        mut results: gpu_copy_session::CreateResults,
    ) -> Result<(), capnp::Error> {
        let bytes = params.get()?.get_bytes();
        drop(params);
        let made = detached(self.open.0.limits.answer(), self.session().allocate(bytes, Home::Shelf)).await;
        self.made(made, Home::Shelf, results.get().init_result());
        Ok(())
    }

    async fn reserve_addresses(
        self: Rc<Self>,
        params: gpu_copy_session::ReserveAddressesParams,
        mut results: gpu_copy_session::ReserveAddressesResults,
    ) -> Result<(), capnp::Error> {
        let params = params.get()?;
        let reserved = self.open.0.reserve_addresses(&Wanted {
            bytes: params.get_bytes(),
            place: Where::of(params.get_at()),
            alignment: params.get_alignment(),
        });
        let result = results.get().init_result();
        match reserved {
            Ok(range) => {
                let mut reserved = result.init_ok();
                reserved.set_address(range.start().0);
                reserved.set_bytes(range.bytes());
            }
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn release_addresses(
        self: Rc<Self>,
        params: gpu_copy_session::ReleaseAddressesParams,
        mut results: gpu_copy_session::ReleaseAddressesResults,
    ) -> Result<(), capnp::Error> {
        let given = self.open.0.release_addresses(DeviceAddress(params.get()?.get_address()));
        let result = results.get().init_result();
        match given {
            Ok(()) => {
                result.init_ok();
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
        let (bytes, reach) = {
            let params = params.get()?;
            (params.get_bytes(), if params.get_mapped() { HostReach::Kernels } else { HostReach::Copies })
        };
        drop(params);
        let made = detached(self.open.0.limits.answer(), self.session().allocate_host(bytes, reach)).await;
        let made = made.and_then(|host| {
            let token = self.connection.give(self.session().parcel(vec![host.memory], host.on_the_way))?;
            Ok((host.held, host.bytes, host.address, token))
        });
        let result = results.get().init_result();
        match made {
            Ok((held, bytes, address, token)) => {
                let mut created = result.init_ok();
                held.handle.write(created.reborrow().init_handle());
                token.write(created.reborrow().init_memory());
                created.set_bytes(bytes);
                created.set_address(address);
                let served = self.serve(held, Facet::Buffer { address });
                created.set_buffer(self.connection.servers.buffer(Buffer(served)));
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
            Ok(held) => {
                let served = self.serve(held, Facet::Fence);
                result.init_ok().set_fence(capnp_rpc::new_client(fence::Fence(served)));
            }
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn signal(
        self: Rc<Self>,
        _: gpu_copy_session::SignalParams,
        mut results: gpu_copy_session::SignalResults,
    ) -> Result<(), capnp::Error> {
        let session = self.session();
        let held =
            session.live().and_then(|()| session.hold(Kind::Signal, What::Point(watch::Sender::new(None))));
        let result = results.get().init_result();
        match held {
            Ok(held) => {
                let served = self.serve(held, Facet::Signal);
                result.init_ok().set_signal(capnp_rpc::new_client(fence::Signal(served)));
            }
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
        self.open.0.close().await;
        results.get().init_result().init_ok();
        Ok(())
    }

    async fn accept(
        self: Rc<Self>,
        params: gpu_copy_session::AcceptParams,
        mut results: gpu_copy_session::AcceptResults,
    ) -> Result<(), capnp::Error> {
        let (view, place) = {
            let params = params.get()?;
            (params.get_view(), Where::of(params.get_at()))
        };
        drop(params);
        let accepted = match Servers::find(&self.connection, view).await {
            Ok(found) => {
                let given = found.served();
                let (session, handle) = (Rc::clone(&given.held.session), given.held.handle);
                match given.held.look() {
                    Ok(_) => {
                        let accept = self.session().accept(session, handle, given.facet.clone(), place);
                        detached(self.open.0.limits.answer(), accept).await
                    }
                    Err(error) => Err(error),
                }
            }
            Err(error) => Err(error),
        };
        let result = results.get().init_result();
        match accepted {
            Ok(accepted) => {
                let mut written = result.init_ok();
                accepted.held.handle.write(written.reborrow().init_handle());
                written.set_address(accepted.range.start().0);
                written.set_bytes(accepted.range.bytes());
                let is_view = matches!(accepted.facet, Facet::View { .. });
                let served = self.serve(accepted.held, accepted.facet);
                if is_view {
                    written.set_view(self.connection.servers.view(View(served)));
                } else {
                    written.set_buffer(self.connection.servers.buffer(Buffer(served)));
                }
            }
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn peer(
        self: Rc<Self>,
        _: gpu_copy_session::PeerParams,
        mut results: gpu_copy_session::PeerResults,
    ) -> Result<(), capnp::Error> {
        let session = self.session();
        let held = session.live().and_then(|()| session.hold(Kind::Peer, What::Peer));
        let result = results.get().init_result();
        match held {
            Ok(held) => {
                let served = self.serve(held, Facet::Peer);
                result.init_ok().set_peer(capnp_rpc::new_client(peer::Peer(served)));
            }
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn claim_module(
        self: Rc<Self>,
        params: gpu_copy_session::ClaimModuleParams,
        mut results: gpu_copy_session::ClaimModuleResults,
    ) -> Result<(), capnp::Error> {
        let token = SturdyToken::read(params.get()?.get_token()?);
        drop(params);
        let claimed = detached(self.open.0.limits.answer(), self.session().claim_module(token)).await;
        let result = results.get().init_result();
        match claimed {
            Ok((held, bytes)) => {
                let mut claimed = result.init_ok();
                claimed.set_bytes(bytes);
                claimed.set_module(capnp_rpc::new_client(Module(self.serve(held, Facet::Module))));
            }
            Err(error) => {
                self.connection.note_refusal(&error, "no module claimed");
                error.write(result.init_error());
            }
        }
        Ok(())
    }

    async fn accept_gates(
        self: Rc<Self>,
        params: gpu_copy_session::AcceptGatesParams,
        mut results: gpu_copy_session::AcceptGatesResults,
    ) -> Result<(), capnp::Error> {
        let gates = params.get()?.get_gates();
        drop(params);
        let found = Servers::find_gates(&self.connection, gates).await;
        let found = found.and_then(|found| found.0.held.look().map(|_| found));
        let accepted = match found {
            Ok(found) => {
                let (given, handle) = (Rc::clone(&found.0.held.session), found.0.held.handle);
                let accepted = self.session().accept_gates(given, handle, found.1);
                detached(self.open.0.limits.answer(), accepted).await.map(|held| (held, found.1))
            }
            Err(error) => Err(error),
        };
        write_gates(accepted, &self.connection, results.get().init_result());
        Ok(())
    }

    async fn lost(
        self: Rc<Self>,
        params: gpu_copy_session::LostParams,
        mut results: gpu_copy_session::LostResults,
    ) -> Result<(), capnp::Error> {
        let (seen, timeout) = {
            let params = params.get()?;
            (params.get_seen(), Duration::from_millis(u64::from(params.get_timeout_ms())))
        };
        drop(params);
        let moved = match self.connection.party.take(Counted::Waits, 1) {
            Ok(_waits) => self.session().moved(seen, timeout).await,
            Err(error) => Err(error),
        };
        let moved = moved.and_then(|(times, page)| {
            let page = page.map(|(page, on_the_way)| {
                self.connection.give(self.session().parcel(vec![page], on_the_way))
            });
            Ok((times, page.transpose()?))
        });
        let result = results.get().init_result();
        match moved {
            Ok((times, page)) => {
                let mut moved = result.init_ok();
                moved.set_times(times);
                if let Some(page) = page {
                    page.write(moved.init_page());
                }
            }
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn ledger(
        self: Rc<Self>,
        _: gpu_copy_session::LedgerParams,
        mut results: gpu_copy_session::LedgerResults,
    ) -> Result<(), capnp::Error> {
        let result = results.get().init_result();
        match self.open.0.live() {
            Ok(()) => {
                let mut ledger = result.init_ok();
                ledger.set_priority(self.open.0.terms.priority);
                self.open.0.write_ledger(ledger.init_columns(columns()));
            }
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn reserve(
        self: Rc<Self>,
        params: gpu_copy_session::ReserveParams,
        mut results: gpu_copy_session::ReserveResults,
    ) -> Result<(), capnp::Error> {
        let (streams, events) = {
            let params = params.get()?;
            (params.get_streams(), params.get_events())
        };
        drop(params);
        let session = self.session();
        let patience = session.limits.answer();
        let party = Rc::clone(&session.party);
        let reserved = counted(&party, patience, async move { session.reserve(streams, events).await }).await;
        let result = results.get().init_result();
        match reserved {
            Ok((streams, events)) => {
                let mut reserved = result.init_ok();
                reserved.set_streams(streams);
                reserved.set_events(events);
            }
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn granted(
        self: Rc<Self>,
        params: gpu_copy_session::GrantedParams,
        mut results: gpu_copy_session::GrantedResults,
    ) -> Result<(), capnp::Error> {
        let timeout = Duration::from_millis(u64::from(params.get()?.get_timeout_ms()));
        drop(params);
        let session = self.session();
        let granted = match self.connection.party.take(Counted::Waits, 1) {
            Ok(_waits) => session.next_granted(timeout).await,
            Err(error) => Err(error),
        };
        let result = results.get().init_result();
        match granted {
            Ok(Some((held, facet))) => {
                write_any(held, facet, &self.connection, result.init_ok().init_capability());
            }
            Ok(None) => result.init_ok().set_none(()),
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }
}
