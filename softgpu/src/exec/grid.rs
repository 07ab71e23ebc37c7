//! A grid: what all blocks of a launch have in common.

use std::sync::Arc;
use std::time::Instant;

use crate::code::{ConstantBank, Program};

/// One launch, as every block of it sees it.
#[derive(Debug)]
pub(crate) struct Grid {
    /// The entry.
    pub(crate) program: Arc<Program>,
    /// Constant memory of its image.
    pub(crate) constants: Arc<ConstantBank>,
    /// Blocks in x, y, z.
    pub(crate) blocks: [u32; 3],
    /// Threads of a block in x, y, z.
    pub(crate) threads: [u32; 3],
    /// Dynamic shared memory.
    pub(crate) dynamic_shared: u32,
    /// Parameter block.
    pub(crate) parameters: Vec<u8>,
    /// Whether blocks may wait for one another: then all of them are in work at once.
    pub(crate) together: bool,
    /// The seed of the order in which its warps run, where that is drawn.
    pub(crate) schedule: Option<u64>,
    /// For `%gridid`.
    pub(crate) number: u64,
    /// For `%nsmid`.
    pub(crate) multiprocessors: u32,
    /// Zero of the device's clocks.
    pub(crate) epoch: Instant,
}

impl Grid {
    /// Threads of a block.
    pub(crate) fn block_threads(&self) -> u32 {
        // Checked at launch: at most 1024.
        self.threads[0] * self.threads[1] * self.threads[2]
    }

    /// Shared memory of a block.
    pub(crate) fn shared_bytes(&self) -> u32 {
        self.program.shared_bytes + self.dynamic_shared
    }

    /// Blocks of the grid.
    pub(crate) fn block_count(&self) -> u64 {
        let [x, y, z] = self.blocks.map(u64::from);
        // Checked at launch: 2^31 x 2^16 x 2^16.
        x * y * z
    }

    /// The coordinates of the block with this number.
    pub(crate) fn block_at(&self, number: u64) -> [u32; 3] {
        let [x, y, z] = self.blocks.map(u64::from);
        let coordinate = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        if y == 1 && z == 1 {
            return [coordinate(number), 0, 0];
        }
        [coordinate(number % x), coordinate(number / x % y), coordinate(number / x / y)]
    }
}
