//! What the nodes of graphs do.

use std::sync::Arc;

use crate::abi::{Callback, Copy3d, HostFunction, MemsetNode};
use crate::graph::{Embedded, Storage};
use crate::launch::Kernel;
use crate::status::{Answer, Status};

/// What a node does.
#[derive(Clone)]
pub(crate) enum Work {
    /// Nothing: others wait for it, and it for others.
    Empty,
    Kernel(Arc<Kernel>),
    Copy(Box<Copy3d>),
    Fill(MemsetNode),
    Host(HostFunction, Callback),
    /// All that another graph does.
    Child(Arc<Embedded>),
    /// Records this event.
    Record(u64),
    /// Waits for this event.
    Wait(u64),
    /// Makes memory of its own the program's.
    Allocate(Arc<Storage>),
    /// Takes it back.
    Free(Arc<Storage>),
}

impl Work {
    /// `CUgraphNodeType`.
    pub(super) fn kind(&self) -> u32 {
        match self {
            Work::Kernel(_) => 0,
            Work::Copy(_) => 1,
            Work::Fill(_) => 2,
            Work::Host(..) => 3,
            Work::Child(_) => 4,
            Work::Empty => 5,
            Work::Wait(_) => 6,
            Work::Record(_) => 7,
            Work::Allocate(_) => 10,
            Work::Free(_) => 11,
        }
    }

    /// Whether it says from when or until when memory is the program's.
    pub(super) fn is_of_memory(&self) -> bool {
        matches!(self, Work::Allocate(_) | Work::Free(_))
    }

    /// Its name, for those who read a graph.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Work::Kernel(_) => "kernel",
            Work::Copy(_) => "copy",
            Work::Fill(_) => "fill",
            Work::Host(..) => "host function",
            Work::Child(_) => "child graph",
            Work::Empty => "empty",
            Work::Wait(_) => "wait for event",
            Work::Record(_) => "record event",
            Work::Allocate(_) => "allocate",
            Work::Free(_) => "free",
        }
    }

    /// That a node that does this may do `other` from now on.
    pub(super) fn check_change(&self, other: &Work) -> Answer {
        if self.kind() == other.kind() { Ok(()) } else { Err(Status::INVALID_VALUE) }
    }
}
