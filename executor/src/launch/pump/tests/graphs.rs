//! Graphs that sessions write down.

use super::*;
use bulkhead_ring::{AFTER_MAX, NodePlace, NodeWork};

fn node(graph: u32, node: u32, work: NodeWork) -> Record {
    Record::Node { stream: 0, place: NodePlace { graph, node, is_early: false, is_change: false }, work }
}

fn change(stream: u32, graph: u32, node: u32, work: NodeWork) -> Record {
    Record::Node { stream, place: NodePlace { graph, node, is_early: false, is_change: true }, work }
}

fn kernel() -> NodeWork {
    let Record::Launch { launch, .. } = launch_of(0, ENTRY) else { unreachable!() };
    NodeWork::Launch(launch)
}

fn filled() -> NodeWork {
    let Record::Fill { to, offset, pattern, count, .. } = fill(0) else { unreachable!() };
    NodeWork::Fill { to, offset, pattern, count }
}

fn after(graph: u32, count: u32, first: u32) -> Record {
    let mut nodes = [0; AFTER_MAX];
    nodes[0] = first;
    Record::After { stream: 0, graph, count, nodes }
}

/// What the page says was refused so far.
fn refused(asked: &Asked) -> u64 {
    let page = asked.page.lock().clone().unwrap();
    bulkhead_ring::CompletionReader::new(page).refusals() & u64::from(u32::MAX)
}

fn ring() -> (Producer, Consumer) {
    let descriptor = bulkhead_ring::memory::create().unwrap();
    let map = || Ring::map(descriptor.as_fd()).unwrap();
    (Producer::new(map()), Consumer::new(map()))
}

#[test]
fn a_graph_is_made_by_the_device_and_launched_by_one_record() {
    let (mut producer, mut consumer) = ring();
    let (mut state, asked, _remains) = state_that_forms_runs();
    asked.makes_graphs.store(true, Ordering::Relaxed);
    for record in [
        node(0, 0, kernel()),
        after(0, 0, 0),
        node(0, 1, filled()),
        after(0, 1, 0),
        after(0, 1, 1),
        node(0, 2, NodeWork::Nothing),
        node(0, 3, kernel()),
        Record::MakeGraph { stream: 0, graph: 0 },
        Record::LaunchGraph { stream: 1, graph: 0 },
    ] {
        producer.push(&record).unwrap();
    }
    let last = producer.push(&Record::LaunchGraph { stream: 1, graph: 0 }).unwrap();
    turn_until_nothing_moves(&mut state, &mut consumer);
    assert_eq!(refused(&asked), 0);
    let before: Vec<Vec<u32>> = asked.made.lock().iter().map(|node| node.before.clone()).collect();
    assert_eq!(before, [vec![], vec![], vec![0, 1], vec![2]]);
    assert_eq!(*asked.order.lock(), [GRAPH, GRAPH, MARKED], "nothing but what was launched is waited for");
    assert!(!state.streams.passed(1, last));
    producer.push(&Record::DestroyGraph { stream: 0, graph: 0 }).unwrap();
    producer.push(&Record::LaunchGraph { stream: 1, graph: 0 }).unwrap();
    turn_until_nothing_moves(&mut state, &mut consumer);
    assert_eq!((refused(&asked), asked.destroyed.load(Ordering::Relaxed)), (1, 1));
}

#[test]
fn a_graph_that_the_device_makes_none_of_is_done_node_by_node() {
    let (mut producer, mut consumer) = ring();
    let (mut state, asked, _remains) = state_that_forms_runs();
    for record in [
        node(7, 0, kernel()),
        node(7, 1, filled()),
        Record::MakeGraph { stream: 0, graph: 7 },
        Record::LaunchGraph { stream: 2, graph: 7 },
        change(2, 7, 0, kernel()),
        Record::LaunchGraph { stream: 2, graph: 7 },
    ] {
        producer.push(&record).unwrap();
    }
    turn_until_nothing_moves(&mut state, &mut consumer);
    assert_eq!(refused(&asked), 0);
    assert_eq!(*asked.order.lock(), [CONFINED, FILLED, CONFINED, FILLED, MARKED]);
}

#[test]
fn a_kernel_begins_early_behind_one_kernel_only() {
    let (mut producer, mut consumer) = ring();
    let (mut state, asked, _remains) = state_that_forms_runs();
    asked.makes_graphs.store(true, Ordering::Relaxed);
    let early = |number, work| {
        let place = NodePlace { graph: 0, node: number, is_early: true, is_change: false };
        Record::Node { stream: 0, place, work }
    };
    let mut both = [0; AFTER_MAX];
    both[1] = 1;
    for record in [
        // The first; behind a kernel; not a kernel; behind what is none; behind two.
        early(0, kernel()),
        early(1, kernel()),
        early(2, filled()),
        early(3, kernel()),
        Record::After { stream: 0, graph: 0, count: 2, nodes: both },
        early(4, kernel()),
        Record::MakeGraph { stream: 0, graph: 0 },
    ] {
        producer.push(&record).unwrap();
    }
    turn_until_nothing_moves(&mut state, &mut consumer);
    let made = asked.made.lock();
    let early: Vec<bool> = made.iter().map(|node| node.is_early).collect();
    assert_eq!((refused(&asked), early), (0, vec![false, true, false, false, false]));
}

#[test]
fn a_change_comes_behind_launches_that_are_held() {
    let (mut producer, mut consumer) = ring();
    let opener = producer.opener();
    let (mut state, asked, _remains) = state_that_forms_runs();
    asked.makes_graphs.store(true, Ordering::Relaxed);
    for record in [
        barrier(1, 1),
        node(0, 0, kernel()),
        Record::MakeGraph { stream: 0, graph: 0 },
        Record::LaunchGraph { stream: 1, graph: 0 },
        change(1, 0, 0, kernel()),
        Record::LaunchGraph { stream: 1, graph: 0 },
    ] {
        producer.push(&record).unwrap();
    }
    turn_until_nothing_moves(&mut state, &mut consumer);
    assert_eq!((state.streams.held(), asked.made.lock().len()), (4, 1), "it is made all the same");
    assert!(asked.order.lock().is_empty());
    opener.open(1, 1);
    turn_until_nothing_moves(&mut state, &mut consumer);
    assert_eq!(*asked.order.lock(), [GRAPH, CHANGED, GRAPH, MARKED]);
}

#[test]
fn what_makes_no_graph_is_refused_and_ends_nothing() {
    let (mut producer, mut consumer) = ring();
    let (mut state, asked, _remains) = state_that_forms_runs();
    let unknown = Bind { slot: 9, generation: 9 };
    let copy = bulkhead_ring::Copy { to: unknown, to_offset: 0, from: unknown, from_offset: 0, bytes: 4 };
    let refusals = [
        // Not the next node; a node that there is not; before anything.
        node(0, 1, kernel()),
        after(0, 1, 0),
        change(1, 0, 0, kernel()),
        Record::MakeGraph { stream: 0, graph: 1 },
        Record::LaunchGraph { stream: 1, graph: 1 },
        Record::DestroyGraph { stream: 0, graph: 1 },
        node(0, 0, NodeWork::Copy(copy)),
    ];
    for record in &refusals {
        producer.push(record).unwrap();
    }
    turn_until_nothing_moves(&mut state, &mut consumer);
    assert_eq!(refused(&asked), refusals.len() as u64);
    // A part of that graph was refused, so the rest of it is never launched.
    producer.push(&node(0, 0, kernel())).unwrap();
    producer.push(&Record::MakeGraph { stream: 0, graph: 0 }).unwrap();
    producer.push(&Record::LaunchGraph { stream: 1, graph: 0 }).unwrap();
    // One that is not finished is not launched, one that is grows no more, and a node keeps its kind.
    producer.push(&node(2, 0, kernel())).unwrap();
    producer.push(&Record::LaunchGraph { stream: 1, graph: 2 }).unwrap();
    producer.push(&Record::MakeGraph { stream: 0, graph: 2 }).unwrap();
    producer.push(&node(2, 1, kernel())).unwrap();
    producer.push(&after(2, 1, 0)).unwrap();
    producer.push(&change(1, 2, 0, filled())).unwrap();
    producer.push(&change(1, 2, 0, NodeWork::Nothing)).unwrap();
    producer.push(&change(1, 2, 1, kernel())).unwrap();
    turn_until_nothing_moves(&mut state, &mut consumer);
    assert_eq!(refused(&asked), refusals.len() as u64 + 8);
    assert!(asked.launched.lock().is_empty());
    // Whatever was refused held up nobody.
    let last = producer.push(&Record::LaunchGraph { stream: 1, graph: 2 }).unwrap();
    turn_until_nothing_moves(&mut state, &mut consumer);
    assert_eq!(asked.launched.lock().len(), 1);
    state.streams.page().set_mark(1, last);
    assert!(state.streams.passed(1, last));
}

#[test]
fn guarded_sessions_have_no_graphs() {
    let (mut producer, mut consumer) = ring();
    let (mut state, asked) = state_and_launches();
    producer.push(&after(0, 0, 0)).unwrap();
    producer.push(&node(0, 0, filled())).unwrap();
    producer.push(&Record::MakeGraph { stream: 0, graph: 0 }).unwrap();
    producer.push(&Record::LaunchGraph { stream: 0, graph: 0 }).unwrap();
    turn_until_nothing_moves(&mut state, &mut consumer);
    assert_eq!((refused(&asked), state.graphs.count()), (4, 0));
}

#[test]
fn an_image_stays_loaded_until_what_its_graphs_launched_has_passed() {
    let (mut producer, mut consumer) = ring();
    let (mut state, _asked, [remains, _other]) = state_that_forms_runs();
    producer.push(&node(0, 0, kernel())).unwrap();
    producer.push(&Record::MakeGraph { stream: 0, graph: 0 }).unwrap();
    let last = producer.push(&Record::LaunchGraph { stream: 1, graph: 0 }).unwrap();
    turn_until_nothing_moves(&mut state, &mut consumer);
    drop(state.bindings.unbind(ENTRY));
    assert!(!remains.has_some(), "its graph keeps it");
    producer.push(&Record::DestroyGraph { stream: 0, graph: 0 }).unwrap();
    turn_until_nothing_moves(&mut state, &mut consumer);
    assert!(!remains.has_some(), "what it launched has not passed");
    assert_eq!(state.waiters.len(), 1);
    state.streams.page().set_mark(1, last);
    // As the pump does between two turns.
    let passed = state.streams.all_passed(last);
    assert!(passed);
    state.waiters.clear();
    assert!(remains.has_some());
}

#[test]
fn a_graph_one_of_whose_nodes_is_refused_is_in_flight_all_the_same() {
    let (mut producer, mut consumer) = ring();
    let (mut state, asked, _remains) = state_that_forms_runs();
    let broken = || {
        let Record::Launch { launch, .. } = launch_of(0, BROKEN_ENTRY) else { unreachable!() };
        NodeWork::Launch(launch)
    };
    for record in [
        node(0, 0, kernel()),
        node(0, 1, broken()),
        node(0, 2, filled()),
        Record::MakeGraph { stream: 0, graph: 0 },
        Record::LaunchGraph { stream: 1, graph: 0 },
    ] {
        producer.push(&record).unwrap();
    }
    turn_until_nothing_moves(&mut state, &mut consumer);
    assert_eq!((refused(&asked), state.streams.in_flight()), (1, 1));
    assert_eq!(*asked.order.lock(), [CONFINED, FILLED, MARKED]);
}
