//! An engine on io_uring, where the system allows it.

use std::io;

use io_uring::{IoUring, Probe, opcode};

use super::{
    DEPTH_MAX, Done, Engine, Request, Store,
    file::{Step, judge},
    ring::{Flight, Ring},
};

/// Why io_uring cannot be used here.
#[derive(Debug, thiserror::Error)]
#[error("io_uring is not available: {why}")]
pub struct Unavailable {
    /// In words, with what usually causes it.
    pub why: String,
}

impl From<io::Error> for Unavailable {
    fn from(error: io::Error) -> Self {
        let hint = match error.kind() {
            io::ErrorKind::Unsupported => " (this kernel has none)",
            io::ErrorKind::PermissionDenied => {
                " (kernel.io_uring_disabled, or a container's system call filter)"
            }
            io::ErrorKind::OutOfMemory => " (the limit of locked memory)",
            _ => "",
        };
        Self { why: format!("{error}{hint}") }
    }
}

/// Whether io_uring can be used: makes a ring, and asks for the requests that the engine makes.
///
/// # Errors
/// Why not.
pub fn probe() -> Result<(), Unavailable> {
    let ring = IoUring::new(2)?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed =
        [("read", opcode::Read::CODE), ("write", opcode::Write::CODE), ("fsync", opcode::Fsync::CODE)];
    match needed.iter().find(|(_, code)| !probe.is_supported(*code)) {
        Some((name, _)) => Err(Unavailable { why: format!("this kernel's has no {name}") }),
        None => Ok(()),
    }
}

/// An engine on a file that hands its requests to the system by io_uring.
pub struct Uring {
    ring: Ring,
    /// Requests that are to be continued or repeated, and found no room in the submission queue.
    again: Vec<Flight>,
    depth: usize,
}

impl Uring {
    /// An engine with `depth` requests (at most [`DEPTH_MAX`]).
    ///
    /// # Errors
    /// Where the system allows no ring.
    pub fn new(store: Store, depth: usize) -> Result<Self, Unavailable> {
        let depth = depth.clamp(1, DEPTH_MAX);
        Ok(Self { ring: Ring::new(store, depth)?, again: Vec::new(), depth })
    }

    fn push(&mut self, flight: Flight) {
        if let Err(flight) = self.ring.push(flight) {
            self.again.push(flight);
        }
    }

    /// What a completed request becomes: done, or on its way again.
    fn advance(&mut self, mut flight: Flight, answer: i32) -> Option<Done> {
        let answer = match usize::try_from(answer) {
            Ok(bytes) => Ok(bytes),
            Err(_) => Err(io::Error::from_raw_os_error(answer.saturating_neg())),
        };
        let result = match (flight.left(), answer) {
            (_, Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                self.push(flight);
                return None;
            }
            // A flush moves no bytes.
            (0, Err(error)) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            (0, Ok(_)) => Ok(()),
            (left, answer) => match judge(answer, left) {
                Step::Moved(moved) => {
                    flight.done += moved;
                    if flight.left() > 0 {
                        self.push(flight);
                        return None;
                    }
                    Ok(())
                }
                Step::Again => {
                    self.push(flight);
                    return None;
                }
                Step::Failed(error) => Err(error),
            },
        };
        Some(Done { tag: flight.tag, operation: flight.operation, result })
    }
}

impl Engine for Uring {
    fn name(&self) -> &'static str {
        "io_uring"
    }

    fn bytes(&self) -> u64 {
        self.ring.store().bytes()
    }

    fn submit(&mut self, request: Request) -> Result<(), Request> {
        let Request { tag, operation } = request;
        if self.in_flight() >= self.depth {
            return Err(Request { tag, operation });
        }
        self.ring
            .push(Flight { tag, operation, done: 0 })
            .map_err(|flight| Request { tag: flight.tag, operation: flight.operation })
    }

    fn poll(&mut self, done: &mut Vec<Done>) {
        for flight in std::mem::take(&mut self.again) {
            self.push(flight);
        }
        self.ring.submit();
        while let Some((flight, answer)) = self.ring.pop() {
            done.extend(self.advance(flight, answer));
        }
    }

    fn in_flight(&self) -> usize {
        self.ring.taken() + self.again.len()
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, process};

    use super::*;
    use crate::engine::{Buffer, Caching, Operation};

    fn flight(bytes: usize) -> Flight {
        Flight { tag: 1, operation: Operation::Read { offset: 0, buffer: Buffer::zeroed(bytes) }, done: 0 }
    }

    #[test]
    fn a_short_answer_is_continued_and_an_interrupted_one_repeated() {
        if let Err(why) = probe() {
            println!("skipped: {why}");
            return;
        }
        let path = std::env::temp_dir().join(format!("bulkhead-nvme-uring-{}", process::id()));
        fs::write(&path, [7; 8192]).unwrap();
        let mut engine = Uring::new(Store::open(&path, Caching::Cached).unwrap(), 4).unwrap();
        fs::remove_file(&path).unwrap();
        let again = [rustix::io::Errno::INTR, rustix::io::Errno::AGAIN].map(|error| -error.raw_os_error());
        // As if the system had answered so; what is left is then read in truth, and nothing else.
        for (answer, untouched) in [(4000, 4000), (1, 1), (again[0], 0), (again[1], 0)] {
            assert!(engine.advance(flight(8192), answer).is_none());
            assert_eq!(engine.in_flight(), 1);
            let mut done = Vec::new();
            while done.is_empty() {
                engine.poll(&mut done);
            }
            assert!(done[0].result.is_ok());
            let Operation::Read { buffer, .. } = &done[0].operation else { panic!("a read") };
            assert!(buffer.as_slice()[..untouched].iter().all(|byte| *byte == 0));
            assert!(buffer.as_slice()[untouched..].iter().all(|byte| *byte == 7));
        }
        for (answer, kind) in [
            (0, io::ErrorKind::UnexpectedEof),
            (-rustix::io::Errno::NOSPC.raw_os_error(), io::ErrorKind::StorageFull),
            (8193, io::ErrorKind::Other),
        ] {
            let done = engine.advance(flight(8192), answer).unwrap();
            assert_eq!(done.result.unwrap_err().kind(), kind);
        }
        assert!(engine.advance(flight(8192), 8192).unwrap().result.is_ok());
        assert_eq!(engine.in_flight(), 0);
    }
}
