//! Revocations: what has ended, who has to be told, and what is waited for.

use std::collections::{BTreeSet, HashMap};

use bulkhead_schema::Handle;

use crate::{Ended, Error, Extent, Line, Mutant, ObjectId, ObjectState, Owner, Tree, object::Object};

/// Names a revocation until it is forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RevocationId(u64);

/// How far a revocation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moments {
    /// Nobody admits new work that names what was revoked.
    pub severed: bool,
    /// No work that was admitted runs any more.
    pub quiescent: bool,
    /// What nobody names any more is given back.
    pub reclaimed: bool,
    /// The deadline passed before it was quiescent.
    pub overdue: bool,
}

#[derive(Debug)]
struct Revocation {
    /// Owners that have not acknowledged that they admit no such work.
    unsevered: Vec<Owner>,
    /// Work that was admitted before: the highest mark of each line.
    marks: Vec<(Line, u64)>,
    /// Objects that it ended capabilities for. They are not quiescent before it is.
    held: Vec<ObjectId>,
    /// Those of them that it left without a capability, with their numbers.
    left: Vec<(ObjectId, u64)>,
    deadline_ns: u64,
    quiescent: bool,
    forgotten: bool,
}

/// Every revocation that is not quiescent, or that somebody may still ask about.
///
/// Revocations are as many as clients want, and each close settles all: so each is looked at only when something that it
/// waits for has come, and found by that.
#[derive(Debug, Default)]
pub(crate) struct Revocations {
    known: HashMap<RevocationId, Revocation>,
    next: u64,
    /// Which wait for an owner to acknowledge.
    by_owner: BTreeSet<(Owner, RevocationId)>,
    /// Which wait for a line to pass a mark.
    by_mark: BTreeSet<(Line, u64, RevocationId)>,
    /// Those for which something has come since they were looked at.
    stirred: Vec<RevocationId>,
    /// Objects that no revocation holds any more, and no capability names.
    let_go: Vec<ObjectId>,
}

impl Revocations {
    fn find(&mut self, id: RevocationId) -> Result<&mut Revocation, Error> {
        self.known.get_mut(&id).ok_or(Error::Unknown("revocation"))
    }

    /// Nobody admits work for an owner any more.
    pub(crate) fn sever_everywhere(&mut self, owner: Owner) {
        let all = (owner, RevocationId(0))..=(owner, RevocationId(u64::MAX));
        let waiting: Vec<_> = self.by_owner.range(all).map(|(_, id)| *id).collect();
        for id in waiting {
            self.sever(id, owner);
        }
    }

    /// Looks at an object when objects are settled next.
    pub(crate) fn let_go_of(&mut self, object: ObjectId) {
        self.let_go.push(object);
    }

    fn sever(&mut self, id: RevocationId, owner: Owner) {
        self.by_owner.remove(&(owner, id));
        if let Some(revocation) = self.known.get_mut(&id) {
            revocation.unsevered.retain(|unsevered| *unsevered != owner);
            self.stirred.push(id);
        }
    }

    /// A revocation waits for a line, up to the highest mark that it is told.
    fn wait_for(&mut self, id: RevocationId, line: Line, mark: u64) {
        let Some(revocation) = self.known.get_mut(&id) else { return };
        match revocation.marks.iter_mut().find(|(known, _)| *known == line) {
            Some((_, last)) if *last >= mark => return,
            Some((_, last)) => {
                self.by_mark.remove(&(line, *last, id));
                *last = mark;
            }
            None => revocation.marks.push((line, mark)),
        }
        self.by_mark.insert((line, mark, id));
    }

    /// A line has passed all up to a mark.
    pub(crate) fn passed(&mut self, line: Line, mark: u64) {
        let all = (line, 0, RevocationId(0))..=(line, mark, RevocationId(u64::MAX));
        let passed: Vec<_> = self.by_mark.range(all).copied().collect();
        for waiting in passed {
            self.by_mark.remove(&waiting);
            let (line, _, id) = waiting;
            if let Some(revocation) = self.known.get_mut(&id) {
                revocation.marks.retain(|(known, _)| *known != line);
                self.stirred.push(id);
            }
        }
    }

    /// Looks whether a revocation is quiescent, and lets go of its objects from then on.
    fn advance(&mut self, id: RevocationId, objects: &mut [Object]) {
        let Some(revocation) = self.known.get_mut(&id) else { return };
        if !revocation.quiescent && revocation.unsevered.is_empty() && revocation.marks.is_empty() {
            revocation.quiescent = true;
            for id in revocation.held.drain(..) {
                let Some(object) = objects.get_mut(id.0 as usize) else { continue };
                object.holds -= 1;
                if object.holds == 0 && object.is_ending() {
                    self.let_go.push(id);
                }
            }
        }
        if revocation.quiescent && revocation.forgotten {
            self.known.remove(&id);
        }
    }

    /// Looks at those for which something has come.
    fn advance_all(&mut self, objects: &mut [Object]) {
        while let Some(id) = self.stirred.pop() {
            self.advance(id, objects);
        }
    }
}

#[cfg(test)]
impl Revocations {
    /// Holds what revocations are found by against a walk over all of them.
    pub(crate) fn assert_as_walked(&self, lines: &crate::line::Lines) {
        let of_owner = |(id, one): (&RevocationId, &Revocation)| {
            one.unsevered.iter().map(|owner| (*owner, *id)).collect::<Vec<_>>()
        };
        assert_eq!(self.by_owner, self.known.iter().flat_map(of_owner).collect());
        let of_mark = |(id, one): (&RevocationId, &Revocation)| {
            one.marks.iter().map(|(line, mark)| (*line, *mark, *id)).collect::<Vec<_>>()
        };
        assert_eq!(self.by_mark, self.known.iter().flat_map(of_mark).collect());
        for (line, mark, id) in &self.by_mark {
            assert!(!lines.has_passed(*line, *mark), "{id:?} waits for what has passed");
        }
        for (id, one) in &self.known {
            let waits = !(one.unsevered.is_empty() && one.marks.is_empty());
            assert!(waits || one.quiescent || self.stirred.contains(id), "{id:?} waits for nothing");
        }
    }
}

impl Tree {
    /// Ends everything derived from a capability of an owner, and the capability itself where that is asked for. From
    /// here on no check admits them. Each is given to `ended`.
    pub fn revoke(
        &mut self,
        owner: Owner,
        handle: Handle,
        extent: Extent,
        deadline_ns: u64,
        ended: impl FnMut(Ended),
    ) -> Result<RevocationId, Error> {
        self.look(owner, handle)?;
        self.take(handle.slot, extent, deadline_ns, ended);
        Ok(self.begin(deadline_ns))
    }

    /// Ends everything that an owner holds, and everything derived from that.
    pub fn revoke_owner(
        &mut self,
        owner: Owner,
        deadline_ns: u64,
        mut ended: impl FnMut(Ended),
    ) -> Result<RevocationId, Error> {
        self.holders.find_mut(owner)?;
        while let Some(top) = self.first_of(owner) {
            self.take(top, Extent::Whole, deadline_ns, &mut ended);
        }
        Ok(self.begin(deadline_ns))
    }

    /// Begins the way back of what was just taken out of the tree.
    fn begin(&mut self, deadline_ns: u64) -> RevocationId {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        let id = RevocationId(self.revocations.next);
        self.revocations.next += 1;
        let mut revocation = Revocation {
            unsevered: Vec::new(),
            marks: Vec::new(),
            held: Vec::new(),
            left: Vec::new(),
            deadline_ns,
            quiescent: false,
            forgotten: false,
        };
        let mut waits = Vec::new();
        for (object_id, owner) in touched {
            let Some(object) = self.objects.get_mut(object_id.0 as usize) else { continue };
            for (line, mark) in self.usage.of(object_id, &self.lines) {
                if self.lines.counts_for(line, owner) && !self.lines.has_passed(line, mark) {
                    waits.push((line, mark));
                }
            }
            if revocation.held.last() != Some(&object_id) {
                object.holds += 1;
                revocation.held.push(object_id);
                if object.nodes == 0 {
                    revocation.left.push((object_id, object.number));
                }
            }
            if !self.is(Mutant::SeverEarly) {
                revocation.unsevered.push(owner);
            }
        }
        revocation.unsevered.sort_unstable();
        revocation.unsevered.dedup();
        let revocations = &mut self.revocations;
        revocations.by_owner.extend(revocation.unsevered.iter().map(|owner| (*owner, id)));
        revocations.stirred.push(id);
        revocations.known.insert(id, revocation);
        for (line, mark) in waits {
            revocations.wait_for(id, line, mark);
        }
        id
    }

    /// An owner admits no work any more that names what the revocation ended. `mark` is where its line stood then:
    /// what it had admitted before, also where this tree did not see it submitted.
    pub fn severed(
        &mut self,
        id: RevocationId,
        owner: Owner,
        line: Option<(Line, u64)>,
    ) -> Result<(), Error> {
        if let Some((line, mark)) = line
            && !self.revocations.find(id)?.quiescent
        {
            self.lines.reach(line, mark);
            if !self.lines.has_passed(line, mark) {
                self.revocations.wait_for(id, line, mark);
            }
        }
        self.revocations.find(id)?;
        self.revocations.sever(id, owner);
        Ok(())
    }

    /// How far a revocation is.
    pub fn moments(&mut self, id: RevocationId, now_ns: u64) -> Result<Moments, Error> {
        self.revocations.advance(id, &mut self.objects);
        let revocation = self.revocations.find(id)?;
        if revocation.forgotten {
            return Err(Error::Unknown("revocation"));
        }
        let severed = revocation.unsevered.is_empty();
        let quiescent = revocation.quiescent;
        let free = |(id, number): &(ObjectId, u64)| {
            let object = self.objects.get(id.0 as usize);
            object.is_none_or(|object| object.number != *number || object.state == ObjectState::Free)
        };
        let reclaimed = quiescent && revocation.left.iter().all(free);
        let overdue = !quiescent && now_ns > revocation.deadline_ns;
        Ok(Moments { severed, quiescent, reclaimed, overdue })
    }

    /// Nobody asks about a revocation any more. It goes on.
    pub fn forget(&mut self, id: RevocationId) {
        if let Ok(revocation) = self.revocations.find(id) {
            revocation.forgotten = true;
        }
        self.revocations.advance(id, &mut self.objects);
    }

    /// Looks at the objects that nobody names: those that no revocation holds and whose last use has passed are quiescent
    /// from here on, those that are overdue are quarantined. Each change is given to `settled`.
    pub fn settle(&mut self, now_ns: u64, mut settled: impl FnMut(ObjectId, ObjectState)) {
        self.revocations.advance_all(&mut self.objects);
        let mut let_go = std::mem::take(&mut self.revocations.let_go);
        // Beyond what revocations wait for: a module may still use what nobody names.
        let_go.retain(|id| {
            if !self.usage.is_passed(*id, &self.lines) && !self.is(Mutant::SkipDrain) {
                return true;
            }
            self.end(*id, ObjectState::Quiescent, &mut settled);
            false
        });
        self.revocations.let_go = let_go;
        let overdue =
            if self.is(Mutant::FreeOnTimeout) { ObjectState::Quiescent } else { ObjectState::Quarantined };
        while let Some((deadline_ns, id)) = self.ending.first().copied()
            && now_ns > deadline_ns
        {
            self.end(id, overdue, &mut settled);
        }
    }

    /// An object that nobody names goes on to a state beyond `Draining`.
    fn end(&mut self, id: ObjectId, state: ObjectState, settled: &mut impl FnMut(ObjectId, ObjectState)) {
        let Some(object) = self.objects.get_mut(id.0 as usize).filter(|object| object.is_ending()) else {
            return;
        };
        self.ending.remove(&(object.deadline_ns, id));
        object.state = state;
        settled(id, state);
    }
}
