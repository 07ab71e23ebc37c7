//! Where everything lies in the two memfds.

use crate::sync::{AtomicU32, AtomicU64};

/// Records of a ring; a power of two.
#[cfg(not(loom))]
pub const RECORDS: usize = 1024;
/// Small under loom, so that wrapping is reached.
#[cfg(loom)]
pub const RECORDS: usize = 2;
/// Words of a record.
pub const RECORD_WORDS: usize = 16;
/// Words of the arena for long launch parameters (1 MiB).
#[cfg(not(loom))]
pub const ARENA_WORDS: usize = 131_072;
/// Small under loom.
#[cfg(loom)]
pub const ARENA_WORDS: usize = 16;
/// Size of the ring's memfd in bytes.
pub const RING_BYTES: usize = HEADER_BYTES + RECORDS * RECORD_WORDS * 8 + ARENA_WORDS * 8;
/// Size of the header, padded to a page.
pub const HEADER_BYTES: usize = 4096;

/// Streams that have a mark on the completion page.
pub const STREAMS: usize = 64;
/// Streams whose priorities lie in one word.
pub(crate) const PRIORITIES_PER_WORD: usize = 8;
/// Words between two streams' marks: a cache line each.
pub const MARK_STRIDE_WORDS: usize = 8;
/// Graphs of a session; a node's number beside a graph's has as many bits as a record has for it.
pub const GRAPHS: u32 = 4096;
/// Nodes of a graph.
pub const GRAPH_NODES: u32 = 1 << 16;
/// Replies that can be outstanding.
pub const REPLIES: usize = 64;
/// Size of the completion page's memfd in bytes.
pub const COMPLETION_BYTES: usize = 8192;
/// Length of the activity page.
pub const ACTIVITY_BYTES: usize = 4096;
/// First word of the replies, each of two words: position + 1, value.
pub(crate) const REPLY_WORD: usize = STREAMS * MARK_STRIDE_WORDS;
/// Word that says the executor ended the session.
pub(crate) const ENDED_WORD: usize = REPLY_WORD + REPLIES * 2;
/// Count of refused records; the three words after it describe the latest one.
pub(crate) const REFUSED_WORD: usize = ENDED_WORD + 8;

/// The ring's header. Each side's words are on cache lines of their own.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Header {
    /// Written by the producer: records ever pushed.
    pub(crate) tail: Line<AtomicU64>,
    /// Written by the consumer: records ever taken.
    pub(crate) head: Line<AtomicU64>,
    /// 1 while the consumer sleeps, or is about to.
    pub(crate) parked: Line<AtomicU32>,
    /// The word that the consumer sleeps on; each wake-up changes it.
    pub(crate) doorbell: Line<AtomicU32>,
    /// Written by the kernel: not zero when the session is over.
    pub(crate) ended: Line<AtomicU64>,
    /// Written by the consumer: records ever taken, of which it tells `head` in batches only. For whoever consumes the
    /// ring after it.
    pub(crate) taken: Line<AtomicU64>,
    /// Written by the consumer: a byte per stream, with which priority it was made. For whoever consumes the ring after it.
    pub(crate) priorities: Line<[AtomicU64; STREAMS / PRIORITIES_PER_WORD]>,
    /// Written by the producer: a word per stream, how many of its barriers the host has opened.
    pub(crate) opened: Line<[AtomicU64; STREAMS]>,
}

/// A value on lines of its own.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Line<T>(T);

impl<T> Line<T> {
    #[cfg(loom)]
    pub(crate) fn new(value: T) -> Self {
        Self(value)
    }
}

impl<T> std::ops::Deref for Line<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

/// One record as it lies in the ring.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Cell(pub(crate) [AtomicU64; RECORD_WORDS]);

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Header>() == 1408 && size_of::<Header>() <= HEADER_BYTES);
    assert!(std::mem::offset_of!(Header, head) == 128);
    assert!(std::mem::offset_of!(Header, parked) == 256);
    assert!(std::mem::offset_of!(Header, doorbell) == 384);
    assert!(std::mem::offset_of!(Header, ended) == 512);
    assert!(std::mem::offset_of!(Header, taken) == 640);
    assert!(std::mem::offset_of!(Header, priorities) == 768);
    assert!(std::mem::offset_of!(Header, opened) == 896);
    assert!(STREAMS.is_multiple_of(PRIORITIES_PER_WORD));
    assert!(size_of::<Cell>() == 128);
    assert!(RECORDS.is_power_of_two());
    assert!((REFUSED_WORD + 4) * 8 <= COMPLETION_BYTES);
};
