//! Host memory at addresses that the driver has reserved.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::with_exposed_provenance_mut;

use bulkhead_gpu::HostRange;
use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};

/// Maps a file that is sealed against becoming shorter over reserved addresses, in which the driver has nothing mapped.
pub(crate) fn map(range: HostRange, file: BorrowedFd<'_>) -> io::Result<()> {
    let seals = rustix::fs::fcntl_get_seals(file)?;
    let found = u64::try_from(rustix::fs::fstat(file)?.st_size);
    if !seals.contains(SealFlags::SHRINK) || found.is_ok_and(|found| found < range.bytes as u64) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the file is too short, or could become so"));
    }
    let at = with_exposed_provenance_mut(range.at.0);
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
    // SAFETY: the range lies in a reservation of the driver's (checked by the caller), whose pages nobody can reach; so
    // what is replaced is nothing that a pointer of this process points to.
    unsafe { mmap(at, range.bytes, protection, flags, file, 0) }?;
    Ok(())
}

/// Puts pages there that nobody can reach, as the driver's are.
pub(crate) fn clear(range: HostRange) -> io::Result<()> {
    let at = with_exposed_provenance_mut(range.at.0);
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
    // SAFETY: the range was mapped by `map` and is not registered any more; nothing of this process points into it.
    unsafe { mmap_anonymous(at, range.bytes, ProtFlags::empty(), flags) }?;
    Ok(())
}
