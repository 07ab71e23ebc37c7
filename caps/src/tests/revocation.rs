//! The way back: severed, quiescent, reclaimed, in this order and never too early.

use super::*;
use crate::Error;

#[test]
fn an_object_is_not_quiescent_before_its_last_owner_has_acknowledged() {
    let mut world = World::new();
    let (handle, object) = world.buffer();
    let (id, _) = world.revoke(handle, Extent::Whole, 100);
    assert_eq!(world.settle(0), [], "its session may still admit work that names it");
    world.tree.severed(id, world.owner, None).unwrap();
    assert_eq!(world.settle(0), [(object, ObjectState::Quiescent)]);
}

#[test]
fn an_object_waits_for_every_revocation_that_ended_a_capability_for_it() {
    let mut world = World::new();
    let (other, _) = world.session();
    let (handle, object) = world.buffer();
    world.child(handle, other);
    let (first, _) = world.revoke(handle, Extent::Descendants, 100);
    let (second, _) = world.revoke(handle, Extent::Whole, 100);
    world.tree.severed(second, world.owner, None).unwrap();
    assert_eq!(world.settle(0), [], "the other session has not acknowledged the first one");
    world.tree.severed(first, other, None).unwrap();
    assert_eq!(world.settle(0), [(object, ObjectState::Quiescent)]);
}

#[test]
fn an_object_waits_for_what_its_owner_had_admitted_when_it_acknowledged() {
    let mut world = World::new();
    let (handle, object) = world.buffer();
    let (id, _) = world.revoke(handle, Extent::Whole, 100);
    world.tree.severed(id, world.owner, Some((world.line, 7))).unwrap();
    assert_eq!(world.moments(id), Moments { severed: true, ..Moments::default() });
    assert_eq!(world.settle(0), []);
    world.tree.completed(world.line, 6).unwrap();
    assert_eq!(world.settle(0), []);
    world.tree.completed(world.line, 7).unwrap();
    assert!(world.moments(id).quiescent, "a mark that only the owner knew of passes like every other");
    assert_eq!(world.settle(0), [(object, ObjectState::Quiescent)]);
}

#[test]
fn a_forgotten_revocation_goes_on() {
    let mut world = World::new();
    let (handle, object) = world.buffer();
    let (id, _) = world.revoke(handle, Extent::Whole, 100);
    world.tree.forget(id);
    assert_eq!(world.tree.moments(id, 0), Err(Error::Unknown("revocation")));
    assert_eq!(world.settle(0), []);
    world.tree.severed(id, world.owner, None).unwrap();
    assert_eq!(world.settle(0), [(object, ObjectState::Quiescent)]);
    assert_eq!(world.tree.severed(id, world.owner, None), Err(Error::Unknown("revocation")));
}

#[test]
fn a_late_acknowledgement_does_not_wait_for_the_line_that_took_the_place_of_a_closed_one() {
    let mut world = World::new();
    let (handle, _) = world.buffer();
    let (id, _) = world.revoke(handle, Extent::Whole, 100);
    let closed = world.line;
    world.tree.close_line(closed).unwrap();
    let line = world.tree.open_line(Some(world.owner));
    world.tree.submit(world.owner, line, &[]).unwrap();
    world.tree.severed(id, world.owner, Some((closed, 1))).unwrap();
    assert!(world.moments(id).quiescent);
    assert_eq!(world.tree.completed(closed, 1), Err(Error::Unknown("line")));
}

#[test]
fn an_owner_that_is_closed_counts_as_severed() {
    let mut world = World::new();
    let (handle, _) = world.buffer();
    let (id, _) = world.revoke(handle, Extent::Whole, 100);
    assert!(!world.moments(id).severed);
    assert_eq!(world.tree.close_owner(world.owner), Err(Error::InUse), "work of it may run on its line");
    world.tree.close_line(world.line).unwrap();
    world.tree.close_owner(world.owner).unwrap();
    assert!(world.moments(id).severed);
}

#[test]
fn only_an_owner_that_is_there_is_revoked() {
    let mut world = World::new();
    world.tree.close_line(world.line).unwrap();
    world.tree.close_owner(world.owner).unwrap();
    let refused = world.tree.revoke_owner(world.owner, 0, |_| ());
    assert_eq!(refused, Err(Error::Unknown("owner")));
}

#[test]
fn a_revocation_ends_exactly_the_descendants() {
    let mut world = World::new();
    let (other, _) = world.session();
    let (root, _) = world.buffer();
    let (stranger, _) = world.buffer();
    let left = world.child(root, other);
    let right = world.child(root, world.owner);
    let below_left = world.grandchild(other, left, world.owner);
    let below_right = world.child(right, other);
    let (_, ended) = world.revoke(right, Extent::Descendants, 0);
    assert_eq!(ended.iter().map(|one| one.handle).collect::<Vec<_>>(), [below_right]);
    assert!(world.lives(world.owner, right) && world.lives(other, left));
    let (_, ended) = world.revoke(root, Extent::Descendants, 0);
    assert_eq!(ended.len(), 3);
    for (owner, handle) in [(other, left), (world.owner, right), (world.owner, below_left)] {
        assert!(!world.lives(owner, handle));
        let one = ended.iter().find(|one| one.handle == handle).unwrap();
        assert_eq!(one.owner, owner);
    }
    let (_, ended) = world.revoke(root, Extent::Whole, 0);
    assert_eq!(ended.iter().map(|one| one.handle).collect::<Vec<_>>(), [root]);
    assert!(world.lives(world.owner, stranger));
}

#[test]
fn a_revocation_of_nothing_is_done_at_once() {
    let mut world = World::new();
    let (root, _) = world.buffer();
    let (id, ended) = world.revoke(root, Extent::Descendants, 0);
    assert_eq!(ended, []);
    assert_eq!(
        world.moments(id),
        Moments { severed: true, quiescent: true, reclaimed: true, overdue: false }
    );
}

#[test]
fn an_owner_is_revoked_with_trees_that_cross_others_and_come_back() {
    let mut world = World::new();
    let (owner, (other, _)) = (world.owner, world.session());
    let (own, _) = world.buffer();
    let (theirs, _) = world.tree.create(other, Kind::Buffer, BYTES).unwrap();
    let there = world.child(own, other);
    let back = world.grandchild(other, there, owner);
    let given = world.grandchild(other, theirs, owner);
    let given_back = world.child(given, other);
    let kept = world.grandchild(other, theirs, other);
    let mut ended = Vec::new();
    let id = world.tree.revoke_owner(owner, 0, |one| ended.push(one.handle)).unwrap();
    ended.sort_unstable_by_key(|handle| handle.slot);
    let mut expected = [own, there, back, given, given_back];
    expected.sort_unstable_by_key(|handle| handle.slot);
    assert_eq!(ended, expected);
    assert!(world.lives(other, theirs) && world.lives(other, kept));
    assert_eq!((world.tree.held(owner), world.tree.held(other), world.tree.live()), (0, 2, 2));
    world.tree.severed(id, owner, None).unwrap();
    assert!(!world.moments(id).severed, "the other held some of them");
    world.tree.severed(id, other, None).unwrap();
    assert!(world.moments(id).quiescent);
}

#[test]
fn a_chain_of_a_million_is_walked_without_a_stack() {
    let mut world = World::with(Limits { nodes_per_root: u32::MAX, ..limits() });
    let rich = world.tree.open_owner(u32::MAX);
    let (root, _) = world.buffer();
    let mut last = world.child(root, rich);
    for _ in 1..1_000_000 {
        last = world.grandchild(rich, last, rich);
    }
    let mut count = 0;
    world.tree.revoke(world.owner, root, Extent::Descendants, 0, |_| count += 1).unwrap();
    assert_eq!((count, world.tree.live()), (1_000_000, 1));
}

#[test]
fn a_revocation_waits_for_the_work_of_its_owners_and_of_modules_alone() {
    let mut world = World::new();
    let (other, their_line) = world.session();
    let module = world.tree.open_line(None);
    let (buffer, object) = world.buffer();
    let child = world.child(buffer, other);
    let mine = world.submit(world.owner, world.line, buffer);
    let theirs = world.submit(other, their_line, child);
    let modules = world.tree.uses(module, object).unwrap();
    let (id, _) = world.revoke(buffer, Extent::Descendants, 0);
    world.tree.severed(id, other, None).unwrap();
    assert_eq!(world.moments(id), Moments { severed: true, ..Moments::default() });
    world.tree.completed(their_line, theirs).unwrap();
    assert!(!world.moments(id).quiescent, "the module may still use it");
    world.tree.completed(module, modules).unwrap();
    assert!(world.moments(id).reclaimed, "the buffer has not ended, so nothing is to be given back");
    let (id, _) = world.revoke(buffer, Extent::Whole, 0);
    world.tree.severed(id, world.owner, None).unwrap();
    assert!(!world.moments(id).quiescent);
    world.tree.completed(world.line, mine).unwrap();
    assert!(world.moments(id).quiescent);
}

#[test]
fn the_moments_come_in_their_order() {
    let mut world = World::new();
    let (handle, object) = world.buffer();
    let mark = world.submit(world.owner, world.line, handle);
    let (id, _) = world.revoke(handle, Extent::Whole, 50);
    let mut expected = Moments::default();
    assert_eq!(world.moments(id), expected);
    assert_eq!(world.tree.object(object), ObjectState::Draining);
    assert_eq!(world.tree.free(object), Err(Error::InUse));
    world.tree.severed(id, world.owner, None).unwrap();
    expected.severed = true;
    assert_eq!(world.moments(id), expected);
    world.tree.completed(world.line, mark).unwrap();
    expected.quiescent = true;
    assert_eq!(world.moments(id), expected);
    assert_eq!(world.settle(0), [(object, ObjectState::Quiescent)]);
    assert_eq!(world.settle(0), [], "each change is told once");
    assert_eq!(world.moments(id), expected);
    world.tree.free(object).unwrap();
    assert_eq!(world.tree.free(object), Err(Error::Unknown("object")));
    expected.reclaimed = true;
    assert_eq!(world.moments(id), expected);
    assert_eq!(world.buffer().1, object, "its number is used again");
    assert_eq!(world.moments(id), expected, "by something else");
}

#[test]
fn what_is_overdue_is_quarantined_until_its_line_is_gone() {
    let mut world = World::new();
    let (handle, object) = world.buffer();
    world.submit(world.owner, world.line, handle);
    let (id, _) = world.revoke(handle, Extent::Whole, 50);
    world.tree.severed(id, world.owner, None).unwrap();
    assert_eq!(world.settle(50), []);
    assert_eq!(world.settle(51), [(object, ObjectState::Quarantined)]);
    assert_eq!(world.settle(u64::MAX), []);
    assert_eq!(world.tree.free(object), Err(Error::InUse));
    assert!(world.tree.moments(id, 51).unwrap().overdue && !world.tree.moments(id, 50).unwrap().overdue);
    world.tree.close_line(world.line).unwrap();
    assert_eq!(world.settle(51), [(object, ObjectState::Quiescent)]);
    assert!(world.tree.moments(id, 51).unwrap().quiescent);
    assert_eq!(world.tree.free(object), Ok(()));
}

#[test]
fn an_object_that_was_quarantined_leaves_with_its_last_use_too() {
    let mut world = World::new();
    let (handle, object) = world.buffer();
    let mark = world.submit(world.owner, world.line, handle);
    let (id, _) = world.revoke(handle, Extent::Whole, 0);
    world.tree.severed(id, world.owner, None).unwrap();
    world.settle(1);
    assert_eq!(world.tree.object(object), ObjectState::Quarantined);
    world.tree.completed(world.line, mark).unwrap();
    assert_eq!(world.settle(2), [(object, ObjectState::Quiescent)]);
}

#[test]
fn nothing_completes_that_was_not_submitted() {
    let mut world = World::new();
    let (handle, object) = world.buffer();
    world.tree.completed(world.line, u64::MAX).unwrap();
    let mark = world.submit(world.owner, world.line, handle);
    let (id, _) = world.revoke(handle, Extent::Whole, 0);
    world.tree.severed(id, world.owner, None).unwrap();
    assert!(!world.moments(id).quiescent, "a completion from before does not cover it");
    world.tree.completed(world.line, mark).unwrap();
    world.tree.completed(world.line, 0).unwrap();
    assert!(world.moments(id).quiescent, "a line does not go backwards");
    assert_eq!(world.settle(0), [(object, ObjectState::Quiescent)]);
}

#[test]
fn a_revocation_that_is_over_does_not_begin_again() {
    let mut world = World::new();
    let (handle, _) = world.buffer();
    let (id, _) = world.revoke(handle, Extent::Whole, 0);
    world.tree.severed(id, world.owner, None).unwrap();
    assert!(world.moments(id).quiescent);
    world.tree.severed(id, world.owner, Some((world.line, 99))).unwrap();
    assert!(world.moments(id).quiescent);
}
