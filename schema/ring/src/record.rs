//! Records: what a client can ask for.

mod words;

use crate::layout::RECORD_WORDS;

/// The words of a record, copied out of shared memory.
pub(crate) type Words = [u64; RECORD_WORDS];

/// First word of a launch's inline parameters.
pub(crate) const INLINE_WORD: usize = 6;
/// Parameter bytes that fit into the record itself.
pub(crate) const INLINE_BYTES: usize = (RECORD_WORDS - INLINE_WORD) * 8;

/// A capability's name: slot and generation, an allegation like every other field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bind {
    /// Slot.
    pub slot: u32,
    /// Generation.
    pub generation: u32,
}

/// Blocks, threads and dynamic shared memory of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchShape {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads in x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
}

/// An entry, and how it is launched, but for its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryLaunch {
    /// Which.
    pub entry: Bind,
    /// How large.
    pub shape: LaunchShape,
    /// Whether its blocks may wait for one another.
    pub blocks: Blocks,
}

/// Whether blocks of a launch may wait for one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocks {
    /// Each ends whatever becomes of the others.
    Apart,
    /// All of them are there at once: the launch is refused where they do not fit.
    Together,
    /// They form clusters of so many blocks in x, y, z, at most 31 each and one at least in all; only of
    /// code that nothing confines.
    Clusters {
        /// Blocks of a cluster in x, y, z.
        sides: [u8; 3],
        /// Whether all blocks are there at once besides.
        together: bool,
    },
}

/// Most blocks of a cluster on one side.
pub(crate) const CLUSTER_SIDE_MAX: u8 = 31;

/// Where a launch's parameter bytes lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterPlace {
    /// In the record.
    Inline,
    /// In the arena, from this word on.
    Arena(u32),
}

/// A launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// The entry.
    pub entry: Bind,
    /// Its shape.
    pub shape: LaunchShape,
    /// What its blocks expect of one another.
    pub blocks: Blocks,
    /// Length of the parameter block in bytes.
    pub parameter_bytes: u32,
    /// Where it lies.
    pub parameters: ParameterPlace,
}

/// A copy between two capability-named ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copy {
    /// Destination.
    pub to: Bind,
    /// Offset in it, in bytes.
    pub to_offset: u64,
    /// Source.
    pub from: Bind,
    /// Offset in it, in bytes.
    pub from_offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// A copy between an array of the driver's and device memory, in isolated sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrayCopy {
    /// The array, by the number that the executor gave it.
    pub array: u64,
    /// From where on in it: bytes of a row, rows, slices or layers.
    pub at: [u32; 3],
    /// The memory.
    pub memory: Bind,
    /// From where on in it, in bytes.
    pub offset: u64,
    /// From row to row of it, in bytes.
    pub row_bytes: u64,
    /// Rows from slice to slice of it.
    pub rows: u32,
    /// Bytes of a row, rows, slices.
    pub shape: [u32; 3],
    /// Into the array; else out of it.
    pub to_array: bool,
}

/// Element of a fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// One byte.
    Bits8(u8),
    /// Two bytes.
    Bits16(u16),
    /// Four bytes.
    Bits32(u32),
}

impl Pattern {
    /// Its size in bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        match self {
            Self::Bits8(_) => 1,
            Self::Bits16(_) => 2,
            Self::Bits32(_) => 4,
        }
    }
}

/// Nodes that one [`Record::After`] names at most.
pub const AFTER_MAX: usize = 8;

/// A node of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodePlace {
    /// The graph, by the number that its client gave it.
    pub graph: u32,
    /// The node's place in it.
    pub node: u32,
    /// It is a kernel that may begin while the one kernel that it comes after is about to end, and says itself when it needs what
    /// that leaves.
    pub is_early: bool,
    /// It is there already, and does something else of its kind from the graph's next launch on; otherwise it is the next of
    /// a graph that is not made yet.
    pub is_change: bool,
}

/// What a node of a graph does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeWork {
    /// Nothing: others wait for it, and it for others.
    Nothing,
    /// Runs an entry.
    Launch(Launch),
    /// Copies device memory to device memory.
    Copy(Copy),
    /// Fills device memory with `count` elements.
    Fill {
        /// Where.
        to: Bind,
        /// From where on in it, in bytes.
        offset: u64,
        /// The element.
        pattern: Pattern,
        /// How many.
        count: u64,
    },
}

/// A decoded record. Every index in it is below its limit; nothing else is promised of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "`stream` is the stream the work belongs to, everywhere")]
pub enum Record {
    /// Run an entry.
    Launch { stream: u32, launch: Launch },
    /// Host memory to device memory.
    CopyToDevice { stream: u32, copy: Copy },
    /// Device memory to host memory.
    CopyToHost { stream: u32, copy: Copy },
    /// Device memory to device memory.
    CopyOnDevice { stream: u32, copy: Copy },
    /// An array of the driver's to device memory, or the other way.
    CopyArray { stream: u32, copy: ArrayCopy },
    /// Fill device memory with `count` elements.
    Fill { stream: u32, to: Bind, offset: u64, pattern: Pattern, count: u64 },
    /// Later work of `stream` starts after `position` of the stream `on` has passed.
    WaitOn { stream: u32, on: u32, position: u64 },
    /// Later work of `stream` starts after the host has opened so many of the stream's barriers.
    HostBarrier { stream: u32, number: u64 },
    /// Take a timestamp.
    RecordEvent { stream: u32, event: u32 },
    /// Forget an event.
    DestroyEvent { stream: u32, event: u32 },
    /// Answer the nanoseconds (f64 bits) between two events in a reply slot.
    Elapsed { stream: u32, start: u32, end: u32, reply: u32 },
    /// Make a stream.
    CreateStream { stream: u32, priority: i32 },
    /// Forget a stream once its work has passed.
    DestroyStream { stream: u32 },
    /// A node of a graph. One that is a change has its place in the stream's order, others have none.
    Node { stream: u32, place: NodePlace, work: NodeWork },
    /// The next node of a graph comes after these too, the first `count` of `nodes`. Where no record of this kind comes before a
    /// node, it comes after the one before it.
    After { stream: u32, graph: u32, count: u32, nodes: [u32; AFTER_MAX] },
    /// A graph has all its nodes.
    MakeGraph { stream: u32, graph: u32 },
    /// Do all that a graph's nodes say.
    LaunchGraph { stream: u32, graph: u32 },
    /// Forget a graph; launches of it that came before are done.
    DestroyGraph { stream: u32, graph: u32 },
}

impl Record {
    /// The stream it belongs to.
    #[must_use]
    pub fn stream(&self) -> u32 {
        match self {
            Self::Launch { stream, .. }
            | Self::CopyToDevice { stream, .. }
            | Self::CopyToHost { stream, .. }
            | Self::CopyOnDevice { stream, .. }
            | Self::CopyArray { stream, .. }
            | Self::Fill { stream, .. }
            | Self::WaitOn { stream, .. }
            | Self::HostBarrier { stream, .. }
            | Self::RecordEvent { stream, .. }
            | Self::DestroyEvent { stream, .. }
            | Self::Elapsed { stream, .. }
            | Self::CreateStream { stream, .. }
            | Self::DestroyStream { stream }
            | Self::Node { stream, .. }
            | Self::After { stream, .. }
            | Self::MakeGraph { stream, .. }
            | Self::LaunchGraph { stream, .. }
            | Self::DestroyGraph { stream, .. } => *stream,
        }
    }

    /// The launch in it, whose parameters lie beside the record.
    #[must_use]
    pub fn launch(&self) -> Option<&Launch> {
        match self {
            Self::Launch { launch, .. } | Self::Node { work: NodeWork::Launch(launch), .. } => Some(launch),
            _ => None,
        }
    }

    /// Whether it has no place in its stream's order: what comes before it in the stream may be done after it.
    #[must_use]
    pub fn is_aside(&self) -> bool {
        match self {
            Self::Node { place, .. } => !place.is_change,
            Self::Elapsed { .. }
            | Self::DestroyEvent { .. }
            | Self::After { .. }
            | Self::MakeGraph { .. }
            | Self::DestroyGraph { .. } => true,
            _ => false,
        }
    }
}
