//! Messages of the types that clients may send, in any order, aimed at anything.
//!
//! The generator learns which capabilities it was given from the answers, so that most of what it sends goes deep.
//! Each seed is printed; `BULKHEAD_SEED` repeats one.

use std::{
    io::Write,
    os::unix::net::UnixStream,
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bulkhead_schema::{
    bulkhead_capnp::{
        bulkhead, gpu_buffer, gpu_buffer_view, gpu_capability, gpu_copy_session, gpu_fence, gpu_loan,
        gpu_module, gpu_peer, gpu_program, gpu_revocation, gpu_session, gpu_signal,
    },
    limits,
};
use capnp::{message, serialize, traits::HasTypeId};
use capnp_rpc::rpc_capnp;

use crate::harness::{Client, everything_given_back, until, with_kernel};

/// Interfaces and how many methods each has, and one more.
const METHODS: [(u64, u64); 13] = [
    (bulkhead::Client::TYPE_ID, 7),
    (gpu_copy_session::Client::TYPE_ID, 16),
    (gpu_session::Client::TYPE_ID, 4),
    (gpu_capability::Client::TYPE_ID, 5),
    (gpu_buffer_view::Client::TYPE_ID, 3),
    (gpu_buffer::Client::TYPE_ID, 3),
    (gpu_loan::Client::TYPE_ID, 3),
    (gpu_module::Client::TYPE_ID, 4),
    (gpu_fence::Client::TYPE_ID, 2),
    (gpu_signal::Client::TYPE_ID, 3),
    (gpu_program::Client::TYPE_ID, 3),
    (gpu_peer::Client::TYPE_ID, 2),
    (gpu_revocation::Client::TYPE_ID, 2),
];

struct Choices(u64);

impl Choices {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 8) % bound
    }

    fn small(&mut self, bound: u32) -> u32 {
        u32::try_from(self.below(u64::from(bound))).unwrap()
    }
}

/// What the kernel has handed out on a connection.
type Exports = Arc<Mutex<Vec<u32>>>;

/// Reads answers until the kernel hangs up.
fn listen(stream: &UnixStream, exports: &Exports) {
    let mut reader = std::io::BufReader::new(stream);
    while let Ok(message) = serialize::read_message(&mut reader, message::ReaderOptions::new()) {
        let Ok(body) = message.get_root::<rpc_capnp::message::Reader<'_>>() else { continue };
        let Ok(rpc_capnp::message::Return(Ok(answer))) = body.which() else { continue };
        let Ok(rpc_capnp::return_::Results(Ok(results))) = answer.which() else { continue };
        for descriptor in results.get_cap_table().unwrap() {
            if let Ok(rpc_capnp::cap_descriptor::SenderHosted(id)) = descriptor.which() {
                exports.lock().unwrap().push(id);
            }
        }
    }
}

fn build(choices: &mut Choices, next: &mut u32, exports: &Exports, message: rpc_capnp::message::Builder<'_>) {
    let known = {
        let exports = exports.lock().unwrap();
        let index = usize::try_from(choices.below(exports.len().max(1) as u64)).unwrap();
        exports.get(index).copied().unwrap_or(0)
    };
    let asked = choices.small(*next + 1);
    match choices.below(20) {
        0 => {
            *next += 1;
            message.init_bootstrap().set_question_id(*next);
        }
        1..15 => {
            *next += 1;
            let mut call = message.init_call();
            call.set_question_id(*next);
            let (interface, methods) = METHODS[usize::try_from(choices.below(12)).unwrap()];
            call.set_interface_id(interface);
            call.set_method_id(u16::try_from(choices.below(methods)).unwrap());
            let mut target = call.reborrow().init_target();
            if choices.below(3) > 0 {
                target.set_imported_cap(known);
            } else {
                let depth = choices.small(4);
                let mut answer = target.init_promised_answer();
                answer.set_question_id(asked);
                let mut transform = answer.init_transform(depth);
                for at in 0..depth {
                    transform.reborrow().get(at).set_get_pointer_field(0);
                }
            }
            let mut parameters = call.init_params();
            // One word of data is where every method has its numbers; one pointer where it has its text.
            let content = parameters.reborrow().get_content();
            let mut hello: bulkhead::hello_params::Builder<'_> = content.init_as();
            let number = [0, 1, 3, 4096, u32::MAX][usize::try_from(choices.below(5)).unwrap()];
            hello.set_version(number);
            if choices.below(4) == 0 {
                hello.set_client("a name");
            }
            if choices.below(6) == 0 {
                parameters.init_cap_table(1).get(0).set_receiver_hosted(known);
            }
        }
        15..18 => {
            let mut finish = message.init_finish();
            finish.set_question_id(asked);
            finish.set_release_result_caps(choices.below(2) == 0);
        }
        18 => {
            let mut release = message.init_release();
            release.set_id(known);
            release.set_reference_count(choices.small(2));
        }
        _ => {
            let mut release = message.init_release();
            release.set_id(choices.small(40));
            release.set_reference_count(1);
        }
    }
}

/// One connection's life.
fn play(directory: &Path, seed: u64) {
    let mut choices = Choices(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut stream = UnixStream::connect(directory.join("kernel.sock")).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    let exports = Exports::default();
    let (ears, heard) = (stream.try_clone().unwrap(), Arc::clone(&exports));
    let listener = std::thread::spawn(move || listen(&ears, &heard));
    let mut next = 2;
    let mut send = |build: &mut dyn FnMut(rpc_capnp::message::Builder<'_>)| {
        let mut message = message::Builder::new_default();
        build(message.init_root());
        stream.write_all(&serialize::write_message_to_words(&message)).is_ok()
    };
    send(&mut |message| message.init_bootstrap().set_question_id(0));
    for (question, method) in [(1, 0), (2, 3)] {
        send(&mut |message| {
            let mut call = message.init_call();
            call.set_question_id(question);
            call.set_interface_id(bulkhead::Client::TYPE_ID);
            call.set_method_id(method);
            call.reborrow().init_target().init_promised_answer().set_question_id(0);
            if method == 0 {
                let content = call.init_params().get_content();
                content
                    .init_as::<bulkhead::hello_params::Builder<'_>>()
                    .set_version(limits::PROTOCOL_VERSION);
            }
        });
    }
    let count = 3 + choices.below(60);
    for _ in 0..count {
        if !send(&mut |message| build(&mut choices, &mut next, &exports, message)) {
            break;
        }
        if choices.below(4) == 0 {
            std::thread::sleep(Duration::from_micros(choices.below(400)));
        }
    }
    // It may have hung up already.
    drop(stream.shutdown(std::net::Shutdown::Both));
    listener.join().unwrap();
}

#[test]
fn messages_in_any_order_disturb_nobody_and_leave_nothing() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let first = match std::env::var("BULKHEAD_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed,
        None => u64::from(now.subsec_nanos()),
    };
    println!("seeds {first} to {}", first + 300);
    with_kernel(async |harness| {
        let neighbour = Client::new(&harness.directory).await;
        let session = neighbour.open("neighbour").await.unwrap();
        let directory = harness.directory.clone();
        let play = tokio::task::spawn_blocking(move || {
            for seed in first..first + 300 {
                play(&directory, seed);
            }
        });
        while !play.is_finished() {
            drop(session.allocate(4096).await.unwrap());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        play.await.unwrap();
        assert_eq!(harness.fake.starts(), 1, "the executor heard nothing that it could not answer");
        until(async || neighbour.status().await.sessions.len() == 1).await;
        // What was dropped last is on its way back.
        until(async || harness.fake.mapped(session.id) == (0, 0)).await;
        drop(session);
        neighbour.leave();
        everything_given_back(&harness.directory).await;
    });
}
