//! What one client takes is not there for it to lock others out with.

use std::{
    io::Write,
    os::unix::net::UnixStream,
    path::Path,
    time::{Duration, Instant},
};

use bulkhead_kernel::{Counted, OPERATOR_SOCKET, Quota};
use bulkhead_schema::{
    Error, ErrorCode,
    bulkhead_capnp::{bulkhead, gpu_session},
    limits,
    operator_capnp::operator,
};
use capnp::{message, serialize, traits::HasTypeId as _};
use capnp_rpc::{RpcSystem, rpc_capnp, rpc_twoparty_capnp::Side, twoparty};
use tokio_util::compat::{TokioAsyncReadCompatExt as _, TokioAsyncWriteCompatExt as _};

use crate::{
    fake::Manners,
    harness::{
        Client, everything_given_back, open_connections, read, until, with_changed_kernel, with_kernel,
    },
};

/// An operator that has said hello.
async fn operator(directory: &Path) -> operator::Client {
    let stream = tokio::net::UnixStream::connect(directory.join(OPERATOR_SOCKET)).await.unwrap();
    let (reader, writer) = stream.into_split();
    let network =
        twoparty::VatNetwork::new(reader.compat(), writer.compat_write(), Side::Client, Default::default());
    let mut system = RpcSystem::new(Box::new(network), None);
    let operator: operator::Client = system.bootstrap(Side::Server);
    tokio::task::spawn_local(system);
    let mut hello = operator.hello_request();
    hello.get().set_version(limits::PROTOCOL_VERSION);
    read(hello.send().promise.await.unwrap().get().unwrap().get_result()).unwrap();
    operator
}

async fn evict(operator: &operator::Client, session: u32) -> Result<(), Error> {
    let mut evict = operator.evict_request();
    evict.get().set_session(session);
    read(evict.send().promise.await.unwrap().get().unwrap().get_result()).map(drop)
}

/// Why a client does not get in.
async fn refusal(directory: &Path) -> capnp::Error {
    let client = Client::silent(directory).await;
    client.bulkhead.ping_request().send().promise.await.err().expect("it does not get in")
}

#[test]
fn who_does_not_get_in_is_told_why_and_the_operator_gets_in() {
    with_kernel(async |harness| {
        let mut clients = vec![Client::new(&harness.directory).await];
        let mut sessions = Vec::new();
        for _ in 0..limits::SESSIONS_PER_CONNECTION_MAX {
            sessions.push(clients[0].open("one of many").await.unwrap());
        }
        while (clients.len() as u64) < limits::CONNECTIONS_OF_PROCESS_MAX {
            clients.push(Client::new(&harness.directory).await);
        }
        let error = clients[1].open("of the same process").await.err().unwrap();
        assert_eq!(error.code, ErrorCode::LimitReached);
        assert!(error.message.contains("sessions") && error.remedy.contains("--process-limit"), "{error}");
        let error = refusal(&harness.directory).await;
        assert_eq!(error.kind, capnp::ErrorKind::Overloaded, "{error}");
        assert!(error.to_string().contains("connections, which is the limit"), "{error}");
        assert!(error.to_string().contains("--process-limit connections="), "{error}");
        // The operator gets in as often as it likes, and has the last word.
        let mut operators = Vec::new();
        for _ in 0..3 * limits::OPERATORS_MAX {
            operators.push(operator(&harness.directory).await);
        }
        let operator = operators.pop().unwrap();
        let response = operator.status_request().send().promise.await.unwrap();
        let status = read(response.get().unwrap().get_result()).unwrap();
        assert_eq!(status.get_sessions().unwrap().len() as usize, sessions.len());
        evict(&operator, sessions[0].id).await.unwrap();
        let error = sessions[0].memory().await.unwrap_err();
        assert_eq!(error.code, ErrorCode::SessionLost);
        assert!(error.message.contains("operator"), "{error}");
        assert_eq!(evict(&operator, u32::MAX).await.unwrap_err().code, ErrorCode::NotFound);
        until(async || clients[1].open("instead").await.is_ok()).await;
        sessions[1].memory().await.unwrap();
        clients.pop().unwrap().leave();
        until(async || Client::silent(&harness.directory).await.alive().await).await;
    });
}

#[test]
fn an_operator_says_hello_first_and_opens_nothing() {
    with_kernel(async |harness| {
        let operator = operator(&harness.directory).await;
        let client = bulkhead::Client { client: operator.client.clone() };
        assert!(client.open_session_request().send().promise.await.is_err(), "it is no client");
        let path = harness.directory.join(OPERATOR_SOCKET);
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        let mut garbage = UnixStream::connect(&path).unwrap();
        garbage.write_all(&[0xff; 4096]).unwrap();
        operator.status_request().send().promise.await.unwrap();
    });
}

#[test]
fn connections_that_say_nothing_end() {
    let change = |config: &mut bulkhead_kernel::Config| config.limits.second = Duration::from_millis(20);
    with_changed_kernel(Manners::default(), change, async |harness| {
        let client = Client::new(&harness.directory).await;
        let silent: Vec<_> =
            (0..20).map(|_| UnixStream::connect(harness.directory.join("kernel.sock")).unwrap()).collect();
        let talking = Client::silent(&harness.directory).await;
        assert!(talking.alive().await, "a ping is answered, and is no hello");
        until(async || open_connections(&harness.directory) == 1).await;
        assert!(!talking.alive().await);
        assert!(client.alive().await, "who has said hello stays, silent or not");
        drop(silent);
    });
}

#[test]
fn a_process_has_so_many_waits_and_no_more() {
    let quota = Quota::PROCESS.with(Counted::Waits, 3);
    let change = |config: &mut bulkhead_kernel::Config| config.limits.process = quota;
    let manners = Manners { holds_fences: true, ..Manners::default() };
    with_changed_kernel(manners, change, async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("waiting").await.unwrap();
        let granted = || {
            let mut request = session.copying().granted_request();
            request.get().set_timeout_ms(60_000);
            request.send().promise
        };
        let waiting: Vec<_> = (0..3).map(|_| granted()).collect();
        let refused = granted().await.unwrap();
        let error = read(refused.get().unwrap().get_result()).err().unwrap();
        assert_eq!(error.code, ErrorCode::LimitReached);
        assert!(error.message.contains("3 waits"), "{error}");
        drop(waiting);
        until(async || {
            let mut request = session.copying().granted_request();
            request.get().set_timeout_ms(1);
            read(request.send().promise.await.unwrap().get().unwrap().get_result()).is_ok()
        })
        .await;
    });
}

fn send(stream: &mut UnixStream, build: impl FnOnce(rpc_capnp::message::Builder<'_>)) -> std::io::Result<()> {
    let mut message = message::Builder::new_default();
    build(message.init_root());
    stream.write_all(&serialize::write_message_to_words(&message))
}

/// Sends calls with large parameters on the result of a call that is not answered, until the kernel reads no more; how
/// many bytes it read.
fn stuff(stream: &mut UnixStream, bytes: usize) -> usize {
    stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    send(stream, |message| message.init_bootstrap().set_question_id(0)).unwrap();
    for (question, method) in [(1, 0), (2, 3)] {
        send(stream, |message| {
            let mut call = message.init_call();
            call.set_question_id(question);
            call.set_interface_id(bulkhead::Client::TYPE_ID);
            call.set_method_id(method);
            call.reborrow().init_target().init_promised_answer().set_question_id(0);
            if method == 0 {
                let mut hello: bulkhead::hello_params::Builder<'_> =
                    call.init_params().get_content().init_as();
                hello.set_version(limits::PROTOCOL_VERSION);
            }
        })
        .unwrap();
    }
    let data = vec![0_u8; bytes];
    let mut sent = 0;
    for question in 3..13 {
        let stuffed = send(stream, |message| {
            let mut call = message.init_call();
            call.set_question_id(question);
            call.set_interface_id(gpu_session::Client::TYPE_ID);
            call.set_method_id(0);
            let mut answer = call.reborrow().init_target().init_promised_answer();
            answer.set_question_id(2);
            let mut transform = answer.init_transform(3);
            for at in 0..3 {
                transform.reborrow().get(at).set_get_pointer_field(0);
            }
            call.init_params().get_content().set_as::<capnp::data::Owned>(data.as_slice()).unwrap();
        });
        if stuffed.is_err() {
            return sent;
        }
        sent += bytes;
    }
    sent
}

#[test]
fn what_calls_that_wait_bring_along_is_charged_to_their_process() {
    const CONNECTIONS: usize = 8;
    const MOST: usize = 2 << 20;
    let quota = Quota::PROCESS.with(Counted::MessageBytes, MOST as u64);
    let change = |config: &mut bulkhead_kernel::Config| config.limits.process = quota;
    let manners = Manners { holds_opens: true, ..Manners::default() };
    with_changed_kernel(manners, change, async |harness| {
        let neighbour = Client::new(&harness.directory).await;
        let directory = harness.directory.clone();
        let attack = tokio::task::spawn_blocking(move || {
            let mut streams: Vec<_> = (0..CONNECTIONS)
                .map(|_| UnixStream::connect(directory.join("kernel.sock")).unwrap())
                .collect();
            streams.iter_mut().map(|stream| stuff(stream, 200 << 10)).sum::<usize>()
        });
        let (mut pings, mut worst) = (0, Duration::ZERO);
        while !attack.is_finished() {
            let before = Instant::now();
            assert!(neighbour.alive().await, "the same process, and little of its own");
            worst = worst.max(before.elapsed());
            pings += 1;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let read = attack.await.unwrap();
        println!("{read} bytes were read; {pings} pings, the slowest {worst:?}");
        // What is over the limit, and what lies in a socket and was not read.
        let most = MOST + CONNECTIONS * (640 << 10);
        assert!(read < most, "{read} bytes were read");
        harness.fake.let_go();
        neighbour.leave();
        everything_given_back(&harness.directory).await;
    });
}

#[test]
fn what_waits_for_an_executor_after_its_client_was_told_is_counted() {
    let quota = Quota::PROCESS.with(Counted::Waits, 3);
    let change = |config: &mut bulkhead_kernel::Config| config.limits.process = quota;
    let manners = Manners { holds_reserves: true, ..Manners::default() };
    with_changed_kernel(manners, change, async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("reserving").await.unwrap();
        let reserve = |streams| {
            let mut request = session.copying().reserve_request();
            request.get().set_streams(streams);
            request.send().promise
        };
        // Given up, they wait on all the same.
        for streams in 2..5 {
            drop(tokio::time::timeout(Duration::from_millis(50), reserve(streams)).await);
        }
        let refused = reserve(6).await.unwrap();
        let error = read(refused.get().unwrap().get_result()).err().unwrap();
        assert_eq!(error.code, ErrorCode::LimitReached);
        assert!(error.message.contains("3 waits"), "{error}");
    });
}
