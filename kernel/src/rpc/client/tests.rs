use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    sync::mpsc,
    thread,
    time::Duration,
};

use bulkhead_schema::bulkhead_capnp::bulkhead;
use capnp::{message, serialize, traits::HasTypeId as _};
use capnp_rpc::rpc_capnp;

use crate::{Cells, Config, ExecutorSource, KERNEL_SOCKET, Limits, Relay};

/// A ping of this value panics, in tests only.
pub(super) const PANICS: u64 = 0xdead_0000_dead_0001;

struct Raw(UnixStream);

impl Raw {
    fn connect(path: &std::path::Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut raw = Self(stream);
        raw.send(|message| message.init_bootstrap().set_question_id(0));
        serialize::read_message(&mut raw.0, message::ReaderOptions::new()).unwrap();
        raw
    }

    fn send(&mut self, build: impl FnOnce(rpc_capnp::message::Builder<'_>)) {
        let mut message = message::Builder::new_default();
        build(message.init_root());
        self.0.write_all(&serialize::write_message_to_words(&message)).unwrap();
    }

    fn ping(&mut self, question: u32, value: u64) {
        self.send(|message| {
            let mut call = message.init_call();
            call.set_question_id(question);
            call.set_interface_id(bulkhead::Client::TYPE_ID);
            call.set_method_id(1);
            call.reborrow().init_target().init_promised_answer().set_question_id(0);
            let mut ping: bulkhead::ping_params::Builder<'_> = call.init_params().get_content().init_as();
            ping.set_value(value);
        });
    }

    /// The value that a ping is answered with.
    fn answer(&mut self) -> u64 {
        let message = serialize::read_message(&mut self.0, message::ReaderOptions::new()).unwrap();
        let message: rpc_capnp::message::Reader<'_> = message.get_root().unwrap();
        let Ok(rpc_capnp::message::Return(Ok(answer))) = message.which() else { panic!("no answer") };
        let Ok(rpc_capnp::return_::Results(Ok(results))) = answer.which() else { panic!("no results") };
        let results: bulkhead::ping_results::Reader<'_> = results.get_content().get_as().unwrap();
        results.get_value()
    }
}

#[test]
fn a_panic_in_one_connection_ends_that_connection_only() {
    let directory = std::env::temp_dir().join(format!("bulkhead-panic-{}", std::process::id()));
    let (ready, started) = mpsc::channel();
    let config = Config {
        runtime_directory: directory.clone(),
        executor: ExecutorSource::Connect(Box::new(|| Err(std::io::Error::other("there is none")))),
        executor_environment: Vec::new(),
        compiler: vec!["/bin/false".into()],
        modules: Vec::new(),
        relay: Relay::default(),
        tenants: Vec::new(),
        limits: Limits::default(),
        cells: Cells::default(),
        ready: Some(Box::new(move || ready.send(()).unwrap())),
    };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let kernel = thread::spawn(move || crate::run(config, Box::pin(async { drop(stopped.await) })));
    started.recv_timeout(Duration::from_secs(20)).unwrap();
    let socket = directory.join(KERNEL_SOCKET);
    let (mut unlucky, mut neighbour) = (Raw::connect(&socket), Raw::connect(&socket));
    for round in 1..4 {
        unlucky.ping(1, PANICS);
        let mut rest = Vec::new();
        // What came before the end does not matter, only that it comes.
        match unlucky.0.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
        neighbour.ping(round, 42);
        assert_eq!(neighbour.answer(), 42);
        unlucky = Raw::connect(&socket);
    }
    drop(stop);
    kernel.join().unwrap().unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
}
