//! Physical memory: a file without a name, so that several processes can hold it.
//!
//! The host gives a page when it is first touched, and has all of them back when the last holder's mapping and
//! descriptor are gone.
//!
//! # Invariant
//! A file that is mapped here is sealed against becoming shorter: no access behind its end can end the process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;

use super::Bytes;

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// What makes two descriptors the same memory: device and inode number of the file.
pub(crate) type Identity = (u64, u64);

/// One holder's hold on a piece of physical memory.
#[derive(Debug)]
pub(crate) struct Physical {
    pub(crate) bytes: Arc<Bytes>,
    pub(crate) identity: Identity,
    file: OwnedFd,
}

/// Why a descriptor is not imported.
#[derive(Debug)]
pub(crate) enum Foreign {
    /// It is not what an export makes.
    NotMemory,
    /// It has so many bytes, and not those that were said.
    Length(u64),
    /// The host does not map it.
    Host(Errno),
}

/// The file system of memory files without huge pages (`TMPFS_MAGIC`).
const TMPFS: rustix::fs::FsWord = 0x0102_1994;

impl Physical {
    /// New memory, all of it zero.
    pub(crate) fn create(len: usize) -> Result<Self, Errno> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("bulkhead-device-memory", flags)?;
        rustix::fs::ftruncate(&file, len as u64)?;
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        let bytes = Arc::new(Bytes::shared(file.as_fd(), len)?);
        let identity = identity(&file)?;
        Ok(Self { bytes, identity, file })
    }

    /// Another holder's memory.
    pub(crate) fn import(file: OwnedFd, len: usize) -> Result<Self, Foreign> {
        // Only files of this kind have seals; the length is final once they are there. Huge pages may be missing when they are
        // touched first, which ends whoever does that.
        if rustix::fs::fstatfs(&file).map_err(Foreign::Host)?.f_type != TMPFS {
            return Err(Foreign::NotMemory);
        }
        let seals = rustix::fs::fcntl_get_seals(&file).map_err(|_| Foreign::NotMemory)?;
        if !seals.contains(SEALS) {
            return Err(Foreign::NotMemory);
        }
        let found = rustix::fs::fstat(&file).map_err(Foreign::Host)?;
        let found = u64::try_from(found.st_size).map_err(|_| Foreign::NotMemory)?;
        if found != len as u64 {
            return Err(Foreign::Length(found));
        }
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::CLOEXEC).map_err(Foreign::Host)?;
        let bytes = Arc::new(Bytes::shared(file.as_fd(), len).map_err(Foreign::Host)?);
        let identity = identity(&file).map_err(Foreign::Host)?;
        Ok(Self { bytes, identity, file })
    }

    /// A descriptor for another holder.
    pub(crate) fn export(&self) -> Result<OwnedFd, Errno> {
        rustix::io::fcntl_dupfd_cloexec(&self.file, 3)
    }
}

/// Host memory, of `len` bytes at least.
pub(crate) fn host(file: BorrowedFd<'_>, len: usize) -> Result<Bytes, Foreign> {
    let seals = rustix::fs::fcntl_get_seals(file).map_err(|_| Foreign::NotMemory)?;
    if !seals.contains(SealFlags::SHRINK) {
        return Err(Foreign::NotMemory);
    }
    let found = u64::try_from(rustix::fs::fstat(file).map_err(Foreign::Host)?.st_size);
    match found {
        Ok(found) if found < len as u64 => Err(Foreign::Length(found)),
        Ok(_) => Bytes::shared(file, len).map_err(Foreign::Host),
        Err(_) => Err(Foreign::NotMemory),
    }
}

fn identity(file: &OwnedFd) -> Result<Identity, Errno> {
    rustix::fs::fstat(file).map(|found| (found.st_dev, found.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_huge_pages_is_no_memory() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        // Not every system makes one.
        let Ok(file) = rustix::fs::memfd_create("huge", flags) else { return };
        let len = 2 << 20;
        rustix::fs::ftruncate(&file, len as u64).unwrap();
        rustix::fs::fcntl_add_seals(&file, SEALS).unwrap();
        assert!(matches!(Physical::import(file, len), Err(Foreign::NotMemory)));
        let own = Physical::create(len).unwrap();
        assert!(Physical::import(own.export().unwrap(), len).is_ok());
    }
}
