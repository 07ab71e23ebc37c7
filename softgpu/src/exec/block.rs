//! A block: its warps, shared memory and barriers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bulkhead_verifier::entry_of;
use parking_lot::Mutex;

use super::cores::Core;
use super::dispatch::Dispatch;
use super::frame::{Barrier, Frame};
use super::grid::Grid;
use super::native::AT_ONCE;
use super::observe::Watch;
use super::schedule::Random;
use super::step::{FUEL, Outcome};
use super::warp::Warp;
use crate::code::BARRIERS;
use crate::compiled::{Compiled, Fuel};
use crate::fault::{Fault, Faulted};
use crate::room::Taken;

/// How long a block runs before its host thread looks around.
const SLICE: Duration = Duration::from_millis(10);

/// The same where blocks wait for one another.
const SLICE_TOGETHER: Duration = Duration::from_micros(100);

/// How far a block has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// All its threads have exited.
    Finished,
    /// It has more to do.
    Going,
}

/// A block.
#[derive(Debug)]
pub(crate) struct Block {
    dispatch: Arc<Dispatch>,
    index: [u32; 3],
    warps: Vec<Warp>,
    /// Its shared memory, and perhaps more.
    memory: Vec<u8>,
    barriers: [Barrier; BARRIERS],
    watch: Option<Box<dyn Watch>>,
    _room: Taken,
}

/// Shared memory of blocks that are gone, with what they left in it: as on hardware, blocks that come get it as it is.
static LEFT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// How many pieces of such memory are kept.
const LEFT_MAX: usize = 64;

impl Drop for Block {
    fn drop(&mut self) {
        let mut left = LEFT.lock();
        if left.len() < LEFT_MAX {
            left.push(std::mem::take(&mut self.memory));
        }
    }
}

impl Block {
    /// A block of a grid that runs nothing yet.
    pub(crate) fn new(dispatch: &Arc<Dispatch>, room: Taken) -> Self {
        let grid = &dispatch.grid;
        let warps = grid.block_threads().div_ceil(32);
        let mut memory = LEFT.lock().pop().unwrap_or_default();
        let bytes = grid.shared_bytes() as usize;
        if memory.len() < bytes {
            memory.resize(bytes, 0);
        }
        Self {
            index: [0; 3],
            warps: (0..warps).map(|number| Warp::new(number, grid)).collect(),
            memory,
            barriers: [Barrier::default(); BARRIERS],
            watch: dispatch.watched.as_ref().map(|watched| watched.watch()),
            dispatch: Arc::clone(dispatch),
            _room: room,
        }
    }

    /// Becomes the block with this number of the same grid.
    pub(crate) fn restart(&mut self, number: u64) {
        self.index = self.dispatch.grid.block_at(number);
        self.barriers = [Barrier::default(); BARRIERS];
        for warp in &mut self.warps {
            warp.restart(&self.dispatch.grid);
        }
        if let Some(watch) = &mut self.watch {
            watch.begin(self.index);
        }
    }

    /// Runs for a while from now on. A fault comes with its place in words.
    pub(crate) fn run(&mut self, core: &mut Core, now: Instant) -> Result<Progress, (Fault, String)> {
        let slice = if self.dispatch.grid.together { SLICE_TOGETHER } else { SLICE };
        loop {
            let mut progress = self.run_in_step(core)?;
            if !progress {
                for index in 0..self.warps.len() {
                    if self.warps[index].live == 0 {
                        continue;
                    }
                    let outcome = self.run_warp(index, core)?;
                    progress |= outcome != Outcome::Stuck;
                    progress |= self.settle();
                }
            }
            if self.warps.iter().all(|warp| warp.live == 0) {
                if let Some(watch) = &mut self.watch {
                    watch.end();
                }
                return Ok(Progress::Finished);
            }
            if !progress {
                return Err(self.deadlock());
            }
            if now.elapsed() > slice {
                return Ok(Progress::Going);
            }
        }
    }

    /// Runs all warps in compiled code, one after the other, where all lanes of the block that live stand in one place;
    /// says whether that is so. Where all have come to one barrier of the block, they stand behind it then.
    fn run_in_step(&mut self, core: &mut Core) -> Result<bool, (Fault, String)> {
        let Self { dispatch, index, warps, memory, barriers, watch, .. } = self;
        let grid = &dispatch.grid;
        let program = &grid.program;
        let code = dispatch.compiled.code().filter(|_| watch.is_none());
        let Some((code, pc)) = code.and_then(|code| Some((code, in_step(warps)?))) else { return Ok(false) };
        let Some(way) = code.way_in(pc) else { return Ok(false) };
        let count = u32::try_from(warps.len()).unwrap_or(u32::MAX);
        let mut frame = Frame {
            grid,
            program,
            core,
            shared: &mut memory[..grid.shared_bytes() as usize],
            barriers,
            block: *index,
            warps: count,
            watch: None,
        };
        let ran = code.pass_block(warps, &mut frame, way, Fuel { gang: FUEL, alone: AT_ONCE });
        ran.map_err(|(number, faulted)| place(grid, *index, &warps[number], faulted))?;
        if barriers.iter().all(|barrier| barrier.arrived == 0)
            && let Some(pc) = in_step(warps)
            && program.is_barrier_for_all(pc)
        {
            let groups = warps.iter_mut().flat_map(|warp| &mut warp.groups);
            groups.for_each(|group| group.pc += 1);
        }
        Ok(true)
    }

    /// Has one warp, which is drawn, go on for a while, which is drawn too.
    pub(crate) fn step(&mut self, core: &mut Core, random: &mut Random) -> Result<Progress, (Fault, String)> {
        let count = self.warps.iter().filter(|warp| warp.is_ready()).count();
        if count == 0 {
            // Whoever the others waited for may have exited.
            return if self.settle() { Ok(Progress::Going) } else { Err(self.deadlock()) };
        }
        let drawn = random.index(count);
        let ready = self.warps.iter().enumerate().filter(|(_, warp)| warp.is_ready());
        if let Some((index, _)) = ready.into_iter().nth(drawn) {
            self.in_warp(index, core, |warp, frame, compiled| match frame.watch {
                None => warp.run_drawn::<false>(frame, compiled, random),
                Some(_) => warp.run_drawn::<true>(frame, compiled, random),
            })?;
        }
        self.settle();
        let finished = self.warps.iter().all(|warp| warp.live == 0);
        if !finished {
            return Ok(Progress::Going);
        }
        if let Some(watch) = &mut self.watch {
            watch.end();
        }
        Ok(Progress::Finished)
    }

    fn run_warp(&mut self, index: usize, core: &mut Core) -> Result<Outcome, (Fault, String)> {
        self.in_warp(index, core, |warp, frame, compiled| match frame.watch {
            None => warp.run::<false>(frame, compiled),
            Some(_) => warp.run::<true>(frame, compiled),
        })
    }

    fn in_warp(
        &mut self,
        index: usize,
        core: &mut Core,
        run: impl FnOnce(&mut Warp, &mut Frame<'_>, &Compiled) -> Result<Outcome, Faulted>,
    ) -> Result<Outcome, (Fault, String)> {
        let warps = self.warps.len();
        let warp = &mut self.warps[index];
        let program = &self.dispatch.grid.program;
        let mut frame = Frame {
            grid: &self.dispatch.grid,
            program,
            core,
            shared: &mut self.memory[..self.dispatch.grid.shared_bytes() as usize],
            barriers: &mut self.barriers,
            block: self.index,
            warps: u32::try_from(warps).unwrap_or(u32::MAX),
            watch: self.watch.as_deref_mut(),
        };
        let ran = run(warp, &mut frame, &self.dispatch.compiled);
        ran.map_err(|faulted| place(&self.dispatch.grid, self.index, warp, faulted))
    }

    /// Opens the barriers that everybody they wait for has reached; says whether there was one.
    fn settle(&mut self) -> bool {
        let mut opened = false;
        if self.barriers.iter().fold(0, |all, barrier| all | barrier.arrived) == 0 {
            return false;
        }
        for id in 0..BARRIERS {
            let Barrier { arrived, holding, expected } = self.barriers[id];
            if arrived == 0 {
                continue;
            }
            let live = || self.warps.iter().map(|warp| warp.live.count_ones()).sum::<u32>();
            if arrived < expected.unwrap_or_else(live) {
                continue;
            }
            self.barriers[id] = Barrier::default();
            if let Some(watch) = &mut self.watch {
                watch.open(id);
            }
            for warp in &mut self.warps {
                warp.release(id, &self.dispatch.grid.program, arrived, holding);
            }
            opened = true;
        }
        opened
    }

    fn deadlock(&mut self) -> (Fault, String) {
        if let Some(watch) = &mut self.watch {
            watch.stuck(&self.warps);
        }
        let waiting = self.warps.iter().flat_map(|warp| &warp.groups).next();
        let line = waiting
            .and_then(|group| self.dispatch.grid.program.places.get((group.pc as usize).saturating_sub(1)))
            .map_or(0, |place| place.line);
        let [x, y, z] = self.index;
        (
            Fault::illegal("illegal synchronization: every thread waits and none can come"),
            format!(
                "line {line} of entry {}, block ({x}, {y}, {z})",
                entry_of(&self.dispatch.grid.program.name)
            ),
        )
    }
}

/// Where all lanes of some warps that live stand, if that is one place and they can run.
fn in_step(warps: &[Warp]) -> Option<u32> {
    let mut live = warps.iter().filter(|warp| warp.live != 0);
    let pc = live.next()?.stands()?;
    live.all(|warp| warp.stands() == Some(pc)).then_some(pc)
}

/// A fault with its place in words.
fn place(grid: &Grid, [x, y, z]: [u32; 3], warp: &Warp, faulted: Faulted) -> (Fault, String) {
    let Faulted { fault, pc, lane } = faulted;
    let program = &grid.program;
    let place = program.places.get(pc as usize).copied().unwrap_or_default();
    let thread = warp.threads.map(|axis| axis[lane]);
    let words = format!(
        "line {} column {} of entry {}, block ({x}, {y}, {z}), thread ({}, {}, {})",
        place.line,
        place.column,
        entry_of(&program.name),
        thread[0],
        thread[1],
        thread[2]
    );
    (fault, words)
}
