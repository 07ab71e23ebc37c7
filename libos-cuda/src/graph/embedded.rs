//! Graphs that are nodes of other graphs.

use std::sync::Arc;

use super::Graph;
use crate::status::Status;

/// A graph of a node's own.
pub(crate) struct Embedded {
    graph: Arc<Graph>,
    handle: u64,
}

impl Embedded {
    /// A copy of `graph`; `around` graphs lie around it.
    pub(super) fn new(graph: &Arc<Graph>, around: usize) -> Result<Arc<Embedded>, Status> {
        let graph = graph.copy(around)?;
        let handle = graph.graphs.insert(graph.clone())?;
        Ok(Arc::new(Embedded { graph, handle }))
    }

    /// The graph.
    pub(super) fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    /// By which the program reaches the graph.
    pub(super) fn handle(&self) -> u64 {
        self.handle
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        // Its own entry; a program cannot destroy it.
        self.graph.end(self.handle);
    }
}
