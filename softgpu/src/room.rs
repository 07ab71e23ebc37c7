//! Host memory of blocks that have much local or shared memory: so much for all launches together, whoever made them.
//!
//! A device gives so much memory to so many blocks, and others start when those have ended. So do blocks here that take more
//! than [`SMALL`]; what is smaller is bounded by how many blocks a thread keeps in work.
//!
//! Launches with such blocks stand in a queue, and nobody takes room before the first of it: one with larger blocks has its
//! turn when those that run have ended, however many with smaller ones come. The first stays so until all of its blocks have
//! begun, or as many as the threads keep in work: they may wait for each other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// What takes no more is not counted.
const SMALL: u64 = 1 << 20;
/// All others together.
const TOTAL: u64 = 2 << 30;

/// How much is left, and which launches wait for it, the first at the front.
#[derive(Debug)]
struct Left {
    bytes: u64,
    queue: VecDeque<u64>,
    launches: u64,
}

impl Left {
    fn could_take(&self, bytes: u64, launch: u64) -> bool {
        self.bytes >= bytes && self.queue.front().is_none_or(|first| *first == launch)
    }

    fn take(&mut self, bytes: u64, launch: u64) -> bool {
        let could = self.could_take(bytes, launch);
        if could {
            self.bytes -= bytes;
        }
        could
    }
}

/// Bytes of a block that are counted. What is larger than all there is gets all.
fn counted(bytes: u64) -> u64 {
    if bytes <= SMALL { 0 } else { bytes.min(TOTAL) }
}

/// All of it.
#[derive(Debug)]
pub(crate) struct Room {
    left: Mutex<Left>,
    /// Room was given back, or whoever was the first to wait waits no more.
    changed: Condvar,
}

impl Room {
    pub(crate) fn new() -> Self {
        let left = Left { bytes: TOTAL, queue: VecDeque::new(), launches: 0 };
        Self { left: Mutex::new(left), changed: Condvar::new() }
    }
}

/// What somebody does who finds no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    None,
    /// Waits for so long, and the launch stands in the queue from then on: somebody has to ask for it until all of its blocks have begun,
    /// or to [end the wait](Taker::stop_waiting).
    InTurn(Duration),
}

/// A launch that takes room.
#[derive(Debug)]
pub(crate) struct Taker {
    room: Arc<Room>,
    launch: u64,
}

impl Taker {
    pub(crate) fn new(room: &Arc<Room>) -> Self {
        let mut left = room.left.lock();
        left.launches += 1;
        Self { room: Arc::clone(room), launch: left.launches }
    }

    /// Stands in the queue, where its blocks have so many bytes, until [`Self::stop_waiting`]: from the first of them on, so that
    /// nobody has some of his blocks begin between them.
    pub(crate) fn wait_in_turn(&self, bytes: u64) {
        if bytes > SMALL {
            self.room.left.lock().queue.push_back(self.launch);
        }
    }

    /// Whether there is room for so many bytes now.
    pub(crate) fn could_take(&self, bytes: u64) -> bool {
        let bytes = counted(bytes);
        bytes == 0 || self.room.left.lock().could_take(bytes, self.launch)
    }

    /// Room for so many bytes, if there is some.
    pub(crate) fn take(&self, bytes: u64, patience: Patience) -> Option<Taken> {
        let bytes = counted(bytes);
        if bytes > 0 && !self.is_taken(bytes, patience) {
            return None;
        }
        Some(Taken { room: Arc::clone(&self.room), bytes })
    }

    fn is_taken(&self, bytes: u64, patience: Patience) -> bool {
        let mut left = self.room.left.lock();
        let mut is_taken = left.take(bytes, self.launch);
        if let (false, Patience::InTurn(long)) = (is_taken, patience) {
            if !left.queue.contains(&self.launch) {
                left.queue.push_back(self.launch);
            }
            self.room.changed.wait_for(&mut left, long);
            is_taken = left.take(bytes, self.launch);
        }
        is_taken
    }

    /// Leaves the queue, if it is in it: nobody asks any more, and the next may find room.
    pub(crate) fn stop_waiting(&self) {
        let mut left = self.room.left.lock();
        let before = left.queue.len();
        left.queue.retain(|launch| *launch != self.launch);
        if left.queue.len() != before {
            self.room.changed.notify_all();
        }
    }
}

impl Drop for Taker {
    fn drop(&mut self) {
        self.stop_waiting();
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
            self.room.left.lock().bytes += self.bytes;
            self.room.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Patience = Patience::InTurn(Duration::from_micros(1));

    #[test]
    fn large_blocks_have_so_much_together_and_small_ones_are_not_counted() {
        let room = Arc::new(Room::new());
        let taker = Taker::new(&room);
        let take = |bytes| taker.take(bytes, Patience::None);
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
        assert_eq!(room.left.lock().bytes, TOTAL);
    }

    #[test]
    fn whoever_waits_for_room_has_it_before_those_that_come_later() {
        let room = Arc::new(Room::new());
        let [running, large, small] = [(); 3].map(|()| Taker::new(&room));
        let runs = running.take(TOTAL / 4, MOMENT).unwrap();
        assert!(large.take(TOTAL, MOMENT).is_none());
        // There is room, but somebody waits.
        assert!(small.take(TOTAL / 4, MOMENT).is_none());
        assert!(running.take(TOTAL / 4, Patience::None).is_none());
        drop(runs);
        assert!(small.take(TOTAL / 4, MOMENT).is_none());
        drop(large.take(TOTAL / 2, MOMENT).unwrap());
        // Its next block.
        assert!(small.take(TOTAL / 4, MOMENT).is_none());
        drop(large.take(TOTAL / 2, Patience::None).unwrap());
        large.stop_waiting();
        let taken = small.take(TOTAL / 4, MOMENT).unwrap();
        small.stop_waiting();
        assert!(running.take(TOTAL / 4, Patience::None).is_some(), "nobody waits any more");
        drop(taken);
    }

    #[test]
    fn a_launch_that_ends_waits_for_nothing() {
        let room = Arc::new(Room::new());
        let [running, gone, next] = [(); 3].map(|()| Taker::new(&room));
        let runs = running.take(TOTAL / 2, MOMENT).unwrap();
        assert!(gone.take(TOTAL, Patience::None).is_none() && room.left.lock().queue.is_empty());
        assert!(gone.take(TOTAL, MOMENT).is_none());
        assert!(next.take(TOTAL / 4, Patience::None).is_none());
        drop(gone);
        assert!(next.take(TOTAL / 4, Patience::None).is_some());
        drop(runs);
        assert!(room.left.lock().queue.is_empty());
    }
}
