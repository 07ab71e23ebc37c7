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
mod kinds;
mod ops;
mod reach;
#[expect(unsafe_code, reason = "maps, fills and calls code; compiled code calls back with addresses")]
mod sys;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

pub(crate) use emit::Leaving;
pub(crate) use sys::Code;

use context::Failure;

use crate::code::Program;
use crate::exec::{Faulted, Frame, Warp};

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

/// Operations of an entry that is compiled at most: beyond that it takes seconds.
const OPERATIONS_MAX: usize = 1 << 16;

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
}

impl Code {
    /// Runs the lanes of a mask from a way in on, each with so much fuel; hands on those who left in each
    /// place. Answers the least fuel that one of them had left.
    pub(crate) fn pass(
        &self,
        warp: &mut Warp,
        frame: &mut Frame<'_>,
        (way, mask, fuel): (u32, u32, u32),
        mut each: impl FnMut(&mut Warp, Leaving, u32),
    ) -> Result<u32, Faulted> {
        let mut out = std::mem::take(&mut frame.core.out);
        if out.len() < self.ways_out().len() {
            out.resize(self.ways_out().len(), 0);
        }
        let ran = self.run(warp, frame, (way, mask, fuel), &mut out);
        if let Some(failure) = ran.failure {
            match failure {
                Failure::Fault(fault, pc, lane) => return Err((fault, pc, lane)),
                Failure::Panic(panic) => std::panic::resume_unwind(panic),
            }
        }
        for (leaving, lanes) in self.ways_out().iter().zip(&mut out) {
            if *lanes != 0 {
                each(warp, *leaving, std::mem::take(lanes));
            }
        }
        frame.core.out = out;
        Ok(ran.left)
    }
}

/// So many threads of an entry are about to run.
pub(crate) fn before(program: &Program, engine: Engine, threads: u64) {
    match engine {
        Engine::Interpreter => {}
        Engine::Compiled => compile(program),
        Engine::Mixed => {
            let compiled = &program.compiled;
            if compiled.code.get().is_some() {
                return;
            }
            let all = compiled.threads.fetch_add(threads, Ordering::Relaxed).saturating_add(threads);
            if all >= THREADS_BEFORE {
                compile(program);
            }
        }
    }
}

/// An entry runs for long.
pub(crate) fn meanwhile(program: &Program, engine: Engine) {
    if engine == Engine::Mixed {
        compile(program);
    }
}

fn compile(program: &Program) {
    program.compiled.code.get_or_init(|| {
        let started = Instant::now();
        if program.code.len() > OPERATIONS_MAX {
            return None;
        }
        let code = sys::compile(program);
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
