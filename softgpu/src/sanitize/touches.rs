//! What threads do that races come of: accesses, and fences between them.

/// What a thread does to a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Read,
    Write,
    /// Reads and writes at once.
    Update,
}

/// What a fence does beside making known what was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fence {
    /// Nothing.
    Acquires,
    /// What is before may be passed on to the block.
    Block,
    /// What is before may be passed on to all.
    Device,
}

/// One thread's access to some bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Touches {
    pub(super) warp: usize,
    pub(super) lane: usize,
    pub(super) pc: u32,
    pub(super) how: How,
    /// Whether others may see it meanwhile.
    pub(super) strong: bool,
    /// From the beginning of the block's shared memory on.
    pub(super) at: usize,
    pub(super) bytes: usize,
    /// What it writes, where that is known.
    pub(super) values: Option<[u8; 16]>,
}
