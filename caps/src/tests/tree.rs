//! Capabilities: what names them, how far they reach, how many there may be.

use super::*;
use crate::{Error, View};

/// What a derivation from a buffer's handle answers.
fn derived(world: &mut World, parent: Handle, need: Need) -> Result<Handle, Error> {
    world.tree.derive(world.owner, parent, Child { owner: world.owner, need })
}

#[test]
fn a_derived_capability_cannot_reach_further_than_its_parent() {
    let mut world = World::new();
    let (buffer, _) = world.buffer();
    let part = derived(&mut world, buffer, read_write(4096, 4096)).unwrap();
    for (offset, bytes) in
        [(0, 4097), (4096, 1), (4097, 0), (1, 4096), (u64::MAX, 1), (1, u64::MAX), (u64::MAX, u64::MAX)]
    {
        let refused = Err(Error::OutOfReach { handle: part, offset, bytes, reach: 4096 });
        assert_eq!(derived(&mut world, part, read_write(offset, bytes)), refused);
        let got = world.tree.get(world.owner, part, read_write(offset, bytes));
        assert_eq!(got.map(|_| part), refused);
    }
    let inner = derived(&mut world, part, read_write(4096, 0)).unwrap();
    assert_eq!(
        world.tree.look(world.owner, inner).unwrap().offset,
        8192,
        "offsets count from the object's start"
    );
}

#[test]
fn a_capability_to_read_has_no_child_that_writes() {
    let mut world = World::new();
    let (buffer, _) = world.buffer();
    let view = derived(&mut world, buffer, read(0, 8)).unwrap();
    let refused = Error::NotAllowed { handle: view, allowed: Access::Read };
    assert_eq!(derived(&mut world, view, read_write(0, 8)), Err(refused));
    assert_eq!(world.tree.get(world.owner, view, read_write(0, 8)), Err(refused));
    let line = world.line;
    assert_eq!(world.tree.submit(world.owner, line, &[(view, read_write(0, 8))]), Err(refused));
    assert!(world.tree.get(world.owner, view, read(0, 8)).is_ok());
}

#[test]
fn kinds_become_weaker_and_nothing_else() {
    const KINDS: [Kind; 10] = [
        Kind::Buffer,
        Kind::HostBuffer,
        Kind::Image,
        Kind::Entry,
        Kind::Fence,
        Kind::Signal,
        Kind::Program,
        Kind::Peer,
        Kind::Module,
        Kind::Gates,
    ];
    let weaker = |kind| match kind {
        Kind::Image => vec![Kind::Entry],
        Kind::Signal => vec![Kind::Signal, Kind::Fence],
        Kind::Module => vec![Kind::Module, Kind::Gates],
        same => vec![same],
    };
    for from in KINDS {
        let mut world = World::new();
        let (handle, object) = world.tree.create(world.owner, from, 8).unwrap();
        for to in KINDS {
            let need = Need { kind: to, ..read(0, 8) };
            let answer = derived(&mut world, handle, need);
            if weaker(from).contains(&to) {
                let child = answer.unwrap();
                assert_eq!(world.tree.get(world.owner, child, need), Ok(object));
            } else {
                assert_eq!(answer, Err(Error::WrongKind { handle, found: from, expected: to }));
            }
        }
    }
}

#[test]
fn a_handle_names_nothing_for_anybody_but_its_owner() {
    let mut world = World::new();
    let (other, line) = world.session();
    let (handle, _) = world.buffer();
    let stale = Error::Stale { handle };
    assert_eq!(world.tree.look(other, handle), Err(stale));
    assert_eq!(world.tree.get(other, handle, read(0, 0)), Err(stale));
    assert_eq!(world.tree.submit(other, line, &[(handle, read(0, 0))]), Err(stale));
    assert_eq!(world.tree.derive(other, handle, Child { owner: other, need: read(0, 0) }), Err(stale));
    assert_eq!(world.tree.revoke(other, handle, Extent::Whole, 0, |_| ()), Err(stale));
    assert!(world.lives(world.owner, handle));
}

#[test]
fn a_forged_handle_names_nothing() {
    let mut world = World::new();
    let (handle, _) = world.buffer();
    for (slot, generation) in [
        (0, 0),
        (handle.slot, handle.generation + 1),
        (handle.slot, 0),
        (handle.slot + 1, 1),
        (u32::MAX, 1),
        (u32::MAX, u32::MAX),
    ] {
        let forged = Handle { slot, generation };
        assert_eq!(world.tree.look(world.owner, forged), Err(Error::Stale { handle: forged }));
    }
}

#[test]
fn the_handle_that_a_free_slot_will_be_named_by_names_nothing_yet() {
    let mut world = World::new();
    let (handle, _) = world.buffer();
    world.revoke(handle, Extent::Whole, 0);
    let next = Handle { slot: handle.slot, generation: handle.generation + 1 };
    assert!(!world.lives(world.owner, handle) && !world.lives(world.owner, next));
    assert_eq!(world.buffer().0, next);
    assert!(!world.lives(world.owner, handle) && world.lives(world.owner, next));
}

#[test]
fn a_worn_out_slot_is_never_used_again() {
    for last_generation in [0, 1, 3, u32::MAX] {
        let mut world = World::with(Limits { last_generation, ..limits() });
        let mut issued = Vec::new();
        if last_generation == u32::MAX {
            // As if it had been used that often.
            let (handle, _) = world.buffer();
            world.revoke(handle, Extent::Whole, 0);
            world.tree.nodes[0].generation = u32::MAX - 1;
        }
        for _ in 0..9 {
            let (handle, _) = world.buffer();
            assert!(!issued.contains(&handle), "{handle:?} was issued before");
            issued.push(handle);
            world.revoke(handle, Extent::Whole, 0);
            let zero = Handle { slot: handle.slot, generation: 0 };
            assert!(issued.iter().chain([&zero]).all(|handle| !world.lives(world.owner, *handle)));
        }
        let slots = issued.iter().map(|handle| handle.slot).max().unwrap() + 1;
        assert_eq!(
            slots,
            match last_generation {
                0 | 1 => 9,
                3 => 3,
                _ => 2,
            }
        );
    }
}

#[test]
fn slots_are_used_again_in_the_order_they_were_freed() {
    let mut world = World::new();
    let handles: Vec<Handle> = (0..3).map(|_| world.buffer().0).collect();
    for slot in [1, 0, 2] {
        world.revoke(handles[slot], Extent::Whole, 0);
    }
    let again: Vec<u32> = (0..3).map(|_| world.buffer().0.slot).collect();
    assert_eq!(again, [1, 0, 2]);
}

#[test]
fn no_owner_holds_more_than_its_limit() {
    let mut world = World::new();
    let (buffer, _) = world.buffer();
    let poor = world.tree.open_owner(2);
    let full = Error::Full { limit: 2 };
    let first = world.child(buffer, poor);
    world.child(buffer, poor);
    let third = Child { owner: poor, need: read(0, 8) };
    assert_eq!(world.tree.derive(world.owner, buffer, third), Err(full));
    assert_eq!(world.tree.create(poor, Kind::Buffer, 1), Err(full));
    assert_eq!((world.tree.held(poor), world.tree.live()), (2, 3), "nothing has changed");
    world.tree.revoke(poor, first, Extent::Whole, 0, |_| ()).unwrap();
    assert!(world.tree.create(poor, Kind::Buffer, 1).is_ok(), "what has ended counts no more");
}

#[test]
fn no_root_has_more_descendants_than_the_limit() {
    let mut world = World::with(Limits { nodes_per_root: 3, ..limits() });
    let (owner, full) = (world.owner, Error::TreeFull { limit: 3 });
    let (root, _) = world.buffer();
    let child = world.child(root, owner);
    let grandchild = world.child(child, owner);
    for parent in [root, child, grandchild] {
        assert_eq!(derived(&mut world, parent, read(0, 8)), Err(full));
    }
    let (second, _) = world.buffer();
    assert!(derived(&mut world, second, read(0, 8)).is_ok(), "every root has its own");
    world.revoke(child, Extent::Descendants, 0);
    let again = world.child(child, owner);
    assert_eq!(derived(&mut world, again, read(0, 8)), Err(full));
    world.revoke(root, Extent::Descendants, 0);
    world.child(root, owner);
    world.child(root, owner);
    assert_eq!(derived(&mut world, root, read(0, 8)), Err(full));
}

#[test]
fn an_object_that_is_not_there_takes_no_mark() {
    let mut world = World::new();
    let (handle, object) = world.buffer();
    let (id, _) = world.revoke(handle, Extent::Whole, 0);
    world.tree.severed(id, world.owner, None).unwrap();
    assert_eq!(world.settle(0), [(object, ObjectState::Quiescent)]);
    let unknown = Err(Error::Unknown("object"));
    assert_eq!(world.tree.uses(world.line, object), unknown, "nobody may use it any more");
    world.tree.free(object).unwrap();
    assert_eq!(world.tree.uses(world.line, object), unknown);
    assert_eq!(world.tree.submit(world.owner, world.line, &[]), Ok(1), "what was refused left no mark");
}

#[test]
fn work_that_is_refused_leaves_no_mark() {
    let mut world = World::new();
    let (good, object) = world.buffer();
    let (bad, _) = world.buffer();
    world.revoke(bad, Extent::Whole, 0);
    let names = [(good, read(0, 8)), (bad, read(0, 8))];
    assert_eq!(world.tree.submit(world.owner, world.line, &names), Err(Error::Stale { handle: bad }));
    assert_eq!(world.tree.uses(world.line, object), Ok(1));
}

#[test]
fn work_is_admitted_on_lines_of_ones_own_only() {
    let mut world = World::new();
    let (_, theirs) = world.session();
    let (handle, _) = world.buffer();
    let refused = world.tree.submit(world.owner, theirs, &[(handle, read(0, 1))]);
    assert_eq!(refused, Err(Error::Unknown("line")));
    let module = world.tree.open_line(None);
    assert_eq!(world.tree.submit(world.owner, module, &[(handle, read(0, 1))]), Ok(1));
}

#[test]
fn owners_lines_and_objects_that_are_gone_are_unknown() {
    let mut world = World::new();
    let (owner, line) = world.session();
    let (buffer, object) = world.buffer();
    world.tree.close_line(line).unwrap();
    world.tree.close_owner(owner).unwrap();
    let unknown_owner = Error::Unknown("owner");
    assert_eq!(world.tree.close_owner(owner), Err(unknown_owner));
    assert_eq!(world.tree.create(owner, Kind::Buffer, 1), Err(unknown_owner));
    let child = Child { owner, need: read(0, 8) };
    assert_eq!(world.tree.derive(world.owner, buffer, child), Err(unknown_owner));
    assert_eq!(world.tree.close_line(line), Err(Error::Unknown("line")));
    assert_eq!(world.tree.completed(line, 1), Err(Error::Unknown("line")));
    assert_eq!(world.tree.uses(line, object), Err(Error::Unknown("line")));
    assert_eq!(world.tree.free(object), Err(Error::InUse), "a capability names it");
    assert_eq!(world.tree.held(owner), 0);
    assert_eq!(world.tree.of_owner(owner).count(), 0);
}

#[test]
fn an_owner_is_not_forgotten_while_it_holds_something() {
    let mut world = World::new();
    let (handle, _) = world.buffer();
    world.tree.close_line(world.line).unwrap();
    assert_eq!(world.tree.close_owner(world.owner), Err(Error::InUse));
    world.revoke(handle, Extent::Whole, 0);
    assert_eq!(world.tree.close_owner(world.owner), Ok(()));
}

#[test]
fn the_capabilities_of_an_owner_are_listed_the_latest_first() {
    let mut world = World::new();
    let (other, _) = world.session();
    let (buffer, object) = world.buffer();
    let children: Vec<Handle> = (0..4).map(|_| world.child(buffer, other)).collect();
    world.tree.revoke(other, children[1], Extent::Whole, 0, |_| ()).unwrap();
    world.tree.revoke(other, children[3], Extent::Whole, 0, |_| ()).unwrap();
    let listed: Vec<Handle> = world.tree.of_owner(other).map(|(handle, _)| handle).collect();
    assert_eq!(listed, [children[2], children[0]]);
    let (_, view) = world.tree.of_owner(other).next().unwrap();
    let parent = Some(buffer);
    let expected =
        View { owner: other, kind: Kind::Buffer, access: Access::Read, object, offset: 0, bytes: 8, parent };
    assert_eq!(view, expected);
}
