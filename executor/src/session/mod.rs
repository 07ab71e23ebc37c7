//! One session on the device: what its threads share.

pub(crate) mod bindings;
pub(crate) mod waiter;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bulkhead_gpu::Gpu;
use bulkhead_mm::{Pause, Slot};
use bulkhead_ring::{Ended, Refusal, Waker};
use bulkhead_schema::{Error, ErrorCode, limits};
use parking_lot::{Condvar, Mutex};

use crate::{
    control::{
        job::{Change, Reserved},
        link::{Link, report},
    },
    launch::{
        entry::HIDDEN,
        events::Events,
        graphs::Graphs,
        slices,
        streams::{Load, Streams},
    },
    modules::grants::Grants,
    moments::gate::Gate,
    session::{bindings::Bindings, waiter::Waiter},
    watch::{
        busy::{Busy, Runs},
        clock,
        flag::{Flag, Says},
        neighbours::Clocks,
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
    /// The kernel knows why.
    kernel_knows: bool,
    /// Its objects are given up: nothing is bound any more.
    pub(crate) closed: bool,
    /// What keeps everybody from submitting.
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

/// Who ends a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ender {
    /// The kernel, which knows why.
    Kernel,
    /// The executor, for what the session's kernels do.
    Executor,
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
            kernel_knows: false,
            closed: false,
            gate,
            busy: Busy::default(),
            reaches_host: false,
            stopped: None,
            blocks_max,
        }
    }

    /// Notes how its work goes on.
    pub(crate) fn look(&mut self, now: Instant) {
        let nothing = self.streams.in_flight() == 0;
        // Between two slices of one grid.
        let is_held = self.pause.holds() || self.gate.is_shut();
        let idle = nothing && (self.streams.slicing() == 0 || is_held);
        if idle {
            self.streams.forget_stuck();
            self.busy.rests();
            return;
        }
        let stuck = self.streams.stuck_since(now);
        self.busy.works(now, stuck);
    }

    #[cfg(test)]
    pub(crate) fn be_stuck_since(&mut self, since: Instant) {
        self.busy.stuck = Some(since);
    }

    /// Whether a single piece of its work has not passed for so long.
    pub(crate) fn goes_on_for(&self, long: Duration) -> bool {
        self.busy.stuck.is_some_and(|since| since.elapsed() > long) && self.streams.waits_for_single_pieces()
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

    /// Since when it has work on the device, where it has some, and was not told to end it.
    pub(crate) fn runs(&self) -> Option<Runs> {
        let mut state = self.state.lock();
        if state.stopped.is_some() || state.streams.in_flight() == 0 {
            return None;
        }
        Some(state.busy.runs())
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
    pub(crate) fn end(&self, ender: Ender, error: Error) {
        let mut state = self.state.lock();
        if state.closed || state.broken.is_some() {
            return;
        }
        match ender {
            Ender::Kernel => state.kernel_knows = true,
            Ender::Executor => self.tell_kernel(&mut state, &error),
        }
        let page = state.streams.page();
        page.refuse(Refusal::OF_ALL, error.code as u16, error.device);
        page.end(Ended { code: error.code as u16, device: error.device });
        if let Err(error) = self.stop_kernels(&mut state) {
            tracing::error!(session = self.id, %error, "kernels that run on");
        }
        state.broken = Some(error);
        drop(state);
        self.wake();
    }

    /// Tells the kernel, once, why the session is over. Before its client, who may leave at once: then the kernel closes the
    /// session, and hears no more of it than what was said before.
    pub(crate) fn tell_kernel(&self, state: &mut State, error: &Error) {
        if std::mem::replace(&mut state.kernel_knows, true) {
            return;
        }
        report(self.link.reply(0, None, |reply| {
            let mut ended = reply.init_session_ended();
            ended.set_session(self.id);
            error.write(ended.init_error());
        }));
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

pub(crate) fn spawn(
    name: String,
    run: impl FnOnce() + Send + 'static,
) -> Result<thread::JoinHandle<()>, Error> {
    let thread = thread::Builder::new().name(name).spawn(run);
    thread.map_err(|error| Error::new(ErrorCode::LimitReached, format!("no thread for the session: {error}")))
}

#[cfg(test)]
mod tests;
