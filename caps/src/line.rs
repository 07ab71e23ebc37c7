//! Timelines: what was submitted somewhere, and how far it has passed.

use crate::{Error, Owner};

/// Where work is done in order: a session's streams taken together, or a module's queue. Never names another line once
/// it is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Line {
    pub(crate) index: u16,
    pub(crate) generation: u32,
}

impl Line {
    /// No line.
    pub(crate) const NONE: Self = Self { index: u16::MAX, generation: u32::MAX };
}

#[derive(Debug)]
pub(crate) struct Timeline {
    pub(crate) generation: u32,
    /// `None` for a module's, whose work counts as use whoever it is done for.
    pub(crate) owner: Option<Owner>,
    pub(crate) submitted: u64,
    pub(crate) completed: u64,
    pub(crate) open: bool,
}

/// Every line of a device.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    pub(crate) list: Vec<Timeline>,
    pub(crate) free: Vec<u16>,
}

impl Lines {
    /// The line that is open at a place.
    pub(crate) fn at(&self, place: u64) -> Option<Line> {
        let index = u16::try_from(place).ok()?;
        let timeline = self.list.get(usize::from(index)).filter(|found| found.open)?;
        Some(Line { index, generation: timeline.generation })
    }

    fn find(&self, line: Line) -> Option<&Timeline> {
        let timeline = self.list.get(usize::from(line.index))?;
        (timeline.open && timeline.generation == line.generation).then_some(timeline)
    }

    pub(crate) fn find_mut(&mut self, line: Line) -> Result<&mut Timeline, Error> {
        let timeline = self.list.get_mut(usize::from(line.index));
        let timeline = timeline.filter(|found| found.open && found.generation == line.generation);
        timeline.ok_or(Error::Unknown("line"))
    }

    /// The mark of the next work on a line, which that work has from here on. With an owner: on a line of its own, or
    /// of nobody's.
    #[inline]
    pub(crate) fn advance(&mut self, line: Line, owner: Option<Owner>) -> Result<u64, Error> {
        let timeline = self.find_mut(line)?;
        if owner.is_some() && timeline.owner.is_some() && timeline.owner != owner {
            return Err(Error::Unknown("line"));
        }
        timeline.submitted += 1;
        Ok(timeline.submitted)
    }

    /// Work up to a mark was submitted by somebody else.
    pub(crate) fn reach(&mut self, line: Line, mark: u64) {
        if let Ok(timeline) = self.find_mut(line) {
            timeline.submitted = timeline.submitted.max(mark);
        }
    }

    /// Whether a line is past a mark. A line that is closed has passed everything.
    pub(crate) fn has_passed(&self, line: Line, mark: u64) -> bool {
        self.find(line).is_none_or(|timeline| timeline.completed >= mark)
    }

    /// Whether work on a line counts as an owner's use.
    pub(crate) fn counts_for(&self, line: Line, owner: Owner) -> bool {
        self.find(line).is_some_and(|timeline| timeline.owner.is_none_or(|user| user == owner))
    }
}
