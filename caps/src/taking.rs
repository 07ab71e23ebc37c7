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
        let root = self.nodes.get(top as usize).map_or(NONE, |node| node.root);
        let mut at = top;
        let mut count = 0;
        self.walks += 1;
        while let Some(node) = self.nodes.get(at as usize).copied() {
            if node.first_child != NONE {
                if self.is(Mutant::ShallowRevoke) && at != top {
                    self.orphan(at);
                    continue;
                }
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
        } else if let Ok(holder) = self.holders.find_mut(node.owner) {
            holder.first = node.next_of_owner;
        }
    }

    /// Ends a node that is in no list any more: its handle names nothing from here on.
    fn retire(&mut self, slot: u32, node: &Node, deadline_ns: u64) {
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
        let keep_charge = self.is(Mutant::KeepCharge);
        if let Ok(holder) = self.holders.find_mut(node.owner) {
            holder.held -= u32::from(!keep_charge);
            // All nodes of a walk are of one object.
            if std::mem::replace(&mut holder.walk, self.walks) != self.walks {
                self.touched.push((node.object, node.owner));
            }
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
