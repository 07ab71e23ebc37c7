//! Memory that is made without a place: mapped at addresses of a program's choice, shared, and taken back.

use std::time::Duration;

use bulkhead_client::{ErrorCode, Moment, SturdyToken, Uses};
use bulkhead_tests::{
    kernel::Kernel,
    patience::until,
    tenant::{PAGE_BYTES, Tenant},
};

const SOON: Duration = Duration::from_secs(20);

#[test]
fn pieces_are_mapped_one_after_the_other_in_one_reservation_and_unmapped_again() {
    let kernel = Kernel::start();
    let tenant = Tenant::new(&kernel, "tenant");
    let free = tenant.session.memory().unwrap().free_bytes;
    // Far more addresses than memory.
    let reservation = tenant.session.reserve_addresses(100 << 30, None, 0).unwrap();
    assert_eq!(tenant.session.memory().unwrap().free_bytes, free, "addresses are not memory");
    let pieces: Vec<_> = (0..6)
        .map(|piece| {
            let made = tenant.session.create(3 * PAGE_BYTES).unwrap();
            assert_eq!((made.address(), made.bytes()), (0, 3 * PAGE_BYTES));
            let at = reservation.address() + piece * 3 * PAGE_BYTES;
            tenant.session.accept_at(&made, at).unwrap()
        })
        .collect();
    assert_eq!(tenant.session.memory().unwrap().free_bytes, free - 18 * PAGE_BYTES);
    for (piece, value) in pieces.iter().zip(100..) {
        tenant.fill(piece.all(), value);
    }
    // Kernels see one piece after the other, across every border.
    for (piece, value) in pieces.iter().zip(100..) {
        assert_eq!(tenant.loads(piece.address()), value);
        assert_eq!(tenant.loads(piece.address() + piece.bytes() - 4), value);
    }
    tenant.stores(pieces[3].address() - 4, 7);
    assert_eq!(*tenant.words(pieces[2].all()).last().unwrap(), 7);

    let mut pieces = pieces;
    let hole = pieces.remove(2);
    let place = hole.address();
    hole.close().unwrap().wait(Moment::Reclaimed, SOON).unwrap();
    assert_ne!(tenant.loads(place), 102, "what was unmapped is still there");
    assert_eq!((tenant.loads(place - 4), tenant.loads(place + 3 * PAGE_BYTES)), (101, 103));
    // What was mapped there had no other name, and goes once the mapping has gone.
    until("its memory is back", || tenant.session.memory().unwrap().free_bytes == free - 15 * PAGE_BYTES);
    let made = tenant.session.create(3 * PAGE_BYTES).unwrap();
    let next = tenant.session.accept_at(&made, place).unwrap();
    assert!(tenant.words(next.all()).iter().all(|word| *word == 0), "not scrubbed");
    drop((pieces, made, next, reservation));
    until("all memory is back", || tenant.session.memory().unwrap().free_bytes == free);
    let all = tenant.session.reserve_addresses(128 << 30, None, 0).map(|all| all.bytes());
    assert_eq!(all.unwrap_err().code, ErrorCode::OutOfMemory, "the tenant's own word lies somewhere");
    until("all addresses are back", || tenant.session.reserve_addresses(127 << 30, None, 0).is_ok());
}

#[test]
fn what_a_mapping_held_is_there_when_it_is_mapped_again_elsewhere_and_twice() {
    let kernel = Kernel::start();
    let tenant = Tenant::new(&kernel, "tenant");
    let reservation = tenant.session.reserve_addresses(8 * PAGE_BYTES, None, 0).unwrap();
    let made = tenant.session.create(2 * PAGE_BYTES).unwrap();
    let first = tenant.session.accept_at(&made, reservation.address()).unwrap();
    tenant.fill(first.all(), 5);
    first.close().unwrap();
    let low = tenant.session.accept_at(&made, reservation.address() + 2 * PAGE_BYTES).unwrap();
    let high = tenant.session.accept_at(&made, reservation.address() + 4 * PAGE_BYTES).unwrap();
    tenant.stores(low.address() + 8, 6);
    assert_eq!(tenant.words(high.range(0, 16)), [5, 5, 6, 5]);
    let taken = tenant.session.accept_at(&made, reservation.address() + 3 * PAGE_BYTES);
    assert_eq!(taken.map(drop).unwrap_err().code, ErrorCode::InvalidArgument);
    // The maker's own reference is not needed for what is mapped.
    drop(made);
    assert_eq!(tenant.loads(high.address() + 8), 6);
}

#[test]
fn memory_without_a_place_is_shared_and_nothing_is_left_of_it_when_it_is_taken_back() {
    let kernel = Kernel::start();
    let before = kernel.status();
    {
        let (giver, taker) = (Tenant::new(&kernel, "giver"), Tenant::new(&kernel, "taker"));
        let free = taker.session.memory().unwrap().free_bytes;
        let made = giver.session.create(2 * PAGE_BYTES).unwrap();
        let given = giver.session.reserve_addresses(2 * PAGE_BYTES, None, 0).unwrap();
        let ours = giver.session.accept_at(&made, given.address()).unwrap();
        giver.fill(ours.all(), 11);
        let token = made.token(Uses::UntilRevoked).unwrap();
        let place = taker.session.reserve_addresses(64 * PAGE_BYTES, None, 0).unwrap();
        let theirs = taker.session.accept_at(&taker.restore(token), place.address() + PAGE_BYTES).unwrap();
        assert_eq!(taker.loads(theirs.address() + 4), 11);
        taker.stores(theirs.address() + 4, 12);
        assert_eq!(giver.words(ours.range(0, 8)), [11, 12]);
        assert_eq!(taker.session.memory().unwrap().free_bytes, free - 2 * PAGE_BYTES, "of the device's own");
        let of = |name: &str| kernel.status().session(name).map(|session| session.buffer_bytes);
        assert_eq!(of("giver"), of("taker").map(|word| word + 2 * PAGE_BYTES), "its maker is charged for it");

        // A kernel of the taker's that runs on keeps it until it ends, and no longer.
        let running = taker.runs(theirs.address());
        let revocation = made.close().unwrap();
        assert!(!revocation.wait(Moment::Quiescent, Duration::from_millis(50)).unwrap().reached);
        assert!(!running.is_over());
        running.end();
        assert!(revocation.wait(Moment::Reclaimed, SOON).unwrap().reached);
        assert!(taker.session.restore(token).is_err(), "the token outlives the memory");
        giver.stores(ours.address(), 1);
        taker.stores(theirs.address(), 2);
        assert_ne!(giver.loads(ours.address() + 4), 12);
        assert_eq!(taker.session.memory().unwrap().free_bytes, free);
        // Both places take memory again.
        for (tenant, address) in [(&giver, given.address()), (&taker, place.address() + PAGE_BYTES)] {
            let next = tenant.session.create(2 * PAGE_BYTES).unwrap();
            let next = tenant.session.accept_at(&next, address).unwrap();
            assert!(tenant.words(next.all()).iter().all(|word| *word == 0), "not scrubbed");
        }
    }
    until("the kernel is as it was", || kernel.status() == before);
}

#[test]
fn hostile_sizes_places_and_tokens_change_nothing() {
    let kernel = Kernel::start();
    let tenant = Tenant::new(&kernel, "tenant");
    let session = &tenant.session;
    let free = session.memory().unwrap().free_bytes;
    assert_eq!(session.create(0).map(drop).unwrap_err().code, ErrorCode::InvalidArgument);
    assert_eq!(session.create(u64::MAX).map(drop).unwrap_err().code, ErrorCode::OutOfMemory);
    assert_eq!(session.create(1 << 62).map(drop).unwrap_err().code, ErrorCode::OutOfMemory);
    let made = session.create(PAGE_BYTES).unwrap();
    let reservation = session.reserve_addresses(4 * PAGE_BYTES, None, 0).unwrap();
    let (base, bytes) = session.window();
    for at in [
        1,
        base,
        base + bytes,
        base - PAGE_BYTES,
        reservation.address() + 1,
        reservation.address() + 4 * PAGE_BYTES,
        tenant.arena(PAGE_BYTES, 3).address(),
        u64::MAX,
        u64::MAX - PAGE_BYTES + 1,
        0,
    ] {
        let refused = session.accept_at(&made, at).map(drop).unwrap_err();
        assert_eq!(refused.code, ErrorCode::InvalidArgument, "{at:#x}");
    }
    assert_eq!(session.accept(&made).map(drop).unwrap_err().code, ErrorCode::InvalidArgument);
    let nowhere = tenant.session.read(bulkhead_client::Stream::DEFAULT, &mut [0; 4], made.range(0, 4));
    assert_eq!(nowhere.unwrap_err().code, ErrorCode::InvalidHandle, "a record names what lies nowhere");
    assert!(session.restore(SturdyToken([7; 32])).is_err());
    let mapped = session.accept_at(&made, reservation.address()).unwrap();
    tenant.stores(mapped.address(), 4);
    drop((made, mapped, reservation));
    until("all memory is back", || session.memory().unwrap().free_bytes == free);
}

#[test]
fn memory_without_a_place_survives_the_loss_of_the_executor_where_it_was_mapped() {
    let kernel = Kernel::with(&["--standby"]);
    until("a standby is ready", || kernel.status().standby_pid != 0);
    let tenant = Tenant::new(&kernel, "tenant");
    let reservation = tenant.session.reserve_addresses(8 * PAGE_BYTES, None, 0).unwrap();
    let made = tenant.session.create(2 * PAGE_BYTES).unwrap();
    let places = [3, 5].map(|page| reservation.address() + page * PAGE_BYTES);
    let mapped = places.map(|place| tenant.session.accept_at(&made, place).unwrap());
    tenant.fill(mapped[0].all(), 21);
    let executor = kernel.status().executor_pid;
    bulkhead_tests::process::kill(executor);
    until("the standby has taken over", || kernel.status().executor_pid != executor);
    // One error tells of the loss.
    let lost = |error: &bulkhead_client::Error| error.code == ErrorCode::WorkLost;
    until("the loss is told", || {
        let mut word = [0; 4];
        let read = tenant.session.read(bulkhead_client::Stream::DEFAULT, &mut word, mapped[1].range(0, 4));
        assert!(read.as_ref().err().is_none_or(lost), "{read:?}");
        read.is_ok()
    });
    assert!(tenant.words(mapped[1].all()).iter().all(|word| *word == 21));
    tenant.stores(places[1] + 8, 22);
    assert_eq!(tenant.words(mapped[0].range(0, 12)), [21, 21, 22]);
}
