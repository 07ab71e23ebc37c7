//! A session's streams: what was submitted, what has passed, what is held back.
//!
//! A position counts records of the session's ring. The *mark* of a stream is the position the device itself
//! has written to the completion page; it covers everything submitted to the stream before.

use std::{collections::VecDeque, sync::Arc};

use bulkhead_gpu::{DeviceInfo, Error, Gpu, HostAddress, StreamId};
use bulkhead_ring::{CompletionWriter, Record, layout::STREAMS};
use bulkhead_schema::limits::STREAMS_MAX;

/// What work in flight may do without a look at the session's flag, all launches together, in units of the guard's opcode
/// table for each warp: a tenth of a second of a device's time, at worst.
const UNLOOKED_MAX: u64 = 1 << 32;
/// A stream gets a mark at least once in this many records.
const RECORDS_PER_MARK: u32 = 128;

/// A record held back until another stream has passed a position.
pub(crate) struct Held {
    pub(crate) position: u64,
    pub(crate) record: Record,
    pub(crate) parameters: Vec<u64>,
}

/// One stream.
pub(crate) struct Stream {
    pub(crate) id: StreamId,
    /// Position of the record submitted last.
    submitted: u64,
    /// Position of the mark asked for last.
    marked: u64,
    /// Records submitted since then, and what they do without a look at the session's flag.
    unmarked: u32,
    unmarked_work: u64,
    /// Marks asked for and not seen.
    marks: VecDeque<Mark>,
    /// What the stream waits for: a stream and a position of it.
    waits_for: Option<(u32, u64)>,
    pub(crate) held: VecDeque<Held>,
}

/// A mark that was asked for: its position, how many records it covers, and what they do without a look at the flag.
struct Mark {
    position: u64,
    count: u32,
    work: u64,
}

/// All streams of a session.
pub(crate) struct Streams {
    gpu: Arc<dyn Gpu>,
    page: CompletionWriter,
    page_at: usize,
    streams: Vec<Option<Stream>>,
    /// Work submitted to the device and not known to have passed.
    in_flight: u32,
    /// What of it is done without a look at the session's flag.
    unlooked: u64,
    held: usize,
    /// How many marks have passed.
    passed: u64,
    /// Bit per stream: it has work without a mark.
    unmarked: u64,
    /// Bit per stream: an executor before this one may have had it.
    lost: u64,
    /// With which priority.
    lost_priorities: [i32; STREAMS],
}

impl Streams {
    /// No streams yet. `page_at` is where the completion page is mapped.
    pub(crate) fn new(gpu: Arc<dyn Gpu>, page: CompletionWriter, page_at: usize) -> Self {
        let streams = (0..STREAMS_MAX).map(|_| None).collect();
        Self {
            gpu,
            page,
            page_at,
            streams,
            in_flight: 0,
            unlooked: 0,
            held: 0,
            passed: 0,
            unmarked: 0,
            lost: 0,
            lost_priorities: [0; STREAMS],
        }
    }

    pub(crate) fn page(&self) -> &CompletionWriter {
        &self.page
    }

    /// Takes over from another executor, which took the records up to `position`: they count as passed on all
    /// streams. Which streams there were is not known, but with which priority each was made last.
    pub(crate) fn take_over(&mut self, position: u64, priorities: [i32; STREAMS]) {
        self.lost_priorities = priorities;
        for index in 0..STREAMS_MAX {
            self.page.set_mark(index, position);
            if self.get(index).is_none() {
                self.lost |= 1 << index;
            }
        }
    }

    /// Creates a stream that may have been there before, at its first use.
    pub(crate) fn revive(&mut self, index: u32, info: &DeviceInfo) -> Result<(), Error> {
        if self.lost == 0 || !self.forget_lost(index) {
            return Ok(());
        }
        let priority = self.lost_priorities.get(index as usize).copied().unwrap_or(0);
        self.create(index, priority, info)
    }

    /// Whether the stream may have been there before; from here on it was not.
    pub(crate) fn forget_lost(&mut self, index: u32) -> bool {
        let bit = if index < STREAMS_MAX { 1 << index } else { 0 };
        let lost = self.lost & bit != 0;
        self.lost &= !bit;
        lost
    }

    pub(crate) fn create(&mut self, index: u32, priority: i32, info: &DeviceInfo) -> Result<(), Error> {
        self.forget_lost(index);
        let slot = self.streams.get_mut(index as usize);
        let slot = slot.ok_or_else(|| Error::Refused("no such stream".into()))?;
        if slot.is_some() {
            return Err(Error::Refused("the stream exists".into()));
        }
        let priority =
            if info.attribute(PRIORITIES_SUPPORTED) == Some(1) { priority.clamp(-4, 0) } else { 0 };
        let id = self.gpu.create_stream(priority)?;
        *slot = Some(Stream {
            id,
            submitted: 0,
            marked: 0,
            unmarked: 0,
            unmarked_work: 0,
            marks: VecDeque::new(),
            waits_for: None,
            held: VecDeque::new(),
        });
        Ok(())
    }

    /// Destroys a stream all of whose work has passed; false where it has not.
    pub(crate) fn destroy(&mut self, index: u32) -> Result<bool, Error> {
        if !self.passed(index, u64::MAX) {
            return Ok(false);
        }
        if let Some(stream) = self.streams.get_mut(index as usize).and_then(Option::take) {
            // All of it has passed, seen or not.
            self.in_flight -= stream.marks.iter().map(|mark| mark.count).sum::<u32>();
            self.unlooked -= stream.marks.iter().map(|mark| mark.work).sum::<u64>() + stream.unmarked_work;
            self.unmarked &= !(1 << index);
            self.gpu.destroy_stream(stream.id)?;
        }
        Ok(true)
    }

    pub(crate) fn get(&self, index: u32) -> Option<&Stream> {
        self.streams.get(index as usize)?.as_ref()
    }

    fn get_mut(&mut self, index: u32) -> Option<&mut Stream> {
        self.streams.get_mut(index as usize)?.as_mut()
    }

    /// Notes that the record at `position` was submitted to the device.
    pub(crate) fn submitted(&mut self, index: u32, position: u64) -> Result<(), Error> {
        self.in_flight += 1;
        let Some(stream) = self.get_mut(index) else { return Ok(()) };
        stream.submitted = position;
        stream.unmarked += 1;
        let due = stream.unmarked >= RECORDS_PER_MARK;
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
            self.gpu.write_value(stream.id, at, stream.submitted)?;
            stream.marked = stream.submitted;
            stream.marks.push_back(Mark {
                position: stream.submitted,
                count: std::mem::take(&mut stream.unmarked),
                work: std::mem::take(&mut stream.unmarked_work),
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

    /// Counts what has passed since the last look, and returns what has not.
    pub(crate) fn in_flight(&mut self) -> u32 {
        for (index, stream) in (0..STREAMS_MAX).zip(&mut self.streams) {
            let Some(stream) = stream else { continue };
            let mark = self.page.mark(index);
            while let Some(passed) = stream.marks.front().filter(|asked| asked.position <= mark) {
                self.in_flight -= passed.count;
                self.unlooked -= passed.work;
                self.passed += 1;
                stream.marks.pop_front();
            }
        }
        self.in_flight
    }

    /// Whether so much more may be done without a look at the session's flag.
    pub(crate) fn have_room(&mut self, work: u64) -> bool {
        let is_room = |streams: &Self| streams.unlooked.saturating_add(work) <= UNLOOKED_MAX;
        is_room(self) || {
            self.in_flight();
            is_room(self)
        }
    }

    /// Notes what a record does without a look at the session's flag, before the record is submitted.
    pub(crate) fn works(&mut self, index: u32, work: u64) {
        let Some(stream) = self.streams.get_mut(index as usize).and_then(Option::as_mut) else { return };
        stream.unmarked_work += work;
        self.unlooked += work;
    }

    /// How many marks were seen to have passed.
    pub(crate) fn passed_count(&self) -> u64 {
        self.passed
    }

    /// What was in flight at the last look plus what was submitted since: at least the truth, at no cost.
    pub(crate) fn in_flight_at_most(&self) -> u32 {
        self.in_flight
    }

    /// Whether everything submitted or held on the stream up to `position` has passed. The ring itself is not
    /// looked at. A stream that does not exist has passed everything.
    pub(crate) fn passed(&self, index: u32, position: u64) -> bool {
        let Some(stream) = self.get(index) else { return true };
        let held = stream.held.front().is_some_and(|held| held.position <= position);
        !held && self.page.mark(index) >= stream.submitted.min(position)
    }

    /// The same for all streams.
    pub(crate) fn all_passed(&self, position: u64) -> bool {
        (0..STREAMS_MAX).all(|index| self.passed(index, position))
    }

    /// Holds the stream back, with the wait itself, until `on` has passed `position`. Returns whether it has to.
    pub(crate) fn wait_on(&mut self, index: u32, on: u32, position: u64, wait: Held) -> Result<bool, Error> {
        if self.passed(on, position) {
            return Ok(false);
        }
        self.mark(on)?;
        if let Some(stream) = self.get_mut(index) {
            stream.waits_for = Some((on, position));
            stream.held.push_front(wait);
            self.held += 1;
        }
        Ok(true)
    }

    /// Whether records of the stream must be held back.
    pub(crate) fn is_held(&self, index: u32) -> bool {
        self.held > 0 && self.get(index).is_some_and(|stream| !stream.held.is_empty())
    }

    pub(crate) fn hold(&mut self, index: u32, held: Held) {
        if let Some(stream) = self.get_mut(index) {
            stream.held.push_back(held);
            self.held += 1;
        }
    }

    /// How many records are held back, in all.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// A held record that may go now, if there is one.
    pub(crate) fn release(&mut self) -> Result<Option<Held>, Error> {
        if self.held == 0 {
            return Ok(None);
        }
        for index in 0..STREAMS_MAX {
            let Some(waits_for) = self.get(index).filter(|s| !s.held.is_empty()).map(|s| s.waits_for) else {
                continue;
            };
            if let Some((on, position)) = waits_for
                && !self.passed(on, position)
            {
                self.mark(on)?;
                continue;
            }
            let Some(stream) = self.get_mut(index) else { continue };
            stream.waits_for = None;
            let held = stream.held.pop_front();
            self.held -= usize::from(held.is_some());
            return Ok(held);
        }
        Ok(None)
    }

    /// Forgets what is held back: the session is over.
    pub(crate) fn forget_held(&mut self) {
        for stream in self.streams.iter_mut().flatten() {
            stream.held.clear();
            stream.waits_for = None;
        }
        self.held = 0;
    }

    /// Ends all streams, whose work has passed.
    pub(crate) fn destroy_all(&mut self) -> Result<(), Error> {
        for index in 0..STREAMS_MAX {
            self.destroy(index)?;
        }
        Ok(())
    }
}

const _: () = assert!(STREAMS_MAX <= u64::BITS);

/// CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED.
const PRIORITIES_SUPPORTED: u32 = 78;
