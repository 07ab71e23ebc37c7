//! Bounce buffers.

use std::fmt;

/// Where the bytes of a buffer begin: at a multiple of this, as direct I/O wants it.
pub const BUFFER_ALIGNMENT: usize = 4096;

/// Bytes that begin at a multiple of [`BUFFER_ALIGNMENT`].
pub struct Buffer {
    /// Longer than the buffer, so that an aligned part of the right length is in it.
    whole: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl Buffer {
    /// `bytes` zero bytes.
    #[must_use]
    pub fn zeroed(bytes: usize) -> Self {
        let whole = vec![0_u8; bytes + BUFFER_ALIGNMENT - 1];
        let start = whole.as_ptr().align_offset(BUFFER_ALIGNMENT);
        assert!(start < BUFFER_ALIGNMENT, "an address of bytes can be aligned");
        Self { whole, start, bytes }
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.whole[self.start..self.start + self.bytes]
    }

    /// The bytes, to write.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.whole[self.start..self.start + self.bytes]
    }

    /// How many.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.bytes)
    }
}
