//! Sessions that make room for others.

use bulkhead_mm::{PAGE_BYTES, Resource};

use crate::{
    Checked, Event, Fault, PLACES, PerPlace, Sim,
    books::{Known, Phase, Residence},
    device::{Entry, NOBODY},
    ensure,
    protocol::Message,
};

/// Bytes that nobody has written yet.
const UNDEFINED: u32 = u32::MAX;

impl Sim {
    /// Swaps a session out, if all it maps is its own and nobody else uses it.
    pub(crate) fn swap_out(&mut self, at: usize) -> Checked {
        let session = &mut self.sessions[at];
        if session.alone || !session.may_map() || !session.channel.sent.is_empty() || session.pages == 0 {
            return Ok(());
        }
        let mut alone = NOBODY;
        alone[at] = 1;
        let things = self.books.things.iter().flatten();
        for page in things.filter(|thing| thing.session == at).filter_map(|thing| thing.page) {
            // An object that drains is no longer mapped; its page is about to be given back.
            if self.pages.list[usize::from(page)].allowed != alone || self.module.uses(page) {
                return Ok(());
            }
        }
        for entry in &session.table {
            if let Entry::Page(page) = entry
                && self.pages.list[usize::from(*page)].allowed != alone
            {
                return Ok(());
            }
        }
        session.residence = Residence::Leaving;
        session.channel.send(Message::SwapOut);
        Ok(())
    }

    pub(crate) fn swapped_out(&mut self, at: usize) -> Checked {
        let session = &mut self.sessions[at];
        session.residence = Residence::Out;
        self.tally.note(Event::SwappedOut);
        let mut moved = 0;
        for (entry, kept) in session.table.iter_mut().zip(&mut session.kept) {
            let Entry::Page(page) = *entry else { continue };
            *entry = Entry::Hole;
            let owned = self.pages.at(page);
            *kept = owned.content;
            let number = owned.number;
            owned.number = 0;
            owned.allowed[at] -= 1;
            ensure(owned.allowed == NOBODY, "2: a page was swapped out that others map")?;
            ensure(owned.stamp == 0 || owned.stamp == number, "2: saw the bytes of another object")?;
            if self.fault != Some(Fault::SkipScrub) {
                owned.stamp = 0;
            }
            self.pages.free.push(page);
            let mut things = self.books.things.iter_mut().flatten();
            let thing = things.find(|thing| thing.number == number);
            thing.ok_or("8: an object was gone while it was mapped")?.page = None;
            moved += 1;
        }
        session.pages -= moved;
        session.swapped += moved;
        for _ in 0..moved {
            self.refund(at, Resource::DeviceBytes, PAGE_BYTES)?;
            self.charge(at, Resource::SwapBytes, PAGE_BYTES)?;
        }
        Ok(())
    }

    /// Swaps a session in, if there is room.
    pub(crate) fn swap_in(&mut self, at: usize) -> Checked {
        let session = &self.sessions[at];
        let is_quiet = session.channel.sent.is_empty();
        let is_out = session.residence == Residence::Out && session.phase == Phase::Open && is_quiet;
        if !is_out || self.pages.free.len() < usize::from(PLACES) {
            return Ok(());
        }
        let mut pages: PerPlace<Option<u8>> = [None; PLACES as usize];
        let mut moved = 0;
        let maps = |known: &&Known| known.session == at && known.maps;
        for known in self.books.caps.iter().flatten().filter(maps) {
            let thing = self.books.things[known.thing].as_mut().ok_or("8: an object was gone too early")?;
            let (Some(place), None) = (known.place, thing.page) else { continue };
            let Some(page) = self.pages.free.pop() else { continue };
            let owned = &mut self.pages.list[usize::from(page)];
            ensure(owned.number == 0 && owned.allowed == NOBODY, "2: a page was handed out that is in use")?;
            ensure(owned.stamp == 0, "2: a page was handed out unscrubbed")?;
            (owned.number, owned.stamp, owned.content) = (thing.number, thing.number, UNDEFINED);
            owned.allowed[at] = 1;
            thing.page = Some(page);
            pages[usize::from(place)] = Some(page);
            moved += 1;
        }
        for _ in 0..moved {
            self.refund(at, Resource::SwapBytes, PAGE_BYTES)?;
            self.charge(at, Resource::DeviceBytes, PAGE_BYTES)?;
        }
        let session = &mut self.sessions[at];
        session.swapped -= moved;
        session.pages += moved;
        session.residence = Residence::Coming;
        session.coming = pages;
        session.channel.send(Message::SwapIn { pages });
        Ok(())
    }

    /// Has the standby map the next page that was copied in; after the last the session is let go.
    pub(crate) fn adopt(&mut self, at: usize) -> Checked {
        let session = &mut self.sessions[at];
        if session.residence != Residence::Adopting {
            return Ok(());
        }
        for (entry, page) in session.table.iter_mut().zip(&session.coming) {
            if let Some(page) = page
                && *entry == Entry::Hole
            {
                *entry = Entry::Page(*page);
                return Ok(());
            }
        }
        let mut coming = session.coming.iter().flatten();
        let is_there = |page: &u8| self.pages.list[usize::from(*page)].content != UNDEFINED;
        ensure(coming.all(is_there), "10: a session was let go before its bytes were back")?;
        session.coming = [None; PLACES as usize];
        session.residence = Residence::In;
        session.channel.send(Message::Release);
        self.tally.note(Event::SwappedIn);
        Ok(())
    }

    /// The executor is gone that was moving a session, or held it: where its memory is then.
    pub(crate) fn moves_end(&mut self, at: usize) -> Checked {
        let session = &mut self.sessions[at];
        session.channel.forget_moves();
        match session.residence {
            Residence::In => {}
            Residence::Out => self.tally.note(Event::DiedWhileAway),
            // Until all of it was copied the standby has it.
            Residence::Leaving => {
                self.tally.note(Event::DiedWhileMoving);
                session.residence = Residence::In;
                if self.fault == Some(Fault::TrustHalfACopy) {
                    return self.swapped_out(at);
                }
            }
            // What was copied out is there until all of it is back.
            Residence::Coming | Residence::Adopting => {
                self.tally.note(Event::DiedWhileMoving);
                return self.stays_out(at);
            }
        }
        Ok(())
    }

    fn stays_out(&mut self, at: usize) -> Checked {
        let session = &mut self.sessions[at];
        session.residence = Residence::Out;
        let mut moved = 0;
        for place in 0..usize::from(PLACES) {
            let Some(page) = session.coming[place].take() else { continue };
            session.table[place] = Entry::Hole;
            let owned = self.pages.at(page);
            if owned.content != UNDEFINED {
                session.kept[place] = owned.content;
            }
            (owned.number, owned.stamp) = (0, 0);
            owned.allowed[at] -= 1;
            ensure(owned.allowed == NOBODY, "2: a page was given up that others map")?;
            self.pages.free.push(page);
            let mut things = self.books.things.iter_mut().flatten();
            let thing = things.find(|thing| thing.page == Some(page));
            thing.ok_or("8: an object was gone while it was mapped")?.page = None;
            moved += 1;
        }
        session.pages -= moved;
        session.swapped += moved;
        for _ in 0..moved {
            self.refund(at, Resource::DeviceBytes, PAGE_BYTES)?;
            self.charge(at, Resource::SwapBytes, PAGE_BYTES)?;
        }
        Ok(())
    }
}
