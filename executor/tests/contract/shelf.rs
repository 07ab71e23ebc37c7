//! Memory that lies nowhere: made, mapped in places of its session's choice, and given back.

use bulkhead_schema::ErrorCode;

use crate::{
    client::{Client, SPIN},
    kernel::{At, GRANULE, Kernel, PAGE},
};

/// A place on a session's shelf.
fn shelf(client: &Client, offset: u64, bytes: u64) -> At {
    At(client.session, client.slot.shelf().start().0 + offset, bytes)
}

#[test]
fn memory_is_made_while_kernels_run_and_mapped_where_and_as_often_as_is_asked_for() {
    let mut kernel = Kernel::start();
    let mut a = Client::open(&mut kernel, 0);
    // Loading code is what does wait: it is done before.
    let mut other = Client::open(&mut kernel, 1);
    a.create_stream(1);
    let (flag, done) = (a.address(128), a.address(256));
    let spinning = a.launch(1, SPIN, [flag, done]);
    kernel.wait_until_busy(0);
    let made = shelf(&a, GRANULE, 3 * PAGE);
    let id = kernel.map(made);
    kernel.answer(id).done();
    assert!(a.page.mark(1) < spinning, "the kernel runs on");
    // The other session's kernel ends that one through memory of both.
    let id = kernel.share(a.at(0, GRANULE), other.at(8 * GRANULE, GRANULE));
    kernel.answer(id).done();
    other.poke(other.address(8 * GRANULE + 128), 1);
    a.wait(1, spinning);

    // Twice, next to each other, in granules that other memory lies in too.
    let places = [a.at(4 * GRANULE + PAGE, 3 * PAGE), a.at(4 * GRANULE + 30 * PAGE, 3 * PAGE)];
    for place in places {
        let id = kernel.share(made, place);
        kernel.answer(id).done();
    }
    assert_eq!(a.peek(&mut kernel, places[0].1), 0, "it is scrubbed");
    a.poke(places[0].1 + 3 * PAGE - 4, 5);
    assert_eq!(a.peek(&mut kernel, places[1].1 + 3 * PAGE - 4), 5);
    kernel.unmapped(places[0]);
    assert_eq!(a.peek(&mut kernel, places[0].1 + 3 * PAGE - 4), 0, "the sink is not in its place");
    assert_eq!(a.peek(&mut kernel, places[1].1 + 3 * PAGE - 4), 5);
    kernel.unmapped(places[1]);
    // What is mapped nowhere keeps what it holds, for whoever maps it next.
    let theirs = other.at(2 * GRANULE, 3 * PAGE);
    let id = kernel.share(made, theirs);
    kernel.answer(id).done();
    assert_eq!(other.peek(&mut kernel, theirs.1 + 3 * PAGE - 4), 5);
    kernel.unmapped(made);
    let id = kernel.share(made, places[0]);
    assert_eq!(kernel.answer(id).refused(), ErrorCode::InvalidArgument);
    assert_eq!(other.peek(&mut kernel, theirs.1 + 3 * PAGE - 4), 5, "scrubbed while somebody had it");
    for client in [a.session, other.session] {
        let id = kernel.close(client);
        kernel.answer(id).done();
    }
}

#[test]
fn what_makes_no_sense_on_a_shelf_is_refused() {
    let mut kernel = Kernel::start();
    let (a, b) = (Client::open(&mut kernel, 0), Client::open(&mut kernel, 1));
    let made = shelf(&a, 0, 4 * PAGE);
    let id = kernel.map(made);
    kernel.answer(id).done();
    let end = a.slot.shelf().end().0;
    for place in [
        made,
        shelf(&a, 3 * PAGE, PAGE),
        shelf(&a, GRANULE, PAGE - 1),
        shelf(&a, GRANULE + 1, PAGE),
        At(a.session, end - PAGE, 2 * PAGE),
        At(a.session, a.slot.shelf().start().0 - PAGE, PAGE),
        At(a.session, shelf(&b, GRANULE, PAGE).1, PAGE),
    ] {
        let id = kernel.map(place);
        assert_eq!(kernel.answer(id).refused(), ErrorCode::InvalidArgument, "{:#x}", place.1);
    }
    let asked = [
        kernel.share(a.at(0, GRANULE), shelf(&b, 0, GRANULE)),
        kernel.share(made, shelf(&a, GRANULE, 4 * PAGE)),
        kernel.share(shelf(&a, 0, 2 * PAGE), a.at(2 * GRANULE, 2 * PAGE)),
        kernel.split(made, made.1 + PAGE),
        kernel.swap_out(a.session, &[(made.1, made.2)], false),
        kernel.unmap(shelf(&a, 0, 2 * PAGE)),
    ];
    for id in asked {
        assert_eq!(kernel.answer(id).refused(), ErrorCode::InvalidArgument);
    }
    // No record ever names it.
    let handle = bulkhead_schema::Handle { slot: 40, generation: 1 };
    let id = kernel.bind(a.session, &[(handle, made.1, made.2, true)]);
    assert_eq!(kernel.answer(id).refused(), ErrorCode::InvalidArgument);
    kernel.unmapped(made);
    let id = kernel.map(shelf(&a, 0, 8 * PAGE));
    kernel.answer(id).done();
}

#[test]
fn a_standby_has_what_lies_on_a_shelf_and_maps_it_after_the_loss() {
    let (mut kernel, mut standby) = (Kernel::start_process(), Kernel::start());
    let mut a = Client::open(&mut kernel, 0);
    let (made, place) = (shelf(&a, 0, 2 * PAGE), a.at(4 * GRANULE + PAGE, 2 * PAGE));
    let id = kernel.map(made);
    kernel.answer(id).done();
    let id = kernel.share(made, place);
    kernel.answer(id).done();
    a.poke(place.1 + 4, 9);
    let id = standby.open(a.session, a.session, None);
    drop(standby.opened(id));
    for arena in [a.at(0, GRANULE), made] {
        let descriptor = kernel.export(arena);
        let id = standby.adopt(arena, &descriptor);
        standby.answer(id).done();
    }
    let id = standby.share(made, place);
    standby.answer(id).done();
    crate::client::load(&mut standby, a.session);
    kernel.kill();
    a.move_to(&mut standby, true);
    assert_eq!(a.peek(&mut standby, place.1 + 4), 9);
}
