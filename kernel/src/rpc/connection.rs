//! One client, as all that it is served by knows it.

mod servers;

use std::{
    cell::{Cell, RefCell},
    os::fd::OwnedFd,
    rc::{Rc, Weak},
};

use bulkhead_schema::{Error, ErrorCode};
use tokio::{io::unix::AsyncFd, sync::Notify};
use tokio_util::sync::CancellationToken;

use crate::{
    kernel::Kernel,
    principals::Party,
    session::Session,
    transport::{
        descriptors::{Parcel, Token},
        door::Peer,
    },
};

pub(crate) use servers::Servers;

/// One client.
pub(crate) struct Connection {
    pub(crate) kernel: Rc<Kernel>,
    pub(super) id: u64,
    pub(super) peer: Peer,
    /// The process at its other end, where it can be seen from here.
    pub(crate) process: Option<Rc<AsyncFd<OwnedFd>>>,
    /// What it counts as.
    pub(crate) party: Rc<Party>,
    pub(super) greeted: Cell<bool>,
    /// Told of the first `hello`.
    pub(super) hello: Notify,
    pub(super) ended: Cell<bool>,
    /// The same, for whoever waits.
    pub(super) left: CancellationToken,
    pub(super) sessions: RefCell<Vec<Weak<Session>>>,
    pub(super) opening: Cell<usize>,
    /// The memory and the gates that this client was given capabilities for.
    pub(crate) servers: Servers,
}

impl Connection {
    /// The number of the process at its other end.
    pub(crate) fn pid(&self) -> Option<i32> {
        self.peer.pid
    }

    /// Gives out a token on the descriptor socket.
    pub(crate) fn give(&self, parcel: Parcel) -> Result<Token, Error> {
        if self.ended.get() {
            return Err(Error::new(ErrorCode::SessionLost, "the connection has ended"));
        }
        self.kernel.tokens.give(self.id, self.peer, parcel)
    }

    pub(crate) fn greeted(&self) -> Result<(), Error> {
        if self.greeted.get() { Ok(()) } else { Err(Error::new(ErrorCode::Protocol, "`hello` comes first")) }
    }

    /// Writes down what was refused, as often as its principal may cause a line.
    pub(crate) fn note_refusal(&self, error: &Error, what: &'static str) {
        if let Some(unsaid) = self.party.line() {
            tracing::info!(target: "bulkhead::audit", connection = self.id, unsaid, %error, "{what}");
        }
    }

    /// How many sessions it has or is opening.
    pub(super) fn sessions(&self) -> usize {
        let mut sessions = self.sessions.borrow_mut();
        sessions.retain(|session| session.upgrade().is_some_and(|session| session.live().is_ok()));
        sessions.len() + self.opening.get()
    }
}

/// Waits for the end of the client's process, where that can be seen from here.
pub(crate) async fn gone(process: Option<&AsyncFd<OwnedFd>>) {
    if let Some(process) = process {
        match process.readable().await {
            Ok(_) => return,
            Err(error) => tracing::warn!(%error, "a client's process cannot be watched any more"),
        }
    }
    std::future::pending().await
}
