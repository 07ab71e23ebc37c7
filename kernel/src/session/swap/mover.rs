//! Whose turn it is to make room, and what has moved on a device.

use std::{
    cell::{Cell, RefCell},
    future::Future,
    rc::Rc,
};

use bulkhead_schema::Error;
use tokio::{
    sync::{Mutex, MutexGuard},
    time::Instant,
};

use crate::principals::{Counted, Party, Taken};

/// Moves the sessions of one device.
pub(crate) struct Mover {
    turn: Mutex<()>,
    started: Instant,
    outs: Cell<u32>,
    ins: Cell<u32>,
    moved_bytes: Cell<u64>,
}

/// The only one that makes room.
pub(crate) struct Turn<'a> {
    mover: &'a Mover,
    held: RefCell<Option<MutexGuard<'a, ()>>>,
    /// The only one of its session's that has the turn, or waits for it.
    _of_session: MutexGuard<'a, ()>,
    /// Where a client asked for it: a call that waits.
    _counted: Option<Taken>,
}

impl Turn<'_> {
    /// Waits for something while others make room. What there was before may be gone afterwards.
    pub(crate) async fn let_go_for<T>(&self, work: impl Future<Output = T>) -> T {
        drop(self.held.take());
        let done = work.await;
        self.held.replace(Some(self.mover.turn.lock().await));
        done
    }
}

impl Mover {
    pub(crate) fn new() -> Self {
        Self {
            turn: Mutex::new(()),
            started: Instant::now(),
            outs: Cell::new(0),
            ins: Cell::new(0),
            moved_bytes: Cell::new(0),
        }
    }

    /// Waits until nobody makes room, neither for the session whose own turn this is nor for another.
    pub(crate) async fn turn<'a>(&'a self, own: &'a Mutex<()>) -> Turn<'a> {
        self.counted_turn(own, None).await
    }

    /// The same for one of its client's calls.
    pub(crate) async fn turn_of_call<'a>(
        &'a self,
        own: &'a Mutex<()>,
        party: &Rc<Party>,
    ) -> Result<Turn<'a>, Error> {
        let counted = party.take(Counted::Waits, 1)?;
        Ok(self.counted_turn(own, Some(counted)).await)
    }

    async fn counted_turn<'a>(&'a self, own: &'a Mutex<()>, counted: Option<Taken>) -> Turn<'a> {
        let of_session = own.lock().await;
        let held = RefCell::new(Some(self.turn.lock().await));
        Turn { mover: self, held, _of_session: of_session, _counted: counted }
    }

    /// Nanoseconds since the mover began.
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    pub(crate) fn note_out(&self, bytes: u64) {
        self.outs.set(self.outs.get().saturating_add(1));
        self.moved_bytes.set(self.moved_bytes.get().saturating_add(bytes));
    }

    pub(crate) fn note_in(&self, bytes: u64) {
        self.ins.set(self.ins.get().saturating_add(1));
        self.moved_bytes.set(self.moved_bytes.get().saturating_add(bytes));
    }

    /// How often sessions were swapped out and in, and how much was moved in all.
    pub(crate) fn counts(&self) -> (u32, u32, u64) {
        (self.outs.get(), self.ins.get(), self.moved_bytes.get())
    }
}
