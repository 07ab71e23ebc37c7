//! Barriers and collective operations of a block: who comes, who is missing, and who is told to come and cannot.

use super::found::Mistake;
use crate::alu::{LANES, Lanes};
use crate::exec::lanes;

/// A thread of a block: its warp and lane.
pub(super) type Thread = (usize, usize);

/// What is wrong at a meeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) mistake: Mistake,
    pub(super) pc: u32,
    pub(super) thread: Thread,
    /// Where another thread is, or ended.
    pub(super) other: Option<(u32, Thread)>,
    /// The lanes it is about, or how many threads.
    pub(super) about: u64,
}

/// A lane that came to an operation of several.
#[derive(Debug, Clone, Copy)]
struct Came {
    pc: u32,
    members: u32,
    /// The lanes of its warp that lived then.
    lived: u32,
}

#[derive(Debug)]
struct Warp {
    /// Lanes that exist.
    all: u32,
    came: [Option<Came>; LANES],
    /// Where lanes exited.
    exits: [u32; LANES],
}

/// Who arrived at a barrier in one place.
type Arrival = (usize, u32, u32);

/// The meetings of a block.
#[derive(Debug)]
pub(super) struct Meetings {
    warps: Vec<Warp>,
    /// Of each barrier: warp, lanes, and where they came to it.
    barriers: Vec<Vec<Arrival>>,
}

impl Meetings {
    /// Of blocks with so many threads.
    pub(super) fn new(threads: u32) -> Self {
        let warp = |first: u32| Warp {
            all: u32::MAX >> 32_u32.saturating_sub(threads - first).min(31),
            came: [None; LANES],
            exits: [0; LANES],
        };
        Self {
            warps: (0..threads).step_by(LANES).map(warp).collect(),
            barriers: vec![Vec::new(); crate::exec::BARRIERS],
        }
    }

    /// Another block begins.
    pub(super) fn restart(&mut self) {
        for warp in &mut self.warps {
            warp.came = [None; LANES];
        }
        self.barriers.iter_mut().for_each(Vec::clear);
    }

    /// Lanes exit.
    pub(super) fn exit(&mut self, warp: usize, mask: u32, pc: u32) {
        if let Some(warp) = self.warps.get_mut(warp) {
            lanes(mask).for_each(|lane| warp.exits[lane] = pc);
        }
    }

    /// Lanes arrive at a barrier of the whole block.
    pub(super) fn arrive(&mut self, warp: usize, mask: u32, pc: u32, barrier: usize) {
        if let Some(barrier) = self.barriers.get_mut(barrier) {
            barrier.push((warp, mask, pc));
        }
    }

    /// A barrier opens.
    pub(super) fn open(&mut self, barrier: usize, mut tell: impl FnMut(Wrong)) {
        let Some(arrived) = self.barriers.get_mut(barrier).map(std::mem::take) else { return };
        let Some((warp, mask, pc)) = arrived.first().copied() else { return };
        let thread = (warp, first(mask));
        let apart = arrived.iter().find(|(_, _, other)| *other != pc);
        if let Some((warp, mask, other)) = apart {
            let other = Some((*other, (*warp, first(*mask))));
            tell(Wrong { mistake: Mistake::BarrierApart, pc, thread, other, about: 0 });
        }
        let missing = |number: usize, warp: &Warp| {
            let there =
                arrived.iter().filter(|(of, ..)| *of == number).fold(0, |all, (_, mask, _)| all | mask);
            warp.all & !there
        };
        let counted: u32 =
            self.warps.iter().enumerate().map(|(number, warp)| missing(number, warp).count_ones()).sum();
        let gone = self.warps.iter().enumerate().find(|(number, warp)| missing(*number, warp) != 0);
        if let Some((number, warp)) = gone {
            let lane = first(missing(number, warp));
            let other = Some((warp.exits[lane], (number, lane)));
            tell(Wrong { mistake: Mistake::BarrierExited, pc, thread, other, about: counted.into() });
        }
    }

    /// Lanes come to what several do together; of the warp, so many live.
    pub(super) fn come(&mut self, warp: usize, (mask, live): (u32, u32), pc: u32, members: &Lanes) {
        let Some(warp) = self.warps.get_mut(warp) else { return };
        for lane in lanes(mask) {
            let members = (members[lane] & 0xffff_ffff) as u32;
            // Whoever waits comes again each time that somebody exits.
            let known = warp.came[lane].filter(|came| came.pc == pc);
            warp.came[lane] = known.or(Some(Came { pc, members, lived: live }));
        }
    }

    /// Lanes have met.
    pub(super) fn meet(&mut self, number: usize, (mask, live): (u32, u32), mut tell: impl FnMut(Wrong)) {
        let Some(warp) = self.warps.get_mut(number) else { return };
        for lane in lanes(mask) {
            let Some(Came { pc, members, lived }) = warp.came[lane] else { continue };
            let thread = (number, lane);
            let mut wrong = |mistake, other: Option<usize>, pc_there, about: u32| {
                let other = other.map(|lane| (pc_there, (number, lane)));
                tell(Wrong { mistake, pc, thread, other, about: about.into() });
            };
            if members >> lane & 1 == 0 {
                wrong(Mistake::OwnLane, None, 0, members);
            }
            let gone = members & lived & !live;
            if gone != 0 {
                let gone_first = first(gone);
                wrong(Mistake::LanesExited, Some(gone_first), warp.exits[gone_first], gone);
            }
            let differs = |other: &usize| {
                members >> other & 1 == 1 && warp.came[*other].is_some_and(|came| came.members != members)
            };
            if let Some(other) = lanes(mask).find(differs) {
                let there = warp.came[other].map_or(pc, |came| came.pc);
                wrong(Mistake::Masks, Some(other), there, members);
            }
        }
        lanes(mask).for_each(|lane| warp.came[lane] = None);
    }
}

/// The lowest lane of a mask.
pub(super) fn first(mask: u32) -> usize {
    mask.trailing_zeros() as usize & 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(meetings: &mut Meetings, barrier: usize) -> Vec<(Mistake, u64)> {
        let mut told = Vec::new();
        meetings.open(barrier, |wrong| told.push((wrong.mistake, wrong.about)));
        told
    }

    fn met(meetings: &mut Meetings, mask: u32, live: u32) -> Vec<(Mistake, usize, u64)> {
        let mut told = Vec::new();
        meetings.meet(0, (mask, live), |wrong| told.push((wrong.mistake, wrong.thread.1, wrong.about)));
        told
    }

    #[test]
    fn a_barrier_that_all_threads_reach_in_one_place_is_right() {
        let mut meetings = Meetings::new(40);
        meetings.arrive(0, 0xffff, 7, 0);
        meetings.arrive(1, 0xff, 7, 0);
        meetings.arrive(0, 0xffff_0000, 7, 0);
        assert_eq!(opened(&mut meetings, 0), []);
        // Nobody is left there.
        meetings.arrive(0, u32::MAX, 7, 0);
        assert_eq!(opened(&mut meetings, 0), [(Mistake::BarrierExited, 8)]);
    }

    #[test]
    fn threads_that_have_exited_or_came_elsewhere_are_told() {
        let mut meetings = Meetings::new(64);
        meetings.exit(1, 0xf0, 99);
        meetings.arrive(0, u32::MAX, 7, 3);
        meetings.arrive(1, !0xf0, 8, 3);
        let mut told = Vec::new();
        meetings.open(3, |wrong| told.push((wrong.mistake, wrong.pc, wrong.other)));
        assert_eq!(
            told,
            [(Mistake::BarrierApart, 7, Some((8, (1, 0)))), (Mistake::BarrierExited, 7, Some((99, (1, 4)))),]
        );
    }

    #[test]
    fn lanes_that_name_each_other_and_come_are_right() {
        let mut meetings = Meetings::new(32);
        // Half of the warp is gone before anybody comes.
        meetings.come(0, (0xff, 0xffff), 7, &[u64::from(u32::MAX); LANES]);
        meetings.come(0, (0xff00, 0xffff), 7, &[u64::from(u32::MAX); LANES]);
        assert_eq!(met(&mut meetings, 0xffff, 0xffff), []);
        meetings.come(0, (0b11, 0xffff), 7, &[0b11; LANES]);
        meetings.come(0, (0b1100, 0xffff), 7, &[0b1100; LANES]);
        assert_eq!(met(&mut meetings, 0b1111, 0xffff), []);
    }

    #[test]
    fn masks_without_the_own_lane_and_masks_that_differ_are_told() {
        let mut meetings = Meetings::new(32);
        meetings.come(0, (0b100, u32::MAX), 7, &[0b11; LANES]);
        assert_eq!(met(&mut meetings, 0b100, u32::MAX), [(Mistake::OwnLane, 2, 0b11)]);
        meetings.come(0, (0b01, u32::MAX), 7, &[0b11; LANES]);
        meetings.come(0, (0b10, u32::MAX), 7, &[0b10; LANES]);
        assert_eq!(met(&mut meetings, 0b11, u32::MAX), [(Mistake::Masks, 0, 0b11)]);
    }

    #[test]
    fn a_lane_that_exits_while_others_wait_for_it_is_told() {
        let mut meetings = Meetings::new(32);
        let all = [u64::from(u32::MAX); LANES];
        meetings.come(0, (0xff, u32::MAX), 7, &all);
        meetings.exit(0, !0xff, 9);
        // They come again when others have exited.
        meetings.come(0, (0xff, 0xff), 7, &all);
        let told = met(&mut meetings, 0xff, 0xff);
        assert_eq!(told.len(), 8);
        assert_eq!(told[0], (Mistake::LanesExited, 0, 0xffff_ff00));
    }
}
