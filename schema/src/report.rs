//! What one of our libraries tells another in the same process: `libcuda.so.1` tells `libnvidia-ml.so.1` of the session.
//!
//! Both are the program's own code, so nothing here is authority. The layout is C's, since they find each other by a symbol.

use std::mem::offset_of;

/// The version of CUDA that our libraries speak, as `cuDriverGetVersion` counts.
pub const CUDA_VERSION: u32 = 13000;

/// The symbol by which `libcuda.so.1` answers: takes a pointer to a [`SessionReport`] and the bytes that it has, and returns
/// a `CUresult`.
pub const SESSION_REPORT: &str = "bulkhead_session_report";

/// Bytes of a device's name in a [`SessionReport`].
pub const REPORTED_NAME_BYTES: usize = 96;

/// A process's session and its device.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct SessionReport {
    /// As `cuMemGetInfo` tells it.
    pub total_bytes: u64,
    /// As `cuMemGetInfo` tells it.
    pub free_bytes: u64,
    /// What the session's allocations take of its charge.
    pub used_bytes: u64,
    /// The device's.
    pub uuid: [u8; 16],
    /// Domain, bus and device on the PCI bus.
    pub pci: [i32; 3],
    /// Major and minor.
    pub capability: [i32; 2],
    /// Bits; 0 where nobody says.
    pub memory_bus_width: i32,
    /// UTF-8, filled up with zeros.
    pub name: [u8; REPORTED_NAME_BYTES],
}

const _: () = assert!(size_of::<SessionReport>() == 160 && offset_of!(SessionReport, uuid) == 24);
const _: () = assert!(offset_of!(SessionReport, pci) == 40 && offset_of!(SessionReport, name) == 64);

impl SessionReport {
    /// One that tells nothing.
    pub const NOTHING: Self = Self {
        total_bytes: 0,
        free_bytes: 0,
        used_bytes: 0,
        uuid: [0; 16],
        pci: [0; 3],
        capability: [0; 2],
        memory_bus_width: 0,
        name: [0; REPORTED_NAME_BYTES],
    };

    /// A name as it is reported: cut to what fits.
    #[must_use]
    pub fn name_of(name: &str) -> [u8; REPORTED_NAME_BYTES] {
        let mut bytes = [0; REPORTED_NAME_BYTES];
        for (to, from) in bytes.iter_mut().zip(name.bytes()) {
            *to = from;
        }
        bytes
    }

    /// The name as text.
    #[must_use]
    pub fn name_text(&self) -> String {
        let end = self.name.iter().position(|byte| *byte == 0).unwrap_or(REPORTED_NAME_BYTES);
        String::from_utf8_lossy(self.name.get(..end).unwrap_or_default()).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_reported_is_cut_to_what_fits() {
        let long = "n".repeat(200);
        for (name, told) in [("", ""), ("NVIDIA H100", "NVIDIA H100"), (&*long, &long[..REPORTED_NAME_BYTES])]
        {
            let report = SessionReport { name: SessionReport::name_of(name), ..SessionReport::NOTHING };
            assert_eq!(report.name_text(), told);
        }
    }
}
