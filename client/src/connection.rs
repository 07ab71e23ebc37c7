//! A connection to the kernel: for async services directly, for everybody else on a thread of its own.

use std::{
    cell::RefCell,
    future::Future,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    pin::Pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    task::Poll,
    thread,
    time::{Duration, Instant},
};

use bulkhead_schema::{Error, ErrorCode, bulkhead_capnp as rpc, limits};
use capnp_rpc::{RpcSystem, VatNetwork, rpc_twoparty_capnp::Side, twoparty};
use futures::io::{BufReader, BufWriter};
use slab::Slab;
use tokio::sync::{Notify, mpsc as tasks};
use tokio_util::compat::{TokioAsyncReadCompatExt as _, TokioAsyncWriteCompatExt as _};

use crate::counted;

/// Where the kernel listens unless told otherwise: `$BULKHEAD_SOCKET`, else `kernel.sock` in
/// `$XDG_RUNTIME_DIR/bulkhead`, else in `/tmp/bulkhead-UID`.
#[must_use]
pub fn default_socket() -> PathBuf {
    if let Some(socket) = std::env::var_os("BULKHEAD_SOCKET") {
        return socket.into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(directory) => PathBuf::from(directory).join("bulkhead/kernel.sock"),
        None => guessed_socket(),
    }
}

/// A place that nobody has named, in a directory that everybody can write.
fn guessed_socket() -> PathBuf {
    PathBuf::from(format!("/tmp/bulkhead-{}/kernel.sock", rustix::process::geteuid().as_raw()))
}

/// A connection on the caller's own thread, for services that are asynchronous themselves. Must live in a tokio
/// `LocalSet`; it is driven by a local task.
#[derive(Clone)]
pub struct Connection {
    /// The kernel's bootstrap capability; `hello` has been said.
    pub kernel: rpc::bulkhead::Client,
    /// Where descriptors are handed over.
    pub descriptor_socket: PathBuf,
    /// Set once the kernel is gone, or the connection broken.
    gone: Arc<AtomicBool>,
}

impl Connection {
    /// Connects and says hello as `name`.
    ///
    /// # Errors
    /// `unavailable` where no kernel listens; `version` where it speaks another.
    pub async fn open(socket: &Path, name: &str) -> Result<Self, Error> {
        let mut system = RpcSystem::new(network(socket)?, None);
        let kernel: rpc::bulkhead::Client = system.bootstrap(Side::Server);
        let gone = Arc::new(AtomicBool::new(false));
        let went = Arc::clone(&gone);
        tokio::task::spawn_local(async move {
            let ended = system.await;
            went.store(true, Ordering::Relaxed);
            ended
        });

        let mut hello = kernel.hello_request();
        hello.get().set_version(limits::PROTOCOL_VERSION);
        hello.get().set_client(name);
        let response = hello.send().promise.await.map_err(broken)?;
        let welcome = response.get().and_then(|r| r.get_result()).map_err(broken)?;
        let welcome = answer(welcome)?;
        let path = welcome.get_descriptor_socket().map_err(broken)?;
        let descriptor_socket = PathBuf::from(String::from_utf8_lossy(path.as_bytes()).into_owned());
        Ok(Self { kernel, descriptor_socket, gone })
    }

    /// One round trip.
    ///
    /// # Errors
    /// Where the connection is gone.
    pub async fn ping(&self, value: u64) -> Result<u64, Error> {
        let mut ping = self.kernel.ping_request();
        ping.get().set_value(value);
        let response = spinning(ping.send().promise).await.map_err(broken)?;
        Ok(response.get().map_err(broken)?.get_value())
    }
}

/// Connects to a socket of the kernel's.
pub(crate) fn network(socket: &Path) -> Result<Box<dyn VatNetwork<Side>>, Error> {
    let unavailable = |error: std::io::Error| {
        if error.kind() == std::io::ErrorKind::PermissionDenied {
            let message = format!("the kernel at {} does not serve this user", socket.display());
            return Error::new(ErrorCode::Unavailable, message)
                .remedy("ask as the user who runs `bulkhead serve`");
        }
        Error::new(ErrorCode::Unavailable, format!("no kernel at {}: {error}", socket.display()))
            .remedy("start one with `bulkhead serve`, or run the program with `bulkhead run -- PROGRAM`")
    };
    let stream = UnixStream::connect(socket).map_err(unavailable)?;
    stream.set_nonblocking(true).map_err(unavailable)?;
    let stream = tokio::net::UnixStream::from_std(stream).map_err(unavailable)?;
    // A socket that somebody has named is whose they say: in a container users and processes have other numbers, or none.
    let peer = stream.peer_cred().map_err(unavailable)?;
    let is_guessed = socket.parent() == guessed_socket().parent();
    if is_guessed && !trusted(peer.uid(), rustix::process::geteuid().as_raw()) {
        let message = format!("{} belongs to another user's kernel", socket.display());
        return Err(Error::new(ErrorCode::NotPermitted, message)
            .remedy("name your own kernel's socket in BULKHEAD_SOCKET, or start one with `bulkhead serve`"));
    }
    let (reader, writer) = stream.into_split();
    Ok(Box::new(twoparty::VatNetwork::new(
        BufReader::new(reader.compat()),
        BufWriter::new(writer.compat_write()),
        Side::Client,
        capnp::message::ReaderOptions::new(),
    )))
}

/// Whether a kernel of the user `peer` is one to give one's data to: in a directory that everybody can write, a
/// socket may be anybody's.
fn trusted(peer: u32, own: u32) -> bool {
    peer == own || peer == 0
}

/// How long a call is polled for before the thread sleeps: an answer that comes sooner finds it awake.
const SPIN: Duration = Duration::from_micros(50);

/// Awaits a call, awake at first.
async fn spinning<F: Future>(call: F) -> F::Output {
    let mut call = std::pin::pin!(call);
    let start = Instant::now();
    while start.elapsed() < SPIN {
        let polled = std::future::poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await;
        if let Poll::Ready(output) = polled {
            return output;
        }
        tokio::task::yield_now().await;
    }
    call.await
}

/// A call that failed below the protocol: the connection or the kernel is gone, or has a bug.
pub(crate) fn broken(error: capnp::Error) -> Error {
    match error.kind {
        capnp::ErrorKind::Disconnected => Error::new(ErrorCode::SessionLost, "the kernel is gone")
            .remedy("start it again and open a new session"),
        // The kernel's own words, behind those of the protocol.
        capnp::ErrorKind::Overloaded => {
            let words = error.extra.strip_prefix("remote exception: ").unwrap_or(&error.extra);
            Error::new(ErrorCode::LimitReached, words)
        }
        _ => Error::new(ErrorCode::Internal, format!("the kernel answered what is no answer: {error}")),
    }
}

/// The result in a union of result and error.
pub(crate) fn answer<'a, T: capnp::traits::Owned>(
    result: rpc::result::Reader<'a, T>,
) -> Result<T::Reader<'a>, Error> {
    match result.which() {
        Ok(rpc::result::Ok(value)) => value.map_err(broken),
        Ok(rpc::result::Error(error)) => Err(Error::read(error.map_err(broken)?)),
        Err(capnp::NotInSchema(_)) => Err(Error::new(ErrorCode::Version, "an answer of a later version")),
    }
}

/// What lives on the connection's thread.
pub(crate) struct Context {
    pub(crate) connection: Connection,
    /// The session, once it is open.
    pub(crate) session: RefCell<Option<Opened>>,
    /// Capabilities by the number that the rest of the process knows them by.
    pub(crate) held: RefCell<Slab<Capability>>,
    /// Says that the process is done with it.
    over: Notify,
}

impl Context {
    /// The open session, without the methods that load code.
    pub(crate) fn session(&self) -> Result<rpc::gpu_copy_session::Client, Error> {
        match self.session.borrow().as_ref() {
            Some(Opened::Whole(session)) => {
                Ok(rpc::gpu_copy_session::Client { client: session.client.clone() })
            }
            Some(Opened::Program(session)) => Ok(session.clone()),
            None => Err(Error::new(ErrorCode::SessionLost, "the session is over")),
        }
    }

    /// The open session.
    pub(crate) fn loader(&self) -> Result<rpc::gpu_session::Client, Error> {
        match self.session.borrow().as_ref() {
            Some(Opened::Whole(session)) => Ok(session.clone()),
            Some(Opened::Program(_)) => {
                let message = "a session that was opened from a program loads no code and derives nothing";
                Err(Error::new(ErrorCode::NotPermitted, message))
            }
            None => Err(Error::new(ErrorCode::SessionLost, "the session is over")),
        }
    }

    /// What is held under a number, whatever it is.
    pub(crate) fn any(&self, key: usize) -> Result<capnp::capability::Client, Error> {
        match self.held.borrow().get(key) {
            Some(Capability::Any(client)) => Ok(client.clone()),
            Some(Capability::Buffer(buffer)) => Ok(buffer.client.clone()),
            Some(Capability::Module(module)) => Ok(module.client.clone()),
            None => Err(Error::new(ErrorCode::InvalidHandle, "no such capability")),
        }
    }

    /// The same, for what can be done with every capability of the tree.
    pub(crate) fn capability(&self, key: usize) -> Result<rpc::gpu_capability::Client, Error> {
        self.any(key).map(|client| rpc::gpu_capability::Client { client })
    }

    /// Closes a buffer, and waits until its memory has been given back or `patience_ms` are over.
    ///
    /// # Errors
    /// Where the session or the kernel is gone: its memory has been given back then, or will be.
    pub(crate) async fn give_back(&self, key: usize, patience_ms: u32) -> Result<(), Error> {
        // Dropped in the end: a capability that is closed is not worth holding.
        let Some(Capability::Buffer(buffer)) = self.held.borrow_mut().try_remove(key) else { return Ok(()) };
        let capability = rpc::gpu_capability::Client { client: buffer.client };
        let response = capability.close_request().send().promise.await.map_err(broken)?;
        let revoking = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
        // A kernel that has nothing to tell about the moment tells of none.
        let Ok(revocation) = revoking.get_revocation() else { return Ok(()) };
        let mut wait = revocation.wait_request();
        wait.get().set_moment(rpc::Moment::Reclaimed);
        wait.get().set_timeout_ms(patience_ms);
        let response = wait.send().promise.await.map_err(broken)?;
        answer(response.get().and_then(|r| r.get_result()).map_err(broken)?).map(|_| ())
    }

    /// Closes a buffer, and waits until no work can reach what it stood for, however long that takes.
    ///
    /// # Errors
    /// Where the session or the kernel is gone.
    pub(crate) async fn withdraw(&self, key: usize, ask_ms: u32, nap: Duration) -> Result<(), Error> {
        let capability = self.capability(key)?;
        let revocation = loop {
            let response = capability.close_request().send().promise.await.map_err(broken)?;
            match answer(response.get().and_then(|r| r.get_result()).map_err(broken)?) {
                Ok(revoking) => break revoking.get_revocation().map_err(broken)?,
                // As many revocations as a session may have at a time: some of them end.
                Err(error) if error.code == ErrorCode::LimitReached => tokio::time::sleep(nap).await,
                Err(error) => return Err(error),
            }
        };
        // Dropped only here: from then on there is nobody to ask about the moment.
        drop(self.held.borrow_mut().try_remove(key));
        loop {
            let mut wait = revocation.wait_request();
            wait.get().set_moment(rpc::Moment::Quiescent);
            wait.get().set_timeout_ms(ask_ms);
            let response = wait.send().promise.await.map_err(broken)?;
            if answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?.get_reached() {
                return Ok(());
            }
        }
    }

    pub(crate) fn hold(&self, capability: Capability) -> usize {
        self.held.borrow_mut().insert(capability)
    }

    /// The module held under a number.
    pub(crate) fn module(&self, key: usize) -> Result<rpc::gpu_module::Client, Error> {
        match self.held.borrow().get(key) {
            Some(Capability::Module(module)) => Ok(module.clone()),
            Some(Capability::Buffer(_) | Capability::Any(_)) | None => {
                Err(Error::new(ErrorCode::InvalidHandle, "no such image"))
            }
        }
    }
}

/// A capability that the client holds: dropping it gives it up.
pub(crate) enum Capability {
    Buffer(rpc::gpu_buffer::Client),
    Module(rpc::gpu_module::Client),
    /// Of a kind that its holder knows.
    Any(capnp::capability::Client),
}

/// A session, as it was opened.
pub(crate) enum Opened {
    Whole(rpc::gpu_session::Client),
    /// From a program: no code can be loaded in it.
    Program(rpc::gpu_copy_session::Client),
}

type Task = Box<dyn FnOnce(Rc<Context>) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// Tells that a connection's thread has ended.
struct Ends(Arc<AtomicBool>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A connection on a thread of its own, for callers that block.
pub(crate) struct Remote {
    tasks: tasks::UnboundedSender<Task>,
    gone: Arc<AtomicBool>,
}

impl Remote {
    /// Connects; the thread ends when the value is dropped and its last call has been answered.
    pub(crate) fn open(socket: &Path, name: &str) -> Result<Self, Error> {
        let (sender, mut receiver) = tasks::unbounded_channel::<Task>();
        let (opened, open) = mpsc::sync_channel::<Result<Arc<AtomicBool>, Error>>(1);
        let (socket, name) = (socket.to_owned(), name.to_owned());
        let run = move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => {
                    let failed = Error::new(ErrorCode::LimitReached, format!("no runtime: {error}"));
                    return opened.send(Err(failed)).unwrap_or_default();
                }
            };
            tokio::task::LocalSet::new().block_on(&runtime, async move {
                let context = match Connection::open(&socket, &name).await {
                    Ok(connection) => Rc::new(Context {
                        connection,
                        session: RefCell::default(),
                        held: RefCell::default(),
                        over: Notify::new(),
                    }),
                    Err(error) => return opened.send(Err(error)).unwrap_or_default(),
                };
                // However the thread ends, what is asked of it from then on is asked of nobody.
                let _ends = Ends(Arc::clone(&context.connection.gone));
                if opened.send(Ok(Arc::clone(&context.connection.gone))).is_err() {
                    return;
                }
                let mut running = tokio::task::JoinSet::new();
                loop {
                    let task = tokio::select! {
                        task = receiver.recv() => task,
                        () = context.over.notified() => None,
                    };
                    let Some(task) = task else { break };
                    running.spawn_local(task(Rc::clone(&context)));
                    while running.try_join_next().is_some() {}
                }
                while running.join_next().await.is_some() {}
            });
        };
        let thread = thread::Builder::new().name("bulkhead-rpc".into()).spawn(run);
        thread.map_err(|error| Error::new(ErrorCode::LimitReached, format!("no thread: {error}")))?;
        let gone = || Error::new(ErrorCode::Internal, "the connection's thread is gone");
        let gone = open.recv().unwrap_or_else(|_| Err(gone()))?;
        Ok(Self { tasks: sender, gone })
    }

    /// Whether the kernel is still there.
    ///
    /// # Errors
    /// That it is not.
    pub(crate) fn status(&self) -> Result<(), Error> {
        if self.gone.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorCode::SessionLost, "the kernel is gone")
                .remedy("start it again and open a new session"));
        }
        Ok(())
    }

    /// Has the connection's thread do something that nobody waits for, and that ends with the connection.
    pub(crate) fn spawn<F, C>(&self, work: C)
    where
        F: Future<Output = ()> + 'static,
        C: FnOnce(Rc<Context>) -> F + Send + 'static,
    {
        let task: Task = Box::new(move |context| {
            tokio::task::spawn_local(work(context));
            Box::pin(std::future::ready(()))
        });
        // A connection that is gone has nothing left to do.
        self.tasks.send(task).unwrap_or_default();
    }

    /// Makes a call and waits for its answer.
    pub(crate) fn call<T, F, C>(&self, call: C) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + 'static,
        C: FnOnce(Rc<Context>) -> F + Send + 'static,
    {
        self.call_telling(None, call)
    }

    /// Makes a call that may be left unanswered: `None` where an answer takes for longer.
    pub(crate) fn call_within<T, F, C>(&self, patience: Duration, call: C) -> Option<Result<T, Error>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + 'static,
        C: FnOnce(Rc<Context>) -> F + Send + 'static,
    {
        let (sender, receiver) = mpsc::sync_channel(1);
        // Nobody waits any more where this fails.
        self.spawn(|context| async move { sender.send(call(context).await).unwrap_or_default() });
        receiver.recv_timeout(patience).ok()
    }

    /// Makes a call and waits for its answer; tells who calls where it takes for longer than that.
    pub(crate) fn call_telling<T, F, C>(
        &self,
        slow: Option<(Duration, &dyn Fn())>,
        call: C,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + 'static,
        C: FnOnce(Rc<Context>) -> F + Send + 'static,
    {
        counted::count(&call);
        let gone = || Error::new(ErrorCode::SessionLost, "the connection to the kernel is gone");
        let (sender, receiver) = mpsc::sync_channel(1);
        let task: Task = Box::new(move |context| {
            let call = call(context);
            Box::pin(async move {
                // Nobody waits any more where this fails.
                sender.send(call.await).unwrap_or_default();
            })
        });
        self.tasks.send(task).map_err(|_| gone())?;
        if let Some((slow, tell)) = slow {
            match receiver.recv_timeout(slow) {
                Ok(answered) => return answered,
                Err(mpsc::RecvTimeoutError::Timeout) => tell(),
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(gone()),
            }
        }
        receiver.recv().unwrap_or_else(|_| Err(gone()))
    }

    /// Hangs up, which ends the session and every capability; calls under way are answered before, later ones fail.
    pub(crate) fn hang_up(&self) {
        self.spawn(|context| async move { context.over.notify_one() });
    }

    /// Gives a capability up, without waiting.
    pub(crate) fn release(&self, key: usize) {
        let task: Task = Box::new(move |context| {
            let released = context.held.borrow_mut().try_remove(key);
            drop(released);
            Box::pin(std::future::ready(()))
        });
        // A connection that is gone has given everything up already.
        self.tasks.send(task).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_kernel_of_the_same_user_or_of_root_is_trusted() {
        assert!(trusted(1000, 1000) && trusted(0, 1000) && trusted(0, 0));
        assert!(!trusted(1001, 1000) && !trusted(1000, 0));
    }
}
