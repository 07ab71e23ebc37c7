//! The time that a device has had.
//!
//! A GPU has all the time there is. The software GPU has what processors give this process: other programs, which may be a
//! client's, can leave it little, and nobody is to be ended for that.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};

/// The software GPU has at least so much of the time, whatever processors it had: what waits for something takes none.
const PART_MIN: u32 = 16;

static SOFTWARE: Mutex<Option<Clock>> = Mutex::new(None);

/// A clock that goes on as processors work for this process, and never faster than time.
#[derive(Debug, Clone, Copy)]
struct Clock {
    shows: Instant,
    time: Instant,
    processors: Duration,
}

impl Clock {
    fn look(&mut self, time: Instant, processors: Duration) -> Instant {
        let passed = time.saturating_duration_since(self.time);
        let worked = processors.saturating_sub(self.processors);
        self.shows += passed.min(worked.max(passed / PART_MIN));
        (self.time, self.processors) = (time, processors);
        self.shows
    }
}

/// Now, as a device of this backend has had time.
pub(crate) fn now(backend: &str) -> Instant {
    let time = Instant::now();
    if backend != "software" {
        return time;
    }
    let processors = clock_gettime(ClockId::ProcessCPUTime);
    let nanoseconds = u32::try_from(processors.tv_nsec).unwrap_or_default();
    let processors = Duration::new(u64::try_from(processors.tv_sec).unwrap_or_default(), nanoseconds);
    let mut clock = SOFTWARE.lock();
    clock.get_or_insert(Clock { shows: time, time, processors }).look(time, processors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_goes_on_as_processors_work_and_never_faster_than_time() {
        let begun = Instant::now();
        let mut clock = Clock { shows: begun, time: begun, processors: Duration::ZERO };
        let mut shows = |seconds, worked| {
            let at = clock.look(begun + Duration::from_secs(seconds), Duration::from_secs(worked));
            (at - begun).as_secs()
        };
        // Two processors' work in the time of one; a little of it; none.
        assert_eq!(shows(10, 20), 10);
        assert_eq!(shows(20, 22), 12);
        assert_eq!(shows(36, 22), 13);
    }
}
