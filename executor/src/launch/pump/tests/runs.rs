//! Launches that go to the device together, as a graph.

use super::*;

pub(super) const BROKEN_ENTRY: Handle = Handle { slot: 3, generation: 1 };

/// A session whose launches may form runs, and two entries of it: one that no device launches.
pub(super) fn state_that_forms_runs() -> (State, Arc<Asked>, [crate::watch::remains::Remains; 2]) {
    let (mut state, asked) = state_and_launches();
    state.streams.be_alone(true, false);
    let mut bind = |handle: Handle, id| {
        let (reaper, remains) = crate::watch::remains::Reaper::new();
        let template = Template {
            id,
            fast: None,
            name: "entry".into(),
            block: Vec::new(),
            visible_bytes: 0,
            dynamic_shared_min: 0,
            static_shared: 0,
            dynamic_shared_max: Arc::default(),
            hidden: None,
            sliceable: false,
            of_slice: None,
            called: Box::default(),
            base: 0,
        };
        let image = Arc::new(crate::watch::remains::Image::new(ImageId(1), &reaper));
        state.bindings.bind(handle, Object::Entry(Box::new(Entry { template, image }))).unwrap();
        remains
    };
    let remains = [bind(ENTRY, CONFINED), bind(BROKEN_ENTRY, BROKEN)];
    state.blocks_max = u64::MAX;
    (state, asked, remains)
}

pub(super) fn launch_of(stream: u32, entry: Handle) -> Record {
    let Record::Launch { launch, .. } = launch(stream) else { unreachable!() };
    let entry = Bind { slot: entry.slot, generation: entry.generation };
    Record::Launch { stream, launch: bulkhead_ring::Launch { entry, ..launch } }
}

#[test]
fn launches_that_wait_in_the_ring_go_as_graphs_no_longer_than_what_the_device_has_to_do() {
    let descriptor = bulkhead_ring::memory::create().unwrap();
    let mut producer = Producer::new(Ring::map(descriptor.as_fd()).unwrap());
    let mut consumer = Consumer::new(Ring::map(descriptor.as_fd()).unwrap());
    let (mut state, asked, _remains) = state_that_forms_runs();
    for _ in 0..100 {
        producer.push(&launch(0)).unwrap();
    }
    turn_until_nothing_moves(&mut state, &mut consumer);
    assert_eq!(asked.launched.lock().len(), 100);
    assert_eq!(*asked.graphs.lock(), [16, 16, 32, 32, 4]);
    // A mark comes after all that it covers.
    let order = asked.order.lock();
    assert_eq!(order.iter().filter(|entry| **entry == MARKED).count(), 1);
    assert_eq!(order.last(), Some(&MARKED));
}

#[test]
fn a_stream_with_a_mark_to_come_waits_with_the_next() {
    let descriptor = bulkhead_ring::memory::create().unwrap();
    let mut producer = Producer::new(Ring::map(descriptor.as_fd()).unwrap());
    let mut consumer = Consumer::new(Ring::map(descriptor.as_fd()).unwrap());
    let (mut state, asked, _remains) = state_that_forms_runs();
    let marks = || asked.order.lock().iter().filter(|entry| **entry == MARKED).count();
    let mut push = |state: &mut State, stream| {
        let position = producer.push(&launch(stream)).unwrap();
        turn_until_nothing_moves(state, &mut consumer);
        position
    };
    let first = push(&mut state, 0);
    assert_eq!(marks(), 1, "the first has one at once");
    let second = push(&mut state, 0);
    push(&mut state, 0);
    assert_eq!((marks(), asked.launched.lock().len()), (1, 3), "they are launched, and have none");
    push(&mut state, 1);
    assert_eq!(marks(), 2, "another stream has its own");
    // The mark has passed: what came behind it has one now.
    state.streams.page().set_mark(0, first);
    state.streams.mark_due().unwrap();
    assert_eq!(marks(), 3);
    assert!(!state.streams.passed(0, second));
    // Not for more than so many.
    for _ in 0..40 {
        push(&mut state, 0);
    }
    assert_eq!(marks(), 4);
    // Whoever is about to sleep marks all.
    assert!(state.streams.has_unmarked());
    state.streams.mark_all().unwrap();
    assert_eq!((marks(), state.streams.has_unmarked()), (5, false));
}

#[test]
fn a_run_ends_before_whatever_else_is_asked_of_the_device() {
    let descriptor = bulkhead_ring::memory::create().unwrap();
    let mut producer = Producer::new(Ring::map(descriptor.as_fd()).unwrap());
    let mut consumer = Consumer::new(Ring::map(descriptor.as_fd()).unwrap());
    let (mut state, asked, _remains) = state_that_forms_runs();
    // So many that what follows would be part of a run, with work of its own stream and of another's in between.
    for record in [fill(0), fill(1)] {
        for _ in 0..9 {
            producer.push(&launch(0)).unwrap();
        }
        producer.push(&record).unwrap();
    }
    producer.push(&launch(1)).unwrap();
    turn_until_nothing_moves(&mut state, &mut consumer);
    let order = asked.order.lock();
    let (first, second) = (&order[..9], &order[10..19]);
    assert!(first.iter().chain(second).all(|entry| *entry == CONFINED), "{order:?}");
    assert_eq!((order[9], order[19], order[20]), (FILLED, FILLED, CONFINED), "{order:?}");
    assert!(!asked.graphs.lock().is_empty());
}

#[test]
fn a_launch_that_is_refused_in_a_run_is_so_by_its_position_and_the_others_go() {
    let descriptor = bulkhead_ring::memory::create().unwrap();
    let mut producer = Producer::new(Ring::map(descriptor.as_fd()).unwrap());
    let mut consumer = Consumer::new(Ring::map(descriptor.as_fd()).unwrap());
    let (mut state, asked, _remains) = state_that_forms_runs();
    for _ in 0..20 {
        producer.push(&launch(0)).unwrap();
    }
    let refused = producer.push(&launch_of(0, BROKEN_ENTRY)).unwrap();
    for _ in 0..7 {
        producer.push(&launch(0)).unwrap();
    }
    turn_until_nothing_moves(&mut state, &mut consumer);
    assert_eq!(asked.launched.lock().len(), 27);
    let refusal = bulkhead_ring::CompletionReader::new(asked.page.lock().take().unwrap()).refusal();
    let refusal = refusal.expect("a refusal");
    assert_eq!((refusal.count, refusal.position), (1, refused));
    assert_eq!(refusal.code, ErrorCode::LaunchResources as u16);
}

#[test]
fn guarded_sessions_launch_one_by_one() {
    let descriptor = bulkhead_ring::memory::create().unwrap();
    let mut producer = Producer::new(Ring::map(descriptor.as_fd()).unwrap());
    let mut consumer = Consumer::new(Ring::map(descriptor.as_fd()).unwrap());
    let (mut state, asked) = state_and_launches();
    let _remains = bind_entry(&mut state);
    for _ in 0..30 {
        producer.push(&launch(0)).unwrap();
    }
    turn_until_nothing_moves(&mut state, &mut consumer);
    assert_eq!((asked.launched.lock().len(), asked.graphs.lock().len()), (30, 0));
}
