//! The one thing that a client sends besides messages: a descriptor, for a token that it was given.

use std::{
    fs::File,
    io::{self, IoSlice, Read as _, Write as _},
    mem::MaybeUninit,
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{MemfdFlags, SealFlags},
    net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
        SocketType,
    },
};

/// What is offered: code that loads.
pub(super) const IMAGE: &[u8] = include_bytes!("../kernels.ptx");

/// How honest what is sent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// The image, sealed.
    Image,
    /// Bytes that are no image, sealed.
    Garbage,
    /// The image in a memfd that can still change.
    Unsealed,
    /// No memfd at all.
    Socket,
}

/// Hands a descriptor over for a token, and waits until the kernel has said whether it takes it.
pub(super) fn present(socket: &Path, token: [u64; 2], what: Sent) -> io::Result<()> {
    let kernel = socket.with_file_name("descriptors.sock");
    let end = seqpacket()?;
    rustix::net::connect(&end, &SocketAddrUnix::new(&kernel)?)?;
    let descriptor = descriptor(what)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let given = [descriptor.as_fd()];
    if !ancillary.push(SendAncillaryMessage::ScmRights(&given)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let token = [token[0].to_le_bytes(), token[1].to_le_bytes()].concat();
    rustix::net::sendmsg(&end, &[IoSlice::new(&token)], &mut ancillary, SendFlags::NOSIGNAL)?;
    // One byte, whatever it says: the next call sees what came of it.
    File::from(end).read(&mut [0]).map(drop)
}

fn seqpacket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

fn descriptor(what: Sent) -> io::Result<OwnedFd> {
    if what == Sent::Socket {
        return seqpacket();
    }
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(rustix::fs::memfd_create("fuzz", flags)?);
    match what {
        Sent::Garbage => file.write_all(b"no image at all")?,
        Sent::Image | Sent::Unsealed | Sent::Socket => file.write_all(IMAGE)?,
    }
    if what != Sent::Unsealed {
        rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW)?;
    }
    Ok(file.into())
}
