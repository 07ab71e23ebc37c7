//! Packets between kernel and executor, on the executor's side.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use bulkhead_schema::{Error, ErrorCode, executor_capnp::reply, limits};
use parking_lot::Mutex;
use rustix::{
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags,
    },
};

/// How long a reply waits where the system has no memory for it.
const SHORTAGE: Duration = Duration::from_millis(10);

/// A packet that was received.
pub(crate) struct Received {
    pub(crate) bytes: usize,
    /// What rode with it.
    pub(crate) descriptor: Option<OwnedFd>,
    /// Something rode with it that this process has no place for.
    pub(crate) lost: bool,
}

/// One end of the socket pair. Cheap to clone; any thread may send, one receives.
#[derive(Clone)]
pub(crate) struct Link {
    socket: Arc<OwnedFd>,
    sending: Arc<Mutex<()>>,
    /// How many bytes of local memory for a thread the driver keeps ready. Every reply tells.
    local_bytes: Arc<AtomicU32>,
}

impl Link {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket: Arc::new(socket), sending: Arc::default(), local_bytes: Arc::default() }
    }

    /// Notes that the driver keeps so much local memory ready from now on.
    pub(crate) fn local_grew(&self, bytes: u32) {
        self.local_bytes.fetch_max(bytes, Ordering::AcqRel);
    }

    /// The next packet; `None` when the kernel is gone.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut parts = [IoSliceMut::new(buffer)];
            match rustix::net::recvmsg(&self.socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other?,
            }
        };
        let mut descriptor = None;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                descriptor = descriptors.last().or(descriptor);
            }
        }
        let lost = received.flags.contains(ReturnFlags::CTRUNC);
        Ok((received.bytes > 0).then_some(Received { bytes: received.bytes, descriptor, lost }))
    }

    /// Sends a reply to request `id` (0: to none), with at most one descriptor, or without it where the system passes no
    /// more: then the kernel has to say what becomes of what was asked.
    pub(crate) fn reply(
        &self,
        id: u64,
        descriptor: Option<BorrowedFd<'_>>,
        fill: impl FnOnce(reply::Builder<'_>),
    ) -> io::Result<()> {
        let local_bytes = self.local_bytes.load(Ordering::Acquire);
        let mut bytes = encode(id, local_bytes, fill);
        if let Err(error) = fits(&bytes) {
            bytes = encode(id, local_bytes, |reply| error.write(reply.init_error()));
        }
        let _sending = self.sending.lock();
        let mut descriptor = descriptor;
        loop {
            match self.send(&bytes, descriptor) {
                Err(Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM) if descriptor.is_some() => {
                    // Who brought that about may do so without end; the kernel says so.
                    tracing::debug!("a descriptor cannot be passed to the kernel");
                    descriptor = None;
                }
                Err(Errno::NOBUFS | Errno::NOMEM) => thread::sleep(SHORTAGE),
                Err(Errno::INTR) => {}
                Ok(sent) if sent == bytes.len() => return Ok(()),
                Ok(_) => return Err(io::ErrorKind::WriteZero.into()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn send(&self, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> Result<usize, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(Errno::NOBUFS);
        }
        rustix::net::sendmsg(self.socket.as_fd(), &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)
    }
}

/// A reply that cannot be sent means that the kernel is gone; the main thread sees that too, and ends the process.
pub(crate) fn report(sent: std::io::Result<()>) {
    if let Err(error) = sent {
        tracing::warn!(%error, "the kernel is gone");
    }
}

/// Answers a request that has no more to say than whether it was done.
pub(crate) fn answer(link: &Link, id: u64, result: &Result<(), Error>) {
    report(link.reply(id, None, |mut reply| match result {
        Ok(()) => reply.set_ok(()),
        Err(error) => error.write(reply.init_error()),
    }));
}

/// Whether an answer fits into a packet. Asked before anything is done that the answer tells of: one that does not fit is
/// an error to the kernel, which takes that as nothing done.
pub(crate) fn may_answer(fill: impl FnOnce(reply::Builder<'_>)) -> Result<(), Error> {
    fits(&encode(0, 0, fill))
}

fn fits(bytes: &[u8]) -> Result<(), Error> {
    if bytes.len() <= limits::PACKET_BYTES_MAX {
        return Ok(());
    }
    Err(Error::new(ErrorCode::LimitReached, "the image has too many entries, or too long names")
        .remedy("split it into smaller images"))
}

fn encode(id: u64, local_bytes: u32, fill: impl FnOnce(reply::Builder<'_>)) -> Vec<u8> {
    let mut message = capnp::message::Builder::new_default();
    let mut root = message.init_root::<reply::Builder<'_>>();
    root.set_id(id);
    root.set_local_bytes(local_bytes);
    fill(root);
    capnp::serialize::write_message_to_words(&message)
}
