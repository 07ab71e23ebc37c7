//! Changes of executable graphs: of one node, or of all to those of a graph of the same shape.

use super::kept::KeptByExec;
use super::native::is_same;
use super::{Exec, State, exec};
use crate::abi::{
    Copy3d, HostNode, In, InOut, KernelNode, KernelNodeOfContext, MemsetNode, NodeParameters, Out, OutMaybe,
    UpdateResult,
};
use crate::driver::{Driver, driver};
use crate::graph::flat::{Step, flatten};
use crate::graph::parameters::{CHILD, any, check_context, host, kernel, kernel_of_context};
use crate::graph::{Work, graph};
use crate::status::{Answer, Status};

/// `CUgraphExecUpdateResult`.
const SUCCESS: u32 = 0;
const ERROR: u32 = 1;
const TOPOLOGY_CHANGED: u32 = 2;
const KIND_CHANGED: u32 = 3;
const PARAMETERS_CHANGED: u32 = 5;
const ATTRIBUTES_CHANGED: u32 = 8;

/// Has the step of a node do other work of the same kind.
fn set(handle: u64, node: u64, work: impl FnOnce(&'static Driver, &Work) -> Result<Work, Status>) -> Answer {
    let driver = driver()?;
    let exec = exec(driver, handle)?;
    let at = *exec.places.get(&node).ok_or(Status::INVALID_VALUE)?;
    let mut state = exec.state.lock();
    let step = state.steps.get(at).ok_or(Status::INVALID_VALUE)?;
    let work = work(driver, &step.work)?;
    work.check(driver)?;
    step.work.check_change(&work)?;
    state.replace(at, work);
    Ok(())
}

impl State {
    /// Has a step do other work of the same kind.
    fn replace(&mut self, at: usize, work: Work) {
        let Some(step) = self.steps.get_mut(at) else { return };
        let is_same = is_same(&step.work, &work);
        step.work = work;
        if let Some(native) = self.native.as_mut().filter(|_| !is_same) {
            native.note(at);
        }
    }
}

pub(crate) fn set_kernel(exec: u64, node: u64, to: In<KernelNode>) -> Answer {
    set(exec, node, |driver, old| kernel(driver, &to.0, to.0.function, Some(old)))
}

pub(crate) fn set_kernel_of_context(exec: u64, node: u64, to: In<KernelNodeOfContext>) -> Answer {
    set(exec, node, |driver, old| kernel_of_context(driver, &to.0, Some(old)))
}

pub(crate) fn set_copy(exec: u64, node: u64, to: In<Copy3d>, context: u64) -> Answer {
    check_context(context)?;
    set(exec, node, |_, _| Ok(Work::Copy(Box::new(to.0))))
}

pub(crate) fn set_fill(exec: u64, node: u64, to: In<MemsetNode>, context: u64) -> Answer {
    check_context(context)?;
    set(exec, node, |_, _| Ok(Work::Fill(to.0)))
}

pub(crate) fn set_host(exec: u64, node: u64, to: In<HostNode>) -> Answer {
    set(exec, node, |_, _| host(&to.0))
}

pub(crate) fn set_record(exec: u64, node: u64, event: u64) -> Answer {
    set(exec, node, |_, _| Ok(Work::Record(event)))
}

pub(crate) fn set_wait(exec: u64, node: u64, event: u64) -> Answer {
    set(exec, node, |_, _| Ok(Work::Wait(event)))
}

pub(crate) fn set_parameters(exec: u64, node: u64, to: InOut<NodeParameters>) -> Answer {
    let to = to.get();
    if to.kind == CHILD {
        return set_child(exec, node, to.handle());
    }
    set(exec, node, |driver, old| any(driver, &to, Some(old)))
}

/// The steps of a child graph do what those of another graph of the same shape do.
pub(crate) fn set_child(handle: u64, node: u64, child: u64) -> Answer {
    let driver = driver()?;
    let exec = exec(driver, handle)?;
    let child = graph(driver, child)?;
    let new = flatten(&child)?;
    let at = *exec.places.get(&node).ok_or(Status::INVALID_VALUE)?;
    let mut state = exec.state.lock();
    let count = state.steps.get(at).map_or(0, |step| step.child);
    // Without a child's end, which is ours. A node without a child has none.
    let inside = count.checked_sub(1).ok_or(Status::INVALID_VALUE)?;
    let old = state.steps.get(at + 1..at + 1 + inside).ok_or(Status::INVALID_VALUE)?;
    if differ(old, &new, at + 1).is_some() {
        return Err(Status::INVALID_VALUE);
    }
    for (at, new) in (at + 1..).zip(new) {
        state.replace(at, new.work);
    }
    drop(state);
    exec.kept.lock().add(KeptByExec::of(&child));
    Ok(())
}

/// How two lists of steps differ in what an update cannot change, and the place of the first step that does. `first` is the place of the old
/// ones in their graph: what they wait for outside of themselves does not count.
fn differ(old: &[Step], new: &[Step], first: usize) -> Option<(u32, usize)> {
    if old.len() != new.len() {
        return Some((TOPOLOGY_CHANGED, usize::MAX));
    }
    for (at, (old, new)) in old.iter().zip(new).enumerate() {
        if old.work.kind() != new.work.kind() || old.child != new.child {
            return Some((KIND_CHANGED, at));
        }
        let inside = old.before.iter().filter_map(|before| before.checked_sub(first));
        if !inside.eq(new.before.iter().copied()) {
            return Some((TOPOLOGY_CHANGED, at));
        }
        match (&old.work, &new.work) {
            (Work::Kernel(old), Work::Kernel(new)) if old.blocks != new.blocks => {
                return Some((ATTRIBUTES_CHANGED, at));
            }
            (Work::Copy(old), Work::Copy(new))
                if (old.to.kind, old.from.kind) != (new.to.kind, new.from.kind) =>
            {
                return Some((PARAMETERS_CHANGED, at));
            }
            _ => {}
        }
    }
    None
}

/// What an update came to: the result, and the node of the new graph that it is about.
fn try_update(exec: &Exec, handle: u64) -> Result<(u32, u64), Status> {
    let driver = driver()?;
    let graph = graph(driver, handle)?;
    let new = flatten(&graph)?;
    for step in &new {
        if step.work.check(driver).is_err() {
            return Ok((ERROR, step.node));
        }
    }
    let mut state = exec.state.lock();
    if let Some((result, at)) = differ(&state.steps, &new, 0) {
        return Ok((result, new.get(at).map_or(0, |step| step.node)));
    }
    for (at, new) in new.into_iter().enumerate() {
        state.replace(at, new.work);
    }
    let last = state.last;
    drop(state);
    let mut old = std::mem::replace(&mut *exec.kept.lock(), KeptByExec::of(&graph));
    old.end(last);
    Ok((SUCCESS, 0))
}

pub(crate) fn update(handle: u64, graph: u64, to: InOut<UpdateResult>) -> Answer {
    let exec = exec(driver()?, handle)?;
    let (result, node) = try_update(&exec, graph)?;
    to.set(UpdateResult { result, padding: 0, node, from: 0 });
    if result == SUCCESS { Ok(()) } else { Err(Status::GRAPH_EXEC_UPDATE_FAILURE) }
}

pub(crate) fn update_1(handle: u64, graph: u64, error_node: OutMaybe<u64>, to: Out<u32>) -> Answer {
    let exec = exec(driver()?, handle)?;
    let (result, node) = try_update(&exec, graph)?;
    error_node.set(node);
    to.set(result);
    if result == SUCCESS { Ok(()) } else { Err(Status::GRAPH_EXEC_UPDATE_FAILURE) }
}

/// Kernels, copies and fills may be left out of later launches, and put in again.
pub(crate) fn set_enabled(handle: u64, node: u64, is_enabled: u32) -> Answer {
    let exec = exec(driver()?, handle)?;
    let mut state = exec.state.lock();
    let at = of_work(&exec, &state, node)?;
    if let Some(disabled) = state.disabled.get_mut(at) {
        *disabled = is_enabled == 0;
    }
    Ok(())
}

pub(crate) fn enabled(handle: u64, node: u64, to: Out<u32>) -> Answer {
    let exec = exec(driver()?, handle)?;
    let state = exec.state.lock();
    let at = of_work(&exec, &state, node)?;
    to.set(u32::from(state.disabled.get(at) == Some(&false)));
    Ok(())
}

/// The place of a node that is a kernel, a copy or a fill.
fn of_work(exec: &Exec, state: &State, node: u64) -> Result<usize, Status> {
    let at = *exec.places.get(&node).ok_or(Status::INVALID_VALUE)?;
    match state.steps.get(at).map(|step| &step.work) {
        Some(Work::Kernel(_) | Work::Copy(_) | Work::Fill(_)) => Ok(at),
        _ => Err(Status::INVALID_VALUE),
    }
}
