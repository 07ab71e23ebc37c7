//! What a tree should do, written down without any cleverness.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::Error;

/// One capability that was ever made.
pub(super) struct Cap {
    pub(super) handle: Handle,
    pub(super) owner: Owner,
    pub(super) object: usize,
    pub(super) parent: Option<usize>,
    pub(super) need: Need,
    pub(super) live: bool,
}

/// One object that was ever made.
pub(super) struct Thing {
    pub(super) id: ObjectId,
    pub(super) state: ObjectState,
    pub(super) uses: BTreeMap<Line, u64>,
    pub(super) deadline_ns: u64,
}

pub(super) struct Run {
    pub(super) owner: Option<Owner>,
    pub(super) submitted: u64,
    pub(super) completed: u64,
    pub(super) open: bool,
}

pub(super) struct Taking {
    pub(super) id: RevocationId,
    pub(super) unsevered: BTreeSet<Owner>,
    marks: Vec<(Line, u64)>,
    objects: BTreeSet<usize>,
    left: BTreeSet<usize>,
    deadline_ns: u64,
    pub(super) forgotten: bool,
}

#[derive(Default)]
pub(super) struct Naive {
    pub(super) caps: Vec<Cap>,
    pub(super) things: Vec<Thing>,
    pub(super) lines: BTreeMap<Line, Run>,
    pub(super) takings: Vec<Taking>,
    pub(super) limits: BTreeMap<Owner, u32>,
    pub(super) nodes_per_root: usize,
}

impl Naive {
    pub(super) fn held(&self, owner: Owner) -> u32 {
        u32::try_from(self.caps.iter().filter(|cap| cap.live && cap.owner == owner).count()).unwrap()
    }

    pub(super) fn check(&self, owner: Owner, handle: Handle, need: Need) -> Result<usize, Error> {
        let named = self.caps.iter().position(|cap| cap.live && cap.handle == handle && cap.owner == owner);
        let at = named.ok_or(Error::Stale { handle })?;
        let has = self.caps[at].need;
        if need.access == Access::ReadWrite && has.access == Access::Read {
            return Err(Error::NotAllowed { handle, allowed: Access::Read });
        }
        if u128::from(need.offset) + u128::from(need.bytes) > u128::from(has.bytes) {
            let Need { offset, bytes, .. } = need;
            return Err(Error::OutOfReach { handle, offset, bytes, reach: has.bytes });
        }
        Ok(at)
    }

    pub(super) fn get(&self, owner: Owner, handle: Handle, need: Need) -> Result<usize, Error> {
        let at = self.check(owner, handle, need)?;
        let found = self.caps[at].need.kind;
        if found == need.kind { Ok(at) } else { Err(Error::WrongKind { handle, found, expected: need.kind }) }
    }

    fn may_hold(&self, owner: Owner) -> Result<(), Error> {
        let limit = *self.limits.get(&owner).ok_or(Error::Unknown("owner"))?;
        if self.held(owner) >= limit { Err(Error::Full { limit }) } else { Ok(()) }
    }

    pub(super) fn may_create(&self, owner: Owner) -> Result<(), Error> {
        self.may_hold(owner)
    }

    /// The parent of the child that may be derived.
    pub(super) fn may_derive(&self, owner: Owner, handle: Handle, child: Child) -> Result<usize, Error> {
        let at = self.check(owner, handle, child.need)?;
        let found = self.caps[at].need.kind;
        if !found.may_derive(child.need.kind) {
            return Err(Error::WrongKind { handle, found, expected: child.need.kind });
        }
        let of = |at: usize| self.root(at);
        if (0..self.caps.len()).filter(|other| self.caps[*other].live && of(*other) == of(at)).count()
            >= self.nodes_per_root
        {
            return Err(Error::TreeFull { limit: u32::try_from(self.nodes_per_root).unwrap() });
        }
        self.may_hold(child.owner)?;
        Ok(at)
    }

    fn root(&self, at: usize) -> usize {
        self.caps[at].parent.map_or(at, |parent| self.root(parent))
    }

    pub(super) fn made(
        &mut self,
        handle: Handle,
        owner: Owner,
        object: usize,
        parent: Option<usize>,
        need: Need,
    ) {
        assert!(self.caps.iter().all(|cap| cap.handle != handle), "{handle:?} was issued before");
        self.caps.push(Cap { handle, owner, object, parent, need, live: true });
    }

    fn end(&mut self, at: usize, ended: &mut Vec<usize>) {
        let children = (0..self.caps.len()).filter(|child| self.caps[*child].parent == Some(at));
        for child in children.collect::<Vec<_>>() {
            self.end(child, ended);
        }
        if std::mem::take(&mut self.caps[at].live) {
            ended.push(at);
        }
    }

    pub(super) fn revoke(&mut self, at: usize, extent: Extent) -> Vec<usize> {
        let mut ended = Vec::new();
        self.end(at, &mut ended);
        if extent == Extent::Descendants {
            self.caps[at].live = true;
            ended.retain(|one| *one != at);
        }
        ended
    }

    pub(super) fn begun(&mut self, id: RevocationId, ended: &[usize], deadline_ns: u64) {
        let mut taking = Taking {
            id,
            unsevered: BTreeSet::new(),
            marks: Vec::new(),
            objects: BTreeSet::new(),
            left: BTreeSet::new(),
            deadline_ns,
            forgotten: false,
        };
        for at in ended {
            let cap = &self.caps[*at];
            taking.unsevered.insert(cap.owner);
            taking.objects.insert(cap.object);
            for (line, mark) in &self.things[cap.object].uses {
                if self.lines[line].owner.is_none_or(|owner| owner == cap.owner) {
                    taking.marks.push((*line, *mark));
                }
            }
        }
        for object in &taking.objects {
            if !self.caps.iter().any(|cap| cap.live && cap.object == *object) {
                taking.left.insert(*object);
                let thing = &mut self.things[*object];
                (thing.state, thing.deadline_ns) = (ObjectState::Draining, deadline_ns);
            }
        }
        self.takings.push(taking);
    }

    pub(super) fn severed(&mut self, taking: usize, owner: Owner, mark: Option<(Line, u64)>) {
        self.takings[taking].unsevered.remove(&owner);
        if let Some((line, mark)) = mark {
            self.takings[taking].marks.push((line, mark));
            let run = self.lines.get_mut(&line).unwrap();
            run.submitted = run.submitted.max(mark);
        }
    }

    fn has_passed(&self, line: Line, mark: u64) -> bool {
        !self.lines[&line].open || self.lines[&line].completed >= mark
    }

    fn is_quiescent(&self, taking: &Taking) -> bool {
        taking.unsevered.is_empty() && taking.marks.iter().all(|(line, mark)| self.has_passed(*line, *mark))
    }

    pub(super) fn moments(&self, taking: &Taking, now_ns: u64) -> Moments {
        let quiescent = self.is_quiescent(taking);
        Moments {
            severed: taking.unsevered.is_empty(),
            quiescent,
            reclaimed: quiescent && taking.left.iter().all(|at| self.things[*at].state == ObjectState::Free),
            overdue: !quiescent && now_ns > taking.deadline_ns,
        }
    }

    pub(super) fn settle(&mut self, now_ns: u64) -> BTreeMap<ObjectId, ObjectState> {
        let mut changes = BTreeMap::new();
        for at in 0..self.things.len() {
            let thing = &self.things[at];
            if !matches!(thing.state, ObjectState::Draining | ObjectState::Quarantined) {
                continue;
            }
            let is_held = self.takings.iter().any(|one| one.objects.contains(&at) && !self.is_quiescent(one));
            let is_used = thing.uses.iter().any(|(line, mark)| !self.has_passed(*line, *mark));
            let next = match (is_held || is_used, now_ns > thing.deadline_ns) {
                (false, _) => ObjectState::Quiescent,
                (true, true) => ObjectState::Quarantined,
                (true, false) => ObjectState::Draining,
            };
            if next != thing.state {
                changes.insert(thing.id, next);
            }
            self.things[at].state = next;
        }
        changes
    }
}
