//! Streams that are made when something is first asked of them: frameworks make a hundred and use a few, and a session has 64.

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use super::{Order, Streams, Target};
use crate::device::Session;
use crate::driver::driver;
use crate::handle::{Kind, encode, next_generation};
use crate::status::Status;

/// How many streams are made at once.
pub(super) const AT_ONCE: usize = 32;
/// Such streams of a program at a time.
const LATE_MAX: usize = 4096;

/// A stream that is made later.
struct Late {
    order: Order,
    priority: i32,
    context: u64,
    /// Its handle once it is made.
    made: Mutex<Option<u64>>,
}

/// A place, and how often it was used.
#[derive(Default)]
struct Place {
    generation: u32,
    late: Option<Arc<Late>>,
}

/// Those of a process.
#[derive(Default)]
pub(super) struct LateStreams(RwLock<Vec<Place>>);

impl LateStreams {
    /// Notes one. Its handle names a place behind those of the session's streams.
    pub(super) fn add(&self, order: Order, priority: i32, context: u64, first: u32) -> Result<u64, Status> {
        let mut list = self.0.write();
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
        place.late = Some(Arc::new(Late { order, priority, context, made: Mutex::new(None) }));
        Ok(encode(Kind::Stream, place.generation, first + number))
    }

    fn get(&self, (place, generation): (usize, u32)) -> Result<Arc<Late>, Status> {
        let list = self.0.read();
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
        let mut list = self.0.write();
        let place = list.get_mut(place).filter(|place| place.generation == generation);
        place.and_then(|place| place.late.take()).map(drop).ok_or(Status::INVALID_HANDLE)
    }

    /// Forgets those of a context.
    pub(super) fn end(&self, context: u64) {
        for place in self.0.write().iter_mut() {
            place.late.take_if(|late| late.context == context);
        }
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
                *made.insert(self.create_now(session, late.order, late.priority, late.context)?)
            }
        };
        drop(made);
        self.named(handle)
    }
}
