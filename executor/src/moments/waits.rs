//! Who waits for a moment when no kernel runs, and since when.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// Somebody who waits for a moment when no kernel runs.
#[derive(Debug)]
pub(super) struct Wait {
    /// Whose it is, where it is a session's.
    pub(super) session: Option<u32>,
    /// What for.
    pub(super) to: &'static str,
    /// Since when, or since there was such a moment for the last time.
    pub(super) since: Mutex<Instant>,
    /// Only its own session's work keeps it waiting, and has for too long.
    pub(super) in_vain: AtomicBool,
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

    pub(super) fn overdue(&self, now: Instant, patience: Duration) -> Vec<Arc<Wait>> {
        let is_overdue = |wait: &&Arc<Wait>| {
            let waits = !wait.in_vain.load(Ordering::Acquire);
            waits && now.saturating_duration_since(*wait.since.lock()) > patience
        };
        self.0.lock().iter().filter(is_overdue).map(Arc::clone).collect()
    }
}

/// Somebody's place among those who wait.
pub(crate) struct Entered {
    pub(super) wait: Arc<Wait>,
    waits: Waits,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.waits.0.lock().retain(|wait| !Arc::ptr_eq(wait, &self.wait));
    }
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
}
