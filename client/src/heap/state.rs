//! What a session knows of its heap.

use std::sync::Weak;

use parking_lot::Mutex;

use crate::{AddressRange, Buffer, faults::Watched};

/// What a session knows of its heap.
#[derive(Default)]
pub(crate) struct State {
    pub(super) wanted: Option<u64>,
    pub(super) made: Weak<Made>,
}

/// A heap that is there. Used under the lock of the session's [`State`].
pub(super) struct Made(pub(super) Mutex<Place>);

/// Where a heap is, and who was told.
pub(super) struct Place {
    pub(super) memory: Buffer,
    pub(super) chunks: u64,
    pub(super) images: Vec<Weak<dyn Watched>>,
}

impl Made {
    pub(super) fn range(&self) -> AddressRange {
        let place = self.0.lock();
        AddressRange { start: place.memory.address(), bytes: place.memory.bytes() }
    }
}

impl State {
    /// Where the heap is, once there is one.
    pub(crate) fn range(&self) -> Option<AddressRange> {
        Some(self.made.upgrade()?.range())
    }
}
