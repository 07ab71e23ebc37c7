//! The pinned host memory of a session that kernels reach: pieces of the kernel's, and their blocks.

use std::sync::Arc;

use bulkhead_ring::memory::Window;
use bulkhead_schema::Stray;
use parking_lot::Mutex;
use slab::Slab;

use crate::{
    arena::{Arenas, Kept, Quarantine},
    pinned::Pinned,
};

/// What kernels reach.
pub(super) struct Piece {
    pub(super) key: usize,
    pub(super) pinned: Arc<Pinned>,
}

/// The session's host memory. Lock order: `growing`, `heap`; the session's submit lock is never held with `heap`.
pub(crate) struct HostMemory {
    /// The device's addresses in this process, where it has them.
    pub(super) window: Mutex<Option<Arc<Window>>>,
    pub(super) heap: Mutex<Heap>,
    /// Held by the one thread that asks for more.
    pub(super) growing: Mutex<()>,
}

/// Blocks and pieces.
pub(super) struct Heap {
    /// Each with the index of its piece.
    pub(super) arenas: Arenas<usize>,
    pub(super) pieces: Slab<Piece>,
    pub(super) quarantine: Quarantine,
    /// Freed blocks whose work has passed.
    pub(super) kept: Kept,
    /// Counts allocations and frees.
    pub(super) activity: u64,
    /// Whether somebody looks for idleness.
    pub(super) watched: bool,
}

impl HostMemory {
    pub(crate) fn new(window: Option<Arc<Window>>, stray: Stray) -> Self {
        let heap = Heap {
            arenas: Arenas::new(),
            pieces: Slab::new(),
            quarantine: Quarantine::new(),
            kept: Kept::new(stray),
            activity: 0,
            watched: false,
        };
        Self { window: Mutex::new(window), heap: Mutex::new(heap), growing: Mutex::default() }
    }

    pub(crate) fn give_up_window(&self) {
        *self.window.lock() = None;
    }

    pub(crate) fn take_window(&self, start: u64, bytes: u64) {
        *self.window.lock() = Window::reserve(start, bytes);
    }
}

impl Heap {
    /// The largest empty pieces, until no more than `kept_bytes` are empty.
    pub(super) fn withdraw(&mut self, kept_bytes: u64) -> Vec<Piece> {
        let mut withdrawn = Vec::new();
        while self.arenas.empty_bytes() > kept_bytes
            && let Some((piece, _)) = self.arenas.withdraw()
        {
            withdrawn.push(self.pieces.remove(piece));
        }
        withdrawn
    }
}
