//! What an executor passes along: received and closed by a thread of its link.
//!
//! Closing a descriptor takes as long as whoever made it likes, and an executor may be in somebody else's hands. So the
//! kernel's thread does nothing that can be the last close of one: packets that come with descriptors are received by
//! the link's thread, which also closes what came, in order, and the link's socket with whatever is still in it. An
//! executor that passes something slow holds up its own link.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::mpsc,
    thread,
};

use rustix::fs::{AtFlags, FileType, StatxFlags};
use tokio::sync::oneshot;

use crate::transport::packets::receive_now;

/// A descriptor that an executor passed: its link's thread closes it.
#[derive(Debug)]
pub(crate) struct Passed {
    /// Present until it is closed.
    descriptor: Option<OwnedFd>,
    thread: mpsc::Sender<Job>,
}

impl Passed {
    /// The descriptor, to look at it and to hand it on.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.descriptor.as_ref().map(AsFd::as_fd)
    }

    /// Whether it may be memory of a device: a file of the system's memory, or of a driver's, and no pipe or socket.
    pub(crate) fn is_memory(&self) -> bool {
        let Some(descriptor) = self.descriptor() else { return false };
        // Nobody's file system is asked for it.
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = rustix::fs::statx(descriptor, c"", flags, StatxFlags::TYPE);
        found.is_ok_and(|found| {
            matches!(
                FileType::from_raw_mode(u32::from(found.stx_mode)),
                FileType::RegularFile | FileType::CharacterDevice
            )
        })
    }

    /// Takes over one that is known to close at once.
    pub(crate) fn into_known(mut self) -> Option<OwnedFd> {
        self.descriptor.take()
    }
}

impl Drop for Passed {
    fn drop(&mut self) {
        if let Some(descriptor) = self.descriptor.take() {
            // The thread waits for as long as somebody could send it something.
            self.thread.send(Job::Close(descriptor)).unwrap_or_default();
        }
    }
}

/// A packet and what was passed along with it.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) bytes: Vec<u8>,
    pub(super) passed: Vec<Passed>,
}

#[derive(Debug)]
enum Job {
    Receive { bytes_max: usize, answer: oneshot::Sender<io::Result<Packet>>, thread: mpsc::Sender<Job> },
    Close(OwnedFd),
}

/// The thread of a link.
pub(super) struct Receiver {
    thread: mpsc::Sender<Job>,
}

impl Receiver {
    /// Starts the thread. It has the socket for as long as this lives, or anything that was passed, and closes it last.
    pub(super) fn start(socket: OwnedFd) -> io::Result<Self> {
        let (thread, jobs) = mpsc::channel();
        thread::Builder::new().name("passed".into()).spawn(move || work(&socket, &jobs))?;
        Ok(Self { thread })
    }

    /// Receives the packet that waits in the socket, once everything before it that was to be closed is closed.
    pub(super) async fn receive(&self, bytes_max: usize) -> io::Result<Packet> {
        let (answer, received) = oneshot::channel();
        let lost = || io::Error::other("a link's thread has failed");
        let thread = self.thread.clone();
        self.thread.send(Job::Receive { bytes_max, answer, thread }).map_err(|_| lost())?;
        received.await.map_err(|_| lost())?
    }
}

fn work(socket: &OwnedFd, jobs: &mpsc::Receiver<Job>) {
    for job in jobs {
        match job {
            Job::Close(descriptor) => drop(descriptor),
            Job::Receive { bytes_max, answer, thread } => {
                let packet = receive(socket, bytes_max, &thread);
                // Nobody waits where the link has ended.
                drop(answer.send(packet));
            }
        }
    }
}

fn receive(socket: &OwnedFd, bytes_max: usize, thread: &mpsc::Sender<Job>) -> io::Result<Packet> {
    let mut bytes = vec![0; bytes_max];
    let received = receive_now(socket.as_fd(), &mut bytes)?;
    bytes.truncate(received.bytes);
    let passed = |descriptor| Passed { descriptor: Some(descriptor), thread: thread.clone() };
    Ok(Packet { bytes, passed: received.descriptors.into_iter().map(passed).collect() })
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_pipe_or_a_socket_is_no_memory() {
        let (thread, _jobs) = mpsc::channel();
        let is_memory =
            |descriptor: OwnedFd| Passed { descriptor: Some(descriptor), thread: thread.clone() }.is_memory();
        let (reader, writer) = io::pipe().unwrap();
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        for wrong in [reader.into(), writer.into(), one.into(), other.into()] {
            assert!(!is_memory(wrong));
        }
        let file = |path| std::fs::File::open(path).unwrap().into();
        assert!(!is_memory(file("/tmp")), "a directory");
        assert!(is_memory(file("/dev/null")), "a driver's file");
        assert!(is_memory(bulkhead_ring::memory::create().unwrap()));
    }
}
