//! Revocations: what has ended, who has to be told, and what is waited for.

use bulkhead_schema::Handle;

use crate::{
    Ended, Error, Extent, Line, ObjectId, ObjectState, Owner, Tree, line::Timeline, object::has_passed,
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
    /// Work that was admitted before.
    marks: Vec<(Line, u64)>,
    /// Objects that it left without a capability, with their numbers.
    objects: Vec<(ObjectId, u64)>,
    deadline_ns: u64,
}

/// Every revocation that somebody may still ask about.
#[derive(Debug, Default)]
pub(crate) struct Revocations {
    list: Vec<Revocation>,
    next: u64,
}

impl Revocations {
    pub(crate) fn remember(&self, line: Line) -> bool {
        self.list.iter().any(|revocation| revocation.marks.iter().any(|(used, _)| *used == line))
    }

    fn find(&mut self, id: RevocationId) -> Result<&mut Revocation, Error> {
        // They are in the order of their numbers.
        let at = self.list.binary_search_by_key(&id, |revocation| revocation.id);
        let at = at.map_err(|_| Error::Unknown("revocation"))?;
        self.list.get_mut(at).ok_or(Error::Unknown("revocation"))
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
        let top = self.slot_of(owner, handle)?;
        Ok(self.begin(deadline_ns, ended, |tree, ended| tree.take(top, extent, deadline_ns, ended)))
    }

    /// Ends everything that an owner holds, and everything derived from that.
    pub fn revoke_owner(
        &mut self,
        owner: Owner,
        deadline_ns: u64,
        ended: impl FnMut(Ended),
    ) -> Result<RevocationId, Error> {
        Ok(self.begin(deadline_ns, ended, |tree, ended| {
            while let Some(top) = tree.first_of(owner) {
                tree.take(top, Extent::Whole, deadline_ns, &mut *ended);
            }
        }))
    }

    fn begin(
        &mut self,
        deadline_ns: u64,
        mut ended: impl FnMut(Ended),
        take: impl FnOnce(&mut Self, &mut dyn FnMut(Ended)),
    ) -> RevocationId {
        let before = self.ending.len();
        let mut unsevered: Vec<Owner> = Vec::new();
        let mut touched: Vec<(ObjectId, Owner)> = Vec::new();
        let mut note = |one: Ended| {
            let (object, owner) = (one.view.object, one.view.owner);
            // Descendants come in runs of one owner and object, so looking at the latest keeps these short.
            if unsevered.last() != Some(&owner) {
                unsevered.push(owner);
            }
            if touched.last() != Some(&(object, owner)) {
                touched.push((object, owner));
            }
            ended(one);
        };
        take(self, &mut note);
        unsevered.sort_unstable();
        unsevered.dedup();
        touched.sort_unstable();
        touched.dedup();
        let mut marks = Vec::new();
        for (object, owner) in touched {
            let Some(object) = self.objects.get(object.0 as usize) else { continue };
            let theirs = |line: &Timeline| line.owner.is_none_or(|user| user == owner);
            for (line, mark) in &object.last_use {
                if self.lines.get(line.0 as usize).is_some_and(theirs) {
                    marks.push((*line, *mark));
                }
            }
        }
        let number = |id: &ObjectId| Some((*id, self.objects.get(id.0 as usize)?.number));
        let objects = self.ending.get(before..).unwrap_or_default().iter().filter_map(number).collect();
        let id = RevocationId(self.revocations.next);
        self.revocations.next += 1;
        self.revocations.list.push(Revocation { id, unsevered, marks, objects, deadline_ns });
        id
    }

    /// An owner admits no work any more that names what the revocation ended. `mark` is where its line stood then:
    /// what it had admitted before.
    pub fn severed(
        &mut self,
        id: RevocationId,
        owner: Owner,
        line: Option<(Line, u64)>,
    ) -> Result<(), Error> {
        let revocation = self.revocations.find(id)?;
        revocation.unsevered.retain(|unsevered| *unsevered != owner);
        if let Some(mark) = line {
            revocation.marks.push(mark);
        }
        Ok(())
    }

    /// How far a revocation is.
    pub fn moments(&mut self, id: RevocationId, now_ns: u64) -> Result<Moments, Error> {
        let revocation = self.revocations.find(id)?;
        let severed = revocation.unsevered.is_empty();
        revocation.marks.retain(|(line, mark)| !has_passed(&self.lines, *line, *mark));
        let quiescent = severed && revocation.marks.is_empty();
        let free = |(id, number): &(ObjectId, u64)| {
            let object = self.objects.get(id.0 as usize);
            object.is_none_or(|object| object.number != *number || object.state == ObjectState::Free)
        };
        let reclaimed = quiescent && revocation.objects.iter().all(free);
        let overdue = !quiescent && now_ns > revocation.deadline_ns;
        Ok(Moments { severed, quiescent, reclaimed, overdue })
    }

    /// Nobody asks about a revocation any more.
    pub fn forget(&mut self, id: RevocationId) {
        self.revocations.list.retain(|revocation| revocation.id != id);
    }

    /// Looks at the objects that nobody names: those whose last use has passed are quiescent from here on, those that are
    /// overdue are quarantined. Each change is given to `settled`.
    pub fn settle(&mut self, now_ns: u64, mut settled: impl FnMut(ObjectId, ObjectState)) {
        for id in &self.ending {
            let Some(object) = self.objects.get_mut(id.0 as usize) else { continue };
            match object.state {
                ObjectState::Draining | ObjectState::Quarantined => {}
                ObjectState::Live | ObjectState::Quiescent | ObjectState::Free => continue,
            }
            if object.is_passed(&self.lines) {
                object.state = ObjectState::Quiescent;
                settled(*id, ObjectState::Quiescent);
            } else if object.state == ObjectState::Draining && now_ns > object.deadline_ns {
                object.state = ObjectState::Quarantined;
                settled(*id, ObjectState::Quarantined);
            }
        }
    }
}
