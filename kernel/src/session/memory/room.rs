//! Device memory for which others may have to go.

use std::{rc::Rc, time::Duration};

use bulkhead_mm::Resource;
use bulkhead_schema::Error;
use tokio::time::Instant;

use crate::{
    config::Limits,
    ledger::Charge,
    refusal,
    session::device::Device,
    session::{
        Session,
        memory::{Home, NewMemory},
        swap::device::Eviction,
    },
};

/// How long whoever needs memory waits for sessions that are ending, in seconds, and how often it looks.
const ENDING_SECONDS: u64 = 5;
const LOOK: Duration = Duration::from_millis(5);
/// How many look as often as that.
const LOOKING_AT_ONCE: u32 = 8;
/// CUDA's number for memory that the device itself has not.
const DEVICE_OUT_OF_MEMORY: u32 = 2;

/// Somebody who looks for room now and then.
struct Looking<'a>(&'a Device);

impl<'a> Looking<'a> {
    fn new(device: &'a Device) -> Self {
        device.looking_for_room.update(|looking| looking + 1);
        Self(device)
    }

    /// All who look take the kernel no more time than a few.
    fn pause(&self) -> Duration {
        LOOK * (1 + self.0.looking_for_room.get() / LOOKING_AT_ONCE)
    }
}

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        self.0.looking_for_room.update(|looking| looking.saturating_sub(1));
    }
}

/// Waits for a while where sessions are ending whose device memory is not back yet: whoever starts one program after the other
/// counts on it. Whether there is room for so many bytes then.
async fn wait_for_those_that_end(
    device: &Device,
    bytes: u64,
    patience: Duration,
    goes_on: impl Fn() -> bool,
) -> bool {
    let deadline = Instant::now() + patience;
    let room = || device.executor.ledger.borrow().room(Resource::DeviceBytes) >= bytes;
    // What has not come back for so long is not counted on.
    let ended_of_late = |at: Instant| at.elapsed() < patience;
    let is_ending =
        |session: &&Rc<Session>| session.over_since.get().is_some_and(ended_of_late) && !session.is_gone();
    let looking = Looking::new(device);
    while !room() && goes_on() && Instant::now() < deadline {
        let sessions = device.registry.sessions();
        let back = sessions.iter().filter(is_ending).map(|one| one.used().get(Resource::DeviceBytes));
        // Only where what comes back is enough.
        let left = device.executor.ledger.borrow().room(Resource::DeviceBytes);
        if back.fold(left, u64::saturating_add) < bytes {
            break;
        }
        tokio::time::sleep(looking.pause().min(deadline - Instant::now())).await;
    }
    room()
}

/// The same for a session that is about to be opened.
pub(crate) async fn wait_to_open(device: &Device, bytes: u64, limits: &Limits) {
    wait_for_those_that_end(device, bytes, limits.seconds(ENDING_SECONDS), || true).await;
}

impl Session {
    /// Device memory for the session itself, for which others may have to go.
    pub(crate) async fn charge_device(&self, bytes: u64) -> Result<Charge, Error> {
        let error = match self.charge(Resource::DeviceBytes, bytes) {
            Err(error) if self.may_be_charged(bytes) => error,
            charged => return charged,
        };
        if self.waits_for_those_that_end(bytes).await {
            return self.charge(Resource::DeviceBytes, bytes);
        }
        let turn = self.device.mover.turn_of_call(self.making_room(), &self.party).await?;
        let room = Eviction::new(&turn, self).make_room(bytes).await;
        room.map_err(|refused| self.refused(&refused, error))?;
        self.charge(Resource::DeviceBytes, bytes)
    }

    async fn waits_for_those_that_end(&self, bytes: u64) -> bool {
        wait_for_those_that_end(&self.device, bytes, self.limits.seconds(ENDING_SECONDS), || {
            self.live().is_ok()
        })
        .await
    }

    /// Whether its own limits allow this much more.
    fn may_be_charged(&self, bytes: u64) -> bool {
        self.device.executor.ledger.borrow().allowance(self.account, Resource::DeviceBytes) >= bytes
    }

    /// What somebody is told who got no room: that the session is over, or why there was none at first.
    fn refused(&self, refused: &Error, first: Error) -> Error {
        tracing::debug!(session = self.id, error = %refused, "nobody makes room");
        self.live().err().unwrap_or(first)
    }

    /// Makes device memory, for which others may have to go: without them, `error` was why there was none.
    pub(crate) async fn allocate_in_room(
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
        self.waits_for_those_that_end(needed).await;
        loop {
            self.be_resident().await?;
            let turn = self.device.mover.turn_of_call(self.making_room(), &self.party).await?;
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
