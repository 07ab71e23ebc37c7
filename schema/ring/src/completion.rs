//! The completion page: what the GPU and the executor tell the client.
//!
//! A *mark* is the completed position of one stream, written by the GPU itself. Positions only grow, so a mark
//! covers all that was submitted to its stream before.

use std::sync::Arc;

use crate::{
    Ended,
    layout::{ENDED_WORD, MARK_STRIDE_WORDS, REFUSED_WORD, REPLIES, REPLY_WORD, STREAMS},
    memory::Completion,
    sync::Ordering,
};

/// The latest record that the executor could not carry out, though the session lives on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// How many there were so far, on whichever page: it grows.
    pub count: u64,
    /// Position of the latest one.
    pub position: u64,
    /// `ErrorCode` by number.
    pub code: u16,
    /// CUDA's own error number, or 0.
    pub device: u32,
}

impl Refusal {
    /// The position of a refusal of all that was submitted: the session is over.
    pub const OF_ALL: u64 = u64::MAX;
}

/// The client's view: it can only read.
pub struct CompletionReader {
    page: Arc<Completion>,
}

impl CompletionReader {
    /// Over a mapped page.
    #[must_use]
    pub fn new(page: Arc<Completion>) -> Self {
        Self { page }
    }

    /// The position up to which the stream's work has passed. 0 for a stream out of range.
    #[must_use]
    pub fn mark(&self, stream: u32) -> u64 {
        if stream as usize >= STREAMS {
            return 0;
        }
        self.page.word(stream as usize * MARK_STRIDE_WORDS).load(Ordering::Acquire)
    }

    /// The value in a reply slot, once it belongs to the record at `position`.
    #[must_use]
    pub fn reply(&self, slot: u32, position: u64) -> Option<u64> {
        let word = REPLY_WORD + slot as usize % REPLIES * 2;
        (self.page.word(word).load(Ordering::Acquire) == position)
            .then(|| self.page.word(word + 1).load(Ordering::Relaxed))
    }

    /// Whether the executor ended the session.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        Ended::unpack(self.page.word(ENDED_WORD).load(Ordering::Acquire))
    }

    /// How many records were refused so far, as a number that grows with each: one load, for every call that may report it.
    #[must_use]
    pub fn refusals(&self) -> u64 {
        self.page.word(REFUSED_WORD).load(Ordering::Acquire)
    }

    /// The latest refusal, if there was one.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        let count = self.refusals();
        let position = self.page.word(REFUSED_WORD + 1).load(Ordering::Relaxed);
        let what = Ended::unpack(self.page.word(REFUSED_WORD + 2).load(Ordering::Relaxed))?;
        (count & u64::from(u32::MAX) > 0).then_some(Refusal {
            count,
            position,
            code: what.code,
            device: what.device,
        })
    }
}

/// The executor's view.
pub struct CompletionWriter {
    page: Arc<Completion>,
}

impl CompletionWriter {
    /// Over a page that this process created.
    #[must_use]
    pub fn new(page: Arc<Completion>) -> Self {
        Self { page }
    }

    /// The position up to which the stream's work has passed, as the GPU wrote it. The client cannot have
    /// written it: its mapping is read-only and no writable one can be made.
    #[must_use]
    pub fn mark(&self, stream: u32) -> u64 {
        self.page.word(stream as usize % STREAMS * MARK_STRIDE_WORDS).load(Ordering::Acquire)
    }

    /// Sets the mark of a stream that the device does not have.
    pub fn set_mark(&self, stream: u32, position: u64) {
        self.page.word(stream as usize % STREAMS * MARK_STRIDE_WORDS).store(position, Ordering::Release);
    }

    /// Offset of a stream's mark from the start of the page, in bytes: where the GPU writes it.
    #[must_use]
    pub fn mark_offset(stream: u32) -> usize {
        stream as usize % STREAMS * MARK_STRIDE_WORDS * 8
    }

    /// How many slices of launches have passed on the stream, as the GPU wrote it beside the mark; clients do not read it.
    #[must_use]
    pub fn slices(&self, stream: u32) -> u64 {
        self.page.word(stream as usize % STREAMS * MARK_STRIDE_WORDS + 1).load(Ordering::Acquire)
    }

    /// Sets it, for a device that writes nothing itself.
    pub fn set_slices(&self, stream: u32, count: u64) {
        self.page.word(stream as usize % STREAMS * MARK_STRIDE_WORDS + 1).store(count, Ordering::Release);
    }

    /// Where the GPU writes that, in bytes from the start of the page.
    #[must_use]
    pub fn slices_offset(stream: u32) -> usize {
        Self::mark_offset(stream) + 8
    }

    /// Answers a record in a reply slot. `position` is the one the client got when it pushed the record.
    pub fn answer(&self, slot: u32, position: u64, value: u64) {
        let word = REPLY_WORD + slot as usize % REPLIES * 2;
        self.page.word(word + 1).store(value, Ordering::Relaxed);
        self.page.word(word).store(position, Ordering::Release);
    }

    /// Tells the client that the session is over. The first reason given stays.
    pub fn end(&self, ended: Ended) {
        let word = self.page.word(ENDED_WORD);
        // A failure means that a reason stands there already.
        let told = word.compare_exchange(0, ended.pack(), Ordering::Release, Ordering::Relaxed);
        debug_assert!(told.is_ok() || told.is_err_and(|word| Ended::unpack(word).is_some()));
    }

    /// Counts refusals so that none is taken for one that was told on another page, as long as `moves` differs.
    pub fn count_from(&self, moves: u32) {
        self.page.word(REFUSED_WORD).store(u64::from(moves) << 32, Ordering::Release);
    }

    /// Tells the client that a record was not carried out.
    pub fn refuse(&self, position: u64, code: u16, device: u32) {
        let count = self.page.word(REFUSED_WORD).load(Ordering::Relaxed) + 1;
        self.page.word(REFUSED_WORD + 1).store(position, Ordering::Relaxed);
        self.page.word(REFUSED_WORD + 2).store(Ended { code, device }.pack(), Ordering::Relaxed);
        self.page.word(REFUSED_WORD).store(count, Ordering::Release);
    }
}
