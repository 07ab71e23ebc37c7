//! Servers that a campaign must find fault with: what tells that it would notice.

use std::{
    cell::{Cell, RefCell},
    path::Path,
    rc::Rc,
};

use capnp::{
    any_pointer,
    capability::{DispatchCallResult, FromClientHook, FromServer, Params, Promise, Results, Server},
    private::capability::ClientHook,
};
use capnp_rpc::{RpcSystem, rpc_twoparty_capnp::Side, twoparty};
use tokio_util::compat::{TokioAsyncReadCompatExt as _, TokioAsyncWriteCompatExt as _};

use super::{message::FIELDS, untyped::Struct};
use crate::status::local;

/// What is wrong with a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It calls, keeps and gives back what its clients host, and nothing stands before it.
    TrustsItsClients,
    /// It panics now and then.
    Panics,
    /// It stops answering.
    Hangs,
    /// It keeps memory for connections that have ended.
    KeepsMemory,
    /// It keeps the sockets of connections that have ended.
    KeepsSockets,
}

/// Serves at a path, for ever.
///
/// # Panics
/// Where it cannot listen.
pub fn serve(path: &Path, fault: Fault) {
    local(async {
        let listener = tokio::net::UnixListener::bind(path).expect("a socket to listen at");
        let calls = Rc::new(Cell::new(0_u32));
        let mut sockets = Vec::new();
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            let stream = stream.into_std().expect("a socket");
            if fault == Fault::KeepsSockets {
                sockets.extend(stream.try_clone());
            }
            let stream = tokio::net::UnixStream::from_std(stream).expect("a socket");
            let (reader, writer) = stream.into_split();
            let network = twoparty::VatNetwork::new(
                reader.compat(),
                writer.compat_write(),
                Side::Server,
                capnp::message::ReaderOptions::new(),
            );
            let shared = Shared { fault, calls: Rc::clone(&calls), kept: RefCell::default() };
            let shared = Rc::new(shared);
            let anything: Anything = capnp_rpc::new_client_from_rc(Rc::clone(&shared));
            let first = capnp::capability::Client { hook: anything.0 };
            let system = RpcSystem::new(Box::new(network), Some(first));
            let disconnector = system.get_disconnector();
            // A panic in there ends its connection and is told of on standard error.
            tokio::task::spawn_local(async move {
                drop(system.await);
                drop(disconnector.await);
                // What it keeps would keep the connection.
                drop(shared.kept.take());
            });
        }
    });
}

struct Shared {
    fault: Fault,
    calls: Rc<Cell<u32>>,
    kept: RefCell<Vec<Box<dyn ClientHook>>>,
}

/// A server of every interface. What its clients host it only touches where it trusts them: its results are its
/// parameters then.
#[derive(Clone)]
struct General(Rc<Shared>);

impl std::ops::Deref for General {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

/// A client of no interface in particular.
struct Anything(Box<dyn ClientHook>);

impl FromClientHook for Anything {
    fn new(hook: Box<dyn ClientHook>) -> Self {
        Self(hook)
    }

    fn into_client_hook(self) -> Box<dyn ClientHook> {
        self.0
    }

    fn as_client_hook(&self) -> &dyn ClientHook {
        self.0.as_ref()
    }
}

impl FromServer<Shared> for Anything {
    type Dispatch = General;

    fn from_server(shared: Rc<Shared>) -> General {
        General(shared)
    }
}

impl Server for General {
    fn dispatch_call(
        self,
        _: u64,
        _: u16,
        params: Params<any_pointer::Owned>,
        results: Results<any_pointer::Owned>,
    ) -> DispatchCallResult {
        DispatchCallResult::new(Promise::from_future(self.call(params, results)), false)
    }

    fn as_ptr(&self) -> usize {
        Rc::as_ptr(&self.0).addr()
    }
}

impl General {
    async fn call(
        self,
        params: Params<any_pointer::Owned>,
        mut results: Results<any_pointer::Owned>,
    ) -> capnp::Result<()> {
        let calls = self.0.calls.get() + 1;
        self.0.calls.set(calls);
        match self.0.fault {
            Fault::Panics => assert!(!calls.is_multiple_of(5_000), "as it was told to"),
            Fault::Hangs if calls == 5_000 => loop {
                std::thread::park();
            },
            Fault::KeepsMemory => std::mem::forget(vec![1_u8; 2_000]),
            Fault::TrustsItsClients => {
                self.trust(&params)?;
                results.get().set_as::<any_pointer::Owned>(params.get()?)?;
            }
            Fault::Hangs | Fault::KeepsSockets => {}
        }
        Ok(())
    }

    /// Calls what is in the parameters, keeps it, and gives something back later.
    fn trust(&self, params: &Params<any_pointer::Owned>) -> capnp::Result<()> {
        let parameters: Struct<'_> = params.get()?.get_as()?;
        for field in 0..usize::from(FIELDS) {
            let field = parameters.0.get_pointer_field(field);
            let Ok(hook) = field.get_capability() else { continue };
            let request = hook.new_call(0, 0, None);
            let asked = request.send();
            self.0.kept.borrow_mut().push(asked.pipeline.get_pointer_field(0).as_cap());
            self.0.kept.borrow_mut().push(hook);
            tokio::task::spawn_local(async move { drop(asked.promise.await) });
        }
        if self.0.kept.borrow().len() > 6 {
            let kept = self.0.kept.take();
            drop(kept);
        }
        Ok(())
    }
}
