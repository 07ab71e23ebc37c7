//! A context of the driver's, and what is named in it: what every call needs.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bulkhead_gpu::{DeviceAddress, Error, HostAddress, HostRange, MemoryId, StreamId};

use crate::failure;
use crate::handles::{full, pin, stream_of, wide};
use crate::ranges::{Range, Ranges};
use crate::sys::{self, Code, Driver, Physical, pages};
use crate::table::{Pin, Table};

/// Streams a device has at most.
pub const STREAMS_MAX: u32 = 4096;
/// Events a device has at most.
pub const EVENTS_MAX: u32 = 16_384;
/// Entries of loaded images a device has at most.
pub const ENTRIES_MAX: u32 = 16_384;
/// Pieces of physical memory a device has at most.
pub const MEMORIES_MAX: u32 = 16_384;

/// How long streams are waited for that should be done.
const OUTPUT_PATIENCE: Duration = Duration::from_millis(2);

/// A device's context, with the tables of what calls name.
pub(crate) struct Context {
    pub(crate) driver: &'static Driver,
    pub(crate) device: i32,
    /// As the driver names it.
    pub(crate) handle: sys::Context,
    /// Never has work: asking it says whether the context lives.
    idle: sys::Stream,
    lost: OnceLock<Error>,
    pub(crate) streams: Table,
    pub(crate) events: Table,
    pub(crate) entries: Table,
    pub(crate) memories: Table,
    pub(crate) reserved: Ranges,
    pub(crate) registered: Ranges,
}

impl Context {
    /// Takes a device's context and binds the calling thread to it.
    pub(crate) fn open(driver: &'static Driver, device: i32) -> Result<Self, Error> {
        let handle = driver
            .context_retain(device)
            .map_err(|code| failure::error(driver, "cuDevicePrimaryCtxRetain", code))?;
        let opened = driver
            .context_bind(handle)
            .map_err(|code| failure::error(driver, "cuCtxSetCurrent", code))
            .and_then(|()| {
                driver
                    .stream_create(0)
                    .map_err(|code| failure::error(driver, "cuStreamCreateWithPriority", code))
            });
        let idle = match opened {
            Ok(idle) => idle,
            Err(error) => {
                // The first error is the one to tell; a context that cannot be released ends with the process.
                driver.context_release(device).ok();
                return Err(error);
            }
        };
        Ok(Self {
            driver,
            device,
            handle,
            idle,
            lost: OnceLock::new(),
            streams: Table::new(STREAMS_MAX),
            events: Table::new(EVENTS_MAX),
            entries: Table::new(ENTRIES_MAX),
            memories: Table::new(MEMORIES_MAX),
            reserved: Ranges::default(),
            registered: Ranges::default(),
        })
    }

    pub(crate) fn alive(&self) -> Result<(), Error> {
        self.lost.get().map_or(Ok(()), |lost| Err(lost.clone()))
    }

    #[cold]
    pub(crate) fn failed(&self, call: &str, code: Code) -> Error {
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

    pub(crate) fn keep(&self, memory: Physical) -> Result<MemoryId, Error> {
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
    pub(crate) fn write_output(&self) -> Result<(), Error> {
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
    pub(crate) fn register_at(
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

    pub(crate) fn in_host(&self, at: HostAddress, bytes: usize) -> Result<Arc<Range>, Error> {
        self.registered
            .find(wide(at.0), wide(bytes))
            .ok_or_else(|| Error::Refused(format!("{bytes} bytes of host memory are not registered")))
    }

    /// See [`bulkhead_gpu::Gpu::check`].
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.alive()?;
        self.settle("cuStreamQuery", self.driver.stream_query(self.idle))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // A lost context cannot be taken down in order; it ends with the process, which must end anyway.
        if self.lost.get().is_none() {
            self.driver.context_release(self.device).ok();
        }
    }
}
