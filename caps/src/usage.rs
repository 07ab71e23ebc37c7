//! What work used each object last.
//!
//! The latest use of each object is one word: admitting work writes one for every object that it names, and the words
//! of thousands of objects stay in the first cache.

use crate::{Line, ObjectId, line::Lines};

const MARK_BITS: u32 = u64::BITS - u16::BITS;
/// Stands for every mark from here on; no line passes it.
const MARK_MAX: u64 = (1 << MARK_BITS) - 1;

/// A line's place above, the mark of its latest use below.
#[derive(Debug, Clone, Copy)]
struct Latest(u64);

impl Latest {
    const NONE: Self = Self::of(Line::NONE, 0);

    #[inline]
    const fn of(line: Line, mark: u64) -> Self {
        let mark = if mark < MARK_MAX { mark } else { MARK_MAX };
        Self((line.index as u64) << MARK_BITS | mark)
    }

    const fn mark(self) -> u64 {
        let mark = self.0 & MARK_MAX;
        if mark == MARK_MAX { u64::MAX } else { mark }
    }

    const fn place(self) -> u64 {
        self.0 >> MARK_BITS
    }
}

/// The last use of every object by every line that is open: none is closed without being forgotten here.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    /// By the line that used it latest: mostly there is no other.
    latest: Vec<Latest>,
    /// By each other line.
    others: Vec<Box<[Latest]>>,
}

impl Usage {
    /// An object that nothing has used.
    pub(crate) fn insert(&mut self, object: ObjectId) {
        let index = object.0 as usize;
        if index >= self.latest.len() {
            self.latest.resize(index + 1, Latest::NONE);
            self.others.resize(index + 1, Box::default());
        }
        if let (Some(latest), Some(others)) = (self.latest.get_mut(index), self.others.get_mut(index)) {
            *latest = Latest::NONE;
            *others = Box::default();
        }
    }

    #[inline]
    pub(crate) fn used(&mut self, object: ObjectId, line: Line, mark: u64) {
        let Some(latest) = self.latest.get_mut(object.0 as usize) else { return };
        let before = std::mem::replace(latest, Latest::of(line, mark));
        if before.place() != latest.place() {
            self.used_by_another(object, before);
        }
    }

    #[cold]
    fn used_by_another(&mut self, object: ObjectId, before: Latest) {
        let index = object.0 as usize;
        let (Some(latest), Some(others)) = (self.latest.get(index), self.others.get_mut(index)) else {
            return;
        };
        let kept = others.iter().copied().chain([before]);
        let others_now =
            kept.filter(|one| one.place() != latest.place() && one.place() != Latest::NONE.place()).collect();
        *others = others_now;
    }

    /// Forgets a line, which is closed.
    pub(crate) fn forget(&mut self, line: Line) {
        let gone = Latest::of(line, 0).place();
        for latest in &mut self.latest {
            if latest.place() == gone {
                *latest = Latest::NONE;
            }
        }
        for others in &mut self.others {
            if others.iter().any(|one| one.place() == gone) {
                *others = others.iter().copied().filter(|one| one.place() != gone).collect();
            }
        }
    }

    /// The last use of an object by every line that is open.
    pub(crate) fn of(&self, object: ObjectId, lines: &Lines) -> impl Iterator<Item = (Line, u64)> {
        let index = object.0 as usize;
        let others = self.others.get(index).into_iter().flatten();
        let uses = self.latest.get(index).into_iter().chain(others);
        uses.filter_map(move |one| Some((lines.at(one.place())?, one.mark())))
    }

    /// Whether every line is past its last use of an object.
    pub(crate) fn is_passed(&self, object: ObjectId, lines: &Lines) -> bool {
        self.of(object, lines).all(|(line, mark)| lines.has_passed(line, mark))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Tree};

    #[test]
    fn every_line_is_remembered_with_its_last_use() {
        let mut tree = Tree::new(Limits { nodes_per_root: 1, last_generation: u32::MAX });
        let [a, b, c] = [0; 3].map(|_| tree.open_line(None));
        let object = ObjectId(3);
        let mut usage = Usage::default();
        usage.insert(object);
        for (line, mark) in [(a, 1), (b, 7), (a, 2), (c, 5), (b, 8), (b, 9)] {
            usage.used(object, line, mark);
        }
        let mut uses: Vec<_> = usage.of(object, &tree.lines).collect();
        uses.sort_unstable();
        assert_eq!(uses, [(a, 2), (b, 9), (c, 5)]);
        usage.forget(b);
        usage.forget(a);
        assert_eq!(usage.of(object, &tree.lines).collect::<Vec<_>>(), [(c, 5)]);
        usage.insert(object);
        assert_eq!(usage.of(object, &tree.lines).count(), 0);
    }

    #[test]
    fn a_mark_that_does_not_fit_is_never_passed() {
        let mut tree = Tree::new(Limits { nodes_per_root: 1, last_generation: u32::MAX });
        let line = tree.open_line(None);
        let object = ObjectId(0);
        let mut usage = Usage::default();
        usage.insert(object);
        for mark in [MARK_MAX, MARK_MAX + 1, u64::MAX] {
            usage.used(object, line, mark);
            assert_eq!(usage.of(object, &tree.lines).collect::<Vec<_>>(), [(line, u64::MAX)]);
        }
        usage.used(object, line, MARK_MAX - 1);
        assert_eq!(usage.of(object, &tree.lines).collect::<Vec<_>>(), [(line, MARK_MAX - 1)]);
    }
}
