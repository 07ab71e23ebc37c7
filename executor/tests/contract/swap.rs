//! Sessions whose memory goes to host memory and comes back.

use bulkhead_executor::Patience;
use bulkhead_ring::{Bind, LaunchShape, memory};
use bulkhead_schema::ErrorCode;

use crate::{
    client::{ADD, Client, POKE},
    kernel::{GRANULE, Kernel, PAGE},
};

fn arenas(client: &Client) -> Vec<(u64, u64)> {
    vec![
        (client.address(0), GRANULE),
        (client.address(2 * GRANULE), 3 * PAGE),
        (client.address(4 * GRANULE), GRANULE),
    ]
}

#[test]
fn a_session_keeps_content_addresses_and_queued_work_while_its_memory_is_away() {
    let mut kernel = Kernel::start();
    let mut client = Client::open(&mut kernel, 0);
    let arenas = arenas(&client);
    for (at, bytes) in &arenas[1..] {
        let id = kernel.map(client.at(at - client.address(0), *bytes));
        kernel.answer(id).done();
    }
    let bytes = arenas.iter().map(|(_, bytes)| bytes).sum();
    let area = memory::create_shared(bytes).unwrap();
    let id = kernel.swap_area(0, bytes, &area);
    kernel.answer(id).done();
    let places: Vec<u64> = arenas.iter().flat_map(|(at, bytes)| [*at, at + bytes - 4]).collect();
    for (value, place) in (1..).zip(&places) {
        client.poke(*place, value);
    }
    for round in 0..3u32 {
        let id = kernel.swap_out(0, &arenas, true);
        kernel.answer(id).done();
        let mut last = 0;
        for place in &places {
            last = client.launch(0, ADD, [*place, 10]);
        }
        assert_eq!(kernel.wait_until_wanted(), 0);
        // Somebody else uses the device meanwhile.
        let mut other = Client::open(&mut kernel, 1);
        other.poke(other.address(0), 1);
        let id = kernel.close(1);
        kernel.answer(id).done();
        assert!(client.page.mark(0) < last, "a kernel ran without its memory");
        assert!(kernel.wanted.is_empty(), "asked for twice");
        let id = kernel.swap_in(0, &arenas);
        kernel.answer(id).done();
        client.wait(0, last);
        for (value, place) in (1..).zip(&places) {
            assert_eq!(client.read(&mut kernel, *place), value + 10 * (round + 1));
        }
    }
    let id = kernel.close(0);
    kernel.answer(id).done();
}

/// What is left of a launch has left the ring: it is wanted back like what is still there.
#[test]
fn a_session_with_nothing_but_held_records_is_wanted_back() {
    let patience = Patience { blocks: Some(16), ..Patience::default() };
    let mut kernel = Kernel::start_with(patience, None);
    let mut client = Client::open(&mut kernel, 0);
    let area = memory::create_shared(GRANULE).unwrap();
    let id = kernel.swap_area(0, GRANULE, &area);
    kernel.answer(id).done();
    let shape = LaunchShape { grid: [1 << 14, 1, 1], block: [1, 1, 1], shared_bytes: 0 };
    let to = client.address(0);
    let entry = Bind { slot: POKE.slot, generation: POKE.generation };
    let last = client.producer.push_launch(0, entry, shape, 16, |block| {
        block[..8].copy_from_slice(&to.to_ne_bytes());
        block[8..16].copy_from_slice(&7u64.to_ne_bytes());
    });
    let last = last.unwrap();
    let arenas = [(client.address(0), GRANULE)];
    let id = kernel.swap_out(0, &arenas, true);
    kernel.answer(id).done();
    assert!(client.page.mark(0) < last, "a thousand slices were over before the memory went");
    assert_eq!(kernel.wait_until_wanted(), 0);
    let id = kernel.swap_in(0, &arenas);
    kernel.answer(id).done();
    client.wait(0, last);
    assert_eq!(client.read(&mut kernel, to), 7);
    let id = kernel.close(0);
    kernel.answer(id).done();
}

#[test]
fn a_session_that_is_swapped_out_closes() {
    let mut kernel = Kernel::start();
    let mut client = Client::open(&mut kernel, 0);
    let area = memory::create_shared(GRANULE).unwrap();
    let id = kernel.swap_area(0, GRANULE, &area);
    kernel.answer(id).done();
    let id = kernel.swap_out(0, &[(client.address(0), GRANULE)], true);
    kernel.answer(id).done();
    client.launch(0, ADD, [client.address(0), 10]);
    let id = kernel.close(0);
    kernel.answer(id).done();
    assert_eq!(Client::open(&mut kernel, 0).peek(&mut kernel, client.address(0)), 0);
}

#[test]
fn what_was_freed_in_the_swap_area_leaves_a_gap() {
    let mut kernel = Kernel::start();
    let mut client = Client::open(&mut kernel, 0);
    let arenas = arenas(&client);
    for (at, bytes) in &arenas[1..] {
        let id = kernel.map(client.at(at - client.address(0), *bytes));
        kernel.answer(id).done();
    }
    let bytes = arenas.iter().map(|(_, bytes)| bytes).sum();
    let area = memory::create_shared(bytes).unwrap();
    let id = kernel.swap_area(0, bytes, &area);
    kernel.answer(id).done();
    for (value, (at, _)) in (1..).zip(&arenas) {
        client.poke(*at, value);
    }
    let id = kernel.swap_out(0, &arenas, true);
    kernel.answer(id).done();
    let again = kernel.swap_area(0, bytes, &area);
    assert_eq!(kernel.answer(again).refused(), ErrorCode::InvalidArgument, "its memory lies in the first");
    let id = kernel.swap_in(0, &[arenas[0], (0, arenas[1].1), arenas[2]]);
    kernel.answer(id).done();
    assert_eq!(client.peek(&mut kernel, arenas[0].0), 1);
    assert_eq!(client.peek(&mut kernel, arenas[2].0), 3);
    // What was freed is free.
    let id = kernel.map(client.at(arenas[1].0 - client.address(0), arenas[1].1));
    kernel.answer(id).done();
    assert_eq!(client.peek(&mut kernel, arenas[1].0), 0);
    // Another area, while the memory is not in the first.
    let larger = memory::create_shared(bytes + GRANULE).unwrap();
    let id = kernel.swap_area(0, bytes + GRANULE, &larger);
    kernel.answer(id).done();
    let id = kernel.swap_out(0, &arenas, true);
    kernel.answer(id).done();
    let id = kernel.swap_in(0, &arenas);
    kernel.answer(id).done();
    assert_eq!(client.peek(&mut kernel, arenas[2].0), 3);
}

#[test]
fn what_cannot_be_swapped_stays_where_it_is() {
    let mut kernel = Kernel::start();
    let (mut a, b) = (Client::open(&mut kernel, 0), Client::open(&mut kernel, 1));
    a.poke(a.address(0), 4);
    let arena = (a.address(0), GRANULE);
    let id = kernel.swap_out(0, &[arena], true);
    assert_eq!(kernel.answer(id).refused(), ErrorCode::InvalidArgument, "without an area");
    let area = memory::create_shared(GRANULE).unwrap();
    let id = kernel.swap_area(0, GRANULE, &area);
    kernel.answer(id).done();
    for arenas in [vec![(arena.0, PAGE)], vec![(arena.0 + PAGE, GRANULE)], vec![arena, arena]] {
        let id = kernel.swap_out(0, &arenas, true);
        assert_eq!(kernel.answer(id).refused(), ErrorCode::InvalidArgument, "{arenas:?}");
    }
    let id = kernel.swap_in(0, &[arena]);
    assert_eq!(kernel.answer(id).refused(), ErrorCode::InvalidArgument, "over what is there");
    let id = kernel.share(a.at(0, GRANULE), b.upper(0, GRANULE));
    kernel.answer(id).done();
    let id = kernel.swap_out(0, &[arena], true);
    assert_eq!(kernel.answer(id).refused(), ErrorCode::InvalidArgument, "shared");
    assert_eq!(a.peek(&mut kernel, arena.0), 4);
}

#[test]
fn the_kernel_is_told_who_works() {
    let mut kernel = Kernel::start();
    let (mut a, _b) = (Client::open(&mut kernel, 0), Client::open(&mut kernel, 1));
    a.launch(0, crate::client::SPIN, [a.address(128), a.address(256)]);
    let mut of = |session| loop {
        let found = kernel.activity().into_iter().find(|(id, ..)| *id == session).unwrap();
        if session == 1 || found.2 > 0 {
            return (found.1, found.2);
        }
    };
    let (busy, idle) = (of(0), of(1));
    assert_eq!((busy.1, idle.1), (1, 0));
    assert!(busy.0 < idle.0, "the one that submitted last has been idle for shorter");
}

#[test]
fn a_session_whose_memory_is_back_is_held_until_it_is_let_go() {
    let mut kernel = Kernel::start();
    let mut client = Client::open(&mut kernel, 0);
    let arena = (client.address(0), GRANULE);
    let area = memory::create_shared(GRANULE).unwrap();
    let id = kernel.swap_area(0, GRANULE, &area);
    kernel.answer(id).done();
    client.poke(arena.0, 5);
    let id = kernel.swap_out(0, &[arena], true);
    kernel.answer(id).done();
    let last = client.launch(0, ADD, [arena.0, 10]);
    kernel.wait_until_wanted();
    let id = kernel.swap_in_held(0, &[arena]);
    kernel.answer(id).done();
    // What a standby adopts now is what the session sees when it goes on.
    drop(kernel.export(client.at(0, GRANULE)));
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(client.page.mark(0) < last, "it went on before a standby could follow");
    let id = kernel.swap_in(0, &[]);
    kernel.answer(id).done();
    client.wait(0, last);
    assert_eq!(client.read(&mut kernel, arena.0), 15);
}

#[test]
fn a_session_whose_work_runs_on_is_not_waited_for_longer_than_was_said() {
    let mut kernel = Kernel::start();
    let mut client = Client::open(&mut kernel, 0);
    let arena = (client.address(0), GRANULE);
    let area = memory::create_shared(GRANULE).unwrap();
    let id = kernel.swap_area(0, GRANULE, &area);
    kernel.answer(id).done();
    let (flag, seen) = (client.address(128), client.address(256));
    client.poke(flag, 0);
    client.create_stream(1);
    let spin = client.launch(1, crate::client::SPIN, [flag, seen]);
    kernel.wait_until_busy(0);
    let id = kernel.swap_out_soon(0, &[arena], 20);
    assert_eq!(kernel.answer(id).refused(), ErrorCode::OutOfMemory);
    // It goes on as if nobody had asked.
    client.poke(flag, 1);
    client.wait(1, spin);
    let id = kernel.swap_out_soon(0, &[arena], 5_000);
    kernel.answer(id).done();
}

#[test]
fn a_swap_area_is_given_back_unless_memory_lies_there() {
    let mut kernel = Kernel::start();
    let client = Client::open(&mut kernel, 0);
    let arena = (client.address(0), GRANULE);
    let area = memory::create_shared(GRANULE).unwrap();
    let id = kernel.swap_area(0, GRANULE, &area);
    kernel.answer(id).done();
    let id = kernel.swap_out(0, &[arena], true);
    kernel.answer(id).done();
    let id = kernel.give_back_area(0);
    assert_eq!(kernel.answer(id).refused(), ErrorCode::InvalidArgument, "memory lies there");
    let id = kernel.swap_in(0, &[arena]);
    kernel.answer(id).done();
    let id = kernel.give_back_area(0);
    kernel.answer(id).done();
    let id = kernel.swap_out(0, &[arena], true);
    assert_eq!(kernel.answer(id).refused(), ErrorCode::InvalidArgument, "there is no area");
}
