//! What lies in memory and in registers between a host and an NVMe controller.
//!
//! Everything is little-endian, and is encoded to and decoded from byte arrays. Decoding never fails: a value
//! that means nothing is kept as it is, and whoever uses it checks it.

mod bytes;
mod completion;
mod identify;
mod log;
mod opcode;
pub mod registers;
mod status;
mod submission;
#[cfg(test)]
mod tests;

use std::fmt;

pub(crate) use bytes::{low_u8, low_u16, low_u32, put};
pub use completion::{COMPLETION_BYTES, Completion};
pub use identify::{
    BlockSize, CommandSetController, IDENTIFY_BYTES, IdentifyController, IdentifyNamespace,
    namespace_descriptors, namespace_list,
};
pub use log::{AsyncEvent, ERROR_ENTRY_BYTES, ErrorEntry, LogPage};
pub use opcode::{AdminOpcode, Cns, Feature, IoOpcode};
pub use status::Status;
pub use submission::{BlockRange, SUBMISSION_BYTES, Submission};

/// An address as a device sees it: the left side of the IOMMU's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BusAddress(pub u64);

impl BusAddress {
    /// This address and `bytes`, or nothing where that is beyond the last address.
    #[must_use]
    pub fn checked_add(self, bytes: u64) -> Option<Self> {
        self.0.checked_add(bytes).map(Self)
    }
}

impl fmt::Display for BusAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// The number of a submission or completion queue. 0 is the admin queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct QueueId(pub u16);

impl QueueId {
    /// The admin queue.
    pub const ADMIN: Self = Self(0);
}

/// What the host calls a command: unique among those of its submission queue that have not completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CommandId(pub u16);

/// The number of a namespace: 1 is the first, 0 none, [`NamespaceId::ALL`] all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NamespaceId(pub u32);

impl NamespaceId {
    /// Every namespace, where a command takes that.
    pub const ALL: Self = Self(u32::MAX);
}
