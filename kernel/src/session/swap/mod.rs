//! A session whose memory lies in host memory: the way out, and back.
//!
//! A session moves whole, and only while nothing of its memory changes: who changes it sees to it first that it [is
//! resident](Session::be_resident), and says then that it [changes](Session::change).
//!
//! # When an executor is lost on the way
//! Its memory is in one place at a time, which is known from what was finished ([`Whereabouts`]):
//! 1. Until all of it was copied out it is on the device, where a standby has it mapped too.
//! 2. From then on it is in the swap area, which is the kernel's: the standby gives up its mappings, and the executor that
//!    the session goes on with holds it as the one before did.
//! 3. It stays there until the copy on the device is whole and a standby has that mapped too. Only then the session is let
//!    go.

mod area;
pub(crate) mod device;
pub(super) mod mover;
pub(super) mod state;

use std::{rc::Rc, time::Duration};

use bulkhead_caps::ObjectId;
use bulkhead_mm::{Range, Resource};
use bulkhead_schema::{Error, ErrorCode, executor_capnp, limits};
use tokio::{
    sync::{Mutex, MutexGuard, oneshot},
    time::Instant,
};

use crate::{
    executor_proxy::{Activity, Answer, length},
    ledger::Charge,
    principals::Counted,
    refusal::internal,
    registry::{Memory, What},
    session::{
        Object, Session,
        requests::{adopt, forget},
        swap::{
            device::Eviction,
            mover::Turn,
            state::{Move, Place, Whereabouts},
        },
    },
};

fn suspended() -> Error {
    Error::new(ErrorCode::Unavailable, "the session is suspended: its memory is not on the device")
        .remedy("its operator lets it go on with `bulkhead resume`")
}

fn ranges(places: &[Place]) -> Vec<Range> {
    places.iter().filter_map(|place| place.at).collect()
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
    pub(crate) fn making_room(&self) -> &Mutex<()> {
        &self.swap.making_room
    }

    /// How much of its memory lies in host memory.
    pub(crate) fn away_bytes(&self) -> u64 {
        self.swap.bytes()
    }

    /// Whether its memory is not on the device, or not for long.
    pub(crate) fn is_away(&self) -> bool {
        self.swap.is_away()
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

    /// Whether it is being swapped out.
    pub(crate) fn is_leaving(&self) -> bool {
        self.swap.whereabouts.get() == Whereabouts::Leaving
    }

    /// Whether it may be swapped out: it agreed to it, and shares memory with nobody.
    pub(crate) fn may_be_away(&self) -> bool {
        !self.terms.keep_resident
            && self.mappings.borrow().is_empty()
            && self.tally.lent() == 0
            && self.shelf.borrow().taken().next().is_none()
    }

    /// How much room it could make; `None` where it may not be swapped out, or is not there. Of an isolated session only its own
    /// executor knows whether it is idle: nobody is swapped out for another by that word.
    pub(crate) fn movable_bytes(&self) -> Option<u64> {
        if self.device.executor.is_isolated()
            || self.swap.is_away()
            || self.live().is_err()
            || !self.may_be_away()
        {
            return None;
        }
        Some(self.tally.mapped_bytes()).filter(|bytes| *bytes > 0)
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
                && memory.is_mapped()
            {
                each(memory);
            }
        }
    }

    /// Where its memory lies, piece by piece, in order.
    fn placed(&self) -> Vec<Place> {
        let mut ranges = Vec::new();
        self.each_mapped(|memory| {
            let pieces = memory.pieces().into_iter();
            ranges.extend(pieces.filter_map(|piece| piece.at(memory.range.start())));
        });
        ranges.sort_unstable_by_key(|range| range.start());
        ranges.iter().map(|range| Place { at: Some(*range), bytes: range.bytes() }).collect()
    }

    /// Swaps it out, where its work passes in time; how much room that made. Where it fails, nothing has changed.
    pub(crate) async fn move_out(self: &Rc<Self>, patience: Duration) -> Result<u64, Error> {
        let _change = self.change()?;
        // It was chosen before others were moved: it may have come to share memory since. Nothing is mapped from here on.
        if !self.may_be_away() {
            return Err(Error::new(
                ErrorCode::NotSupported,
                "the session shares memory, or stays resident, by now",
            ));
        }
        let moving = self.swap.moving.try_lock();
        let Some(_moving) = moving.ok().filter(|_| !self.swap.is_away()) else {
            return Err(internal("a session that moves is to move"));
        };
        let leaving = Move::begin(&self.swap, Whereabouts::Leaving);
        let places = self.placed();
        let bytes = places.iter().map(|place| place.bytes).sum();
        debug_assert_eq!(bytes, self.tally.mapped_bytes(), "what is there is what was counted");
        self.prepare_area(bytes).await?;
        let (link, standby) = (self.link(), self.standby());
        let wanted = link.session_wanted(self.id);
        self.note_asked();
        let asked = self.ask_alone(Vec::new(), |request| {
            let mut swap = request.init_swap_out();
            swap.set_patience_ms(u32::try_from(patience.as_millis()).unwrap_or(u32::MAX).max(1));
            write_swap(swap, self.id, &places);
        });
        self.done(&asked.await?)?;
        let ranges = ranges(&places);
        self.swap.places.replace(places);
        leaving.arrived(Whereabouts::Away);
        // As long as somebody has it mapped the device has no more room.
        if let Some(standby) = standby {
            forget(self.id, &standby.link, &ranges).await;
        }
        self.each_mapped(|memory| {
            memory.away.set(true);
            self.refund(Resource::DeviceBytes, memory.range.bytes());
        });
        self.swap.times.set(self.swap.times.get().saturating_add(1));
        self.device.mover.note_out(bytes);
        tracing::debug!(session = self.id, bytes, "swapped out");
        tokio::task::spawn_local(Rc::clone(self).come_back_when(wanted));
        Ok(bytes)
    }

    /// Brings it back, if it is away.
    pub(crate) async fn come_back(&self, turn: &Turn<'_>) -> Result<(), Error> {
        let mut eviction = Eviction::new(turn, self);
        while self.swap.whereabouts.get() == Whereabouts::Away {
            self.live()?;
            if self.is_suspended() {
                return Err(suspended());
            }
            eviction.make_room(self.swap.bytes()).await?;
            // Without waiting, so that nobody else takes the room.
            let Ok(moving) = self.swap.moving.try_lock() else {
                drop(self.swap.moving.lock().await);
                continue;
            };
            if self.swap.whereabouts.get() != Whereabouts::Away {
                continue;
            }
            let change = self.change()?;
            let bytes = self.swap.bytes();
            let charge = self.charge(Resource::DeviceBytes, bytes)?;
            match self.move_in(&moving, charge).await {
                Ok(()) => {}
                // The device itself has less than there should be.
                Err(error) if error.code == ErrorCode::OutOfMemory => {
                    drop((moving, change));
                    eviction.evict(bytes).await?;
                }
                Err(error) => return Err(error),
            }
        }
        self.live()
    }

    /// Copies it in. Where it fails, it is away as before, with whichever executor it goes on.
    async fn move_in(&self, _moving: &MutexGuard<'_, ()>, charge: Charge) -> Result<(), Error> {
        let coming = Move::begin(&self.swap, Whereabouts::Coming);
        let places = self.swap.places.borrow().clone();
        let bytes = places.iter().filter(|place| place.at.is_some()).map(|place| place.bytes).sum();
        let (link, standby) = (self.link(), self.standby());
        self.note_asked();
        let asked = self.ask_alone(Vec::new(), |request| {
            let mut swap = request.init_swap_in();
            swap.set_hold(standby.is_some());
            write_swap(swap, self.id, &places);
        });
        self.done(&asked.await?)?;
        if let Some(standby) = &standby {
            adopt(&self.pair(standby), &ranges(&places)).await?;
        }
        charge.keep();
        self.each_mapped(|memory| memory.away.set(false));
        self.swap.places.take();
        self.swap.since_ns.set(self.device.mover.now_ns());
        coming.arrived(Whereabouts::Here);
        self.device.mover.note_in(bytes);
        tracing::debug!(session = self.id, bytes, "swapped in");
        if standby.is_none() {
            return Ok(());
        }
        let let_go = self.ask_alone(Vec::new(), |request| request.init_swap_in().set_session(self.id));
        match let_go.await {
            Ok(answer) => self.done(&answer),
            // It goes on with another, where it is not held.
            Err(_) if link.failure().is_some() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether the operator has suspended it.
    pub(crate) fn is_suspended(&self) -> bool {
        *self.swap.suspended.borrow()
    }

    /// Whether its memory lies on the device, until the last of it was copied out.
    pub(crate) fn is_on_the_device(&self) -> bool {
        matches!(self.swap.whereabouts.get(), Whereabouts::Here | Whereabouts::Leaving)
    }

    /// Waits until the operator does not want it away, or it is over.
    pub(crate) async fn until_resumed(&self) {
        let mut suspended = self.swap.suspended.subscribe();
        tokio::select! {
            // The sender is a field of `self`, so the wait cannot fail.
            resumed = suspended.wait_for(|suspended| !suspended) => drop(resumed),
            _ = self.over() => {}
        }
    }

    /// Moves its memory to host memory, where its work passes in time, and leaves it there until it is [resumed](Self::resume).
    /// Not to be given up in the middle.
    pub(crate) async fn suspend(self: &Rc<Self>) -> Result<(), Error> {
        let _only = self.only_one_suspends().await?;
        self.live()?;
        if self.is_suspended() {
            return Ok(());
        }
        // From here on nothing brings it back, and no call begins that needs its memory.
        self.swap.suspended.send_replace(true);
        let moved = self.move_out_to_stay().await;
        if moved.is_err() {
            self.swap.suspended.send_replace(false);
        }
        moved
    }

    /// Waits for whoever suspends or resumes it, not for ever: the executor of an isolated session may never answer.
    async fn only_one_suspends(&self) -> Result<MutexGuard<'_, ()>, Error> {
        let patience = self.limits.seconds(limits::DRAIN_SECONDS);
        tokio::time::timeout(patience, self.swap.suspending.lock()).await.map_err(|_| {
            let message = format!("session {} is still being suspended or resumed", self.id);
            Error::new(ErrorCode::TimedOut, message).remedy(
                "wait for that, or end the session with `bulkhead evict` where its executor does not answer",
            )
        })
    }

    /// Moves it out once nothing of its memory changes.
    async fn move_out_to_stay(self: &Rc<Self>) -> Result<(), Error> {
        let patience = self.limits.seconds(limits::DRAIN_SECONDS);
        let deadline = Instant::now() + patience;
        loop {
            let turn = self.device.mover.turn(self.making_room()).await;
            self.live()?;
            if !self.may_be_away() {
                let message =
                    format!("session {} shares memory, or was promised to stay on the device", self.id);
                return Err(Error::new(ErrorCode::NotSupported, message));
            }
            match self.swap.whereabouts.get() {
                Whereabouts::Away => return Ok(()),
                Whereabouts::Here if !self.is_changing() && self.swap.moving.try_lock().is_ok() => {
                    // Its work may be long in passing: nobody else waits for that.
                    return turn.let_go_for(self.move_out(patience)).await.map(drop);
                }
                Whereabouts::Here | Whereabouts::Leaving | Whereabouts::Coming => {}
            }
            drop(turn);
            if Instant::now() > deadline {
                return Err(Error::new(ErrorCode::TimedOut, format!("session {} keeps changing", self.id))
                    .remedy("try again"));
            }
            tokio::time::sleep(self.limits.second / 200).await;
        }
    }

    /// Lets it go on where it was suspended. Not to be given up in the middle.
    pub(crate) async fn resume(self: &Rc<Self>) -> Result<(), Error> {
        let _only = self.only_one_suspends().await?;
        self.live()?;
        if !self.swap.suspended.send_replace(false) {
            return Err(Error::new(
                ErrorCode::InvalidArgument,
                format!("session {} is not suspended", self.id),
            ));
        }
        let turn = self.device.mover.turn(self.making_room()).await;
        let back = self.come_back(&turn).await;
        if back.is_err() && self.swap.is_away() {
            // It is as it was.
            self.swap.suspended.send_replace(true);
        }
        back
    }

    /// Waits until it is back, if it is away. It can be away again after the next wait, unless it [changes](Self::change). While
    /// its operator has it suspended this waits too, not for ever.
    pub(crate) async fn be_resident(&self) -> Result<(), Error> {
        loop {
            self.live()?;
            if self.is_suspended() {
                let _waits = self.party.take(Counted::Waits, 1)?;
                let patience = self.limits.seconds(limits::DRAIN_SECONDS);
                if tokio::time::timeout(patience, self.until_resumed()).await.is_err() {
                    return Err(suspended());
                }
                continue;
            }
            if !self.swap.is_away() {
                return Ok(());
            }
            // Where it is about to leave, nobody else waits for that.
            let waits = self.party.take(Counted::Waits, 1)?;
            tokio::select! {
                moving = self.swap.moving.lock() => drop(moving),
                over = self.over() => return Err(over),
            }
            drop(waits);
            let turn = self.device.mover.turn_of_call(self.making_room(), &self.party).await?;
            match self.come_back(&turn).await {
                // It was suspended anew.
                Err(_) if self.is_suspended() => {}
                came => came?,
            }
        }
    }

    /// The same where others must not wait for its operator: refused while that has it suspended.
    pub(crate) async fn be_resident_for_another(&self) -> Result<(), Error> {
        if self.is_suspended() { Err(suspended()) } else { self.be_resident().await }
    }

    /// Brings it back once it has something to do, however long it takes until there is room.
    async fn come_back_when(self: Rc<Self>, wanted: oneshot::Receiver<()>) {
        if wanted.await.is_err() {
            // Its executor is lost: whoever goes on with it asks the next.
            return;
        }
        while self.live().is_ok() {
            self.until_resumed().await;
            let turn = self.device.mover.turn(self.making_room()).await;
            let back = self.come_back(&turn).await;
            drop(turn);
            match back {
                Ok(()) => return,
                Err(error) if error.code == ErrorCode::OutOfMemory => {
                    tracing::debug!(session = self.id, %error, "a session waits to be swapped in");
                    tokio::time::sleep(self.limits.second / 20).await;
                }
                Err(error) if error.code == ErrorCode::DeviceLost && self.may_move().await => {}
                Err(error) => return self.end(&error),
            }
        }
    }

    /// Waits until it does not move; it does not as long as the result is held.
    pub(crate) async fn rest(&self) -> MutexGuard<'_, ()> {
        self.swap.moving.lock().await
    }

    /// Has the executor that it goes on with hold it, if it is away, and bring it back once it has something to do.
    pub(crate) async fn stay_away(self: &Rc<Self>, _rest: &MutexGuard<'_, ()>) -> Result<(), Error> {
        if !self.swap.is_away() {
            return Ok(());
        }
        let wanted = self.link().session_wanted(self.id);
        let held = self.ask_alone(Vec::new(), |request| write_swap(request.init_swap_out(), self.id, &[]));
        self.done(&held.await?)?;
        tokio::task::spawn_local(Rc::clone(self).come_back_when(wanted));
        Ok(())
    }

    /// Lets go of memory that ended while its session is away; whether it is.
    pub(crate) async fn forget_away(&self, own: &[(ObjectId, Rc<Object>)]) -> bool {
        if !self.swap.is_away() {
            return false;
        }
        let _rest = self.rest().await;
        if !self.swap.is_away() || self.live().is_err() {
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
}
