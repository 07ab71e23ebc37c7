//! What is known of the session and its device, and from whom.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use bulkhead_client::{default_socket, overview};
use bulkhead_schema::{Error, ErrorCode, SessionReport, limits_told};

use crate::abi::session::{self, Reported};
use crate::status::Status;
use crate::trace;

/// The list that limits the process's session, as `libcuda.so.1` reads it.
const LIMITS: &str = "BULKHEAD_LIMITS";
/// The column of it that is device memory.
const DEVICE_BYTES: &str = "device_bytes";
/// As which the kernel knows the connection.
const NAME: &str = "libnvidia-ml";

/// `CUdevice_attribute` numbers.
const PCI: [u32; 3] = [50, 33, 34];
const CAPABILITY: [u32; 2] = [75, 76];
const MEMORY_BUS_WIDTH: u32 = 37;

/// What of a device does not change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) name: String,
    pub(crate) uuid: [u8; 16],
    /// Domain, bus and device on the PCI bus.
    pub(crate) pci: [u32; 3],
    /// Major and minor.
    pub(crate) capability: [i32; 2],
    /// Bits; 0 where nobody says.
    pub(crate) memory_bus_width: u32,
}

/// What does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Now {
    /// What the session may use, as `cuMemGetInfo` says.
    pub(crate) total_bytes: u64,
    /// What it can still get, as `cuMemGetInfo` says.
    pub(crate) free_bytes: u64,
    /// What this process's session uses, if it has one.
    pub(crate) own_bytes: Option<u64>,
}

/// Of what does not change, by whoever was asked first.
static FACTS: OnceLock<Facts> = OnceLock::new();

fn positive(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

/// The device. Asked once.
///
/// # Errors
/// `DRIVER_NOT_LOADED` where no kernel serves.
pub(crate) fn facts() -> Result<&'static Facts, Status> {
    if let Some(facts) = FACTS.get() {
        return Ok(facts);
    }
    let facts = match session::report() {
        Reported::Session(report) => of_report(&report),
        Reported::None | Reported::Over => {
            let device = of_kernel().map_err(|error| {
                say(&error);
                Status::DRIVER_NOT_LOADED
            })?;
            let number = |number: u32| device.device.attribute(number).unwrap_or(0);
            Facts {
                pci: PCI.map(number).map(positive),
                capability: CAPABILITY.map(number),
                memory_bus_width: positive(number(MEMORY_BUS_WIDTH)),
                uuid: device.device.uuid,
                name: device.device.name,
            }
        }
    };
    Ok(FACTS.get_or_init(|| facts))
}

fn of_report(report: &SessionReport) -> Facts {
    Facts {
        name: report.name_text(),
        uuid: report.uuid,
        pci: report.pci.map(positive),
        capability: report.capability,
        memory_bus_width: positive(report.memory_bus_width),
    }
}

/// The memory, as it is now.
///
/// # Errors
/// `GPU_IS_LOST` where the session is over, or the kernel gone.
pub(crate) fn now() -> Result<Now, Status> {
    match session::report() {
        Reported::Session(report) => Ok(Now {
            total_bytes: report.total_bytes,
            free_bytes: report.free_bytes,
            own_bytes: Some(report.used_bytes),
        }),
        Reported::Over => Err(Status::GPU_IS_LOST),
        Reported::None => {
            let device = of_kernel().map_err(|error| Status::of(error.code))?;
            let total_bytes = device.memory_bytes.min(limit()?);
            Ok(Now { total_bytes, free_bytes: device.free_bytes.min(total_bytes), own_bytes: None })
        }
    }
}

/// The one device that a session has, as a process without one is told of it.
fn of_kernel() -> Result<bulkhead_client::DeviceOverview, Error> {
    let devices = overview(&default_socket(), NAME)?;
    devices.into_iter().next().ok_or_else(|| Error::new(ErrorCode::NotFound, "the kernel has no device"))
}

/// The most device memory that a session of this process may have.
fn limit() -> Result<u64, Status> {
    let text = std::env::var_os(LIMITS).unwrap_or_default();
    let told = text.to_str().and_then(limits_told);
    // A program that was to have less is not told of more.
    let told = told.ok_or(Status::DRIVER_NOT_LOADED)?;
    let bytes = told.iter().filter(|(column, _)| *column == DEVICE_BYTES).map(|(_, most)| *most).min();
    Ok(bytes.unwrap_or(u64::MAX))
}

/// Says on stderr, once, why there is no device.
fn say(error: &Error) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        trace::say(&format!("nvmlInit: {error}"));
    }
}
