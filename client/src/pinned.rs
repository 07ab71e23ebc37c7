//! Pinned host memory, mapped into this process.

use bulkhead_ring::memory::Shared;
use bulkhead_schema::Handle;

use crate::HostSpan;

/// Pinned memory without the capability to it.
pub(crate) struct Pinned {
    pub(crate) handle: Handle,
    pub(crate) memory: Shared,
}

impl Pinned {
    pub(crate) fn span(&self, offset: u64, bytes: u64) -> HostSpan {
        HostSpan { handle: self.handle, offset, bytes }
    }
}
