//! A graph with the nodes of its children in the place of their nodes.

use super::{GRAPH_NODES_MAX, Graph, Work};
use crate::status::Status;

/// One node, or the beginning or the end of a child graph.
pub(super) struct Step {
    pub(super) node: u64,
    pub(super) work: Work,
    /// The steps that it waits for.
    pub(super) before: Vec<usize>,
    /// Behind it lie this many steps of a child graph, its end counted.
    pub(super) child: usize,
}

/// All steps of a graph, in the order in which its nodes were made.
pub(super) fn flatten(graph: &Graph) -> Result<Vec<Step>, Status> {
    let mut steps = Vec::new();
    add(graph, None, &mut steps)?;
    Ok(steps)
}

/// Adds a graph's steps, all of which wait for `begin`.
fn add(graph: &Graph, begin: Option<usize>, steps: &mut Vec<Step>) -> Result<(), Status> {
    let nodes = graph.lock();
    // First and last step of each node.
    let mut ends = vec![(0, 0); nodes.list.len()];
    for (id, node) in nodes.iter() {
        let first = steps.len();
        if first >= GRAPH_NODES_MAX {
            return Err(Status::OUT_OF_MEMORY);
        }
        let (work, child) = match &node.work {
            Work::Child(child) => (Work::Empty, Some(child)),
            plain => (plain.clone(), None),
        };
        steps.push(Step { node: node.handle, work, before: Vec::new(), child: 0 });
        if let Some(child) = child {
            add(child.graph(), Some(first), steps)?;
            let inside = steps.len();
            let mut is_last = vec![true; inside - first];
            for step in steps.get(first..).unwrap_or_default() {
                for before in &step.before {
                    if let Some(is_last) = before.checked_sub(first).and_then(|at| is_last.get_mut(at)) {
                        *is_last = false;
                    }
                }
            }
            let before =
                (first..inside).zip(is_last).filter_map(|(step, last)| last.then_some(step)).collect();
            steps.push(Step { node: 0, work: Work::Empty, before, child: 0 });
            if let Some(step) = steps.get_mut(first) {
                step.child = inside - first;
            }
        }
        if let Some(ends) = ends.get_mut(id as usize) {
            *ends = (first, steps.len() - 1);
        }
    }
    for (id, node) in nodes.iter() {
        let mut before: Vec<usize> =
            node.before.iter().filter_map(|other| ends.get(*other as usize).map(|ends| ends.1)).collect();
        if before.is_empty() {
            before.extend(begin);
        }
        if let Some(step) = ends.get(id as usize).and_then(|ends| steps.get_mut(ends.0)) {
            step.before = before;
        }
    }
    Ok(())
}
