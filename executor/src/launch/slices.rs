//! Grids of more blocks than a device is given at once: they are launched in slices.
//!
//! Each block that is left of a grid starts, looks at its session's flag and ends, however long that takes for all of them.
//! So a device never has more than a few slices of a grid, and a session that is told to end submits no more of them.

use bulkhead_gpu::DeviceInfo;
use bulkhead_verifier::limits::UNLOOKED_COST_MAX;

/// Blocks of one launch: an H200 starts and ends 1.66 billion a second, so that what a session has there is gone in some
/// ten milliseconds, and what a launch takes is little beside one.
const BLOCKS_MAX: u64 = 1 << 22;
/// The same on the software GPU, which starts some hundred thousand a second on one core where they have 1,024 threads
/// each, and a million of the usual ones.
const SOFTWARE_BLOCKS_MAX: u64 = 1 << 17;
/// Slices of one grid that the device has at a time, one of which it works on. Together they have as many blocks as a
/// launch may have.
const OF_A_STREAM_MAX: usize = 2;
/// Slices of all grids of a session beyond which no stream has more than one.
const OF_A_SESSION_MAX: usize = 4;
/// Slices that are submitted before anything else is looked at, for instance whether the session is told to end: small
/// ones may pass as fast as they come.
pub(crate) const AT_ONCE_MAX: usize = 8;
/// A launch that is not cut is *large* where it has more than the most blocks divided by this: on an H200 not much less
/// than it has at a time.
const LARGE_PART: u64 = 1 << 11;
/// A session's large launches on the device have together no more blocks than so many of the largest, but for one alone.
const LARGE_LAUNCHES_MAX: u64 = 2;
/// Of each multiprocessor's threads, and of its shared memory, this is for one of the most blocks that it has at a time
/// (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"): those that take more start and end
/// as much more slowly.
const THREADS_OF_A_BLOCK: u64 = 64;
const SHARED_BYTES_OF_A_BLOCK: u64 = 7 << 10;
/// The sides of a grid, which the driver checks of each slice alone (CUDA C++ Programming Guide, "Compute Capabilities").
const SIDES_MAX: [u32; 3] = [0x7FFF_FFFF, 65_535, 65_535];

/// How many blocks one launch may have on this device.
pub(crate) fn blocks_max(info: &DeviceInfo) -> u64 {
    match info.backend {
        "software" => SOFTWARE_BLOCKS_MAX,
        _ => BLOCKS_MAX,
    }
}

/// Whether a stream with so many slices and large launches on the device may have another slice, where there are so many
/// slices of all streams. Each may have one: what its grid waits for may be another stream's.
pub(crate) fn may_submit(of_stream: usize, of_session: usize) -> bool {
    of_stream == 0 || (of_stream < OF_A_STREAM_MAX && of_session < OF_A_SESSION_MAX)
}

/// How many of the smallest blocks the device starts and ends in the time of one of these, about. Static shared memory
/// and registers are not counted.
pub(crate) fn weight(block: [u32; 3], shared_bytes: u32) -> u64 {
    let threads = block.iter().fold(1, |threads: u64, side| threads.saturating_mul((*side).into()));
    let of_threads = threads.div_ceil(THREADS_OF_A_BLOCK);
    of_threads.max(u64::from(shared_bytes).div_ceil(SHARED_BYTES_OF_A_BLOCK)).max(1)
}

/// What one of the turns counts in which threads zero shared memory.
const ZEROING_TURN_COST: u64 = 5;
/// Bytes of shared memory that a thread zeroes in a turn. Threads that differ along z alone zero the same.
const ZEROED_BYTES: u64 = 16;
/// Shared memory that may be little to the guard, with what lies between its variables
/// ([`LITTLE_BYTES_MAX`](bulkhead_verifier::limits::LITTLE_BYTES_MAX)).
const LITTLE_BYTES: u64 = 2 * bulkhead_verifier::limits::LITTLE_BYTES_MAX;

/// What each thread of a block of this shape does to zero so many bytes of shared memory, in the units of the flag's budget.
/// Little, and what no thread zeroes 16 bytes of, is zeroed by the threads along x alone.
pub(crate) fn zeroing(block: [u32; 3], shared_bytes: u64) -> u64 {
    if shared_bytes == 0 {
        return 0;
    }
    let row = u64::from(block[0]).max(1);
    let all = row.saturating_mul(block[1].into()).max(1);
    let threads = if shared_bytes <= LITTLE_BYTES { row } else { all };
    let turns =
        shared_bytes.div_ceil(threads.saturating_mul(ZEROED_BYTES)) + (ZEROED_BYTES - 1).div_ceil(row);
    turns * ZEROING_TURN_COST
}

/// How many of the smallest blocks take as long as one whose threads do so much to zero their shared memory.
pub(crate) fn zeroing_weight(zeroing: u64) -> u64 {
    (zeroing / UNLOOKED_COST_MAX).max(1)
}

/// Whether a launch that is not cut waits where a session's others have too many blocks there; each has its weight.
pub(crate) fn is_large(blocks: u64, most: u64) -> bool {
    blocks > most / LARGE_PART
}

/// Whether a large launch may go, beside others that have so many blocks.
pub(crate) fn is_room(beside: u64, blocks: u64, most: u64) -> bool {
    beside == 0 || beside.saturating_add(blocks) <= most.saturating_mul(LARGE_LAUNCHES_MAX)
}

/// What the most blocks are for the grid that is cut next, where so many streams have some already. So slices of all
/// streams together have few times the blocks of one, and each stream has its own: what its grid waits for may be
/// another stream's.
pub(crate) fn share(most: u64, streams: u64) -> u64 {
    most / (streams + 1)
}

/// A part of a grid: its first block, and how many there are along each side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) first: [u32; 3],
    pub(crate) blocks: [u32; 3],
}

impl Slice {
    /// What the guard's parameters are in this slice of a grid.
    pub(crate) fn parameters(&self, grid: [u32; 3]) -> [u32; 6] {
        let ([x, y, z], [a, b, c]) = (self.first, self.blocks);
        [x, y, z, grid[0] - a, grid[1] - b, grid[2] - c]
    }

    pub(crate) fn count(&self) -> u64 {
        self.blocks.iter().map(|side| u64::from(*side)).product()
    }
}

/// A grid that is cut into slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slices {
    grid: [u32; 3],
    /// The sides of a slice, where the grid does not end before.
    sides: [u32; 3],
}

impl Slices {
    /// The slices of a grid that is given to a device which takes `most` blocks at once; none where no device has such
    /// a grid.
    pub(crate) fn new(grid: [u32; 3], most: u64) -> Option<Self> {
        if grid.iter().zip(SIDES_MAX).any(|(side, most)| *side > most || *side == 0) {
            return None;
        }
        let mut left = (most / OF_A_STREAM_MAX as u64).max(1);
        let sides = grid.map(|side| {
            let cut = u64::from(side).min(left);
            // A side that is cut leaves one block along those behind it.
            left = if cut < u64::from(side) { 1 } else { left / cut };
            u32::try_from(cut).unwrap_or(side)
        });
        Some(Self { grid, sides })
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.counts().iter().product()
    }

    fn counts(&self) -> [u64; 3] {
        let [(a, x), (b, y), (c, z)] = [0, 1, 2].map(|axis| (self.grid[axis], self.sides[axis]));
        [a.div_ceil(x), b.div_ceil(y), c.div_ceil(z)].map(u64::from)
    }

    /// One of them: x first, then y, then z.
    pub(crate) fn get(&self, index: u64) -> Slice {
        let mut left = index;
        let counts = self.counts();
        let first = [0, 1, 2].map(|axis| {
            let at = left % counts[axis];
            left /= counts[axis];
            u32::try_from(at * u64::from(self.sides[axis])).unwrap_or(u32::MAX)
        });
        let blocks = [0, 1, 2].map(|axis| self.sides[axis].min(self.grid[axis].saturating_sub(first[axis])));
        Slice { first, blocks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_cover_a_grid_once_each_and_none_has_more_blocks_than_it_may() {
        let sides = [1, 2, 3, 5, 8, 13];
        for most in [1, 2, 3, 7, 16, 40, 1000] {
            for grid in sides.iter().flat_map(|x| sides.iter().flat_map(move |y| sides.map(|z| [*x, *y, z])))
            {
                let slices = Slices::new(grid, most).unwrap();
                let mut seen = vec![0; grid.iter().product::<u32>() as usize];
                for index in 0..slices.count() {
                    let Slice { first, blocks } = slices.get(index);
                    assert!(slices.get(index).count() <= (most / 2).max(1), "{grid:?} of {most}");
                    for at in 0..blocks.iter().product() {
                        let x = first[0] + at % blocks[0];
                        let y = first[1] + at / blocks[0] % blocks[1];
                        let z = first[2] + at / blocks[0] / blocks[1];
                        seen[((z * grid[1] + y) * grid[0] + x) as usize] += 1;
                    }
                    let [.., a, b, c] = slices.get(index).parameters(grid);
                    assert_eq!([blocks[0] + a, blocks[1] + b, blocks[2] + c], grid);
                }
                assert!(seen.iter().all(|times| *times == 1), "{grid:?} of {most}");
            }
        }
    }

    #[test]
    fn the_largest_grid_has_a_last_slice_and_a_larger_one_is_none() {
        let slices = Slices::new(SIDES_MAX, BLOCKS_MAX).unwrap();
        assert_eq!(slices.count(), 1024 * 65_535 * 65_535);
        let last = slices.get(slices.count() - 1);
        assert_eq!((last.first, last.blocks), ([1023 << 21, 65_534, 65_534], [(1 << 21) - 1, 1, 1]));
        let slices = Slices::new([65_535, 65_535, 3], BLOCKS_MAX).unwrap();
        assert_eq!(slices.get(1), Slice { first: [0, 32, 0], blocks: [65_535, 32, 1] });
        for grid in [[1 << 31, 1, 1], [1, 1 << 16, 1], [1, 1, 1 << 16], [u32::MAX; 3], [1 << 30, 0, 1 << 15]]
        {
            assert_eq!(Slices::new(grid, BLOCKS_MAX), None, "{grid:?}");
        }
    }

    #[test]
    fn what_all_streams_of_a_session_have_on_the_device_is_gone_in_thirty_milliseconds() {
        // At a nanosecond for each block; 0.6 were measured.
        let mut blocks = BLOCKS_MAX * LARGE_LAUNCHES_MAX;
        blocks += u64::from(bulkhead_schema::limits::IN_FLIGHT_MAX) * (BLOCKS_MAX / LARGE_PART);
        for streams in 0..u64::from(bulkhead_schema::limits::STREAMS_MAX) {
            let slices = Slices::new(SIDES_MAX, share(BLOCKS_MAX, streams)).unwrap();
            blocks += slices.get(0).count();
        }
        let second = OF_A_SESSION_MAX / OF_A_STREAM_MAX;
        blocks += second as u64 * Slices::new(SIDES_MAX, BLOCKS_MAX).unwrap().get(0).count();
        assert!(blocks < 30_000_000, "{blocks}");
    }

    #[test]
    fn a_large_launch_goes_alone_or_beside_as_many_blocks_as_two_of_the_largest_have() {
        assert!(!is_large(1 << 11, 1 << 22) && is_large((1 << 11) + 1, 1 << 22));
        assert!(is_room(0, 1 << 30, 1 << 22) && !is_room(1, 1 << 23, 1 << 22));
        assert!(is_room(1 << 22, 1 << 22, 1 << 22) && !is_room((1 << 22) + 1, 1 << 22, 1 << 22));
    }

    #[test]
    fn a_block_of_few_threads_zeroes_its_shared_memory_for_long() {
        assert_eq!(zeroing([1, 1, 1], 227 << 10), (14_528 + 15) * 5);
        assert_eq!(zeroing([32, 32, 1], 227 << 10), (15 + 1) * 5);
        assert_eq!(zeroing([1, 1, 64], 16), (1 + 15) * 5);
        assert_eq!(zeroing([1, 1024, 1], 256), (16 + 15) * 5);
        assert_eq!((zeroing([1; 3], 0), zeroing([u32::MAX; 3], 1)), (0, 10));
        assert_eq!([0, 63, 64, 72_640].map(zeroing_weight), [1, 1, 1, 1135]);
    }

    #[test]
    fn a_block_weighs_what_it_takes_of_a_multiprocessor() {
        assert_eq!(weight([1, 1, 1], 0), 1);
        assert_eq!(weight([64, 1, 1], 7 << 10), 1);
        assert_eq!(weight([16, 16, 4], 0), 16);
        assert_eq!(weight([32, 1, 1], 227 << 10), 33);
        assert_eq!(weight([u32::MAX; 3], u32::MAX), u64::MAX.div_ceil(64));
    }

    #[test]
    fn every_stream_may_have_one_slice_and_few_have_two() {
        assert!(may_submit(0, usize::MAX) && may_submit(1, 3));
        assert!(!may_submit(1, 4) && !may_submit(2, 0));
    }
}
