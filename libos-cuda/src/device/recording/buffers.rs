//! Device memory, host memory and barriers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use bulkhead_client::Export;
use parking_lot::Mutex;

use super::super::{Error, Handle, SturdyToken};
use super::state::State;
use super::values::{Asked, DeviceRange, Fence, HostSpan, PAGE_BYTES};

/// A closed barrier; dropping it opens it.
pub(crate) struct Barrier {
    pub(super) closed: Arc<Mutex<BTreeSet<(u32, u64)>>>,
    pub(super) fence: Fence,
}

impl Barrier {
    pub(crate) fn open(self) {}
}

impl Drop for Barrier {
    fn drop(&mut self) {
        self.closed.lock().remove(&(self.fence.stream, self.fence.position));
    }
}

pub(crate) struct Buffer {
    pub(super) handle: Handle,
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// The fence that its free waits for, where that is not all work.
    pub(super) after: Option<Fence>,
    pub(super) exported: Mutex<Option<Export>>,
    pub(super) state: Arc<Mutex<State>>,
}

impl Buffer {
    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn range(&self, offset: u64, bytes: u64) -> DeviceRange {
        DeviceRange { handle: self.handle, offset, bytes }
    }

    pub(crate) fn exported(&self) -> Option<Export> {
        *self.exported.lock()
    }

    pub(crate) fn export(&self) -> Result<Export, Error> {
        let offset = self.address % PAGE_BYTES;
        let shares_pages = self.bytes < PAGE_BYTES;
        let slot = self.handle.slot.to_le_bytes();
        let token = SturdyToken(std::array::from_fn(|at| slot[at % 4]));
        Ok(*self.exported.lock().get_or_insert(Export { token, offset, shares_pages }))
    }

    pub(crate) fn free_after(mut self, fence: Fence) {
        self.after = Some(fence);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        state.buffers[self.handle.slot as usize] = None;
        let exported = self.exported.get_mut().is_some();
        state.asked.push(Asked::Free { after: self.after.map(|fence| fence.stream), exported });
    }
}

pub(crate) struct HostBuffer {
    pub(super) handle: Handle,
    pub(super) content: Arc<Vec<AtomicU8>>,
    pub(super) address: Option<u64>,
    pub(super) state: Arc<Mutex<State>>,
}

impl HostBuffer {
    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    pub(crate) fn span(&self, offset: u64, bytes: u64) -> HostSpan {
        HostSpan { handle: self.handle, offset, bytes }
    }

    /// As where memory of the program's lies at the device's addresses: another than the first byte's.
    pub(crate) fn address(&self) -> Option<u64> {
        self.address
    }

    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.content[0].as_ptr()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.content.len()
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        self.state.lock().hosts[self.handle.slot as usize] = None;
    }
}
