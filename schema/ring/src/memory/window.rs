//! Addresses of the device's in the client's own address space, so that host memory is at one address for both.

use std::{
    collections::BTreeMap,
    io,
    os::fd::BorrowedFd,
    ptr::{NonNull, with_exposed_provenance_mut},
    sync::{Arc, Mutex, PoisonError},
};

use rustix::mm::{MapFlags, ProtFlags};

use super::{Mapping, Shared};

/// Addresses that are multiples of this can be mapped.
const PAGE_BYTES: usize = 4096;

/// A range of addresses that nothing of the process lies at but what is mapped through it.
pub struct Window {
    start: usize,
    bytes: usize,
    /// What is mapped, by start.
    taken: Mutex<BTreeMap<usize, usize>>,
}

impl Window {
    /// Takes a range of addresses out of the process's hands; `None` where something lies in it, or the system does not
    /// give so many.
    #[must_use]
    pub fn reserve(start: u64, bytes: u64) -> Option<Arc<Self>> {
        let (start, bytes) = (usize::try_from(start).ok()?, usize::try_from(bytes).ok()?);
        let at = with_exposed_provenance_mut(start);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: the mapping replaces no other, and nothing can be read or written through it.
        let reserved = unsafe { rustix::mm::mmap_anonymous(at, bytes, ProtFlags::empty(), flags) }.ok()?;
        if reserved == at {
            return Some(Arc::new(Self { start, bytes, taken: Mutex::default() }));
        }
        // An older system takes the address for a hint.
        // SAFETY: made above and unused.
        let unmapped = unsafe { rustix::mm::munmap(reserved, bytes) };
        debug_assert!(unmapped.is_ok(), "it was mapped just now");
        None
    }

    /// Notes that a range is in use; `false` where it does not lie in the window, or something of it is.
    fn take(&self, at: usize, bytes: usize) -> bool {
        let inside = at >= self.start
            && at - self.start <= self.bytes
            && bytes <= self.bytes - (at - self.start)
            && at.is_multiple_of(PAGE_BYTES)
            && bytes.is_multiple_of(PAGE_BYTES);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if !inside || bytes == 0 {
            return false;
        }
        let before = taken.range(..at + bytes).next_back();
        let free = before.is_none_or(|(start, bytes)| start + bytes <= at);
        if free {
            taken.insert(at, bytes);
        }
        free
    }

    fn forget(&self, at: usize) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).remove(&at);
    }

    /// What was mapped through it is not needed any more.
    pub(super) fn take_back(&self, at: usize, bytes: usize) {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        let to = with_exposed_provenance_mut(at);
        // SAFETY: the range was mapped through this window (by `map_in`), by a value that is being dropped.
        let mapped = unsafe { rustix::mm::mmap_anonymous(to, bytes, ProtFlags::empty(), flags) };
        // Where that fails the old mapping is there, and the range stays taken.
        if mapped.is_ok() {
            self.forget(at);
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let at = with_exposed_provenance_mut(self.start);
        // SAFETY: made by `reserve`; whatever was mapped through it held the window, and is gone.
        let unmapped = unsafe { rustix::mm::munmap(at, self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

impl Shared {
    /// The same as [`Shared::map`] at an address of a window.
    ///
    /// # Errors
    /// As there, and where the range is not free in the window.
    pub fn map_in(
        window: &Arc<Window>,
        at: u64,
        descriptor: BorrowedFd<'_>,
        bytes: usize,
    ) -> io::Result<Self> {
        let at = usize::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
        let other = Mapping::new(descriptor, bytes, ProtFlags::READ | ProtFlags::WRITE)?;
        if !window.take(at, bytes) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let to: *mut u8 = with_exposed_provenance_mut(at);
        // SAFETY: the range lies in the window and is nobody's (`take`): pages that nobody can reach are replaced.
        match unsafe { other.move_to(to) } {
            Ok(moved) => {
                std::mem::forget(moved);
                let start = NonNull::new(to).ok_or(io::ErrorKind::InvalidInput)?;
                Ok(Self { mapping: Mapping { start, bytes, window: Some(Arc::clone(window)) } })
            }
            Err(error) => {
                window.forget(at);
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::memory::create_shared;

    const START: u64 = 0x2F00_0000_0000;
    const BYTES: u64 = 64 << 20;

    #[test]
    fn host_memory_is_mapped_where_it_is_asked_for_and_its_place_is_free_again() {
        let window = Window::reserve(START, BYTES).unwrap();
        assert!(Window::reserve(START, BYTES).is_none(), "it was reserved twice");
        let file = create_shared(8192).unwrap();
        for round in 0..3u8 {
            let memory = Shared::map_in(&window, START + 4096, file.as_fd(), 8192).unwrap();
            assert_eq!(memory.address() as u64, START + 4096);
            let mut seen = [9];
            memory.read(8191, &mut seen);
            assert_eq!(seen, [round], "it is another file");
            memory.write(8191, &[round + 1]);
            for (at, bytes) in [
                (START, 8192),
                (START + 8192, 4096),
                (START + BYTES - 4096, 8192),
                (START - 4096, 8192),
                (7, 1),
            ] {
                assert!(Shared::map_in(&window, at, file.as_fd(), bytes).is_err(), "{at:#x} {bytes}");
            }
        }
        drop(window);
        assert!(Window::reserve(START, BYTES).is_some(), "it is not given back");
    }
}
