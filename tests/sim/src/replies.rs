//! What the modelled kernel does with answers, and when it looks around.

use bulkhead_caps::{Extent, ObjectState};
use bulkhead_mm::{PAGE_BYTES, Resource};

use crate::{
    Checked, Event, Fault, PLACES, SESSIONS, Sim,
    books::{EMPTY, Phase, Residence},
    device::{Entry, NOBODY},
    ensure,
    executor::Seat,
    protocol::{Answer, Message, Sent},
};

/// How long after a deadline the kernel ends the context.
const GRACE_NS: u64 = 1_500;
/// How long a standby has to answer what it is asked again before it is ended too.
const START_NS: u64 = 20_000;

impl Sim {
    pub(crate) fn hear(&mut self, at: usize) -> Checked {
        let session = &mut self.sessions[at];
        let Some(reply) = session.channel.replies.pop_front() else { return self.adopt(at) };
        let sent = *session.channel.find(reply.id).ok_or("an answer to nothing")?;
        match (reply.answer, sent.message) {
            (Answer::Unbound { admitted }, Message::Unbind { revocation, handle, unmap }) => {
                if self.fault != Some(Fault::StandbyForgetsUnbind) {
                    session.binds.unbind(handle);
                }
                match (unmap, session.channel.find(reply.id)) {
                    (Some(_), Some(sent)) => sent.unbound = true,
                    (None, _) | (_, None) => session.channel.answered(reply.id),
                }
                if sent.unbound { Ok(()) } else { self.unbound(at, revocation, admitted) }
            }
            (Answer::Unmapped, Message::Unbind { revocation, unmap: Some(place), .. }) => {
                session.channel.answered(reply.id);
                session.table[usize::from(place)] = Entry::Sink;
                session.coming[usize::from(place)] = None;
                self.tally.note(Event::Unmapped);
                session.release_place(place)?;
                self.unmapped(at, revocation)
            }
            (answer, message) => {
                session.channel.answered(reply.id);
                self.answered(at, Sent { message, ..sent }, answer)
            }
        }
    }

    fn answered(&mut self, at: usize, sent: Sent, answer: Answer) -> Checked {
        let session = &mut self.sessions[at];
        match (sent.message, answer) {
            (Message::Map { handle, place, page, .. }, Answer::Done) => {
                session.table[usize::from(place)] = Entry::Page(page);
                self.tally.note(Event::Mapped);
                // What has ended meanwhile was unbound already.
                if self.books.named(at, handle).is_some() {
                    session.channel.send(Message::Bind { handle, place });
                }
            }
            (Message::Map { handle, place, page, .. }, Answer::Refused) => {
                self.tally.note(Event::MappingRefused);
                if let Some(Some(known)) = self.books.caps.get_mut(handle.slot as usize)
                    && known.handle == handle
                {
                    (known.maps, known.place) = (false, None);
                    session.release_place(place)?;
                    self.pages.at(page).allowed[at] -= 1;
                    return self.revoke_handle(at, handle, Extent::Whole);
                }
            }
            (Message::Bind { handle, place }, Answer::Done) => {
                session.binds.bind(handle, place);
                session.remembered[self.choices.index(8)] = handle;
            }
            (Message::SwapOut, Answer::Done) => return self.swapped_out(at),
            (Message::SwapIn { .. }, Answer::Done) => session.residence = Residence::Adopting,
            (Message::Release, Answer::Done) => {}
            (Message::Close, Answer::Done) => return self.closed(at),
            (Message::Unbind { .. }, _)
            | (_, Answer::Unbound { .. } | Answer::Unmapped | Answer::Refused) => {
                return Err("an answer that does not fit");
            }
        }
        Ok(())
    }

    pub(crate) fn unbound(&mut self, at: usize, number: u32, admitted: u64) -> Checked {
        let Some(taking) = self.books.takings.iter_mut().find(|taking| taking.number == number) else {
            return Err("8: a revocation ended before everybody had acknowledged it");
        };
        taking.unbinds[at] -= 1;
        if taking.unbinds[at] > 0 {
            return Ok(());
        }
        let session = &mut self.sessions[at];
        let owner = taking.owners[at].ok_or("an acknowledgement of nobody")?;
        let mark = Some((session.work, admitted));
        self.tree.severed(taking.id, owner, mark).map_err(|_| "8: a revocation was forgotten")?;
        if taking.unmaps[at] > 0 {
            let mark = self.tree.submit(owner, session.control, &[]).map_err(|_| "a line was gone")?;
            taking.marks[at] = mark;
            session.passing.push_back((mark, false));
            let mark = Some((session.control, mark));
            self.tree.severed(taking.id, owner, mark).map_err(|_| "8: a revocation was forgotten")?;
        }
        Ok(())
    }

    pub(crate) fn unmapped(&mut self, at: usize, number: u32) -> Checked {
        let Some(taking) = self.books.takings.iter_mut().find(|taking| taking.number == number) else {
            return Err("8: a revocation ended before everything was unmapped");
        };
        taking.unmaps[at] -= 1;
        if taking.unmaps[at] > 0 || taking.marks[at] == 0 {
            return Ok(());
        }
        let (mark, session) = (taking.marks[at], &mut self.sessions[at]);
        session.passing.iter_mut().filter(|(known, _)| *known == mark).for_each(|(_, passed)| *passed = true);
        while let Some((mark, _)) = session.passing.pop_front_if(|(_, passed)| *passed) {
            self.tree.completed(session.control, mark).map_err(|_| "a line was gone")?;
        }
        Ok(())
    }

    pub(crate) fn closed(&mut self, at: usize) -> Checked {
        let session = &mut self.sessions[at];
        ensure(session.channel.sent.is_empty(), "a session was closed before its messages were answered")?;
        for line in [session.work, session.control] {
            self.tree.close_line(line).map_err(|_| "a line was gone")?;
        }
        self.tree.close_owner(session.owner).map_err(|_| "6: a closed session holds something")?;
        session.phase = Phase::Closed;
        session.passing.clear();
        session.residence = Residence::In;
        session.coming = [None; PLACES as usize];
        session.table = EMPTY;
        session.binds.0.clear();
        session.ring.clear();
        session.seat = Seat::new();
        session.records = crate::books::Records::default();
        self.shut(at)
    }

    /// A session whose memory is all back is no more.
    fn shut(&mut self, at: usize) -> Checked {
        let session = &mut self.sessions[at];
        if session.phase != Phase::Closed || session.pages + session.swapped > 0 {
            return Ok(());
        }
        let used = self.ledger.close(session.account).map_err(|_| "6: an account could not be closed")?;
        for resource in Resource::ALL {
            ensure(used.get(resource) == 0, "6: an account was not empty at its end")?;
        }
        session.phase = Phase::Shut;
        self.tally.note(Event::SessionShut);
        Ok(())
    }

    /// Looks how far a session's work is.
    pub(crate) fn observe(&mut self, at: usize) -> Checked {
        let session = &self.sessions[at];
        if matches!(session.phase, Phase::Shut | Phase::Closed) {
            return Ok(());
        }
        let passed = session.seat.streams.passed(session.seat.admitted);
        self.tree.completed(session.work, passed).map_err(|_| "a line was gone")
    }

    /// Looks how far the revocations are, gives back what nobody uses, and ends a context that is in the way.
    pub(crate) fn look_around(&mut self) -> Checked {
        let mut is_stuck = false;
        let mut overdue = [false; SESSIONS];
        let mut at = 0;
        while let Some(taking) = self.books.takings.get_mut(at) {
            let moments = self.tree.moments(taking.id, self.now_ns);
            let moments = moments.map_err(|_| "8: a revocation was forgotten")?;
            ensure(!moments.quiescent || moments.severed, "8: quiescent before severed")?;
            ensure(!moments.reclaimed || moments.quiescent, "8: reclaimed before quiescent")?;
            taking.severed |= moments.severed;
            if moments.quiescent && !taking.quiescent {
                taking.quiescent = true;
                for (session, page, number) in &taking.mappings {
                    let page = &mut self.pages.list[usize::from(*page)];
                    if page.number == *number {
                        page.allowed[*session] -= 1;
                    }
                }
            }
            let late = !moments.quiescent && self.now_ns > taking.deadline_ns + GRACE_NS;
            if late {
                let in_the_way = self.in_the_way(&self.books.takings[at]);
                if in_the_way.contains(&true) && self.fault != Some(Fault::EndAllForOne) {
                    overdue.iter_mut().zip(in_the_way).for_each(|(late, is)| *late |= is);
                } else {
                    is_stuck = true;
                }
            }
            let taking = &self.books.takings[at];
            if moments.reclaimed {
                let late = self.now_ns > taking.deadline_ns;
                self.tally.note(if late { Event::ReclaimedLate } else { Event::Reclaimed });
                self.tree.forget(taking.id);
                self.books.takings.swap_remove(at);
            } else {
                at += 1;
            }
        }
        self.settle()?;
        for session in &self.sessions {
            let overdue = self.now_ns > session.closing_deadline_ns + GRACE_NS;
            is_stuck |= session.phase == Phase::Closing && overdue;
        }
        self.let_kept_pages_go();
        self.kept_apart()?;
        if overdue.contains(&true) {
            // Only who is in the way ends.
            for at in (0..SESSIONS).filter(|at| overdue[*at]) {
                self.tally.note(Event::EndedForOthers);
                self.die(at)?;
            }
            return Ok(());
        }
        let has_had_time = self.now_ns > self.died_ns + START_NS;
        if has_had_time && (is_stuck || self.quarantined_too_long()) {
            self.died_ns = self.now_ns;
            self.tally.note(Event::ContextEnded);
            let blames = |taking: &crate::books::Taking| {
                !taking.quiescent
                    && self.now_ns > taking.deadline_ns + GRACE_NS
                    && self.in_the_way(taking).contains(&true)
            };
            ensure(
                !self.books.takings.iter().any(blames),
                "12: everybody's context ended for what one isolated session does",
            )?;
            self.module_dies()?;
            self.executor_dies()?;
        }
        Ok(())
    }

    fn quarantined_too_long(&self) -> bool {
        self.books.things.iter().flatten().any(|thing| {
            self.now_ns > thing.deadline_ns.saturating_add(GRACE_NS)
                && self.tree.object(thing.id) == ObjectState::Quarantined
        })
    }

    fn settle(&mut self) -> Checked {
        let mut quiet = std::mem::take(&mut self.quiet);
        quiet.clear();
        self.tree.settle(self.now_ns, |object, state| match state {
            ObjectState::Quiescent => quiet.push(object),
            ObjectState::Quarantined => self.tally.note(Event::Quarantined),
            ObjectState::Live | ObjectState::Draining | ObjectState::Free => {}
        });
        for object in &quiet {
            let thing = self.books.things.get_mut(object.index() as usize).and_then(Option::take);
            let thing = thing.ok_or("8: an object was given back twice")?;
            let is_named = self.books.live().any(|known| known.thing == object.index() as usize);
            ensure(!is_named, "5: an object was given back that has a capability")?;
            let resource = if let Some(page) = thing.page {
                let freed = &mut self.pages.list[usize::from(page)];
                ensure(freed.allowed == NOBODY, "2: a page was given back that is mapped")?;
                freed.number = 0;
                if self.fault != Some(Fault::SkipScrub) {
                    freed.stamp = 0;
                }
                if self.is_kept(page) && self.fault != Some(Fault::ReuseWhatIsKept) {
                    self.tally.note(Event::KeptByALiar);
                    self.kept.push(page);
                } else {
                    self.pages.free.push(page);
                }
                let session = &mut self.sessions[thing.session];
                session.pages -= 1;
                Resource::DeviceBytes
            } else {
                self.sessions[thing.session].swapped -= 1;
                Resource::SwapBytes
            };
            self.refund(thing.session, resource, PAGE_BYTES)?;
            self.tree.free(*object).map_err(|_| "8: a quiescent object could not be freed")?;
            self.shut(thing.session)?;
        }
        self.quiet = quiet;
        for thing in self.books.things.iter().flatten() {
            let is_draining = self.tree.object(thing.id) == ObjectState::Draining;
            ensure(!is_draining || thing.deadline_ns >= self.now_ns, "8: not quarantined at its deadline")?;
        }
        Ok(())
    }

    /// Compares ledger and tree with what is there.
    pub(crate) fn count(&self, at: usize) -> Checked {
        let session = &self.sessions[at];
        session.records.check()?;
        if session.phase == Phase::Shut {
            return Ok(());
        }
        let used = self.ledger.used_by(session.account);
        let bytes = |pages: u32| u64::from(pages) * PAGE_BYTES;
        ensure(used.get(Resource::DeviceBytes) == bytes(session.pages), "6: device memory is miscounted")?;
        ensure(used.get(Resource::SwapBytes) == bytes(session.swapped), "6: swap is miscounted")?;
        let capabilities = u64::from(session.capabilities);
        ensure(used.get(Resource::Capabilities) == capabilities, "6: capabilities are miscounted")?;
        let held = self.tree.held(session.owner);
        let holds = session.phase != Phase::Closed;
        ensure(!holds || held == session.capabilities, "6: the tree counts otherwise")
    }

    /// The context is gone, with everything in it. The standby takes over what it knows; the kernel asks it again for
    /// what was not answered.
    pub(crate) fn executor_dies(&mut self) -> Checked {
        for at in 0..SESSIONS {
            let session = &mut self.sessions[at];
            // Its executor is another process.
            if session.alone {
                continue;
            }
            let lost = session.seat.streams.queues.iter().flatten().map(|work| work.position);
            for position in lost {
                if self.fault != Some(Fault::ForgetLostWork) {
                    session.records.ended(position)?;
                    session.records.lost += 1;
                    self.tally.note(Event::Lost);
                }
            }
            self.moves_end(at)?;
            let session = &mut self.sessions[at];
            session.seat = Seat::new();
            session.seat.streams.table = session.table;
            session.seat.binds = session.binds.clone();
            session.channel.ask_again();
            if session.residence == Residence::Out && self.fault != Some(Fault::ForgetToHold) {
                session.seat.pause.hold();
            }
            if matches!(session.phase, Phase::Open | Phase::Closing) {
                self.tree.close_line(session.work).map_err(|_| "a line was gone")?;
                session.work = self.tree.open_line(Some(session.owner));
                session.records.lost_all()?;
            }
        }
        Ok(())
    }
}
