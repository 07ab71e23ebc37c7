//! Streams that were to be made later are made, or share one that is there.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use super::late::{ALL_IN_USE, KEPT, Kinds, Named};
use super::{Streams, Target};
use crate::device::Session;
use crate::report;
use crate::status::{Answer, Status};

impl Streams {
    /// The stream of a place behind the session's, which is made now if it was not.
    #[cold]
    pub(super) fn made(&self, session: &Session, named: Named) -> Result<Target, Status> {
        let late = self.late.get(named)?;
        let mut made = late.made.lock();
        let handle = match *made {
            Some(handle) => handle,
            None => *made.insert(self.make_or_share(session, late.kinds)?),
        };
        drop(made);
        self.named(session, handle)
    }

    /// Makes a stream, or has it be one that is there: where there are no more, and where the last few are kept for other kinds.
    pub(super) fn make_or_share(&self, session: &Session, kinds: Kinds) -> Result<u64, Status> {
        let mut made = self.late.made.lock();
        let is_scarce = self.live() + KEPT >= self.slots.len();
        if is_scarce
            && let Some(handle) = self.share(session, &mut made, kinds, Kinds::is_same_but_for_priority)?
        {
            return Ok(handle);
        }
        match self.create_now(session, kinds.order, kinds.priority, kinds.context) {
            Ok(handle) => {
                made.insert(handle, (kinds, 1));
                Ok(handle)
            }
            Err(Status::OUT_OF_MEMORY) => {
                self.share(session, &mut made, kinds, Kinds::can_stand_for)?.ok_or_else(|| {
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
        session: &Session,
        made: &mut BTreeMap<u64, (Kinds, usize)>,
        kinds: Kinds,
        may: fn(Kinds, Kinds) -> bool,
    ) -> Result<Option<u64>, Status> {
        let fits = made.iter_mut().filter(|(handle, (like, _))| {
            let is_free = || {
                self.named(session, **handle).is_ok_and(|target| matches!(self.captures.of(target), Ok(None)))
            };
            may(*like, kinds) && is_free()
        });
        let least = fits.min_by_key(|(_, (like, sharers))| (like.priority != kinds.priority, *sharers));
        let Some((handle, (_, sharers))) = least else { return Ok(None) };
        *sharers += 1;
        self.captures.shared.fetch_or(self.named(session, *handle)?.bit(), Ordering::SeqCst);
        Ok(Some(*handle))
    }

    /// Destroys a stream that was made late, unless others share it.
    pub(super) fn leave(&self, session: &Session, handle: u64) -> Answer {
        let mut made = self.late.made.lock();
        let target = self.named(session, handle)?;
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
