//! What the recording device is asked for, and with: plain values.

use super::super::{Error, ErrorCode, Handle};

pub(super) fn error<T>(code: ErrorCode, text: &str) -> Result<T, Error> {
    Err(Error::new(code, text))
}

/// What the device is.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) backend: String,
    pub(crate) name: String,
    pub(crate) uuid: [u8; 16],
    pub(crate) memory_bytes: u64,
    pub(crate) architecture: u32,
}

impl Device {
    /// Values like a small sm_90's, for the attributes that the code here reads, and zeros elsewhere.
    pub(crate) fn attribute(&self, number: u32) -> Option<i32> {
        const VALUES: &[(u32, i32)] = &[
            (1, 1024),
            (2, 1024),
            (3, 1024),
            (4, 64),
            (5, i32::MAX),
            (6, 65535),
            (7, 65535),
            (8, 49152),
            (9, 65536),
            (10, 32),
            (12, 65536),
            (13, 1_000_000),
            (14, 512),
            (16, 16),
            (33, 0x19),
            (34, 3),
            (39, 2048),
            (40, 1),
            (41, 1),
            (50, 1),
            (75, 9),
            (76, 0),
            (81, 233_472),
            (82, 65536),
            (83, 1),
            (95, 1),
            (97, 232_448),
            (106, 32),
            (111, 1024),
        ];
        let listed = VALUES.iter().find(|(known, _)| *known == number).map(|(_, value)| *value);
        listed.or_else(|| (1..=147).contains(&number).then_some(0))
    }
}

/// One thing that the session was asked to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    Launch {
        stream: u32,
        entry: String,
        grid: [u32; 3],
        shared_bytes: u32,
        parameters: Vec<u8>,
    },
    Copy {
        stream: u32,
    },
    Fill {
        stream: u32,
    },
    WaitOn {
        stream: u32,
        other: u32,
    },
    Record {
        stream: u32,
    },
    /// What comes later waits for the host.
    Barrier {
        stream: u32,
    },
    DestroyStream {
        stream: u32,
    },
    /// A buffer was freed, after one stream's work or after all.
    Free {
        after: Option<u32>,
        /// Whether others had to lose it first.
        exported: bool,
    },
    /// Memory of another session, or at a place of the program's choice, was given up.
    Unmap,
    /// Memory was mapped at a place of the program's choice.
    Map {
        address: u64,
    },
    /// Addresses were put aside.
    Reserve {
        bytes: u64,
    },
    /// And given back.
    Unreserve,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stream(pub(super) u32);

impl Stream {
    pub(crate) const DEFAULT: Stream = Stream(0);

    pub(crate) fn index(self) -> u32 {
        self.0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event(pub(super) u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fence {
    pub(super) stream: u32,
    pub(super) position: u64,
}

impl Fence {
    pub(crate) fn stream(self) -> Stream {
        Stream(self.stream)
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct DeviceRange {
    pub(crate) handle: Handle,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct HostSpan {
    pub(crate) handle: Handle,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Pattern {
    Bits8(u8),
    Bits16(u16),
    Bits32(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Launch {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct MemoryInfo {
    pub(crate) free_bytes: u64,
    pub(crate) total_bytes: u64,
}

pub(crate) struct Heap;

pub(super) const PAGE_BYTES: u64 = 2 << 20;
/// Of the names of host memory: one table has the kernel's, two have ours.
pub(super) const HOST_GENERATION: u32 = 2;
