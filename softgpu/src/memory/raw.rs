//! Bytes that several threads, and other processes, read and write at the same time.
//!
//! Every access goes through an atomic of the access's size with relaxed ordering, so no pattern of
//! concurrent kernels, copies and host threads is a data race. (Accesses of different sizes to the same
//! bytes at once are outside Rust's model; every processor Rust runs on gives them some interleaving.)
//! Sixteen bytes are one access too ([`wide`]), as they are on a GPU: programs pass a value and the word that says
//! whether it is there in one vector.
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

/// Bytes that are read or written at once, at most.
const WIDEST: usize = 16;

/// Sixteen bytes at once.
///
/// Intel and AMD promise that aligned loads and stores of 16 bytes by SSE are atomic on every processor with AVX; Rust
/// has no atomic of that size, and a vector that the compiler moves may be split.
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod wide {
    use std::arch::asm;
    use std::arch::x86_64::__m128i;

    /// # Safety
    /// The address is a multiple of 16, and 16 bytes are mapped there.
    #[inline(always)]
    pub(super) unsafe fn load(at: usize) -> u128 {
        let value: __m128i;
        // SAFETY: reads the 16 bytes that the caller says are there.
        unsafe {
            asm!("movdqa {value}, xmmword ptr [{at}]", value = out(xmm_reg) value, at = in(reg) at,
                options(nostack, preserves_flags, readonly));
        }
        // SAFETY: any bits are a `u128`.
        unsafe { std::mem::transmute(value) }
    }

    /// # Safety
    /// As for [`load`].
    #[inline(always)]
    pub(super) unsafe fn store(at: usize, value: u128) {
        // SAFETY: any bits are a vector.
        let value: __m128i = unsafe { std::mem::transmute(value) };
        // SAFETY: writes the 16 bytes that the caller says are there.
        unsafe {
            asm!("movdqa xmmword ptr [{at}], {value}", value = in(xmm_reg) value, at = in(reg) at,
                options(nostack, preserves_flags));
        }
    }
}

/// Two words, where the processor is another: they may be seen apart.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod wide {
    use std::sync::atomic::{AtomicU64, Ordering};

    fn words(at: usize) -> [*const AtomicU64; 2] {
        [at, at + 8].map(std::ptr::with_exposed_provenance)
    }

    /// # Safety
    /// The address is a multiple of 16, and 16 bytes are mapped there.
    pub(super) unsafe fn load(at: usize) -> u128 {
        // SAFETY: as the caller says.
        let [low, high] = words(at).map(|word| u128::from(unsafe { &*word }.load(Ordering::Relaxed)));
        high << 64 | low
    }

    /// # Safety
    /// As for [`load`].
    #[expect(clippy::cast_possible_truncation, reason = "each word is a half")]
    pub(super) unsafe fn store(at: usize, value: u128) {
        for (word, half) in words(at).into_iter().zip([value as u64, (value >> 64) as u64]) {
            // SAFETY: as the caller says.
            unsafe { &*word }.store(half, Ordering::Relaxed);
        }
    }
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

    /// The address of so many bytes in the range, a multiple of their number.
    #[inline(always)]
    fn place(&self, offset: usize, size: usize) -> usize {
        assert!(offset <= self.len.wrapping_sub(size) && self.len >= size, "access out of range");
        let at = self.at.wrapping_add(offset);
        assert!(at.is_multiple_of(size), "misaligned access");
        at
    }

    #[inline(always)]
    fn cell<T: Cell>(&self, offset: usize) -> &T {
        let pointer = std::ptr::with_exposed_provenance::<T>(self.place(offset, size_of::<T>()));
        // SAFETY: the range is mapped while `self` lives (`shared` maps it, `borrowed` is promised it);
        // offset and alignment were just checked; T is an atomic integer, valid for any bytes.
        unsafe { &*pointer }
    }

    /// Loads 1, 2, 4, 8 or 16 bytes at once.
    #[inline(always)]
    pub(crate) fn load_whole(&self, offset: usize, size: usize) -> u128 {
        match size {
            1 => self.load::<1>(offset).into(),
            2 => self.load::<2>(offset).into(),
            4 => self.load::<4>(offset).into(),
            8 => self.load::<8>(offset).into(),
            _ => {
                // SAFETY: `place` answers an aligned address of 16 bytes that are mapped while `self` lives.
                unsafe { wide::load(self.place(offset, 16)) }
            }
        }
    }

    /// Stores the low 1, 2, 4, 8 or 16 bytes of `value` at once.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the low bytes are what is stored")]
    pub(crate) fn store_whole(&self, offset: usize, size: usize, value: u128) {
        match size {
            1 => self.store::<1>(offset, value as u64),
            2 => self.store::<2>(offset, value as u64),
            4 => self.store::<4>(offset, value as u64),
            8 => self.store::<8>(offset, value as u64),
            _ => {
                // SAFETY: as in `load_whole`.
                unsafe { wide::store(self.place(offset, 16), value) }
            }
        }
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

    /// The host address of an offset modulo 16, which decides how wide a copy can go.
    fn phase(&self, offset: usize) -> usize {
        self.at.wrapping_add(offset) & (WIDEST - 1)
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

/// How much is moved at once from a place on, where both places are so far from a multiple of 16 and so much is left; and
/// until where that goes on so.
fn stride(phases: [usize; 2], left: usize) -> (usize, usize) {
    let widest = |phase: usize| if phase == 0 { WIDEST } else { 1 << phase.trailing_zeros() };
    let [first, second] = phases;
    let fits = widest(first).min(widest(second));
    // As wide as the two ever get: so it goes on.
    let most = widest(first ^ second);
    let step = fits.min(1 << left.ilog2());
    (step, if step == most { left - left % step } else { step })
}

/// Copies bytes from one range to another, in the widest steps that their alignment allows: no aligned word is torn that
/// lies in both places alike.
pub(crate) fn copy(from: &Bytes, from_offset: usize, to: &Bytes, to_offset: usize, len: usize) {
    let mut done = 0;
    while done < len {
        let phases = [from.phase(from_offset + done), to.phase(to_offset + done)];
        let (step, run) = stride(phases, len - done);
        for at in (done..done + run).step_by(step) {
            to.store_whole(to_offset + at, step, from.load_whole(from_offset + at, step));
        }
        done += run;
    }
}

/// Fills bytes with a pattern of 8 bytes that starts at `offset`; `offset` and `len` are multiples of the
/// length after which the pattern repeats.
pub(crate) fn fill(to: &Bytes, offset: usize, len: usize, pattern: u64) {
    let mut done = 0;
    while done < len {
        let (step, run) = stride([to.phase(offset + done); 2], len - done);
        let turned = pattern.rotate_right(8 * u32::try_from(done & 7).unwrap_or(0));
        let twice = u128::from(turned) << 64 | u128::from(turned);
        for at in (done..done + run).step_by(step) {
            to.store_whole(offset + at, step, twice);
        }
        done += run;
    }
}
