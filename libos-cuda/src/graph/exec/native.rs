//! Executable graphs of isolated sessions as graphs of the device: written down when they are made, launched by one record
//! (docs/decisions/0071).
//!
//! Only those all of whose nodes are kernels, fills, copies on the device, memory and empty ones. Others are launched node by
//! node.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::flat::Step;
use super::super::plan::Plan;
use super::super::work::Work;
use super::Native;
use crate::device::{Domain, Fence, GraphWork, Stream};
use crate::driver::Driver;
use crate::status::Status;
use crate::{copy_shaped, fill};

/// Calls `then` with what a step has a node do; `None` where no node does that.
fn with_node<R>(driver: &'static Driver, work: &Work, then: impl FnOnce(&GraphWork<'_>) -> R) -> Option<R> {
    match work {
        // Memory of nodes is there all the time: when it is the program's is this process's to know.
        Work::Empty | Work::Allocate(_) | Work::Free(_) => Some(then(&GraphWork::Nothing)),
        Work::Kernel(kernel) => kernel.with_node(driver, then).ok(),
        Work::Copy(copy) => {
            let (to, from) = copy_shaped::on_device(driver, copy)?;
            Some(then(&GraphWork::Copy { to, from }))
        }
        Work::Fill(node) => {
            let (to, pattern) = fill::in_one(driver, node)?;
            Some(then(&GraphWork::Fill { to, pattern }))
        }
        Work::Host(..) | Work::Child(_) | Work::Record(_) | Work::Wait(_) => None,
    }
}

impl Native {
    /// Writes a graph down; `None` where it is launched node by node.
    pub(super) fn of(driver: &'static Driver, steps: &[Step], plan: &Plan) -> Option<Native> {
        if driver.domain != Domain::Isolated || steps.is_empty() {
            return None;
        }
        if !steps.iter().all(|step| with_node(driver, &step.work, |_| ()).is_some()) {
            return None;
        }
        let mut graph = driver.session.create_graph().ok()?;
        let mut nodes = vec![0; steps.len()];
        for (number, placed) in (0..).zip(&plan.steps) {
            let step = steps.get(placed.step)?;
            let before: Option<Vec<u32>> = step.before.iter().map(|at| nodes.get(*at).copied()).collect();
            let before = before?;
            let follows = before.iter().copied().eq(u32::checked_sub(number, 1));
            let after = (!follows).then_some(before.as_slice());
            *nodes.get_mut(placed.step)? =
                with_node(driver, &step.work, |work| graph.add(after, work))?.ok()?;
        }
        graph.finish().ok()?;
        Some(Native { graph, nodes, changed: BTreeSet::new() })
    }

    /// Launches it, with what has changed; `None` where something changed to what no node does, and nothing was launched.
    pub(super) fn launch(
        &mut self,
        driver: &'static Driver,
        steps: &[Step],
        stream: Stream,
    ) -> Result<Option<Fence>, Status> {
        for at in &self.changed {
            let (step, node) = steps.get(*at).zip(self.nodes.get(*at)).ok_or(Status::UNKNOWN)?;
            let graph = &mut self.graph;
            let Some(changed) = with_node(driver, &step.work, |work| graph.change(stream, *node, work))
            else {
                return Ok(None);
            };
            changed.map_err(|error| Status::of(&error))?;
        }
        self.changed.clear();
        self.graph.launch(stream).map(Some).map_err(|error| Status::of(&error))
    }
}

/// Whether two steps of the same kind do the same.
pub(super) fn is_same(old: &Work, new: &Work) -> bool {
    match (old, new) {
        (Work::Kernel(old), Work::Kernel(new)) => old.is_same(new),
        (Work::Copy(old), Work::Copy(new)) => old == new,
        (Work::Fill(old), Work::Fill(new)) => old == new,
        (Work::Empty, Work::Empty) => true,
        (Work::Allocate(old), Work::Allocate(new)) | (Work::Free(old), Work::Free(new)) => {
            Arc::ptr_eq(old, new)
        }
        _ => false,
    }
}
