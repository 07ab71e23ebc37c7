//! Where an image's variables lie.

use super::buffers::Buffer;
use super::values::{DeviceRange, HostSpan};

/// Images have none here.
pub(crate) struct Variables(Buffer);

impl Variables {
    pub(crate) fn address(&self) -> u64 {
        self.0.address()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    pub(crate) fn range(&self, offset: u64, bytes: u64) -> DeviceRange {
        self.0.range(offset, bytes)
    }

    pub(crate) fn span(&self, _offset: u64, _bytes: u64) -> Option<HostSpan> {
        None
    }
}
