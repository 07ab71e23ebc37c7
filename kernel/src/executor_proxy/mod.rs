//! The executor of one device: started, watched, and started again.
//!
//! An *incarnation* is one executor process and everything that lives and dies with it: the link, the slots of
//! device addresses, the sessions.

mod answer;
mod busy;
mod cell;
mod incarnation;
mod isolated;
mod link;
mod metering;
mod output;
mod passed;
mod pool;
mod requests;
mod spawn;
mod standby;

use std::{
    cell::{Cell, RefCell},
    ffi::OsString,
    io,
    process::ExitStatus,
    rc::Rc,
    time::Duration,
};

use bulkhead_mm::Resource;
use bulkhead_schema::{Error, ErrorCode, limits};
use tokio::{
    process::Child,
    sync::{Notify, watch},
    time::Instant,
};

pub(crate) use crate::executor_proxy::answer::{
    Activity, Answer, DeviceInfo, EntryInfo, Origin, is_sealed, kept, length,
};
pub use crate::executor_proxy::cell::Cells;
pub(crate) use crate::executor_proxy::incarnation::{Incarnation, SlotLease};
pub(crate) use crate::executor_proxy::isolated::context_bytes;
pub(crate) use crate::executor_proxy::link::{Answering, Link, Request, no_descriptors};
pub(crate) use crate::executor_proxy::metering::{Meter, Rest, TOLERATED_BYTES, Taken};
pub(crate) use crate::executor_proxy::output::{OUTPUT_KEPT_BYTES, Output, Written};
pub(crate) use crate::executor_proxy::passed::Passed;

use crate::{
    ExecutorSource, Limits, compile::places::Places, executor_proxy::pool::Pool, ledger::DeviceLedger,
    principals::Counted, transport::packets::Packets,
};

/// An executor that lived shorter than this, in seconds, ended soon after its start.
const SOON_SECONDS: u32 = 10;
/// How long an executor that kept ending is left alone before somebody's wish starts the next, in seconds.
const REST_SECONDS: u32 = 10;

#[derive(Clone)]
enum State {
    /// None yet, or the next one soon.
    Starting,
    Running(Rc<Incarnation>),
    /// They kept ending: none is started until somebody asks.
    Down(Error),
}

/// An executor process that was started.
struct Started {
    incarnation: Rc<Incarnation>,
    process: Process,
}

/// A process, and what it has until it is gone. Nothing where the executor is not a child of this process.
struct Process {
    child: Option<Child>,
    cell: Option<cell::Cell>,
    output: Option<Rc<Output>>,
}

impl Process {
    /// Kills it where it does not end, waits for it, and gives back what it had.
    async fn finish(self) -> Option<io::Result<ExitStatus>> {
        let status = finish(self.child).await;
        if let Some(output) = self.output {
            output.end();
        }
        drop(self.cell);
        status
    }
}

/// The executors of one device: whichever serves it, and those that wait to.
pub(crate) struct ExecutorProxy {
    pub(crate) index: u32,
    source: ExecutorSource,
    environment: Vec<(OsString, OsString)>,
    limits: Limits,
    state: watch::Sender<State>,
    standby: RefCell<Option<incarnation::Standby>>,
    failovers: Cell<u32>,
    /// Images that were loaded: compiled, kept, loaded already.
    images: Cell<[u32; 3]>,
    starts: Cell<u32>,
    wanted: Notify,
    /// Local memory of the image that needed most so far, in bytes.
    local_bytes: Cell<u64>,
    /// Who uses how much of it.
    pub(crate) ledger: Rc<DeviceLedger>,
    /// Where executors of isolated sessions start, and those that have started.
    starting: Rc<Places>,
    pool: Pool,
    /// What bounds such executors.
    cells: Rc<cell::CellBlock>,
    /// Where its executor is one isolated session's alone.
    isolated: Option<isolated::Ending>,
    /// Memory of the device that is taken by nobody who is known.
    unclaimed: Cell<u64>,
}

impl ExecutorProxy {
    pub(crate) fn new(
        index: u32,
        source: ExecutorSource,
        environment: Vec<(OsString, OsString)>,
        limits: Limits,
        cells: Cells,
        ledger: Rc<DeviceLedger>,
    ) -> Self {
        Self {
            index,
            source,
            environment,
            limits,
            state: watch::Sender::new(State::Starting),
            standby: RefCell::default(),
            failovers: Cell::new(0),
            images: Cell::default(),
            starts: Cell::new(0),
            wanted: Notify::new(),
            local_bytes: Cell::new(0),
            ledger,
            starting: Places::new(limits::ISOLATED_STARTS_MAX, Counted::Waits),
            pool: Pool::new(limits.warm),
            cells: cell::CellBlock::new(cells),
            isolated: None,
            unclaimed: Cell::new(0),
        }
    }

    /// Notes that the driver keeps so many bytes of local memory ready for each thread as long as its process lives, whoever they were
    /// for and whatever became of that.
    pub(crate) fn note_local(&self, info: &DeviceInfo, thread_bytes: u32) {
        let bytes = u64::from(thread_bytes).saturating_mul(info.threads());
        // What the process of an isolated session has beside its memory is that session's.
        if bytes > self.local_bytes.get() && !self.is_isolated() {
            self.local_bytes.set(bytes);
            self.set_total(info);
        }
    }

    /// How many bytes of local memory there is room for.
    pub(crate) fn local_bytes_max(&self, info: &DeviceInfo) -> u64 {
        let others = self.others_bytes(info);
        let used = self.ledger.borrow().used().get(Resource::DeviceBytes);
        match self.is_isolated() {
            true => u64::MAX,
            false => {
                self.limits.local_bytes_beside(info, used.saturating_add(others)).max(self.local_bytes.get())
            }
        }
    }

    /// What sessions may not use: executors that wait have it, or nobody who is known.
    fn others_bytes(&self, info: &DeviceInfo) -> u64 {
        self.pool.bytes(info).saturating_add(self.unclaimed.get())
    }

    /// Says anew what all sessions may use.
    fn set_total(&self, info: &DeviceInfo) {
        let amounts = self.limits.total_amounts_beside(info, self.local_bytes.get(), self.others_bytes(info));
        self.ledger.borrow_mut().set_limits(amounts);
    }

    /// Counts an image that was loaded for a session.
    pub(crate) fn count_image(&self, origin: Origin) {
        let mut images = self.images.get();
        let count = match origin {
            Origin::Compiled => &mut images[0],
            Origin::Kept => &mut images[1],
            Origin::Loaded => &mut images[2],
        };
        *count = count.saturating_add(1);
        self.images.set(images);
    }

    /// How many images were compiled for their session, had been compiled before, were loaded already.
    pub(crate) fn images(&self) -> [u32; 3] {
        self.images.get()
    }

    /// What bounds it.
    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// How often an executor was started.
    pub(crate) fn starts(&self) -> u32 {
        self.starts.get()
    }

    /// The executor that serves now, if one does.
    pub(crate) fn running(&self) -> Option<Rc<Incarnation>> {
        match &*self.state.borrow() {
            State::Running(incarnation) if incarnation.link.failure().is_none() => {
                Some(Rc::clone(incarnation))
            }
            State::Running(_) | State::Starting | State::Down(_) => None,
        }
    }

    /// Asks the executor that serves for how long the work of its sessions has not passed. Waits for a moment at most.
    pub(crate) async fn ask_busy(&self) {
        if let Some(running) = self.running() {
            running.busy.ask(&running.link).await;
        }
    }

    /// What it answered for one of them, in milliseconds.
    pub(crate) fn busy_ms(&self, session: u32) -> u32 {
        self.running().map_or(0, |running| running.busy.of(session))
    }

    /// The executor that serves, waited for while one is being started.
    pub(crate) async fn wait(&self) -> Result<Rc<Incarnation>, Error> {
        let mut state = self.state.subscribe();
        // One that was left alone is given one more chance, and who asks learns what came of it.
        if matches!(*state.borrow_and_update(), State::Down(_)) {
            self.wanted.notify_one();
        }
        let settled = tokio::time::timeout(
            self.limits.start(),
            state.wait_for(|state| match state {
                State::Starting => false,
                State::Running(incarnation) => incarnation.link.failure().is_none(),
                State::Down(_) => true,
            }),
        )
        .await;
        match settled {
            Ok(Ok(state)) => match &*state {
                State::Running(incarnation) => Ok(Rc::clone(incarnation)),
                State::Down(error) => Err(error.clone()),
                State::Starting => Err(unavailable("no executor has started yet")),
            },
            Ok(Err(_)) => Err(unavailable("the kernel is ending")),
            Err(_) => Err(unavailable("no executor has started yet")),
        }
    }

    /// Keeps an executor running, and some for isolated sessions ready. Never ends.
    pub(crate) async fn supervise(self: Rc<Self>) {
        if self.limits.warm > 0 {
            tokio::task::spawn_local(Rc::clone(&self).keep_pool());
        }
        let mut failures = 0;
        loop {
            let started = Instant::now();
            let error = match self.live().await {
                Ok(never) => match never {},
                Err(error) => error,
            };
            let soon = started.elapsed() < self.limits.second * SOON_SECONDS;
            failures = if soon { failures + 1 } else { 1 };
            tracing::warn!(device = self.index, failures, %error, "no executor serves");
            if failures > limits::EXECUTOR_FAILURES_MAX {
                self.state.send_replace(State::Down(error.clone()));
                tokio::time::sleep(self.limits.second * REST_SECONDS).await;
                self.wanted.notified().await;
                continue;
            }
            self.state.send_replace(State::Starting);
            tokio::time::sleep(backoff(failures, self.limits.second)).await;
        }
    }

    /// One executor's life, and those of the standbys that take over from it. The error says why none serves (any more),
    /// for those who ask for a session next.
    async fn live(&self) -> Result<std::convert::Infallible, Error> {
        let mut started = self.launch().await?;
        loop {
            let error = self.serve(started).await;
            match self.take_over() {
                Some(standby) => started = standby,
                None => return Err(error),
            }
        }
    }

    /// Starts an executor process and learns what its device is.
    async fn launch(&self) -> Result<Started, Error> {
        let cannot = |error| unavailable(format!("no executor can be started: {error}"));
        let cell = if self.is_isolated() { Some(self.cells.take().map_err(no_cell)?) } else { None };
        let (packets, child) = self.start(cell.as_ref()).map_err(cannot)?;
        let mut process = Process { child, cell, output: None };
        match self.introduce(packets, &mut process).await {
            Ok(incarnation) => Ok(Started { incarnation, process }),
            Err(error) => {
                // What it told is worth more than that it ended; how it ended more than that its socket did.
                let status = process.finish().await;
                Err(match (error.code, status) {
                    (ErrorCode::DeviceLost, Some(status)) => unavailable(ended(&status)),
                    _ => Error { code: ErrorCode::Unavailable, ..error },
                })
            }
        }
    }

    /// Learns from an executor process what its device is.
    async fn introduce(&self, packets: Packets, process: &mut Process) -> Result<Rc<Incarnation>, Error> {
        let cannot = |error| unavailable(format!("no executor can be started: {error}"));
        let Process { child, cell, output } = process;
        self.starts.set(self.starts.get().saturating_add(1));
        let pid = child.as_ref().and_then(Child::id).unwrap_or(0);
        if let Some(cell) = cell.as_ref().filter(|_| pid > 0) {
            cell.hold(pid).map_err(cannot)?;
        }
        if let (Some(child), Some(isolated)) = (&mut *child, &self.isolated) {
            let begun = Output::begin(child.stdout.take(), child.stderr.take(), pid);
            isolated.reads(Rc::clone(&begun));
            *output = Some(begun);
        }
        let link = Link::start(packets, self.limits.request()).map_err(cannot)?;
        let described = link.call(None, Vec::new(), |mut request| request.set_describe(()));
        let described = tokio::select! {
            biased;
            described = described => described,
            status = exit(child) => Err(unavailable(ended(&status))),
            () = tokio::time::sleep(self.limits.start()) => {
                Err(unavailable("the executor does not say what its device is"))
            }
        };
        let info = match described {
            Ok(Answer::Device(info)) => info,
            Ok(_) => {
                link.fail_with("it did not say what its device is");
                return Err(unavailable("the executor did not say what its device is"));
            }
            Err(error) => {
                link.fail_with("it did not start");
                return Err(error);
            }
        };
        let slots = self.limits.sessions_max.min(limits::SESSIONS_MAX);
        let bound = cell.as_ref().and_then(cell::Cell::bound);
        Ok(Rc::new(Incarnation::new(link, info, pid, bound, slots)))
    }

    /// Serves with an executor until it is lost; why it was.
    async fn serve(&self, started: Started) -> Error {
        let Started { incarnation, mut process } = started;
        let (link, pid, info) = (Rc::clone(&incarnation.link), incarnation.pid, &incarnation.info);
        tracing::info!(
            device = self.index,
            pid,
            backend = info.backend,
            name = info.name,
            "an executor serves"
        );
        if !self.is_isolated() {
            self.set_total(info);
        }
        self.state.send_replace(State::Running(incarnation));
        let failure = tokio::select! {
            biased;
            status = exit(&mut process.child) => {
                link.fail_with(ended(&status));
                link.ended().await
            }
            failure = link.ended() => failure,
            () = self.told_to_end() => {
                link.fail_with(link::SESSION_OVER);
                link.ended().await
            }
        };
        self.state.send_replace(State::Starting);
        if let Some(child) = process.child.as_ref().filter(|_| self.is_isolated()) {
            // Whatever its kernels do, nobody waits for them.
            kill_all(child);
        }
        let (device, reason) = (self.index, failure.reason.clone());
        let ending = async move {
            let status = how(process.finish().await.as_ref());
            if reason == link::SESSION_OVER {
                tracing::info!(target: "bulkhead::audit", device, pid, status, "executor ended with its session");
            } else if let Some(unsaid) = link.line() {
                tracing::warn!(target: "bulkhead::audit", device, pid, %reason, status, unsaid, "executor ended");
            }
        };
        // Whoever goes on does not wait for the end of the process.
        if self.standby.borrow().is_some() {
            tokio::task::spawn_local(ending);
        } else {
            ending.await;
            self.local_bytes.set(0);
        }
        unavailable(format!("the last executor failed: {}", failure.reason))
    }

    fn start(&self, cell: Option<&cell::Cell>) -> io::Result<(Packets, Option<Child>)> {
        match &self.source {
            ExecutorSource::Command(command) => {
                let kind = match cell {
                    Some(cell) => {
                        spawn::Kind::Isolated { uid: cell.uid, memory_bytes: self.cells.memory_bytes() }
                    }
                    None => spawn::Kind::Shared,
                };
                let (packets, child) = spawn::spawn(command, &self.environment, kind)?;
                Ok((packets, Some(child)))
            }
            ExecutorSource::Connect(connect) => Ok((Packets::new(connect()?)?, None)),
        }
    }
}

/// Kills a process that is not waited for yet, with all that it may have started.
fn kill_all(child: &Child) {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw);
    if let Some(group) = pid {
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap_or_default();
    }
}

/// Kills a process that should be gone and waits for it.
async fn finish(child: Option<Child>) -> Option<io::Result<ExitStatus>> {
    let mut child = child?;
    // It is usually about to end: how it does says more than that it was killed.
    match tokio::time::timeout(Duration::from_millis(200), child.wait()).await {
        Ok(status) => Some(status),
        Err(_) => {
            if let Err(error) = child.kill().await {
                return Some(Err(error));
            }
            Some(child.wait().await)
        }
    }
}

/// Waits for the end of a process; for ever where there is none.
async fn exit(child: &mut Option<Child>) -> io::Result<ExitStatus> {
    match child {
        Some(child) => child.wait().await,
        None => std::future::pending().await,
    }
}

fn ended(status: &io::Result<ExitStatus>) -> String {
    format!("the executor process ended ({})", how(Some(status)))
}

/// How a process ended, for the log and for people.
fn how(status: Option<&io::Result<ExitStatus>>) -> String {
    match status {
        Some(Ok(status)) => status.to_string(),
        Some(Err(error)) => format!("it cannot be waited for: {error}"),
        None => "it is no child of the kernel's".to_owned(),
    }
}

/// At once the first time, then 0.1 s, then doubling up to ten seconds.
fn backoff(failures: u32, second: Duration) -> Duration {
    match failures {
        0 | 1 => Duration::ZERO,
        more => (second / 10 * 2u32.saturating_pow(more - 2)).min(second * 10),
    }
}

/// No more isolated sessions: there is a device, which has no place for one.
fn no_cell(error: io::Error) -> Error {
    // As often as clients ask: they are told.
    tracing::debug!(%error, "no executor can be started for an isolated session");
    Error::new(ErrorCode::LimitReached, format!("no executor can be started: {error}"))
        .remedy("try again when another isolated session has ended, or tell whoever runs `bulkhead serve`")
}

fn unavailable(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::Unavailable, message).remedy("`bulkhead doctor` says what is missing")
}
