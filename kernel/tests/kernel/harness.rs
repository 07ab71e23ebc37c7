//! A kernel on a thread of its own, and clients for it.

use std::{
    future::Future,
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::DirBuilderExt,
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::Duration,
};

use bulkhead_kernel::{Cells, Config, DESCRIPTOR_SOCKET, ExecutorSource, KERNEL_SOCKET, Limits, Relay};
use bulkhead_mm::Resource;
use bulkhead_schema::{
    Error, Handle,
    bulkhead_capnp::{
        bulkhead, column, gpu_buffer, gpu_buffer_view, gpu_capability, gpu_copy_session, gpu_session, result,
        session_opened, token,
    },
    limits,
};
use capnp_rpc::{RpcSystem, rpc_twoparty_capnp::Side, twoparty};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use tokio_util::compat::{TokioAsyncReadCompatExt, TokioAsyncWriteCompatExt};

use crate::fake::{Fake, Manners};

/// No test of this file takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Harness {
    pub(crate) directory: PathBuf,
    pub(crate) fake: Fake,
}

struct Running {
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), bulkhead_kernel::Error>>>,
    directory: PathBuf,
}

impl Running {
    fn stop(&mut self) -> Result<(), bulkhead_kernel::Error> {
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.thread.is_some() && !std::thread::panicking() {
            self.stop().unwrap();
        }
        drop(std::fs::remove_dir_all(&self.directory));
    }
}

/// A directory of this test's own.
pub(crate) fn directory() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("bulkhead-kernel-{}-{number}", std::process::id()))
}

pub(crate) fn config(directory: &Path, fake: &Fake) -> Config {
    let connector = fake.clone();
    Config {
        runtime_directory: directory.to_owned(),
        executor: ExecutorSource::Connect(Box::new(move || connector.connect())),
        executor_environment: Vec::new(),
        compiler: vec!["/bin/false".into()],
        modules: Vec::new(),
        relay: Relay::default(),
        tenants: Vec::new(),
        limits: Limits::default(),
        cells: Cells::default(),
        ready: None,
    }
}

/// Runs a test against a kernel.
pub(crate) fn with_kernel<F: Future<Output = ()>>(test: impl FnOnce(Arc<Harness>) -> F) {
    with_changed_kernel(Manners::default(), |_| {}, test);
}

/// The same, with an executor that behaves badly from the start and a changed configuration.
pub(crate) fn with_changed_kernel<F: Future<Output = ()>>(
    manners: Manners,
    change: impl FnOnce(&mut Config),
    test: impl FnOnce(Arc<Harness>) -> F,
) {
    let directory = directory();
    let fake = Fake::default();
    fake.behave(manners);
    let mut config = config(&directory, &fake);
    change(&mut config);
    let (ready, started) = mpsc::channel();
    config.ready = Some(Box::new(move || ready.send(()).unwrap()));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let thread = std::thread::spawn(move || {
        let stopped = async move { drop(stopped.await) };
        bulkhead_kernel::run(config, Box::pin(stopped))
    });
    let mut running = Running { stop: Some(stop), thread: Some(thread), directory: directory.clone() };
    started.recv_timeout(PATIENCE).expect("the kernel starts");
    let observed = fake.clone();
    local(async {
        let harness = Arc::new(Harness { directory, fake });
        tokio::time::timeout(PATIENCE, test(harness)).await.expect("the test ends");
    });
    // It would say so if any capability, object, charge or address were left behind.
    running.stop().expect("the kernel ends as it should");
    assert_eq!(observed.wrong(), Vec::<String>::new(), "the executor was asked what makes no sense");
}

/// Runs futures that are bound to this thread.
pub(crate) fn local<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, future)
}

/// Waits until something is so.
pub(crate) async fn until(mut so: impl AsyncFnMut() -> bool) {
    let start = std::time::Instant::now();
    while !so().await {
        assert!(start.elapsed() < Duration::from_secs(20), "waited in vain");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A result of the RPC face.
pub(crate) fn read<'a, T: capnp::traits::Owned + 'static>(
    result: capnp::Result<result::Reader<'a, T>>,
) -> Result<T::Reader<'a>, Error> {
    match result.unwrap().which().unwrap() {
        result::Ok(ok) => Ok(ok.unwrap()),
        result::Error(error) => Err(Error::read(error.unwrap())),
    }
}

pub(crate) struct Client {
    pub(crate) bulkhead: bulkhead::Client,
    rpc: tokio::task::JoinHandle<()>,
}

impl Client {
    pub(crate) async fn silent(directory: &Path) -> Self {
        let stream = tokio::net::UnixStream::connect(directory.join(KERNEL_SOCKET)).await.unwrap();
        let (reader, writer) = stream.into_split();
        let network = twoparty::VatNetwork::new(
            reader.compat(),
            writer.compat_write(),
            Side::Client,
            Default::default(),
        );
        let mut system = RpcSystem::new(Box::new(network), None);
        let bulkhead = system.bootstrap(Side::Server);
        let rpc = tokio::task::spawn_local(async move { drop(system.await) });
        Self { bulkhead, rpc }
    }

    pub(crate) async fn hello(&self, version: u32) -> Result<String, Error> {
        let mut request = self.bulkhead.hello_request();
        request.get().set_version(version);
        request.get().set_client("test");
        let response = request.send().promise.await.unwrap();
        let welcome = read(response.get().unwrap().get_result())?;
        Ok(welcome.get_descriptor_socket().unwrap().to_string().unwrap())
    }

    /// A client that has said hello.
    pub(crate) async fn new(directory: &Path) -> Self {
        let client = Self::silent(directory).await;
        client.hello(limits::PROTOCOL_VERSION).await.unwrap();
        client
    }

    pub(crate) async fn open(&self, name: &str) -> Result<Session, Error> {
        let mut request = self.bulkhead.open_session_request();
        request.get().set_name(name);
        let response = request.send().promise.await.unwrap();
        let opened = read(response.get().unwrap().get_result())?;
        Ok(Session::read(opened))
    }

    /// The same, on terms.
    pub(crate) async fn open_with(&self, name: &str, priority: i32, keep_resident: bool) -> Session {
        let mut request = self.bulkhead.open_session_request();
        request.get().set_name(name);
        let mut terms = request.get().init_terms();
        terms.set_priority(priority);
        terms.set_keep_resident(keep_resident);
        let response = request.send().promise.await.unwrap();
        Session::read(read(response.get().unwrap().get_result()).unwrap())
    }

    pub(crate) async fn alive(&self) -> bool {
        let mut request = self.bulkhead.ping_request();
        request.get().set_value(42);
        match request.send().promise.await {
            Ok(response) => response.get().unwrap().get_value() == 42,
            Err(_) => false,
        }
    }

    pub(crate) async fn status(&self) -> Status {
        let response = self.bulkhead.status_request().send().promise.await.unwrap();
        let status = read(response.get().unwrap().get_result()).unwrap();
        let device = status.get_devices().unwrap().get(0);
        Status {
            charged_bytes: device.get_charged_bytes(),
            ledger: columns(device.get_ledger().unwrap()),
            unclaimed_bytes: device.get_unclaimed_bytes(),
            executor_starts: device.get_executor_starts(),
            swaps: (device.get_swap_outs(), device.get_swap_ins(), device.get_swapped_bytes()),
            sessions: status
                .get_sessions()
                .unwrap()
                .iter()
                .map(|session| SessionStatus {
                    id: session.get_id(),
                    ledger: columns(session.get_ledger().unwrap()),
                    buffer_bytes: session.get_buffer_bytes(),
                    arena_bytes: session.get_arena_bytes(),
                    host_bytes: session.get_host_bytes(),
                    capabilities: session.get_capabilities(),
                    lost: session.get_lost(),
                    parent: session.get_parent(),
                    priority: session.get_priority(),
                    granted: session.get_granted(),
                    quarantined_bytes: session.get_quarantined_bytes(),
                    swapped_bytes: session.get_swapped_bytes(),
                    swaps: session.get_swaps(),
                })
                .collect(),
        }
    }

    /// Ends the connection.
    pub(crate) fn leave(self) {
        self.rpc.abort();
    }
}

/// What is used of one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) used: u64,
    pub(crate) limit: u64,
}

pub(crate) fn columns(list: capnp::struct_list::Reader<'_, column::Owned>) -> Vec<Column> {
    let column = |column: column::Reader<'_>| Column {
        name: column.get_name().unwrap().to_string().unwrap(),
        used: column.get_used(),
        limit: column.get_limit(),
    };
    list.iter().map(column).collect()
}

/// How much is used of something.
pub(crate) fn used(ledger: &[Column], resource: Resource) -> u64 {
    ledger.iter().find(|column| column.name == resource.key()).unwrap().used
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) charged_bytes: u64,
    pub(crate) ledger: Vec<Column>,
    pub(crate) unclaimed_bytes: u64,
    pub(crate) executor_starts: u32,
    /// How often sessions were swapped out and in, and how much was moved.
    pub(crate) swaps: (u32, u32, u64),
    pub(crate) sessions: Vec<SessionStatus>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionStatus {
    pub(crate) id: u32,
    pub(crate) ledger: Vec<Column>,
    pub(crate) buffer_bytes: u64,
    pub(crate) arena_bytes: u64,
    pub(crate) host_bytes: u64,
    pub(crate) capabilities: u32,
    pub(crate) lost: bool,
    pub(crate) parent: u32,
    pub(crate) priority: i32,
    pub(crate) granted: u32,
    pub(crate) quarantined_bytes: u64,
    pub(crate) swapped_bytes: u64,
    pub(crate) swaps: u32,
}

/// How many connections the kernel has open, as the system counts them.
pub(crate) fn open_connections(directory: &Path) -> usize {
    let path = directory.join(KERNEL_SOCKET);
    let table = std::fs::read_to_string("/proc/net/unix").unwrap();
    let ends = table.lines().filter(|line| line.ends_with(path.to_str().unwrap())).count();
    // One of them is the socket that listens.
    ends - 1
}

/// Waits until nothing is charged and no session is left.
pub(crate) async fn everything_given_back(directory: &Path) {
    let client = Client::new(directory).await;
    until(async || {
        let status = client.status().await;
        status.charged_bytes == 0
            && status.sessions.is_empty()
            && status.ledger.iter().all(|column| column.used == 0)
            && open_connections(directory) == 1
    })
    .await;
}

pub(crate) struct Session {
    pub(crate) client: gpu_session::Client,
    pub(crate) id: u32,
    pub(crate) base: u64,
    pub(crate) ring: [u8; 16],
}

pub(crate) struct Buffer {
    pub(crate) client: gpu_buffer::Client,
    pub(crate) handle: Handle,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

impl Buffer {
    pub(crate) fn view(&self) -> gpu_buffer_view::Client {
        gpu_buffer_view::Client { client: self.client.client.clone() }
    }

    pub(crate) fn capability(&self) -> gpu_capability::Client {
        gpu_capability::Client { client: self.client.client.clone() }
    }
}

impl Session {
    pub(crate) fn read(opened: session_opened::Reader<'_>) -> Self {
        Self {
            client: opened.get_session().unwrap(),
            id: opened.get_id(),
            base: opened.get_window_base(),
            ring: token_bytes(opened.get_ring().unwrap()),
        }
    }

    /// The session, without the methods that load code.
    pub(crate) fn copying(&self) -> gpu_copy_session::Client {
        gpu_copy_session::Client { client: self.client.client.clone() }
    }

    pub(crate) async fn allocate(&self, bytes: u64) -> Result<Buffer, Error> {
        let mut request = self.copying().allocate_request();
        request.get().set_bytes(bytes);
        let response = request.send().promise.await.unwrap();
        let created = read(response.get().unwrap().get_result())?;
        Ok(Buffer {
            client: created.get_buffer().unwrap(),
            handle: Handle::read(created.get_handle().unwrap()),
            address: created.get_address(),
            bytes: created.get_bytes(),
        })
    }

    pub(crate) async fn allocate_host(&self, bytes: u64) -> Result<(Buffer, [u8; 16]), Error> {
        self.allocate_any_host(bytes, false).await
    }

    /// Host memory that kernels reach.
    pub(crate) async fn allocate_mapped(&self, bytes: u64) -> Result<Buffer, Error> {
        self.allocate_any_host(bytes, true).await.map(|(buffer, _)| buffer)
    }

    async fn allocate_any_host(&self, bytes: u64, mapped: bool) -> Result<(Buffer, [u8; 16]), Error> {
        let mut request = self.copying().allocate_host_request();
        request.get().set_bytes(bytes);
        request.get().set_mapped(mapped);
        let response = request.send().promise.await.unwrap();
        let created = read(response.get().unwrap().get_result())?;
        let buffer = Buffer {
            client: created.get_buffer().unwrap(),
            handle: Handle::read(created.get_handle().unwrap()),
            address: created.get_address(),
            bytes: created.get_bytes(),
        };
        Ok((buffer, token_bytes(created.get_memory().unwrap())))
    }

    pub(crate) async fn offer(&self, bytes: u64) -> Result<[u8; 16], Error> {
        let mut request = self.client.offer_image_request();
        request.get().set_bytes(bytes);
        let response = request.send().promise.await.unwrap();
        read(response.get().unwrap().get_result()).map(token_bytes)
    }

    pub(crate) async fn memory(&self) -> Result<(u64, u64), Error> {
        let response = self.copying().memory_request().send().promise.await.unwrap();
        let memory = read(response.get().unwrap().get_result())?;
        Ok((memory.get_free_bytes(), memory.get_total_bytes()))
    }

    pub(crate) async fn close(&self) -> Result<(), Error> {
        let response = self.copying().close_request().send().promise.await.unwrap();
        read(response.get().unwrap().get_result()).map(drop)
    }
}

pub(crate) fn token_bytes(token: token::Reader<'_>) -> [u8; 16] {
    (u128::from(token.get_high()) << 64 | u128::from(token.get_low())).to_le_bytes()
}

pub(crate) fn set_token(mut builder: token::Builder<'_>, bytes: [u8; 16]) {
    builder.set_low(u64::from_le_bytes(bytes[..8].try_into().unwrap()));
    builder.set_high(u64::from_le_bytes(bytes[8..].try_into().unwrap()));
}

/// A connection to the descriptor socket.
pub(crate) fn descriptor_socket(directory: &Path) -> OwnedFd {
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .unwrap();
    rustix::net::connect(&socket, &SocketAddrUnix::new(directory.join(DESCRIPTOR_SOCKET)).unwrap()).unwrap();
    socket
}

/// One exchange on the descriptor socket: the answer, and what came with it. `None` where the kernel hung up.
pub(crate) fn exchange(
    socket: &OwnedFd,
    packet: &[u8],
    descriptor: Option<&OwnedFd>,
) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<_> = descriptor.iter().map(|descriptor| descriptor.as_fd()).collect();
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(packet)], &mut control, SendFlags::NOSIGNAL).ok()?;
    let mut buffer = [0; 64];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut buffer)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )
    .ok()?;
    let mut received_descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            received_descriptors.extend(rights);
        }
    }
    (received.bytes > 0).then(|| (buffer[..received.bytes].to_vec(), received_descriptors))
}

/// Makes a directory only its owner may enter.
pub(crate) fn make_private(directory: &Path) {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).unwrap();
}
