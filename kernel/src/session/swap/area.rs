//! The host memory that a session is swapped to.

use std::{rc::Rc, time::Duration};

use bulkhead_mm::{PAGE_BYTES, Resource};
use bulkhead_schema::{Error, ErrorCode};

use crate::{
    executor_proxy::{Answering, Incarnation},
    refusal::internal,
    session::{Session, memory::sealed_memory, swap::state::Area},
};

impl Session {
    /// Sees to it that the executor has host memory for this much.
    pub(super) async fn prepare_area(&self, bytes: u64) -> Result<(), Error> {
        let known = self.swap.area.borrow().as_ref().map(|area| area.bytes);
        if known.is_some_and(|known| known >= bytes) {
            return Ok(());
        }
        // Some more, so that a session that grows does not need another at once; but rather this than none.
        let ample = (bytes + bytes / 4).next_multiple_of(PAGE_BYTES);
        let (bytes, charge) = match self.charge(Resource::SwapBytes, ample) {
            Ok(charge) => (ample, charge),
            Err(_) => (bytes, self.charge(Resource::SwapBytes, bytes)?),
        };
        let descriptor = self.charge(Resource::Descriptors, 1)?;
        let memory = sealed_memory(bytes)
            .map_err(|error| Error::new(ErrorCode::OutOfMemory, format!("no host memory: {error}")))?;
        let for_executor = memory
            .try_clone()
            .map_err(|error| internal(format!("a descriptor cannot be copied: {error}")))?;
        // Until it has let go of the one before, it may have both.
        self.incarnation().allow_area(bytes.saturating_add(known.unwrap_or(0)))?;
        let asked = self.ask_in_turn(for_executor, |request| {
            let mut area = request.init_swap_area();
            area.set_session(self.id);
            area.set_bytes(bytes);
        });
        self.done(&asked.await?)?;
        // The executor has let go of the one before.
        self.swap.area.replace(Some(Area { bytes, memory, _charges: [charge, descriptor] }));
        Ok(())
    }

    /// Gives it back where the session has stayed for so long.
    pub(crate) async fn give_back_area(self: Rc<Self>, stayed: Duration) {
        if self.swap.giving_back.replace(true) {
            return;
        }
        self.give_back_area_once(stayed).await;
        self.swap.giving_back.set(false);
    }

    async fn give_back_area_once(&self, stayed: Duration) {
        let since = Duration::from_nanos(self.device.mover.now_ns().saturating_sub(self.resident_since_ns()));
        if self.swap.is_away() || self.swap.area.borrow().is_none() || since < stayed {
            return;
        }
        let (Ok(_moving), Ok(_change)) = (self.swap.moving.try_lock(), self.change()) else { return };
        let asked = self.ask(Vec::new(), |request| request.init_swap_area().set_session(self.id));
        match asked.await.and_then(|answer| self.done(&answer)) {
            Ok(()) => self.swap.forget_area(),
            Err(error) => tracing::debug!(session = self.id, %error, "a swap area is kept"),
        }
    }

    /// Tells a standby of it, if there is one.
    pub(in crate::session) fn tell_area(&self, standby: &Incarnation) -> Result<Option<Answering>, Error> {
        let area = self.swap.area.borrow();
        let Some(area) = area.as_ref() else { return Ok(None) };
        let memory = area
            .memory
            .try_clone()
            .map_err(|error| internal(format!("a descriptor cannot be copied: {error}")))?;
        Ok(Some(standby.link.call(Some(self.id), vec![memory], |request| {
            let mut told = request.init_swap_area();
            told.set_session(self.id);
            told.set_bytes(area.bytes);
        })))
    }
}
