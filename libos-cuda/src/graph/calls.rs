//! Calls about graphs.

use std::sync::{Arc, Weak};

use super::{Graph, named};
use crate::abi::{Out, Text};
use crate::driver::{Driver, driver};
use crate::moving::keep;
use crate::status::{Answer, Status};

/// The graph of a handle.
pub(crate) fn graph(driver: &Driver, handle: u64) -> Result<Arc<Graph>, Status> {
    driver.graphs.graphs.get(handle).map_err(|_| Status::INVALID_VALUE)
}

/// The graph that a node is of, and its number there.
pub(super) fn node(driver: &Driver, handle: u64) -> Result<(Arc<Graph>, u32), Status> {
    named(&driver.graphs.nodes, handle)
}

/// A new graph without nodes, and its handle.
pub(crate) fn make(driver: &'static Driver) -> Result<(Arc<Graph>, u64), Status> {
    keep()?;
    let graph = Arc::new(Graph::new(&driver.graphs.graphs, &driver.graphs.nodes, Weak::new(), 0));
    let handle = driver.graphs.graphs.insert(graph.clone())?;
    Ok((graph, handle))
}

pub(crate) fn create(to: Out<u64>, flags: u32) -> Answer {
    if flags != 0 {
        return Err(Status::INVALID_VALUE);
    }
    to.set(make(driver()?)?.1);
    Ok(())
}

pub(crate) fn destroy(handle: u64) -> Answer {
    let driver = driver()?;
    if graph(driver, handle)?.around > 0 {
        return Err(Status::INVALID_VALUE);
    }
    driver.graphs.graphs.remove(handle).map(drop).map_err(|_| Status::INVALID_VALUE)
}

pub(crate) fn clone(to: Out<u64>, handle: u64) -> Answer {
    let driver = driver()?;
    let copy = graph(driver, handle)?.copy(0)?;
    to.set(driver.graphs.graphs.insert(copy)?);
    Ok(())
}

pub(crate) fn find_in_clone(to: Out<u64>, original: u64, clone: u64) -> Answer {
    let driver = driver()?;
    let (original, id) = node(driver, original)?;
    let clone = graph(driver, clone)?;
    if !std::ptr::eq(clone.original.as_ptr(), Arc::as_ptr(&original)) {
        return Err(Status::INVALID_VALUE);
    }
    let handle = clone.lock().get(id)?.handle;
    to.set(handle);
    Ok(())
}

/// Writes a graph down in Graphviz's language.
pub(crate) fn print(handle: u64, path: Text, _flags: u32) -> Answer {
    let graph = graph(driver()?, handle)?;
    let nodes = graph.lock();
    let mut text = "digraph {\n".to_owned();
    for (id, node) in nodes.iter() {
        text.push_str(&format!("    n{id} [label=\"{id}: {}\"];\n", node.work.name()));
        for before in &node.before {
            text.push_str(&format!("    n{before} -> n{id};\n"));
        }
    }
    text.push_str("}\n");
    drop(nodes);
    std::fs::write(path.0, text).map_err(|_| Status::OPERATING_SYSTEM)
}
