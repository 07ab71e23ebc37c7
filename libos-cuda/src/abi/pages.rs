//! Pages of the program's own: what lies there, and exchanging them for others with the same content.

use std::ffi::c_void;
use std::io;
use std::ptr::{null_mut, with_exposed_provenance_mut};

use rustix::mm::{
    Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap_anonymous, mremap, mremap_fixed, munmap,
};

use super::Host;
use crate::device::HostBuffer;

/// The processor's.
pub(crate) const PAGE_BYTES: usize = 4096;
/// So much is copied before it is exchanged: what another thread stores meanwhile is lost, so this is short.
const STEP_BYTES: usize = 16 * PAGE_BYTES;

/// Whole pages of the program's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pages {
    /// First address.
    pub(crate) start: usize,
    /// Length.
    pub(crate) bytes: usize,
}

impl Pages {
    /// The pages in which `bytes` of the program's memory lie; `None` where there are no such addresses.
    pub(crate) fn around(host: Host, bytes: usize) -> Option<Pages> {
        let address = usize::try_from(host.address()).ok()?;
        let start = address / PAGE_BYTES * PAGE_BYTES;
        let end = address.checked_add(bytes)?.checked_next_multiple_of(PAGE_BYTES)?;
        Some(Pages { start, bytes: end - start })
    }

    /// Whether the calling thread's stack lies in them, there where it is now.
    pub(crate) fn hold_this_stack(self) -> bool {
        let here = 0_u8;
        (self.start..self.start + self.bytes).contains(&(&raw const here).addr())
    }

    /// `bytes` of them from `offset` on.
    pub(crate) fn part(self, offset: usize, bytes: usize) -> Pages {
        Pages { start: self.start + offset, bytes }
    }
}

/// Pages that nobody knows of yet, to take the place of others. Unmapped when dropped.
pub(crate) struct Spare {
    at: *mut c_void,
    bytes: usize,
}

impl Spare {
    /// The memory of a buffer from `offset` on, at a second address. A process that is forked off has it too, unlike the
    /// buffer at its own.
    pub(crate) fn of(buffer: &HostBuffer, offset: usize, bytes: usize) -> io::Result<Spare> {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= buffer.bytes());
        let from: *mut u8 = buffer.as_ptr().wrapping_add(offset);
        if !inside || bytes == 0 || !from.addr().is_multiple_of(PAGE_BYTES) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: of an old length of 0, what is mapped there is mapped a second time (only where it is shared, else this
        // is refused), and nothing that exists changes.
        let at = unsafe { mremap(from.cast(), 0, bytes, MremapFlags::MAYMOVE) }?;
        let spare = Spare { at, bytes };
        // SAFETY: the range is the mapping just made.
        unsafe { madvise(at, bytes, Advice::LinuxDoFork) }?;
        Ok(spare)
    }

    /// Memory like any that a program gets from the system.
    pub(crate) fn private(bytes: usize) -> io::Result<Spare> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: no address is asked for, so nothing that exists is replaced.
        let at = unsafe { mmap_anonymous(null_mut(), bytes, protection, MapFlags::PRIVATE) }?;
        Ok(Spare { at, bytes })
    }

    /// Puts the first of these pages in the place of as many of the program's, with the content of those. Each page is
    /// exchanged at once for all threads; what they store there while this runs may be lost.
    ///
    /// The pages are memory that the program handed over to be registered, all of it readable and writable.
    pub(crate) fn replace(&mut self, pages: Pages) -> io::Result<()> {
        let mut done = 0;
        while done < pages.bytes {
            let step = STEP_BYTES.min(pages.bytes - done);
            self.replace_at_once(pages.part(done, step))?;
            done += step;
        }
        Ok(())
    }

    fn replace_at_once(&mut self, pages: Pages) -> io::Result<()> {
        let Pages { start, bytes } = pages;
        if bytes > self.bytes {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let to: *mut c_void = with_exposed_provenance_mut(start);
        // SAFETY: the program's pages are readable (the caller's promise), the spare ones writable, and they do not
        // overlap, since nobody knows the spare ones. What other threads store at the same time is data.
        unsafe { std::ptr::copy_nonoverlapping(to.cast::<u8>(), self.at.cast::<u8>(), bytes) };
        // SAFETY: moves pages of ours, to which nobody refers, over pages of the program's with the same content, which
        // it may read and write as before.
        unsafe { mremap_fixed(self.at, bytes, bytes, MremapFlags::MAYMOVE, to) }?;
        self.at = self.at.wrapping_byte_add(bytes);
        self.bytes -= bytes;
        Ok(())
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        // SAFETY: the range is this value's, and nobody refers to it.
        let unmapped = unsafe { munmap(self.at, self.bytes) };
        debug_assert!(unmapped.is_ok(), "it was mapped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::Wide;

    #[test]
    fn pages_keep_their_content_when_others_take_their_place() {
        let mut own: Vec<u8> = (0..40 * PAGE_BYTES).map(|at| (at / 7).to_le_bytes()[0]).collect();
        let before = own.clone();
        let host = Wide(own.as_mut_ptr().expose_provenance() as u64).host().after(PAGE_BYTES);
        let pages = Pages::around(host, 38 * PAGE_BYTES - 100).unwrap();
        assert_eq!(pages.start % PAGE_BYTES, 0);
        let mut spare = Spare::private(pages.bytes + PAGE_BYTES).unwrap();
        spare.replace(pages).unwrap();
        assert_eq!(spare.bytes, PAGE_BYTES, "it is used up but for a page");
        assert!(spare.replace(pages).is_err(), "there is only one page");
        assert!(own == before, "the content changed");
        own[5 * PAGE_BYTES] ^= 1;
        assert_ne!(own[5 * PAGE_BYTES], before[5 * PAGE_BYTES]);
    }

    #[test]
    fn pages_are_those_around_a_range() {
        let around = |address, bytes| Pages::around(Wide(address).host(), bytes);
        assert_eq!(around(0x5001, 1), Some(Pages { start: 0x5000, bytes: PAGE_BYTES }));
        assert_eq!(around(0x5FFF, 2), Some(Pages { start: 0x5000, bytes: 2 * PAGE_BYTES }));
        assert_eq!(around(0x5000, PAGE_BYTES), Some(Pages { start: 0x5000, bytes: PAGE_BYTES }));
        assert_eq!(around(0x5000, usize::MAX), None);
        assert_eq!(around(u64::MAX, 1), None);
    }
}
