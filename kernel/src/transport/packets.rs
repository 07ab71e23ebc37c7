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

use crate::transport::async_fd::watched;

/// As many descriptors as the kernel passes in one packet.
const SENT_BYTES: usize = rustix::cmsg_space!(ScmRights(limits::DESCRIPTORS_PER_PACKET_MAX));
/// As many as the system lets anybody pass in one packet (`SCM_MAX_FD`).
const RECEIVED_BYTES: usize = rustix::cmsg_space!(ScmRights(253));

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

    /// Another descriptor of the socket.
    pub(crate) fn another(&self) -> io::Result<OwnedFd> {
        self.socket.get_ref().try_clone()
    }

    /// A connected pair: one end as packets, the other to hand to another process.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self::new(ours)?, theirs))
    }

    /// Waits for a packet, and tells whether it comes with descriptors. It stays where it is, and so do they.
    pub(crate) async fn wait(&self) -> io::Result<bool> {
        let look = |socket: &OwnedFd| {
            // There is no room for descriptors: the system says so where there are some.
            let mut control = RecvAncillaryBuffer::default();
            let mut byte = [0];
            let found = rustix::net::recvmsg(
                socket,
                &mut [IoSliceMut::new(&mut byte)],
                &mut control,
                RecvFlags::PEEK,
            )?;
            Ok(found.flags.contains(ReturnFlags::CTRUNC))
        };
        self.socket.async_io(Interest::READABLE, look).await
    }

    /// Receives one packet that comes without descriptors: its length, which may be more than fits into `buffer`. A
    /// length of 0 means that the peer is gone.
    pub(crate) async fn receive_plain(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let receive = |socket: &OwnedFd| Ok(rustix::net::recv(socket, &mut *buffer, RecvFlags::TRUNC)?.1);
        self.socket.async_io(Interest::READABLE, receive).await
    }

    /// Sends one packet.
    pub(crate) async fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let send = |socket: &OwnedFd| send_now(socket.as_fd(), bytes, descriptors);
        if self.socket.async_io(Interest::WRITABLE, send).await? != bytes.len() {
            return Err(io::Error::new(io::ErrorKind::WriteZero, "a packet was sent in part"));
        }
        Ok(())
    }

    /// Ends the conversation both ways: whoever waits on either side wakes up.
    pub(crate) fn shut_down(&self) {
        if let Err(error) = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both) {
            tracing::debug!(%error, "a socket was already closed");
        }
    }
}

/// A packet that was received.
pub(crate) struct Received {
    /// How much of the buffer it takes.
    pub(crate) bytes: usize,
    /// Fewer than were sent where this process has no place for more.
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// Receives what is there, with its descriptors. Those for which there is no room, or no place, are closed in here.
pub(crate) fn receive_now(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Received> {
    let mut space = [MaybeUninit::uninit(); RECEIVED_BYTES];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received =
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a packet is too long"));
    }
    Ok(Received { bytes: received.bytes, descriptors })
}

/// Sends what can be sent now, with descriptors, and tells how much that was.
pub(crate) fn send_now(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); SENT_BYTES];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors for one packet"));
    }
    Ok(rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}

/// Whether the system had no descriptors, memory or room for descriptors on their way: what failed may be tried again,
/// and nobody is gone.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let shortages = [Errno::TOOMANYREFS, Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    shortages.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
