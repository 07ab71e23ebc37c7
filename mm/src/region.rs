//! Which addresses of a window are taken, in whole granules.
//!
//! Physical memory comes in pages of [`PAGE_BYTES`], sinks in granules of [`ARENA_GRANULE_BYTES`], which can only be
//! replaced as a whole. So whatever is mapped starts with a granule, and every granule it touches belongs to it alone;
//! the pages that it leaves of its last granule hold a [`filler`].
//!
//! Planning changes nothing: [`Region::place`] says where memory would go, [`Region::take`] commits once the
//! executor has mapped it.

use std::collections::BTreeMap;

use crate::{ARENA_GRANULE_BYTES, DeviceAddress, PAGE_BYTES, Range};

/// What has up to this many bytes does not cross a multiple of it, so that its addresses share a high word.
pub const SEGMENT_BYTES: u64 = 4 << 30;

const _: () = assert!(SEGMENT_BYTES.is_multiple_of(ARENA_GRANULE_BYTES));

/// Why a region refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RegionError {
    /// A range of no bytes has no address.
    #[error("a range holds at least one byte")]
    Empty,
    /// No gap is large enough.
    #[error("there is no room for {bytes} bytes in one piece")]
    Full {
        /// What was asked for.
        bytes: u64,
    },
    /// The range is not what the operation needs it to be (free, taken): the caller's books are wrong.
    #[error("{range:?} is not {expected}")]
    Mismatch {
        /// The range.
        range: Range,
        /// What it should have been.
        expected: &'static str,
    },
}

/// A range of addresses, and what is taken of it.
#[derive(Debug, Clone)]
pub struct Region {
    bounds: Range,
    /// What is taken, by start, and where it ends. The rest of its last granule is taken with it.
    taken: BTreeMap<u64, u64>,
}

impl Region {
    /// The whole granules within `bounds`, none of them taken.
    #[must_use]
    pub fn new(bounds: Range) -> Self {
        let end = bounds.end().0 - bounds.end().0 % ARENA_GRANULE_BYTES;
        let start = bounds.start().0.checked_next_multiple_of(ARENA_GRANULE_BYTES).unwrap_or(end).min(end);
        Self { bounds: Range::between(start, end), taken: BTreeMap::new() }
    }

    /// All of it.
    #[must_use]
    pub fn bounds(&self) -> Range {
        self.bounds
    }

    /// Says where `bytes`, rounded up to whole pages, would go: into the smallest gap that has room, as far down in
    /// it as may be. Up to [`SEGMENT_BYTES`] do not cross a multiple of that. Changes nothing.
    pub fn place(&self, bytes: u64) -> Result<Range, RegionError> {
        if bytes == 0 {
            return Err(RegionError::Empty);
        }
        let full = RegionError::Full { bytes };
        let rounded = bytes.checked_next_multiple_of(PAGE_BYTES).ok_or(full)?;
        self.gaps()
            .filter_map(|gap| Some((gap.bytes(), place_in(gap, rounded)?)))
            .min_by_key(|(gap_bytes, range)| (*gap_bytes, range.start()))
            .map(|(_, range)| range)
            .ok_or(full)
    }

    /// The same at a multiple of `alignment`, a power of two.
    pub fn place_aligned(&self, bytes: u64, alignment: u64) -> Result<Range, RegionError> {
        if alignment <= ARENA_GRANULE_BYTES {
            return self.place(bytes);
        }
        if bytes == 0 {
            return Err(RegionError::Empty);
        }
        let full = RegionError::Full { bytes };
        let rounded = bytes.checked_next_multiple_of(PAGE_BYTES).ok_or(full)?;
        self.gaps()
            .filter_map(|gap| {
                let mut start = gap.start().0.checked_next_multiple_of(alignment)?;
                if crosses_a_segment(start, rounded) {
                    // A smaller alignment divides a segment, a larger one is a multiple of it, and never crosses.
                    start = start.checked_next_multiple_of(SEGMENT_BYTES)?;
                }
                let range = Range::new(DeviceAddress(start), rounded)?;
                gap.contains(granules(range)).then_some((gap.bytes(), range))
            })
            .min_by_key(|(gap_bytes, range)| (*gap_bytes, range.start()))
            .map(|(_, range)| range)
            .ok_or(full)
    }

    /// Says whether `bytes`, rounded up to whole pages, can go to `start`; `None` where they cannot.
    #[must_use]
    pub fn place_at(&self, start: DeviceAddress, bytes: u64) -> Option<Range> {
        let range = Range::new(start, bytes.checked_next_multiple_of(PAGE_BYTES)?)?;
        self.is_free(range).then_some(range)
    }

    fn is_free(&self, range: Range) -> bool {
        is_well_placed(range) && self.gaps().any(|gap| gap.contains(granules(range)))
    }

    /// Takes a range that [`Region::place`] could have answered, with all of its granules.
    pub fn take(&mut self, range: Range) -> Result<(), RegionError> {
        if !self.is_free(range) {
            return Err(RegionError::Mismatch { range, expected: "a free place for memory" });
        }
        self.taken.insert(range.start().0, range.end().0);
        Ok(())
    }

    /// Gives a taken range back. Nothing may be mapped there any more but sinks.
    pub fn release(&mut self, range: Range) -> Result<(), RegionError> {
        if !self.is_taken(range) {
            return Err(RegionError::Mismatch { range, expected: "taken" });
        }
        self.taken.remove(&range.start().0);
        Ok(())
    }

    /// Whether exactly this range is taken.
    #[must_use]
    pub fn is_taken(&self, range: Range) -> bool {
        self.taken.get(&range.start().0) == Some(&range.end().0)
    }

    /// The taken range that `address` lies in; `None` also in a filler.
    #[must_use]
    pub fn holding(&self, address: DeviceAddress) -> Option<Range> {
        let (&start, &end) = self.taken.range(..=address.0).next_back()?;
        (address.0 < end).then_some(Range::between(start, end))
    }

    /// What is taken, by start.
    pub fn taken(&self) -> impl Iterator<Item = Range> {
        self.taken.iter().map(|(start, end)| Range::between(*start, *end))
    }

    /// How many bytes are taken, fillers not counted.
    #[must_use]
    pub fn taken_bytes(&self) -> u64 {
        self.taken().map(Range::bytes).sum()
    }

    /// What lies between the granules that are taken, by start.
    fn gaps(&self) -> impl Iterator<Item = Range> {
        let mut from = self.bounds.start().0;
        let end = Range::between(self.bounds.end().0, self.bounds.end().0);
        self.taken().map(granules).chain([end]).filter_map(move |next| {
            let gap = Range::between(from, next.start().0);
            from = next.end().0;
            (gap.bytes() > 0).then_some(gap)
        })
    }
}

/// A range rounded out to the whole granules that it touches. (One that reaches into the last granule of all
/// addresses, where no slot is, ends before that granule's last byte.)
#[must_use]
pub fn granules(range: Range) -> Range {
    let start = range.start().0 - range.start().0 % ARENA_GRANULE_BYTES;
    let end = range.end().0.checked_next_multiple_of(ARENA_GRANULE_BYTES).unwrap_or(u64::MAX);
    Range::between(start, end)
}

/// What a range leaves of its last granule. Its sinks go with that granule, so it has to hold others.
#[must_use]
pub fn filler(range: Range) -> Option<Range> {
    let (end, granule_end) = (range.end().0, granules(range).end().0);
    (end < granule_end).then(|| Range::between(end, granule_end))
}

fn is_well_placed(range: Range) -> bool {
    range.bytes() > 0
        && range.start().0.is_multiple_of(ARENA_GRANULE_BYTES)
        && range.end().0.is_multiple_of(PAGE_BYTES)
        && !crosses_a_segment(range.start().0, range.bytes())
}

fn crosses_a_segment(start: u64, bytes: u64) -> bool {
    bytes <= SEGMENT_BYTES && start % SEGMENT_BYTES + bytes > SEGMENT_BYTES
}

/// The first place for `bytes`, a multiple of pages, in a gap. A gap ends with a granule, so the filler fits too.
fn place_in(gap: Range, bytes: u64) -> Option<Range> {
    let mut start = gap.start().0;
    if crosses_a_segment(start, bytes) {
        start = start.checked_next_multiple_of(SEGMENT_BYTES)?;
    }
    let range = Range::new(DeviceAddress(start), bytes)?;
    gap.contains(range).then_some(range)
}

#[cfg(test)]
mod tests;
