//! Graphs of any shape, made of a list of nodes.

use std::ptr::{null, null_mut};

use bulkhead_gpu::{FillPattern, Launch, Node};
use cudarc::driver::sys::{
    CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUgraph, CUgraphEdgeData, CUgraphExec, CUgraphNode,
    CUlaunchAttributeID, CUlaunchAttributeValue, CUlaunchAttributeValue_union__bindgen_ty_1, CUmemorytype,
};

use super::chains::{pointer, with_parameters};
use super::{Code, Context, Driver, Function, Stream};

/// `CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC`, `CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC`.
const PROGRAMMATIC_PORT: u8 = 1;
const PROGRAMMATIC_EDGE: u8 = 1;

/// A graph, instantiated. It is destroyed by [`Driver::graph_destroy_made`] alone.
pub(crate) struct Made {
    graph: usize,
    executable: usize,
    nodes: Vec<usize>,
}

/// What a node does, with the driver's own names.
pub(crate) enum Step<'a> {
    Nothing,
    /// In clusters of so many blocks where there are sides, and with all blocks there at once if so.
    Launch(Function, Launch<'a>, Option<[u8; 3]>, bool),
    /// Destination, source and bytes.
    Copy(u64, u64, usize),
    /// Destination, element and how many.
    Fill(u64, FillPattern, usize),
}

fn copy(to: u64, from: u64, bytes: usize) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        srcHost: null(),
        srcDevice: from,
        srcArray: null_mut(),
        reserved0: null_mut(),
        srcPitch: bytes,
        srcHeight: 1,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstHost: null_mut(),
        dstDevice: to,
        dstArray: null_mut(),
        reserved1: null_mut(),
        dstPitch: bytes,
        dstHeight: 1,
        WidthInBytes: bytes,
        Height: 1,
        Depth: 1,
    }
}

fn fill(to: u64, pattern: FillPattern, count: usize) -> CUDA_MEMSET_NODE_PARAMS {
    let (value, element) = match pattern {
        FillPattern::Bits8(value) => (value.into(), 1),
        FillPattern::Bits16(value) => (value.into(), 2),
        FillPattern::Bits32(value) => (value, 4),
    };
    CUDA_MEMSET_NODE_PARAMS { dst: to, pitch: 0, value, elementSize: element, width: count, height: 1 }
}

impl Driver {
    /// Makes a graph of these steps, each after others that are named by their places.
    pub(crate) fn graph_make<'a>(
        &self,
        context: Context,
        steps: impl Iterator<Item = (Step<'a>, &'a Node)>,
    ) -> Result<Made, Code> {
        let mut graph: CUgraph = null_mut();
        // SAFETY: `graph` outlives the call, and there are no flags.
        Code::check(unsafe { (self.graph_create)(&raw mut graph, 0) })?;
        let mut made = Made { graph: graph.expose_provenance(), executable: 0, nodes: Vec::new() };
        match self.graph_fill(context, &mut made, steps) {
            Ok(()) => Ok(made),
            Err(code) => {
                // The first error is the one to tell.
                self.graph_destroy_made(made).ok();
                Err(code)
            }
        }
    }

    fn graph_fill<'a>(
        &self,
        context: Context,
        made: &mut Made,
        steps: impl Iterator<Item = (Step<'a>, &'a Node)>,
    ) -> Result<(), Code> {
        for (step, node) in steps {
            let before: Option<Vec<CUgraphNode>> = node
                .before
                .iter()
                .map(|at| made.nodes.get(*at as usize).map(|node| pointer(*node)))
                .collect();
            let before = before.ok_or(Code::INVALID_VALUE)?;
            let at_end = if node.is_early { &[] } else { before.as_slice() };
            let added = self.graph_add(context, pointer(made.graph), &step, at_end)?;
            if node.is_early {
                self.graph_begin_early(pointer(made.graph), added, &before)?;
            }
            made.nodes.push(added.expose_provenance());
        }
        let mut executable: CUgraphExec = null_mut();
        // SAFETY: the graph lives, `executable` outlives the call, and there are no flags.
        Code::check(unsafe { (self.graph_instantiate)(&raw mut executable, pointer(made.graph), 0) })?;
        made.executable = executable.expose_provenance();
        Ok(())
    }

    fn graph_add(
        &self,
        context: Context,
        graph: CUgraph,
        step: &Step<'_>,
        before: &[CUgraphNode],
    ) -> Result<CUgraphNode, Code> {
        let mut node: CUgraphNode = null_mut();
        let (to, from, count) = (&raw mut node, before.as_ptr(), before.len());
        match step {
            // SAFETY: the graph lives; the driver copies the list of nodes, all of this graph, before it returns.
            Step::Nothing => Code::check(unsafe { (self.graph_add_empty)(to, graph, from, count) })?,
            Step::Launch(function, launch, sides, together) => {
                let added = with_parameters(*function, launch, |parameters| {
                    // SAFETY: as above; the function is pinned in its table, and its buffer holds as many bytes as it has
                    // parameters (checked by the caller); the driver copies it before it returns.
                    unsafe { (self.graph_add_kernel)(to, graph, from, count, parameters) }
                });
                Code::check(added)?;
                self.graph_shape(node, *sides, *together)?;
            }
            Step::Copy(destination, source, bytes) => {
                let copy = copy(*destination, *source, *bytes);
                // SAFETY: as above; both ranges lie in reservations of device addresses.
                Code::check(unsafe {
                    (self.graph_add_copy)(to, graph, from, count, &raw const copy, context.pointer())
                })?;
            }
            Step::Fill(destination, pattern, elements) => {
                let fill = fill(*destination, *pattern, *elements);
                // SAFETY: as above.
                Code::check(unsafe {
                    (self.graph_add_fill)(to, graph, from, count, &raw const fill, context.pointer())
                })?;
            }
        }
        Ok(node)
    }

    /// Has a kernel come after others so that it may begin while they are about to end.
    fn graph_begin_early(
        &self,
        graph: CUgraph,
        node: CUgraphNode,
        before: &[CUgraphNode],
    ) -> Result<(), Code> {
        let edge = CUgraphEdgeData {
            from_port: PROGRAMMATIC_PORT,
            to_port: 0,
            type_: PROGRAMMATIC_EDGE,
            reserved: [0; 5],
        };
        before.iter().try_for_each(|from| {
            // SAFETY: the graph and its two nodes live, and the driver copies the edge.
            Code::check(unsafe { (self.graph_add_edges)(graph, from, &raw const node, &raw const edge, 1) })
        })
    }

    /// Has a node's blocks form clusters, or be there at once.
    fn graph_shape(&self, node: CUgraphNode, sides: Option<[u8; 3]>, together: bool) -> Result<(), Code> {
        let set = |attribute: CUlaunchAttributeID, value: CUlaunchAttributeValue| {
            // SAFETY: the node lives, and the value is of the kind that the attribute has.
            Code::check(unsafe { (self.graph_set_attribute)(node, attribute as i32, &raw const value) })
        };
        if together {
            let value = CUlaunchAttributeValue { cooperative: 1 };
            set(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE, value)?;
        }
        if let Some(sides) = sides {
            let [x, y, z] = sides.map(|side| u32::from(side.max(1)));
            let sides = CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
            let value = CUlaunchAttributeValue { clusterDim: sides };
            set(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, value)?;
        }
        Ok(())
    }

    /// Has a node do other work of the same kind from the next launch on.
    pub(crate) fn graph_change(
        &self,
        context: Context,
        made: &Made,
        node: usize,
        step: &Step<'_>,
    ) -> Result<(), Code> {
        let executable: CUgraphExec = pointer(made.executable);
        let node: CUgraphNode = pointer(*made.nodes.get(node).ok_or(Code::INVALID_VALUE)?);
        Code::check(match step {
            Step::Nothing => 0,
            Step::Launch(function, launch, _, _) => with_parameters(*function, launch, |parameters| {
                // SAFETY: graph and node live; the rest as for `graph_add`.
                unsafe { (self.graph_set_kernel)(executable, node, parameters) }
            }),
            Step::Copy(to, from, bytes) => {
                let copy = copy(*to, *from, *bytes);
                // SAFETY: likewise.
                unsafe { (self.graph_set_copy)(executable, node, &raw const copy, context.pointer()) }
            }
            Step::Fill(to, pattern, count) => {
                let fill = fill(*to, *pattern, *count);
                // SAFETY: likewise.
                unsafe { (self.graph_set_fill)(executable, node, &raw const fill, context.pointer()) }
            }
        })
    }

    pub(crate) fn graph_launch_made(&self, made: &Made, stream: Stream) -> Result<(), Code> {
        // SAFETY: the graph lives, and the stream is pinned in its table.
        Code::check(unsafe { (self.graph_launch)(pointer(made.executable), stream.pointer()) })
    }

    /// Destroys a graph. The driver frees one that runs once it is done (CUDA's manual, `cuGraphExecDestroy`).
    pub(crate) fn graph_destroy_made(&self, made: Made) -> Result<(), Code> {
        let executable = if made.executable == 0 {
            Ok(())
        } else {
            // SAFETY: it lives, and nobody has it after this.
            Code::check(unsafe { (self.graph_executable_destroy)(pointer(made.executable)) })
        };
        // SAFETY: likewise.
        let graph = Code::check(unsafe { (self.graph_destroy)(pointer(made.graph)) });
        executable.and(graph)
    }
}
