//! Descriptors for tokens: a packet with the token, a packet back.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{BorrowedFd, OwnedFd},
    path::Path,
};

use bulkhead_schema::{Error, ErrorCode, bulkhead_capnp::token};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

/// The bytes of a token as they are presented.
pub(crate) fn bytes(token: token::Reader<'_>) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&token.get_low().to_le_bytes());
    bytes[8..].copy_from_slice(&token.get_high().to_le_bytes());
    bytes
}

/// Presents a token, with a descriptor to hand over where it is for that, and returns the descriptors it is worth.
pub(crate) fn present(
    socket: &Path,
    token: [u8; 16],
    give: Option<BorrowedFd<'_>>,
) -> Result<Vec<OwnedFd>, Error> {
    let failed = |error: io::Error| {
        Error::new(ErrorCode::SessionLost, format!("the descriptor socket {}: {error}", socket.display()))
    };
    exchange(socket, token, give)
        .map_err(failed)?
        .ok_or_else(|| Error::new(ErrorCode::NotPermitted, "the kernel does not take the descriptor token"))
}

fn exchange(
    socket: &Path,
    token: [u8; 16],
    give: Option<BorrowedFd<'_>>,
) -> io::Result<Option<Vec<OwnedFd>>> {
    let flags = SocketFlags::CLOEXEC;
    let end = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::connect(&end, &SocketAddrUnix::new(socket)?)?;

    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let given: Vec<BorrowedFd<'_>> = give.into_iter().collect();
    if !given.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&given)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    rustix::net::sendmsg(&end, &[IoSlice::new(&token)], &mut ancillary, SendFlags::NOSIGNAL)?;

    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut status = [1];
    let mut parts = [IoSliceMut::new(&mut status)];
    let received = rustix::net::recvmsg(&end, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    Ok((received.bytes == 1 && status == [0]).then_some(descriptors))
}
