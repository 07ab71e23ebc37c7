//! What capabilities are for: a closed list.

/// What a capability is for. Rights are shown by interface: a weaker kind is another kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Memory of the device, or a part of it.
    Buffer,
    /// Host memory shared with the device.
    HostBuffer,
    /// Loaded code.
    Image,
    /// A function of an image that can be launched.
    Entry,
    /// A completion point that can be waited for.
    Fence,
    /// A completion point that its holder signals.
    Signal,
    /// Entries that may be launched in a session of one's own.
    Program,
    /// The authority to give a session things.
    Peer,
    /// A protected module: its memory, and who may call its gates.
    Module,
    /// Gates that may be called.
    Gates,
}

impl Kind {
    /// Whether a capability of this kind can have a child of that kind.
    #[must_use]
    pub const fn may_derive(self, child: Self) -> bool {
        matches!(
            (self, child),
            (Self::Buffer, Self::Buffer)
                | (Self::HostBuffer, Self::HostBuffer)
                | (Self::Image, Self::Entry)
                | (Self::Entry, Self::Entry)
                | (Self::Fence | Self::Signal, Self::Fence)
                | (Self::Signal, Self::Signal)
                | (Self::Program, Self::Program)
                | (Self::Peer, Self::Peer)
                | (Self::Module, Self::Module | Self::Gates)
                | (Self::Gates, Self::Gates)
        )
    }
}

/// What may be done to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Access {
    /// To read it.
    Read,
    /// To read and write it.
    ReadWrite,
}
