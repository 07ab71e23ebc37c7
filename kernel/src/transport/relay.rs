//! Moves what two connected sockets say to one another, and drops what clients pass along.
//!
//! A descriptor that is dropped is closed, and closing one takes as long as whoever made it likes: a TCP socket waits
//! for its peer where its maker told it to linger. Here that holds up this connection's own thread and nothing else.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec},
    io::Errno,
    net::{RecvFlags, Shutdown},
};

use crate::transport::packets::{receive_now, send_now};

/// What is on its way in one direction at a time: more than the longest packet of the descriptor socket.
const BUFFER_BYTES: usize = 64 << 10;
/// How long a client may take to read what was said before the kernel hung up.
const FAREWELL: Duration = Duration::from_millis(500);

/// What was received on one side and not yet sent on.
struct Held {
    buffer: Vec<u8>,
    /// The part of the buffer that is to be sent.
    from: usize,
    to: usize,
    descriptors: Vec<OwnedFd>,
    /// Nothing more comes.
    ended: bool,
}

impl Held {
    fn new() -> Self {
        Self { buffer: vec![0; BUFFER_BYTES], from: 0, to: 0, descriptors: Vec::new(), ended: false }
    }

    fn is_empty(&self) -> bool {
        self.from == self.to
    }

    fn wants_more(&self) -> bool {
        self.is_empty() && !self.ended
    }

    fn holds(&mut self, bytes: usize, descriptors: Vec<OwnedFd>) {
        (self.from, self.to) = (0, bytes);
        self.descriptors = descriptors;
        self.ended = bytes == 0;
    }

    fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let bytes = self.buffer.get(self.from..self.to).unwrap_or_default();
        let descriptors: Vec<_> = self.descriptors.iter().map(AsFd::as_fd).collect();
        let Some(sent) = later(send_now(socket, bytes, &descriptors))? else { return Ok(()) };
        drop(descriptors);
        self.from += sent;
        self.descriptors.clear();
        Ok(())
    }
}

/// Relays until one side is gone or has broken. Both sockets must be non-blocking; of what the client passes along
/// nothing gets any further, while descriptors from the kernel do.
///
/// # Errors
/// Where a socket fails.
pub(crate) fn relay(client: BorrowedFd<'_>, kernel: BorrowedFd<'_>) -> io::Result<()> {
    let (mut up, mut down) = (Held::new(), Held::new());
    let mut told = false;
    let mut hung_up: Option<Instant> = None;
    loop {
        if up.ended && !told {
            told = true;
            rustix::net::shutdown(kernel, Shutdown::Write)?;
        }
        if down.ended {
            let since = *hung_up.get_or_insert_with(Instant::now);
            if down.is_empty() || since.elapsed() >= FAREWELL {
                return Ok(());
            }
        }
        let flags = |reads: bool, writes: bool| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, reads);
            flags.set(PollFlags::OUT, writes);
            flags
        };
        let ours = PollFd::from_borrowed_fd(client, flags(up.wants_more(), !down.is_empty()));
        let theirs = PollFd::from_borrowed_fd(kernel, flags(down.wants_more(), !up.is_empty()));
        let mut both = [ours, theirs];
        // A side that has hung up is always ready: nothing is asked of the kernel's any more.
        let asked = if down.ended { &mut both[..1] } else { &mut both[..] };
        let farewell = Timespec::try_from(FAREWELL).map_err(io::Error::other)?;
        match rustix::event::poll(asked, down.ended.then_some(&farewell)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [ours, theirs] = both.map(|side| side.revents());
        if up.ended && ours.intersects(PollFlags::HUP | PollFlags::ERR) {
            return Ok(());
        }
        if up.wants_more() && !ours.is_empty() {
            // Read plainly: what was passed along is closed here, before this returns.
            let read = rustix::net::recv(client, up.buffer.as_mut_slice(), RecvFlags::empty());
            if let Some((bytes, _)) = later(read.map_err(Into::into))? {
                up.holds(bytes, Vec::new());
            }
        }
        if !up.is_empty() && theirs.intersects(PollFlags::OUT | PollFlags::HUP | PollFlags::ERR) {
            up.send(kernel)?;
        }
        if down.wants_more()
            && !theirs.is_empty()
            && let Some(received) = later(receive_now(kernel, &mut down.buffer))?
        {
            down.holds(received.bytes, received.descriptors);
        }
        if !down.is_empty() && ours.intersects(PollFlags::OUT | PollFlags::HUP | PollFlags::ERR) {
            down.send(client)?;
        }
    }
}

/// `None` where it could not be done at once.
fn later<T>(done: io::Result<T>) -> io::Result<Option<T>> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
