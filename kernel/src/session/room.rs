//! Device memory for which others may have to go.

use std::rc::Rc;

use bulkhead_mm::Resource;
use bulkhead_schema::Error;

use super::{
    Charge, Session,
    memory::{Home, NewMemory},
};
use crate::{refusal, swapping::Eviction};

/// CUDA's number for memory that the device itself has not.
const DEVICE_OUT_OF_MEMORY: u32 = 2;

impl Session {
    /// Device memory for the session itself, for which others may have to go.
    pub(super) async fn charge_device(&self, bytes: u64) -> Result<Charge, Error> {
        let error = match self.charge(Resource::DeviceBytes, bytes) {
            Err(error) if self.may_be_charged(bytes) => error,
            charged => return charged,
        };
        let turn = self.device.mover.turn_of_call(self).await?;
        let room = Eviction::new(&turn, self).make_room(bytes).await;
        room.map_err(|refused| self.refused(&refused, error))?;
        self.charge(Resource::DeviceBytes, bytes)
    }

    /// Whether its own limits allow this much more.
    fn may_be_charged(&self, bytes: u64) -> bool {
        self.device.ledger.borrow().allowance(self.account, Resource::DeviceBytes) >= bytes
    }

    /// What somebody is told who got no room: that the session is over, or why there was none at first.
    fn refused(&self, refused: &Error, first: Error) -> Error {
        tracing::debug!(session = self.id, error = %refused, "nobody makes room");
        self.live().err().unwrap_or(first)
    }

    /// Makes device memory, for which others may have to go: without them, `error` was why there was none.
    pub(super) async fn allocate_in_room(
        self: &Rc<Self>,
        bytes: u64,
        home: Home,
        error: Error,
    ) -> Result<NewMemory, Error> {
        let needed = self.home(home).borrow().place(bytes).map_err(refusal::region)?.bytes();
        if !self.may_be_charged(needed) {
            return Err(error);
        }
        let mut first = true;
        loop {
            self.be_resident().await?;
            let turn = self.device.mover.turn_of_call(self).await?;
            if self.is_suspended() {
                continue;
            }
            self.come_back(&turn).await?;
            let mut eviction = Eviction::new(&turn, self);
            let room = if first {
                eviction.make_room(needed).await
            } else {
                // The device itself has less than there should be.
                eviction.evict(needed).await
            };
            room.map_err(|refused| self.refused(&refused, error.clone()))?;
            if self.is_away() {
                // Others made room with it while it waited for some.
                continue;
            }
            // What it is charged at once is nobody else's; whether its own work passes is nobody else's concern.
            drop(eviction);
            drop(turn);
            match self.try_allocate(bytes, home).await {
                Err(error) if error.device == DEVICE_OUT_OF_MEMORY && first => first = false,
                made => return made,
            }
        }
    }
}
