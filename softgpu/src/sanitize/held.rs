//! How much memory the records of global memory take: of all launches of a process together.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that they may take. Who finds no room keeps nothing.
const BYTES_MAX: usize = 512 << 20;

static BYTES: AtomicUsize = AtomicUsize::new(0);

/// Tests that hold much, or count what is held, take turns.
#[cfg(test)]
pub(super) static TURN: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

/// So many bytes, for as long as this is there.
#[derive(Debug)]
pub(super) struct Held(usize);

impl Held {
    /// Bytes that are taken in any case: who takes them looks whether there is [`room`](Self::is_full) at times.
    pub(super) fn new(bytes: usize) -> Self {
        BYTES.fetch_add(bytes, Ordering::Relaxed);
        Self(bytes)
    }

    /// Bytes, if there is room for them.
    pub(super) fn some(bytes: usize) -> Option<Self> {
        let held = Self::new(bytes);
        (!Self::is_full()).then_some(held)
    }

    /// Whether there is no room.
    pub(super) fn is_full() -> bool {
        Self::bytes() > BYTES_MAX
    }

    /// All bytes that are held.
    pub(super) fn bytes() -> usize {
        BYTES.load(Ordering::Relaxed)
    }
}

impl Clone for Held {
    fn clone(&self) -> Self {
        Self::new(self.0)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        BYTES.fetch_sub(self.0, Ordering::Relaxed);
    }
}
