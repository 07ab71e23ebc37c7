//! The pump: takes records out of a session's ring and submits them.

use std::{
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use bulkhead_gpu::Error as DeviceError;
use bulkhead_ring::{Consumer, Ended, ProtocolError};
use bulkhead_schema::{Error, ErrorCode, limits};

use crate::{
    bindings::Object,
    device,
    link::Link,
    records,
    server::lose_device,
    session::{Session, State, Swapped, report},
    slices::Rest,
    streams::Held,
};

/// Records taken before the session's state is let go for a moment.
const BATCH: u32 = 32;
/// How long an idle pump spins before it sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// Turns of the spin loop between two looks at the clock.
const SPIN_TURNS: u32 = 200;
/// Longest sleep with nothing to wait for.
const SLEEP: Duration = Duration::from_millis(500);
/// Longest sleep while somebody waits for the device.
const NAP: Duration = Duration::from_micros(50);

/// Somebody who waits for work to pass.
pub(crate) struct Waiter {
    /// A single stream, or all of them.
    stream: Option<u32>,
    /// The position; `None` until the pump has seen how far the ring is filled.
    position: Option<u64>,
    /// The request to answer then.
    reply: Option<u64>,
    /// What is dropped before.
    objects: Vec<Object>,
}

impl Waiter {
    /// Answers request `id` once all that is in the ring by now has passed.
    pub(crate) fn reply(id: u64) -> Self {
        Self { stream: None, position: None, reply: Some(id), objects: Vec::new() }
    }

    /// Drops objects at that time.
    pub(crate) fn release(objects: Vec<Object>) -> Self {
        Self { stream: None, position: None, reply: None, objects }
    }

    /// Does both.
    pub(crate) fn reply_and_release(id: u64, objects: Vec<Object>) -> Self {
        Self { objects, ..Self::reply(id) }
    }

    /// Answers request `id` once `stream` has passed `position`.
    pub(crate) fn fence(id: u64, stream: u32, position: u64) -> Self {
        Self { stream: Some(stream), position: Some(position), ..Self::reply(id) }
    }

    /// Its time has come, or the session, all of whose work has passed, ends.
    pub(crate) fn done(self, link: &Link) {
        drop(self.objects);
        if let Some(id) = self.reply {
            report(link.reply(id, None, |mut reply| reply.set_ok(())));
        }
    }
}

/// What ends a pump.
enum End {
    Protocol(ProtocolError),
    Order(&'static str),
    Broken(Error),
    Device(DeviceError),
}

impl From<DeviceError> for End {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

/// What a turn of the pump achieved.
enum Turn {
    /// Records were taken.
    Worked,
    /// There is no record.
    Idle,
    /// There are records, but the session has as much in flight as it may.
    Full,
    /// The session is held: its pages change, or are away.
    Held,
}

/// Runs until the session stops, breaks the protocol or loses the device.
pub(crate) fn run(session: &Session, mut consumer: Consumer) {
    let bound = session.state.lock().gpu.bind_thread();
    let ended = bound.map_err(End::Device).and_then(|()| pump(session, &mut consumer));
    let Err(end) = ended else { return };
    let error = match end {
        End::Protocol(error) => Error::new(ErrorCode::Protocol, format!("the ring: {error}")),
        End::Order(what) => Error::new(ErrorCode::Protocol, format!("the ring: {what}")),
        End::Device(error @ DeviceError::Lost { .. }) => lose_device(&session.link, &error),
        End::Broken(error) => error,
        End::Device(error) => device::error(&error),
    };
    // The kernel says so too, as often as the session's principal may cause a line.
    tracing::debug!(session = session.id, %error, "session ended");
    let mut state = session.state.lock();
    state.streams.forget_held();
    state.streams.page().end(Ended { code: error.code as u16, device: error.device });
    drop(state);
    report(session.link.reply(0, None, |reply| {
        let mut ended = reply.init_session_ended();
        ended.set_session(session.id);
        error.write(ended.init_error());
    }));
    linger(session);
}

/// Serves those who wait for work to pass, in a session whose records are not taken any more.
fn linger(session: &Session) {
    while !session.stopping.load(Ordering::Acquire) {
        let mut state = session.state.lock();
        // What is in the ring will never be submitted: waiters wait for all that was.
        if wake_waiters(&mut state, (u64::MAX, u64::MAX), session).is_err() {
            return;
        }
        drop(state);
        thread::sleep(NAP * 20);
    }
}

fn pump(session: &Session, consumer: &mut Consumer) -> Result<(), End> {
    let mut parameters = Vec::new();
    let mut idle_since: Option<Instant> = None;
    while !session.stopping.load(Ordering::Acquire) {
        // Whoever wakes the pump after this is not slept through.
        let bell = consumer.listen();
        let mut state = session.state.lock();
        let turn = turn(&mut state, consumer, &mut parameters)?;
        wake_waiters(&mut state, (consumer.tail(), consumer.position()), session)?;
        let goes_on = !matches!(turn, Turn::Worked)
            && state.streams.is_about_to_go_on(|stream| consumer.opened(stream));
        let waiting = !state.waiters.is_empty() || goes_on || state.streams.call_gates();
        match turn {
            Turn::Worked => {
                idle_since = None;
                session.note_submission();
                parking_lot::MutexGuard::unlock_fair(state);
            }
            Turn::Full => {
                let waits_for_host = state.streams.hold_enough() && !goes_on;
                drop(state);
                // Whoever opens a barrier rings the bell.
                if waits_for_host {
                    consumer.sleep_since(bell, if waiting { NAP } else { SLEEP });
                } else {
                    thread::sleep(NAP / 10);
                }
            }
            Turn::Held => {
                idle_since = None;
                let nap = if waiting { NAP } else { SLEEP };
                // What is held back was taken out of the ring, and waits to go on all the same.
                let is_full = state.streams.hold_enough();
                if goes_on || !is_full && consumer.is_ready() {
                    want(&mut state, session);
                    session.resumed.wait_for(&mut state, nap);
                } else {
                    drop(state);
                    if is_full {
                        consumer.sleep_since(bell, nap);
                    } else {
                        consumer.park_since(bell, nap);
                    }
                }
            }
            Turn::Idle => {
                drop(state);
                let since = *idle_since.get_or_insert_with(Instant::now);
                if consumer.spin(SPIN_TURNS) {
                    continue;
                }
                if since.elapsed() > SPIN {
                    consumer.park_since(bell, if waiting { NAP } else { SLEEP });
                    if !waiting {
                        idle_since = None;
                    }
                }
            }
        }
    }
    Ok(())
}

/// Tells the kernel, once, that a session that is swapped out has something to do.
fn want(state: &mut State, session: &Session) {
    if state.swapped == Some(Swapped::Quiet) {
        state.swapped = Some(Swapped::Wanted);
        report(session.link.reply(0, None, |mut reply| reply.set_wanted(session.id)));
    }
}

/// Submits what may go: first what was held back, then new records.
fn turn(state: &mut State, consumer: &mut Consumer, parameters: &mut Vec<u64>) -> Result<Turn, End> {
    if let Some(error) = &state.broken {
        return Err(End::Broken(error.clone()));
    }
    if state.pause.holds() {
        return Ok(Turn::Held);
    }
    if state.gate.load(Ordering::Acquire) {
        return Ok(Turn::Full);
    }
    let mut worked = false;
    // What was held back counts against the cap like what is new. What is left of a grid may come again as soon as it went.
    for _ in 0..BATCH {
        if !has_room(state)? {
            break;
        }
        let Some(held) = state.streams.release(|stream| consumer.opened(stream))? else { break };
        submit(state, consumer, held.position, &held.record, &held.parameters, held.rest)?;
        worked = true;
    }
    for _ in 0..BATCH {
        if state.streams.hold_enough() || !has_room(state)? {
            state.streams.mark_all()?;
            return Ok(if worked { Turn::Worked } else { Turn::Full });
        }
        let Some(record) = consumer.take().map_err(End::Protocol)? else {
            state.streams.mark_all()?;
            return Ok(if worked { Turn::Worked } else { Turn::Idle });
        };
        // The position that the client got when it pushed the record.
        let position = consumer.position() + 1;
        parameters.clear();
        if let bulkhead_ring::Record::Launch { launch, .. } = &record {
            consumer.parameters(launch, parameters);
        }
        if let bulkhead_ring::Record::CreateStream { stream, priority } = record {
            consumer.note_priority(stream, priority);
        }
        consumer.release();
        if let bulkhead_ring::Record::WaitOn { position: wanted, .. } = record
            && wanted >= position
        {
            return Err(End::Order("a stream waits for a record that comes later"));
        }
        // A question about events has no place in the order, nor has the end of one, with which its client waits.
        let is_aside = matches!(
            record,
            bulkhead_ring::Record::Elapsed { .. } | bulkhead_ring::Record::DestroyEvent { .. }
        );
        if !is_aside && state.streams.is_held(record.stream()) {
            let held = Held { position, record, parameters: parameters.clone(), rest: None };
            state.streams.hold(record.stream(), held);
        } else {
            submit(state, consumer, position, &record, parameters, None)?;
        }
        worked = true;
    }
    Ok(Turn::Worked)
}

/// Submits a record, unless it is a barrier that the host has opened.
fn submit(
    state: &mut State,
    consumer: &Consumer,
    position: u64,
    record: &bulkhead_ring::Record,
    parameters: &[u64],
    rest: Option<Box<Rest>>,
) -> Result<(), DeviceError> {
    match *record {
        bulkhead_ring::Record::HostBarrier { stream, number } if consumer.opened(stream) >= number => {
            state.streams.skipped(stream, position);
            Ok(())
        }
        _ => records::submit(state, position, record, parameters, rest),
    }
}

/// Whether the session may have more in flight; looks at the marks only where it must.
fn has_room(state: &mut State) -> Result<bool, DeviceError> {
    if state.streams.in_flight_at_most() < limits::IN_FLIGHT_MAX {
        return Ok(true);
    }
    state.streams.mark_all()?;
    Ok(state.streams.in_flight() < limits::IN_FLIGHT_MAX)
}

fn wake_waiters(state: &mut State, (tail, taken): (u64, u64), session: &Session) -> Result<(), DeviceError> {
    if state.waiters.is_empty() {
        return Ok(());
    }
    state.streams.mark_all()?;
    let mut waiting = std::mem::take(&mut state.waiters);
    for waiter in &mut waiting {
        waiter.position.get_or_insert(tail);
    }
    let passed = |waiter: &Waiter| {
        let position = waiter.position.unwrap_or(u64::MAX);
        let submitted = taken >= position;
        submitted
            && match waiter.stream {
                Some(stream) => state.streams.passed(stream, position),
                None => state.streams.all_passed(position),
            }
    };
    let (done, waiting): (Vec<_>, Vec<_>) = waiting.into_iter().partition(passed);
    state.waiters = waiting;
    for waiter in done {
        waiter.done(&session.link);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{os::fd::AsFd, sync::Arc};

    use bulkhead_gpu::{
        Access, Compiled, DeviceAddress, DeviceInfo, EntryId, EventId, FillPattern, Gpu, HostAddress,
        HostRange, ImageId, Launch, LoadedImage, MemoryId, StreamId,
    };
    use bulkhead_guard::FastVersion;
    use bulkhead_mm::Slot;
    use bulkhead_ring::{
        Bind, Blocks, CompletionWriter, LaunchShape, ParameterPlace, Pattern, Producer, Record,
        memory::{Completion, Ring},
    };
    use bulkhead_schema::Handle;
    use parking_lot::Mutex;

    use super::*;
    use crate::{
        bindings::{Entry, Object, Template, Use},
        fast::Fast,
        streams::Streams,
    };

    type Answer<T = ()> = Result<T, DeviceError>;

    /// A device that takes fills and launches and never does them. It notes what was launched.
    struct Idle(DeviceInfo, Arc<Mutex<Vec<EntryId>>>);

    fn no<T>() -> Answer<T> {
        Err(DeviceError::Refused("not asked for here".into()))
    }

    impl Gpu for Idle {
        fn info(&self) -> &DeviceInfo {
            &self.0
        }
        fn bind_thread(&self) -> Answer {
            Ok(())
        }
        fn reserve(&self, _: DeviceAddress, _: u64) -> Answer {
            no()
        }
        fn unreserve(&self, _: DeviceAddress, _: u64) -> Answer {
            no()
        }
        fn create_memory(&self, _: u64) -> Answer<MemoryId> {
            no()
        }
        fn destroy_memory(&self, _: MemoryId) -> Answer {
            no()
        }
        fn export_memory(&self, _: MemoryId) -> Answer<std::os::fd::OwnedFd> {
            no()
        }
        fn import_memory(&self, _: std::os::fd::OwnedFd, _: u64) -> Answer<MemoryId> {
            no()
        }
        fn memory_info(&self) -> Answer<(u64, u64)> {
            no()
        }
        fn map(&self, _: DeviceAddress, _: MemoryId, _: u64, _: u64, _: Access) -> Answer {
            no()
        }
        fn unmap(&self, _: DeviceAddress, _: u64) -> Answer {
            no()
        }
        fn register_host(&self, _: HostRange) -> Answer {
            no()
        }
        fn unregister_host(&self, _: HostRange) -> Answer {
            no()
        }
        fn map_host(&self, _: DeviceAddress, _: std::os::fd::BorrowedFd<'_>, _: u64) -> Answer<HostRange> {
            no()
        }
        fn unmap_host(&self, _: DeviceAddress, _: u64) -> Answer {
            no()
        }
        fn create_stream(&self, _: i32) -> Answer<StreamId> {
            Ok(StreamId(1))
        }
        fn destroy_stream(&self, _: StreamId) -> Answer {
            Ok(())
        }
        fn synchronize(&self, _: StreamId) -> Answer {
            no()
        }
        fn create_event(&self) -> Answer<EventId> {
            no()
        }
        fn destroy_event(&self, _: EventId) -> Answer {
            no()
        }
        fn record(&self, _: EventId, _: StreamId) -> Answer {
            no()
        }
        fn elapsed_ns(&self, _: EventId, _: EventId) -> Answer<Option<f64>> {
            no()
        }
        fn compile(&self, _: &str) -> Answer<Compiled> {
            no()
        }
        fn install(&self, _: &Compiled) -> Answer<LoadedImage> {
            no()
        }
        fn unload(&self, _: ImageId) -> Answer {
            no()
        }
        fn allow_dynamic_shared(&self, _: EntryId, _: u32) -> Answer {
            no()
        }
        fn launch(&self, _: StreamId, entry: EntryId, _: &Launch<'_>) -> Answer {
            self.1.lock().push(entry);
            Ok(())
        }
        fn launch_together(&self, _: StreamId, _: EntryId, _: &Launch<'_>) -> Answer {
            no()
        }
        fn copy_to_device(&self, _: StreamId, _: DeviceAddress, _: HostRange) -> Answer {
            no()
        }
        fn copy_to_host(&self, _: StreamId, _: HostRange, _: DeviceAddress) -> Answer {
            no()
        }
        fn copy_on_device(&self, _: StreamId, _: DeviceAddress, _: DeviceAddress, _: u64) -> Answer {
            no()
        }
        fn fill(&self, _: StreamId, _: DeviceAddress, _: FillPattern, _: u64) -> Answer {
            Ok(())
        }
        fn write_value(&self, _: StreamId, _: HostAddress, _: u64) -> Answer {
            Ok(())
        }
        fn check(&self) -> Answer {
            Ok(())
        }
    }

    const BUFFER: Handle = Handle { slot: 1, generation: 1 };

    fn state() -> State {
        state_and_launches().0
    }

    fn state_and_launches() -> (State, Arc<Mutex<Vec<EntryId>>>) {
        let info = DeviceInfo {
            backend: "idle",
            name: String::new(),
            uuid: [0; 16],
            memory_bytes: 0,
            granule_bytes: 0,
            driver_version: 0,
            attributes: Vec::new(),
            architecture: 90,
        };
        let launched = Arc::default();
        let gpu: Arc<dyn Gpu> = Arc::new(Idle(info, Arc::clone(&launched)));
        let (page, _) = Completion::create().unwrap();
        let at = page.range().0;
        let mut streams = Streams::new(Arc::clone(&gpu), CompletionWriter::new(page), at);
        for index in 0..3 {
            streams.create(index, 0, gpu.info()).unwrap();
        }
        let slot = Slot::new(0).unwrap();
        let mut state = State::new(gpu, streams, Arc::default());
        let at = slot.read_write().start().0;
        let buffer = Object::Buffer { address: at, bytes: 4096, may: Use::ReadWrite };
        state.bindings.bind(BUFFER, buffer).unwrap();
        (state, launched)
    }

    const CONFINED: EntryId = EntryId(1);
    const FAST: EntryId = EntryId(2);
    const ENTRY: Handle = Handle { slot: 2, generation: 1 };
    /// What each thread of the fast version does, and the blocks of a warp that make a 32nd of what may be in flight.
    const WORK: u32 = 256;
    const BLOCKS: u32 = 1 << 19;

    /// Binds an entry whose fast version never looks at the flag.
    fn bind_entry(state: &mut State) -> crate::reaper::Remains {
        let (reaper, remains) = crate::reaper::Reaper::new();
        let version = FastVersion {
            symbol: "fast".to_owned(),
            pointers: Vec::new(),
            shared: Vec::new(),
            bounds: Vec::new(),
            work: WORK,
            rows: false,
        };
        let template = Template {
            id: CONFINED,
            fast: Fast::new(FAST, &version, &[]),
            name: "entry".into(),
            block: vec![0; 12],
            visible_bytes: 0,
            dynamic_shared_min: 0,
            dynamic_shared_max: Arc::default(),
            hidden: Some([0, 4, 8]),
            sliceable: false,
            of_slice: None,
            called: Box::default(),
            base: 0,
        };
        let image = Arc::new(crate::reaper::Image::new(ImageId(1), &reaper));
        state.bindings.bind(ENTRY, Object::Entry(Box::new(Entry { template, image }))).unwrap();
        state.blocks_max = u64::MAX;
        remains
    }

    fn launch(stream: u32) -> Record {
        let shape = LaunchShape { grid: [BLOCKS, 1, 1], block: [32, 1, 1], shared_bytes: 0 };
        let launch = bulkhead_ring::Launch {
            entry: Bind { slot: ENTRY.slot, generation: ENTRY.generation },
            shape,
            blocks: Blocks::Apart,
            parameter_bytes: 0,
            parameters: ParameterPlace::Inline,
        };
        Record::Launch { stream, launch }
    }

    /// A queue of short kernels, as long as programs make them, runs the fast version throughout.
    #[test]
    fn launches_that_never_look_at_the_flag_wait_for_room_behind_their_like() {
        let descriptor = bulkhead_ring::memory::create().unwrap();
        let mut producer = Producer::new(Ring::map(descriptor.as_fd()).unwrap());
        let mut consumer = Consumer::new(Ring::map(descriptor.as_fd()).unwrap());
        let (mut state, launched) = state_and_launches();
        let _remains = bind_entry(&mut state);
        let positions: Vec<u64> = (0..100).map(|_| producer.push(&launch(0)).unwrap()).collect();
        turn_until_nothing_moves(&mut state, &mut consumer);
        assert_eq!(*launched.lock(), [FAST; 32], "as much as may be in flight");
        assert_eq!(state.streams.held(), 68);
        // A stream that has nothing else to do does not wait: the version that looks goes at once.
        producer.push(&launch(1)).unwrap();
        turn_until_nothing_moves(&mut state, &mut consumer);
        assert_eq!(launched.lock()[32..], [CONFINED]);
        // Room comes back in parts: the device has a mark for each two of these.
        state.streams.page().set_mark(0, positions[3]);
        turn_until_nothing_moves(&mut state, &mut consumer);
        assert_eq!(launched.lock()[33..], [FAST; 4]);
        for position in positions {
            state.streams.page().set_mark(0, position);
            turn_until_nothing_moves(&mut state, &mut consumer);
        }
        let launched = launched.lock();
        assert_eq!((launched.len(), state.streams.held()), (101, 0));
        assert_eq!(launched.iter().filter(|entry| **entry == CONFINED).count(), 1);
    }

    /// Others take all the room for ever: a stream that has no more of its own in flight goes on without it.
    #[test]
    fn a_launch_that_waits_for_room_does_not_starve() {
        let descriptor = bulkhead_ring::memory::create().unwrap();
        let mut producer = Producer::new(Ring::map(descriptor.as_fd()).unwrap());
        let mut consumer = Consumer::new(Ring::map(descriptor.as_fd()).unwrap());
        let (mut state, launched) = state_and_launches();
        let _remains = bind_entry(&mut state);
        let own: Vec<u64> = (0..4).map(|_| producer.push(&launch(0)).unwrap()).collect();
        for _ in 0..28 {
            producer.push(&launch(1)).unwrap();
        }
        producer.push(&launch(0)).unwrap();
        turn_until_nothing_moves(&mut state, &mut consumer);
        assert_eq!((launched.lock().len(), state.streams.held()), (32, 1));
        // What it had has passed, and what passed with it others have taken at once.
        producer.push(&launch(2)).unwrap();
        producer.push(&launch(2)).unwrap();
        state.streams.page().set_mark(0, own[3]);
        turn_until_nothing_moves(&mut state, &mut consumer);
        assert_eq!((launched.lock().len(), state.streams.held()), (35, 0));
    }

    fn fill(stream: u32) -> Record {
        let to = Bind { slot: BUFFER.slot, generation: BUFFER.generation };
        Record::Fill { stream, to, offset: 0, pattern: Pattern::Bits8(1), count: 1 }
    }

    fn turn_until_nothing_moves(state: &mut State, consumer: &mut Consumer) {
        let mut parameters = Vec::new();
        while matches!(turn(state, consumer, &mut parameters), Ok(Turn::Worked)) {}
    }

    fn barrier(stream: u32, number: u64) -> Record {
        Record::HostBarrier { stream, number }
    }

    #[test]
    fn a_closed_barrier_holds_its_stream_and_what_waits_for_it() {
        let descriptor = bulkhead_ring::memory::create().unwrap();
        let mut producer = Producer::new(Ring::map(descriptor.as_fd()).unwrap());
        let mut consumer = Consumer::new(Ring::map(descriptor.as_fd()).unwrap());
        let opener = producer.opener();
        let (mut state, launched) = state_and_launches();
        let _remains = bind_entry(&mut state);
        for record in [barrier(0, 1), launch(0), barrier(0, 2)] {
            producer.push(&record).unwrap();
        }
        let last = producer.push(&launch(0)).unwrap();
        producer.push(&Record::WaitOn { stream: 1, on: 0, position: last }).unwrap();
        producer.push(&launch(1)).unwrap();
        producer.push(&launch(2)).unwrap();
        let held = |state: &State, consumer: &Consumer| {
            (state.streams.held(), state.streams.is_about_to_go_on(|stream| consumer.opened(stream)))
        };
        turn_until_nothing_moves(&mut state, &mut consumer);
        assert_eq!(launched.lock().len(), 1, "the third stream's");
        assert_eq!(
            held(&state, &consumer),
            (6, false),
            "the second waits for the first, and so for the host"
        );
        // A question about events is answered all the same.
        let asked = producer.push(&Record::Elapsed { stream: 0, start: 1, end: 2, reply: 3 }).unwrap();
        turn_until_nothing_moves(&mut state, &mut consumer);
        assert_eq!((held(&state, &consumer), consumer.position()), ((6, false), asked));
        // Another stream's barriers are its own affair.
        opener.open(1, 9);
        turn_until_nothing_moves(&mut state, &mut consumer);
        assert_eq!(launched.lock().len(), 1);
        opener.open(0, 1);
        turn_until_nothing_moves(&mut state, &mut consumer);
        assert_eq!((launched.lock().len(), held(&state, &consumer)), (2, (4, false)));
        assert!(!state.streams.passed(0, last));
        opener.open(0, 2);
        turn_until_nothing_moves(&mut state, &mut consumer);
        assert_eq!((launched.lock().len(), held(&state, &consumer)), (3, (2, true)));
        state.streams.page().set_mark(0, last);
        turn_until_nothing_moves(&mut state, &mut consumer);
        assert_eq!((launched.lock().len(), held(&state, &consumer)), (4, (0, false)));
        // One that was opened before it came holds nothing.
        producer.push(&barrier(0, 2)).unwrap();
        producer.push(&barrier(3, 0)).unwrap();
        turn_until_nothing_moves(&mut state, &mut consumer);
        assert_eq!(state.streams.held(), 0);
        // Whoever only waits for the host has the pump sleep.
        producer.push(&barrier(0, u64::MAX)).unwrap();
        turn_until_nothing_moves(&mut state, &mut consumer);
        assert_eq!(held(&state, &consumer), (1, false));
    }

    #[test]
    fn so_many_records_are_held_behind_a_barrier_and_so_many_parameters_of_theirs() {
        for (words, most) in [(0, limits::HELD_MAX), (512, limits::HELD_PARAMETER_BYTES_MAX / 4096 + 1)] {
            let descriptor = bulkhead_ring::memory::create().unwrap();
            let mut producer = Producer::new(Ring::map(descriptor.as_fd()).unwrap());
            let mut consumer = Consumer::new(Ring::map(descriptor.as_fd()).unwrap());
            let (mut state, launched) = state_and_launches();
            let _remains = bind_entry(&mut state);
            producer.push(&barrier(0, 1)).unwrap();
            let mut behind = launch(0);
            if let (Record::Launch { launch, .. }, true) = (&mut behind, words > 0) {
                (launch.parameter_bytes, launch.parameters) = (words * 8, ParameterPlace::Arena(0));
            }
            for _ in 0..most * 2 {
                if producer.push(&behind).is_err() {
                    turn_until_nothing_moves(&mut state, &mut consumer);
                    consumer.publish();
                }
            }
            turn_until_nothing_moves(&mut state, &mut consumer);
            assert!((most..=most + 1).contains(&state.streams.held()), "{} of {most}", state.streams.held());
            assert!(launched.lock().is_empty());
            state.streams.forget_held();
            assert!(!state.streams.hold_enough());
        }
    }

    #[test]
    fn a_stream_whose_records_went_on_keeps_no_room_for_them() {
        let descriptor = bulkhead_ring::memory::create().unwrap();
        let mut producer = Producer::new(Ring::map(descriptor.as_fd()).unwrap());
        let mut consumer = Consumer::new(Ring::map(descriptor.as_fd()).unwrap());
        let opener = producer.opener();
        let mut state = state();
        for stream in 0..3 {
            producer.push(&barrier(stream, 1)).unwrap();
            for last in 0..=5000 {
                // One stays behind.
                while producer.push(&barrier(stream, if last < 5000 { 1 } else { 2 })).is_err() {
                    turn_until_nothing_moves(&mut state, &mut consumer);
                    consumer.publish();
                }
            }
            turn_until_nothing_moves(&mut state, &mut consumer);
            assert!(state.streams.held() > 5000);
            opener.open(stream, 1);
            turn_until_nothing_moves(&mut state, &mut consumer);
            assert_eq!(state.streams.held(), stream as usize + 1);
            assert!(state.streams.held_room() <= 3 * 64, "{}", state.streams.held_room());
        }
    }

    #[test]
    fn records_that_were_held_back_do_not_exceed_what_may_be_in_flight() {
        let descriptor = bulkhead_ring::memory::create().unwrap();
        let mut producer = Producer::new(Ring::map(descriptor.as_fd()).unwrap());
        let mut consumer = Consumer::new(Ring::map(descriptor.as_fd()).unwrap());
        let mut state = state();
        let first = producer.push(&fill(0)).unwrap();
        producer.push(&Record::WaitOn { stream: 1, on: 0, position: first }).unwrap();
        for _ in 0..500 {
            producer.push(&fill(1)).unwrap();
        }
        for _ in 0..500 {
            producer.push(&fill(2)).unwrap();
        }
        turn_until_nothing_moves(&mut state, &mut consumer);
        assert_eq!((state.streams.in_flight(), state.streams.held()), (501, 501));
        state.streams.page().set_mark(0, first);
        turn_until_nothing_moves(&mut state, &mut consumer);
        assert_eq!(state.streams.in_flight(), limits::IN_FLIGHT_MAX);
        assert_eq!(state.streams.held(), 1000 - limits::IN_FLIGHT_MAX as usize);
    }
}
