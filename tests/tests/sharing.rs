//! Memory that sessions share: read-only, read-write, in part, by token and by grant, and by nobody who was not asked.

use std::{thread, time::Duration};

use bulkhead_client::{Access, ErrorCode, Launch, Parameters, Pattern, Received, Stream, SturdyToken, Uses};
use bulkhead_tests::{
    kernel::Kernel,
    patience::until,
    tenant::{PAGE_BYTES, Tenant},
};

const FIRST: Stream = Stream::DEFAULT;
const SOON: Duration = Duration::from_secs(30);

#[test]
fn a_view_is_read_by_the_other_sessions_kernels_and_written_by_none_of_its_work() {
    let kernel = Kernel::start();
    let (giver, taker) = (Tenant::new(&kernel, "giver"), Tenant::new(&kernel, "taker"));
    let arena = giver.arena(2 * PAGE_BYTES, 0x5eed);
    let view = arena.share(0, arena.bytes(), Access::Read).unwrap();
    let seen = taker.restore(view.token(Uses::One).unwrap());
    assert_eq!((seen.access(), seen.bytes()), (Access::Read, arena.bytes()));
    let mapped = taker.session.accept(&seen).unwrap();

    // In the half that stores do not reach, of the taker's own slot.
    let (base, bytes) = taker.session.window();
    assert!(
        mapped.address() >= base + bytes / 2 && mapped.address() < base + bytes,
        "{:#x}",
        mapped.address()
    );
    assert_eq!(taker.loads(mapped.address()), 0x5eed);
    assert_eq!(taker.loads(mapped.address() + arena.bytes() - 4), 0x5eed);

    taker.stores(mapped.address() + 64, 1);
    let refused =
        taker.session.fill(FIRST, mapped.all(), Pattern::Bits32(2)).and_then(|f| taker.session.wait(f));
    let refused = refused.unwrap_err();
    assert!(refused.code == ErrorCode::NotPermitted && refused.message.contains("only be read"), "{refused}");
    let pinned = taker.session.allocate_host(4096).unwrap();
    let copied = taker.session.copy_to_device(FIRST, mapped.range(0, 4), pinned.span(0, 4));
    let refused = copied.and_then(|fence| taker.session.wait(fence));
    let refused = refused.unwrap_err();
    assert!(refused.code == ErrorCode::NotPermitted && refused.message.contains("only be read"), "{refused}");
    assert!(giver.words(arena.all()).iter().all(|word| *word == 0x5eed), "a view was written through");

    // What the giver writes shows in the taker, by copy and by kernel.
    giver.fill(arena.range(0, 4), 77);
    assert_eq!(taker.words(mapped.range(0, 8)), [77, 0x5eed]);
    assert_eq!(taker.loads(mapped.address()), 77);
}

#[test]
fn a_buffer_that_is_shared_read_write_is_written_by_both() {
    let kernel = Kernel::start();
    let (giver, taker) = (Tenant::new(&kernel, "giver"), Tenant::new(&kernel, "taker"));
    let arena = giver.arena(PAGE_BYTES, 1);
    let share = arena.share(0, PAGE_BYTES, Access::ReadWrite).unwrap();
    let mapped = taker.session.accept(&taker.restore(share.token(Uses::One).unwrap())).unwrap();
    assert_eq!(mapped.access(), Access::ReadWrite);
    taker.stores(mapped.address() + 8, 2);
    taker.fill(mapped.range(12, 4), 3);
    giver.stores(arena.address() + 16, 4);
    assert_eq!(giver.words(arena.range(0, 24)), [1, 1, 2, 3, 4, 1]);
    assert_eq!(taker.words(mapped.range(0, 24)), [1, 1, 2, 3, 4, 1]);
}

#[test]
fn a_part_is_shared_and_the_rest_is_not() {
    let kernel = Kernel::start();
    let (giver, taker) = (Tenant::new(&kernel, "giver"), Tenant::new(&kernel, "taker"));
    let arena = giver.arena(8 * PAGE_BYTES, 0);
    for page in 0..8 {
        giver.fill(arena.range(page * PAGE_BYTES, PAGE_BYTES), 100 + u32::try_from(page).unwrap());
    }
    let part = arena.share(3 * PAGE_BYTES, 2 * PAGE_BYTES, Access::ReadWrite).unwrap();
    let mapped = taker.session.accept(&taker.restore(part.token(Uses::One).unwrap())).unwrap();
    assert_eq!(mapped.bytes(), 2 * PAGE_BYTES);
    let words = taker.words(mapped.all());
    let half = words.len() / 2;
    assert!(words[..half].iter().all(|word| *word == 103) && words[half..].iter().all(|word| *word == 104));
    // What lies beside it in the giver is not what lies beside it in the taker.
    assert_ne!(taker.loads(mapped.address() - 4), 102);
    assert_ne!(taker.loads(mapped.address() + mapped.bytes()), 105);
    taker.fill(mapped.all(), 9);
    for page in 0..8 {
        let expected = if page == 3 || page == 4 { 9 } else { 100 + u32::try_from(page).unwrap() };
        let words = giver.words(arena.range(page * PAGE_BYTES, PAGE_BYTES));
        assert!(words.iter().all(|word| *word == expected), "page {page}");
    }
}

#[test]
fn a_capability_reaches_no_further_than_what_it_was_derived_from() {
    let kernel = Kernel::start();
    let giver = Tenant::new(&kernel, "giver");
    let arena = giver.arena(4 * PAGE_BYTES, 5);
    let view = arena.share(PAGE_BYTES, 2 * PAGE_BYTES, Access::Read).unwrap();
    for (offset, bytes) in [(0, 2 * PAGE_BYTES + 1), (2 * PAGE_BYTES, 1), (u64::MAX, 1), (1, u64::MAX)] {
        let refused = view.derive(offset, bytes, Access::Read).map(drop).unwrap_err();
        assert_eq!(refused.code, ErrorCode::InvalidArgument, "{offset} {bytes}");
    }
    let refused = view.derive(0, 4, Access::ReadWrite).map(drop).unwrap_err();
    assert_eq!(refused.code, ErrorCode::NotPermitted);
    let inner = view.derive(PAGE_BYTES, 512, Access::Read).unwrap();
    assert_eq!((inner.address(), inner.bytes()), (arena.address() + 2 * PAGE_BYTES, 512));
    assert_eq!(giver.words(inner.range(0, 4)), [5]);
    let beyond = giver.session.read(FIRST, &mut [0; 8], inner.range(508, 8));
    let beyond = beyond.unwrap_err();
    assert!(
        beyond.code == ErrorCode::InvalidArgument && beyond.message.contains("beyond the end"),
        "{beyond}"
    );
    let written = giver.session.fill(FIRST, inner.range(0, 4), Pattern::Bits32(0));
    let refused = written.and_then(|fence| giver.session.wait(fence));
    let refused = refused.unwrap_err();
    assert!(refused.code == ErrorCode::NotPermitted && refused.message.contains("only be read"), "{refused}");
}

#[test]
fn what_is_not_whole_pages_is_not_mapped_and_says_so() {
    let kernel = Kernel::start();
    let (giver, taker) = (Tenant::new(&kernel, "giver"), Tenant::new(&kernel, "taker"));
    let arena = giver.arena(2 * PAGE_BYTES, 5);
    for (offset, bytes) in [(0, 512), (512, PAGE_BYTES), (0, PAGE_BYTES + 4)] {
        let share = arena.share(offset, bytes, Access::Read).unwrap();
        let seen = taker.restore(share.token(Uses::One).unwrap());
        let refused = taker.session.accept(&seen).map(drop).unwrap_err();
        assert_eq!(refused.code, ErrorCode::NotSupported, "{offset} {bytes}");
        assert!(refused.message.contains("2 MiB"), "{refused}");
    }
}

/// What lies beside a block today is another's tomorrow.
#[test]
fn a_block_of_an_arena_is_not_shared_and_says_what_to_share_instead() {
    let kernel = Kernel::start();
    let giver = Tenant::new(&kernel, "giver");
    for (bytes, access) in [(512, Access::Read), (PAGE_BYTES, Access::ReadWrite)] {
        let block = giver.session.allocate(PAGE_BYTES).unwrap();
        let refused = block.share(0, bytes, access).map(drop).unwrap_err();
        assert_eq!(refused.code, ErrorCode::InvalidArgument);
        assert!(refused.remedy.contains("allocate_arena"), "{refused:?}");
    }
}

#[test]
fn an_exported_block_is_nobody_s_until_no_other_session_reaches_it() {
    let kernel = Kernel::start();
    let (giver, taker) = (Tenant::new(&kernel, "giver"), Tenant::new(&kernel, "taker"));
    let block = giver.session.allocate(4096).unwrap();
    giver.fill(block.all(), 1);
    let export = block.export().unwrap();
    assert_eq!(block.export().unwrap(), export);
    // The word for answers lies in the same page.
    assert!(export.shares_pages);
    let large = giver.session.allocate(2 * PAGE_BYTES + 4).unwrap();
    assert!(!large.export().unwrap().shares_pages, "a large block has its pages for itself");
    let import = taker.session.import(export.token).unwrap();
    let address = import.address() + export.offset;
    taker.stores(address + 4, 2);
    taker.fill(import.range(export.offset + 8, 4), 3);
    assert_eq!(giver.words(block.range(0, 16)), [1, 2, 3, 1]);

    let place = block.address();
    let running = taker.runs(address);
    drop(block);
    let heirs: Vec<_> = (0..4).map(|_| giver.session.allocate(4096).unwrap()).collect();
    assert!(!running.is_over(), "nobody waited for the kernel");
    assert!(heirs.iter().all(|heir| heir.address() != place), "the taker's kernel still writes it");
    running.end();
    until("the place is free", || giver.session.allocate(4096).unwrap().address() == place);
    let heir = giver.session.allocate(4096).unwrap();
    assert_eq!(heir.address(), place);
    assert_eq!(taker.session.import(export.token).map(drop).unwrap_err().code, ErrorCode::NotFound);
    giver.fill(heir.all(), 0x600d);
    taker.stores(address, 0xbad);
    assert_ne!(taker.loads(address + 8), 0x600d);
    assert!(giver.words(heir.all()).iter().all(|word| *word == 0x600d));
}

#[test]
fn a_token_is_good_once_or_until_it_is_taken_back_and_a_forged_one_never() {
    let kernel = Kernel::start();
    let (giver, taker) = (Tenant::new(&kernel, "giver"), Tenant::new(&kernel, "taker"));
    let arena = giver.arena(PAGE_BYTES, 5);
    let share = arena.share(0, PAGE_BYTES, Access::Read).unwrap();
    let once = share.token(Uses::One).unwrap();
    drop(taker.restore(once));
    let gone = |token| taker.session.restore(token).map(drop).unwrap_err().code;
    assert_eq!(gone(once), ErrorCode::NotFound);

    let often = share.token(Uses::UntilRevoked).unwrap();
    drop((taker.restore(often), taker.restore(often)));
    let mut forged = often;
    forged.0[31] ^= 1;
    assert_eq!(gone(forged), ErrorCode::NotFound);
    assert_eq!(gone(SturdyToken([0; 32])), ErrorCode::NotFound);
    share.drop_tokens().unwrap();
    assert_eq!(gone(often), ErrorCode::NotFound);

    let last = share.token(Uses::UntilRevoked).unwrap();
    drop(share);
    // The share is given up without waiting.
    let start = std::time::Instant::now();
    while let Ok(restored) = taker.session.restore(last) {
        drop(restored);
        assert!(start.elapsed() < SOON, "the token outlives its capability");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_peer_is_given_memory_by_a_capability_in_an_argument() {
    let kernel = Kernel::start();
    let (giver, taker) = (Tenant::new(&kernel, "giver"), Tenant::new(&kernel, "taker"));
    let peer = taker.session.peer().unwrap();
    let Received::Peer(to_taker) = giver.session.restore(peer.token(Uses::One).unwrap()).unwrap() else {
        panic!("not a peer");
    };
    assert!(taker.session.granted(Duration::ZERO).unwrap().is_none());
    let arena = giver.arena(PAGE_BYTES, 0xabc);
    let share = arena.share(0, PAGE_BYTES, Access::Read).unwrap();
    to_taker.grant(&share).unwrap();
    let Some(Received::Share(granted)) = taker.session.granted(SOON).unwrap() else { panic!("nothing came") };
    let mapped = taker.session.accept(&granted).unwrap();
    assert_eq!(taker.loads(mapped.address() + 512), 0xabc);
    assert!(taker.session.granted(Duration::ZERO).unwrap().is_none());
}

#[test]
fn four_stages_hand_their_results_on_without_a_copy() {
    let kernel = Kernel::start();
    let stages: Vec<Tenant> = (0..4).map(|stage| Tenant::new(&kernel, &format!("stage {stage}"))).collect();
    let count = u32::try_from(PAGE_BYTES / 4).unwrap();
    let outputs: Vec<_> = stages.iter().map(|stage| stage.arena(PAGE_BYTES, 0)).collect();
    let source = stages[0].arena(PAGE_BYTES, 7);
    let mut inputs = vec![source.address()];
    let mut held = Vec::new();
    for (stage, output) in stages.iter().skip(1).zip(&outputs) {
        let share = output.share(0, PAGE_BYTES, Access::Read).unwrap();
        let mapped = stage.session.accept(&stage.restore(share.token(Uses::One).unwrap())).unwrap();
        inputs.push(mapped.address());
        held.push((share, mapped));
    }
    for ((stage, input), output) in stages.iter().zip(&inputs).zip(&outputs) {
        let parameters = Parameters::new().u32(count).u64(*input).buffer(output);
        let launch = Launch::linear(count, 256);
        let fence = stage.session.launch(FIRST, &stage.entry("stage"), &launch, &parameters).unwrap();
        // The next stage's session learns of it through a capability.
        assert!(stage.session.publish(fence).unwrap().wait(SOON).unwrap());
    }
    let expected = (0..4).fold(7_u32, |value, _| value * 3 + 1);
    assert!(stages[3].words(outputs[3].all()).iter().all(|word| *word == expected));
}
