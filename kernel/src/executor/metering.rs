//! What the processes of isolated sessions take of the device, by the word of NVIDIA's management library.
//!
//! Such a session is charged what it allocates, and a fixed sum for its context. Whatever its process takes beside that (arrays of
//! images, stacks, code, or memory that an executor in its tenant's hands takes behind the kernel's back) is charged as well, a
//! second later. A session that may not be charged it is ended.

use std::{collections::HashMap, rc::Rc};

use super::{Answer, Device};
use crate::session::Session;

/// Readings in a row that have to agree: memory that was just given back is counted for a moment longer.
const READINGS: usize = 3;
/// What a process may take beyond what its session can be charged.
pub(crate) const TOLERATED_BYTES: u64 = 512 << 20;

/// The last readings of one session's process.
#[derive(Default)]
pub(crate) struct Meter {
    beside: [u64; READINGS],
    next: usize,
}

impl Meter {
    /// Notes what the process had taken, and what the session was charged for then, at most. Answers what it takes beside.
    pub(crate) fn read(&mut self, taken: u64, charged: u64) -> u64 {
        if let Some(beside) = self.beside.get_mut(self.next) {
            *beside = taken.saturating_sub(charged);
        }
        self.next = (self.next + 1) % READINGS;
        self.beside.iter().copied().min().unwrap_or(0)
    }
}

impl Device {
    /// Reads the meters. Never ends.
    pub(super) async fn keep_metering(self: Rc<Self>) {
        let mut is_told = false;
        loop {
            tokio::time::sleep(self.limits.second).await;
            let sessions: Vec<(Rc<Session>, u64)> = self
                .books
                .sessions()
                .into_iter()
                .filter(|session| {
                    // Sessions opened from it draw on its account, and have its process.
                    session.device.is_isolated() && session.parent().is_none() && session.live().is_ok()
                })
                .map(|session| (Rc::clone(&session), session.charged_for_process()))
                .collect();
            let Some(shared) = self.running().filter(|_| !sessions.is_empty()) else { continue };
            let taken = match shared
                .link
                .call(None, Vec::new(), |mut request| request.set_taken_memory(()))
                .await
            {
                Ok(Answer::Words(words)) => words,
                Ok(_) | Err(_) if is_told => continue,
                Ok(_) => continue,
                Err(error) => {
                    is_told = true;
                    tracing::warn!(device = self.index, %error, "what processes take of the device is not known, nor charged");
                    continue;
                }
            };
            let of_process: HashMap<u64, u64> =
                taken.chunks_exact(2).filter_map(|pair| Some((*pair.first()?, *pair.get(1)?))).collect();
            for (session, before) in sessions {
                if let Some(taken) = of_process.get(&u64::from(session.incarnation().pid)) {
                    session.meter(*taken, before);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_for_a_moment_longer_is_not_charged() {
        let mut meter = Meter::default();
        // 40 given back, which the driver counts once more.
        assert_eq!([meter.read(60, 60), meter.read(60, 20), meter.read(20, 20), meter.read(20, 20)], [0; 4]);
        assert_eq!([meter.read(27, 20), meter.read(30, 20), meter.read(29, 20)], [0, 0, 7]);
        assert_eq!(meter.read(31, 20), 9);
        assert_eq!(meter.read(20, 20), 0, "what is gone is not charged any more");
    }
}
