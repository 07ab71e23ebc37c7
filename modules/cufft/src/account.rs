//! What workers take together. A worker asks its service before it takes memory for work, at its standard output, and has
//! no more than it was granted. What it has goes back when it ends.
//!
//! A message is a packet: whatever a library writes to standard output is none.

use std::{
    io::Error,
    os::fd::{AsFd, OwnedFd},
    sync::{Mutex, MutexGuard, PoisonError},
};

use bulkhead_cufft::{Refused, Status};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

/// Begins what a worker asks.
const ASKS: [u8; 8] = *b"bh-cufft";
const ASKED_BYTES: usize = 24;
/// Answered where it is granted; else it is how much there is left.
const GRANTED: u64 = u64::MAX;

/// Whose memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory {
    Device,
    Host,
}

const ALL: [Memory; 2] = [Memory::Device, Memory::Host];

impl Memory {
    fn option(self) -> &'static str {
        match self {
            Self::Device => "--work-memory-of-all",
            Self::Host => "--host-memory-of-all",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Device => "work memory on the device",
            Self::Host => "memory of the host",
        }
    }
}

/// A worker's end.
pub(crate) struct Account(OwnedFd);

impl Account {
    pub(crate) fn new(service: OwnedFd) -> Self {
        Self(service)
    }

    /// Has so much of a memory in all from here on.
    pub(crate) fn set(&self, memory: Memory, bytes: u64) -> Result<(), Refused> {
        let mut asked = [0; ASKED_BYTES];
        let at = ALL.iter().position(|one| *one == memory).unwrap_or(0) as u64;
        let words = ASKS.into_iter().chain(at.to_le_bytes()).chain(bytes.to_le_bytes());
        for (to, from) in asked.iter_mut().zip(words) {
            *to = from;
        }
        let gone = |error: rustix::io::Errno| {
            let error = Error::from(error);
            Refused::new(Status::InternalError, format!("the service grants no memory: {error}"))
        };
        send(&self.0, &asked, SendFlags::NOSIGNAL).map_err(gone)?;
        let mut answer = [0; 8];
        rustix::io::retry_on_intr(|| recv(&self.0, &mut answer, RecvFlags::empty())).map_err(gone)?;
        match u64::from_le_bytes(answer) {
            GRANTED => Ok(()),
            left => Err(Refused::new(
                Status::AllocFailed,
                format!(
                    "{bytes} bytes of {}: all workers have {left} more: end a program, or {}",
                    memory.name(),
                    memory.option()
                ),
            )),
        }
    }
}

/// What there is of both memories, and what was granted.
pub(crate) struct Total {
    most: [u64; 2],
    granted: Mutex<[u64; 2]>,
}

impl Total {
    pub(crate) fn new(device: u64, host: u64) -> Self {
        Self { most: [device, host], granted: Mutex::default() }
    }

    fn granted(&self) -> MutexGuard<'_, [u64; 2]> {
        // Sums are right after a panic as before it.
        self.granted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Both ends of a worker's account.
    pub(crate) fn open(&self) -> std::io::Result<(Charged<'_>, OwnedFd)> {
        let (own, workers) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Charged { total: self, has: [0; 2], worker: own }, workers))
    }
}

/// What one worker was granted, until this is dropped.
pub(crate) struct Charged<'a> {
    total: &'a Total,
    has: [u64; 2],
    worker: OwnedFd,
}

impl Charged<'_> {
    /// Answers the worker until it ends.
    pub(crate) fn serve(&mut self) {
        loop {
            let mut asked = [0; ASKED_BYTES + 1];
            let received =
                rustix::io::retry_on_intr(|| recv(self.worker.as_fd(), &mut asked, RecvFlags::empty()));
            let Ok((_, count)) = received else { return };
            if count == 0 {
                return;
            }
            let mut words = asked.chunks_exact(8).filter_map(|word| word.first_chunk::<8>());
            if count != ASKED_BYTES || words.next() != Some(&ASKS) {
                continue;
            }
            let mut word = || words.next().map_or(u64::MAX, |word| u64::from_le_bytes(*word));
            let (at, bytes) = (word(), word());
            let answer = usize::try_from(at).ok().map_or(0, |at| self.set(at, bytes));
            if send(&self.worker, &answer.to_le_bytes(), SendFlags::NOSIGNAL).is_err() {
                return;
            }
        }
    }

    fn set(&mut self, at: usize, bytes: u64) -> u64 {
        let mut granted = self.total.granted();
        let (Some(sum), Some(most), Some(has)) =
            (granted.get_mut(at), self.total.most.get(at), self.has.get_mut(at))
        else {
            return 0;
        };
        let others = sum.saturating_sub(*has);
        let left = most.saturating_sub(others);
        if bytes > left {
            return left.saturating_sub(*has);
        }
        (*sum, *has) = (others + bytes, bytes);
        GRANTED
    }
}

impl Drop for Charged<'_> {
    fn drop(&mut self) {
        for (sum, has) in self.total.granted().iter_mut().zip(self.has) {
            *sum = sum.saturating_sub(has);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_have_so_much_together_and_give_it_back_when_they_end() {
        let total = Total::new(100, 10);
        let (mut one, end) = total.open().expect("a pair");
        let (mut other, _end) = total.open().expect("a pair");
        assert_eq!(one.set(0, 60), GRANTED);
        assert_eq!(other.set(0, 60), 40);
        assert_eq!(other.set(0, 40), GRANTED);
        // What it has counts for what it wants; the other memory is another.
        assert_eq!((other.set(0, 41), other.set(0, 30), other.set(0, 40)), (0, GRANTED, GRANTED));
        assert_eq!((one.set(1, 11), one.set(1, 10), one.set(2, 0)), (10, GRANTED, 0));
        assert_eq!(one.set(0, u64::MAX), 0);
        drop(one);
        drop(end);
        assert_eq!(other.set(0, 100), GRANTED);
        drop(other);
        assert_eq!(*total.granted(), [0, 0]);
    }

    #[test]
    fn a_worker_is_answered_whatever_else_is_written() {
        let total = Total::new(100, 0);
        let (mut charged, end) = total.open().expect("a pair");
        std::thread::scope(|scope| {
            scope.spawn(|| charged.serve());
            for text in [&b"text of a library, as long as it likes to be"[..], &[b'x'; ASKED_BYTES]] {
                send(&end, text, SendFlags::NOSIGNAL).expect("it listens");
            }
            let account = Account::new(end);
            assert_eq!(account.set(Memory::Device, 100), Ok(()));
            let refused = account.set(Memory::Host, 1).expect_err("none is there");
            assert_eq!(refused.status, Status::AllocFailed);
            assert!(refused.message.contains("--host-memory-of-all"), "{refused}");
        });
    }
}
