//! The books without sessions: what a module's line keeps from being given back.

use std::{rc::Weak, time::Duration};

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
    let marked = books.revoke(owner, handle, Extent::Whole, Duration::from_secs(1)).unwrap();
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
    let marked = books.revoke(owner, handle, Extent::Whole, Duration::ZERO).unwrap();
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
    books.revoke(owner, handle, Extent::Whole, Duration::ZERO).unwrap();
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
