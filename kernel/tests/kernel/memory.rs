//! Buffers, host memory, and their way back.

use bulkhead_schema::ErrorCode;

use crate::{
    fake::{Asked, MEMORY_BYTES, Manners},
    harness::{
        Client, descriptor_socket, everything_given_back, exchange, read, until, with_changed_kernel,
        with_kernel,
    },
};

const MIB: u64 = 1 << 20;
const SINK: u64 = 64 * MIB;

#[test]
fn a_buffer_lies_in_an_arena_of_its_sessions_window() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let buffer = session.allocate(1000).await.unwrap();
        assert_eq!(buffer.bytes, 1024);
        assert_eq!(buffer.address, session.base + (64 << 30));
        let asked = harness.fake.asked();
        assert!(asked.contains(&Asked::Map { session: session.id, bytes: 64 * MIB }));
        assert!(asked.contains(&Asked::Bind { session: session.id, handle: buffer.handle }));
        let status = &client.status().await.sessions[0];
        assert_eq!((status.buffer_bytes, status.arena_bytes), (1024, SINK + 64 * MIB));
        let info = buffer.view().info_request().send().promise.await.unwrap();
        let info = read(info.get().unwrap().get_result()).unwrap();
        assert_eq!((info.get_address(), info.get_bytes()), (buffer.address, 1024));
    });
}

#[test]
fn freed_memory_is_free_only_after_unbind_and_drain() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let buffer = session.allocate(MIB).await.unwrap();
        harness.fake.behave(Manners { holds_drains: true, ..Manners::default() });
        let (handle, address) = (buffer.handle, buffer.address);
        drop(buffer);
        until(async || harness.fake.asked().contains(&Asked::Drain(session.id))).await;
        assert_eq!(client.status().await.sessions[0].buffer_bytes, MIB, "still charged");
        let other = session.allocate(MIB).await.unwrap();
        assert_ne!(other.address, address, "still in use");
        harness.fake.let_go();
        until(async || client.status().await.sessions[0].buffer_bytes == MIB).await;
        let again = session.allocate(MIB).await.unwrap();
        assert_eq!(again.address, address);
        assert_ne!(again.handle, handle);
        let asked = harness.fake.asked();
        let at = |wanted: Asked| asked.iter().position(|asked| *asked == wanted).unwrap();
        assert!(at(Asked::Unbind { session: session.id, handle }) < at(Asked::Drain(session.id)));
    });
}

#[test]
fn closing_a_buffer_and_dropping_it_frees_it_once() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let buffer = session.allocate(MIB).await.unwrap();
        for _ in 0..2 {
            let closed = buffer.capability().close_request().send().promise.await.unwrap();
            read(closed.get().unwrap().get_result()).unwrap();
        }
        let handle = buffer.handle;
        drop(buffer);
        until(async || client.status().await.sessions[0].capabilities == 0).await;
        let unbinds = harness.fake.asked();
        let unbinds = unbinds.iter().filter(|asked| **asked == Asked::Unbind { session: session.id, handle });
        assert_eq!(unbinds.count(), 1);
    });
}

#[test]
fn empty_arenas_go_back_to_the_device() {
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
fn an_arena_that_was_planned_too_large_is_asked_for_in_the_size_it_needs() {
    let manners = Manners { arena_bytes_max: 1200 * MIB, ..Manners::default() };
    with_changed_kernel(
        manners,
        |_| {},
        async |harness| {
            let client = Client::new(&harness.directory).await;
            let session = client.open("one").await.unwrap();
            let _first = session.allocate(1024 * MIB).await.unwrap();
            let _second = session.allocate(100 * MIB).await.unwrap();
            let maps: Vec<_> = harness
                .fake
                .asked()
                .into_iter()
                .filter_map(
                    |asked| if let Asked::Map { bytes, .. } = asked { Some(bytes / MIB) } else { None },
                )
                .collect();
            assert_eq!(maps, [1024, 1024, 128]);
        },
    );
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
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let first = client.open("one").await.unwrap();
        let second = client.open("two").await.unwrap();
        let _buffer = first.allocate(MEMORY_BYTES / 4 * 3).await.unwrap();
        assert_eq!(second.allocate(MEMORY_BYTES / 2).await.err().unwrap().code, ErrorCode::OutOfMemory);
        let (free, total) = second.memory().await.unwrap();
        assert_eq!((free, total), (MEMORY_BYTES / 4 - 2 * SINK, MEMORY_BYTES));
        first.close().await.unwrap();
        second.allocate(MEMORY_BYTES / 2).await.unwrap();
    });
}

#[test]
fn host_memory_is_sealed_shared_and_charged() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let (buffer, token) = session.allocate_host(5000).await.unwrap();
        assert_eq!(buffer.bytes, 8192);
        let asked = Asked::Register { session: session.id, handle: buffer.handle, bytes: 8192 };
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
            config.limits.session_host_bytes = MIB;
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
        until(async || client.status().await.sessions[0].buffer_bytes == charged).await;
        drop(buffers);
        until(async || client.status().await.sessions[0].buffer_bytes == 0).await;
    });
}
