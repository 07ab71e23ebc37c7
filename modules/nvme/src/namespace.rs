//! Namespaces: logical blocks on an engine.

use std::collections::VecDeque;

use crate::{
    engine::{Engine, Request},
    formats::{BlockRange, BlockSize, IdentifyNamespace, Status},
};

/// Why an engine cannot be a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NamespaceError {
    /// There is less than one block.
    #[error("the store's {bytes} bytes are less than a block")]
    Empty {
        /// Size of the store.
        bytes: u64,
    },
    /// The size is no multiple of a block.
    #[error("the store's {bytes} bytes are no multiple of {block} bytes")]
    Unaligned {
        /// Size of the store.
        bytes: u64,
        /// Size of a block.
        block: u32,
    },
}

/// An array of logical blocks.
pub struct Namespace {
    pub(crate) engine: Box<dyn Engine>,
    block: BlockSize,
    blocks: u64,
    /// Whether a flush has failed: what was written before may be lost.
    pub(crate) is_doubtful: bool,
    /// What the engine had no room for, in the order of the commands.
    pub(crate) waiting: VecDeque<Request>,
}

impl Namespace {
    /// All blocks of an engine's store.
    ///
    /// # Errors
    /// Where the store is not a number of whole blocks, one at least.
    pub fn new(engine: Box<dyn Engine>, block: BlockSize) -> Result<Self, NamespaceError> {
        let bytes = engine.bytes();
        let size = block.bytes();
        if !bytes.is_multiple_of(size.into()) {
            return Err(NamespaceError::Unaligned { bytes, block: size });
        }
        if bytes == 0 {
            return Err(NamespaceError::Empty { bytes });
        }
        Ok(Self {
            engine,
            block,
            blocks: bytes / u64::from(size),
            is_doubtful: false,
            waiting: VecDeque::new(),
        })
    }

    /// What identify says of it.
    #[must_use]
    pub fn identify(&self) -> IdentifyNamespace {
        IdentifyNamespace { blocks: self.blocks, block_shift: self.block.shift() }
    }

    /// Which engine it is on.
    #[must_use]
    pub fn engine_name(&self) -> &'static str {
        self.engine.name()
    }

    /// Where `range` lies in the store, and its length, both in bytes.
    ///
    /// # Errors
    /// Where a block of it is beyond the last.
    pub(crate) fn place(&self, range: &BlockRange) -> Result<(u64, u64), Status> {
        let count = u64::from(range.count);
        match range.first.checked_add(count) {
            Some(end) if end <= self.blocks => {
                let block = u64::from(self.block.bytes());
                Ok((range.first * block, count * block))
            }
            _ => Err(Status::LBA_OUT_OF_RANGE),
        }
    }

    /// What the store holds there, where a read need not wait for it.
    pub(crate) fn contents(&self, offset: u64, bytes: usize) -> Option<&[u8]> {
        self.engine.contents(offset, bytes)
    }

    /// Hands a request to the engine, now or when it has room.
    pub(crate) fn submit(&mut self, request: Request) {
        if !self.waiting.is_empty() {
            self.waiting.push_back(request);
        } else if let Err(request) = self.engine.submit(request) {
            self.waiting.push_back(request);
        }
    }

    /// Hands on what waits, as far as the engine has room.
    pub(crate) fn push_waiting(&mut self) {
        while let Some(request) = self.waiting.pop_front() {
            if let Err(request) = self.engine.submit(request) {
                self.waiting.push_front(request);
                return;
            }
        }
    }
}
