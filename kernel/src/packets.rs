//! Packets with descriptors on a `SOCK_SEQPACKET` unix socket.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use bulkhead_schema::limits;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use tokio::io::{Interest, unix::AsyncFd};

use crate::watched::watched;

const CONTROL_BYTES: usize = rustix::cmsg_space!(ScmRights(limits::DESCRIPTORS_PER_PACKET_MAX));

/// A connected socket.
pub(crate) struct Packets {
    socket: AsyncFd<OwnedFd>,
}

impl Packets {
    /// Takes over a connected socket.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self { socket: watched(socket, Interest::READABLE | Interest::WRITABLE)? })
    }

    /// A connected pair: one end as packets, the other to hand to another process.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self::new(ours)?, theirs))
    }

    /// Receives one packet: its length in `buffer`, and its descriptors. A length of 0 means that the peer is gone.
    /// A packet that is longer than the buffer, or that has more descriptors than may be, is an error.
    pub(crate) async fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        self.socket.async_io(Interest::READABLE, |socket| receive_now(socket.as_fd(), buffer)).await
    }

    /// Sends one packet.
    pub(crate) async fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.socket.async_io(Interest::WRITABLE, |socket| send_now(socket.as_fd(), bytes, descriptors)).await
    }

    /// Ends the conversation both ways: whoever waits on either side wakes up.
    pub(crate) fn shut_down(&self) {
        if let Err(error) = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both) {
            tracing::debug!(%error, "a socket was already closed");
        }
    }
}

fn receive_now(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); CONTROL_BYTES];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received =
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a packet is too long"));
    }
    Ok((received.bytes, descriptors))
}

fn send_now(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); CONTROL_BYTES];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors for one packet"));
    }
    let sent = rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    if sent != bytes.len() {
        return Err(io::Error::new(io::ErrorKind::WriteZero, "a packet was sent in part"));
    }
    Ok(())
}
