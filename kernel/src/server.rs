//! The kernel's start, its sockets and its end.

use std::{
    cell::Cell,
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    future::Future,
    io,
    os::fd::RawFd,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    pin::Pin,
    rc::Rc,
};

use bulkhead_schema::{ErrorCode, limits};
use rustix::{
    fs::FlockOperation,
    net::SocketType,
    process::{Resource, Rlimit},
};
use tokio::task::{JoinSet, LocalSet};

use crate::{
    Config, Error,
    compile::process::Compiler,
    kernel::Kernel,
    modules::protected::Known,
    principals::{Counted, Lines, Principals},
    rpc::{client, operator},
    session::device::Device,
    transport::{
        descriptors::{self, Tokens},
        door::Door,
    },
};

/// Name of the clients' socket in the runtime directory.
pub const KERNEL_SOCKET: &str = "kernel.sock";
/// Name of the socket for descriptors in the runtime directory.
pub const DESCRIPTOR_SOCKET: &str = "descriptors.sock";
/// Name of the operator's socket in the runtime directory.
pub const OPERATOR_SOCKET: &str = "operator.sock";
/// Held locked by the kernel that serves in the directory.
const LOCK: &str = "kernel.lock";

/// The directory a kernel serves in, until this is dropped.
struct Place {
    sockets: [PathBuf; 3],
    _lock: File,
}

impl Place {
    /// Makes the directory and claims it.
    fn claim(directory: &Path) -> Result<Self, Error> {
        let failed = |what: &'static str| {
            let path = directory.to_owned();
            move |error: io::Error| Error::RuntimeDirectory { what, path, error }
        };
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed("cannot be made"))?;
        let metadata = fs::symlink_metadata(directory).map_err(failed("cannot be looked at"))?;
        let own_uid = rustix::process::geteuid().as_raw();
        if !metadata.is_dir() || metadata.uid() != own_uid || metadata.mode() & 0o077 != 0 {
            return Err(Error::NotPrivate { path: directory.to_owned(), mode: metadata.mode() & 0o7777 });
        }
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(directory.join(LOCK))
            .map_err(failed("cannot hold a lock file"))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(Error::AlreadyServing { path: directory.to_owned() });
            }
            Err(error) => return Err(failed("cannot be locked")(error.into())),
        }
        let place = Self {
            sockets: [KERNEL_SOCKET, DESCRIPTOR_SOCKET, OPERATOR_SOCKET].map(|name| directory.join(name)),
            _lock: lock,
        };
        // The lock is ours, so whoever made these is gone.
        place.remove_sockets();
        crate::modules::protected::remove_leftovers(directory);
        Ok(place)
    }

    fn remove_sockets(&self) {
        for socket in &self.sockets {
            match fs::remove_file(socket) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => tracing::warn!(path = %socket.display(), %error, "a socket cannot be removed"),
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.remove_sockets();
    }
}

/// Work that a kernel waits for. Boxed, so that the kernel's code is made here once, and not again in each crate that starts
/// one: compilers make a generic function's code, and all that it awaits, where it is called.
pub type Boxed<T> = Pin<Box<dyn Future<Output = T>>>;

/// Serves until `shutdown` is ready. Must run in a [`LocalSet`] of a current-thread runtime.
///
/// # Errors
/// Where the runtime directory cannot be used, where another kernel serves in it, or where the kernel itself fails.
#[must_use]
pub fn serve(config: Config, shutdown: Boxed<()>) -> Boxed<Result<(), Error>> {
    Box::pin(serve_until(config, shutdown))
}

async fn serve_until(mut config: Config, shutdown: Boxed<()>) -> Result<(), Error> {
    if let Err(error) = raise_descriptor_limit() {
        tracing::warn!(%error, "the limit of open files cannot be raised");
    }
    let place = Place::claim(&config.runtime_directory)?;
    let [kernel_path, descriptor_path, operator_path] = &place.sockets;
    let listening = |path: &PathBuf| {
        let path = path.clone();
        move |error: io::Error| Error::Listen { path, error }
    };
    // Those beyond what is admitted are refused by a relay too.
    let relays_max = |connections: usize| connections.saturating_add(limits::RELAYS_REFUSING_MAX);
    let clients = relays_max(config.limits.connections_max);
    let clients = Door::bind(kernel_path, SocketType::STREAM, config.relay, clients);
    let clients = clients.map_err(listening(kernel_path))?;
    let fetching = relays_max(limits::DESCRIPTOR_CONNECTIONS_MAX);
    let fetching = Door::bind(descriptor_path, SocketType::SEQPACKET, config.relay, fetching);
    let fetching = fetching.map_err(listening(descriptor_path))?;
    let operators = relays_max(limits::OPERATORS_MAX);
    let operators = Door::bind(operator_path, SocketType::STREAM, config.relay, operators);
    let operators = operators.map_err(listening(operator_path))?;
    for path in &place.sockets {
        fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(listening(path))?;
    }
    let second = config.limits.second;
    let tokens = Rc::new(Tokens::new(second));
    let modules: Result<Vec<_>, _> =
        config.modules.into_iter().map(|module| Known::new(module, &config.runtime_directory)).collect();
    let modules = modules.map_err(|error| Error::Modules(error.message))?;
    let limits = config.limits;
    let principals = Principals::new(limits.everybody(), limits.principal, limits.process, config.tenants);
    let principals = Rc::new(principals);
    let device = Rc::new(Device::new(
        0,
        config.executor,
        config.executor_environment,
        modules,
        config.limits,
        config.cells,
    ));
    let kernel = Rc::new(Kernel {
        limits: config.limits,
        devices: vec![Rc::clone(&device)],
        tokens: Rc::clone(&tokens),
        compiler: Compiler::new(config.compiler, config.limits.compiles_max, second),
        descriptor_socket: descriptor_path.to_string_lossy().into_owned(),
        next_connection: Cell::new(1),
        next_session: Cell::new(1),
        principals: Rc::clone(&principals),
        directory: config.runtime_directory.clone(),
    });
    let own_uid = rustix::process::geteuid().as_raw();
    // Where one of these stops, the kernel cannot keep its promises: it ends, and says so.
    let mut supervisor = tokio::task::spawn_local(Rc::clone(&device).supervise());
    let mut giving_back = tokio::task::spawn_local(async move {
        futures::future::join(device.registry.give_back_the_rest(), device.registry.tell_who_waits()).await;
    });
    let mut descriptors = tokio::task::spawn_local(descriptors::serve(
        fetching,
        Rc::clone(&tokens),
        principals,
        own_uid,
        second,
    ));
    let expiring = Rc::clone(&tokens);
    let mut expiry = tokio::task::spawn_local(async move {
        loop {
            tokio::time::sleep(second * u32::try_from(limits::TOKEN_SECONDS).unwrap_or(u32::MAX)).await;
            expiring.expire();
        }
    });
    if let Some(ready) = config.ready.take() {
        ready();
    }
    tracing::info!(path = %kernel_path.display(), "serving");
    let result = tokio::select! {
        biased;
        () = shutdown => Ok(()),
        stopped = &mut supervisor => Err(Error::Stopped { part: "executor supervisor", reason: reason(stopped) }),
        stopped = &mut giving_back => Err(Error::Stopped { part: "giving back", reason: reason(stopped) }),
        stopped = &mut descriptors => Err(Error::Stopped { part: "descriptor socket", reason: reason(stopped) }),
        stopped = &mut expiry => Err(Error::Stopped { part: "token expiry", reason: reason(stopped) }),
        () = accept(&clients, &kernel, own_uid) => Ok(()),
        () = operator::accept(&operators, &kernel, own_uid) => Ok(()),
    };
    drop((clients, operators));
    let why = bulkhead_schema::Error::new(ErrorCode::SessionLost, "the kernel has ended");
    let leftovers = kernel.end_sessions(&why).await;
    for task in [&supervisor, &giving_back, &descriptors, &expiry] {
        task.abort();
    }
    match leftovers {
        Some(what) => result.and(Err(Error::Leftovers { what })),
        None => result,
    }
}

fn reason<T>(stopped: Result<T, tokio::task::JoinError>) -> String {
    stopped.err().map_or_else(|| "it returned".to_owned(), |error| error.to_string())
}

/// Accepts clients of this user. Never ends; dropping it ends every connection.
async fn accept(clients: &Door, kernel: &Rc<Kernel>, own_uid: u32) {
    let (mut connections, mut refused, failures) = (JoinSet::new(), JoinSet::new(), Lines::new());
    // Kept from turn to turn: a relay that has accepted somebody is not to be left alone.
    let mut next = std::pin::pin!(clients.accept());
    loop {
        let accepted = tokio::select! {
            accepted = &mut next => accepted,
            Some(_) = refused.join_next() => continue,
            Some(ended) = connections.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "serving a connection failed");
                }
                continue;
            }
        };
        next.set(clients.accept());
        let arrival = match accepted {
            Ok(arrival) => arrival,
            Err(error) => {
                if let Some(unsaid) = failures.take() {
                    tracing::warn!(%error, unsaid, "a connection failed");
                }
                tokio::time::sleep(kernel.limits.second / 100).await;
                continue;
            }
        };
        let peer = arrival.peer;
        let party = kernel.principals.of(peer);
        let place = if peer.may_connect(own_uid) {
            party.take(Counted::Connections, 1)
        } else {
            Err(bulkhead_schema::Error::new(ErrorCode::NotPermitted, "the kernel serves another user"))
        };
        let place = match place {
            Ok(place) => place,
            Err(error) => {
                if let Some(unsaid) = party.line() {
                    tracing::warn!(target: "bulkhead::audit", ?peer, unsaid, %error, "connection refused");
                }
                client::refuse(&arrival.socket, &error);
                // Hung up on at once, it might not come to read why.
                if refused.len() < limits::REFUSED_MAX {
                    refused.spawn_local(async move {
                        tokio::time::sleep(client::FAREWELL).await;
                        drop(arrival);
                    });
                }
                continue;
            }
        };
        let kernel = Rc::clone(kernel);
        // A panic in there ends that connection, as does an error.
        connections.spawn_local(async move {
            if let Err(error) = client::serve(kernel, arrival, party).await {
                tracing::debug!(?peer, %error, "a connection was not served");
            }
            drop(place);
        });
    }
}

/// Descriptors that the system's table has room for from the start; beyond them it grows.
const DESCRIPTORS_AT_FIRST: u64 = 1 << 16;

/// Every session and image needs descriptors: as many as the system allows. Answers how many.
fn raise_descriptor_limit() -> io::Result<Option<u64>> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(limit.maximum)
}

/// Lets this process have as many descriptors as the system allows, and has the system make the table for them. Only before
/// there is a thread: beside threads, whoever opens a descriptor when the table is full waits until all processors have
/// come by (`synchronize_rcu`), for seconds on a busy machine.
///
/// # Errors
/// Those of the system.
pub fn make_room_for_descriptors() -> io::Result<()> {
    let last = raise_descriptor_limit()?.unwrap_or(u64::MAX).min(DESCRIPTORS_AT_FIRST).saturating_sub(1);
    let number = RawFd::try_from(last).map_err(io::Error::other)?;
    drop(rustix::io::fcntl_dupfd_cloexec(std::io::stderr(), number)?);
    Ok(())
}

/// Serves on this thread until `shutdown` is ready, with a runtime of its own.
///
/// # Errors
/// As [`serve`], or where no runtime can be made.
pub fn run(config: Config, shutdown: Boxed<()>) -> Result<(), Error> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Runtime)?;
    LocalSet::new().block_on(&runtime, serve(config, shutdown))
}
