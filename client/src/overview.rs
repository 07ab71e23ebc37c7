//! What a process without a session is told of the devices.

use std::path::Path;

use bulkhead_schema::{Error, bulkhead_capnp as rpc};

use crate::{
    Column, Device,
    connection::{Remote, answer, broken},
    memory::DEVICE_BYTES,
};

/// A device, and how much memory a session that is opened now would find.
#[derive(Debug, Clone)]
pub struct DeviceOverview {
    /// The device.
    pub device: Device,
    /// What sessions together may use of it.
    pub memory_bytes: u64,
    /// How much of that nobody uses.
    pub free_bytes: u64,
}

/// Asks the kernel, on a connection that ends with the call: no session is opened, and no executor started.
///
/// # Errors
/// `unavailable` where no kernel listens, or no executor serves.
pub fn overview(socket: &Path, name: &str) -> Result<Vec<DeviceOverview>, Error> {
    let remote = Remote::open(socket, name)?;
    remote.call(|context| async move {
        let kernel = &context.connection.kernel;
        let response = kernel.list_devices_request().send().promise.await.map_err(broken)?;
        let devices = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
        let devices = devices.get_devices().map_err(broken)?;
        let devices = devices.iter().map(Device::read).collect::<Result<Vec<_>, _>>()?;
        // Only now: there is an executor, and so memory to tell of.
        let response = kernel.status_request().send().promise.await.map_err(broken)?;
        let status = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
        let memory = |device: rpc::device_status::Reader<'_>| {
            let ledger = device.get_ledger()?.iter().map(Column::read).collect::<capnp::Result<Vec<_>>>()?;
            let bytes = ledger.into_iter().find(|column| column.name == DEVICE_BYTES);
            let (limit, used) = bytes.map_or((0, 0), |column| (column.limit, column.used));
            Ok((device.get_index(), limit, limit.saturating_sub(used)))
        };
        let memory = status.get_devices().map_err(broken)?.iter().map(memory);
        let memory = memory.collect::<capnp::Result<Vec<_>>>().map_err(broken)?;
        let overview = devices.into_iter().map(|device| {
            let (_, memory_bytes, free_bytes) =
                memory.iter().find(|(index, ..)| *index == device.index).copied().unwrap_or_default();
            DeviceOverview { device, memory_bytes, free_bytes }
        });
        Ok(overview.collect())
    })
}

/// A device's UUID as NVIDIA's tools write it.
#[must_use]
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    format!("GPU-{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
}

/// Where NVIDIA's kernel module says which one it is, to everybody.
const MODULE: &str = "/proc/driver/nvidia/version";

/// The version of NVIDIA's driver, as programs ask for it; of Bulkhead where the machine has none.
#[must_use]
pub fn driver_version() -> String {
    let text = std::fs::read_to_string(MODULE).unwrap_or_default();
    module_version(&text).unwrap_or(env!("CARGO_PKG_VERSION")).to_owned()
}

/// The first word that is numbers with dots between them.
fn module_version(text: &str) -> Option<&str> {
    let is_version = |word: &&str| {
        let mut parts = word.split('.');
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        word.contains('.') && parts.all(is_number)
    };
    text.split_whitespace().find(is_version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_written_as_nvidias_tools_do() {
        let uuid = 0x0102_0304_0506_0708_090A_0B0C_0D0E_0FABu128.to_be_bytes();
        assert_eq!(uuid_text(&uuid), "GPU-01020304-0506-0708-090a-0b0c0d0e0fab");
    }

    #[test]
    fn the_version_of_the_module_is_the_first_with_dots() {
        for (text, known) in [
            ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27", Some("580.65.06")),
            (
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  575.57.08  Release Build",
                Some("575.57.08"),
            ),
            ("GCC version:  gcc version 13", None),
            ("", None),
            (". .. 5. .5", None),
        ] {
            assert_eq!(module_version(text), known, "{text}");
        }
    }
}
