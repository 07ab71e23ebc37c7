//! What a sanitizer looks for.

use super::found::Mistake;

/// What a sanitizer looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tool {
    /// Reads of memory that nobody has written.
    Initialization,
    /// Races for shared and global memory.
    Races,
    /// Barriers and collective operations.
    Synchronization,
    /// Memory that nobody frees.
    Leaks,
}

impl Tool {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Initialization, Self::Races, Self::Synchronization, Self::Leaks];

    /// What people call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Initialization => "initcheck",
            Self::Races => "racecheck",
            Self::Synchronization => "synccheck",
            Self::Leaks => "leakcheck",
        }
    }
}

impl Mistake {
    /// The tool that looks for it.
    #[must_use]
    pub fn tool(self) -> Tool {
        match self {
            Self::GlobalUnwritten | Self::SharedUnwritten => Tool::Initialization,
            Self::ReadAfterWrite
            | Self::WriteAfterWrite
            | Self::WriteAfterRead
            | Self::GlobalReadAfterWrite
            | Self::GlobalWriteAfterWrite
            | Self::GlobalWriteAfterRead => Tool::Races,
            Self::BarrierExited
            | Self::BarrierApart
            | Self::NeverMet
            | Self::LanesExited
            | Self::OwnLane
            | Self::Masks => Tool::Synchronization,
        }
    }
}
