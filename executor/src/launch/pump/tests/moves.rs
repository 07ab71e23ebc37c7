//! How much the device has to copy and to fill at a time.

use bulkhead_ring::Copy;

use super::*;

const GIB: u64 = 1 << 30;
/// What may be there at a time of this device, and what goes at once.
const MOST: u64 = 8 * GIB;
const PIECE: u64 = 2 * GIB;
/// What a stream always has there.
const ALWAYS: u64 = 32 << 20;
const LARGE: Handle = Handle { slot: 5, generation: 1 };
const HOST: Handle = Handle { slot: 6, generation: 1 };

struct Bench {
    producer: Producer,
    consumer: Consumer,
    state: State,
    asked: Arc<Asked>,
    /// Where the large buffer lies.
    at: u64,
}

impl Bench {
    fn new() -> Self {
        let descriptor = bulkhead_ring::memory::create().unwrap();
        let map = || Ring::map(descriptor.as_fd()).unwrap();
        let (producer, consumer) = (Producer::new(map()), Consumer::new(map()));
        let (mut state, asked) = state_and_launches();
        let at = Slot::new(0).unwrap().read_write().start().0;
        let large = Object::Buffer { address: at, bytes: 100 * GIB, may: Use::ReadWrite };
        state.bindings.bind(LARGE, large).unwrap();
        // No page of it is ever touched.
        let memory = HostRange { at: HostAddress(1 << 40), bytes: usize::try_from(100 * GIB).unwrap() };
        state.bindings.bind(HOST, Object::Mapped { address: at + 100 * GIB, memory }).unwrap();
        Self { producer, consumer, state, asked, at }
    }

    fn push(&mut self, record: &Record) -> u64 {
        let position = self.producer.push(record).unwrap();
        self.go_on();
        position
    }

    fn go_on(&mut self) {
        turn_until_nothing_moves(&mut self.state, &mut self.consumer);
    }

    /// What was asked since the last look.
    fn moved(&self) -> Vec<(u64, u64)> {
        let moved = std::mem::take(&mut *self.asked.moved.lock());
        moved.into_iter().map(|(at, bytes)| (at - self.at, bytes)).collect()
    }

    /// How many bytes that is.
    fn bytes(&self) -> u64 {
        self.moved().iter().map(|(_, bytes)| bytes).sum()
    }
}

fn fill_of(stream: u32, offset: u64, bytes: u64) -> Record {
    let to = Bind { slot: LARGE.slot, generation: LARGE.generation };
    Record::Fill { stream, to, offset, pattern: Pattern::Bits32(1), count: bytes / 4 }
}

/// The same number of bytes from and to each kind of memory.
fn copies_of(bytes: u64) -> [Record; 3] {
    let [device, host] =
        [LARGE, HOST].map(|handle| Bind { slot: handle.slot, generation: handle.generation });
    let copy = |to, from| Copy { to, to_offset: 0, from, from_offset: 0, bytes };
    [
        Record::CopyToDevice { stream: 0, copy: copy(device, host) },
        Record::CopyToHost { stream: 0, copy: copy(host, device) },
        Record::CopyOnDevice { stream: 0, copy: copy(device, device) },
    ]
}

/// A hundred fills take microseconds to ask for and minutes to do: what was submitted cannot be taken back.
#[test]
fn fills_and_copies_wait_where_the_device_has_much_to_move() {
    for record in [fill_of(0, 0, GIB)].iter().chain(&copies_of(GIB)) {
        let mut bench = Bench::new();
        let positions: Vec<u64> = (0..100).map(|_| bench.push(record)).collect();
        assert_eq!(bench.bytes(), MOST, "{record:?}");
        assert_eq!(bench.state.streams.held(), 92);
        assert_eq!(bench.state.streams.load().moved, MOST, "it counts towards the grace");
        bench.state.streams.page().set_mark(0, positions[2]);
        bench.go_on();
        assert_eq!(bench.bytes(), 3 * GIB, "room comes back in parts");
        // The session is over: what was not submitted never is.
        bench.state.streams.forget_held();
        bench.state.streams.page().set_mark(0, positions[10]);
        bench.go_on();
        assert_eq!((bench.bytes(), bench.state.streams.in_flight()), (0, 0));
    }
}

#[test]
fn what_is_larger_than_what_may_be_there_goes_in_pieces() {
    for record in [fill_of(0, 0, 20 * GIB + 12)].iter().chain(&copies_of(20 * GIB + 12)) {
        let mut bench = Bench::new();
        let position = bench.push(record);
        let mut moved = bench.moved();
        assert_eq!(moved, [0, 1, 2, 3].map(|piece| (piece * PIECE, PIECE)), "{record:?}");
        for passed in 1..=7 {
            assert!(!bench.state.streams.passed(0, position));
            bench.state.streams.page().set_slices(0, passed);
            bench.go_on();
            moved.extend(bench.moved());
        }
        assert_eq!((moved.len(), moved.last()), (11, Some(&(20 * GIB, 12))));
        assert!(moved.windows(2).all(|pair| pair[0].0 + pair[0].1 == pair[1].0), "{moved:?}");
        assert_eq!(bench.state.streams.held(), 0);
        bench.state.streams.page().set_slices(0, 10);
        assert!(!bench.state.streams.passed(0, position), "the last one");
        bench.state.streams.page().set_mark(0, position);
        assert!(bench.state.streams.passed(0, position));
        assert_eq!((bench.state.streams.in_flight(), bench.state.streams.load().moved), (0, 0));
    }
}

/// What fills the room may be behind a kernel that waits for another stream's copy.
#[test]
fn each_stream_has_some_of_its_own_there_and_small_copies_never_wait() {
    let mut bench = Bench::new();
    for _ in 0..9 {
        bench.push(&fill_of(0, 0, GIB));
    }
    assert_eq!(bench.bytes(), MOST);
    bench.push(&fill_of(1, 0, GIB));
    assert_eq!(bench.moved(), [(0, ALWAYS)]);
    assert_eq!(bench.state.streams.held(), 2);
    for _ in 0..100 {
        bench.push(&fill_of(2, 0, 1 << 16));
    }
    assert_eq!((bench.moved().len(), bench.state.streams.held()), (100, 2));
    // A piece at a time, as each passes.
    bench.state.streams.page().set_slices(1, 1);
    bench.go_on();
    assert_eq!(bench.moved(), [(ALWAYS, ALWAYS)]);
}

/// Another stream's come later in the ring, and leave no room for ever.
#[test]
fn a_large_copy_does_not_starve_behind_smaller_ones() {
    let mut bench = Bench::new();
    for _ in 0..2 {
        bench.push(&fill_of(0, 0, GIB));
    }
    let others: Vec<u64> = (0..60).map(|_| bench.push(&fill_of(1, 0, GIB / 10))).collect();
    bench.push(&fill_of(0, 0, 2 * GIB));
    for _ in 0..60 {
        bench.push(&fill_of(1, 0, GIB / 10));
    }
    let before = 2 * GIB + 60 * (GIB / 10 / 4 * 4);
    assert_eq!((bench.bytes(), bench.state.streams.held()), (before, 61));
    for position in &others[..22] {
        bench.state.streams.page().set_mark(1, *position);
        bench.go_on();
    }
    let moved = bench.moved();
    assert_eq!(moved.first(), Some(&(0, 2 * GIB)), "those that came later went first");
    assert!(moved.len() > 1, "{moved:?}");
}

#[test]
fn a_range_that_is_not_all_there_is_refused_whole() {
    let mut bench = Bench::new();
    bench.push(&fill_of(0, 90 * GIB, 11 * GIB));
    bench.push(&fill_of(0, 2, 4));
    assert_eq!((bench.moved(), bench.state.streams.held()), (Vec::new(), 0));
    let page = bench.asked.page.lock().clone().unwrap();
    assert_eq!(bulkhead_ring::CompletionReader::new(page).refusals() & u64::from(u32::MAX), 2);
}

/// Nobody else is on its device.
#[test]
fn copies_of_an_isolated_session_do_not_wait() {
    let mut bench = Bench::new();
    bench.state.streams.be_alone(true, false);
    for _ in 0..10 {
        bench.push(&fill_of(0, 0, 50 * GIB));
    }
    assert_eq!((bench.bytes(), bench.state.streams.held()), (500 * GIB, 0));
}
