//! Violations: what threads of kernels told when they could not go on, or went astray.
//!
//! The guard gives an image whose code can tell such a thing a ring in its block of variables
//! (`guard/src/confine/faults.ptx`). All of that is the session's own memory, which its kernels may have written: it is
//! bounded here and believed by nobody but the client.

use std::{
    cell::Cell,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use bulkhead_schema::{Error, ErrorCode, Stray};
use parking_lot::Mutex;

use crate::{Effect, Extent, Session, Stream, Violation, ViolationKind, image::Data};

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
            let given = (second != 0).then_some((second, third));
            ViolationKind::Heap { effect, address: first, bytes, given }
        }
        10 => ViolationKind::Unlooked,
        9 => ViolationKind::Free { address: first },
        7 => ViolationKind::Part { lanes: u32::try_from(first & u64::from(u32::MAX)).unwrap_or_default() },
        _ => return None,
    })
}

/// Of ranges in order, the one that an address is in or nearest to.
fn nearest(ranges: &[(u64, u64)], address: u64) -> Option<(u64, u64)> {
    let after = ranges.partition_point(|(start, _)| *start <= address);
    let before = after.checked_sub(1).and_then(|before| ranges.get(before));
    let distance = |(start, bytes): &(u64, u64)| {
        start.saturating_sub(address).max(address.saturating_sub(start.saturating_add(*bytes)))
    };
    before.into_iter().chain(ranges.get(after)).min_by_key(|range| distance(range)).copied()
}

/// Ranges in order as the block has them. Where there are too many, the last reaches to the end of all.
fn table(ranges: &[(u64, u64)]) -> Vec<u8> {
    let count = ranges.len().min(RANGES_MAX);
    let mut bytes = (count as u64).to_le_bytes().to_vec();
    bytes.extend([0; 8]);
    for (index, (start, length)) in ranges.iter().take(count).enumerate() {
        let last = ranges.last().copied().filter(|_| index + 1 == RANGES_MAX);
        let (from, length) = last.unwrap_or((*start, *length));
        bytes.extend(start.to_le_bytes());
        bytes.extend(from.saturating_add(length).to_le_bytes());
    }
    bytes
}

/// The images of a session whose kernels can tell of violations.
pub(crate) struct Watch {
    /// Whether images are loaded so that they tell of accesses.
    pub(crate) stray: Stray,
    /// Whether there is one.
    any: AtomicBool,
    /// How often something was launched since there is one, and how much of that was looked after.
    launches: AtomicU64,
    seen: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    images: Vec<Weak<Data>>,
    /// What there is to access, in order.
    ranges: Vec<(u64, u64)>,
    kept: Vec<Violation>,
    /// Records that were not kept, or that the rings had no room for.
    lost: u64,
    /// What threads ended with, until somebody was told.
    stopped: Option<Error>,
    /// On which the rings are read while kernels run on the others.
    stream: Option<Stream>,
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

impl Watch {
    /// All of the slot, until something else is listed.
    pub(crate) fn new(stray: Stray, slot: (u64, u64)) -> Self {
        Self {
            stray,
            any: AtomicBool::new(false),
            launches: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            state: Mutex::new(State { ranges: vec![slot], ..State::default() }),
        }
    }

    /// Whether there is anything to look at.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Notes that something is about to be launched.
    #[inline]
    pub(crate) fn launching(&self) {
        if self.any() {
            self.launches.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl Session {
    /// Notes an image whose kernels can tell of violations.
    pub(crate) fn watch(&self, data: &Arc<Data>) -> Result<(), Error> {
        if data.place(RING).is_none() {
            return Ok(());
        }
        let content = {
            let mut state = self.inner.watch.state.lock();
            state.images.push(Arc::downgrade(data));
            table(&state.ranges)
        };
        self.write_table(data, &content)?;
        self.inner.watch.any.store(true, Ordering::Release);
        Ok(())
    }

    fn write_table(&self, data: &Data, content: &[u8]) -> Result<(), Error> {
        let Some((at, _)) = data.place(RANGES) else { return Ok(()) };
        let stream = self.aside(Stream::DEFAULT);
        self.write(stream, data.memory.range(at, content.len() as u64), content)?;
        self.wait_quietly(self.fence(stream))
    }

    /// Says what kernels that are launched from here on may access: first address and length of each range, in any
    /// order, without overlaps. What kernels allocate from belongs to it anyway. Until it is called that is the whole slot. For sessions that were opened with
    /// [`Stray::Told`]; nothing of the session should run meanwhile.
    ///
    /// # Errors
    /// Where the session is over.
    pub fn list_memory(&self, mut ranges: Vec<(u64, u64)>) -> Result<(), Error> {
        ranges.extend(self.inner.heap.lock().range());
        ranges.sort_unstable();
        let content = table(&ranges);
        let images: Vec<_> = {
            let mut state = self.inner.watch.state.lock();
            state.ranges = ranges;
            state.images.iter().filter_map(Weak::upgrade).collect()
        };
        images.iter().try_for_each(|data| self.write_table(data, &content))
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
            read = read.and_then(|all| Ok(self.drain(data, stream, runs, &mut state)? && all));
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
    fn drain_counts(
        &self,
        data: &Data,
        stream: Stream,
        found: &mut [(Option<usize>, Violation)],
    ) -> Result<u64, Error> {
        let Some((at, bytes)) = data.place(TOLD) else { return Ok(0) };
        let mut counts = vec![0; usize::try_from(bytes).unwrap_or_default()];
        self.read(stream, &mut counts, data.memory.range(at, bytes))?;
        self.write(stream, data.memory.range(at, bytes), &vec![0; counts.len()])?;
        Ok(count(&counts, found))
    }

    /// Reads the records of one image's ring, and empties it. While something `runs`, only where a thread ended before its
    /// time; false where records were left for later.
    fn drain(&self, data: &Data, stream: Stream, runs: bool, state: &mut State) -> Result<bool, Error> {
        let Some((at, bytes)) = data.place(RING) else { return Ok(true) };
        let mut header = [0; HEADER_BYTES];
        self.read(stream, &mut header, data.memory.range(at, HEADER_BYTES as u64))?;
        let (asked, stopped) = (long(&header, 0), word(&header, 8));
        if stopped == 0 && (asked == 0 || runs) {
            return Ok(asked == 0);
        }
        let room = usize::try_from(bytes).unwrap_or_default().saturating_sub(HEADER_BYTES) / RECORD_BYTES;
        let there = usize::try_from(asked).unwrap_or(usize::MAX).min(room);
        let used = HEADER_BYTES + there * RECORD_BYTES;
        let mut content = vec![0; used];
        self.read(stream, &mut content, data.memory.range(at, used as u64))?;
        self.write(stream, data.memory.range(at, used as u64), &vec![0; used])?;
        let records = content.get(HEADER_BYTES..).unwrap_or_default().chunks_exact(RECORD_BYTES);
        let block = Block::of(data);
        let read = |record| Some((counted_at(record), block.violation(record)?));
        let mut found: Vec<(Option<usize>, Violation)> = records.filter_map(read).collect();
        state.lost = state.lost.saturating_add(self.drain_counts(data, stream, &mut found)?);
        let mut found: Vec<Violation> = found.into_iter().map(|(_, violation)| violation).collect();
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

/// Adds what was only counted to the last record of its place; what has none is returned.
fn count(counts: &[u8], found: &mut [(Option<usize>, Violation)]) -> u64 {
    let mut without = 0_u64;
    for (place, bytes) in counts.chunks_exact(4).enumerate() {
        let more = u64::from(word(bytes, 0).saturating_sub(TOLD_RECORDS));
        if more == 0 {
            continue;
        }
        match found.iter_mut().rfind(|(at, _)| *at == Some(place)) {
            Some((_, last)) => last.times = last.times.saturating_add(more),
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
    fn of(data: &'a Data) -> Self {
        let names = data.place(NAMES).unwrap_or_default();
        Self { address: data.memory.address(), content: &data.content, names }
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
mod tests {
    use super::*;

    const ADDRESS: u64 = 0x2000_0000_0000;

    fn block(content: &[u8]) -> Block<'_> {
        Block { address: ADDRESS, content, names: (4, 12) }
    }

    fn record(words: [u32; 10], longs: [u64; 4]) -> Vec<u8> {
        let words = words.iter().flat_map(|word| word.to_le_bytes());
        words.chain(longs.iter().flat_map(|long| long.to_le_bytes())).collect()
    }

    #[test]
    fn a_failed_assertion_reads_as_the_driver_prints_it() {
        let content = b"i<3\0\0k\0a.cu\0..void k()\0";
        let texts = [ADDRESS + 5, ADDRESS, ADDRESS + 7, ADDRESS + 14];
        let told = block(content).violation(&record([3, 9, 0, 0, 1, 2, 3, 4, 5, 6], texts)).unwrap();
        assert_eq!(
            told.to_string(),
            "a.cu:9: void k(): block: [1,2,3], thread: [4,5,6] Assertion `i<3` failed."
        );
        assert_eq!((told.entry.as_str(), told.source), ("k", None));
    }

    #[test]
    fn a_trap_tells_its_source_or_else_its_line_of_the_ptx() {
        let content = b"i<3\0\0k\0a.cu\0..";
        let told = |file, line| {
            let words = [1, line, file, 40, 0, 0, 0, 7, 0, 0];
            block(content).violation(&record(words, [ADDRESS + 5, 0, 0, 0])).unwrap().to_string()
        };
        assert_eq!(told(3, 12), "a.cu:12: k: block: [0,0,0], thread: [7,0,0] met a trap");
        assert_eq!(told(0, 12), "line 40 of the PTX: k: block: [0,0,0], thread: [7,0,0] met a trap");
    }

    #[test]
    fn calls_of_nobody_and_parts_of_warps_tell_what_they_met() {
        let content = b"i<3\0\0k\0a.cu\0..";
        let told = |kind, first| {
            let words = [kind, 0, 0, 40, 0, 0, 0, 7, 0, 0];
            let told = block(content).violation(&record(words, [ADDRESS + 5, first, 0, 0])).unwrap();
            assert!(told.kind.ends());
            told.to_string()
        };
        let who = "line 40 of the PTX: k: block: [0,0,0], thread: [7,0,0]";
        assert_eq!(told(6, 5 << 40), format!("{who} called 0x50000000000, which is no function"));
        let part = "came to an instruction for whole warps with the lanes 0xff alone";
        assert_eq!(told(7, 0xFF), format!("{who} {part}"));
    }

    #[test]
    fn forged_records_tell_nothing_that_is_not_in_the_block() {
        let content = b"i<3\0\0k\0a.cu\0..";
        let far = [0, 1, ADDRESS - 1, ADDRESS + 16, ADDRESS + (1 << 40), u64::MAX];
        for address in far {
            for number in [0, 12, 13, 1 << 31, u32::MAX] {
                let words = [3, number, number, number, 1, 1, 1, 1, 1, 1];
                let told = block(content).violation(&record(words, [address; 4])).unwrap();
                let ViolationKind::Assertion { text, file, function, .. } = &told.kind else { panic!() };
                let all = [&told.entry, text, file, function];
                assert!(all.iter().all(|text| text.is_empty()), "{address:#x}: {told:?}");
                assert_eq!(told.source, None);
            }
        }
        for kind in [0, 11, 200, 255] {
            assert_eq!(block(content).violation(&record([kind; 10], [0; 4])), None);
        }
        for length in 0..72 {
            block(content).violation(&vec![0xFF; length]);
        }
        assert_eq!(block(content).violation(&[1, 0, 0]), None);
    }

    #[test]
    fn an_error_tells_some_records_and_counts_the_others() {
        let content = b"i<3\0\0k\0a.cu\0..";
        let one = block(content).violation(&record([1, 0, 0, 8, 0, 0, 0, 0, 0, 0], [0; 4])).unwrap();
        let error = told(1, &vec![one; 100], 5000);
        assert_eq!(error.code, ErrorCode::Trapped);
        let lines: Vec<&str> = error.message.lines().collect();
        assert_eq!((lines.len(), lines[TOLD_MAX]), (TOLD_MAX + 1, "... and 4968 more"));
        let error = told(3, &[], 0);
        assert_eq!(error.code, ErrorCode::AssertionFailed);
        assert!(error.message.contains("lost"), "{error}");
    }
}

#[cfg(test)]
mod access_tests {
    use super::*;
    use crate::Freed;

    fn told(code: u32, words: [u64; 3], nearest: Option<(u64, u64)>) -> String {
        let texts = [String::new(), String::new(), String::new()];
        let mut kind = kind(code, 0, words, texts).unwrap();
        if let ViolationKind::Global { nearest: known, .. } = &mut kind {
            *known = nearest;
        }
        let (entry, source) = ("k".to_owned(), Some(("a.cu".to_owned(), 7)));
        Violation { kind, entry, source, ptx_line: 3, block: [1, 0, 0], thread: [2, 0, 0], times: 1 }
            .to_string()
    }

    #[test]
    fn an_access_is_told_with_what_it_did_and_how_far_it_went() {
        let who = "a.cu:7: k: block: [1,0,0], thread: [2,0,0]";
        for (code, address, expected) in [
            (4 | 4 << 8, 0x1400, "read of 4 bytes at 0x1400: 0 bytes behind the end of 1024 bytes at 0x1000"),
            (
                4 | 8 << 8 | 1 << 16,
                0x13fc,
                "write of 8 bytes at 0x13fc: the last 4 behind the end of 1024 bytes at 0x1000",
            ),
            (
                4 | 4 << 8 | 2 << 16,
                0xff0,
                "atomic access of 4 bytes at 0xff0: 16 bytes before 1024 bytes at 0x1000",
            ),
            (4 | 4 << 8 | 1 << 24, 0x1001, "read of 4 bytes at 0x1001: misaligned"),
        ] {
            assert_eq!(told(code, [address, 0, 0], Some((0x1000, 1024))), format!("{who} {expected}"));
        }
        assert_eq!(
            told(4 | 4 << 8 | 1 << 16, [4, 0, 0], Some((0x2000_0000_0000, 1024))),
            format!("{who} write of 4 bytes at 0x4: a null pointer")
        );
        assert_eq!(
            told(5 | 4 << 8 | 1 << 16, [(-4_i64).cast_unsigned(), 256, 0], None),
            format!("{who} write of 4 bytes of shared memory at -4: the block has 256 bytes")
        );
        assert_eq!(
            told(5 | 4 << 8, [256, 256, 1], None),
            format!("{who} read of 4 bytes of shared memory at 256: the array has 256 bytes")
        );
        for (code, words, expected) in [
            (
                8,
                [0x1040, 0x1000, 64],
                "read of 4 bytes at 0x1040: 0 bytes behind the end of 64 bytes at 0x1000 that malloc gave",
            ),
            (8, [0x1040, 0, 0], "read of 4 bytes at 0x1040: use after free, or of what malloc has not given"),
            (
                9,
                [0x1040, 0, 0],
                "freed 0x1040, where malloc has given nothing: freed twice, or never allocated",
            ),
        ] {
            assert_eq!(told(code | 4 << 8, words, None), format!("{who} {expected}"));
        }
        let freed = Freed { start: 0x1000, bytes: 64, by: Some("main".to_owned()) };
        let told = |freed| {
            let nearest = Some((0x2000, 4));
            let (effect, bytes) = (Effect::Write, 4);
            let kind =
                ViolationKind::Global { effect, address: 0x1010, bytes, misaligned: false, nearest, freed };
            let source = Some(("a.cu".to_owned(), 7));
            Violation {
                kind,
                entry: "k".to_owned(),
                source,
                ptx_line: 3,
                block: [1, 0, 0],
                thread: [2, 0, 0],
                times: 1,
            }
            .to_string()
        };
        let expected =
            format!("{who} write of 4 bytes at 0x1010: use after free, byte 16 of 64 bytes at 0x1000");
        assert_eq!(told(Some(Freed { by: None, ..freed.clone() })), expected);
        assert_eq!(told(Some(freed)), format!("{expected}, freed by main"));
    }

    #[test]
    fn what_was_only_counted_is_added_to_the_last_record_of_its_place() {
        let of = |line| {
            let kind =
                kind(4 | 4 << 8, 0, [0x10, 0, 0], [String::new(), String::new(), String::new()]).unwrap();
            let (entry, source) = ("k".to_owned(), None);
            Violation { kind, entry, source, ptx_line: line, block: [0; 3], thread: [0; 3], times: 1 }
        };
        let mut found =
            [(Some(3), of(3)), (Some(3), of(3)), (Some(5), of(7)), (Some(6), of(6)), (None, of(7))];
        let mut counts = vec![0; 4 * 4096];
        for (place, times) in [(3, 20_u32), (5, 9), (6, 8), (7, 10)] {
            counts[4 * place..4 * place + 4].copy_from_slice(&times.to_le_bytes());
        }
        assert_eq!(count(&counts, &mut found), 2);
        assert_eq!(found.map(|(_, violation)| violation.times), [1, 13, 2, 1, 1]);
        let record = |what: u32, third: u64| {
            let mut record = vec![0; RECORD_BYTES];
            record[..4].copy_from_slice(&what.to_le_bytes());
            record[12..16].copy_from_slice(&4099_u32.to_le_bytes());
            record[64..72].copy_from_slice(&third.to_le_bytes());
            record
        };
        for (what, place) in [(4, Some(7)), (5, Some(3)), (8, Some(3)), (9, Some(3)), (1, None), (6, None)] {
            assert_eq!(counted_at(&record(what, 7)), place);
        }
    }

    #[test]
    fn the_nearest_of_what_is_listed_is_found() {
        let ranges = [(100, 10), (200, 10), (300, 100)];
        for (address, expected) in [(0, 100), (105, 100), (150, 100), (160, 200), (205, 200), (9999, 300)] {
            assert_eq!(nearest(&ranges, address).unwrap().0, expected, "{address}");
        }
        assert_eq!(nearest(&[], 5), None);
    }

    #[test]
    fn a_table_holds_so_many_ranges_and_the_last_covers_the_rest() {
        let ranges: Vec<(u64, u64)> = (0..5000).map(|index| (index * 100, 10)).collect();
        let bytes = table(&ranges);
        assert_eq!((bytes.len(), word(&bytes, 0)), (16 + 16 * RANGES_MAX, 4096));
        assert_eq!((long(&bytes, 32), long(&bytes, 40)), (100, 110));
        assert_eq!(long(&bytes, bytes.len() - 8), 4999 * 100 + 10);
        assert_eq!(word(&table(&[]), 0), 0);
    }
}
