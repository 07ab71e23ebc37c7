//! The tree: every capability of one device.

use std::collections::VecDeque;

use bulkhead_schema::Handle;

use crate::{
    Access, Error, Kind, Line, ObjectId, ObjectState,
    line::Timeline,
    node::{NONE, Node, State},
    object::Object,
    revocation::Revocations,
};

/// Who holds capabilities: a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(pub(crate) u32);

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
    /// What it was.
    pub view: View,
}

#[derive(Debug)]
struct Holder {
    held: u32,
    limit: u32,
    first: u32,
    open: bool,
}

/// Every capability of one device, with the objects they name and the lines that use those.
#[derive(Debug)]
pub struct Tree {
    nodes: Vec<Node>,
    /// Free slots; the one that was freed first is used first, so that generations wear evenly.
    free: VecDeque<u32>,
    live: u32,
    holders: Vec<Holder>,
    holders_free: Vec<u32>,
    pub(crate) objects: Vec<Object>,
    objects_free: VecDeque<u32>,
    objects_made: u64,
    pub(crate) lines: Vec<Timeline>,
    lines_free: VecDeque<u32>,
    /// Objects that no capability names and that are not free.
    pub(crate) ending: Vec<ObjectId>,
    pub(crate) revocations: Revocations,
    limits: Limits,
}

impl Tree {
    /// A tree without capabilities.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            nodes: Vec::new(),
            free: VecDeque::new(),
            live: 0,
            holders: Vec::new(),
            holders_free: Vec::new(),
            objects: Vec::new(),
            objects_free: VecDeque::new(),
            objects_made: 0,
            lines: Vec::new(),
            lines_free: VecDeque::new(),
            ending: Vec::new(),
            revocations: Revocations::default(),
            limits,
        }
    }

    /// How many capabilities there are.
    #[must_use]
    pub fn live(&self) -> u32 {
        self.live
    }

    // ---- owners ----

    /// A new owner, of up to `limit` capabilities.
    pub fn open_owner(&mut self, limit: u32) -> Owner {
        let holder = Holder { held: 0, limit, first: NONE, open: true };
        Owner(place(&mut self.holders, self.holders_free.pop(), holder))
    }

    /// Forgets an owner that holds nothing.
    pub fn close_owner(&mut self, owner: Owner) -> Result<(), Error> {
        let holder = self.holder_mut(owner)?;
        if holder.held > 0 {
            return Err(Error::InUse);
        }
        holder.open = false;
        self.holders_free.push(owner.0);
        Ok(())
    }

    /// How many capabilities an owner holds.
    #[must_use]
    pub fn held(&self, owner: Owner) -> u32 {
        self.holder(owner).map_or(0, |holder| holder.held)
    }

    /// The capabilities of an owner, the latest first.
    pub fn of_owner(&self, owner: Owner) -> impl Iterator<Item = (Handle, View)> {
        let mut at = self.holder(owner).map_or(NONE, |holder| holder.first);
        std::iter::from_fn(move || {
            let node = self.nodes.get(at as usize)?;
            let found = (node.handle(at), self.view(node));
            at = node.next_of_owner;
            Some(found)
        })
    }

    fn holder(&self, owner: Owner) -> Option<&Holder> {
        self.holders.get(owner.0 as usize).filter(|holder| holder.open)
    }

    fn holder_mut(&mut self, owner: Owner) -> Result<&mut Holder, Error> {
        let holder = self.holders.get_mut(owner.0 as usize).filter(|holder| holder.open);
        holder.ok_or(Error::Unknown("owner"))
    }

    // ---- lines ----

    /// A new line; a session's is its owner's, a module's is nobody's.
    pub fn open_line(&mut self, owner: Option<Owner>) -> Line {
        let line = Timeline { owner, submitted: 0, completed: 0, open: true };
        // A line that was closed is not used again while a revocation remembers a mark on it.
        let reusable = self.lines_free.front().copied();
        let reusable = reusable.filter(|line| !self.revocations.remember(Line(*line)));
        if reusable.is_some() {
            self.lines_free.pop_front();
        }
        Line(place(&mut self.lines, reusable, line))
    }

    /// The work of a line is known to be gone: its context, its process or its session is.
    pub fn close_line(&mut self, line: Line) -> Result<(), Error> {
        let timeline = self.line_mut(line)?;
        timeline.open = false;
        for object in &mut self.objects {
            object.last_use.retain(|(used, _)| *used != line);
        }
        self.lines_free.push_back(line.0);
        Ok(())
    }

    /// Everything up to `mark` has passed on a line.
    pub fn completed(&mut self, line: Line, mark: u64) -> Result<(), Error> {
        let timeline = self.line_mut(line)?;
        timeline.completed = timeline.completed.max(mark.min(timeline.submitted));
        Ok(())
    }

    fn line_mut(&mut self, line: Line) -> Result<&mut Timeline, Error> {
        self.lines.get_mut(line.0 as usize).filter(|line| line.open).ok_or(Error::Unknown("line"))
    }

    // ---- capabilities ----

    /// A new object with its first capability, which reaches all of its `bytes`.
    pub fn create(&mut self, owner: Owner, kind: Kind, bytes: u64) -> Result<(Handle, ObjectId), Error> {
        self.may_hold(owner)?;
        let made = Object::new(self.objects_made);
        self.objects_made += 1;
        let object = ObjectId(place(&mut self.objects, self.objects_free.pop_front(), made));
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
        let from = *self.check(owner, parent, access, offset, bytes)?;
        if !from.kind.may_derive(kind) {
            return Err(Error::WrongKind { handle: parent, found: from.kind, expected: kind });
        }
        let root = self.nodes.get(from.root as usize).map_or(0, |root| root.nodes);
        if root >= self.limits.nodes_per_root {
            return Err(Error::TreeFull { limit: self.limits.nodes_per_root });
        }
        self.may_hold(child.owner)?;
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
        if node.generation != handle.generation || node.owner != owner {
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

    /// Admits work on a line: every capability it names is checked, then each object remembers the work's mark, which
    /// is answered.
    #[inline]
    pub fn submit(&mut self, owner: Owner, line: Line, names: &[(Handle, Need)]) -> Result<u64, Error> {
        for (handle, need) in names {
            self.get(owner, *handle, *need)?;
        }
        let timeline = self.line_mut(line)?;
        timeline.submitted += 1;
        let mark = timeline.submitted;
        for (handle, _) in names {
            let object = self.nodes.get(handle.slot as usize).map(|node| node.object.0 as usize);
            if let Some(object) = object.and_then(|object| self.objects.get_mut(object)) {
                object.used(line, mark);
            }
        }
        Ok(mark)
    }

    /// Notes that an object is in use on a line until the mark that is answered has passed there.
    pub fn uses(&mut self, line: Line, object: ObjectId) -> Result<u64, Error> {
        let timeline = self.line_mut(line)?;
        timeline.submitted += 1;
        let mark = timeline.submitted;
        let known =
            self.objects.get_mut(object.0 as usize).filter(|object| object.state != ObjectState::Free);
        known.ok_or(Error::Unknown("object"))?.used(line, mark);
        Ok(mark)
    }

    /// What has become of an object.
    #[must_use]
    pub fn object(&self, object: ObjectId) -> ObjectState {
        self.objects.get(object.0 as usize).map_or(ObjectState::Free, |object| object.state)
    }

    fn view(&self, node: &Node) -> View {
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

    fn may_hold(&self, owner: Owner) -> Result<(), Error> {
        let holder = self.holder(owner).ok_or(Error::Unknown("owner"))?;
        if holder.held >= holder.limit { Err(Error::Full { limit: holder.limit }) } else { Ok(()) }
    }

    fn take_slot(&mut self) -> u32 {
        match self.free.pop_front() {
            Some(slot) => slot,
            None => place(&mut self.nodes, None, Node::vacant(1)),
        }
    }

    /// Puts a capability into a slot: it is live, counted and named from here on.
    fn put(&mut self, slot: u32, node: Node) -> Handle {
        let mut first = NONE;
        if let Some(holder) = self.holders.get_mut(node.owner.0 as usize) {
            holder.held += 1;
            first = std::mem::replace(&mut holder.first, slot);
        }
        if let Some(next) = self.nodes.get_mut(first as usize) {
            next.previous_of_owner = slot;
        }
        if let Some(object) = self.objects.get_mut(node.object.0 as usize) {
            object.nodes += 1;
        }
        self.live += 1;
        let Some(place) = self.nodes.get_mut(slot as usize) else { unreachable!("slots are in the table") };
        let generation = place.generation;
        *place = Node { generation, next_of_owner: first, state: State::Live, ..node };
        Handle { slot, generation }
    }

    /// Takes the descendants of a live node, and itself where that is asked for, out of the tree, leaves first. Each is
    /// given to `ended` after its handle has ceased to name anything.
    pub(crate) fn take(&mut self, top: u32, extent: Extent, deadline_ns: u64, mut ended: impl FnMut(Ended)) {
        let root = self.nodes.get(top as usize).map_or(NONE, |node| node.root);
        let mut at = top;
        let mut count = 0;
        while let Some(node) = self.nodes.get(at as usize).copied() {
            if node.first_child != NONE {
                at = node.first_child;
                continue;
            }
            if at == top && extent == Extent::Descendants {
                break;
            }
            let view = self.view(&node);
            self.unlink(&node);
            self.retire(at, &node, deadline_ns);
            count += 1;
            ended(Ended { handle: node.handle(at), view });
            if at == top {
                break;
            }
            at = node.parent;
        }
        if let Some(root) = self.nodes.get_mut(root as usize).filter(|node| node.state == State::Live) {
            root.nodes -= count;
        }
    }

    /// Takes a node out of its parent's and its owner's lists.
    fn unlink(&mut self, node: &Node) {
        if let Some(next) = self.nodes.get_mut(node.next_sibling as usize) {
            next.previous_sibling = node.previous_sibling;
        }
        if let Some(previous) = self.nodes.get_mut(node.previous_sibling as usize) {
            previous.next_sibling = node.next_sibling;
        } else if let Some(parent) = self.nodes.get_mut(node.parent as usize) {
            parent.first_child = node.next_sibling;
        }
        if let Some(next) = self.nodes.get_mut(node.next_of_owner as usize) {
            next.previous_of_owner = node.previous_of_owner;
        }
        if let Some(previous) = self.nodes.get_mut(node.previous_of_owner as usize) {
            previous.next_of_owner = node.next_of_owner;
        } else if let Some(holder) = self.holders.get_mut(node.owner.0 as usize) {
            holder.first = node.next_of_owner;
        }
    }

    /// Ends a node that is in no list any more: its handle names nothing from here on.
    fn retire(&mut self, slot: u32, node: &Node, deadline_ns: u64) {
        let last = self.limits.last_generation;
        if let Some(place) = self.nodes.get_mut(slot as usize) {
            let generation = node.generation;
            // The generation after the last is never issued, so a retired slot answers to no handle.
            *place = Node::vacant(generation.wrapping_add(1));
            if generation >= last {
                place.state = State::Retired;
            } else {
                self.free.push_back(slot);
            }
        }
        if let Some(holder) = self.holders.get_mut(node.owner.0 as usize) {
            holder.held -= 1;
        }
        self.live -= 1;
        if let Some(object) = self.objects.get_mut(node.object.0 as usize) {
            object.nodes -= 1;
            if object.nodes == 0 {
                object.state = ObjectState::Draining;
                object.deadline_ns = deadline_ns;
                self.ending.push(node.object);
            }
        }
    }

    /// The slot that a handle names for an owner.
    pub(crate) fn slot_of(&self, owner: Owner, handle: Handle) -> Result<u32, Error> {
        self.check(owner, handle, Access::Read, 0, 0).map(|_| handle.slot)
    }

    /// The first capability of an owner.
    pub(crate) fn first_of(&self, owner: Owner) -> Option<u32> {
        self.holder(owner).map(|holder| holder.first).filter(|first| *first != NONE)
    }

    /// Gives an object back that no capability names and no work uses.
    pub fn free(&mut self, object: ObjectId) -> Result<(), Error> {
        let known = self.objects.get_mut(object.0 as usize).ok_or(Error::Unknown("object"))?;
        match known.state {
            ObjectState::Quiescent => {}
            ObjectState::Free => return Err(Error::Unknown("object")),
            ObjectState::Live | ObjectState::Draining | ObjectState::Quarantined => return Err(Error::InUse),
        }
        known.state = ObjectState::Free;
        known.last_use = Vec::new();
        self.objects_free.push_back(object.0);
        self.ending.retain(|ending| *ending != object);
        Ok(())
    }
}

/// Puts a value into a free place, or a new one.
fn place<T>(table: &mut Vec<T>, free: Option<u32>, value: T) -> u32 {
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
