//! Watching kernels run: what a profiler and a sanitizer are told of.
//!
//! An *observer* belongs to a device. It says of each launch whether it is *watched*; a *watch* then sees the blocks
//! of that launch, one after the other, as the interpreter runs them. Nothing is known of launches that nobody
//! watches, and they pay nothing: the interpreter's loop is compiled once with and once without.
//!
//! # Invariants
//! 1. Everything is told before it happens, so that a watch also sees what faults.
//! 2. A lane's instruction is told of once, when it is done: a lane that waits at a collective operation is told of
//!    with the lanes it waited for.
//! 3. All watches of a launch are dropped before it ends.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Instant;

use bulkhead_gpu::StreamId;

use super::grid::Grid;
use super::warp::Warp;
use crate::alu::Lanes;
use crate::code::Region;

/// Whoever wants to know what kernels of a device do.
pub(crate) trait Observer: Debug + Send + Sync {
    /// A stream is given a launch. `None`: nobody watches it.
    fn launch(&self, stream: StreamId, grid: &Grid) -> Option<Arc<dyn Watched>>;

    /// A stream has done a piece of its work, from one moment to another.
    fn did(&self, stream: StreamId, what: Did<'_>, from: Instant, until: Instant);
}

/// A piece of a stream's work.
#[derive(Debug)]
pub(crate) enum Did<'a> {
    /// It ran a grid, which somebody has watched or not.
    Launch { grid: &'a Grid, is_watched: bool },
    /// It copied bytes to device memory.
    ToDevice { to: u64, bytes: u64 },
    /// It copied so many bytes from device memory.
    ToHost(u64),
    /// It copied bytes inside of device memory.
    OnDevice { to: u64, from: u64, bytes: u64 },
    /// It filled device memory.
    Fill { to: u64, bytes: u64 },
    /// It recorded an event.
    Record,
    /// It told the host how far it is.
    Publish,
}

/// One launch that is watched. It may be dropped without having begun: the context may be lost before.
pub(crate) trait Watched: Debug + Send + Sync {
    /// Its first block is about to run.
    fn begin(&self);

    /// Watches a host thread's blocks, one at a time; there may be several at once.
    fn watch(&self) -> Box<dyn Watch>;

    /// It is over: all blocks have ended, or the context is lost.
    fn end(&self);
}

/// Watches one block at a time.
pub(crate) trait Watch: Debug + Send {
    /// A block begins, with its coordinates.
    fn begin(&mut self, block: [u32; 3]);

    /// A warp does the operation at `pc`: the lanes that stand there, and those among them whose predicate holds.
    fn step(&mut self, warp: &Warp, pc: u32, mask: u32, active: u32);

    /// A warp reaches for memory, as part of the last step.
    fn access(&mut self, warp: &Warp, access: &Access<'_>);

    /// Whether the lanes of the last step end before they do it.
    fn ends(&mut self) -> bool {
        false
    }

    /// Lanes arrive at a block barrier.
    fn arrive(&mut self, warp: &Warp, pc: u32, active: u32, barrier: usize);

    /// Everybody whom a block barrier waits for has come.
    fn open(&mut self, barrier: usize);

    /// Lanes come to a warp barrier or a collective operation, each with the lanes that it names. Where they have to wait,
    /// the same may be told again.
    fn come(&mut self, warp: &Warp, pc: u32, lanes: u32, members: &Lanes);

    /// These lanes of a warp have met, at a warp barrier or a collective operation.
    fn meet(&mut self, warp: &Warp, lanes: u32);

    /// The block's threads all wait, and none can come.
    fn stuck(&mut self, warps: &[Warp]);

    /// The block has ended.
    fn end(&mut self);
}

/// What an access does to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touch {
    /// It loads.
    Read,
    /// It stores.
    Write,
    /// It is atomic: `atom` and `red`.
    Update,
}

/// What the lanes of a warp reach for at once in one memory.
#[derive(Debug)]
pub(crate) struct Access<'a> {
    /// The operation.
    pub(crate) pc: u32,
    /// Which memory: never [`Region::Generic`].
    pub(crate) region: Region,
    /// What is done to it.
    pub(crate) touch: Touch,
    /// The lanes.
    pub(crate) lanes: u32,
    /// Where, for each of these lanes, in the addresses of the region: shared memory begins at `SHARED_BASE`, each
    /// thread's local memory at zero.
    pub(crate) addresses: &'a Lanes,
    /// Bytes of each lane, all elements of a vector together.
    pub(crate) bytes: u64,
    /// Whether others may see it, or make what it sees: `.volatile`, `.relaxed` and their like, and atomic operations.
    pub(crate) strong: bool,
}

#[cfg(test)]
mod tests;
