//! Host memory of blocks that have much local or shared memory: so much for all launches together, whoever made them.
//!
//! A device gives so much memory to so many blocks, and others start when those have ended. So do blocks here that take more
//! than [`SMALL`]; what is smaller is bounded by how many blocks a thread keeps in work.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// What takes no more is not counted.
const SMALL: u64 = 1 << 20;
/// All others together.
const TOTAL: u64 = 2 << 30;

/// How much is left.
#[derive(Debug)]
pub(crate) struct Room {
    left: Mutex<u64>,
    freed: Condvar,
}

impl Room {
    pub(crate) fn new() -> Self {
        Self { left: Mutex::new(TOTAL), freed: Condvar::new() }
    }

    /// Room for so many bytes, if it is there within so long. What is larger than all there is gets all.
    pub(crate) fn take(self: &Arc<Self>, bytes: u64, patience: Duration) -> Option<Taken> {
        let bytes = if bytes <= SMALL { 0 } else { bytes.min(TOTAL) };
        if bytes > 0 {
            let mut left = self.left.lock();
            if *left < bytes {
                self.freed.wait_for(&mut left, patience);
            }
            *left = left.checked_sub(bytes)?;
        }
        Some(Taken { room: Arc::clone(self), bytes })
    }
}

/// Room that a block has, until it is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    room: Arc<Room>,
    bytes: u64,
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.bytes > 0 {
            *self.room.left.lock() += self.bytes;
            self.room.freed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_blocks_have_so_much_together_and_small_ones_are_not_counted() {
        let room = Arc::new(Room::new());
        let take = |bytes| room.take(bytes, Duration::ZERO);
        let half = take(TOTAL / 2).unwrap();
        let other = take(TOTAL / 2).unwrap();
        assert!(take(SMALL + 1).is_none());
        assert!(take(SMALL).is_some());
        drop(half);
        assert!(take(TOTAL).is_none());
        drop(other);
        // Alone even what is too large gets on.
        let all = take(u64::MAX).unwrap();
        assert!(take(SMALL + 1).is_none());
        drop(all);
        assert_eq!(*room.left.lock(), TOTAL);
    }
}
