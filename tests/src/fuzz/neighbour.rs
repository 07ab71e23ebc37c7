//! Somebody who only wants to know, all the time, whether the kernel answers.

use std::{
    io::Write as _,
    os::unix::net::UnixStream,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use bulkhead_schema::{bulkhead_capnp::bulkhead, limits};
use capnp::{message::ReaderOptions, serialize, traits::HasTypeId as _};

use super::message::{Body, Call, Message, Pointer, Results, Target};

/// `hello` and `ping` of `bulkhead.capnp`.
const HELLO: u16 = 0;
const PING: u16 = 1;

/// How long pings took.
#[derive(Debug, Clone, Default)]
pub struct Pings {
    /// How many.
    pub count: u64,
    /// The slowest.
    pub longest: Duration,
}

/// Pings until told to stop.
///
/// # Errors
/// Where one is not answered in time.
pub fn ping(socket: &Path, stop: &AtomicBool, pause: Duration, patience: Duration) -> Result<Pings, String> {
    let failed = |error: std::io::Error| format!("a neighbour's ping is not answered: {error}");
    let mut stream = UnixStream::connect(socket).map_err(failed)?;
    stream.set_read_timeout(Some(patience)).map_err(failed)?;
    stream.set_write_timeout(Some(patience)).map_err(failed)?;
    stream.write_all(&Message::Bootstrap(0).encode()).map_err(failed)?;
    read(&mut stream)?;
    // Whoever says no `hello` is sent away.
    let name = Pointer::Bytes(b"neighbour\0".to_vec());
    let hello = Body { data: vec![(32, 0, u64::from(limits::PROTOCOL_VERSION))], pointers: vec![(0, name)] };
    stream.write_all(&call(1, HELLO, hello)).map_err(failed)?;
    read(&mut stream)?;
    let bytes = call(2, PING, Body { data: vec![(64, 0, 42)], pointers: Vec::new() });
    let finish = Message::Finish(2, true).encode();
    let mut pings = Pings::default();
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        stream.write_all(&bytes).map_err(failed)?;
        read(&mut stream)?;
        pings.count += 1;
        pings.longest = pings.longest.max(start.elapsed());
        stream.write_all(&finish).map_err(failed)?;
        std::thread::sleep(pause);
    }
    Ok(pings)
}

/// A call of the bootstrap capability.
fn call(question: u32, method: u16, body: Body) -> Vec<u8> {
    let target = Target::Answer(0, Vec::new());
    let (interface, results) = (bulkhead::Client::TYPE_ID, Results::Caller);
    Message::Call(Call { question, target, interface, method, body, table: Vec::new(), results }).encode()
}

/// Reads one message.
fn read(stream: &mut UnixStream) -> Result<(), String> {
    match serialize::read_message(stream, ReaderOptions::new()) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("a neighbour's ping is not answered: {error}")),
    }
}
