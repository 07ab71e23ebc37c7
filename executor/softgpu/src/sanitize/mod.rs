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
mod watch;

use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Instant;

use bulkhead_gpu::StreamId;
use parking_lot::{Mutex, RwLock};

pub use found::{Finding, Findings, Leak, Mistake, Other};

use crate::exec::{Did, Grid, Observer, Watched};
use crate::wire::Out;
use memory::Allocations;

/// Places in which mistakes are told apart.
const FINDINGS_MAX: usize = 4096;
/// Leaks that are told.
const LEAKS_MAX: usize = 4096;

/// What a sanitizer looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tool {
    /// Reads of memory that nobody has written.
    Initialization,
    /// Races for shared and global memory.
    Races,
    /// Barriers and collective operations.
    Synchronization,
    /// Memory that nobody frees.
    Leaks,
}

impl Tool {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Initialization, Self::Races, Self::Synchronization, Self::Leaks];

    /// What people call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Initialization => "initcheck",
            Self::Races => "racecheck",
            Self::Synchronization => "synccheck",
            Self::Leaks => "leakcheck",
        }
    }
}

impl Mistake {
    /// The tool that looks for it.
    #[must_use]
    pub fn tool(self) -> Tool {
        match self {
            Self::GlobalUnwritten | Self::SharedUnwritten => Tool::Initialization,
            Self::ReadAfterWrite
            | Self::WriteAfterWrite
            | Self::WriteAfterRead
            | Self::GlobalReadAfterWrite
            | Self::GlobalWriteAfterWrite
            | Self::GlobalWriteAfterRead => Tool::Races,
            Self::BarrierExited
            | Self::BarrierApart
            | Self::NeverMet
            | Self::LanesExited
            | Self::OwnLane
            | Self::Masks => Tool::Synchronization,
        }
    }
}

/// Looks for mistakes of a device's kernels.
#[derive(Debug)]
pub struct Sanitizer(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    tools: Vec<Tool>,
    is_successor: bool,
    memory: RwLock<Allocations>,
    found: Mutex<Found>,
}

#[derive(Debug, Default)]
struct Found {
    list: Vec<Finding>,
    by_place: HashMap<Place, usize>,
    left_out: u64,
    /// Where each finding is written when it comes up first: the context may be lost at any moment.
    journal: Option<File>,
}

/// A mistake in one place of a text.
type Place = (Mistake, u64, (u32, u32), Option<(u32, u32)>);

impl Sanitizer {
    /// One that looks for these, and writes what it finds to a journal too. There may have been another before, which was
    /// lost.
    #[must_use]
    pub fn new(tools: &[Tool], journal: Option<File>, is_successor: bool) -> Self {
        let found = Found { journal, ..Found::default() };
        let shared = Shared {
            tools: tools.to_vec(),
            is_successor,
            memory: RwLock::default(),
            found: Mutex::new(found),
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

impl Shared {
    fn looks_for(&self, tool: Tool) -> bool {
        self.tools.contains(&tool)
    }

    /// Adds a finding, or how often it was made to what is known of it.
    fn add(&self, finding: Finding) {
        let mut found = self.found.lock();
        let other = finding.other.map(|other| other.at);
        // A line and column stand in one entry.
        let place = (finding.mistake, finding.text, finding.at, other);
        if let Some(index) = found.by_place.get(&place).copied() {
            found.list[index].count += finding.count;
            return;
        }
        if found.list.len() >= FINDINGS_MAX {
            found.left_out += finding.count;
            return;
        }
        if let Some(journal) = &mut found.journal {
            let mut out = Out::default();
            finding.put(&mut out);
            if let Err(error) = journal.write_all(&out.bytes()) {
                tracing::warn!(%error, "a finding is not kept");
            }
        }
        let index = found.list.len();
        found.by_place.insert(place, index);
        found.list.push(finding);
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
            Did::Launch(_) | Did::ToHost(_) | Did::Record | Did::Publish => {}
        }
    }
}
