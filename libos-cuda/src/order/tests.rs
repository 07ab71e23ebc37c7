use super::*;
use crate::device::{Asked, Options};

fn session() -> Session {
    Session::open(&Options { name: "test".into(), ..Options::default() }).unwrap()
}

struct World {
    session: Session,
    streams: Streams,
}

impl World {
    fn new() -> World {
        World { session: session(), streams: Streams::new() }
    }

    fn stream(&self, order: Order) -> (u64, Target) {
        let handle = self.streams.create(&self.session, order, 0, 1).unwrap();
        (handle, self.streams.target(&self.session, handle).unwrap())
    }

    /// Submits work that the record can tell apart.
    fn work(&self, target: Target) {
        self.streams
            .submit(&self.session, target, |stream| {
                let event = self.session.create_event().unwrap();
                Ok(self.session.record(event, stream).unwrap())
            })
            .unwrap();
    }

    /// The work and waits since the last time, as text.
    fn asked(&self) -> Vec<String> {
        let text = |asked| match asked {
            Asked::Record { stream } => format!("work {stream}"),
            Asked::WaitOn { stream, other } => format!("{stream} waits for {other}"),
            Asked::DestroyStream { stream } => format!("destroy {stream}"),
            other => format!("{other:?}"),
        };
        self.session.take_asked().into_iter().map(text).collect()
    }
}

#[test]
fn legacy_work_waits_for_each_blocking_stream_once() {
    let world = World::new();
    let ((_, one), (_, two)) = (world.stream(Order::Blocking), world.stream(Order::Blocking));
    world.work(one);
    world.work(one);
    world.work(two);
    world.asked();
    world.work(Target::LEGACY);
    assert_eq!(world.asked(), ["0 waits for 1", "0 waits for 2", "work 0"]);
    world.work(Target::LEGACY);
    assert_eq!(world.asked(), ["work 0"]);
}

#[test]
fn blocking_work_waits_for_the_legacy_work_before_it() {
    let world = World::new();
    let (_, one) = world.stream(Order::Blocking);
    world.work(Target::LEGACY);
    world.asked();
    world.work(one);
    world.work(one);
    assert_eq!(world.asked(), ["1 waits for 0", "work 1", "work 1"]);
    world.work(Target::LEGACY);
    world.work(one);
    assert_eq!(world.asked(), ["0 waits for 1", "work 0", "1 waits for 0", "work 1"]);
}

#[test]
fn a_non_blocking_stream_waits_for_nobody_and_nobody_for_it() {
    let world = World::new();
    let (_, free) = world.stream(Order::NonBlocking);
    world.work(Target::LEGACY);
    world.work(free);
    world.work(Target::LEGACY);
    assert_eq!(world.asked(), ["work 0", "work 1", "work 0"]);
}

#[test]
fn legacy_work_waits_for_a_stream_that_was_destroyed() {
    let world = World::new();
    let (handle, one) = world.stream(Order::Blocking);
    world.work(one);
    world.asked();
    world.streams.destroy(&world.session, handle).unwrap();
    assert_eq!(world.asked(), ["0 waits for 1", "destroy 1"]);
    assert_eq!(world.streams.target(&world.session, handle), Err(Status::INVALID_HANDLE));
    assert_eq!(world.streams.destroy(&world.session, handle), Err(Status::INVALID_HANDLE));
}

#[test]
fn a_stream_in_a_used_slot_has_another_handle() {
    let world = World::new();
    let (old, _) = world.stream(Order::Blocking);
    world.streams.destroy(&world.session, old).unwrap();
    let (new, target) = world.stream(Order::NonBlocking);
    assert_eq!(target.stream.index(), 1);
    assert_ne!(old, new);
    assert_eq!(world.streams.target(&world.session, old), Err(Status::INVALID_HANDLE));
}

#[test]
fn a_new_stream_waits_for_legacy_work_from_before_it_was_made() {
    let world = World::new();
    world.work(Target::LEGACY);
    let (_, one) = world.stream(Order::Blocking);
    world.asked();
    world.work(one);
    assert_eq!(world.asked(), ["1 waits for 0", "work 1"]);
}

#[test]
fn the_end_of_a_context_destroys_its_streams_and_no_others() {
    let world = World::new();
    let (mine, _) = world.stream(Order::Blocking);
    let other = world.streams.create(&world.session, Order::Blocking, 0, 2).unwrap();
    world.streams.end(&world.session, 1);
    assert_eq!(world.streams.target(&world.session, mine), Err(Status::INVALID_HANDLE));
    assert!(world.streams.target(&world.session, other).is_ok());
}

#[test]
fn a_stream_is_done_when_its_last_work_is() {
    let world = World::new();
    let (_, one) = world.stream(Order::Blocking);
    assert_eq!(world.streams.is_done(&world.session, one), Ok(true));
    world.session.hold(one.stream);
    world.work(one);
    assert_eq!(world.streams.is_done(&world.session, one), Ok(false));
    world.session.release(one.stream);
    assert_eq!(world.streams.is_done(&world.session, one), Ok(true));
    world.streams.synchronize(&world.session, one).unwrap();
}

#[test]
fn whoever_waits_or_submits_next_is_told_once_of_what_never_came() {
    let world = World::new();
    let ((_, one), (_, free)) = (world.stream(Order::Blocking), world.stream(Order::NonBlocking));
    world.streams.begin_await();
    assert_eq!(world.streams.awaits(), 1);
    world.streams.end_await(one, Err(Status::INVALID_HANDLE));
    assert_eq!(world.streams.awaits(), 0);
    assert_eq!(world.streams.synchronize(&world.session, free), Ok(()), "another stream's failure");
    assert_eq!(world.streams.synchronize(&world.session, Target::LEGACY), Err(Status::INVALID_HANDLE));
    assert_eq!(world.streams.synchronize(&world.session, one), Ok(()));
    world.streams.end_await(one, Err(Status::INVALID_HANDLE));
    let submitted = world.streams.submit(&world.session, one, |_| Ok(()));
    assert_eq!(submitted, Err(Status::INVALID_HANDLE));
    world.work(one);
}

#[test]
fn a_stream_behind_a_barrier_is_not_done() {
    let world = World::new();
    let (_, one) = world.stream(Order::Blocking);
    let barrier = world.session.barrier(one.stream).unwrap();
    world.work(one);
    assert_eq!(world.streams.is_done(&world.session, one), Ok(false));
    barrier.open();
    assert_eq!(world.streams.is_done(&world.session, one), Ok(true));
}

#[test]
fn every_stream_that_a_session_has_can_be_made() {
    let world = World::new();
    let make = || world.streams.create_now(&world.session, Order::Blocking, 0, 1);
    for _ in 1..STREAMS_MAX {
        make().unwrap();
    }
    assert_eq!(make(), Err(Status::OUT_OF_MEMORY));
    // One more can be asked for, and is not made yet.
    let later = world.streams.create(&world.session, Order::Blocking, 0, 1).unwrap();
    world.streams.destroy(&world.session, later).unwrap();
    assert_eq!(world.streams.destroy(&world.session, later), Err(Status::INVALID_HANDLE));
}

/// Threads submit side by side, which may go in any order; what is submitted after they have ended must come
/// after all of it.
#[test]
fn no_order_is_lost_between_threads() {
    let world = World::new();
    let targets: Vec<Target> = (0..4).map(|_| world.stream(Order::Blocking).1).collect();
    for round in 0..200 {
        let blocking = targets[round % targets.len()];
        std::thread::scope(|scope| {
            for target in &targets {
                scope.spawn(|| world.work(*target));
            }
            scope.spawn(|| world.work(Target::LEGACY));
        });
        world.work(Target::LEGACY);
        world.work(blocking);
        let asked = world.asked();
        let last_legacy = asked.iter().rposition(|line| line == "work 0").unwrap();
        for target in &targets {
            let index = target.stream.index();
            let worked =
                asked[..last_legacy].iter().rposition(|line| *line == format!("work {index}")).unwrap();
            let waited =
                asked[..last_legacy].iter().rposition(|line| *line == format!("0 waits for {index}"));
            assert!(waited.is_some_and(|waited| waited > worked), "round {round}: {asked:?}");
        }
        let index = blocking.stream.index();
        assert_eq!(asked[last_legacy + 1..], [format!("{index} waits for 0"), format!("work {index}")]);
    }
}

#[test]
fn streams_beyond_those_of_a_session_share_one_that_was_made_late() {
    let world = World::new();
    let create = |priority| world.streams.create(&world.session, Order::NonBlocking, priority, 1).unwrap();
    let early: Vec<u64> = (0..late::AT_ONCE).map(|_| create(0)).collect();
    let late: Vec<u64> = (early.len()..80).map(|_| create(0)).collect();
    let made = |handle| {
        let late = world.streams.late.get(place(&world, handle)).unwrap();
        *late
            .made
            .lock()
            .get_or_insert_with(|| world.streams.make_or_share(&world.session, late.kinds).unwrap())
    };
    let handles: Vec<u64> = late.iter().map(|handle| made(*handle)).collect();
    // One stream is the legacy one.
    let own = STREAMS_MAX as usize - 1 - early.len();
    for (at, handle) in handles.iter().enumerate() {
        let sharers = handles.iter().filter(|other| *other == handle).count();
        assert!(handles[..own].contains(handle), "stream {at}");
        assert!(sharers <= 2, "stream {at} is {sharers}: others have one each");
    }
    // Priorities are a hint; the first of another order has a stream of its own, as long as there is one.
    let asked = |order, priority| {
        let handle = world.streams.create(&world.session, order, priority, 1).unwrap();
        let late = world.streams.late.get(place(&world, handle)).unwrap();
        world.streams.make_or_share(&world.session, late.kinds)
    };
    assert!(handles.contains(&asked(Order::NonBlocking, -1).unwrap()));
    let blocking = asked(Order::Blocking, 0).unwrap();
    assert!(!handles.contains(&blocking));
    assert_eq!(asked(Order::Blocking, 0), Ok(blocking));
    // Whoever shares cannot capture, until it is the only one.
    let shared = *handles.last().unwrap();
    let target = world.streams.named(&world.session, shared).unwrap();
    let refuse = || world.streams.captures.refuse_shared(target);
    assert_eq!(refuse(), Err(Status::STREAM_CAPTURE_UNSUPPORTED));
    let first = handles.iter().position(|handle| *handle == shared).unwrap();
    world.streams.destroy(&world.session, late[first]).unwrap();
    assert_eq!(world.streams.destroy(&world.session, late[first]), Err(Status::INVALID_HANDLE));
    assert_eq!(refuse(), Ok(()));
    world.work(target);
    let asked = world.asked();
    assert!(!asked.iter().any(|line| line.starts_with("destroy")), "{asked:?}");
    world.streams.destroy(&world.session, *late.last().unwrap()).unwrap();
    let destroyed = format!("destroy {}", target.stream.index());
    assert!(world.asked().contains(&destroyed));
    assert!(world.streams.named(&world.session, shared).is_err());
}

/// The place of a stream that was asked for and is made later.
fn place(world: &World, handle: u64) -> late::Named {
    let (generation, slot) = decode(Kind::Stream, handle).unwrap();
    late::Named { place: slot as usize - world.streams.slots.len(), generation }
}

#[test]
fn threads_that_make_streams_at_once_leave_some_to_be_made_late() {
    let world = World::new();
    std::thread::scope(|scope| {
        for _ in 0..120 {
            scope.spawn(|| world.streams.create(&world.session, Order::Blocking, 0, 1).unwrap());
        }
    });
    assert_eq!(world.streams.live(), late::AT_ONCE + 1);
}
