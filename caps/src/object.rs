//! What capabilities stand for.

/// Names an object of a tree until it is freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(pub(crate) u32);

impl ObjectId {
    /// Its place in a table of objects.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0
    }
}

/// What becomes of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectState {
    /// Capabilities name it.
    Live,
    /// None does any more; work that uses it may still run.
    Draining,
    /// Such work ran on beyond the deadline: nobody gets it before that work is known to be gone.
    Quarantined,
    /// No work uses it: it may be given back.
    Quiescent,
    /// Given back.
    Free,
}

/// What an object is, but for [what used it](crate::usage::Usage).
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) state: ObjectState,
    /// Capabilities that name it.
    pub(crate) nodes: u32,
    /// Revocations that ended a capability for it and are not quiescent: work that they wait for may use it.
    pub(crate) holds: u32,
    /// Which of all the objects that were ever made: an [`ObjectId`] is used again.
    pub(crate) number: u64,
    pub(crate) deadline_ns: u64,
}

impl Object {
    pub(crate) fn new(number: u64) -> Self {
        Self { state: ObjectState::Live, nodes: 0, holds: 0, number, deadline_ns: 0 }
    }

    /// Whether no capability names it, and it is not known to be quiescent.
    pub(crate) fn is_ending(&self) -> bool {
        matches!(self.state, ObjectState::Draining | ObjectState::Quarantined)
    }
}
