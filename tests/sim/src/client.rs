//! What clients and the pump do.

use bulkhead_mm::{ARENA_GRANULE_BYTES, Amounts, Range, Region, Resource, Slot};

use crate::{
    Checked, Event, PLACES, STREAMS, Sim,
    books::{Phase, Record},
    device::Work,
    ensure,
};

/// Records of a ring.
const RING_RECORDS: usize = 16;

impl Sim {
    /// A client comes.
    pub(crate) fn open(&mut self, at: usize) -> Checked {
        if self.sessions[at].phase != Phase::Shut {
            return Ok(());
        }
        let limit = 4 + self.choices.below(12);
        let alone = self.choices.one_in(3);
        let limits = Amounts::UNLIMITED.with(Resource::Capabilities, u64::from(limit));
        let account = self.ledger.open_below(self.root, limits).map_err(|_| "6: no account")?;
        let slot = u32::try_from(at).ok().and_then(Slot::new).ok_or("too many sessions")?;
        let bytes = u64::from(PLACES) * ARENA_GRANULE_BYTES;
        let bounds = Range::new(slot.read_write().start(), bytes).ok_or("an address wrapped")?;
        let session = &mut self.sessions[at];
        session.phase = Phase::Open;
        (session.alone, session.mute, session.lies) = (alone, false, false);
        session.owner = self.tree.open_owner(limit);
        session.work = self.tree.open_line(Some(session.owner));
        session.control = self.tree.open_line(Some(session.owner));
        session.limit = limit;
        session.account = account;
        session.region = Region::new(bounds);
        Ok(())
    }

    /// A client pushes a record: its handle may have ended, and its kernel may never end.
    pub(crate) fn push(&mut self, at: usize) {
        let session = &mut self.sessions[at];
        if session.phase != Phase::Open || session.ring.len() >= RING_RECORDS {
            return;
        }
        let touches = match self.choices.below(4_000) {
            0 => u32::MAX,
            1..20 => 1 + self.choices.below(400),
            _ => 1 + self.choices.below(8),
        };
        // What it was told of, ended or not; mostly what is bound.
        let remembered = session.remembered[self.choices.index(8)];
        let bound = session.binds.0.get(self.choices.index(session.binds.0.len().max(1)));
        let bound = bound.filter(|_| !self.choices.one_in(6));
        let handle = bound.map_or(remembered, |(handle, _)| *handle);
        let stream = self.choices.index(STREAMS);
        session.ring.push_back(Record { handle, stream, touches });
    }

    /// The pump takes a record.
    pub(crate) fn pump(&mut self, at: usize) -> Checked {
        let session = &mut self.sessions[at];
        if !session.seat.launches() {
            return Ok(());
        }
        let Some(record) = session.ring.pop_front() else { return Ok(()) };
        let position = session.records.taken;
        session.records.taken = position.wrapping_add(1);
        if !session.seat.binds.names(record.handle) {
            session.records.refused += 1;
            self.tally.note(Event::Refused);
            return Ok(());
        }
        let handle = record.handle;
        let still = |taking: &crate::books::Taking| !taking.severed && taking.handles.contains(&handle);
        let lives = self.books.named(at, handle).is_some();
        self.tally.note(if lives { Event::Admitted } else { Event::AdmittedWhileSevering });
        ensure(
            lives || session.lies || self.books.takings.iter().any(still),
            "1: an operation was admitted by what was severed",
        )?;
        session.seat.admitted += 1;
        session.seat.streams.in_flight += 1;
        session.records.began(position);
        let work = Work::new(position, session.seat.admitted, record.touches);
        session.seat.streams.queues[record.stream].push_back(work);
        Ok(())
    }

    /// The device does a piece of a session's work.
    #[inline]
    pub(crate) fn device_runs(&mut self, at: usize) -> Checked {
        let session = &mut self.sessions[at];
        let stream = self.choices.index(STREAMS);
        let (pages, choices, tally) = (&mut self.pages, &mut self.choices, &mut self.tally);
        let done = session.seat.streams.run(stream, (at, session.lies), pages, choices, tally)?;
        if let Some(position) = done {
            session.records.ended(position)?;
            session.records.completed += 1;
            self.tally.note(Event::Completed);
        }
        Ok(())
    }
}
