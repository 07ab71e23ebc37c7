//! Violations: what threads of kernels told when they could not go on, or went astray.
//!
//! The guard gives an image whose code can tell such a thing a ring in its block of variables
//! (`guard/src/confine/faults.ptx`). All of that is the session's own memory, which its kernels may have written: it is
//! bounded here and believed by nobody but the client.

mod watch;

use std::{
    cell::Cell,
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use bulkhead_schema::{Error, ErrorCode};

use crate::{AddressRange, Effect, Extent, Session, Stream, Violation, ViolationKind};
use watch::State;

pub(crate) use watch::{Watch, Watched};

/// The ring, among an image's variables.
const RING: &str = "__bh_faults";
/// What there is to access, likewise: how many ranges, and from byte 16 on the first and the last but one of each.
const RANGES: &str = "__bh_ranges";
const RANGES_MAX: usize = 4096;
/// How often each place told something, likewise; and what of it has a record.
const TOLD: &str = "__bh_told";
const TOLD_RECORDS: u32 = 8;
/// The names that records tell.
const NAMES: &str = "__bh_names";
/// Before the first record: how many were asked for, and what ended a thread first.
const HEADER_BYTES: usize = 16;
const RECORD_BYTES: usize = 80;
/// Longest text of an assertion, file or entry.
const TEXT_BYTES_MAX: usize = 4096;
/// Records that an error's message tells; the others are counted.
const TOLD_MAX: usize = 32;
/// Records that are kept for [`Session::take_violations`]; the others are counted.
const KEPT_MAX: usize = 4096;
/// How long somebody waits for a kernel before the rings are looked at while it runs, and at most between two looks.
const PATIENCE: Duration = Duration::from_millis(50);
const PATIENCE_MAX: Duration = Duration::from_secs(1);

/// What records have for it; the texts are those that three of its words are the addresses of.
fn kind(code: u32, line: u32, words: [u64; 3], texts: [String; 3]) -> Option<ViolationKind> {
    let bytes = code >> 8 & 0xFF;
    let effect = match code >> 16 & 3 {
        0 => Effect::Read,
        1 => Effect::Write,
        _ => Effect::Atomic,
    };
    let misaligned = code >> 24 & 1 == 1;
    let [first, second, third] = words;
    Some(match code & 0xFF {
        1 => ViolationKind::Trap,
        2 => ViolationKind::Breakpoint,
        3 => {
            let [text, file, function] = texts;
            ViolationKind::Assertion { text, file, line, function }
        }
        4 => ViolationKind::Global { effect, address: first, bytes, misaligned, nearest: None, freed: None },
        5 => {
            let low = |word: u64| u32::try_from(word & u64::from(u32::MAX)).unwrap_or_default();
            let offset = low(first).cast_signed();
            let of = if third == 1 { Extent::Array } else { Extent::Block };
            ViolationKind::Shared { effect, offset, bytes, misaligned, of, extent_bytes: low(second) }
        }
        6 => ViolationKind::Nobody { pointer: first },
        8 => {
            let given = (second != 0).then_some(AddressRange { start: second, bytes: third });
            ViolationKind::Heap { effect, address: first, bytes, given }
        }
        10 => ViolationKind::Unlooked,
        9 => ViolationKind::Free { address: first },
        11 => ViolationKind::Stack { bytes: u32::try_from(first).unwrap_or(u32::MAX) },
        7 => ViolationKind::Part { lanes: u32::try_from(first & u64::from(u32::MAX)).unwrap_or_default() },
        _ => return None,
    })
}

/// Of ranges in order, the one that an address is in or nearest to.
fn nearest(ranges: &[AddressRange], address: u64) -> Option<AddressRange> {
    let after = ranges.partition_point(|range| range.start <= address);
    let before = after.checked_sub(1).and_then(|before| ranges.get(before));
    let distance = |AddressRange { start, bytes }: &AddressRange| {
        start.saturating_sub(address).max(address.saturating_sub(start.saturating_add(*bytes)))
    };
    before.into_iter().chain(ranges.get(after)).min_by_key(|range| distance(range)).copied()
}

/// Ranges in order as the block has them. Where there are too many, the last reaches to the end of all.
fn table(ranges: &[AddressRange]) -> Vec<u8> {
    let count = ranges.len().min(RANGES_MAX);
    let mut bytes = (count as u64).to_le_bytes().to_vec();
    bytes.extend([0; 8]);
    for (index, range) in ranges.iter().take(count).enumerate() {
        let last = ranges.last().copied().filter(|_| index + 1 == RANGES_MAX).unwrap_or(*range);
        bytes.extend(range.start.to_le_bytes());
        bytes.extend(last.start.saturating_add(last.bytes).to_le_bytes());
    }
    bytes
}

thread_local! {
    /// Whether this thread is looking: what it waits for meanwhile is its own.
    static LOOKING: Cell<bool> = const { Cell::new(false) };
}

/// What threads of kernels told, see [`Session::take_violations`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Violations {
    /// As they came, image by image.
    pub records: Vec<Violation>,
    /// How many more there were.
    pub lost: u64,
}

impl Session {
    /// Notes an image whose kernels can tell of violations.
    pub(crate) fn watch(&self, data: &Arc<dyn Watched>) -> Result<(), Error> {
        if data.place(RING).is_none() {
            return Ok(());
        }
        let content = {
            let mut state = self.inner.watch.state.lock();
            state.images.push(Arc::downgrade(data));
            table(&state.ranges)
        };
        self.write_table(&**data, &content)?;
        self.inner.watch.any.store(true, Ordering::Release);
        Ok(())
    }

    fn write_table(&self, data: &dyn Watched, content: &[u8]) -> Result<(), Error> {
        let Some((at, _)) = data.place(RANGES) else { return Ok(()) };
        let stream = self.aside(Stream::DEFAULT);
        self.write(stream, data.range(at, content.len() as u64), content)?;
        self.wait_quietly(self.fence(stream))
    }

    /// Says what kernels that are launched from here on may access: ranges in any order, without overlaps. What kernels
    /// allocate from belongs to it anyway. Until it is called that is the whole slot. For sessions that were opened with
    /// [`Stray::Told`](bulkhead_schema::Stray::Told); nothing of the session should run meanwhile.
    ///
    /// # Errors
    /// Where the session is over.
    pub fn list_memory(&self, mut ranges: Vec<AddressRange>) -> Result<(), Error> {
        ranges.extend(self.inner.heap.lock().range());
        ranges.sort_unstable();
        let content = table(&ranges);
        let images: Vec<_> = {
            let mut state = self.inner.watch.state.lock();
            state.ranges = ranges;
            state.images.iter().filter_map(Weak::upgrade).collect()
        };
        images.iter().try_for_each(|data| self.write_table(&**data, &content))
    }

    /// Lists the same again where the heap was listed that was at a place until now.
    pub(crate) fn list_without(&self, heap: AddressRange) -> Result<(), Error> {
        let mut ranges = self.inner.watch.state.lock().ranges.clone();
        let before = ranges.len();
        ranges.retain(|range| *range != heap);
        if ranges.len() == before { Ok(()) } else { self.list_memory(ranges) }
    }

    /// What threads of this session's kernels have told since the last call, as far as somebody has waited for them.
    #[must_use]
    pub fn take_violations(&self) -> Violations {
        let mut state = self.inner.watch.state.lock();
        Violations { records: std::mem::take(&mut state.kept), lost: std::mem::take(&mut state.lost) }
    }

    /// Whether a thread of this session's kernels ended before its time, of which nobody was told yet.
    ///
    /// # Errors
    /// `trapped` or `assertionFailed`, once for all threads that did; [`Session::take_violations`] has the records.
    pub fn check_violations(&self) -> Result<(), Error> {
        self.look(Stream::DEFAULT)
    }

    /// Waits until it is `done`, and looks at the rings meanwhile: a kernel may wait for a thread that has ended.
    pub(crate) fn watch_until(&self, done: impl Fn() -> bool) -> Result<(), Error> {
        if !self.inner.watch.any() || LOOKING.get() {
            return Ok(());
        }
        let mut patience = PATIENCE;
        while !self.poll_for(Some(patience), &done)? {
            patience = (patience * 2).min(PATIENCE_MAX);
            if let Some(stream) = self.looking_stream() {
                self.look_again();
                self.look(stream)?;
            }
        }
        // What was told since is not seen yet.
        if patience > PATIENCE {
            self.look_again();
        }
        Ok(())
    }

    /// Waits for what a stream was given before something of it is copied by who cannot look meanwhile.
    pub(crate) fn settle(&self, stream: Stream) -> Result<(), Error> {
        if !self.inner.watch.any() || LOOKING.get() {
            return Ok(());
        }
        self.wait(self.fence(stream))
    }

    /// Looks at the rings after kernels have passed, unless nothing was launched since the last time.
    pub(crate) fn look(&self, stream: Stream) -> Result<(), Error> {
        let watch = &self.inner.watch;
        let launches = watch.launches.load(Ordering::Acquire);
        if LOOKING.get() || launches == watch.seen.load(Ordering::Acquire) {
            return Ok(());
        }
        // What is read has passed already; the stream may have a barrier by now.
        let stream = if watch.any() { self.aside(stream) } else { stream };
        LOOKING.set(true);
        let mut state = watch.state.lock();
        state.images.retain(|image| image.strong_count() > 0);
        let images: Vec<_> = state.images.iter().filter_map(Weak::upgrade).collect();
        // What still runs writes while a ring is emptied, and that would be lost.
        let runs = !self.outstanding().is_empty();
        let mut read = Ok(true);
        for data in &images {
            read = read.and_then(|all| Ok(self.drain(&**data, stream, runs, &mut state)? && all));
        }
        if let Ok(true) = read {
            watch.seen.fetch_max(launches, Ordering::AcqRel);
        }
        let stopped = state.stopped.take();
        drop(state);
        LOOKING.set(false);
        read?;
        stopped.map_or(Ok(()), Err)
    }

    /// Has the next look read the rings whatever was launched.
    fn look_again(&self) {
        self.inner.watch.launches.fetch_add(1, Ordering::AcqRel);
    }

    fn looking_stream(&self) -> Option<Stream> {
        let known = self.inner.watch.state.lock().stream;
        let stream = known.or_else(|| self.create_stream(0).ok());
        self.inner.watch.state.lock().stream = stream;
        stream
    }

    /// Reads how often something was told of one image, and forgets it.
    fn drain_counts(&self, data: &dyn Watched, stream: Stream, found: &mut [Found]) -> Result<u64, Error> {
        let Some((at, bytes)) = data.place(TOLD) else { return Ok(0) };
        let mut counts = vec![0; usize::try_from(bytes).unwrap_or_default()];
        self.read(stream, &mut counts, data.range(at, bytes))?;
        self.write(stream, data.range(at, bytes), &vec![0; counts.len()])?;
        Ok(count(&counts, found))
    }

    /// Reads the records of one image's ring, and empties it. While something `runs`, only where a thread ended before its
    /// time; false where records were left for later.
    fn drain(
        &self,
        data: &dyn Watched,
        stream: Stream,
        runs: bool,
        state: &mut State,
    ) -> Result<bool, Error> {
        let Some((at, bytes)) = data.place(RING) else { return Ok(true) };
        let mut header = [0; HEADER_BYTES];
        self.read(stream, &mut header, data.range(at, HEADER_BYTES as u64))?;
        let (asked, stopped) = (long(&header, 0), word(&header, 8));
        if stopped == 0 && (asked == 0 || runs) {
            return Ok(asked == 0);
        }
        let room = usize::try_from(bytes).unwrap_or_default().saturating_sub(HEADER_BYTES) / RECORD_BYTES;
        let there = usize::try_from(asked).unwrap_or(usize::MAX).min(room);
        let used = HEADER_BYTES + there * RECORD_BYTES;
        let mut content = vec![0; used];
        self.read(stream, &mut content, data.range(at, used as u64))?;
        self.write(stream, data.range(at, used as u64), &vec![0; used])?;
        let records = content.get(HEADER_BYTES..).unwrap_or_default().chunks_exact(RECORD_BYTES);
        let block = Block::of(data);
        let read =
            |record| Some(Found { counted_at: counted_at(record), violation: block.violation(record)? });
        let mut found: Vec<Found> = records.filter_map(read).collect();
        state.lost = state.lost.saturating_add(self.drain_counts(data, stream, &mut found)?);
        let mut found: Vec<Violation> = found.into_iter().map(|found| found.violation).collect();
        for violation in &mut found {
            if let ViolationKind::Global { address, nearest, .. } = &mut violation.kind {
                *nearest = self::nearest(&state.ranges, *address);
            }
        }
        state.lost = state.lost.saturating_add(asked.saturating_sub(found.len() as u64));
        if stopped != 0 {
            let error = told(stopped, &found, asked);
            state.stopped.get_or_insert(error);
        }
        for violation in found {
            if state.kept.len() < KEPT_MAX {
                state.kept.push(violation);
            } else {
                state.lost = state.lost.saturating_add(1);
            }
        }
        Ok(true)
    }
}

/// Where among the counts a record was counted; none where it is of what ends a thread.
fn counted_at(record: &[u8]) -> Option<usize> {
    let place = match word(record, 0) & 0xFF {
        4 => long(record, 64),
        5 | 8..=10 => u64::from(word(record, 12)),
        _ => return None,
    };
    usize::try_from(place & 0xFFF).ok()
}

/// What a record tells, and the place at which more like it are only counted, if they are.
struct Found {
    counted_at: Option<usize>,
    violation: Violation,
}

/// Adds what was only counted to the last record of its place; what has none is returned.
fn count(counts: &[u8], found: &mut [Found]) -> u64 {
    let mut without = 0_u64;
    for (place, bytes) in counts.chunks_exact(4).enumerate() {
        let more = u64::from(word(bytes, 0).saturating_sub(TOLD_RECORDS));
        if more == 0 {
            continue;
        }
        match found.iter_mut().rfind(|found| found.counted_at == Some(place)) {
            Some(Found { violation: last, .. }) => last.times = last.times.saturating_add(more),
            None => without = without.saturating_add(more),
        }
    }
    without
}

/// The error that the threads' records make.
fn told(stopped: u32, found: &[Violation], asked: u64) -> Error {
    let is_assertion = |violation: &&Violation| matches!(violation.kind, ViolationKind::Assertion { .. });
    let ends = |violation: &&Violation| violation.kind.ends();
    let code = if stopped & 0xFF == 3 { ErrorCode::AssertionFailed } else { ErrorCode::Trapped };
    let of_kind = |violation: &&Violation| is_assertion(violation) == (code == ErrorCode::AssertionFailed);
    let all = found.iter().filter(ends).filter(of_kind).count();
    let mut lines: Vec<String> =
        found.iter().filter(ends).filter(of_kind).take(TOLD_MAX).map(ToString::to_string).collect();
    let more = (all - lines.len()) as u64 + asked.saturating_sub(found.len() as u64);
    if lines.is_empty() {
        lines.push("a thread of a kernel ended before its time, and its record was lost".to_owned());
    } else if more > 0 {
        lines.push(format!("... and {more} more"));
    }
    Error::new(code, lines.join("\n"))
}

/// An image's block as records tell of it.
struct Block<'a> {
    /// Where it lies.
    address: u64,
    /// What it began with, up to where the rest was zero. What it holds now kernels may have written.
    content: &'a [u8],
    /// Where the names begin, and how long they are.
    names: (u64, u64),
}

impl<'a> Block<'a> {
    fn of(data: &'a dyn Watched) -> Self {
        let names = data.place(NAMES).unwrap_or_default();
        Self { address: data.address(), content: data.content(), names }
    }

    /// The text so far from the beginning of the block, up to its NUL.
    fn text(&self, at: u64) -> String {
        let from = usize::try_from(at).ok().and_then(|at| self.content.get(at..));
        from.map(text).unwrap_or_default()
    }

    /// The text at an address; none where that is not in the block.
    fn text_at(&self, address: u64) -> String {
        address.checked_sub(self.address).map(|at| self.text(at)).unwrap_or_default()
    }

    /// A name by where it begins among the names.
    fn name(&self, at: u64) -> String {
        let (first, bytes) = self.names;
        if (1..bytes).contains(&at) { self.text(first.saturating_add(at)) } else { String::new() }
    }

    fn violation(&self, record: &[u8]) -> Option<Violation> {
        let line = word(record, 4);
        let file = self.name(word(record, 8).into());
        let entry = long(record, 40).checked_sub(self.address).and_then(|at| at.checked_sub(self.names.0));
        let words = [48, 56, 64].map(|at| long(record, at));
        let texts = words.map(|word| self.text_at(word));
        Some(Violation {
            kind: kind(word(record, 0), line, words, texts)?,
            entry: entry.map(|at| self.name(at)).unwrap_or_default(),
            source: (!file.is_empty()).then_some((file, line)),
            ptx_line: word(record, 12),
            block: [16, 20, 24].map(|at| word(record, at)),
            thread: [28, 32, 36].map(|at| word(record, at)),
            times: 1,
        })
    }
}

/// The text that begins there, up to its NUL.
fn text(bytes: &[u8]) -> String {
    let bytes = bytes.get(..TEXT_BYTES_MAX).unwrap_or(bytes);
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk).copied();
    u32::from_le_bytes(bytes.unwrap_or_default())
}

fn long(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk).copied();
    u64::from_le_bytes(bytes.unwrap_or_default())
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod access_tests;
