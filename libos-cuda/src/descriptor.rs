//! The file descriptor that stands for memory or a pool: a sealed memfd that holds a token.
//!
//! Whoever has the descriptor has the memory, as on NVIDIA's driver, until its exporter lets go of it. It comes from another
//! process, which may have put anything into it: nothing is read before it is known that it cannot change, and that
//! reading it waits for nobody.

use std::os::fd::{AsFd, IntoRawFd, RawFd};

use rustix::fs::{MemfdFlags, SealFlags};

use crate::abi::ShareableHandle;
use crate::device::SturdyToken;

const BYTES: usize = 40;

/// What a descriptor stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Memory without addresses.
    Memory,
    /// A pool.
    Pool,
}

impl Kind {
    /// Its first bytes.
    fn magic(self) -> [u8; 8] {
        match self {
            Kind::Memory => *b"BHshared",
            Kind::Pool => *b"BH-pools",
        }
    }
}

/// Why a descriptor does not stand for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bad {
    NotOpen,
    Foreign,
}

impl std::fmt::Display for Bad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Bad::NotOpen => "the descriptor is not open",
            Bad::Foreign => {
                "the descriptor is not one that Bulkhead made for what is imported; both programs have to run on it"
            }
        })
    }
}

/// What a descriptor of ours is sealed against: everything.
fn seals() -> SealFlags {
    SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE
}

/// A descriptor for a token, which the program owns and closes.
pub(crate) fn write(kind: Kind, token: SturdyToken) -> rustix::io::Result<RawFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = rustix::fs::memfd_create("bulkhead-memory", flags)?;
    let content = [&kind.magic()[..], &token.0].concat();
    if rustix::io::write(&memory, &content)? != content.len() {
        return Err(rustix::io::Errno::NOSPC);
    }
    rustix::fs::fcntl_add_seals(&memory, seals())?;
    Ok(memory.into_raw_fd())
}

/// The token of a descriptor, which stays the program's.
pub(crate) fn read(kind: Kind, handle: &ShareableHandle) -> Result<SturdyToken, Bad> {
    let descriptor = handle.descriptor().ok_or(Bad::NotOpen)?;
    let sealed = match rustix::fs::fcntl_get_seals(descriptor) {
        Ok(found) => found.contains(seals()),
        Err(rustix::io::Errno::BADF) => return Err(Bad::NotOpen),
        Err(_) => false,
    };
    let size = rustix::fs::fstat(descriptor).map_err(|_| Bad::NotOpen)?.st_size;
    if !sealed || usize::try_from(size) != Ok(BYTES) {
        return Err(Bad::Foreign);
    }
    let mut content = [0; BYTES];
    let read = rustix::io::pread(descriptor.as_fd(), &mut content, 0);
    let (magic, token) = content.split_first_chunk::<8>().ok_or(Bad::Foreign)?;
    match (read, token.first_chunk::<32>()) {
        (Ok(BYTES), Some(token)) if *magic == kind.magic() => Ok(SturdyToken(*token)),
        _ => Err(Bad::Foreign),
    }
}
