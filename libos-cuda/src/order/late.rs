//! Streams that are made when something is first asked of them: frameworks make a hundred and use a few, and a session has 64.
//!
//! Where a program uses more than there are, those that come last share one that was made late, of a like kind: they work in its
//! order, which CUDA allows, since no program may count on streams that run side by side. What they cannot share is a capture.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use bulkhead_schema::limits::STREAMS_MAX;
use parking_lot::{Mutex, RwLock};

use super::{Order, Streams, Target};
use crate::device::Session;
use crate::driver::driver;
use crate::handle::{Kind, encode, next_generation};
use crate::report;
use crate::status::{Answer, Status};

/// How many streams are made at once.
pub(super) const AT_ONCE: usize = 32;
/// What is said where no more can be made.
pub(super) const ALL_IN_USE: &str =
    "all 64 streams of the session are in use (some may be the library's): destroy some, or use fewer";
const _: () = assert!(STREAMS_MAX == 64);
/// So many are made only for kinds of which there is none yet.
const KEPT: usize = 4;
/// Such streams of a program at a time.
const LATE_MAX: usize = 4096;

/// What a stream was asked for as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kinds {
    order: Order,
    priority: i32,
    context: u64,
}

impl Kinds {
    /// Priorities are a hint.
    fn is_same_but_for_priority(self, other: Kinds) -> bool {
        (self.order, self.context) == (other.order, other.context)
    }

    /// A stream that the legacy one orders with can stand for one that it does not.
    fn can_stand_for(self, other: Kinds) -> bool {
        self.context == other.context && (self.order == other.order || other.order == Order::NonBlocking)
    }
}

/// A stream that is made later.
pub(super) struct Late {
    pub(super) kinds: Kinds,
    /// Its handle once it is made.
    pub(super) made: Mutex<Option<u64>>,
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
    made: Mutex<BTreeMap<u64, (Kinds, usize)>>,
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

    pub(super) fn get(&self, (place, generation): (usize, u32)) -> Result<Arc<Late>, Status> {
        let list = self.places.read();
        let place = list.get(place).filter(|place| place.generation == generation);
        place.and_then(|place| place.late.clone()).ok_or(Status::INVALID_HANDLE)
    }

    /// The handle of one, if it was made.
    pub(super) fn handle(&self, place: (usize, u32)) -> Result<Option<u64>, Status> {
        let late = self.get(place)?;
        let made = *late.made.lock();
        Ok(made)
    }

    /// Forgets one.
    pub(super) fn forget(&self, (place, generation): (usize, u32)) -> Result<(), Status> {
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

impl Streams {
    /// The stream of a place behind the session's, which is made now if it was not.
    #[cold]
    pub(super) fn made(&self, place: (usize, u32)) -> Result<Target, Status> {
        let late = self.late.get(place)?;
        let mut made = late.made.lock();
        let handle = match *made {
            Some(handle) => handle,
            None => {
                let session: &Session = &driver()?.session;
                *made.insert(self.make_or_share(session, late.kinds)?)
            }
        };
        drop(made);
        self.named(handle)
    }

    /// Makes a stream, or has it be one that is there: where there are no more, and where the last few are kept for other kinds.
    pub(super) fn make_or_share(&self, session: &Session, kinds: Kinds) -> Result<u64, Status> {
        let mut made = self.late.made.lock();
        let is_scarce = self.live() + KEPT >= self.slots.len();
        if is_scarce && let Some(handle) = self.share(&mut made, kinds, Kinds::is_same_but_for_priority)? {
            return Ok(handle);
        }
        match self.create_now(session, kinds.order, kinds.priority, kinds.context) {
            Ok(handle) => {
                made.insert(handle, (kinds, 1));
                Ok(handle)
            }
            Err(Status::OUT_OF_MEMORY) => {
                self.share(&mut made, kinds, Kinds::can_stand_for)?.ok_or_else(|| {
                    report::once(ALL_IN_USE);
                    Status::OUT_OF_MEMORY
                })
            }
            Err(other) => Err(other),
        }
    }

    /// The one of those that were made that `may` stand for another, and stands for fewest; of the same priority where one is.
    fn share(
        &self,
        made: &mut BTreeMap<u64, (Kinds, usize)>,
        kinds: Kinds,
        may: fn(Kinds, Kinds) -> bool,
    ) -> Result<Option<u64>, Status> {
        let fits = made.iter_mut().filter(|(handle, (like, _))| {
            let is_free =
                || self.named(**handle).is_ok_and(|target| matches!(self.captures.of(target), Ok(None)));
            may(*like, kinds) && is_free()
        });
        let least = fits.min_by_key(|(_, (like, sharers))| (like.priority != kinds.priority, *sharers));
        let Some((handle, (_, sharers))) = least else { return Ok(None) };
        *sharers += 1;
        self.captures.shared.fetch_or(self.named(*handle)?.bit(), Ordering::SeqCst);
        Ok(Some(*handle))
    }

    /// Destroys a stream that was made late, unless others share it.
    pub(super) fn leave(&self, session: &Session, handle: u64) -> Answer {
        let mut made = self.late.made.lock();
        let target = self.named(handle)?;
        if let Some((_, sharers)) = made.get_mut(&handle).filter(|(_, sharers)| *sharers > 1) {
            *sharers -= 1;
            if *sharers == 1 {
                self.captures.shared.fetch_and(!target.bit(), Ordering::SeqCst);
            }
            return Ok(());
        }
        self.retire(session, target)?;
        made.remove(&handle);
        Ok(())
    }
}
