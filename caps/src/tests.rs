//! What the tests share.

mod model;
mod naive;
mod revocation;
mod tree;

use bulkhead_schema::Handle;

use crate::{
    Access, Child, Ended, Extent, Kind, Limits, Line, Moments, Need, ObjectId, ObjectState, Owner,
    RevocationId, Tree,
};

/// How much is created where nobody cares.
const BYTES: u64 = 1 << 20;

fn limits() -> Limits {
    Limits { nodes_per_root: 1 << 20, last_generation: u32::MAX }
}

fn read_write(offset: u64, bytes: u64) -> Need {
    Need { kind: Kind::Buffer, access: Access::ReadWrite, offset, bytes }
}

fn read(offset: u64, bytes: u64) -> Need {
    Need { access: Access::Read, ..read_write(offset, bytes) }
}

/// A tree with one session that has a line.
struct World {
    tree: Tree,
    owner: Owner,
    line: Line,
}

impl World {
    fn new() -> Self {
        Self::with(limits())
    }

    fn with(limits: Limits) -> Self {
        let mut tree = Tree::new(limits);
        let owner = tree.open_owner(100_000);
        let line = tree.open_line(Some(owner));
        Self { tree, owner, line }
    }

    fn session(&mut self) -> (Owner, Line) {
        let owner = self.tree.open_owner(100_000);
        (owner, self.tree.open_line(Some(owner)))
    }

    fn buffer(&mut self) -> (Handle, ObjectId) {
        self.tree.create(self.owner, Kind::Buffer, BYTES).unwrap()
    }

    fn child(&mut self, parent: Handle, to: Owner) -> Handle {
        self.grandchild(self.owner, parent, to)
    }

    fn grandchild(&mut self, from: Owner, parent: Handle, to: Owner) -> Handle {
        self.tree.derive(from, parent, Child { owner: to, need: read(0, 8) }).unwrap()
    }

    fn submit(&mut self, owner: Owner, line: Line, handle: Handle) -> u64 {
        self.tree.submit(owner, line, &[(handle, read(0, 8))]).unwrap()
    }

    fn revoke(&mut self, handle: Handle, extent: Extent, deadline_ns: u64) -> (RevocationId, Vec<Ended>) {
        let mut ended = Vec::new();
        let id = self.tree.revoke(self.owner, handle, extent, deadline_ns, |one| ended.push(one)).unwrap();
        (id, ended)
    }

    fn settle(&mut self, now_ns: u64) -> Vec<(ObjectId, ObjectState)> {
        let mut settled = Vec::new();
        self.tree.settle(now_ns, |object, state| settled.push((object, state)));
        settled
    }

    fn moments(&mut self, id: RevocationId) -> Moments {
        self.tree.moments(id, 0).unwrap()
    }

    fn lives(&self, owner: Owner, handle: Handle) -> bool {
        self.tree.look(owner, handle).is_ok()
    }
}

/// A small generator of test choices (xorshift64*), repeatable from its seed.
struct Choices(u64);

impl Choices {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let next = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11;
        usize::try_from(next % bound as u64).unwrap()
    }

    fn any<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        if of.is_empty() { None } else { Some(of[self.below(of.len())]) }
    }
}
