#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use bulkhead_gpu::DeviceAddress;
use bulkhead_ring::{CompletionReader, CompletionWriter, memory::Completion};
use bulkhead_schema::executor_capnp::reply;
use bulkhead_softgpu::{Options, SoftGpu};
use rustix::{
    fd::OwnedFd,
    io::Errno,
    net::{AddressFamily, RecvFlags, SocketFlags, SocketType},
};

use super::*;
use crate::watch::flag::Flags;

/// A session without a pump, what its client sees, and the kernel's end of the socket.
fn alone() -> (Session, CompletionReader, OwnedFd) {
    let options = Options { memory_bytes: 64 << 20, threads: Some(1), ..Options::default() };
    let gpu: Arc<dyn Gpu> = SoftGpu::new(options).unwrap();
    let slot = Slot::new(0).unwrap();
    gpu.reserve(DeviceAddress(slot.flag_granule().start().0), slot.flag_granule().bytes()).unwrap();
    let flags = Arc::new(Flags::open(&gpu).unwrap());
    flags.map(slot, gpu.create_stream(0).unwrap()).unwrap();
    let (page, _) = Completion::create().unwrap();
    let at = page.range().0;
    let client = CompletionReader::new(Arc::clone(&page));
    let streams = Streams::new(Arc::clone(&gpu), CompletionWriter::new(page), at);
    let (kernel, ours) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .unwrap();
    let session = Session {
        id: 7,
        slot,
        state: Mutex::new(State::new(gpu, streams, Arc::default())),
        resumed: Condvar::new(),
        stopping: AtomicBool::new(false),
        submitted_ns: AtomicU64::new(0),
        link: Link::new(ours),
        epoch: Instant::now(),
        flag: Flag::new(&flags, slot),
        waker: Mutex::new(None),
    };
    (session, client, kernel)
}

/// The session that the kernel has been told is over, and why; `None` where nothing was said.
fn said(kernel: &OwnedFd) -> Option<(u32, Error)> {
    let mut packet = vec![0; limits::PACKET_BYTES_MAX];
    let (length, _) = match rustix::net::recv(kernel, &mut packet[..], RecvFlags::DONTWAIT) {
        Ok(received) => received,
        Err(Errno::AGAIN) => return None,
        Err(error) => panic!("{error}"),
    };
    let message =
        capnp::serialize::read_message(&packet[..length], capnp::message::ReaderOptions::new()).unwrap();
    let reply = message.get_root::<reply::Reader<'_>>().unwrap();
    let Ok(reply::SessionEnded(ended)) = reply.which() else { panic!("something else is said") };
    let ended = ended.unwrap();
    Some((ended.get_session(), Error::read(ended.get_error().unwrap())))
}

#[test]
fn whoever_ends_a_session_has_told_the_kernel_why_when_the_client_can_know() {
    let (session, client, kernel) = alone();
    let why = Error::new(ErrorCode::LaunchTimeout, "a kernel runs for longer than it may");
    session.end(Ender::Executor, why.clone());
    // Nothing but the call itself has run: no pump is there to say it later.
    assert_eq!(client.ended().map(|ended| ended.code), Some(ErrorCode::LaunchTimeout as u16));
    assert_eq!(said(&kernel), Some((7, why)));
    session.end(Ender::Executor, Error::new(ErrorCode::Trapped, "again"));
    assert_eq!(said(&kernel), None, "it is said once");
}

#[test]
fn what_the_kernel_says_it_is_not_told() {
    let (session, client, kernel) = alone();
    session.end(Ender::Kernel, Error::new(ErrorCode::Revoked, "memory was taken back"));
    assert_eq!(client.ended().map(|ended| ended.code), Some(ErrorCode::Revoked as u16));
    assert_eq!(said(&kernel), None);
}
