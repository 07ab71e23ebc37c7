//! What a stream is, once it was looked up.

use crate::device::Stream;

/// How a stream's work orders with the legacy stream's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// It is the legacy stream.
    Legacy,
    /// Both ways.
    Blocking,
    /// Not at all.
    NonBlocking,
}

/// A stream, looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) stream: Stream,
    pub(crate) order: Order,
}

impl Target {
    pub(super) const LEGACY: Target = Target { stream: Stream::DEFAULT, order: Order::Legacy };

    pub(crate) fn bit(self) -> u64 {
        1 << self.stream.index()
    }
}
