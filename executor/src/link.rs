//! Packets between kernel and executor, on the executor's side.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use bulkhead_schema::{Error, ErrorCode, executor_capnp::reply, limits};
use parking_lot::Mutex;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

/// One end of the socket pair. Cheap to clone; any thread may send, one receives.
#[derive(Clone)]
pub(crate) struct Link {
    socket: Arc<OwnedFd>,
    sending: Arc<Mutex<()>>,
}

impl Link {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket: Arc::new(socket), sending: Arc::default() }
    }

    /// The next packet and the descriptor that rode with it; `None` when the kernel is gone.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<(usize, Option<OwnedFd>)>> {
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
        Ok((received.bytes > 0).then_some((received.bytes, descriptor)))
    }

    /// Sends a reply to request `id` (0: to none), with at most one descriptor.
    pub(crate) fn reply(
        &self,
        id: u64,
        descriptor: Option<BorrowedFd<'_>>,
        fill: impl FnOnce(reply::Builder<'_>),
    ) -> io::Result<()> {
        let mut bytes = encode(id, fill);
        if bytes.len() > limits::PACKET_BYTES_MAX {
            let error =
                Error::new(ErrorCode::LimitReached, "the image has too many entries, or too long names")
                    .remedy("split it into smaller images");
            bytes = encode(id, |reply| error.write(reply.init_error()));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let _sending = self.sending.lock();
        let parts = [IoSlice::new(&bytes)];
        let sent = rustix::net::sendmsg(self.socket.as_fd(), &parts, &mut ancillary, SendFlags::NOSIGNAL)?;
        if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }
}

fn encode(id: u64, fill: impl FnOnce(reply::Builder<'_>)) -> Vec<u8> {
    let mut message = capnp::message::Builder::new_default();
    let mut root = message.init_root::<reply::Builder<'_>>();
    root.set_id(id);
    fill(root);
    capnp::serialize::write_message_to_words(&message)
}
