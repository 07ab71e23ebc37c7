//! Device memory: physical memory, page tables, and the host memory the device may reach.

pub(crate) mod host;
#[expect(unsafe_code, reason = "memory of threads comes from the system as they touch it")]
mod own;
pub(crate) mod physical;
#[expect(
    unsafe_code,
    reason = "the bytes behind device and registered host memory are shared between threads and processes"
)]
mod raw;
pub(crate) mod space;
pub(crate) mod tlb;
pub(crate) mod view;

pub(crate) use own::Own;
pub(crate) use raw::{Bytes, copy, fill, update_at};

/// Granule of physical memory, as on NVIDIA's devices.
pub(crate) const GRANULE_BYTES: u64 = 2 << 20;

/// Why an access is not possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Violation {
    /// Nothing is mapped there.
    Unmapped,
    /// The mapping allows loads only.
    ReadOnly,
    /// The address is not a multiple of the access size.
    Misaligned,
}

impl Violation {
    /// CUDA's error number for it.
    pub(crate) fn code(self) -> u32 {
        match self {
            Self::Unmapped | Self::ReadOnly => 700,
            Self::Misaligned => 716,
        }
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Unmapped => "an illegal address",
            Self::ReadOnly => "an illegal address (mapped read-only)",
            Self::Misaligned => "a misaligned address",
        })
    }
}
