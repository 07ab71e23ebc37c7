//! For how long the work of sessions has not passed, as their executor says it: for `status`.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    time::{Duration, Instant},
};

use super::{answer::Answer, link::Link};

/// What was told is good for so long: who asks often costs the executor no more.
const FRESH: Duration = Duration::from_millis(100);
/// An executor that does not answer in time is left out: `status` waits for nobody.
const PATIENCE: Duration = Duration::from_millis(200);

/// What an executor told last.
#[derive(Debug, Default)]
pub(super) struct BusyTimes {
    asked: Cell<Option<Instant>>,
    /// By session.
    told: RefCell<HashMap<u32, u32>>,
}

impl BusyTimes {
    /// Asks, unless somebody has just now.
    pub(super) async fn ask(&self, link: &Link) {
        if self.asked.get().is_some_and(|asked| asked.elapsed() < FRESH) {
            return;
        }
        self.asked.set(Some(Instant::now()));
        let asked = link.call(None, Vec::new(), |mut request| request.set_activity(()));
        let told = match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(Answer::Activity(sessions))) => {
                sessions.iter().map(|activity| (activity.session, activity.stuck_ms)).collect()
            }
            Ok(_) | Err(_) => HashMap::new(),
        };
        self.told.replace(told);
    }

    /// Milliseconds; 0 for a session without work, or where nobody asked.
    pub(super) fn of(&self, session: u32) -> u32 {
        self.told.borrow().get(&session).copied().unwrap_or(0)
    }
}
