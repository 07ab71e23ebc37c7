//! Calls below the SDK, which has one session a connection and one call a thread: many of all.

use std::path::Path;

use bulkhead_client::{Connection, Error, ErrorCode};
use bulkhead_schema::bulkhead_capnp::{
    gpu_capability, gpu_copy_session, gpu_fence, gpu_session, gpu_signal, result,
};
use capnp::capability::{Promise, Response};

use crate::hostile::answer;

/// A session with what its client was told of it.
pub struct Opened {
    /// It, whole.
    pub session: gpu_session::Client,
    /// Its number.
    pub number: u32,
}

impl Opened {
    /// Without the methods that load code.
    #[must_use]
    pub fn copying(&self) -> gpu_copy_session::Client {
        gpu_copy_session::Client { client: self.session.client.clone() }
    }
}

/// What a connection that broke says.
fn broken(error: capnp::Error) -> Error {
    Error::new(ErrorCode::SessionLost, error.to_string())
}

/// The result of a call that was answered.
///
/// # Errors
/// Where it was refused, or the connection has ended.
pub fn read<T: capnp::traits::Owned>(
    result: capnp::Result<result::Reader<'_, T>>,
) -> Result<T::Reader<'_>, Error> {
    answer(result.map_err(broken)?).map_err(broken)?
}

/// Connects.
///
/// # Panics
/// Where the kernel does not let it in.
pub async fn connect(socket: &Path, name: &str) -> Connection {
    Connection::open(socket, name).await.expect("the kernel lets a client in")
}

/// Opens a session of a connection that may have several.
///
/// # Errors
/// Where the kernel refuses.
pub async fn open(connection: &Connection, name: &str) -> Result<Opened, Error> {
    let mut open = connection.kernel.open_session_request();
    open.get().set_name(name);
    let response = open.send().promise.await.map_err(broken)?;
    let opened = read(response.get().and_then(|response| response.get_result()))?;
    Ok(Opened { session: opened.get_session().map_err(broken)?, number: opened.get_id() })
}

/// So many signals of a session, asked for at once.
///
/// # Errors
/// Where one is refused.
pub async fn signals(
    session: &gpu_copy_session::Client,
    count: usize,
) -> Result<Vec<gpu_signal::Client>, Error> {
    let asked: Vec<_> = (0..count).map(|_| session.signal_request().send().promise).collect();
    let mut signals = Vec::with_capacity(count);
    for asked in asked {
        let response = asked.await.map_err(broken)?;
        let made = read(response.get().and_then(|response| response.get_result()))?;
        signals.push(made.get_signal().map_err(broken)?);
    }
    Ok(signals)
}

/// A wait that was asked for.
pub type Waiting = Promise<Response<gpu_fence::wait_results::Owned>, capnp::Error>;

/// Asks to wait for a fence or a signal.
pub fn wait(fence: &gpu_signal::Client, milliseconds: u32) -> Waiting {
    let fence = gpu_fence::Client { client: fence.client.clone() };
    let mut wait = fence.wait_request();
    wait.get().set_timeout_ms(milliseconds);
    wait.send().promise
}

/// What came of a wait: whether the fence has passed.
///
/// # Errors
/// Where there is nothing to wait for any more, or nobody may wait.
pub async fn waited(waiting: Waiting) -> Result<bool, Error> {
    let response = waiting.await.map_err(broken)?;
    read(response.get().and_then(|response| response.get_result())).map(|state| state.get_passed())
}

/// Closes any capability of the tree, and what was derived from it.
///
/// # Errors
/// Where the kernel refuses.
pub async fn close(capability: capnp::capability::Client) -> Result<(), Error> {
    let capability = gpu_capability::Client { client: capability };
    let response = capability.close_request().send().promise.await.map_err(broken)?;
    read(response.get().and_then(|response| response.get_result())).map(drop)
}

/// Ends a session, and waits until it has given everything back.
///
/// # Errors
/// Where the connection has ended.
pub async fn end(session: &gpu_copy_session::Client) -> Result<(), Error> {
    let response = session.close_request().send().promise.await.map_err(broken)?;
    read(response.get().and_then(|response| response.get_result())).map(drop)
}
