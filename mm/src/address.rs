//! Device addresses and ranges of them.

use std::fmt;

/// An address in the device's address space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceAddress(pub u64);

impl fmt::Debug for DeviceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A range of device addresses that does not wrap around.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Range {
    start: u64,
    end: u64,
}

impl Range {
    /// The `bytes` from `start` on; `None` where that wraps around.
    #[must_use]
    pub const fn new(start: DeviceAddress, bytes: u64) -> Option<Self> {
        match start.0.checked_add(bytes) {
            Some(end) => Some(Self { start: start.0, end }),
            None => None,
        }
    }

    /// From `start` up to, and without, `end`, which is not below it.
    pub(crate) const fn between(start: u64, end: u64) -> Self {
        assert!(start <= end, "a range does not end before it starts");
        Self { start, end }
    }

    /// The first address.
    #[must_use]
    pub const fn start(self) -> DeviceAddress {
        DeviceAddress(self.start)
    }

    /// The address after the last.
    #[must_use]
    pub const fn end(self) -> DeviceAddress {
        DeviceAddress(self.end)
    }

    /// How many bytes it holds.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.end - self.start
    }

    /// Whether all of `other` lies in it.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// Whether it has an address in common with `other`.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }
}

impl fmt::Debug for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}..{:#x}", self.start, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_wraps_around_is_not_made() {
        assert!(Range::new(DeviceAddress(u64::MAX), 1).is_none());
        assert!(Range::new(DeviceAddress(u64::MAX), 0).is_some());
    }

    #[test]
    fn ranges_that_touch_do_not_overlap() {
        let low = Range::between(0, 8);
        let high = Range::between(8, 16);
        assert!(!low.overlaps(high) && !high.overlaps(low));
        assert!(low.overlaps(Range::between(7, 9)));
        assert!(Range::between(0, 16).contains(high) && !low.contains(high));
    }
}
