//! The registry without sessions: what a module's line keeps from being given back.

use std::{rc::Weak, time::Duration};

use bulkhead_schema::bulkhead_capnp::Moment;
use futures::FutureExt as _;
use tokio::sync::watch;

use super::*;
use crate::session::{Object, Registry};

/// An object of an owner that is no session.
fn made(registry: &Registry) -> (Owner, Handle, ObjectId) {
    let (owner, line) = registry.open(8);
    registry.close_line(line);
    let thing = Object::new(Weak::new(), What::Point(watch::Sender::new(None)));
    let (handle, object, _) = registry.create(owner, Kind::Signal, 0, thing).unwrap();
    (owner, handle, object)
}

#[tokio::test]
async fn what_a_module_uses_is_given_back_once_its_work_has_passed() {
    let registry = Registry::new(Rc::default());
    let (owner, handle, object) = made(&registry);
    let line = registry.open_module_line();
    let (early, late) = (registry.uses(line, object).unwrap(), registry.uses(line, object).unwrap());
    let marked =
        registry.revoke(owner, Hurry::AllBut(owner), handle, Extent::Whole, Duration::from_secs(1)).unwrap();
    let moments = || registry.moments(marked.id).unwrap();
    assert!(moments().severed && !moments().quiescent, "the module's work may still reach it");
    registry.completed(line, early);
    assert!(!moments().quiescent && registry.thing(object).is_ok());
    registry.completed(line, late);
    assert!(moments().quiescent && moments().reclaimed);
    assert!(registry.thing(object).is_err());
    registry.forget(marked.id);
    registry.close_line(line);
    registry.close_owner(owner);
    assert_eq!(registry.leftovers(), None);
}

#[tokio::test]
async fn a_module_that_is_gone_uses_nothing() {
    let registry = Registry::new(Rc::default());
    let (owner, handle, object) = made(&registry);
    let line = registry.open_module_line();
    registry.uses(line, object).unwrap();
    let marked = registry.revoke(owner, Hurry::AllBut(owner), handle, Extent::Whole, Duration::ZERO).unwrap();
    tokio::time::sleep(Duration::from_millis(2)).await;
    registry.settle();
    assert!(registry.moments(marked.id).unwrap().overdue);
    assert_eq!(registry.state(object), ObjectState::Quarantined);
    registry.close_line(line);
    assert_eq!(registry.state(object), ObjectState::Free);
}

#[tokio::test]
async fn what_is_left_is_told() {
    let registry = Registry::new(Rc::default());
    let (owner, handle, _) = made(&registry);
    assert!(registry.leftovers().unwrap().starts_with("1 capabilities, 1 objects"));
    registry.revoke(owner, Hurry::AllBut(owner), handle, Extent::Whole, Duration::ZERO).unwrap();
    registry.close_owner(owner);
    assert_eq!(registry.leftovers(), None);
    registry.close_owner(owner);
    assert!(registry.leftovers().is_some(), "it cannot be closed twice");
}

#[tokio::test]
async fn what_ends_together_is_given_back_in_turns_with_others() {
    const OBJECTS: usize = 10 * GIVEN_BACK_AT_ONCE;
    let registry = Registry::new(Rc::default());
    let (owner, line) = registry.open(u32::try_from(OBJECTS).unwrap());
    registry.close_line(line);
    for _ in 0..OBJECTS {
        let thing = Object::new(Weak::new(), What::Point(watch::Sender::new(None)));
        registry.create(owner, Kind::Signal, 0, thing).unwrap();
    }
    let marked = registry.revoke_owner(owner, Duration::from_secs(1)).unwrap();
    assert_eq!(marked.count as usize, OBJECTS, "all of it is marked in one step");
    let left = || registry.things.borrow().iter().flatten().count();
    let others = async {
        let mut turns = 0;
        while left() > 0 {
            let before = left();
            tokio::task::yield_now().await;
            assert!(before - left() <= GIVEN_BACK_AT_ONCE, "{before} objects, then {}", left());
            turns += 1;
        }
        turns
    };
    assert!(left() >= OBJECTS - GIVEN_BACK_AT_ONCE);
    let turns = tokio::select! {
        biased;
        () = registry.give_back_the_rest() => unreachable!("it never ends"),
        turns = others => turns,
    };
    assert!(turns >= OBJECTS / GIVEN_BACK_AT_ONCE - 1, "{turns} turns");
    assert!(registry.moments(marked.id).unwrap().reclaimed);
    registry.forget(marked.id);
    registry.close_owner(owner);
    assert_eq!(registry.leftovers(), None);
}

/// A completion point of an owner that is no session, and whoever waits for it.
fn point(registry: &Registry, owner: Owner) -> (Handle, watch::Receiver<Passed>) {
    let sender = watch::Sender::new(None);
    let waiting = sender.subscribe();
    let thing = Object::new(Weak::new(), What::Point(sender));
    let (handle, _, _) = registry.create(owner, Kind::Fence, 0, thing).unwrap();
    (handle, waiting)
}

#[tokio::test]
async fn who_waits_for_what_has_ended_is_woken_alone() {
    let registry = Registry::new(Rc::default());
    let (owner, line) = registry.open(8);
    registry.close_line(line);
    let ((first, mut ending), (_, mut staying)) = (point(&registry, owner), point(&registry, owner));
    // No session is known by this owner's name, so what ends is told as the registry tells a session's.
    let ended = registry.look(owner, first).map(|view| Ended {
        handle: first,
        owner,
        object: view.object,
        kind: view.kind,
        is_first: true,
        heir: None,
    });
    registry.wake_those_who_wait_for(&[ended.unwrap()]);
    assert!(ending.changed().now_or_never().is_some(), "its capability has ended");
    assert!(staying.changed().now_or_never().is_none(), "others are of no concern to it");
}

#[tokio::test]
async fn who_waits_for_a_revocation_is_woken_when_it_is_further_and_not_for_others() {
    let registry = Registry::new(Rc::default());
    let (owner, handle, object) = made(&registry);
    let line = registry.open_module_line();
    let used = registry.uses(line, object).unwrap();
    let revoke = |owner, handle| {
        let marked = registry
            .revoke(owner, Hurry::AllBut(owner), handle, Extent::Whole, Duration::from_secs(1))
            .unwrap();
        registry.follow(marked)
    };
    let asked = revoke(owner, handle);
    let tell = async || {
        tokio::select! {
            biased;
            () = registry.tell_who_waits() => unreachable!("it never ends"),
            () = async { for _ in 0..4 { tokio::task::yield_now().await } } => {}
        }
    };
    registry.settle();
    tell().await;
    let mut further = std::pin::pin!(asked.further());
    assert!(further.as_mut().now_or_never().is_none());
    // Others come and go.
    for _ in 0..10 {
        let (owner, handle, _) = made(&registry);
        registry.forget(revoke(owner, handle).id);
        tell().await;
        assert!(further.as_mut().now_or_never().is_none(), "it is as far as it was");
    }
    registry.completed(line, used);
    tell().await;
    assert!(further.as_mut().now_or_never().is_some(), "its last work has passed");
    assert!(asked.has_reached(&registry, Moment::Quiescent).unwrap());
}

#[tokio::test]
async fn batches_that_were_let_go_of_are_not_kept_however_many_there_are() {
    let registry = Registry::new(Rc::default());
    let (owner, _, _) = made(&registry);
    let mut lingering = Lingering::default();
    let held: Vec<_> = (0..10).map(|number| Rc::new(Batch::new(owner, number))).collect();
    held.iter().for_each(|batch| lingering.add(batch));
    for number in 10..10_000 {
        let batch = Rc::new(Batch::new(owner, number));
        lingering.add(&batch);
        batch.reach(Stage::Quiescent);
        // What no work reaches and is mapped is held still.
        assert!(batch.is_held());
        batch.is_mapped.set(false);
        assert!(!batch.is_held());
    }
    assert!(lingering.batches().count() <= 40, "{}", lingering.batches().count());
    let is_there = |batch: &Rc<Batch>| lingering.batches().any(|known| Rc::ptr_eq(known, batch));
    assert!(held.iter().all(is_there), "all that are held, and not the latest alone");
}

#[tokio::test]
async fn copies_of_very_many_batches_have_them_in_common_and_each_is_looked_at_once() {
    const BATCHES: u64 = 10_000;
    let registry = Registry::new(Rc::default());
    let (owner, _, _) = made(&registry);
    let batches: Vec<_> = (0..BATCHES).map(|number| Rc::new(Batch::new(owner, number))).collect();
    let mut lingering = Lingering::default();
    batches.iter().for_each(|batch| lingering.add(batch));
    let copies: Vec<_> = (0..100).map(|_| lingering.clone()).collect();
    // One of its own besides its place in what is common, and in the rest of a copy at most.
    assert!(batches.iter().all(|batch| Rc::strong_count(batch) <= 102));
    let in_common = batches.iter().filter(|batch| Rc::strong_count(batch) == 2).count();
    assert!(in_common > 9000, "{in_common}");
    assert_eq!(lingering.first_before(0, Stage::Severed), 0);
    for (reached, batch) in batches.iter().enumerate() {
        batch.reach(Stage::Severed);
        assert_eq!(lingering.first_before(reached, Stage::Severed), reached + 1);
    }
    assert_eq!(lingering.first_before(lingering.count(), Stage::Severed), lingering.count());
    let mut twice = lingering.clone();
    twice.extend(&lingering);
    twice.extend(&lingering);
    assert!(twice.count() <= 2 * lingering.count(), "each is kept once: {}", twice.count());
    drop(copies);
}
