//! The device memory that a session holds: granted arenas, their blocks, and freed ones that wait.

use bulkhead_schema::{Handle, Stray};
use parking_lot::Mutex;

use crate::arena::{Arenas, Kept, Quarantine};

/// A buffer of the kernel's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Granted {
    pub(super) key: usize,
    pub(super) handle: Handle,
}

/// The session's memory. Lock order: `growing`, `granting`, `heap`; the session's submit lock is never held with them.
pub(crate) struct Memory {
    pub(super) heap: Mutex<Heap>,
    /// Held by the one thread that finds more room for all.
    pub(super) growing: Mutex<()>,
    /// Held while an arena comes, and while the ledger is asked: it counts the arena before the heap does.
    pub(super) granting: Mutex<()>,
    process: u32,
}

/// Blocks and arenas.
pub(super) struct Heap {
    pub(super) arenas: Arenas<Granted>,
    pub(super) quarantine: Quarantine,
    /// Freed blocks whose work has passed.
    pub(super) kept: Kept,
    /// Bytes of arenas that are on their way back to the kernel.
    pub(super) returning_bytes: u64,
    /// Bytes of freed blocks that are being taken back from other sessions.
    pub(super) withdrawn_bytes: u64,
    /// Counts allocations and frees.
    pub(super) activity: u64,
    /// Counts arenas that came or went.
    pub(super) changes: u64,
    /// Whether somebody looks for idleness.
    pub(super) watched: bool,
}

impl Memory {
    pub(crate) fn new(stray: Stray) -> Self {
        let heap = Heap {
            arenas: Arenas::new(),
            quarantine: Quarantine::new(),
            kept: Kept::new(stray),
            returning_bytes: 0,
            withdrawn_bytes: 0,
            activity: 0,
            changes: 0,
            watched: false,
        };
        Self {
            heap: Mutex::new(heap),
            growing: Mutex::default(),
            granting: Mutex::default(),
            process: std::process::id(),
        }
    }

    /// Whether this is the process that opened the session, and no child that was forked off it.
    pub(crate) fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }
}

impl Heap {
    /// The largest empty arenas, until no more than is worth keeping is empty; none where accesses to what was freed are told:
    /// something else would come to lie there.
    pub(super) fn surplus(&mut self) -> Vec<(Granted, u64)> {
        if self.kept.keeps() { Vec::new() } else { self.withdraw_while(Arenas::has_surplus) }
    }

    /// All empty arenas.
    pub(super) fn empty(&mut self) -> Vec<(Granted, u64)> {
        self.withdraw_while(|_| true)
    }

    /// Whether no freed block will be free again by waiting.
    pub(super) fn is_settled(&self) -> bool {
        self.quarantine.is_empty() && self.withdrawn_bytes == 0
    }

    fn withdraw_while(&mut self, more: impl Fn(&Arenas<Granted>) -> bool) -> Vec<(Granted, u64)> {
        let mut withdrawn = Vec::new();
        while more(&self.arenas)
            && let Some((granted, bytes)) = self.arenas.withdraw()
        {
            self.returning_bytes += bytes;
            self.changes += 1;
            withdrawn.push((granted, bytes));
        }
        withdrawn
    }
}
