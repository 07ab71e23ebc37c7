//! Barriers: points of a stream that its work does not pass before the host opens them.

mod closed;

use std::{
    sync::{Arc, atomic::Ordering},
    thread,
    time::Instant,
};

use bulkhead_ring::Record;
use bulkhead_schema::Error;

use crate::{
    Session, Stream,
    session::{FULL_NAP, SPIN},
};

pub use closed::Barrier;
pub(crate) use closed::Barriers;

impl Session {
    /// Waits a moment for room in the ring, which was full at `start`.
    ///
    /// # Errors
    /// Where the session is over.
    pub(crate) fn nap_for_room(&self, start: Instant) -> Result<(), Error> {
        thread::sleep(FULL_NAP);
        if start.elapsed() > SPIN {
            self.status()?;
            self.barriers().wait_for_room(start);
        }
        Ok(())
    }

    /// A stream for short work of the session's own, which never has a barrier: such work must not wait for the host. `usual`
    /// where the session may have no more streams.
    #[must_use]
    pub fn aside(&self, usual: Stream) -> Stream {
        let mut aside = self.barriers().aside.lock();
        if aside.is_none() {
            *aside = self.create_stream(0).ok();
        }
        aside.unwrap_or(usual)
    }

    /// Has `tell` called once, where somebody has waited 5 s for room to submit while barriers are closed: perhaps whoever
    /// is to open them waits for that thread. Only the first `tell` counts.
    pub fn tell_who_waits_for_room(&self, tell: fn()) {
        self.barriers().tell.get_or_init(|| tell);
    }

    /// Closes a barrier behind what the stream was given so far. Later work of the stream, and what waits for it, is not
    /// done before the barrier is opened; whoever submits it does not wait. At most
    /// [`HELD_MAX`](bulkhead_schema::limits::HELD_MAX) records of a session wait so: whoever submits more waits for room.
    ///
    /// # Errors
    /// Where the session is over.
    pub fn barrier(&self, stream: Stream) -> Result<Barrier, Error> {
        let barriers = self.barriers();
        let mut number = 0;
        // Numbers go in the ring's order: the ring's lock is held.
        self.push_with(stream.0, |submit| {
            let mut streams = barriers.streams.lock();
            let Some(numbers) = streams.get_mut(stream.0 as usize) else {
                // As any other record of a stream that there is not: the executor refuses it.
                return submit.producer.push(&Record::HostBarrier { stream: stream.0, number: 0 });
            };
            number = numbers.latest + 1;
            let position = submit.producer.push(&Record::HostBarrier { stream: stream.0, number })?;
            submit.streams.tie(stream.0, position);
            numbers.latest = number;
            numbers.closed.insert(number);
            barriers.closed.fetch_add(1, Ordering::AcqRel);
            Ok(position)
        })?;
        Ok(Barrier { barriers: Arc::clone(barriers), stream, number })
    }
}
