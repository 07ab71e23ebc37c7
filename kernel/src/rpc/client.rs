//! One client's connection, from its beginning to its end, and the bootstrap interface.

use std::{
    cell::{Cell, RefCell},
    io,
    os::fd::OwnedFd,
    rc::{Rc, Weak},
    time::Duration,
};

use bulkhead_schema::{Error, ErrorCode, bulkhead_capnp::bulkhead, limits};
use capnp_rpc::{RpcSystem, rpc_capnp};
use futures::io::{BufReader, BufWriter};
use rustix::net::SendFlags;
use tokio::{io::Interest, net::UnixStream, sync::Notify};
use tokio_util::{
    compat::{TokioAsyncReadCompatExt, TokioAsyncWriteCompatExt},
    sync::CancellationToken,
};

use crate::{
    executor_proxy::length,
    kernel::Kernel,
    principals::Party,
    registry::SturdyToken,
    rpc::{
        any::write_any,
        connection::{Connection, Servers, gone},
        firewall::{self, Firewall},
        opening::{Opened, name, open, write_opened},
        session::SessionServer,
    },
    session::{
        Terms,
        reference::{Facet, Reference},
    },
    task::detached,
    transport::{
        async_fd::watched,
        awake::stay_awake,
        door::{Arrival, Peer},
    },
};

/// How long a client that broke the protocol may take to read why it is sent away.
pub(crate) const FAREWELL: Duration = Duration::from_millis(500);

/// Ends what a connection has when it ends, however that comes about.
struct Ending(Rc<Connection>);

impl Ending {
    /// Ends its sessions, and lets everybody else have a turn after each.
    async fn one_by_one(&self) {
        self.0.ended.set(true);
        self.0.left.cancel();
        loop {
            let next = self.0.sessions.borrow_mut().pop();
            let Some(session) = next else { return };
            if let Some(session) = session.upgrade() {
                session.end(&gone_with_its_client());
                tokio::task::yield_now().await;
            }
        }
    }
}

fn gone_with_its_client() -> Error {
    Error::new(ErrorCode::SessionLost, "the client's connection has ended")
}

impl Drop for Ending {
    fn drop(&mut self) {
        let connection = &self.0;
        connection.ended.set(true);
        connection.left.cancel();
        connection.kernel.tokens.forget(connection.id);
        for session in connection.sessions.take().iter().filter_map(Weak::upgrade) {
            session.end(&gone_with_its_client());
        }
        if let Some(unsaid) = connection.party.line() {
            tracing::info!(target: "bulkhead::audit", connection = connection.id, unsaid, "connection ended");
        }
    }
}

/// Serves one client until it, or its process, is gone.
pub(crate) async fn serve(kernel: Rc<Kernel>, arrival: Arrival, party: Rc<Party>) -> io::Result<()> {
    let Arrival { peer, process, socket, relayed } = arrival;
    let served = converse(kernel, peer, party, process, socket).await;
    // Its place stays taken for as long as its relay does.
    if let Some(relayed) = relayed {
        relayed.ended().await;
    }
    served
}

async fn converse(
    kernel: Rc<Kernel>,
    peer: Peer,
    party: Rc<Party>,
    process: Option<OwnedFd>,
    socket: OwnedFd,
) -> io::Result<()> {
    let id = kernel.next_connection.get();
    kernel.next_connection.set(id + 1);
    let is_watched = process.is_some();
    let process = process.map(|process| watched(process, Interest::READABLE)).transpose()?.map(Rc::new);
    let connection = Rc::new(Connection {
        kernel: Rc::clone(&kernel),
        id,
        peer,
        process: process.clone(),
        party: Rc::clone(&party),
        greeted: Cell::new(false),
        hello: Notify::new(),
        ended: Cell::new(false),
        left: CancellationToken::new(),
        sessions: RefCell::default(),
        opening: Cell::new(0),
        servers: Servers::default(),
    });
    let ending = Ending(Rc::clone(&connection));
    if let Some(unsaid) = party.line() {
        let (principal, watched) = (party.principal(), is_watched);
        tracing::info!(target: "bulkhead::audit", connection = id, ?peer, principal, watched, unsaid, "connection");
    }
    let stream = UnixStream::from_std(socket.into())?;
    let firewall = Firewall::new(&party);
    let (reader, writer) = stream.into_split();
    let network =
        firewall::network(&firewall, BufReader::new(reader.compat()), BufWriter::new(writer.compat_write()));
    let greeting = Rc::clone(&connection);
    let silence = kernel.limits.seconds(limits::HELLO_SECONDS);
    let bootstrap: bulkhead::Client = capnp_rpc::new_client(Bulkhead { connection });
    let mut system = RpcSystem::new(network, Some(bootstrap.client));
    let disconnector = system.get_disconnector();
    let listening = Rc::clone(&firewall);
    // A set, because its tasks end when it is dropped.
    let mut awake = tokio::task::JoinSet::new();
    awake.spawn_local(async move { stay_awake(listening.heard()).await });
    tokio::select! {
        biased;
        // A forked child may keep the socket open: the process is what counts.
        () = gone(process.as_deref()) => {}
        () = firewall.tripped() => {}
        () = silent(&greeting, silence) => {}
        ended = &mut system => {
            if let Err(error) = ended {
                tracing::debug!(connection = id, %error, "a connection failed");
            }
            return Ok(());
        }
    }
    // Its sessions end before its capabilities go, so that none of these is given back for itself; one at a time, so that
    // others have their turns.
    ending.one_by_one().await;
    drop((ending, awake, greeting));
    firewall.leave();
    let left = tokio::time::timeout(FAREWELL, async {
        tokio::select! {
            biased;
            ended = &mut system => Some(ended),
            () = firewall.empty() => None,
        }
    });
    if let Ok(Some(ended)) = left.await {
        if let Err(error) = ended {
            tracing::debug!(connection = id, %error, "a connection failed");
        }
        return Ok(());
    }
    // Calls in flight and the tables that hold them keep each other alive until the disconnector has run. Whether the
    // client reads why it is sent away in that time is its own affair.
    drop(tokio::time::timeout(FAREWELL, futures::future::join(system, disconnector)).await);
    Ok(())
}

/// Ready when a client has said no `hello` for so long. It takes a place that others may want.
async fn silent(connection: &Connection, patience: Duration) {
    if tokio::time::timeout(patience, connection.hello.notified()).await.is_ok() {
        std::future::pending().await
    }
}

/// Tells a client why it is not served, in the words of `rpc.capnp`. It was told nothing yet, so this never waits.
pub(crate) fn refuse(socket: &OwnedFd, why: &Error) {
    let mut message = capnp::message::Builder::new_default();
    let mut exception = message.init_root::<rpc_capnp::message::Builder<'_>>().init_abort();
    exception.set_reason(why.to_string());
    exception.set_type(rpc_capnp::exception::Type::Overloaded);
    let words = capnp::serialize::write_message_to_words(&message);
    // Whether the client reads it is its own affair.
    rustix::net::send(socket, &words, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).unwrap_or_default();
}

/// The bootstrap capability of a connection.
struct Bulkhead {
    connection: Rc<Connection>,
}

impl Bulkhead {
    fn hello(&self, version: u32, client: Result<&str, capnp::Error>) -> Result<(), Error> {
        let client = client.unwrap_or_default();
        if client.len() > limits::NAME_BYTES_MAX {
            let message = format!("a name has at most {} bytes", limits::NAME_BYTES_MAX);
            return Err(Error::new(ErrorCode::InvalidArgument, message));
        }
        if version != limits::PROTOCOL_VERSION {
            let message = format!(
                "the client speaks version {version} of the protocol and this kernel version {}",
                limits::PROTOCOL_VERSION
            );
            return Err(Error::new(ErrorCode::Version, message)
                .remedy("use the client library that came with this kernel"));
        }
        self.connection.greeted.set(true);
        self.connection.hello.notify_one();
        if let Some(unsaid) = self.connection.party.line() {
            tracing::info!(target: "bulkhead::audit", connection = self.connection.id, client, unsaid, "hello");
        }
        Ok(())
    }

    async fn open(
        connection: Rc<Connection>,
        device: u32,
        name: Result<String, Error>,
        terms: Result<Terms, Error>,
    ) -> Result<Opened, Error> {
        connection.greeted()?;
        let device = connection.kernel.device(device)?;
        let terms = terms?.no_more_urgent_than(connection.kernel.limits.priority_ceiling);
        open(connection, device, name?, terms, None).await
    }

    fn restore(&self, token: SturdyToken) -> Result<(Reference, Facet), Error> {
        self.connection.greeted()?;
        let unknown = || {
            Error::new(ErrorCode::NotFound, "the token stands for nothing (any more)")
                .remedy("ask whoever made it for another")
        };
        let devices = &self.connection.kernel.devices;
        devices.iter().find_map(|device| Reference::restore(device, token)).unwrap_or_else(|| Err(unknown()))
    }
}

impl bulkhead::Server for Bulkhead {
    async fn hello(
        self: Rc<Self>,
        params: bulkhead::HelloParams,
        mut results: bulkhead::HelloResults,
    ) -> Result<(), capnp::Error> {
        let params = params.get()?;
        let client = name(params.get_client());
        let greeted = client.and_then(|client| Bulkhead::hello(&self, params.get_version(), Ok(&client)));
        let result = results.get().init_result();
        match greeted {
            Ok(()) => {
                let mut welcome = result.init_ok();
                welcome.set_version(limits::PROTOCOL_VERSION);
                welcome.set_kernel(concat!("bulkhead ", env!("CARGO_PKG_VERSION")));
                welcome.set_descriptor_socket(&self.connection.kernel.descriptor_socket);
            }
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn ping(
        self: Rc<Self>,
        params: bulkhead::PingParams,
        mut results: bulkhead::PingResults,
    ) -> Result<(), capnp::Error> {
        let value = params.get()?.get_value();
        #[cfg(test)]
        assert_ne!(value, tests::PANICS, "a test asks for a panic");
        results.get().set_value(value);
        Ok(())
    }

    async fn list_devices(
        self: Rc<Self>,
        params: bulkhead::ListDevicesParams,
        mut results: bulkhead::ListDevicesResults,
    ) -> Result<(), capnp::Error> {
        drop(params);
        let listed = match self.connection.greeted() {
            Ok(()) => self.connection.kernel.list_devices().await,
            Err(error) => Err(error),
        };
        let result = results.get().init_result();
        match listed {
            Ok(devices) => {
                let mut list = result.init_ok().init_devices(length(devices.len()));
                for (at, (index, info)) in (0u32..).zip(&devices) {
                    info.write(*index, list.reborrow().get(at));
                }
            }
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn open_session(
        self: Rc<Self>,
        params: bulkhead::OpenSessionParams,
        mut results: bulkhead::OpenSessionResults,
    ) -> Result<(), capnp::Error> {
        let (device, name, terms) = {
            let params = params.get()?;
            (params.get_device(), name(params.get_name()), Terms::read(params.get_terms()?))
        };
        drop(params);
        let limits = self.connection.kernel.limits;
        let open = Bulkhead::open(Rc::clone(&self.connection), device, name, terms);
        let opened = detached(limits.request() + limits.answer(), open).await;
        let result = results.get().init_result();
        match opened {
            Ok(opened) => {
                let mut written = result.init_ok();
                write_opened!(opened, written);
                let server = SessionServer::new(opened.session, opened.connection);
                written.set_session(capnp_rpc::new_client(server));
            }
            Err(error) => {
                self.connection.note_refusal(&error, "session refused");
                error.write(result.init_error());
            }
        }
        Ok(())
    }

    async fn status(
        self: Rc<Self>,
        _: bulkhead::StatusParams,
        mut results: bulkhead::StatusResults,
    ) -> Result<(), capnp::Error> {
        let greeted = self.connection.greeted();
        if greeted.is_ok() {
            self.connection.kernel.ask_busy().await;
        }
        let result = results.get().init_result();
        match greeted {
            Ok(()) => self.connection.kernel.status(result.init_ok()),
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn restore(
        self: Rc<Self>,
        params: bulkhead::RestoreParams,
        mut results: bulkhead::RestoreResults,
    ) -> Result<(), capnp::Error> {
        let restored = Bulkhead::restore(&self, SturdyToken::read(params.get()?.get_token()?));
        let result = results.get().init_result();
        match restored {
            Ok((held, facet)) => write_any(held, facet, &self.connection, result.init_ok()),
            Err(error) => {
                self.connection.note_refusal(&error, "not restored");
                error.write(result.init_error());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
