//! One session on the device: its state, and the control thread that changes it as the kernel asks.
//!
//! *Pause* is holding the session's state: the pump needs it to submit, so whoever holds it and has seen the
//! session's streams run dry may change pages.

use std::{
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use bulkhead_gpu::{Gpu, HostAddress, HostRange, ImageId};
use bulkhead_mm::{Range, Slot};
use bulkhead_ring::{
    CompletionWriter, Consumer, Ended,
    memory::{Completion, Ring, Shared},
};
use bulkhead_schema::{Error, ErrorCode, Handle, limits};
use parking_lot::Mutex;

use crate::{
    bindings::{Bindings, Object},
    device,
    link::Link,
    load::{self, Loaded},
    memory::SlotMemory,
    pump::{self, Waiter},
    records::Events,
    streams::Streams,
};

/// How often somebody who waits for the device looks.
const LOOK: Duration = Duration::from_micros(50);

/// What the pump and the control thread share.
pub(crate) struct State {
    pub(crate) gpu: Arc<dyn Gpu>,
    pub(crate) slot: Slot,
    pub(crate) bindings: Bindings,
    pub(crate) streams: Streams,
    pub(crate) events: Events,
    pub(crate) waiters: Vec<Waiter>,
    memory: Option<SlotMemory>,
}

impl State {
    /// A state without memory.
    pub(crate) fn bare(gpu: Arc<dyn Gpu>, slot: Slot, streams: Streams) -> Self {
        Self {
            gpu,
            slot,
            bindings: Bindings::default(),
            streams,
            events: Events::default(),
            waiters: Vec::new(),
            memory: None,
        }
    }
}

/// A session's state and what its threads need besides.
pub(crate) struct Session {
    pub(crate) id: u32,
    pub(crate) state: Mutex<State>,
    /// Set once the pump takes no more records.
    pub(crate) stopping: AtomicBool,
    pub(crate) link: Link,
}

/// What the kernel asks of a session.
pub(crate) enum Job {
    MapArena {
        id: u64,
        at: u64,
        bytes: u64,
    },
    UnmapArena {
        id: u64,
        at: u64,
        bytes: u64,
    },
    BindBuffer {
        id: u64,
        handle: Handle,
        at: u64,
        bytes: u64,
    },
    RegisterHost {
        id: u64,
        handle: Handle,
        bytes: u64,
        descriptor: std::os::fd::OwnedFd,
    },
    Unbind {
        id: u64,
        handle: Handle,
    },
    Drain {
        id: u64,
    },
    Load {
        id: u64,
        handle: Handle,
        entries: Vec<Handle>,
        descriptor: std::os::fd::OwnedFd,
    },
    Unload {
        id: u64,
        handle: Handle,
    },
    AllowDynamicShared {
        id: u64,
        handle: Handle,
        bytes: u32,
    },
    Fence {
        id: u64,
        stream: u32,
        position: u64,
    },
    /// Host memory that nothing on the device uses any more.
    Unregister(Arc<Shared>),
    /// An image none of whose entries is bound or queued any more.
    UnloadNow {
        id: u64,
        image: ImageId,
    },
    /// What was waited for has passed.
    Answer {
        id: u64,
    },
    Close {
        id: u64,
    },
}

/// Opens a session: slot, completion page, threads. Returns where its jobs go, and the page's descriptor for the
/// client.
pub(crate) fn open(
    gpu: &Arc<dyn Gpu>,
    link: &Link,
    id: u32,
    slot: Slot,
    ring: &std::os::fd::OwnedFd,
) -> Result<(mpsc::Sender<Job>, std::os::fd::OwnedFd), Error> {
    let broken =
        |what: &str, error: std::io::Error| Error::new(ErrorCode::Internal, format!("{what}: {error}"));
    let ring = Ring::map(ring.as_fd()).map_err(|error| broken("the ring", error))?;
    let (page, descriptor) = Completion::create().map_err(|error| broken("the completion page", error))?;
    let device = |error| device::error(&error);
    let (page_at, page_bytes) = page.range();
    let range = HostRange { at: HostAddress(page_at), bytes: page_bytes };
    let mut streams = Streams::new(Arc::clone(gpu), CompletionWriter::new(page), page_at);
    streams.create(0, 0, gpu.info()).map_err(device)?;
    let memory = gpu
        .register_host(range)
        .and_then(|()| SlotMemory::open(gpu, slot).inspect_err(|_| undo(gpu.unregister_host(range))));
    let memory = memory.inspect_err(|_| undo(streams.destroy_all())).map_err(device)?;

    let session = Arc::new(Session {
        id,
        state: Mutex::new(State { memory: Some(memory), ..State::bare(Arc::clone(gpu), slot, streams) }),
        stopping: AtomicBool::new(false),
        link: link.clone(),
    });
    let (jobs, receiver) = mpsc::channel();
    let consumer = Consumer::new(ring);
    let waker = consumer.waker();
    let pump = {
        let (session, jobs) = (Arc::clone(&session), jobs.clone());
        spawn(format!("pump-{id}"), move || pump::run(&session, consumer, &jobs))?
    };
    let control = Control { session: Arc::clone(&session), range, waker, pump: Some(pump) };
    spawn(format!("control-{id}"), move || control.run(&receiver))?;
    Ok((jobs, descriptor))
}

/// Reports what could not be undone.
fn undo(undone: Result<(), bulkhead_gpu::Error>) {
    if let Err(error) = undone {
        tracing::error!(%error, "a session that did not open leaves something behind");
    }
}

fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> Result<thread::JoinHandle<()>, Error> {
    let thread = thread::Builder::new().name(name).spawn(run);
    thread.map_err(|error| Error::new(ErrorCode::LimitReached, format!("no thread for the session: {error}")))
}

struct Control {
    session: Arc<Session>,
    range: HostRange,
    waker: bulkhead_ring::Waker,
    pump: Option<thread::JoinHandle<()>>,
}

impl Control {
    fn run(mut self, jobs: &mpsc::Receiver<Job>) {
        if let Err(error) = self.session.state.lock().gpu.bind_thread() {
            tracing::error!(%error, "control thread");
        }
        while let Ok(job) = jobs.recv() {
            if let Job::Close { id } = job {
                let closed = self.close(jobs);
                self.answer(id, closed);
                // The main thread forgets the session when it hands the close on: nothing follows.
                return;
            }
            self.job(job);
            self.waker.wake();
        }
    }

    fn job(&self, job: Job) {
        match job {
            Job::MapArena { id, at, bytes } => {
                let mapped = self.paused(|memory| memory.map_arena(at, bytes));
                self.answer(id, mapped);
            }
            Job::UnmapArena { id, at, bytes } => {
                let unmapped = self.paused(|memory| memory.unmap_arena(at, bytes));
                self.answer(id, unmapped);
            }
            Job::BindBuffer { id, handle, at, bytes } => {
                let bound = self.bind_buffer(handle, at, bytes);
                self.answer(id, bound);
            }
            Job::RegisterHost { id, handle, bytes, descriptor } => {
                let registered = self.register_host(handle, bytes, &descriptor);
                self.answer(id, registered);
            }
            Job::Unbind { id, handle } => {
                let object = self.session.state.lock().bindings.unbind(handle);
                match object {
                    Some(Object::Host(memory)) => self.when_drained(Waiter::unregister(memory)),
                    Some(Object::Buffer { .. } | Object::Entry(_) | Object::Image { .. }) | None => {}
                }
                self.answer(id, Ok(()));
            }
            Job::Drain { id } => self.when_drained(Waiter::reply(id)),
            Job::Fence { id, stream, position } => {
                self.session.state.lock().waiters.push(Waiter::fence(id, stream, position));
            }
            Job::Load { id, handle, entries, descriptor } => match self.load(handle, &entries, descriptor) {
                Ok(loaded) => {
                    let sent = self.session.link.reply(id, None, |reply| loaded.write(&entries, reply));
                    report(sent);
                }
                Err(error) => self.answer(id, Err(error)),
            },
            Job::Unload { id, handle } => match self.unbind_image(handle) {
                Ok(image) => self.when_drained(Waiter::unload(id, image)),
                Err(error) => self.answer(id, Err(error)),
            },
            Job::UnloadNow { id, image } => {
                let gpu = Arc::clone(&self.session.state.lock().gpu);
                let unloaded = gpu.unload(image).map_err(|error| device::error(&error));
                self.answer(id, unloaded);
            }
            Job::Answer { id } => self.answer(id, Ok(())),
            Job::AllowDynamicShared { id, handle, bytes } => {
                let mut state = self.session.state.lock();
                let gpu = Arc::clone(&state.gpu);
                let allowed = match state.bindings.entry(handle.slot, handle.generation) {
                    Some(entry) => {
                        gpu.allow_dynamic_shared(entry.id, bytes).map_err(|error| device::error(&error))
                    }
                    None => Err(Error::new(ErrorCode::InvalidHandle, "no such entry")),
                };
                drop(state);
                self.answer(id, allowed);
            }
            Job::Unregister(memory) => {
                let range = HostRange { at: HostAddress(memory.address()), bytes: memory.bytes() };
                let gpu = Arc::clone(&self.session.state.lock().gpu);
                if let Err(error) = gpu.unregister_host(range) {
                    tracing::error!(%error, "host memory stays registered");
                    std::mem::forget(memory);
                }
            }
            Job::Close { .. } => {}
        }
    }

    fn answer(&self, id: u64, result: Result<(), Error>) {
        let sent = self.session.link.reply(id, None, |mut reply| match &result {
            Ok(()) => reply.set_ok(()),
            Err(error) => error.write(reply.init_error()),
        });
        report(sent);
    }

    /// Pauses the session (see the module), changes its pages, and lets it go on.
    fn paused(
        &self,
        change: impl FnOnce(&mut SlotMemory) -> Result<(), bulkhead_gpu::Error>,
    ) -> Result<(), Error> {
        let device = |error| device::error(&error);
        let mut state = self.session.state.lock();
        let deadline = Instant::now() + Duration::from_secs(limits::DRAIN_SECONDS);
        state.streams.mark_all().map_err(device)?;
        // Held records are not submitted, so they do not count: only what the device has.
        while state.streams.in_flight() > 0 {
            if Instant::now() > deadline {
                return Err(Error::new(
                    ErrorCode::OutOfMemory,
                    "the session's memory cannot change: its kernels run on",
                )
                .remedy("allocate before launching kernels that run for long"));
            }
            state.gpu.check().map_err(device)?;
            thread::sleep(LOOK);
        }
        let memory = state.memory.as_mut();
        let memory = memory.ok_or_else(|| Error::new(ErrorCode::SessionLost, "the session is over"))?;
        change(memory).map_err(device)
    }

    fn bind_buffer(&self, handle: Handle, at: u64, bytes: u64) -> Result<(), Error> {
        let mut state = self.session.state.lock();
        let range = Range::new(bulkhead_mm::DeviceAddress(at), bytes);
        if !range.is_some_and(|range| state.slot.read_write().contains(range)) {
            return Err(Error::new(ErrorCode::Internal, "the buffer does not lie in the session's window"));
        }
        state.bindings.bind(handle, Object::Buffer { address: at, bytes }).ok_or_else(no_slot)
    }

    fn register_host(
        &self,
        handle: Handle,
        bytes: u64,
        descriptor: &std::os::fd::OwnedFd,
    ) -> Result<(), Error> {
        let bytes = usize::try_from(bytes).map_err(|_| Error::new(ErrorCode::OutOfMemory, "too large"))?;
        let memory = Shared::map(descriptor.as_fd(), bytes)
            .map_err(|error| Error::new(ErrorCode::OutOfMemory, format!("host memory: {error}")))?;
        let gpu = Arc::clone(&self.session.state.lock().gpu);
        let range = HostRange { at: HostAddress(memory.address()), bytes };
        gpu.register_host(range).map_err(|error| device::error(&error))?;
        let mut state = self.session.state.lock();
        state.bindings.bind(handle, Object::Host(Arc::new(memory))).ok_or_else(no_slot)
    }

    fn load(
        &self,
        handle: Handle,
        entries: &[Handle],
        descriptor: std::os::fd::OwnedFd,
    ) -> Result<Loaded, Error> {
        let state = self.session.state.lock();
        let (gpu, slot) = (Arc::clone(&state.gpu), state.slot);
        drop(state);
        let hidden = [slot.base_high(), slot.load_mask_high(), slot.store_mask_high()];
        let loaded = load::load(&*gpu, descriptor, entries.len(), hidden)?;
        let mut state = self.session.state.lock();
        for (handle, entry) in entries.iter().zip(&loaded.bound) {
            state.bindings.bind(*handle, Object::Entry(entry.clone())).ok_or_else(no_slot)?;
        }
        let image = Object::Image { id: loaded.id, entries: entries.to_vec() };
        state.bindings.bind(handle, image).ok_or_else(no_slot)?;
        Ok(loaded)
    }

    /// Makes an image's entries unreachable; what was submitted of them may still run.
    fn unbind_image(&self, handle: Handle) -> Result<ImageId, Error> {
        let mut state = self.session.state.lock();
        let Some(Object::Image { id, entries }) = state.bindings.unbind(handle) else {
            return Err(Error::new(ErrorCode::InvalidHandle, "no such image"));
        };
        for entry in entries {
            state.bindings.unbind(entry);
        }
        Ok(id)
    }

    /// Answers a job of a session that is over, but for those that only clean up.
    fn refuse(&self, job: Job) {
        let over = || Err(Error::new(ErrorCode::SessionLost, "the session is over"));
        match job {
            Job::Unregister(_) | Job::UnloadNow { .. } | Job::Answer { .. } => self.job(job),
            Job::MapArena { id, .. }
            | Job::UnmapArena { id, .. }
            | Job::BindBuffer { id, .. }
            | Job::RegisterHost { id, .. }
            | Job::Unbind { id, .. }
            | Job::Drain { id }
            | Job::Load { id, .. }
            | Job::Unload { id, .. }
            | Job::AllowDynamicShared { id, .. }
            | Job::Fence { id, .. }
            | Job::Close { id } => self.answer(id, over()),
        }
    }

    /// Has the pump act on `waiter` once all that was in the ring by now has passed.
    fn when_drained(&self, waiter: Waiter) {
        self.session.state.lock().waiters.push(waiter);
    }

    /// Ends the session: no record is taken any more, what was submitted passes, everything is given back.
    fn close(&mut self, jobs: &mpsc::Receiver<Job>) -> Result<(), Error> {
        let device = |error| device::error(&error);
        self.session.stopping.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(pump) = self.pump.take()
            && pump.join().is_err()
        {
            tracing::error!(session = self.session.id, "the pump panicked");
        }
        let mut state = self.session.state.lock();
        state.streams.forget_held();
        state.streams.mark_all().map_err(device)?;
        // However long it takes: until then the session's memory is quarantined, charged and out of reach.
        while state.streams.in_flight() > 0 {
            state.gpu.check().map_err(device)?;
            parking_lot::MutexGuard::unlocked(&mut state, || thread::sleep(LOOK * 10));
        }
        state.streams.page().end(Ended { code: ErrorCode::SessionLost as u16, device: 0 });
        state.streams.destroy_all().map_err(device)?;
        let gpu = Arc::clone(&state.gpu);
        state.events.destroy_all(&*gpu).map_err(device)?;
        if let Some(memory) = state.memory.take() {
            memory.close().map_err(device)?;
        }
        let objects: Vec<Object> = state.bindings.drain().collect();
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        for waiter in waiters {
            self.job(waiter.abandon());
        }
        // What came in while the session was ending: nothing of it is left to be done.
        for job in jobs.try_iter() {
            self.refuse(job);
        }
        for object in objects {
            match object {
                Object::Host(memory) => {
                    let range = HostRange { at: HostAddress(memory.address()), bytes: memory.bytes() };
                    gpu.unregister_host(range).map_err(device)?;
                }
                Object::Image { id, .. } => gpu.unload(id).map_err(device)?,
                Object::Buffer { .. } | Object::Entry(_) => {}
            }
        }
        gpu.unregister_host(self.range).map_err(device)?;
        Ok(())
    }
}

/// The kernel named a slot beyond its own limit.
fn no_slot() -> Error {
    Error::new(ErrorCode::Internal, "a handle beyond the table's limit")
}

/// A reply that cannot be sent means that the kernel is gone; the main thread sees that too, and ends the process.
pub(crate) fn report(sent: std::io::Result<()>) {
    if let Err(error) = sent {
        tracing::warn!(%error, "the kernel is gone");
    }
}
