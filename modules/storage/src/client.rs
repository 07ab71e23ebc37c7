//! The caller's side: reads and writes of any length, in commands of 4 KiB of which as many as there are buffers are on their way.

use std::{path::Path, sync::atomic::Ordering, time::Duration};

use bulkhead_client::{Error, ErrorCode, HostBuffer};
use bulkhead_module::{OpenedHost, codes};

use crate::{
    rules::{BLOCK_BYTES, BLOCKS_MAX, FAILED, FLUSH, READ, Request, WRITE},
    wire::{self, BUFFER_BYTES, BUFFERS},
};

/// How long a command may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The extents that were asked for, in that order. They are given back when this is dropped.
pub struct Storage {
    opened: OpenedHost,
    /// Bytes of the memory that is lent.
    lent: usize,
    /// How many requests were written.
    tail: u32,
    mark: u32,
    /// Buffers that have no request, and of the others which mark it has.
    free: Vec<u32>,
    marks: Vec<u32>,
    /// An error after which it is not known what is on its way.
    broken: bool,
}

/// What is moved.
enum Payload<'a> {
    Read(&'a mut [u8]),
    Write(&'a [u8]),
    /// From or to lent memory: by which operation, from which of its bytes on, how many.
    Lent(u32, usize, usize),
}

fn refused(message: String) -> Error {
    Error::new(ErrorCode::InvalidArgument, message)
}

fn told(code: u32) -> Error {
    let name = codes::ALL.iter().find(|(_, known)| *known == code).map(|(name, _)| *name);
    let (kind, what) = match (code, name) {
        (codes::RIGHTS, _) => (ErrorCode::NotPermitted, "the extent may not be used so".to_owned()),
        (codes::RANGE, _) => (ErrorCode::InvalidArgument, "blocks outside of the extent".to_owned()),
        (codes::TARGET, _) => {
            (ErrorCode::InvalidArgument, "bytes outside of the memory that is lent".to_owned())
        }
        (codes::NOT_OPEN, _) => (ErrorCode::NotFound, "there is no such extent".to_owned()),
        (_, Some(name)) => (ErrorCode::InvalidArgument, format!("the storage answers {name}")),
        (_, None) => {
            let status = code & !FAILED;
            (ErrorCode::Internal, format!("the store did not do it: NVMe status {status:#x}"))
        }
    };
    Error::new(kind, what)
}

impl Storage {
    /// Opens extents at a module's [socket](bulkhead_module::door::socket_of): `read:NAME` or `write:NAME`, `@FIRST+BLOCKS` behind it
    /// for a part, with commas between.
    ///
    /// # Errors
    /// `unavailable` where no module serves there; what the module refuses.
    pub fn open(socket: &Path, extents: &str) -> Result<Self, Error> {
        Self::of(OpenedHost::open(socket, extents)?, 0)
    }

    /// The same, and lends the module memory, which it then reads into and writes from without a copy: kernels reach it, too, where it
    /// was [allocated](bulkhead_client::Session::allocate_lendable) so. When the memory is freed before this is dropped, this
    /// instance ends.
    ///
    /// # Errors
    /// As for [`Storage::open`]; `notSupported` where the memory was not allocated to be lent.
    pub fn open_lending(socket: &Path, extents: &str, memory: &HostBuffer) -> Result<Self, Error> {
        Self::of(OpenedHost::open_lending(socket, extents, memory.lend()?)?, memory.bytes())
    }

    fn of(opened: OpenedHost, lent: usize) -> Result<Self, Error> {
        if (opened.memory().bytes() as u64) < wire::SHARED_BYTES {
            return Err(refused("the module shares less memory than a ring takes".to_owned()));
        }
        let marks = vec![0; BUFFERS as usize];
        Ok(Self { opened, lent, tail: 0, mark: 0, free: (0..BUFFERS).rev().collect(), marks, broken: false })
    }

    /// Reads whole blocks of an extent, from one on.
    ///
    /// # Errors
    /// Where that is not allowed, lies outside, is no whole blocks, or fails; `unavailable` where the module has ended.
    pub fn read(&mut self, extent: u32, block: u64, into: &mut [u8]) -> Result<(), Error> {
        self.run(extent, block, Payload::Read(into))
    }

    /// Writes whole blocks. They are durable when a [`Storage::flush`] behind this has ended.
    ///
    /// # Errors
    /// As for [`Storage::read`]; some of the blocks may be written.
    pub fn write(&mut self, extent: u32, block: u64, from: &[u8]) -> Result<(), Error> {
        self.run(extent, block, Payload::Write(from))
    }

    /// Reads whole blocks into lent memory, from a multiple of 512 bytes on.
    ///
    /// # Errors
    /// As for [`Storage::read`].
    pub fn read_lent(&mut self, extent: u32, block: u64, offset: usize, bytes: usize) -> Result<(), Error> {
        self.run(extent, block, Payload::Lent(READ, offset, bytes))
    }

    /// Writes whole blocks from lent memory, from a multiple of 512 bytes on.
    ///
    /// # Errors
    /// As for [`Storage::write`].
    pub fn write_lent(&mut self, extent: u32, block: u64, offset: usize, bytes: usize) -> Result<(), Error> {
        self.run(extent, block, Payload::Lent(WRITE, offset, bytes))
    }

    /// Makes durable what was written to the extent's namespace, and has ended.
    ///
    /// # Errors
    /// As for [`Storage::read`].
    pub fn flush(&mut self, extent: u32) -> Result<(), Error> {
        self.check()?;
        let buffer = self.buffer()?;
        self.submit(&Request { buffer, operation: FLUSH, extent, ..Request::default() });
        self.opened.ring();
        match self.answer(buffer)? {
            codes::DONE => Ok(()),
            code => Err(told(code)),
        }
    }

    fn check(&self) -> Result<(), Error> {
        let message = "the module has not answered before";
        if self.broken {
            Err(Error::new(ErrorCode::Unavailable, message).remedy("open it again"))
        } else {
            Ok(())
        }
    }

    fn buffer(&mut self) -> Result<u32, Error> {
        self.free.pop().ok_or_else(|| Error::new(ErrorCode::Internal, "no buffer is free"))
    }

    fn submit(&mut self, request: &Request) {
        self.mark = self.mark.wrapping_add(1).max(1);
        if let Some(mark) = self.marks.get_mut(request.buffer as usize) {
            *mark = self.mark;
        }
        wire::put(self.opened.memory(), self.tail, &Request { mark: self.mark, ..*request });
        self.tail = self.tail.wrapping_add(1);
        if let Some(tail) = self.opened.memory().word(wire::TAIL) {
            tail.store(self.tail, Ordering::Release);
        }
    }

    /// Waits for a buffer's answer. The buffer is free again.
    fn answer(&mut self, buffer: u32) -> Result<u32, Error> {
        let (memory, mark) = (self.opened.memory(), self.marks.get(buffer as usize).copied().unwrap_or(0));
        let look = || {
            let word = memory.wide(wire::answer(buffer))?.load(Ordering::Acquire);
            let (code, of) = (word & 0xFFFF_FFFF, word >> 32);
            (of == u64::from(mark)).then(|| u32::try_from(code).unwrap_or(FAILED))
        };
        match self.opened.wait(PATIENCE, look) {
            Ok(code) => {
                self.free.push(buffer);
                Ok(code)
            }
            Err(error) => {
                self.broken = true;
                Err(error)
            }
        }
    }

    fn run(&mut self, extent: u32, block: u64, mut payload: Payload<'_>) -> Result<(), Error> {
        self.check()?;
        let bytes = match &payload {
            Payload::Read(into) => into.len(),
            Payload::Write(from) => from.len(),
            Payload::Lent(_, _, bytes) => *bytes,
        };
        if bytes == 0 || bytes % BLOCK_BYTES != 0 {
            return Err(refused(format!("{bytes} bytes are no whole blocks of {BLOCK_BYTES}")));
        }
        if let Payload::Lent(_, offset, bytes) = &payload {
            let lies = offset.checked_add(*bytes).is_some_and(|end| end <= self.lent);
            if !lies || offset % BLOCK_BYTES != 0 {
                let lent = self.lent;
                return Err(refused(format!(
                    "{bytes} bytes from {offset} on, of {lent} that are lent: whole blocks of {BLOCK_BYTES} belong there"
                )));
            }
        }
        // What is on its way, in order: its buffer, and which bytes it moves.
        let mut flying = std::collections::VecDeque::new();
        let (mut next, mut failed) = (0, None);
        while next < bytes || !flying.is_empty() {
            while next < bytes && failed.is_none() && !self.free.is_empty() {
                let length = (bytes - next).min(BUFFER_BYTES);
                let buffer = self.buffer()?;
                if let Payload::Write(from) = &payload {
                    let piece = from.get(next..next + length).unwrap_or_default();
                    self.opened.memory().write(wire::data(buffer), piece);
                }
                let (operation, target) = match &payload {
                    Payload::Read(_) => (READ, 0),
                    Payload::Write(_) => (WRITE, 0),
                    Payload::Lent(operation, offset, _) => (*operation, (offset + next) / BLOCK_BYTES + 1),
                };
                let target = u32::try_from(target).unwrap_or(u32::MAX);
                let first = block.saturating_add((next / BLOCK_BYTES) as u64);
                let count = u32::try_from(length / BLOCK_BYTES).unwrap_or(BLOCKS_MAX);
                self.submit(&Request { buffer, operation, extent, count, block: first, mark: 0, target });
                flying.push_back((buffer, next, length));
                next += length;
            }
            self.opened.ring();
            let Some((buffer, at, length)) = flying.pop_front() else { break };
            let code = self.answer(buffer)?;
            if code != codes::DONE {
                failed.get_or_insert(code);
            } else if let Payload::Read(into) = &mut payload {
                let piece = into.get_mut(at..at + length).unwrap_or_default();
                self.opened.memory().read(wire::data(buffer), piece);
            }
        }
        failed.map_or(Ok(()), |code| Err(told(code)))
    }
}
