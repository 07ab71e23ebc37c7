//! The tree: every capability of one device.

use std::collections::{BTreeSet, VecDeque};

use bulkhead_schema::Handle;

use crate::{
    Access, Error, Kind, Line, Mutant, ObjectId, ObjectState, Owner, line::Lines, node::Node, object::Object,
    owner::Holders, revocation::Revocations, usage::Usage,
};

/// How much there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Nodes of one root, itself included: what one revocation has to walk.
    pub nodes_per_root: u32,
    /// The last generation of a slot.
    pub last_generation: u32,
}

/// What is asked of a capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// As what.
    pub kind: Kind,
    /// To do what.
    pub access: Access,
    /// With which part, from its own start, in bytes.
    pub offset: u64,
    /// And how much of it.
    pub bytes: u64,
}

/// A weaker capability to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Child {
    /// Who gets it.
    pub owner: Owner,
    /// As what, to do what, with which part of the parent.
    pub need: Need,
}

/// What a handle names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// Who holds it.
    pub owner: Owner,
    /// What it is for.
    pub kind: Kind,
    /// What may be done.
    pub access: Access,
    /// The object.
    pub object: ObjectId,
    /// Where its part of the object starts, in bytes.
    pub offset: u64,
    /// How much that is.
    pub bytes: u64,
    /// What it was derived from.
    pub parent: Option<Handle>,
}

/// What a revocation reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Everything derived from the capability.
    Descendants,
    /// The capability too.
    Whole,
}

/// A capability that has just ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// What named it.
    pub handle: Handle,
    /// Who held it.
    pub owner: Owner,
    /// The object.
    pub object: ObjectId,
    /// What it was for.
    pub kind: Kind,
    /// Whether it was the first of its object, which all others were derived from.
    pub is_first: bool,
    /// The nearest capability that it was derived from and that did not end in the same walk: revoking that concerns whoever
    /// held this one. A capability of an owner's that is taken later, in a walk of its own, may be it.
    pub heir: Option<Handle>,
}

/// Every capability of one device, with the objects they name and the lines that use those.
#[derive(Debug)]
pub struct Tree {
    pub(crate) nodes: Vec<Node>,
    /// Free slots; the one that was freed first is used first, so that generations wear evenly.
    pub(crate) free: VecDeque<u32>,
    pub(crate) live: u32,
    pub(crate) holders: Holders,
    pub(crate) objects: Vec<Object>,
    objects_free: VecDeque<u32>,
    objects_made: u64,
    pub(crate) usage: Usage,
    pub(crate) lines: Lines,
    /// Objects that no capability names, that are not known to be quiescent and not overdue, by their deadlines.
    pub(crate) ending: BTreeSet<(u64, ObjectId)>,
    pub(crate) revocations: Revocations,
    /// Walks so far, each of which took nodes of one object.
    pub(crate) walks: u64,
    /// The objects and owners of the nodes that were taken for the revocation that is about to begin.
    pub(crate) touched: Vec<(ObjectId, Owner)>,
    pub(crate) limits: Limits,
    #[cfg(any(test, feature = "mutants"))]
    mutant: Option<Mutant>,
}

impl Tree {
    /// A tree without capabilities.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            nodes: Vec::new(),
            free: VecDeque::new(),
            live: 0,
            holders: Holders::default(),
            objects: Vec::new(),
            objects_free: VecDeque::new(),
            objects_made: 0,
            usage: Usage::default(),
            lines: Lines::default(),
            ending: BTreeSet::new(),
            revocations: Revocations::default(),
            walks: 0,
            touched: Vec::new(),
            limits,
            #[cfg(any(test, feature = "mutants"))]
            mutant: None,
        }
    }

    /// Switches a bug on.
    #[cfg(any(test, feature = "mutants"))]
    pub fn mutate(&mut self, mutant: Mutant) {
        self.mutant = Some(mutant);
    }

    /// Whether a bug is switched on: never, but in tests.
    #[inline]
    pub(crate) fn is(&self, mutant: Mutant) -> bool {
        #[cfg(any(test, feature = "mutants"))]
        return self.mutant == Some(mutant);
        #[cfg(not(any(test, feature = "mutants")))]
        return {
            let _ = mutant;
            false
        };
    }

    /// How many capabilities there are.
    #[must_use]
    pub fn live(&self) -> u32 {
        self.live
    }

    /// A new object with its first capability, which reaches all of its `bytes`.
    pub fn create(&mut self, owner: Owner, kind: Kind, bytes: u64) -> Result<(Handle, ObjectId), Error> {
        self.holders.may_hold(owner)?;
        let made = Object::new(self.objects_made);
        self.objects_made += 1;
        let object = ObjectId(place(&mut self.objects, self.objects_free.pop_front(), made));
        self.usage.insert(object);
        let slot = self.take_slot();
        let node = Node {
            owner,
            object,
            root: slot,
            bytes,
            nodes: 1,
            kind,
            access: Access::ReadWrite,
            ..Node::vacant(0)
        };
        Ok((self.put(slot, node), object))
    }

    /// A weaker capability for the same object.
    pub fn derive(&mut self, owner: Owner, parent: Handle, child: Child) -> Result<Handle, Error> {
        let Need { kind, access, offset, bytes } = child.need;
        let wanted = if self.is(Mutant::UnboundedChild) { 0 } else { bytes };
        let from = *self.check(owner, parent, access, offset, wanted)?;
        if !from.kind.may_derive(kind) {
            return Err(Error::WrongKind { handle: parent, found: from.kind, expected: kind });
        }
        let root = self.nodes.get(from.root as usize).map_or(0, |root| root.nodes);
        if root >= self.limits.nodes_per_root {
            return Err(Error::TreeFull { limit: self.limits.nodes_per_root });
        }
        self.holders.may_hold(child.owner)?;
        let slot = self.take_slot();
        let node = Node {
            owner: child.owner,
            object: from.object,
            parent: parent.slot,
            next_sibling: from.first_child,
            root: from.root,
            offset: from.offset + offset,
            bytes,
            kind,
            access,
            ..Node::vacant(0)
        };
        if let Some(first) = self.nodes.get_mut(from.first_child as usize) {
            first.previous_sibling = slot;
        }
        if let Some(parent) = self.nodes.get_mut(parent.slot as usize) {
            parent.first_child = slot;
        }
        if let Some(root) = self.nodes.get_mut(from.root as usize) {
            root.nodes += 1;
        }
        Ok(self.put(slot, node))
    }

    /// The capability that a handle names for an owner, if it allows that much. The hot path: one cache line, no walk.
    #[inline]
    fn check(
        &self,
        owner: Owner,
        handle: Handle,
        access: Access,
        offset: u64,
        bytes: u64,
    ) -> Result<&Node, Error> {
        let node = self.nodes.get(handle.slot as usize).ok_or(Error::Stale { handle })?;
        // A slot that is not in use has no owner.
        if node.generation != handle.generation || node.owner != owner && !self.is(Mutant::IgnoreOwner) {
            return Err(Error::Stale { handle });
        }
        if access > node.access {
            return Err(Error::NotAllowed { handle, allowed: node.access });
        }
        if offset > node.bytes || bytes > node.bytes - offset {
            return Err(Error::OutOfReach { handle, offset, bytes, reach: node.bytes });
        }
        Ok(node)
    }

    /// The object that a handle names for an owner, if it allows what is needed.
    #[inline]
    pub fn get(&self, owner: Owner, handle: Handle, need: Need) -> Result<ObjectId, Error> {
        let node = self.check(owner, handle, need.access, need.offset, need.bytes)?;
        if node.kind != need.kind {
            return Err(Error::WrongKind { handle, found: node.kind, expected: need.kind });
        }
        Ok(node.object)
    }

    /// What a handle names for an owner.
    pub fn look(&self, owner: Owner, handle: Handle) -> Result<View, Error> {
        self.check(owner, handle, Access::Read, 0, 0).map(|node| self.view(node))
    }

    /// Admits work on a line of the owner's or of nobody's: every capability it names is checked, then each object
    /// remembers the work's mark, which is answered.
    #[inline]
    pub fn submit(&mut self, owner: Owner, line: Line, names: &[(Handle, Need)]) -> Result<u64, Error> {
        // Most work names a few: what they name is looked up once.
        let mut few = [ObjectId(u32::MAX); NAMES_FEW];
        for (index, (handle, need)) in names.iter().enumerate() {
            let object = self.get(owner, *handle, *need)?;
            if let Some(place) = few.get_mut(index) {
                *place = object;
            }
        }
        let mark = self.lines.advance(line, Some(owner))?;
        if self.is(Mutant::ForgetUse) {
            return Ok(mark);
        }
        for object in few.iter().take(names.len()) {
            self.usage.used(*object, line, mark);
        }
        for (handle, _) in names.iter().skip(NAMES_FEW) {
            if let Some(node) = self.nodes.get(handle.slot as usize) {
                self.usage.used(node.object, line, mark);
            }
        }
        Ok(mark)
    }

    /// Notes that an object is in use on a line until the mark that is answered has passed there. One that is quiescent
    /// may be given back at any moment: nobody may use it.
    pub fn uses(&mut self, line: Line, object: ObjectId) -> Result<u64, Error> {
        let forget = self.is(Mutant::ForgetUse);
        let known = self.objects.get_mut(object.0 as usize).ok_or(Error::Unknown("object"))?;
        match known.state {
            ObjectState::Live | ObjectState::Draining | ObjectState::Quarantined => {}
            ObjectState::Quiescent | ObjectState::Free => return Err(Error::Unknown("object")),
        }
        let mark = self.lines.advance(line, None)?;
        if !forget {
            self.usage.used(object, line, mark);
        }
        Ok(mark)
    }

    /// What has become of an object.
    #[must_use]
    pub fn object(&self, object: ObjectId) -> ObjectState {
        self.objects.get(object.0 as usize).map_or(ObjectState::Free, |object| object.state)
    }

    pub(crate) fn view(&self, node: &Node) -> View {
        let parent = self.nodes.get(node.parent as usize).map(|parent| parent.handle(node.parent));
        View {
            owner: node.owner,
            kind: node.kind,
            access: node.access,
            object: node.object,
            offset: node.offset,
            bytes: node.bytes,
            parent,
        }
    }

    /// Gives an object back that no capability names and no work uses.
    pub fn free(&mut self, object: ObjectId) -> Result<(), Error> {
        let known = self.objects.get_mut(object.0 as usize).ok_or(Error::Unknown("object"))?;
        match known.state {
            ObjectState::Quiescent => known.state = ObjectState::Free,
            ObjectState::Free => return Err(Error::Unknown("object")),
            ObjectState::Live | ObjectState::Draining | ObjectState::Quarantined => return Err(Error::InUse),
        }
        self.objects_free.push_back(object.0);
        Ok(())
    }
}

/// What most work names at most.
const NAMES_FEW: usize = 8;

/// Puts a value into a free place, or a new one.
pub(crate) fn place<T>(table: &mut Vec<T>, free: Option<u32>, value: T) -> u32 {
    if let Some(index) = free
        && let Some(place) = table.get_mut(index as usize)
    {
        *place = value;
        return index;
    }
    let Ok(index) = u32::try_from(table.len()) else { unreachable!("limits keep tables below 2^32") };
    table.push(value);
    index
}
