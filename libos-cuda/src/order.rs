//! Streams and the order of their work, the legacy null stream's above all.
//!
//! Work of the legacy stream starts after all earlier work of every blocking stream, and later work of blocking
//! streams starts after it. Each direction is kept with one word: `written`, the blocking streams with work that
//! the legacy stream has not waited for, and `legacy`, which counts the legacy stream's work; a stream remembers
//! the count it last waited for. A program that never makes a stream pays for a load and an increment.
//!
//! Work is submitted first and noted second: whoever sees the note sees the work. Who does not see it did not
//! order itself after the submission, so any order is right.

mod given;
pub(crate) mod host_function;
mod late;
mod made;
mod per_thread;
mod target;

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use bulkhead_schema::limits::STREAMS_MAX;
use parking_lot::Mutex;

use crate::capture::Captures;
use crate::device::{Fence, Session, Stream};
use crate::handle::{Kind, decode, encode, next_generation};
use crate::moving::keep;
use crate::report;
use crate::status::{Answer, SUCCESS, Status};
pub(crate) use target::{Order, Target};

use given::{Given, Slots};
use late::LateStreams;

const _: () = assert!(STREAMS_MAX <= 64, "`written` has one bit for each stream");

const LIVE: u64 = 1;
const NON_BLOCKING: u64 = 2;
const GENERATION_SHIFT: u32 = 8;
/// `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`.
const LEGACY_HANDLE: u64 = 1;
const PER_THREAD_HANDLE: u64 = 2;
/// The count of legacy work that a stream has waited for when it has not waited yet.
const NEVER: u64 = u64::MAX;

#[derive(Default)]
struct Slot {
    /// Generation, and the flags above.
    word: AtomicU64,
    /// The session's stream of this number, once there was one.
    stream: OnceLock<Stream>,
    /// How much of the legacy stream's work this stream has waited for.
    waited: AtomicU64,
    /// Why an event of another process will never come: a `CUresult`, until somebody is told.
    failed: AtomicU32,
    priority: AtomicI32,
    context: AtomicU64,
    attributes: Mutex<Attributes>,
}

/// What a stream was told that changes nothing but what it tells, by the attribute's number.
pub(crate) type Attributes = BTreeMap<u32, [u32; 16]>;

/// All streams of the process. A slot's number is the session's number of its stream.
pub(crate) struct Streams {
    slots: Box<[Slot]>,
    /// Blocking streams with work that the legacy stream has not waited for.
    written: AtomicU64,
    /// How many times work went to the legacy stream.
    legacy: AtomicU64,
    /// Host functions of all streams that have not returned, and failures that nobody was told of: without any of it nobody
    /// looks more closely.
    told: AtomicU32,
    given: Given,
    /// Events of other processes that streams wait for.
    awaited: AtomicUsize,
    /// For contexts whose later work waits for something, a stream that waits for it, behind which new streams begin.
    ahead: Mutex<BTreeMap<u64, Target>>,
    /// Streams that were asked for and are made later.
    late: LateStreams,
    /// Whether the program ever had a stream that the legacy stream does not order with.
    unordered: AtomicBool,
    /// Streams whose work is written down instead of done.
    pub(crate) captures: Captures,
}

impl Streams {
    pub(crate) fn new() -> Streams {
        let slots: Box<[Slot]> = (0..STREAMS_MAX).map(|_| Slot::default()).collect();
        if let Some(legacy) = slots.first() {
            legacy.word.store(LIVE, Ordering::Relaxed);
            legacy.stream.get_or_init(|| Stream::DEFAULT);
        }
        Streams {
            slots,
            written: AtomicU64::new(0),
            legacy: AtomicU64::new(0),
            told: AtomicU32::new(0),
            given: Given::new(),
            awaited: AtomicUsize::new(0),
            ahead: Mutex::default(),
            late: LateStreams::default(),
            unordered: AtomicBool::new(false),
            captures: Captures::default(),
        }
    }

    /// Whether there was never a stream but the legacy one, and no work in that.
    pub(crate) fn are_untouched(&self) -> bool {
        let has_others = self.slots.iter().skip(1).any(|slot| slot.word.load(Ordering::Relaxed) != 0);
        !has_others && self.legacy.load(Ordering::Relaxed) == 0 && self.ahead.lock().is_empty()
    }

    fn slot(&self, target: Target) -> Result<&Slot, Status> {
        self.slots.get(target.stream.index() as usize).ok_or(Status::INVALID_HANDLE)
    }

    /// The stream that a handle names; 0 is the legacy one's.
    #[inline]
    pub(crate) fn target(&self, session: &Session, handle: u64) -> Result<Target, Status> {
        match handle {
            0 | LEGACY_HANDLE => Ok(Target::LEGACY),
            _ => self.named(session, handle),
        }
    }

    fn named(&self, session: &Session, handle: u64) -> Result<Target, Status> {
        let (generation, slot) = decode(Kind::Stream, handle)?;
        let Some(place) = self.slots.get(slot as usize) else {
            let place = slot as usize - self.slots.len();
            return self.made(session, late::Named { place, generation });
        };
        let word = place.word.load(Ordering::Acquire);
        if word & LIVE == 0 || word >> GENERATION_SHIFT != u64::from(generation) {
            return Err(Status::INVALID_HANDLE);
        }
        let order = if word & NON_BLOCKING == 0 { Order::Blocking } else { Order::NonBlocking };
        Ok(Target { stream: *place.stream.get().ok_or(Status::INVALID_HANDLE)?, order })
    }

    /// Makes a stream of the session's, now or, where a program has many, when something is first asked of it.
    pub(crate) fn create(
        &self,
        session: &Session,
        order: Order,
        priority: i32,
        context: u64,
    ) -> Result<u64, Status> {
        // Counted and made by one thread at a time: else many threads find few, and make them all.
        let making = self.late.making();
        if context != 0 && self.live() > late::AT_ONCE {
            drop(making);
            let first = u32::try_from(self.slots.len()).map_err(|_| Status::UNKNOWN)?;
            return self.late.add(order, priority, context, first);
        }
        self.create_now(session, order, priority, context).inspect_err(|status| {
            if *status == Status::OUT_OF_MEMORY {
                report::once(late::ALL_IN_USE);
            }
        })
    }

    /// How many streams of the session's the process has.
    fn live(&self) -> usize {
        self.slots.iter().filter(|slot| slot.word.load(Ordering::Relaxed) & LIVE != 0).count()
    }

    fn create_now(
        &self,
        session: &Session,
        order: Order,
        priority: i32,
        context: u64,
    ) -> Result<u64, Status> {
        let stream = session.create_stream(priority).map_err(|error| Status::of(&error))?;
        let slot = stream.index();
        let Some(place) = self.slots.get(slot as usize) else { return Err(Status::UNKNOWN) };
        place.stream.get_or_init(|| stream);
        let ahead = self.ahead.lock().get(&context).copied();
        if let Some(ahead) = ahead
            && let Err(error) = session.wait_on(stream, session.fence(ahead.stream))
        {
            // Nobody has seen it; that it cannot be destroyed either changes nothing.
            session.destroy_stream(stream).ok();
            return Err(Status::of(&error));
        }
        let generation = place.word.load(Ordering::Relaxed) >> GENERATION_SHIFT;
        let generation = next_generation(u32::try_from(generation).unwrap_or(0));
        // What the stream before this one awaited in the end, nobody was told of.
        self.forget_failure(place);
        place.waited.store(NEVER, Ordering::Relaxed);
        place.priority.store(priority, Ordering::Relaxed);
        place.context.store(context, Ordering::Relaxed);
        place.attributes.lock().clear();
        // Streams of no context are the library's own, which follow the program's.
        if order == Order::NonBlocking && context != 0 {
            self.unordered.store(true, Ordering::Relaxed);
        }
        let flags = if order == Order::NonBlocking { LIVE | NON_BLOCKING } else { LIVE };
        place.word.store(u64::from(generation) << GENERATION_SHIFT | flags, Ordering::Release);
        Ok(encode(Kind::Stream, generation, slot))
    }

    /// Whether work in the order of the legacy stream may be overtaken by what the program submits later.
    pub(crate) fn may_overtake(&self) -> bool {
        self.unordered.load(Ordering::Relaxed)
    }

    /// Destroys a stream; its work is still done, and the legacy stream still waits for it.
    pub(crate) fn destroy(&self, session: &Session, handle: u64) -> Answer {
        let (generation, slot) = decode(Kind::Stream, handle)?;
        let late =
            (slot as usize).checked_sub(self.slots.len()).map(|place| late::Named { place, generation });
        let handle = match late {
            None => Some(handle),
            Some(named) => self.late.handle(named)?,
        };
        match (handle, late) {
            (Some(handle), Some(_)) => self.leave(session, handle)?,
            (Some(handle), None) => self.retire(session, self.named(session, handle)?)?,
            (None, _) => {}
        }
        // Last: whoever is refused leaves it as it is.
        late.map_or(Ok(()), |named| self.late.forget(named))
    }

    fn retire(&self, session: &Session, target: Target) -> Answer {
        let slot = self.slot(target)?;
        // First: whoever is refused leaves the stream as it is.
        self.refuse_to_host_functions(self.before(target))?;
        let word = slot.word.load(Ordering::Relaxed);
        let dead = word & !(LIVE | NON_BLOCKING);
        if word & LIVE == 0
            || slot.word.compare_exchange(word, dead, Ordering::AcqRel, Ordering::Relaxed).is_err()
        {
            return Err(Status::INVALID_HANDLE);
        }
        self.captures.forget(target.stream.index());
        self.captures.shared.fetch_and(!target.bit(), Ordering::SeqCst);
        self.forget_failure(slot);
        if self.written.fetch_and(!target.bit(), Ordering::SeqCst) & target.bit() != 0 {
            let fence = session.fence(target.stream);
            session.wait_on(Stream::DEFAULT, fence).map_err(|error| Status::of(&error))?;
            self.legacy.fetch_add(1, Ordering::SeqCst);
        }
        session.destroy_stream(target.stream).map_err(|error| Status::of(&error))
    }

    /// The streams that a context's work goes to: its own, and the legacy one, which all contexts have in common.
    pub(crate) fn of_context(&self, context: u64) -> impl Iterator<Item = Target> {
        let own = self.slots.iter().skip(1).filter_map(move |slot| {
            let word = slot.word.load(Ordering::Acquire);
            let is_own = word & LIVE != 0 && slot.context.load(Ordering::Relaxed) == context;
            let order = if word & NON_BLOCKING == 0 { Order::Blocking } else { Order::NonBlocking };
            Some(Target { stream: *slot.stream.get().filter(|_| is_own)?, order })
        });
        own.chain([Target::LEGACY])
    }

    /// The stream behind which new ones of a context begin.
    pub(crate) fn ahead_of(&self, session: &Session, context: u64) -> Result<Target, Status> {
        if let Some(ahead) = self.ahead.lock().get(&context) {
            return Ok(*ahead);
        }
        let handle = self.create(session, Order::NonBlocking, 0, 0)?;
        let target = self.named(session, handle)?;
        let first = *self.ahead.lock().entry(context).or_insert(target);
        if first != target {
            self.retire(session, target)?;
        }
        Ok(first)
    }

    /// Destroys the streams of a context.
    pub(crate) fn end(&self, session: &Session, context: u64) {
        self.late.end(context);
        let ahead = self.ahead.lock().remove(&context);
        // It is the library's own; its work is still done.
        ahead.map(|ahead| self.retire(session, ahead).ok());
        for slot in self.slots.iter().skip(1) {
            let live = slot.word.load(Ordering::Acquire) & LIVE != 0;
            if live
                && slot.context.load(Ordering::Relaxed) == context
                && let Some(stream) = slot.stream.get()
            {
                // Refused where another thread destroyed it first, or to a function of the host's that it waits for.
                self.retire(session, Target { stream: *stream, order: Order::Blocking }).ok();
            }
        }
    }

    /// Submits work to a stream, in its order with the legacy stream's.
    #[inline]
    pub(crate) fn submit<R>(
        &self,
        session: &Session,
        target: Target,
        work: impl FnOnce(Stream) -> Result<R, Status>,
    ) -> Result<R, Status> {
        if self.told.load(Ordering::Acquire) != 0 {
            self.look(target)?;
        }
        self.submit_now(session, target, work)
    }

    #[inline]
    fn submit_now<R>(
        &self,
        session: &Session,
        target: Target,
        work: impl FnOnce(Stream) -> Result<R, Status>,
    ) -> Result<R, Status> {
        match target.order {
            Order::NonBlocking => work(target.stream),
            Order::Legacy => {
                if self.legacy.load(Ordering::Relaxed) == 0 {
                    keep()?;
                }
                if self.written.load(Ordering::SeqCst) != 0 {
                    self.join(session)?;
                }
                let result = work(target.stream)?;
                self.legacy.fetch_add(1, Ordering::SeqCst);
                Ok(result)
            }
            Order::Blocking => {
                let slot = self.slot(target)?;
                let legacy = self.legacy.load(Ordering::SeqCst);
                if slot.waited.load(Ordering::Relaxed) != legacy {
                    let fence = session.fence(Stream::DEFAULT);
                    session.wait_on(target.stream, fence).map_err(|error| Status::of(&error))?;
                    slot.waited.store(legacy, Ordering::Relaxed);
                }
                let result = work(target.stream)?;
                self.written.fetch_or(target.bit(), Ordering::SeqCst);
                Ok(result)
            }
        }
    }

    /// Has the legacy stream wait for what the blocking streams were given.
    #[cold]
    fn join(&self, session: &Session) -> Answer {
        let mut written = self.written.swap(0, Ordering::SeqCst);
        while written != 0 {
            let slot = self.slots.get(written.trailing_zeros() as usize);
            let stream = slot.and_then(|slot| slot.stream.get()).ok_or(Status::UNKNOWN)?;
            if let Err(error) = session.wait_on(Stream::DEFAULT, session.fence(*stream)) {
                // What was not waited for stays to be waited for.
                self.written.fetch_or(written, Ordering::SeqCst);
                return Err(Status::of(&error));
            }
            written &= written - 1;
        }
        Ok(())
    }

    /// A point after all that a stream was given; for the legacy stream, after what it waits for as well.
    pub(crate) fn fence(&self, session: &Session, target: Target) -> Result<Fence, Status> {
        self.look(target)?;
        self.fence_now(session, target)
    }

    fn fence_now(&self, session: &Session, target: Target) -> Result<Fence, Status> {
        match target.order {
            Order::Legacy => self.submit_now(session, target, |stream| Ok(session.fence(stream))),
            Order::Blocking | Order::NonBlocking => Ok(session.fence(target.stream)),
        }
    }

    /// Waits until a stream has done what it was given.
    pub(crate) fn synchronize(&self, session: &Session, target: Target) -> Answer {
        let fence = self.fence(session, target)?;
        session.wait(fence).map_err(|error| Status::of(&error))?;
        self.tell_failure(self.before(target))
    }

    /// Waits until every stream has done what it was given.
    pub(crate) fn synchronize_all(&self, session: &Session) -> Answer {
        self.refuse_to_host_functions(self.slots_where(|word| word & LIVE != 0))?;
        for slot in &self.slots {
            if slot.word.load(Ordering::Acquire) & LIVE != 0
                && let Some(stream) = slot.stream.get()
            {
                session.wait(session.fence(*stream)).map_err(|error| Status::of(&error))?;
                self.tell_failure(Slots(1 << stream.index()))?;
            }
        }
        Ok(())
    }

    /// Whether a stream has done what it was given.
    pub(crate) fn is_done(&self, session: &Session, target: Target) -> Result<bool, Status> {
        let fence = self.fence_now(session, target)?;
        let is_done = session.is_done(fence).map_err(|error| Status::of(&error))?;
        self.tell_failure(self.before(target))?;
        Ok(is_done)
    }

    /// Whether every stream has done what it was given.
    pub(crate) fn are_done(&self, session: &Session) -> bool {
        self.slots.iter().all(|slot| {
            let live = slot.word.load(Ordering::Acquire) & LIVE != 0;
            let stream = slot.stream.get().filter(|_| live);
            stream.is_none_or(|stream| {
                let target = Target { stream: *stream, order: Order::NonBlocking };
                session.is_done(session.fence(target.stream)).unwrap_or(false)
            })
        })
    }

    /// Priority and context of a stream.
    pub(crate) fn facts(&self, target: Target) -> Result<(i32, u64), Status> {
        let slot = self.slot(target)?;
        Ok((slot.priority.load(Ordering::Relaxed), slot.context.load(Ordering::Relaxed)))
    }

    /// What a stream was told.
    pub(crate) fn attributes(&self, target: Target) -> Result<&Mutex<Attributes>, Status> {
        Ok(&self.slot(target)?.attributes)
    }

    fn slots_where(&self, counts: impl Fn(u64) -> bool) -> Slots {
        let words = self.slots.iter().map(|slot| slot.word.load(Ordering::Acquire)).enumerate();
        Slots(words.filter(|(_, word)| counts(*word)).fold(0, |slots, (index, _)| slots | 1 << index))
    }

    /// The streams whose host functions `target`'s work comes after.
    fn before(&self, target: Target) -> Slots {
        match target.order {
            Order::NonBlocking => Slots(target.bit()),
            Order::Blocking => Slots(target.bit() | Target::LEGACY.bit()),
            Order::Legacy => self.slots_where(|word| word & NON_BLOCKING == 0),
        }
    }

    /// Says what there is to say before a stream is given something, or is waited for.
    ///
    /// # Errors
    /// Once, where something that it awaited will never come; always, where a host function asks that the stream waits
    /// for: it cannot wait for itself.
    fn look(&self, target: Target) -> Answer {
        if self.told.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let before = self.before(target);
        self.refuse_to_host_functions(before)?;
        self.tell_failure(before)
    }

    fn forget_failure(&self, slot: &Slot) {
        if slot.failed.swap(SUCCESS, Ordering::AcqRel) != SUCCESS {
            self.told.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Says, once, that something that a fence's stream awaited will never come.
    pub(crate) fn tell_failure_before(&self, fence: Fence) -> Answer {
        self.tell_failure(Slots(1 << fence.stream().index()))
    }

    fn tell_failure(&self, slots: Slots) -> Answer {
        if self.told.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        for (_, slot) in self.slots.iter().enumerate().filter(|(index, _)| slots.contains(*index)) {
            let failed = slot.failed.swap(SUCCESS, Ordering::AcqRel);
            if failed != SUCCESS {
                self.told.fetch_sub(1, Ordering::AcqRel);
                return Err(Status::known(failed).unwrap_or(Status::UNKNOWN));
            }
        }
        Ok(())
    }

    fn refuse_to_host_functions(&self, slots: Slots) -> Answer {
        let is_behind = || !self.given.have_passed(slots, self.given.latest());
        if host_function::is_in() && is_behind() { Err(Status::NOT_PERMITTED) } else { Ok(()) }
    }

    /// Waits until the host functions that any stream was given so far have returned: they may use memory that is about
    /// to go. A host function cannot wait for itself, and goes on.
    pub(crate) fn wait_for_all_host_functions(&self) {
        if self.told.load(Ordering::Acquire) != 0 && !host_function::is_in() {
            self.given.wait(Slots::ALL, self.given.latest());
        }
    }

    /// Notes a host function of a stream, and numbers it.
    pub(crate) fn begin_host_function(&self, target: Target) -> u64 {
        self.told.fetch_add(1, Ordering::AcqRel);
        self.given.begin(target.stream.index())
    }

    /// Notes that it has returned.
    pub(crate) fn end_host_function(&self, target: Target, number: u64) {
        self.given.end(target.stream.index(), number);
        self.told.fetch_sub(1, Ordering::AcqRel);
    }

    /// How many events of other processes streams wait for.
    pub(crate) fn awaits(&self) -> usize {
        self.awaited.load(Ordering::Acquire)
    }

    /// Notes that a stream waits for an event of another process.
    pub(crate) fn begin_await(&self) {
        self.awaited.fetch_add(1, Ordering::AcqRel);
    }

    /// What was awaited has come, or will never come.
    pub(crate) fn end_await(&self, target: Target, ended: Answer) {
        self.note_failure(target, ended);
        self.awaited.fetch_sub(1, Ordering::AcqRel);
    }

    /// Notes what a thread of the library's was told of a stream: whoever asks for it next is told.
    pub(crate) fn note_failure(&self, target: Target, ended: Answer) {
        if let (Err(status), Ok(slot)) = (ended, self.slot(target))
            && slot.failed.swap(status.code(), Ordering::AcqRel) == SUCCESS
        {
            // Whoever submits something looks more closely until somebody is told.
            self.told.fetch_add(1, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests;
