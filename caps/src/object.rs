//! What capabilities stand for, and what has used it last.

use crate::{Line, line::Lines};

/// Names an object of a tree until it is freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(pub(crate) u32);

impl ObjectId {
    /// Its place in a table of objects.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0
    }
}

/// What becomes of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectState {
    /// Capabilities name it.
    Live,
    /// None does any more; work that uses it may still run.
    Draining,
    /// Such work ran on beyond the deadline: nobody gets it before that work is known to be gone.
    Quarantined,
    /// No work uses it: it may be given back.
    Quiescent,
    /// Given back.
    Free,
}

#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) state: ObjectState,
    /// Capabilities that name it.
    pub(crate) nodes: u32,
    /// Revocations that ended a capability for it and are not quiescent: work that they wait for may use it.
    pub(crate) holds: u32,
    /// Which of all the objects that were ever made: an [`ObjectId`] is used again.
    pub(crate) number: u64,
    pub(crate) deadline_ns: u64,
    /// The high-water mark of each line that ever used it.
    last_use: Vec<(Line, u64)>,
}

impl Object {
    pub(crate) fn new(number: u64) -> Self {
        Self { state: ObjectState::Live, nodes: 0, holds: 0, number, deadline_ns: 0, last_use: Vec::new() }
    }

    #[inline]
    pub(crate) fn used(&mut self, line: Line, mark: u64) {
        match self.last_use.iter_mut().find(|(known, _)| *known == line) {
            Some((_, last)) => *last = mark,
            None => self.last_use.push((line, mark)),
        }
    }

    /// Forgets a line, which is closed.
    pub(crate) fn forget(&mut self, line: Line) {
        self.last_use.retain(|(used, _)| *used != line);
    }

    /// The last use by every line that is open.
    pub(crate) fn uses(&self) -> impl Iterator<Item = (Line, u64)> {
        self.last_use.iter().copied()
    }

    pub(crate) fn is_passed(&self, lines: &Lines) -> bool {
        self.uses().all(|(line, mark)| lines.has_passed(line, mark))
    }
}
