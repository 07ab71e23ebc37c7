//! All graphs of the process.

use super::exec::{Exec, Lanes};
use super::storage::Stores;
use super::user_object::Named;
use super::{Graph, Name};
use crate::handle::Kind;
use crate::handle_tables::Table;

/// Graphs, and executable ones, that a program may hold at a time.
const GRAPHS_MAX: usize = 1 << 16;
/// Nodes of all graphs that a program may hold at a time.
const NODES_MAX: usize = 1 << 20;
/// Objects of its own that it may have graphs keep.
const OBJECTS_MAX: usize = 1 << 20;

/// All graphs of the process.
pub(crate) struct Graphs {
    pub(super) graphs: Table<Graph>,
    pub(super) nodes: Table<Name>,
    pub(super) execs: Table<Exec>,
    pub(super) lanes: Lanes,
    pub(super) stores: Stores,
    pub(super) objects: Table<Named>,
}

impl Graphs {
    pub(crate) fn new() -> Graphs {
        Graphs {
            graphs: Table::new(Kind::Graph, GRAPHS_MAX),
            nodes: Table::new(Kind::GraphNode, NODES_MAX),
            execs: Table::new(Kind::GraphExec, GRAPHS_MAX),
            lanes: Lanes::default(),
            stores: Stores::default(),
            objects: Table::new(Kind::UserObject, OBJECTS_MAX),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.graphs.is_empty() && self.execs.is_empty() && self.objects.is_empty()
    }
}
