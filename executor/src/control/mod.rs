//! The control thread of a session: carries out what the kernel asks of it.
//!
//! Pages change in a *pause* ([`bulkhead_mm::Pause`]): while a change waits for the session's work to pass, the pump
//! submits nothing, and everything else that is asked is served.

mod close;
pub(crate) mod decode;
pub(crate) mod job;
pub(crate) mod link;
pub(crate) mod lost;
mod modules;
mod native;
mod objects;
mod open;
mod pages;
pub(crate) mod server;

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use bulkhead_ring::{Consumer, memory::Ring};
use bulkhead_schema::{Error, ErrorCode};

use crate::{
    control::{
        job::{Ask, Job, Span, Work},
        link::{answer, report},
    },
    device,
    executor::Executor,
    launch::pump,
    memory::SlotMemory,
    session::{Session, spawn, waiter::Waiter},
    watch::remains::{Page, Pinned, ROOM},
};

/// How often somebody who waits for the device looks, at first.
const LOOK: Duration = Duration::from_micros(50);
/// And when it has waited for long.
const LOOK_LATE: Duration = Duration::from_millis(2);

pub(crate) struct Control {
    executor: Arc<Executor>,
    session: Arc<Session>,
    /// There while the session is.
    pub(crate) memory: Option<Box<SlotMemory>>,
    pump: Option<thread::JoinHandle<()>>,
    /// Host memory that the session is swapped to.
    area: Option<Pinned>,
    page: Option<Page>,
    page_descriptor: OwnedFd,
    /// Since when a change waits.
    waits_since: Option<Instant>,
    /// Host memory that no work of the session reaches any more, and that waits for an idle device; with the requests.
    leaving: Vec<(u64, Span)>,
    /// What registers host memory, and found no room for more; with when it came.
    parked: Vec<(Instant, Job)>,
}

fn reaper_is_full() -> Error {
    Error::new(ErrorCode::OutOfMemory, "host memory waits for the device to be idle")
        .remedy("try again when the kernels that run now have ended")
}

fn over() -> Error {
    Error::new(ErrorCode::SessionLost, "the session is over")
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
            leaving: Vec::new(),
            parked: Vec::new(),
        }
    }

    /// Starts the pump.
    pub(crate) fn start(
        &mut self,
        consumer: impl FnOnce(Arc<Ring>) -> Consumer,
        ring: BorrowedFd<'_>,
    ) -> Result<(), Error> {
        let ring = Ring::map(ring)
            .map_err(|error| Error::new(ErrorCode::InvalidArgument, format!("the ring: {error}")))?;
        let consumer = consumer(ring);
        *self.session.waker.lock() = Some(consumer.waker());
        let session = Arc::clone(&self.session);
        let thread = spawn(format!("pump-{}", session.id), move || pump::run(&session, consumer))?;
        self.pump = Some(thread);
        Ok(())
    }

    /// The thread's life.
    pub(crate) fn run(mut self, jobs: &mpsc::Receiver<Job>) {
        loop {
            let job = match self.waits_since {
                None if self.leaving.is_empty() && self.parked.is_empty() => {
                    jobs.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected)
                }
                None => jobs.recv_timeout(LOOK_LATE),
                Some(since) => jobs.recv_timeout((since.elapsed() / 32).clamp(LOOK, LOOK_LATE)),
            };
            match job {
                Ok(Job { id, ask: Ask::Close }) => {
                    for (_, job) in self.parked.drain(..) {
                        answer(&self.session.link, job.id, &Err(over()));
                    }
                    let closed = self.close(id);
                    // What came in while the session was ending: nothing of it is left to be done.
                    for job in jobs.try_iter() {
                        answer(&self.session.link, job.id, &Err(over()));
                    }
                    answer(&self.session.link, id, &closed);
                    // The main thread forgets the session when it hands the close on: nothing follows.
                    return;
                }
                Ok(job) => self.job_or_park(job),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    self.stop_pump();
                    return;
                }
            }
            self.unpark();
            self.advance();
            self.let_host_go();
        }
    }

    /// Does a job, or puts it aside where it registers host memory and there is no room: others go on meanwhile.
    fn job_or_park(&mut self, job: Job) {
        // Whatever undoes what was put aside comes before it is done.
        if let Ask::Unbind(runs) = &job.ask {
            self.refuse_parked(|ask| ask.binds_any_of(runs));
        }
        if job.ask.registers_host() && !self.executor.reaper.has_room() {
            self.parked.push((Instant::now(), job));
        } else {
            self.job(job);
        }
    }

    fn refuse_parked(&mut self, is: impl Fn(&Ask) -> bool) {
        for (_, job) in self.parked.extract_if(.., |(_, job)| is(&job.ask)) {
            answer(&self.session.link, job.id, &Err(reaper_is_full()));
        }
    }

    /// Does what was put aside where there is room now, and refuses what has waited for too long.
    fn unpark(&mut self) {
        if self.parked.is_empty() {
            return;
        }
        let has_room = self.executor.reaper.has_room();
        for (since, job) in std::mem::take(&mut self.parked) {
            if has_room {
                self.job_or_park(job);
            } else if since.elapsed() > ROOM {
                self.answer(job.id, &Err(reaper_is_full()));
            } else {
                self.parked.push((since, job));
            }
        }
    }

    fn answer(&self, id: u64, result: &Result<(), Error>) {
        answer(&self.session.link, id, result);
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
            Ask::Unbind(runs) => {
                let empty = self.unbind(&runs);
                self.answer(id, &Ok(()));
                return drop(empty);
            }
            Ask::RegisterHost { handle, bytes, descriptor } => self.register_host(handle, bytes, &descriptor),
            Ask::SwapArea { bytes, descriptor } => self.swap_area(bytes, descriptor.as_ref()),
            Ask::Drain => return self.wait(Waiter::reply(id)),
            Ask::Fence { stream, position } => return self.wait(Waiter::fence(id, stream, position)),
            Ask::Load { handle, entries, descriptor, most } => {
                match self.load(id, handle, entries, descriptor, most) {
                    Ok(()) => return,
                    Err(error) => Err(error),
                }
            }
            Ask::LoadNative { handle, descriptor } => match self.load_native(id, handle, descriptor) {
                Ok(()) => return,
                Err(error) => Err(error),
            },
            Ask::NativeEntry { image, name, handle } => match self.native_entry(id, image, name, handle) {
                Ok(()) => return,
                Err(error) => Err(error),
            },
            Ask::NativeVariable { image, name, handle } => {
                match self.native_variable(id, image, name, handle) {
                    Ok(()) => return,
                    Err(error) => Err(error),
                }
            }
            Ask::NativeNames(image) => match self.native_names(image) {
                Ok(names) => {
                    let sent = self.session.link.reply(id, None, |reply| {
                        let count = u32::try_from(names.len()).unwrap_or(0);
                        let mut list = reply.init_names(count);
                        (0..count).zip(&names).for_each(|(at, name)| list.set(at, name));
                    });
                    return report(sent);
                }
                Err(error) => Err(error),
            },
            Ask::Question { entry, question, words } => match self.question(entry, question, &words) {
                Ok(words) => {
                    let sent = self.session.link.reply(id, None, |reply| {
                        let count = u32::try_from(words.len()).unwrap_or(0);
                        let mut list = reply.init_words(count);
                        (0..count).zip(&words).for_each(|(at, word)| list.set(at, *word));
                    });
                    return report(sent);
                }
                Err(error) => Err(error),
            },
            Ask::NativeAttribute { entry, attribute, value } => {
                self.native_attribute(entry, attribute, value)
            }
            Ask::Reserve(reserved) => {
                self.session.state.lock().reserved = reserved;
                Ok(())
            }
            Ask::Unload(handle) => match self.unbind_image(handle) {
                Ok(objects) => return self.wait(Waiter::reply_and_release(id, objects)),
                Err(error) => Err(error),
            },
            Ask::AllowDynamicShared { handle, bytes } => self.allow_dynamic_shared(handle, bytes),
            Ask::Resume { work, moves, ring } => match self.resume(work, moves, &ring) {
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

    fn resume(&mut self, work: Work, moves: u32, ring: &OwnedFd) -> Result<(), Error> {
        if self.pump.is_some() {
            return Err(Error::new(ErrorCode::InvalidArgument, "the session takes records already"));
        }
        let session = Arc::clone(&self.session);
        let consumer = |ring| {
            let consumer = Consumer::resume(ring);
            let (position, priorities) = (consumer.position(), consumer.priorities());
            let mut state = session.state.lock();
            state.streams.take_over(position, priorities);
            state.streams.page().count_from(moves);
            if work == Work::Lost {
                state.streams.page().refuse(position, ErrorCode::WorkLost as u16, 0);
            }
            consumer
        };
        self.start(consumer, ring.as_fd())
    }
}
