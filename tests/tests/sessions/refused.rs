//! What a session may have at most, and what is refused.

use super::*;

#[test]
fn parameters_that_do_not_fit_the_entry_are_refused_before_they_are_sent() {
    let kernel = Kernel::start();
    let loaded = Loaded::new(&kernel, "wrong parameters");
    let entry = loaded.entry("scramble");
    for parameters in [Parameters::new(), Parameters::new().u32(1), Parameters::new().u64(1).u64(1)] {
        let refused = loaded.session.launch(FIRST, &entry, &ONE, &parameters).unwrap_err();
        assert_eq!(refused.code, ErrorCode::InvalidArgument);
    }
}

#[test]
fn a_launch_that_asks_for_too_much_is_refused_and_the_session_goes_on() {
    let kernel = Kernel::start();
    let loaded = Loaded::new(&kernel, "too much");
    let (session, entry) = (&loaded.session, loaded.entry("successor"));
    let number = session.allocate(4).unwrap();
    session.fill(FIRST, number.all(), Pattern::Bits32(0)).unwrap();
    let parameters = Parameters::new().u32(0).buffer(&number).buffer(&number);
    for (grid, block, shared_bytes) in [
        ([1, 1, 1], [1025, 1, 1], 0),
        ([1, 1, 1], [1, 1, 65], 0),
        ([0, 1, 1], [1, 1, 1], 0),
        ([1, 65_536, 1], [1, 1, 1], 0),
        ([1, 1, 1], [0, 1, 1], 0),
        ([1, 1, 1], [1, 1, 1], 1 << 20),
    ] {
        let launch = Launch { grid, block, shared_bytes };
        let fence = session.launch(FIRST, &entry, &launch, &parameters).unwrap();
        let refused = session.wait(fence).unwrap_err();
        assert_ne!(refused.code, ErrorCode::DeviceLost, "{launch:?}: {refused}");
    }
    session.launch(FIRST, &entry, &ONE, &parameters).unwrap();
    assert_eq!(word(session, FIRST, &number), 1);
}

#[test]
fn streams_and_events_have_limits_and_come_back() {
    let kernel = Kernel::start();
    let session = kernel.open("streams");
    let streams: Vec<Stream> = (1..limits::STREAMS_MAX).map(|_| session.create_stream(0).unwrap()).collect();
    assert_eq!(session.create_stream(0).unwrap_err().code, ErrorCode::LimitReached);
    let buffer = session.allocate(4).unwrap();
    for stream in &streams {
        session.fill(*stream, buffer.all(), Pattern::Bits32(1)).unwrap();
    }
    for stream in streams {
        session.wait(session.fence(stream)).unwrap();
        session.destroy_stream(stream).unwrap();
    }
    let again = session.create_stream(0).unwrap();
    let fence = session.fill(again, buffer.all(), Pattern::Bits32(2)).unwrap();
    session.wait(fence).unwrap();
    assert_eq!(word(&session, again, &buffer), 2);
    assert_eq!(session.destroy_stream(FIRST).unwrap_err().code, ErrorCode::InvalidArgument);

    let events: Vec<_> = (0..limits::EVENTS_MAX).map(|_| session.create_event().unwrap()).collect();
    assert_eq!(session.create_event().unwrap_err().code, ErrorCode::LimitReached);
    for event in events {
        session.destroy_event(event).unwrap();
    }
    session.create_event().unwrap();
}

#[test]
fn a_stream_that_is_destroyed_leaves_nothing_in_flight() {
    let kernel = Kernel::start();
    let session = kernel.open("streams that end");
    let buffer = session.allocate(4).unwrap();
    for _ in 0..2000 {
        let stream = session.create_stream(0).unwrap();
        let fence = session.fill(stream, buffer.all(), Pattern::Bits32(1)).unwrap();
        session.wait(fence).unwrap();
        session.destroy_stream(stream).unwrap();
    }
    // More than the arenas it has: its pages change, which waits for what is in flight.
    let session = within("an allocation after streams ended", move || {
        session.allocate(1 << 30).unwrap();
        session
    });
    drop((buffer, session));
    kernel.without(&["streams that end"]);
}

#[test]
fn an_event_may_end_after_its_stream() {
    let kernel = Kernel::start();
    let session = kernel.open("events that outlive");
    let buffer = session.allocate(1 << 20).unwrap();
    for _ in 0..500 {
        let stream = session.create_stream(0).unwrap();
        let event = session.create_event().unwrap();
        session.fill(stream, buffer.all(), Pattern::Bits8(1)).unwrap();
        let reached = session.record(event, stream).unwrap();
        session.wait(reached).unwrap();
        session.elapsed_ns(event, event).unwrap();
        session.destroy_stream(stream).unwrap();
        session.destroy_event(event).unwrap();
        let fence = session.fill(FIRST, buffer.range(0, 4), Pattern::Bits8(2)).unwrap();
        session.wait(fence).unwrap();
    }
}

#[test]
fn sessions_have_a_limit_and_their_places_are_used_again() {
    let kernel = Kernel::start();
    let mut sessions: Vec<Session> =
        (0..limits::SESSIONS_MAX).map(|index| kernel.open(&format!("session {index}"))).collect();
    let bases: std::collections::BTreeSet<u64> = sessions.iter().map(|session| session.window().0).collect();
    assert_eq!(bases.len(), sessions.len(), "every session has a slot of its own");
    let full = Session::open(&kernel.options("one too many")).err().unwrap();
    assert_eq!(full.code, ErrorCode::LimitReached);
    drop(sessions.pop());
    until("a place is free again", || match Session::open(&kernel.options("instead")) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.code, ErrorCode::LimitReached);
            false
        }
    });
    for session in sessions {
        session.status().unwrap();
    }
}

#[test]
fn more_memory_than_there_is_is_refused_and_changes_nothing() {
    let kernel = Kernel::start();
    let session = kernel.open("greedy");
    let before = kernel.status();
    for wanted in [1 << 40, u64::MAX, u64::MAX / 2] {
        let refused = session.allocate(wanted).err().unwrap();
        assert_eq!(refused.code, ErrorCode::OutOfMemory, "{wanted} bytes: {refused}");
    }
    assert_eq!(session.allocate(0).err().unwrap().code, ErrorCode::InvalidArgument);
    assert_eq!(kernel.status(), before);
    session.allocate(1).unwrap();
}

#[test]
fn a_device_that_is_not_there_is_not_found() {
    let kernel = Kernel::start();
    let elsewhere = Options { device: 7, ..kernel.options("elsewhere") };
    assert_eq!(Session::open(&elsewhere).err().unwrap().code, ErrorCode::NotFound);
    let nowhere = Options { socket: "/nonexistent/kernel.sock".into(), ..kernel.options("nowhere") };
    let error = Session::open(&nowhere).err().unwrap();
    assert_eq!(error.code, ErrorCode::Unavailable);
    assert!(error.remedy.contains("bulkhead serve"), "{error}");
}
