//! Capabilities, as the tests use them.

use bulkhead_schema::{
    Error, Handle,
    bulkhead_capnp::{
        Moment, Uses, any_capability, gpu_buffer, gpu_buffer_view, gpu_capability, gpu_copy_session,
        gpu_fence, gpu_peer, gpu_program, gpu_revocation, gpu_signal, granted, session_terms, sturdy_token,
    },
};
use capnp::capability::FromClientHook;

use crate::harness::{Client, Session, read};

/// Anything that can be revoked, closed and made a token of.
pub(crate) fn capability(client: &(impl FromClientHook + Clone)) -> gpu_capability::Client {
    client.clone().cast_to()
}

/// What was taken back, and how much of it.
pub(crate) struct Revoking {
    revocation: gpu_revocation::Client,
    pub(crate) capabilities: u32,
}

impl Revoking {
    /// Whether the moment came in time, and whether something is quarantined.
    pub(crate) async fn wait(&self, moment: Moment, timeout_ms: u32) -> (bool, bool) {
        let mut request = self.revocation.wait_request();
        request.get().set_moment(moment);
        request.get().set_timeout_ms(timeout_ms);
        let response = request.send().promise.await.unwrap();
        let reached = read(response.get().unwrap().get_result()).unwrap();
        (reached.get_reached(), reached.get_quarantined())
    }
}

pub(crate) async fn revoke(client: &(impl FromClientHook + Clone)) -> Result<Revoking, Error> {
    let response = capability(client).revoke_request().send().promise.await.unwrap();
    let revoking = read(response.get().unwrap().get_result())?;
    let revocation = revoking.get_revocation().unwrap();
    Ok(Revoking { revocation, capabilities: revoking.get_capabilities() })
}

pub(crate) async fn close(client: &(impl FromClientHook + Clone)) -> Result<Revoking, Error> {
    let response = capability(client).close_request().send().promise.await.unwrap();
    let revoking = read(response.get().unwrap().get_result())?;
    let revocation = revoking.get_revocation().unwrap();
    Ok(Revoking { revocation, capabilities: revoking.get_capabilities() })
}

pub(crate) type Words = [u64; 4];

fn words(token: sturdy_token::Reader<'_>) -> Words {
    [token.get_first(), token.get_second(), token.get_third(), token.get_fourth()]
}

pub(crate) async fn token(client: &(impl FromClientHook + Clone), uses: Uses) -> Result<Words, Error> {
    let mut request = capability(client).token_request();
    request.get().set_uses(uses);
    let response = request.send().promise.await.unwrap();
    read(response.get().unwrap().get_result()).map(words)
}

pub(crate) async fn drop_tokens(client: &(impl FromClientHook + Clone)) -> Result<(), Error> {
    let response = capability(client).drop_tokens_request().send().promise.await.unwrap();
    read(response.get().unwrap().get_result()).map(drop)
}

/// A capability that came from somewhere else.
pub(crate) enum Any {
    View(gpu_buffer_view::Client),
    Buffer(gpu_buffer::Client),
    Program(gpu_program::Client),
    Peer(gpu_peer::Client),
    Fence(gpu_fence::Client),
    Signal(gpu_signal::Client),
}

impl Any {
    fn read(any: any_capability::Reader<'_>) -> Self {
        match any.which().unwrap() {
            any_capability::View(view) => Self::View(view.unwrap()),
            any_capability::Buffer(buffer) => Self::Buffer(buffer.unwrap()),
            any_capability::Program(program) => Self::Program(program.unwrap()),
            any_capability::Peer(peer) => Self::Peer(peer.unwrap()),
            any_capability::Fence(fence) => Self::Fence(fence.unwrap()),
            any_capability::Signal(signal) => Self::Signal(signal.unwrap()),
            any_capability::Module(_) | any_capability::Gates(_) => panic!("there are no modules"),
        }
    }

    /// It, as memory to read.
    pub(crate) fn view(&self) -> gpu_buffer_view::Client {
        match self {
            Self::View(view) => view.clone(),
            Self::Buffer(buffer) => buffer.clone().cast_to(),
            Self::Program(_) | Self::Peer(_) | Self::Fence(_) | Self::Signal(_) => panic!("it is no memory"),
        }
    }

    pub(crate) fn program(self) -> gpu_program::Client {
        match self {
            Self::Program(program) => program,
            Self::View(_) | Self::Buffer(_) | Self::Peer(_) | Self::Fence(_) | Self::Signal(_) => {
                panic!("it is no program")
            }
        }
    }

    pub(crate) fn peer(self) -> gpu_peer::Client {
        match self {
            Self::Peer(peer) => peer,
            Self::View(_) | Self::Buffer(_) | Self::Program(_) | Self::Fence(_) | Self::Signal(_) => {
                panic!("it is no peer")
            }
        }
    }

    pub(crate) fn fence(self) -> gpu_fence::Client {
        match self {
            Self::Fence(fence) => fence,
            Self::View(_) | Self::Buffer(_) | Self::Program(_) | Self::Peer(_) | Self::Signal(_) => {
                panic!("it is no fence")
            }
        }
    }

    pub(crate) fn signal(self) -> gpu_signal::Client {
        match self {
            Self::Signal(signal) => signal,
            Self::View(_) | Self::Buffer(_) | Self::Program(_) | Self::Peer(_) | Self::Fence(_) => {
                panic!("it is no signal")
            }
        }
    }

    pub(crate) fn is_buffer(&self) -> bool {
        matches!(self, Self::Buffer(_))
    }
}

impl Client {
    pub(crate) async fn restore(&self, token: Words) -> Result<Any, Error> {
        let mut request = self.bulkhead.restore_request();
        let mut builder = request.get().init_token();
        builder.set_first(token[0]);
        builder.set_second(token[1]);
        builder.set_third(token[2]);
        builder.set_fourth(token[3]);
        let response = request.send().promise.await.unwrap();
        read(response.get().unwrap().get_result()).map(Any::read)
    }
}

/// A part of memory.
pub(crate) struct Part {
    pub(crate) client: gpu_buffer_view::Client,
    pub(crate) handle: Handle,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

pub(crate) async fn derive(view: &gpu_buffer_view::Client, offset: u64, bytes: u64) -> Result<Part, Error> {
    let mut request = view.derive_request();
    request.get().set_offset(offset);
    request.get().set_bytes(bytes);
    let response = request.send().promise.await.unwrap();
    let created = read(response.get().unwrap().get_result())?;
    Ok(Part {
        client: created.get_view().unwrap(),
        handle: Handle::read(created.get_handle().unwrap()),
        address: created.get_address(),
        bytes: created.get_bytes(),
    })
}

pub(crate) async fn derive_buffer(
    buffer: &gpu_buffer::Client,
    offset: u64,
    bytes: u64,
) -> Result<Part, Error> {
    let mut request = buffer.derive_buffer_request();
    request.get().set_offset(offset);
    request.get().set_bytes(bytes);
    let response = request.send().promise.await.unwrap();
    let created = read(response.get().unwrap().get_result())?;
    Ok(Part {
        client: created.get_buffer().unwrap().cast_to(),
        handle: Handle::read(created.get_handle().unwrap()),
        address: created.get_address(),
        bytes: created.get_bytes(),
    })
}

/// Calls that every session answers.
pub(crate) async fn accept(
    session: &gpu_copy_session::Client,
    view: gpu_buffer_view::Client,
    at: u64,
) -> Result<Part, Error> {
    let mut request = session.accept_request();
    request.get().set_view(view);
    request.get().set_at(at);
    let response = request.send().promise.await.unwrap();
    let accepted = read(response.get().unwrap().get_result())?;
    use bulkhead_schema::bulkhead_capnp::accepted::{Buffer, View};
    let client = match accepted.which().unwrap() {
        Buffer(buffer) => buffer.unwrap().cast_to(),
        View(view) => view.unwrap(),
    };
    Ok(Part {
        client,
        handle: Handle::read(accepted.get_handle().unwrap()),
        address: accepted.get_address(),
        bytes: accepted.get_bytes(),
    })
}

impl Session {
    pub(crate) async fn accept(&self, view: gpu_buffer_view::Client) -> Result<Part, Error> {
        accept(&self.copying(), view, 0).await
    }

    /// The same at an address of a reservation.
    pub(crate) async fn map(&self, view: gpu_buffer_view::Client, at: u64) -> Result<Part, Error> {
        accept(&self.copying(), view, at).await
    }

    pub(crate) async fn peer(&self) -> Result<gpu_peer::Client, Error> {
        let response = self.copying().peer_request().send().promise.await.unwrap();
        Ok(read(response.get().unwrap().get_result())?.get_peer().unwrap())
    }

    pub(crate) async fn signal(&self) -> Result<gpu_signal::Client, Error> {
        let response = self.copying().signal_request().send().promise.await.unwrap();
        Ok(read(response.get().unwrap().get_result())?.get_signal().unwrap())
    }

    pub(crate) async fn granted(&self, timeout_ms: u32) -> Result<Option<Any>, Error> {
        let mut request = self.copying().granted_request();
        request.get().set_timeout_ms(timeout_ms);
        let response = request.send().promise.await.unwrap();
        let granted = read(response.get().unwrap().get_result())?;
        Ok(match granted.which().unwrap() {
            granted::None(()) => None,
            granted::Capability(any) => Some(Any::read(any.unwrap())),
        })
    }

    pub(crate) async fn derive(
        &self,
        entries: &[Handle],
        terms: impl FnOnce(session_terms::Builder<'_>),
    ) -> Result<gpu_program::Client, Error> {
        let mut request = self.client.derive_request();
        terms(request.get().init_terms());
        let mut list = request.get().init_entries(u32::try_from(entries.len()).unwrap());
        for (at, entry) in (0..).zip(entries) {
            entry.write(list.reborrow().get(at));
        }
        let response = request.send().promise.await.unwrap();
        Ok(read(response.get().unwrap().get_result())?.get_program().unwrap())
    }
}

pub(crate) async fn grant(peer: &gpu_peer::Client, view: gpu_buffer_view::Client) -> Result<(), Error> {
    let mut request = peer.grant_request();
    request.get().set_view(view);
    let response = request.send().promise.await.unwrap();
    read(response.get().unwrap().get_result()).map(drop)
}

/// A session that was opened from a program.
pub(crate) struct Opened {
    pub(crate) session: gpu_copy_session::Client,
    pub(crate) id: u32,
    pub(crate) entries: Vec<(String, Handle)>,
}

pub(crate) async fn open(program: &gpu_program::Client) -> Result<Opened, Error> {
    let mut request = program.open_request();
    request.get().set_name("opened");
    let response = request.send().promise.await.unwrap();
    let opened = read(response.get().unwrap().get_result())?;
    let entry = |entry: bulkhead_schema::bulkhead_capnp::entry::Reader<'_>| {
        (entry.get_name().unwrap().to_string().unwrap(), Handle::read(entry.get_handle().unwrap()))
    };
    Ok(Opened {
        session: opened.get_session().unwrap(),
        id: opened.get_id(),
        entries: opened.get_entries().unwrap().iter().map(entry).collect(),
    })
}
