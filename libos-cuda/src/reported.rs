//! What this library tells NVML's drop-in (`libos-nvml`) of the process's session.

use bulkhead_schema::SessionReport;

use crate::abi::Out;
use crate::attributes as attribute_numbers;
use crate::driver::driver;
use crate::query;
use crate::status::{Answer, Status};

/// `GLOBAL_MEMORY_BUS_WIDTH`.
const MEMORY_BUS_WIDTH: u32 = 37;

/// The session's memory, as `cuMemGetInfo` has it, and its device. No context need be current.
pub(crate) fn session(to: &Out<SessionReport>) -> Answer {
    let driver = driver()?;
    let (memory, used_bytes) = driver.session.usage().map_err(|error| Status::of(&error))?;
    let device = driver.device();
    let number = |number: u32| device.attribute(number).unwrap_or(0);
    to.set(SessionReport {
        total_bytes: memory.total_bytes,
        free_bytes: memory.free_bytes,
        used_bytes,
        uuid: device.uuid,
        pci: query::pci(device),
        capability: [attribute_numbers::CAPABILITY_MAJOR, attribute_numbers::CAPABILITY_MINOR].map(number),
        memory_bus_width: number(MEMORY_BUS_WIDTH),
        name: SessionReport::name_of(&device.name),
    });
    Ok(())
}
