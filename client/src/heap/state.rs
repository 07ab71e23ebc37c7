//! What a session knows of its heap.

use std::sync::Weak;

use super::Made;
use crate::AddressRange;

/// What a session knows of its heap.
#[derive(Default)]
pub(crate) struct State {
    pub(super) wanted: Option<u64>,
    pub(super) made: Weak<Made>,
}

impl State {
    /// Where the heap is, once there is one.
    pub(crate) fn range(&self) -> Option<AddressRange> {
        Some(self.made.upgrade()?.range())
    }
}
