//! What a session knows of images whose kernels can tell of violations.

use std::sync::{
    Weak,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use bulkhead_schema::{Error, Stray};
use parking_lot::Mutex;

use crate::{AddressRange, DeviceRange, Stream, Violation};

/// An image's block of variables, as the rings in it are looked at. It lies where it does as long as somebody holds this.
pub(crate) trait Watched: Send + Sync {
    /// Where a variable begins in the block, and how long it is.
    fn place(&self, name: &str) -> Option<(u64, u64)>;

    /// A part of the block, as records name it.
    fn range(&self, offset: u64, bytes: u64) -> DeviceRange;

    /// Its device address.
    fn address(&self) -> u64;

    /// What it began with, up to where the rest was zero.
    fn content(&self) -> &[u8];
}

/// The images of a session whose kernels can tell of violations.
pub(crate) struct Watch {
    /// Whether images are loaded so that they tell of accesses.
    pub(crate) stray: Stray,
    /// Whether there is one.
    pub(super) any: AtomicBool,
    /// How often something was launched since there is one, and how much of that was looked after.
    pub(super) launches: AtomicU64,
    pub(super) seen: AtomicU64,
    pub(super) state: Mutex<State>,
}

/// What was told, and by whom more may be.
#[derive(Default)]
pub(super) struct State {
    pub(super) images: Vec<Weak<dyn Watched>>,
    /// What there is to access, in order.
    pub(super) ranges: Vec<AddressRange>,
    pub(super) kept: Vec<Violation>,
    /// Records that were not kept, or that the rings had no room for.
    pub(super) lost: u64,
    /// What threads ended with, until somebody was told.
    pub(super) stopped: Option<Error>,
    /// On which the rings are read while kernels run on the others.
    pub(super) stream: Option<Stream>,
}

impl Watch {
    /// All of the slot, until something else is listed.
    pub(crate) fn new(stray: Stray, slot: AddressRange) -> Self {
        Self {
            stray,
            any: AtomicBool::new(false),
            launches: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            state: Mutex::new(State { ranges: vec![slot], ..State::default() }),
        }
    }

    /// Whether there is anything to look at.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Notes that something is about to be launched.
    #[inline]
    pub(crate) fn launching(&self) {
        if self.any() {
            self.launches.fetch_add(1, Ordering::AcqRel);
        }
    }
}
