//! Host memory in a session's window.

use std::os::fd::{AsFd, OwnedFd};

use bulkhead_ring::{
    Bind, Copy, Pattern, Record,
    memory::{self, Shared},
};
use bulkhead_schema::{ErrorCode, Handle};

use crate::{
    client::{ADD, Client, HOST, SPIN},
    kernel::{Answer, At, GRANULE, Kernel, PAGE},
};

const MAPPED: Handle = Handle { slot: 40, generation: 3 };
const NAME: Bind = Bind { slot: 40, generation: 3 };

/// Host memory, as its client has it.
struct Host {
    file: OwnedFd,
    memory: Shared,
}

impl Host {
    fn new(bytes: u64) -> Self {
        let file = memory::create_shared(bytes).unwrap();
        let memory = Shared::map(file.as_fd(), bytes.try_into().unwrap()).unwrap();
        Self { file, memory }
    }

    /// Maps it in a session's window.
    fn map(&self, kernel: &mut Kernel, at: At) {
        let id = kernel.map_host(at, MAPPED, &self.file);
        kernel.answer(id).done();
    }

    fn word(&self, offset: u64) -> u32 {
        let mut word = [0; 4];
        self.memory.read(offset.try_into().unwrap(), &mut word);
        u32::from_ne_bytes(word)
    }

    fn set(&self, offset: u64, word: u32) {
        self.memory.write(offset.try_into().unwrap(), &word.to_ne_bytes());
    }
}

#[test]
fn kernels_and_the_host_see_each_others_stores_and_copies_go_as_before() {
    let mut kernel = Kernel::start();
    let (mut client, mut other) = (Client::open(&mut kernel, 0), Client::open(&mut kernel, 1));
    let host = Host::new(2 * PAGE);
    let at = client.address(2 * GRANULE);
    host.set(2 * PAGE - 4, 11);
    host.map(&mut kernel, client.at(2 * GRANULE, 2 * PAGE));
    client.poke(at, 5);
    client.run(ADD, [at, 2]);
    assert_eq!((host.word(0), client.peek(&mut kernel, at + 2 * PAGE - 4)), (7, 11));
    host.set(8, 12);
    assert_eq!(client.peek(&mut kernel, at + 8), 12, "the kernel sees an old value");

    // Behind it lie sinks, and another session's kernel meets its own.
    client.poke(at + 2 * PAGE, 77);
    client.poke(at - 4, 78);
    other.poke(at, 79);
    assert_eq!((host.word(0), host.word(2 * PAGE - 4)), (7, 11));
    assert_ne!(other.peek(&mut kernel, at + 8), 12);

    // By name: as host memory, and as memory of the window.
    let push = |client: &mut Client, record: Record| {
        let position = client.producer.push(&record).unwrap();
        client.wait(0, position);
        client.page.refusals()
    };
    let name = Bind { slot: HOST.slot, generation: HOST.generation };
    let copy = |to, to_offset, from, from_offset, bytes| Copy { to, to_offset, from, from_offset, bytes };
    let pattern = Pattern::Bits32(0x0a0b_0c0d);
    assert_eq!(push(&mut client, Record::Fill { stream: 0, to: NAME, offset: 64, pattern, count: 2 }), 0);
    assert_eq!((host.word(64), host.word(68), host.word(72)), (0x0a0b_0c0d, 0x0a0b_0c0d, 0));
    let inside = copy(NAME, 128, NAME, 64, 8);
    assert_eq!(push(&mut client, Record::CopyOnDevice { stream: 0, copy: inside }), 0);
    assert_eq!(host.word(132), 0x0a0b_0c0d);
    let to_other = copy(name, 0, NAME, 64, 4);
    assert_eq!(push(&mut client, Record::CopyToHost { stream: 0, copy: to_other }), 0);
    let from_other = copy(NAME, 256, name, 0, 4);
    assert_eq!(push(&mut client, Record::CopyToDevice { stream: 0, copy: from_other }), 0);
    assert_eq!(host.word(256), 0x0a0b_0c0d);
    let beyond = Record::Fill { stream: 0, to: NAME, offset: 2 * PAGE - 4, pattern, count: 2 };
    assert_eq!(push(&mut client, beyond), 1, "beyond its end");
    assert_eq!(host.word(2 * PAGE - 4), 11);

    for client in [&client, &other] {
        // Quiescent first where the executor does not know yet that nothing runs.
        let id = kernel.close(client.session);
        match kernel.answer(id) {
            Answer::Quiescent => kernel.answer(id).done(),
            answer => answer.done(),
        }
    }
    assert_eq!(host.word(8), 12, "nobody scrubs what is the client's");
}

#[test]
fn host_memory_goes_when_no_kernel_runs_and_its_place_is_good_for_other_memory() {
    let mut kernel = Kernel::start();
    let (mut client, mut busy) = (Client::open(&mut kernel, 0), Client::open(&mut kernel, 1));
    let host = Host::new(PAGE);
    let place = client.at(2 * GRANULE, PAGE);
    host.map(&mut kernel, place);
    client.create_stream(1);
    // The session's own kernel can reach it.
    let own = client.launch(1, SPIN, [place.1, client.address(256)]);
    kernel.wait_until_busy(0);
    let unmapped = kernel.unmap(place);
    assert!(!kernel.has_answer(unmapped), "unmapped under a kernel that reaches it");
    let spinning = busy.launch(0, SPIN, [busy.address(128), busy.address(256)]);
    kernel.wait_until_busy(1);
    host.set(0, 1);
    client.wait(1, own);
    assert!(matches!(kernel.answer(unmapped), Answer::Quiescent));
    assert!(!kernel.has_answer(unmapped), "unregistered while a kernel runs");
    // Until then it is where it was, and in the way.
    client.poke(place.1 + 8, 9);
    assert_eq!(host.word(8), 9);
    let again = kernel.map(place);
    assert_eq!(kernel.answer(again).refused(), ErrorCode::InvalidArgument);

    busy.create_stream(1);
    let stop = kernel.bind(1, &[(MAPPED, busy.address(128), 4, true)]);
    kernel.answer(stop).done();
    let one = Pattern::Bits32(1);
    busy.producer.push(&Record::Fill { stream: 1, to: NAME, offset: 0, pattern: one, count: 1 }).unwrap();
    busy.wait(0, spinning);
    kernel.answer(unmapped).done();
    client.poke(place.1 + 8, 10);
    assert_eq!((host.word(8), client.page.ended().is_some()), (9, false), "a sink is in its place");
    let id = kernel.map(place);
    kernel.answer(id).done();
    assert_eq!(client.peek(&mut kernel, place.1 + 8), 0);
    kernel.unmapped(place);
    host.map(&mut kernel, place);
    assert_eq!(client.peek(&mut kernel, place.1 + 8), 9);
}

#[test]
fn a_session_closes_beside_a_kernel_that_runs_on_and_only_its_slot_waits() {
    let mut kernel = Kernel::start();
    let (mut client, mut busy) = (Client::open(&mut kernel, 0), Client::open(&mut kernel, 1));
    let host = Host::new(PAGE);
    host.map(&mut kernel, client.at(2 * GRANULE, PAGE));
    client.poke(client.address(2 * GRANULE), 5);
    let spinning = busy.launch(0, SPIN, [busy.address(128), busy.address(256)]);
    kernel.wait_until_busy(1);
    // On its way already.
    let unmapped = kernel.unmap(client.at(2 * GRANULE, PAGE));
    assert!(matches!(kernel.answer(unmapped), Answer::Quiescent));
    let closed = kernel.close(0);
    assert!(matches!(kernel.answer(closed), Answer::Quiescent));
    kernel.answer(unmapped).done();
    assert!(!kernel.has_answer(closed));
    let ring = memory::create().unwrap();
    let again = kernel.open(5, 0, Some(&ring));
    assert_eq!(kernel.answer(again).refused(), ErrorCode::InvalidArgument, "the slot is in use");

    busy.create_stream(1);
    let stop = kernel.bind(1, &[(MAPPED, busy.address(128), 4, true)]);
    kernel.answer(stop).done();
    let one = Pattern::Bits32(1);
    busy.producer.push(&Record::Fill { stream: 1, to: NAME, offset: 0, pattern: one, count: 1 }).unwrap();
    busy.wait(0, spinning);
    kernel.answer(closed).done();
    let mut next = Client::open(&mut kernel, 0);
    assert_ne!(next.peek(&mut kernel, next.address(2 * GRANULE)), 5, "the next one reaches it");
    next.poke(next.address(2 * GRANULE), 6);
    assert_eq!(host.word(0), 5);
}

#[test]
fn host_memory_that_does_not_fit_is_refused_and_nothing_changes() {
    let mut kernel = Kernel::start();
    let mut client = Client::open(&mut kernel, 0);
    client.poke(client.address(0), 3);
    let host = Host::new(PAGE);
    let unsealed = rustix::fs::memfd_create("unsealed", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&unsealed, PAGE).unwrap();
    let free = client.at(2 * GRANULE, PAGE);
    let window_end = client.slot.read_write().end().0;
    let asked = [
        kernel.map_host(client.at(0, PAGE), MAPPED, &host.file),
        kernel.map_host(client.at(2 * GRANULE, 2 * PAGE), MAPPED, &host.file),
        kernel.map_host(free, MAPPED, &unsealed),
        kernel.map_host(client.at(2 * GRANULE, 4096), MAPPED, &host.file),
        kernel.map_host(client.at(2 * GRANULE, 0), MAPPED, &host.file),
        kernel.map_host(client.at(2 * GRANULE + 4096, PAGE), MAPPED, &host.file),
        kernel.map_host(client.upper(0, PAGE), MAPPED, &host.file),
        kernel.map_host(At(0, window_end, PAGE), MAPPED, &host.file),
        kernel.map_host(At(0, window_end - PAGE, u64::MAX), MAPPED, &host.file),
        kernel.map_host(At(0, client.slot.base().0, PAGE), MAPPED, &host.file),
        kernel.map_host(free, Handle { slot: u32::MAX, generation: 1 }, &host.file),
        kernel.unmap(free),
    ];
    for id in asked {
        println!("{:?}", kernel.answer(id).refused());
    }
    assert_eq!(client.peek(&mut kernel, client.address(0)), 3);
    client.poke(free.1, 1);
    assert_eq!(host.word(0), 0);
    host.map(&mut kernel, free);
    let over = kernel.map(free);
    assert_eq!(kernel.answer(over).refused(), ErrorCode::InvalidArgument);
    // It is not memory that can be shared, split, exported or swapped.
    let other = Client::open(&mut kernel, 1);
    for id in [
        kernel.share(free, other.upper(0, PAGE)),
        kernel.split(client.at(2 * GRANULE, PAGE), free.1),
        kernel.swap_out(0, &[(free.1, PAGE)], true),
    ] {
        assert_eq!(kernel.answer(id).refused(), ErrorCode::InvalidArgument);
    }
    client.poke(free.1, 4);
    assert_eq!(host.word(0), 4);
}
