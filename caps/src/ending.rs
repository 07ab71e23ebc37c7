//! Ending capabilities, and the way back of what they named.

use bulkhead_schema::Handle;

use crate::{
    Ended, Error, Extent, Line, Moments, Mutant, ObjectId, ObjectState, Owner, RevocationId, Tree,
    revocation::Revocation,
};

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
