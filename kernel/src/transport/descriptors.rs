//! The second socket, over which file descriptors travel.
//!
//! # The protocol
//! `descriptors.sock` is a `SOCK_SEQPACKET` unix socket. A client connects and sends packets of exactly 16 bytes, a
//! token as the RPC face answered it: `low`, then `high`, both little-endian. Each is answered by one packet of one
//! byte: 0 with the descriptors (`SCM_RIGHTS`), in the order the schema says; 1 for a token that is not good; 2 where
//! the system passes no more descriptors now. Clients pass none: see [`crate::transport::door`].
//!
//! A token is good once, for a while ([`limits::TOKEN_SECONDS`]), for the process that it was given to (by the
//! uid and pid of its socket). Packets of any other length, or silence for [`limits::DESCRIPTOR_SECONDS`], end the
//! connection.

use std::{
    cell::RefCell,
    collections::{HashMap, VecDeque},
    io,
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
    time::Duration,
};

use bulkhead_schema::{Error, ErrorCode, bulkhead_capnp, limits};
use tokio::time::Instant;

use crate::{
    ledger::Charge,
    principals::{Counted, Lines, Party, Principals},
    transport::{
        door::{Arrival, Door, Peer},
        packets::{Packets, is_shortage},
    },
};

/// The descriptors come with it.
const GIVEN: u8 = 0;
/// The token is not good.
const REFUSED: u8 = 1;
/// The token was good; the system passes no more descriptors now.
const NOT_NOW: u8 = 2;

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

/// Descriptors on their way to a client. They are gone with their session.
pub(crate) type OnTheWay = Rc<Descriptors>;

/// Descriptors of which others may be copies.
pub(crate) type Descriptors = RefCell<Vec<Rc<OwnedFd>>>;

/// What a token is good for.
#[derive(Default)]
pub(crate) struct Parcel {
    descriptors: OnTheWay,
    /// What they are charged until they were handed over, where they are not open in any case.
    _charge: Option<Charge>,
}

impl Parcel {
    pub(crate) fn new(descriptors: OnTheWay, charge: Option<Charge>) -> Self {
        Self { descriptors, _charge: charge }
    }
}

struct Entry {
    connection: u64,
    peer: Peer,
    expires: Instant,
    parcel: Parcel,
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
    pub(crate) fn give(&self, connection: u64, peer: Peer, parcel: Parcel) -> Result<Token, Error> {
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
        entries.insert(token, Entry { connection, peer, expires, parcel });
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
    fn present(&self, token: Token, peer: Peer) -> Result<Parcel, &'static str> {
        self.expire();
        match self.entries.borrow().get(&token) {
            None => return Err("no such token"),
            Some(entry) if entry.peer != peer => return Err("the token is another process's"),
            Some(_) => {}
        }
        self.entries.borrow_mut().remove(&token).map(|entry| entry.parcel).ok_or("no such token")
    }
}

/// Serves clients of this user. Never ends.
pub(crate) async fn serve(
    door: Door,
    tokens: Rc<Tokens>,
    principals: Rc<Principals>,
    own_uid: u32,
    second: Duration,
) {
    let failures = Lines::new();
    loop {
        let Arrival { peer, socket, relayed, .. } = match door.accept().await {
            Ok(arrival) => arrival,
            Err(error) => {
                if let Some(unsaid) = failures.take() {
                    tracing::warn!(%error, unsaid, "a connection to the descriptor socket failed");
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        let party = principals.of(peer);
        let place = match party.take(Counted::DescriptorConnections, 1) {
            Ok(place) if peer.may_connect(own_uid) => place,
            refused => {
                if let Some(unsaid) = party.line() {
                    let error = refused.err();
                    tracing::warn!(
                        target: "bulkhead::audit", ?peer, unsaid, ?error, "descriptor connection refused"
                    );
                }
                continue;
            }
        };
        let tokens = Rc::clone(&tokens);
        tokio::task::spawn_local(async move {
            if let Err(error) = converse(socket, peer, &party, &tokens, second).await {
                tracing::debug!(%error, "a descriptor connection ended");
            }
            // Its place stays taken for as long as its relay does.
            if let Some(relayed) = relayed {
                relayed.ended().await;
            }
            drop(place);
        });
    }
}

async fn converse(
    socket: OwnedFd,
    peer: Peer,
    party: &Party,
    tokens: &Tokens,
    second: Duration,
) -> io::Result<()> {
    let packets = Packets::new(socket)?;
    let patience = second * u32::try_from(limits::DESCRIPTOR_SECONDS).unwrap_or(u32::MAX);
    let mut buffer = [0; Token::BYTES];
    loop {
        match tokio::time::timeout(patience, packets.receive_plain(&mut buffer)).await?? {
            0 => return Ok(()),
            Token::BYTES => {}
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "a packet that is no token")),
        }
        let (mut answer, parcel) = match tokens.present(Token(buffer), peer) {
            Ok(parcel) => ([GIVEN], parcel),
            Err(reason) => {
                if let Some(unsaid) = party.line() {
                    tracing::warn!(target: "bulkhead::audit", ?peer, unsaid, reason, "token refused");
                }
                ([REFUSED], Parcel::default())
            }
        };
        let descriptors = parcel.descriptors.take();
        if descriptors.is_empty() && answer == [GIVEN] {
            // Its session has ended.
            answer = [REFUSED];
        }
        let descriptors: Vec<_> = descriptors.iter().map(|one| one.as_fd()).collect();
        match tokio::time::timeout(patience, packets.send(&answer, &descriptors)).await? {
            Err(error) if is_shortage(&error) => {
                if let Some(unsaid) = party.line() {
                    tracing::warn!(?peer, %error, unsaid, "descriptors cannot be handed over");
                }
                tokio::time::timeout(patience, packets.send(&[NOT_NOW], &[])).await??;
            }
            sent => sent?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: Peer = Peer { uid: 1, pid: Some(2) };

    #[test]
    fn a_token_is_good_once() {
        let tokens = Tokens::new(Duration::from_secs(1));
        let token = tokens.give(0, PEER, Parcel::default()).unwrap();
        assert!(tokens.present(token, PEER).is_ok());
        assert!(tokens.present(token, PEER).is_err());
    }

    #[test]
    fn a_token_is_good_for_its_own_process_only() {
        let tokens = Tokens::new(Duration::from_secs(1));
        let token = tokens.give(0, PEER, Parcel::default()).unwrap();
        let other = Peer { uid: 1, pid: Some(3) };
        assert!(tokens.present(token, other).is_err());
        assert!(tokens.present(token, PEER).is_ok());
    }

    #[test]
    fn a_token_expires() {
        let second = Duration::from_millis(1);
        let tokens = Tokens::new(second);
        let token = tokens.give(0, PEER, Parcel::default()).unwrap();
        std::thread::sleep(second * u32::try_from(limits::TOKEN_SECONDS + 1).unwrap());
        assert!(tokens.present(token, PEER).is_err());
        assert!(tokens.entries.borrow().is_empty() && tokens.order.borrow().is_empty());
    }

    #[test]
    fn used_tokens_leave_nothing_behind() {
        let tokens = Tokens::new(Duration::from_secs(1));
        for _ in 0..1_000 {
            let token = tokens.give(0, PEER, Parcel::default()).unwrap();
            tokens.present(token, PEER).unwrap();
        }
        assert!(tokens.order.borrow().len() <= limits::TOKENS_MAX + 2);
    }

    #[test]
    fn a_connection_has_so_many_tokens_and_no_more() {
        let tokens = Tokens::new(Duration::from_secs(1));
        for _ in 0..limits::TOKENS_MAX {
            tokens.give(0, PEER, Parcel::default()).unwrap();
        }
        let error = tokens.give(0, PEER, Parcel::default()).err().unwrap();
        assert_eq!(error.code, ErrorCode::LimitReached);
        assert!(tokens.give(1, PEER, Parcel::default()).is_ok());
        tokens.forget(0);
        assert!(tokens.give(0, PEER, Parcel::default()).is_ok());
    }
}
