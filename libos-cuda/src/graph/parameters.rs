//! Calls that make nodes, and ask and change what they do.

use std::sync::Arc;

use super::storage::{at, described};
use super::{Embedded, GRAPH_EDGES_MAX, Graph, Work, graph, node};
use crate::abi::{
    Copy3d, EdgeData, HostNode, In, InOut, InSlice, KernelNode, KernelNodeOfContext, LaunchAttribute,
    MemsetNode, NodeParameters, Out, Room,
};
use crate::context::current;
use crate::device::Launch;
use crate::driver::{Driver, driver};
use crate::launch::{self, Blocks, Kernel};
use crate::report;
use crate::status::{Answer, Status};

/// Bytes of a `CUkernelNodeAttrValue`.
const ATTRIBUTE_BYTES: usize = 64;
const PRIORITY: u32 = 8;
/// `CU_GRAPH_NODE_TYPE_GRAPH`.
pub(super) const CHILD: u32 = 4;
/// `CU_GRAPH_NODE_TYPE_MEM_ALLOC`, `CU_GRAPH_NODE_TYPE_MEM_FREE`.
const ALLOCATE: u32 = 10;
const FREE: u32 = 11;

/// Adds a node to a graph, behind others.
pub(super) fn add(
    to: &Out<u64>,
    handle: u64,
    before: &InSlice<u64>,
    count: usize,
    work: impl FnOnce(&'static Driver, &Graph) -> Result<Work, Status>,
) -> Answer {
    let driver = driver()?;
    if count > GRAPH_EDGES_MAX {
        return Err(Status::INVALID_VALUE);
    }
    let graph = graph(driver, handle)?;
    let before = graph.numbers(&before.read(count)?)?;
    let work = work(driver, &graph)?;
    work.check(driver)?;
    to.set(graph.add(work, &before)?.1);
    Ok(())
}

/// What a node does.
pub(super) fn work_of(handle: u64) -> Result<Work, Status> {
    let (graph, id) = node(driver()?, handle)?;
    let work = graph.lock().get(id)?.work.clone();
    Ok(work)
}

/// Has a node do other work of the same kind.
fn set(handle: u64, work: impl FnOnce(&'static Driver, &Work) -> Result<Work, Status>) -> Answer {
    let driver = driver()?;
    let (graph, id) = node(driver, handle)?;
    let old = graph.lock().get(id)?.work.clone();
    let work = work(driver, &old)?;
    work.check(driver)?;
    old.check_change(&work)?;
    let old = std::mem::replace(&mut graph.lock().get_mut(id)?.work, work);
    // Without the lock: a child graph ends with it.
    drop(old);
    Ok(())
}

/// A kernel as a caller describes it; a node that has one already keeps how its blocks come.
pub(super) fn kernel(
    driver: &'static Driver,
    node: &KernelNode,
    function: u64,
    old: Option<&Work>,
) -> Result<Work, Status> {
    let blocks = if let Some(Work::Kernel(old)) = old { old.blocks } else { Blocks::Apart };
    let launch = Launch { grid: node.grid, block: node.block, shared_bytes: node.shared_bytes };
    let kernel = Kernel::new(driver, function, &launch, blocks, &node.parameters(), &node.extra())?;
    Ok(Work::Kernel(Arc::new(kernel)))
}

pub(super) fn kernel_of_context(
    driver: &'static Driver,
    node: &KernelNodeOfContext,
    old: Option<&Work>,
) -> Result<Work, Status> {
    let function = if node.node.function == 0 { node.kernel } else { node.node.function };
    kernel(driver, &node.node, function, old)
}

pub(super) fn host(node: &HostNode) -> Result<Work, Status> {
    let (function, data) = node.call()?;
    Ok(Work::Host(function, data))
}

/// A copy of a graph, as a node of another.
fn embed(driver: &'static Driver, child: u64, parent: &Graph) -> Result<Work, Status> {
    Ok(Work::Child(Embedded::new(&graph(driver, child)?, parent.around + 1)?))
}

/// What a caller describes by its kind.
pub(super) fn any(
    driver: &'static Driver,
    parameters: &NodeParameters,
    old: Option<&Work>,
) -> Result<Work, Status> {
    match parameters.kind {
        0 => kernel_of_context(driver, &parameters.kernel(), old),
        1 => Ok(Work::Copy(Box::new(parameters.copy()))),
        2 => Ok(Work::Fill(parameters.memset())),
        3 => host(&parameters.host()),
        // Where it may be, the caller sees to it itself.
        CHILD => Err(Status::INVALID_VALUE),
        // Natively these do not change either.
        ALLOCATE | FREE => Err(Status::NOT_SUPPORTED),
        5 => Ok(Work::Empty),
        6 => Ok(Work::Wait(parameters.handle())),
        7 => Ok(Work::Record(parameters.handle())),
        8 | 9 | 12 | 13 => {
            report::refused(
                "cuGraphAddNode",
                "semaphores, batches of memory operations and conditions are no nodes here",
            );
            Err(Status::NOT_SUPPORTED)
        }
        _ => Err(Status::INVALID_VALUE),
    }
}

pub(crate) fn add_kernel(
    to: Out<u64>,
    graph: u64,
    before: InSlice<u64>,
    count: usize,
    node: In<KernelNode>,
) -> Answer {
    add(&to, graph, &before, count, |driver, _| kernel(driver, &node.0, node.0.function, None))
}

pub(crate) fn add_kernel_of_context(
    to: Out<u64>,
    graph: u64,
    before: InSlice<u64>,
    count: usize,
    node: In<KernelNodeOfContext>,
) -> Answer {
    add(&to, graph, &before, count, |driver, _| kernel_of_context(driver, &node.0, None))
}

pub(crate) fn add_copy(
    to: Out<u64>,
    graph: u64,
    before: InSlice<u64>,
    count: usize,
    copy: In<Copy3d>,
    context: u64,
) -> Answer {
    check_context(context)?;
    add(&to, graph, &before, count, |_, _| Ok(Work::Copy(Box::new(copy.0))))
}

pub(crate) fn add_fill(
    to: Out<u64>,
    graph: u64,
    before: InSlice<u64>,
    count: usize,
    node: In<MemsetNode>,
    context: u64,
) -> Answer {
    check_context(context)?;
    add(&to, graph, &before, count, |_, _| Ok(Work::Fill(node.0)))
}

/// All contexts are of one device: any that is there will do.
pub(super) fn check_context(context: u64) -> Answer {
    let context = if context == 0 { current()? } else { context };
    driver()?.contexts.check(context)
}

pub(crate) fn add_host(
    to: Out<u64>,
    graph: u64,
    before: InSlice<u64>,
    count: usize,
    node: In<HostNode>,
) -> Answer {
    add(&to, graph, &before, count, |_, _| host(&node.0))
}

pub(crate) fn add_child(to: Out<u64>, handle: u64, before: InSlice<u64>, count: usize, child: u64) -> Answer {
    add(&to, handle, &before, count, |driver, parent| embed(driver, child, parent))
}

pub(crate) fn add_empty(to: Out<u64>, graph: u64, before: InSlice<u64>, count: usize) -> Answer {
    add(&to, graph, &before, count, |_, _| Ok(Work::Empty))
}

pub(crate) fn add_record(to: Out<u64>, graph: u64, before: InSlice<u64>, count: usize, event: u64) -> Answer {
    add(&to, graph, &before, count, |_, _| Ok(Work::Record(event)))
}

pub(crate) fn add_wait(to: Out<u64>, graph: u64, before: InSlice<u64>, count: usize, event: u64) -> Answer {
    add(&to, graph, &before, count, |_, _| Ok(Work::Wait(event)))
}

pub(crate) fn add_any(
    to: Out<u64>,
    graph: u64,
    before: InSlice<u64>,
    edges: InSlice<EdgeData>,
    count: usize,
    parameters: InOut<NodeParameters>,
) -> Answer {
    edges.check(count)?;
    let mut told = parameters.get();
    add(&to, graph, &before, count, |driver, parent| match told.kind {
        CHILD => embed(driver, told.handle(), parent),
        ALLOCATE => {
            let mut allocation = told.allocation();
            let storage = described(driver, &allocation)?;
            allocation.address = storage.address();
            told.set_allocation(allocation);
            Ok(Work::Allocate(storage))
        }
        FREE => at(&driver.memory, told.handle()).map(Work::Free).ok_or(Status::INVALID_VALUE),
        _ => any(driver, &told, None),
    })?;
    if told.kind == ALLOCATE {
        parameters.set(told);
    }
    Ok(())
}

/// The same as CUDA 12.2 has it, where dependencies have nothing to say about themselves.
pub(crate) fn add_any_1(
    to: Out<u64>,
    graph: u64,
    before: InSlice<u64>,
    count: usize,
    parameters: InOut<NodeParameters>,
) -> Answer {
    add_any(to, graph, before, InSlice::none(), count, parameters)
}

pub(crate) fn kernel_parameters(handle: u64, to: Out<KernelNode>) -> Answer {
    let Work::Kernel(kernel) = work_of(handle)? else { return Err(Status::INVALID_VALUE) };
    to.set(describe(&kernel));
    Ok(())
}

fn describe(kernel: &Kernel) -> KernelNode {
    let Launch { grid, block, shared_bytes } = kernel.launch;
    KernelNode::new(kernel.function, grid, block, shared_bytes, kernel.addresses())
}

pub(crate) fn kernel_parameters_of_context(handle: u64, to: Out<KernelNodeOfContext>) -> Answer {
    let Work::Kernel(kernel) = work_of(handle)? else { return Err(Status::INVALID_VALUE) };
    to.set(KernelNodeOfContext {
        node: describe(&kernel),
        kernel: kernel.function,
        context: current().unwrap_or(0),
    });
    Ok(())
}

pub(crate) fn set_kernel(handle: u64, node: In<KernelNode>) -> Answer {
    set(handle, |driver, old| kernel(driver, &node.0, node.0.function, Some(old)))
}

pub(crate) fn set_kernel_of_context(handle: u64, node: In<KernelNodeOfContext>) -> Answer {
    set(handle, |driver, old| kernel_of_context(driver, &node.0, Some(old)))
}

pub(crate) fn copy_parameters(handle: u64, to: Out<Copy3d>) -> Answer {
    let Work::Copy(copy) = work_of(handle)? else { return Err(Status::INVALID_VALUE) };
    to.set(*copy);
    Ok(())
}

pub(crate) fn set_copy(handle: u64, copy: In<Copy3d>) -> Answer {
    set(handle, |_, _| Ok(Work::Copy(Box::new(copy.0))))
}

pub(crate) fn fill_parameters(handle: u64, to: Out<MemsetNode>) -> Answer {
    let Work::Fill(node) = work_of(handle)? else { return Err(Status::INVALID_VALUE) };
    to.set(node);
    Ok(())
}

pub(crate) fn set_fill(handle: u64, node: In<MemsetNode>) -> Answer {
    set(handle, |_, _| Ok(Work::Fill(node.0)))
}

pub(crate) fn host_parameters(handle: u64, to: Out<HostNode>) -> Answer {
    let Work::Host(function, data) = work_of(handle)? else { return Err(Status::INVALID_VALUE) };
    to.set(HostNode::new(function, data));
    Ok(())
}

pub(crate) fn set_host(handle: u64, node: In<HostNode>) -> Answer {
    set(handle, |_, _| host(&node.0))
}

pub(crate) fn child_graph(handle: u64, to: Out<u64>) -> Answer {
    let Work::Child(child) = work_of(handle)? else { return Err(Status::INVALID_VALUE) };
    to.set(child.handle());
    Ok(())
}

pub(crate) fn recorded_event(handle: u64, to: Out<u64>) -> Answer {
    let Work::Record(event) = work_of(handle)? else { return Err(Status::INVALID_VALUE) };
    to.set(event);
    Ok(())
}

pub(crate) fn set_record(handle: u64, event: u64) -> Answer {
    set(handle, |_, _| Ok(Work::Record(event)))
}

pub(crate) fn awaited_event(handle: u64, to: Out<u64>) -> Answer {
    let Work::Wait(event) = work_of(handle)? else { return Err(Status::INVALID_VALUE) };
    to.set(event);
    Ok(())
}

pub(crate) fn set_wait(handle: u64, event: u64) -> Answer {
    set(handle, |_, _| Ok(Work::Wait(event)))
}

pub(crate) fn set_any(handle: u64, parameters: InOut<NodeParameters>) -> Answer {
    set(handle, |driver, old| any(driver, &parameters.get(), Some(old)))
}

/// Whether a kernel's blocks come together; of hints, which have no effect here, the value that means none.
pub(crate) fn kernel_attribute(handle: u64, attribute: u32, to: Room) -> Answer {
    let Work::Kernel(kernel) = work_of(handle)? else { return Err(Status::INVALID_VALUE) };
    let mut value = [0; ATTRIBUTE_BYTES];
    match attribute {
        launch::COOPERATIVE => value[0] = u8::from(kernel.blocks.is_together()),
        1 | PRIORITY => {}
        _ => return Err(Status::NOT_SUPPORTED),
    }
    to.write(&value);
    Ok(())
}

pub(crate) fn set_kernel_attribute(handle: u64, attribute: u32, value: In<[u32; 16]>) -> Answer {
    if let Err(why) = launch::allowed(&LaunchAttribute::new(attribute, value.0)) {
        report::refused("cuGraphKernelNodeSetAttribute", why);
        return Err(Status::NOT_SUPPORTED);
    }
    let together = value.0[0] != 0;
    set(handle, |_, old| {
        let Work::Kernel(kernel) = old else { return Err(Status::INVALID_VALUE) };
        match attribute {
            launch::COOPERATIVE => {
                Ok(Work::Kernel(Arc::new(kernel.with_blocks(kernel.blocks.with_together(together)))))
            }
            _ => Ok(old.clone()),
        }
    })
}

pub(crate) fn copy_kernel_attributes(to: u64, from: u64) -> Answer {
    let Work::Kernel(from) = work_of(from)? else { return Err(Status::INVALID_VALUE) };
    set(to, |_, old| {
        let Work::Kernel(kernel) = old else { return Err(Status::INVALID_VALUE) };
        Ok(Work::Kernel(Arc::new(kernel.with_blocks(from.blocks))))
    })
}
