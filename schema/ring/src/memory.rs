//! The memfds behind a ring and a completion page, mapped. The only unsafe code of the crate.

mod window;

pub use window::Window;

use std::{
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    ptr::NonNull,
    sync::Arc,
    time::Duration,
};

use rustix::{
    fs::{MemfdFlags, SealFlags},
    mm::{MapFlags, ProtFlags},
    thread::futex,
};

use crate::{
    layout::{
        ACTIVITY_BYTES, ARENA_WORDS, COMPLETION_BYTES, Cell, HEADER_BYTES, Header, RECORD_WORDS, RECORDS,
        RING_BYTES,
    },
    sync::{AtomicU32, AtomicU64},
};

/// Creates a ring's memfd: zeroed, and unable to shrink or grow.
///
/// # Errors
/// Where the system has no memory or no memfd for it.
pub fn create() -> io::Result<OwnedFd> {
    sealed("bulkhead-ring", RING_BYTES)
}

fn sealed(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    let descriptor = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&descriptor, bytes as u64)?;
    rustix::fs::fcntl_add_seals(&descriptor, SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(descriptor)
}

/// A shared mapping of a whole descriptor, unmapped on drop and not inherited over fork.
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    /// Whose addresses these are, where they were taken before: they go back there.
    window: Option<Arc<Window>>,
}

// SAFETY: the mapping is plain memory that is only reached through atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above; atomics may be used from several threads.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(descriptor: BorrowedFd<'_>, bytes: usize, protection: ProtFlags) -> io::Result<Self> {
        let seals = rustix::fs::fcntl_get_seals(descriptor)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the descriptor is not sealed against shrinking",
            ));
        }
        if rustix::fs::fstat(descriptor)?.st_size.cast_unsigned() < bytes as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the descriptor is too short"));
        }
        // SAFETY: no address is asked for, so nothing that exists is replaced; the descriptor is at least `bytes`
        // long and can never be shorter (checked above).
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, descriptor, 0)?
        };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Self { start, bytes, window: None };
        // SAFETY: the range is the mapping just made.
        unsafe { rustix::mm::madvise(start.as_ptr().cast(), bytes, rustix::mm::Advice::LinuxDontFork)? };
        Ok(mapping)
    }

    /// Maps another descriptor in this mapping's place, in one step.
    fn replace(&self, descriptor: BorrowedFd<'_>, protection: ProtFlags) -> io::Result<()> {
        let other = Self::new(descriptor, self.bytes, protection)?;
        // SAFETY: both ranges are mappings of this process, equally long and page-aligned; `other` is nobody else's and
        // is given up. What is reached through `self` are atomics, of any value, before and after.
        let moved = unsafe { other.move_to(self.start.as_ptr()) };
        // Its range is mapped here now, and belongs to `self`.
        moved.map(std::mem::forget)
    }

    /// Moves the mapping to another place, over what is there; to be forgotten by whoever has that place.
    ///
    /// # Safety
    /// As many bytes from `to` on are mapped by this process, and nothing else is harmed where they are replaced.
    unsafe fn move_to(self, to: *mut u8) -> io::Result<Self> {
        let flags = rustix::mm::MremapFlags::MAYMOVE;
        // SAFETY: the range is this mapping's, to which nobody refers; the other is the caller's promise.
        unsafe {
            rustix::mm::mremap_fixed(self.start.as_ptr().cast(), self.bytes, self.bytes, flags, to.cast())?;
        }
        Ok(self)
    }

    /// The words from `offset` bytes on.
    fn words(&self, offset: usize, count: usize) -> &[AtomicU64] {
        assert!(offset.is_multiple_of(8) && offset + count * 8 <= self.bytes);
        // SAFETY: in bounds (asserted), so the result is within the mapping.
        let start = unsafe { self.start.add(offset) };
        // SAFETY: aligned (mappings are page-aligned, `offset` a multiple of 8), in bounds, mapped as long as
        // `self` lives; every process reaches the memory through atomics, and any bit pattern is a valid atomic.
        unsafe { std::slice::from_raw_parts(start.as_ptr().cast(), count) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Some(window) = &self.window {
            return window.take_back(self.start.as_ptr() as usize, self.bytes);
        }
        // SAFETY: the range is the mapping this value made; references into it borrow from this value.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// A mapped ring.
pub struct Ring {
    mapping: Mapping,
}

impl Ring {
    /// Maps the ring behind a descriptor.
    ///
    /// # Errors
    /// Where the descriptor is too short, not sealed against shrinking, or cannot be mapped.
    pub fn map(descriptor: BorrowedFd<'_>) -> io::Result<Arc<Self>> {
        let mapping = Mapping::new(descriptor, RING_BYTES, ProtFlags::READ | ProtFlags::WRITE)?;
        Ok(Arc::new(Self { mapping }))
    }

    pub(crate) fn header(&self) -> &Header {
        // SAFETY: the mapping is page-aligned, RING_BYTES long (more than a header) and mapped as long as `self`
        // lives; a header consists of atomics, for which any bit pattern is valid.
        unsafe { self.mapping.start.cast::<Header>().as_ref() }
    }

    /// The record at a position.
    pub(crate) fn record(&self, position: u64) -> &Cell {
        #[expect(clippy::cast_possible_truncation, reason = "below RECORDS")]
        let index = (position % RECORDS as u64) as usize;
        let words = self.mapping.words(HEADER_BYTES + index * RECORD_WORDS * 8, RECORD_WORDS);
        // SAFETY: a cell is sixteen words, 128-byte aligned because the header is a page and cells are 128 bytes.
        unsafe { &*words.as_ptr().cast::<Cell>() }
    }

    pub(crate) fn arena(&self) -> &[AtomicU64] {
        self.mapping.words(HEADER_BYTES + RECORDS * RECORD_WORDS * 8, ARENA_WORDS)
    }

    fn doorbell(&self) -> &AtomicU32 {
        &self.header().doorbell
    }

    /// Sleeps while the doorbell still reads `seen`; false when the time is up.
    pub(crate) fn sleep(&self, seen: u32, timeout: Duration) -> bool {
        !matches!(
            futex::wait(self.doorbell(), futex::Flags::empty(), seen, Some(&timespec(timeout))),
            Err(rustix::io::Errno::TIMEDOUT)
        )
    }

    pub(crate) fn wake(&self) {
        // A wake-up that fails, as the other side may bring about, leaves the sleeper to its timeout.
        futex::wake(self.doorbell(), futex::Flags::empty(), 1).unwrap_or_default();
    }
}

/// A mapped completion page.
pub struct Completion {
    mapping: Mapping,
}

impl Completion {
    /// Creates a page, maps it for writing, and seals it so that nobody else ever can.
    ///
    /// # Errors
    /// Where the system has no memfd for it, or no seal against future writes (Linux before 5.1).
    pub fn create() -> io::Result<(Arc<Self>, OwnedFd)> {
        let descriptor = sealed("bulkhead-completion", COMPLETION_BYTES)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let mapping = Mapping::new(descriptor.as_fd(), COMPLETION_BYTES, protection)?;
        rustix::fs::fcntl_add_seals(&descriptor, SealFlags::FUTURE_WRITE | SealFlags::SEAL)?;
        Ok((Arc::new(Self { mapping }), descriptor))
    }

    /// Maps somebody else's page for reading.
    ///
    /// # Errors
    /// Where the descriptor is no page or cannot be mapped.
    pub fn map(descriptor: BorrowedFd<'_>) -> io::Result<Arc<Self>> {
        let mapping = Mapping::new(descriptor, COMPLETION_BYTES, ProtFlags::READ)?;
        Ok(Arc::new(Self { mapping }))
    }

    /// Puts another page in the place of this one, for reading: whoever polls sees the new one from here on.
    ///
    /// # Errors
    /// As for [`Completion::map`]; the old page stays then.
    pub fn replace(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.mapping.replace(descriptor, ProtFlags::READ)
    }

    /// Address and length, for registering it with a device.
    #[must_use]
    pub fn range(&self) -> (usize, usize) {
        (self.mapping.start.as_ptr() as usize, self.mapping.bytes)
    }

    pub(crate) fn word(&self, index: usize) -> &AtomicU64 {
        &self.mapping.words(index * 8, 1)[0]
    }
}

/// Of the host half that are woken at once.
const SLEEPERS_MAX: u32 = 8;

/// The mapped page that tells a module's host half how busy its gates are.
pub(crate) struct ActivityPage {
    mapping: Mapping,
}

impl ActivityPage {
    pub(crate) fn create() -> io::Result<OwnedFd> {
        sealed("bulkhead-activity", ACTIVITY_BYTES)
    }

    /// Maps a page for writing, and seals it so that nobody else ever can.
    pub(crate) fn map_and_seal(descriptor: BorrowedFd<'_>) -> io::Result<Self> {
        let mapping = Mapping::new(descriptor, ACTIVITY_BYTES, ProtFlags::READ | ProtFlags::WRITE)?;
        rustix::fs::fcntl_add_seals(descriptor, SealFlags::FUTURE_WRITE | SealFlags::SEAL)?;
        Ok(Self { mapping })
    }

    pub(crate) fn map(descriptor: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self { mapping: Mapping::new(descriptor, ACTIVITY_BYTES, ProtFlags::READ)? })
    }

    /// Maps a page for writing that another process is going to write and seal.
    pub(crate) fn map_unsealed(descriptor: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self { mapping: Mapping::new(descriptor, ACTIVITY_BYTES, ProtFlags::READ | ProtFlags::WRITE)? })
    }

    /// Not zero once whoever writes the page is lost.
    pub(crate) fn over(&self) -> &AtomicU64 {
        &self.mapping.words(16, 1)[0]
    }

    /// How many launches are in flight.
    pub(crate) fn in_flight(&self) -> &AtomicU64 {
        &self.mapping.words(0, 1)[0]
    }

    /// How often that became more than none.
    pub(crate) fn begun(&self) -> &AtomicU32 {
        let word: *const AtomicU64 = &raw const self.mapping.words(8, 1)[0];
        // SAFETY: half of a word of the mapping, so aligned and in bounds; it is reached as this half only, by every process.
        unsafe { &*word.cast() }
    }

    /// Sleeps while the second word still reads `seen`.
    pub(crate) fn sleep(&self, seen: u32, timeout: Duration) {
        let woken = futex::wait(self.begun(), futex::Flags::empty(), seen, Some(&timespec(timeout)));
        // Whoever sleeps looks again, whatever woke it.
        woken.unwrap_or_default();
    }

    pub(crate) fn wake(&self) {
        // A host half has one thread that sleeps here. How many more there are, and how, is its own affair: a wake-up that fails
        // leaves them to their timeouts.
        futex::wake(self.begun(), futex::Flags::empty(), SLEEPERS_MAX).unwrap_or_default();
    }
}

fn timespec(time: Duration) -> futex::Timespec {
    futex::Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}

/// Host memory shared between client and executor: raw bytes at a fixed place.
pub struct Shared {
    mapping: Mapping,
}

impl Shared {
    /// Maps `bytes` of a descriptor that is sealed against shrinking.
    ///
    /// # Errors
    /// Where the descriptor is too short, not sealed, or cannot be mapped.
    pub fn map(descriptor: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        Ok(Self { mapping: Mapping::new(descriptor, bytes, ProtFlags::READ | ProtFlags::WRITE)? })
    }

    /// Address of the first byte. The memory is mapped as long as this value lives.
    #[must_use]
    pub fn address(&self) -> usize {
        self.mapping.start.as_ptr() as usize
    }

    /// Length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.mapping.bytes
    }

    /// Copies `from` into the memory at `offset`.
    ///
    /// # Panics
    /// Where the range does not lie in the memory.
    pub fn write(&self, offset: usize, from: &[u8]) {
        let at = self.at(offset, from.len());
        // SAFETY: `at` is in bounds for the length (checked by `at`); a private slice does not overlap a mapping.
        // The device may touch the bytes at the same time; they are data, and no decision is taken on them.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), at, from.len()) }
    }

    /// Copies the memory at `offset` into `to`.
    ///
    /// # Panics
    /// Where the range does not lie in the memory.
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        let at = self.at(offset, to.len());
        // SAFETY: as in `write`.
        unsafe { std::ptr::copy_nonoverlapping(at, to.as_mut_ptr(), to.len()) }
    }

    /// The word at `offset`, which others store to at the same time; none where it is not aligned or does not lie in the memory.
    #[must_use]
    pub fn atomic_u32(&self, offset: usize) -> Option<&AtomicU32> {
        let at = self.aligned(offset, 4)?;
        // SAFETY: in bounds and aligned, mapped as long as this is borrowed, and all that this process does there is atomic or
        // a copy of data on which no decision rests.
        Some(unsafe { AtomicU32::from_ptr(at.cast()) })
    }

    /// The same of 8 bytes.
    #[must_use]
    pub fn atomic_u64(&self, offset: usize) -> Option<&AtomicU64> {
        let at = self.aligned(offset, 8)?;
        // SAFETY: as in `atomic_u32`.
        Some(unsafe { AtomicU64::from_ptr(at.cast()) })
    }

    /// The mapping begins at a page, so offsets are aligned as addresses are.
    fn aligned(&self, offset: usize, bytes: usize) -> Option<*mut u8> {
        let fits = offset.is_multiple_of(bytes)
            && offset.checked_add(bytes).is_some_and(|end| end <= self.mapping.bytes);
        fits.then(|| self.at(offset, bytes))
    }

    fn at(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.mapping.bytes));
        // SAFETY: in bounds (asserted).
        unsafe { self.mapping.start.as_ptr().add(offset) }
    }
}

/// Creates a memfd of `bytes` that can neither shrink nor grow, for memory shared with a device.
///
/// # Errors
/// Where the system has no memory or no memfd for it.
pub fn create_shared(bytes: u64) -> io::Result<OwnedFd> {
    let bytes = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
    sealed("bulkhead-host", bytes)
}

/// Writes bytes to a memfd as long as they are, and seals that against every change: how an image gets to the kernel.
///
/// # Errors
/// Where it is of another size, or the system has no memory for it.
pub fn fill_and_seal(descriptor: OwnedFd, bytes: &[u8]) -> io::Result<()> {
    let file = File::from(descriptor);
    if file.metadata()?.len() != bytes.len() as u64 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    std::os::unix::fs::FileExt::write_all_at(&file, bytes, 0)?;
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    Ok(rustix::fs::fcntl_add_seals(&file, seals)?)
}

/// Copies bytes into a fresh memfd sealed against every change: how texts travel.
///
/// # Errors
/// Where the system has no memory or no memfd for it.
pub fn create_sealed_copy(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let descriptor = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = File::from(descriptor);
    io::Write::write_all(&mut file, bytes)?;
    let descriptor = OwnedFd::from(file);
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&descriptor, seals)?;
    Ok(descriptor)
}
