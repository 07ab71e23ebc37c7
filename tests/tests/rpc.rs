//! The RPC face: its handshake, and what it costs the kernel when a peer does not keep to the rules.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    thread,
    time::Duration,
};

use bulkhead_client::{Error, ErrorCode, Options, Session};
use bulkhead_schema::{bulkhead_capnp::bulkhead, limits};
use bulkhead_tests::{
    hostile::answer,
    kernel::Kernel,
    neighbour::Neighbour,
    patience::{PATIENCE, until},
    process::resident_bytes,
    status::local,
};
use capnp::{message, serialize, traits::HasTypeId as _};
use capnp_rpc::{RpcSystem, rpc_capnp, rpc_twoparty_capnp::Side, twoparty};
use tokio_util::compat::{TokioAsyncReadCompatExt as _, TokioAsyncWriteCompatExt as _};

/// Runs a test as a client that has not said hello.
fn unacquainted<T>(kernel: &Kernel, test: impl AsyncFnOnce(bulkhead::Client) -> T) -> T {
    local(async {
        let stream = tokio::net::UnixStream::connect(kernel.socket()).await.unwrap();
        let (reader, writer) = stream.into_split();
        let options = message::ReaderOptions::new();
        let network =
            twoparty::VatNetwork::new(reader.compat(), writer.compat_write(), Side::Client, options);
        let mut system = RpcSystem::new(Box::new(network), None);
        let kernel = system.bootstrap(Side::Server);
        tokio::task::spawn_local(system);
        tokio::time::timeout(PATIENCE, test(kernel)).await.unwrap()
    })
}

async fn hello(kernel: &bulkhead::Client, version: u32, name: &str) -> Result<u32, Error> {
    let mut hello = kernel.hello_request();
    hello.get().set_version(version);
    hello.get().set_client(name);
    let response = hello.send().promise.await.unwrap();
    answer(response.get().unwrap().get_result().unwrap()).unwrap().map(|welcome| welcome.get_version())
}

async fn open(kernel: &bulkhead::Client) -> Result<u32, Error> {
    let response = kernel.open_session_request().send().promise.await.unwrap();
    answer(response.get().unwrap().get_result().unwrap()).unwrap().map(|opened| opened.get_id())
}

#[test]
fn a_client_of_another_version_is_told_so() {
    let kernel = Kernel::start();
    unacquainted(&kernel, async |client| {
        for version in [0, limits::PROTOCOL_VERSION + 1, u32::MAX] {
            let refused = hello(&client, version, "other").await.unwrap_err();
            assert_eq!(refused.code, ErrorCode::Version);
            assert!(!refused.remedy.is_empty(), "{refused}");
            assert_eq!(open(&client).await.unwrap_err().code, ErrorCode::Protocol);
        }
        // Nothing is lost: the right version is welcome on the same connection.
        let version = hello(&client, limits::PROTOCOL_VERSION, "right").await;
        assert_eq!(version.unwrap(), limits::PROTOCOL_VERSION);
        open(&client).await.unwrap();
    });
}

#[test]
fn nothing_is_answered_before_hello() {
    let kernel = Kernel::start();
    unacquainted(&kernel, async |client| {
        assert_eq!(open(&client).await.unwrap_err().code, ErrorCode::Protocol);
        let response = client.list_devices_request().send().promise.await.unwrap();
        let listed = answer(response.get().unwrap().get_result().unwrap()).unwrap();
        assert_eq!(listed.err().unwrap().code, ErrorCode::Protocol);
        let response = client.status_request().send().promise.await.unwrap();
        let status = answer(response.get().unwrap().get_result().unwrap()).unwrap();
        assert_eq!(status.err().unwrap().code, ErrorCode::Protocol);
    });
}

#[test]
fn a_name_that_is_too_long_is_refused() {
    let kernel = Kernel::start();
    let long = "n".repeat(limits::NAME_BYTES_MAX + 1);
    unacquainted(&kernel, async |client| {
        let refused = hello(&client, limits::PROTOCOL_VERSION, &long).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::InvalidArgument);
    });
    let refused = Session::open(&kernel.options(&long)).err().unwrap();
    assert_eq!(refused.code, ErrorCode::InvalidArgument);
}

#[test]
fn one_connection_has_so_many_sessions_and_no_more() {
    let kernel = Kernel::start();
    unacquainted(&kernel, async |client| {
        hello(&client, limits::PROTOCOL_VERSION, "many").await.unwrap();
        let mut sessions = Vec::new();
        for _ in 0..limits::SESSIONS_PER_CONNECTION_MAX {
            sessions.push(client.open_session_request().send().promise.await.unwrap());
        }
        assert_eq!(open(&client).await.unwrap_err().code, ErrorCode::LimitReached);
    });
}

fn send(stream: &mut UnixStream, build: impl FnOnce(rpc_capnp::message::Builder<'_>)) -> std::io::Result<()> {
    let mut message = message::Builder::new_default();
    build(message.init_root());
    stream.write_all(&serialize::write_message_to_words(&message))
}

/// A connection below capnp-rpc's library, with the bootstrap capability asked for.
fn raw(socket: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    send(&mut stream, |message| message.init_bootstrap().set_question_id(0)).unwrap();
    stream
}

fn call(message: rpc_capnp::message::Builder<'_>, question: u32, method: u16) {
    let mut call = message.init_call();
    call.set_question_id(question);
    call.set_interface_id(bulkhead::Client::TYPE_ID);
    call.set_method_id(method);
    call.reborrow().init_target().init_promised_answer().set_question_id(0);
    call.init_params();
}

const PING: u16 = 1;
const OPEN_SESSION: u16 = 3;

/// What four floods may make the kernel's memory grow by.
const GROWTH_BYTES_MAX: u64 = 64 << 20;

/// Floods a kernel from several connections until each is hung up on or not read from any more, beside a neighbour.
fn flood(mut attack: impl FnMut(&mut UnixStream, u32) -> std::io::Result<()>) {
    let kernel = Kernel::start();
    let mut neighbour = Neighbour::new(&kernel, "neighbour");
    neighbour.work();
    let before = resident_bytes(kernel.pid());
    let mut floods = Vec::new();
    for _ in 0..4 {
        let mut stream = raw(&kernel.socket());
        let mut sent = 0;
        while attack(&mut stream, sent + 1).is_ok() {
            sent += 1;
            assert!(sent < 3_000_000, "the kernel reads on and on");
        }
        floods.push(stream);
        neighbour.work();
    }
    let grown = resident_bytes(kernel.pid()).saturating_sub(before);
    println!("{grown} bytes more are resident");
    assert!(grown < GROWTH_BYTES_MAX, "{grown} bytes more are resident");
    drop(floods);
    neighbour.work();
    until("the kernel takes new clients", || Session::open(&kernel.options("afterwards")).is_ok());
}

#[test]
fn answers_that_nobody_reads_are_bounded() {
    // Finished at once, so that the number of outstanding calls is no limit.
    flood(|stream, question| {
        send(stream, |message| call(message, question, PING))?;
        send(stream, |message| message.init_finish().set_question_id(question))
    });
}

#[test]
fn calls_without_end_are_bounded() {
    flood(|stream, question| send(stream, |message| call(message, question, PING)));
}

#[test]
fn sessions_asked_for_without_end_are_bounded() {
    flood(|stream, question| send(stream, |message| call(message, question, OPEN_SESSION)));
}

#[test]
fn a_message_that_never_ends_holds_nobody_up() {
    let kernel = Kernel::start();
    let mut neighbour = Neighbour::new(&kernel, "neighbour");
    let mut stalled = Vec::new();
    for bytes in [1, 4, 8, 12, 100] {
        let mut stream = UnixStream::connect(kernel.socket()).unwrap();
        let mut message = vec![0; bytes.max(8)];
        // One segment of 1,000 words, of which hardly any come.
        message[4..8].copy_from_slice(&1000_u32.to_le_bytes());
        stream.write_all(&message[..bytes]).unwrap();
        stalled.push(stream);
    }
    for _ in 0..20 {
        neighbour.work();
        thread::sleep(Duration::from_millis(5));
    }
    for mut stream in stalled {
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap_or_default();
    }
    let options = Options { name: "afterwards".into(), ..kernel.options("") };
    Session::open(&options).unwrap();
}
