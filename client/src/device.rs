//! Devices, as the kernel tells of them.

use bulkhead_schema::{Error, bulkhead_capnp as rpc};

use crate::connection::broken;

/// What a device is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its index.
    pub index: u32,
    /// `software` or `cuda`.
    pub backend: String,
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Its memory in bytes.
    pub memory_bytes: u64,
    /// CUDA driver version, 13000 for 13.0.
    pub driver_version: u32,
    /// 90 for sm_90.
    pub architecture: u32,
    /// `CUdevice_attribute` numbers and values.
    pub attributes: Vec<(u32, i32)>,
}

impl Device {
    /// The value of a `CUdevice_attribute`, by its number.
    #[must_use]
    pub fn attribute(&self, number: u32) -> Option<i32> {
        self.attributes.iter().find(|(known, _)| *known == number).map(|(_, value)| *value)
    }

    /// Reads one from a message.
    ///
    /// # Errors
    /// Where the message is broken.
    pub fn read(device: rpc::device::Reader<'_>) -> Result<Self, Error> {
        let text = |text: capnp::Result<capnp::text::Reader<'_>>| {
            text.map(|text| String::from_utf8_lossy(text.as_bytes()).into_owned()).map_err(broken)
        };
        let attributes = device.get_attributes().map_err(broken)?;
        Ok(Self {
            index: device.get_index(),
            backend: text(device.get_backend())?,
            name: text(device.get_name())?,
            uuid: device.get_uuid().map_err(broken)?.try_into().unwrap_or_default(),
            memory_bytes: device.get_memory_bytes(),
            driver_version: device.get_driver_version(),
            architecture: device.get_architecture(),
            attributes: attributes.iter().map(|a| (a.get_number(), a.get_value())).collect(),
        })
    }
}
