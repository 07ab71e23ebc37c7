//! Sessions that a client opens.

use std::rc::Rc;

use bulkhead_schema::{Error, ErrorCode, Handle, limits};

use crate::{
    executor_proxy::EntryInfo,
    principals::Counted,
    rpc::connection::Connection,
    session::{OpenSession, Opening, Parent, Session, Terms, device::Device},
    transport::descriptors::Token,
};

/// A session that was just opened.
pub(crate) struct Opened {
    pub(crate) session: OpenSession,
    pub(crate) token: Token,
    /// Those of its program, with the handles that it launches them by.
    pub(crate) entries: Vec<(Handle, Rc<EntryInfo>)>,
    pub(super) connection: Rc<Connection>,
}

/// Says what was opened, as far as that is the same for every kind of session.
macro_rules! write_opened {
    ($opened:expr, $written:expr) => {{
        let session = &$opened.session.0;
        let (base, bytes) = session.addresses();
        $written.set_id(session.id);
        $written.set_window_base(base);
        $written.set_window_bytes(bytes);
        $opened.token.write($written.reborrow().init_ring());
    }};
}

pub(crate) use write_opened;

/// Opens a session for a client.
pub(crate) async fn open(
    connection: Rc<Connection>,
    device: Rc<Device>,
    name: String,
    terms: Terms,
    parent: Option<Parent>,
) -> Result<Opened, Error> {
    if connection.sessions() >= limits::SESSIONS_PER_CONNECTION_MAX {
        let message = format!("a connection has at most {} sessions", limits::SESSIONS_PER_CONNECTION_MAX);
        return Err(Error::new(ErrorCode::LimitReached, message).remedy("close a session"));
    }
    let kernel = Rc::clone(&connection.kernel);
    connection.party.is_below(Counted::GoneSessions)?;
    let place = connection.party.take(Counted::Sessions, 1)?;
    let pid = connection.peer.pid.and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
    let underway = Underway::new(&connection);
    let (party, left) = (Rc::clone(&connection.party), connection.left.clone());
    let opening = Opening { device, name, pid, limits: kernel.limits, terms, parent, party, place, left };
    let opened = Session::open(opening, || kernel.session_number()).await?;
    drop(underway);
    let session = &opened.session.0;
    connection.sessions.borrow_mut().push(Rc::downgrade(session));
    session.be_known();
    // Where the connection has ended meanwhile, this refuses, and dropping the session ends it.
    let token = connection.give(session.parcel(vec![opened.ring, opened.completions], opened.on_the_way))?;
    Ok(Opened { session: opened.session, token, entries: opened.entries, connection })
}

/// One session that is being opened.
struct Underway(Rc<Connection>);

impl Underway {
    fn new(connection: &Rc<Connection>) -> Self {
        connection.opening.set(connection.opening.get() + 1);
        Self(Rc::clone(connection))
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.0.opening.set(self.0.opening.get().saturating_sub(1));
    }
}

/// A name that a client gave.
pub(crate) fn name(text: capnp::Result<capnp::text::Reader<'_>>) -> Result<String, Error> {
    let invalid = |message: String| Error::new(ErrorCode::InvalidArgument, message);
    let text = text.map_err(|error| invalid(error.to_string()))?;
    let text = text.to_str().map_err(|_| invalid("a name is UTF-8".into()))?;
    if text.len() > limits::NAME_BYTES_MAX {
        return Err(invalid(format!("a name has at most {} bytes", limits::NAME_BYTES_MAX)));
    }
    Ok(text.to_owned())
}
