//! For how long kernels that were told to end had the device to themselves.
//!
//! A kernel that was told to end may wait: its blocks start when those of other sessions leave room. So what does not end
//! beside neighbours at work says nothing of itself, and ending the executor for it would end those. Two clocks decide:
//! the time without a neighbour's work, and beside neighbours the time in which none of their work has passed.

use std::time::{Duration, Instant};

/// For so long kernels that were told to end may run beside neighbours none of whose work passes: either one of those runs
/// for that long, or what was told to end holds all multiprocessors.
const TOGETHER_MAX: Duration = Duration::from_secs(600);

/// And for so long after that neighbour was told to end.
const KEPT_MAX: Duration = Duration::from_secs(60);

/// What sessions have on the device at one look.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    /// Whether any that was not told to end has work there.
    pub(crate) busy: bool,
    /// Pieces of those sessions' work that have passed.
    pub(crate) passed: u64,
    /// How many that were told to end have work there: they share the device.
    pub(crate) ending: u32,
}

/// What the sessions that were not told to end have on the device, and how many others do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Neighbours {
    seen: Seen,
    /// When that number last changed, or none had work.
    progressed: Instant,
}

impl Neighbours {
    pub(crate) fn new(now: Instant) -> Self {
        Self { seen: Seen::default(), progressed: now }
    }

    /// Notes what they have there. A session that is gone takes the count of what has passed along, which is progress too.
    pub(crate) fn look(&mut self, now: Instant, seen: Seen) {
        if !seen.busy || seen.passed != self.seen.passed {
            self.progressed = now;
        }
        self.seen = seen;
    }
}

/// The clocks of one session whose kernels were told to end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clocks {
    since: Instant,
    looked: Instant,
    alone: Duration,
}

impl Clocks {
    pub(crate) fn new(now: Instant) -> Self {
        Self { since: now, looked: now, alone: Duration::ZERO }
    }

    /// Notes whether they have the device to themselves. Who looks seldom takes what is so then for what was so since.
    pub(crate) fn look(&mut self, now: Instant, neighbours: Neighbours) {
        let Seen { busy, ending, .. } = neighbours.seen;
        if !busy {
            // Who ends beside others has its part of the device.
            self.alone += now.saturating_duration_since(self.looked) / ending.max(1);
        }
        self.looked = now;
    }

    /// Whether they wait beside neighbours none of whose work has passed for long: one of those is to end.
    pub(crate) fn are_kept(&self, now: Instant, neighbours: Neighbours) -> bool {
        let since = self.since.max(neighbours.progressed);
        neighbours.seen.busy && now.saturating_duration_since(since) >= TOGETHER_MAX
    }

    /// Whether the kernels should have ended by now: they had the device to themselves for `grace`, or nobody's work passes.
    pub(crate) fn are_over(&mut self, now: Instant, neighbours: Neighbours, grace: Duration) -> bool {
        self.look(now, neighbours);
        let stuck_since = self.since.max(neighbours.progressed);
        self.alone >= grace
            || neighbours.seen.busy
                && now.saturating_duration_since(stuck_since) >= grace.max(TOGETHER_MAX) + KEPT_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(1);

    /// Looks every tenth of a second for so many seconds at neighbours of whom a piece passes every `piece` seconds; when it
    /// is over.
    fn over_after(seconds: u64, busy: impl Fn(u64) -> bool, piece: u64) -> Option<f64> {
        over_beside(1, seconds, busy, piece)
    }

    /// The same where so many sessions are about to end.
    fn over_beside(ending: u32, seconds: u64, busy: impl Fn(u64) -> bool, piece: u64) -> Option<f64> {
        let begun = Instant::now();
        let (mut neighbours, mut clocks) = (Neighbours::new(begun), Clocks::new(begun));
        (1..=seconds * 10).find_map(|tenth| {
            let now = begun + Duration::from_millis(tenth * 100);
            neighbours.look(now, Seen { busy: busy(tenth), passed: tenth / (piece * 10), ending });
            clocks.are_over(now, neighbours, GRACE).then(|| (now - begun).as_secs_f64())
        })
    }

    #[test]
    fn who_has_the_device_alone_has_its_grace() {
        assert_eq!(over_after(10, |_| false, 1), Some(1.0));
    }

    #[test]
    fn sessions_that_end_at_once_have_their_part_of_the_device() {
        let after = over_beside(8, 20, |_| false, 1).unwrap();
        assert!((7.9..8.1).contains(&after), "{after}");
    }

    #[test]
    fn beside_neighbours_whose_work_passes_nothing_is_over() {
        assert_eq!(over_after(3_000, |_| true, 1), None);
        assert_eq!(over_after(3_000, |_| true, 300), None);
    }

    #[test]
    fn time_beside_neighbours_does_not_count() {
        // A second in two.
        let after = over_after(10, |tenth| tenth / 10 % 2 == 0, 1).unwrap();
        assert!((1.9..2.3).contains(&after), "{after}");
    }

    #[test]
    fn where_nobodys_work_passes_it_is_over_at_last() {
        let after = over_after(2_000, |_| true, 10_000).unwrap();
        assert!((660.0..661.0).contains(&after), "{after}");
        // A minute before, whoever keeps it waiting is to end.
        let begun = Instant::now();
        let mut neighbours = Neighbours::new(begun);
        neighbours.look(begun, Seen { busy: true, passed: 1, ending: 1 });
        let is_kept = |seconds| Clocks::new(begun).are_kept(begun + Duration::from_secs(seconds), neighbours);
        assert_eq!([599, 600].map(is_kept), [false, true]);
    }
}
