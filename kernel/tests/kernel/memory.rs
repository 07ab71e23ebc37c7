//! Buffers, host memory, and their way back.

use bulkhead_mm::Resource;
use bulkhead_schema::ErrorCode;

use crate::{
    fake::{Asked, MEMORY_BYTES, Manners},
    harness::{
        Buffer, Client, descriptor_socket, everything_given_back, exchange, read, until, with_changed_kernel,
        with_kernel,
    },
};

const MIB: u64 = 1 << 20;
const SINK: u64 = 64 * MIB;
const PAGE: u64 = 2 * MIB;

#[test]
fn a_buffer_is_whole_pages_of_its_own() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let buffer = session.allocate(1000).await.unwrap();
        assert_eq!(buffer.bytes, PAGE);
        assert_eq!(buffer.address, session.base + (64 << 30));
        let other = session.allocate(PAGE + 1).await.unwrap();
        assert_eq!((other.address, other.bytes), (buffer.address + SINK, 2 * PAGE), "in granules of its own");
        let asked = harness.fake.asked();
        assert!(asked.contains(&Asked::Map { session: session.id, bytes: PAGE }));
        let (session_id, handle) = (session.id, buffer.handle);
        assert!(asked.contains(&Asked::Bind { session: session_id, handle, writable: true }));
        let status = &client.status().await.sessions[0];
        assert_eq!(
            (status.buffer_bytes, status.arena_bytes),
            (3 * PAGE, SINK + 3 * PAGE),
            "fillers are free"
        );
        let info = buffer.view().info_request().send().promise.await.unwrap();
        let info = read(info.get().unwrap().get_result()).unwrap();
        assert_eq!((info.get_address(), info.get_bytes()), (buffer.address, PAGE));
        assert_eq!((info.get_session(), info.get_writable()), (session.id, true));
    });
}

#[test]
fn freed_memory_is_free_only_after_it_is_unbound_and_unmapped() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let buffer = session.allocate(PAGE).await.unwrap();
        harness.fake.behave(Manners { holds_unmaps: true, ..Manners::default() });
        let (handle, address) = (buffer.handle, buffer.address);
        drop(buffer);
        let unmap = Asked::Unmap { session: session.id, bytes: PAGE };
        until(async || harness.fake.asked().contains(&unmap)).await;
        assert_eq!(client.status().await.sessions[0].buffer_bytes, PAGE, "still charged");
        let other = session.allocate(PAGE).await.unwrap();
        assert_ne!(other.address, address, "still in use");
        harness.fake.let_go();
        until(async || client.status().await.sessions[0].buffer_bytes == PAGE).await;
        let again = session.allocate(PAGE).await.unwrap();
        assert_eq!(again.address, address);
        assert_ne!(again.handle, handle);
        let asked = harness.fake.asked();
        let at = |wanted: Asked| asked.iter().position(|asked| *asked == wanted).unwrap();
        assert!(at(Asked::Unbind { session: session.id, handle }) < at(unmap));
    });
}

#[test]
fn closing_a_buffer_and_dropping_it_frees_it_once() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let buffer = session.allocate(MIB).await.unwrap();
        let close = async || {
            let closed = buffer.capability().close_request().send().promise.await.unwrap();
            read(closed.get().unwrap().get_result()).map(|revoking| revoking.get_capabilities())
        };
        assert_eq!(close().await, Ok(1));
        assert_eq!(close().await.unwrap_err().code, ErrorCode::InvalidHandle);
        let (handle, buffer_bytes) = (buffer.handle, buffer.bytes);
        drop(buffer);
        until(async || client.status().await.sessions[0].capabilities == 0).await;
        let unmap = Asked::Unmap { session: session.id, bytes: buffer_bytes };
        until(async || harness.fake.asked().contains(&unmap)).await;
        let unbinds = harness.fake.asked();
        let unbinds = unbinds.iter().filter(|asked| **asked == Asked::Unbind { session: session.id, handle });
        assert_eq!(unbinds.count(), 1);
    });
}

#[test]
fn memory_goes_back_to_the_device() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let buffer = session.allocate(1024 * MIB).await.unwrap();
        assert_eq!(client.status().await.charged_bytes, SINK + 1024 * MIB);
        drop(buffer);
        until(async || client.status().await.charged_bytes == SINK).await;
        assert!(harness.fake.asked().contains(&Asked::Unmap { session: session.id, bytes: 1024 * MIB }));
    });
}

#[test]
fn memory_that_the_device_does_not_have_leaves_nothing_behind() {
    let manners = Manners { arena_bytes_max: 1200 * MIB, ..Manners::default() };
    with_changed_kernel(
        manners,
        |_| {},
        async |harness| {
            let client = Client::new(&harness.directory).await;
            let session = client.open("one").await.unwrap();
            let _first = session.allocate(1024 * MIB).await.unwrap();
            let error = session.allocate(200 * MIB).await.err().unwrap();
            assert_eq!(error.code, ErrorCode::OutOfMemory, "{error}");
            until(async || client.status().await.sessions[0].capabilities == 1).await;
            until(async || client.status().await.charged_bytes == SINK + 1024 * MIB).await;
            session.allocate(100 * MIB).await.unwrap();
            let unmaps = harness.fake.asked();
            assert!(!unmaps.iter().any(|asked| matches!(asked, Asked::Unmap { .. })), "nothing was mapped");
        },
    );
}

#[test]
fn memory_that_cannot_be_named_is_given_back() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        harness.fake.behave(Manners { refuses_binds: true, ..Manners::default() });
        assert_eq!(session.allocate(MIB).await.err().unwrap().code, ErrorCode::LimitReached);
        until(async || client.status().await.charged_bytes == SINK).await;
        assert_eq!(harness.fake.mapped(session.id).0, 0);
    });
}

#[test]
fn out_of_memory_changes_nothing() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let _buffer = session.allocate(MIB).await.unwrap();
        let before = client.status().await;
        for bytes in [MEMORY_BYTES, u64::MAX, 1 << 45] {
            let error = session.allocate(bytes).await.err().unwrap();
            assert_eq!(error.code, ErrorCode::OutOfMemory, "{error}");
        }
        assert_eq!(session.allocate(0).await.err().unwrap().code, ErrorCode::InvalidArgument);
        assert_eq!(client.status().await.sessions[0].buffer_bytes, before.sessions[0].buffer_bytes);
        session.allocate(MIB).await.unwrap();
    });
}

#[test]
fn memory_that_is_being_freed_is_waited_for_before_there_is_none() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        for _ in 0..3 {
            // More than half of what the device has: no two of them fit.
            drop(session.allocate(MEMORY_BYTES / 2 + MEMORY_BYTES / 4).await.unwrap());
        }
    });
}

#[test]
fn one_sessions_memory_is_not_anothers_to_have() {
    with_changed_kernel(
        Manners::default(),
        |config| config.limits.swap_bytes = 0,
        async |harness| {
            let client = Client::new(&harness.directory).await;
            let first = client.open("one").await.unwrap();
            let second = client.open("two").await.unwrap();
            let _buffer = first.allocate(MEMORY_BYTES / 4 * 3).await.unwrap();
            assert_eq!(second.allocate(MEMORY_BYTES / 2).await.err().unwrap().code, ErrorCode::OutOfMemory);
            let (free, total) = second.memory().await.unwrap();
            assert_eq!((free, total), (MEMORY_BYTES / 4 - 2 * SINK, MEMORY_BYTES));
            first.close().await.unwrap();
            second.allocate(MEMORY_BYTES / 2).await.unwrap();
        },
    );
}

#[test]
fn host_memory_is_sealed_shared_and_charged() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let (buffer, token) = session.allocate_host(5000).await.unwrap();
        assert_eq!(buffer.bytes, 8192);
        let asked = Asked::Register { session: session.id, handle: buffer.handle, bytes: 8192, address: 0 };
        assert!(harness.fake.asked().contains(&asked));
        let socket = descriptor_socket(&harness.directory);
        let (answer, descriptors) = exchange(&socket, &token, None).unwrap();
        assert_eq!((answer.as_slice(), descriptors.len()), ([0].as_slice(), 1));
        assert_eq!(rustix::fs::fstat(&descriptors[0]).unwrap().st_size, 8192);
        assert!(rustix::fs::ftruncate(&descriptors[0], 0).is_err(), "it cannot shrink");
        assert_eq!(client.status().await.sessions[0].host_bytes, 8192);
        drop(buffer);
        until(async || client.status().await.sessions[0].host_bytes == 0).await;
    });
}

#[test]
fn host_memory_has_limits() {
    with_changed_kernel(
        Manners::default(),
        |config| {
            config.limits.session = config.limits.session.with(Resource::HostBytes, MIB);
            config.limits.host_bytes = MIB + MIB / 2;
        },
        async |harness| {
            let client = Client::new(&harness.directory).await;
            let first = client.open("one").await.unwrap();
            let second = client.open("two").await.unwrap();
            let _held = first.allocate_host(MIB).await.unwrap();
            for (session, bytes) in [(&first, 1), (&second, MIB), (&second, u64::MAX)] {
                let error = session.allocate_host(bytes).await.err().unwrap();
                assert_eq!(error.code, ErrorCode::OutOfMemory, "{error}");
            }
            assert_eq!(second.allocate_host(0).await.err().unwrap().code, ErrorCode::InvalidArgument);
            second.allocate_host(MIB / 2).await.unwrap();
        },
    );
}

#[test]
fn host_memory_that_kernels_reach_has_a_place_of_its_own_until_it_is_unmapped() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let one = session.allocate_mapped(5000).await.unwrap();
        let other = session.allocate_mapped(3 * PAGE).await.unwrap();
        let device = session.allocate(PAGE).await.unwrap();
        assert_eq!((one.bytes, other.bytes), (PAGE, 3 * PAGE));
        let registered = |buffer: &Buffer| Asked::Register {
            session: session.id,
            handle: buffer.handle,
            bytes: buffer.bytes,
            address: buffer.address,
        };
        assert!(harness.fake.asked().contains(&registered(&one)));
        assert_eq!(harness.fake.mapped(session.id), (3, 5 * PAGE));
        let [status] = client.status().await.sessions.try_into().unwrap();
        assert_eq!((status.host_bytes, status.buffer_bytes), (4 * PAGE, PAGE));

        // It is charged, and its place taken, until the executor has let go of it; device memory does not wait for that.
        harness.fake.behave(Manners { holds_host_reclaims: true, ..Manners::default() });
        let place = one.address;
        drop(one);
        drop(device);
        until(async || client.status().await.sessions[0].buffer_bytes == 0).await;
        assert_eq!(client.status().await.sessions[0].host_bytes, 4 * PAGE);
        let next = session.allocate_mapped(PAGE).await.unwrap();
        assert_ne!(next.address, place);
        harness.fake.let_go();
        until(async || client.status().await.sessions[0].host_bytes == 4 * PAGE).await;
        let again = session.allocate_mapped(PAGE).await.unwrap();
        assert_eq!(again.address, place);
        drop((next, other, again));
        until(async || client.status().await.sessions[0].host_bytes == 0).await;
        assert_eq!(harness.fake.mapped(session.id), (0, 0));
    });
}

#[test]
fn host_memory_that_kernels_reach_has_limits() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        assert_eq!(session.allocate_mapped(0).await.err().unwrap().code, ErrorCode::InvalidArgument);
        for bytes in [u64::MAX, u64::MAX - PAGE, 1 << 63, 1 << 40, (16 << 30) + 1] {
            let error = session.allocate_mapped(bytes).await.err().unwrap();
            assert_eq!(error.code, ErrorCode::OutOfMemory, "{bytes}: {error}");
        }
        assert_eq!(client.status().await.sessions[0].host_bytes, 0);
        assert_eq!(harness.fake.mapped(session.id), (0, 0));
    });
}

#[test]
fn host_memory_that_cannot_be_mapped_leaves_nothing_behind() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        harness.fake.behave(Manners { refuses_mapped: true, ..Manners::default() });
        let error = session.allocate_mapped(PAGE).await.err().unwrap();
        assert_eq!(error.code, ErrorCode::OutOfMemory);
        harness.fake.behave(Manners::default());
        until(async || client.status().await.sessions[0].host_bytes == 0).await;
        let made = session.allocate_mapped(PAGE).await.unwrap();
        assert_eq!(harness.fake.mapped(session.id), (1, PAGE));
        drop(made);
        until(async || harness.fake.mapped(session.id) == (0, 0)).await;
    });
}

#[test]
fn a_session_is_gone_before_its_slot_is_free_and_nobody_gets_that_earlier() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let first = client.open("one").await.unwrap();
        let base = first.allocate(PAGE).await.unwrap().address;
        let _mapped = first.allocate_mapped(PAGE).await.unwrap();
        harness.fake.behave(Manners { keeps_slots: true, ..Manners::default() });
        first.close().await.unwrap();
        assert!(client.status().await.sessions.is_empty());
        let second = client.open("two").await.unwrap();
        assert_ne!(second.allocate(PAGE).await.unwrap().address, base, "its slot is in use");
        harness.fake.let_go();
        let third = client.open("three").await.unwrap();
        assert_eq!(third.allocate(PAGE).await.unwrap().address, base);
    });
}

#[test]
fn an_allocation_that_is_given_up_leaves_nothing_behind() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        harness.fake.behave(Manners { holds_maps: true, ..Manners::default() });
        let mut request = session.copying().allocate_request();
        request.get().set_bytes(MIB);
        let promise = request.send().promise;
        let given_up = tokio::time::timeout(std::time::Duration::from_millis(50), promise).await;
        assert!(given_up.is_err());
        harness.fake.let_go();
        until(async || {
            let status = &client.status().await.sessions[0];
            status.capabilities == 0 && status.buffer_bytes == 0
        })
        .await;
        session.allocate(MIB).await.unwrap();
        drop(session);
        client.leave();
        everything_given_back(&harness.directory).await;
    });
}

#[test]
fn many_buffers_come_and_go() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let mut buffers = Vec::new();
        for round in 0_u64..300 {
            buffers.push(session.allocate(512 << (round % 12)).await.unwrap());
            if round % 3 == 0 {
                let index = usize::try_from(round * 7).unwrap() % buffers.len();
                buffers.swap_remove(index);
            }
        }
        let charged: u64 = buffers.iter().map(|buffer| buffer.bytes).sum();
        assert!(charged >= 200 * PAGE);
        until(async || client.status().await.sessions[0].buffer_bytes == charged).await;
        assert_eq!(harness.fake.mapped(session.id), (buffers.len(), charged));
        drop(buffers);
        until(async || client.status().await.sessions[0].buffer_bytes == 0).await;
    });
}
