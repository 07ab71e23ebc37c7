//! Memory of one session, mapped in another.

use bulkhead_schema::ErrorCode;

use crate::{
    client::{Client, PEEK, SPIN},
    kernel::{Answer, GRANULE, Kernel, MIB, PAGE},
};

fn two(kernel: &mut Kernel) -> (Client, Client) {
    (Client::open(kernel, 0), Client::open(kernel, 1))
}

#[test]
fn what_is_shared_is_read_by_the_other_sessions_kernels_and_not_written_through_the_upper_half() {
    let mut kernel = Kernel::start();
    let (mut a, mut b) = two(&mut kernel);
    let id = kernel.map(a.at(GRANULE, 2 * PAGE));
    kernel.answer(id).done();
    a.poke(a.address(GRANULE) + 8, 41);
    let id = kernel.share(a.at(GRANULE, 2 * PAGE), b.upper(4 * GRANULE, 2 * PAGE));
    kernel.answer(id).done();
    let seen = b.upper(4 * GRANULE, 2 * PAGE).1;
    assert_eq!(b.peek(&mut kernel, seen + 8), 41);
    b.poke(seen + 8, 99);
    assert!(!b.fill(&mut kernel, 0, seen + 8, 98, 1), "a fill wrote through the upper half");
    assert_eq!(b.page.refusal().unwrap().code, ErrorCode::NotPermitted as u16);
    assert_eq!(a.read(&mut kernel, a.address(GRANULE) + 8), 41);
    assert_eq!(b.read(&mut kernel, seen + 8), 41, "a copy reads what a kernel reads");
    a.poke(a.address(GRANULE) + 8, 42);
    assert_eq!(b.peek(&mut kernel, seen + 8), 42);
    // The rest of the granule is the session's own sink: neither a fault nor anybody's memory.
    assert_eq!(b.peek(&mut kernel, seen + 2 * PAGE + 8), 0);
    assert_eq!(b.peek(&mut kernel, seen + GRANULE - 4), 0);
}

#[test]
fn memory_that_is_shared_for_writing_is_written_by_both() {
    let mut kernel = Kernel::start();
    let (mut a, mut b) = two(&mut kernel);
    let id = kernel.share(a.at(0, GRANULE), b.at(2 * GRANULE, GRANULE));
    kernel.answer(id).done();
    let (ours, theirs) = (a.address(4096), b.address(2 * GRANULE + 4096));
    b.poke(theirs, 7);
    assert_eq!(a.read(&mut kernel, ours), 7);
    a.poke(ours, 8);
    assert_eq!(b.read(&mut kernel, theirs), 8);
}

#[test]
fn memory_outlives_its_first_mapping_and_is_gone_with_the_last() {
    let mut kernel = Kernel::start();
    let (mut a, mut b) = two(&mut kernel);
    a.poke(a.address(0), 5);
    let theirs = b.at(2 * GRANULE, GRANULE);
    let id = kernel.share(a.at(0, GRANULE), theirs);
    kernel.answer(id).done();
    kernel.unmapped(a.at(0, GRANULE));
    assert_eq!(b.peek(&mut kernel, theirs.1), 5, "scrubbed while somebody had it");
    let id = kernel.close(a.session);
    kernel.answer(id).done();
    assert_eq!(b.peek(&mut kernel, theirs.1), 5, "scrubbed while somebody had it");
    let gone = kernel.share(a.at(0, GRANULE), b.at(4 * GRANULE, GRANULE));
    assert_eq!(kernel.answer(gone).refused(), ErrorCode::SessionLost);
    kernel.unmapped(theirs);
    assert_eq!(b.peek(&mut kernel, theirs.1), 0, "the sink is not in its place");
}

#[test]
fn unmapping_waits_for_the_kernel_that_can_reach_it_and_kernels_after_it_see_sinks() {
    let mut kernel = Kernel::start();
    let (mut a, mut b) = two(&mut kernel);
    b.create_stream(1);
    let theirs = b.upper(0, GRANULE);
    let id = kernel.share(a.at(0, GRANULE), theirs);
    kernel.answer(id).done();
    a.poke(a.address(0), 17);
    let (flag, done) = (b.address(128), b.address(256));
    let spinning = b.launch(1, SPIN, [flag, done]);
    b.run(PEEK, [b.address(192), theirs.1]);
    let unmapping = kernel.unmap(theirs);
    assert!(!kernel.has_answer(unmapping), "unmapped under a running kernel");
    // Nothing of the session starts meanwhile, all else is served.
    let late = b.launch(0, PEEK, [b.address(196), theirs.1]);
    let id = kernel.bind(b.session, &[]);
    kernel.answer(id).done();
    assert!(b.page.mark(0) < late, "a kernel started during a pause");
    // The other session goes on, and ends the kernel through memory of both.
    let id = kernel.share(b.at(0, GRANULE), a.at(8 * GRANULE, GRANULE));
    kernel.answer(id).done();
    a.poke(a.address(8 * GRANULE + 128), 1);
    assert!(matches!(kernel.answer(unmapping), Answer::Quiescent));
    assert!(b.page.mark(1) >= spinning, "quiescent while it ran");
    kernel.answer(unmapping).done();
    b.wait(0, late);
    assert_eq!(b.read(&mut kernel, b.address(192)), 17);
    assert_eq!(b.read(&mut kernel, b.address(196)), 0, "a kernel saw what was unmapped");
    assert_eq!(a.read(&mut kernel, a.address(0)), 17, "scrubbed while somebody had it");
}

#[test]
fn a_session_whose_kernel_never_ends_delays_nobody() {
    let mut kernel = Kernel::start();
    let (mut a, mut b) = two(&mut kernel);
    // Loading code is what does wait: it is done before.
    let mut c = Client::open(&mut kernel, 2);
    let spinning = a.launch(0, SPIN, [a.address(128), a.address(256)]);
    kernel.wait_until_busy(0);
    let stuck = kernel.map(a.at(GRANULE, GRANULE));
    let unmapping = kernel.unmap(a.at(0, GRANULE));
    let id = kernel.map(b.at(GRANULE, GRANULE));
    kernel.answer(id).done();
    let id = kernel.share(a.at(0, GRANULE), b.upper(0, GRANULE));
    kernel.answer(id).done();
    let id = kernel.share(a.at(0, GRANULE), b.at(4 * GRANULE, GRANULE));
    kernel.answer(id).done();
    let bare = Client::bare(&mut kernel, 3);
    let id = kernel.close(bare.session);
    kernel.answer(id).done();
    c.poke(c.address(0), 3);
    assert_eq!(c.read(&mut kernel, c.address(0)), 3);
    let id = kernel.unbind(c.session, &[crate::client::IMAGE]);
    kernel.answer(id).done();
    let id = kernel.close(c.session);
    kernel.answer(id).done();
    assert_eq!(b.peek(&mut kernel, b.upper(0, GRANULE).1), 0);
    assert!(a.page.mark(0) < spinning, "the kernel ended by itself");
    // It is refused more memory, and what is taken from it waits as long as it takes.
    assert_eq!(kernel.answer(stuck).refused(), ErrorCode::OutOfMemory);
    assert!(!kernel.has_answer(unmapping));
    let id = kernel.map(b.at(8 * GRANULE, PAGE));
    kernel.answer(id).done();
    // Until the session ends: that ends its kernel.
    let closing = kernel.close(a.session);
    assert!(matches!(kernel.answer(unmapping), Answer::Quiescent));
    kernel.answer(unmapping).done();
    kernel.answer(closing).done();
    assert_eq!(b.peek(&mut kernel, b.address(4 * GRANULE + 256)), 0, "the kernel ran to its end");
    assert_eq!(b.peek(&mut kernel, b.address(4 * GRANULE + 128)), 0);
    // What runs in the slot next is not ended.
    let mut next = Client::open(&mut kernel, 0);
    next.poke(next.address(0), 8);
    assert_eq!(next.peek(&mut kernel, next.address(0)), 8);
}

#[test]
fn splitting_keeps_what_is_there_and_the_pieces_go_one_by_one() {
    let mut kernel = Kernel::start();
    let (mut a, mut b) = two(&mut kernel);
    let (at, bytes) = (a.address(GRANULE), GRANULE + 6 * PAGE);
    let id = kernel.map(a.at(GRANULE, bytes));
    kernel.answer(id).done();
    let words = [0, 2 * PAGE - 4, 2 * PAGE, GRANULE - 4, GRANULE, GRANULE + 4 * PAGE, bytes - 4];
    for (value, word) in (1..).zip(words) {
        a.poke(at + word, value);
    }
    let id = kernel.split(a.at(GRANULE, bytes), at + 2 * PAGE);
    kernel.answer(id).done();
    let id = kernel.split(a.at(GRANULE + 2 * PAGE, bytes - 2 * PAGE), at + GRANULE + 4 * PAGE);
    kernel.answer(id).done();
    for (value, word) in (1..).zip(words) {
        assert_eq!(a.peek(&mut kernel, at + word), value, "at {word:#x}");
    }
    let id = kernel.share(a.at(GRANULE, 2 * PAGE), b.upper(0, 2 * PAGE));
    kernel.answer(id).done();
    assert_eq!(b.peek(&mut kernel, b.upper(0, 0).1 + 2 * PAGE - 4), 2);
    let whole = kernel.split(a.at(GRANULE, 2 * PAGE), at + PAGE);
    assert_eq!(kernel.answer(whole).refused(), ErrorCode::InvalidArgument);
    // The middle goes; its neighbours, in the same granules, stay.
    kernel.unmapped(a.at(GRANULE + 2 * PAGE, GRANULE + 2 * PAGE));
    let left = [1, 2, 0, 0, 0, 6, 7];
    for (value, word) in left.into_iter().zip(words) {
        assert_eq!(a.peek(&mut kernel, at + word), value, "at {word:#x}");
    }
    kernel.unmapped(a.at(GRANULE, 2 * PAGE));
    kernel.unmapped(a.at(2 * GRANULE + 4 * PAGE, 2 * PAGE));
    for word in words {
        assert_eq!(a.peek(&mut kernel, at + word), 0, "at {word:#x}");
    }
    // All of it takes memory again, and whole granules at that.
    let id = kernel.map(a.at(GRANULE, 4 * GRANULE));
    kernel.answer(id).done();
    a.poke(at + 70 * MIB, 9);
    assert_eq!(a.peek(&mut kernel, at + 70 * MIB), 9);
}
