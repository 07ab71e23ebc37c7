//! The shared-memory submission ring between a client and the executor, and the completion page back.
//!
//! A *ring* is a memfd of [`layout::RING_BYTES`]: a header, fixed records of 128 bytes, and an *arena* for long
//! launch parameters. The client is its only producer, the executor its only consumer. A *position* counts
//! records ever pushed: the record at index `i` has passed when the completed position of its stream is `> i`.
//! The *completion page* is a second memfd that the executor and the GPU write and the client can only read. The *activity
//! page* of a protected module is another that the executor writes and the module's host half can only read.
//!
//! # Invariants
//! 1. The consumer copies a record once, decodes the copy and uses only what it decoded.
//! 2. Nothing the other side writes is trusted: an index out of step is a [`ProtocolError`], never a panic,
//!    an endless loop or an access out of bounds.
//! 3. A wake-up is never lost: a producer that publishes while the consumer parks wakes it, and so does a [`Waker`]
//!    that is used after the consumer listened.
//! 4. No memfd can shrink or grow; completion and activity pages cannot be written through any mapping made after
//!    the executor's own.
//!
//! The crate knows nothing of tokio, so that loom can check it (`RUSTFLAGS="--cfg loom" cargo test -p bulkhead-ring`).

#[cfg(not(loom))]
mod activity;
pub mod bell;
mod completion;
mod consumer;
pub mod layout;
#[cfg(loom)]
pub mod mutant;
#[cfg(not(loom))]
mod mutant;
mod producer;
mod record;
mod sync;

#[cfg(not(loom))]
#[expect(unsafe_code, reason = "maps memory that another process shares")]
pub mod memory;
#[cfg(loom)]
#[path = "loom_memory.rs"]
pub mod memory;

#[cfg(not(loom))]
pub use activity::{Activity, ActivityEnd, ActivityWriter, create as create_activity};
pub use completion::{CompletionReader, CompletionWriter, Refusal};
pub use consumer::{Consumer, Park, Waker};
pub use producer::{Full, Opener, Producer};
pub use record::{
    AFTER_MAX, ArrayCopy, Bind, Blocks, Copy, EntryLaunch, Launch, LaunchShape, NodePlace, NodeWork,
    ParameterPlace, Pattern, Record,
};

/// Why the other side of a ring is not believed any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The tail ran away from the head.
    #[error("the ring's tail is {tail} while its head is {head}")]
    Tail {
        /// What the shared word held.
        tail: u64,
        /// Where the consumer is.
        head: u64,
    },
    /// A record with an operation that does not exist.
    #[error("record {position} has the unknown operation {operation}")]
    Operation {
        /// Index of the record.
        position: u64,
        /// What stood there.
        operation: u32,
    },
    /// A record with a field out of its range.
    #[error("record {position}: {field} is out of range")]
    Field {
        /// Index of the record.
        position: u64,
        /// Which field.
        field: &'static str,
    },
}

/// Whether a session is still alive, as told in shared memory. Zero words mean that it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// `ErrorCode` of bulkhead.capnp, by number.
    pub code: u16,
    /// CUDA's own error number, or 0.
    pub device: u32,
}

impl Ended {
    pub(crate) fn pack(self) -> u64 {
        1 << 63 | u64::from(self.code) << 32 | u64::from(self.device)
    }

    pub(crate) fn unpack(word: u64) -> Option<Self> {
        let code = u16::try_from(word >> 32 & 0xffff).unwrap_or(0);
        let device = u32::try_from(word & 0xffff_ffff).unwrap_or(0);
        (word >> 63 == 1).then_some(Self { code, device })
    }
}

/// The kernel's hold on a ring: it can say that the session is over, and nothing else.
pub struct Control {
    mapping: std::sync::Arc<memory::Ring>,
}

impl Control {
    /// Over a mapped ring.
    #[must_use]
    pub fn new(mapping: std::sync::Arc<memory::Ring>) -> Self {
        Self { mapping }
    }

    /// Maps the ring behind a descriptor.
    ///
    /// # Errors
    /// Where the descriptor is no ring or cannot be mapped.
    #[cfg(not(loom))]
    pub fn map(descriptor: std::os::fd::BorrowedFd<'_>) -> std::io::Result<Self> {
        Ok(Self::new(memory::Ring::map(descriptor)?))
    }

    /// Tells the client that its session is over. `code` is an `ErrorCode` by number.
    pub fn end(&self, code: u16, device: u32) {
        self.mapping.header().ended.store(Ended { code, device }.pack(), sync::Ordering::Release);
    }
}
