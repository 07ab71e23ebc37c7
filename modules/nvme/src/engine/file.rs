//! Files as stores, and whole transfers out of short ones.

use std::{
    fs::{File, OpenOptions},
    io::{self, IoSlice},
    os::{
        fd::{AsRawFd, RawFd},
        unix::fs::{FileExt, OpenOptionsExt},
    },
    path::Path,
};

use rustix::{
    fs::OFlags,
    io::{ReadWriteFlags, pwritev2},
};

use super::{Done, Durability, Operation, Request};

/// Whether the system's page cache lies between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caching {
    /// Through the page cache.
    Cached,
    /// Around it (`O_DIRECT`). Offsets and lengths must be multiples of the disk's block, which can be 4,096.
    Direct,
}

/// A file of a fixed size.
#[derive(Debug)]
pub struct Store {
    file: File,
    bytes: u64,
}

impl Store {
    /// Opens the file at `path`, as long as it is.
    ///
    /// # Errors
    /// What the system says; some file systems have no `O_DIRECT`.
    pub fn open(path: &Path, caching: Caching) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        if caching == Caching::Direct {
            options.custom_flags(OFlags::DIRECT.bits().cast_signed());
        }
        let file = options.open(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { file, bytes })
    }

    /// Makes a file of `bytes` zeroes at `path`, where there must be none, and opens it.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(path: &Path, bytes: u64, caching: Caching) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        file.set_len(bytes)?;
        file.sync_all()?;
        Self::open(path, caching)
    }

    /// Size when it was opened. Who shortens the file makes its reads fail.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The same open file.
    ///
    /// # Errors
    /// Where the process may have no more descriptors.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { file: self.file.try_clone()?, bytes: self.bytes })
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// Reads and writes at an offset, as the system does them: short, interrupted, or failing.
pub(super) trait Positioned {
    /// Reads some bytes; 0 at the end of the file.
    fn read_some(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes some bytes.
    fn write_some(&self, bytes: &[u8], offset: u64, durability: Durability) -> io::Result<usize>;
    /// Makes durable what was written.
    fn sync(&self) -> io::Result<()>;
}

impl Positioned for Store {
    fn read_some(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(bytes, offset)
    }

    fn write_some(&self, bytes: &[u8], offset: u64, durability: Durability) -> io::Result<usize> {
        let flags = match durability {
            Durability::Flushed => ReadWriteFlags::empty(),
            Durability::Forced => ReadWriteFlags::DSYNC,
        };
        Ok(pwritev2(&self.file, &[IoSlice::new(bytes)], offset, flags)?)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// What a call that moved bytes means for a transfer.
pub(super) enum Step {
    /// So many bytes further; go on from there.
    Moved(usize),
    /// The same call again.
    Again,
    /// The transfer failed.
    Failed(io::Error),
}

/// Judges the result of a call that was to move `left` bytes, of which there is at least one.
pub(super) fn judge(result: io::Result<usize>, left: usize) -> Step {
    match result {
        Ok(0) => Step::Failed(io::ErrorKind::UnexpectedEof.into()),
        Ok(moved) if moved <= left => Step::Moved(moved),
        Ok(_) => Step::Failed(io::Error::other("more bytes were moved than asked for")),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Step::Again,
        Err(error) => Step::Failed(error),
    }
}

/// Calls `some` with how many bytes are done until all `bytes` are.
fn whole(bytes: usize, mut some: impl FnMut(usize) -> io::Result<usize>) -> io::Result<()> {
    let mut done = 0;
    while done < bytes {
        match judge(some(done), bytes - done) {
            Step::Moved(moved) => done += moved,
            Step::Again => {}
            Step::Failed(error) => return Err(error),
        }
    }
    Ok(())
}

/// Executes one request to its end.
pub(super) fn execute(store: &impl Positioned, request: Request) -> Done {
    let Request { tag, mut operation } = request;
    let result = match &mut operation {
        Operation::Read { offset, buffer } => {
            let bytes = buffer.as_mut_slice();
            whole(bytes.len(), |done| store.read_some(&mut bytes[done..], *offset + done as u64))
        }
        Operation::Write { offset, buffer, durability } => {
            let bytes = buffer.as_slice();
            whole(bytes.len(), |done| store.write_some(&bytes[done..], *offset + done as u64, *durability))
        }
        Operation::Flush => loop {
            match store.sync() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result,
            }
        },
    };
    Done { tag, operation, result }
}
