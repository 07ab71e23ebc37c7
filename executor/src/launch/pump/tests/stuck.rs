//! Since when work runs, stream by stream.

use super::*;

fn ring() -> (Producer, Consumer) {
    let descriptor = bulkhead_ring::memory::create().unwrap();
    let map = || Ring::map(descriptor.as_fd()).unwrap();
    (Producer::new(map()), Consumer::new(map()))
}

/// A session whose kernels are timed.
fn timed() -> (State, Arc<Asked>, [crate::watch::remains::Remains; 2]) {
    let (mut state, asked, remains) = state_that_forms_runs();
    state.streams.be_alone(true, true);
    (state, asked, remains)
}

/// Since when work is stuck, seen at some moment.
fn stuck(state: &mut State, at: Instant) -> Option<Instant> {
    state.streams.in_flight();
    state.streams.stuck_since(at)
}

#[test]
fn a_kernel_is_timed_whatever_passes_on_other_streams() {
    let (mut producer, mut consumer) = ring();
    let (mut state, _asked, _remains) = timed();
    let (first, later) = (Instant::now(), Instant::now() + Duration::from_secs(1));
    producer.push(&launch(0)).unwrap();
    turn_until_nothing_moves(&mut state, &mut consumer);
    assert_eq!(stuck(&mut state, first), Some(first));
    let filled = producer.push(&fill(1)).unwrap();
    turn_until_nothing_moves(&mut state, &mut consumer);
    state.streams.page().set_mark(1, filled);
    assert_eq!(stuck(&mut state, later), Some(first));
    // What was taken off the device begins anew.
    state.streams.forget_stuck();
    assert_eq!(stuck(&mut state, later), Some(later));
}

#[test]
fn work_is_timed_from_when_it_was_submitted_and_not_from_when_somebody_looked() {
    let (mut producer, mut consumer) = ring();
    let (mut state, _asked, _remains) = timed();
    let before = Instant::now();
    producer.push(&launch(0)).unwrap();
    turn_until_nothing_moves(&mut state, &mut consumer);
    let after = Instant::now();
    let since = stuck(&mut state, after + Duration::from_secs(1)).unwrap();
    assert!(before <= since && since <= after);
}

#[test]
fn no_wait_hides_a_kernel_that_came_before_it() {
    let (first, later) = (Instant::now(), Instant::now() + Duration::from_secs(1));
    for waits_for in 0..2 {
        let (mut producer, mut consumer) = ring();
        let (mut state, _asked, _remains) = timed();
        let other = producer.push(&launch(1)).unwrap();
        let own = producer.push(&launch(0)).unwrap();
        // For itself, or for another at a position that this will not come to.
        producer.push(&Record::WaitOn { stream: 0, on: waits_for, position: own }).unwrap();
        producer.push(&launch(0)).unwrap();
        turn_until_nothing_moves(&mut state, &mut consumer);
        assert_eq!(state.streams.held(), 0);
        assert_eq!(stuck(&mut state, first), Some(first));
        state.streams.page().set_mark(1, other);
        assert_eq!(stuck(&mut state, later), Some(first), "waits for {waits_for}");
    }
}

#[test]
fn a_stream_that_waits_for_another_does_not_run() {
    let (mut producer, mut consumer) = ring();
    let (mut state, _asked, _remains) = timed();
    let moment = |seconds| Instant::now() + Duration::from_secs(seconds);
    let (first, second, third) = (moment(0), moment(1), moment(2));
    let other = producer.push(&launch(1)).unwrap();
    let own = producer.push(&launch(0)).unwrap();
    producer.push(&Record::WaitOn { stream: 0, on: 1, position: other }).unwrap();
    producer.push(&launch(0)).unwrap();
    turn_until_nothing_moves(&mut state, &mut consumer);
    assert_eq!(stuck(&mut state, first), Some(first));
    // It comes to the wait; the other runs on.
    state.streams.page().set_mark(0, own);
    assert_eq!(stuck(&mut state, second), Some(first));
    state.streams.page().set_mark(1, other);
    assert_eq!(stuck(&mut state, third), Some(third), "it begins when the other is done");
}

#[test]
fn kernels_that_are_timed_have_a_mark_each() {
    for alone in [false, true] {
        let (mut producer, mut consumer) = ring();
        let (mut state, asked, _remains) = state_that_forms_runs();
        if alone {
            state.streams.be_alone(true, true);
        } else {
            state.streams.be_timed();
        }
        for _ in 0..100 {
            producer.push(&launch(0)).unwrap();
        }
        turn_until_nothing_moves(&mut state, &mut consumer);
        let marks = asked.order.lock().iter().filter(|entry| **entry == MARKED).count();
        assert_eq!(marks, 100, "alone: {alone}");
    }
}
