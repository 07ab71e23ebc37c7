//! What handles mean, many at a time.

use std::{os::fd::AsFd, time::Instant};

use bulkhead_ring::{Bind, Copy, Pattern, Record};
use bulkhead_schema::{ErrorCode, Handle};

use crate::{
    client::{Client, IMAGE, POKE},
    kernel::{GRANULE, Kernel},
};

fn name(handle: Handle) -> Bind {
    Bind { slot: handle.slot, generation: handle.generation }
}

#[test]
fn ten_thousand_handles_are_bound_and_unbound_many_at_a_time() {
    let mut kernel = Kernel::start();
    let mut client = Client::open(&mut kernel, 0);
    // Anywhere in the device's table, and none next to another.
    let handle = |index: u32| Handle { slot: 100 + index * 52, generation: index };
    let handles: Vec<_> = (0..10_000).map(handle).collect();
    for some in handles.chunks(1_000) {
        let buffers: Vec<_> = some.iter().map(|handle| (*handle, client.address(0), 4096, true)).collect();
        let id = kernel.bind(0, &buffers);
        kernel.answer(id).done();
    }
    let fill = |handle| Record::Fill {
        stream: 0,
        to: name(handle),
        offset: 0,
        pattern: Pattern::Bits32(1),
        count: 1,
    };
    for handle in [handles[0], handles[4_321], handles[9_999]] {
        let position = client.producer.push(&fill(handle)).unwrap();
        client.wait(0, position);
    }
    assert_eq!(client.page.refusals(), 0);
    let start = Instant::now();
    let asked: Vec<_> = handles.chunks(4_096).map(|some| kernel.unbind(0, some)).collect();
    for id in asked {
        kernel.answer(id).done();
    }
    println!("10,000 handles unbound in {:?}, there and back", start.elapsed());
    for (refusals, handle) in (1..).zip([handles[0], handles[4_321], handles[9_999]]) {
        let position = client.producer.push(&fill(handle)).unwrap();
        client.wait(0, position);
        assert_eq!(client.page.refusals(), refusals);
    }
    // Those that are not bound count as unbound.
    let id = kernel.unbind(0, &handles[..4_096]);
    kernel.answer(id).done();
}

#[test]
fn a_buffer_bound_for_reading_is_not_written_by_copies_and_fills() {
    let mut kernel = Kernel::start();
    let mut client = Client::open(&mut kernel, 0);
    let (read, write) = (Handle { slot: 50, generation: 1 }, Handle { slot: 51, generation: 1 });
    let (at, other) = (client.address(0), client.address(8192));
    let id = kernel.bind(0, &[(read, at, 4096, false), (write, other, 4096, true)]);
    kernel.answer(id).done();
    client.poke(at, 7);
    let copy = |to, from| Copy { to: name(to), to_offset: 0, from: name(from), from_offset: 0, bytes: 4 };
    let records = [
        Record::Fill { stream: 0, to: name(read), offset: 0, pattern: Pattern::Bits32(1), count: 1 },
        Record::CopyOnDevice { stream: 0, copy: copy(read, write) },
        Record::CopyToDevice { stream: 0, copy: copy(read, Handle { slot: 8, generation: 1 }) },
    ];
    for (refusals, record) in (1..).zip(records) {
        let position = client.producer.push(&record).unwrap();
        client.wait(0, position);
        let refusal = client.page.refusal().unwrap();
        assert_eq!((refusal.count, refusal.code), (refusals, ErrorCode::NotPermitted as u16), "{record:?}");
    }
    let position =
        client.producer.push(&Record::CopyOnDevice { stream: 0, copy: copy(write, read) }).unwrap();
    client.wait(0, position);
    assert_eq!(client.page.refusals(), 3);
    assert_eq!((client.read(&mut kernel, at), client.read(&mut kernel, other)), (7, 7));
}

#[test]
fn an_entry_of_another_session_runs_in_the_own_window_and_outlives_the_other() {
    let mut kernel = Kernel::start();
    let (mut a, mut b) = (Client::open(&mut kernel, 0), Client::bare(&mut kernel, 1));
    let id = kernel.map(b.at(0, GRANULE));
    kernel.answer(id).done();
    let granted = Handle { slot: 77, generation: 3 };
    let id = kernel.bind_entry(1, granted, 0, POKE);
    kernel.answer(id).done();
    // Address and masks are those of the session that launches: a's address is confined to b's slot.
    a.poke(a.address(16), 1);
    b.run(granted, [a.address(16), 2]);
    assert_eq!(a.read(&mut kernel, a.address(16)), 1, "a store reached another session");
    assert_eq!(b.read(&mut kernel, b.address(16)), 2);
    let id = kernel.ask(None, |request| {
        let mut name = request.init_unload_image();
        name.set_session(0);
        IMAGE.write(name.init_handle());
    });
    kernel.answer(id).done();
    let late = kernel.bind_entry(1, Handle { slot: 78, generation: 1 }, 0, POKE);
    assert_eq!(kernel.answer(late).refused(), ErrorCode::InvalidHandle);
    let id = kernel.close(0);
    kernel.answer(id).done();
    b.run(granted, [b.address(16), 4]);
    assert_eq!(b.page.refusals(), 0, "unloaded while somebody could launch it");
    assert_eq!(b.read(&mut kernel, b.address(16)), 4);
    let id = kernel.unbind(1, &[granted]);
    kernel.answer(id).done();
    b.run(granted, [b.address(16), 5]);
    assert_eq!(b.page.refusals(), 1);
}

#[test]
fn a_list_with_one_wrong_binding_binds_nothing() {
    let mut kernel = Kernel::start();
    let mut client = Client::open(&mut kernel, 0);
    let good = Handle { slot: 60, generation: 1 };
    for wrong in [
        (Handle { slot: u32::MAX, generation: 1 }, client.address(0), 4096),
        (Handle { slot: 61, generation: 1 }, client.slot.base().0, 4096),
        (Handle { slot: 61, generation: 1 }, client.slot.upper_half().start().0, 4096),
        (Handle { slot: 61, generation: 1 }, client.address(0), u64::MAX),
    ] {
        let wrong = (wrong.0, wrong.1, wrong.2, true);
        let id = kernel.bind(0, &[(good, client.address(0), 4096, true), wrong]);
        kernel.answer(id).refused();
        let fill =
            Record::Fill { stream: 0, to: name(good), offset: 0, pattern: Pattern::Bits8(1), count: 1 };
        let refusals = client.page.refusals();
        let position = client.producer.push(&fill).unwrap();
        client.wait(0, position);
        assert_eq!(client.page.refusals(), refusals + 1, "{wrong:?}");
    }
    let memory = bulkhead_ring::memory::create_shared(4096).unwrap();
    let id = kernel.ask(Some(memory.as_fd()), |request| {
        let mut host = request.init_register_host();
        host.set_bytes(8192);
        let mut name = host.init_name();
        name.set_session(0);
        good.write(name.init_handle());
    });
    kernel.answer(id).refused();
}
