//! Address ranges that later calls must lie in: reservations of device addresses, and registered host memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;

/// One range. While somebody holds the `Arc`, [`Ranges::remove`] waits.
pub(crate) struct Range {
    pub(crate) start: u64,
    bytes: u64,
    /// Where the device sees `start`, for host memory.
    pub(crate) device_start: u64,
}

/// Ranges that do not overlap.
#[derive(Default)]
pub(crate) struct Ranges(RwLock<BTreeMap<u64, Arc<Range>>>);

/// Whether `at .. at + bytes` lies in the range.
fn holds(range: &Range, at: u64, bytes: u64) -> bool {
    let Some(offset) = at.checked_sub(range.start) else { return false };
    offset <= range.bytes && bytes <= range.bytes - offset
}

impl Ranges {
    /// Keeps a range; `false` where it is empty, wraps around or overlaps another.
    pub(crate) fn insert(&self, start: u64, bytes: u64, device_start: u64) -> bool {
        let Some(end) = start.checked_add(bytes) else { return false };
        let mut ranges = self.0.write();
        let free = ranges
            .range(..end)
            .next_back()
            .is_none_or(|(_, before)| before.start.saturating_add(before.bytes) <= start);
        if bytes == 0 || !free {
            return false;
        }
        ranges.insert(start, Arc::new(Range { start, bytes, device_start }));
        true
    }

    /// Whether `at .. at + bytes` lies in one range.
    pub(crate) fn contain(&self, at: u64, bytes: u64) -> bool {
        let ranges = self.0.read();
        ranges.range(..=at).next_back().is_some_and(|(_, range)| holds(range, at, bytes))
    }

    /// The range that `at .. at + bytes` lies in, kept until dropped.
    pub(crate) fn find(&self, at: u64, bytes: u64) -> Option<Arc<Range>> {
        let ranges = self.0.read();
        let (_, range) = ranges.range(..=at).next_back()?;
        holds(range, at, bytes).then(|| Arc::clone(range))
    }

    /// Forgets exactly this range, once nobody holds it.
    pub(crate) fn remove(&self, start: u64, bytes: u64) -> bool {
        let removed = {
            let mut ranges = self.0.write();
            if ranges.get(&start).is_none_or(|range| range.bytes != bytes) {
                return false;
            }
            ranges.remove(&start)
        };
        if let Some(range) = removed {
            while Arc::strong_count(&range) > 1 {
                std::thread::yield_now();
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_what_lies_inside_it_and_nothing_across_its_ends() {
        let ranges = Ranges::default();
        assert!(ranges.insert(0x1000, 0x1000, 0));
        for (at, bytes, inside) in [
            (0x1000, 0x1000, true),
            (0x1fff, 1, true),
            (0x2000, 0, true),
            (0xfff, 2, false),
            (0x1fff, 2, false),
            (0x1001, u64::MAX, false),
            (0, 1, false),
            (0x3000, 1, false),
        ] {
            assert_eq!(ranges.contain(at, bytes), inside, "{at:#x} {bytes:#x}");
            assert_eq!(ranges.find(at, bytes).is_some(), inside, "{at:#x} {bytes:#x}");
        }
    }

    #[test]
    fn overlapping_empty_and_wrapping_ranges_are_refused() {
        let ranges = Ranges::default();
        assert!(ranges.insert(0x1000, 0x1000, 0));
        for (at, bytes) in
            [(0x1000, 0x1000), (0xfff, 2), (0x1fff, 1), (0x0, 0x5000), (0x5000, 0), (u64::MAX, 2)]
        {
            assert!(!ranges.insert(at, bytes, 0), "{at:#x} {bytes:#x}");
        }
        assert!(ranges.insert(0x2000, 0x1000, 0));
        assert!(ranges.insert(0, 0x1000, 0));
    }

    #[test]
    fn only_the_exact_range_is_removed() {
        let ranges = Ranges::default();
        assert!(ranges.insert(0x1000, 0x1000, 0));
        assert!(!ranges.remove(0x1000, 0x800));
        assert!(!ranges.remove(0x1800, 0x800));
        assert!(ranges.remove(0x1000, 0x1000));
        assert!(!ranges.contain(0x1000, 1));
    }
}
