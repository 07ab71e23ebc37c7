//! Where a session's memory is, and what is known of it while it moves.

use std::{
    cell::{Cell, RefCell},
    os::fd::OwnedFd,
};

use bulkhead_mm::Range;
use tokio::sync::{Mutex, watch};

use crate::ledger::Charge;

/// Host memory that a session is swapped to.
pub(super) struct Area {
    pub(super) bytes: u64,
    pub(super) memory: OwnedFd,
    pub(super) _charges: [Charge; 2],
}

/// A part of the swap area, in its order.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Where it belongs on the device; `None` where it was freed meanwhile.
    pub(super) at: Option<Range>,
    pub(super) bytes: u64,
}

/// Where a session's memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whereabouts {
    /// On the device.
    Here,
    /// On the device, being copied out.
    Leaving,
    /// In the swap area.
    Away,
    /// In the swap area, being copied in.
    Coming,
}

/// Whether and how a session's memory lies in host memory.
pub(crate) struct Swap {
    pub(super) whereabouts: Cell<Whereabouts>,
    /// Held while it moves, and by whoever needs that it does not.
    pub(super) moving: Mutex<()>,
    pub(super) places: RefCell<Vec<Place>>,
    pub(super) area: RefCell<Option<Area>>,
    pub(super) since_ns: Cell<u64>,
    pub(super) times: Cell<u32>,
    /// Held by whoever makes room for it, or waits for the turn to.
    pub(super) making_room: Mutex<()>,
    /// The operator wants it away.
    pub(super) suspended: watch::Sender<bool>,
    /// Held by whoever suspends or resumes it.
    pub(super) suspending: Mutex<()>,
    /// Its area is being given back.
    pub(super) giving_back: Cell<bool>,
}

impl Swap {
    pub(crate) fn new() -> Self {
        Self {
            whereabouts: Cell::new(Whereabouts::Here),
            moving: Mutex::new(()),
            places: RefCell::default(),
            area: RefCell::default(),
            since_ns: Cell::new(0),
            times: Cell::new(0),
            making_room: Mutex::new(()),
            suspended: watch::Sender::new(false),
            suspending: Mutex::new(()),
            giving_back: Cell::new(false),
        }
    }

    /// Nothing is swapped there any more.
    pub(crate) fn forget_area(&self) {
        drop(self.area.take());
    }

    pub(super) fn bytes(&self) -> u64 {
        self.places.borrow().iter().filter(|place| place.at.is_some()).map(|place| place.bytes).sum()
    }

    pub(super) fn is_away(&self) -> bool {
        self.whereabouts.get() != Whereabouts::Here
    }
}

/// A session on its way: unless it arrives, it is where it was.
pub(super) struct Move<'a> {
    pub(super) swap: &'a Swap,
    pub(super) from: Whereabouts,
}

impl<'a> Move<'a> {
    pub(super) fn begin(swap: &'a Swap, moving: Whereabouts) -> Self {
        Self { swap, from: swap.whereabouts.replace(moving) }
    }

    pub(super) fn arrived(mut self, at: Whereabouts) {
        self.from = at;
    }
}

impl Drop for Move<'_> {
    fn drop(&mut self) {
        self.swap.whereabouts.set(self.from);
    }
}
