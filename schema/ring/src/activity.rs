//! How busy the gates of a protected module are: a page that the executor writes and the module's host half reads.
//!
//! It holds three words: how many launches are in flight whose entries call the gates, how often that became more than none,
//! and whether the executor is lost, which the kernel writes. The host half sleeps on the second: there is no descriptor whose
//! flags it could change to block the executor.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use crate::{
    memory::ActivityPage,
    sync::{AtomicU32, Ordering},
};

/// The executor's side of the page.
pub struct ActivityWriter(ActivityPage);

impl ActivityWriter {
    /// Maps the page, and seals it so that nobody else ever writes it.
    ///
    /// # Errors
    /// Where the descriptor is no page or cannot be mapped or sealed.
    pub fn map(descriptor: BorrowedFd<'_>) -> io::Result<Self> {
        ActivityPage::map_and_seal(descriptor).map(Self)
    }

    /// One more launch is about to be submitted.
    pub fn begins(&self) {
        if self.0.in_flight().fetch_add(1, Ordering::SeqCst) == 0 {
            self.0.begun().fetch_add(1, Ordering::SeqCst);
            self.0.wake();
        }
    }

    /// One has passed, or was not submitted after all.
    pub fn ends(&self) {
        self.0.in_flight().fetch_sub(1, Ordering::SeqCst);
    }
}

/// The kernel's side: it made the page, and says when the executor that writes it is lost.
pub struct ActivityEnd(ActivityPage);

impl ActivityEnd {
    /// Maps the page, before the executor seals it.
    ///
    /// # Errors
    /// Where the descriptor is no page or cannot be mapped.
    pub fn map(descriptor: BorrowedFd<'_>) -> io::Result<Self> {
        ActivityPage::map_unsealed(descriptor).map(Self)
    }

    /// Nobody counts on this page any more: whoever sleeps on it wakes, and asks for another.
    pub fn end(&self) {
        self.0.over().store(1, Ordering::SeqCst);
        self.0.begun().fetch_add(1, Ordering::SeqCst);
        self.0.wake();
    }
}

/// The host half's side.
pub struct Activity {
    page: ActivityPage,
    /// What the second word held when [`Activity::wait`] last returned for it.
    seen: AtomicU32,
}

impl Activity {
    /// Maps the page for reading.
    ///
    /// # Errors
    /// Where the descriptor is no page or cannot be mapped.
    pub fn map(descriptor: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self { page: ActivityPage::map(descriptor)?, seen: AtomicU32::new(0) })
    }

    /// How many launches are in flight whose entries call the gates. May tell of one for a moment after it has passed.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.page.in_flight().load(Ordering::SeqCst)
    }

    /// Whether the executor that wrote the page is lost: what it says of launches is good for nothing, and the one that goes on
    /// has another.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.page.over().load(Ordering::SeqCst) != 0
    }

    /// Sleeps until a launch is in flight, or was since this last returned, or the page is [over](Activity::is_over); false when
    /// the time is up.
    pub fn wait(&self, timeout: Duration) -> bool {
        let until = Instant::now().checked_add(timeout);
        loop {
            let begun = self.page.begun().load(Ordering::SeqCst);
            // Of what has begun and ended since, gates may have left something.
            let was_seen = self.seen.swap(begun, Ordering::Relaxed) == begun;
            if !was_seen || self.in_flight() > 0 || self.is_over() {
                return true;
            }
            let left = until.map_or(timeout, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return false;
            }
            self.page.sleep(begun, left);
        }
    }
}

/// Creates a page, which can neither shrink nor grow.
///
/// # Errors
/// Where the system has no memory or no memfd for it.
pub fn create() -> io::Result<OwnedFd> {
    ActivityPage::create()
}

#[cfg(test)]
mod tests {
    use std::{os::fd::AsFd, sync::Arc, thread};

    use super::*;

    fn pair() -> (Arc<ActivityWriter>, Activity, OwnedFd) {
        let page = create().unwrap();
        let writer = ActivityWriter::map(page.as_fd()).unwrap();
        (Arc::new(writer), Activity::map(page.as_fd()).unwrap(), page)
    }

    #[test]
    fn launches_are_counted_while_they_are_in_flight() {
        let (writer, activity, _page) = pair();
        assert_eq!(activity.in_flight(), 0);
        writer.begins();
        writer.begins();
        assert_eq!(activity.in_flight(), 2);
        writer.ends();
        assert_eq!(activity.in_flight(), 1);
        assert!(activity.wait(Duration::ZERO));
        writer.ends();
        assert_eq!(activity.in_flight(), 0);
    }

    #[test]
    fn a_launch_that_has_begun_and_ended_meanwhile_wakes_once() {
        let (writer, activity, _page) = pair();
        assert!(!activity.wait(Duration::from_millis(5)));
        writer.begins();
        writer.ends();
        assert!(activity.wait(Duration::ZERO), "what it left would not be looked at");
        assert!(!activity.wait(Duration::from_millis(5)));
    }

    #[test]
    fn a_sleeper_wakes_when_a_launch_begins_however_often() {
        let (writer, activity, _page) = pair();
        let launches = thread::spawn(move || {
            for _ in 0..200 {
                thread::sleep(Duration::from_micros(200));
                writer.begins();
                writer.ends();
            }
        });
        let mut woken = 0;
        while !launches.is_finished() {
            woken += u32::from(activity.wait(Duration::from_secs(20)));
            assert!(woken > 0, "slept through");
            if activity.seen.load(Ordering::Relaxed) == 200 {
                break;
            }
        }
        launches.join().unwrap();
        assert!(activity.in_flight() == 0 && woken > 10, "{woken}");
    }

    #[test]
    fn whoever_sleeps_on_a_page_that_is_over_wakes_for_good() {
        let page = create().unwrap();
        let end = ActivityEnd::map(page.as_fd()).unwrap();
        let writer = ActivityWriter::map(page.as_fd()).unwrap();
        let activity = Activity::map(page.as_fd()).unwrap();
        assert!(!activity.is_over() && !activity.wait(Duration::ZERO));
        let ends = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            end.end();
        });
        assert!(activity.wait(Duration::from_secs(20)), "slept through");
        assert!(activity.is_over() && activity.wait(Duration::ZERO));
        ends.join().unwrap();
        drop(writer);
        assert!(ActivityEnd::map(page.as_fd()).is_err(), "it is sealed");
    }

    #[test]
    fn whoever_reads_the_page_cannot_write_it() {
        let (_writer, _activity, page) = pair();
        assert!(ActivityWriter::map(page.as_fd()).is_err(), "mapped for writing a second time");
        let written = rustix::io::pwrite(&page, &[1], 0);
        assert!(written.is_err(), "{written:?}");
        assert!(rustix::fs::ftruncate(&page, 0).is_err());
    }

    #[test]
    fn what_is_no_page_is_refused() {
        let short = crate::memory::create_shared(16).unwrap();
        assert!(Activity::map(short.as_fd()).is_err());
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(Activity::map(file.as_fd()).is_err());
    }
}
