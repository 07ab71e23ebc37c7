//! Events that processes share: `cudaEventInterprocess`, and those that were opened.
//!
//! The slot in shared memory says how far an event has come (`slot`). Work of another session cannot be waited for on the
//! device, so the host looks at the slot from time to time (`awaited`); this process's own recordings are waited for as
//! those of any other event are.

use parking_lot::Mutex;

use super::pages::{OpenError, Pages, Part, Place};
use super::slot::{LATEST_AT, Recording, Seen};
use super::watch;
use crate::abi::IpcHandle;
use crate::device::{Error, Fence, Session, SturdyToken};
use crate::order::{Streams, Target};
use crate::status::Status;

/// The first bytes of a handle of ours.
const MAGIC: [u8; 8] = *b"BH-event";

/// An event's part that other processes see.
pub(crate) struct Shared {
    place: Place,
    session: &'static Session,
    pages: &'static Pages,
    /// This process's latest recording, and when its stream is there.
    own: Mutex<Option<(Recording, Fence)>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.pages.give_back(self.session, &self.place);
    }
}

impl Shared {
    pub(super) fn new(session: &'static Session, pages: &'static Pages) -> Result<Shared, Status> {
        let place = pages.take(session)?;
        Ok(Shared { place, session, pages, own: Mutex::default() })
    }

    /// What another process opens it with.
    pub(super) fn handle(&self) -> Result<IpcHandle, Status> {
        let token = self.place.page.token()?;
        let offset = self.place.offset.to_le_bytes();
        let generation = self.place.generation.to_le_bytes();
        let mut handle = [0; 64];
        let parts = [&MAGIC[..], &token.0, &offset, &generation];
        for (to, from) in handle.iter_mut().zip(parts.concat()) {
            *to = from;
        }
        Ok(IpcHandle(handle))
    }

    pub(super) fn open(
        session: &'static Session,
        pages: &'static Pages,
        handle: &IpcHandle,
    ) -> Result<Shared, Refused> {
        let (token, offset, generation) = decode(handle).ok_or(Refused::Status(Status::INVALID_VALUE))?;
        let place = pages.open(session, token, offset, generation);
        let place = place.map_err(|error| match error {
            OpenError::Own => Refused::Status(Status::INVALID_CONTEXT),
            OpenError::Outside => Refused::Status(Status::INVALID_VALUE),
            OpenError::Refused(error) => Refused::Error(error),
        })?;
        let shared = Shared { place, session, pages, own: Mutex::default() };
        shared.look().map_err(Refused::Status)?;
        Ok(shared)
    }

    pub(super) fn look(&self) -> Result<Seen, Status> {
        self.pages.look(self.session, &self.place)
    }

    pub(super) fn session(&self) -> &'static Session {
        self.session
    }

    pub(super) fn was_recorded(&self) -> Result<bool, Status> {
        Ok(self.look()?.latest().is_some())
    }

    pub(super) fn latest(&self) -> Result<Latest, Status> {
        let seen = self.look()?;
        let Some(latest) = seen.latest() else { return Ok(Latest::Reached) };
        if seen.has_ended(latest) {
            return Ok(Latest::Reached);
        }
        let own = *self.own.lock();
        let token = self.pages.presence(self.session)?;
        match own {
            Some((recording, fence)) if recording == latest && seen.recorder(latest) == token => {
                Ok(Latest::Own(fence))
            }
            Some(_) | None => Ok(Latest::Elsewhere(latest)),
        }
    }

    /// Records it in a stream. Others see that from when this returns.
    pub(super) fn record(&self, streams: &Streams, target: Target) -> Result<Fence, Status> {
        let Shared { pages, session, .. } = self;
        let token = pages.presence(session)?;
        let mut own = self.own.lock();
        let (recording, busy) = self.look()?.next();
        if let Some(busy) = busy {
            // Where whoever made it is gone, it never ends, and nobody is in the way.
            watch::wait(self, busy).or_else(|status| match status {
                Status::INVALID_HANDLE => self.look().map(drop),
                other => Err(other),
            })?;
        }
        let begin = [
            Part::Token(recording.token_at(), &token),
            Part::Word(recording.begun_at(), recording.number()),
            Part::Word(LATEST_AT, recording.latest()),
        ];
        pages.write(session, &self.place, &begin)?;
        let fence = streams.submit(session, target, |stream| {
            Pages::write_later(session, &self.place, stream, recording.ended_at(), recording.number())
        })?;
        *own = Some((recording, fence));
        Ok(fence)
    }
}

/// Where the latest recording of an event is.
pub(super) enum Latest {
    /// There is none, or it has ended.
    Reached,
    /// In this process.
    Own(Fence),
    /// In another, and it has not ended.
    Elsewhere(Recording),
}

/// Why an event was not opened.
pub(super) enum Refused {
    Status(Status),
    Error(Error),
}

fn decode(handle: &IpcHandle) -> Option<(SturdyToken, u64, u32)> {
    let (magic, rest) = handle.0.split_first_chunk::<8>()?;
    let (token, rest) = rest.split_first_chunk::<32>()?;
    let (offset, rest) = rest.split_first_chunk::<8>()?;
    let (generation, rest) = rest.split_first_chunk::<4>()?;
    let is_ours = *magic == MAGIC && rest.iter().all(|byte| *byte == 0);
    let named = (SturdyToken(*token), u64::from_le_bytes(*offset), u32::from_le_bytes(*generation));
    is_ours.then_some(named)
}
