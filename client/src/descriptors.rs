//! Descriptors for tokens: a packet with the token, a packet back.

use std::{
    io::{self, IoSliceMut},
    mem::MaybeUninit,
    os::fd::OwnedFd,
    path::Path,
};

use bulkhead_schema::{Error, ErrorCode, bulkhead_capnp::token};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType,
};

/// The bytes of a token as they are presented.
pub(crate) fn bytes(token: token::Reader<'_>) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&token.get_low().to_le_bytes());
    bytes[8..].copy_from_slice(&token.get_high().to_le_bytes());
    bytes
}

/// Presents a token, and returns the descriptors it is worth.
pub(crate) fn present(socket: &Path, token: [u8; 16]) -> Result<Vec<OwnedFd>, Error> {
    let short = |whose: &str| {
        let message = format!("{whose} has no place for more descriptors");
        Error::new(ErrorCode::LimitReached, message).remedy("try again when others were closed")
    };
    let failed = |error: io::Error| match Errno::from_io_error(&error) {
        Some(Errno::MFILE) => short("this process"),
        Some(Errno::NFILE) => short("the system"),
        _ => {
            Error::new(ErrorCode::SessionLost, format!("the descriptor socket {}: {error}", socket.display()))
        }
    };
    match exchange(socket, token).map_err(failed)? {
        (Some(GIVEN), Some(descriptors)) => Ok(descriptors),
        (Some(GIVEN), None) => Err(short("this process")),
        (Some(NOT_NOW), _) => Err(short("the system")),
        (Some(_), _) => {
            Err(Error::new(ErrorCode::NotPermitted, "the kernel does not take the descriptor token"))
        }
        (None, _) => Err(Error::new(ErrorCode::SessionLost, "the kernel hung up on the descriptor socket")),
    }
}

/// The descriptors come with it.
const GIVEN: u8 = 0;
/// The system passes no more descriptors now.
const NOT_NOW: u8 = 2;

/// What the kernel answered, and what came with it, unless that was lost on the way.
fn exchange(socket: &Path, token: [u8; 16]) -> io::Result<(Option<u8>, Option<Vec<OwnedFd>>)> {
    let flags = SocketFlags::CLOEXEC;
    let end = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::connect(&end, &SocketAddrUnix::new(socket)?)?;

    rustix::net::send(&end, &token, SendFlags::NOSIGNAL)?;

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
    let [status] = status;
    let lost = received.flags.contains(ReturnFlags::CTRUNC);
    Ok(((received.bytes == 1).then_some(status), (!lost).then_some(descriptors)))
}
