//! Counts what kernels do: instructions, divergence, memory traffic, bank conflicts, contention; and when streams did what.
//!
//! Memory is counted as a device of NVIDIA's serves it, without caches: what a warp asks for at once moves the sectors it
//! lies in, and takes the passes that its banks need. Where an access is wide, or a device joins accesses in ways that it
//! does not tell, these numbers are estimates.

mod count;
mod report;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use bulkhead_gpu::StreamId;
use parking_lot::Mutex;

pub use count::{Counts, Traffic};
pub use report::{Event, Kernel, REPORT_BYTES_MAX, Report, Row, What, text_number};

use crate::alu::Lanes;
use crate::code::{Op, Program};
use crate::exec::{Access, Did, Grid, Observer, Warp, Watch, Watched};

/// Events that are kept.
const EVENTS_MAX: usize = 1 << 17;
/// Operations that are counted apart, of all kernels together; what is beyond is launched and not counted.
const OPERATIONS_MAX: usize = 1 << 18;
/// Kernels that are told apart.
const KERNELS_MAX: usize = 1 << 12;

/// Watches a device's kernels and counts.
#[derive(Debug)]
pub struct Profiler {
    state: Arc<Mutex<State>>,
    /// Zero of the events' times.
    epoch: Instant,
}

#[derive(Debug, Default)]
struct State {
    kernels: Vec<Collected>,
    by_name: HashMap<(u64, String), usize>,
    operations: usize,
    events: Vec<Event>,
    events_left_out: u64,
}

#[derive(Debug)]
struct Collected {
    kernel: Kernel,
    program: Arc<Program>,
    /// By operation. Empty where nothing is counted.
    counts: Vec<Counts>,
}

impl State {
    /// The number of a program's kernel.
    fn kernel(&mut self, program: &Arc<Program>) -> Option<usize> {
        let name = (program.text, program.name.clone());
        if let Some(index) = self.by_name.get(&name) {
            return Some(*index);
        }
        if self.kernels.len() >= KERNELS_MAX {
            return None;
        }
        let operations = program.code.len();
        let room = self.operations + operations <= OPERATIONS_MAX;
        let counts = if room { vec![Counts::default(); operations] } else { Vec::new() };
        self.operations += counts.len();
        let kernel = Kernel { name: program.name.clone(), text: program.text, ..Kernel::default() };
        self.kernels.push(Collected { kernel, program: Arc::clone(program), counts });
        let index = self.kernels.len() - 1;
        self.by_name.insert(name, index);
        Some(index)
    }
}

impl Default for Profiler {
    fn default() -> Self {
        Self { state: Arc::default(), epoch: Instant::now() }
    }
}

impl Profiler {
    /// What was found so far, of blocks that have ended.
    #[must_use]
    pub fn report(&self) -> Report {
        let state = self.state.lock();
        let kernels = state.kernels.iter().map(Collected::told).collect();
        Report { kernels, events: state.events.clone(), events_left_out: state.events_left_out }
    }

    fn since_epoch(&self, moment: Instant) -> u64 {
        u64::try_from(moment.saturating_duration_since(self.epoch).as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Collected {
    fn told(&self) -> Kernel {
        let mut rows: Vec<Row> = Vec::new();
        for (place, counts) in self.program.places.iter().zip(&self.counts) {
            if counts.is_empty() {
                continue;
            }
            // An instruction may be several operations.
            match rows.last_mut() {
                Some(row) if (row.line, row.column) == (place.line, place.column) => row.counts.add(counts),
                _ => rows.push(Row { line: place.line, column: place.column, counts: *counts }),
            }
        }
        Kernel { rows, ..self.kernel.clone() }
    }
}

impl Observer for Profiler {
    fn launch(&self, _: StreamId, grid: &Grid) -> Option<Arc<dyn Watched>> {
        let mut state = self.state.lock();
        let index = state.kernel(&grid.program)?;
        if state.kernels[index].counts.is_empty() {
            return None;
        }
        let launch = Launch { state: Arc::clone(&self.state), index, program: Arc::clone(&grid.program) };
        Some(Arc::new(launch))
    }

    fn did(&self, stream: StreamId, what: Did<'_>, from: Instant, until: Instant) {
        let (from_ns, until_ns) = (self.since_epoch(from), self.since_epoch(until));
        let mut state = self.state.lock();
        let what = match what {
            Did::Launch { grid, is_watched } => {
                let Some(index) = state.kernel(&grid.program) else {
                    state.events_left_out += 1;
                    return;
                };
                let kernel = &mut state.kernels[index].kernel;
                kernel.launches += 1;
                kernel.uncounted += u64::from(!is_watched);
                kernel.blocks += grid.block_count();
                kernel.threads += grid.block_count().saturating_mul(grid.block_threads().into());
                kernel.nanoseconds += until_ns - from_ns;
                What::Launch {
                    kernel: index as u64,
                    grid: grid.blocks,
                    block: grid.threads,
                    shared_bytes: grid.shared_bytes(),
                }
            }
            Did::ToDevice { bytes, .. } => What::ToDevice(bytes),
            Did::ToHost(bytes) => What::ToHost(bytes),
            Did::OnDevice { bytes, .. } => What::OnDevice(bytes),
            Did::Fill { bytes, .. } => What::Fill(bytes),
            Did::Record => What::Record,
            Did::Publish => What::Publish,
        };
        if state.events.len() < EVENTS_MAX {
            state.events.push(Event { stream: stream.0, what, from_ns, until_ns });
        } else {
            state.events_left_out += 1;
        }
    }
}

/// A launch that is counted.
#[derive(Debug)]
struct Launch {
    state: Arc<Mutex<State>>,
    index: usize,
    program: Arc<Program>,
}

impl Watched for Launch {
    fn begin(&self) {}

    fn watch(&self) -> Box<dyn Watch> {
        Box::new(Tally {
            state: Arc::clone(&self.state),
            index: self.index,
            counts: vec![Counts::default(); self.program.code.len()],
            program: Arc::clone(&self.program),
        })
    }

    fn end(&self) {}
}

/// Counts of the blocks of one host thread, which it adds to those of others when it is dropped.
#[derive(Debug)]
struct Tally {
    state: Arc<Mutex<State>>,
    index: usize,
    program: Arc<Program>,
    counts: Vec<Counts>,
}

impl Drop for Tally {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        let Some(kernel) = state.kernels.get_mut(self.index) else { return };
        for (to, from) in kernel.counts.iter_mut().zip(&self.counts) {
            to.add(from);
        }
    }
}

impl Watch for Tally {
    fn begin(&mut self, _: [u32; 3]) {}

    fn step(&mut self, _: &Warp, pc: u32, mask: u32, active: u32) {
        let pc = pc as usize;
        let (counts, program) = (&mut self.counts[pc], &self.program);
        // The first operation stands for the instruction.
        if pc == 0 || program.places[pc] != program.places[pc - 1] {
            counts.warps += 1;
            counts.standing += u64::from(mask.count_ones());
            counts.threads += u64::from(active.count_ones());
        }
        if matches!(program.code[pc].op, Op::Branch { .. }) && active != 0 && active != mask {
            counts.divergent += 1;
        }
    }

    fn access(&mut self, _: &Warp, access: &Access<'_>) {
        self.counts[access.pc as usize].reach(access);
    }

    fn arrive(&mut self, _: &Warp, _: u32, _: u32, _: usize) {}

    fn open(&mut self, _: usize) {}

    fn come(&mut self, _: &Warp, _: u32, _: u32, _: &Lanes) {}

    fn meet(&mut self, _: &Warp, _: u32) {}

    fn stuck(&mut self, _: &[Warp]) {}

    fn end(&mut self) {}
}
