//! Where copies of ordinary memory are staged.

use parking_lot::Mutex;

use crate::{Fence, pinned::Pinned};

/// Pieces per lane: one is copied while the other travels.
pub(super) const PIECES_PER_LANE: usize = 2;

/// Pinned memory that copies are staged in.
pub(crate) struct Staging {
    pub(super) pinned: Pinned,
    /// One for each thread. What is staged here never waits for the host: other copies wait for it.
    pub(super) lanes: Vec<Mutex<Lane>>,
    /// For copies before which somebody else gave their stream a barrier, or a wait for a stream that may have one.
    pub(super) tied: Vec<Mutex<Lane>>,
}

/// One thread's pieces, and the work that uses each.
pub(super) struct Lane {
    /// Where they lie in the pinned memory.
    start: usize,
    piece_bytes: usize,
    pub(super) fences: [Option<Fence>; PIECES_PER_LANE],
    next: usize,
}

impl Lane {
    pub(super) fn new(start: usize, piece_bytes: usize) -> Mutex<Self> {
        Mutex::new(Self { start, piece_bytes, fences: [None; PIECES_PER_LANE], next: 0 })
    }

    pub(super) fn piece(&mut self) -> usize {
        let piece = self.next;
        self.next = (piece + 1) % PIECES_PER_LANE;
        piece
    }

    pub(super) fn offset(&self, piece: usize) -> usize {
        self.start + piece * self.piece_bytes
    }
}
