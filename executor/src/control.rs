//! The control thread of a session: carries out what the kernel asks of it.
//!
//! Pages change in a *pause* ([`bulkhead_mm::Pause`]): while a change waits for the session's work to pass, the pump
//! submits nothing, and everything else that is asked is served.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use bulkhead_mm::{Range, Step};
use bulkhead_ring::{
    Consumer, Ended,
    memory::{Ring, Shared},
};
use bulkhead_schema::{Error, ErrorCode, Handle, limits};

use crate::{
    bindings::{Bindings, Object, Use},
    device,
    executor::Executor,
    job::{Ask, Change, Job, Span, Target, Work},
    load,
    memory::SlotMemory,
    pump::{self, Waiter},
    reaper::{Page, Pinned},
    session::{Asked, Session, State, Swapped, answer, report, spawn},
};

/// How often somebody who waits for the device looks, at first.
const LOOK: Duration = Duration::from_micros(50);
/// And when it has waited for long.
const LOOK_LATE: Duration = Duration::from_millis(2);

struct Pump {
    thread: thread::JoinHandle<()>,
    waker: bulkhead_ring::Waker,
}

pub(crate) struct Control {
    executor: Arc<Executor>,
    session: Arc<Session>,
    /// There while the session is.
    pub(crate) memory: Option<Box<SlotMemory>>,
    pump: Option<Pump>,
    /// Host memory that the session is swapped to.
    area: Option<Pinned>,
    page: Option<Page>,
    page_descriptor: OwnedFd,
    /// Since when a change waits.
    waits_since: Option<Instant>,
}

fn over() -> Error {
    Error::new(ErrorCode::SessionLost, "the session is over")
}

/// The kernel named a slot beyond the device's limit.
fn no_slot() -> Error {
    Error::new(ErrorCode::InvalidHandle, "a handle beyond the table's limit")
}

impl Control {
    pub(crate) fn new(
        executor: Arc<Executor>,
        session: Arc<Session>,
        page: Page,
        page_descriptor: OwnedFd,
    ) -> Self {
        Self {
            executor,
            session,
            memory: None,
            pump: None,
            area: None,
            page: Some(page),
            page_descriptor,
            waits_since: None,
        }
    }

    /// Starts the pump. Returns how many records of the ring were taken before.
    pub(crate) fn start(
        &mut self,
        consumer: impl FnOnce(Arc<Ring>) -> Consumer,
        ring: BorrowedFd<'_>,
    ) -> Result<(), Error> {
        let ring = Ring::map(ring)
            .map_err(|error| Error::new(ErrorCode::InvalidArgument, format!("the ring: {error}")))?;
        let consumer = consumer(ring);
        let waker = consumer.waker();
        let session = Arc::clone(&self.session);
        let thread = spawn(format!("pump-{}", session.id), move || pump::run(&session, consumer))?;
        self.pump = Some(Pump { thread, waker });
        Ok(())
    }

    /// The thread's life.
    pub(crate) fn run(mut self, jobs: &mpsc::Receiver<Job>) {
        loop {
            let job = match self.waits_since {
                None => jobs.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected),
                Some(since) => jobs.recv_timeout((since.elapsed() / 32).clamp(LOOK, LOOK_LATE)),
            };
            match job {
                Ok(Job { id, ask: Ask::Close }) => {
                    let closed = self.close();
                    // What came in while the session was ending: nothing of it is left to be done.
                    for job in jobs.try_iter() {
                        answer(&self.session.link, job.id, &Err(over()));
                    }
                    answer(&self.session.link, id, &closed);
                    // The main thread forgets the session when it hands the close on: nothing follows.
                    return;
                }
                Ok(job) => self.job(job),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    self.stop_pump();
                    return;
                }
            }
            self.advance();
        }
    }

    fn answer(&self, id: u64, result: &Result<(), Error>) {
        answer(&self.session.link, id, result);
    }

    fn wake(&self) {
        self.session.resumed.notify_all();
        if let Some(pump) = &self.pump {
            pump.waker.wake();
        }
    }

    fn job(&mut self, Job { id, ask }: Job) {
        let done = match ask {
            Ask::Change(change) => match self.ask(id, change) {
                Ok(()) => return,
                Err(error) => Err(error),
            },
            Ask::Export(span) => match self
                .memory()
                .and_then(|memory| memory.export(span.at, span.bytes).map_err(|error| device::error(&error)))
            {
                Ok(descriptor) => {
                    let sent = self.session.link.reply(id, Some(descriptor.as_fd()), |mut reply| {
                        reply.set_exported(());
                    });
                    return report(sent);
                }
                Err(error) => Err(error),
            },
            Ask::Bind(bindings) => self.bind(bindings),
            Ask::Unbind(handles) => {
                let empty = self.unbind(&handles);
                self.answer(id, &Ok(()));
                return drop(empty);
            }
            Ask::RegisterHost { handle, bytes, descriptor } => self.register_host(handle, bytes, &descriptor),
            Ask::SwapArea { bytes, descriptor } => self.swap_area(bytes, &descriptor),
            Ask::Drain => return self.wait(Waiter::reply(id)),
            Ask::Fence { stream, position } => return self.wait(Waiter::fence(id, stream, position)),
            Ask::Load { handle, entries, descriptor } => match self.load(id, handle, entries, descriptor) {
                Ok(()) => return,
                Err(error) => Err(error),
            },
            Ask::Unload(handle) => match self.unbind_image(handle) {
                Ok(objects) => return self.wait(Waiter::reply_and_release(id, objects)),
                Err(error) => Err(error),
            },
            Ask::AllowDynamicShared { handle, bytes } => self.allow_dynamic_shared(handle, bytes),
            Ask::Resume { work, ring } => match self.resume(work, &ring) {
                Ok(()) => {
                    let page = Some(self.page_descriptor.as_fd());
                    let sent = self.session.link.reply(id, page, |mut reply| reply.set_opened(()));
                    return report(sent);
                }
                Err(error) => Err(error),
            },
            Ask::Close => Ok(()),
        };
        self.answer(id, &done);
    }

    fn memory(&self) -> Result<&SlotMemory, Error> {
        self.memory.as_deref().ok_or_else(over)
    }

    /// Asks for a change of pages, if it can be made as things are.
    fn ask(&mut self, id: u64, change: Change) -> Result<(), Error> {
        let memory = self.memory()?;
        let checked = match &change {
            Change::Map(span) | Change::Adopt { span, .. } => {
                memory.check_free(span.at, span.bytes).map(drop)
            }
            Change::Unmap(span) => memory.find(span.at, span.bytes).map(drop),
            Change::Share { at, mapping } => memory.check_free(*at, mapping.bytes()).map(drop),
            Change::Split { arena, at } => memory.check_split(arena.at, arena.bytes, *at),
            Change::SwapOut { arenas, .. } => memory.check_swap(arenas),
            Change::SwapIn { arenas } => {
                arenas.iter().try_for_each(|arena| memory.check_free(arena.at, arena.bytes).map(drop))
            }
        };
        checked.map_err(|error| device::error(&error))?;
        let patience = limits::DRAIN_SECONDS * 1_000_000_000;
        let deadline = match &change {
            Change::Unmap(_) => None,
            Change::Map(_)
            | Change::Share { .. }
            | Change::Split { .. }
            | Change::Adopt { .. }
            | Change::SwapOut { .. }
            | Change::SwapIn { .. } => Some(self.executor.now_ns() + patience),
        };
        self.session.state.lock().pause.ask(Asked { id, change }, deadline);
        Ok(())
    }

    /// Makes the changes that can be made by now.
    fn advance(&mut self) {
        let mut moved = false;
        loop {
            let mut state = self.session.state.lock();
            if state.broken.is_some() {
                let waiting = state.pause.abandon();
                drop(state);
                waiting.iter().for_each(|asked| self.answer(asked.id, &Err(over())));
                self.waits_since = None;
                return;
            }
            let in_flight = state.streams.in_flight();
            let step = state.pause.poll(in_flight, self.executor.now_ns());
            match step {
                Step::Idle => {
                    drop(state);
                    self.waits_since = None;
                    if moved {
                        self.wake();
                    }
                    return;
                }
                Step::Turn => {
                    drop(state);
                    self.waits_since = Some(Instant::now());
                    self.wake();
                    return;
                }
                Step::Wait => {
                    let marked = state.streams.mark_all();
                    drop(state);
                    // A device that is lost ends the process elsewhere.
                    if let Err(error) = marked {
                        tracing::error!(%error, "a session's work cannot be waited for");
                    }
                    self.waits_since.get_or_insert_with(Instant::now);
                    return;
                }
                Step::Refuse(Asked { id, .. }) => {
                    moved = true;
                    drop(state);
                    let error = Error::new(
                        ErrorCode::OutOfMemory,
                        "the session's memory cannot change: its kernels run on",
                    );
                    self.answer(
                        id,
                        &Err(error.remedy("allocate before launching kernels that run for long")),
                    );
                }
                Step::Change(Asked { id, change }) => {
                    moved = true;
                    drop(state);
                    let done = self.change(id, change).map_err(|error| device::error(&error));
                    self.answer(id, &done);
                    let mut state = self.session.state.lock();
                    if self.memory.as_ref().is_some_and(|memory| memory.is_broken()) {
                        let error = Error::new(ErrorCode::Internal, "the session's slot has a hole");
                        state.broken.get_or_insert(error);
                    } else if let Err(error) = state.pause.done() {
                        tracing::error!(%error, "a pause");
                    }
                }
            }
        }
    }

    /// Changes pages. The session's work has passed, and nothing is submitted before this returns.
    fn change(&mut self, id: u64, change: Change) -> Result<(), bulkhead_gpu::Error> {
        let Some(memory) = self.memory.as_mut() else {
            return Err(bulkhead_gpu::Error::Refused("the session is over".into()));
        };
        match change {
            Change::Map(span) => memory.grow(span.at, span.bytes),
            Change::Unmap(span) => {
                memory.find(span.at, span.bytes)?;
                report(self.session.link.reply(id, None, |mut reply| reply.set_quiescent(())));
                memory.remove(span.at, span.bytes, crate::memory::Leave::Scrubbed)
            }
            Change::Share { at, mapping } => memory.put(at, mapping),
            Change::Split { arena, at } => memory.split(arena.at, arena.bytes, at),
            Change::Adopt { span, descriptor } => memory.adopt(span.at, span.bytes, descriptor),
            Change::SwapOut { arenas, copy: false } => {
                memory.check_swap(&arenas)?;
                memory.forget(&arenas)
            }
            Change::SwapOut { arenas, copy: true } => {
                if !arenas.is_empty() {
                    memory.swap_out(&arenas, self.area.as_ref())?;
                }
                let mut state = self.session.state.lock();
                if state.swapped.replace(Swapped::Quiet).is_none() {
                    state.pause.hold();
                }
                Ok(())
            }
            Change::SwapIn { arenas } => {
                if !arenas.is_empty() {
                    memory.swap_in(&arenas, self.area.as_ref())?;
                }
                let mut state = self.session.state.lock();
                if state.swapped.take().is_some()
                    && let Err(error) = state.pause.release()
                {
                    tracing::error!(%error, "a swapped session");
                }
                Ok(())
            }
        }
    }

    fn bind(&self, bindings: Vec<(Handle, Target)>) -> Result<(), Error> {
        let slot = self.session.slot;
        let mut objects = Vec::with_capacity(bindings.len());
        for (handle, target) in bindings {
            if !Bindings::has_slot(handle.slot) {
                return Err(no_slot());
            }
            let object = match target {
                Target::Buffer { span: Span { at, bytes }, writable } => {
                    let range = Range::new(bulkhead_mm::DeviceAddress(at), bytes);
                    let inside = |window: Range| range.is_some_and(|range| window.contains(range));
                    let may = if writable && inside(slot.read_write()) { Use::ReadWrite } else { Use::Read };
                    if !inside(slot.read_write()) && !inside(slot.read_only()) {
                        let what = "the buffer does not lie in the session's window";
                        return Err(Error::new(ErrorCode::InvalidArgument, what));
                    }
                    Object::Buffer { address: at, bytes, may }
                }
                Target::Entry(mut entry) => {
                    entry.template.hide(self.session.hidden());
                    Object::Entry(entry)
                }
            };
            objects.push((handle, object));
        }
        let mut state = self.session.state.lock();
        let mut replaced = Vec::new();
        for (handle, object) in objects {
            let before = state.bindings.bind(handle, object).ok_or_else(no_slot)?;
            replaced.extend(before.filter(Object::outlives_its_handle));
        }
        drop(state);
        self.release(replaced);
        Ok(())
    }

    /// Unbinds handles; what it returns is dropped when nobody waits.
    fn unbind(&self, handles: &[Handle]) -> impl Sized + use<> {
        let mut state = self.session.state.lock();
        let objects = handles.iter().filter_map(|handle| state.bindings.unbind(*handle));
        let objects: Vec<_> = objects.filter(Object::outlives_its_handle).collect();
        let empty = state.bindings.take_empty();
        drop(state);
        self.release(objects);
        empty
    }

    /// Drops what submitted work may still use, once that has passed.
    fn release(&self, objects: Vec<Object>) {
        if !objects.is_empty() {
            self.wait(Waiter::release(objects));
        }
    }

    /// Has the pump act on `waiter` at its time. Without a pump nothing runs, and it is time.
    fn wait(&self, waiter: Waiter) {
        if self.pump.is_none() {
            return waiter.done(&self.session.link);
        }
        self.session.state.lock().waiters.push(waiter);
        self.wake();
    }

    fn pin(&self, bytes: u64, descriptor: &OwnedFd) -> Result<Pinned, Error> {
        let bytes = usize::try_from(bytes).map_err(|_| Error::new(ErrorCode::OutOfMemory, "too large"))?;
        if bytes == 0 {
            return Err(Error::new(ErrorCode::InvalidArgument, "no bytes of host memory"));
        }
        let memory = Shared::map(descriptor.as_fd(), bytes)
            .map_err(|error| Error::new(ErrorCode::OutOfMemory, format!("host memory: {error}")))?;
        Pinned::register(&*self.executor.gpu, &self.executor.reaper, memory)
            .map_err(|error| device::error(&error))
    }

    fn register_host(&self, handle: Handle, bytes: u64, descriptor: &OwnedFd) -> Result<(), Error> {
        if self.executor.reaper.is_full() {
            let error = Error::new(ErrorCode::OutOfMemory, "host memory waits for the device to be idle");
            return Err(error.remedy("try again when the kernels that run now have ended"));
        }
        if !Bindings::has_slot(handle.slot) {
            return Err(no_slot());
        }
        let object = Object::Host(Box::new(self.pin(bytes, descriptor)?));
        let replaced = self.session.state.lock().bindings.bind(handle, object).ok_or_else(no_slot)?;
        self.release(replaced.into_iter().filter(Object::outlives_its_handle).collect());
        Ok(())
    }

    fn swap_area(&mut self, bytes: u64, descriptor: &OwnedFd) -> Result<(), Error> {
        if self.area.is_some() {
            return Err(Error::new(ErrorCode::InvalidArgument, "the session has a swap area"));
        }
        self.area = Some(self.pin(bytes, descriptor)?);
        Ok(())
    }

    /// Loads an image on a thread of its own: the device may wait for every kernel that runs.
    fn load(&self, id: u64, handle: Handle, entries: Vec<Handle>, descriptor: OwnedFd) -> Result<(), Error> {
        let (executor, session) = (Arc::clone(&self.executor), Arc::clone(&self.session));
        if entries.iter().chain([&handle]).any(|handle| !Bindings::has_slot(handle.slot)) {
            return Err(no_slot());
        }
        let load = move || {
            let loaded = executor
                .gpu
                .bind_thread()
                .map_err(|error| device::error(&error))
                .and_then(|()| load::load(&executor, descriptor, entries.len(), session.hidden()))
                .and_then(|loaded| {
                    let mut state = session.state.lock();
                    bind_image(&mut state, &executor, &session, handle, &entries, &loaded)?;
                    Ok(loaded)
                });
            match loaded {
                Ok(loaded) => report(session.link.reply(id, None, |reply| loaded.write(&entries, reply))),
                Err(error) => answer(&session.link, id, &Err(error)),
            }
        };
        spawn(format!("load-{}", self.session.id), load).map(drop)
    }

    /// Makes an image's entries unreachable; what was submitted of them may still run. Returns what keeps the image
    /// loaded, for this session.
    fn unbind_image(&self, handle: Handle) -> Result<Vec<Object>, Error> {
        let mut state = self.session.state.lock();
        let Some(Object::Image { entries, .. }) = state.bindings.get(handle.slot, handle.generation) else {
            return Err(Error::new(ErrorCode::InvalidHandle, "no such image"));
        };
        let handles: Vec<_> = entries.iter().copied().chain([handle]).collect();
        let objects = handles.iter().filter_map(|handle| state.bindings.unbind(*handle)).collect();
        drop(state);
        self.executor.withdraw(self.session.id, &handles);
        Ok(objects)
    }

    fn allow_dynamic_shared(&self, handle: Handle, bytes: u32) -> Result<(), Error> {
        let mut state = self.session.state.lock();
        let entry = state.bindings.entry(handle.slot, handle.generation);
        let entry = entry.ok_or_else(|| Error::new(ErrorCode::InvalidHandle, "no such entry"))?;
        let mut most = entry.template.dynamic_shared_max.lock();
        // Other sessions may have the entry too: what one asks for does not take from another.
        if bytes > *most {
            let allowed = self.executor.gpu.allow_dynamic_shared(entry.template.id, bytes);
            allowed.map_err(|error| device::error(&error))?;
            *most = bytes;
        }
        Ok(())
    }

    fn resume(&mut self, work: Work, ring: &OwnedFd) -> Result<(), Error> {
        if self.pump.is_some() {
            return Err(Error::new(ErrorCode::InvalidArgument, "the session takes records already"));
        }
        let session = Arc::clone(&self.session);
        let consumer = |ring| {
            let consumer = Consumer::resume(ring);
            let position = consumer.position();
            let mut state = session.state.lock();
            state.streams.take_over(position);
            if work == Work::Lost {
                state.streams.page().refuse(position, ErrorCode::WorkLost as u16, 0);
            }
            consumer
        };
        self.start(consumer, ring.as_fd())
    }

    fn stop_pump(&mut self) {
        self.session.stopping.store(true, Ordering::Release);
        self.wake();
        if let Some(pump) = self.pump.take()
            && pump.thread.join().is_err()
        {
            tracing::error!(session = self.session.id, "the pump panicked");
        }
    }

    /// Ends the session: no record is taken any more, what was submitted passes, everything is given back.
    fn close(&mut self) -> Result<(), Error> {
        let device = |error| device::error(&error);
        let passed = self.pass();
        let closing = Closing(&self.executor.closing);
        passed?;
        drop(closing);
        let mut state = self.session.state.lock();
        state.streams.page().end(Ended { code: ErrorCode::SessionLost as u16, device: 0 });
        state.streams.destroy_all().map_err(device)?;
        let gpu = Arc::clone(&state.gpu);
        state.events.destroy_all(&*gpu).map_err(device)?;
        state.closed = true;
        let objects: Vec<Object> = state.bindings.drain().collect();
        let waiters = std::mem::take(&mut state.waiters);
        let changes = state.pause.abandon();
        drop(state);
        let given_back = self.memory.take().map_or(Ok(()), |memory| self.executor.slots.give_back(memory));
        self.executor.entries.lock().retain(|(session, _), _| *session != self.session.id);
        for waiter in waiters {
            waiter.done(&self.session.link);
        }
        for Asked { id, change } in changes {
            match change {
                // It is unmapped.
                Change::Unmap(_) => {
                    report(self.session.link.reply(id, None, |mut reply| reply.set_quiescent(())));
                    self.answer(id, &Ok(()));
                }
                Change::Map(_)
                | Change::Share { .. }
                | Change::Split { .. }
                | Change::Adopt { .. }
                | Change::SwapOut { .. }
                | Change::SwapIn { .. } => self.answer(id, &Err(over())),
            }
        }
        drop(objects);
        self.area = None;
        self.page = None;
        given_back.map_err(device)
    }

    /// Waits until all that was submitted has passed, however long it takes: until then the session's memory is
    /// quarantined, charged and out of reach.
    fn pass(&mut self) -> Result<(), Error> {
        let device = |error| device::error(&error);
        self.stop_pump();
        let mut state = self.session.state.lock();
        state.streams.forget_held();
        state.streams.mark_all().map_err(device)?;
        let since = Instant::now();
        while state.streams.in_flight() > 0 {
            state.gpu.check().map_err(device)?;
            let nap = (since.elapsed() / 32).clamp(LOOK, LOOK_LATE);
            parking_lot::MutexGuard::unlocked(&mut state, || thread::sleep(nap));
        }
        Ok(())
    }
}

/// A session that is closing and has no work on the device any more.
struct Closing<'a>(&'a AtomicU32);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn bind_image(
    state: &mut State,
    executor: &Executor,
    session: &Session,
    handle: Handle,
    entries: &[Handle],
    loaded: &load::Loaded,
) -> Result<(), Error> {
    if state.closed {
        return Err(over());
    }
    for (handle, entry) in entries.iter().zip(&loaded.bound) {
        state.bindings.bind(*handle, Object::Entry(Box::new(entry.clone()))).ok_or_else(no_slot)?;
        executor.offer(session.id, *handle, entry);
    }
    let image = Object::Image { image: Arc::clone(&loaded.image), entries: entries.to_vec() };
    state.bindings.bind(handle, image).ok_or_else(no_slot)?;
    Ok(())
}
