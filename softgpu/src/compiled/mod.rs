//! The compiled engine: the operations of an entry as code of the host's processor.
//!
//! The lanes of a warp are independent of one another between *meetings*: barriers, collective operations,
//! operations on matrices, and what lets others run. So compiled code runs one lane at a time, from a *way in*
//! to where it meets others, exits, or has gone round for as long as it may; then the next one. What lanes do
//! together, the interpreter does, which also decides who runs next. So there is one order of things,
//! whichever engine runs.
//!
//! What an operation computes is said once, in `alu`: compiled code calls these functions, but for those
//! with a *name*, of which it has instructions of its own. Whatever is rare, above all an access that goes
//! wrong, the interpreter does for the lane, so that faults are the same.
//!
//! # Invariants
//! 1. Between two calls of compiled code all that lives is in the warp, where the interpreter finds it: a
//!    launch may go from one engine to the other wherever it stands.
//! 2. Memory is never writable and executable at once.
//! 3. An entry that cannot be compiled is interpreted.

mod context;
mod emit;
mod flow;
mod gang;
mod gangs;
mod kinds;
mod ops;
mod patterns;
mod reach;
#[expect(unsafe_code, reason = "maps, fills and calls code; compiled code calls back with addresses")]
mod sys;
mod webs;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

pub(crate) use emit::Leaving;
pub use gangs::GangCounts;
pub(crate) use sys::{Code, Fuel, Pass};

use context::Failure;

use crate::code::Program;
use crate::exec::{Frame, State, Warp};
use crate::fault::Faulted;

/// Which engine runs kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Engine {
    /// The interpreter.
    Interpreter,
    /// Compiled code, from an entry's first launch on.
    Compiled,
    /// The interpreter until an entry has run so much that compiling it pays.
    #[default]
    Mixed,
}

/// Threads of an entry after which it is compiled: about as long as that takes, the interpreter would take
/// for them.
const THREADS_BEFORE: u64 = 1 << 12;

/// The same for its form for gangs, which takes longer.
const THREADS_BEFORE_GANGS: u64 = 1 << 15;

/// Operations of an entry that is compiled at most: beyond that it takes seconds.
const OPERATIONS_MAX: usize = 1 << 16;

/// Registers of one: for each of its basic blocks there are as many bits, several times.
const REGISTERS_MAX: usize = 1 << 15;

/// Bytes of compiled code for an operation, about.
const BYTES_PER_OPERATION: u64 = 64;

/// The compiled form of an entry, and whether it is worth while.
#[derive(Debug, Default)]
pub(crate) struct Compiled {
    code: OnceLock<Option<Code>>,
    threads: AtomicU64,
}

impl Compiled {
    /// The code, where there is some.
    #[inline(always)]
    pub(crate) fn code(&self) -> Option<&Code> {
        self.code.get().and_then(Option::as_ref)
    }

    /// Host memory that the compiled form of an entry takes, about, once somebody needs it.
    pub(crate) fn bytes_max(program: &Program) -> u64 {
        let operations = program.code.len();
        let code = if operations > OPERATIONS_MAX { 0 } else { operations as u64 * BYTES_PER_OPERATION };
        code + size_of::<Self>() as u64
    }

    /// So many threads of the entry are about to run.
    pub(crate) fn before(&self, program: &Arc<Program>, engine: Engine, block: [u32; 3], threads: u64) {
        match engine {
            Engine::Interpreter => {}
            Engine::Compiled => {
                self.compile(program, block);
                self.compile_gangs();
            }
            Engine::Mixed => {
                if self.threads.load(Ordering::Relaxed) >= THREADS_BEFORE_GANGS {
                    return;
                }
                let all = self.threads.fetch_add(threads, Ordering::Relaxed).saturating_add(threads);
                if all >= THREADS_BEFORE {
                    self.compile(program, block);
                }
                if all >= THREADS_BEFORE_GANGS {
                    self.compile_gangs();
                }
            }
        }
    }

    /// The entry runs for long.
    pub(crate) fn meanwhile(&self, program: &Arc<Program>, engine: Engine, block: [u32; 3]) {
        if engine == Engine::Mixed {
            self.compile(program, block);
            self.compile_gangs();
        }
    }

    fn compile_gangs(&self) {
        if let Some(code) = self.code() {
            code.compile_gangs();
        }
    }

    fn compile(&self, program: &Arc<Program>, block: [u32; 3]) {
        self.code.get_or_init(|| {
            let started = Instant::now();
            if program.code.len() > OPERATIONS_MAX || program.widths.len() > REGISTERS_MAX {
                return None;
            }
            let lanes = gang_lanes(block).filter(|_| program.code.len() <= GANG_OPERATIONS_MAX);
            let code = sys::compile(program, lanes);
            let (entry, operations, elapsed) = (&program.name, program.code.len(), started.elapsed());
            match &code {
                Ok(code) => {
                    tracing::debug!(%entry, operations, bytes = code.len(), ?elapsed, "compiled");
                }
                Err(why) => tracing::warn!(%entry, operations, why, "not compiled, but interpreted"),
            }
            code.ok()
        });
    }
}

impl Code {
    /// How often gangs have run, where there is code for them.
    pub(crate) fn gang_counts(&self) -> Option<GangCounts> {
        self.gangs().map(gangs::Gangs::counts)
    }

    /// Runs lanes; hands on those who left in each place. Answers the most fuel that one of them used.
    pub(crate) fn pass(
        &self,
        warp: &mut Warp,
        frame: &mut Frame<'_>,
        pass: Pass,
        mut each: impl FnMut(&mut Warp, Leaving, u32),
    ) -> Result<u32, Faulted> {
        let mut out = std::mem::take(&mut frame.core.out);
        if out.len() < self.ways_out().len() {
            out.resize(self.ways_out().len(), 0);
        }
        let ran = self.run(warp, frame, pass, &mut out);
        if let Some(failure) = ran.failure {
            match failure {
                Failure::Fault(faulted) => return Err(faulted),
                Failure::Panic(panic) => std::panic::resume_unwind(panic),
            }
        }
        for (leaving, lanes) in self.ways_out().iter().zip(&mut out) {
            if *lanes != 0 {
                each(warp, *leaving, std::mem::take(lanes));
            }
        }
        frame.core.out = out;
        Ok(ran.used)
    }
}

impl Code {
    /// Runs all warps of a block that live from one way in on; their groups stand then where they left. Answers which
    /// warp failed, and why.
    pub(crate) fn pass_block(
        &self,
        warps: &mut [Warp],
        frame: &mut Frame<'_>,
        way: u32,
        fuel: Fuel,
    ) -> Result<(), (usize, Faulted)> {
        let mut out = std::mem::take(&mut frame.core.out);
        let ways_out = self.ways_out();
        if out.len() < ways_out.len() {
            out.resize(ways_out.len(), 0);
        }
        let failed = self.run_block(warps, frame, way, fuel, &mut out, |warp, out, together| {
            warp.left_whole = false;
            warp.groups.clear();
            if let Some(place) = together
                && let Leaving::Before(pc) = ways_out[place]
            {
                warp.park(pc, std::mem::take(&mut out[place]), State::Ready);
                warp.left_whole = true;
                return;
            }
            for (leaving, lanes) in ways_out.iter().zip(out).filter(|(_, lanes)| **lanes != 0) {
                match *leaving {
                    Leaving::Exited => warp.live &= !*lanes,
                    Leaving::Before(pc) => warp.park(pc, *lanes, State::Ready),
                }
                *lanes = 0;
            }
        });
        match failed {
            None => {
                frame.core.out = out;
                Ok(())
            }
            Some((index, Failure::Fault(faulted))) => Err((index, faulted)),
            Some((_, Failure::Panic(panic))) => std::panic::resume_unwind(panic),
        }
    }
}

/// Operations of an entry that is compiled for gangs at most.
const GANG_OPERATIONS_MAX: usize = 1 << 10;

/// How many lanes of a block of this shape make a gang: those of all warps stand side by side.
fn gang_lanes([x, y, z]: [u32; 3]) -> Option<usize> {
    let row = [32, 16, 8].into_iter().find(|lanes| x.is_multiple_of(*lanes));
    match (y, z, x) {
        (1, 1, 32..) => Some(32),
        _ => row.map(|lanes| lanes as usize),
    }
}
