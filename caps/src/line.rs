//! Timelines: what was submitted somewhere, and how far it has passed.

use crate::Owner;

/// Where work is done in order: a session's streams taken together, or a module's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Line(pub(crate) u32);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeline {
    /// `None` for a module's, whose work counts as use whoever it is done for.
    pub(crate) owner: Option<Owner>,
    pub(crate) submitted: u64,
    pub(crate) completed: u64,
    pub(crate) open: bool,
}
