//! What the calls have in common: handles, sizes, and what a failure means.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use bulkhead_gpu::{DeviceAddress, Error, HostAddress, HostRange, Launch, MemoryId, StreamId};

use crate::sys::{Code, Event, Physical, Stream, pages};
use crate::table::{Pin, Table};
use crate::{Cuda, failure};

pub(super) fn wide(bytes: usize) -> u64 {
    bytes as u64
}

pub(crate) fn narrow(bytes: u64) -> Result<usize, Error> {
    usize::try_from(bytes).map_err(|_| Error::Refused("size beyond the address space".to_owned()))
}

#[cold]
pub(super) fn unknown(kind: &str) -> Error {
    Error::Refused(format!("no such {kind}"))
}

#[cold]
pub(super) fn full(kind: &str) -> Error {
    Error::Refused(format!("the device has no room for another {kind}"))
}

/// Gives addresses back to the reservation that they lie in.
pub(super) fn clear(range: HostRange) -> Result<(), Error> {
    pages::clear(range).map_err(|error| Error::Refused(format!("a place for host memory: {error}")))
}

pub(crate) fn pin<'a>(table: &'a Table, id: u64, kind: &str) -> Result<Pin<'a>, Error> {
    table.pin(id).ok_or_else(|| unknown(kind))
}

pub(crate) fn stream_of(pin: &Pin<'_>) -> Stream {
    Stream::from_bits(pin.handle())
}

pub(super) fn event_of(pin: &Pin<'_>) -> Event {
    Event::from_bits(pin.handle())
}

/// How long streams are waited for that should be done.
const OUTPUT_PATIENCE: Duration = Duration::from_millis(2);

impl Cuda {
    pub(crate) fn alive(&self) -> Result<(), Error> {
        self.lost.get().map_or(Ok(()), |lost| Err(lost.clone()))
    }

    #[cold]
    pub(super) fn failed(&self, call: &str, code: Code) -> Error {
        let error = failure::error(self.driver, call, code);
        if matches!(error, Error::Lost { .. }) {
            return self.lost.get_or_init(|| error).clone();
        }
        error
    }

    /// The trait's answer for a driver's.
    pub(crate) fn settle<T>(&self, call: &str, result: Result<T, Code>) -> Result<T, Error> {
        result.map_err(|code| self.failed(call, code))
    }

    pub(super) fn keep(&self, memory: Physical) -> Result<MemoryId, Error> {
        if let Some(id) = self.memories.insert(memory.0, 0) {
            return Ok(MemoryId(id));
        }
        self.settle("cuMemRelease", self.driver.memory_release(memory))?;
        Err(full("piece of memory"))
    }

    pub(crate) fn stream(&self, stream: StreamId) -> Result<Pin<'_>, Error> {
        pin(&self.streams, stream.0, "stream")
    }

    /// Has the driver print what kernels have printed. It does so where somebody synchronizes with a stream whose kernels have
    /// passed; a query that finds a stream done may or may not bring it about (measured, driver 580). Completion values that the
    /// host sees are written a moment before the stream is done.
    pub(super) fn write_output(&self) -> Result<(), Error> {
        let patience = Instant::now() + OUTPUT_PATIENCE;
        for stream in self.streams.pins() {
            let stream = stream_of(&stream);
            let is_done = loop {
                match self.driver.stream_query(stream) {
                    Err(Code::NOT_READY) if Instant::now() < patience => std::hint::spin_loop(),
                    // Its kernels run on: what they print comes later.
                    Err(Code::NOT_READY) => break false,
                    done => break self.settle("cuStreamQuery", done).map(|()| true)?,
                }
            };
            if is_done {
                self.settle("cuStreamSynchronize", self.driver.stream_synchronize(stream))?;
            }
        }
        self.driver.flush_output();
        Ok(())
    }

    pub(crate) fn in_reservation(&self, at: DeviceAddress, bytes: u64) -> Result<(), Error> {
        if self.reserved.contain(at.0, bytes) {
            Ok(())
        } else {
            Err(Error::Refused(format!("{bytes} bytes at {:#x} lie in no reservation", at.0)))
        }
    }

    /// Maps and registers host memory at a device address.
    pub(super) fn register_at(
        &self,
        at: DeviceAddress,
        range: HostRange,
        file: BorrowedFd<'_>,
    ) -> Result<(), Error> {
        pages::map(range, file).map_err(|error| Error::Refused(format!("host memory: {error}")))?;
        self.settle("cuMemHostRegister", self.driver.host_register(range.at, range.bytes))?;
        let seen = self.settle("cuMemHostGetDevicePointer", self.driver.host_device_address(range.at));
        if seen == Ok(at) {
            return Ok(());
        }
        self.settle("cuMemHostUnregister", self.driver.host_unregister(range.at))?;
        Err(seen.map_or_else(
            |error| error,
            |seen| Error::Refused(format!("the driver shows host memory of {:#x} at {:#x}", at.0, seen.0)),
        ))
    }

    pub(super) fn in_host(
        &self,
        at: HostAddress,
        bytes: usize,
    ) -> Result<std::sync::Arc<crate::ranges::Range>, Error> {
        self.registered
            .find(wide(at.0), wide(bytes))
            .ok_or_else(|| Error::Refused(format!("{bytes} bytes of host memory are not registered")))
    }
}

/// The driver reads as much as the entry has parameters, whatever size it is told.
pub(crate) fn fits(launch: &Launch<'_>, bytes: usize) -> Result<(), Error> {
    let given = launch.parameters.len();
    if given == bytes {
        return Ok(());
    }
    Err(Error::Refused(format!("the entry takes {bytes} bytes of parameters, not {given}")))
}
