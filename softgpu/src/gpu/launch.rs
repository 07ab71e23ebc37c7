//! Launches: what is checked of each, and how its blocks begin.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bulkhead_gpu::{EntryId, EntryInfo, Error, Launch, StreamId};

use super::{BLOCK_BYTES_MAX, Entry, SoftGpu, refused};
use crate::code::{ConstantBank, Program};
use crate::compiled::Engine;
use crate::exec::{Dispatch, Grid};
use crate::stream::Work;

/// Checks a launch against the entry and the device, as the driver does before it queues anything.
fn check_launch(entry: &Entry, launch: &Launch<'_>) -> Result<(), Error> {
    let program = &entry.program;
    let [x, y, z] = launch.grid;
    let in_range = |value: u32, most: u32| (1..=most).contains(&value);
    if !in_range(x, i32::MAX.unsigned_abs()) || !in_range(y, 65_535) || !in_range(z, 65_535) {
        return Err(refused(format!("a grid of {x} x {y} x {z} blocks")));
    }
    let [x, y, z] = launch.block;
    if !in_range(x, 1024) || !in_range(y, 1024) || !in_range(z, 64) {
        return Err(refused(format!("a block of {x} x {y} x {z} threads")));
    }
    let threads = x * y * z;
    let resources = |text: String| Err(Error::LaunchResources(text));
    if threads > program.threads_max {
        return resources(format!("{threads} threads, the entry takes {}", program.threads_max));
    }
    if program.threads_required.is_some_and(|required| required != launch.block) {
        return resources("the entry requires another shape of block".to_owned());
    }
    let dynamic_max = entry.dynamic_shared_max.load(Ordering::Relaxed);
    if launch.shared_bytes > dynamic_max {
        return resources(format!(
            "{} bytes of dynamic shared memory, {dynamic_max} are allowed",
            launch.shared_bytes
        ));
    }
    if launch.parameters.len() != program.parameter_bytes as usize {
        return Err(refused(format!(
            "{} bytes of parameters, the entry takes {}",
            launch.parameters.len(),
            program.parameter_bytes
        )));
    }
    let warps = u64::from(threads.div_ceil(32));
    if warps * program.warp_bytes() > BLOCK_BYTES_MAX {
        return resources(
            "registers and local memory of the block are too much for the software GPU".to_owned(),
        );
    }
    Ok(())
}

pub(super) fn entry_info(
    id: EntryId,
    program: &Program,
    constants: &ConstantBank,
    architecture: u32,
) -> EntryInfo {
    // Virtual registers are many; a compiler would fit them into what the block size leaves to each thread.
    // Warps have theirs from the four parts of a multiprocessor, so that a block counts as whole fours of warps.
    let warps = program.threads_max.div_ceil(32).next_multiple_of(4).max(4);
    let most = (65_536 / (warps * 32)).clamp(16, 255) & !7;
    EntryInfo {
        name: program.name.clone(),
        id,
        parameters: program.parameters.clone(),
        threads_max: program.threads_max,
        shared_bytes: program.shared_bytes,
        local_bytes: program.local_bytes,
        constant_bytes: u32::try_from(constants.bytes.len()).unwrap_or(u32::MAX),
        registers: program.registers.clamp(16, most.max(16)),
        ptx_version: architecture,
        binary_version: 90,
    }
}

/// Device attributes of what fits on a multiprocessor, by `CUdevice_attribute` number.
const MULTIPROCESSOR_THREADS: u32 = 39;
const MULTIPROCESSOR_SHARED_BYTES: u32 = 81;
const MULTIPROCESSOR_BLOCKS: u32 = 106;
const RESERVED_SHARED_BYTES: u32 = 111;

impl SoftGpu {
    /// Launches a grid, whose blocks may wait for one another if they come `together`.
    pub(super) fn launch_blocks(
        &self,
        stream: StreamId,
        entry: EntryId,
        launch: &Launch<'_>,
        together: bool,
    ) -> Result<(), Error> {
        self.health.check()?;
        let entry = self.entry(entry)?;
        check_launch(&entry, launch)?;
        if together {
            self.check_together(&entry, launch)?;
        }
        let number = self.launches.fetch_add(1, Ordering::Relaxed);
        if self.options.lost_after_launches.is_some_and(|most| number >= most) {
            self.health.lose(Error::Lost { reason: "a failure asked for by the test".to_owned(), code: 719 });
            return self.health.check();
        }
        let grid = Grid {
            program: Arc::clone(&entry.program),
            constants: Arc::clone(&entry.constants),
            blocks: launch.grid,
            threads: launch.block,
            dynamic_shared: launch.shared_bytes,
            parameters: launch.parameters.to_vec(),
            together,
            schedule: self.options.schedule,
            number,
            multiprocessors: self.multiprocessors(),
            epoch: self.epoch,
        };
        let watched = self.observer.as_ref().and_then(|observer| observer.launch(stream, &grid));
        // Compiled code tells nobody what it does, and runs lanes for as long as it likes.
        let is_interpreted = watched.is_some() || grid.schedule.is_some();
        let engine = if is_interpreted { Engine::Interpreter } else { self.options.engine };
        let compiled = Arc::clone(&entry.compiled);
        self.push(stream, Work::Launch(Arc::new(Dispatch { grid, engine, compiled, watched })))
    }

    /// All blocks fit on the device at once, as its attributes have it.
    pub(super) fn check_together(&self, entry: &Entry, launch: &Launch<'_>) -> Result<(), Error> {
        let value =
            |number: u32| self.info.attribute(number).map_or(0, |value| i64::from(value).unsigned_abs());
        let threads: u64 = launch.block.iter().map(|side| u64::from(*side)).product();
        let shared = u64::from(entry.program.shared_bytes) + u64::from(launch.shared_bytes);
        let by_threads = value(MULTIPROCESSOR_THREADS) / threads.next_multiple_of(32);
        let by_shared = value(MULTIPROCESSOR_SHARED_BYTES) / (shared + value(RESERVED_SHARED_BYTES));
        let fit =
            by_threads.min(by_shared).min(value(MULTIPROCESSOR_BLOCKS)) * u64::from(self.multiprocessors());
        let blocks = launch.grid.iter().fold(1_u64, |blocks, side| blocks.saturating_mul((*side).into()));
        if blocks > fit {
            return Err(Error::LaunchResources(format!("{blocks} blocks at once, there is room for {fit}")));
        }
        Ok(())
    }
}
