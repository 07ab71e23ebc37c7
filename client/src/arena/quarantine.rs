//! Freed blocks that submitted work may still use.

use std::collections::VecDeque;

use super::BlockIndex;
use crate::Fence;

/// How many of the oldest are looked at by [`Quarantine::has_passed`]: it is asked again and again.
const LOOKED_AT: usize = 64;

struct Freed {
    block: BlockIndex,
    bytes: u64,
    /// Never empty.
    fences: Vec<Fence>,
}

/// Blocks in the order in which they were freed, each with the work that has to pass first.
pub(crate) struct Quarantine {
    freed: VecDeque<Freed>,
    bytes: u64,
}

impl Quarantine {
    pub(crate) fn new() -> Self {
        Self { freed: VecDeque::new(), bytes: 0 }
    }

    /// Bytes of all blocks in it.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.freed.is_empty()
    }

    pub(crate) fn push(&mut self, block: BlockIndex, bytes: u64, fences: Vec<Fence>) {
        self.bytes += bytes;
        self.freed.push_back(Freed { block, bytes, fences });
    }

    /// Takes out the oldest blocks up to the first whose work has not passed: what an allocation can afford.
    pub(crate) fn take_oldest(&mut self, passed: impl Fn(Fence) -> bool, mut free: impl FnMut(BlockIndex)) {
        while let Some(oldest) = self.freed.front_mut() {
            oldest.fences.retain(|fence| !passed(*fence));
            if !oldest.fences.is_empty() {
                return;
            }
            self.bytes -= oldest.bytes;
            free(oldest.block);
            self.freed.pop_front();
        }
    }

    /// Takes out every block whose work has passed.
    pub(crate) fn take_all(&mut self, passed: impl Fn(Fence) -> bool, mut free: impl FnMut(BlockIndex)) {
        self.freed.retain_mut(|freed| {
            freed.fences.retain(|fence| !passed(*fence));
            if freed.fences.is_empty() {
                self.bytes -= freed.bytes;
                free(freed.block);
            }
            !freed.fences.is_empty()
        });
    }

    /// Whether the work of a block has passed, of one of the oldest at least.
    pub(crate) fn has_passed(&self, passed: impl Fn(Fence) -> bool) -> bool {
        self.freed.iter().take(LOOKED_AT).any(|freed| freed.fences.iter().all(|fence| passed(*fence)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stream;

    fn fence(stream: u32, position: u64) -> Fence {
        Fence { stream: Stream(stream), position }
    }

    /// Three blocks: behind streams 0 and 1, behind 1 alone, behind 0 alone.
    fn three() -> Quarantine {
        let mut quarantine = Quarantine::new();
        quarantine.push(BlockIndex(0), 1, vec![fence(0, 5), fence(1, 6)]);
        quarantine.push(BlockIndex(1), 10, vec![fence(1, 7)]);
        quarantine.push(BlockIndex(2), 100, vec![fence(0, 8)]);
        quarantine
    }

    fn passed(marks: [u64; 2]) -> impl Fn(Fence) -> bool {
        move |fence| marks[fence.stream.0 as usize] >= fence.position
    }

    #[test]
    fn a_block_waits_for_every_stream_that_had_work() {
        for (marks, all, oldest) in [
            ([0, 0], vec![], vec![]),
            ([5, 5], vec![], vec![]),
            ([4, 6], vec![], vec![]),
            ([5, 6], vec![0], vec![0]),
            ([0, 7], vec![1], vec![]),
            ([8, 0], vec![2], vec![]),
            ([5, 7], vec![0, 1], vec![0, 1]),
            ([8, 7], vec![0, 1, 2], vec![0, 1, 2]),
        ] {
            let bytes = |freed: &[usize]| 111 - freed.iter().map(|index| [1, 10, 100][*index]).sum::<u64>();
            let mut quarantine = three();
            let mut freed = Vec::new();
            assert_eq!(quarantine.has_passed(passed(marks)), !all.is_empty(), "{marks:?}");
            quarantine.take_all(passed(marks), |block| freed.push(block.0));
            assert_eq!((&freed, quarantine.bytes()), (&all, bytes(&all)), "{marks:?}");
            quarantine.take_all(passed([9, 9]), |block| freed.push(block.0));
            freed.sort_unstable();
            assert_eq!((freed, quarantine.bytes(), quarantine.is_empty()), (vec![0, 1, 2], 0, true));

            let mut quarantine = three();
            let mut freed = Vec::new();
            quarantine.take_oldest(passed(marks), |block| freed.push(block.0));
            assert_eq!((&freed, quarantine.bytes()), (&oldest, bytes(&oldest)), "{marks:?}");
        }
    }

    #[test]
    fn what_has_passed_once_is_not_waited_for_again() {
        let mut quarantine = three();
        quarantine.take_oldest(passed([5, 0]), |block| panic!("{block:?} is free too early"));
        let mut freed = Vec::new();
        quarantine.take_oldest(|fence| fence == self::fence(1, 6), |block| freed.push(block.0));
        assert_eq!(freed, [0]);
    }
}
