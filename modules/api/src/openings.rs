//! Openings that are tried again: what they want is another's, who may be on its way out.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// So many wait at a time, and so many of one process; more are refused at once.
const WAITING_MAX: usize = 16;
const OF_A_PROCESS: usize = 2;
/// One of them is tried so often.
pub(crate) const AGAIN: Duration = Duration::from_millis(10);

/// Those who wait. One is tried at a time, in turn, however many there are: opening may be slow, and nobody else is served meanwhile.
pub(crate) struct Openings<T> {
    waiting: VecDeque<(i32, T)>,
    tried: Instant,
}

impl<T> Openings<T> {
    pub(crate) fn new(now: Instant) -> Self {
        Self { waiting: VecDeque::new(), tried: now }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Has one of a process wait.
    ///
    /// # Errors
    /// It comes back where there are too many.
    pub(crate) fn push(&mut self, process: i32, opening: T) -> Result<(), T> {
        let own = self.waiting.iter().filter(|(of, _)| *of == process).count();
        if self.waiting.len() >= WAITING_MAX || own >= OF_A_PROCESS {
            return Err(opening);
        }
        self.waiting.push_back((process, opening));
        Ok(())
    }

    /// The one whose turn it is, if it is time to try one.
    pub(crate) fn due(&mut self, now: Instant) -> Option<T> {
        if now.saturating_duration_since(self.tried) < AGAIN {
            return None;
        }
        let (_, opening) = self.waiting.pop_front()?;
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
            openings.push(i32::try_from(number / OF_A_PROCESS).unwrap(), number).unwrap();
        }
        assert_eq!(openings.push(1000, 99), Err(99));
        assert_eq!(openings.due(begun), None);
        let first = begun + AGAIN;
        assert_eq!(openings.due(first), Some(0));
        assert_eq!(openings.due(first), None, "the next has to wait");
        openings.push(0, 0).unwrap();
        let turns: Vec<_> =
            (2..).map_while(|turn| openings.due(begun + AGAIN * turn)).take(WAITING_MAX).collect();
        assert_eq!(turns, (1..WAITING_MAX).chain([0]).collect::<Vec<_>>());
        assert!(openings.is_empty());
        openings.push(7, 1).unwrap();
        openings.push(7, 2).unwrap();
        assert_eq!(openings.push(7, 3), Err(3), "one process has its places only");
        openings.push(8, 3).unwrap();
    }
}
