//! Ranges of memory, as records of the ring name them.

use bulkhead_schema::Handle;

/// The offset of ranges that lie in no buffer: beyond any, and far from overflowing.
pub(crate) const NOWHERE: u64 = 1 << 63;

/// A range of device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceRange {
    /// The arena.
    pub handle: Handle,
    /// Offset in it, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// Addresses of the device that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AddressRange {
    /// The first.
    pub start: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// A range of a host buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostSpan {
    /// The buffer.
    pub handle: Handle,
    /// Offset in it, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}
