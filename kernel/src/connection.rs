//! One client's connection and the bootstrap interface.

use std::{
    cell::{Cell, RefCell},
    io,
    rc::{Rc, Weak},
    time::Duration,
};

use bulkhead_schema::{Error, ErrorCode, bulkhead_capnp::bulkhead, limits};
use capnp_rpc::RpcSystem;
use futures::io::{BufReader, BufWriter};
use rustix::process::{Pid, PidfdFlags};
use tokio::{
    io::{Interest, unix::AsyncFd},
    net::UnixStream,
};
use tokio_util::compat::{TokioAsyncReadCompatExt, TokioAsyncWriteCompatExt};

use crate::{
    awake::stay_awake,
    descriptors::{Peer, Purpose, Token},
    executor::length,
    firewall::{self, Firewall},
    kernel::Kernel,
    session::{Session, SessionServer},
    task::detached,
    watched::watched,
};

/// How long a client that broke the protocol may take to read why it is sent away.
const FAREWELL: Duration = Duration::from_millis(500);

/// One client.
pub(crate) struct Connection {
    pub(crate) kernel: Rc<Kernel>,
    id: u64,
    peer: Peer,
    greeted: Cell<bool>,
    ended: Cell<bool>,
    sessions: RefCell<Vec<Weak<Session>>>,
    opening: Cell<usize>,
}

impl Connection {
    /// Gives out a token on the descriptor socket.
    pub(crate) fn give(&self, purpose: Purpose) -> Result<Token, Error> {
        if self.ended.get() {
            return Err(Error::new(ErrorCode::SessionLost, "the connection has ended"));
        }
        self.kernel.tokens.give(self.id, self.peer, purpose)
    }

    fn greeted(&self) -> Result<(), Error> {
        if self.greeted.get() { Ok(()) } else { Err(Error::new(ErrorCode::Protocol, "`hello` comes first")) }
    }

    /// How many sessions it has or is opening.
    fn sessions(&self) -> usize {
        let mut sessions = self.sessions.borrow_mut();
        sessions.retain(|session| session.upgrade().is_some_and(|session| session.live().is_ok()));
        sessions.len() + self.opening.get()
    }
}

/// Ends what a connection has when it ends, however that comes about.
struct Ending(Rc<Connection>);

impl Drop for Ending {
    fn drop(&mut self) {
        let connection = &self.0;
        connection.ended.set(true);
        connection.kernel.tokens.forget(connection.id);
        let why = Error::new(ErrorCode::SessionLost, "the client's connection has ended");
        for session in connection.sessions.take().iter().filter_map(Weak::upgrade) {
            session.end(&why);
        }
        tracing::info!(target: "bulkhead::audit", connection = connection.id, "connection ended");
    }
}

/// Serves one client until it, or its process, is gone.
pub(crate) async fn serve(kernel: Rc<Kernel>, stream: UnixStream, peer: Peer) -> io::Result<()> {
    let id = kernel.next_connection.get();
    kernel.next_connection.set(id + 1);
    let connection = Rc::new(Connection {
        kernel,
        id,
        peer,
        greeted: Cell::new(false),
        ended: Cell::new(false),
        sessions: RefCell::default(),
        opening: Cell::new(0),
    });
    let ending = Ending(Rc::clone(&connection));
    tracing::info!(target: "bulkhead::audit", connection = id, ?peer, "connection");
    let process = watch(peer)?;
    let firewall = Firewall::new();
    let (reader, writer) = stream.into_split();
    let network =
        firewall::network(&firewall, BufReader::new(reader.compat()), BufWriter::new(writer.compat_write()));
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
        () = gone(process.as_ref()) => {}
        () = firewall.tripped() => {}
        ended = &mut system => {
            if let Err(error) = ended {
                tracing::debug!(connection = id, %error, "a connection failed");
            }
            return Ok(());
        }
    }
    // Its sessions end before its capabilities go, so that none of these is given back for itself.
    drop((ending, awake));
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

/// Watches the client's process, where that can be seen from here.
fn watch(peer: Peer) -> io::Result<Option<AsyncFd<std::os::fd::OwnedFd>>> {
    let Some(pid) = peer.pid.and_then(Pid::from_raw) else {
        tracing::warn!(?peer, "a client's process cannot be watched from here");
        return Ok(None);
    };
    let process = rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK)?;
    Ok(Some(watched(process, Interest::READABLE)?))
}

async fn gone(process: Option<&AsyncFd<std::os::fd::OwnedFd>>) {
    if let Some(process) = process {
        match process.readable().await {
            Ok(_) => return,
            Err(error) => tracing::warn!(%error, "a client's process cannot be watched any more"),
        }
    }
    std::future::pending().await
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
        tracing::info!(target: "bulkhead::audit", connection = self.connection.id, client, "hello");
        Ok(())
    }

    async fn open(
        connection: Rc<Connection>,
        device: u32,
        name: Result<String, Error>,
    ) -> Result<(SessionServer, Token), Error> {
        connection.greeted()?;
        let name = name?;
        if connection.sessions() >= limits::SESSIONS_PER_CONNECTION_MAX {
            let message =
                format!("a connection has at most {} sessions", limits::SESSIONS_PER_CONNECTION_MAX);
            return Err(Error::new(ErrorCode::LimitReached, message).remedy("close a session"));
        }
        let kernel = Rc::clone(&connection.kernel);
        let device = kernel.device(device)?;
        let id = kernel.next_session.get();
        kernel.next_session.set(id.checked_add(1).ok_or_else(|| {
            Error::new(ErrorCode::LimitReached, "this kernel has opened all sessions it can")
        })?);
        let pid = connection.peer.pid.and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
        let opening = Opening::new(&connection);
        let opened = Session::open(device, id, name, pid, kernel.limits).await?;
        drop(opening);
        let session = &opened.session.0;
        connection.sessions.borrow_mut().push(Rc::downgrade(session));
        kernel.sessions.borrow_mut().insert(id, Rc::downgrade(session));
        // Where the connection has ended meanwhile, this refuses, and dropping the session ends it.
        let token = connection.give(Purpose::Fetch(vec![opened.ring, opened.completions]))?;
        Ok((SessionServer::new(opened.session, connection), token))
    }
}

/// One session that is being opened.
struct Opening(Rc<Connection>);

impl Opening {
    fn new(connection: &Rc<Connection>) -> Self {
        connection.opening.set(connection.opening.get() + 1);
        Self(Rc::clone(connection))
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.opening.set(self.0.opening.get().saturating_sub(1));
    }
}

fn name(text: capnp::Result<capnp::text::Reader<'_>>) -> Result<String, Error> {
    let invalid = |message: String| Error::new(ErrorCode::InvalidArgument, message);
    let text = text.map_err(|error| invalid(error.to_string()))?;
    let text = text.to_str().map_err(|_| invalid("a name is UTF-8".into()))?;
    if text.len() > limits::NAME_BYTES_MAX {
        return Err(invalid(format!("a name has at most {} bytes", limits::NAME_BYTES_MAX)));
    }
    Ok(text.to_owned())
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
        let (device, name) = {
            let params = params.get()?;
            (params.get_device(), name(params.get_name()))
        };
        drop(params);
        let limits = self.connection.kernel.limits;
        let open = Bulkhead::open(Rc::clone(&self.connection), device, name);
        let opened = detached(limits.request() + limits.answer(), open).await;
        let result = results.get().init_result();
        match opened {
            Ok((server, token)) => {
                let mut opened = result.init_ok();
                let (base, bytes) = server.session().addresses();
                opened.set_id(server.session().id);
                opened.set_window_base(base);
                opened.set_window_bytes(bytes);
                token.write(opened.reborrow().init_ring());
                opened.set_session(capnp_rpc::new_client(server));
            }
            Err(error) => {
                tracing::info!(target: "bulkhead::audit", connection = self.connection.id, %error, "session refused");
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
        let result = results.get().init_result();
        match self.connection.greeted() {
            Ok(()) => self.connection.kernel.status(result.init_ok()),
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
