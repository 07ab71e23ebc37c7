//! Requests that make no sense are refused with a typed error, and change nothing.

use bulkhead_schema::ErrorCode;

use crate::{
    client::Client,
    kernel::{At, GRANULE, Kernel, PAGE},
};

const NOBODY: u32 = 31;

#[test]
fn a_session_that_is_not_there_is_refused_everything() {
    let mut kernel = Kernel::start();
    let client = Client::open(&mut kernel, 0);
    let nowhere = At(NOBODY, client.address(0), GRANULE);
    let memory = bulkhead_ring::memory::create_shared(4096).unwrap();
    let asked = [
        kernel.map(nowhere),
        kernel.unmap(nowhere),
        kernel.share(nowhere, client.at(GRANULE, GRANULE)),
        kernel.share(client.at(0, GRANULE), nowhere),
        kernel.split(nowhere, client.address(PAGE)),
        kernel.adopt(nowhere, &memory),
        kernel.bind(NOBODY, &[]),
        kernel.unbind(NOBODY, &[]),
        kernel.drain(NOBODY),
        kernel.resume(NOBODY, true, &client.ring),
        kernel.swap_area(NOBODY, 4096, &memory),
        kernel.swap_out(NOBODY, &[], true),
        kernel.swap_in(NOBODY, &[]),
        kernel.close(NOBODY),
    ];
    for id in asked {
        assert_eq!(kernel.answer(id).refused(), ErrorCode::SessionLost);
    }
}

#[test]
fn ranges_of_the_wrong_size_place_or_owner_are_refused_and_nothing_changes() {
    let mut kernel = Kernel::start();
    let (mut a, b) = (Client::open(&mut kernel, 0), Client::open(&mut kernel, 1));
    a.poke(a.address(0), 3);
    let whole = a.at(0, GRANULE);
    let free = b.upper(0, GRANULE);
    let beyond = b.slot.read_only().end().0 - PAGE;
    let asked = [
        // Not a whole arena, or not the session's.
        kernel.share(a.at(0, PAGE), b.upper(0, PAGE)),
        kernel.share(a.at(PAGE, GRANULE), free),
        kernel.share(At(1, whole.1, GRANULE), free),
        kernel.share(At(0, b.address(0), GRANULE), free),
        kernel.share(At(0, u64::MAX, GRANULE), free),
        // Of another length, over other memory, beyond the window.
        kernel.share(whole, b.upper(0, PAGE)),
        kernel.share(whole, b.at(0, GRANULE)),
        kernel.share(whole, At(1, beyond, GRANULE)),
        kernel.share(whole, At(1, b.slot.base().0, GRANULE)),
        kernel.share(whole, At(1, b.slot.upper_half().start().0, GRANULE)),
        kernel.share(whole, At(1, free.1 + 4096, GRANULE)),
        kernel.share(whole, At(1, a.address(GRANULE), GRANULE)),
        // Nothing to split, or nowhere.
        kernel.split(whole, whole.1),
        kernel.split(whole, whole.1 + GRANULE),
        kernel.split(whole, whole.1 + 4096),
        kernel.split(whole, whole.1 - PAGE),
        kernel.split(whole, u64::MAX),
        kernel.split(a.at(0, 2 * GRANULE), whole.1 + PAGE),
        // Memory that is there, or is not, or is of half a page.
        kernel.map(whole),
        kernel.map(a.at(PAGE, PAGE)),
        kernel.map(a.at(GRANULE, PAGE / 2)),
        kernel.map(a.at(GRANULE, u64::MAX - PAGE + 1)),
        kernel.map(a.upper(0, GRANULE)),
        kernel.unmap(a.at(0, PAGE)),
        kernel.unmap(a.at(GRANULE, GRANULE)),
        kernel.open(7, 99, None),
    ];
    for (index, id) in asked.into_iter().enumerate() {
        assert_eq!(kernel.answer(id).refused(), ErrorCode::InvalidArgument, "number {index}");
    }
    let ring = bulkhead_ring::memory::create_shared(4096).unwrap();
    let broken = kernel.open(7, 7, Some(&ring));
    assert_eq!(kernel.answer(broken).refused(), ErrorCode::InvalidArgument, "no ring");
    assert_eq!(a.peek(&mut kernel, a.address(0)), 3);
    // The slot was given back.
    Client::open(&mut kernel, 7);
}

#[test]
fn more_memory_than_there_is_is_refused_and_the_slot_stays_whole() {
    let mut kernel = Kernel::start();
    let mut client = Client::open(&mut kernel, 0);
    let id = kernel.map(client.at(GRANULE, 1 << 34));
    assert_eq!(kernel.answer(id).refused(), ErrorCode::OutOfMemory);
    for offset in [GRANULE, 1 << 33, (1 << 34) + GRANULE - 4] {
        assert_eq!(client.peek(&mut kernel, client.address(offset)), 0);
    }
}
