//! What has really happened, whatever the parts under test believe.

use std::collections::VecDeque;

use bulkhead_caps::{Line, ObjectId, Owner, RevocationId};
use bulkhead_mm::{Account, Region};
use bulkhead_schema::Handle;

use crate::{
    Checked, PLACES, PerPlace, SESSIONS,
    device::Entry,
    ensure,
    executor::{Binds, Seat},
    protocol::Channel,
};

/// A capability that lives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    pub(crate) handle: Handle,
    pub(crate) session: usize,
    pub(crate) parent: Option<u32>,
    pub(crate) thing: usize,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) writes: bool,
    /// Where its session sees it.
    pub(crate) place: Option<u8>,
    /// The mapping there is its own, and goes with it.
    pub(crate) maps: bool,
}

/// An object that is not free.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Thing {
    pub(crate) id: ObjectId,
    pub(crate) number: u32,
    /// Who pays for it.
    pub(crate) session: usize,
    /// `None` while it is swapped out.
    pub(crate) page: Option<u8>,
    pub(crate) deadline_ns: u64,
}

/// A revocation that is not reclaimed.
#[derive(Debug)]
pub(crate) struct Taking {
    pub(crate) id: RevocationId,
    pub(crate) number: u32,
    pub(crate) deadline_ns: u64,
    pub(crate) handles: Vec<Handle>,
    /// Session, page and object of each mapping that goes.
    pub(crate) mappings: Vec<(usize, u8, u32)>,
    pub(crate) unbinds: [u32; SESSIONS],
    pub(crate) unmaps: [u32; SESSIONS],
    pub(crate) owners: [Option<Owner>; SESSIONS],
    /// The marks of the unmappings on the sessions' control lines.
    pub(crate) marks: [u64; SESSIONS],
    pub(crate) severed: bool,
    pub(crate) quiescent: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Books {
    /// By slot.
    pub(crate) caps: Vec<Option<Known>>,
    last_generations: Vec<u32>,
    /// By the index of the object.
    pub(crate) things: Vec<Option<Thing>>,
    pub(crate) takings: Vec<Taking>,
    pub(crate) objects_made: u32,
    pub(crate) takings_made: u32,
}

impl Books {
    /// What a handle names for a session.
    pub(crate) fn named(&self, session: usize, handle: Handle) -> Option<Known> {
        let known = self.caps.get(handle.slot as usize).copied().flatten();
        known.filter(|known| known.handle == handle && known.session == session)
    }

    pub(crate) fn issued(&mut self, known: Known) -> Checked {
        let slot = known.handle.slot as usize;
        if slot >= self.caps.len() {
            self.caps.resize(slot + 1, None);
            self.last_generations.resize(slot + 1, 0);
        }
        ensure(self.caps[slot].is_none(), "3: a slot was issued twice")?;
        let last = std::mem::replace(&mut self.last_generations[slot], known.handle.generation);
        ensure(known.handle.generation > last, "3: a handle was issued twice")?;
        self.caps[slot] = Some(known);
        Ok(())
    }

    /// Whether a capability is one of the descendants of another.
    pub(crate) fn is_below(&self, known: &Known, top: u32) -> bool {
        let mut at = known.parent;
        while let Some(slot) = at {
            if slot == top {
                return true;
            }
            at = self.caps.get(slot as usize).copied().flatten().and_then(|known| known.parent);
        }
        false
    }

    pub(crate) fn live(&self) -> impl Iterator<Item = &Known> {
        self.caps.iter().flatten()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nobody is here.
    Shut,
    Open,
    /// The client is gone; the executor closes the session.
    Closing,
    /// The executor has closed it; some of its memory may be in quarantine.
    Closed,
}

/// Where a session's memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Residence {
    In,
    Leaving,
    Out,
    Coming,
    /// Copied in, and held until the standby has all of it too.
    Adopting,
}

/// A record in a ring.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    pub(crate) handle: Handle,
    pub(crate) stream: usize,
    pub(crate) touches: u32,
}

/// How many records of a session went where.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) taken: u32,
    pub(crate) refused: u32,
    pub(crate) completed: u32,
    pub(crate) lost: u32,
    /// The positions of those that are on the device.
    in_flight: Vec<u32>,
}

impl Records {
    pub(crate) fn began(&mut self, position: u32) {
        self.in_flight.push(position);
    }

    /// Takes note that a record completed or was lost: the first time that it is told.
    pub(crate) fn ended(&mut self, position: u32) -> Checked {
        let at = self.in_flight.iter().position(|on_device| *on_device == position);
        self.in_flight.swap_remove(at.ok_or("7: a record ended twice")?);
        Ok(())
    }

    /// Whether nothing is in flight any more.
    pub(crate) fn lost_all(&self) -> Checked {
        ensure(self.in_flight.is_empty(), "7: a record was lost and nobody was told")
    }

    pub(crate) fn check(&self) -> Checked {
        let ended = self.refused + self.completed + self.lost;
        let in_flight = u32::try_from(self.in_flight.len()).unwrap_or(u32::MAX);
        ensure(self.taken == ended + in_flight, "7: records are missing")
    }
}

/// One session, on all sides.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) phase: Phase,
    pub(crate) owner: Owner,
    /// It is isolated: its executor is its own, and ends with it.
    pub(crate) alone: bool,
    /// That executor answers nothing.
    pub(crate) mute: bool,
    /// It answers what it does not do.
    pub(crate) lies: bool,
    /// Marks of unmappings on its control line, in order, and whether each has been answered: the line passes in that order.
    pub(crate) passing: VecDeque<(u64, bool)>,
    /// What the pump admits, and what the control thread does.
    pub(crate) work: Line,
    pub(crate) control: Line,
    pub(crate) account: Account,
    pub(crate) region: Region,
    pub(crate) residence: Residence,
    /// Host memory that it is swapped to: which bytes lie there.
    pub(crate) area: PerPlace<u32>,
    /// Which bytes it saw last, where they are in host memory.
    pub(crate) kept: PerPlace<u32>,
    /// Pages that are being copied in, or adopted.
    pub(crate) coming: PerPlace<Option<u8>>,
    pub(crate) closing_deadline_ns: u64,
    pub(crate) limit: u32,
    pub(crate) channel: Channel,
    pub(crate) seat: Seat,
    /// What the standby knows: what was answered.
    pub(crate) table: PerPlace<Entry>,
    pub(crate) binds: Binds,
    pub(crate) ring: VecDeque<Record>,
    pub(crate) records: Records,
    /// Handles that the client was told of; it may not know that they have ended.
    pub(crate) remembered: [Handle; 8],
    pub(crate) capabilities: u32,
    pub(crate) pages: u32,
    pub(crate) swapped: u32,
}

pub(crate) const EMPTY: PerPlace<Entry> = [Entry::Sink; PLACES as usize];
