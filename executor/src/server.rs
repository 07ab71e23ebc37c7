//! The main thread: reads the kernel's requests and hands them to the sessions.

use std::{
    collections::HashMap,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use bulkhead_gpu::{Error as DeviceError, Gpu};
use bulkhead_mm::Slot;
use bulkhead_schema::{
    Error, ErrorCode, Handle,
    executor_capnp::{binding, request},
    limits,
};
use parking_lot::Mutex;

use crate::{
    device::{self, Backend},
    link::Link,
    session::{self, Job, report},
};

/// Exit status of an executor whose context was lost.
pub const EXIT_DEVICE_LOST: i32 = 70;

/// How often the context is asked whether it lives.
const WATCH: Duration = Duration::from_millis(5);

/// Why an executor stops.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The device does not open.
    #[error("{0}")]
    Device(#[from] DeviceError),
    /// The socket to the kernel.
    #[error("the socket to the kernel: {0}")]
    Socket(#[from] std::io::Error),
}

/// Runs an executor on `socket` until the kernel closes it.
///
/// # Errors
/// Where the device does not open or the socket fails. The loss of the context ends the process with
/// [`EXIT_DEVICE_LOST`].
pub fn run(socket: OwnedFd, backend: Backend) -> Result<(), RunError> {
    let gpu = backend.open()?;
    gpu.bind_thread()?;
    let link = Link::new(socket);
    watch(Arc::clone(&gpu), link.clone())?;
    let mut server = Server { gpu, link, sessions: Sessions::default() };
    let mut buffer = vec![0; limits::PACKET_BYTES_MAX];
    while let Some((bytes, descriptor)) = server.link.receive(&mut buffer)? {
        server.packet(&buffer[..bytes], descriptor);
    }
    tracing::info!("the kernel is gone");
    Ok(())
}

/// A thread that notices a fault while nobody calls the device.
fn watch(gpu: Arc<dyn Gpu>, link: Link) -> Result<(), RunError> {
    thread::Builder::new().name("watch".into()).spawn(move || {
        if gpu.bind_thread().is_err() {
            return;
        }
        loop {
            if let Err(error @ DeviceError::Lost { .. }) = gpu.check() {
                lose_device(&link, &error);
            }
            thread::sleep(WATCH);
        }
    })?;
    Ok(())
}

/// The context is dead: says so to the kernel and ends the process. Does not return.
pub(crate) fn lose_device(link: &Link, error: &DeviceError) -> ! {
    let error = device::error(error);
    tracing::error!(%error, "the device's context is lost");
    report(link.reply(0, None, |reply| error.write(reply.init_error())));
    std::process::exit(EXIT_DEVICE_LOST)
}

/// Where each session's jobs go.
type Sessions = Arc<Mutex<HashMap<u32, mpsc::Sender<Job>>>>;

struct Server {
    gpu: Arc<dyn Gpu>,
    link: Link,
    sessions: Sessions,
}

impl Server {
    /// One request. The kernel is trusted, so one that does not decode is a bug, and answered as such.
    fn packet(&mut self, bytes: &[u8], descriptor: Option<OwnedFd>) {
        let options = capnp::message::ReaderOptions::new();
        let decoded = capnp::serialize::read_message(bytes, options);
        let handled = decoded.and_then(|message| {
            let request = message.get_root::<request::Reader<'_>>()?;
            self.request(request, descriptor)
        });
        if let Err(error) = handled {
            tracing::error!(%error, "a request that does not decode");
        }
    }

    fn request(&mut self, request: request::Reader<'_>, descriptor: Option<OwnedFd>) -> capnp::Result<()> {
        let id = request.get_id();
        match self.dispatch(id, request, descriptor)? {
            Ok(()) => {}
            Err(error) => report(self.link.reply(id, None, |reply| error.write(reply.init_error()))),
        }
        Ok(())
    }

    fn dispatch(
        &mut self,
        id: u64,
        request: request::Reader<'_>,
        descriptor: Option<OwnedFd>,
    ) -> capnp::Result<Result<(), Error>> {
        let descriptor = || descriptor.ok_or_else(|| capnp::Error::failed("no descriptor".into()));
        let name = |name: bulkhead_schema::executor_capnp::name::Reader<'_>| {
            Ok::<_, capnp::Error>((name.get_session(), Handle::read(name.get_handle()?)))
        };
        Ok(match request.which()? {
            request::Describe(()) => {
                report(
                    self.link.reply(id, None, |reply| device::describe(self.gpu.info(), reply.init_device())),
                );
                Ok(())
            }
            request::OpenSession(open) => {
                let open = open?;
                let (session, slot, ring) = (open.get_session(), open.get_slot(), descriptor()?);
                self.open(id, session, slot, ring)
            }
            request::CloseSession(session) => {
                let closed = self.job(session, Job::Close { id });
                self.sessions.lock().remove(&session);
                closed
            }
            request::MapArena(range) => {
                let range = range?;
                let (at, bytes) = (range.get_address(), range.get_bytes());
                self.job(range.get_session(), Job::MapArena { id, at, bytes })
            }
            request::UnmapArena(range) => {
                let range = range?;
                let (at, bytes) = (range.get_address(), range.get_bytes());
                self.job(range.get_session(), Job::UnmapArena { id, at, bytes })
            }
            request::Bind(bind) => {
                let bind = bind?;
                let binding = bind.get_bindings()?.get(0);
                let handle = Handle::read(binding.get_handle()?);
                match binding.which()? {
                    binding::Buffer(buffer) => {
                        let buffer = buffer?;
                        let (at, bytes) = (buffer.get_address(), buffer.get_bytes());
                        self.job(bind.get_session(), Job::BindBuffer { id, handle, at, bytes })
                    }
                    binding::Entry(_) => Err(Error::new(ErrorCode::NotSupported, "not there yet")),
                }
            }
            request::RegisterHost(host) => {
                let host = host?;
                let (session, handle) = name(host.get_name()?)?;
                let (bytes, descriptor) = (host.get_bytes(), descriptor()?);
                self.job(session, Job::RegisterHost { id, handle, bytes, descriptor })
            }
            request::Unbind(unbind) => {
                let unbind = unbind?;
                let handle = Handle::read(unbind.get_handles()?.get(0));
                self.job(unbind.get_session(), Job::Unbind { id, handle })
            }
            request::Drain(session) => self.job(session, Job::Drain { id }),
            request::LoadImage(image) => {
                let image = image?;
                let (session, handle) = name(image.get_name()?)?;
                let entries = image.get_entries()?.iter().map(Handle::read).collect();
                self.job(session, Job::Load { id, handle, entries, descriptor: descriptor()? })
            }
            request::UnloadImage(image) => {
                let (session, handle) = name(image?)?;
                self.job(session, Job::Unload { id, handle })
            }
            request::AllowDynamicShared(allow) => {
                let allow = allow?;
                let (session, handle) = name(allow.get_name()?)?;
                self.job(session, Job::AllowDynamicShared { id, handle, bytes: allow.get_bytes() })
            }
            request::Fence(fence) => {
                let fence = fence?;
                let (stream, position) = (fence.get_stream(), fence.get_position());
                self.job(fence.get_session(), Job::Fence { id, stream, position })
            }
            request::Share(_)
            | request::Split(_)
            | request::ExportArena(_)
            | request::AdoptArena(_)
            | request::Resume(_)
            | request::SwapArea(_)
            | request::SwapOut(_)
            | request::SwapIn(_)
            | request::Activity(()) => Err(Error::new(ErrorCode::NotSupported, "not there yet")),
        })
    }

    /// Opens a session on a thread of its own: scrubbing its sink may have to wait for a full device.
    fn open(&self, id: u64, session: u32, slot: u32, ring: OwnedFd) -> Result<(), Error> {
        let slot = Slot::new(slot).ok_or_else(|| Error::new(ErrorCode::Internal, "no such slot"))?;
        if self.sessions.lock().contains_key(&session) {
            return Err(Error::new(ErrorCode::Internal, "the session exists"));
        }
        let (gpu, link, sessions) = (Arc::clone(&self.gpu), self.link.clone(), Arc::clone(&self.sessions));
        let open = move || {
            let opened = gpu.bind_thread().map_err(|error| device::error(&error));
            match opened.and_then(|()| session::open(&gpu, &link, session, slot, &ring)) {
                Ok((jobs, page)) => {
                    sessions.lock().insert(session, jobs);
                    report(link.reply(id, Some(page.as_fd()), |mut reply| reply.set_opened(())));
                }
                Err(error) => report(link.reply(id, None, |reply| error.write(reply.init_error()))),
            }
        };
        let thread = thread::Builder::new().name(format!("open-{session}")).spawn(open);
        thread.map(drop).map_err(|error| Error::new(ErrorCode::LimitReached, format!("no thread: {error}")))
    }

    fn job(&self, session: u32, job: Job) -> Result<(), Error> {
        let sessions = self.sessions.lock();
        let session = sessions.get(&session);
        let session = session.ok_or_else(|| Error::new(ErrorCode::SessionLost, "no such session"))?;
        session.send(job).map_err(|_| Error::new(ErrorCode::SessionLost, "the session is over"))
    }
}
