//! What a sanitizer and all its watches share: what is known of memory, and what was found.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;

use parking_lot::{Mutex, RwLock};

use super::found::{Finding, Mistake};
use super::memory::Allocations;
use super::tool::Tool;
use crate::wire::Out;

/// Places in which mistakes are told apart.
pub(super) const FINDINGS_MAX: usize = 4096;

/// What the watches of a sanitizer share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) tools: Vec<Tool>,
    pub(super) is_successor: bool,
    pub(super) memory: RwLock<Allocations>,
    pub(super) found: Mutex<Found>,
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) list: Vec<Finding>,
    by_place: HashMap<Place, usize>,
    pub(super) left_out: u64,
    /// Where each finding is written when it comes up first: the context may be lost at any moment.
    journal: Option<File>,
}

/// A mistake in one place of a text.
type Place = (Mistake, u64, (u32, u32), Option<(u32, u32)>);

impl Found {
    /// Nothing yet; what will be is written to a journal too.
    pub(super) fn new(journal: Option<File>) -> Self {
        Self { journal, ..Self::default() }
    }
}

impl Shared {
    /// Whether it looks for that.
    pub(super) fn looks_for(&self, tool: Tool) -> bool {
        self.tools.contains(&tool)
    }

    /// Adds a finding, or how often it was made to what is known of it.
    pub(super) fn add(&self, finding: Finding) {
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
