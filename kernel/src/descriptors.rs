//! The second socket, over which file descriptors travel.
//!
//! # The protocol
//! `descriptors.sock` is a `SOCK_SEQPACKET` unix socket. A client connects and sends packets of exactly 16 bytes, a
//! token as the RPC face answered it: `low`, then `high`, both little-endian. Each is answered by one packet of one
//! byte: 0 for yes, 1 for no.
//! - A token to *fetch* comes without a descriptor; the answer `[0]` carries the descriptors (`SCM_RIGHTS`), in the
//!   order the schema says.
//! - A token to *send* comes with exactly one descriptor; `[0]` says that it was taken.
//!
//! A token is good once, for a while ([`limits::TOKEN_SECONDS`]), for the process that it was given to (by the
//! uid and pid of its socket). Packets of any other length, or silence for [`limits::DESCRIPTOR_SECONDS`], end the
//! connection.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque},
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    rc::Rc,
    time::Duration,
};

use bulkhead_schema::{Error, ErrorCode, bulkhead_capnp, limits};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::{
    io::{Interest, unix::AsyncFd},
    net::UnixStream,
    time::Instant,
};

use crate::{packets::Packets, session::Charge, watched::watched};

/// A process at the other end of a socket, as the system vouches for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) uid: u32,
    /// `None` where the process is not in this process's pid namespace.
    pub(crate) pid: Option<i32>,
}

impl Peer {
    /// Who is at the other end of this socket.
    pub(crate) fn of(stream: &UnixStream) -> io::Result<Self> {
        let credentials = stream.peer_cred()?;
        // The system says 0 for a process that cannot be named here.
        Ok(Self { uid: credentials.uid(), pid: credentials.pid().filter(|pid| *pid > 0) })
    }

    /// Whether it may talk to the kernel: the same user, or root.
    pub(crate) fn may_connect(self, own_uid: u32) -> bool {
        self.uid == own_uid || self.uid == 0
    }
}

/// Names descriptors to hand over, once.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Token([u8; Token::BYTES]);

impl Token {
    const BYTES: usize = 16;

    fn random() -> Result<Self, Error> {
        let mut bytes = [0; Self::BYTES];
        getrandom::fill(&mut bytes).map_err(|error| {
            Error::new(ErrorCode::Internal, format!("the system gives no random numbers: {error}"))
        })?;
        Ok(Self(bytes))
    }

    pub(crate) fn read(reader: bulkhead_capnp::token::Reader<'_>) -> Self {
        let mut bytes = [0; Self::BYTES];
        let (low, high) = bytes.split_at_mut(8);
        low.copy_from_slice(&reader.get_low().to_le_bytes());
        high.copy_from_slice(&reader.get_high().to_le_bytes());
        Self(bytes)
    }

    pub(crate) fn write(self, mut builder: bulkhead_capnp::token::Builder<'_>) {
        let number = u128::from_le_bytes(self.0);
        let half = |number: u128| u64::try_from(number & u128::from(u64::MAX)).unwrap_or(0);
        builder.set_low(half(number));
        builder.set_high(half(number >> 64));
    }
}

/// What a token is good for.
pub(crate) enum Purpose {
    /// The client fetches these; what they are charged.
    Fetch(Vec<OwnedFd>, Option<Charge>),
    /// The client sends one; whether it is accepted.
    Send(Box<dyn FnOnce(OwnedFd) -> Result<(), Error>>),
}

struct Entry {
    connection: u64,
    peer: Peer,
    expires: Instant,
    purpose: Purpose,
}

/// Tokens that were given out and not yet used.
pub(crate) struct Tokens {
    lifetime: Duration,
    entries: RefCell<HashMap<Token, Entry>>,
    /// Tokens in the order they expire, which is the order they were given out.
    order: RefCell<VecDeque<Token>>,
}

impl Tokens {
    pub(crate) fn new(second: Duration) -> Self {
        let lifetime = second * u32::try_from(limits::TOKEN_SECONDS).unwrap_or(u32::MAX);
        Self { lifetime, entries: RefCell::default(), order: RefCell::default() }
    }

    /// Gives out a token to this connection.
    pub(crate) fn give(&self, connection: u64, peer: Peer, purpose: Purpose) -> Result<Token, Error> {
        self.expire();
        let mut entries = self.entries.borrow_mut();
        if entries.values().filter(|entry| entry.connection == connection).count() >= limits::TOKENS_MAX {
            let message = format!("{} tokens are waiting to be used", limits::TOKENS_MAX);
            return Err(
                Error::new(ErrorCode::LimitReached, message).remedy("use them, or wait until they expire")
            );
        }
        let token = Token::random()?;
        let expires = Instant::now() + self.lifetime;
        entries.insert(token, Entry { connection, peer, expires, purpose });
        let mut order = self.order.borrow_mut();
        order.push_back(token);
        // Tokens that were used leave their place in the order behind.
        if order.len() > 2 * entries.len() + limits::TOKENS_MAX {
            order.retain(|token| entries.contains_key(token));
        }
        Ok(token)
    }

    /// Drops the tokens whose time is up.
    pub(crate) fn expire(&self) {
        let now = Instant::now();
        let mut expired = Vec::new();
        let mut order = self.order.borrow_mut();
        let mut entries = self.entries.borrow_mut();
        while let Some(token) = order.front() {
            match entries.get(token) {
                Some(entry) if entry.expires > now => break,
                Some(_) | None => expired.extend(entries.remove(token)),
            }
            order.pop_front();
        }
    }

    /// Drops the tokens of a connection that has ended.
    pub(crate) fn forget(&self, connection: u64) {
        self.entries.borrow_mut().retain(|_, entry| entry.connection != connection);
    }

    /// Uses a token up.
    fn present(
        &self,
        token: Token,
        peer: Peer,
        mut sent: Vec<OwnedFd>,
    ) -> Result<(Vec<OwnedFd>, Option<Charge>), &'static str> {
        self.expire();
        match self.entries.borrow().get(&token) {
            None => return Err("no such token"),
            Some(entry) if entry.peer != peer => return Err("the token is another process's"),
            Some(_) => {}
        }
        let entry = self.entries.borrow_mut().remove(&token).ok_or("no such token")?;
        match (entry.purpose, sent.pop()) {
            (Purpose::Fetch(descriptors, charge), None) => Ok((descriptors, charge)),
            (Purpose::Fetch(..), Some(_)) => Err("a descriptor came with a token to fetch"),
            (Purpose::Send(accept), Some(descriptor)) if sent.is_empty() => match accept(descriptor) {
                Ok(()) => Ok((Vec::new(), None)),
                Err(error) => {
                    tracing::info!(%error, "a descriptor was refused");
                    Err("the descriptor is not what was offered")
                }
            },
            (Purpose::Send(_), _) => Err("a token to send comes with one descriptor"),
        }
    }
}

/// The socket that clients connect to.
pub(crate) struct DescriptorSocket {
    socket: AsyncFd<OwnedFd>,
}

impl DescriptorSocket {
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        rustix::net::listen(&socket, 64)?;
        Ok(Self { socket: watched(socket, Interest::READABLE)? })
    }

    /// Serves clients of this user. Never ends.
    pub(crate) async fn serve(self, tokens: Rc<Tokens>, own_uid: u32, second: Duration) {
        let connections = Rc::new(Cell::new(0_usize));
        loop {
            let accepted = self
                .socket
                .async_io(Interest::READABLE, |socket| {
                    Ok(rustix::net::accept_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?)
                })
                .await
                .and_then(admitted);
            let (peer, packets) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection to the descriptor socket failed");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                }
            };
            if connections.get() >= limits::DESCRIPTOR_CONNECTIONS_MAX || !peer.may_connect(own_uid) {
                tracing::warn!(target: "bulkhead::audit", ?peer, "descriptor connection refused");
                continue;
            }
            connections.set(connections.get() + 1);
            let (tokens, open) = (Rc::clone(&tokens), Counted(Rc::clone(&connections)));
            tokio::task::spawn_local(async move {
                if let Err(error) = converse(&packets, peer, &tokens, second).await {
                    tracing::debug!(%error, "a descriptor connection ended");
                }
                drop(open);
            });
        }
    }
}

/// One of the connections that are counted.
struct Counted(Rc<Cell<usize>>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

async fn converse(packets: &Packets, peer: Peer, tokens: &Tokens, second: Duration) -> io::Result<()> {
    let patience = second * u32::try_from(limits::DESCRIPTOR_SECONDS).unwrap_or(u32::MAX);
    let mut buffer = [0; Token::BYTES];
    loop {
        let (length, sent) = tokio::time::timeout(patience, packets.receive(&mut buffer)).await??;
        match length {
            0 => return Ok(()),
            Token::BYTES => {}
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "a packet that is no token")),
        }
        let (answer, (descriptors, charge)) = match tokens.present(Token(buffer), peer, sent) {
            Ok(descriptors) => ([0], descriptors),
            Err(reason) => {
                tracing::warn!(target: "bulkhead::audit", ?peer, reason, "token refused");
                ([1], (Vec::new(), None))
            }
        };
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        tokio::time::timeout(patience, packets.send(&answer, &descriptors)).await??;
        drop(charge);
    }
}

/// Who is at the other end, and the socket as packets. Tokio's stream is the safe way to ask.
fn admitted(socket: OwnedFd) -> io::Result<(Peer, Packets)> {
    let stream = UnixStream::from_std(socket.into())?;
    let peer = Peer::of(&stream)?;
    Ok((peer, Packets::new(stream.into_std()?.into())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: Peer = Peer { uid: 1, pid: Some(2) };

    #[test]
    fn a_token_is_good_once() {
        let tokens = Tokens::new(Duration::from_secs(1));
        let token = tokens.give(0, PEER, Purpose::Fetch(Vec::new(), None)).unwrap();
        assert!(tokens.present(token, PEER, Vec::new()).is_ok());
        assert!(tokens.present(token, PEER, Vec::new()).is_err());
    }

    #[test]
    fn a_token_is_good_for_its_own_process_only() {
        let tokens = Tokens::new(Duration::from_secs(1));
        let token = tokens.give(0, PEER, Purpose::Fetch(Vec::new(), None)).unwrap();
        let other = Peer { uid: 1, pid: Some(3) };
        assert!(tokens.present(token, other, Vec::new()).is_err());
        assert!(tokens.present(token, PEER, Vec::new()).is_ok());
    }

    #[test]
    fn a_token_expires() {
        let second = Duration::from_millis(1);
        let tokens = Tokens::new(second);
        let token = tokens.give(0, PEER, Purpose::Fetch(Vec::new(), None)).unwrap();
        std::thread::sleep(second * u32::try_from(limits::TOKEN_SECONDS + 1).unwrap());
        assert!(tokens.present(token, PEER, Vec::new()).is_err());
        assert!(tokens.entries.borrow().is_empty() && tokens.order.borrow().is_empty());
    }

    #[test]
    fn used_tokens_leave_nothing_behind() {
        let tokens = Tokens::new(Duration::from_secs(1));
        for _ in 0..1_000 {
            let token = tokens.give(0, PEER, Purpose::Fetch(Vec::new(), None)).unwrap();
            tokens.present(token, PEER, Vec::new()).unwrap();
        }
        assert!(tokens.order.borrow().len() <= limits::TOKENS_MAX + 2);
    }

    #[test]
    fn a_connection_has_so_many_tokens_and_no_more() {
        let tokens = Tokens::new(Duration::from_secs(1));
        for _ in 0..limits::TOKENS_MAX {
            tokens.give(0, PEER, Purpose::Fetch(Vec::new(), None)).unwrap();
        }
        let error = tokens.give(0, PEER, Purpose::Fetch(Vec::new(), None)).err().unwrap();
        assert_eq!(error.code, ErrorCode::LimitReached);
        assert!(tokens.give(1, PEER, Purpose::Fetch(Vec::new(), None)).is_ok());
        tokens.forget(0);
        assert!(tokens.give(0, PEER, Purpose::Fetch(Vec::new(), None)).is_ok());
    }
}
