//! Slots: what a session finds in one that another had before.

use crate::{
    client::{Client, load},
    kernel::{GRANULE, Kernel, MIB, PAGE},
};

#[test]
fn a_slot_holds_nothing_of_the_session_before() {
    let mut kernel = Kernel::start();
    for round in 0..3 {
        let mut client = Client::bare(&mut kernel, 0);
        load(&mut kernel, 0);
        let id = kernel.map(client.at(2 * GRANULE, 3 * PAGE));
        kernel.answer(id).done();
        let arena = client.address(2 * GRANULE);
        // Sink, arena and filler.
        let places = [client.address(0) + 12, arena + 4, arena + 3 * PAGE + 8, arena + GRANULE + 16];
        for place in places {
            let found = client.peek(&mut kernel, place);
            assert_eq!(found, 0, "round {round}: {place:#x}");
        }
        for place in places {
            client.poke(place, 0xdead);
            let kept = client.peek(&mut kernel, place);
            assert_eq!(kept, 0xdead, "a stray store lands in the session's own sink");
        }
        let id = kernel.close(0);
        kernel.answer(id).done();
    }
}

#[test]
fn small_arenas_share_no_page_with_their_neighbours() {
    let mut kernel = Kernel::start();
    let mut client = Client::open(&mut kernel, 0);
    let mut at = Vec::new();
    for index in 1..5 {
        let id = kernel.map(client.at(index * GRANULE, index * PAGE));
        kernel.answer(id).done();
        at.push((client.address(index * GRANULE), index * PAGE));
    }
    for (value, (at, bytes)) in (1..).zip(&at) {
        client.poke(at + bytes - 4, value);
        // Behind it is a sink, whatever is stored there.
        client.poke(at + bytes, 77);
        client.poke(at + GRANULE - 4, 78);
    }
    for (value, (at, bytes)) in (1..).zip(&at) {
        assert_eq!(client.peek(&mut kernel, at + bytes - 4), value);
    }
    for (index, (at, bytes)) in (1..).zip(&at) {
        kernel.unmapped(client.at(index * GRANULE, *bytes));
        assert_ne!(client.peek(&mut kernel, at + bytes - 4), u32::try_from(index).unwrap());
    }
    let id = kernel.map(client.at(GRANULE, 4 * GRANULE));
    kernel.answer(id).done();
    assert_eq!(client.peek(&mut kernel, client.address(GRANULE + 3 * MIB)), 0);
}

#[test]
fn every_slot_opens_at_once_and_again() {
    let mut kernel = Kernel::start();
    for _ in 0..2 {
        let asked: Vec<_> = [5, 0, 1, 2]
            .map(|slot| {
                let ring = bulkhead_ring::memory::create().unwrap();
                kernel.open(slot, slot, Some(&ring))
            })
            .into();
        for id in asked {
            drop(kernel.opened(id));
        }
        let again = kernel.open(9, 5, None);
        kernel.answer(again).refused();
        for slot in [5, 0, 1, 2] {
            let id = kernel.close(slot);
            kernel.answer(id).done();
        }
    }
}
