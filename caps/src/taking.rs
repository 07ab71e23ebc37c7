//! Putting capabilities into the tree, and taking them out again.

use bulkhead_schema::Handle;

use crate::{
    Ended, Extent, Mutant, ObjectState, Tree,
    node::{NONE, Node, State},
    tree::place,
};

impl Tree {
    /// The slot that the next capability is put into.
    pub(crate) fn take_slot(&mut self) -> u32 {
        match self.free.pop_front() {
            Some(slot) => slot,
            None => place(&mut self.nodes, None, Node::vacant(1)),
        }
    }

    /// Puts a capability into a slot: it is live, counted and named from here on.
    pub(crate) fn put(&mut self, slot: u32, node: Node) -> Handle {
        let mut first = NONE;
        if let Ok(holder) = self.holders.find_mut(node.owner) {
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
        let mut count = 0;
        self.walks += 1;
        let Some(node) = self.nodes.get(top as usize) else { return };
        let heir = match extent {
            Extent::Whole => self.view(node).parent,
            Extent::Descendants => Some(node.handle(top)),
        };
        let mut at = self.first_leaf(top, top);
        while let Some(node) = self.nodes.get(at as usize).copied().filter(|_| at != top) {
            ended(Ended { heir, ..self.retire(at, &node) });
            count += 1;
            // What goes on below the next is gone on with first, and nothing is left below the parent after the last.
            at = match node.next_sibling {
                NONE => node.parent,
                next => self.first_leaf(next, top),
            };
        }
        let Some(node) = self.nodes.get_mut(top as usize) else { return };
        node.first_child = NONE;
        let node = *node;
        if extent == Extent::Whole {
            self.unlink(&node);
            ended(Ended { heir, ..self.retire(top, &node) });
            count += 1;
        }
        self.leave(&node, count, deadline_ns);
    }

    /// The first leaf below a node, or itself.
    fn first_leaf(&mut self, mut at: u32, top: u32) -> u32 {
        while let Some(child) = self.nodes.get(at as usize).map(|node| node.first_child)
            && child != NONE
        {
            if self.is(Mutant::ShallowRevoke) && at != top {
                self.orphan(at);
            } else {
                at = child;
            }
        }
        at
    }

    /// Takes a node out of its parent's children.
    fn unlink(&mut self, node: &Node) {
        if let Some(next) = self.nodes.get_mut(node.next_sibling as usize) {
            next.previous_sibling = node.previous_sibling;
        }
        if let Some(previous) = self.nodes.get_mut(node.previous_sibling as usize) {
            previous.next_sibling = node.next_sibling;
        } else if let Some(parent) = self.nodes.get_mut(node.parent as usize) {
            parent.first_child = node.next_sibling;
        }
    }

    /// Ends a node that nobody comes by any more in the tree, and takes it out of its owner's list: its handle names
    /// nothing from here on.
    fn retire(&mut self, slot: u32, node: &Node) -> Ended {
        if let Some(next) = self.nodes.get_mut(node.next_of_owner as usize) {
            next.previous_of_owner = node.previous_of_owner;
        }
        if let Some(previous) = self.nodes.get_mut(node.previous_of_owner as usize) {
            previous.next_of_owner = node.next_of_owner;
        }
        let keep_charge = self.is(Mutant::KeepCharge);
        if let Ok(holder) = self.holders.find_mut(node.owner) {
            if node.previous_of_owner == NONE {
                holder.first = node.next_of_owner;
            }
            holder.held -= u32::from(!keep_charge);
            // All nodes of a walk are of one object.
            if std::mem::replace(&mut holder.walk, self.walks) != self.walks {
                self.touched.push((node.object, node.owner));
            }
        }
        let last = self.limits.last_generation;
        let (keep, wrap) = (self.is(Mutant::KeepGeneration), self.is(Mutant::WrapGeneration));
        if let Some(place) = self.nodes.get_mut(slot as usize) {
            let generation = node.generation;
            // The generation after the last is never issued, so a retired slot answers to no handle.
            *place = Node::vacant(if keep { generation } else { generation.wrapping_add(1) });
            if generation >= last && !wrap {
                place.state = State::Retired;
            } else {
                if generation >= last {
                    place.generation = 1;
                }
                self.free.push_back(slot);
            }
        }
        Ended {
            handle: node.handle(slot),
            owner: node.owner,
            object: node.object,
            kind: node.kind,
            is_first: node.parent == NONE,
            heir: None,
        }
    }

    /// Counts what a walk from `top` has ended, all of one root and one object.
    fn leave(&mut self, top: &Node, count: u32, deadline_ns: u64) {
        if let Some(root) = self.nodes.get_mut(top.root as usize).filter(|node| node.state == State::Live) {
            root.nodes -= count;
        }
        self.live -= count;
        let early = self.is(Mutant::FreeUnsevered) || self.is(Mutant::SkipDrain);
        if let Some(object) = self.objects.get_mut(top.object.0 as usize) {
            object.nodes -= count;
            if count > 0 && object.nodes == 0 {
                object.state = ObjectState::Draining;
                object.deadline_ns = deadline_ns;
                self.ending.insert((deadline_ns, top.object));
                if early {
                    self.revocations.let_go_of(top.object);
                }
            }
        }
    }

    /// Makes roots of a node's children.
    fn orphan(&mut self, slot: u32) {
        let mut next =
            self.nodes.get_mut(slot as usize).map(|node| std::mem::replace(&mut node.first_child, NONE));
        while let Some((at, node)) = next.and_then(|at| Some((at, self.nodes.get_mut(at as usize)?))) {
            next = Some(node.next_sibling);
            (node.parent, node.previous_sibling, node.next_sibling) = (NONE, NONE, NONE);
            (node.root, node.nodes) = (at, u32::MAX / 2);
        }
    }
}
