//! Openings that are tried again: what they want is another's, who may be on its way out.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// So many wait at a time; more are refused at once.
const WAITING_MAX: usize = 16;
/// One of them is tried so often.
pub(crate) const AGAIN: Duration = Duration::from_millis(10);

/// Those who wait. One is tried at a time, in turn, however many there are: opening may be slow, and nobody else is served meanwhile.
pub(crate) struct Openings<T> {
    waiting: VecDeque<T>,
    tried: Instant,
}

impl<T> Openings<T> {
    pub(crate) fn new(now: Instant) -> Self {
        Self { waiting: VecDeque::new(), tried: now }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Has one wait.
    ///
    /// # Errors
    /// It comes back where there are too many.
    pub(crate) fn push(&mut self, opening: T) -> Result<(), T> {
        if self.waiting.len() >= WAITING_MAX {
            return Err(opening);
        }
        self.waiting.push_back(opening);
        Ok(())
    }

    /// The one whose turn it is, if it is time to try one.
    pub(crate) fn due(&mut self, now: Instant) -> Option<T> {
        if now.saturating_duration_since(self.tried) < AGAIN {
            return None;
        }
        let opening = self.waiting.pop_front()?;
        self.tried = now;
        Some(opening)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_tried_at_a_time_and_no_more_than_so_many_wait() {
        let begun = Instant::now();
        let mut openings = Openings::new(begun);
        for number in 0..WAITING_MAX {
            openings.push(number).unwrap();
        }
        assert_eq!(openings.push(99), Err(99));
        assert_eq!(openings.due(begun), None);
        let first = begun + AGAIN;
        assert_eq!(openings.due(first), Some(0));
        assert_eq!(openings.due(first), None, "the next has to wait");
        openings.push(0).unwrap();
        let turns: Vec<_> =
            (2..).map_while(|turn| openings.due(begun + AGAIN * turn)).take(WAITING_MAX).collect();
        assert_eq!(turns, (1..WAITING_MAX).chain([0]).collect::<Vec<_>>());
        assert!(openings.is_empty());
    }
}
