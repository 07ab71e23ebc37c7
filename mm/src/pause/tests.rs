//! The machine against what its module promises, in every state that a small world can reach and in long random runs.
//! The same checks have to catch each [`Mutant`].

use std::collections::HashSet;

use super::*;
use crate::testing::{Choices, seeds};

/// A mistake that the machine makes on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Mutant {
    ChangeWithoutWaiting,
    ForgetToHold,
    RefuseSilently,
    RefuseTheFirstOnly,
    LaunchWhileChanging,
    NoTurn,
}

const MUTANTS: [Mutant; 6] = [
    Mutant::ChangeWithoutWaiting,
    Mutant::ForgetToHold,
    Mutant::RefuseSilently,
    Mutant::RefuseTheFirstOnly,
    Mutant::LaunchWhileChanging,
    Mutant::NoTurn,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Fate {
    Pending,
    InHand,
    Changed,
    Refused,
    Abandoned,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Asked {
    deadline_ns: Option<u64>,
    fate: Fate,
    /// Whether the pause that goes on lasts until this one is over.
    founder: bool,
}

#[derive(Debug, Clone, Copy)]
enum Act {
    /// With a deadline so many ns from now.
    Ask(Option<u64>),
    Submit,
    Complete,
    Tick,
    Poll,
    Done,
    Hold,
    Release,
    Abandon,
}

/// A session, its device, and whoever drives the pause; and all that was promised.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    pause: Pause<usize>,
    in_flight: u32,
    now_ns: u64,
    asked: Vec<Asked>,
    /// A pause goes on.
    paused: bool,
    /// No change of this pause was handed out yet.
    draining: bool,
    /// The session was held and has had no turn since.
    owed: bool,
    holders: u32,
}

type Checked = Result<(), String>;

fn check(holds: bool, promise: &str) -> Checked {
    if holds { Ok(()) } else { Err(promise.to_owned()) }
}

impl World {
    fn new(mutant: Option<Mutant>) -> Self {
        Self {
            pause: Pause { mutant, ..Pause::new() },
            in_flight: 0,
            now_ns: 0,
            asked: Vec::new(),
            paused: false,
            draining: false,
            owed: false,
            holders: 0,
        }
    }

    fn with_fate(&self, fate: Fate) -> impl Iterator<Item = usize> {
        self.asked.iter().enumerate().filter(move |(_, asked)| asked.fate == fate).map(|(at, _)| at)
    }

    fn overdue(&self) -> Option<usize> {
        let come = |deadline_ns: u64| deadline_ns <= self.now_ns;
        self.with_fate(Fate::Pending).find(|at| self.asked[*at].deadline_ns.is_some_and(come))
    }

    fn found(&mut self) {
        let pending: Vec<usize> = self.with_fate(Fate::Pending).collect();
        for at in pending {
            self.asked[at].founder = true;
        }
    }

    /// The pause is over with the last of those that it is for.
    fn end_if_served(&mut self) {
        let lasts = |asked: &Asked| asked.founder && matches!(asked.fate, Fate::Pending | Fate::InHand);
        if self.paused && !self.asked.iter().any(lasts) {
            self.paused = false;
            self.owed = true;
        }
    }

    fn can(&self, act: Act) -> bool {
        match act {
            Act::Submit => !self.pause.holds(),
            Act::Complete => self.in_flight > 0,
            Act::Done => self.with_fate(Fate::InHand).next().is_some(),
            Act::Release => self.holders > 0,
            Act::Ask(_) | Act::Tick | Act::Poll | Act::Hold | Act::Abandon => true,
        }
    }

    fn act(&mut self, act: Act) -> Checked {
        match act {
            Act::Ask(after_ns) => {
                let deadline_ns = after_ns.map(|after_ns| self.now_ns + after_ns);
                self.pause.ask(self.asked.len(), deadline_ns);
                self.asked.push(Asked { deadline_ns, fate: Fate::Pending, founder: false });
            }
            Act::Submit => {
                check(self.with_fate(Fate::InHand).next().is_none(), "work is launched while pages change")?;
                self.in_flight += 1;
            }
            Act::Complete => self.in_flight -= 1,
            Act::Tick => self.now_ns += 1,
            Act::Poll => self.poll()?,
            Act::Done => {
                check(self.pause.done().is_ok(), "the change in hand is forgotten")?;
                let hands: Vec<usize> = self.with_fate(Fate::InHand).collect();
                check(hands.len() == 1, "two changes are in hand")?;
                self.asked[hands[0]].fate = Fate::Changed;
                self.end_if_served();
            }
            Act::Hold => {
                self.pause.hold();
                self.holders += 1;
                self.owed = true;
            }
            Act::Release => {
                check(self.pause.release().is_ok(), "a hold is forgotten")?;
                self.holders -= 1;
            }
            Act::Abandon => {
                let pending: Vec<usize> = self.with_fate(Fate::Pending).collect();
                check(self.pause.abandon() == pending, "what is abandoned is not what was pending")?;
                for at in pending {
                    self.asked[at].fate = Fate::Abandoned;
                }
                self.end_if_served();
            }
        }
        let held = self.paused || self.holders > 0;
        check(self.pause.holds() == held, if held { "launches are not held" } else { "launches are held" })?;
        let next = self.with_fate(Fate::Pending).filter_map(|at| self.asked[at].deadline_ns).min();
        check(self.pause.deadline() == next, "the next deadline is another")
    }

    fn poll(&mut self) -> Checked {
        let overdue = self.overdue();
        let oldest = self.with_fate(Fate::Pending).next();
        let in_hand = self.with_fate(Fate::InHand).next();
        let turn = self.owed && self.holders == 0;
        let step = self.pause.poll(self.in_flight, self.now_ns);
        let refuses = matches!(step, Step::Refuse(_));
        check(overdue.is_none() || refuses, "a change waits beyond its deadline")?;
        if overdue.is_none() && !self.paused && oldest.is_some() && !turn {
            (self.paused, self.draining) = (true, true);
            self.found();
        }
        match step {
            Step::Idle => {
                check(oldest.is_none() && !self.paused, "it idles while changes wait")?;
                self.owed &= self.holders > 0;
            }
            Step::Turn => {
                check(!self.paused && turn, "it gives a turn that nobody is owed")?;
                self.owed = false;
            }
            Step::Wait => {
                check(self.paused, "it waits without a pause")?;
                check(self.in_flight > 0 || in_hand.is_some(), "it waits for nothing")?;
            }
            Step::Change(change) => {
                check(self.in_flight == 0, "pages change while work is on the device")?;
                check(in_hand.is_none(), "two changes are in hand")?;
                check(self.paused, "pages change before the session had its turn")?;
                check(oldest == Some(change), "not the oldest change is handed out")?;
                if self.draining {
                    self.found();
                    self.draining = false;
                }
                check(self.asked[change].founder, "a change prolongs a pause that it was not there for")?;
                self.asked[change].fate = Fate::InHand;
            }
            Step::Refuse(refused) => {
                check(overdue == Some(refused), "not the oldest overdue change is refused")?;
                self.asked[refused].fate = Fate::Refused;
                self.end_if_served();
            }
        }
        Ok(())
    }

    /// Once all work passes and all holds end, every change comes to its end and launches go on.
    fn wind_up(mut self) -> Checked {
        for _ in 0..4 * (self.asked.len() + 2) {
            for act in [Act::Complete, Act::Complete, Act::Release, Act::Done] {
                if self.can(act) {
                    self.act(act)?;
                }
            }
            self.act(Act::Poll)?;
        }
        check(self.with_fate(Fate::Pending).next().is_none(), "a change is never handed out")?;
        check(self.with_fate(Fate::InHand).next().is_none(), "a change is never done")?;
        check(!self.pause.holds(), "launches are held for ever")
    }

    /// Where work never passes, all that has a deadline is refused, and without the rest launches go on.
    fn sit_out(mut self) -> Checked {
        self.in_flight += 1;
        self.now_ns += 10;
        for _ in 0..2 * (self.asked.len() + 2) {
            for act in [Act::Release, Act::Done, Act::Poll] {
                if self.can(act) {
                    self.act(act)?;
                }
            }
        }
        let mut left = self.with_fate(Fate::Pending).map(|at| self.asked[at].deadline_ns);
        check(left.all(|deadline_ns| deadline_ns.is_none()), "a deadline is missed")?;
        let waits = self.with_fate(Fate::Pending).next().is_some();
        check(self.pause.holds() == waits, "launches are held for nothing")
    }
}

const ACTS: [Act; 11] = [
    Act::Ask(None),
    Act::Ask(Some(1)),
    Act::Ask(Some(2)),
    Act::Submit,
    Act::Complete,
    Act::Tick,
    Act::Poll,
    Act::Done,
    Act::Hold,
    Act::Release,
    Act::Abandon,
];

/// Looks at every state of a world with at most so many changes; answers how many there are.
fn explore(mutant: Option<Mutant>, asked_max: usize) -> Result<usize, String> {
    let small = |world: &World| {
        world.asked.len() <= asked_max && world.in_flight <= 2 && world.now_ns <= 4 && world.holders <= 1
    };
    let mut seen = HashSet::new();
    let mut worlds = vec![World::new(mutant)];
    while let Some(world) = worlds.pop() {
        for act in ACTS.into_iter().filter(|act| world.can(*act)) {
            let mut next = world.clone();
            next.act(act).map_err(|promise| format!("{promise}, after {act:?} in {world:?}"))?;
            if small(&next) && !seen.contains(&next) {
                // A pause in which work appears on the device from nowhere is not this machine's to answer for.
                if !next.pause.holds() || next.in_flight > 0 {
                    next.clone()
                        .sit_out()
                        .map_err(|promise| format!("{promise}, in the end, from {next:?}"))?;
                }
                next.clone().wind_up().map_err(|promise| format!("{promise}, in the end, from {next:?}"))?;
                seen.insert(next.clone());
                worlds.push(next);
            }
        }
    }
    Ok(seen.len())
}

/// One long random run.
fn wander(mutant: Option<Mutant>, seed: u64, steps: u32) -> Checked {
    let mut choices = Choices::new(seed);
    let mut world = World::new(mutant);
    for _ in 0..steps {
        let act = match choices.below(40) {
            0 | 1 => Act::Ask(None),
            2..6 => Act::Ask(Some(choices.below(12))),
            6..14 => Act::Submit,
            14..21 => Act::Complete,
            21..24 => Act::Tick,
            24..32 => Act::Poll,
            32..37 => Act::Done,
            37 if world.holders < 2 => Act::Hold,
            38 if choices.below(20) == 0 => Act::Abandon,
            _ => Act::Release,
        };
        if world.can(act) {
            world.act(act)?;
        }
    }
    world.wind_up()
}

#[test]
fn every_state_of_a_small_world_keeps_what_is_promised() {
    match explore(None, 3) {
        Ok(states) => {
            println!("{states} states");
            assert!(states > 10_000, "only {states} states were reached");
        }
        Err(broken) => panic!("{broken}"),
    }
}

#[test]
fn long_runs_keep_what_is_promised() {
    for seed in seeds() {
        println!("seed {seed}");
        wander(None, seed, 3_000).unwrap();
    }
}

#[test]
fn every_mutant_is_caught_in_a_small_world() {
    for mutant in MUTANTS {
        match explore(Some(mutant), 2) {
            Ok(states) => panic!("{mutant:?} lives through {states} states"),
            Err(broken) => println!("{mutant:?}: {broken}"),
        }
    }
}

#[test]
fn every_mutant_is_caught_in_long_runs() {
    for mutant in MUTANTS {
        assert!((1..4).any(|seed| wander(Some(mutant), seed, 3_000).is_err()), "{mutant:?} lives");
    }
}

#[test]
fn a_session_launches_between_the_changes_of_a_storm() {
    for (seed, deadline_ns) in [(1, None), (2, Some(3)), (3, Some(40))] {
        let mut choices = Choices::new(seed);
        let mut pause = Pause::new();
        let (mut in_flight, mut launched, mut pauses, mut changes) = (0, 0, 0, 0);
        for now_ns in 0..5_000 {
            let deadline_ns = deadline_ns.map(|deadline_ns| now_ns + deadline_ns);
            pause.ask((), deadline_ns);
            loop {
                let held = pause.holds();
                let step = pause.poll(in_flight, now_ns);
                match step {
                    Step::Change(()) => {
                        pauses += i32::from(!held);
                        changes += 1;
                        // Whoever got one asks for the next before anybody else comes to act.
                        if choices.below(4) == 0 {
                            pause.ask((), deadline_ns);
                        }
                        pause.done().unwrap();
                        if choices.below(4) == 0 {
                            pause.ask((), deadline_ns);
                        }
                    }
                    Step::Refuse(()) => {}
                    Step::Idle | Step::Turn | Step::Wait => {
                        pauses += i32::from(pause.holds() && !held);
                        break;
                    }
                }
            }
            if !pause.holds() {
                in_flight += 1;
                launched += 1;
            }
            if choices.below(4) == 0 {
                in_flight = 0;
            }
        }
        println!("{changes} changes, {pauses} pauses, {launched} launches");
        assert!(pauses > 500 && changes > 500, "{changes} changes are served in {pauses} pauses");
        assert!(launched >= pauses - 1, "{launched} launches in {pauses} pauses");
    }
}

#[test]
fn a_revocation_waits_for_ever_and_an_allocation_behind_it_does_not() {
    let mut pause = Pause::new();
    pause.ask("revoke", None);
    pause.ask("allocate", Some(10));
    assert_eq!(pause.poll(1, 0), Step::Wait);
    assert_eq!(pause.deadline(), Some(10));
    assert_eq!(pause.poll(1, 10), Step::Refuse("allocate"));
    assert_eq!(pause.poll(1, 1_000_000), Step::Wait);
    assert!(pause.holds());
    assert_eq!(pause.poll(0, 1_000_001), Step::Change("revoke"));
    assert!(pause.holds());
    pause.done().unwrap();
    assert!(!pause.holds());
}

#[test]
fn a_swapped_out_session_stays_held_and_is_brought_back_by_a_change() {
    let mut pause = Pause::new();
    pause.ask("out", None);
    assert_eq!(pause.poll(0, 0), Step::Change("out"));
    pause.hold();
    pause.done().unwrap();
    assert_eq!(pause.poll(0, 1), Step::Idle);
    assert!(pause.holds());
    pause.ask("in", None);
    assert_eq!(pause.poll(0, 2), Step::Change("in"), "a session that cannot launch needs no turn");
    pause.ask("later", None);
    pause.release().unwrap();
    pause.done().unwrap();
    assert!(!pause.holds());
    assert_eq!(pause.poll(0, 3), Step::Turn, "it launches before its pages change again");
    assert_eq!(pause.poll(0, 3), Step::Change("later"));
}

#[test]
fn what_its_driver_does_wrong_changes_nothing() {
    let mut pause = Pause::new();
    assert_eq!(pause.done(), Err(PauseError::NothingInHand));
    assert_eq!(pause.release(), Err(PauseError::NotHeld));
    pause.ask((), None);
    assert_eq!(pause.poll(1, 0), Step::Wait);
    assert_eq!(pause.done(), Err(PauseError::NothingInHand));
    assert!(pause.holds());
}
