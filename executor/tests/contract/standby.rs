//! An executor dies, and another goes on with the memory of its sessions.

use std::os::fd::AsFd;

use bulkhead_executor::{Backend, Patience};
use bulkhead_ring::{Record, memory};
use bulkhead_schema::ErrorCode;

use crate::{
    client::{ADD, Client, SPIN, load},
    kernel::{At, GRANULE, Kernel, PAGE},
};

/// Not a test: the process that [`Kernel::start_process`] starts.
#[test]
#[ignore = "serves the other tests"]
fn an_executor_of_its_own() {
    let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    bulkhead_executor::run(socket, Backend::Software, Patience::default()).unwrap();
}

/// Has `standby` hold what `kernel`'s executor has of a session.
fn follow(kernel: &mut Kernel, standby: &mut Kernel, session: u32, arenas: &[At]) {
    let id = standby.open(session, session, None);
    drop(standby.opened(id));
    for arena in arenas {
        let descriptor = kernel.export(*arena);
        let id = standby.adopt(*arena, &descriptor);
        standby.answer(id).done();
    }
    load(standby, session);
}

#[test]
fn a_session_goes_on_with_its_data_after_its_executor_was_killed_and_is_told_what_was_lost() {
    let (mut kernel, mut standby) = (Kernel::start_process(), Kernel::start());
    let mut client = Client::open(&mut kernel, 0);
    let mut other = Client::open(&mut kernel, 1);
    let id = kernel.map(client.at(2 * GRANULE, 3 * PAGE));
    kernel.answer(id).done();
    let id = kernel.map(client.at(4 * GRANULE, 2 * PAGE));
    kernel.answer(id).done();
    let id = kernel.split(client.at(4 * GRANULE, 2 * PAGE), client.address(4 * GRANULE) + PAGE);
    kernel.answer(id).done();
    let arenas = [
        client.at(0, GRANULE),
        client.at(2 * GRANULE, 3 * PAGE),
        client.at(4 * GRANULE + PAGE, PAGE),
        client.at(4 * GRANULE, PAGE),
    ];
    follow(&mut kernel, &mut standby, 0, &arenas);
    follow(&mut kernel, &mut standby, 1, &[other.at(0, GRANULE)]);
    let id = standby.share(client.at(2 * GRANULE, 3 * PAGE), other.upper(0, 3 * PAGE));
    standby.answer(id).done();

    let (counted, kept) = (client.address(0), client.address(2 * GRANULE));
    client.create_stream(3);
    for _ in 0..7 {
        client.run(ADD, [counted, 1]);
    }
    client.poke(kept, 5);
    client.poke(client.address(4 * GRANULE + PAGE), 6);
    // These are on the device, and will be lost; what is behind them waits in the executor, or in the ring.
    let lost = client.launch(3, SPIN, [client.address(128), client.address(256)]);
    let behind = client.producer.push(&Record::WaitOn { stream: 0, on: 3, position: lost }).unwrap();
    let last = client.launch(0, ADD, [counted, 1000]);
    kernel.wait_until_busy(0);
    let fence = kernel.drain(0);
    assert!(!kernel.has_answer(fence));
    kernel.kill();

    client.move_to(&mut standby, true);
    client.wait(3, lost);
    client.wait(0, behind);
    client.wait(0, last);
    assert_eq!(client.page.refusals(), 1);
    assert_eq!(client.page.refusal().unwrap().code, ErrorCode::WorkLost as u16);
    assert_eq!(client.read(&mut standby, counted), 7, "work ran twice, or lost work ran");
    assert_eq!(client.read(&mut standby, kept), 5);
    assert_eq!(client.read(&mut standby, client.address(4 * GRANULE + PAGE)), 6);
    // The stream is there again when it is used; one that is destroyed before need not be.
    let position = client.launch(3, ADD, [counted, 10]);
    client.wait(3, position);
    client.producer.push(&Record::DestroyStream { stream: 5 }).unwrap();
    client.create_stream(5);
    let position = client.launch(5, ADD, [counted, 100]);
    client.wait(5, position);
    assert_eq!(client.read(&mut standby, counted), 117);
    // An event that was lost answers as one that never was.
    client.producer.push(&Record::RecordEvent { stream: 0, event: 2 }).unwrap();
    let asked = client.producer.push(&Record::Elapsed { stream: 0, start: 1, end: 2, reply: 0 }).unwrap();
    let answer = loop {
        if let Some(answer) = client.page.reply(0, asked) {
            break answer;
        }
    };
    assert!(f64::from_bits(answer).is_nan());

    other.move_to(&mut standby, true);
    assert_eq!(other.peek(&mut standby, other.upper(0, 0).1), 5, "what was shared is shared");
    for session in [0, 1] {
        let id = standby.close(session);
        standby.answer(id).done();
    }
}

#[test]
fn records_that_nobody_took_are_carried_out_by_the_next_executor() {
    let (mut kernel, mut standby) = (Kernel::start_process(), Kernel::start());
    let mut client = Client::open(&mut kernel, 0);
    follow(&mut kernel, &mut standby, 0, &[client.at(0, GRANULE)]);
    client.run(ADD, [client.address(0), 1]);
    // Held, as for a move that loses nothing.
    let id = kernel.swap_out(0, &[], true);
    kernel.answer(id).done();
    let mut last = 0;
    for _ in 0..40 {
        last = client.launch(0, ADD, [client.address(0), 10]);
    }
    kernel.wait_until_wanted();
    kernel.kill();
    client.move_to(&mut standby, false);
    client.wait(0, last);
    assert_eq!(client.page.refusals(), 0);
    assert_eq!(client.read(&mut standby, client.address(0)), 401);
}

#[test]
fn a_standby_holds_mappings_and_gives_them_up_without_touching_what_is_there() {
    let (mut kernel, mut standby) = (Kernel::start(), Kernel::start());
    let mut client = Client::open(&mut kernel, 0);
    follow(&mut kernel, &mut standby, 0, &[client.at(0, GRANULE)]);
    client.poke(client.address(0), 5);
    // Nothing runs there, so whoever waits for work is answered.
    for id in [standby.drain(0), standby.unbind(0, &[crate::client::PEEK, crate::client::IMAGE])] {
        standby.answer(id).done();
    }
    let wrong = standby.adopt(client.at(0, GRANULE), &kernel.export(client.at(0, GRANULE)));
    assert_eq!(standby.answer(wrong).refused(), ErrorCode::InvalidArgument, "over what is there");
    let id = standby.swap_out(0, &[(client.address(0), GRANULE)], false);
    standby.answer(id).done();
    assert_eq!(client.read(&mut kernel, client.address(0)), 5);
    let wrong = standby.adopt(client.at(0, GRANULE), &memory::create_shared(GRANULE).unwrap());
    assert_eq!(standby.answer(wrong).refused(), ErrorCode::InvalidArgument, "not memory of a device");
    let wrong = standby.adopt(client.at(0, 2 * GRANULE), &kernel.export(client.at(0, GRANULE)));
    assert_eq!(standby.answer(wrong).refused(), ErrorCode::InvalidArgument, "another length");
    let again = kernel.resume(0, false, &client.ring);
    assert_eq!(kernel.answer(again).refused(), ErrorCode::InvalidArgument, "it takes records already");
}

#[test]
fn what_is_taken_back_is_scrubbed_before_it_is_given_back_by_whoever_has_it_last() {
    // A second executor sees the physical memory itself.
    let (mut kernel, mut witness) = (Kernel::start(), Kernel::start());
    let (mut a, b) = (Client::open(&mut kernel, 0), Client::open(&mut kernel, 1));
    let mut seen = Client::open(&mut witness, 2);
    let at = |index: u64| (4 + 2 * index) * GRANULE;
    // Unmapped where it takes stores; in the upper half of another session; with the session; by a split.
    for index in 0..4 {
        let arena = a.at(at(index), 2 * PAGE);
        let id = kernel.map(arena);
        kernel.answer(id).done();
        a.poke(arena.1 + 2 * PAGE - 4, 5);
        let id = witness.adopt(seen.at(at(index), 2 * PAGE), &kernel.export(arena));
        witness.answer(id).done();
    }
    let look = |witness: &mut Kernel, seen: &mut Client| {
        [0, 1, 2, 3].map(|index| seen.peek(witness, seen.address(at(index) + 2 * PAGE - 4)))
    };
    assert_eq!(look(&mut witness, &mut seen), [5, 5, 5, 5]);
    kernel.unmapped(a.at(at(0), 2 * PAGE));
    assert_eq!(look(&mut witness, &mut seen), [0, 5, 5, 5]);
    let id = kernel.share(a.at(at(1), 2 * PAGE), b.upper(0, 2 * PAGE));
    kernel.answer(id).done();
    kernel.unmapped(a.at(at(1), 2 * PAGE));
    assert_eq!(look(&mut witness, &mut seen), [0, 5, 5, 5], "scrubbed while somebody had it");
    kernel.unmapped(b.upper(0, 2 * PAGE));
    assert_eq!(look(&mut witness, &mut seen), [0, 0, 5, 5]);
    let id = kernel.split(a.at(at(3), 2 * PAGE), a.address(at(3)) + PAGE);
    kernel.answer(id).done();
    assert_eq!(look(&mut witness, &mut seen), [0, 0, 5, 0]);
    let id = kernel.close(0);
    kernel.answer(id).done();
    assert_eq!(look(&mut witness, &mut seen), [0, 0, 0, 0]);
}

#[test]
fn memory_that_is_cut_in_two_is_whole_at_the_standby_until_that_has_the_pieces() {
    let (mut kernel, mut standby) = (Kernel::start_process(), Kernel::start());
    let mut client = Client::open(&mut kernel, 0);
    let arena = client.at(4 * GRANULE, 2 * PAGE);
    let id = kernel.map(arena);
    kernel.answer(id).done();
    client.poke(arena.1 + PAGE, 6);
    follow(&mut kernel, &mut standby, 0, &[client.at(0, GRANULE), arena]);
    let id = kernel.split_and_keep(arena, arena.1 + PAGE);
    kernel.answer(id).done();
    // Held: what it stored now would be lost with its executor.
    let last = client.launch(0, ADD, [arena.1 + PAGE, 1]);
    kernel.wait_until_wanted();
    assert!(client.page.mark(0) < last);
    kernel.kill();
    client.move_to(&mut standby, false);
    client.wait(0, last);
    assert_eq!(client.read(&mut standby, arena.1 + PAGE), 7, "it was scrubbed, or cut, before the loss");
}
