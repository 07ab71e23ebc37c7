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

/// One cache line, as a node is.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Object {
    pub(crate) state: ObjectState,
    /// Capabilities that name it.
    pub(crate) nodes: u32,
    /// Revocations that ended a capability for it and are not quiescent: work that they wait for may use it.
    pub(crate) holds: u32,
    /// Which of all the objects that were ever made: an [`ObjectId`] is used again.
    pub(crate) number: u64,
    pub(crate) deadline_ns: u64,
    /// The last use by the line that used it latest: mostly there is no other, and this needs no second cache line.
    latest: (Line, u64),
    /// The last use by each other line.
    others: Box<[(Line, u64)]>,
}

const _: () = assert!(size_of::<Object>() == 64);

impl Object {
    pub(crate) fn new(number: u64) -> Self {
        Self {
            state: ObjectState::Live,
            nodes: 0,
            holds: 0,
            number,
            deadline_ns: 0,
            latest: (Line::NONE, 0),
            others: Box::default(),
        }
    }

    #[inline]
    pub(crate) fn used(&mut self, line: Line, mark: u64) {
        if self.latest.0 != line {
            self.used_by_another(line);
        }
        self.latest.1 = mark;
    }

    #[cold]
    fn used_by_another(&mut self, line: Line) {
        let before = std::mem::replace(&mut self.latest, (line, 0));
        let others = self.others.iter().copied().chain([before]);
        self.others = others.filter(|(used, _)| *used != line && *used != Line::NONE).collect();
    }

    /// Forgets a line, which is closed.
    pub(crate) fn forget(&mut self, line: Line) {
        if self.latest.0 == line {
            self.latest = (Line::NONE, 0);
        }
        if self.others.iter().any(|(used, _)| *used == line) {
            self.others = self.others.iter().copied().filter(|(used, _)| *used != line).collect();
        }
    }

    /// The last use by every line that is open.
    pub(crate) fn uses(&self) -> impl Iterator<Item = (Line, u64)> {
        [self.latest].into_iter().chain(self.others.iter().copied()).filter(|(line, _)| *line != Line::NONE)
    }

    pub(crate) fn is_passed(&self, lines: &Lines) -> bool {
        self.uses().all(|(line, mark)| lines.has_passed(line, mark))
    }
}
