//! The memory that slots lie in: this process's, and that of others whose events it has opened.

use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

use super::slot::{BYTES, GENERATION_AT, LATEST_AT, Seen};
use crate::device::{
    DeviceRange, Error, Fence, HostBuffer, Pattern, Reservation, Session, Share, Stream, SturdyToken, Uses,
};
use crate::presence::Presence;
use crate::priorities::PRIORITY_GREATEST;
use crate::status::{Answer, Status};

/// Whole pages of the device's, so that whoever opens an event reaches events and nothing else.
const PAGE_BYTES: u64 = 2 << 20;
const SLOTS: u32 = 4096;
const _: () = assert!(SLOTS as u64 * BYTES as u64 == PAGE_BYTES);
/// Pages of one process, which makes 65,536 events that can be shared.
const PAGES_MAX: usize = 16;

/// Memory with slots.
pub(super) enum Page {
    /// Made without a place, so that others map it without a pause of this process.
    Own { share: Share, mapped: Share, token: OnceLock<SturdyToken>, _place: Reservation },
    /// Another process's, with its token.
    Opened(Share, SturdyToken),
}

impl Page {
    /// What others import it with.
    ///
    /// # Errors
    /// Where it is not this process's.
    pub(super) fn token(&self) -> Result<SturdyToken, Status> {
        let Page::Own { share, token, .. } = self else { return Err(Status::INVALID_HANDLE) };
        if let Some(token) = token.get() {
            return Ok(*token);
        }
        let made = share.token(Uses::UntilRevoked).map_err(failed)?;
        // Of two that are made at once one is never used.
        Ok(*token.get_or_init(|| made))
    }

    fn is_own(&self, named: SturdyToken) -> bool {
        matches!(self, Page::Own { token, .. } if token.get() == Some(&named))
    }

    /// A part of a slot, which begins at `slot` in it.
    fn range(&self, slot: u64, offset: u64, bytes: u64) -> DeviceRange {
        match self {
            Page::Own { mapped, .. } => mapped.range(slot + offset, bytes),
            Page::Opened(share, _) => share.range(slot + offset, bytes),
        }
    }
}

/// How slots are read and written: in a stream that nothing else is in.
struct Desk {
    stream: Stream,
    host: HostBuffer,
}

/// The pages of this process, and the slots in them that are not in use.
#[derive(Default)]
struct Own {
    pages: Vec<Arc<Page>>,
    /// By page and slot, each with the generation that it was used in last.
    unused: Vec<(u32, u32, u32)>,
    given: u32,
}

/// All that a process needs for events that are shared.
#[derive(Default)]
pub(crate) struct Pages {
    own: Mutex<Own>,
    /// Held while one is opened.
    opened: Mutex<Vec<Weak<Page>>>,
    desk: Mutex<Option<Desk>>,
    presence: OnceLock<Presence>,
    starting: Mutex<()>,
}

/// Where a slot lies.
pub(super) struct Place {
    pub(super) page: Arc<Page>,
    /// In the page, in bytes.
    pub(super) offset: u64,
    pub(super) generation: u32,
    /// The page's and the slot's number, where they are this process's.
    own: Option<(u32, u32)>,
}

impl Place {
    pub(super) fn range(&self, offset: u64, bytes: u64) -> DeviceRange {
        self.page.range(self.offset, offset, bytes)
    }

    fn word(&self, offset: u64) -> DeviceRange {
        self.range(offset, 4)
    }
}

fn failed(error: Error) -> Status {
    Status::of(&error)
}

/// What is written into a slot.
pub(super) enum Part<'a> {
    Word(u64, u32),
    Token(u64, &'a SturdyToken),
}

impl Pages {
    fn with_desk<R>(
        &self,
        session: &Session,
        work: impl FnOnce(&Desk) -> Result<R, Status>,
    ) -> Result<R, Status> {
        let mut desk = self.desk.lock();
        let desk = match &mut *desk {
            Some(desk) => desk,
            None => {
                let host = session.allocate_host(BYTES).map_err(failed)?;
                let stream = session.create_stream(PRIORITY_GREATEST).map_err(failed)?;
                desk.insert(Desk { stream, host })
            }
        };
        work(desk)
    }

    /// A slot as it is now.
    ///
    /// # Errors
    /// `INVALID_HANDLE` where the event is not there any more.
    pub(super) fn look(&self, session: &Session, place: &Place) -> Result<Seen, Status> {
        let mut seen = Seen([0; BYTES]);
        let waited = self.with_desk(session, |desk| {
            // A copy that is refused leaves this, which is no event.
            desk.host.write(0, &seen.0);
            let fence = session.copy_to_host(
                desk.stream,
                desk.host.span(0, BYTES as u64),
                place.range(0, BYTES as u64),
            );
            let waited = session.wait(fence.map_err(failed)?);
            desk.host.read(0, &mut seen.0);
            Ok(waited)
        })?;
        if seen.generation() != place.generation {
            return Err(Status::INVALID_HANDLE);
        }
        // Whatever it is about, nobody else is told.
        waited.map_err(failed)?;
        Ok(seen)
    }

    /// Writes parts of a slot in this order, and returns when all are there.
    pub(super) fn write(&self, session: &Session, place: &Place, parts: &[Part<'_>]) -> Answer {
        self.with_desk(session, |desk| {
            let mut last = None;
            for part in parts {
                let fence = match part {
                    Part::Word(offset, word) => {
                        session.fill(desk.stream, place.word(*offset), Pattern::Bits32(*word))
                    }
                    Part::Token(offset, token) => {
                        let bytes = token.0.len() as u64;
                        desk.host.write(0, &token.0);
                        session.copy_to_device(
                            desk.stream,
                            place.range(*offset, bytes),
                            desk.host.span(0, bytes),
                        )
                    }
                };
                last = Some(fence.map_err(failed)?);
            }
            last.map_or(Ok(()), |fence| session.wait(fence).map_err(failed))
        })
    }

    /// Has a stream write a word of a slot.
    pub(super) fn write_later(
        session: &Session,
        place: &Place,
        stream: Stream,
        offset: u64,
        word: u32,
    ) -> Result<Fence, Status> {
        session.fill(stream, place.word(offset), Pattern::Bits32(word)).map_err(failed)
    }

    /// By which others see whether this process is still there.
    pub(super) fn presence(&self, session: &Session) -> Result<SturdyToken, Status> {
        let _starting = self.starting.lock();
        if let Some(presence) = self.presence.get() {
            return Ok(presence.token());
        }
        let made = Presence::new(session).map_err(failed)?;
        Ok(self.presence.get_or_init(|| made).token())
    }

    /// A slot of this process's, of an event that was not recorded.
    pub(super) fn take(&self, session: &Session) -> Result<Place, Status> {
        let mut own = self.own.lock();
        let slots_made = own.pages.len() * SLOTS as usize;
        let (page, slot, last) = match own.unused.pop() {
            Some(unused) => unused,
            None => {
                if own.given as usize == slots_made {
                    if own.pages.len() == PAGES_MAX {
                        return Err(Status::OUT_OF_MEMORY);
                    }
                    let page = self.make(session)?;
                    own.pages.push(page);
                }
                let next = own.given;
                own.given += 1;
                (next / SLOTS, next % SLOTS, 0)
            }
        };
        let generation = last.checked_add(1).unwrap_or(1);
        let found = own.pages.get(page as usize).cloned().ok_or(Status::UNKNOWN)?;
        let offset = u64::from(slot) * BYTES as u64;
        let place = Place { page: found, offset, generation, own: Some((page, slot)) };
        // The cells stay as they are: recordings of the event that was here may still be under way.
        let parts = [Part::Word(LATEST_AT, 0), Part::Word(GENERATION_AT, generation)];
        match self.write(session, &place, &parts) {
            Ok(()) => Ok(place),
            Err(status) => {
                own.unused.push((page, slot, generation));
                Err(status)
            }
        }
    }

    fn make(&self, session: &Session) -> Result<Arc<Page>, Status> {
        let share = session.create(PAGE_BYTES).map_err(failed)?;
        let place = session.reserve_addresses(PAGE_BYTES, None, 0).map_err(failed)?;
        let mapped = session.accept_at(&share, place.address()).map_err(failed)?;
        self.with_desk(session, |desk| {
            let all = mapped.range(0, PAGE_BYTES);
            let fence = session.fill(desk.stream, all, Pattern::Bits32(0)).map_err(failed)?;
            session.wait(fence).map_err(failed)
        })?;
        Ok(Arc::new(Page::Own { share, mapped, token: OnceLock::new(), _place: place }))
    }

    /// A slot's event is destroyed.
    pub(super) fn give_back(&self, session: &Session, place: &Place) {
        let Some((page, slot)) = place.own else { return };
        // Others find that it is not there any more. Where that fails, the session is over.
        self.write(session, place, &[Part::Word(GENERATION_AT, 0)]).unwrap_or_default();
        self.own.lock().unused.push((page, slot, place.generation));
    }

    /// The slot of an event of another process.
    pub(super) fn open(
        &self,
        session: &Session,
        token: SturdyToken,
        offset: u64,
        generation: u32,
    ) -> Result<Place, OpenError> {
        if self.own.lock().pages.iter().any(|page| page.is_own(token)) {
            return Err(OpenError::Own);
        }
        let mut opened = self.opened.lock();
        opened.retain(|page| page.strong_count() > 0);
        let known = opened
            .iter()
            .filter_map(Weak::upgrade)
            .find(|page| matches!(&**page, Page::Opened(_, known) if *known == token));
        let page = match known {
            Some(page) => page,
            None => {
                let share = session.import(token).map_err(OpenError::Refused)?;
                let page = Arc::new(Page::Opened(share, token));
                opened.push(Arc::downgrade(&page));
                page
            }
        };
        let Page::Opened(share, _) = &*page else { return Err(OpenError::Own) };
        let is_inside = offset.is_multiple_of(4)
            && share.bytes().checked_sub(BYTES as u64).is_some_and(|last| offset <= last);
        if !is_inside || generation == 0 {
            return Err(OpenError::Outside);
        }
        Ok(Place { page, offset, generation, own: None })
    }
}

/// Why an event of another process cannot be opened.
pub(super) enum OpenError {
    /// It is this process's.
    Own,
    /// It does not lie in what was shared.
    Outside,
    Refused(Error),
}
