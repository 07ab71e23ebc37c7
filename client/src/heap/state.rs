//! What a session knows of its heap.

use std::sync::Weak;

use crate::Buffer;

/// What a session knows of its heap.
#[derive(Default)]
pub(crate) struct State {
    pub(super) wanted: Option<u64>,
    pub(super) made: Weak<Buffer>,
}

impl State {
    /// First address and length of the heap, once there is one.
    pub(crate) fn range(&self) -> Option<(u64, u64)> {
        let made = self.made.upgrade()?;
        Some((made.address(), made.bytes()))
    }
}
