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
//! [`Patience::loading`]: crate::watch::warden::Patience

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bulkhead_schema::{Error, ErrorCode};
use parking_lot::Mutex;

use crate::{
    executor::Executor,
    session::Session,
    watch::warden::{Runs, runs},
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
/// Work that a session may have on the device while somebody waits for such a moment; how long that is so at a time; and for how many
/// times as long it is not, afterwards.
pub(crate) const NARROW: u32 = 4;
/// Whose work does not pass for so long may have as much as ever.
pub(crate) const NARROW_STUCK: Duration = Duration::from_millis(200);
const NARROW_MAX: Duration = Duration::from_secs(10);
const WIDE: u32 = 1;
/// How long somebody waits for what is queued, before work is held back.
const QUEUED_MAX: Duration = Duration::from_secs(2);
/// When the gate is shut, what takes no longer passes before anybody is ended.
const SHORT: Duration = Duration::from_secs(1);
/// When the work of somebody who was ended is gone, so long nobody is.
const TURN: Duration = Duration::from_secs(2);
/// Whoever was ended and still has work on the device after so long waits for somebody else's: the next is ended. As long as kernels
/// that reach host memory may take to end.
const ENDED_MAX: Duration = Duration::from_secs(10);
/// How long the gate stays shut at most, beside twice [`Patience::loading`](crate::watch::warden::Patience::loading).
const SHUT_MAX: Duration = Duration::from_secs(60);
/// How long the gate stays shut at most once no kernel runs, until all who are overdue have had their turn: each needs some milliseconds,
/// and large code a second.
const MOMENT: Duration = Duration::from_secs(3);
/// After it was shut it stays open for so many times as long.
const REST: u32 = 4;

/// What keeps everybody from submitting.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// How many hold it closed.
    closed: AtomicU32,
    shut: AtomicBool,
    narrow: AtomicBool,
    /// How many have it be so.
    narrowing: AtomicU32,
    narrowed: Mutex<Narrowed>,
}

/// Since when the gate has been narrow, and when it may be so again.
#[derive(Debug, Default)]
struct Narrowed {
    since: Option<Instant>,
    next: Option<Instant>,
}

impl Narrowed {
    /// Whether it is to be narrow now, while somebody `waits` or not.
    fn look(&mut self, now: Instant, waits: bool) -> bool {
        if let Some(since) = self.since {
            let lasted = now.saturating_duration_since(since);
            if waits && lasted < NARROW_MAX {
                return true;
            }
            (self.since, self.next) = (None, Some(now + lasted * WIDE));
        }
        if waits && self.next.is_none_or(|next| now >= next) {
            self.since = Some(now);
        }
        self.since.is_some()
    }
}

impl Gate {
    /// Whether nothing may be submitted.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) > 0
    }

    /// Whether that may take long.
    pub(crate) fn is_shut(&self) -> bool {
        self.shut.load(Ordering::Acquire)
    }

    /// Whether sessions may have little on the device.
    pub(crate) fn is_narrow(&self) -> bool {
        self.narrow.load(Ordering::Relaxed)
    }

    /// Makes it so, or not any more. Whether it is.
    pub(crate) fn narrow(&self, now: Instant, waits: bool) -> bool {
        let is_narrow = self.narrowed.lock().look(now, waits);
        self.narrow.store(is_narrow, Ordering::Relaxed);
        is_narrow
    }

    /// Closes it until the result is dropped. Whoever submits looks at it with its session's state locked: whoever locks that
    /// afterwards finds all that was submitted.
    fn close(self: &Arc<Self>) -> Closed {
        self.closed.fetch_add(1, Ordering::AcqRel);
        Closed(Arc::clone(self))
    }
}

/// Holds the gate closed.
struct Closed(Arc<Gate>);

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.closed.fetch_sub(1, Ordering::AcqRel);
    }
}

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

/// Somebody who waits for a moment when no kernel runs.
#[derive(Debug)]
struct Wait {
    /// Whose it is, where it is a session's.
    session: Option<u32>,
    /// What for.
    to: &'static str,
    /// Since when, or since there was such a moment for the last time.
    since: Mutex<Instant>,
    /// Only its own session's work keeps it waiting, and has for too long.
    in_vain: AtomicBool,
}

/// All of them. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Waits(Arc<Mutex<Vec<Arc<Wait>>>>);

impl Waits {
    /// Notes somebody, until the result is dropped.
    pub(crate) fn enter(&self, session: Option<u32>, to: &'static str) -> Entered {
        let (since, in_vain) = (Mutex::new(Instant::now()), AtomicBool::new(false));
        let wait = Arc::new(Wait { session, to, since, in_vain });
        self.0.lock().push(Arc::clone(&wait));
        Entered { wait, waits: self.clone() }
    }

    /// Whose waits have lasted for longer than `patience`.
    #[cfg(test)]
    pub(crate) fn sessions_overdue(&self, now: Instant, patience: Duration) -> Vec<Option<u32>> {
        self.overdue(now, patience).iter().map(|wait| wait.session).collect()
    }

    fn overdue(&self, now: Instant, patience: Duration) -> Vec<Arc<Wait>> {
        let is_overdue = |wait: &&Arc<Wait>| {
            let waits = !wait.in_vain.load(Ordering::Acquire);
            waits && now.saturating_duration_since(*wait.since.lock()) > patience
        };
        self.0.lock().iter().filter(is_overdue).map(Arc::clone).collect()
    }
}

/// Somebody's place among those who wait.
pub(crate) struct Entered {
    wait: Arc<Wait>,
    waits: Waits,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.waits.0.lock().retain(|wait| !Arc::ptr_eq(wait, &self.wait));
    }
}

/// Has the gate be as wide as before once the last has gone who had it be narrow.
struct Narrow<'a>(&'a Gate);

impl<'a> Narrow<'a> {
    fn new(gate: &'a Gate) -> Self {
        gate.narrowing.fetch_add(1, Ordering::AcqRel);
        Self(gate)
    }
}

impl Drop for Narrow<'_> {
    fn drop(&mut self) {
        if self.0.narrowing.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.narrow(Instant::now(), false);
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

/// Since when the gate is shut.
struct Shut {
    since: Instant,
    /// Since when no kernel runs.
    idle: Option<Instant>,
    _closed: Closed,
}

/// A session's work that keeps somebody waiting who is overdue.
pub(crate) struct Keeps {
    pub(crate) session: Arc<Session>,
    /// What was waited for.
    pub(crate) to: &'static str,
}

/// Shuts the gate where somebody is overdue.
pub(crate) struct Keeper {
    shut: Option<Shut>,
    /// When it may be shut again.
    next: Instant,
    /// Whose work was ended last.
    ended: Option<Last>,
}

/// A session that was ended: when, and since when none of its work is left.
struct Last {
    session: Arc<Session>,
    at: Instant,
    gone: Option<Instant>,
}

impl Keeper {
    pub(crate) fn new(now: Instant) -> Self {
        Self { shut: None, next: now, ended: None }
    }

    /// Shuts the gate, or opens it. Whose work is to be ended.
    pub(crate) fn look(&mut self, executor: &Executor, now: Instant) -> Option<Keeps> {
        let overdue = executor.waits.overdue(now, executor.patience.loading);
        if overdue.is_empty() && self.shut.is_none() {
            return None;
        }
        if let Some(shut) = &mut self.shut {
            if shut.idle.is_none() && executor.is_idle() {
                shut.idle = Some(now);
            }
            let had_it = shut.idle.is_some_and(|idle| now.saturating_duration_since(idle) > MOMENT);
            let shut_for = now.saturating_duration_since(shut.since);
            let is_enough = shut_for > executor.patience.loading * 2 + SHUT_MAX;
            if overdue.is_empty() || had_it || is_enough {
                self.open(executor, &overdue, now);
                return None;
            }
        }
        match &self.shut {
            Some(shut) => {
                let shut_for = now.saturating_duration_since(shut.since);
                self.keeps_waiting(executor, &overdue, now, shut_for)
            }
            None => {
                if now >= self.next {
                    self.shut(executor, now);
                }
                None
            }
        }
    }

    /// Who is ended next, if anybody is now. Where all who are overdue wait for a session of their own, that is not ended: they give
    /// up.
    fn keeps_waiting(
        &mut self,
        executor: &Executor,
        overdue: &[Arc<Wait>],
        now: Instant,
        shut_for: Duration,
    ) -> Option<Keeps> {
        let patience = executor.patience.loading;
        if shut_for <= SHORT || !self.had_their_turn(now) {
            return None;
        }
        let busy = executor.sessions().into_iter().filter_map(|session| {
            let runs = runs(&session)?;
            Some((session, runs))
        });
        let session = next_to_end(busy.collect(), now, patience, shut_for)?;
        match overdue.iter().find(|wait| wait.session != Some(session.id)) {
            Some(wait) => {
                self.ended = Some(Last { session: Arc::clone(&session), at: now, gone: None });
                Some(Keeps { session, to: wait.to })
            }
            None => {
                overdue.iter().for_each(|wait| wait.in_vain.store(true, Ordering::Release));
                None
            }
        }
    }

    /// Whether whoever may have waited for the device behind a session that was ended has had it since.
    fn had_their_turn(&mut self, now: Instant) -> bool {
        let Some(Last { session, at, gone }) = &mut self.ended else { return true };
        if session.state.lock().streams.in_flight() > 0 {
            return now.saturating_duration_since(*at) > ENDED_MAX;
        }
        let gone = *gone.get_or_insert(now);
        now.saturating_duration_since(gone) > TURN
    }

    fn shut(&mut self, executor: &Executor, now: Instant) {
        tracing::debug!("somebody has waited for too long: no new work is taken until no kernel runs");
        let closed = executor.gate.close();
        executor.gate.shut.store(true, Ordering::Release);
        self.shut = Some(Shut { since: now, idle: None, _closed: closed });
    }

    /// Everybody goes on. Whoever still waits has had a moment, and begins to wait anew.
    fn open(&mut self, executor: &Executor, overdue: &[Arc<Wait>], now: Instant) {
        let Some(shut) = self.shut.take() else { return };
        self.ended = None;
        overdue.iter().for_each(|wait| *wait.since.lock() = now);
        self.next = now + now.saturating_duration_since(shut.since) * REST;
        executor.gate.shut.store(false, Ordering::Release);
        drop(shut);
        for session in executor.sessions() {
            // A pump that found it shut sleeps once its session's state is free.
            drop(session.state.lock());
            session.wake();
        }
    }
}

/// Of those that have work on the device, whose is not waited for any longer: nobody's, until the gate has been shut for
/// `patience` or the work of none has passed for so long, since whoever seems to run on may only wait for the device. Then
/// it is the one of whose streams one has gone on for longest. Streams and blocks say nothing of who has the device.
fn next_to_end<S>(busy: Vec<(S, Runs)>, now: Instant, patience: Duration, shut_for: Duration) -> Option<S> {
    let ran =
        |since: Option<Instant>| since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
    let all_run_on = busy.iter().all(|(_, runs)| ran(runs.stuck) > patience);
    if shut_for <= patience && !all_run_on {
        return None;
    }
    let (session, _) = busy.into_iter().max_by_key(|(_, runs)| (ran(runs.stuck), ran(runs.since)))?;
    Some(session)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_waited_for_longer_is_overdue_until_a_moment_or_the_end_of_the_wait() {
        const PATIENCE: Duration = Duration::from_secs(1);
        let waits = Waits::default();
        let (first, second) = (waits.enter(Some(1), "load code"), waits.enter(None, "take a module away"));
        let now = Instant::now();
        assert!(waits.overdue(now, PATIENCE).is_empty());
        let late = now + 2 * PATIENCE;
        let sessions = |now| waits.sessions_overdue(now, PATIENCE);
        assert_eq!(sessions(late), [Some(1), None]);
        *first.wait.since.lock() = late;
        assert_eq!(sessions(late), [None]);
        second.wait.in_vain.store(true, Ordering::Release);
        assert!(sessions(late).is_empty());
        drop(first);
        assert!(sessions(late + 2 * PATIENCE).is_empty());
    }

    #[test]
    fn the_gate_is_narrow_while_somebody_waits_and_half_of_the_time_at_most() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut narrowed = Narrowed::default();
        assert!(!narrowed.look(at(0), false), "nobody waits");
        assert!(narrowed.look(at(1), true) && narrowed.look(at(3), true));
        assert!(!narrowed.look(at(4), false));
        // As long again as it was.
        assert!(!narrowed.look(at(5), true) && !narrowed.look(at(6), true) && narrowed.look(at(7), true));
        assert!(narrowed.look(at(16), true) && !narrowed.look(at(17), true), "for so long at most");
        assert!(!narrowed.look(at(26), true) && narrowed.look(at(27), true));
    }

    #[test]
    fn the_gate_is_wide_again_when_the_last_has_gone_who_had_it_be_narrow() {
        let gate = Gate::default();
        let (first, second) = (Narrow::new(&gate), Narrow::new(&gate));
        assert!(gate.narrow(Instant::now(), true));
        drop(first);
        assert!(gate.is_narrow());
        drop(second);
        assert!(!gate.is_narrow(), "whoever else waits for something");
    }

    #[test]
    fn whoever_has_gone_on_for_longest_is_ended_before_who_may_only_wait_for_the_device() {
        const PATIENCE: Duration = Duration::from_secs(10);
        let now = Instant::now() + 100 * PATIENCE;
        let ago = |tenths: u32| now.checked_sub(PATIENCE / 10 * tenths);
        let runs = |name, since, stuck| (name, Runs { since: ago(since), stuck: ago(stuck) });
        let next = |busy: &[(&'static str, Runs)], shut_for: u32| {
            next_to_end(busy.to_vec(), now, PATIENCE, PATIENCE / 10 * shut_for)
        };
        let waits = runs("waits", 40, 12);
        let endless = runs("endless", 30, 30);
        let young = runs("young", 7, 7);
        // Whoever runs on may only wait for who does not yet.
        assert_eq!(next(&[waits, endless, young], 5), None);
        assert_eq!(next(&[waits, endless, young], 11), Some("endless"));
        assert_eq!(next(&[waits, young], 11), Some("waits"));
        assert_eq!(next(&[waits, endless], 5), Some("endless"));
        assert_eq!(next(&[runs("older", 41, 12), waits], 5), Some("older"));
        assert_eq!(next(&[], 11), None);
    }

    #[test]
    fn a_gate_is_closed_until_nobody_holds_it() {
        let gate = Arc::new(Gate::default());
        let (first, second) = (gate.close(), gate.close());
        drop(first);
        assert!(gate.is_closed() && !gate.is_shut());
        drop(second);
        assert!(!gate.is_closed());
    }
}
