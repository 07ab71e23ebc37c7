//! A session's streams: what was submitted, what has passed, what is held back.
//!
//! A position counts records of the session's ring. The *mark* of a stream is the position the device itself
//! has written to the completion page; it covers everything submitted to the stream before.

mod held;
mod load;
mod marks;
mod moving;
pub(crate) mod rates;
mod stuck;
mod unlooked;

use std::{collections::VecDeque, sync::Arc, time::Instant};

use bulkhead_gpu::{DeviceInfo, EntryId, Error, Gpu, HostAddress, Launch, StreamId};
use bulkhead_ring::{CompletionWriter, Record, layout::STREAMS};
use bulkhead_schema::limits::{self, STREAMS_MAX};

use crate::{
    launch::{
        rest::Rest,
        runs::{Refusal, Run},
        slices,
    },
    modules::grants::Calling,
};
pub(crate) use load::Load;
use rates::{Unlooked, moving_max};

/// A stream gets a mark at least once in this many records.
const RECORDS_PER_MARK: u32 = 128;

/// Records of a stream that wait for its mark before they get one of their own.
const RECORDS_BEHIND_A_MARK: u32 = 32;

/// A record held back until another stream has passed a position, or until there is room for it or for more of it.
pub(crate) struct Held {
    pub(crate) position: u64,
    pub(crate) record: Record,
    pub(crate) parameters: Vec<u64>,
    /// What is left of a launch.
    pub(crate) rest: Option<Box<Rest>>,
}

/// What a held stream waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// A stream and a position of it.
    For(u32, u64),
    /// The host, which has to open so many of its barriers.
    Host(u64),
    /// One of its own slices.
    Room,
    /// Large launches: it has so many blocks, of so many that one may have.
    Large { blocks: u64, most: u64 },
    /// Launches that never look at the flag: it does so much.
    Unlooked(u64),
    /// Copies and fills: it moves so many bytes, or has so many left to move.
    Moving(u64),
}

/// One stream.
pub(crate) struct Stream {
    pub(crate) id: StreamId,
    /// Position of the record submitted last.
    submitted: u64,
    /// Position of the mark asked for last.
    marked: u64,
    /// Records submitted since then, and their load.
    unmarked: u32,
    unmarked_load: Load,
    unmarked_calls: Vec<Calling>,
    /// Marks asked for and not seen.
    marks: VecDeque<Mark>,
    /// How many slices were ever submitted to it, but for the last of each grid, which has a mark; and the load of those
    /// that are not known to have passed.
    slices: u64,
    sliced: VecDeque<Load>,
    /// The position of the latest of which there were any.
    slicing: u64,
    waits_for: Option<Wait>,
    held: VecDeque<Held>,
    /// What its work waits for on the device.
    behind: Vec<Behind>,
    /// Its mark when it was last seen, and since when that has been so while it had work.
    seen: (u64, Option<Instant>),
}

/// A wait of a stream on the device.
struct Behind {
    /// What the stream had been given before: until that has passed it is not the wait that it is at.
    own: u64,
    /// The stream that is waited for, and what that had been given.
    on: u32,
    given: u64,
}

/// A stream whose records are held back keeps room for so many at least, and else for four times those that are.
const HELD_ROOM: usize = 64;
/// What the system's allocator takes for itself of a block, and more.
const OF_ALLOCATOR: usize = 32;
const _: () = assert!(
    ((STREAMS * HELD_ROOM + 4 * limits::HELD_MAX) * size_of::<Held>()
        + limits::HELD_MAX * OF_ALLOCATOR
        + limits::HELD_PARAMETER_BYTES_MAX
        + limits::PARAMETER_BYTES_MAX) as u64
        <= limits::HELD_BYTES_MAX
);

/// A mark that was asked for: its position, how many records it covers, and their load.
struct Mark {
    position: u64,
    count: u32,
    load: Load,
    /// Launches that call gates.
    calls: Vec<Calling>,
}

/// All streams of a session.
pub(crate) struct Streams {
    gpu: Arc<dyn Gpu>,
    page: CompletionWriter,
    page_at: usize,
    streams: Vec<Option<Stream>>,
    /// Work submitted to the device and not known to have passed.
    in_flight: u32,
    /// The load of it, but for slices; and of those.
    load: Load,
    sliced: Load,
    /// How many slices there are of it.
    slices: usize,
    /// How many bytes of it may be copied and filled, about.
    moving_max: u64,
    /// What of it need not look at the session's flag.
    unlooked: Unlooked,
    held: usize,
    /// Words of parameters among what is held back.
    held_words: usize,
    /// Which stream is looked at first when held records may go.
    turn: u32,
    /// How many marks have passed.
    passed: u64,
    /// How many launches that call gates are among that.
    calls: usize,
    /// Bit per stream: it has work without a mark.
    unmarked: u64,
    /// Bit per stream: an executor before this one may have had it.
    lost: u64,
    /// With which priority.
    lost_priorities: [i32; STREAMS],
    /// The most urgent priority that one gets.
    pub(crate) urgency: i32,
    /// Launches that are put off until the next record; none ever is where there is none.
    run: Option<Run>,
    /// The session has the device's context to itself.
    alone: bool,
    /// How long its kernels run is of interest.
    timed: bool,
}

/// The priority of a stream for which a session asks this one. Work of a more urgent stream goes before that of all others
/// on the device, whoever's they are: how urgent one may be is its operator's to say. The most urgent of the device is the
/// executor's own.
fn granted(asked: i32, most_urgent: i32) -> i32 {
    asked.clamp(most_urgent.clamp(-4, 0), 0)
}

/// Tells of a launch that was put off and then refused.
fn refuse(page: &CompletionWriter, Refusal { position, error }: &Refusal) {
    tracing::debug!(position, %error, "launch refused by the device");
    page.refuse(*position, error.code as u16, error.device);
}

impl Streams {
    /// No streams yet. `page_at` is where the completion page is mapped.
    pub(crate) fn new(gpu: Arc<dyn Gpu>, page: CompletionWriter, page_at: usize) -> Self {
        let streams = (0..STREAMS_MAX).map(|_| None).collect();
        let (moving_max, unlooked) = (moving_max(gpu.info()), Unlooked::of(gpu.info()));
        Self {
            gpu,
            page,
            page_at,
            streams,
            in_flight: 0,
            load: Load::default(),
            sliced: Load::default(),
            slices: 0,
            moving_max,
            unlooked,
            held: 0,
            held_words: 0,
            turn: 0,
            passed: 0,
            calls: 0,
            unmarked: 0,
            lost: 0,
            lost_priorities: [0; STREAMS],
            urgency: 0,
            run: None,
            alone: false,
            timed: false,
        }
    }

    /// From here on its session has the device's context to itself: streams wait for each other on the device, and launches go
    /// there together where they `may_form_runs`. Where it is `timed`, it is known which streams wait.
    pub(crate) fn be_alone(&mut self, may_form_runs: bool, timed: bool) {
        (self.alone, self.timed) = (true, timed);
        // What it leaves there to be done is in nobody's way.
        self.moving_max = u64::MAX;
        // A run has one mark for all its kernels.
        self.run = (may_form_runs && !timed).then(Run::new);
    }

    /// Its kernels are timed: each record has a mark, so that it is one kernel's time that is taken and not that of many.
    pub(crate) fn be_timed(&mut self) {
        self.timed = true;
    }

    /// Whether it has.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone
    }

    /// Whether they may.
    pub(crate) fn forms_runs(&self) -> bool {
        self.run.is_some()
    }

    /// Launches an entry, now or with what follows it. What was put off goes with the stream's next mark at the latest.
    ///
    /// # Errors
    /// Why this launch was refused, or the loss of the device. What was put off and is refused then is so by its position.
    pub(crate) fn launch(
        &mut self,
        index: u32,
        position: u64,
        entry: EntryId,
        launch: &Launch<'_>,
    ) -> Result<(), Error> {
        let Some(id) = self.get(index).map(|stream| stream.id) else { return Ok(()) };
        if self.run.as_ref().is_none_or(|run| !run.is_of(index)) {
            self.end_run()?;
            let to_go = self.to_go(index);
            let Some(run) = &mut self.run else { return self.gpu.launch(id, entry, launch) };
            run.begin(index, id, to_go);
        }
        let is_full = self.run.as_mut().is_some_and(|run| run.push(position, entry, launch));
        if is_full { self.end_run() } else { Ok(()) }
    }

    /// How many records the stream has been given that are not known to have passed.
    fn to_go(&self, index: u32) -> usize {
        let Some(stream) = self.get(index) else { return 0 };
        let mark = self.page.mark(index);
        let marked = stream.marks.iter().filter(|asked| asked.position > mark).map(|asked| asked.count);
        (marked.sum::<u32>() + stream.unmarked) as usize
    }

    /// Launches what was put off. Everything else that is asked of the device comes after this.
    pub(crate) fn end_run(&mut self) -> Result<(), Error> {
        let Some(run) = self.run.as_mut().filter(|run| !run.is_empty()) else { return Ok(()) };
        let page = &self.page;
        run.submit(&*self.gpu, |refusal| refuse(page, &refusal))
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
        let is_supported = info.attribute(PRIORITIES_SUPPORTED) == Some(1);
        let priority = if is_supported { granted(priority, self.urgency) } else { 0 };
        let id = self.gpu.create_stream(priority)?;
        *slot = Some(Stream {
            id,
            submitted: 0,
            marked: 0,
            unmarked: 0,
            unmarked_load: Load::default(),
            unmarked_calls: Vec::new(),
            marks: VecDeque::new(),
            // A stream of this number may have been there before.
            slices: self.page.slices(index),
            sliced: VecDeque::new(),
            slicing: 0,
            waits_for: None,
            held: VecDeque::new(),
            behind: Vec::new(),
            seen: (0, None),
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
            let marked = stream.marks.iter().map(|mark| mark.load);
            marked.chain([stream.unmarked_load]).for_each(|load| self.load.take(load));
            self.in_flight -= u32::try_from(stream.sliced.len()).unwrap_or(u32::MAX);
            self.slices -= stream.sliced.len();
            stream.sliced.iter().for_each(|load| self.sliced.take(*load));
            let calls = stream.marks.iter().map(|mark| mark.calls.len()).sum::<usize>();
            self.calls -= calls + stream.unmarked_calls.len();
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

    /// Notes that a slice was submitted, not the last of its grid: nothing that a client knows has passed with it.
    pub(crate) fn sliced(&mut self, index: u32, position: u64, load: Load) -> Result<(), Error> {
        let at = HostAddress(self.page_at + CompletionWriter::slices_offset(index));
        let Some(stream) = self.streams.get_mut(index as usize).and_then(Option::as_mut) else {
            return Ok(());
        };
        stream.slices += 1;
        stream.slicing = position;
        stream.sliced.push_back(load);
        self.in_flight += 1;
        self.slices += 1;
        self.sliced.add(load);
        self.gpu.write_value(stream.id, at, stream.slices)
    }

    /// Whether the stream may have another slice.
    pub(crate) fn may_slice(&mut self, index: u32) -> bool {
        self.in_flight();
        let of_stream = |stream: &Stream| {
            let loads = stream.marks.iter().map(|mark| mark.load).chain([stream.unmarked_load]);
            stream.sliced.len() + loads.filter(|load| load.large > 0).count()
        };
        self.get(index).is_some_and(|stream| slices::may_submit(of_stream(stream), self.slices))
    }

    /// Holds the stream back, with what is left of a launch, until there is room for more of it.
    pub(crate) fn hold_rest(&mut self, index: u32, rest: Held) {
        self.hold_first(index, rest, Wait::Room);
    }

    fn hold_first(&mut self, index: u32, held: Held, wait: Wait) {
        if let Some(stream) = self.get_mut(index) {
            stream.waits_for = Some(wait);
            let words = held.parameters.len();
            stream.held.push_front(held);
            self.held += 1;
            self.held_words += words;
        }
    }

    /// On how many streams there is something left of a launch.
    pub(crate) fn slicing(&self) -> u64 {
        let slicing = self.streams.iter().flatten().filter(|stream| stream.waits_for == Some(Wait::Room));
        slicing.map(|_| 1).sum()
    }

    /// Whether a large launch may go. Those that wait go in the ring's order, so that none waits for ever for room that
    /// smaller ones take.
    pub(crate) fn may_be_large(&mut self, position: u64, blocks: u64, most: u64) -> bool {
        let comes_first = |stream: &Stream| {
            let large = matches!(stream.waits_for, Some(Wait::Large { .. }));
            large && stream.held.front().is_some_and(|held| held.position < position)
        };
        if self.held > 0 && self.streams.iter().flatten().any(comes_first) {
            return false;
        }
        slices::is_room(self.load.large, blocks, most) || {
            self.in_flight();
            slices::is_room(self.load.large, blocks, most)
        }
    }

    /// Holds the stream back, with the launch, until there is room for it.
    pub(crate) fn hold_large(&mut self, index: u32, held: Held, blocks: u64, most: u64) {
        self.hold_first(index, held, Wait::Large { blocks, most });
    }

    /// Notes the load of a record that is about to be noted as submitted.
    pub(crate) fn loads(&mut self, index: u32, load: Load) {
        let Some(stream) = self.streams.get_mut(index as usize).and_then(Option::as_mut) else { return };
        stream.unmarked_load.add(load);
        self.load.add(load);
    }

    /// Notes that what was submitted to the stream last, or is next, calls gates.
    pub(crate) fn calls(&mut self, index: u32, calls: Vec<Calling>) {
        let Some(stream) = self.streams.get_mut(index as usize).and_then(Option::as_mut) else { return };
        self.calls += calls.len();
        stream.unmarked_calls.extend(calls);
    }

    /// Whether there may be launches in flight that call gates: hosts spin until that is over. Looks at the marks only then.
    pub(crate) fn call_gates(&mut self) -> bool {
        if self.calls > 0 {
            self.in_flight();
        }
        self.calls > 0
    }

    /// All that is in flight.
    pub(crate) fn load(&self) -> Load {
        let mut load = self.load;
        load.add(self.sliced);
        load
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
        // What was held of a launch may have been forgotten since.
        let slices = stream.slicing <= position && self.page.slices(index) < stream.slices;
        !held && !slices && self.page.mark(index) >= stream.submitted.min(position)
    }

    /// The same for all streams.
    pub(crate) fn all_passed(&self, position: u64) -> bool {
        (0..STREAMS_MAX).all(|index| self.passed(index, position))
    }

    /// The same, but for what is held back whole: it is looked up anew when it is submitted. What is left of a launch is not.
    pub(crate) fn all_begun_passed(&self, position: u64) -> bool {
        (0..STREAMS_MAX).all(|index| {
            let Some(stream) = self.get(index) else { return true };
            let is_rest = |held: &Held| held.position <= position && held.rest.is_some();
            let slices = stream.slicing <= position && self.page.slices(index) < stream.slices;
            let rest = slices || stream.held.iter().any(is_rest);
            !rest && self.page.mark(index) >= stream.submitted.min(position)
        })
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

#[cfg(test)]
mod tests {
    use super::granted;

    #[test]
    fn no_stream_is_more_urgent_than_the_operator_grants() {
        assert_eq!([-9, -4, -1, 0, 3].map(|asked| granted(asked, 0)), [0; 5]);
        assert_eq!([-9, -4, -1, 0, 3].map(|asked| granted(asked, -2)), [-2, -2, -1, 0, 0]);
        assert_eq!(granted(-9, -9), -4, "the most urgent of the device is the executor's");
        assert_eq!(granted(-1, 7), 0);
    }
}
