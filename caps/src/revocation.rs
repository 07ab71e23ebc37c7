//! Revocations: what has ended, who has to be told, and what is waited for.

use bulkhead_schema::Handle;

use crate::{
    Ended, Error, Extent, Line, Mutant, ObjectId, ObjectState, Owner, Tree, line::Lines, object::Object,
};

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
    id: RevocationId,
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

impl Revocation {
    fn waits_for(&mut self, line: Line, mark: u64) {
        match self.marks.iter_mut().find(|(known, _)| *known == line) {
            Some((_, last)) => *last = mark.max(*last),
            None => self.marks.push((line, mark)),
        }
    }

    /// Looks whether it is quiescent, and lets go of its objects from then on.
    fn advance(&mut self, lines: &Lines, objects: &mut [Object]) {
        self.marks.retain(|(line, mark)| !lines.has_passed(*line, *mark));
        if self.quiescent || !self.unsevered.is_empty() || !self.marks.is_empty() {
            return;
        }
        self.quiescent = true;
        for id in self.held.drain(..) {
            if let Some(object) = objects.get_mut(id.0 as usize) {
                object.holds -= 1;
            }
        }
    }
}

/// Every revocation that is not quiescent, or that somebody may still ask about.
#[derive(Debug, Default)]
pub(crate) struct Revocations {
    /// In the order of their numbers.
    list: Vec<Revocation>,
    next: u64,
}

impl Revocations {
    fn find(&mut self, id: RevocationId) -> Result<&mut Revocation, Error> {
        let at = self.list.binary_search_by_key(&id, |revocation| revocation.id);
        at.ok().and_then(|at| self.list.get_mut(at)).ok_or(Error::Unknown("revocation"))
    }

    /// Nobody admits work for an owner any more.
    pub(crate) fn sever_everywhere(&mut self, owner: Owner) {
        for revocation in &mut self.list {
            revocation.unsevered.retain(|unsevered| *unsevered != owner);
        }
    }

    fn advance(&mut self, lines: &Lines, objects: &mut [Object]) {
        self.list.retain_mut(|revocation| {
            revocation.advance(lines, objects);
            !(revocation.quiescent && revocation.forgotten)
        });
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
            id,
            unsevered: Vec::new(),
            marks: Vec::new(),
            held: Vec::new(),
            left: Vec::new(),
            deadline_ns,
            quiescent: false,
            forgotten: false,
        };
        for (id, owner) in touched {
            let Some(object) = self.objects.get_mut(id.0 as usize) else { continue };
            for (line, mark) in self.usage.of(id, &self.lines) {
                if self.lines.counts_for(line, owner) && !self.lines.has_passed(line, mark) {
                    revocation.waits_for(line, mark);
                }
            }
            if revocation.held.last() != Some(&id) {
                object.holds += 1;
                revocation.held.push(id);
                if object.nodes == 0 {
                    revocation.left.push((id, object.number));
                }
            }
            if !self.is(Mutant::SeverEarly) {
                revocation.unsevered.push(owner);
            }
        }
        revocation.unsevered.sort_unstable();
        revocation.unsevered.dedup();
        self.revocations.list.push(revocation);
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
        let revocation = self.revocations.find(id)?;
        revocation.unsevered.retain(|unsevered| *unsevered != owner);
        if let Some((line, mark)) = line
            && !revocation.quiescent
        {
            revocation.waits_for(line, mark);
            self.lines.reach(line, mark);
        }
        Ok(())
    }

    /// How far a revocation is.
    pub fn moments(&mut self, id: RevocationId, now_ns: u64) -> Result<Moments, Error> {
        let revocation = self.revocations.find(id)?;
        if revocation.forgotten {
            return Err(Error::Unknown("revocation"));
        }
        revocation.advance(&self.lines, &mut self.objects);
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
        self.revocations.advance(&self.lines, &mut self.objects);
    }

    /// Looks at the objects that nobody names: those that no revocation holds and whose last use has passed are quiescent
    /// from here on, those that are overdue are quarantined. Each change is given to `settled`.
    pub fn settle(&mut self, now_ns: u64, mut settled: impl FnMut(ObjectId, ObjectState)) {
        self.revocations.advance(&self.lines, &mut self.objects);
        let (unheld, skip, free) =
            (self.is(Mutant::FreeUnsevered), self.is(Mutant::SkipDrain), self.is(Mutant::FreeOnTimeout));
        self.ending.retain(|id| {
            let Some(object) = self.objects.get_mut(id.0 as usize) else { return false };
            let is_gone = (object.holds == 0 || unheld) && self.usage.is_passed(*id, &self.lines) || skip;
            let is_overdue = now_ns > object.deadline_ns;
            if is_gone || is_overdue && free {
                object.state = ObjectState::Quiescent;
                settled(*id, object.state);
                return false;
            }
            if object.state == ObjectState::Draining && is_overdue {
                object.state = ObjectState::Quarantined;
                settled(*id, object.state);
            }
            true
        });
    }
}
