//! What a program said of its managed memory, by page.

use std::collections::BTreeMap;

/// Hints are kept for whole pages of this size, as the driver has them.
const PAGE_BYTES: u64 = 4096;

/// Where the program wants memory to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Where {
    Device,
    Host,
    /// A node of the host's.
    Node(i32),
}

/// What was said of a page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Hint {
    pub(crate) read_mostly: bool,
    pub(crate) preferred: Option<Where>,
    pub(crate) by_device: bool,
    pub(crate) by_host: bool,
    pub(crate) prefetched: Option<Where>,
}

/// What was said of an allocation: each hint holds from its offset to the next one's.
#[derive(Debug, Default)]
pub(crate) struct Hints(BTreeMap<u64, Hint>);

impl Hints {
    fn at(&self, offset: u64) -> Hint {
        self.0.range(..=offset).next_back().map(|(_, hint)| *hint).unwrap_or_default()
    }

    /// The pages from `start` to before `end`.
    fn pages(start: u64, end: u64) -> (u64, u64) {
        let start = start / PAGE_BYTES * PAGE_BYTES;
        (start, end.checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX))
    }

    /// Changes what is said of all pages of a range.
    pub(crate) fn change(&mut self, start: u64, end: u64, mut change: impl FnMut(&mut Hint)) {
        let (start, end) = Hints::pages(start, end);
        for edge in [start, end] {
            let hint = self.at(edge);
            self.0.insert(edge, hint);
        }
        for (_, hint) in self.0.range_mut(start..end) {
            change(hint);
        }
        // What says the same as what stands before it is not needed.
        let mut before = Hint::default();
        self.0.retain(|_, hint| std::mem::replace(&mut before, *hint) != *hint);
    }

    /// What all pages of a range have in common; none where they differ.
    pub(crate) fn common<T: PartialEq>(&self, start: u64, end: u64, of: impl Fn(&Hint) -> T) -> Option<T> {
        let (start, end) = Hints::pages(start, end);
        let first = of(&self.at(start));
        self.0.range(start..end).all(|(_, hint)| of(hint) == first).then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = PAGE_BYTES;

    #[test]
    fn hints_are_those_of_the_pages_they_were_given_for() {
        let mut hints = Hints::default();
        let mostly = |hint: &Hint| hint.read_mostly;
        assert_eq!(hints.common(0, 100 * PAGE, mostly), Some(false));
        hints.change(2 * PAGE, 4 * PAGE, |hint| hint.read_mostly = true);
        hints.change(3 * PAGE + 5, 3 * PAGE + 6, |hint| hint.preferred = Some(Where::Host));
        assert_eq!(hints.common(2 * PAGE, 4 * PAGE, mostly), Some(true));
        assert_eq!(hints.common(0, 4 * PAGE, mostly), None);
        assert_eq!(hints.common(4 * PAGE, 9 * PAGE, mostly), Some(false));
        assert_eq!(hints.common(3 * PAGE, 4 * PAGE, |hint| hint.preferred), Some(Some(Where::Host)));
        assert_eq!(hints.common(2 * PAGE, 4 * PAGE, |hint| hint.preferred), None);
        hints.change(0, 9 * PAGE, |hint| *hint = Hint::default());
        assert!(hints.0.is_empty(), "{hints:?}");
    }
}
