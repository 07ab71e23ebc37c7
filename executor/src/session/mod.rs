//! One session on the device: what its threads share, and how it opens.

pub(crate) mod bindings;

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Instant,
};

use bulkhead_gpu::Gpu;
use bulkhead_mm::{Pause, Slot};
use bulkhead_ring::{CompletionWriter, Ended, Waker, memory::Completion};
use bulkhead_schema::{Error, ErrorCode, limits};
use parking_lot::{Condvar, Mutex};

use crate::{
    control::{
        Control,
        job::{Change, Reserved},
        link::Link,
    },
    device,
    executor::{Executor, Known, Tenancy},
    launch::{
        graphs::Graphs,
        pump::Waiter,
        records::Events,
        slices,
        streams::{Load, Streams},
    },
    modules::Grants,
    moments::Gate,
    session::bindings::{Bindings, HIDDEN},
    watch::{
        clock,
        flag::{Flag, Says},
        neighbours::Clocks,
        reaper::Page,
        warden::Busy,
    },
};

/// A change of pages and the request that asked for it.
pub(crate) struct Asked {
    pub(crate) id: u64,
    pub(crate) change: Change,
}

/// What the pump and the control thread share.
pub(crate) struct State {
    pub(crate) gpu: Arc<dyn Gpu>,
    pub(crate) bindings: Bindings,
    /// The modules whose gates its kernels may call.
    pub(crate) grants: Grants,
    pub(crate) streams: Streams,
    pub(crate) events: Events,
    pub(crate) graphs: Graphs,
    /// What records may name.
    pub(crate) reserved: Reserved,
    pub(crate) waiters: Vec<Waiter>,
    /// Whether the pump may submit, and which changes of pages wait for its work to pass.
    pub(crate) pause: Pause<Asked>,
    /// The session's memory is in host memory.
    pub(crate) swapped: Option<Swapped>,
    /// Why nothing of the session may run any more.
    pub(crate) broken: Option<Error>,
    /// Its objects are given up: nothing is bound any more.
    pub(crate) closed: bool,
    /// See [`Executor::gate`].
    pub(crate) gate: Arc<Gate>,
    /// Since when its work runs.
    pub(crate) busy: Busy,
    /// Whether its kernels ever reached host memory, where an access takes ten times as long.
    pub(crate) reaches_host: bool,
    /// When its kernels were told to end.
    pub(crate) stopped: Option<Stopped>,
    /// How many blocks one launch may have.
    pub(crate) blocks_max: u64,
}

/// When a session's kernels were told to end, and what was there to end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopped {
    pub(crate) clocks: Clocks,
    pub(crate) load: Load,
}

/// A session whose memory is in host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Swapped {
    /// It has not asked for it.
    Quiet,
    /// The kernel was told that it has records.
    Wanted,
}

impl State {
    pub(crate) fn new(gpu: Arc<dyn Gpu>, streams: Streams, gate: Arc<Gate>) -> Self {
        let blocks_max = slices::blocks_max(gpu.info());
        Self {
            gpu,
            bindings: Bindings::default(),
            grants: Grants::default(),
            streams,
            events: Events::default(),
            graphs: Graphs::default(),
            reserved: Reserved { streams: limits::STREAMS_MAX, events: limits::EVENTS_MAX },
            waiters: Vec::new(),
            pause: Pause::new(),
            swapped: None,
            broken: None,
            closed: false,
            gate,
            busy: Busy::default(),
            reaches_host: false,
            stopped: None,
            blocks_max,
        }
    }
}

/// A session's state and what its threads need besides.
pub(crate) struct Session {
    pub(crate) id: u32,
    pub(crate) slot: Slot,
    pub(crate) state: Mutex<State>,
    /// Wakes a pump that is held.
    pub(crate) resumed: Condvar,
    /// Set once the pump takes no more records.
    pub(crate) stopping: AtomicBool,
    /// When it last submitted, since the executor's start.
    pub(crate) submitted_ns: AtomicU64,
    pub(crate) link: Link,
    pub(crate) epoch: Instant,
    /// Tells its kernels to end.
    pub(crate) flag: Flag,
    /// Wakes a pump that sleeps.
    pub(crate) waker: Mutex<Option<Waker>>,
}

impl Session {
    /// What the guard's hidden parameters are.
    pub(crate) fn hidden(&self) -> [u32; HIDDEN] {
        [self.slot.base_high(), self.slot.load_mask_high(), self.slot.store_mask_high()]
    }

    /// Tells what runs of the session to end.
    pub(crate) fn stop_kernels(&self, state: &mut State) -> Result<(), bulkhead_gpu::Error> {
        if state.stopped.is_none() {
            self.flag.set(Says::Stop)?;
            state.stopped = Some(Stopped {
                clocks: Clocks::new(clock::now(state.gpu.info().backend)),
                load: state.streams.load(),
            });
        }
        Ok(())
    }

    /// Whether it goes on; if not, why.
    pub(crate) fn live(&self) -> Result<(), Error> {
        let state = self.state.lock();
        match &state.broken {
            Some(error) => Err(error.clone()),
            None if state.closed => Err(Error::new(ErrorCode::SessionLost, "the session is over")),
            None => Ok(()),
        }
    }

    /// Ends the session: for what its kernels do, or because the kernel says that it is over. Its client is told before they end:
    /// it takes no result for one.
    pub(crate) fn end(&self, error: Error) {
        let mut state = self.state.lock();
        if state.closed || state.broken.is_some() {
            return;
        }
        let page = state.streams.page();
        page.refuse(u64::MAX, error.code as u16, error.device);
        page.end(Ended { code: error.code as u16, device: error.device });
        if let Err(error) = self.stop_kernels(&mut state) {
            tracing::error!(session = self.id, %error, "kernels that run on");
        }
        state.broken = Some(error);
        drop(state);
        self.wake();
    }

    /// Has the pump, where there is one, look at what waits.
    pub(crate) fn wake(&self) {
        self.resumed.notify_all();
        if let Some(waker) = &*self.waker.lock() {
            waker.wake();
        }
    }

    /// Notes that something was submitted.
    pub(crate) fn note_submission(&self) {
        let now = u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.submitted_ns.store(now, Ordering::Relaxed);
    }
}

/// Opens a session: slot, completion page, threads; without a ring it takes no records until it is resumed. Returns
/// the page's descriptor for the client.
pub(crate) fn open(
    executor: &Arc<Executor>,
    id: u32,
    slot: Slot,
    ring: Option<&OwnedFd>,
    reserved: Reserved,
) -> Result<OwnedFd, Error> {
    let device = |error| device::error(&error);
    let gpu = &executor.gpu;
    let memory = executor.slots.take(slot, id).map_err(device)?;
    let made = start(executor, id, (slot, memory.flag()), ring, reserved);
    let (mut control, session, descriptor) = match made {
        Ok(made) => made,
        Err(error) => {
            executor.slots.give_back(memory).map_err(device)?;
            return Err(error);
        }
    };
    control.memory = Some(memory);
    let (jobs, receiver) = mpsc::channel();
    let gpu = Arc::clone(gpu);
    spawn(format!("control-{id}"), move || {
        if let Err(error) = gpu.bind_thread() {
            tracing::error!(%error, "control thread");
        }
        control.run(&receiver);
    })?;
    executor.sessions.lock().insert(id, Known { session, jobs });
    Ok(descriptor)
}

fn start(
    executor: &Arc<Executor>,
    id: u32,
    (slot, flag): (Slot, Flag),
    ring: Option<&OwnedFd>,
    reserved: Reserved,
) -> Result<(Control, Arc<Session>, OwnedFd), Error> {
    let device = |error| device::error(&error);
    let gpu = &executor.gpu;
    let broken =
        |error: std::io::Error| Error::new(ErrorCode::Internal, format!("the completion page: {error}"));
    let (completion, descriptor) = Completion::create().map_err(broken)?;
    let ours = descriptor.try_clone().map_err(broken)?;
    let page = Page::register(&**gpu, &executor.reaper, Arc::clone(&completion)).map_err(device)?;
    let page_at = completion.range().0;
    let mut streams = Streams::new(Arc::clone(gpu), CompletionWriter::new(completion), page_at);
    streams.urgency = executor.patience.urgency;
    if let Tenancy::One { runs } = executor.tenancy {
        streams.be_alone(runs, executor.patience.kernel.is_some());
    } else if executor.patience.kernel.is_some() {
        streams.be_timed();
    }
    streams.create(0, 0, gpu.info()).map_err(device)?;
    let mut state = State::new(Arc::clone(gpu), streams, Arc::clone(&executor.gate));
    state.reserved = reserved;
    // Grids of code that nothing confines are not cut.
    let usual = if executor.is_isolated() { u64::MAX } else { state.blocks_max };
    state.blocks_max = executor.patience.blocks.filter(|_| !executor.is_isolated()).unwrap_or(usual);
    let session = Arc::new(Session {
        id,
        slot,
        state: Mutex::new(state),
        resumed: Condvar::new(),
        stopping: AtomicBool::new(false),
        submitted_ns: AtomicU64::new(executor.now_ns()),
        link: executor.link.clone(),
        epoch: executor.epoch,
        flag,
        waker: Mutex::new(None),
    });
    let mut control = Control::new(Arc::clone(executor), Arc::clone(&session), page, ours);
    let started =
        ring.map_or(Ok(()), |ring| control.start(bulkhead_ring::Consumer::new, ring.as_fd()).map(drop));
    if let Err(error) = started {
        session.state.lock().streams.destroy_all().map_err(device)?;
        return Err(error);
    }
    Ok((control, session, descriptor))
}

pub(crate) fn spawn(
    name: String,
    run: impl FnOnce() + Send + 'static,
) -> Result<thread::JoinHandle<()>, Error> {
    let thread = thread::Builder::new().name(name).spawn(run);
    thread.map_err(|error| Error::new(ErrorCode::LimitReached, format!("no thread for the session: {error}")))
}

/// A reply that cannot be sent means that the kernel is gone; the main thread sees that too, and ends the process.
pub(crate) fn report(sent: std::io::Result<()>) {
    if let Err(error) = sent {
        tracing::warn!(%error, "the kernel is gone");
    }
}

/// Answers a request that has no more to say than whether it was done.
pub(crate) fn answer(link: &Link, id: u64, result: &Result<(), Error>) {
    report(link.reply(id, None, |mut reply| match result {
        Ok(()) => reply.set_ok(()),
        Err(error) => error.write(reply.init_error()),
    }));
}
