//! How a record lies in sixteen words.
//!
//! Word 0 holds the operation in its low half and the stream in its high half; the rest is per operation.

use super::{
    AFTER_MAX, ArrayCopy, Bind, Blocks, CLUSTER_SIDE_MAX, Copy, INLINE_BYTES, INLINE_WORD, Launch,
    LaunchShape, NodePlace, NodeWork, ParameterPlace, Pattern, Record, Words,
};
use crate::{
    ProtocolError,
    layout::{ARENA_WORDS, GRAPH_NODES, GRAPHS, RECORD_WORDS, REPLIES, STREAMS},
};

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
    /// The words of the record; a launch's inline parameters are written apart.
    pub(crate) fn encode(&self) -> Words {
        let mut words = [0; RECORD_WORDS];
        let stream = self.stream();
        let operation = match *self {
            Self::Launch { launch, .. } => launch.encode(&mut words),
            Self::CopyToDevice { copy, .. } => copy.encode(&mut words, COPY_TO_DEVICE),
            Self::CopyToHost { copy, .. } => copy.encode(&mut words, COPY_TO_HOST),
            Self::CopyOnDevice { copy, .. } => copy.encode(&mut words, COPY_ON_DEVICE),
            Self::CopyArray { copy, .. } => copy.encode(&mut words),
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
            Self::Node { stream, place, work } => return Self::encode_node(stream, place, work),
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

    /// The same for a record that says what a node does.
    fn encode_node(stream: u32, place: NodePlace, work: NodeWork) -> Words {
        let plain = match work {
            NodeWork::Nothing => {
                let mut words = [0; RECORD_WORDS];
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
        let mut words = plain;
        words[0] |= pair(place.node << NUMBER_SHIFT, place.graph << NUMBER_SHIFT | IS_NODE | change | early);
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
            LAUNCH => Self::Launch { stream, launch: Launch::decode(words).map_err(field)? },
            COPY_TO_DEVICE => Self::CopyToDevice { stream, copy: Copy::decode(words) },
            COPY_TO_HOST => Self::CopyToHost { stream, copy: Copy::decode(words) },
            COPY_ON_DEVICE => Self::CopyOnDevice { stream, copy: Copy::decode(words) },
            COPY_ARRAY => Self::CopyArray { stream, copy: ArrayCopy::decode(words).map_err(field)? },
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

impl Launch {
    /// Writes it to a record's words, but for inline parameters. Answers the operation.
    fn encode(&self, words: &mut Words) -> u32 {
        let LaunchShape { grid, block, shared_bytes } = self.shape;
        words[1] = name(self.entry);
        words[2] = pair(grid[0], grid[1]);
        words[3] = pair(grid[2], block[0]);
        words[4] = pair(block[1], block[2]);
        let place = match self.parameters {
            ParameterPlace::Inline => 0,
            ParameterPlace::Arena(word) => {
                words[INLINE_WORD] = u64::from(word);
                1 << 31
            }
        };
        let blocks = match self.blocks {
            Blocks::Apart => 0,
            Blocks::Together => TOGETHER,
            Blocks::Clusters { sides: [x, y, z], together } => {
                let side = |side: u8| u32::from(side.min(CLUSTER_SIDE_MAX));
                let sides = side(x) | side(y) << 5 | side(z) << 10;
                sides << SIDES_SHIFT | if together { TOGETHER } else { 0 }
            }
        };
        words[5] = pair(shared_bytes, self.parameter_bytes | place | blocks);
        LAUNCH
    }

    /// Reads it out of a record's words; or says which field is out of range.
    fn decode(words: &Words) -> Result<Self, &'static str> {
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
                return Err("parameter length");
            }
            ParameterPlace::Inline
        } else {
            let start = low(words[INLINE_WORD]);
            let words = (parameter_bytes as usize).div_ceil(8);
            if (start as usize).checked_add(words).is_none_or(|end| end > ARENA_WORDS) {
                return Err("parameter place");
            }
            ParameterPlace::Arena(start)
        };
        let shape = LaunchShape {
            grid: [low(words[2]), high(words[2]), low(words[3])],
            block: [high(words[3]), low(words[4]), high(words[4])],
            shared_bytes: low(words[5]),
        };
        Ok(Self { entry: bind(words[1]), shape, blocks, parameter_bytes, parameters })
    }
}

impl ArrayCopy {
    /// Writes it to a record's words. Answers the operation.
    fn encode(&self, words: &mut Words) -> u32 {
        let ([x, y, z], [width, height, depth]) = (self.at, self.shape);
        words[1] = name(self.memory);
        words[2] = self.offset;
        words[3] = self.array;
        words[4] = pair(x, y);
        words[5] = pair(z, u32::from(self.to_array));
        words[6] = self.row_bytes;
        words[7] = pair(self.rows, width);
        words[8] = pair(height, depth);
        COPY_ARRAY
    }

    /// Reads it out of a record's words; or says which field is out of range.
    fn decode(words: &Words) -> Result<Self, &'static str> {
        Ok(Self {
            memory: bind(words[1]),
            offset: words[2],
            array: words[3],
            at: [low(words[4]), high(words[4]), low(words[5])],
            to_array: match high(words[5]) {
                0 => false,
                1 => true,
                _ => return Err("direction"),
            },
            row_bytes: words[6],
            rows: low(words[7]),
            shape: [high(words[7]), low(words[8]), high(words[8])],
        })
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
