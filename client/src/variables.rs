//! Where the module-scope variables of an image lie.

use bulkhead_schema::{Error, ModuleData};

use crate::{Buffer, DeviceRange, HostBuffer, HostSpan, Session};

/// Memory of the session's that holds an image's variables.
pub enum Variables {
    /// The device's.
    Device(Buffer),
    /// The host's, at one address for kernels and host, where the host uses a variable by itself.
    Host(HostBuffer),
}

impl Variables {
    /// As the image needs it.
    pub(crate) fn allocate(session: &Session, data: &ModuleData) -> Result<Self, Error> {
        if !data.variables.iter().any(|variable| variable.managed) {
            return session.allocate_apart(data.bytes).map(Self::Device);
        }
        let bytes = usize::try_from(data.bytes).unwrap_or(usize::MAX);
        session.allocate_managed(bytes).map(Self::Host)
    }

    /// Its device address.
    #[must_use]
    pub fn address(&self) -> u64 {
        match self {
            Self::Device(buffer) => buffer.address(),
            Self::Host(buffer) => buffer.as_ptr() as u64,
        }
    }

    /// Its size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Device(buffer) => buffer.bytes(),
            Self::Host(buffer) => buffer.bytes() as u64,
        }
    }

    /// A part of it; one that does not lie in it becomes a range that the executor refuses.
    #[must_use]
    pub fn range(&self, offset: u64, bytes: u64) -> DeviceRange {
        match self {
            Self::Device(buffer) => buffer.range(offset, bytes),
            Self::Host(buffer) => buffer.range(offset, bytes),
        }
    }

    /// The same where it is host memory.
    #[must_use]
    pub fn span(&self, offset: u64, bytes: u64) -> Option<HostSpan> {
        match self {
            Self::Device(_) => None,
            Self::Host(buffer) => Some(buffer.span(offset, bytes)),
        }
    }
}
