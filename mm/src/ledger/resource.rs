//! What is counted, and amounts of it.

use std::fmt;

/// What is counted: everything that a session can use up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resource {
    /// Physical device memory: arenas and sinks, in bytes.
    DeviceBytes,
    /// Host memory pinned for the device, in bytes.
    HostBytes,
    /// Host memory that holds what was swapped out, in bytes.
    SwapBytes,
    /// Loaded code, in bytes.
    CodeBytes,
    /// Local memory of the kernels of a session: their stacks, in bytes.
    LocalBytes,
    /// Capabilities.
    Capabilities,
    /// Loaded images.
    Images,
    /// Streams.
    Streams,
    /// Events.
    Events,
    /// Fences that have not passed.
    Fences,
    /// Sturdy tokens.
    Tokens,
    /// File descriptors that the kernel holds.
    Descriptors,
    /// Host memory that the kernel keeps for a session and the device does not reach, in bytes: its ring, its completion
    /// page, images on their way, the text of those that are loaded.
    KernelBytes,
    /// Revocations that somebody may ask about.
    Revocations,
    /// Images that were offered and not loaded.
    Uploads,
    /// Capabilities that others gave and nobody has looked at.
    Gifts,
    /// Sessions: one's own, and those that were opened from one's programs.
    Sessions,
    /// Pieces of device memory: arenas, and what they were cut into.
    Pieces,
    /// Time spent compiling, in milliseconds. Consumed.
    CompileMilliseconds,
}

impl Resource {
    /// Every one of them.
    pub const ALL: [Self; 19] = [
        Self::DeviceBytes,
        Self::HostBytes,
        Self::SwapBytes,
        Self::CodeBytes,
        Self::LocalBytes,
        Self::Capabilities,
        Self::Images,
        Self::Streams,
        Self::Events,
        Self::Fences,
        Self::Tokens,
        Self::Descriptors,
        Self::KernelBytes,
        Self::Revocations,
        Self::Uploads,
        Self::Gifts,
        Self::Sessions,
        Self::Pieces,
        Self::CompileMilliseconds,
    ];

    /// What it is called in a message.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DeviceBytes => "bytes of device memory",
            Self::HostBytes => "bytes of host memory",
            Self::SwapBytes => "bytes of swap",
            Self::CodeBytes => "bytes of code",
            Self::LocalBytes => "bytes of local memory",
            Self::Capabilities => "capabilities",
            Self::Images => "images",
            Self::Streams => "streams",
            Self::Events => "events",
            Self::Fences => "fences",
            Self::Tokens => "sturdy tokens",
            Self::Descriptors => "file descriptors",
            Self::KernelBytes => "bytes of the kernel's memory",
            Self::Revocations => "revocations that are held",
            Self::Uploads => "images that were offered and not loaded",
            Self::Gifts => "gifts that nobody has looked at",
            Self::Sessions => "sessions",
            Self::Pieces => "pieces of device memory",
            Self::CompileMilliseconds => "milliseconds of compilation",
        }
    }

    /// What its column is called, in messages between programs and on the command line.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::DeviceBytes => "device_bytes",
            Self::HostBytes => "host_bytes",
            Self::SwapBytes => "swap_bytes",
            Self::CodeBytes => "code_bytes",
            Self::LocalBytes => "local_bytes",
            Self::Capabilities => "capabilities",
            Self::Images => "images",
            Self::Streams => "streams",
            Self::Events => "events",
            Self::Fences => "fences",
            Self::Tokens => "tokens",
            Self::Descriptors => "descriptors",
            Self::KernelBytes => "kernel_bytes",
            Self::Revocations => "revocations",
            Self::Uploads => "uploads",
            Self::Gifts => "gifts",
            Self::Sessions => "sessions",
            Self::Pieces => "pieces",
            Self::CompileMilliseconds => "compile_ms",
        }
    }

    /// The one whose column is called so.
    #[must_use]
    pub fn of_key(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|resource| resource.key() == key)
    }

    /// Whether it is counted in bytes.
    #[must_use]
    pub fn is_bytes(self) -> bool {
        self.key().ends_with("_bytes")
    }

    /// Whether it is used up for good: an account that was charged gets nothing back while it is open.
    #[must_use]
    pub const fn is_consumed(self) -> bool {
        matches!(self, Self::CompileMilliseconds)
    }
}

/// The table of amounts is indexed by the resource itself.
const _: () = {
    let mut index = 0;
    while index < Resource::ALL.len() {
        assert!(Resource::ALL[index] as usize == index, "resources are listed in their order");
        index += 1;
    }
};

/// An amount of every resource.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Amounts([u64; Resource::ALL.len()]);

impl Amounts {
    /// Nothing.
    pub const NONE: Self = Self([0; Resource::ALL.len()]);
    /// As much as can be counted.
    pub const UNLIMITED: Self = Self([u64::MAX; Resource::ALL.len()]);

    /// The same, with another amount of one resource.
    #[must_use]
    pub const fn with(mut self, resource: Resource, amount: u64) -> Self {
        self.0[resource as usize] = amount;
        self
    }

    /// The amount of one resource.
    #[must_use]
    pub const fn get(&self, resource: Resource) -> u64 {
        self.0[resource as usize]
    }

    /// The lower of both, of every resource.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Resource::ALL.into_iter().fold(self, |amounts, resource| {
            amounts.with(resource, self.get(resource).min(other.get(resource)))
        })
    }

    pub(super) const fn get_mut(&mut self, resource: Resource) -> &mut u64 {
        &mut self.0[resource as usize]
    }
}

impl Default for Amounts {
    fn default() -> Self {
        Self::NONE
    }
}

/// Says what there is, and leaves out what there is nothing of.
impl fmt::Debug for Amounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let amounts = Resource::ALL.into_iter().map(|resource| (resource, self.get(resource)));
        f.debug_map().entries(amounts.filter(|(_, amount)| *amount > 0)).finish()
    }
}
