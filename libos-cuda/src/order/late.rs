//! Streams that are made when something is first asked of them: frameworks make a hundred and use a few, and a session has 64.

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use super::{Order, Streams, Target};
use crate::device::Session;
use crate::driver::driver;
use crate::handle::{Kind, encode};
use crate::status::Status;

/// How many streams are made at once.
pub(super) const AT_ONCE: usize = 32;
/// Streams of a program that are not made yet, or were.
const LATE_MAX: usize = 4096;
/// The generation of their handles: no place is used twice.
const GENERATION: u32 = 1;

/// A stream that is made later.
struct Late {
    order: Order,
    priority: i32,
    context: u64,
    /// Its handle once it is made.
    made: Mutex<Option<u64>>,
}

/// Those of a process, in the order in which they were asked for.
#[derive(Default)]
pub(super) struct LateStreams(RwLock<Vec<Option<Arc<Late>>>>);

impl LateStreams {
    /// Notes one. Its handle names a place behind those of the session's streams.
    pub(super) fn add(&self, order: Order, priority: i32, context: u64, first: u32) -> Result<u64, Status> {
        let mut list = self.0.write();
        if list.len() >= LATE_MAX {
            return Err(Status::OUT_OF_MEMORY);
        }
        let place = u32::try_from(list.len()).map_err(|_| Status::OUT_OF_MEMORY)?;
        list.push(Some(Arc::new(Late { order, priority, context, made: Mutex::new(None) })));
        Ok(encode(Kind::Stream, GENERATION, first + place))
    }

    fn get(&self, place: usize) -> Result<Arc<Late>, Status> {
        self.0.read().get(place).and_then(Option::clone).ok_or(Status::INVALID_HANDLE)
    }

    /// The handle of one, if it was made.
    pub(super) fn handle(&self, place: usize) -> Result<Option<u64>, Status> {
        let late = self.get(place)?;
        let made = *late.made.lock();
        Ok(made)
    }

    /// Forgets one.
    pub(super) fn forget(&self, place: usize) -> Result<(), Status> {
        let late = self.0.write().get_mut(place).and_then(Option::take);
        late.map(drop).ok_or(Status::INVALID_HANDLE)
    }

    /// Forgets those of a context.
    pub(super) fn end(&self, context: u64) {
        for late in self.0.write().iter_mut() {
            late.take_if(|late| late.context == context);
        }
    }
}

impl Streams {
    /// The stream of a place behind the session's, which is made now if it was not.
    #[cold]
    pub(super) fn made(&self, place: usize) -> Result<Target, Status> {
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
