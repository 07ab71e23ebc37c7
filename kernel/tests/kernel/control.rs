//! Connections, sessions, fences, sockets.

use std::os::unix::fs::PermissionsExt;

use bulkhead_schema::{ErrorCode, limits};

use crate::{
    fake::{Asked, Fake, Manners},
    harness::{
        Client, config, descriptor_socket, directory, everything_given_back, exchange, local, make_private,
        read, until, with_changed_kernel, with_kernel,
    },
};

#[test]
fn hello_comes_first() {
    with_kernel(async |harness| {
        let client = Client::silent(&harness.directory).await;
        assert!(client.alive().await, "a ping needs no hello");
        let error = client.open("early").await.err().unwrap();
        assert_eq!(error.code, ErrorCode::Protocol);
        let path = client.hello(limits::PROTOCOL_VERSION).await.unwrap();
        assert_eq!(path, harness.directory.join("descriptors.sock").to_str().unwrap());
        client.open("in time").await.unwrap();
    });
}

#[test]
fn another_version_is_refused_with_a_typed_error() {
    with_kernel(async |harness| {
        let client = Client::silent(&harness.directory).await;
        let error = client.hello(limits::PROTOCOL_VERSION + 1).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::Version);
        assert_eq!(client.open("unknown").await.err().unwrap().code, ErrorCode::Protocol);
    });
}

#[test]
fn a_device_is_described_as_its_executor_does() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let response = client.bulkhead.list_devices_request().send().promise.await.unwrap();
        let devices = read(response.get().unwrap().get_result()).unwrap().get_devices().unwrap();
        assert_eq!(devices.len(), 1);
        let device = devices.get(0);
        assert_eq!(device.get_name().unwrap(), "Fake GPU");
        assert_eq!(device.get_uuid().unwrap(), [7; 16]);
        let attribute = device.get_attributes().unwrap().get(0);
        assert_eq!((attribute.get_number(), attribute.get_value()), (16, 132));
    });
}

#[test]
fn a_device_that_does_not_exist_is_not_found() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let mut request = client.bulkhead.open_session_request();
        request.get().set_device(1);
        let response = request.send().promise.await.unwrap();
        let error = read(response.get().unwrap().get_result()).err().unwrap();
        assert_eq!(error.code, ErrorCode::NotFound);
    });
}

#[test]
fn a_session_gets_its_ring_and_its_completion_page() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        assert_eq!(session.base % (512 << 30), 0);
        let socket = descriptor_socket(&harness.directory);
        let (answer, descriptors) = exchange(&socket, &session.ring, None).unwrap();
        assert_eq!((answer.as_slice(), descriptors.len()), ([0].as_slice(), 2));
        bulkhead_ring::Control::map(std::os::fd::AsFd::as_fd(&descriptors[0])).unwrap();
        bulkhead_ring::memory::Completion::map(std::os::fd::AsFd::as_fd(&descriptors[1])).unwrap();
    });
}

#[test]
fn sessions_have_slots_of_their_own() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let first = client.open("one").await.unwrap();
        let second = client.open("two").await.unwrap();
        assert_ne!((first.base, first.id), (second.base, second.id));
        first.close().await.unwrap();
        let third = client.open("three").await.unwrap();
        assert_eq!(third.base, first.base, "a slot is used again");
        assert_ne!(third.id, first.id, "an id is not");
    });
}

#[test]
fn too_many_sessions_of_a_connection_are_refused() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let mut sessions = Vec::new();
        for _ in 0..limits::SESSIONS_PER_CONNECTION_MAX {
            sessions.push(client.open("one of many").await.unwrap());
        }
        let error = client.open("one too many").await.err().unwrap();
        assert_eq!(error.code, ErrorCode::LimitReached);
        drop(sessions.pop());
        until(async || client.open("instead").await.is_ok()).await;
    });
}

#[test]
fn too_many_sessions_of_a_device_are_refused() {
    with_changed_kernel(
        Manners::default(),
        |config| config.limits.sessions_max = 2,
        async |harness| {
            let client = Client::new(&harness.directory).await;
            let first = client.open("one").await.unwrap();
            let _second = client.open("two").await.unwrap();
            assert_eq!(client.open("three").await.err().unwrap().code, ErrorCode::LimitReached);
            first.close().await.unwrap();
            client.open("three").await.unwrap();
        },
    );
}

#[test]
fn a_name_that_is_too_long_is_refused() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let name = "n".repeat(limits::NAME_BYTES_MAX + 1);
        assert_eq!(client.open(&name).await.err().unwrap().code, ErrorCode::InvalidArgument);
    });
}

#[test]
fn closing_a_session_gives_everything_back() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let buffer = session.allocate(1 << 20).await.unwrap();
        session.close().await.unwrap();
        assert_eq!(client.status().await.charged_bytes, 0);
        assert!(harness.fake.asked().contains(&Asked::Close(session.id)));
        assert_eq!(session.allocate(1).await.err().unwrap().code, ErrorCode::SessionLost);
        let response = buffer.view().info_request().send().promise.await.unwrap();
        let error = read(response.get().unwrap().get_result()).err().unwrap();
        assert_eq!(error.code, ErrorCode::SessionLost);
    });
}

#[test]
fn a_connection_that_ends_takes_its_sessions_along() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        session.allocate(4 << 20).await.unwrap();
        client.leave();
        everything_given_back(&harness.directory).await;
        assert!(harness.fake.asked().contains(&Asked::Close(session.id)));
    });
}

#[test]
fn a_fence_passes_when_the_executor_says_so() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        harness.fake.behave(Manners { holds_fences: true, ..Manners::default() });
        let mut request = session.copying().fence_request();
        request.get().set_stream(3);
        request.get().set_position(17);
        let response = request.send().promise.await.unwrap();
        let fence = read(response.get().unwrap().get_result()).unwrap().get_fence().unwrap();
        let wait = async |timeout_ms| {
            let mut request = fence.wait_request();
            request.get().set_timeout_ms(timeout_ms);
            let response = request.send().promise.await.unwrap();
            read(response.get().unwrap().get_result()).map(|state| state.get_passed())
        };
        assert_eq!(wait(20).await, Ok(false));
        assert!(harness.fake.asked().contains(&Asked::Fence {
            session: session.id,
            stream: 3,
            position: 17
        }));
        let (waited, ()) = tokio::join!(wait(30_000), async { harness.fake.let_go() });
        assert_eq!(waited, Ok(true));
        assert_eq!(client.status().await.sessions[0].capabilities, 1);
        drop((fence, response));
        until(async || client.status().await.sessions[0].capabilities == 0).await;
    });
}

#[test]
fn a_fence_of_a_session_that_ends_does_not_hang() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        harness.fake.behave(Manners { holds_fences: true, ..Manners::default() });
        let response = session.copying().fence_request().send().promise.await.unwrap();
        let fence = read(response.get().unwrap().get_result()).unwrap().get_fence().unwrap();
        let mut request = fence.wait_request();
        request.get().set_timeout_ms(u32::MAX);
        let (waited, closed) = tokio::join!(request.send().promise, session.close());
        closed.unwrap();
        let waited = waited.unwrap();
        let error = read(waited.get().unwrap().get_result()).err().unwrap();
        assert_eq!(error.code, ErrorCode::SessionLost);
    });
}

#[test]
fn fences_that_do_not_pass_have_a_limit() {
    let manners = Manners { holds_fences: true, ..Manners::default() };
    with_changed_kernel(
        manners,
        |_| {},
        async |harness| {
            let client = Client::new(&harness.directory).await;
            let session = client.open("one").await.unwrap();
            let fence = async || {
                let response = session.copying().fence_request().send().promise.await.unwrap();
                read(response.get().unwrap().get_result()).map(drop)
            };
            for _ in 0..limits::FENCES_MAX {
                fence().await.unwrap();
            }
            assert_eq!(fence().await.unwrap_err().code, ErrorCode::LimitReached);
            harness.fake.let_go();
            until(async || fence().await.is_ok()).await;
        },
    );
}

#[test]
fn the_sockets_are_their_owners_alone() {
    with_kernel(async |harness| {
        let mode = |path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(harness.directory.clone()), 0o700);
        assert_eq!(mode(harness.directory.join("kernel.sock")), 0o600);
        assert_eq!(mode(harness.directory.join("descriptors.sock")), 0o600);
    });
}

#[test]
fn a_second_kernel_does_not_start_in_the_same_place() {
    with_kernel(async |harness| {
        let config = config(&harness.directory, &Fake::default());
        let refused = bulkhead_kernel::serve(config, Box::pin(std::future::pending())).await;
        assert!(matches!(refused, Err(bulkhead_kernel::Error::AlreadyServing { .. })), "{refused:?}");
        assert!(Client::new(&harness.directory).await.alive().await);
    });
}

#[test]
fn a_socket_that_a_dead_kernel_left_is_replaced() {
    let directory = directory();
    make_private(&directory);
    drop(std::os::unix::net::UnixListener::bind(directory.join("kernel.sock")).unwrap());
    let socket = directory.join("kernel.sock");
    let connects = async move { assert!(std::os::unix::net::UnixStream::connect(socket).is_ok()) };
    let served = local(bulkhead_kernel::serve(config(&directory, &Fake::default()), Box::pin(connects)));
    served.unwrap();
    assert!(!directory.join("kernel.sock").exists());
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_directory_that_others_may_enter_is_refused() {
    let directory = directory();
    make_private(&directory);
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o755)).unwrap();
    let refused =
        local(bulkhead_kernel::serve(config(&directory, &Fake::default()), Box::pin(std::future::pending())));
    assert!(matches!(refused, Err(bulkhead_kernel::Error::NotPrivate { .. })), "{refused:?}");
    std::fs::remove_dir_all(directory).unwrap();
}
