//! A session whose memory lies in host memory: the way out, and back.
//!
//! A session moves whole, and only while nothing of its memory changes: who changes it sees to it first that it [is
//! resident](Session::be_resident), and says then that [it changes](Session::change).

use std::{
    cell::{Cell, RefCell},
    os::fd::OwnedFd,
    rc::Rc,
};

use bulkhead_caps::ObjectId;
use bulkhead_mm::{PAGE_BYTES, Range, Resource};
use bulkhead_schema::{Error, ErrorCode, executor_capnp};
use tokio::sync::oneshot;

use super::{
    Charge, Session,
    memory::{NewMemory, sealed_memory},
};
use crate::{
    books::{Memory, Thing, What},
    executor::{Activity, Answer, length},
    refusal::{self, internal},
    swapping::{Eviction, Turn},
};

/// CUDA's number for memory that the device itself has not.
const DEVICE_OUT_OF_MEMORY: u32 = 2;

/// Host memory that a session is swapped to.
struct Area {
    bytes: u64,
    _memory: OwnedFd,
    _charges: [Charge; 2],
}

/// A part of the swap area, in its order.
#[derive(Clone, Copy)]
struct Place {
    /// Where it belongs on the device; `None` where it was freed meanwhile.
    at: Option<Range>,
    bytes: u64,
}

/// Whether and how a session's memory lies in host memory.
pub(super) struct Swap {
    /// From the moment it begins to leave until it is back.
    away: Cell<bool>,
    places: RefCell<Vec<Place>>,
    area: RefCell<Option<Area>>,
    since_ns: Cell<u64>,
    times: Cell<u32>,
}

impl Swap {
    pub(super) fn new() -> Self {
        Self {
            away: Cell::new(false),
            places: RefCell::default(),
            area: RefCell::default(),
            since_ns: Cell::new(0),
            times: Cell::new(0),
        }
    }

    /// Nothing is swapped there any more.
    pub(super) fn forget_area(&self) {
        drop(self.area.take());
    }

    fn bytes(&self) -> u64 {
        self.places.borrow().iter().filter(|place| place.at.is_some()).map(|place| place.bytes).sum()
    }
}

/// A session that begins to leave: unless it does, it is there as before.
struct Leaving<'a>(Option<&'a Swap>);

impl<'a> Leaving<'a> {
    fn begin(swap: &'a Swap) -> Self {
        swap.away.set(true);
        Self(Some(swap))
    }

    fn left(mut self) {
        self.0 = None;
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if let Some(swap) = self.0 {
            swap.away.set(false);
            swap.places.take();
        }
    }
}

fn write_swap(mut swap: executor_capnp::swap::Builder<'_>, session: u32, places: &[Place]) {
    swap.set_session(session);
    swap.set_copy(true);
    let mut list = swap.init_arenas(length(places.len()));
    for (at, place) in (0u32..).zip(places) {
        let mut span = list.reborrow().get(at);
        span.set_address(place.at.map_or(0, |range| range.start().0));
        span.set_bytes(place.bytes);
    }
}

impl Session {
    /// How much of its memory lies in host memory.
    pub(crate) fn away_bytes(&self) -> u64 {
        self.swap.bytes()
    }

    /// How often it was swapped out.
    pub(crate) fn swaps(&self) -> u32 {
        self.swap.times.get()
    }

    /// Since when its memory is on the device, as its device's mover counts.
    pub(crate) fn resident_since_ns(&self) -> u64 {
        self.swap.since_ns.get()
    }

    /// Whether something changes it, or is on its way back from it.
    pub(crate) fn is_changing(&self) -> bool {
        *self.changes.borrow() > 0 || *self.reaping.borrow() > 0
    }

    /// Whether it may be swapped out: it agreed to it, and shares memory with nobody, nor with a standby.
    pub(crate) fn may_be_away(&self) -> bool {
        let is_shared =
            |thing: &Rc<Thing>| matches!(&thing.what, What::Memory(memory) if memory.mappings.get() > 0);
        !self.terms.keep_resident
            && !self.limits.standby
            && self.mappings.borrow().is_empty()
            && !self.things().iter().any(is_shared)
    }

    /// How much room it could make; `None` where it may not be swapped out, or is not there.
    pub(crate) fn movable_bytes(&self) -> Option<u64> {
        if self.swap.away.get() || self.live().is_err() || !self.may_be_away() {
            return None;
        }
        let mapped = |thing: &Rc<Thing>| match &thing.what {
            What::Memory(memory) if memory.mapped.get() => memory.range.bytes(),
            What::Memory(_)
            | What::Host { .. }
            | What::Code(_)
            | What::Point(_)
            | What::Program
            | What::Peer => 0,
        };
        Some(self.things().iter().map(mapped).sum()).filter(|bytes| *bytes > 0)
    }

    /// What every session of its executor does.
    pub(crate) async fn activity(&self) -> Result<Vec<Activity>, Error> {
        let asked = self.link().call(None, Vec::new(), |mut request| request.set_activity(()));
        match asked.await? {
            Answer::Activity(activity) => Ok(activity),
            other => Err(self.nonsense(&other)),
        }
    }

    fn each_mapped(&self, mut each: impl FnMut(&Memory)) {
        for thing in self.things() {
            if let What::Memory(memory) = &thing.what
                && memory.mapped.get()
            {
                each(memory);
            }
        }
    }

    /// Swaps it out; how much room that made. Where it fails, nothing has changed.
    pub(crate) async fn move_out(self: &Rc<Self>, _turn: &Turn<'_>) -> Result<u64, Error> {
        let _change = self.change()?;
        let leaving = Leaving::begin(&self.swap);
        let mut ranges = Vec::new();
        self.each_mapped(|memory| {
            let pieces = memory.pieces().into_iter();
            ranges.extend(pieces.filter_map(|piece| piece.at(memory.range.start())));
        });
        ranges.sort_unstable_by_key(|range| range.start());
        let places: Vec<_> =
            ranges.iter().map(|range| Place { at: Some(*range), bytes: range.bytes() }).collect();
        let bytes = places.iter().map(|place| place.bytes).sum();
        self.prepare_area(bytes).await?;
        let wanted = self.link().session_wanted(self.id);
        let asked = self.ask(Vec::new(), |request| write_swap(request.init_swap_out(), self.id, &places));
        self.done(&asked.await?)?;
        leaving.left();
        self.each_mapped(|memory| {
            memory.away.set(true);
            self.refund(Resource::DeviceBytes, memory.range.bytes());
        });
        self.swap.places.replace(places);
        self.swap.times.set(self.swap.times.get().saturating_add(1));
        self.device.mover.note_out(bytes);
        tracing::debug!(session = self.id, bytes, "swapped out");
        tokio::task::spawn_local(Rc::clone(self).come_back_when(wanted));
        Ok(bytes)
    }

    /// Sees to it that the executor has host memory for this much.
    async fn prepare_area(&self, bytes: u64) -> Result<(), Error> {
        let known = self.swap.area.borrow().as_ref().map(|area| area.bytes);
        if known.is_some_and(|known| known >= bytes) {
            return Ok(());
        }
        // Some more, so that a session that grows does not need another at once; but rather this than none.
        let ample = (bytes + bytes / 4).next_multiple_of(PAGE_BYTES);
        let (bytes, charge) = match self.charge(Resource::SwapBytes, ample) {
            Ok(charge) => (ample, charge),
            Err(_) => (bytes, self.charge(Resource::SwapBytes, bytes)?),
        };
        let descriptor = self.charge(Resource::Descriptors, 1)?;
        let memory = sealed_memory(bytes)
            .map_err(|error| Error::new(ErrorCode::OutOfMemory, format!("no host memory: {error}")))?;
        let for_executor = memory
            .try_clone()
            .map_err(|error| internal(format!("a descriptor cannot be copied: {error}")))?;
        let asked = self.ask(vec![for_executor], |request| {
            let mut area = request.init_swap_area();
            area.set_session(self.id);
            area.set_bytes(bytes);
        });
        self.done(&asked.await?)?;
        // The executor has let go of the one before.
        self.swap.area.replace(Some(Area { bytes, _memory: memory, _charges: [charge, descriptor] }));
        Ok(())
    }

    /// Brings it back, if it is away.
    pub(crate) async fn come_back(&self, turn: &Turn<'_>) -> Result<(), Error> {
        let mut eviction = Eviction::new(turn, self);
        while self.swap.away.get() {
            let bytes = self.swap.bytes();
            eviction.make_room(bytes).await?;
            let change = self.change()?;
            let charge = self.charge(Resource::DeviceBytes, bytes)?;
            let places = self.swap.places.borrow().clone();
            let asked = self.ask(Vec::new(), |request| write_swap(request.init_swap_in(), self.id, &places));
            match asked.await.and_then(|answer| self.done(&answer)) {
                Ok(()) => {
                    charge.keep();
                    self.each_mapped(|memory| memory.away.set(false));
                    self.swap.places.take();
                    self.swap.since_ns.set(self.device.mover.now_ns());
                    self.swap.away.set(false);
                    self.device.mover.note_in(bytes);
                    tracing::debug!(session = self.id, bytes, "swapped in");
                }
                // The device itself has less than there should be.
                Err(error) if error.code == ErrorCode::OutOfMemory => {
                    drop((charge, change));
                    eviction.evict(bytes).await?;
                }
                Err(error) => return Err(error),
            }
        }
        self.live()
    }

    /// Waits until it is back, if it is away. It can be away again after the next wait, unless it [changes](Self::change).
    pub(super) async fn be_resident(&self) -> Result<(), Error> {
        while self.swap.away.get() {
            let turn = self.device.mover.turn().await;
            self.come_back(&turn).await?;
        }
        Ok(())
    }

    /// Brings it back once it has something to do, however long it takes until there is room.
    async fn come_back_when(self: Rc<Self>, wanted: oneshot::Receiver<()>) {
        if wanted.await.is_err() {
            return;
        }
        while self.live().is_ok() {
            let turn = self.device.mover.turn().await;
            match self.come_back(&turn).await {
                Ok(()) => return,
                Err(error) if error.code == ErrorCode::OutOfMemory => {
                    tracing::debug!(session = self.id, %error, "a session waits to be swapped in");
                }
                Err(error) => return self.end(&error),
            }
            drop(turn);
            tokio::time::sleep(self.limits.second / 20).await;
        }
    }

    /// Lets go of memory that ended while its session is away; whether it is.
    pub(super) async fn forget_away(&self, own: &[(ObjectId, Rc<Thing>)]) -> bool {
        if !self.swap.away.get() {
            return false;
        }
        let _turn = self.device.mover.turn().await;
        if !self.swap.away.get() || self.live().is_err() {
            return false;
        }
        let mut places = self.swap.places.borrow_mut();
        for (_, thing) in own {
            if let What::Memory(memory) = &thing.what
                && memory.away.get()
            {
                for place in places.iter_mut() {
                    place.at = place.at.filter(|range| !memory.range.contains(*range));
                }
            }
        }
        true
    }

    /// Device memory for the session itself, for which others may have to go.
    pub(super) async fn charge_device(&self, bytes: u64) -> Result<Charge, Error> {
        let error = match self.charge(Resource::DeviceBytes, bytes) {
            Err(error) if self.may_be_charged(bytes) => error,
            charged => return charged,
        };
        let turn = self.device.mover.turn().await;
        let room = Eviction::new(&turn, self).make_room(bytes).await;
        room.map_err(|refused| self.refused(&refused, error))?;
        self.charge(Resource::DeviceBytes, bytes)
    }

    /// Whether its own limits allow this much more.
    fn may_be_charged(&self, bytes: u64) -> bool {
        self.device.ledger.borrow().allowance(self.account, Resource::DeviceBytes) >= bytes
    }

    /// What somebody is told who got no room: that the session is over, or why there was none at first.
    fn refused(&self, refused: &Error, first: Error) -> Error {
        tracing::debug!(session = self.id, error = %refused, "nobody makes room");
        self.live().err().unwrap_or(first)
    }

    /// Makes device memory, for which others may have to go: without them, `error` was why there was none.
    pub(super) async fn allocate_in_room(
        self: &Rc<Self>,
        bytes: u64,
        error: Error,
    ) -> Result<NewMemory, Error> {
        let needed = self.lower.borrow().place(bytes).map_err(refusal::region)?.bytes();
        if !self.may_be_charged(needed) {
            return Err(error);
        }
        let turn = self.device.mover.turn().await;
        self.come_back(&turn).await?;
        let mut eviction = Eviction::new(&turn, self);
        let room = eviction.make_room(needed).await;
        room.map_err(|refused| self.refused(&refused, error.clone()))?;
        match self.try_allocate(bytes).await {
            // The device itself has less than there should be.
            Err(error) if error.device == DEVICE_OUT_OF_MEMORY => {
                let room = eviction.evict(needed).await;
                room.map_err(|refused| self.refused(&refused, error))?;
                self.try_allocate(bytes).await
            }
            made => made,
        }
    }
}
