//! What the processes of isolated sessions take of the device, by the word of NVIDIA's management library.
//!
//! Such a session is charged what it allocates, and a fixed sum for its context. Whatever its process takes beside that (arrays of
//! images, stacks, code, or memory that an executor in its tenant's hands takes behind the kernel's back) is charged as well, a
//! second later. A session that may not be charged it is ended.
//!
//! Memory that was handed out by a descriptor belongs to no process once its maker has given it back, however long somebody keeps
//! it, and NVIDIA's word does not say who does. Sessions may not use what is taken so, and `bulkhead status` tells it.

use std::collections::HashMap;

use crate::executor_proxy::{ExecutorProxy, Incarnation};

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

/// The last readings of what is taken of the device beside what processes have.
#[derive(Default)]
pub(crate) struct Rest {
    last: [u64; READINGS],
    next: usize,
    readings: usize,
    /// What nobody ever has: the driver's own.
    least: Option<u64>,
}

impl Rest {
    /// Notes a reading. Answers what is taken by nobody who is known, and not by the driver itself.
    pub(crate) fn read(&mut self, rest: u64) -> u64 {
        if let Some(last) = self.last.get_mut(self.next) {
            *last = rest;
        }
        self.next = (self.next + 1) % READINGS;
        self.readings += 1;
        if self.readings < READINGS {
            return 0;
        }
        // Both are read one after the other, so a single reading may be too low as well as too high.
        let highest = self.last.iter().copied().max().unwrap_or(0);
        let least = self.least.map_or(highest, |least| least.min(highest));
        self.least = Some(least);
        let lowest = self.last.iter().copied().min().unwrap_or(0);
        lowest.saturating_sub(least)
    }
}

/// What NVIDIA's library says.
pub(crate) struct Taken {
    all: Option<u64>,
    pub(crate) of_process: HashMap<u64, u64>,
}

impl Taken {
    pub(crate) fn of(words: &[u64]) -> Option<Self> {
        let pairs = words.chunks_exact(2).filter_map(|pair| Some((*pair.first()?, *pair.get(1)?)));
        let mut of_process: HashMap<_, _> = pairs.collect();
        let all = of_process.remove(&0);
        (all.is_some() || !of_process.is_empty()).then_some(Self { all, of_process })
    }

    /// What no process has; unknown where it is not told of every process what it has.
    pub(crate) fn rest(&self) -> Option<u64> {
        let all = self.all?;
        Some(all.saturating_sub(self.of_process.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))))
    }
}

impl ExecutorProxy {
    /// Notes how much is taken by nobody who is known, and keeps sessions from relying on it.
    pub(crate) fn set_unclaimed(&self, shared: &Incarnation, bytes: u64) {
        let (before, now) = (self.unclaimed.get(), if bytes > TOLERATED_BYTES { bytes } else { 0 });
        if before == now {
            return;
        }
        self.unclaimed.set(now);
        self.set_total(&shared.info);
        if now > before.saturating_add(TOLERATED_BYTES) {
            let message = "memory of the device is taken by no process that is known: the process of an isolated session may keep \
                           what its maker has given back, until it ends";
            tracing::warn!(target: "bulkhead::audit", device = self.index, bytes = now, "{message}");
        } else if now == 0 {
            tracing::info!(target: "bulkhead::audit", device = self.index, "all memory of the device is somebody's again");
        }
    }

    /// How much of its memory is taken by nobody who is known.
    pub(crate) fn unclaimed(&self) -> u64 {
        self.unclaimed.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_has_is_told_from_what_the_driver_has_and_from_readings_that_do_not_fit() {
        let taken = |words: &[u64]| Taken::of(words).and_then(|taken| taken.rest());
        assert_eq!(taken(&[0, 100, 7, 30, 8, 20]), Some(50));
        assert_eq!(taken(&[0, 100, 7, u64::MAX, 8, 20]), Some(0), "more than there is");
        assert_eq!([taken(&[]), taken(&[7, 30, 8, 20]), taken(&[0])], [None; 3]);

        let mut rest = Rest::default();
        assert_eq!([rest.read(480), rest.read(490), rest.read(480)], [0; 3], "the driver's own");
        // A process that began between the two questions.
        assert_eq!([rest.read(0), rest.read(480), rest.read(480), rest.read(480)], [0; 4]);
        // 4,096 that were given back, and are counted for a moment longer.
        assert_eq!([rest.read(4576), rest.read(4576), rest.read(480)], [0; 3]);
        assert_eq!([rest.read(4580), rest.read(4576), rest.read(4577)], [0, 0, 4096]);
        assert_eq!(rest.read(480), 0, "whoever had it is gone");
    }

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
