//! Clients below the SDK: raw rings, raw descriptor packets, raw bytes.

use std::{
    io::{IoSlice, IoSliceMut, Write as _},
    mem::MaybeUninit,
    net::{TcpListener, TcpStream},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::Duration,
};

use bulkhead_client::{Connection, Handle};
use bulkhead_ring::{
    CompletionReader, Ended,
    layout::{HEADER_BYTES, RECORD_WORDS, RECORDS, RING_BYTES},
    memory::{Completion, Shared},
};
use bulkhead_schema::{
    Error,
    bulkhead_capnp::{gpu_buffer, gpu_copy_session, result},
};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use tokio::sync::oneshot;

use crate::{kernel::Kernel, status::local};

/// A repeatable source of garbage (xorshift64).
pub struct Garbage(u64);

impl Garbage {
    /// From a seed, which is printed: a failing run can be repeated.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        println!("garbage from seed {seed:#x}");
        Self(seed | 1)
    }

    /// A word of it.
    pub fn word(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below a bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        (self.word() >> 8) % bound
    }

    /// Bytes of it.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| (self.word() >> 24).to_le_bytes()[0]).collect()
    }
}

/// A session whose ring is plain memory to scribble on.
pub struct RawSession {
    ring: Shared,
    page: CompletionReader,
    /// A buffer of its own.
    pub buffer: Handle,
    /// Its address.
    pub address: u64,
    /// Ends the session when dropped.
    _hold: oneshot::Sender<()>,
}

/// Size of a raw session's buffer.
pub const BUFFER_BYTES: u64 = 2 << 20;

impl RawSession {
    /// Opens one, with a buffer.
    ///
    /// # Panics
    /// Where the kernel refuses.
    #[must_use]
    pub fn open(kernel: &Kernel, name: &str) -> Self {
        let (socket, name) = (kernel.socket(), name.to_owned());
        let (hold, held) = oneshot::channel::<()>();
        let (sender, receiver) = mpsc::sync_channel(1);
        thread::spawn(move || {
            local(async move {
                let opened = opened(&socket, &name).await.expect("a session opens");
                sender.send(opened.mapped).unwrap_or_default();
                // The sender is dropped, which counts as an error here.
                drop(held.await);
                drop((opened.connection, opened.session, opened.client));
            });
        });
        let (ring, page, buffer, address) = receiver.recv().expect("a session opens");
        Self { ring, page, buffer, address, _hold: hold }
    }

    /// Puts a record's words at an index of the ring.
    pub fn put(&self, index: usize, words: &[u64; RECORD_WORDS]) {
        let at = HEADER_BYTES + index % RECORDS * RECORD_WORDS * 8;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.ring.write(at, &bytes);
    }

    /// Says how many records were ever pushed.
    pub fn set_tail(&self, tail: u64) {
        self.ring.write(0, &tail.to_ne_bytes());
    }

    /// How many records the executor says that it took.
    #[must_use]
    pub fn head(&self) -> u64 {
        let mut word = [0; 8];
        self.ring.read(128, &mut word);
        u64::from_ne_bytes(word)
    }

    /// Writes anywhere in the ring's memory.
    pub fn scribble(&self, offset: usize, bytes: &[u8]) {
        self.ring.write(offset, bytes);
    }

    /// What the executor has said of the session's end, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        self.page.ended()
    }

    /// How many records were refused.
    #[must_use]
    pub fn refusals(&self) -> u64 {
        self.page.refusals()
    }

    /// Position up to which a stream's work has passed.
    #[must_use]
    pub fn mark(&self, stream: u32) -> u64 {
        self.page.mark(stream)
    }
}

struct OpenedSession {
    connection: Connection,
    session: bulkhead_schema::bulkhead_capnp::gpu_session::Client,
    client: gpu_buffer::Client,
    mapped: (Shared, CompletionReader, Handle, u64),
}

async fn opened(socket: &Path, name: &str) -> capnp::Result<OpenedSession> {
    let failed = |error: Error| capnp::Error::failed(error.to_string());
    let system = |error: std::io::Error| capnp::Error::failed(error.to_string());
    let connection = Connection::open(socket, name).await.map_err(failed)?;
    let mut open = connection.kernel.open_session_request();
    open.get().set_name(name);
    let response = open.send().promise.await?;
    let opened = answer(response.get()?.get_result()?)?.map_err(failed)?;
    let session = opened.get_session()?;
    let token = opened.get_ring()?;
    let token = (u128::from(token.get_high()) << 64 | u128::from(token.get_low())).to_le_bytes();
    let given = exchange(&descriptor_socket(&connection.descriptor_socket), &token, None);
    let descriptors = given.map(|(_, descriptors)| descriptors).unwrap_or_default();
    let [ring, page] = descriptors.as_slice() else {
        return Err(capnp::Error::failed("no ring was handed over".into()));
    };
    let ring = Shared::map(ring.as_fd(), RING_BYTES).map_err(system)?;
    let page = CompletionReader::new(Completion::map(page.as_fd()).map_err(system)?);
    let copying = gpu_copy_session::Client { client: session.client.clone() };
    let mut allocate = copying.allocate_request();
    allocate.get().set_bytes(BUFFER_BYTES);
    let response = allocate.send().promise.await?;
    let created = answer(response.get()?.get_result()?)?.map_err(failed)?;
    let handle = Handle::read(created.get_handle()?);
    let (address, client) = (created.get_address(), created.get_buffer()?);
    Ok(OpenedSession { connection, session, client, mapped: (ring, page, handle, address) })
}

/// The result in a union of result and error.
///
/// # Errors
/// Where the message is broken.
pub fn answer<'a, T: capnp::traits::Owned>(
    answer: result::Reader<'a, T>,
) -> capnp::Result<Result<T::Reader<'a>, Error>> {
    Ok(match answer.which()? {
        result::Ok(value) => Ok(value?),
        result::Error(error) => Err(Error::read(error?)),
    })
}

/// Connects to a descriptor socket.
///
/// # Panics
/// Where nobody listens.
#[must_use]
pub fn descriptor_socket(path: &PathBuf) -> OwnedFd {
    let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(kind.0, kind.1, kind.2, None).expect("a socket");
    let address = SocketAddrUnix::new(path).expect("a socket's path is short");
    rustix::net::connect(&socket, &address).expect("the kernel listens for descriptors");
    socket
}

/// One exchange on the descriptor socket: the answer, and what came with it. `None` where the kernel hung up.
#[must_use]
pub fn exchange(
    socket: &OwnedFd,
    packet: &[u8],
    descriptor: Option<&OwnedFd>,
) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<_> = descriptor.iter().map(|descriptor| descriptor.as_fd()).collect();
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)), "room for one descriptor");
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(packet)], &mut control, SendFlags::NOSIGNAL).ok()?;
    let mut buffer = [0; 64];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut buffer)];
    let received = rustix::net::recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC).ok()?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    (received.bytes > 0).then(|| (buffer[..received.bytes].to_vec(), descriptors))
}

/// A TCP socket whose last close takes so long, since its peer never reads, and that peer.
///
/// # Panics
/// Where there is no network on this machine.
#[must_use]
pub fn trap(linger: Duration) -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let mut trap = TcpStream::connect(address).expect("a connection");
    let (peer, _) = listener.accept().expect("a peer");
    trap.set_nonblocking(true).expect("a socket can be set");
    while trap.write(&[0; 1 << 16]).is_ok() {}
    trap.set_nonblocking(false).expect("a socket can be set");
    rustix::net::sockopt::set_socket_linger(&trap, Some(linger)).expect("a socket can linger");
    (trap.into(), peer)
}

/// Passes a descriptor along with some bytes, and keeps no copy; whether the system took it.
pub fn pass(socket: impl AsFd, bytes: &[u8], passed: OwnedFd) -> bool {
    let taken = send(socket, bytes, &[passed.as_fd()]);
    // Nobody waits here either.
    thread::spawn(move || drop(passed));
    taken
}

fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> bool {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_PASSED))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)), "room for the descriptors");
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags).is_ok()
}

/// How many descriptors the system passes at once.
const MOST_PASSED: usize = 253;

/// Puts about so many descriptors on their way, as far as the system allows it, where they stay until the sockets are
/// dropped.
///
/// # Panics
/// Where there are no sockets.
#[must_use]
pub fn flood(file: &OwnedFd, count: usize) -> Vec<OwnedFd> {
    let mut sockets = Vec::new();
    let mut left = count;
    let many = [file.as_fd(); MOST_PASSED];
    while left > 0 {
        let pair =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        let (near, far) = pair.expect("a pair of sockets");
        let before = left;
        while left > 0 && send(&near, &[0], &many) {
            left = left.saturating_sub(MOST_PASSED);
        }
        sockets.extend([near, far]);
        if left == before {
            break;
        }
    }
    sockets
}
