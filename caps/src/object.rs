//! What capabilities stand for, and what has used it last.

use crate::{Line, line::Timeline};

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
    /// Which of all the objects that were ever made: an [`ObjectId`] is used again.
    pub(crate) number: u64,
    /// Capabilities that name it.
    pub(crate) nodes: u32,
    /// The high-water mark of each line that ever used it.
    pub(crate) last_use: Vec<(Line, u64)>,
    pub(crate) deadline_ns: u64,
}

impl Object {
    pub(crate) fn new(number: u64) -> Self {
        Self { state: ObjectState::Live, number, nodes: 0, last_use: Vec::new(), deadline_ns: 0 }
    }

    pub(crate) fn used(&mut self, line: Line, mark: u64) {
        match self.last_use.iter_mut().find(|(known, _)| *known == line) {
            Some((_, last)) => *last = mark,
            None => self.last_use.push((line, mark)),
        }
    }

    pub(crate) fn is_passed(&self, lines: &[Timeline]) -> bool {
        self.last_use.iter().all(|(line, mark)| has_passed(lines, *line, *mark))
    }
}

/// Whether a line is past a mark. A line that is closed has passed everything.
pub(crate) fn has_passed(lines: &[Timeline], line: Line, mark: u64) -> bool {
    lines.get(line.0 as usize).is_none_or(|line| !line.open || line.completed >= mark)
}
