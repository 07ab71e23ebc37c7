//! Records on their way to the device, and waits for what becomes of them.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use bulkhead_ring::{Full, Record, Refusal};
use bulkhead_schema::{Error, ErrorCode};

use super::{NAP_FRACTION, NAP_MAX, NO_STREAM, SPIN, Session, Submit, YIELD, code};
use crate::{Fence, Stream};

impl Session {
    /// The latest refusal that nobody has been told of.
    pub(super) fn refused(&self) -> Result<(), Error> {
        let count = self.inner.page.refusals();
        if count == self.inner.refusals_seen.load(Ordering::Relaxed)
            || self.inner.refusals_seen.swap(count, Ordering::Relaxed) == count
        {
            return Ok(());
        }
        let Some(refusal) = self.inner.page.refusal() else { return Ok(()) };
        if refusal.position == Refusal::OF_ALL {
            // It is over, and what ended it may have let a fence pass: whoever waits for that is told why, in the kernel's words.
            self.status()?;
        }
        let code = code(refusal.code);
        let message = match code {
            ErrorCode::WorkLost => {
                "work that was in flight was lost with its executor; memory and code are as they were"
            }
            ErrorCode::LaunchTimeout => "a kernel ran for longer than it may, and was ended",
            // Words of the executor's; what the device's driver refuses has a number.
            ErrorCode::InvalidHandle => {
                "submitted work names memory or code that is not there, or of another kind: it was freed, or taken back"
            }
            ErrorCode::NotPermitted => {
                "submitted work writes to memory that may only be read, or calls gates that are not its session's"
            }
            ErrorCode::InvalidArgument if refusal.device == 0 => {
                "submitted work reaches beyond the end of its memory, is misaligned, or has other parameters than its entry"
            }
            _ => "the device did not carry out work that was submitted",
        };
        Err(Error::new(code, message).device(refusal.device))
    }

    pub(crate) fn poll(&self, done: impl Fn() -> bool) -> Result<(), Error> {
        self.poll_for(None, done).map(drop)
    }

    /// Polls until it is `done`; false where the time was up first.
    pub(crate) fn poll_for(
        &self,
        patience: Option<Duration>,
        done: impl Fn() -> bool,
    ) -> Result<bool, Error> {
        let start = Instant::now();
        loop {
            for _ in 0..64 {
                if done() {
                    return Ok(true);
                }
                std::hint::spin_loop();
            }
            let waited = start.elapsed();
            if patience.is_some_and(|patience| waited > patience) {
                return Ok(false);
            }
            if waited > SPIN {
                self.status()?;
                if waited < YIELD {
                    thread::yield_now();
                } else {
                    thread::sleep((waited / NAP_FRACTION).min(NAP_MAX));
                }
            }
        }
    }

    pub(crate) fn push(&self, record: &Record) -> Result<Fence, Error> {
        let of_stream = matches!(record, Record::CreateStream { .. } | Record::DestroyStream { .. });
        let stream = if of_stream || record.is_aside() { NO_STREAM } else { record.stream() };
        self.push_with(stream, |submit| {
            let position = submit.producer.push(record)?;
            if matches!(record, Record::WaitOn { .. }) {
                submit.streams.tie(stream, position);
            }
            Ok(position)
        })
    }

    /// Pushes a record, unless it may have to wait for the host there: `None` then.
    pub(crate) fn push_untied(&self, record: &Record) -> Result<Option<Fence>, Error> {
        let (stream, mut is_tied) = (record.stream(), false);
        let fence = self.push_with(stream, |submit| {
            // No barrier is closed meanwhile: the ring's lock is held.
            is_tied =
                self.barriers().any_closed() && self.inner.page.mark(stream) < submit.streams.tied(stream);
            if is_tied { Ok(submit.streams.latest(stream)) } else { submit.producer.push(record) }
        })?;
        Ok((!is_tied).then_some(fence))
    }

    #[inline]
    pub(crate) fn push_with(
        &self,
        stream: u32,
        mut push: impl FnMut(&mut Submit) -> Result<u64, Full>,
    ) -> Result<Fence, Error> {
        if let Some(fence) = self.try_push(stream, &mut push) {
            return Ok(fence);
        }
        self.push_slowly(stream, push)
    }

    #[inline]
    fn try_push(
        &self,
        stream: u32,
        push: &mut impl FnMut(&mut Submit) -> Result<u64, Full>,
    ) -> Option<Fence> {
        let mut submit = self.inner.submit.lock();
        let position = push(&mut submit).ok()?;
        if let Some(latest) = submit.streams.latest.get_mut(stream as usize) {
            *latest = position;
        }
        Some(Fence { stream: Stream(stream), position })
    }

    /// The ring is full: tries again until there is room or the session is over.
    #[cold]
    fn push_slowly(
        &self,
        stream: u32,
        mut push: impl FnMut(&mut Submit) -> Result<u64, Full>,
    ) -> Result<Fence, Error> {
        let start = Instant::now();
        loop {
            self.nap_for_room(start)?;
            if let Some(fence) = self.try_push(stream, &mut push) {
                return Ok(fence);
            }
        }
    }
}
