//! Execution: blocks of warps of 32 lanes.
#![allow(
    clippy::cast_possible_truncation,
    reason = "lane numbers are below 32, access sizes at most 16, and offsets are checked against memory of this process"
)]

mod access;
mod block;
mod collective;
mod matrix;
mod native;
mod observe;
mod schedule;
mod step;
mod warp;

pub(crate) use block::{BARRIERS, Block, Progress};
pub(crate) use observe::{Access, Did, Observer, Touch, Watch, Watched};
pub(crate) use schedule::Random;
pub(crate) use step::{Faulted, lies_in};
pub(crate) use warp::{Frame, Group, State, Warp};

use std::sync::Arc;
use std::time::Instant;

use crate::alu::LANES;
use crate::code::{ConstantBank, Program};
use crate::compiled::Engine;
use crate::memory::space::AddressSpace;
use crate::memory::tlb::Tlb;
use crate::memory::view::View;

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
    /// What runs it.
    pub(crate) engine: Engine,
    /// The seed of the order in which its warps run, where that is drawn.
    pub(crate) schedule: Option<u64>,
    /// For `%gridid`.
    pub(crate) number: u64,
    /// For `%nsmid`.
    pub(crate) multiprocessors: u32,
    /// Zero of the device's clocks.
    pub(crate) epoch: Instant,
    /// Whoever watches it. Then the interpreter runs it.
    pub(crate) watched: Option<Arc<dyn Watched>>,
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

/// The lanes of a mask.
#[inline(always)]
pub(crate) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |lane| mask >> lane & 1 == 1)
}

/// What a host thread brings to the blocks it runs.
#[derive(Debug)]
pub(crate) struct Core {
    /// Its view of device memory.
    pub(crate) view: View,
    /// What compiled code knows of it.
    pub(crate) tlb: Tlb,
    /// For compiled code: who left where.
    pub(crate) out: Vec<u32>,
    /// For `%smid`.
    pub(crate) number: u32,
    /// What the device's clocks go by where the order of warps is drawn.
    pub(crate) steps: Option<schedule::Steps>,
}

impl Core {
    /// A host thread's part.
    pub(crate) fn new(space: Arc<AddressSpace>, number: u32) -> Self {
        Self { view: View::new(space), tlb: Tlb::new(), out: Vec::new(), number, steps: None }
    }

    /// Lets go of all memory: a thread without work keeps none that others have destroyed.
    pub(crate) fn forget(&mut self) {
        self.view.forget();
        self.tlb.forget();
    }

    /// Compiled code will find the page of an address by itself.
    pub(crate) fn learn(&mut self, address: u64) {
        let (generation, span) = self.view.mapping(address);
        self.tlb.refresh(generation);
        if let Some(span) = span {
            self.tlb.learn(address, span);
        }
    }
}
