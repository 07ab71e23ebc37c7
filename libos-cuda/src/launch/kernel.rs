//! A launch that is kept, with its parameters: what a node of a graph does.

use crate::device::Launch;

/// Whether a launch's blocks may wait for one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocks {
    Apart,
    Together,
    /// In clusters of so many blocks, and all there at once if so; only in isolated sessions.
    Clusters([u8; 3], bool),
}

impl Blocks {
    /// The same with blocks that are all there at once, or need not be.
    pub(crate) fn with_together(self, together: bool) -> Self {
        match (self, together) {
            (Blocks::Clusters(sides, _), together) => Blocks::Clusters(sides, together),
            (_, true) => Blocks::Together,
            (_, false) => Blocks::Apart,
        }
    }

    /// The same in clusters of so many blocks.
    pub(super) fn in_clusters(self, sides: [u8; 3]) -> Self {
        Blocks::Clusters(sides, self.is_together())
    }

    /// Whether all blocks are there at once.
    pub(crate) fn is_together(self) -> bool {
        matches!(self, Blocks::Together | Blocks::Clusters(_, true))
    }
}

/// A launch with its parameters, to be done later and more than once.
pub(crate) struct Kernel {
    pub(crate) function: u64,
    pub(crate) launch: Launch,
    pub(crate) blocks: Blocks,
    /// It may begin while the kernel before it in its stream is about to end; only graphs of the device's make use of that.
    pub(super) early: bool,
    /// The parameter block.
    pub(super) block: Box<[u8]>,
    /// Where each parameter lies in it.
    pub(super) addresses: Box<[usize]>,
}

impl Kernel {
    /// The same launch with blocks that may or may not wait for one another.
    pub(crate) fn with_blocks(&self, blocks: Blocks) -> Kernel {
        let block = self.block.clone();
        let (old, start) = (self.block.as_ptr().addr(), block.as_ptr().expose_provenance());
        let addresses = self.addresses.iter().map(|address| start + (address - old)).collect();
        Kernel { function: self.function, launch: self.launch, blocks, early: self.early, block, addresses }
    }

    /// The addresses of its parameters, which stay as long as it does.
    pub(crate) fn addresses(&self) -> &[usize] {
        &self.addresses
    }

    /// Whether another launch does the same.
    pub(crate) fn is_same(&self, other: &Kernel) -> bool {
        self.function == other.function
            && self.launch == other.launch
            && self.blocks == other.blocks
            && self.block == other.block
    }

    /// Puts its parameters into a launch's block.
    pub(super) fn write(&self, block: &mut [u8]) {
        let bytes = block.len().min(self.block.len());
        if let (Some(block), Some(own)) = (block.get_mut(..bytes), self.block.get(..bytes)) {
            block.copy_from_slice(own);
        }
    }
}
