//! Packets to and from the kernel, and what comes along.

use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
};

use bulkhead_schema::executor_capnp;
use capnp::{message, serialize};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

pub(super) fn send<'a>(
    socket: &OwnedFd,
    id: u64,
    descriptors: impl IntoIterator<Item = &'a OwnedFd>,
    build: impl FnOnce(executor_capnp::reply::Builder<'_>),
) {
    let mut message = message::Builder::new_default();
    let mut reply: executor_capnp::reply::Builder<'_> = message.init_root();
    reply.set_id(id);
    build(reply);
    let bytes = serialize::write_message_to_words(&message);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<_> = descriptors.into_iter().map(AsFd::as_fd).collect();
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    }
    // The kernel may have given up on this executor.
    let sent = rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL);
    assert!(sent.is_ok() || sent == Err(rustix::io::Errno::PIPE), "{sent:?}");
}

pub(super) fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> Option<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received =
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, RecvFlags::CMSG_CLOEXEC)
            .ok()?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    (received.bytes > 0).then_some((received.bytes, descriptors))
}
