//! What `gates.cu` keeps where: its constants and structures once more, which a test compares.

use bulkhead_storage::rules::EXTENTS;

use crate::window;

/// Instances at a time.
pub(crate) const INSTANCES: usize = 8;
/// Buffers of an instance, and the bytes of each.
const SLOTS: u64 = 512;
const BUFFER_BYTES: u64 = 4096;
/// Entries of either queue.
pub(crate) const ENTRIES: u32 = 1024;

/// Words of what a buffer is to, and of what is filled.
const WORDS: usize = 512 + 1024;

/// Of an instance in the device's memory.
pub(crate) const INSTANCE_BYTES: usize = 6576;
pub(crate) const BADGE: usize = 0;
pub(crate) const BUFFERS: usize = 8;
pub(crate) const EXTENT_TABLE: usize = 48;
pub(crate) const EXTENT_BYTES: usize = 24;

/// Of an instance in host memory.
pub(crate) const SUBMISSIONS_BYTES: u64 = ENTRIES as u64 * 64;
pub(crate) const COMPLETIONS_BYTES: u64 = ENTRIES as u64 * 16;
pub(crate) const BUFFERS_BYTES: u64 = SLOTS * BUFFER_BYTES;
const DOORBELLS_BYTES: u64 = 64;

const ALL: u64 = INSTANCES as u64;
const COMPLETIONS: u64 = window::DEVICE + ALL * SUBMISSIONS_BYTES;
const DATA: u64 = COMPLETIONS + ALL * COMPLETIONS_BYTES;
const DOORBELLS: u64 = DATA + ALL * BUFFERS_BYTES;

const _: () = assert!(DOORBELLS + ALL * DOORBELLS_BYTES == window::DEVICE + window::DEVICE_BYTES);
const _: () = assert!(window::INSTANCES_BYTES == ALL * INSTANCE_BYTES as u64);
const _: () = assert!(EXTENT_TABLE + EXTENTS * EXTENT_BYTES + WORDS * 4 == INSTANCE_BYTES);

/// Where an instance's parts lie in host memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts {
    pub(crate) submissions: u64,
    pub(crate) completions: u64,
    pub(crate) buffers: u64,
    /// The submission queue's tail; the completion queue's head is the word behind.
    pub(crate) doorbells: u64,
}

pub(crate) fn parts(slot: usize) -> Parts {
    let slot = slot as u64;
    Parts {
        submissions: window::DEVICE + slot * SUBMISSIONS_BYTES,
        completions: COMPLETIONS + slot * COMPLETIONS_BYTES,
        buffers: DATA + slot * BUFFERS_BYTES,
        doorbells: DOORBELLS + slot * DOORBELLS_BYTES,
    }
}

/// Where an instance lies in the device's memory.
pub(crate) fn instance(slot: usize) -> u64 {
    window::INSTANCES + (slot * INSTANCE_BYTES) as u64
}
