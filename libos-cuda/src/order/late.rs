//! Streams that are made when something is first asked of them: frameworks make a hundred and use a few, and a session has 64.
//!
//! Where a program uses more than there are, those that come last share one that was made late, of a like kind: they work in its
//! order, which CUDA allows, since no program may count on streams that run side by side. What they cannot share is a capture.

use std::collections::BTreeMap;
use std::sync::Arc;

use bulkhead_schema::limits::STREAMS_MAX;
use parking_lot::{Mutex, RwLock};

use super::Order;
use crate::handle::{Kind, encode, next_generation};
use crate::status::Status;

/// How many streams are made at once.
pub(super) const AT_ONCE: usize = 32;
/// What is said where no more can be made.
pub(super) const ALL_IN_USE: &str = "all streams that the session may have are in use, 64 or as many as its limits say (`bulkhead status` tells; some may be \
     the library's): destroy some, or use fewer";
const _: () = assert!(STREAMS_MAX == 64);
/// So many are made only for kinds of which there is none yet.
pub(super) const KEPT: usize = 4;
/// Such streams of a program at a time.
const LATE_MAX: usize = 4096;

/// What a stream was asked for as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kinds {
    pub(super) order: Order,
    pub(super) priority: i32,
    pub(super) context: u64,
}

impl Kinds {
    /// Priorities are a hint.
    pub(super) fn is_same_but_for_priority(self, other: Kinds) -> bool {
        (self.order, self.context) == (other.order, other.context)
    }

    /// A stream that the legacy one orders with can stand for one that it does not.
    pub(super) fn can_stand_for(self, other: Kinds) -> bool {
        self.context == other.context && (self.order == other.order || other.order == Order::NonBlocking)
    }
}

/// A stream that is made later.
pub(super) struct Late {
    pub(super) kinds: Kinds,
    /// Its handle once it is made.
    pub(super) made: Mutex<Option<u64>>,
}

/// What a handle names: a place behind those of the session's streams, at one use of it.
#[derive(Clone, Copy)]
pub(super) struct Named {
    pub(super) place: usize,
    pub(super) generation: u32,
}

/// A place, and how often it was used.
#[derive(Default)]
struct Place {
    generation: u32,
    late: Option<Arc<Late>>,
}

/// Those of a process.
#[derive(Default)]
pub(super) struct LateStreams {
    places: RwLock<Vec<Place>>,
    /// Those that were made, by handle, and for how many of them each stands.
    pub(super) made: Mutex<BTreeMap<u64, (Kinds, usize)>>,
}

impl LateStreams {
    /// Keeps others from making streams.
    pub(super) fn making(&self) -> impl Sized + '_ {
        self.made.lock()
    }

    /// Notes one. Its handle names a place behind those of the session's streams.
    pub(super) fn add(&self, order: Order, priority: i32, context: u64, first: u32) -> Result<u64, Status> {
        let mut list = self.places.write();
        let free = list.iter().position(|place| place.late.is_none()).unwrap_or(list.len());
        if free >= LATE_MAX {
            return Err(Status::OUT_OF_MEMORY);
        }
        if free == list.len() {
            list.push(Place::default());
        }
        let number = u32::try_from(free).map_err(|_| Status::OUT_OF_MEMORY)?;
        let place = list.get_mut(free).ok_or(Status::OUT_OF_MEMORY)?;
        place.generation = next_generation(place.generation);
        place.late =
            Some(Arc::new(Late { kinds: Kinds { order, priority, context }, made: Mutex::new(None) }));
        Ok(encode(Kind::Stream, place.generation, first + number))
    }

    pub(super) fn get(&self, Named { place, generation }: Named) -> Result<Arc<Late>, Status> {
        let list = self.places.read();
        let place = list.get(place).filter(|place| place.generation == generation);
        place.and_then(|place| place.late.clone()).ok_or(Status::INVALID_HANDLE)
    }

    /// The handle of one, if it was made.
    pub(super) fn handle(&self, named: Named) -> Result<Option<u64>, Status> {
        let late = self.get(named)?;
        let made = *late.made.lock();
        Ok(made)
    }

    /// Forgets one.
    pub(super) fn forget(&self, Named { place, generation }: Named) -> Result<(), Status> {
        let mut list = self.places.write();
        let place = list.get_mut(place).filter(|place| place.generation == generation);
        place.and_then(|place| place.late.take()).map(drop).ok_or(Status::INVALID_HANDLE)
    }

    /// Forgets those of a context.
    pub(super) fn end(&self, context: u64) {
        for place in self.places.write().iter_mut() {
            place.late.take_if(|late| late.kinds.context == context);
        }
        self.made.lock().retain(|_, (kinds, _)| kinds.context != context);
    }
}
