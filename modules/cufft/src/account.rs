//! What workers take together. A worker asks its service before it takes memory for work, at its standard output, and has
//! no more than it was granted. What it has goes back when it ends.
//!
//! A message is a packet: whatever a library writes to standard output is none.

use std::{
    collections::HashMap,
    io::Error,
    os::fd::{AsFd, OwnedFd},
    sync::{Mutex, MutexGuard, PoisonError},
};

use bulkhead_cufft::{Refused, Status};
use rustix::{
    event::{PollFd, PollFlags, poll},
    net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair},
};

/// Begins what a worker asks.
const ASKS: [u8; 8] = *b"bh-cufft";
const ASKED_BYTES: usize = 24;
const ANSWER_BYTES: usize = 16;

/// What a worker is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Granted,
    /// All workers of its caller's process have so much more.
    OfProcess(u64),
    /// All workers have so much more.
    OfAll(u64),
}

impl Verdict {
    fn words(self) -> [u64; 2] {
        match self {
            Self::Granted => [0, 0],
            Self::OfProcess(left) => [1, left],
            Self::OfAll(left) => [2, left],
        }
    }

    fn of([which, left]: [u64; 2]) -> Self {
        match which {
            0 => Self::Granted,
            1 => Self::OfProcess(left),
            _ => Self::OfAll(left),
        }
    }
}

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
            Self::Device => "--work-memory",
            Self::Host => "--host-memory",
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
        let mut answer = [0; ANSWER_BYTES];
        rustix::io::retry_on_intr(|| recv(&self.0, &mut answer, RecvFlags::empty())).map_err(gone)?;
        let mut words = words_of(&answer);
        let mut word = || words.next().unwrap_or(0);
        let (name, option) = (memory.name(), memory.option());
        let told = match Verdict::of([word(), word()]) {
            Verdict::Granted => return Ok(()),
            Verdict::OfProcess(left) => format!(
                "all workers of this process have {left} more: destroy plans, or give the service \
                 {option}-of-process"
            ),
            Verdict::OfAll(left) => {
                format!("all workers have {left} more: end a program, or give the service {option}-of-all")
            }
        };
        Err(Refused::new(Status::AllocFailed, format!("{bytes} bytes of {name}: {told}")))
    }
}

fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).filter_map(|word| word.first_chunk()).map(|word| u64::from_le_bytes(*word))
}

/// Of both memories.
type Sums = [u64; 2];

#[derive(Default)]
struct Granted {
    all: Sums,
    /// By process, of those that have any.
    processes: HashMap<i32, Sums>,
}

/// What there is of both memories, for all and for one process, and what was granted.
pub(crate) struct Total {
    most: Sums,
    of_process: Sums,
    granted: Mutex<Granted>,
}

impl Total {
    /// The device's memory comes first.
    pub(crate) fn new(most: [u64; 2], of_process: [u64; 2]) -> Self {
        Self { most, of_process, granted: Mutex::default() }
    }

    fn granted(&self) -> MutexGuard<'_, Granted> {
        // Sums are right after a panic as before it.
        self.granted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Both ends of the account of a worker whose caller is a process.
    pub(crate) fn open(&self, process: i32) -> std::io::Result<(Charged<'_>, OwnedFd)> {
        let (own, workers) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Charged { total: self, process, has: [0; 2], worker: own }, workers))
    }
}

/// What one worker was granted, until this is dropped.
pub(crate) struct Charged<'a> {
    total: &'a Total,
    process: i32,
    has: Sums,
    worker: OwnedFd,
}

impl Charged<'_> {
    /// Answers the worker until it ends, or the process that it works for does.
    pub(crate) fn serve(&mut self, process: Option<&OwnedFd>) {
        while self.is_asked(process) {
            let mut asked = [0; ASKED_BYTES + 1];
            let received =
                rustix::io::retry_on_intr(|| recv(self.worker.as_fd(), &mut asked, RecvFlags::empty()));
            let Ok((_, count)) = received else { return };
            if count == 0 {
                return;
            }
            if count != ASKED_BYTES || !asked.starts_with(&ASKS) {
                continue;
            }
            let mut words = words_of(&asked).skip(1);
            let mut word = || words.next().unwrap_or(u64::MAX);
            let (at, bytes) = (word(), word());
            let verdict = usize::try_from(at).map_or(Verdict::OfAll(0), |at| self.set(at, bytes));
            let answer = verdict.words().map(u64::to_le_bytes);
            if send(&self.worker, answer.as_flattened(), SendFlags::NOSIGNAL).is_err() {
                return;
            }
        }
    }

    /// Waits until the worker says something or has ended; `false` where its caller's process has ended.
    fn is_asked(&self, process: Option<&OwnedFd>) -> bool {
        let descriptors = [Some(&self.worker), process];
        let mut watched: Vec<_> =
            descriptors.into_iter().flatten().map(|one| PollFd::new(one, PollFlags::IN)).collect();
        rustix::io::retry_on_intr(|| poll(&mut watched, None)).is_ok()
            && watched.get(1).is_none_or(|process| process.revents().is_empty())
    }

    fn set(&mut self, at: usize, bytes: u64) -> Verdict {
        let mut granted = self.total.granted();
        let Granted { all, processes } = &mut *granted;
        let own = processes.entry(self.process).or_default();
        let (Some(all), Some(own), Some(has)) = (all.get_mut(at), own.get_mut(at), self.has.get_mut(at))
        else {
            return Verdict::OfAll(0);
        };
        let most = |sums: Sums| sums.get(at).copied().unwrap_or(0);
        // What it has counts for what it wants.
        let left = |most: u64, sum: u64| most.saturating_sub(sum.saturating_sub(*has));
        let (of_all, of_process) =
            (left(most(self.total.most), *all), left(most(self.total.of_process), *own));
        if bytes > of_all.min(of_process) {
            let more = |left: u64| left.saturating_sub(*has);
            return if of_process < of_all {
                Verdict::OfProcess(more(of_process))
            } else {
                Verdict::OfAll(more(of_all))
            };
        }
        for sum in [all, own] {
            *sum = sum.saturating_sub(*has) + bytes;
        }
        *has = bytes;
        Verdict::Granted
    }
}

impl Drop for Charged<'_> {
    fn drop(&mut self) {
        let mut granted = self.total.granted();
        let Granted { all, processes } = &mut *granted;
        let own = processes.entry(self.process).or_default();
        for ((all, own), has) in all.iter_mut().zip(own.iter_mut()).zip(self.has) {
            (*all, *own) = (all.saturating_sub(has), own.saturating_sub(has));
        }
        if *own == [0; 2] {
            processes.remove(&self.process);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Verdict::{Granted, OfAll, OfProcess},
        *,
    };

    #[test]
    fn workers_have_so_much_together_and_give_it_back_when_they_end() {
        let total = Total::new([100, 10], [100, 10]);
        let (mut one, end) = total.open(1).expect("a pair");
        let (mut other, _end) = total.open(2).expect("a pair");
        assert_eq!(one.set(0, 60), Granted);
        assert_eq!(other.set(0, 60), OfAll(40));
        assert_eq!(other.set(0, 40), Granted);
        // What it has counts for what it wants; the other memory is another.
        assert_eq!((other.set(0, 41), other.set(0, 30), other.set(0, 40)), (OfAll(0), Granted, Granted));
        assert_eq!((one.set(1, 11), one.set(1, 10), one.set(2, 0)), (OfAll(10), Granted, OfAll(0)));
        assert_eq!(one.set(0, u64::MAX), OfAll(0));
        drop(one);
        drop(end);
        assert_eq!(other.set(0, 100), Granted);
        drop(other);
        assert_eq!(total.granted().all, [0, 0]);
        assert!(total.granted().processes.is_empty(), "nothing is kept of who has gone");
    }

    #[test]
    fn workers_of_a_process_leave_others_theirs() {
        let total = Total::new([100, 100], [25, 60]);
        let mut own: Vec<_> = (0..4).map(|_| total.open(1).expect("a pair").0).collect();
        let (mut other, _end) = total.open(2).expect("a pair");
        assert_eq!(own[0].set(0, 20), Granted);
        assert_eq!(
            (own[1].set(0, 6), own[1].set(0, 5), own[2].set(0, 1)),
            (OfProcess(5), Granted, OfProcess(0))
        );
        assert_eq!(
            (own[0].set(0, 21), own[0].set(0, 19), own[2].set(0, 1)),
            (OfProcess(0), Granted, Granted)
        );
        assert_eq!((other.set(0, 26), other.set(0, 25)), (OfProcess(25), Granted));
        // Whose limit is nearer is told.
        assert_eq!((own[3].set(1, 60), other.set(1, 41), other.set(1, 40)), (Granted, OfAll(40), Granted));
        // One that ends leaves what the others have.
        own.truncate(2);
        assert_eq!(
            (own[1].set(1, 60), own[1].set(0, 6), own[0].set(0, 20)),
            (Granted, Granted, OfProcess(0))
        );
        assert_eq!(total.granted().all, [50, 100]);
    }

    #[test]
    fn a_worker_is_answered_whatever_else_is_written() {
        let total = Total::new([100, 0], [100, 0]);
        let (mut charged, end) = total.open(1).expect("a pair");
        let (mut beside, _end) = total.open(2).expect("a pair");
        std::thread::scope(|scope| {
            scope.spawn(|| charged.serve(None));
            for text in [&b"text of a library, as long as it likes to be"[..], &[b'x'; ASKED_BYTES]] {
                send(&end, text, SendFlags::NOSIGNAL).expect("it listens");
            }
            let account = Account::new(end);
            assert_eq!(account.set(Memory::Device, 100), Ok(()));
            let refused = account.set(Memory::Host, 1).expect_err("none is there");
            assert_eq!(refused.status, Status::AllocFailed);
            assert!(refused.message.contains("--host-memory-of-all"), "{refused}");
            assert_eq!((account.set(Memory::Device, 60), beside.set(0, 30)), (Ok(()), Granted));
        });
    }

    #[test]
    fn whose_limit_it_was_is_told() {
        let total = Total::new([100, 100], [50, 100]);
        let (mut charged, end) = total.open(1).expect("a pair");
        std::thread::scope(|scope| {
            scope.spawn(|| charged.serve(None));
            let account = Account::new(end);
            let refused = account.set(Memory::Device, 51).expect_err("a process has less");
            assert_eq!(refused.status, Status::AllocFailed);
            for part in ["this process", "50 more", "--work-memory-of-process"] {
                assert!(refused.message.contains(part), "{refused}");
            }
        });
    }
}
