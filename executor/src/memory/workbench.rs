//! Addresses of the executor's own, where it maps memory to scrub or to copy it.

use std::sync::Arc;

use bulkhead_gpu::{Access, DeviceAddress, Error, FillPattern, Gpu, MemoryId, StreamId};
use bulkhead_mm::{Region, WORKBENCH};
use parking_lot::Mutex;

/// The executor's own addresses.
pub(crate) struct Workbench {
    gpu: Arc<dyn Gpu>,
    places: Mutex<Region>,
}

impl Workbench {
    pub(crate) fn open(gpu: &Arc<dyn Gpu>) -> Result<Self, Error> {
        gpu.reserve(DeviceAddress(WORKBENCH.start().0), WORKBENCH.bytes())?;
        Ok(Self { gpu: Arc::clone(gpu), places: Mutex::new(Region::new(WORKBENCH)) })
    }

    /// Maps the whole of `memory` for the time of `work`.
    pub(crate) fn with<T>(
        &self,
        memory: MemoryId,
        bytes: u64,
        work: impl FnOnce(DeviceAddress) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let place = {
            let mut places = self.places.lock();
            let place = places.place(bytes).map_err(|_| Error::OutOfMemory)?;
            places.take(place).map_err(|error| Error::Refused(error.to_string()))?;
            place
        };
        let at = DeviceAddress(place.start().0);
        let done = self.gpu.map(at, memory, bytes, 1, Access::ReadWrite).and_then(|()| {
            let done = work(at);
            self.gpu.unmap(at, bytes).and(done)
        });
        // What could not be unmapped stays taken.
        if !matches!(done, Err(Error::Lost { .. }))
            && let Err(error) = self.places.lock().release(place)
        {
            tracing::error!(%error, "the workbench");
        }
        done
    }

    /// Makes all of `memory` zero, on `stream`, which does nothing else.
    pub(crate) fn scrub(&self, memory: MemoryId, bytes: u64, stream: StreamId) -> Result<(), Error> {
        self.with(memory, bytes, |at| scrub(&*self.gpu, at, bytes, stream))
    }
}

/// Makes mapped memory zero.
pub(crate) fn scrub(gpu: &dyn Gpu, at: DeviceAddress, bytes: u64, stream: StreamId) -> Result<(), Error> {
    gpu.fill(stream, at, FillPattern::Bits32(0), bytes / 4)?;
    gpu.synchronize(stream)
}
