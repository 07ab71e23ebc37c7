use std::{
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize},
    },
};

use bulkhead_gpu::{
    Access, Compiled, DeviceAddress, DeviceInfo, EntryId, EventId, FillPattern, Gpu, GraphId, HostAddress,
    HostRange, ImageId, Launch, LoadedImage, MemoryId, Node, StreamId, Work,
};
use bulkhead_mm::Slot;
use bulkhead_ring::{
    Bind, Blocks, CompletionWriter, LaunchShape, ParameterPlace, Pattern, Producer, Record,
    memory::{Completion, Ring},
};
use bulkhead_schema::Handle;
use bulkhead_verifier::FastVersion;
use parking_lot::Mutex;

use super::*;
use crate::{
    launch::{
        entry::{Entry, Template},
        fast::Fast,
        streams::Streams,
    },
    session::bindings::{Object, Use},
};

mod arrays;
mod graphs;
mod moves;
mod runs;
mod stuck;
mod unlooked;

use runs::{BROKEN_ENTRY, launch_of, state_that_forms_runs};

type Answer<T = ()> = Result<T, DeviceError>;

/// What a device was asked to do.
#[derive(Default)]
struct Asked {
    /// Launched entries, in order.
    launched: Mutex<Vec<EntryId>>,
    /// The same, with [`FILLED`] for a fill, [`MARKED`] for a mark and [`WAITED`] for a wait.
    order: Mutex<Vec<EntryId>>,
    /// The page that tells of refusals.
    page: Mutex<Option<Arc<Completion>>>,
    /// How many of them went in each graph.
    graphs: Mutex<Vec<usize>>,
    /// Whether it makes graphs of what a session writes down, the nodes of the last, and how many were destroyed.
    makes_graphs: AtomicBool,
    made: Mutex<Vec<Node>>,
    destroyed: AtomicUsize,
    /// Where copies and fills begin, and how many bytes each has.
    moved: Mutex<Vec<(u64, u64)>>,
}

const FILLED: EntryId = EntryId(100);
const MARKED: EntryId = EntryId(101);
const WAITED: EntryId = EntryId(103);
/// A graph was launched; a node of one changed.
const GRAPH: EntryId = EntryId(104);
const CHANGED: EntryId = EntryId(105);
/// No device launches this one.
const COPIED: EntryId = EntryId(106);
const BROKEN: EntryId = EntryId(102);

/// A device that takes fills and launches and never does them. It notes what was launched.
struct Idle(DeviceInfo, Arc<Asked>);

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
        if entry == BROKEN {
            return Err(DeviceError::LaunchResources("too much of everything".into()));
        }
        self.1.launched.lock().push(entry);
        self.1.order.lock().push(entry);
        Ok(())
    }
    fn wait(&self, _: StreamId, _: StreamId) -> Answer<bool> {
        self.1.order.lock().push(WAITED);
        Ok(true)
    }
    fn launch_graph(&self, _: StreamId, launches: &[(EntryId, Launch<'_>)]) -> Answer<bool> {
        if launches.iter().any(|(entry, _)| *entry == BROKEN) {
            return Ok(false);
        }
        self.1.graphs.lock().push(launches.len());
        self.1.launched.lock().extend(launches.iter().map(|(entry, _)| *entry));
        self.1.order.lock().extend(launches.iter().map(|(entry, _)| *entry));
        Ok(true)
    }
    fn make_graph(&self, nodes: &[Node]) -> Answer<Option<GraphId>> {
        *self.1.made.lock() = nodes.to_vec();
        Ok(self.1.makes_graphs.load(Ordering::Relaxed).then_some(GraphId(1)))
    }
    fn change_node(&self, _: GraphId, _: usize, _: &Work) -> Answer {
        self.1.order.lock().push(CHANGED);
        Ok(())
    }
    fn launch_made(&self, _: StreamId, _: GraphId) -> Answer {
        self.1.order.lock().push(GRAPH);
        Ok(())
    }
    fn destroy_graph(&self, _: GraphId) -> Answer {
        self.1.destroyed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
    fn launch_together(&self, _: StreamId, _: EntryId, _: &Launch<'_>) -> Answer {
        no()
    }
    fn copy_to_device(&self, _: StreamId, to: DeviceAddress, from: HostRange) -> Answer {
        self.1.moved.lock().push((to.0, from.bytes as u64));
        Ok(())
    }
    fn copy_to_host(&self, _: StreamId, to: HostRange, from: DeviceAddress) -> Answer {
        self.1.moved.lock().push((from.0, to.bytes as u64));
        Ok(())
    }
    fn copy_on_device(&self, _: StreamId, to: DeviceAddress, _: DeviceAddress, bytes: u64) -> Answer {
        self.1.moved.lock().push((to.0, bytes));
        Ok(())
    }
    fn copy_array(&self, _: StreamId, _: &bulkhead_gpu::ArrayCopy) -> Answer {
        self.1.order.lock().push(COPIED);
        Ok(())
    }
    fn fill(&self, _: StreamId, to: DeviceAddress, pattern: FillPattern, count: u64) -> Answer {
        let each = match pattern {
            FillPattern::Bits8(_) => 1,
            FillPattern::Bits16(_) => 2,
            FillPattern::Bits32(_) => 4,
        };
        self.1.moved.lock().push((to.0, count * each));
        self.1.order.lock().push(FILLED);
        Ok(())
    }
    fn write_value(&self, _: StreamId, _: HostAddress, _: u64) -> Answer {
        self.1.order.lock().push(MARKED);
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

fn state_and_launches() -> (State, Arc<Asked>) {
    state_of("idle")
}

fn state_of(backend: &'static str) -> (State, Arc<Asked>) {
    let info = DeviceInfo {
        backend,
        name: String::new(),
        uuid: [0; 16],
        memory_bytes: 0,
        granule_bytes: 0,
        driver_version: 0,
        attributes: Vec::new(),
        architecture: 90,
    };
    let asked: Arc<Asked> = Arc::default();
    let gpu: Arc<dyn Gpu> = Arc::new(Idle(info, Arc::clone(&asked)));
    let (page, _) = Completion::create().unwrap();
    asked.page.lock().replace(Arc::clone(&page));
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
    (state, asked)
}

const CONFINED: EntryId = EntryId(1);
const FAST: EntryId = EntryId(2);
const ENTRY: Handle = Handle { slot: 2, generation: 1 };
/// What each thread of the fast version does, and the blocks of a warp that make a 32nd of what may be in flight.
const WORK: u32 = 256;
const BLOCKS: u32 = 1 << 19;

/// Binds an entry whose fast version never looks at the flag.
fn bind_entry(state: &mut State) -> crate::watch::remains::Remains {
    let (reaper, remains) = crate::watch::remains::Reaper::new();
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
        static_shared: 0,
        dynamic_shared_max: Arc::default(),
        hidden: Some([0, 4, 8]),
        sliceable: false,
        of_slice: None,
        called: Box::default(),
        base: 0,
    };
    let image = Arc::new(crate::watch::remains::Image::new(ImageId(1), &reaper));
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

#[test]
fn little_goes_to_the_device_while_somebody_waits_for_a_moment_without_kernels() {
    let descriptor = bulkhead_ring::memory::create().unwrap();
    let mut producer = Producer::new(Ring::map(descriptor.as_fd()).unwrap());
    let mut consumer = Consumer::new(Ring::map(descriptor.as_fd()).unwrap());
    let (mut state, asked) = state_and_launches();
    let _remains = bind_entry(&mut state);
    assert!(state.gate.narrow(Instant::now(), true));
    let mut push = |state: &mut State| {
        let position = producer.push(&launch(0)).unwrap();
        turn_until_nothing_moves(state, &mut consumer);
        position
    };
    let positions: Vec<u64> = (0..10).map(|_| push(&mut state)).collect();
    assert_eq!(asked.launched.lock().len(), NARROW as usize);
    // What passes makes room.
    state.streams.page().set_mark(0, positions[1]);
    push(&mut state);
    assert_eq!(asked.launched.lock().len(), NARROW as usize + 2);
    // What is there may wait for what is held back.
    state.be_stuck_since(Instant::now().checked_sub(2 * NARROW_STUCK).unwrap());
    push(&mut state);
    assert_eq!(asked.launched.lock().len(), 12);
}

/// A queue of short kernels, as long as programs make them, runs the fast version throughout.
#[test]
fn launches_that_never_look_at_the_flag_wait_for_room_behind_their_like() {
    let descriptor = bulkhead_ring::memory::create().unwrap();
    let mut producer = Producer::new(Ring::map(descriptor.as_fd()).unwrap());
    let mut consumer = Consumer::new(Ring::map(descriptor.as_fd()).unwrap());
    let (mut state, asked) = state_and_launches();
    let _remains = bind_entry(&mut state);
    let positions: Vec<u64> = (0..100).map(|_| producer.push(&launch(0)).unwrap()).collect();
    turn_until_nothing_moves(&mut state, &mut consumer);
    assert_eq!(*asked.launched.lock(), [FAST; 32], "as much as may be in flight");
    assert_eq!(state.streams.held(), 68);
    // A stream that has nothing else to do does not wait: the version that looks goes at once.
    producer.push(&launch(1)).unwrap();
    turn_until_nothing_moves(&mut state, &mut consumer);
    assert_eq!(asked.launched.lock()[32..], [CONFINED]);
    // Room comes back in parts: the device has a mark for each two of these.
    state.streams.page().set_mark(0, positions[3]);
    turn_until_nothing_moves(&mut state, &mut consumer);
    assert_eq!(asked.launched.lock()[33..], [FAST; 4]);
    for position in positions {
        state.streams.page().set_mark(0, position);
        turn_until_nothing_moves(&mut state, &mut consumer);
    }
    let launched = asked.launched.lock();
    assert_eq!((launched.len(), state.streams.held()), (101, 0));
    assert_eq!(launched.iter().filter(|entry| **entry == CONFINED).count(), 1);
}

/// Others take all the room for ever: a stream that has no more of its own in flight goes on without it.
#[test]
fn a_launch_that_waits_for_room_does_not_starve() {
    let descriptor = bulkhead_ring::memory::create().unwrap();
    let mut producer = Producer::new(Ring::map(descriptor.as_fd()).unwrap());
    let mut consumer = Consumer::new(Ring::map(descriptor.as_fd()).unwrap());
    let (mut state, asked) = state_and_launches();
    let _remains = bind_entry(&mut state);
    let own: Vec<u64> = (0..4).map(|_| producer.push(&launch(0)).unwrap()).collect();
    for _ in 0..28 {
        producer.push(&launch(1)).unwrap();
    }
    producer.push(&launch(0)).unwrap();
    turn_until_nothing_moves(&mut state, &mut consumer);
    assert_eq!((asked.launched.lock().len(), state.streams.held()), (32, 1));
    // What it had has passed, and what passed with it others have taken at once.
    producer.push(&launch(2)).unwrap();
    producer.push(&launch(2)).unwrap();
    state.streams.page().set_mark(0, own[3]);
    turn_until_nothing_moves(&mut state, &mut consumer);
    assert_eq!((asked.launched.lock().len(), state.streams.held()), (35, 0));
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
    let (mut state, asked) = state_and_launches();
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
    assert_eq!(asked.launched.lock().len(), 1, "the third stream's");
    assert_eq!(held(&state, &consumer), (6, false), "the second waits for the first, and so for the host");
    // A question about events is answered all the same.
    let question = producer.push(&Record::Elapsed { stream: 0, start: 1, end: 2, reply: 3 }).unwrap();
    turn_until_nothing_moves(&mut state, &mut consumer);
    assert_eq!((held(&state, &consumer), consumer.position()), ((6, false), question));
    // Another stream's barriers are its own affair.
    opener.open(1, 9);
    turn_until_nothing_moves(&mut state, &mut consumer);
    assert_eq!(asked.launched.lock().len(), 1);
    opener.open(0, 1);
    turn_until_nothing_moves(&mut state, &mut consumer);
    assert_eq!((asked.launched.lock().len(), held(&state, &consumer)), (2, (4, false)));
    assert!(!state.streams.passed(0, last));
    opener.open(0, 2);
    turn_until_nothing_moves(&mut state, &mut consumer);
    assert_eq!((asked.launched.lock().len(), held(&state, &consumer)), (3, (2, true)));
    state.streams.page().set_mark(0, last);
    turn_until_nothing_moves(&mut state, &mut consumer);
    assert_eq!((asked.launched.lock().len(), held(&state, &consumer)), (4, (0, false)));
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
        let (mut state, asked) = state_and_launches();
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
        assert!(asked.launched.lock().is_empty());
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

#[test]
fn streams_of_an_isolated_session_wait_for_each_other_on_the_device() {
    let descriptor = bulkhead_ring::memory::create().unwrap();
    let mut producer = Producer::new(Ring::map(descriptor.as_fd()).unwrap());
    let mut consumer = Consumer::new(Ring::map(descriptor.as_fd()).unwrap());
    let opener = producer.opener();
    let (mut state, asked, _remains) = state_that_forms_runs();
    let first = producer.push(&launch(0)).unwrap();
    producer.push(&Record::WaitOn { stream: 1, on: 0, position: first }).unwrap();
    producer.push(&launch(1)).unwrap();
    turn_until_nothing_moves(&mut state, &mut consumer);
    assert_eq!(state.streams.held(), 0);
    assert_eq!(
        asked.order.lock()[..3],
        [CONFINED, WAITED, CONFINED],
        "what is put off comes before the wait"
    );
    // Where the other stream has been given more since, or is held itself, the pump holds what waits.
    let second = producer.push(&launch(0)).unwrap();
    producer.push(&launch(0)).unwrap();
    producer.push(&Record::WaitOn { stream: 1, on: 0, position: second }).unwrap();
    turn_until_nothing_moves(&mut state, &mut consumer);
    assert_eq!(state.streams.held(), 1);
    let last = producer.push(&barrier(2, 1)).unwrap();
    producer.push(&Record::WaitOn { stream: 0, on: 2, position: last }).unwrap();
    turn_until_nothing_moves(&mut state, &mut consumer);
    assert_eq!(state.streams.held(), 3);
    assert_eq!(asked.order.lock().iter().filter(|entry| **entry == WAITED).count(), 1);
    state.streams.page().set_mark(0, second);
    opener.open(2, 1);
    turn_until_nothing_moves(&mut state, &mut consumer);
    assert_eq!(state.streams.held(), 1);
    state.streams.page().set_mark(2, last);
    turn_until_nothing_moves(&mut state, &mut consumer);
    assert_eq!(state.streams.held(), 0);
}

#[test]
fn streams_of_a_guarded_session_are_held_by_the_pump() {
    let descriptor = bulkhead_ring::memory::create().unwrap();
    let mut producer = Producer::new(Ring::map(descriptor.as_fd()).unwrap());
    let mut consumer = Consumer::new(Ring::map(descriptor.as_fd()).unwrap());
    let (mut state, asked) = state_and_launches();
    let first = producer.push(&fill(0)).unwrap();
    producer.push(&Record::WaitOn { stream: 1, on: 0, position: first }).unwrap();
    turn_until_nothing_moves(&mut state, &mut consumer);
    assert_eq!((state.streams.held(), asked.order.lock().contains(&WAITED)), (1, false));
}
