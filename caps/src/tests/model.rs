//! A tree does what the naive model does, whatever is asked of it, and the same test notices every mutant.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    time::{SystemTime, UNIX_EPOCH},
};

use super::{
    naive::{Naive, Run, Thing},
    *,
};
use crate::{Error, Mutant};

const STEPS: usize = 400;
const KINDS: [Kind; 4] = [Kind::Buffer, Kind::Image, Kind::Entry, Kind::Signal];

/// A tree and the model of it, and the outcome of every step compared.
struct Pair {
    tree: Tree,
    naive: Naive,
    choices: Choices,
    owners: Vec<Owner>,
    now_ns: u64,
}

impl Pair {
    fn new(seed: u64, mutant: Option<Mutant>) -> Self {
        let mut choices = Choices::new(seed);
        let last_generation = if choices.below(2) == 0 { 1 + choices.below(4) } else { 1 << 20 };
        let nodes_per_root = if choices.below(2) == 0 { 6 } else { 40 };
        let limits = Limits {
            last_generation: u32::try_from(last_generation).unwrap(),
            nodes_per_root: u32::try_from(nodes_per_root).unwrap(),
        };
        let mut tree = Tree::new(limits);
        if let Some(mutant) = mutant {
            tree.mutate(mutant);
        }
        let naive = Naive { nodes_per_root, ..Naive::default() };
        let mut pair = Self { tree, naive, choices, owners: Vec::new(), now_ns: 0 };
        for _ in 0..3 {
            pair.open_owner();
        }
        pair.open_line();
        pair
    }

    fn open_owner(&mut self) {
        let limit = u32::try_from(6 + self.choices.below(30)).unwrap();
        let owner = self.tree.open_owner(limit);
        self.owners.push(owner);
        self.naive.limits.insert(owner, limit);
        let line = self.tree.open_line(Some(owner));
        self.naive.lines.insert(line, Run { owner: Some(owner), submitted: 0, completed: 0, open: true });
    }

    fn open_line(&mut self) {
        let owner = if self.choices.below(3) == 0 { None } else { self.choices.any(&self.owners) };
        let line = self.tree.open_line(owner);
        let run = Run { owner, submitted: 0, completed: 0, open: true };
        assert!(self.naive.lines.insert(line, run).is_none(), "{line:?} was used before");
    }

    fn owner(&mut self) -> Owner {
        self.choices.any(&self.owners).unwrap()
    }

    fn line(&mut self) -> Line {
        let open: Vec<Line> =
            self.naive.lines.iter().filter(|(_, run)| run.open).map(|(line, _)| *line).collect();
        self.choices.any(&open).unwrap()
    }

    /// Who names what: mostly a capability that lives and its owner, but any that was ever made, and others too.
    fn name(&mut self) -> (Owner, Handle) {
        let lives: Vec<usize> = (0..self.naive.caps.len()).filter(|at| self.naive.caps[*at].live).collect();
        let all: Vec<usize> = (0..self.naive.caps.len()).collect();
        let from = if self.choices.below(5) > 0 { lives } else { all };
        let Some(at) = self.choices.any(&from) else {
            let generation = u32::try_from(self.choices.below(3)).unwrap();
            return (self.owner(), Handle { slot: 0, generation });
        };
        let cap = &self.naive.caps[at];
        let (owner, handle) = (cap.owner, cap.handle);
        if self.choices.below(12) == 0 { (self.owner(), handle) } else { (owner, handle) }
    }

    fn need(&mut self) -> Need {
        let kind = if self.choices.below(4) > 0 { Kind::Buffer } else { self.choices.any(&KINDS).unwrap() };
        let access = if self.choices.below(3) > 0 { Access::Read } else { Access::ReadWrite };
        let small = |choices: &mut Choices| choices.below(20) as u64;
        let (offset, bytes) = match self.choices.below(12) {
            0 => (u64::MAX - small(&mut self.choices), small(&mut self.choices)),
            1 => (small(&mut self.choices), u64::MAX - small(&mut self.choices)),
            2..5 => (small(&mut self.choices), small(&mut self.choices) * 4),
            _ => (0, small(&mut self.choices)),
        };
        Need { kind, access, offset, bytes }
    }

    fn step(&mut self) {
        self.now_ns += self.choices.below(3) as u64;
        match self.choices.below(40) {
            0..6 => self.create(),
            6..15 => self.derive(),
            15..22 => self.submit(),
            22 => self.uses(),
            23..28 => self.complete(),
            28..31 => self.revoke(),
            31 => self.revoke_owner(),
            32..35 => self.severed(),
            35 => self.settle(),
            36 => self.free(),
            37 => self.now_ns += 40,
            38 => self.lines(),
            _ => self.rarely(),
        }
        self.compare();
    }

    fn create(&mut self) {
        let owner = self.owner();
        let kind = self.choices.any(&KINDS).unwrap();
        let answer = self.tree.create(owner, kind, 64);
        assert_eq!(answer.map(|_| ()), self.naive.may_create(owner));
        let Ok((handle, id)) = answer else { return };
        let state = ObjectState::Live;
        self.naive.things.push(Thing { id, state, uses: BTreeMap::new(), deadline_ns: 0 });
        let need = Need { kind, access: Access::ReadWrite, offset: 0, bytes: 64 };
        self.naive.made(handle, owner, self.naive.things.len() - 1, None, need);
    }

    fn derive(&mut self) {
        let (owner, parent) = self.name();
        let mut child = Child { owner: self.owner(), need: self.need() };
        if let Ok(at) = self.naive.check(owner, parent, read(0, 0))
            && self.choices.below(2) == 0
        {
            child.need.kind = self.naive.caps[at].need.kind;
        }
        let expected = self.naive.may_derive(owner, parent, child);
        let answer = self.tree.derive(owner, parent, child);
        assert_eq!(answer.map(|_| ()), expected.map(|_| ()));
        let (Ok(handle), Ok(at)) = (answer, expected) else { return };
        let from = &self.naive.caps[at];
        let (object, offset) = (from.object, from.need.offset + child.need.offset);
        self.naive.made(handle, child.owner, object, Some(at), Need { offset, ..child.need });
    }

    fn submit(&mut self) {
        let (mut owner, handle) = self.name();
        let mut names = vec![(handle, self.need())];
        for _ in 0..self.choices.below(3) {
            let (other, handle) = self.name();
            names.push((handle, self.need()));
            owner = if self.choices.below(4) == 0 { other } else { owner };
        }
        let line = self.line();
        let run = &self.naive.lines[&line];
        let refused = names.iter().find_map(|(handle, need)| self.naive.get(owner, *handle, *need).err());
        let expected = match (refused, run.owner.is_none_or(|own| own == owner)) {
            (Some(error), _) => Err(error),
            (None, false) => Err(Error::Unknown("line")),
            (None, true) => Ok(run.submitted + 1),
        };
        assert_eq!(self.tree.submit(owner, line, &names), expected);
        let Ok(mark) = expected else { return };
        self.naive.lines.get_mut(&line).unwrap().submitted = mark;
        for (handle, need) in names {
            let at = self.naive.get(owner, handle, need).unwrap();
            let object = self.naive.caps[at].object;
            self.naive.things[object].uses.insert(line, mark);
        }
    }

    fn uses(&mut self) {
        let line = self.line();
        let Some(at) = self.choices.any(&(0..self.naive.things.len()).collect::<Vec<_>>()) else { return };
        if self.naive.things[at].state == ObjectState::Free {
            return;
        }
        let mark = self.naive.lines[&line].submitted + 1;
        let known = self.naive.things[at].state != ObjectState::Quiescent;
        let expected = if known { Ok(mark) } else { Err(Error::Unknown("object")) };
        assert_eq!(self.tree.uses(line, self.naive.things[at].id), expected);
        if known {
            self.naive.lines.get_mut(&line).unwrap().submitted = mark;
            self.naive.things[at].uses.insert(line, mark);
        }
    }

    fn complete(&mut self) {
        let line = self.line();
        let run = self.naive.lines.get_mut(&line).unwrap();
        let mark = run.completed + self.choices.below(4) as u64;
        run.completed = mark.min(run.submitted).max(run.completed);
        self.tree.completed(line, mark).unwrap();
    }

    fn revoke(&mut self) {
        let (owner, handle) = self.name();
        let extent = if self.choices.below(2) == 0 { Extent::Whole } else { Extent::Descendants };
        let expected = self.naive.check(owner, handle, read(0, 0));
        let deadline_ns = self.now_ns + 30;
        let mut ended = Vec::new();
        let answer = self.tree.revoke(owner, handle, extent, deadline_ns, |one| ended.push(one));
        assert_eq!(answer.map(|_| ()), expected.map(|_| ()));
        let (Ok(id), Ok(at)) = (answer, expected) else { return };
        let should_end = self.naive.revoke(at, extent);
        self.ended(id, &ended, &should_end, deadline_ns);
    }

    fn revoke_owner(&mut self) {
        let owner = self.owner();
        let deadline_ns = self.now_ns + 30;
        let mut ended = Vec::new();
        let id = self.tree.revoke_owner(owner, deadline_ns, |one| ended.push(one)).unwrap();
        let mut should_end = Vec::new();
        for at in 0..self.naive.caps.len() {
            if self.naive.caps[at].live && self.naive.caps[at].owner == owner {
                should_end.extend(self.naive.revoke(at, Extent::Whole));
            }
        }
        self.ended(id, &ended, &should_end, deadline_ns);
    }

    fn ended(&mut self, id: RevocationId, ended: &[Ended], should_end: &[usize], deadline_ns: u64) {
        let mut told: Vec<Handle> = ended.iter().map(|one| one.handle).collect();
        let mut expected: Vec<Handle> = should_end.iter().map(|at| self.naive.caps[*at].handle).collect();
        for handles in [&mut told, &mut expected] {
            handles.sort_unstable_by_key(|handle| (handle.slot, handle.generation));
        }
        assert_eq!(told, expected, "exactly the descendants end, each once");
        self.heirs(ended, should_end);
        self.naive.begun(id, should_end, deadline_ns);
    }

    /// What ended has the nearest capability above it for an heir that lives on, or that ended later.
    fn heirs(&self, ended: &[Ended], should_end: &[usize]) {
        let caps = &self.naive.caps;
        for (order, one) in ended.iter().enumerate() {
            let at = should_end.iter().copied().find(|at| caps[*at].handle == one.handle).unwrap();
            let above = std::iter::successors(caps[at].parent, |above| caps[*above].parent);
            let ends_before = |at: &usize| ended.iter().position(|one| one.handle == caps[*at].handle);
            let lives: Vec<_> = above.filter(|at| ends_before(at).is_none_or(|end| end > order)).collect();
            let heir = lives.iter().position(|at| Some(caps[*at].handle) == one.heir);
            match heir {
                // Those between end in the same walk.
                Some(place) => {
                    let between = lives.iter().take(place);
                    let same = |at: &usize| ended[ends_before(at).unwrap()].heir == one.heir;
                    assert!(between.into_iter().all(same), "{one:?} has a nearer heir");
                }
                None => {
                    assert_eq!(one.heir, None, "{one:?} has an heir that it was not derived from");
                    assert!(lives.iter().all(|at| ends_before(at).is_some()), "{one:?} has an heir");
                }
            }
        }
    }

    fn severed(&mut self) {
        let waiting = self.naive.takings.iter().enumerate();
        let waiting = waiting.flat_map(|(at, taking)| taking.unsevered.iter().map(move |owner| (at, *owner)));
        let Some((at, owner)) = self.choices.any(&waiting.collect::<Vec<_>>()) else { return };
        let own: Vec<Line> =
            self.naive.lines.iter().filter(|(_, run)| run.owner == Some(owner)).map(|x| *x.0).collect();
        let mark = if self.choices.below(2) == 0 { None } else { self.choices.any(&own) };
        let mark = mark.map(|line| (line, self.naive.lines[&line].submitted + self.choices.below(3) as u64));
        assert_eq!(self.tree.severed(self.naive.takings[at].id, owner, mark), Ok(()));
        self.naive.severed(at, owner, mark);
    }

    fn settle(&mut self) {
        let mut changes = BTreeMap::new();
        self.tree.settle(self.now_ns, |object, state| {
            assert!(changes.insert(object, state).is_none(), "{object:?} changes once");
        });
        assert_eq!(changes, self.naive.settle(self.now_ns));
    }

    fn free(&mut self) {
        let known: Vec<usize> = (0..self.naive.things.len())
            .filter(|at| self.naive.things[*at].state != ObjectState::Free)
            .collect();
        for at in known {
            let thing = &mut self.naive.things[at];
            let expected = if thing.state == ObjectState::Quiescent { Ok(()) } else { Err(Error::InUse) };
            assert_eq!(self.tree.free(thing.id), expected);
            if expected.is_ok() {
                thing.state = ObjectState::Free;
            }
        }
    }

    fn lines(&mut self) {
        if self.choices.below(2) == 0 {
            self.open_line();
        } else if self.naive.lines.values().filter(|run| run.open).count() > 3 {
            let line = self.line();
            self.tree.close_line(line).unwrap();
            self.naive.lines.get_mut(&line).unwrap().open = false;
        }
    }

    fn rarely(&mut self) {
        if self.choices.below(2) == 0 {
            let known: Vec<usize> =
                (0..self.naive.takings.len()).filter(|at| !self.naive.takings[*at].forgotten).collect();
            if let Some(at) = self.choices.any(&known) {
                self.tree.forget(self.naive.takings[at].id);
                self.naive.takings[at].forgotten = true;
            }
            return;
        }
        let at = self.choices.below(self.owners.len());
        let owner = self.owners[at];
        if self.naive.held(owner) > 0 {
            assert_eq!(self.tree.close_owner(owner), Err(Error::InUse));
            return;
        }
        let own: Vec<Line> =
            self.naive.lines.iter().filter(|x| x.1.open && x.1.owner == Some(owner)).map(|x| *x.0).collect();
        for line in own {
            assert_eq!(self.tree.close_owner(owner), Err(Error::InUse));
            self.tree.close_line(line).unwrap();
            self.naive.lines.get_mut(&line).unwrap().open = false;
        }
        self.tree.close_owner(owner).unwrap();
        for taking in &mut self.naive.takings {
            taking.unsevered.remove(&owner);
        }
        // What it held has ended: the next owner may go by the same name.
        self.owners.swap_remove(at);
        self.naive.limits.remove(&owner);
        self.open_owner();
    }

    /// Every handle that was ever issued, every object, every revocation, every count.
    fn compare(&mut self) {
        // Before anything is asked, which looks again.
        self.tree.revocations.assert_as_walked(&self.tree.lines);
        for cap in &self.naive.caps {
            let Need { kind, access, offset, bytes } = cap.need;
            let object = self.naive.things[cap.object].id;
            let parent = cap.parent.map(|parent| self.naive.caps[parent].handle);
            let view = crate::View { owner: cap.owner, kind, access, object, offset, bytes, parent };
            for owner in &self.owners {
                let names = cap.live && cap.owner == *owner;
                let expected = if names { Ok(view) } else { Err(Error::Stale { handle: cap.handle }) };
                assert_eq!(self.tree.look(*owner, cap.handle), expected);
            }
        }
        for thing in self.naive.things.iter().filter(|thing| thing.state != ObjectState::Free) {
            assert_eq!(self.tree.object(thing.id), thing.state, "{:?}", thing.id);
        }
        for taking in &self.naive.takings {
            let told = self.tree.moments(taking.id, self.now_ns);
            let expected = self.naive.moments(taking, self.now_ns);
            assert_eq!(told, if taking.forgotten { Err(Error::Unknown("revocation")) } else { Ok(expected) });
        }
        for owner in &self.owners {
            let held = self.naive.held(*owner);
            assert_eq!(self.tree.held(*owner), held);
            let listed: Vec<Handle> = self.tree.of_owner(*owner).map(|(handle, _)| handle).collect();
            let own = self.naive.caps.iter().rev().filter(|cap| cap.live && cap.owner == *owner);
            assert_eq!(listed, own.map(|cap| cap.handle).collect::<Vec<_>>());
        }
        assert_eq!(self.tree.live() as usize, self.naive.caps.iter().filter(|cap| cap.live).count());
    }

    /// Ends everything: nothing is left.
    fn wind_up(&mut self) {
        while !self.owners.is_empty() {
            let owner = self.owners[0];
            let id = self.tree.revoke_owner(owner, 0, |_| ()).unwrap();
            self.tree.forget(id);
            for (line, _) in self.naive.lines.iter().filter(|(_, run)| run.open && run.owner == Some(owner)) {
                self.tree.close_line(*line).unwrap();
            }
            self.owners.swap_remove(0);
            assert_eq!(self.tree.held(owner), 0);
            assert_eq!(self.tree.close_owner(owner), Ok(()));
        }
        for (line, _) in self.naive.lines.iter().filter(|(_, run)| run.open && run.owner.is_none()) {
            self.tree.close_line(*line).unwrap();
        }
        let mut last = Vec::new();
        self.tree.settle(self.now_ns, |object, _| last.push(object));
        for thing in self.naive.things.iter().filter(|thing| thing.state == ObjectState::Quiescent) {
            last.push(thing.id);
        }
        for object in last {
            assert_eq!(self.tree.free(object), Ok(()));
        }
        assert_eq!(self.tree.live(), 0);
        assert!(
            self.tree.objects.iter().all(|object| object.state == ObjectState::Free && object.holds == 0)
        );
    }
}

fn run(seed: u64, mutant: Option<Mutant>) {
    let mut pair = Pair::new(seed, mutant);
    for _ in 0..STEPS {
        pair.step();
    }
    pair.wind_up();
}

/// Seeds that never change and some that do: a failing run can be repeated with `BULKHEAD_SEED`.
fn seeds() -> Vec<u64> {
    if let Some(seed) = std::env::var("BULKHEAD_SEED").ok().and_then(|seed| seed.parse().ok()) {
        return vec![seed];
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos();
    (1..=20).chain((0..180).map(|more| u64::from(now) + more)).collect()
}

#[test]
fn a_tree_agrees_with_a_naive_model() {
    for seed in seeds() {
        println!("seed {seed}");
        run(seed, None);
    }
}

#[test]
fn every_mutant_of_the_tree_is_noticed() {
    for mutant in Mutant::ALL {
        let caught =
            (1..=20).find(|seed| catch_unwind(AssertUnwindSafe(|| run(*seed, Some(mutant)))).is_err());
        println!("{mutant:?}: noticed with seed {caught:?}");
        assert!(caught.is_some(), "{mutant:?} was not noticed");
    }
}
