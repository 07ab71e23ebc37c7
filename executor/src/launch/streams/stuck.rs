//! Waits on the device, and since when a stream's work has not passed.

use std::time::Instant;

use bulkhead_gpu::Error;
use bulkhead_schema::limits::STREAMS_MAX;

use super::{Behind, Streams};

/// Waits that are known of a stream; with more it counts as running.
const BEHIND_MAX: usize = 1024;

impl Streams {
    /// Has the device see to it that what comes to `index` waits for `on`, in an isolated session: there nobody else's work stands
    /// behind a stream that waits. Only where `on` has been given nothing beyond `position`, so that no more is waited for.
    pub(super) fn waits_on_device(&mut self, index: u32, on: u32, position: u64) -> Result<bool, Error> {
        let (Some(stream), Some(other)) = (self.get(index), self.get(on)) else { return Ok(false) };
        // What a stream has been given before comes before anyway.
        if self.alone && index == on {
            return Ok(true);
        }
        let given = other.submitted;
        if !self.alone || other.submitted > position || !other.held.is_empty() {
            return Ok(false);
        }
        let (id, other) = (stream.id, other.id);
        if self.timed {
            // So that it is known when the stream comes to the wait.
            self.mark(index)?;
        }
        let waits = self.gpu.wait(id, other)?;
        let is_known = self.timed && waits;
        let stream = self.get_mut(index).filter(|stream| is_known && stream.behind.len() < BEHIND_MAX);
        if let Some(stream) = stream {
            stream.behind.push(Behind { own: stream.submitted, on, given });
        }
        Ok(waits)
    }

    /// Nothing of its work is on the device: what is then begins anew.
    pub(crate) fn forget_stuck(&mut self) {
        self.streams.iter_mut().flatten().for_each(|stream| stream.seen.1 = None);
    }

    /// Whether the next marks tell of single pieces of work: what does not pass then is one of those, and no queue.
    pub(crate) fn waits_for_single_pieces(&self) -> bool {
        self.streams.iter().flatten().filter_map(|stream| stream.marks.front()).all(|mark| mark.count <= 1)
    }

    /// Since when no work has passed of a stream that has some, and waits for no other: of that which has gone on so for longest.
    /// Other streams may go on meanwhile.
    pub(crate) fn stuck_since(&mut self, now: Instant) -> Option<Instant> {
        let mut longest: Option<Instant> = None;
        for (index, stream) in (0..STREAMS_MAX).zip(&mut self.streams) {
            let Some(stream) = stream else { continue };
            let page = &self.page;
            let mark = page.mark(index);
            stream.behind.retain(|wait| page.mark(wait.on) < wait.given);
            // Between two slices of a grid too.
            let is_sliced = !stream.sliced.is_empty() || stream.slicing > mark;
            let has_work = !stream.marks.is_empty() || stream.unmarked > 0 || is_sliced;
            let since = stream.seen.1.filter(|_| stream.seen.0 == mark).map_or(now, |since| since.min(now));
            let is_running = has_work && !stream.behind.iter().any(|wait| mark >= wait.own);
            stream.seen = (mark, is_running.then_some(since));
            longest = longest.into_iter().chain(stream.seen.1).min();
        }
        longest
    }
}
