//! Getting to a device with kernels.

use std::time::Instant;

use bulkhead_cuda::native::{Device, DeviceMemory, Driver, Entry, Kernel, Stream};

use super::findings::{Findings, Trouble, milliseconds};

/// Device memory that launches are given.
const WORD_BYTES: usize = 4096;

/// A driver that works.
pub(super) struct Started {
    begun: Instant,
    device: Device,
    pub(super) name: String,
    pub(super) version: i32,
}

/// Everything a measurement needs.
pub(super) struct Bench<'a> {
    pub(super) driver: &'a Driver,
    pub(super) stream: Stream,
    pub(super) empty: Entry,
    pub(super) count: Entry,
    pub(super) memory: DeviceMemory,
}

/// Finds a driver and its first device, or says what is missing.
pub(super) fn start() -> Result<(Driver, Started), String> {
    let begun = Instant::now();
    let driver = Driver::open().map_err(|missing| missing.to_string())?;
    let started = driver.init().and_then(|()| {
        let device = driver.device(0)?;
        let name = driver.device_name(device)?;
        Ok(Started { begun, device, name, version: driver.version()? })
    });
    match started {
        Ok(started) => Ok((driver, started)),
        Err(refusal) => Err(Trouble::Refused(refusal).explain(&driver)),
    }
}

pub(super) fn open<'a>(
    driver: &'a Driver,
    started: &Started,
    findings: &mut Findings,
) -> Result<Bench<'a>, Trouble> {
    let context = driver.context_retain(started.device)?;
    driver.context_bind(context)?;
    driver.context_synchronize()?;
    findings.once("context_open_ms", milliseconds(started.begun));

    let begun = Instant::now();
    let module = driver.module_load()?;
    let empty = driver.module_function(module, Kernel::Empty)?;
    let count = driver.module_function(module, Kernel::Count)?;
    findings.once("module_load_ms", milliseconds(begun));

    let stream = driver.stream_create()?;
    let memory = driver.allocate(WORD_BYTES)?;
    let begun = Instant::now();
    driver.launch(empty, stream, &memory)?;
    driver.stream_synchronize(stream)?;
    findings.once("first_launch_ms", milliseconds(begun));
    Ok(Bench { driver, stream, empty, count, memory })
}

impl Bench<'_> {
    /// Gives back what was held.
    pub(super) fn close(self) -> Result<(), Trouble> {
        Ok(self.driver.free(self.memory)?)
    }
}
