//! Calls that ask what a graph has, and change which node waits for which.

use super::{GRAPH_EDGES_MAX, Nodes, graph, node};
use crate::abi::{EdgeData, InOut, InSlice, Out, OutList};
use crate::driver::driver;
use crate::status::{Answer, Status};

/// Tells a list as CUDA does: how long it is, and as much of it as there is room for, with zeros behind.
fn tell<const LISTS: usize>(
    rows: &[[u64; LISTS]],
    to: [&OutList<u64>; LISTS],
    edges: Option<&OutList<EdgeData>>,
    count: &InOut<usize>,
) -> Answer {
    let wanted = to.iter().filter(|list| list.wanted().is_some()).count();
    if wanted == 0 {
        count.set(rows.len());
        return Ok(());
    }
    if wanted != LISTS {
        return Err(Status::INVALID_VALUE);
    }
    let room = count.get();
    // A program may claim any room; what is written beyond the list is bounded by what there could be.
    if room > GRAPH_EDGES_MAX {
        return Err(Status::INVALID_VALUE);
    }
    let told = room.min(rows.len());
    for (at, list) in to.iter().enumerate() {
        let mut values: Vec<u64> = rows.iter().take(told).filter_map(|row| row.get(at).copied()).collect();
        values.resize(room, 0);
        if let Some(list) = list.wanted() {
            list.write(&values);
        }
    }
    if let Some(edges) = edges.and_then(OutList::wanted) {
        edges.write(&vec![EdgeData::default(); room]);
    }
    count.set(told);
    Ok(())
}

fn single(values: Vec<u64>) -> Vec<[u64; 1]> {
    values.into_iter().map(|value| [value]).collect()
}

pub(crate) fn list(handle: u64, to: OutList<u64>, count: InOut<usize>) -> Answer {
    let graph = graph(driver()?, handle)?;
    let handles = graph.lock().iter().map(|(_, node)| node.handle).collect();
    tell(&single(handles), [&to], None, &count)
}

pub(crate) fn roots(handle: u64, to: OutList<u64>, count: InOut<usize>) -> Answer {
    let graph = graph(driver()?, handle)?;
    let roots = {
        let nodes = graph.lock();
        nodes.iter().filter(|(_, node)| node.before.is_empty()).map(|(_, node)| node.handle).collect()
    };
    tell(&single(roots), [&to], None, &count)
}

fn all_edges(nodes: &Nodes) -> Result<Vec<[u64; 2]>, Status> {
    let mut edges = Vec::with_capacity(nodes.edges);
    for (_, node) in nodes.iter() {
        for before in &node.before {
            edges.push([nodes.get(*before)?.handle, node.handle]);
        }
    }
    Ok(edges)
}

pub(crate) fn edges(handle: u64, from: OutList<u64>, to: OutList<u64>, count: InOut<usize>) -> Answer {
    let graph = graph(driver()?, handle)?;
    let edges = all_edges(&graph.lock())?;
    tell(&edges, [&from, &to], None, &count)
}

pub(crate) fn edges_2(
    handle: u64,
    from: OutList<u64>,
    to: OutList<u64>,
    data: OutList<EdgeData>,
    count: InOut<usize>,
) -> Answer {
    let graph = graph(driver()?, handle)?;
    let edges = all_edges(&graph.lock())?;
    tell(&edges, [&from, &to], Some(&data), &count)
}

fn before(handle: u64) -> Result<Vec<u64>, Status> {
    let (graph, id) = node(driver()?, handle)?;
    let nodes = graph.lock();
    nodes.handles(&nodes.get(id)?.before)
}

fn behind(handle: u64) -> Result<Vec<u64>, Status> {
    let (graph, id) = node(driver()?, handle)?;
    let nodes = graph.lock();
    Ok(nodes.iter().filter(|(_, node)| node.before.contains(&id)).map(|(_, node)| node.handle).collect())
}

pub(crate) fn dependencies(handle: u64, to: OutList<u64>, count: InOut<usize>) -> Answer {
    tell(&single(before(handle)?), [&to], None, &count)
}

pub(crate) fn dependencies_2(
    handle: u64,
    to: OutList<u64>,
    data: OutList<EdgeData>,
    count: InOut<usize>,
) -> Answer {
    tell(&single(before(handle)?), [&to], Some(&data), &count)
}

pub(crate) fn dependents(handle: u64, to: OutList<u64>, count: InOut<usize>) -> Answer {
    tell(&single(behind(handle)?), [&to], None, &count)
}

pub(crate) fn dependents_2(
    handle: u64,
    to: OutList<u64>,
    data: OutList<EdgeData>,
    count: InOut<usize>,
) -> Answer {
    tell(&single(behind(handle)?), [&to], Some(&data), &count)
}

/// What becomes of dependencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Add,
    Remove,
}

fn change(handle: u64, from: &InSlice<u64>, to: &InSlice<u64>, count: usize, change: Change) -> Answer {
    if count > GRAPH_EDGES_MAX {
        return Err(Status::INVALID_VALUE);
    }
    let graph = graph(driver()?, handle)?;
    if change == Change::Remove && graph.has_storage() {
        return Err(Status::NOT_SUPPORTED);
    }
    let from = graph.numbers(&from.read(count)?)?;
    let to = graph.numbers(&to.read(count)?)?;
    let mut nodes = graph.lock();
    // All or none: checked first, and a pair that is named twice is the second time no longer as it has to be.
    let mut done = 0;
    let mut result = Ok(());
    for (from, to) in from.iter().zip(&to) {
        result = change_one(&mut nodes, *from, *to, change);
        if result.is_err() {
            break;
        }
        done += 1;
    }
    if result.is_err() {
        let undo = if change == Change::Add { Change::Remove } else { Change::Add };
        for (from, to) in from.iter().zip(&to).take(done) {
            change_one(&mut nodes, *from, *to, undo)?;
        }
    }
    result
}

fn change_one(nodes: &mut Nodes, from: u32, to: u32, change: Change) -> Answer {
    if nodes.edges >= GRAPH_EDGES_MAX && change == Change::Add {
        return Err(Status::OUT_OF_MEMORY);
    }
    let before = &mut nodes.get_mut(to)?.before;
    let known = before.iter().position(|other| *other == from);
    match (change, known) {
        (Change::Add, None) if from != to => {
            before.push(from);
            nodes.edges += 1;
        }
        (Change::Remove, Some(at)) => {
            before.remove(at);
            nodes.edges -= 1;
        }
        (Change::Add | Change::Remove, _) => return Err(Status::INVALID_VALUE),
    }
    Ok(())
}

pub(crate) fn add_dependencies(handle: u64, from: InSlice<u64>, to: InSlice<u64>, count: usize) -> Answer {
    change(handle, &from, &to, count, Change::Add)
}

pub(crate) fn add_dependencies_2(
    handle: u64,
    from: InSlice<u64>,
    to: InSlice<u64>,
    data: InSlice<EdgeData>,
    count: usize,
) -> Answer {
    data.check(count)?;
    change(handle, &from, &to, count, Change::Add)
}

pub(crate) fn remove_dependencies(handle: u64, from: InSlice<u64>, to: InSlice<u64>, count: usize) -> Answer {
    change(handle, &from, &to, count, Change::Remove)
}

pub(crate) fn remove_dependencies_2(
    handle: u64,
    from: InSlice<u64>,
    to: InSlice<u64>,
    data: InSlice<EdgeData>,
    count: usize,
) -> Answer {
    data.check(count)?;
    change(handle, &from, &to, count, Change::Remove)
}

pub(crate) fn kind(handle: u64, to: Out<u32>) -> Answer {
    let (graph, id) = node(driver()?, handle)?;
    let kind = graph.lock().get(id)?.work.kind();
    to.set(kind);
    Ok(())
}

pub(crate) fn destroy_node(handle: u64) -> Answer {
    let driver = driver()?;
    let (graph, id) = node(driver, handle)?;
    if graph.has_storage() {
        return Err(Status::NOT_SUPPORTED);
    }
    driver.graphs.nodes.remove(handle).map_err(|_| Status::INVALID_VALUE)?;
    let mut nodes = graph.lock();
    let gone = nodes.list.get_mut(id as usize).and_then(Option::take).ok_or(Status::INVALID_VALUE)?;
    let mut edges = gone.before.len();
    for node in nodes.list.iter_mut().flatten() {
        let count = node.before.len();
        node.before.retain(|other| *other != id);
        edges += count - node.before.len();
    }
    nodes.edges -= edges;
    drop(nodes);
    // Without the lock: a child graph ends with it.
    drop(gone);
    Ok(())
}
