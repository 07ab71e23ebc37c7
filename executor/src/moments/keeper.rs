//! Shuts the gate where somebody has waited for too long, and says whose work is to be ended then.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use crate::{
    executor::Executor,
    moments::{gate::Closed, waits::Wait},
    session::Session,
    watch::busy::Runs,
};

/// When the gate is shut, what takes no longer passes before anybody is ended.
const SHORT: Duration = Duration::from_secs(1);
/// When the work of somebody who was ended is gone, so long nobody is.
const TURN: Duration = Duration::from_secs(2);
/// Whoever was ended and still has work on the device after so long waits for somebody else's: the next is ended. As long as kernels
/// that reach host memory may take to end.
const ENDED_MAX: Duration = Duration::from_secs(10);
/// How long the gate stays shut at most, beside twice [`Patience::loading`](crate::watch::patience::Patience::loading).
const SHUT_MAX: Duration = Duration::from_secs(60);
/// How long the gate stays shut at most once no kernel runs, until all who are overdue have had their turn: each needs some milliseconds,
/// and large code a second.
const MOMENT: Duration = Duration::from_secs(3);
/// After it was shut it stays open for so many times as long.
const REST: u32 = 4;

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
            let runs = session.runs()?;
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
        executor.gate.be_shut(true);
        self.shut = Some(Shut { since: now, idle: None, _closed: closed });
    }

    /// Everybody goes on. Whoever still waits has had a moment, and begins to wait anew.
    fn open(&mut self, executor: &Executor, overdue: &[Arc<Wait>], now: Instant) {
        let Some(shut) = self.shut.take() else { return };
        self.ended = None;
        overdue.iter().for_each(|wait| *wait.since.lock() = now);
        self.next = now + now.saturating_duration_since(shut.since) * REST;
        executor.gate.be_shut(false);
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
}
