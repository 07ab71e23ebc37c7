//! Sessions that have an executor of their own (isolated ones): a process that ends with them, that the kernel ends where it is in
//! the way, and that may be in its tenant's hands: mute, or a liar.

use crate::{
    Checked, Event, Fault, SESSIONS, Sim,
    books::{EMPTY, Phase},
    device::Entry,
    ensure,
    executor::Seat,
    protocol::{Message, Sent},
};

impl Sim {
    /// The process of an isolated session ends: by itself, or with its client.
    pub(crate) fn process_ends(&mut self, at: usize) -> Checked {
        let session = &self.sessions[at];
        if !session.alone || session.phase != Phase::Open {
            return Ok(());
        }
        self.tally.note(Event::ProcessEnded);
        self.die(at)
    }

    /// Its executor is taken over by its tenant: it answers nothing any more, or what it has not done.
    pub(crate) fn turns_bad(&mut self, at: usize) {
        let lies = self.choices.one_in(2);
        let session = &mut self.sessions[at];
        if session.alone && session.phase == Phase::Open && !session.mute && !session.lies {
            (session.mute, session.lies) = (!lies, lies);
            self.tally.note(if lies { Event::Lied } else { Event::FellMute });
        }
    }

    /// The process of a session that is closing is gone: nothing of it reaches anything, whatever it has not answered.
    pub(crate) fn process_is_gone(&mut self, at: usize) -> Checked {
        let session = &mut self.sessions[at];
        let admitted = session.seat.admitted;
        for work in session.seat.streams.queues.iter().flatten() {
            session.records.ended(work.position)?;
            session.records.lost += 1;
        }
        session.records.lost_all()?;
        let seat = std::mem::replace(&mut session.seat, Seat::new());
        session.table = EMPTY;
        session.binds.0.clear();
        let unanswered = session.channel.all_is_lost();
        self.tree.completed(session.work, admitted).map_err(|_| "a line was gone")?;
        for sent in unanswered {
            let Message::Unbind { revocation, unmap, .. } = sent.message else { continue };
            if !sent.unbound {
                self.unbound(at, revocation, admitted)?;
            }
            if let Some(place) = unmap {
                self.sessions[at].release_place(place)?;
                self.unmapped(at, revocation)?;
            }
        }
        self.closed(at)?;
        if self.fault == Some(Fault::ClosedBeforeDeath) {
            self.sessions[at].seat = seat;
        }
        Ok(())
    }

    /// Whether a process still has a page, mapped or on its way to it, whatever it has said.
    pub(crate) fn is_kept(&self, page: u8) -> bool {
        self.sessions.iter().any(|session| {
            let is_of = |sent: &Sent| matches!(sent.message, Message::Map { page: sent, .. } if sent == page);
            session.seat.streams.table.contains(&Entry::Page(page)) || session.channel.sent.iter().any(is_of)
        })
    }

    /// The driver gives memory back once no process has it any more.
    pub(crate) fn let_kept_pages_go(&mut self) {
        let kept = std::mem::take(&mut self.kept);
        for page in kept {
            if self.is_kept(page) {
                self.kept.push(page);
            } else {
                self.pages.at(page).stamp = 0;
                self.pages.free.push(page);
            }
        }
    }

    /// Guarded and isolated sessions share nothing.
    pub(crate) fn kept_apart(&self) -> Checked {
        for thing in self.books.things.iter().flatten() {
            let Some(page) = thing.page else { continue };
            let owner = self.sessions[thing.session].alone;
            let maps = |session: &crate::books::Session| {
                session.seat.streams.table.contains(&Entry::Page(page)) && session.alone != owner
            };
            ensure(!self.sessions.iter().any(maps), "11: guarded and isolated sessions share a page")?;
        }
        Ok(())
    }

    /// The isolated sessions that keep a revocation from its end.
    pub(crate) fn in_the_way(&self, taking: &crate::books::Taking) -> [bool; SESSIONS] {
        std::array::from_fn(|at| {
            let session = &self.sessions[at];
            let waits = taking.unbinds[at] > 0 || taking.unmaps[at] > 0 || session.seat.streams.in_flight > 0;
            session.alone && taking.owners[at].is_some() && session.phase == Phase::Open && waits
        })
    }
}
