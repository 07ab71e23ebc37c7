//! What launches are checked against.

use crate::attributes as attribute_numbers;
use crate::device::Device;

/// What launches are checked against.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Most blocks of a grid in x, y, z.
    pub(crate) grid: [u32; 3],
    /// Most threads of a block in x, y, z.
    pub(crate) block: [u32; 3],
    /// Most threads of a block.
    pub(crate) block_threads: u32,
    /// Shared memory that a block may have without asking.
    pub(crate) shared_bytes: u32,
    /// Shared memory that a block may have after asking.
    pub(crate) shared_bytes_max: u32,
}

impl Limits {
    pub(crate) fn of(device: &Device) -> Limits {
        let value =
            |number: u32| device.attribute(number).and_then(|value| value.try_into().ok()).unwrap_or(0);
        let three = |first: u32| [value(first), value(first + 1), value(first + 2)];
        Limits {
            grid: three(attribute_numbers::GRID_X_MAX),
            block: three(attribute_numbers::BLOCK_X_MAX),
            block_threads: value(attribute_numbers::THREADS_PER_BLOCK_MAX),
            shared_bytes: value(attribute_numbers::SHARED_BYTES_PER_BLOCK),
            shared_bytes_max: value(attribute_numbers::SHARED_BYTES_PER_BLOCK_MAX),
        }
    }
}
