//! Revocations: what has ended, who has to be told, and what is waited for.

use std::collections::{BTreeSet, HashMap};

use crate::{Error, Line, ObjectId, Owner, object::Object};

/// Names a revocation until it is forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RevocationId(pub(crate) u64);

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
pub(crate) struct Revocation {
    /// Owners that have not acknowledged that they admit no such work.
    pub(crate) unsevered: Vec<Owner>,
    /// Work that was admitted before: the highest mark of each line.
    pub(crate) marks: Vec<(Line, u64)>,
    /// Objects that it ended capabilities for. They are not quiescent before it is.
    pub(crate) held: Vec<ObjectId>,
    /// Those of them that it left without a capability, with their numbers.
    pub(crate) left: Vec<(ObjectId, u64)>,
    pub(crate) deadline_ns: u64,
    pub(crate) quiescent: bool,
    pub(crate) forgotten: bool,
}

/// Every revocation that is not quiescent, or that somebody may still ask about.
///
/// Revocations are as many as clients want, and each close settles all: so each is looked at only when something that it
/// waits for has come, and found by that.
#[derive(Debug, Default)]
pub(crate) struct Revocations {
    pub(crate) known: HashMap<RevocationId, Revocation>,
    pub(crate) next: u64,
    /// Which wait for an owner to acknowledge.
    pub(crate) by_owner: BTreeSet<(Owner, RevocationId)>,
    /// Which wait for a line to pass a mark.
    pub(crate) by_mark: BTreeSet<(Line, u64, RevocationId)>,
    /// Those for which something has come since they were looked at.
    pub(crate) stirred: Vec<RevocationId>,
    /// Objects that no revocation holds any more, and no capability names.
    pub(crate) let_go: Vec<ObjectId>,
}

impl Revocations {
    pub(crate) fn find(&mut self, id: RevocationId) -> Result<&mut Revocation, Error> {
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

    pub(crate) fn sever(&mut self, id: RevocationId, owner: Owner) {
        self.by_owner.remove(&(owner, id));
        if let Some(revocation) = self.known.get_mut(&id) {
            revocation.unsevered.retain(|unsevered| *unsevered != owner);
            self.stirred.push(id);
        }
    }

    /// A revocation waits for a line, up to the highest mark that it is told.
    pub(crate) fn wait_for(&mut self, id: RevocationId, line: Line, mark: u64) {
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
    pub(crate) fn advance(&mut self, id: RevocationId, objects: &mut [Object]) {
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
    pub(crate) fn advance_all(&mut self, objects: &mut [Object]) {
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
