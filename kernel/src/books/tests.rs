//! The books without sessions: what a module's line keeps from being given back.

use std::{rc::Weak, time::Duration};

use bulkhead_schema::bulkhead_capnp::Moment;
use futures::FutureExt as _;
use tokio::sync::watch;

use super::*;

/// An object of an owner that is no session.
fn made(books: &Books) -> (Owner, Handle, ObjectId) {
    let (owner, line) = books.open(8);
    books.close_line(line);
    let thing = Thing::new(Weak::new(), What::Point(watch::Sender::new(None)));
    let (handle, object, _) = books.create(owner, Kind::Signal, 0, thing).unwrap();
    (owner, handle, object)
}

#[tokio::test]
async fn what_a_module_uses_is_given_back_once_its_work_has_passed() {
    let books = Books::new();
    let (owner, handle, object) = made(&books);
    let line = books.open_module_line();
    let (early, late) = (books.uses(line, object).unwrap(), books.uses(line, object).unwrap());
    let marked =
        books.revoke((owner, Hurry::AllBut(owner)), handle, Extent::Whole, Duration::from_secs(1)).unwrap();
    let moments = || books.moments(marked.id).unwrap();
    assert!(moments().severed && !moments().quiescent, "the module's work may still reach it");
    books.completed(line, early);
    assert!(!moments().quiescent && books.thing(object).is_ok());
    books.completed(line, late);
    assert!(moments().quiescent && moments().reclaimed);
    assert!(books.thing(object).is_err());
    books.forget(marked.id);
    books.close_line(line);
    books.close_owner(owner);
    assert_eq!(books.leftovers(), None);
}

#[tokio::test]
async fn a_module_that_is_gone_uses_nothing() {
    let books = Books::new();
    let (owner, handle, object) = made(&books);
    let line = books.open_module_line();
    books.uses(line, object).unwrap();
    let marked = books.revoke((owner, Hurry::AllBut(owner)), handle, Extent::Whole, Duration::ZERO).unwrap();
    tokio::time::sleep(Duration::from_millis(2)).await;
    books.settle();
    assert!(books.moments(marked.id).unwrap().overdue);
    assert_eq!(books.state(object), ObjectState::Quarantined);
    books.close_line(line);
    assert_eq!(books.state(object), ObjectState::Free);
}

#[tokio::test]
async fn what_is_left_is_told() {
    let books = Books::new();
    let (owner, handle, _) = made(&books);
    assert!(books.leftovers().unwrap().starts_with("1 capabilities, 1 objects"));
    books.revoke((owner, Hurry::AllBut(owner)), handle, Extent::Whole, Duration::ZERO).unwrap();
    books.close_owner(owner);
    assert_eq!(books.leftovers(), None);
    books.close_owner(owner);
    assert!(books.leftovers().is_some(), "it cannot be closed twice");
}

#[tokio::test]
async fn what_ends_together_is_given_back_in_turns_with_others() {
    const OBJECTS: usize = 10 * GIVEN_BACK_AT_ONCE;
    let books = Books::new();
    let (owner, line) = books.open(u32::try_from(OBJECTS).unwrap());
    books.close_line(line);
    for _ in 0..OBJECTS {
        let thing = Thing::new(Weak::new(), What::Point(watch::Sender::new(None)));
        books.create(owner, Kind::Signal, 0, thing).unwrap();
    }
    let marked = books.revoke_owner(owner, Duration::from_secs(1)).unwrap();
    assert_eq!(marked.count as usize, OBJECTS, "all of it is marked in one step");
    let left = || books.things.borrow().iter().flatten().count();
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
        () = books.give_back_the_rest() => unreachable!("it never ends"),
        turns = others => turns,
    };
    assert!(turns >= OBJECTS / GIVEN_BACK_AT_ONCE - 1, "{turns} turns");
    assert!(books.moments(marked.id).unwrap().reclaimed);
    books.forget(marked.id);
    books.close_owner(owner);
    assert_eq!(books.leftovers(), None);
}

/// A completion point of an owner that is no session, and whoever waits for it.
fn point(books: &Books, owner: Owner) -> (Handle, watch::Receiver<crate::fence::Passed>) {
    let sender = watch::Sender::new(None);
    let waiting = sender.subscribe();
    let thing = Thing::new(Weak::new(), What::Point(sender));
    let (handle, _, _) = books.create(owner, Kind::Fence, 0, thing).unwrap();
    (handle, waiting)
}

#[tokio::test]
async fn who_waits_for_what_has_ended_is_woken_alone() {
    let books = Books::new();
    let (owner, line) = books.open(8);
    books.close_line(line);
    let ((first, mut ending), (_, mut staying)) = (point(&books, owner), point(&books, owner));
    // No session is known by this owner's name, so what ends is told as the books tell a session's.
    let ended = books.look(owner, first).map(|view| Ended {
        handle: first,
        owner,
        object: view.object,
        kind: view.kind,
        is_first: true,
        heir: None,
    });
    books.wake_those_who_wait_for(&[ended.unwrap()]);
    assert!(ending.changed().now_or_never().is_some(), "its capability has ended");
    assert!(staying.changed().now_or_never().is_none(), "others are of no concern to it");
}

#[tokio::test]
async fn who_waits_for_a_revocation_is_woken_when_it_is_further_and_not_for_others() {
    let books = Books::new();
    let (owner, handle, object) = made(&books);
    let line = books.open_module_line();
    let used = books.uses(line, object).unwrap();
    let revoke = |owner, handle| {
        let marked = books
            .revoke((owner, Hurry::AllBut(owner)), handle, Extent::Whole, Duration::from_secs(1))
            .unwrap();
        books.follow(marked)
    };
    let asked = revoke(owner, handle);
    let tell = async || {
        tokio::select! {
            biased;
            () = books.tell_who_waits() => unreachable!("it never ends"),
            () = async { for _ in 0..4 { tokio::task::yield_now().await } } => {}
        }
    };
    books.settle();
    tell().await;
    let mut further = std::pin::pin!(asked.further());
    assert!(further.as_mut().now_or_never().is_none());
    // Others come and go.
    for _ in 0..10 {
        let (owner, handle, _) = made(&books);
        books.forget(revoke(owner, handle).id);
        tell().await;
        assert!(further.as_mut().now_or_never().is_none(), "it is as far as it was");
    }
    books.completed(line, used);
    tell().await;
    assert!(further.as_mut().now_or_never().is_some(), "its last work has passed");
    assert!(asked.has_reached(&books, Moment::Quiescent).unwrap());
}

#[tokio::test]
async fn batches_that_were_let_go_of_are_not_kept_however_many_there_are() {
    let books = Books::new();
    let (owner, _, _) = made(&books);
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
    let books = Books::new();
    let (owner, _, _) = made(&books);
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
