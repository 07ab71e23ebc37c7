//! Owners and lines come and go.

use bulkhead_schema::Handle;

use crate::{Error, Line, Owner, Tree, View, line::Timeline, node::NONE, owner::Holder};

impl Tree {
    /// A new owner, of up to `limit` capabilities.
    pub fn open_owner(&mut self, limit: u32) -> Owner {
        let holder = Holder { held: 0, limit, first: NONE, lines: 0, walk: 0, open: true };
        let holders = &mut self.holders;
        if let Some(index) = holders.free.pop()
            && let Some(place) = holders.list.get_mut(index as usize)
        {
            *place = holder;
            return Owner(index);
        }
        let Ok(index) = u32::try_from(holders.list.len()) else { unreachable!("sessions are few") };
        holders.list.push(holder);
        Owner(index)
    }

    /// Forgets an owner that holds nothing and whose lines are closed. Nobody admits work for it any more: it counts as
    /// severed everywhere.
    pub fn close_owner(&mut self, owner: Owner) -> Result<(), Error> {
        let holder = self.holders.find_mut(owner)?;
        if holder.held > 0 || holder.lines > 0 {
            return Err(Error::InUse);
        }
        holder.open = false;
        self.holders.free.push(owner.0);
        self.revocations.sever_everywhere(owner);
        Ok(())
    }

    /// How many capabilities an owner holds.
    #[must_use]
    pub fn held(&self, owner: Owner) -> u32 {
        self.holders.find(owner).map_or(0, |holder| holder.held)
    }

    /// The capabilities of an owner, the latest first.
    pub fn of_owner(&self, owner: Owner) -> impl Iterator<Item = (Handle, View)> {
        let mut at = self.first_of(owner).unwrap_or(NONE);
        std::iter::from_fn(move || {
            let node = self.nodes.get(at as usize)?;
            let found = (node.handle(at), self.view(node));
            at = node.next_of_owner;
            Some(found)
        })
    }

    /// The latest capability of an owner.
    pub(crate) fn first_of(&self, owner: Owner) -> Option<u32> {
        self.holders.find(owner).map(|holder| holder.first).filter(|first| *first != NONE)
    }

    /// A new line; a session's is its owner's, a module's is nobody's.
    pub fn open_line(&mut self, owner: Option<Owner>) -> Line {
        if let Some(holder) = owner.and_then(|owner| self.holders.find_mut(owner).ok()) {
            holder.lines += 1;
        }
        let new = |generation| Timeline { generation, owner, submitted: 0, completed: 0, open: true };
        let lines = &mut self.lines;
        if let Some(index) = lines.free.pop()
            && let Some(place) = lines.list.get_mut(usize::from(index))
        {
            *place = new(place.generation + 1);
            return Line { index, generation: place.generation };
        }
        let index = u16::try_from(lines.list.len()).ok().filter(|index| *index != Line::NONE.index);
        let Some(index) = index else { unreachable!("sessions are few") };
        lines.list.push(new(0));
        Line { index, generation: 0 }
    }

    /// The work of a line is known to be gone: its context, its process or its session is.
    pub fn close_line(&mut self, line: Line) -> Result<(), Error> {
        let timeline = self.lines.find_mut(line)?;
        timeline.open = false;
        let owner = timeline.owner;
        if timeline.generation < u32::MAX {
            self.lines.free.push(line.index);
        }
        if let Some(holder) = owner.and_then(|owner| self.holders.find_mut(owner).ok()) {
            holder.lines -= 1;
        }
        self.usage.forget(line);
        self.revocations.passed(line, u64::MAX);
        Ok(())
    }

    /// Everything up to `mark` has passed on a line.
    pub fn completed(&mut self, line: Line, mark: u64) -> Result<(), Error> {
        let timeline = self.lines.find_mut(line)?;
        timeline.completed = timeline.completed.max(mark.min(timeline.submitted));
        let completed = timeline.completed;
        self.revocations.passed(line, completed);
        Ok(())
    }
}
