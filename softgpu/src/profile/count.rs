//! What an operation did, as numbers.

use crate::alu::Lanes;
use crate::code::{Region, SHARED_BASE};
use crate::exec::{Access, Touch};

/// What memory moves at once.
const SECTOR_BYTES: u64 = 32;
/// Banks of shared memory, each as wide as a word.
const BANKS: usize = 32;
const WORD_BYTES: u64 = 4;
/// What shared memory gives to all lanes together in one pass.
const PASS_BYTES: u64 = BANKS as u64 * WORD_BYTES;

/// How much was moved between memory and warps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Times that a warp asked.
    pub requests: u64,
    /// Bytes that its lanes asked for.
    pub asked: u64,
    /// Those among them that no other lane of the warp asked for too.
    pub useful: u64,
    /// Sectors of 32 bytes that they lie in.
    pub sectors: u64,
}

impl Traffic {
    /// Bytes that are moved.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.sectors.saturating_mul(SECTOR_BYTES)
    }

    fn add(&mut self, other: &Self) {
        let Self { requests, asked, useful, sectors } = other;
        self.requests += requests;
        self.asked += asked;
        self.useful += useful;
        self.sectors += sectors;
    }

    fn each(&mut self) -> [&mut u64; 4] {
        [&mut self.requests, &mut self.asked, &mut self.useful, &mut self.sectors]
    }
}

/// What an operation did, or several together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Instructions of warps.
    pub warps: u64,
    /// Lanes that stood at them.
    pub standing: u64,
    /// Instructions of threads: those among these lanes for which the predicate held.
    pub threads: u64,
    /// Branches that some lanes of a warp took and others did not.
    pub divergent: u64,
    /// Global memory: loaded.
    pub loaded: Traffic,
    /// Global memory: stored.
    pub stored: Traffic,
    /// Global memory: reached by atomic operations.
    pub updated: Traffic,
    /// Local memory. A word of every lane lies in a row, as on a device.
    pub local: Traffic,
    /// Shared memory: times that a warp asked.
    pub shared_requests: u64,
    /// Bytes that its lanes asked for.
    pub shared_asked: u64,
    /// Passes that this took: a bank gives one word in each.
    pub shared_passes: u64,
    /// Passes that it would have taken without conflicts.
    pub shared_least: u64,
    /// Words of one bank that lanes asked for at once, at most.
    pub shared_ways: u64,
    /// Atomic operations of warps.
    pub updates: u64,
    /// Those of threads.
    pub update_lanes: u64,
    /// Rounds that they took, where lanes that mean one word come one after the other.
    pub update_rounds: u64,
}

impl Counts {
    /// Together with others.
    pub fn add(&mut self, other: &Self) {
        self.shared_ways = self.shared_ways.max(other.shared_ways);
        let ways = self.shared_ways;
        let mut other = *other;
        for (to, from) in self.each().into_iter().zip(other.each()) {
            *to += *from;
        }
        self.shared_ways = ways;
    }

    /// Whether nothing was done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// All of global memory's traffic.
    #[must_use]
    pub fn global(&self) -> Traffic {
        let mut all = self.loaded;
        all.add(&self.stored);
        all.add(&self.updated);
        all
    }

    /// All numbers, in a fixed order.
    pub(super) fn each(&mut self) -> [&mut u64; 28] {
        let Self { warps, standing, threads, divergent, loaded, stored, updated, local, .. } = self;
        let [a, b, c, d] = loaded.each();
        let [e, f, g, h] = stored.each();
        let [i, j, k, l] = updated.each();
        let [m, n, o, p] = local.each();
        let shared = [
            &mut self.shared_requests,
            &mut self.shared_asked,
            &mut self.shared_passes,
            &mut self.shared_least,
            &mut self.shared_ways,
        ];
        let [q, r, s, t, u] = shared;
        let [v, w, x] = [&mut self.updates, &mut self.update_lanes, &mut self.update_rounds];
        [
            warps, standing, threads, divergent, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t,
            u, v, w, x,
        ]
    }

    /// Counts what a warp reaches for.
    pub(super) fn reach(&mut self, access: &Access<'_>) {
        let Access { region, touch, lanes, addresses, bytes, .. } = *access;
        let mut reached = Sorted::new(lanes, |lane| addresses[lane]);
        let asked = bytes * u64::from(lanes.count_ones());
        match region {
            Region::Global | Region::Generic => {
                let traffic = match touch {
                    Touch::Read => &mut self.loaded,
                    Touch::Write => &mut self.stored,
                    Touch::Update => &mut self.updated,
                };
                traffic.requests += 1;
                traffic.asked += asked;
                // Aligned and of one width: two either are the same or do not touch, and none crosses a sector.
                traffic.useful += bytes * reached.distinct(|address| address);
                traffic.sectors += reached.distinct(|address| address / SECTOR_BYTES);
            }
            Region::Local => {
                self.local.requests += 1;
                self.local.asked += asked;
                self.local.useful += asked;
                self.local.sectors += local_sectors(lanes, addresses, bytes);
            }
            Region::Shared => {
                self.shared_requests += 1;
                self.shared_asked += asked;
                let (passes, least, ways) = passes(lanes, addresses, bytes);
                self.shared_passes += passes;
                self.shared_least += least;
                self.shared_ways = self.shared_ways.max(ways);
            }
            Region::Constant | Region::Parameter => {}
        }
        if touch == Touch::Update {
            self.updates += 1;
            self.update_lanes += u64::from(lanes.count_ones());
            self.update_rounds += reached.most_alike();
        }
    }
}

/// The lanes of a mask.
fn each_lane(mask: u32) -> impl Iterator<Item = usize> {
    (0..32).filter(move |lane| mask >> lane & 1 == 1)
}

/// Numbers of lanes, in order.
struct Sorted {
    numbers: [u64; 32],
    count: usize,
}

impl Sorted {
    fn new(lanes: u32, of: impl Fn(usize) -> u64) -> Self {
        let mut sorted = Self { numbers: [0; 32], count: 0 };
        for lane in each_lane(lanes) {
            sorted.numbers[sorted.count] = of(lane);
            sorted.count += 1;
        }
        let numbers = &mut sorted.numbers[..sorted.count];
        if !numbers.is_sorted() {
            numbers.sort_unstable();
        }
        sorted
    }

    /// How many different results a growing function of them has.
    fn distinct(&mut self, of: impl Fn(u64) -> u64) -> u64 {
        let numbers = &self.numbers[..self.count];
        let differ = numbers.windows(2).filter(|pair| of(pair[0]) != of(pair[1])).count();
        differ as u64 + u64::from(!numbers.is_empty())
    }

    /// How many at most are one number.
    fn most_alike(&self) -> u64 {
        let numbers = &self.numbers[..self.count];
        numbers.chunk_by(|first, second| first == second).map(<[u64]>::len).max().unwrap_or(0) as u64
    }
}

/// Sectors of local memory. A device lays the same word of all lanes out in a row of 128 bytes: four sectors.
fn local_sectors(lanes: u32, addresses: &Lanes, bytes: u64) -> u64 {
    let words = |lane: usize| {
        let first = addresses[lane] / WORD_BYTES;
        (0..bytes.div_ceil(WORD_BYTES)).map(move |word| (first + word) * 4 + lane as u64 / 8)
    };
    let mut sectors: Vec<u64> = each_lane(lanes).flat_map(words).collect();
    sectors.sort_unstable();
    sectors.dedup();
    sectors.len() as u64
}

/// Passes of shared memory: those needed, those needed at least, and the most words of one bank in one of them. Wide
/// accesses are served in parts, of as many lanes as 128 bytes are for.
fn passes(lanes: u32, addresses: &Lanes, bytes: u64) -> (u64, u64, u64) {
    let together = (PASS_BYTES / bytes.max(WORD_BYTES)).clamp(1, 32);
    let (mut needed, mut least, mut most) = (0, 0, 0);
    let mut first = 0;
    while first < 32 {
        let part = lanes & (u32::MAX >> (32 - together)) << first;
        first += together;
        if part == 0 {
            continue;
        }
        let mut words = [u64::MAX; BANKS];
        let mut count = 0;
        for lane in each_lane(part) {
            let start = addresses[lane].wrapping_sub(SHARED_BASE) / WORD_BYTES;
            for word in 0..bytes.div_ceil(WORD_BYTES) {
                // So many words fit: `together` is at most 128 bytes by what each lane asks for.
                if let Some(slot) = words.get_mut(count) {
                    *slot = start + word;
                    count += 1;
                }
            }
        }
        let words = &mut words[..count];
        words.sort_unstable();
        let mut in_bank = [0_u64; BANKS];
        for same in words.chunk_by(|first, second| first == second) {
            in_bank[usize::try_from(same[0] % BANKS as u64).unwrap_or(0)] += 1;
        }
        let ways = in_bank.into_iter().max().unwrap_or(0);
        needed += ways;
        least += 1;
        most = most.max(ways);
    }
    (needed, least, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(of: impl Fn(u64) -> u64) -> Lanes {
        std::array::from_fn(|lane| of(lane as u64))
    }

    fn reached(region: Region, touch: Touch, lanes: u32, addresses: &Lanes, bytes: u64) -> Counts {
        let mut counts = Counts::default();
        counts.reach(&Access { pc: 0, region, touch, lanes, addresses, bytes, strong: false });
        counts
    }

    #[test]
    fn neighbours_share_sectors_and_strides_do_not() {
        for (stride, lanes, bytes, sectors) in [
            (4, u32::MAX, 4, 4),
            (8, u32::MAX, 4, 8),
            (32, u32::MAX, 4, 32),
            (128, u32::MAX, 4, 32),
            (0, u32::MAX, 4, 1),
            (1, u32::MAX, 1, 1),
            (16, u32::MAX, 16, 16),
            (4, 0x1ff, 4, 2),
            (4, 0, 4, 0),
        ] {
            let counts = reached(Region::Global, Touch::Read, lanes, &at(|lane| 4096 + stride * lane), bytes);
            assert_eq!(counts.loaded.sectors, sectors, "{stride} {lanes:#x} {bytes}");
        }
        // A row that begins inside of a sector takes one more.
        let counts = reached(Region::Global, Touch::Read, u32::MAX, &at(|lane| 4100 + 4 * lane), 4);
        assert_eq!(counts.loaded, Traffic { requests: 1, asked: 128, useful: 128, sectors: 5 });
    }

    #[test]
    fn what_several_lanes_ask_for_is_useful_once() {
        let counts = reached(Region::Global, Touch::Write, u32::MAX, &at(|lane| 4096 + lane / 2 * 4), 4);
        assert_eq!(counts.stored, Traffic { requests: 1, asked: 128, useful: 64, sectors: 2 });
        assert_eq!(counts.loaded, Traffic::default());
    }

    #[test]
    fn words_of_one_bank_come_one_after_the_other() {
        for (stride, bytes, needed, least, ways) in [
            (4, 4, 1, 1, 1),
            (8, 4, 2, 1, 2),
            (16, 4, 4, 1, 4),
            (128, 4, 32, 1, 32),
            (132, 4, 1, 1, 1),
            (0, 4, 1, 1, 1),
            (1, 1, 1, 1, 1),
            (8, 8, 2, 2, 1),
            (16, 16, 4, 4, 1),
            (32, 16, 8, 4, 2),
        ] {
            let found = passes(u32::MAX, &at(|lane| SHARED_BASE + stride * lane), bytes);
            assert_eq!(found, (needed, least, ways), "{stride} {bytes}");
        }
        // Lanes that are not there are in nobody's way.
        assert_eq!(passes(0x0101_0101, &at(|lane| SHARED_BASE + 128 * lane), 4), (4, 1, 4));
    }

    #[test]
    fn lanes_that_update_one_word_take_turns() {
        let counts = reached(Region::Global, Touch::Update, u32::MAX, &at(|lane| 4096 + lane % 4 * 4), 4);
        assert_eq!((counts.updates, counts.update_lanes, counts.update_rounds), (1, 32, 8));
        assert_eq!(counts.updated, Traffic { requests: 1, asked: 128, useful: 16, sectors: 1 });
        let counts = reached(Region::Shared, Touch::Update, 7, &at(|lane| SHARED_BASE + lane * 128), 4);
        assert_eq!((counts.update_rounds, counts.shared_passes), (1, 3));
    }

    #[test]
    fn a_word_of_local_memory_is_a_row_of_all_lanes() {
        let counts = reached(Region::Local, Touch::Write, u32::MAX, &at(|_| 8), 4);
        assert_eq!(counts.local, Traffic { requests: 1, asked: 128, useful: 128, sectors: 4 });
        let counts = reached(Region::Local, Touch::Read, 0xff, &at(|lane| lane * 4), 4);
        assert_eq!(counts.local.sectors, 8);
    }

    #[test]
    fn counts_add_up_but_for_the_ways_of_which_the_most_stay() {
        let mut first =
            reached(Region::Shared, Touch::Read, u32::MAX, &at(|lane| SHARED_BASE + 16 * lane), 4);
        let second = reached(Region::Shared, Touch::Read, u32::MAX, &at(|lane| SHARED_BASE + 8 * lane), 4);
        first.add(&second);
        assert_eq!((first.shared_passes, first.shared_least, first.shared_ways), (6, 2, 4));
    }
}
