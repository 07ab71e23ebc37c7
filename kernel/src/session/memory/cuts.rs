//! How often others may have a session's memory cut: each cut halts all its streams.

use std::time::Duration;

use tokio::{
    sync::{Mutex, MutexGuard},
    time::Instant,
};

/// After a cut the session goes on for so many times as long as that took.
const REST: u32 = 9;

/// The time from which the next cut may begin.
#[derive(Default)]
pub(crate) struct Cuts(Mutex<Option<Instant>>);

/// A cut that is being made.
pub(crate) struct Cut<'a> {
    next: MutexGuard<'a, Option<Instant>>,
    begun: Instant,
}

impl Cuts {
    /// Waits until a cut may begin: one after the other, and for a tenth of the time at most.
    pub(crate) async fn turn(&self) -> Cut<'_> {
        let next = self.0.lock().await;
        if let Some(at) = *next {
            tokio::time::sleep_until(at).await;
        }
        Cut { next, begun: Instant::now() }
    }
}

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        let took: Duration = self.begun.elapsed();
        *self.next = Some(Instant::now() + took.saturating_mul(REST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_session_is_halted_for_a_tenth_of_the_time() {
        let cuts = Cuts::default();
        let (begun, one) = (Instant::now(), Duration::from_millis(5));
        for _ in 0..4 {
            let _cut = cuts.turn().await;
            tokio::time::sleep(one).await;
        }
        assert!(begun.elapsed() >= one * (4 + 3 * REST));
    }
}
