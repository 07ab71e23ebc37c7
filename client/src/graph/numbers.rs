//! The numbers of graphs, and what graphs have of what a session may.

use bulkhead_ring::layout::GRAPHS;

use crate::{Fence, stream::Indices};

/// The numbers of a session's graphs, and those of graphs that were given up and may still be launched.
pub(crate) struct Numbers {
    pub(super) numbers: Indices<()>,
    pub(super) retiring: Vec<(Taken, Vec<Fence>)>,
    /// What all of them have.
    pub(super) nodes: usize,
    pub(super) bytes: usize,
}

/// A graph's number, and what it has of what a session may.
#[derive(Clone, Copy)]
pub(super) struct Taken {
    pub(super) number: u32,
    pub(super) nodes: u32,
    pub(super) bytes: usize,
}

impl Numbers {
    pub(crate) fn new() -> Self {
        Self { numbers: Indices::new(GRAPHS), retiring: Vec::new(), nodes: 0, bytes: 0 }
    }
}
