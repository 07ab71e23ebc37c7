//! What becomes of sessions when an executor, or a client, is gone.

use std::{os::fd::AsFd, process::Stdio, time::Duration};

use bulkhead_kernel::ExecutorSource;
use bulkhead_schema::{Error, ErrorCode};

use crate::{
    fake::{Asked, Manners},
    harness::{
        Client, Harness, Session, descriptor_socket, everything_given_back, exchange, open_connections, read,
        until, with_changed_kernel, with_kernel,
    },
};

fn ring(harness: &Harness, session: &Session) -> std::os::fd::OwnedFd {
    let (_, mut descriptors) = exchange(&descriptor_socket(&harness.directory), &session.ring, None).unwrap();
    descriptors.swap_remove(0)
}

/// The word of the ring that says whether its session is over.
fn ended(ring: &std::os::fd::OwnedFd) -> Option<bulkhead_ring::Ended> {
    bulkhead_ring::Producer::new(bulkhead_ring::memory::Ring::map(ring.as_fd()).unwrap()).ended()
}

#[test]
fn the_loss_of_the_executor_fails_its_sessions_and_new_ones_work() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let buffer = session.allocate(1 << 20).await.unwrap();
        let ring = ring(&harness, &session);
        assert_eq!(ended(&ring), None);
        harness.fake.die();
        until(async || session.memory().await.is_err()).await;
        assert_eq!(session.memory().await.unwrap_err().code, ErrorCode::DeviceLost);
        assert_eq!(session.allocate(1).await.err().unwrap().code, ErrorCode::DeviceLost);
        let info = buffer.view().info_request().send().promise.await.unwrap();
        let error = read(info.get().unwrap().get_result()).err().unwrap();
        assert_eq!(error.code, ErrorCode::DeviceLost);
        assert_eq!(ended(&ring).unwrap().code, u16::from(ErrorCode::DeviceLost));
        let next = client.open("two").await.unwrap();
        next.allocate(1 << 20).await.unwrap();
        let status = client.status().await;
        assert_eq!(status.executor_starts, 2);
        // The one that was lost has nothing any more, and is not listed.
        let lost: Vec<_> = status.sessions.iter().map(|session| session.lost).collect();
        assert_eq!(lost, [false]);
        drop((session, buffer, next));
        client.leave();
        everything_given_back(&harness.directory).await;
    });
}

#[test]
fn requests_that_wait_for_a_lost_executor_fail_at_once() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        harness.fake.behave(Manners { holds_maps: true, ..Manners::default() });
        let (allocated, ()) = tokio::join!(session.allocate(1), async {
            until(async || harness.fake.asked().iter().any(|asked| matches!(asked, Asked::Map { .. }))).await;
            harness.fake.behave(Manners::default());
            harness.fake.die();
        });
        assert_eq!(allocated.err().unwrap().code, ErrorCode::DeviceLost);
    });
}

#[test]
fn a_device_that_is_lost_is_told_with_its_number() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let ring = ring(&harness, &session);
        harness.fake.behave(Manners { loses_device: true, ..Manners::default() });
        let error = session.allocate(1).await.err().unwrap();
        assert_eq!((error.code, error.device), (ErrorCode::DeviceLost, 700));
        harness.fake.behave(Manners::default());
        until(async || ended(&ring).is_some()).await;
        assert_eq!(ended(&ring).unwrap().device, 700);
        client.open("two").await.unwrap().allocate(1).await.unwrap();
    });
}

#[test]
fn an_executor_that_breaks_the_protocol_is_replaced() {
    for manners in [
        Manners { answers_twice: true, ..Manners::default() },
        Manners { talks_nonsense: true, ..Manners::default() },
    ] {
        with_kernel(async |harness| {
            let client = Client::new(&harness.directory).await;
            let session = client.open("one").await.unwrap();
            harness.fake.behave(manners);
            drop(session.allocate(1).await);
            until(async || session.memory().await.is_err()).await;
            assert_eq!(session.memory().await.unwrap_err().code, ErrorCode::DeviceLost);
            harness.fake.behave(Manners::default());
            client.open("two").await.unwrap().allocate(1).await.unwrap();
            assert_eq!(harness.fake.starts(), 2);
        });
    }
}

#[test]
fn a_device_that_is_lost_while_nobody_asks_is_told_with_its_number() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        harness.fake.lose_device();
        until(async || session.memory().await.is_err()).await;
        let error = session.memory().await.unwrap_err();
        assert_eq!((error.code, error.device), (ErrorCode::DeviceLost, 716));
        assert!(error.message.contains("a misaligned address"), "{error}");
    });
}

fn hasty(config: &mut bulkhead_kernel::Config) {
    config.limits.second = Duration::from_millis(5);
}

#[test]
fn an_executor_that_falls_silent_is_replaced() {
    with_changed_kernel(Manners::default(), hasty, async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        harness.fake.behave(Manners { is_silent: true, ..Manners::default() });
        drop(session.allocate(1).await);
        until(async || session.memory().await.is_err()).await;
        assert_eq!(session.memory().await.unwrap_err().code, ErrorCode::DeviceLost);
        harness.fake.behave(Manners::default());
        until(async || client.open("two").await.is_ok()).await;
    });
}

#[test]
fn an_executor_that_starts_late_is_waited_for() {
    const SECOND: Duration = Duration::from_millis(20);
    // A dozen of them at once take the driver longer than any of them may be silent later.
    let late = Manners { starts_late: SECOND * 42, ..Manners::default() };
    with_changed_kernel(
        late,
        |config| config.limits.second = SECOND,
        async |harness| {
            let client = Client::new(&harness.directory).await;
            client.open("one").await.unwrap();
            assert_eq!(harness.fake.starts(), 1);
        },
    );
}

#[test]
fn what_takes_too_long_is_given_up_and_everybody_goes_on() {
    with_changed_kernel(Manners::default(), hasty, async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let neighbour = client.open("two").await.unwrap();
        let _buffer = neighbour.allocate(1).await.unwrap();
        harness.fake.behave(Manners { holds_maps: true, ..Manners::default() });
        let error = session.allocate(1).await.err().unwrap();
        assert_eq!(error.code, ErrorCode::TimedOut, "{error}");
        neighbour.memory().await.unwrap();
        session.memory().await.unwrap();
        harness.fake.let_go();
        // What was given up is made all the same, and given back.
        let unmap = Asked::Unmap { session: session.id, bytes: 2 << 20 };
        until(async || harness.fake.asked().contains(&unmap)).await;
        until(async || session.allocate(1).await.is_ok()).await;
        assert_eq!(harness.fake.starts(), 1);
    });
}

#[test]
fn a_session_whose_work_does_not_end_keeps_its_slot_and_nothing_of_its_neighbours() {
    with_changed_kernel(Manners::default(), hasty, async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("endless").await.unwrap();
        let buffer = session.allocate(1).await.unwrap();
        let charged = client.status().await.charged_bytes;
        harness.fake.behave(Manners { holds_closes: true, holds_drains: true, ..Manners::default() });
        let base = session.base;
        // What is dropped before its session ends may be gone before.
        drop(session);
        drop(buffer);
        // Longer than an executor may be silent.
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(harness.fake.starts(), 1);
        assert_eq!(client.status().await.charged_bytes, charged);
        let other = client.open("other").await.unwrap();
        assert_ne!(other.base, base);
        other.allocate(1).await.unwrap();
        harness.fake.let_go();
        until(async || client.status().await.sessions.len() == 1).await;
        assert_eq!(client.open("next").await.unwrap().base, base);
    });
}

#[test]
fn what_an_executor_cannot_close_is_nobodys_while_it_lives() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        harness.fake.behave(Manners { refuses_closes: true, ..Manners::default() });
        session.close().await.unwrap();
        assert!(client.status().await.charged_bytes > 0);
        let other = client.open("two").await.unwrap();
        assert_ne!(other.base, session.base);
        harness.fake.die();
        until(async || client.status().await.charged_bytes == 0).await;
        harness.fake.behave(Manners::default());
        assert_eq!(client.open("three").await.unwrap().base, session.base);
    });
}

#[test]
fn a_session_that_the_executor_ends_is_over_and_the_others_go_on() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let neighbour = client.open("two").await.unwrap();
        let why = Error::new(ErrorCode::Protocol, "the ring's tail ran away");
        harness.fake.end_session(session.id, &why);
        until(async || session.memory().await.is_err()).await;
        assert_eq!(session.memory().await.unwrap_err(), why);
        neighbour.allocate(1).await.unwrap();
        until(async || harness.fake.asked().contains(&Asked::Close(session.id))).await;
        // What does not exist any more cannot be ended again.
        harness.fake.end_session(session.id, &why);
        harness.fake.end_session(77, &why);
        neighbour.allocate(1).await.unwrap();
    });
}

#[test]
fn without_a_device_sessions_are_unavailable_and_say_why() {
    let manners = Manners { has_no_device: true, ..Manners::default() };
    with_changed_kernel(
        manners,
        |config| config.limits.second = Duration::from_millis(20),
        async |harness| {
            let client = Client::new(&harness.directory).await;
            let error = client.open("one").await.err().unwrap();
            assert_eq!(error.code, ErrorCode::Unavailable);
            let starts = harness.fake.starts();
            assert_eq!(starts, bulkhead_schema::limits::EXECUTOR_FAILURES_MAX + 1);
            until(async || client.open("one").await.err().unwrap().message == "no device here").await;
            harness.fake.behave(Manners::default());
            until(async || client.open("one").await.is_ok()).await;
        },
    );
}

#[test]
fn an_executor_that_cannot_be_started_is_unavailable() {
    with_changed_kernel(
        Manners::default(),
        |config| {
            config.executor = ExecutorSource::Command(vec!["/nonexistent/executor".into()]);
            config.limits.second = Duration::from_millis(20);
        },
        async |harness| {
            let client = Client::new(&harness.directory).await;
            let error = client.open("one").await.err().unwrap();
            assert_eq!(error.code, ErrorCode::Unavailable);
        },
    );
}

#[test]
fn an_executor_process_that_ends_says_how() {
    with_changed_kernel(
        Manners::default(),
        |config| {
            config.executor = ExecutorSource::Command(vec!["/bin/sh".into(), "-c".into(), "exit 3".into()]);
            config.limits.second = Duration::from_millis(20);
        },
        async |harness| {
            let client = Client::new(&harness.directory).await;
            let error = client.open("one").await.err().unwrap();
            assert_eq!(error.code, ErrorCode::Unavailable);
            assert!(error.message.contains("exit status: 3"), "{error}");
        },
    );
}

/// Set for the child process that plays the client which gets killed.
const ROLE: &str = "BULKHEAD_TEST_KILLED_CLIENT";

#[test]
fn a_killed_client_loses_its_sessions_though_a_child_keeps_its_socket() {
    if let Some(directory) = std::env::var_os(ROLE) {
        return be_the_client(directory.as_ref());
    }
    let manners = Manners { holds_fences: true, ..Manners::default() };
    with_changed_kernel(
        manners,
        |_| {},
        async |harness| {
            let mut client = tokio::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "loss::a_killed_client_loses_its_sessions_though_a_child_keeps_its_socket"])
                .env(ROLE, &harness.directory)
                .stdout(Stdio::null())
                .kill_on_drop(true)
                .spawn()
                .unwrap();
            let observer = Client::new(&harness.directory).await;
            until(async || !observer.status().await.sessions.is_empty()).await;
            let killed = std::time::Instant::now();
            client.kill().await.unwrap();
            until(async || observer.status().await.sessions.is_empty()).await;
            assert!(killed.elapsed() < Duration::from_secs(20), "its child sleeps for longer");
            assert!(harness.fake.asked().iter().any(|asked| matches!(asked, Asked::Close(_))));
            until(async || open_connections(&harness.directory) == 1).await;
            assert!(killed.elapsed() < Duration::from_secs(20), "its child sleeps for longer");
        },
    );
}

/// Opens a session, leaves its socket to a child that sleeps, and waits to be killed.
fn be_the_client(directory: &std::path::Path) {
    crate::harness::local(async {
        let client = Client::new(directory).await;
        let session = client.open("about to be killed").await.unwrap();
        // A call that is in flight when the end comes.
        let response = session.copying().fence_request().send().promise.await.unwrap();
        let fence = read(response.get().unwrap().get_result()).unwrap().get_fence().unwrap();
        let mut request = fence.wait_request();
        request.get().set_timeout_ms(u32::MAX);
        let _waiting = tokio::task::spawn_local(request.send().promise);
        tokio::task::yield_now().await;
        for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
            let number: i32 = entry.unwrap().file_name().to_str().unwrap().parse().unwrap();
            let target = std::fs::read_link(format!("/proc/self/fd/{number}"));
            if target.is_ok_and(|target| target.to_string_lossy().starts_with("socket:")) {
                inherit(number);
            }
        }
        let _child = tokio::process::Command::new("sleep").arg("25").stderr(Stdio::null()).spawn().unwrap();
        std::future::pending::<()>().await;
    });
}

#[expect(unsafe_code, reason = "a descriptor number from /proc/self/fd")]
fn inherit(number: i32) {
    // SAFETY: the descriptor is open (it was just listed), and nothing closes it while this runs.
    let descriptor = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::empty()).unwrap();
}
