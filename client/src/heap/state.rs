//! What a session knows of its heap.

use std::sync::Weak;

use crate::{AddressRange, Buffer};

/// What a session knows of its heap.
#[derive(Default)]
pub(crate) struct State {
    pub(super) wanted: Option<u64>,
    pub(super) made: Weak<Buffer>,
}

impl State {
    /// Where the heap is, once there is one.
    pub(crate) fn range(&self) -> Option<AddressRange> {
        let made = self.made.upgrade()?;
        Some(AddressRange { start: made.address(), bytes: made.bytes() })
    }
}
