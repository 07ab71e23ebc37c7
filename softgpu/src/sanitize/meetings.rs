//! Barriers and collective operations of a block: who comes, who is missing, and who is told to come and cannot.

use super::found::Mistake;
use crate::alu::{LANES, Lanes};
use crate::exec::lanes;

/// A thread of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Thread {
    /// Which warp of the block.
    pub(super) warp: usize,
    pub(super) lane: usize,
}

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

/// What lanes meet for where they do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To meet, wherever they are.
    Meeting,
    /// To find out who is left, for what they do together where they are.
    Lanes,
    /// The same, for a barrier of the block.
    Block,
    /// The same, for a group, whose lanes come again until all of it are there.
    Group,
    /// Behind such a meeting, to find out who is there; or so that others go on.
    Left,
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
    /// Where its lanes met last, if all did for groups of theirs.
    groups: Option<[Option<u32>; LANES]>,
    /// Whether all its lanes wait for others in groups, of which none is where it is waited for.
    stuck: bool,
}

/// Who arrived at a barrier in one place.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    warp: usize,
    /// Its lanes.
    mask: u32,
    pc: u32,
}

/// Lanes of a warp that are in one place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Present {
    /// Which.
    pub(super) mask: u32,
    /// All of the warp that live.
    pub(super) live: u32,
}

/// The meetings of a block.
#[derive(Debug)]
pub(super) struct Meetings {
    warps: Vec<Warp>,
    /// Of each barrier.
    barriers: Vec<Vec<Arrival>>,
}

impl Meetings {
    /// Of blocks with so many threads.
    pub(super) fn new(threads: u32) -> Self {
        let warp = |first: u32| Warp {
            all: u32::MAX >> 32_u32.saturating_sub(threads - first).min(31),
            came: [None; LANES],
            exits: [0; LANES],
            groups: None,
            stuck: false,
        };
        Self {
            warps: (0..threads).step_by(LANES).map(warp).collect(),
            barriers: vec![Vec::new(); crate::code::BARRIERS],
        }
    }

    /// Another block begins.
    pub(super) fn restart(&mut self) {
        for warp in &mut self.warps {
            warp.came = [None; LANES];
            (warp.groups, warp.stuck) = (None, false);
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
            barrier.push(Arrival { warp, mask, pc });
        }
    }

    /// A barrier opens.
    pub(super) fn open(&mut self, barrier: usize, mut tell: impl FnMut(Wrong)) {
        let Some(arrived) = self.barriers.get_mut(barrier).map(std::mem::take) else { return };
        let Some(Arrival { warp, mask, pc }) = arrived.first().copied() else { return };
        let thread = Thread { warp, lane: first(mask) };
        let apart = arrived.iter().find(|other| other.pc != pc);
        if let Some(other) = apart {
            let other = Some((other.pc, Thread { warp: other.warp, lane: first(other.mask) }));
            tell(Wrong { mistake: Mistake::BarrierApart, pc, thread, other, about: 0 });
        }
        let missing = |number: usize, warp: &Warp| {
            let of_warp = arrived.iter().filter(|arrival| arrival.warp == number);
            let there = of_warp.fold(0, |all, arrival| all | arrival.mask);
            warp.all & !there
        };
        let counted: u32 =
            self.warps.iter().enumerate().map(|(number, warp)| missing(number, warp).count_ones()).sum();
        let gone = self.warps.iter().enumerate().find(|(number, warp)| missing(*number, warp) != 0);
        if let Some((number, warp)) = gone {
            let lane = first(missing(number, warp));
            let other = Some((warp.exits[lane], Thread { warp: number, lane }));
            tell(Wrong { mistake: Mistake::BarrierExited, pc, thread, other, about: counted.into() });
        }
    }

    /// Lanes come to what several do together.
    pub(super) fn come(&mut self, warp: usize, present: Present, pc: u32, members: &Lanes) {
        let Present { mask, live } = present;
        let Some(warp) = self.warps.get_mut(warp) else { return };
        for lane in lanes(mask) {
            let members = (members[lane] & 0xffff_ffff) as u32;
            // Whoever waits comes again each time that somebody exits.
            let known = warp.came[lane].filter(|came| came.pc == pc);
            warp.came[lane] = known.or(Some(Came { pc, members, lived: live }));
        }
    }

    /// Lanes have met; of a place it is known what the guard has them meet for there.
    pub(super) fn meet(
        &mut self,
        number: usize,
        present: Present,
        purpose: impl Fn(u32) -> Purpose,
        mut tell: impl FnMut(Wrong),
    ) {
        let Present { mask, live } = present;
        let Some(warp) = self.warps.get_mut(number) else { return };
        for lane in lanes(mask) {
            let Some(Came { pc, members, lived }) = warp.came[lane] else { continue };
            let thread = Thread { warp: number, lane };
            let mut wrong = |mistake, other: Option<usize>, pc_there, about: u32| {
                let other = other.map(|lane| (pc_there, Thread { warp: number, lane }));
                tell(Wrong { mistake, pc, thread, other, about: about.into() });
            };
            if members >> lane & 1 == 0 {
                wrong(Mistake::OwnLane, None, 0, members);
            }
            let gone = members & lived & !live;
            if gone != 0 && matches!(purpose(pc), Purpose::Meeting | Purpose::Lanes) {
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
        let is_stuck = warp.is_stuck(mask, &purpose);
        // Whoever meets others elsewhere goes on, but what it met for is not what they did.
        let came = |lane: usize| warp.came[lane].map(|came| (came.pc, Thread { warp: number, lane }));
        let stays = |pc: u32| matches!(purpose(pc), Purpose::Lanes | Purpose::Block);
        let alone = lanes(mask).filter_map(came).find(|(pc, _)| stays(*pc));
        if let Some((pc, thread)) = alone
            && let Some(other) = lanes(mask).filter_map(came).find(|(other, _)| *other != pc)
        {
            let about = u64::from(mask);
            tell(Wrong { mistake: Mistake::NeverMet, pc, thread, other: Some(other), about });
        }
        if is_stuck && let Some((pc, thread)) = lanes(mask).find_map(came) {
            let other = lanes(mask).filter_map(came).find(|(other, _)| *other != pc);
            tell(Wrong { mistake: Mistake::NeverMet, pc, thread, other, about: mask.into() });
        }
        lanes(mask).for_each(|lane| warp.came[lane] = None);
    }

    /// Whether all lanes of a warp wait for others that never come.
    pub(super) fn is_stuck(&self, number: usize) -> bool {
        self.warps.get(number).is_some_and(|warp| warp.stuck)
    }

    /// Lanes have come to a wait, each for those that it names; the guard ends those that do not find them here. Of others it
    /// is known where they are.
    pub(super) fn ask(
        &self,
        number: usize,
        present: Present,
        pc: u32,
        members: &Lanes,
        place: impl Fn(usize) -> u32,
        mut tell: impl FnMut(Wrong),
    ) {
        let Present { mask, live } = present;
        let Some(warp) = self.warps.get(number) else { return };
        let named = |lane: usize| (members[lane] & 0xffff_ffff) as u32;
        for lane in lanes(mask) {
            let all = named(lane);
            let other = |at: usize, pc: u32| Some((pc, Thread { warp: number, lane: at }));
            let differs = lanes(all & mask).find(|other| named(*other) != all);
            let missing = all & warp.all & !mask;
            let (mistake, other, about) = if all >> lane & 1 == 0 {
                (Mistake::OwnLane, None, all)
            } else if let Some(at) = differs {
                (Mistake::Masks, other(at, pc), all)
            } else if missing & !live != 0 {
                let at = first(missing & !live);
                (Mistake::LanesExited, other(at, warp.exits[at]), missing & !live)
            } else if missing != 0 {
                (Mistake::NeverMet, other(first(missing), place(first(missing))), missing)
            } else {
                continue;
            };
            tell(Wrong { mistake, pc, thread: Thread { warp: number, lane }, other, about: about.into() });
        }
    }
}

impl Warp {
    /// Lanes have met, of which some may be of groups. Where all came for those to the same places twice, each waits for one
    /// that never comes. Answers whether that is so now.
    fn is_stuck(&mut self, mask: u32, purpose: impl Fn(u32) -> Purpose) -> bool {
        let at: [Option<u32>; LANES] =
            std::array::from_fn(|lane| self.came[lane].filter(|_| mask >> lane & 1 == 1).map(|came| came.pc));
        let places = || at.iter().flatten().map(|pc| purpose(*pc));
        if places().any(|purpose| purpose == Purpose::Left) {
            return false;
        }
        let now = places().all(|purpose| purpose == Purpose::Group).then_some(at);
        let is_stuck = now.is_some() && now == self.groups;
        self.stuck |= is_stuck;
        self.groups = now;
        is_stuck
    }
}

/// The lowest lane of a mask.
pub(super) fn first(mask: u32) -> usize {
    mask.trailing_zeros() as usize & 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn present(mask: u32, live: u32) -> Present {
        Present { mask, live }
    }

    fn thread(warp: usize, lane: usize) -> Thread {
        Thread { warp, lane }
    }

    fn opened(meetings: &mut Meetings, barrier: usize) -> Vec<(Mistake, u64)> {
        let mut told = Vec::new();
        meetings.open(barrier, |wrong| told.push((wrong.mistake, wrong.about)));
        told
    }

    fn met(meetings: &mut Meetings, mask: u32, live: u32) -> Vec<(Mistake, usize, u64)> {
        let mut told = Vec::new();
        meetings.meet(
            0,
            present(mask, live),
            |_| Purpose::Meeting,
            |wrong| told.push((wrong.mistake, wrong.thread.lane, wrong.about)),
        );
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
            [
                (Mistake::BarrierApart, 7, Some((8, thread(1, 0)))),
                (Mistake::BarrierExited, 7, Some((99, thread(1, 4)))),
            ]
        );
    }

    #[test]
    fn lanes_that_name_each_other_and_come_are_right() {
        let mut meetings = Meetings::new(32);
        // Half of the warp is gone before anybody comes.
        meetings.come(0, present(0xff, 0xffff), 7, &[u64::from(u32::MAX); LANES]);
        meetings.come(0, present(0xff00, 0xffff), 7, &[u64::from(u32::MAX); LANES]);
        assert_eq!(met(&mut meetings, 0xffff, 0xffff), []);
        meetings.come(0, present(0b11, 0xffff), 7, &[0b11; LANES]);
        meetings.come(0, present(0b1100, 0xffff), 7, &[0b1100; LANES]);
        assert_eq!(met(&mut meetings, 0b1111, 0xffff), []);
    }

    #[test]
    fn masks_without_the_own_lane_and_masks_that_differ_are_told() {
        let mut meetings = Meetings::new(32);
        meetings.come(0, present(0b100, u32::MAX), 7, &[0b11; LANES]);
        assert_eq!(met(&mut meetings, 0b100, u32::MAX), [(Mistake::OwnLane, 2, 0b11)]);
        meetings.come(0, present(0b01, u32::MAX), 7, &[0b11; LANES]);
        meetings.come(0, present(0b10, u32::MAX), 7, &[0b10; LANES]);
        assert_eq!(met(&mut meetings, 0b11, u32::MAX), [(Mistake::Masks, 0, 0b11)]);
    }

    #[test]
    fn lanes_that_meet_for_something_where_others_are_not_are_told_once() {
        let all = [u64::from(u32::MAX); LANES];
        let apart = |purposes: [Purpose; 2]| {
            let mut meetings = Meetings::new(32);
            meetings.come(0, present(0xffff, u32::MAX), 7, &all);
            meetings.come(0, present(0xffff_0000, u32::MAX), 9, &all);
            let purpose = |pc: u32| purposes[usize::from(pc == 9)];
            let mut told = Vec::new();
            meetings.meet(0, present(u32::MAX, u32::MAX), purpose, |wrong| {
                told.push((wrong.mistake, wrong.pc, wrong.other))
            });
            told
        };
        assert_eq!(apart([Purpose::Meeting; 2]), []);
        assert_eq!(
            apart([Purpose::Lanes, Purpose::Meeting]),
            [(Mistake::NeverMet, 7, Some((9, thread(0, 16))))]
        );
        assert_eq!(
            apart([Purpose::Meeting, Purpose::Block]),
            [(Mistake::NeverMet, 9, Some((7, thread(0, 0))))]
        );
        // A barrier of the block waits for nobody who has exited.
        for (purpose, count) in [(Purpose::Block, 0), (Purpose::Lanes, 16)] {
            let mut meetings = Meetings::new(32);
            meetings.come(0, present(0xffff, u32::MAX), 7, &all);
            meetings.exit(0, 0xffff_0000, 3);
            let mut told = 0;
            meetings.meet(0, present(0xffff, 0xffff), |_| purpose, |_| told += 1);
            assert_eq!(told, count);
        }
    }

    #[test]
    fn lanes_whose_masks_are_not_who_is_there_are_told() {
        let mut meetings = Meetings::new(32);
        meetings.exit(0, 0b1000, 3);
        let asked = |mask: u32, members: &Lanes| {
            let mut told = Vec::new();
            meetings.ask(
                0,
                present(mask, !0b1000),
                7,
                members,
                |_| 5,
                |wrong| told.push((wrong.mistake, wrong.thread.lane, wrong.about, wrong.other)),
            );
            told
        };
        assert_eq!(asked(0b0011, &[0b0011; LANES]), []);
        assert_eq!(asked(0b0101, &[0b0001; LANES]), [(Mistake::OwnLane, 2, 0b0001, None)]);
        let mut members = [0b0011; LANES];
        members[1] = 0b0010;
        assert_eq!(asked(0b0011, &members), [(Mistake::Masks, 0, 0b0011, Some((7, thread(0, 1))))]);
        let gone = [(Mistake::LanesExited, 0, 0b1000, Some((3, thread(0, 3))))];
        assert_eq!(asked(0b0001, &[0b1001; LANES]), gone);
        let elsewhere = [(Mistake::NeverMet, 0, 0b0100, Some((5, thread(0, 2))))];
        assert_eq!(asked(0b0001, &[0b0101; LANES]), elsewhere);
    }

    #[test]
    fn a_lane_that_exits_while_others_wait_for_it_is_told() {
        let mut meetings = Meetings::new(32);
        let all = [u64::from(u32::MAX); LANES];
        meetings.come(0, present(0xff, u32::MAX), 7, &all);
        meetings.exit(0, !0xff, 9);
        // They come again when others have exited.
        meetings.come(0, present(0xff, 0xff), 7, &all);
        let told = met(&mut meetings, 0xff, 0xff);
        assert_eq!(told.len(), 8);
        assert_eq!(told[0], (Mistake::LanesExited, 0, 0xffff_ff00));
    }
}
