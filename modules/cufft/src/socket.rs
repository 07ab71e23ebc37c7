//! Messages on a socket. Whoever waits for one looks again and again for a while: going to sleep and being woken takes
//! longer than a small transform.

use std::{
    io,
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{RecvFlags, SendFlags},
};

use crate::wire::{BYTES, Frame};

/// How long it is looked for a message before the thread sleeps.
const LOOKING: Duration = Duration::from_micros(50);

/// Sends a message.
///
/// # Errors
/// Where the other end is gone.
pub fn send(to: &UnixStream, frame: &Frame) -> io::Result<()> {
    let mut left = frame.as_slice();
    while !left.is_empty() {
        match rustix::net::send(to, left, SendFlags::NOSIGNAL) {
            Ok(sent) => left = left.get(sent..).unwrap_or_default(),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Whether the other end has closed the connection, which is looked at without waiting, also where it has left messages
/// that nobody has read.
#[must_use]
pub fn is_closed(connection: &UnixStream) -> bool {
    let mut looked = [PollFd::new(connection, PollFlags::RDHUP)];
    match poll(&mut looked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        // A broken one and one that was hung up are told unasked.
        Ok(count) => count > 0,
        Err(error) => error != rustix::io::Errno::AGAIN && error != rustix::io::Errno::INTR,
    }
}

/// Waits for a message; `None` where the other end has closed the connection in between.
///
/// # Errors
/// Where it is gone amid a message, or the socket's time is over.
pub fn receive(from: &UnixStream) -> io::Result<Option<Frame>> {
    let (mut frame, mut filled, begun) = ([0; BYTES], 0, Instant::now());
    while filled < BYTES {
        let flags = if begun.elapsed() < LOOKING { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
        let room = frame.get_mut(filled..).unwrap_or_default();
        match rustix::net::recv(from, room, flags) {
            Ok((_, 0)) if filled == 0 => return Ok(None),
            Ok((_, 0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((_, count)) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            // Whoever is to answer may be waiting for this core.
            Err(rustix::io::Errno::AGAIN) if flags == RecvFlags::DONTWAIT => std::thread::yield_now(),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Some(frame))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn who_has_hung_up_is_seen_behind_what_it_said() {
        let (own, mut other) = UnixStream::pair().expect("a pair");
        assert!(!is_closed(&own));
        other.write_all(&[1; BYTES]).expect("it listens");
        assert!(!is_closed(&own));
        drop(other);
        assert!(is_closed(&own));
        assert_eq!(receive(&own).expect("it is there"), Some([1; BYTES]));
        assert_eq!(receive(&own).expect("the end"), None);
    }
}
