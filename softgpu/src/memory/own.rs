//! What threads of a launch have to themselves: zeroes at first, at no cost for what is never touched.
//!
//! A block may have half a GiB of it, and end before it touches any. An allocator hands on what somebody else had and zeroes
//! it first; the system gives fresh pages as they are touched.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// What is smaller the allocator zeroes in less time than a mapping takes.
const MAPPED_MIN: usize = 128 << 10;

/// What may be any bits, and is zero where all bits are.
pub(crate) trait Plain: Copy {
    const ZERO: Self;
}

impl Plain for u8 {
    const ZERO: Self = 0;
}

impl<const N: usize> Plain for [u64; N] {
    const ZERO: Self = [0; N];
}

/// Values of one owner, all zero at first: nobody had the memory before without its having been zeroed since.
#[derive(Debug)]
pub(crate) struct Own<T: Plain> {
    at: NonNull<T>,
    len: usize,
    is_mapped: bool,
}

// SAFETY: it owns what it points to, as a box does.
unsafe impl<T: Plain + Send> Send for Own<T> {}
// SAFETY: the same; a shared reference only reads.
unsafe impl<T: Plain + Sync> Sync for Own<T> {}

impl<T: Plain> Own<T> {
    pub(crate) fn new(len: usize) -> Self {
        let bytes = len.saturating_mul(size_of::<T>());
        let mapped = if bytes < MAPPED_MIN || cfg!(miri) { None } else { map(bytes) };
        if let Some(at) = mapped {
            return Self { at: at.cast(), len, is_mapped: true };
        }
        let boxed = Box::leak(vec![T::ZERO; len].into_boxed_slice());
        Self { at: NonNull::from(boxed).cast(), len, is_mapped: false }
    }
}

fn map(bytes: usize) -> Option<NonNull<u8>> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address of the system's choice overlaps nothing.
    let mapped =
        unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) };
    NonNull::new(mapped.ok()?.cast())
}

impl<T: Plain> Deref for Own<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `new` made so many values there, which are `self`'s: pages of the system's are zeroes, which a plain type
        // may be, and aligned for all of them.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }
}

impl<T: Plain> DerefMut for Own<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; nobody else has a reference meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }
}

impl<T: Plain> Drop for Own<T> {
    fn drop(&mut self) {
        if self.is_mapped {
            // SAFETY: `map` made the mapping with this length, and every reference borrows `self`.
            let unmapped = unsafe { munmap(self.at.as_ptr().cast(), self.len * size_of::<T>()) };
            if let Err(error) = unmapped {
                tracing::error!(%error, "memory of threads was not given back");
            }
            return;
        }
        let slice = std::ptr::slice_from_raw_parts_mut(self.at.as_ptr(), self.len);
        // SAFETY: `new` took it from a box.
        drop(unsafe { Box::from_raw(slice) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_it_is_zero_at_first_however_large_and_whoever_had_it_before() {
        for len in [0, 1, 31, MAPPED_MIN - 1, MAPPED_MIN, 16 << 20] {
            for _ in 0..3 {
                let mut bytes = Own::<u8>::new(len);
                assert_eq!(bytes.len(), len);
                assert!(bytes.iter().all(|byte| *byte == 0), "{len}");
                bytes.fill(7);
            }
        }
        let mut words = Own::<[u64; 32]>::new(4096);
        assert!(words.iter().flatten().all(|word| *word == 0));
        words[4095][31] = 1;
        assert_eq!(words[4095][31], 1);
    }
}
