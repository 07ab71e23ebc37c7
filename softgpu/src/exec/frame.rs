//! What instructions may touch besides their warp.

use super::cores::Core;
use super::grid::Grid;
use super::observe::Watch;
use crate::code::Program;

/// One of a block's barriers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Barrier {
    /// Threads that have arrived.
    pub(crate) arrived: u32,
    /// Those among them whose predicate held.
    pub(crate) holding: u32,
    /// Threads it waits for, where the instruction says; otherwise all that live.
    pub(crate) expected: Option<u32>,
}

/// What every instruction of a warp may touch besides the warp.
pub(crate) struct Frame<'a> {
    pub(crate) grid: &'a Grid,
    pub(crate) program: &'a Program,
    pub(crate) core: &'a mut Core,
    pub(crate) shared: &'a mut [u8],
    pub(crate) barriers: &'a mut [Barrier],
    pub(crate) block: [u32; 3],
    pub(crate) warps: u32,
    /// Whoever watches the block.
    pub(crate) watch: Option<&'a mut (dyn Watch + 'static)>,
}
