//! Marks: how far a stream has come, told to whoever waits.

use std::time::Instant;

use bulkhead_gpu::{Error, HostAddress};
use bulkhead_ring::CompletionWriter;
use bulkhead_schema::limits::STREAMS_MAX;

use super::{Mark, RECORDS_BEHIND_A_MARK, RECORDS_PER_MARK, Stream, Streams, refuse};

impl Streams {
    /// Notes that the record at `position` was submitted to the device.
    pub(crate) fn submitted(&mut self, index: u32, position: u64) -> Result<(), Error> {
        self.in_flight += 1;
        let (timed, unlooked, moved_per_mark) = (self.timed, self.unlooked, self.moved_per_mark());
        let mark = self.page.mark(index);
        let Some(stream) = self.get_mut(index) else { return Ok(()) };
        stream.submitted = position;
        if stream.unmarked == 0 && stream.marks.is_empty() && stream.sliced.is_empty() {
            stream.seen = (mark, Some(Instant::now()));
        }
        stream.unmarked += 1;
        let due = timed
            || stream.unmarked >= RECORDS_PER_MARK
            || stream.unmarked_load.unlooked >= unlooked.per_mark()
            || stream.unmarked_load.moved >= moved_per_mark;
        self.unmarked |= 1 << index;
        if due { self.mark(index) } else { Ok(()) }
    }

    /// Notes that the record at `position` needed nothing of the device.
    pub(crate) fn skipped(&mut self, index: u32, position: u64) {
        match self.get_mut(index) {
            Some(stream) => {
                stream.submitted = position;
                self.unmarked |= 1 << index;
            }
            // No stream, no device to write the mark: whoever waits must not wait for ever.
            None => self.page.set_mark(index, position),
        }
    }

    /// Has the device write the stream's mark once it gets there.
    pub(crate) fn mark(&mut self, index: u32) -> Result<(), Error> {
        let at = HostAddress(self.page_at + CompletionWriter::mark_offset(index));
        let Some(stream) = self.streams.get_mut(index as usize).and_then(Option::as_mut) else {
            self.unmarked &= !(1 << index);
            return Ok(());
        };
        if stream.submitted > stream.marked {
            if let Some(run) = self.run.as_mut() {
                let page = &self.page;
                run.submit(&*self.gpu, |refusal| refuse(page, &refusal))?;
            }
            self.gpu.write_value(stream.id, at, stream.submitted)?;
            stream.marked = stream.submitted;
            stream.marks.push_back(Mark {
                position: stream.submitted,
                count: std::mem::take(&mut stream.unmarked),
                load: std::mem::take(&mut stream.unmarked_load),
                calls: std::mem::take(&mut stream.unmarked_calls),
            });
        }
        self.unmarked &= !(1 << index);
        Ok(())
    }

    /// Marks every stream that has work without one.
    pub(crate) fn mark_all(&mut self) -> Result<(), Error> {
        while self.unmarked != 0 {
            self.mark(self.unmarked.trailing_zeros())?;
        }
        Ok(())
    }

    /// Marks streams whose work nobody would see pass otherwise. The device takes a microsecond or two for a mark between two
    /// kernels, so a stream that has one to come waits with the next until that has passed, or many records are behind it. Not where
    /// something waits for marks: streams that are held, and whoever takes the time of kernels. Whoever is about to sleep
    /// [marks all](Self::mark_all).
    pub(crate) fn mark_due(&mut self) -> Result<(), Error> {
        if !self.alone || self.timed || self.held > 0 {
            return self.mark_all();
        }
        self.end_run()?;
        let mut left = self.unmarked;
        while left != 0 {
            let index = left.trailing_zeros();
            left &= left - 1;
            let can_wait = |stream: &Stream| {
                let last = stream.marks.back();
                let is_to_come = last.is_some_and(|asked| asked.position > self.page.mark(index));
                is_to_come && stream.unmarked < RECORDS_BEHIND_A_MARK
            };
            if !self.get(index).is_some_and(can_wait) {
                self.mark(index)?;
            }
        }
        Ok(())
    }

    /// Whether a stream has work without a mark.
    pub(crate) fn has_unmarked(&self) -> bool {
        self.unmarked != 0
    }

    /// Counts what has passed since the last look, and returns what has not.
    pub(crate) fn in_flight(&mut self) -> u32 {
        for (index, stream) in (0..STREAMS_MAX).zip(&mut self.streams) {
            let Some(stream) = stream else { continue };
            let mark = self.page.mark(index);
            while let Some(passed) = stream.marks.front().filter(|asked| asked.position <= mark) {
                self.in_flight -= passed.count;
                self.load.take(passed.load);
                self.calls -= passed.calls.len();
                self.passed += 1;
                stream.marks.pop_front();
            }
            let left = stream.slices.saturating_sub(self.page.slices(index));
            while stream.sliced.len() as u64 > left
                && let Some(load) = stream.sliced.pop_front()
            {
                self.in_flight -= 1;
                self.slices -= 1;
                self.sliced.take(load);
            }
        }
        self.in_flight
    }
}
