//! Events: made, and given up once the device has come to what was recorded last.

use bulkhead_ring::Record;
use bulkhead_schema::{Error, ErrorCode};

use crate::{Event, Fence, Session, session::Submit};

impl Session {
    /// Makes an event.
    ///
    /// # Errors
    /// `limitReached` when the session has as many as it may.
    pub fn create_event(&self) -> Result<Event, Error> {
        self.retire_events();
        let limit = || Error::new(ErrorCode::LimitReached, "the session has as many events as it may");
        let index = self.inner.submit.lock().events.take(None).ok_or_else(limit)?;
        self.reserve_event(index).inspect_err(|_| {
            self.inner.submit.lock().events.free(index);
        })?;
        Ok(Event(index))
    }

    /// Gives an event up.
    ///
    /// # Errors
    /// Where there is no such event, or the session is over.
    pub fn destroy_event(&self, event: Event) -> Result<(), Error> {
        let mut submit = self.inner.submit.lock();
        if submit.events.get(event.0).is_none() || submit.retiring.contains(&event.0) {
            return Err(Error::new(ErrorCode::InvalidHandle, "no such event"));
        }
        submit.retiring.push(event.0);
        drop(submit);
        self.retire_events();
        self.status()
    }

    /// Frees the indices of destroyed events that the device has come to.
    fn retire_events(&self) {
        let mut submit = self.inner.submit.lock();
        let Submit { producer, events, retiring, .. } = &mut *submit;
        retiring.retain(|event| {
            let retired = events.get(*event).copied().flatten().is_none_or(|Fence { stream, position }| {
                let destroy = Record::DestroyEvent { stream: stream.0, event: *event };
                self.inner.page.mark(stream.0) >= position && producer.push(&destroy).is_ok()
            });
            if retired {
                events.free(*event);
            }
            !retired
        });
    }
}
