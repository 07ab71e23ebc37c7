//! Who waits for work of a session to pass.

use crate::{
    control::link::{Link, report},
    session::bindings::Object,
};

/// Somebody who waits for work to pass.
pub(crate) struct Waiter {
    /// A single stream, or all of them.
    pub(crate) stream: Option<u32>,
    /// The position; `None` until the pump has seen how far the ring is filled.
    pub(crate) position: Option<u64>,
    /// The request to answer then.
    reply: Option<u64>,
    /// What is dropped before.
    objects: Vec<Object>,
}

impl Waiter {
    /// Answers request `id` once all that is in the ring by now has passed.
    pub(crate) fn reply(id: u64) -> Self {
        Self { stream: None, position: None, reply: Some(id), objects: Vec::new() }
    }

    /// Whether it waits for all work, and nothing more is done then than that it is told.
    pub(crate) fn is_drain(&self) -> bool {
        self.stream.is_none() && self.reply.is_some() && self.objects.is_empty()
    }

    /// Drops objects at that time.
    pub(crate) fn release(objects: Vec<Object>) -> Self {
        Self { stream: None, position: None, reply: None, objects }
    }

    /// Does both.
    pub(crate) fn reply_and_release(id: u64, objects: Vec<Object>) -> Self {
        Self { objects, ..Self::reply(id) }
    }

    /// Answers request `id` once `stream` has passed `position`.
    pub(crate) fn fence(id: u64, stream: u32, position: u64) -> Self {
        Self { stream: Some(stream), position: Some(position), ..Self::reply(id) }
    }

    /// Its time has come, or the session, all of whose work has passed, ends.
    pub(crate) fn done(self, link: &Link) {
        drop(self.objects);
        if let Some(id) = self.reply {
            report(link.reply(id, None, |mut reply| reply.set_ok(())));
        }
    }
}
