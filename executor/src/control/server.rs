//! The main thread: reads the kernel's requests and hands them to the sessions.

use std::{
    os::fd::{AsFd, OwnedFd, RawFd},
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use bulkhead_gpu::{Error as DeviceError, Gpu, Taken};
use bulkhead_mm::Range;
use bulkhead_schema::{Error, ErrorCode, Handle, executor_capnp::request, limits};
use rustix::process::Resource;

use crate::{
    control::{
        decode::{self, Asked, Meant, OfModule},
        job::{Ask, Change, Job, Reserved, Span, Target},
        link::{Link, answer, report},
        lost::lose_device,
        modules, open,
    },
    device::{self, Options},
    executor::{Executor, Known, Tenancy},
    images::cache::{Cache, CacheOptions},
    sandbox,
    session::{Ender, spawn},
    watch::{patience::Patience, profile, pulse, warden},
};

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

/// Descriptors that the system's table has room for from the start; beyond them it grows.
const DESCRIPTORS_AT_FIRST: u64 = 1 << 16;

/// Has the system make the table of descriptors while there is one thread: beside others, whoever opens one when the table is
/// full waits until all processors have come by, for seconds on a busy machine.
fn make_room_for_descriptors() -> std::io::Result<()> {
    let most = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let last = most.min(DESCRIPTORS_AT_FIRST).saturating_sub(1);
    let number = RawFd::try_from(last).map_err(std::io::Error::other)?;
    drop(rustix::io::fcntl_dupfd_cloexec(std::io::stderr(), number)?);
    Ok(())
}

/// Runs an executor on `socket` until the kernel closes it.
///
/// # Errors
/// Where the device does not open or the socket fails. The loss of the context ends the process with
/// [`EXIT_DEVICE_LOST`](crate::EXIT_DEVICE_LOST).
pub fn run(socket: OwnedFd, options: impl Into<Options>, patience: Patience) -> Result<(), RunError> {
    let Options {
        backend,
        mut software,
        cache,
        assembler,
        profile,
        sanitize,
        guard,
        isolated,
        launch_singly,
    } = options.into();
    if let Err(error) = make_room_for_descriptors() {
        tracing::warn!(%error, "there is no room for many descriptors: sessions may have to wait for some");
    }
    if let Some(path) = profile {
        software.profiler = Some(profile::serve(&path)?);
    }
    if let Some(sanitize) = sanitize {
        software.sanitizer = Some(sanitize.serve()?);
    }
    let begun = Instant::now();
    let gpu = backend.open(software, assembler, isolated)?;
    tracing::debug!(ms = begun.elapsed().as_millis(), "the device is open");
    let cache = cache.and_then(open_cache);
    gpu.bind_thread()?;
    let link = Link::new(socket);
    let tenancy = match isolated {
        true => Tenancy::One { runs: !launch_singly },
        false => Tenancy::Shared,
    };
    watch(Arc::clone(&gpu), link.clone())?;
    let (executor, remains, freeing) = Executor::new(gpu, link, patience, guard, tenancy, cache)?;
    {
        let (weak, gpu) = (Arc::downgrade(&executor), Arc::clone(&executor.gpu));
        thread::Builder::new().name("reaper".into()).spawn(move || remains.run(&weak, &*gpu))?;
        thread::Builder::new().name("free".into()).spawn(move || freeing.run())?;
        let (weak, gpu) = (Arc::downgrade(&executor), Arc::clone(&executor.gpu));
        thread::Builder::new().name("warden".into()).spawn(move || warden::run(&weak, &*gpu))?;
        let (weak, link) = (Arc::downgrade(&executor.pulse), executor.link.clone());
        thread::Builder::new().name("pulse".into()).spawn(move || pulse::run(&weak, &link))?;
        let executor = Arc::clone(&executor);
        thread::Builder::new().name("warm".into()).spawn(move || executor.slots.keep_warm())?;
    }
    if isolated {
        sandbox::take_calls()?;
    }
    tracing::debug!(ms = begun.elapsed().as_millis(), "the executor is ready");
    let server = Server { executor };
    let mut buffer = vec![0; limits::PACKET_BYTES_MAX];
    while let Some(received) = server.executor.link.receive(&mut buffer)? {
        server.packet(&buffer[..received.bytes], received.descriptor, received.lost);
    }
    tracing::info!("the kernel is gone");
    server.executor.stop();
    Ok(())
}

/// A folder that cannot be used costs time, and no more.
fn open_cache(options: CacheOptions) -> Option<Cache> {
    let folder = options.folder.clone();
    let opened = Cache::open(options);
    opened.inspect_err(|error| tracing::warn!(%error, folder = %folder.display(), "no image is kept")).ok()
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

struct Server {
    executor: Arc<Executor>,
}

impl Server {
    /// One request. The kernel is trusted, so one that does not decode is a bug, and answered as such.
    fn packet(&self, bytes: &[u8], descriptor: Option<OwnedFd>, lost: bool) {
        let options = capnp::message::ReaderOptions::new();
        let decoded = capnp::serialize::read_message(bytes, options);
        let handled = decoded.and_then(|message| {
            let request = message.get_root::<request::Reader<'_>>()?;
            let id = request.get_id();
            if lost {
                let error =
                    Error::new(ErrorCode::LimitReached, "the executor has no place for more descriptors");
                answer(&self.executor.link, id, &Err(error.remedy("try again when others were closed")));
                return Ok(());
            }
            self.request(request, descriptor).inspect_err(|error| {
                let error =
                    Error::new(ErrorCode::Internal, format!("a request that does not decode: {error}"));
                answer(&self.executor.link, id, &Err(error));
            })
        });
        if let Err(error) = handled {
            tracing::error!(%error, "a request that does not decode");
        }
    }

    fn request(&self, request: request::Reader<'_>, descriptor: Option<OwnedFd>) -> capnp::Result<()> {
        let id = request.get_id();
        let done = match decode::request(request, descriptor)? {
            Asked::Describe => self.describe(id),
            Asked::Activity => self.activity(id),
            Asked::Taken => self.taken(id),
            Asked::Open { session, slot, ring, reserved } => self.open(id, session, slot, ring, reserved),
            Asked::End { session, why } => self.end(id, session, why),
            Asked::Share { from, arena, to, at } => self.share(id, from, arena, to, at),
            Asked::Bind { session, bindings } => self.bind(id, session, bindings),
            Asked::Module(ask) => self.module(id, ask),
            Asked::Of { session, ask } => self.job(session, Job { id, ask }),
        };
        if let Err(error) = done {
            answer(&self.executor.link, id, &Err(error));
        }
        Ok(())
    }

    fn describe(&self, id: u64) -> Result<(), Error> {
        let (info, guard) = (self.executor.gpu.info(), self.executor.guard);
        report(
            self.executor.link.reply(id, None, |reply| device::describe(info, guard, reply.init_device())),
        );
        Ok(())
    }

    fn activity(&self, id: u64) -> Result<(), Error> {
        let sessions = self.executor.sessions();
        let now = self.executor.now_ns();
        report(self.executor.link.reply(id, None, |reply| {
            let count = u32::try_from(sessions.len()).unwrap_or(u32::MAX);
            let mut list = reply.init_activity(count);
            for (index, session) in (0..count).zip(&sessions) {
                let mut activity = list.reborrow().get(index);
                activity.set_session(session.id);
                // First what is in flight: whoever has submitted it has noted when.
                let mut state = session.state.lock();
                let stuck = state.busy.stuck.map_or(0, |since| since.elapsed().as_millis());
                activity.set_in_flight(state.streams.in_flight());
                drop(state);
                activity.set_stuck_ms(u32::try_from(stuck).unwrap_or(u32::MAX));
                activity.set_idle_ns(now.saturating_sub(session.submitted_ns.load(Ordering::Relaxed)));
            }
        }));
        Ok(())
    }

    /// What each process has taken of the device. On a thread of its own: the driver's management may take its time.
    fn taken(&self, id: u64) -> Result<(), Error> {
        let executor = Arc::clone(&self.executor);
        let tell = move || {
            let link = &executor.link;
            match executor.gpu.taken_memory() {
                Ok(Taken { in_all, by_processes }) => report(link.reply(id, None, |reply| {
                    let told: Vec<_> = in_all.map(|all| (0, all)).into_iter().chain(by_processes).collect();
                    let count = u32::try_from(2 * told.len()).unwrap_or(0);
                    let words = told.into_iter().flat_map(|(process, bytes)| [u64::from(process), bytes]);
                    let mut list = reply.init_words(count);
                    (0..count).zip(words).for_each(|(at, word)| list.set(at, word));
                })),
                Err(error) => answer(link, id, &Err(device::error(&error))),
            }
        };
        spawn("taken".to_owned(), tell).map(drop)
    }

    /// Opens a session on a thread of its own: filling its slot may take a while.
    fn open(
        &self,
        id: u64,
        session: u32,
        slot: u32,
        ring: Option<OwnedFd>,
        reserved: Reserved,
    ) -> Result<(), Error> {
        if !self.executor.is_isolated() && self.executor.gpu.info().pageable_memory_access() {
            let why = "kernels could follow pointers into the memory of everybody's executor (HMM)";
            return Err(Error::new(ErrorCode::NotSupported, why));
        }
        let slot = self
            .executor
            .slots
            .slot(slot)
            .ok_or_else(|| Error::new(ErrorCode::InvalidArgument, "no such slot"))?;
        if self.executor.sessions.lock().contains_key(&session) {
            return Err(Error::new(ErrorCode::InvalidArgument, "the session exists"));
        }
        let executor = Arc::clone(&self.executor);
        let open = move || {
            let link = &executor.link;
            let full = || {
                let error = Error::new(ErrorCode::LimitReached, "too much waits for the device to be idle");
                error.remedy("try again when the kernels that run now have ended")
            };
            let room = executor.reaper.has_room_for_a_session().then_some(()).ok_or_else(full);
            let opened =
                room.and_then(|()| executor.gpu.bind_thread().map_err(|error| device::error(&error)));
            match opened.and_then(|()| open::open(&executor, session, slot, ring.as_ref(), reserved)) {
                Ok(page) => report(link.reply(id, Some(page.as_fd()), |mut reply| reply.set_opened(()))),
                Err(error) => answer(link, id, &Err(error)),
            }
        };
        spawn(format!("open-{session}"), open).map(drop)
    }

    /// Ends a session's kernels, and whoever waits for them. It is closed afterwards, when what is changing has come to an end.
    fn end(&self, id: u64, session: u32, why: Error) -> Result<(), Error> {
        self.known(session)?.session.end(Ender::Kernel, why);
        answer(&self.executor.link, id, &Ok(()));
        Ok(())
    }

    /// Maps one session's memory in another, whose control thread does it.
    fn share(&self, id: u64, from: u32, arena: Span, to: u32, at: Span) -> Result<(), Error> {
        let refused = |what: &str| Error::new(ErrorCode::InvalidArgument, what);
        let owner = self.known(from)?.session.slot;
        let range = Range::new(bulkhead_mm::DeviceAddress(arena.at), arena.bytes);
        let has = |range| owner.range().contains(range) || owner.shelf().contains(range);
        if !range.is_some_and(has) {
            return Err(refused("the arena does not lie in its session's slot"));
        }
        let known = self.known(to)?;
        if at.bytes != arena.bytes {
            return Err(refused("memory is shared whole"));
        }
        let mapping = self.executor.pieces.hold(arena.at, arena.bytes);
        let mapping = mapping.ok_or_else(|| refused("there is no such arena"))?;
        let ask = Ask::Change(Change::Share { at: at.at, mapping });
        known.jobs.send(Job { id, ask }).map_err(|_| over())
    }

    /// What concerns a module. What the device has to do for it is done on a thread of its own.
    fn module(&self, id: u64, ask: OfModule) -> Result<(), Error> {
        let executor = Arc::clone(&self.executor);
        let done = match ask {
            OfModule::Grant { module, session, caller, badge } => {
                let session = self.known(session)?.session;
                let module = executor.modules.get(module)?;
                session.state.lock().grants.grant(module, caller, badge)
            }
            OfModule::Revoke { module, session } => {
                self.known(session)?.session.state.lock().grants.revoke(module)
            }
            OfModule::Add { .. }
            | OfModule::Export { .. }
            | OfModule::Adopt { .. }
            | OfModule::Map { .. }
            | OfModule::Watch { .. }
            | OfModule::Close { .. }
            | OfModule::Remove { .. }
            | OfModule::Read { .. }
            | OfModule::Write { .. } => {
                let work = move || modules::serve(&executor, id, ask);
                return spawn("module".to_owned(), work).map(drop);
            }
        };
        answer(&self.executor.link, id, &done);
        Ok(())
    }

    fn bind(&self, id: u64, session: u32, bindings: Vec<(Handle, Meant)>) -> Result<(), Error> {
        let target = |(handle, meant)| {
            let target = match meant {
                Meant::Buffer { span, writable } => Target::Buffer { span, writable },
                Meant::Entry { session, handle } => {
                    Target::Entry(Box::new(self.executor.entry(session, handle)?))
                }
            };
            Ok((handle, target))
        };
        let bindings = bindings.into_iter().map(target).collect::<Result<_, Error>>()?;
        self.job(session, Job { id, ask: Ask::Bind(bindings) })
    }

    fn known(&self, session: u32) -> Result<Known, Error> {
        let sessions = self.executor.sessions.lock();
        let known = sessions.get(&session).cloned();
        known.ok_or_else(|| Error::new(ErrorCode::SessionLost, "no such session"))
    }

    fn job(&self, session: u32, job: Job) -> Result<(), Error> {
        let closes = matches!(job.ask, Ask::Close);
        let known = self.known(session)?;
        if closes {
            self.executor.closing.fetch_add(1, Ordering::AcqRel);
            self.executor.sessions.lock().remove(&session);
        }
        known.jobs.send(job).map_err(|_| over())
    }
}

fn over() -> Error {
    Error::new(ErrorCode::SessionLost, "the session is over")
}
