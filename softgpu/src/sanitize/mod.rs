//! Looks for mistakes of kernels that a device does not tell of: reads of what nobody has written, races for shared and
//! global memory, barriers and collective operations that not all come to, memory that nobody frees.
//!
//! What a program has allocated, it tells the [`Sanitizer`] itself. Accesses that go beyond that are not looked for here:
//! the guard's text has moved them into the session's memory.
#![allow(
    clippy::cast_possible_truncation,
    reason = "lane numbers are below 32, and offsets of shared memory are checked against what a block has"
)]

mod bits;
mod found;
mod global;
mod heard;
mod held;
mod known;
mod meetings;
mod memory;
mod race;
mod shared;
mod tool;
mod touches;
mod watch;

use std::fs::File;
use std::sync::Arc;
use std::time::Instant;

use bulkhead_gpu::StreamId;
use parking_lot::{Mutex, RwLock};

pub use found::{Finding, Findings, Leak, Mistake, Other};
pub use tool::Tool;

use crate::exec::{Did, Grid, Observer, Watched};
use shared::{Found, Shared};

/// Leaks that are told.
const LEAKS_MAX: usize = 4096;

/// Looks for mistakes of a device's kernels.
#[derive(Debug)]
pub struct Sanitizer(Arc<Shared>);

impl Sanitizer {
    /// One that looks for these, and writes what it finds to a journal too. There may have been another before, which was
    /// lost.
    #[must_use]
    pub fn new(tools: &[Tool], journal: Option<File>, is_successor: bool) -> Self {
        let shared = Shared {
            tools: tools.to_vec(),
            is_successor,
            memory: RwLock::default(),
            found: Mutex::new(Found::new(journal)),
        };
        Self(Arc::new(shared))
    }

    /// A program has allocated memory; `false` where that cannot be, or is too much.
    #[must_use]
    pub fn allocated(&self, address: u64, bytes: u64) -> bool {
        self.0.memory.write().add(address, bytes)
    }

    /// A program has freed memory; `false` where it had not allocated it.
    #[must_use]
    pub fn freed(&self, address: u64) -> bool {
        self.0.memory.write().remove(address)
    }

    /// A context has ended, and memory with it that nobody had freed; `false` where it was not allocated.
    #[must_use]
    pub fn left(&self, address: u64) -> bool {
        self.0.memory.write().leave(address)
    }

    /// Other processes may write memory from now on.
    #[must_use]
    pub fn exported(&self, address: u64) -> bool {
        self.0.memory.write().share(address)
    }

    /// What was found so far, and what is allocated yet.
    #[must_use]
    pub fn findings(&self) -> Findings {
        let memory = self.0.memory.read();
        let left = if self.0.looks_for(Tool::Leaks) { memory.all() } else { Vec::new() };
        let leak =
            |known: &memory::Known| Leak { number: known.number, address: known.address, bytes: known.bytes };
        let leaks: Vec<Leak> = left.iter().take(LEAKS_MAX).map(leak).collect();
        let found = self.0.found.lock();
        Findings {
            list: found.list.clone(),
            left_out: found.left_out,
            leaks_left_out: memory.left_out() + (left.len() - leaks.len()) as u64,
            leaks,
            allocations: memory.made(),
            is_rest: self.0.is_successor,
        }
    }
}

impl Observer for Sanitizer {
    fn launch(&self, _: StreamId, grid: &Grid) -> Option<Arc<dyn Watched>> {
        let watched = self.0.tools.iter().any(|tool| *tool != Tool::Leaks);
        watched.then(|| Arc::new(watch::Launch::new(Arc::clone(&self.0), grid)) as Arc<dyn Watched>)
    }

    fn did(&self, _: StreamId, what: Did<'_>, _: Instant, _: Instant) {
        if !self.0.looks_for(Tool::Initialization) {
            return;
        }
        match what {
            Did::ToDevice { to, bytes } | Did::Fill { to, bytes } => self.0.memory.write().write(to, bytes),
            Did::OnDevice { to, from, bytes } => self.0.memory.write().copy(to, from, bytes),
            Did::Launch { .. } | Did::ToHost(_) | Did::Record | Did::Publish => {}
        }
    }
}
