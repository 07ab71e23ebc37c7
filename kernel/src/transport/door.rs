//! The sockets that clients connect to, and how a connection comes in without what its client passes along.
//!
//! A client may pass descriptors with any bytes that it sends. Who reads such bytes, or closes a socket in which they
//! wait, closes the descriptors; closing one can take as long as its maker likes. So that never happens on the kernel's
//! one thread:
//! - From Linux 6.16 on the system refuses descriptors to whoever passes them, on the listening socket's word and so
//!   from the first byte on. Such a connection is served as it is.
//! - Before, each connection is accepted by a [relay](crate::transport::relay), a thread of its own, which is the only one that
//!   ever reads or closes the client's socket; the kernel serves the other end of the relay.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::{
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType},
    process::{Pid, PidfdFlags},
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::oneshot,
};

use crate::transport::{async_fd::watched, relay::relay, sys};

/// Whether what clients say passes through a thread of its own, which drops what they pass along.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Relay {
    /// Where the system cannot refuse passed descriptors, which is before Linux 6.16.
    #[default]
    WhereNeeded,
    /// Everywhere.
    Always,
}

/// Connections that wait to be accepted.
const BACKLOG: i32 = 64;
/// How long a door with too many relays waits before it looks again.
const CROWDED: Duration = Duration::from_millis(10);

/// What this system's sockets can do for the kernel.
#[derive(Debug)]
pub struct SocketOptions {
    /// They refuse descriptors that are passed to them (`SO_PASSRIGHTS`). Without, connections are relayed.
    pub refuses_descriptors: io::Result<()>,
    /// They tell the process at the other end (`SO_PEERPIDFD`). Without, it is known by its number only.
    pub names_processes: io::Result<()>,
}

/// Asks a pair of sockets that is made for it.
#[must_use]
pub fn socket_options() -> SocketOptions {
    let pair =
        || rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let ask = |question: fn(&OwnedFd) -> io::Result<()>| {
        pair().map_err(io::Error::from).and_then(|(near, far)| {
            let answer = question(&near);
            drop(far);
            answer
        })
    };
    SocketOptions {
        refuses_descriptors: ask(|socket| sys::refuse_descriptors(socket)),
        names_processes: ask(|socket| sys::peer_process(socket).map(drop)),
    }
}

/// A process at the other end of a socket, as the system vouches for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) uid: u32,
    /// `None` where the process is not in this process's pid namespace.
    pub(crate) pid: Option<i32>,
}

impl Peer {
    /// Whether it may talk to the kernel: the same user, or root.
    pub(crate) fn may_connect(self, own_uid: u32) -> bool {
        self.uid == own_uid || self.uid == 0
    }
}

/// A connection that came in.
pub(crate) struct Arrival {
    pub(crate) peer: Peer,
    /// Becomes readable when the process ends that connected; `None` where that cannot be seen from here.
    pub(crate) process: Option<OwnedFd>,
    /// Non-blocking. No descriptor of the client's ever waits in it.
    pub(crate) socket: OwnedFd,
    /// Where its relay is, which may outlive the connection.
    pub(crate) relayed: Option<Relayed>,
}

/// A connection's relay.
pub(crate) struct Relayed(oneshot::Receiver<()>);

impl Relayed {
    /// Waits until it has closed the client's socket. The other end must have been dropped.
    pub(crate) async fn ended(self) {
        // It says so by dropping its end.
        self.0.await.unwrap_or_default();
    }
}

/// A socket that clients connect to.
pub(crate) struct Door {
    socket: AsyncFd<OwnedFd>,
    kind: SocketType,
    /// Present where connections are relayed. Below the socket: it is the last to close.
    shared: Option<Shared>,
    relays: Arc<AtomicUsize>,
    relays_max: usize,
}

impl Door {
    /// Listens at a path. At most `relays_max` relays are there at a time, where there have to be any.
    pub(crate) fn bind(path: &Path, kind: SocketType, how: Relay, relays_max: usize) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
        let relayed = match how {
            Relay::Always => true,
            Relay::WhereNeeded => sys::refuse_descriptors(&socket)
                .inspect_err(|error| tracing::info!(%error, "connections are relayed"))
                .is_err(),
        };
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        rustix::net::listen(&socket, BACKLOG)?;
        let shared =
            relayed.then(|| socket.try_clone().map(|same| Shared(Some(Arc::new(same))))).transpose()?;
        let socket = watched(socket, Interest::READABLE)?;
        Ok(Self { socket, kind, shared, relays: Arc::default(), relays_max })
    }

    /// The next connection. One that has come in is lost where this is dropped.
    pub(crate) async fn accept(&self) -> io::Result<Arrival> {
        let Some(shared) = self.shared.as_ref().and_then(|shared| shared.0.as_ref()) else {
            let accept = |socket: &OwnedFd| accepted(socket);
            return self.socket.async_io(Interest::READABLE, accept).await;
        };
        loop {
            let mut ready = self.socket.readable().await?;
            let Some(counted) = Counted::new(&self.relays, self.relays_max) else {
                tokio::time::sleep(CROWDED).await;
                continue;
            };
            let (shared, kind) = (Arc::clone(shared), self.kind);
            let (deliver, delivered) = oneshot::channel();
            // The thread is there before the connection is: nobody else may ever have to close that.
            let run = move || relayed(&shared, kind, deliver, counted);
            thread::Builder::new().name("relay".into()).spawn(run)?;
            match delivered.await {
                Ok(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Ok(arrival) => return arrival,
                Err(_) => return Err(io::Error::other("a relay has failed")),
            }
        }
    }
}

/// A listening socket that relays accept from. Connections that nobody has accepted are closed with it, and what was
/// passed to them: not on the kernel's thread.
struct Shared(Option<Arc<OwnedFd>>);

impl Drop for Shared {
    fn drop(&mut self) {
        let last = self.0.take();
        // Where there are no threads any more the kernel, which ends, does it itself.
        if let Err(error) = thread::Builder::new().spawn(move || drop(last)) {
            tracing::warn!(%error, "a listening socket may take its time to close");
        }
    }
}

/// Accepts a connection on the calling thread.
fn accepted(listener: &OwnedFd) -> io::Result<Arrival> {
    let socket = rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    let (peer, process) = known(&socket)?;
    Ok(Arrival { peer, process, socket, relayed: None })
}

/// Accepts a connection, hands the kernel the other end of a relay, and relays until it ends.
fn relayed(
    listener: &OwnedFd,
    kind: SocketType,
    deliver: oneshot::Sender<io::Result<Arrival>>,
    counted: Counted,
) {
    let (ended, ending) = oneshot::channel();
    let opened = accepted(listener).and_then(|arrival| {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (near, far) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)?;
        let client = arrival.socket;
        let relayed = Some(Relayed(ending));
        Ok((client, near, Arrival { socket: far, relayed, ..arrival }))
    });
    match opened {
        Ok((client, near, arrival)) => {
            // Nobody takes it where the kernel ends.
            if deliver.send(Ok(arrival)).is_ok()
                && let Err(error) = relay(client.as_fd(), near.as_fd())
            {
                tracing::debug!(%error, "a relay ended");
            }
            drop(near);
            // What its client has passed and nobody has read is closed here.
            drop(client);
        }
        Err(error) => drop(deliver.send(Err(error))),
    }
    drop((counted, ended));
}

/// Who is at the other end, and its process.
fn known(socket: &OwnedFd) -> io::Result<(Peer, Option<OwnedFd>)> {
    let credentials = sys::peer_credentials(socket)?;
    // The system says 0 for a process that cannot be named here.
    let peer = Peer { uid: credentials.uid, pid: Some(credentials.pid).filter(|pid| *pid > 0) };
    let process = match sys::peer_process(socket) {
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
            // Before Linux 6.5 there is only the number, which may be another process's by now.
            let open = |pid| Ok(rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK)?);
            peer.pid.and_then(Pid::from_raw).map(open).transpose()
        }
        found => found.map(Some),
    };
    // A process that has ended already left its socket to somebody else, or to nobody.
    let process = process.inspect_err(|error| tracing::debug!(?peer, %error, "a client is not watched"));
    Ok((peer, process.unwrap_or_default()))
}

/// One of the relays that are counted.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let more = |count: usize| (count < most).then_some(count + 1);
        count.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(Self(Arc::clone(count)))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
