//! A client's name for a capability.

use crate::bulkhead_capnp;

/// Slot and generation. An allegation: it proves nothing until a table resolves it for its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle {
    /// Index in the session's table.
    pub slot: u32,
    /// Which of the capabilities that the slot held over time.
    pub generation: u32,
}

impl Handle {
    /// Reads one from a message.
    #[must_use]
    pub fn read(reader: bulkhead_capnp::handle::Reader<'_>) -> Self {
        Self { slot: reader.get_slot(), generation: reader.get_generation() }
    }

    /// Writes it into a message.
    pub fn write(self, mut builder: bulkhead_capnp::handle::Builder<'_>) {
        builder.set_slot(self.slot);
        builder.set_generation(self.generation);
    }
}
