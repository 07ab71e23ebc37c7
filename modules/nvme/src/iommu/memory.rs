//! Host memory, as the IOMMU reaches it.

use std::sync::{PoisonError, RwLock};

/// A piece of host memory that others read and write at the same time.
///
/// Who implements it for shared memory uses atomic or volatile accesses; what is copied while another writes it may be
/// any mixture of old and new bytes. Offsets and lengths stay within [`bytes`](Self::bytes), which never changes: the
/// IOMMU checks both.
pub trait Memory: Send + Sync {
    /// Its size.
    fn bytes(&self) -> u64;

    /// Copies bytes from `offset` on, after whatever the caller read before.
    fn read(&self, offset: u64, into: &mut [u8]);

    /// Copies bytes to `offset` and on.
    fn write(&self, offset: u64, from: &[u8]);

    /// Stores a little-endian word at `offset`, a multiple of 4, with release ordering: who sees it (acquires it) sees
    /// all writes that were made before, of any memory.
    fn publish(&self, offset: u64, word: u32);

    /// Loads a little-endian word at `offset`, a multiple of 4, at once and with acquire ordering: what was written before
    /// it was stored with release ordering is seen by what is read behind this. Memory that others share has to have it.
    fn observe(&self, offset: u64) -> u32 {
        let mut word = [0; 4];
        self.read(offset, &mut word);
        u32::from_le_bytes(word)
    }
}

/// Memory of this process, for tests and for hosts that are threads of it.
pub struct RamMemory {
    bytes: RwLock<Vec<u8>>,
    length: u64,
}

impl RamMemory {
    /// `bytes` zero bytes.
    #[must_use]
    pub fn zeroed(bytes: usize) -> Self {
        Self { bytes: RwLock::new(vec![0; bytes]), length: bytes as u64 }
    }
}

/// The part of `bytes` at `offset`; the IOMMU asks for no other.
fn part(offset: u64, length: usize) -> std::ops::Range<usize> {
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    start..start.saturating_add(length)
}

impl Memory for RamMemory {
    fn bytes(&self) -> u64 {
        self.length
    }

    fn read(&self, offset: u64, into: &mut [u8]) {
        let bytes = self.bytes.read().unwrap_or_else(PoisonError::into_inner);
        into.copy_from_slice(&bytes[part(offset, into.len())]);
    }

    fn write(&self, offset: u64, from: &[u8]) {
        let mut bytes = self.bytes.write().unwrap_or_else(PoisonError::into_inner);
        bytes[part(offset, from.len())].copy_from_slice(from);
    }

    fn publish(&self, offset: u64, word: u32) {
        // The lock orders it.
        self.write(offset, &word.to_le_bytes());
    }
}
