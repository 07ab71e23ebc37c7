//! Whether there is a driver, and what devices it has.

use std::path::Path;
use std::sync::OnceLock;

use bulkhead_gpu::DeviceInfo;

use crate::sys::{Absent, Code, Driver};

/// What is missing for a device to be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// The driver's library cannot be opened.
    #[error(
        "libcuda.so.1 cannot be opened: no NVIDIA driver is installed, or the library path does not lead to it"
    )]
    Library,
    /// The driver is older than the oldest that has all the calls.
    #[error("the NVIDIA driver has no {0}: it is older than CUDA 12.4, update it")]
    Symbol(&'static str),
    /// The library is there, but nothing leads to the driver in the operating system's kernel.
    #[error(
        "there is no {node} (cuInit answered {code}): the driver is not loaded, or is hidden from this process"
    )]
    DeviceNode {
        /// The device node.
        node: &'static str,
        /// `CUresult`
        code: u32,
    },
    /// The driver refuses to start.
    #[error("cuInit answered {code} ({name})")]
    Init {
        /// `CUresult`
        code: u32,
        /// Its name.
        name: String,
    },
    /// The driver works, but answers a query about this device with an error.
    #[error("device {ordinal}: {call} answered {code} ({name})")]
    Device {
        /// CUDA's number of the device.
        ordinal: u32,
        /// Which call.
        call: &'static str,
        /// `CUresult`
        code: u32,
        /// Its name.
        name: String,
    },
    /// There are fewer devices than that.
    #[error("there is no device {ordinal}: the driver has {count}")]
    Ordinal {
        /// What was asked for.
        ordinal: u32,
        /// How many there are.
        count: u32,
    },
}

impl From<Missing> for bulkhead_gpu::Error {
    fn from(missing: Missing) -> Self {
        Self::Missing(missing.to_string())
    }
}

const CONTROL_NODE: &str = "/dev/nvidiactl";
/// `CUdevice_attribute` numbers that are asked for. cuda.h of 13.0 ends at 147; those beyond are refused
/// by a driver that does not know them.
const ATTRIBUTES: std::ops::RangeInclusive<u32> = 1..=176;
const COMPUTE_CAPABILITY_MAJOR: u32 = 75;
const COMPUTE_CAPABILITY_MINOR: u32 = 76;

/// The driver, loaded and initialised once in a process.
pub(crate) fn driver() -> Result<&'static Driver, Missing> {
    static DRIVER: OnceLock<Result<Driver, Missing>> = OnceLock::new();
    DRIVER.get_or_init(start).as_ref().map_err(Clone::clone)
}

fn start() -> Result<Driver, Missing> {
    let driver = Driver::load().map_err(|absent| match absent {
        Absent::Library => Missing::Library,
        Absent::Symbol(symbol) => Missing::Symbol(symbol),
    })?;
    match driver.init() {
        Ok(()) => Ok(driver),
        Err(code) if !Path::new(CONTROL_NODE).exists() => {
            Err(Missing::DeviceNode { node: CONTROL_NODE, code: code.0 })
        }
        Err(code) => Err(Missing::Init { code: code.0, name: name(&driver, code) }),
    }
}

fn name(driver: &Driver, code: Code) -> String {
    driver.error_name(code).unwrap_or_else(|| "a code that the driver has no name for".to_owned())
}

/// Every device of the driver, in its order.
pub(crate) fn devices() -> Result<Vec<DeviceInfo>, Missing> {
    let driver = driver()?;
    (0..count(driver)?).map(|ordinal| device(driver, ordinal).map(|(_, info)| info)).collect()
}

fn count(driver: &Driver) -> Result<u32, Missing> {
    let count =
        driver.device_count().map_err(|code| Missing::Init { code: code.0, name: name(driver, code) })?;
    Ok(u32::try_from(count).unwrap_or_default())
}

/// CUDA's handle of a device, and what it is.
pub(crate) fn device(driver: &Driver, ordinal: u32) -> Result<(i32, DeviceInfo), Missing> {
    let count = count(driver)?;
    let number = i32::try_from(ordinal).ok().filter(|_| ordinal < count);
    let number = number.ok_or(Missing::Ordinal { ordinal, count })?;
    let failed =
        |call| move |code: Code| Missing::Device { ordinal, call, code: code.0, name: name(driver, code) };
    let device = driver.device(number).map_err(failed("cuDeviceGet"))?;
    let attributes: Vec<(u32, i32)> = ATTRIBUTES
        .filter_map(|attribute| {
            let value = driver.device_attribute(device, i32::try_from(attribute).ok()?).ok()?;
            Some((attribute, value))
        })
        .collect();
    let mut info = DeviceInfo {
        backend: "cuda",
        name: driver.device_name(device).map_err(failed("cuDeviceGetName"))?,
        uuid: driver.device_uuid(device).map_err(failed("cuDeviceGetUuid"))?,
        memory_bytes: driver.device_memory(device).map_err(failed("cuDeviceTotalMem"))?,
        granule_bytes: driver.granularity(device).map_err(failed("cuMemGetAllocationGranularity"))? as u64,
        driver_version: driver
            .driver_version()
            .map_err(failed("cuDriverGetVersion"))
            .map(|version| u32::try_from(version).unwrap_or_default())?,
        attributes,
        architecture: 0,
    };
    let capability = |number| info.attribute(number).and_then(|value| u32::try_from(value).ok()).unwrap_or(0);
    info.architecture = capability(COMPUTE_CAPABILITY_MAJOR) * 10 + capability(COMPUTE_CAPABILITY_MINOR);
    Ok((device, info))
}
