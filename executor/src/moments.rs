//! Moments when no kernel runs, and the *gate*, which holds new work back until there is one.
//!
//! Loading code, and giving host memory back, wait for every kernel that runs and keep everybody from launching meanwhile. So
//! they are done at such a moment. Whoever waits for one closes the gate for at most 80 ms, and for 640 ms after two seconds.
//! Where somebody's work runs on, everybody goes on for a second, or for ten times as long. Meanwhile sessions get little more
//! onto the device than it is at work on, for half of the time at most: what is queued there, seconds of it, would have to
//! pass first. Who has waited so in vain for as long as [`Patience::loading`] says is *overdue*: then the
//! gate is *shut*, and stays so until the moment has come.
//!
//! What runs while the gate is shut began before. Short kernels pass, and so do the slices of a grid. Where nobody's work has
//! passed for `Patience::loading`, or the gate has been shut for that long, those that are left are ended: one by one, first
//! whoever has gone on for longest, since who waits for the device came later. The others have a moment each time, as it may be
//! that they only waited for it. Nobody who comes back can make the wait any longer. The gate is shut for a fifth of the time at
//! most, whoever waits.
//!
//! [`Patience::loading`]: crate::watch::patience::Patience

pub(crate) mod gate;
pub(crate) mod keeper;
pub(crate) mod waits;

use std::{
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use bulkhead_schema::{Error, ErrorCode};

use crate::{
    executor::Executor,
    moments::{
        gate::{NARROW, NARROW_STUCK, Narrow},
        waits::{Entered, Waits},
    },
    session::Session,
};

/// How long work is held back to find a moment when no kernel runs: at first, and at most.
const PATIENCE_MIN: Duration = Duration::from_millis(20);
const PATIENCE_MAX: Duration = Duration::from_millis(80);
/// The same for who has waited for some time: kernels that follow each other without a gap are longer than that.
const PATIENCE_LATE: Duration = Duration::from_millis(640);
const LATE: Duration = Duration::from_secs(2);
/// How long everybody goes on before that is tried again, at least; and how many times as long as work was held back.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSES: u32 = 10;
/// How often somebody who waits for such a moment looks, while work is held back and while it is not.
const LOOK: Duration = Duration::from_micros(50);
const LOOK_LATE: Duration = Duration::from_millis(5);
/// How long somebody waits for what is queued, before work is held back.
const QUEUED_MAX: Duration = Duration::from_secs(2);

/// What a moment when no kernel runs is needed for.
#[derive(Clone, Copy)]
pub(crate) enum Need<'a> {
    /// A session loads code.
    Code(&'a Session),
    /// A module's host memory goes.
    Module,
}

impl Need<'_> {
    fn enter(self, waits: &Waits) -> Entered {
        match self {
            Self::Code(session) => waits.enter(Some(session.id), "load code"),
            Self::Module => waits.enter(None, "take a module away"),
        }
    }

    /// Whether it is needed still; if not, why.
    fn live(self) -> Result<(), Error> {
        match self {
            Self::Code(session) => session.live(),
            Self::Module => Ok(()),
        }
    }
}

/// What somebody found who looked for a moment when no kernel runs.
enum Found<T> {
    Moment(T),
    /// Somebody's work runs on.
    Work,
    /// Work was held back in vain just now, and everybody goes on for a while.
    Pause,
}

impl Executor {
    fn is_idle(&self) -> bool {
        let is_idle = |session: &Arc<Session>| {
            let streams = &mut session.state.lock().streams;
            // A device that is lost ends the process elsewhere; until then it is not idle.
            streams.mark_all().is_ok() && streams.in_flight() == 0
        };
        self.closing.load(Ordering::Acquire) == 0 && self.sessions().iter().all(is_idle)
    }

    /// Whether every session has little on the device, or what does not pass.
    fn is_near(&self) -> bool {
        let has_little = |session: &Arc<Session>| {
            let mut state = session.state.lock();
            let goes_on = state.goes_on_for(NARROW_STUCK);
            state.streams.mark_all().is_ok() && (goes_on || state.streams.in_flight() <= NARROW)
        };
        self.sessions().iter().all(has_little)
    }

    /// Does something while no session has work on the device, if that is so now.
    pub(crate) fn while_idle(&self, work: impl FnOnce()) {
        let Some(_turn) = self.draining.try_lock() else { return };
        if !self.is_idle() {
            return;
        }
        let _closed = self.gate.close();
        if self.is_idle() {
            work();
        }
    }

    /// Does something that waits for every running kernel and keeps everybody from launching meanwhile: at a moment when
    /// no kernel runs. An error says that the session which needs that is over, or keeps the device busy itself.
    pub(crate) fn while_drained<T>(&self, need: Need<'_>, work: impl FnOnce() -> T) -> Result<T, Error> {
        let entered = need.enter(&self.waits);
        let began = Instant::now();
        let mut patience = PATIENCE_MIN;
        let mut work = Some(work);
        let _narrow = Narrow::new(&self.gate);
        loop {
            need.live()?;
            let is_narrow = self.gate.narrow(Instant::now(), true);
            // What is queued passes first, and everybody goes on.
            if !is_narrow || began.elapsed() > QUEUED_MAX || self.is_near() {
                let most = if began.elapsed() > LATE { PATIENCE_LATE } else { PATIENCE_MAX };
                match self.drained_within(patience, || work.take().map(|work| work())) {
                    Found::Moment(Some(done)) => return Ok(done),
                    Found::Moment(None) | Found::Pause => {}
                    Found::Work => patience = (patience * 2).min(most),
                }
            }
            if entered.wait.in_vain.load(Ordering::Acquire) {
                return Err(keeps_itself_waiting(self.patience.loading));
            }
            thread::sleep(LOOK_LATE);
        }
    }

    /// The same for who can do without: new work is held back once, for a moment, and nobody is ended.
    pub(crate) fn try_drained(&self, work: impl FnOnce()) {
        self.drained_within(PATIENCE_MAX, work);
    }

    /// Does something where no kernel runs within so long, and new work has not been held back in vain just now.
    fn drained_within<T>(&self, patience: Duration, work: impl FnOnce() -> T) -> Found<T> {
        let mut turn = self.draining.lock();
        // Nothing new comes: whoever shut the gate waits, for all of them.
        let is_shut = self.gate.is_shut();
        let start = Instant::now();
        if !is_shut && turn.is_some_and(|until| until > start) {
            return Found::Pause;
        }
        let patience = if is_shut { Duration::ZERO } else { patience };
        let _closed = self.gate.close();
        while !self.is_idle() && start.elapsed() < patience {
            thread::sleep(LOOK);
        }
        if self.is_idle() {
            return Found::Moment(work());
        }
        if !is_shut {
            *turn = Some(Instant::now() + PAUSE.max(patience * PAUSES));
        }
        Found::Work
    }
}

fn keeps_itself_waiting(patience: Duration) -> Error {
    let message = format!(
        "code is loaded when no kernel runs, and the session's own have run for {patience:?} while it waited"
    );
    Error::new(ErrorCode::TimedOut, message)
        .remedy("load code before kernels that run for long, or serve with a larger --loading-seconds")
}
