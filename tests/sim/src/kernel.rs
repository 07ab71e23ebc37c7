//! What the modelled kernel does when it is asked: allocate, derive, grant, accept, revoke, close.

use bulkhead_caps::{Access, Child, Ended, Error, Extent, Kind, Need, RevocationId};
use bulkhead_mm::{ARENA_GRANULE_BYTES, DeviceAddress, PAGE_BYTES, Range, Resource};
use bulkhead_schema::Handle;

use crate::{
    Checked, Event, Fault, SESSIONS, Sim,
    books::{Known, Phase, Residence, Session, Taking, Thing},
    device::NOBODY,
    ensure,
    protocol::Message,
};

/// How long work is waited for before what it uses is quarantined.
const DEADLINE_NS: u64 = 3_000;

impl Session {
    /// Takes the lowest free place of the window.
    pub(crate) fn take_place(&mut self) -> Option<u8> {
        let range = self.region.place(PAGE_BYTES).ok()?;
        self.region.take(range).ok()?;
        let granules = (range.start().0 - self.region.bounds().start().0) / ARENA_GRANULE_BYTES;
        u8::try_from(granules).ok()
    }

    pub(crate) fn release_place(&mut self, place: u8) -> Checked {
        let start = self.region.bounds().start().0 + u64::from(place) * ARENA_GRANULE_BYTES;
        let range = Range::new(DeviceAddress(start), PAGE_BYTES).ok_or("an address wrapped")?;
        self.region.release(range).map_err(|_| "a place was given back twice")
    }

    /// Whether something may be mapped in it.
    pub(crate) fn may_map(&self) -> bool {
        self.phase == Phase::Open && self.residence == Residence::In && self.channel.sent.len() < 16
    }
}

impl Sim {
    pub(crate) fn allocate(&mut self, at: usize) -> Checked {
        let session = &mut self.sessions[at];
        if !session.may_map() || self.pages.free.is_empty() {
            return Ok(());
        }
        let Some(place) = session.take_place() else { return Ok(()) };
        let is_full = session.capabilities == session.limit;
        let (handle, id) = match self.tree.create(session.owner, Kind::Buffer, PAGE_BYTES) {
            Ok(made) => made,
            Err(Error::Full { .. }) if is_full => return session.release_place(place),
            Err(_) => return Err("6: a buffer was refused"),
        };
        ensure(!is_full, "6: a session holds more than its limit")?;
        let Some(page) = self.pages.free.pop() else { return Ok(()) };
        let is_kept = self.is_kept(page);
        ensure(!is_kept, "11: a page was handed out that a process still has")?;
        let session = &mut self.sessions[at];
        self.books.objects_made += 1;
        let number = self.books.objects_made;
        let owned = self.pages.at(page);
        ensure(owned.number == 0 && owned.allowed == NOBODY, "2: a page was handed out that is in use")?;
        ensure(owned.stamp == 0, "2: a page was handed out unscrubbed")?;
        (owned.number, owned.content) = (number, 0);
        owned.allowed[at] = 1;
        let index = id.index() as usize;
        if index >= self.books.things.len() {
            self.books.things.resize(index + 1, None);
        }
        ensure(self.books.things[index].is_none(), "8: an object was made twice")?;
        self.books.things[index] =
            Some(Thing { id, number, session: at, page: Some(page), deadline_ns: u64::MAX });
        session.capabilities += 1;
        session.pages += 1;
        let deadline_ns = self.now_ns + DEADLINE_NS;
        session.channel.send(Message::Map { handle, place, page, deadline_ns });
        self.charge(at, Resource::DeviceBytes, PAGE_BYTES)?;
        self.charge(at, Resource::Capabilities, 1)?;
        self.books.issued(Known {
            handle,
            session: at,
            parent: None,
            thing: index,
            offset: 0,
            bytes: PAGE_BYTES,
            writes: true,
            place: Some(place),
            maps: true,
        })
    }

    /// Any handle: mostly one of the session's own that lives.
    pub(crate) fn any_handle(&mut self, at: usize) -> Handle {
        if self.choices.one_in(6) {
            return self.sessions[at].remembered[self.choices.index(8)];
        }
        let slots = self.books.caps.len().max(1);
        let from = self.choices.index(slots);
        let own = |known: &&Known| known.session == at;
        let (early, late) = self.books.caps.split_at(from.min(self.books.caps.len()));
        let own = late.iter().chain(early).flatten().find(own);
        own.map_or(Handle { slot: 0, generation: 1 }, |known| known.handle)
    }

    pub(crate) fn derive(&mut self, at: usize) -> Checked {
        let parent = self.any_handle(at);
        let to = if self.choices.one_in(2) { at } else { self.choices.index(SESSIONS) };
        if self.sessions[at].phase != Phase::Open || !self.sessions[to].may_map() {
            return Ok(());
        }
        let access = if self.choices.one_in(2) { Access::Read } else { Access::ReadWrite };
        let offset = u64::from(self.choices.below(4)) * (PAGE_BYTES / 4);
        let bytes = u64::from(self.choices.below(5)) * (PAGE_BYTES / 4);
        let need = Need { kind: Kind::Buffer, access, offset, bytes };
        let child = Child { owner: self.sessions[to].owner, need };
        let answer = self.tree.derive(self.sessions[at].owner, parent, child);
        let known = self.books.named(at, parent);
        let full = self.sessions[to].capabilities == self.sessions[to].limit;
        let handle = match answer {
            Ok(handle) => handle,
            Err(Error::Stale { .. }) => return ensure(known.is_none(), "1: a live capability was refused"),
            Err(Error::Full { .. }) => return ensure(full, "6: a session holds less than was said"),
            Err(_) => return Ok(()),
        };
        let from = known.ok_or("1: a child was derived from what has ended, or from another's")?;
        ensure(!full, "6: a session holds more than its limit")?;
        ensure(offset + bytes <= from.bytes, "4: a child reaches further than its parent")?;
        ensure(from.writes || access == Access::Read, "4: a child may do more than its parent")?;
        self.tally.note(Event::Derived);
        self.charge(to, Resource::Capabilities, 1)?;
        let session = &mut self.sessions[to];
        session.capabilities += 1;
        let place = from.place.filter(|_| to == at);
        if let Some(place) = place {
            session.channel.send(Message::Bind { handle, place });
        }
        self.books.issued(Known {
            handle,
            session: to,
            parent: Some(parent.slot),
            offset: from.offset + offset,
            bytes,
            writes: access == Access::ReadWrite,
            place,
            maps: false,
            ..from
        })
    }

    /// Maps what was granted to a session.
    pub(crate) fn accept(&mut self, at: usize) -> Checked {
        let waits = |known: &&Known| known.session == at && known.place.is_none();
        let Some(known) = self.books.live().find(waits).copied() else { return Ok(()) };
        let Some(thing) = self.books.things[known.thing] else { return Ok(()) };
        // What is about to be swapped out, or is, cannot be mapped elsewhere.
        let lender = &self.sessions[thing.session];
        let (Some(page), true) = (thing.page, lender.residence == Residence::In) else { return Ok(()) };
        let across = lender.alone != self.sessions[at].alone && self.fault != Some(Fault::ShareAcrossDomains);
        // Whoever has the descriptor of a page may write to it.
        let to_read = lender.alone && !known.writes;
        let session = &mut self.sessions[at];
        if across || to_read || !session.may_map() {
            return Ok(());
        }
        if session.alone {
            self.tally.note(Event::SharedAlone);
        }
        let Some(place) = session.take_place() else { return Ok(()) };
        if let Some(known) = &mut self.books.caps[known.handle.slot as usize] {
            (known.place, known.maps) = (Some(place), true);
        }
        self.pages.at(page).allowed[at] += 1;
        self.tally.note(Event::Shared);
        let deadline_ns = self.now_ns + DEADLINE_NS;
        session.channel.send(Message::Map { handle: known.handle, place, page, deadline_ns });
        Ok(())
    }

    pub(crate) fn revoke(&mut self, at: usize) -> Checked {
        let handle = self.any_handle(at);
        let extent = if self.choices.one_in(2) { Extent::Whole } else { Extent::Descendants };
        if self.sessions[at].phase != Phase::Open || self.books.takings.len() > 16 {
            return Ok(());
        }
        self.revoke_handle(at, handle, extent)
    }

    pub(crate) fn revoke_handle(&mut self, at: usize, handle: Handle, extent: Extent) -> Checked {
        let mut ended = std::mem::take(&mut self.ended);
        ended.clear();
        let deadline_ns = self.now_ns + DEADLINE_NS;
        let owner = self.sessions[at].owner;
        let answer = self.tree.revoke(owner, handle, extent, deadline_ns, |one| ended.push(one));
        let known = self.books.named(at, handle);
        let Ok(id) = answer else {
            return ensure(known.is_none(), "5: a live capability could not be revoked");
        };
        ensure(known.is_some(), "1: what has ended was revoked by its handle")?;
        let whole = extent == Extent::Whole;
        let is_ending = |books: &crate::books::Books, known: &Known| {
            books.is_below(known, handle.slot) || whole && known.handle == handle
        };
        let expected = self.books.live().filter(|known| is_ending(&self.books, known)).count();
        ensure(ended.len() == expected, "5: not exactly the descendants ended")?;
        for one in &ended {
            let known = self.books.caps.get(one.handle.slot as usize).copied().flatten();
            let known = known.filter(|known| known.handle == one.handle);
            let known = known.ok_or("5: something ended twice")?;
            ensure(is_ending(&self.books, &known), "5: something else ended")?;
        }
        self.begin(id, ended, deadline_ns)
    }

    /// A client dies.
    pub(crate) fn die(&mut self, at: usize) -> Checked {
        let moves = matches!(self.sessions[at].residence, Residence::Coming | Residence::Adopting);
        if self.sessions[at].phase != Phase::Open || moves {
            return Ok(());
        }
        let mut ended = std::mem::take(&mut self.ended);
        ended.clear();
        let deadline_ns = self.now_ns + DEADLINE_NS;
        let owner = self.sessions[at].owner;
        let id = self.tree.revoke_owner(owner, deadline_ns, |one| ended.push(one));
        let id = id.map_err(|_| "5: a session could not be revoked")?;
        self.begin(id, ended, deadline_ns)?;
        ensure(self.books.live().all(|known| known.session != at), "5: a capability outlived its owner")?;
        let session = &mut self.sessions[at];
        session.phase = Phase::Closing;
        self.tally.note(Event::ClientDied);
        session.closing_deadline_ns = deadline_ns;
        if session.alone {
            return self.process_is_gone(at);
        }
        session.channel.send(Message::Close);
        Ok(())
    }

    /// Tells every owner of what has ended.
    fn begin(&mut self, id: RevocationId, ended: Vec<Ended>, deadline_ns: u64) -> Checked {
        self.books.takings_made += 1;
        let number = self.books.takings_made;
        let mut taking = Taking {
            id,
            number,
            deadline_ns,
            handles: Vec::new(),
            mappings: Vec::new(),
            unbinds: [0; SESSIONS],
            unmaps: [0; SESSIONS],
            owners: [None; SESSIONS],
            marks: [0; SESSIONS],
            severed: false,
            quiescent: false,
        };
        for Ended { handle, owner, .. } in &ended {
            let known = self.books.caps.get_mut(handle.slot as usize).and_then(Option::take);
            let known = known.filter(|known| known.handle == *handle).ok_or("5: something ended twice")?;
            let session = &mut self.sessions[known.session];
            ensure(session.owner == *owner, "5: something of somebody else ended")?;
            taking.handles.push(*handle);
            taking.owners[known.session] = Some(*owner);
            taking.unbinds[known.session] += 1;
            let unmap = known.place.filter(|_| known.maps);
            let thing = self.books.things[known.thing].as_mut().ok_or("8: an object was gone too early")?;
            if unmap.is_some() {
                taking.unmaps[known.session] += 1;
                if let Some(page) = thing.page {
                    taking.mappings.push((known.session, page, thing.number));
                }
            }
            thing.deadline_ns = deadline_ns;
            session.channel.send(Message::Unbind { revocation: number, handle: *handle, unmap });
            session.capabilities -= 1;
            self.tally.note(Event::Ended);
            self.refund(known.session, Resource::Capabilities, 1)?;
        }
        self.ended = ended;
        self.books.takings.push(taking);
        Ok(())
    }

    pub(crate) fn charge(&mut self, at: usize, resource: Resource, amount: u64) -> Checked {
        let charged = self.ledger.charge(self.sessions[at].account, resource, amount);
        charged.map_err(|_| "6: a charge within all limits was refused")
    }

    pub(crate) fn refund(&mut self, at: usize, resource: Resource, amount: u64) -> Checked {
        let refunded = self.ledger.refund(self.sessions[at].account, resource, amount);
        refunded.map_err(|_| "6: a refund of what was charged was refused")
    }
}
