//! What lanes do together: barriers, shuffles, votes, matches, reductions.

use super::frame::Frame;
use super::mask::{all_or_none, first, lanes};
use super::warp::{State, Warp};
use crate::alu::{LANES, Lanes};
use crate::code::{BARRIERS, BarrierMode, Collective, Op, PredSrc, Program, ShuffleMode, Src, VoteMode};
use crate::fault::Fault;

/// Operands of a block barrier.
pub(crate) struct Arrival {
    pub(crate) mode: BarrierMode,
    pub(crate) id: Src,
    pub(crate) count: Option<Src>,
    pub(crate) a: PredSrc,
}

/// What came of an arrival.
pub(crate) struct Arrived {
    /// The barrier that the lanes now wait at, unless they only reported.
    pub(crate) waits_at: Option<usize>,
    /// Whether the count that the instruction named has been reached.
    pub(crate) completes: bool,
}

/// The low word of a register's lane.
fn low(word: u64) -> u32 {
    (word & 0xffff_ffff) as u32
}

impl Warp {
    /// Counts the active lanes at a block barrier.
    pub(crate) fn arrive(
        &mut self,
        frame: &mut Frame<'_>,
        active: u32,
        operands: Arrival,
    ) -> Result<Arrived, Fault> {
        let constants = &frame.program.constants;
        let lane = first(active);
        let id = operands.id.of(&self.registers, constants)[lane];
        let id = usize::try_from(id)
            .ok()
            .filter(|id| *id < BARRIERS)
            .ok_or_else(|| Fault::illegal(format!("barrier {id} does not exist")))?;
        let count = operands.count.map(|count| low(count.of(&self.registers, constants)[lane]));
        if count.is_some_and(|count| count == 0 || !count.is_multiple_of(32)) {
            return Err(Fault::illegal("the thread count of a barrier is not a multiple of the warp size"));
        }
        let barrier = &mut frame.barriers[id];
        // With a count the barrier counts warps (ISA, "barrier": in multiples of the warp size).
        let whole_warp = count.is_some() && active == self.live;
        barrier.arrived += if whole_warp { 32 } else { active.count_ones() };
        barrier.holding += (active & operands.a.lanes(&self.predicates)).count_ones();
        barrier.expected = barrier.expected.or(count);
        let completes = barrier.expected.is_some_and(|expected| barrier.arrived >= expected);
        let waits_at = (operands.mode != BarrierMode::Arrive).then_some(id);
        Ok(Arrived { waits_at, completes })
    }

    /// Lanes reach a warp barrier; those whose partners are all there go on, which are answered.
    pub(crate) fn warp_barrier(&mut self, behind: u32, active: u32, members: &Lanes) -> u32 {
        for lane in lanes(active) {
            self.awaited[lane] = low(members[lane]);
        }
        self.park(behind, active, State::WarpBarrier);
        self.settle_warp_barrier()
    }

    /// Lets the lanes at warp barriers go whose partners are there or have exited, those behind one barrier together;
    /// answers which.
    pub(crate) fn settle_warp_barrier(&mut self) -> u32 {
        let at_barrier = self
            .groups
            .iter()
            .filter(|group| group.state == State::WarpBarrier)
            .fold(0, |mask, group| mask | group.mask);
        let released = lanes(at_barrier)
            .filter(|lane| self.awaited[*lane] & self.live & !at_barrier == 0)
            .fold(0, |mask, lane| mask | 1 << lane);
        let before = self.groups.len();
        for index in 0..before {
            let group = self.groups[index];
            if group.state == State::WarpBarrier && group.mask & released != 0 {
                self.groups[index].mask &= !released;
                let goes = group.mask & released;
                let mut fresh = self.groups.iter_mut().skip(before);
                match fresh.find(|other| other.pc == group.pc) {
                    Some(other) => other.mask |= goes,
                    None => self.park(group.pc, goes, State::Ready),
                }
            }
        }
        self.groups.retain(|group| group.mask != 0);
        released
    }

    /// The lanes, among those that arrive now and those that wait at the same instruction, whose
    /// partners are all here. Lanes that waited leave their groups.
    pub(crate) fn gather(&mut self, pc: u32, active: u32, members: &Lanes) -> u32 {
        if active == self.live {
            return active;
        }
        let waits = |state: State, at: u32| state == State::Collective && at == pc;
        let here = self
            .groups
            .iter()
            .filter(|group| waits(group.state, group.pc))
            .fold(active, |mask, group| mask | group.mask);
        let together = lanes(here)
            .filter(|lane| low(members[*lane]) & self.live & !here == 0)
            .fold(0, |mask, lane| mask | 1 << lane);
        if together & !active != 0 {
            for group in self.groups.iter_mut().filter(|group| waits(group.state, group.pc)) {
                group.mask &= !together;
            }
            self.groups.retain(|group| group.mask != 0);
        }
        together
    }

    /// Lanes reach a ballot or a match of equals, which may be others than those of their warp that wait: all of a kind that
    /// name the same lanes are one (ISA, "vote.sync", "match.sync"). Answers which lanes go on from here, and which at all.
    pub(crate) fn apart(&mut self, program: &Program, pc: u32, active: u32) -> (u32, u32) {
        let mut places = vec![(pc, active)];
        let op = |pc: u32| match program.code[pc as usize].op {
            Op::Collective { members, what } => Some((members, what)),
            _ => None,
        };
        let matches = |pc: u32| matches!(op(pc), Some((_, Collective::MatchAny { .. })));
        let is_one = |at: u32| {
            let ballots = matches!(op(at), Some((_, Collective::Ballot { .. })));
            if matches(pc) { matches(at) } else { ballots }
        };
        self.groups.retain(|group| {
            let waits = group.state == State::Collective && is_one(group.pc);
            if waits {
                places.push((group.pc, group.mask));
            }
            !waits
        });
        let (mut named, mut said) = ([0; LANES], [0; LANES]);
        for (at, mask) in &places {
            let Some((members, what)) = op(*at) else { continue };
            let members = members.of(&self.registers, &program.constants);
            lanes(*mask).for_each(|lane| named[lane] = low(members[lane]));
            match what {
                Collective::Ballot { a, d: _ } => {
                    let holding = a.lanes(&self.predicates);
                    lanes(*mask).for_each(|lane| said[lane] = u64::from(holding >> lane & 1));
                }
                Collective::MatchAny { a, d: _ } => {
                    let values = a.of(&self.registers, &program.constants);
                    lanes(*mask).for_each(|lane| said[lane] = values[lane]);
                }
                _ => {}
            }
        }
        let all = places.iter().fold(0, |all, (_, mask)| all | mask);
        let among = |all: u32, is_one: &dyn Fn(usize) -> bool| {
            lanes(all).filter(|lane| is_one(*lane)).fold(0, |mask, lane| mask | 1 << lane)
        };
        let parties: [u32; LANES] =
            std::array::from_fn(|lane| among(all, &|other| named[other] == named[lane]));
        let (mut here, mut gone) = (0, 0);
        for (at, mask) in places {
            let Some((_, Collective::Ballot { d, .. } | Collective::MatchAny { d, .. })) = op(at) else {
                continue;
            };
            let comes = |lane: &usize| named[*lane] & self.live & !parties[*lane] == 0;
            let go = lanes(mask).filter(comes).fold(0, |mask, lane| mask | 1 << lane);
            let mut out = [0; LANES];
            // Lanes outside their own mask are undefined (ISA); here they see what those inside do.
            for lane in lanes(go) {
                let wanted = if matches(pc) { said[lane] } else { 1 };
                out[lane] = among(parties[lane] & named[lane], &|other| said[other] == wanted).into();
            }
            self.write(d, &out, go);
            gone |= go;
            if at == pc {
                here |= go;
                self.park(at, mask & !go & !active, State::Collective);
            } else {
                self.park(at + 1, go, State::Ready);
                self.park(at, mask & !go, State::Collective);
            }
        }
        (here, gone)
    }

    /// Does a collective operation for lanes that are all here. Lanes with different member masks are
    /// different parties.
    pub(crate) fn collective(
        &mut self,
        constants: &[Lanes],
        what: &Collective,
        members: &Lanes,
        together: u32,
    ) {
        let mut left = together;
        while left != 0 {
            let named = low(members[first(left)]);
            let party = lanes(left)
                .filter(|lane| low(members[*lane]) == named)
                .fold(0, |mask, lane| mask | 1 << lane);
            // Lanes outside their own mask are undefined (ISA); here they just stay out of it.
            let inside = party & named;
            self.party(constants, what, if inside == 0 { party } else { inside });
            left &= !party;
        }
    }

    fn party(&mut self, constants: &[Lanes], what: &Collective, party: u32) {
        let mut out = [0; LANES];
        match *what {
            Collective::Shuffle { mode, d, p, a, b, c } => {
                let registers = &self.registers;
                let [a, b, c] = [a, b, c].map(|operand| operand.of(registers, constants));
                let mut in_range = 0;
                for lane in 0..LANES {
                    let (source, inside) = shuffle_source(mode, lane as u32, low(b[lane]), low(c[lane]));
                    out[lane] = a[source as usize];
                    in_range |= u32::from(inside) << lane;
                }
                self.write(d, &out, party);
                self.write_predicate(p, in_range, party);
            }
            Collective::Vote { mode, d, a } => {
                let holding = a.lanes(&self.predicates) & party;
                let answer = match mode {
                    VoteMode::All => holding == party,
                    VoteMode::Any => holding != 0,
                    VoteMode::Uniform => holding == party || holding == 0,
                };
                self.write_predicate(d, all_or_none(answer), party);
            }
            Collective::Ballot { d, a } => {
                let holding = a.lanes(&self.predicates) & party;
                self.write(d, &[u64::from(holding); LANES], party);
            }
            Collective::MatchAny { d, a } => {
                let a = a.of(&self.registers, constants);
                for lane in lanes(party) {
                    let same = lanes(party).filter(|other| a[*other] == a[lane]);
                    out[lane] = u64::from(same.fold(0u32, |mask, other| mask | 1 << other));
                }
                self.write(d, &out, party);
            }
            Collective::MatchAll { d, p, a } => {
                let a = a.of(&self.registers, constants);
                let same = lanes(party).all(|lane| a[lane] == a[first(party)]);
                let answer = if same { u64::from(party) } else { 0 };
                self.write(d, &[answer; LANES], party);
                self.write_predicate(p, all_or_none(same), party);
            }
            Collective::Reduce { f, d, a } => {
                let a = a.of(&self.registers, constants);
                let folded = lanes(party).map(|lane| a[lane]).reduce(f).unwrap_or(0);
                self.write(d, &[folded; LANES], party);
            }
            Collective::Elect { d, p } => {
                let leader = first(party);
                self.write(d, &[leader as u64; LANES], party);
                self.write_predicate(p, 1 << leader, party);
            }
        }
    }
}

/// The lane that `shfl` reads from, and whether it is in range (ISA, "shfl.sync", pseudo code).
fn shuffle_source(mode: ShuffleMode, lane: u32, b: u32, c: u32) -> (u32, bool) {
    let b = b & 31;
    let clamp = c & 31;
    let segment = c >> 8 & 31;
    let last = (lane & segment) | (clamp & !segment);
    let (source, inside) = match mode {
        // Here the clamp is the lowest lane of the segment.
        ShuffleMode::Up => (lane.wrapping_sub(b), lane >= b && lane - b >= last),
        ShuffleMode::Down => (lane + b, lane + b <= last),
        ShuffleMode::Butterfly => (lane ^ b, lane ^ b <= last),
        ShuffleMode::Index => {
            let source = (lane & segment) | (b & !segment);
            (source, source <= last)
        }
    };
    if inside { (source, true) } else { (lane, false) }
}
