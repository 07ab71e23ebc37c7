//! Streams and the order of their work, the legacy null stream's above all.
//!
//! Work of the legacy stream starts after all earlier work of every blocking stream, and later work of blocking
//! streams starts after it. Each direction is kept with one word: `written`, the blocking streams with work that
//! the legacy stream has not waited for, and `legacy`, which counts the legacy stream's work; a stream remembers
//! the count it last waited for. A program that never makes a stream pays for a load and an increment.
//!
//! Work is submitted first and noted second: whoever sees the note sees the work. Who does not see it did not
//! order itself after the submission, so any order is right.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use bulkhead_schema::limits::STREAMS_MAX;
use parking_lot::Mutex;

use crate::abi::NullStream;
use crate::capture::Captures;
use crate::device::{Fence, Session, Stream};
use crate::driver::driver;
use crate::handle::{Kind, decode, encode, next_generation};
use crate::host_work;
use crate::status::{Answer, SUCCESS, Status};

const _: () = assert!(STREAMS_MAX <= 64, "`written` has one bit for each stream");

const LIVE: u64 = 1;
const NON_BLOCKING: u64 = 2;
const GENERATION_SHIFT: u32 = 8;
/// `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`.
const LEGACY_HANDLE: u64 = 1;
const PER_THREAD_HANDLE: u64 = 2;
const LEGACY_SLOT: u32 = 0;
/// The count of legacy work that a stream has waited for when it has not waited yet.
const NEVER: u64 = u64::MAX;

/// How a stream's work orders with the legacy stream's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// It is the legacy stream.
    Legacy,
    /// Both ways.
    Blocking,
    /// Not at all.
    NonBlocking,
}

/// A stream, looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) stream: Stream,
    pub(crate) order: Order,
}

impl Target {
    const LEGACY: Target = Target { stream: Stream::DEFAULT, order: Order::Legacy };

    fn bit(self) -> u64 {
        1 << self.stream.index()
    }
}

#[derive(Default)]
struct Slot {
    /// Generation, and the flags above.
    word: AtomicU64,
    /// The session's stream of this number, once there was one.
    stream: OnceLock<Stream>,
    /// How much of the legacy stream's work this stream has waited for.
    waited: AtomicU64,
    /// Host functions that have not returned.
    host_functions: AtomicU32,
    /// Of these, events of other processes, which later work waits for.
    awaited: AtomicU32,
    /// Why one of those will never come: a `CUresult`, until somebody is told.
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
    /// Host functions of all streams that have not returned, and failures that nobody was told of.
    host_functions: AtomicU32,
    /// Events of other processes that streams wait for.
    awaited: AtomicUsize,
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
            host_functions: AtomicU32::new(0),
            awaited: AtomicUsize::new(0),
            unordered: AtomicBool::new(false),
            captures: Captures::default(),
        }
    }

    fn slot(&self, target: Target) -> Result<&Slot, Status> {
        self.slots.get(target.stream.index() as usize).ok_or(Status::INVALID_HANDLE)
    }

    /// The stream that a call names.
    #[inline]
    pub(crate) fn target(&self, null: NullStream, handle: u64) -> Result<Target, Status> {
        match (handle, null) {
            (0, NullStream::Legacy) | (LEGACY_HANDLE, _) => Ok(Target::LEGACY),
            (0, NullStream::PerThread) | (PER_THREAD_HANDLE, _) => per_thread(),
            _ => self.named(handle),
        }
    }

    fn named(&self, handle: u64) -> Result<Target, Status> {
        let (generation, slot) = decode(Kind::Stream, handle)?;
        let place = self.slots.get(slot as usize).ok_or(Status::INVALID_HANDLE)?;
        let word = place.word.load(Ordering::Acquire);
        if word & LIVE == 0 || word >> GENERATION_SHIFT != u64::from(generation) {
            return Err(Status::INVALID_HANDLE);
        }
        let order = if word & NON_BLOCKING == 0 { Order::Blocking } else { Order::NonBlocking };
        Ok(Target { stream: *place.stream.get().ok_or(Status::INVALID_HANDLE)?, order })
    }

    /// Makes a stream of the session's.
    pub(crate) fn create(
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
        let generation = place.word.load(Ordering::Relaxed) >> GENERATION_SHIFT;
        let generation = next_generation(u32::try_from(generation).unwrap_or(0));
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
        let target = self.named(handle)?;
        self.retire(session, target)
    }

    fn retire(&self, session: &Session, target: Target) -> Answer {
        let slot = self.slot(target)?;
        let word = slot.word.load(Ordering::Relaxed);
        let dead = word & !(LIVE | NON_BLOCKING);
        if word & LIVE == 0
            || slot.word.compare_exchange(word, dead, Ordering::AcqRel, Ordering::Relaxed).is_err()
        {
            return Err(Status::INVALID_HANDLE);
        }
        self.captures.forget(target.stream.index());
        self.wait_until_returned(target)?;
        if slot.failed.swap(SUCCESS, Ordering::AcqRel) != SUCCESS {
            self.host_functions.fetch_sub(1, Ordering::AcqRel);
        }
        if self.written.fetch_and(!target.bit(), Ordering::SeqCst) & target.bit() != 0 {
            let fence = session.fence(target.stream);
            session.wait_on(Stream::DEFAULT, fence).map_err(|error| Status::of(&error))?;
            self.legacy.fetch_add(1, Ordering::SeqCst);
        }
        session.destroy_stream(target.stream).map_err(|error| Status::of(&error))
    }

    /// Destroys the streams of a context.
    pub(crate) fn end(&self, session: &Session, context: u64) {
        for slot in self.slots.iter().skip(1) {
            let live = slot.word.load(Ordering::Acquire) & LIVE != 0;
            if live
                && slot.context.load(Ordering::Relaxed) == context
                && let Some(stream) = slot.stream.get()
            {
                // Refused only where another thread destroyed it first.
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
        if self.host_functions.load(Ordering::Acquire) != 0 {
            self.wait_for_host_functions(target)?;
        }
        self.submit_now(session, target, work)
    }

    /// The same for what need not come after the stream's host functions.
    #[inline]
    pub(crate) fn submit_now<R>(
        &self,
        session: &Session,
        target: Target,
        work: impl FnOnce(Stream) -> Result<R, Status>,
    ) -> Result<R, Status> {
        match target.order {
            Order::NonBlocking => work(target.stream),
            Order::Legacy => {
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
        if target.order == Order::Legacy {
            return self.submit(session, target, |stream| Ok(session.fence(stream)));
        }
        self.wait_for_host_functions(target)?;
        Ok(session.fence(target.stream))
    }

    /// Waits until a stream has done what it was given.
    pub(crate) fn synchronize(&self, session: &Session, target: Target) -> Answer {
        let fence = self.fence(session, target)?;
        session.wait(fence).map_err(|error| Status::of(&error))
    }

    /// Waits until every stream has done what it was given.
    pub(crate) fn synchronize_all(&self, session: &Session) -> Answer {
        for slot in &self.slots {
            if slot.word.load(Ordering::Acquire) & LIVE != 0
                && let Some(stream) = slot.stream.get()
            {
                let target = Target { stream: *stream, order: Order::NonBlocking };
                self.wait_for_host_functions(target)?;
                session.wait(session.fence(target.stream)).map_err(|error| Status::of(&error))?;
            }
        }
        Ok(())
    }

    /// Whether a stream has done what it was given.
    pub(crate) fn is_done(&self, session: &Session, target: Target) -> Result<bool, Status> {
        if self.is_waiting(target) {
            return Ok(false);
        }
        let fence = self.fence(session, target)?;
        session.is_done(fence).map_err(|error| Status::of(&error))
    }

    /// Whether every stream has done what it was given.
    pub(crate) fn are_done(&self, session: &Session) -> bool {
        self.slots.iter().all(|slot| {
            let live = slot.word.load(Ordering::Acquire) & LIVE != 0;
            let stream = slot.stream.get().filter(|_| live);
            stream.is_none_or(|stream| {
                let target = Target { stream: *stream, order: Order::NonBlocking };
                !self.is_waiting(target) && session.is_done(session.fence(target.stream)).unwrap_or(false)
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

    /// The streams whose host functions `target`'s work comes after.
    fn before(&self, target: Target) -> impl Iterator<Item = &Slot> {
        self.slots.iter().enumerate().filter_map(move |(index, slot)| {
            let blocking = slot.word.load(Ordering::Acquire) & NON_BLOCKING == 0;
            let counts = match target.order {
                Order::NonBlocking => index == target.stream.index() as usize,
                Order::Blocking => index == target.stream.index() as usize || index == LEGACY_SLOT as usize,
                Order::Legacy => blocking,
            };
            counts.then_some(slot)
        })
    }

    fn is_waiting(&self, target: Target) -> bool {
        self.host_functions.load(Ordering::Acquire) != 0
            && self.before(target).any(|slot| slot.host_functions.load(Ordering::Acquire) != 0)
    }

    /// Waits until the host functions that a stream's next work comes after have returned, and what it awaits has come.
    ///
    /// # Errors
    /// Once, where something that was awaited will never come.
    pub(crate) fn wait_for_host_functions(&self, target: Target) -> Answer {
        if self.host_functions.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        self.wait_until_returned(target)?;
        for slot in self.before(target) {
            let failed = slot.failed.swap(SUCCESS, Ordering::AcqRel);
            if failed != SUCCESS {
                self.host_functions.fetch_sub(1, Ordering::AcqRel);
                return Err(Status::known(failed).unwrap_or(Status::UNKNOWN));
            }
        }
        Ok(())
    }

    fn wait_until_returned(&self, target: Target) -> Answer {
        if self.is_waiting(target) {
            return host_work::wait_until(|| !self.is_waiting(target));
        }
        Ok(())
    }

    /// The same for a host function, which only what is awaited has to be waited for.
    pub(crate) fn wait_for_awaited(&self, target: Target) -> Answer {
        let awaits = || self.before(target).any(|slot| slot.awaited.load(Ordering::Acquire) != 0);
        if self.awaits() != 0 && awaits() {
            return host_work::wait_until(|| !awaits());
        }
        Ok(())
    }

    /// How many events of other processes streams wait for.
    pub(crate) fn awaits(&self) -> usize {
        self.awaited.load(Ordering::Acquire)
    }

    /// From here on, work that is submitted to the stream waits.
    pub(crate) fn begin_await(&self, target: Target) -> Answer {
        self.slot(target)?.awaited.fetch_add(1, Ordering::AcqRel);
        self.awaited.fetch_add(1, Ordering::AcqRel);
        self.note_host_function(target, HostFunctions::Begin)
    }

    /// What was awaited has come, or will never come.
    pub(crate) fn end_await(&self, target: Target, ended: Answer) -> Answer {
        let slot = self.slot(target)?;
        if let Err(status) = ended
            && slot.failed.swap(status.code(), Ordering::AcqRel) == SUCCESS
        {
            // Whoever submits something looks more closely until somebody is told.
            self.host_functions.fetch_add(1, Ordering::AcqRel);
        }
        slot.awaited.fetch_sub(1, Ordering::AcqRel);
        self.awaited.fetch_sub(1, Ordering::AcqRel);
        self.note_host_function(target, HostFunctions::End)
    }

    /// Notes a host function of a stream, or that it has returned.
    pub(crate) fn note_host_function(&self, target: Target, change: HostFunctions) -> Answer {
        let slot = self.slot(target)?;
        for count in [&self.host_functions, &slot.host_functions] {
            match change {
                HostFunctions::Begin => count.fetch_add(1, Ordering::AcqRel),
                HostFunctions::End => count.fetch_sub(1, Ordering::AcqRel),
            };
        }
        Ok(())
    }
}

/// What happened to a host function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostFunctions {
    /// It was given to a stream.
    Begin,
    /// It returned.
    End,
}

/// A thread's own null stream, destroyed with the thread.
struct PerThread(u64);

impl Drop for PerThread {
    fn drop(&mut self) {
        if let Ok(driver) = driver() {
            // The thread ends; nobody is left to tell.
            driver.streams.destroy(&driver.session, self.0).ok();
        }
    }
}

thread_local! {
    static PER_THREAD: RefCell<Option<PerThread>> = const { RefCell::new(None) };
}

fn per_thread() -> Result<Target, Status> {
    let driver = driver()?;
    PER_THREAD.with_borrow_mut(|own| {
        if let Some(PerThread(handle)) = own
            && let Ok(target) = driver.streams.named(*handle)
        {
            return Ok(target);
        }
        let handle =
            driver.streams.create(&driver.session, Order::Blocking, 0, crate::context::current()?)?;
        *own = Some(PerThread(handle));
        driver.streams.named(handle)
    })
}

#[cfg(test)]
mod tests;
