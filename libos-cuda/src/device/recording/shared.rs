//! What sessions share, and addresses that are put aside.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;

use super::{Asked, Buffer, DeviceRange, HostBuffer, Session, State, error};
use crate::device::{Error, ErrorCode, SturdyToken, Uses};

/// Memory of another session's, or without a place.
pub(crate) struct Share {
    memory: Arc<Buffer>,
    /// 0 where it is not mapped.
    address: u64,
}

impl Share {
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    pub(crate) fn range(&self, offset: u64, bytes: u64) -> DeviceRange {
        self.memory.range(offset, bytes)
    }

    pub(crate) fn token(&self, _uses: Uses) -> Result<SturdyToken, Error> {
        let token = self.memory.export()?.token;
        self.memory.state.lock().elsewhere.exported.push((token, self.memory.bytes));
        Ok(token)
    }

    pub(crate) fn close(self) -> Result<(), Error> {
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.address != 0 {
            self.memory.state.lock().asked.push(Asked::Unmap);
        }
    }
}

/// Addresses that are put aside.
pub(crate) struct Reservation {
    address: u64,
    bytes: u64,
    state: Arc<Mutex<State>>,
}

impl Reservation {
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.state.lock().asked.push(Asked::Unreserve);
    }
}

/// A capability that came from somebody else.
pub(crate) enum Received {
    Share(Share),
    Fence(RemoteFence),
}

/// A completion point that its holder signals.
pub(crate) struct Signal(RemoteFence);

/// The same to wait for only.
#[derive(Clone)]
pub(crate) struct RemoteFence {
    token: SturdyToken,
    state: Arc<Mutex<State>>,
}

impl Signal {
    pub(crate) fn fence(&self) -> Result<RemoteFence, Error> {
        Ok(self.0.clone())
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        self.0.state.lock().elsewhere.signals.retain(|token| *token != self.0.token);
    }
}

impl RemoteFence {
    pub(crate) fn token(&self, _uses: Uses) -> Result<SturdyToken, Error> {
        Ok(self.token)
    }

    /// None is ever signalled here.
    pub(crate) fn wait(&self, _timeout: Duration) -> Result<bool, Error> {
        if self.state.lock().elsewhere.signals.contains(&self.token) {
            return Ok(false);
        }
        error(ErrorCode::Revoked, "the capability was taken back")
    }
}

impl HostBuffer {
    pub(crate) fn write(&self, offset: usize, from: &[u8]) {
        for (to, from) in self.content[offset..offset + from.len()].iter().zip(from) {
            to.store(*from, Ordering::Relaxed);
        }
    }

    pub(crate) fn read(&self, offset: usize, to: &mut [u8]) {
        for (to, from) in to.iter_mut().zip(&self.content[offset..]) {
            *to = from.load(Ordering::Relaxed);
        }
    }
}

impl Session {
    pub(crate) fn signal(&self) -> Result<Signal, Error> {
        let mut state = self.state.lock();
        state.elsewhere.signals_made += 1;
        let number = state.elsewhere.signals_made;
        let token = SturdyToken(std::array::from_fn(|at| if at == 0 { 0x51 } else { number }));
        state.elsewhere.signals.push(token);
        Ok(Signal(RemoteFence { token, state: self.state.clone() }))
    }

    pub(crate) fn restore(&self, token: SturdyToken) -> Result<Received, Error> {
        if self.state.lock().elsewhere.signals.contains(&token) {
            return Ok(Received::Fence(RemoteFence { token, state: self.state.clone() }));
        }
        self.receive(token).map(Received::Share)
    }

    pub(crate) fn import(&self, token: SturdyToken) -> Result<Share, Error> {
        let bytes = self.state.lock().elsewhere.bytes(token)?;
        let memory = Arc::new(self.allocate(bytes)?);
        let mut state = self.state.lock();
        let content = state.elsewhere.contents.iter().find(|(known, _)| *known == token);
        let content = content.map(|(_, content)| content.clone()).unwrap_or_default();
        let slot = memory.handle.slot;
        if let Some(room) =
            state.buffers[slot as usize].as_mut().and_then(|room| room.get_mut(..content.len()))
        {
            room.copy_from_slice(&content);
        }
        state.elsewhere.imported.push((token, slot));
        drop(state);
        Ok(Share { address: memory.address(), memory })
    }

    pub(crate) fn receive(&self, token: SturdyToken) -> Result<Share, Error> {
        let bytes = self.state.lock().elsewhere.bytes(token)?;
        self.create(bytes)
    }

    pub(crate) fn create(&self, bytes: u64) -> Result<Share, Error> {
        Ok(Share { memory: Arc::new(self.allocate(bytes)?), address: 0 })
    }

    pub(crate) fn reserve_addresses(
        &self,
        bytes: u64,
        wish: Option<u64>,
        alignment: u64,
    ) -> Result<Reservation, Error> {
        const WINDOW_BYTES: u64 = 128 << 30;
        if bytes > WINDOW_BYTES || alignment > WINDOW_BYTES {
            return error(ErrorCode::OutOfMemory, "no such gap");
        }
        let mut state = self.state.lock();
        state.asked.push(Asked::Reserve { bytes });
        let alignment = alignment.max(64 << 20);
        let address = wish.unwrap_or(state.reserved_up_to.max(0x2030_0000_0000).next_multiple_of(alignment));
        state.reserved_up_to = state.reserved_up_to.max(address + bytes);
        Ok(Reservation { address, bytes, state: self.state.clone() })
    }

    pub(crate) fn accept_at(&self, share: &Share, address: u64) -> Result<Share, Error> {
        self.state.lock().asked.push(Asked::Map { address });
        Ok(Share { memory: share.memory.clone(), address })
    }
}
