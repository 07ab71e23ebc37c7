use super::*;
use crate::{
    Slot,
    testing::{Choices, seeds},
};

const MIB: u64 = 1 << 20;
const GRANULE: u64 = ARENA_GRANULE_BYTES;

fn range(start: u64, bytes: u64) -> Range {
    Range::new(DeviceAddress(start), bytes).unwrap()
}

/// Granules one by one, each with the range that it belongs to: knows nothing of gaps.
#[derive(Clone)]
struct Naive {
    base: u64,
    granules: Vec<Option<Range>>,
}

impl Naive {
    fn new(bounds: Range) -> Self {
        let count = usize::try_from(bounds.bytes() / GRANULE).unwrap();
        Self { base: bounds.start().0, granules: vec![None; count] }
    }

    fn indices(&self, range: Range) -> std::ops::Range<usize> {
        let first = (range.start().0 - self.base) / GRANULE;
        let last = (range.end().0 - 1 - self.base) / GRANULE;
        usize::try_from(first).unwrap()..usize::try_from(last).unwrap() + 1
    }

    /// Every place where `bytes` may go.
    fn places(&self, bytes: u64) -> Vec<Range> {
        let pages = bytes.div_ceil(PAGE_BYTES) * PAGE_BYTES;
        (0..self.granules.len() as u64)
            .map(|index| range(self.base + index * GRANULE, pages))
            .filter(|place| {
                let indices = self.indices(*place);
                let (first, last) = (place.start().0 / SEGMENT_BYTES, (place.end().0 - 1) / SEGMENT_BYTES);
                indices.end <= self.granules.len()
                    && self.granules[indices].iter().all(Option::is_none)
                    && (pages > SEGMENT_BYTES || first == last)
            })
            .collect()
    }

    /// How many free granules lie around a free place without a break.
    fn gap(&self, place: Range) -> usize {
        let indices = self.indices(place);
        let below = self.granules[..indices.start].iter().rev().take_while(|held| held.is_none()).count();
        below + self.granules[indices.start..].iter().take_while(|held| held.is_none()).count()
    }

    fn set(&mut self, range: Range, to: Option<Range>) {
        let indices = self.indices(range);
        self.granules[indices].fill(to);
    }
}

/// Places and takes in both, and compares.
fn place_and_take(region: &mut Region, naive: &mut Naive, bytes: u64) -> Option<Range> {
    let places = naive.places(bytes);
    match region.place(bytes) {
        Ok(place) => {
            assert!(places.contains(&place), "{place:?} is not free, or crosses a segment");
            let best = places.iter().map(|place| naive.gap(*place)).min().unwrap();
            assert_eq!(naive.gap(place), best, "{place:?} breaks a larger gap than it needs to");
            region.take(place).unwrap();
            naive.set(place, Some(place));
            Some(place)
        }
        Err(error) => {
            assert_eq!(error, RegionError::Full { bytes });
            assert!(places.is_empty(), "there is room at {:?}", places[0]);
            None
        }
    }
}

fn agree(region: &Region, naive: &Naive) {
    let mut held: Vec<Range> = naive.granules.iter().flatten().copied().collect();
    held.dedup();
    assert_eq!(region.taken().collect::<Vec<_>>(), held);
    assert_eq!(region.taken_bytes(), held.iter().map(|range| range.bytes()).sum::<u64>());
}

const SIZES: [u64; 6] = [1, GRANULE, GRANULE + 1, 2 * GRANULE, 3 * GRANULE - PAGE_BYTES, 4 * GRANULE];

fn explore(region: &Region, naive: &Naive, taken: &[Range], steps: u32, seen: &mut u64) {
    *seen += 1;
    agree(region, naive);
    if steps == 0 {
        return;
    }
    for bytes in SIZES {
        let (mut region, mut naive) = (region.clone(), naive.clone());
        if let Some(place) = place_and_take(&mut region, &mut naive, bytes) {
            let taken: Vec<_> = taken.iter().copied().chain([place]).collect();
            explore(&region, &naive, &taken, steps - 1, seen);
        }
    }
    for (at, &held) in taken.iter().enumerate() {
        let (mut region, mut naive, mut taken) = (region.clone(), naive.clone(), taken.to_vec());
        region.release(held).unwrap();
        assert_eq!(
            region.release(held),
            Err(RegionError::Mismatch { range: held, expected: "taken" }),
            "a range was released twice"
        );
        naive.set(held, None);
        taken.remove(at);
        explore(&region, &naive, &taken, steps - 1, seen);
    }
}

#[test]
fn a_small_region_agrees_with_a_naive_model_after_every_sequence_of_steps() {
    // Seven granules, three of them below a multiple of 4 GiB.
    let bounds = range(SEGMENT_BYTES - 3 * GRANULE, 7 * GRANULE);
    let mut seen = 0;
    explore(&Region::new(bounds), &Naive::new(bounds), &[], 6, &mut seen);
    assert!(seen > 20_000, "only {seen} states were looked at");
}

#[test]
fn a_region_agrees_with_a_naive_model() {
    for seed in seeds() {
        println!("seed {seed}");
        let mut choices = Choices::new(seed);
        let bounds = Slot::new(5).unwrap().read_only();
        let (mut region, mut naive) = (Region::new(bounds), Naive::new(bounds));
        let mut taken = Vec::new();
        for _ in 0..600 {
            if choices.below(10) < 6 || taken.is_empty() {
                let magnitude = 12 + choices.below(23);
                taken.extend(place_and_take(&mut region, &mut naive, 1 + choices.below(1 << magnitude)));
            } else {
                let index = usize::try_from(choices.below(taken.len() as u64)).unwrap();
                let held = taken.swap_remove(index);
                region.release(held).unwrap();
                naive.set(held, None);
            }
            agree(&region, &naive);
        }
        for held in taken {
            region.release(held).unwrap();
        }
        assert_eq!(region.place(bounds.bytes()), Ok(bounds), "all of it is one gap again");
    }
}

#[test]
fn every_range_is_taken_exactly_where_it_lies_well_and_is_free() {
    let bounds = range(SEGMENT_BYTES - 2 * GRANULE, 4 * GRANULE);
    let half = GRANULE / 2;
    let held = range(SEGMENT_BYTES - GRANULE, half);
    let mut region = Region::new(bounds);
    region.take(held).unwrap();
    let mut naive = Naive::new(bounds);
    naive.set(held, Some(held));
    for start in (0..14).map(|step| bounds.start().0 - GRANULE + step * half) {
        for bytes in [0, 1, PAGE_BYTES, half, GRANULE, GRANULE + half, 2 * GRANULE, u64::MAX - start] {
            let asked = range(start, bytes);
            let well = bytes > 0 && bytes.is_multiple_of(PAGE_BYTES);
            let free = well && bounds.contains(asked) && naive.places(bytes).contains(&asked);
            let taken = region.clone().take(asked);
            let mismatch = RegionError::Mismatch { range: asked, expected: "a free place for memory" };
            assert_eq!(taken, if free { Ok(()) } else { Err(mismatch) }, "{asked:?}");
        }
    }
}

#[test]
fn placing_changes_nothing() {
    let region = Region::new(Slot::new(0).unwrap().read_write());
    assert_eq!(region.place(5), region.place(5));
    assert_eq!(region.taken().count(), 0);
}

#[test]
fn a_range_of_more_than_a_segment_starts_at_any_granule() {
    let bounds = Slot::new(1).unwrap().read_write();
    let mut region = Region::new(bounds);
    let first = region.place(1).unwrap();
    region.take(first).unwrap();
    let small = region.place(SEGMENT_BYTES).unwrap();
    assert_eq!(small.start().0, bounds.start().0 + SEGMENT_BYTES);
    let large = region.place(SEGMENT_BYTES + 1).unwrap();
    assert_eq!(large, range(bounds.start().0 + GRANULE, SEGMENT_BYTES + PAGE_BYTES));
}

#[test]
fn requests_that_no_region_can_meet_are_refused() {
    let bounds = Slot::new(1).unwrap().read_write();
    let region = Region::new(bounds);
    assert_eq!(region.place(0), Err(RegionError::Empty));
    for bytes in [bounds.bytes() + 1, u64::MAX - 5, u64::MAX] {
        assert_eq!(region.place(bytes), Err(RegionError::Full { bytes }));
    }
}

#[test]
fn bounds_are_rounded_in_to_whole_granules() {
    let region = Region::new(range(GRANULE - 1, 2 * GRANULE));
    assert_eq!(region.bounds(), range(GRANULE, GRANULE));
    for empty in [range(1, GRANULE), range(u64::MAX - 1, 1), range(3, 0)] {
        let region = Region::new(empty);
        assert_eq!(region.bounds().bytes(), 0);
        assert_eq!(region.place(1), Err(RegionError::Full { bytes: 1 }));
    }
}

#[test]
fn a_filler_is_what_a_range_leaves_of_its_granules() {
    let part = range(GRANULE, GRANULE + 2 * MIB);
    assert_eq!(granules(part), range(GRANULE, 2 * GRANULE));
    assert_eq!(filler(part), Some(range(2 * GRANULE + 2 * MIB, GRANULE - 2 * MIB)));
    let whole = range(GRANULE, 2 * GRANULE);
    assert_eq!((granules(whole), filler(whole)), (whole, None));
    assert_eq!(granules(range(GRANULE + 5, 1)), range(GRANULE, GRANULE));
    assert_eq!(granules(range(u64::MAX - 1, 1)).end().0, u64::MAX);
}

#[test]
fn an_address_is_held_by_the_range_it_lies_in() {
    let mut region = Region::new(Slot::new(2).unwrap().read_write());
    let held = region.place(3 * MIB).unwrap();
    region.take(held).unwrap();
    assert_eq!(region.holding(held.start()), Some(held));
    assert_eq!(region.holding(DeviceAddress(held.end().0 - 1)), Some(held));
    assert_eq!(region.holding(held.end()), None, "the filler is nobody's");
    assert_eq!(region.holding(DeviceAddress(held.start().0 - 1)), None);
}

#[test]
fn a_place_that_is_asked_for_is_given_where_it_is_free_and_well_aligned() {
    let bounds = range(SEGMENT_BYTES - 3 * GRANULE, 40 * GRANULE);
    let mut region = Region::new(bounds);
    let at = |granule: u64| DeviceAddress(bounds.start().0 + granule * GRANULE);
    assert_eq!(region.place_at(at(5), 1), Some(range(at(5).0, PAGE_BYTES)));
    for (start, bytes) in [
        (at(5).0 + PAGE_BYTES, PAGE_BYTES),
        (at(5).0, 0),
        (at(5).0, u64::MAX),
        (at(0).0 - GRANULE, GRANULE),
        (at(39).0, GRANULE + 1),
        (at(2).0, 2 * GRANULE),
        (0, GRANULE),
    ] {
        assert_eq!(region.place_at(DeviceAddress(start), bytes), None, "{start:x} {bytes:x}");
    }
    region.take(range(at(5).0, PAGE_BYTES)).unwrap();
    assert_eq!(region.place_at(at(5), PAGE_BYTES), None);
    assert_eq!(region.place_at(at(4), 2 * GRANULE), None);
    for alignment in [1, PAGE_BYTES, 2 * GRANULE, 16 * GRANULE, SEGMENT_BYTES] {
        let place = region.place_aligned(GRANULE + 1, alignment).unwrap();
        assert!(place.start().0.is_multiple_of(alignment), "{place:?}");
        region.clone().take(place).unwrap();
    }
    let bytes = GRANULE;
    assert_eq!(region.place_aligned(bytes, 4 * SEGMENT_BYTES), Err(RegionError::Full { bytes }));
    assert_eq!(region.place_aligned(0, 4 * GRANULE), Err(RegionError::Empty));
}
