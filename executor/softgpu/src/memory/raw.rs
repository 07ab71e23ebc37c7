//! Bytes that several threads, and other processes, read and write at the same time.
//!
//! Every access goes through an atomic of the access's size with relaxed ordering, so no pattern of
//! concurrent kernels, copies and host threads is a data race. (Accesses of different sizes to the same
//! bytes at once are outside Rust's model; every processor Rust runs on gives them some interleaving.)
//!
//! # Invariant
//! Every access is checked against the range: an access out of range or misaligned panics, it never
//! reaches memory. Callers check first; the panic is the second line.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A range of shared bytes, page-aligned.
#[derive(Debug)]
pub(crate) struct Bytes {
    at: usize,
    len: usize,
    owned: bool,
}

/// The atomic integers.
trait Cell {}
impl Cell for AtomicU8 {}
impl Cell for AtomicU16 {}
impl Cell for AtomicU32 {}
impl Cell for AtomicU64 {}

impl Bytes {
    /// The first `len` bytes of a file that is at least as long, and stays so.
    pub(crate) fn shared(file: BorrowedFd<'_>, len: usize) -> Result<Self, Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the system's choice overlaps nothing.
        let pointer = unsafe { mmap(std::ptr::null_mut(), len, protection, flags, file, 0) }?;
        Ok(Self { at: pointer.expose_provenance(), len, owned: true })
    }

    /// Memory of the executor's own, by address. Whoever made the [`bulkhead_gpu::HostRange`] keeps it
    /// mapped while the device may use it: that is the trait's contract.
    pub(crate) fn borrowed(range: bulkhead_gpu::HostRange) -> Self {
        Self { at: range.at.0, len: range.bytes, owned: false }
    }

    /// Where the host has them.
    pub(crate) fn range(&self) -> bulkhead_gpu::HostRange {
        bulkhead_gpu::HostRange { at: bulkhead_gpu::HostAddress(self.at), bytes: self.len }
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn cell<T: Cell>(&self, offset: usize) -> &T {
        let size = size_of::<T>();
        assert!(offset <= self.len.wrapping_sub(size) && self.len >= size, "access out of range");
        let at = self.at.wrapping_add(offset);
        assert!(at.is_multiple_of(size), "misaligned access");
        let pointer = std::ptr::with_exposed_provenance::<T>(at);
        // SAFETY: the range is mapped while `self` lives (`shared` maps it, `borrowed` is promised it);
        // offset and alignment were just checked; T is an atomic integer, valid for any bytes.
        unsafe { &*pointer }
    }

    /// Loads 1, 2, 4 or 8 bytes.
    #[inline(always)]
    pub(crate) fn load<const N: usize>(&self, offset: usize) -> u64 {
        match N {
            1 => u64::from(self.cell::<AtomicU8>(offset).load(Ordering::Relaxed)),
            2 => u64::from(self.cell::<AtomicU16>(offset).load(Ordering::Relaxed)),
            4 => u64::from(self.cell::<AtomicU32>(offset).load(Ordering::Relaxed)),
            _ => self.cell::<AtomicU64>(offset).load(Ordering::Relaxed),
        }
    }

    /// Stores the low 1, 2, 4 or 8 bytes of `value`.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the low bytes are what is stored")]
    pub(crate) fn store<const N: usize>(&self, offset: usize, value: u64) {
        match N {
            1 => self.cell::<AtomicU8>(offset).store(value as u8, Ordering::Relaxed),
            2 => self.cell::<AtomicU16>(offset).store(value as u16, Ordering::Relaxed),
            4 => self.cell::<AtomicU32>(offset).store(value as u32, Ordering::Relaxed),
            _ => self.cell::<AtomicU64>(offset).store(value, Ordering::Relaxed),
        }
    }

    /// Stores 8 bytes; whoever reads them with acquire ordering sees everything done before.
    pub(crate) fn publish(&self, offset: usize, value: u64) {
        self.cell::<AtomicU64>(offset).store(value, Ordering::Release);
    }

    /// Replaces 2, 4 or 8 bytes by a function of them, atomically; answers what was there.
    #[inline(always)]
    pub(crate) fn update<const N: usize>(&self, offset: usize, change: impl Fn(u64) -> u64) -> u64 {
        match N {
            2 => update_16(self.cell(offset), change),
            4 => update_32(self.cell(offset), change),
            _ => update_64(self.cell(offset), change),
        }
    }

    /// The host address of an offset modulo 8, which decides how wide a copy can go.
    fn phase(&self, offset: usize) -> usize {
        self.at.wrapping_add(offset) & 7
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        if self.owned {
            let pointer = std::ptr::with_exposed_provenance_mut(self.at);
            // SAFETY: the mapping was made by `shared` with this length, and nothing refers to it any
            // more: every reference borrows `self`.
            let unmapped = unsafe { munmap(pointer, self.len) };
            if let Err(error) = unmapped {
                tracing::error!(%error, "device memory was not given back");
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low bytes are what is stored")]
#[inline(always)]
fn update_16(cell: &AtomicU16, change: impl Fn(u64) -> u64) -> u64 {
    let mut old = cell.load(Ordering::Relaxed);
    loop {
        let new = change(u64::from(old)) as u16;
        match cell.compare_exchange_weak(old, new, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(old) => return u64::from(old),
            Err(seen) => old = seen,
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low bytes are what is stored")]
#[inline(always)]
fn update_32(cell: &AtomicU32, change: impl Fn(u64) -> u64) -> u64 {
    let mut old = cell.load(Ordering::Relaxed);
    loop {
        let new = change(u64::from(old)) as u32;
        match cell.compare_exchange_weak(old, new, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(old) => return u64::from(old),
            Err(seen) => old = seen,
        }
    }
}

#[inline(always)]
fn update_64(cell: &AtomicU64, change: impl Fn(u64) -> u64) -> u64 {
    let mut old = cell.load(Ordering::Relaxed);
    loop {
        let new = change(old);
        match cell.compare_exchange_weak(old, new, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(old) => return old,
            Err(seen) => old = seen,
        }
    }
}

/// Replaces 2, 4 or 8 bytes at a host address by a function of them, atomically; answers what was there.
///
/// # Safety
/// The bytes are mapped, and aligned to their number; whoever else uses them does so by atomics or from
/// outside of Rust.
pub(crate) unsafe fn update_at(host: usize, size: u8, change: impl Fn(u64) -> u64) -> u64 {
    match size {
        2 => {
            // SAFETY: as the caller says.
            update_16(unsafe { &*std::ptr::with_exposed_provenance(host) }, change)
        }
        4 => {
            // SAFETY: as the caller says.
            update_32(unsafe { &*std::ptr::with_exposed_provenance(host) }, change)
        }
        _ => {
            // SAFETY: as the caller says.
            update_64(unsafe { &*std::ptr::with_exposed_provenance(host) }, change)
        }
    }
}

/// Copies bytes from one range to another, in the widest steps that their alignment allows.
pub(crate) fn copy(from: &Bytes, from_offset: usize, to: &Bytes, to_offset: usize, len: usize) {
    let apart = from.phase(from_offset) ^ to.phase(to_offset);
    let step = if apart == 0 { 8 } else { 1 << apart.trailing_zeros() };
    let mut done = 0;
    while done < len && from.phase(from_offset + done) & (step - 1) != 0 {
        to.store::<1>(to_offset + done, from.load::<1>(from_offset + done));
        done += 1;
    }
    done += match step {
        8 => copy_words::<8>(from, from_offset + done, to, to_offset + done, len - done),
        4 => copy_words::<4>(from, from_offset + done, to, to_offset + done, len - done),
        2 => copy_words::<2>(from, from_offset + done, to, to_offset + done, len - done),
        _ => 0,
    };
    copy_words::<1>(from, from_offset + done, to, to_offset + done, len - done);
}

/// Copies whole words; answers how many bytes that were.
fn copy_words<const N: usize>(
    from: &Bytes,
    from_offset: usize,
    to: &Bytes,
    to_offset: usize,
    len: usize,
) -> usize {
    let whole = len - len % N;
    for done in (0..whole).step_by(N) {
        to.store::<N>(to_offset + done, from.load::<N>(from_offset + done));
    }
    whole
}

/// Fills bytes with a pattern of 8 bytes that starts at `offset`; `offset` and `len` are multiples of the
/// length after which the pattern repeats.
pub(crate) fn fill(to: &Bytes, offset: usize, len: usize, pattern: u64) {
    let mut done = 0;
    while done < len && to.phase(offset + done) != 0 {
        to.store::<1>(offset + done, pattern >> (8 * (done & 7)));
        done += 1;
    }
    let turned = pattern.rotate_right(8 * u32::try_from(done & 7).unwrap_or(0));
    while done + 8 <= len {
        to.store::<8>(offset + done, turned);
        done += 8;
    }
    while done < len {
        to.store::<1>(offset + done, pattern >> (8 * (done & 7)));
        done += 1;
    }
}
