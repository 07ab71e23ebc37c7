//! Clients that do not keep to the rules.

use std::{
    io::{Read, Write},
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::Path,
    time::Duration,
};

use bulkhead_schema::{
    bulkhead_capnp::{bulkhead, gpu_fence, gpu_session},
    limits,
};
use capnp::{message, serialize, traits::HasTypeId};
use capnp_rpc::rpc_capnp;

use crate::{
    fake::Manners,
    harness::{
        Client, descriptor_socket, everything_given_back, exchange, until, with_changed_kernel, with_kernel,
    },
};

fn connect(directory: &Path) -> UnixStream {
    let stream = UnixStream::connect(directory.join("kernel.sock")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

fn send(stream: &mut UnixStream, build: impl FnOnce(rpc_capnp::message::Builder<'_>)) -> std::io::Result<()> {
    let mut message = message::Builder::new_default();
    build(message.init_root());
    stream.write_all(&serialize::write_message_to_words(&message))
}

/// Reads until the kernel hangs up; how much came.
fn drain(stream: &mut UnixStream) -> usize {
    let mut buffer = vec![0; 1 << 16];
    let mut total = 0;
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return total,
            Ok(bytes) => total += bytes,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return total,
            Err(error) => panic!("the kernel did not hang up: {error}"),
        }
    }
}

/// Runs hostile code on a thread of its own while a neighbour works, and checks that nothing is left of it.
fn with_neighbour(attack: impl FnOnce(&Path) + Send + 'static) {
    let manners = Manners { holds_fences: true, ..Manners::default() };
    with_changed_kernel(
        manners,
        |_| {},
        async |harness| {
            let neighbour = Client::new(&harness.directory).await;
            let session = neighbour.open("neighbour").await.unwrap();
            let directory = harness.directory.clone();
            let attack = tokio::task::spawn_blocking(move || attack(&directory));
            while !attack.is_finished() {
                drop(session.allocate(4096).await.unwrap());
                assert!(neighbour.alive().await);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            attack.await.unwrap();
            until(async || neighbour.status().await.sessions.len() == 1).await;
            session.allocate(4096).await.unwrap();
            drop(session);
            neighbour.leave();
            everything_given_back(&harness.directory).await;
        },
    );
}

fn bootstrap(stream: &mut UnixStream) {
    send(stream, |message| message.init_bootstrap().set_question_id(0)).unwrap();
}

fn call(
    message: rpc_capnp::message::Builder<'_>,
    question: u32,
    interface: u64,
    method: u16,
) -> rpc_capnp::call::Builder<'_> {
    let mut call = message.init_call();
    call.set_question_id(question);
    call.set_interface_id(interface);
    call.set_method_id(method);
    call.reborrow().init_target().init_promised_answer().set_question_id(0);
    call
}

const BULKHEAD: u64 = bulkhead::Client::TYPE_ID;
const GPU_SESSION: u64 = gpu_session::Client::TYPE_ID;
const GPU_FENCE: u64 = gpu_fence::Client::TYPE_ID;

#[test]
fn garbage_on_the_socket_ends_that_connection_only() {
    with_neighbour(|directory| {
        let mut state = 0x1234_5678_9abc_def1_u64;
        for round in 0..200 {
            let mut stream = connect(directory);
            let bytes: Vec<u8> = (0..round * 8)
                .map(|_| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    (state >> 24).to_le_bytes()[0]
                })
                .collect();
            // It may hang up before all was written.
            drop(stream.write_all(&bytes));
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            drain(&mut stream);
        }
    });
}

#[test]
fn a_message_that_says_it_is_huge_ends_its_connection() {
    with_neighbour(|directory| {
        for header in [
            [0_u32, u32::try_from(limits::MESSAGE_WORDS_MAX).unwrap() + 1],
            [0, u32::MAX],
            [u32::MAX, u32::MAX],
            [511, 0],
            [600, 0],
        ] {
            let mut stream = connect(directory);
            let bytes: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
            drop(stream.write_all(&bytes));
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            drain(&mut stream);
        }
    });
}

#[test]
fn messages_that_clients_do_not_send_end_their_connection() {
    with_neighbour(|directory| {
        type Build = fn(rpc_capnp::message::Builder<'_>);
        let messages: [Build; 8] = [
            |message| _ = message.init_return(),
            |message| _ = message.init_resolve(),
            |message| _ = message.init_disembargo(),
            |message| _ = message.init_provide(),
            |message| _ = message.init_accept(),
            |message| _ = message.init_join(),
            |message| _ = message.init_unimplemented(),
            |message| message.init_release().set_reference_count(5),
        ];
        for build in messages {
            let mut stream = connect(directory);
            bootstrap(&mut stream);
            send(&mut stream, build).unwrap();
            drain(&mut stream);
        }
    });
}

#[test]
fn capabilities_of_clients_are_not_taken() {
    with_neighbour(|directory| {
        for kind in 0..4 {
            let mut stream = connect(directory);
            bootstrap(&mut stream);
            send(&mut stream, |message| {
                let mut call = call(message, 1, BULKHEAD, 1);
                if kind == 3 {
                    call.reborrow().get_send_results_to().set_yourself(());
                    return;
                }
                let mut descriptor = call.init_params().init_cap_table(1).get(0);
                match kind {
                    0 => descriptor.set_sender_hosted(1),
                    1 => descriptor.set_sender_promise(1),
                    _ => _ = descriptor.init_third_party_hosted(),
                }
            })
            .unwrap();
            drain(&mut stream);
        }
    });
}

#[test]
fn calls_to_what_does_not_exist_are_answered_or_end_their_connection() {
    with_neighbour(|directory| {
        for (interface, method) in [(BULKHEAD, 99), (GPU_SESSION, 0), (u64::MAX, 0), (0, u16::MAX)] {
            let mut stream = connect(directory);
            bootstrap(&mut stream);
            send(&mut stream, |message| _ = call(message, 1, interface, method)).unwrap();
            send(&mut stream, |message| {
                let mut call = call(message, 2, interface, method);
                call.reborrow().init_target().set_imported_cap(12_345);
            })
            .unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            drain(&mut stream);
        }
    });
}

#[test]
fn too_many_outstanding_calls_end_their_connection() {
    with_neighbour(|directory| {
        let mut stream = connect(directory);
        bootstrap(&mut stream);
        // Everything on answers that are still to come: hello, a session, a fence that does not pass.
        send(&mut stream, |message| {
            let call = call(message, 1, BULKHEAD, 0);
            let mut hello: bulkhead::hello_params::Builder<'_> = call.init_params().get_content().init_as();
            hello.set_version(limits::PROTOCOL_VERSION);
        })
        .unwrap();
        send(&mut stream, |message| _ = call(message, 2, BULKHEAD, 3)).unwrap();
        send(&mut stream, |message| on_result(call(message, 3, GPU_SESSION, 4), 2)).unwrap();
        let mut sent = 0;
        for question in 4.. {
            let waited = send(&mut stream, |message| {
                let mut call = call(message, question, GPU_FENCE, 0);
                let content = call.reborrow().init_params().get_content();
                let mut wait: gpu_fence::wait_params::Builder<'_> = content.init_as();
                wait.set_timeout_ms(u32::MAX);
                on_result(call, 3);
            });
            sent += 1;
            assert!(sent < 1_000_000, "the kernel never hangs up");
            if waited.is_err() {
                break;
            }
        }
        assert!(sent > limits::QUESTIONS_MAX / 2, "{sent}");
        drain(&mut stream);
    });
}

/// Aims a call at the capability in the result of an earlier call: `result.ok`, and there the first pointer.
fn on_result(mut call: rpc_capnp::call::Builder<'_>, question: u32) {
    let mut answer = call.reborrow().init_target().init_promised_answer();
    answer.set_question_id(question);
    let mut transform = answer.init_transform(3);
    for at in 0..3 {
        transform.reborrow().get(at).set_get_pointer_field(0);
    }
}

#[test]
fn a_flood_of_unread_answers_is_bounded() {
    with_neighbour(|directory| {
        let before = resident_bytes();
        let mut stream = connect(directory);
        bootstrap(&mut stream);
        stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        let mut sent = 0_u64;
        for question in 1_u32.. {
            // `ping`, finished at once so that the number of outstanding calls is no limit.
            let flooded = send(&mut stream, |message| _ = call(message, question, BULKHEAD, 1))
                .and_then(|()| send(&mut stream, |message| message.init_finish().set_question_id(question)));
            if flooded.is_err() {
                break;
            }
            sent += 1;
            assert!(sent < 5_000_000, "the kernel reads on and on");
        }
        let grown = resident_bytes().saturating_sub(before);
        println!("{sent} calls were sent before the kernel stopped reading; {grown} bytes more are resident");
        assert!(grown < 64 << 20, "{grown} bytes more are resident");
    });
}

/// Of this process, in which the kernel runs.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn garbage_on_the_descriptor_socket_ends_that_connection_only() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let patient = descriptor_socket(&harness.directory);
        for length in [1, 15, 17, 63, 4096] {
            let socket = descriptor_socket(&harness.directory);
            assert!(exchange(&socket, &vec![0xff; length], None).is_none(), "{length} bytes");
        }
        let null = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let socket = descriptor_socket(&harness.directory);
        assert_eq!(exchange(&socket, &[9; 16], None).unwrap().0, [1], "no such token");
        // Refused by the system, or dropped on the way: in neither case is it anything that the kernel has.
        if let Some((answer, given)) = exchange(&socket, &session.ring, Some(&null)) {
            assert_eq!((answer, given.len()), (vec![0], 2));
        }
        let second = client.open("two").await.unwrap();
        let (answer, descriptors) = exchange(&patient, &second.ring, None).unwrap();
        assert_eq!((answer, descriptors.len()), (vec![0], 2));
        assert_eq!(exchange(&patient, &second.ring, None).unwrap().0, [1], "a token is good once");
    });
}

#[test]
fn tokens_of_a_connection_end_with_it() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let token = session.ring;
        drop(session);
        client.leave();
        everything_given_back(&harness.directory).await;
        let socket = descriptor_socket(&harness.directory);
        assert_eq!(exchange(&socket, &token, None).unwrap().0, [1]);
    });
}

#[test]
fn too_many_connections_are_sent_away() {
    with_changed_kernel(
        Manners::default(),
        |config| config.limits.connections_max = 2,
        async |harness| {
            let first = Client::new(&harness.directory).await;
            let second = Client::new(&harness.directory).await;
            assert!(!Client::silent(&harness.directory).await.alive().await);
            assert!(first.alive().await);
            second.leave();
            until(async || Client::silent(&harness.directory).await.alive().await).await;
        },
    );
}
