//! Device memory and pinned host memory.

use std::sync::Arc;

use bulkhead_schema::Handle;
use parking_lot::Mutex;

use crate::{
    DeviceRange, Fence, HostSpan, Session, SturdyToken, arena::BlockIndex, pinned::Pinned, range::NOWHERE,
};

/// A piece of device memory. Freed when dropped, once the work submitted before has passed.
pub struct Buffer {
    pub(crate) session: Session,
    pub(crate) held: Held,
    pub(crate) handle: Handle,
    pub(crate) offset: u64,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) after: After,
    pub(crate) exported: Mutex<Option<Exported>>,
}

/// What a buffer holds, and gives back.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Held {
    /// Part of an arena of the session's.
    Block(BlockIndex),
    /// An arena of its own: the number of its capability.
    Arena(usize),
}

/// What frees have to wait for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum After {
    /// Everything that was submitted.
    Everything,
    /// One stream's work.
    Fence(Fence),
}

/// What another session needs to [import](Session::import) a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Export {
    /// Good until the buffer is freed.
    pub token: SturdyToken,
    /// Where the buffer begins in what is imported, in bytes.
    pub offset: u64,
    /// Whether other buffers of this session lie in the same pages, for whoever imports them to see and to write.
    pub shares_pages: bool,
}

/// What an exported buffer holds.
pub(crate) struct Exported {
    /// The number of the capability that others derive theirs from.
    pub(crate) key: usize,
    pub(crate) export: Export,
}

impl Buffer {
    /// The name by which ring records know the arena that it lies in, of which it may be a part only.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Where it begins in what its handle names, in bytes.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Its device address, for launch parameters.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// All of it.
    #[must_use]
    pub fn all(&self) -> DeviceRange {
        self.range(0, self.bytes)
    }

    /// A part of it; one that does not lie in it becomes a range that the executor refuses.
    #[must_use]
    pub fn range(&self, offset: u64, bytes: u64) -> DeviceRange {
        let inside = offset <= self.bytes && bytes <= self.bytes - offset;
        let offset = if inside { self.offset + offset } else { NOWHERE };
        DeviceRange { handle: self.handle, offset, bytes }
    }

    /// Frees it once `fence` has passed, where that is the last work that uses it.
    pub fn free_after(mut self, fence: Fence) {
        self.after = After::Fence(fence);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        match (self.held, self.exported.get_mut()) {
            (Held::Block(block), None) => self.session.free(block, self.after),
            (Held::Block(block), Some(exported)) => self.session.free_exported(exported, block, self.after),
            // The kernel waits for all that was submitted.
            (Held::Arena(key), None) => self.session.release(key),
            (Held::Arena(key), Some(exported)) => {
                self.session.release(exported.key);
                self.session.release(key);
            }
        }
    }
}

/// Host memory that the device copies from and to without staging, and that kernels reach where it was
/// [allocated](Session::allocate_mapped) so. Freed when dropped, once the work submitted before has passed.
pub struct HostBuffer {
    pub(crate) session: Session,
    pub(crate) held: HeldHost,
    pub(crate) pinned: Arc<Pinned>,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
    pub(crate) address: Option<u64>,
}

/// What a host buffer holds, and gives back.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HeldHost {
    /// Part of memory of the session's that kernels reach.
    Block(BlockIndex),
    /// Memory of its own: the number of its capability.
    Whole(usize),
}

impl HostBuffer {
    /// The name by which ring records know the memory that it lies in, of which it may be a part only.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.pinned.handle
    }

    /// Its first byte. Valid as long as the buffer lives; the device writes it when told to.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        (self.pinned.memory.address() + self.offset) as *mut u8
    }

    /// Its device address, for launch parameters, where kernels reach it. In most processes it is the address of its
    /// [first byte](HostBuffer::as_ptr) too: in all whose own memory does not lie there.
    #[must_use]
    pub fn address(&self) -> Option<u64> {
        self.address
    }

    /// Its size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A part of it; one that does not lie in it becomes a range that the executor refuses.
    #[must_use]
    pub fn span(&self, offset: u64, bytes: u64) -> HostSpan {
        let size = self.bytes as u64;
        let inside = offset <= size && bytes <= size - offset;
        self.pinned.span(if inside { self.offset as u64 + offset } else { NOWHERE }, bytes)
    }

    /// The same for what works on device memory. The executor refuses it where kernels do not reach it.
    #[must_use]
    pub fn range(&self, offset: u64, bytes: u64) -> DeviceRange {
        let HostSpan { handle, offset, bytes } = self.span(offset, bytes);
        DeviceRange { handle, offset, bytes }
    }

    /// Copies bytes into it.
    ///
    /// # Panics
    /// Where the range does not lie in it.
    pub fn write(&self, offset: usize, from: &[u8]) {
        self.check(offset, from.len());
        self.pinned.memory.write(self.offset + offset, from);
    }

    /// Copies bytes out of it.
    ///
    /// # Panics
    /// Where the range does not lie in it.
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        self.check(offset, to.len());
        self.pinned.memory.read(self.offset + offset, to);
    }

    fn check(&self, offset: usize, bytes: usize) {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.bytes), "beyond the buffer");
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        match self.held {
            HeldHost::Whole(key) => self.session.release(key),
            HeldHost::Block(block) => self.session.free_host(block),
        }
    }
}
