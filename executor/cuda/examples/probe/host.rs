//! Memory files and their mappings.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

use bulkhead_gpu::{HostAddress, HostRange};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A memory file of `bytes`, which can be sealed.
pub(crate) fn file(bytes: usize) -> rustix::io::Result<OwnedFd> {
    let file = memfd_create("bulkhead-probe", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, bytes as u64)?;
    Ok(file)
}

/// No new writable mapping from now on, and no other size.
pub(crate) fn seal(file: &OwnedFd) -> rustix::io::Result<()> {
    fcntl_add_seals(file, SealFlags::FUTURE_WRITE | SealFlags::SHRINK | SealFlags::GROW)
}

/// A shared mapping of a whole memory file.
pub(crate) struct Mapping {
    at: *mut std::ffi::c_void,
    bytes: usize,
}

impl Mapping {
    pub(crate) fn new(file: impl AsFd, bytes: usize, writable: bool) -> rustix::io::Result<Self> {
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { mmap(null_mut(), bytes, protection, MapFlags::SHARED, file, 0) }?;
        Ok(Self { at, bytes })
    }

    pub(crate) fn range(&self) -> HostRange {
        HostRange { at: HostAddress(self.at.expose_provenance()), bytes: self.bytes }
    }

    /// The 64-bit word at `index`.
    pub(crate) fn load(&self, index: usize) -> u64 {
        assert!(index < self.bytes / 8);
        // SAFETY: inside the mapping (asserted), which is page-aligned and lives as long as `self`.
        let word = unsafe { self.at.cast::<u64>().add(index) };
        // SAFETY: as above; the word is only ever read as an atomic, a device may write it.
        unsafe { AtomicU64::from_ptr(word) }.load(Ordering::Acquire)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's, and it is unregistered from the device before.
        if let Err(error) = unsafe { munmap(self.at, self.bytes) } {
            println!("munmap: {error}");
        }
    }
}
