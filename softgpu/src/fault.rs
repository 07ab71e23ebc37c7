//! What ends the context, and where it happened.

use bulkhead_gpu::Error;

use crate::memory::Violation;

/// A fault without its place, as the part that found it knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// CUDA's error number.
    pub(crate) code: u32,
    /// What happened.
    pub(crate) what: String,
}

/// A fault, and where it happened.
#[derive(Debug)]
pub(crate) struct Faulted {
    pub(crate) fault: Fault,
    /// The instruction.
    pub(crate) pc: u32,
    /// A lane of those that it happened to.
    pub(crate) lane: usize,
}

impl Faulted {
    /// Adds to a fault of a lane where that is.
    pub(crate) fn at(pc: u32) -> impl FnOnce((Fault, usize)) -> Self {
        move |(fault, lane)| Self { fault, pc, lane }
    }
}

impl Fault {
    /// An access that memory refuses.
    pub(crate) fn access(violation: Violation, region: &str, address: u64) -> Self {
        Self { code: violation.code(), what: format!("{region} access to {violation} {address:#x}") }
    }

    /// A program that does what no program may: unknown barrier, waiting for nobody.
    pub(crate) fn illegal(what: impl Into<String>) -> Self {
        Self { code: 715, what: what.into() }
    }

    /// The `trap` instruction.
    pub(crate) fn trap() -> Self {
        Self { code: 719, what: "trap".to_owned() }
    }

    /// As the trait reports it, with where it happened.
    pub(crate) fn lost(&self, place: &str) -> Error {
        Error::Lost { reason: format!("{} at {place}", self.what), code: self.code }
    }
}
