//! How much devices do in a second, at least, and how much of that a session may have there.

use bulkhead_gpu::DeviceInfo;

/// At least so much is moved in a second: host memory is what takes long, where other devices are on the same bus.
const BYTES_PER_SECOND: u64 = 2 << 30;
/// The same on the software GPU, which shares its processors with everybody else's programs, and whose memory comes from the
/// host page by page as it is touched first.
pub(super) const SOFTWARE_BYTES_PER_SECOND: u64 = 128 << 20;
/// For how long what is there may take, at that rate.
pub(super) const MOVING_SECONDS: u64 = 4;
/// What all launches of a session together may do without a look at its flag: a tenth of a second of a device's time where
/// they compute. Loads of scattered words of the host's memory take up to 12 s (decision 0091).
const UNLOOKED_MAX: u64 = 1 << 32;
/// The same on the software GPU: some seconds. It takes a thousand times as long for what a thousandth of a GPU does at once.
const SOFTWARE_UNLOOKED_MAX: u64 = 1 << 24;
/// At least so much of that is done in a second.
const UNLOOKED_PER_SECOND: u64 = 1 << 31;
/// The same by the software GPU: 2^23 were measured where threads store to their local memory.
const SOFTWARE_UNLOOKED_PER_SECOND: u64 = 1 << 22;
/// A stream gets a mark at least once in this part of what may be there, so that room comes back in parts.
const UNLOOKED_MARKS: u64 = 16;

/// How many bytes a device moves in a second, at least.
pub(crate) fn bytes_per_second(backend: &str) -> u64 {
    if backend == "software" { SOFTWARE_BYTES_PER_SECOND } else { BYTES_PER_SECOND }
}

/// How many a session has there, but for what never waits.
pub(super) fn moving_max(info: &DeviceInfo) -> u64 {
    bytes_per_second(info.backend) * MOVING_SECONDS
}

/// How much of what never looks at the flag a device does in a second, at least.
pub(crate) fn unlooked_per_second(backend: &str) -> u64 {
    if backend == "software" { SOFTWARE_UNLOOKED_PER_SECOND } else { UNLOOKED_PER_SECOND }
}

/// How much of what never looks at the flag a session may have in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unlooked {
    pub(super) most: u64,
}

impl Unlooked {
    pub(super) fn of(info: &DeviceInfo) -> Self {
        Self { most: if info.backend == "software" { SOFTWARE_UNLOOKED_MAX } else { UNLOOKED_MAX } }
    }

    pub(super) fn per_mark(self) -> u64 {
        self.most / UNLOOKED_MARKS
    }

    /// A stream with so much of that in flight waits for room: its next launch could not begin before anyway.
    pub(super) fn deep(self) -> u64 {
        2 * self.per_mark()
    }
}
