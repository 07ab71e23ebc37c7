//! Records: what a client can ask for, and how it lies in sixteen words.
//!
//! Word 0 holds the operation in its low half and the stream in its high half; the rest is per operation.

use crate::{
    ProtocolError,
    layout::{ARENA_WORDS, GRAPH_NODES, GRAPHS, RECORD_WORDS, REPLIES, STREAMS},
};

/// The words of a record, copied out of shared memory.
pub(crate) type Words = [u64; RECORD_WORDS];

/// First word of a launch's inline parameters.
pub(crate) const INLINE_WORD: usize = 6;
/// Parameter bytes that fit into the record itself.
pub(crate) const INLINE_BYTES: usize = (RECORD_WORDS - INLINE_WORD) * 8;

const LAUNCH: u32 = 1;
const COPY_TO_DEVICE: u32 = 2;
const COPY_TO_HOST: u32 = 3;
const COPY_ON_DEVICE: u32 = 4;
const FILL: u32 = 5;
const WAIT_ON: u32 = 6;
const RECORD_EVENT: u32 = 7;
const DESTROY_EVENT: u32 = 8;
const ELAPSED: u32 = 9;
const CREATE_STREAM: u32 = 10;
const DESTROY_STREAM: u32 = 11;
const HOST_BARRIER: u32 = 12;
const NOTHING: u32 = 13;
const AFTER: u32 = 14;
const MAKE_GRAPH: u32 = 15;
const LAUNCH_GRAPH: u32 = 16;
const DESTROY_GRAPH: u32 = 17;
const COPY_ARRAY: u32 = 18;

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

/// Beside the stream of a record: it says what a node does, and does not do it itself; what a node does from now on. Above them is the
/// graph's number, and beside the operation the node's.
const IS_NODE: u32 = 1 << 6;
const IS_CHANGE: u32 = 1 << 7;
const IS_EARLY: u32 = 1 << 31;
const NUMBER_SHIFT: u32 = 8;
const _: () = assert!(STREAMS <= IS_NODE as usize);

/// Beside the length of a launch's parameters: its blocks are there together.
const TOGETHER: u32 = 1 << 30;
/// And between the length and that: five bits for each side of its clusters.
const SIDES_SHIFT: u32 = 15;
const SIDES: u32 = 0x7FFF << SIDES_SHIFT;

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is what is asked for")]
fn low(word: u64) -> u32 {
    word as u32
}

fn high(word: u64) -> u32 {
    low(word >> 32)
}

fn bind(word: u64) -> Bind {
    Bind { slot: low(word), generation: high(word) }
}

fn name(bind: Bind) -> u64 {
    pair(bind.slot, bind.generation)
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

    /// The words of the record; a launch's inline parameters are written apart.
    pub(crate) fn encode(&self) -> Words {
        let mut words = [0; RECORD_WORDS];
        let stream = self.stream();
        let operation = match *self {
            Self::Launch { launch, .. } => {
                let LaunchShape { grid, block, shared_bytes } = launch.shape;
                words[1] = name(launch.entry);
                words[2] = pair(grid[0], grid[1]);
                words[3] = pair(grid[2], block[0]);
                words[4] = pair(block[1], block[2]);
                let place = match launch.parameters {
                    ParameterPlace::Inline => 0,
                    ParameterPlace::Arena(word) => {
                        words[INLINE_WORD] = u64::from(word);
                        1 << 31
                    }
                };
                let blocks = match launch.blocks {
                    Blocks::Apart => 0,
                    Blocks::Together => TOGETHER,
                    Blocks::Clusters { sides: [x, y, z], together } => {
                        let side = |side: u8| u32::from(side.min(CLUSTER_SIDE_MAX));
                        let sides = side(x) | side(y) << 5 | side(z) << 10;
                        sides << SIDES_SHIFT | if together { TOGETHER } else { 0 }
                    }
                };
                words[5] = pair(shared_bytes, launch.parameter_bytes | place | blocks);
                LAUNCH
            }
            Self::CopyToDevice { copy, .. } => copy.encode(&mut words, COPY_TO_DEVICE),
            Self::CopyToHost { copy, .. } => copy.encode(&mut words, COPY_TO_HOST),
            Self::CopyOnDevice { copy, .. } => copy.encode(&mut words, COPY_ON_DEVICE),
            Self::CopyArray { copy, .. } => {
                let ([x, y, z], [width, height, depth]) = (copy.at, copy.shape);
                words[1] = name(copy.memory);
                words[2] = copy.offset;
                words[3] = copy.array;
                words[4] = pair(x, y);
                words[5] = pair(z, u32::from(copy.to_array));
                words[6] = copy.row_bytes;
                words[7] = pair(copy.rows, width);
                words[8] = pair(height, depth);
                COPY_ARRAY
            }
            Self::Fill { to, offset, pattern, count, .. } => {
                words[1] = name(to);
                words[2] = offset;
                words[3] = count;
                words[4] = match pattern {
                    Pattern::Bits8(value) => pair(1, u32::from(value)),
                    Pattern::Bits16(value) => pair(2, u32::from(value)),
                    Pattern::Bits32(value) => pair(4, value),
                };
                FILL
            }
            Self::WaitOn { on, position, .. } => {
                words[1] = u64::from(on);
                words[2] = position;
                WAIT_ON
            }
            Self::HostBarrier { number, .. } => {
                words[1] = number;
                HOST_BARRIER
            }
            Self::RecordEvent { event, .. } => {
                words[1] = u64::from(event);
                RECORD_EVENT
            }
            Self::DestroyEvent { event, .. } => {
                words[1] = u64::from(event);
                DESTROY_EVENT
            }
            Self::Elapsed { start, end, reply, .. } => {
                words[1] = pair(start, end);
                words[2] = u64::from(reply);
                ELAPSED
            }
            Self::CreateStream { priority, .. } => {
                words[1] = u64::from(priority.cast_unsigned());
                CREATE_STREAM
            }
            Self::DestroyStream { .. } => DESTROY_STREAM,
            Self::Node { stream, place, work } => {
                let plain = match work {
                    NodeWork::Nothing => {
                        words[0] = pair(NOTHING, stream);
                        words
                    }
                    NodeWork::Launch(launch) => Self::Launch { stream, launch }.encode(),
                    NodeWork::Copy(copy) => Self::CopyOnDevice { stream, copy }.encode(),
                    NodeWork::Fill { to, offset, pattern, count } => {
                        Self::Fill { stream, to, offset, pattern, count }.encode()
                    }
                };
                let change = if place.is_change { IS_CHANGE } else { 0 };
                let early = if place.is_early { IS_EARLY } else { 0 };
                words = plain;
                words[0] |=
                    pair(place.node << NUMBER_SHIFT, place.graph << NUMBER_SHIFT | IS_NODE | change | early);
                return words;
            }
            Self::After { graph, count, nodes, .. } => {
                words[1] = pair(graph, count);
                for (word, nodes) in words[2..].iter_mut().zip(nodes.as_chunks::<2>().0) {
                    *word = pair(nodes[0], nodes[1]);
                }
                AFTER
            }
            Self::MakeGraph { graph, .. } => {
                words[1] = u64::from(graph);
                MAKE_GRAPH
            }
            Self::LaunchGraph { graph, .. } => {
                words[1] = u64::from(graph);
                LAUNCH_GRAPH
            }
            Self::DestroyGraph { graph, .. } => {
                words[1] = u64::from(graph);
                DESTROY_GRAPH
            }
        };
        words[0] = pair(operation, stream);
        words
    }

    /// Reads a record out of words copied from shared memory. `position` is for the error alone.
    ///
    /// # Errors
    /// Where the operation is unknown or an index is out of its range.
    pub(crate) fn decode(words: &Words, position: u64) -> Result<Self, ProtocolError> {
        let field = |field| ProtocolError::Field { position, field };
        let graph = |graph: u32| if graph < GRAPHS { Ok(graph) } else { Err(field("graph")) };
        let stream = high(words[0]);
        if stream & IS_NODE != 0 {
            return Self::decode_node(words, position);
        }
        if stream as usize >= STREAMS {
            return Err(field("stream"));
        }
        let record = match low(words[0]) {
            LAUNCH => {
                let word = high(words[5]);
                let parameter_bytes = word & !(1 << 31 | TOGETHER | SIDES);
                let side = |at: u32| {
                    let [low, ..] = (word >> (SIDES_SHIFT + at)).to_le_bytes();
                    low & CLUSTER_SIDE_MAX
                };
                let blocks = match ([side(0), side(5), side(10)], word & TOGETHER != 0) {
                    ([0, 0, 0], false) => Blocks::Apart,
                    ([0, 0, 0], true) => Blocks::Together,
                    (sides, together) => Blocks::Clusters { sides, together },
                };
                let parameters = if word >> 31 == 0 {
                    if parameter_bytes as usize > INLINE_BYTES {
                        return Err(field("parameter length"));
                    }
                    ParameterPlace::Inline
                } else {
                    let start = low(words[INLINE_WORD]);
                    let words = (parameter_bytes as usize).div_ceil(8);
                    if (start as usize).checked_add(words).is_none_or(|end| end > ARENA_WORDS) {
                        return Err(field("parameter place"));
                    }
                    ParameterPlace::Arena(start)
                };
                let shape = LaunchShape {
                    grid: [low(words[2]), high(words[2]), low(words[3])],
                    block: [high(words[3]), low(words[4]), high(words[4])],
                    shared_bytes: low(words[5]),
                };
                Self::Launch {
                    stream,
                    launch: Launch { entry: bind(words[1]), shape, blocks, parameter_bytes, parameters },
                }
            }
            COPY_TO_DEVICE => Self::CopyToDevice { stream, copy: Copy::decode(words) },
            COPY_TO_HOST => Self::CopyToHost { stream, copy: Copy::decode(words) },
            COPY_ON_DEVICE => Self::CopyOnDevice { stream, copy: Copy::decode(words) },
            COPY_ARRAY => {
                let copy = ArrayCopy {
                    memory: bind(words[1]),
                    offset: words[2],
                    array: words[3],
                    at: [low(words[4]), high(words[4]), low(words[5])],
                    to_array: match high(words[5]) {
                        0 => false,
                        1 => true,
                        _ => return Err(field("direction")),
                    },
                    row_bytes: words[6],
                    rows: low(words[7]),
                    shape: [high(words[7]), low(words[8]), high(words[8])],
                };
                Self::CopyArray { stream, copy }
            }
            FILL => {
                let value = high(words[4]);
                let pattern = match low(words[4]) {
                    1 => Pattern::Bits8(u8::try_from(value).map_err(|_| field("pattern"))?),
                    2 => Pattern::Bits16(u16::try_from(value).map_err(|_| field("pattern"))?),
                    4 => Pattern::Bits32(value),
                    _ => return Err(field("pattern")),
                };
                Self::Fill { stream, to: bind(words[1]), offset: words[2], pattern, count: words[3] }
            }
            WAIT_ON => {
                let on = low(words[1]);
                if on as usize >= STREAMS {
                    return Err(field("stream waited for"));
                }
                Self::WaitOn { stream, on, position: words[2] }
            }
            HOST_BARRIER => Self::HostBarrier { stream, number: words[1] },
            RECORD_EVENT => Self::RecordEvent { stream, event: low(words[1]) },
            DESTROY_EVENT => Self::DestroyEvent { stream, event: low(words[1]) },
            ELAPSED => {
                let reply = low(words[2]);
                if reply as usize >= REPLIES {
                    return Err(field("reply"));
                }
                Self::Elapsed { stream, start: low(words[1]), end: high(words[1]), reply }
            }
            CREATE_STREAM => Self::CreateStream { stream, priority: low(words[1]).cast_signed() },
            DESTROY_STREAM => Self::DestroyStream { stream },
            AFTER => {
                let (graph, count) = (graph(low(words[1]))?, high(words[1]));
                if count as usize > AFTER_MAX {
                    return Err(field("number of nodes"));
                }
                let mut nodes = [0; AFTER_MAX];
                for (nodes, word) in nodes.as_chunks_mut::<2>().0.iter_mut().zip(&words[2..]) {
                    *nodes = [low(*word), high(*word)];
                }
                Self::After { stream, graph, count, nodes }
            }
            MAKE_GRAPH => Self::MakeGraph { stream, graph: graph(low(words[1]))? },
            LAUNCH_GRAPH => Self::LaunchGraph { stream, graph: graph(low(words[1]))? },
            DESTROY_GRAPH => Self::DestroyGraph { stream, graph: graph(low(words[1]))? },
            operation => return Err(ProtocolError::Operation { position, operation }),
        };
        Ok(record)
    }

    /// The same for a record that says what a node does.
    fn decode_node(words: &Words, position: u64) -> Result<Self, ProtocolError> {
        let field = |field| ProtocolError::Field { position, field };
        let (operation, stream) = (low(words[0]), high(words[0]));
        let place = NodePlace {
            graph: (stream & !IS_EARLY) >> NUMBER_SHIFT,
            node: operation >> NUMBER_SHIFT,
            is_early: stream & IS_EARLY != 0,
            is_change: stream & IS_CHANGE != 0,
        };
        if place.graph >= GRAPHS {
            return Err(field("graph"));
        }
        if place.node >= GRAPH_NODES {
            return Err(field("node"));
        }
        let (operation, stream) = (operation & ((1 << NUMBER_SHIFT) - 1), stream & (IS_NODE - 1));
        let mut plain = *words;
        plain[0] = pair(operation, stream);
        let work = match operation {
            NOTHING => NodeWork::Nothing,
            _ => match Self::decode(&plain, position)? {
                Self::Launch { launch, .. } => NodeWork::Launch(launch),
                Self::CopyOnDevice { copy, .. } => NodeWork::Copy(copy),
                Self::Fill { to, offset, pattern, count, .. } => {
                    NodeWork::Fill { to, offset, pattern, count }
                }
                _ => return Err(field("work of a node")),
            },
        };
        Ok(Self::Node { stream, place, work })
    }
}

impl Copy {
    fn encode(self, words: &mut Words, operation: u32) -> u32 {
        words[1] = name(self.to);
        words[2] = self.to_offset;
        words[3] = name(self.from);
        words[4] = self.from_offset;
        words[5] = self.bytes;
        operation
    }

    fn decode(words: &Words) -> Self {
        Self {
            to: bind(words[1]),
            to_offset: words[2],
            from: bind(words[3]),
            from_offset: words[4],
            bytes: words[5],
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn examples() -> Vec<Record> {
        let (to, from) = (Bind { slot: 3, generation: u32::MAX }, Bind { slot: u32::MAX, generation: 1 });
        let copy = Copy { to, to_offset: u64::MAX, from, from_offset: 7, bytes: 1 << 40 };
        let shape = LaunchShape { grid: [1, u32::MAX, 3], block: [4, 5, 6], shared_bytes: 227 << 10 };
        let (blocks, parameters) = (Blocks::Apart, ParameterPlace::Inline);
        let launch = Launch { entry: to, shape, blocks, parameter_bytes: 80, parameters };
        let together = Launch { blocks: Blocks::Together, ..launch };
        let clusters = Blocks::Clusters { sides: [1, 16, CLUSTER_SIDE_MAX], together: false };
        let clusters = Launch { blocks: clusters, ..launch };
        let both = Launch { blocks: Blocks::Clusters { sides: [2, 1, 1], together: true }, ..launch };
        let place = NodePlace { graph: GRAPHS - 1, node: GRAPH_NODES - 1, is_early: true, is_change: false };
        let long = Launch { parameter_bytes: 32_764, parameters: ParameterPlace::Arena(9), ..launch };
        vec![
            Record::Launch { stream: 0, launch },
            Record::Launch { stream: 5, launch: together },
            Record::Launch { stream: 6, launch: clusters },
            Record::Launch { stream: 7, launch: both },
            Record::Launch { stream: 63, launch: long },
            Record::CopyToDevice { stream: 1, copy },
            Record::CopyToHost { stream: 2, copy },
            Record::CopyOnDevice { stream: 3, copy },
            Record::CopyArray {
                stream: 5,
                copy: ArrayCopy {
                    array: u64::MAX,
                    at: [1, u32::MAX, 3],
                    memory: to,
                    offset: 1 << 40,
                    row_bytes: 1 << 41,
                    rows: 7,
                    shape: [u32::MAX, 5, 6],
                    to_array: true,
                },
            },
            Record::Fill { stream: 4, to, offset: 5, pattern: Pattern::Bits8(6), count: 7 },
            Record::Fill { stream: 4, to, offset: 5, pattern: Pattern::Bits16(600), count: 7 },
            Record::Fill { stream: 4, to, offset: 5, pattern: Pattern::Bits32(u32::MAX), count: u64::MAX },
            Record::WaitOn { stream: 5, on: 6, position: u64::MAX },
            Record::HostBarrier { stream: 7, number: u64::MAX },
            Record::RecordEvent { stream: 6, event: 4095 },
            Record::DestroyEvent { stream: 6, event: u32::MAX },
            Record::Elapsed { stream: 7, start: 1, end: 2, reply: 63 },
            Record::CreateStream { stream: 8, priority: -5 },
            Record::DestroyStream { stream: 9 },
            Record::Node { stream: 63, place, work: NodeWork::Nothing },
            Record::Node {
                stream: 0,
                place: NodePlace { is_change: true, ..place },
                work: NodeWork::Launch(launch),
            },
            Record::Node { stream: 1, place, work: NodeWork::Launch(both) },
            Record::Node { stream: 2, place, work: NodeWork::Copy(copy) },
            Record::Node {
                stream: 3,
                place: NodePlace { graph: 0, node: 0, is_early: false, is_change: true },
                work: NodeWork::Fill { to, offset: 5, pattern: Pattern::Bits16(600), count: 7 },
            },
            Record::After { stream: 4, graph: 5, count: 0, nodes: [0; AFTER_MAX] },
            Record::After { stream: 4, graph: GRAPHS - 1, count: 8, nodes: [1, 2, 3, u32::MAX, 5, 6, 7, 8] },
            Record::MakeGraph { stream: 5, graph: GRAPHS - 1 },
            Record::LaunchGraph { stream: 6, graph: 1 },
            Record::DestroyGraph { stream: 7, graph: 2 },
        ]
    }

    #[test]
    fn every_record_decodes_to_what_was_encoded() {
        for record in examples() {
            assert_eq!(Record::decode(&record.encode(), 0), Ok(record));
        }
    }

    #[test]
    fn random_words_decode_to_an_error_or_to_a_record_within_its_limits() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut accepted = 0;
        for round in 0..200_000 {
            let mut words = [0; RECORD_WORDS];
            for word in &mut words {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                *word = state;
            }
            if round % 2 == 0 {
                words[0] = pair(high(words[0]) % 20, low(words[0]) % 200);
            }
            if let Ok(record) = Record::decode(&words, round) {
                accepted += 1;
                assert!((record.stream() as usize) < STREAMS);
                if let Record::Node { place, .. } = record {
                    assert!(place.graph < GRAPHS && place.node < GRAPH_NODES);
                }
                if let Some(launch) = record.launch() {
                    let end = match launch.parameters {
                        ParameterPlace::Inline => launch.parameter_bytes as usize <= INLINE_BYTES,
                        ParameterPlace::Arena(start) => {
                            start as usize * 8 + launch.parameter_bytes as usize <= ARENA_WORDS * 8
                        }
                    };
                    assert!(end);
                }
            }
        }
        assert!(accepted > 1000, "the generator reaches the accepting paths: {accepted}");
    }
}
