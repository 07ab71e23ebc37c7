//! From an address to the range it lies in.

use std::collections::BTreeMap;

/// Ranges of addresses that do not overlap, each with a value.
pub(crate) struct Map<T>(BTreeMap<u64, (u64, T)>);

/// The range that an address lies in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found<'a, T> {
    /// First address of the range.
    pub(crate) start: u64,
    /// Its length.
    pub(crate) bytes: u64,
    /// Its value.
    pub(crate) value: &'a T,
}

impl<T> Map<T> {
    pub(crate) fn new() -> Map<T> {
        Map(BTreeMap::new())
    }

    /// Adds a range; gives the value back where it is empty, wraps around or overlaps another.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn insert(&mut self, start: u64, bytes: u64, value: T) -> Result<(), T> {
        if bytes == 0 || start.checked_add(bytes - 1).is_none() || self.overlaps(start, bytes) {
            return Err(value);
        }
        self.0.insert(start, (bytes, value));
        Ok(())
    }

    /// Whether a range has addresses with another in common. One that wraps around ends at the last address.
    pub(crate) fn overlaps(&self, start: u64, bytes: u64) -> bool {
        let Some(more) = bytes.checked_sub(1) else { return false };
        let before = self.0.range(..=start.saturating_add(more)).next_back();
        before.is_some_and(|(known, (length, _))| known + (length - 1) >= start)
    }

    /// Takes out the range that begins at `start`, if its value is as it should be.
    pub(crate) fn remove(&mut self, start: u64, is: impl FnOnce(&T) -> bool) -> Option<T> {
        if !is(&self.0.get(&start)?.1) {
            return None;
        }
        self.0.remove(&start).map(|(_, value)| value)
    }

    /// Takes out every range whose value says so.
    pub(crate) fn remove_all(&mut self, ends: impl Fn(&T) -> bool) -> Vec<T> {
        self.0.extract_if(.., |_, (_, value)| ends(value)).map(|(_, (_, value))| value).collect()
    }

    /// The range that `address` lies in.
    #[inline]
    pub(crate) fn find(&self, address: u64) -> Option<Found<'_, T>> {
        let (start, (bytes, value)) = self.0.range(..=address).next_back()?;
        (address - start < *bytes).then_some(Found { start: *start, bytes: *bytes, value })
    }

    /// All ranges.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Found<'_, T>> {
        self.0.iter().map(|(start, (bytes, value))| Found { start: *start, bytes: *bytes, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_in_its_range_and_not_beyond() {
        let mut map = Map::new();
        map.insert(0x1000, 0x100, 'a').unwrap();
        map.insert(0x1100, 1, 'b').unwrap();
        assert_eq!(map.find(0xFFF), None);
        assert_eq!(map.find(0x1000), Some(Found { start: 0x1000, bytes: 0x100, value: &'a' }));
        assert_eq!(map.find(0x10FF).unwrap().value, &'a');
        assert_eq!(map.find(0x1100).unwrap().value, &'b');
        assert_eq!(map.find(0x1101), None);
    }

    #[test]
    fn ranges_do_not_overlap() {
        let mut map = Map::new();
        map.insert(0x1000, 0x100, 1).unwrap();
        for (start, bytes) in
            [(0x1000, 1), (0x10FF, 1), (0xFFF, 2), (0xF00, 0x1000), (0x1080, 0x10), (0x2000, 0)]
        {
            assert_eq!(map.insert(start, bytes, 2), Err(2), "{start:x} {bytes:x}");
        }
        assert_eq!(map.insert(u64::MAX, 2, 2), Err(2));
        map.insert(u64::MAX, 1, 3).unwrap();
        assert_eq!(map.find(u64::MAX).unwrap().value, &3);
        map.insert(0xF00, 0x100, 4).unwrap();
    }

    #[test]
    fn only_the_start_of_a_range_removes_it() {
        let mut map = Map::new();
        map.insert(0x1000, 0x100, 1).unwrap();
        assert_eq!(map.remove(0x1001, |_| true), None);
        assert_eq!(map.remove(0x1000, |value| *value == 2), None);
        assert_eq!(map.remove(0x1000, |_| true), Some(1));
        assert_eq!(map.find(0x1000), None);
    }
}
