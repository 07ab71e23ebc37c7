//! Graphs: work that is written down once and launched as often as the program likes.
//!
//! A *graph* is a list of nodes and of which waits for which. Programs make one node by node, or by having a stream write
//! down what it is given (`capture`). Launched is a copy that no longer changes by itself, an *executable graph* (`exec`).
//!
//! Graphs lie in this process, and a launch of one is the same calls to the session as its nodes would be one by one; but in isolated
//! sessions most are graphs of the device's as well, launched by one record (`exec/native.rs`).

mod calls;
mod doing;
mod embedded;
mod exec;
mod flat;
mod nodes;
mod parameters;
mod plan;
mod storage;
mod tables;
mod user_object;
mod work;

pub(crate) use calls::*;

use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};

pub(crate) use embedded::Embedded;
pub(crate) use exec::{
    destroy as exec_destroy, enabled, flags as exec_flags, instantiate, instantiate_with,
    instantiate_with_log, launch, set_child as exec_set_child, set_copy as exec_set_copy, set_enabled,
    set_fill as exec_set_fill, set_host as exec_set_host, set_kernel as exec_set_kernel,
    set_kernel_of_context as exec_set_kernel_of_context, set_parameters as exec_set_parameters,
    set_record as exec_set_record, set_wait as exec_set_wait, update, update_1, upload,
};
pub(crate) use nodes::*;
pub(crate) use parameters::*;
pub(crate) use storage::{
    Storage, Stored, add_allocation, add_freeing, allocation_parameters, at as storage_at,
    attribute as storage_attribute, free as free_storage, freeing_parameters,
    set_attribute as set_storage_attribute, trim as trim_storage,
};
pub(crate) use tables::Graphs;
pub(crate) use user_object::{
    create as create_object, release as release_object, release_by_graph, retain as retain_object,
    retain_by_graph,
};
pub(crate) use work::Work;

use crate::handle_tables::Table;
use crate::status::Status;
use user_object::Kept;

/// Nodes of one graph, those of its children counted.
const GRAPH_NODES_MAX: usize = 1 << 16;
/// Dependencies in one graph.
const GRAPH_EDGES_MAX: usize = 1 << 20;
/// How deep graphs may lie in one another.
const DEPTH_MAX: usize = 16;

/// What a node's handle stands for.
struct Name {
    graph: Weak<Graph>,
    id: u32,
}

/// A graph.
pub(crate) struct Graph {
    /// Where handles of graphs are, and those of nodes.
    graphs: &'static Table<Graph>,
    names: &'static Table<Name>,
    nodes: Mutex<Nodes>,
    /// The graph that it was cloned from, with the same numbers for the same nodes.
    original: Weak<Graph>,
    /// How many graphs lie around it: where there are any, it is a node of the innermost, and goes with that.
    around: usize,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Nodes {
    /// By number; `None` where a node was destroyed.
    list: Vec<Option<Node>>,
    edges: usize,
}

struct Node {
    handle: u64,
    work: Work,
    /// The numbers of the nodes that it waits for, in the program's order.
    before: Vec<u32>,
}

impl Nodes {
    fn get(&self, id: u32) -> Result<&Node, Status> {
        self.list.get(id as usize).and_then(Option::as_ref).ok_or(Status::INVALID_VALUE)
    }

    fn get_mut(&mut self, id: u32) -> Result<&mut Node, Status> {
        self.list.get_mut(id as usize).and_then(Option::as_mut).ok_or(Status::INVALID_VALUE)
    }

    /// All nodes with their numbers, in the order in which they were made.
    fn iter(&self) -> impl Iterator<Item = (u32, &Node)> {
        (0..).zip(&self.list).filter_map(|(id, node)| Some((id, node.as_ref()?)))
    }

    /// The same, as handles.
    fn handles(&self, of: &[u32]) -> Result<Vec<u64>, Status> {
        of.iter().map(|id| Ok(self.get(*id)?.handle)).collect()
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        for node in self.nodes.get_mut().list.drain(..).flatten() {
            // Its own entry, which nobody else takes out.
            self.names.remove(node.handle).ok();
        }
    }
}

impl Graph {
    fn new(
        graphs: &'static Table<Graph>,
        names: &'static Table<Name>,
        original: Weak<Graph>,
        around: usize,
    ) -> Graph {
        Graph { graphs, names, nodes: Mutex::default(), original, around, kept: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock()
    }

    /// Adds a node that waits for those of these numbers; its number and handle.
    pub(crate) fn add(self: &Arc<Self>, work: Work, before: &[u32]) -> Result<(u32, u64), Status> {
        let mut nodes = self.lock();
        if nodes.list.len() >= GRAPH_NODES_MAX || nodes.edges + before.len() > GRAPH_EDGES_MAX {
            return Err(Status::OUT_OF_MEMORY);
        }
        let mut sorted = before.to_vec();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair.first() == pair.last()) {
            return Err(Status::INVALID_VALUE);
        }
        for other in before {
            nodes.get(*other)?;
        }
        let id = u32::try_from(nodes.list.len()).map_err(|_| Status::OUT_OF_MEMORY)?;
        let handle = self.names.insert(Name { graph: Arc::downgrade(self), id }.into())?;
        nodes.list.push(Some(Node { handle, work, before: before.to_vec() }));
        nodes.edges += before.len();
        Ok((id, handle))
    }

    /// Ends the graph's handle, where the program has not ended it.
    pub(crate) fn end(&self, handle: u64) {
        self.graphs.remove(handle).ok();
    }

    /// The handles of nodes.
    pub(crate) fn handles(&self, of: &[u32]) -> Result<Vec<u64>, Status> {
        self.lock().handles(of)
    }

    /// The numbers of nodes, all of which have to be of this graph.
    pub(crate) fn numbers(&self, of: &[u64]) -> Result<Vec<u32>, Status> {
        let number = |handle: &u64| {
            let (graph, id) = named(self.names, *handle)?;
            if std::ptr::eq(Arc::as_ptr(&graph), self) { Ok(id) } else { Err(Status::INVALID_VALUE) }
        };
        of.iter().map(number).collect()
    }

    /// Whether every node of `these` is one of `ends`, or one that those wait for.
    pub(crate) fn lead_to(&self, these: &[u32], ends: &[u32]) -> bool {
        let nodes = self.lock();
        let mut seen = vec![false; nodes.list.len()];
        let mut left = ends.to_vec();
        while let Some(id) = left.pop() {
            if let Some(seen) = seen.get_mut(id as usize)
                && !std::mem::replace(seen, true)
                && let Ok(node) = nodes.get(id)
            {
                left.extend(&node.before);
            }
        }
        these.iter().all(|id| seen.get(*id as usize) == Some(&true))
    }

    /// A graph with the same nodes under the same numbers, with that many graphs around it.
    fn copy(self: &Arc<Self>, around: usize) -> Result<Arc<Graph>, Status> {
        if around >= DEPTH_MAX || self.has_storage() {
            return Err(Status::NOT_SUPPORTED);
        }
        let copy = Arc::new(Graph::new(self.graphs, self.names, Arc::downgrade(self), around));
        let nodes = self.lock();
        let mut copied = copy.lock();
        for (id, node) in (0..).zip(&nodes.list) {
            let Some(node) = node else {
                copied.list.push(None);
                continue;
            };
            let work = match &node.work {
                Work::Child(child) => Work::Child(Embedded::new(child.graph(), around + 1)?),
                plain => plain.clone(),
            };
            let handle = self.names.insert(Name { graph: Arc::downgrade(&copy), id }.into())?;
            copied.list.push(Some(Node { handle, work, before: node.before.clone() }));
        }
        copied.edges = nodes.edges;
        drop(copied);
        *copy.kept.lock() = self.kept.lock().copy();
        Ok(copy)
    }
}

impl Graph {
    /// Whether nodes of it, or of graphs in it, allocate or free: such a graph is neither copied nor cut.
    fn has_storage(&self) -> bool {
        self.lock().iter().any(|(_, node)| match &node.work {
            Work::Allocate(_) | Work::Free(_) => true,
            Work::Child(child) => child.graph().has_storage(),
            _ => false,
        })
    }
}

/// The graph that a node of these is of, and its number there.
fn named(names: &Table<Name>, handle: u64) -> Result<(Arc<Graph>, u32), Status> {
    let name = names.get(handle).map_err(|_| Status::INVALID_VALUE)?;
    Ok((name.graph.upgrade().ok_or(Status::INVALID_VALUE)?, name.id))
}
