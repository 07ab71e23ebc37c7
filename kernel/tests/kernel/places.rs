//! Memory that is made without a place, and mapped where its session says.

use bulkhead_schema::{
    Error, ErrorCode, Handle,
    bulkhead_capnp::{Moment, Uses, gpu_buffer},
    limits,
};

use capnp::capability::FromClientHook as _;

use crate::{
    fake::{Asked, Manners},
    handed::{Part, close, derive, derive_buffer, token},
    harness::{Buffer, Client, Session, read, until, with_kernel},
};

const PAGE: u64 = 2 << 20;
const GRANULE: u64 = 64 << 20;

impl Session {
    async fn create(&self, bytes: u64) -> Result<Buffer, Error> {
        let mut request = self.copying().create_request();
        request.get().set_bytes(bytes);
        let response = request.send().promise.await.unwrap();
        let created = read(response.get().unwrap().get_result())?;
        Ok(Buffer {
            client: created.get_buffer().unwrap(),
            handle: Handle::read(created.get_handle().unwrap()),
            address: created.get_address(),
            bytes: created.get_bytes(),
        })
    }

    async fn reserve(&self, bytes: u64, at: u64, alignment: u64) -> Result<(u64, u64), Error> {
        let mut request = self.copying().reserve_addresses_request();
        request.get().set_bytes(bytes);
        request.get().set_at(at);
        request.get().set_alignment(alignment);
        let response = request.send().promise.await.unwrap();
        let reserved = read(response.get().unwrap().get_result())?;
        Ok((reserved.get_address(), reserved.get_bytes()))
    }

    async fn unreserve(&self, address: u64) -> Result<(), Error> {
        let mut request = self.copying().release_addresses_request();
        request.get().set_address(address);
        let response = request.send().promise.await.unwrap();
        read(response.get().unwrap().get_result()).map(drop)
    }
}

async fn reclaimed(part: &Part) {
    assert!(close(&part.client).await.unwrap().wait(Moment::Reclaimed, 20_000).await.0);
}

#[test]
fn memory_without_a_place_is_charged_and_named_by_no_record() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let (free, _) = session.memory().await.unwrap();
        let made = session.create(PAGE + 1).await.unwrap();
        assert_eq!((made.address, made.bytes), (0, 2 * PAGE));
        assert_eq!(session.memory().await.unwrap().0, free - 2 * PAGE);
        let part = derive(&made.view(), 0, PAGE).await.unwrap();
        assert_eq!(part.address, 0);
        let bound = |asked: &Asked| matches!(asked, Asked::Bind { .. });
        assert!(!harness.fake.asked().iter().any(bound));
        let whole = derive_buffer(&made.client, PAGE, PAGE).await.unwrap();
        assert_eq!(whole.address, 0);
        for bytes in [0, u64::MAX, free + PAGE] {
            let code = session.create(bytes).await.err().unwrap().code;
            let expected = if bytes == 0 { ErrorCode::InvalidArgument } else { ErrorCode::OutOfMemory };
            assert_eq!(code, expected, "{bytes}");
        }
        assert_eq!(session.memory().await.unwrap().0, free - 2 * PAGE);
        assert!(close(&made.client).await.unwrap().wait(Moment::Reclaimed, 20_000).await.0);
        until(async || session.memory().await.unwrap().0 == free).await;
        assert_eq!(harness.fake.mapped(session.id), (0, 0));
    });
}

#[test]
fn memory_is_mapped_where_its_session_says_and_as_often() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let made = session.create(2 * PAGE).await.unwrap();
        let (start, bytes) = session.reserve(100 * PAGE, 0, 0).await.unwrap();
        assert_eq!((start, bytes), (session.base + (64 << 30), 100 * PAGE));
        let first = session.map(made.view(), start + 3 * PAGE).await.unwrap();
        assert_eq!((first.address, first.bytes), (start + 3 * PAGE, 2 * PAGE));
        let bound = Asked::Bind { session: session.id, handle: first.handle, writable: true };
        assert!(harness.fake.asked().contains(&bound));
        let second = session.map(made.view(), start + 5 * PAGE).await.unwrap();
        assert_eq!(harness.fake.mapped(session.id), (3, 2 * PAGE), "one memory by three names");
        assert_eq!(client.status().await.sessions[0].granted, 0, "it is nobody else's");
        // Not where something is, nor beyond, nor between pages, nor where nothing is put aside.
        for at in [
            start + 2 * PAGE,
            start + 3 * PAGE,
            start + 6 * PAGE,
            start + 99 * PAGE,
            start + PAGE / 2,
            start - PAGE,
            start + (8 << 30),
            u64::MAX - PAGE + 1,
            1,
        ] {
            let error = session.map(made.view(), at).await.err().unwrap();
            assert_eq!(error.code, ErrorCode::InvalidArgument, "{at:#x}: {error}");
        }
        assert_eq!(session.map(made.view(), 0).await.err().unwrap().code, ErrorCode::InvalidArgument);
        reclaimed(&first).await;
        assert_eq!(harness.fake.mapped(session.id).0, 2);
        let writable: gpu_buffer::Client = second.client.clone().cast_to();
        let part = derive_buffer(&writable, PAGE, PAGE).await.unwrap();
        assert_eq!(part.address, start + 6 * PAGE);
        // The memory's end is that of its mappings.
        assert!(close(&made.client).await.unwrap().wait(Moment::Reclaimed, 20_000).await.0);
        assert_eq!(harness.fake.mapped(session.id), (0, 0));
        let gone = session.map(second.client.clone(), start).await.err().unwrap();
        assert_eq!(gone.code, ErrorCode::Revoked);
    });
}

#[test]
fn what_is_unmapped_makes_room_for_the_next_once_it_is_gone() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let (one, two) = (session.create(PAGE).await.unwrap(), session.create(PAGE).await.unwrap());
        let (start, _) = session.reserve(PAGE, 0, 0).await.unwrap();
        let mapped = session.map(one.view(), start).await.unwrap();
        harness.fake.behave(Manners { holds_unmaps: true, ..Manners::default() });
        close(&mapped.client).await.unwrap();
        let (next, ()) = tokio::join!(session.map(two.view(), start), async {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            let shares = |asked: &Asked| matches!(asked, Asked::Share { .. });
            let count = harness.fake.asked().iter().filter(|asked| shares(asked)).count();
            assert_eq!(count, 1, "mapped over what work may still reach");
            harness.fake.behave(Manners::default());
            harness.fake.let_go();
        });
        assert_eq!(next.unwrap().address, start);
    });
}

#[test]
fn reservations_are_put_where_they_are_asked_for_and_have_a_limit() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let base = session.base + (64 << 30);
        let (first, bytes) = session.reserve(PAGE + 1, base + 8 * GRANULE, 0).await.unwrap();
        assert_eq!((first, bytes), (base + 8 * GRANULE, 2 * PAGE));
        // A wish that cannot be met is none.
        for wish in [first, first + PAGE, base - GRANULE, session.base + (256 << 30), u64::MAX, 4096] {
            let (start, _) = session.reserve(PAGE, wish, 0).await.unwrap();
            assert_ne!(start, wish);
            session.unreserve(start).await.unwrap();
        }
        let (aligned, _) = session.reserve(PAGE, base + 9 * GRANULE, 1 << 30).await.unwrap();
        assert!(aligned.is_multiple_of(1 << 30), "{aligned:#x}");
        for (bytes, alignment) in [(PAGE, 3), (0, 0)] {
            let code = session.reserve(bytes, 0, alignment).await.err().unwrap().code;
            assert_eq!(code, ErrorCode::InvalidArgument, "{bytes} {alignment}");
        }
        for (bytes, alignment) in [(129 << 30, 0), (u64::MAX, 0), (PAGE, 1 << 63)] {
            let code = session.reserve(bytes, 0, alignment).await.err().unwrap().code;
            assert_eq!(code, ErrorCode::OutOfMemory, "{bytes} {alignment}");
        }
        for address in [0, first + PAGE, base + GRANULE, u64::MAX] {
            let code = session.unreserve(address).await.err().unwrap().code;
            assert_eq!(code, ErrorCode::InvalidArgument, "{address:#x}");
        }
        session.unreserve(first).await.unwrap();
        assert_eq!(session.unreserve(first).await.err().unwrap().code, ErrorCode::InvalidArgument);
        // What is granted lies elsewhere.
        let arena = session.allocate(PAGE).await.unwrap();
        assert_ne!(arena.address, aligned);
        for _ in 1..limits::RESERVATIONS_MAX {
            session.reserve(PAGE, 0, 0).await.unwrap();
        }
        assert_eq!(session.reserve(PAGE, 0, 0).await.err().unwrap().code, ErrorCode::LimitReached);
        // All that is left goes with the session: the kernel looks at its registry when it ends.
        drop(arena);
    });
}

#[test]
fn a_reservation_goes_with_the_last_that_is_mapped_in_it() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let made = session.create(PAGE).await.unwrap();
        let (start, _) = session.reserve(4 * PAGE, 0, 0).await.unwrap();
        let mapped = session.map(made.view(), start).await.unwrap();
        session.unreserve(start).await.unwrap();
        assert_eq!(
            session.map(made.view(), start + PAGE).await.err().unwrap().code,
            ErrorCode::InvalidArgument
        );
        assert_ne!(session.reserve(PAGE, start, 0).await.unwrap().0, start);
        assert_eq!(harness.fake.mapped(session.id).0, 2, "it is mapped still");
        reclaimed(&mapped).await;
        assert_eq!(session.reserve(PAGE, start, 0).await.unwrap().0, start);
    });
}

#[test]
fn memory_without_a_place_is_shared_whole_and_taken_back() {
    with_kernel(async |harness| {
        let (giver, taker) = (Client::new(&harness.directory).await, Client::new(&harness.directory).await);
        let (from, to) = (giver.open("giver").await.unwrap(), taker.open("taker").await.unwrap());
        let made = from.create(2 * PAGE).await.unwrap();
        let share = derive_buffer(&made.client, 0, 2 * PAGE).await.unwrap();
        let given = taker.restore(token(&share.client, Uses::UntilRevoked).await.unwrap()).await.unwrap();
        let (start, _) = to.reserve(8 * PAGE, 0, 0).await.unwrap();
        let mapped = to.map(given.view(), start + 4 * PAGE).await.unwrap();
        // A second time, where the kernel likes.
        let again = to.accept(given.view()).await.unwrap();
        assert_eq!((mapped.address, mapped.bytes), (start + 4 * PAGE, 2 * PAGE));
        assert_ne!(again.address, mapped.address);
        let half = derive(&made.view(), PAGE, PAGE).await.unwrap();
        let half = taker.restore(token(&half.client, Uses::One).await.unwrap()).await.unwrap();
        assert_eq!(to.accept(half.view()).await.err().unwrap().code, ErrorCode::NotSupported);
        let view = derive(&made.view(), 0, 2 * PAGE).await.unwrap();
        let view = taker.restore(token(&view.client, Uses::One).await.unwrap()).await.unwrap();
        assert_eq!(to.map(view.view(), start).await.err().unwrap().code, ErrorCode::InvalidArgument);
        assert!(to.accept(view.view()).await.unwrap().address >= to.base + (256 << 30));
        // Its own, by a token: only in a reservation.
        let own = giver.restore(token(&share.client, Uses::One).await.unwrap()).await.unwrap();
        assert_eq!(from.accept(own.view()).await.err().unwrap().code, ErrorCode::InvalidArgument);
        let (place, _) = from.reserve(2 * PAGE, 0, 0).await.unwrap();
        from.map(own.view(), place).await.unwrap();

        assert!(close(&made.client).await.unwrap().wait(Moment::Reclaimed, 20_000).await.0);
        assert_eq!((harness.fake.mapped(from.id), harness.fake.mapped(to.id)), ((0, 0), (0, 0)));
        // The place is free for the next.
        let next = to.create(8 * PAGE).await.unwrap();
        assert_eq!(to.map(next.view(), start).await.unwrap().address, start);
    });
}
