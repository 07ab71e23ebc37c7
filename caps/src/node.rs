//! One capability: a slot that can be named, and a node of the tree.

use bulkhead_schema::Handle;

use crate::{Access, Kind, ObjectId, Owner};

/// No node.
pub(crate) const NONE: u32 = u32::MAX;

/// What a slot is at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// Ready for a capability, which its generation will name.
    Free,
    /// In use.
    Live,
    /// Worn out: its generations are spent, so it can never be named again.
    Retired,
}

/// Slot and tree node in one, one cache line.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Node {
    pub(crate) generation: u32,
    pub(crate) owner: Owner,
    pub(crate) object: ObjectId,
    pub(crate) parent: u32,
    pub(crate) first_child: u32,
    pub(crate) next_sibling: u32,
    pub(crate) previous_sibling: u32,
    /// The root of its tree; itself for a root.
    pub(crate) root: u32,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) next_of_owner: u32,
    pub(crate) previous_of_owner: u32,
    /// For a root: nodes of its tree, itself included.
    pub(crate) nodes: u32,
    pub(crate) kind: Kind,
    pub(crate) access: Access,
    pub(crate) state: State,
}

const _: () = assert!(size_of::<Node>() == 64 && align_of::<Node>() == 64);

impl Node {
    pub(crate) const fn vacant(generation: u32) -> Self {
        Self {
            generation,
            owner: Owner(NONE),
            object: ObjectId(NONE),
            parent: NONE,
            first_child: NONE,
            next_sibling: NONE,
            previous_sibling: NONE,
            root: NONE,
            offset: 0,
            bytes: 0,
            next_of_owner: NONE,
            previous_of_owner: NONE,
            nodes: 0,
            kind: Kind::Buffer,
            access: Access::Read,
            state: State::Free,
        }
    }

    pub(crate) fn handle(&self, slot: u32) -> Handle {
        Handle { slot, generation: self.generation }
    }
}
