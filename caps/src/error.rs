//! Why a tree refuses.

use bulkhead_schema::Handle;

use crate::{Access, Kind};

/// Why a tree refuses. Nothing has changed then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The owner holds as many capabilities as it may.
    #[error("the session holds {limit} capabilities, its limit")]
    Full {
        /// The limit.
        limit: u32,
    },
    /// As many are derived from one root as may be.
    #[error("{limit} capabilities are derived from one, the limit")]
    TreeFull {
        /// The limit.
        limit: u32,
    },
    /// The handle names nothing of this owner: it was never issued to it, or what it named has ended.
    #[error("handle {}.{} names nothing", handle.slot, handle.generation)]
    Stale {
        /// The handle.
        handle: Handle,
    },
    /// The handle names something else.
    #[error("handle {}.{} names a capability of another kind ({found:?}, not {expected:?})", handle.slot, handle.generation)]
    WrongKind {
        /// The handle.
        handle: Handle,
        /// What it names.
        found: Kind,
        /// What was asked for.
        expected: Kind,
    },
    /// The capability allows less.
    #[error("handle {}.{} allows {allowed:?} only", handle.slot, handle.generation)]
    NotAllowed {
        /// The handle.
        handle: Handle,
        /// What it allows.
        allowed: Access,
    },
    /// The range is not inside the capability's.
    #[error("{bytes} bytes at {offset} reach beyond the {reach} bytes of handle {}.{}", handle.slot, handle.generation)]
    OutOfReach {
        /// The handle.
        handle: Handle,
        /// Where the range starts.
        offset: u64,
        /// How long it is.
        bytes: u64,
        /// How much there is.
        reach: u64,
    },
    /// There is no such owner, line, object or revocation: the caller's books are wrong.
    #[error("no such {0}")]
    Unknown(&'static str),
    /// The object is still in use: the caller's books are wrong.
    #[error("the object is still in use")]
    InUse,
}
