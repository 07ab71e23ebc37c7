//! Graphs of an isolated session: written down once, node by node, and launched by one record
//! (docs/decisions/0071).
//!
//! The device makes a graph of its own of the nodes where it can. Where it cannot, they are kept and done one by one, in their order,
//! on the stream that the graph is launched into.
//!
//! # Invariants
//! 1. A node comes after nodes before it in the list: there are no cycles.
//! 2. A graph keeps the images of its entries loaded.
//! 3. What graphs take of this process is bounded: [`NODES_MAX`] nodes, and [`BYTES_MAX`] for parameters and dependencies
//!    of those that are no graph of the device's.

use std::{
    collections::HashMap,
    mem::{Discriminant, discriminant},
    sync::Arc,
};

use bulkhead_gpu::{Error, FillPattern, Gpu, GraphId, Launch, Node, StreamId, Work};
use bulkhead_ring::{AFTER_MAX, Blocks, NodePlace, NodeWork, Pattern, layout::GRAPH_NODES};
use bulkhead_schema::{
    ErrorCode,
    limits::{GRAPHS_BYTES_MAX as BYTES_MAX, GRAPHS_NODES_MAX as NODES_MAX},
};

use crate::{
    modules::grants::Grants,
    session::bindings::{Bindings, Use},
    watch::remains::Image,
};

/// A request that was done, or why it was not; the outer error is the loss of the device.
type Done = Result<Result<(), ErrorCode>, Error>;

/// The graphs of a session.
#[derive(Default)]
pub(crate) struct Graphs {
    graphs: HashMap<u32, Graph>,
    nodes: usize,
    bytes: usize,
}

#[derive(Default)]
struct Graph {
    /// None once the device has made a graph of them.
    nodes: Vec<Node>,
    count: usize,
    /// What each node does: a change does not turn it into something else.
    kinds: Vec<Discriminant<Work>>,
    bytes: usize,
    /// What the next node comes after; the node before it where nothing was said.
    before: Option<Vec<u32>>,
    images: Vec<Arc<Image>>,
    /// Of an entry of it.
    name: Option<Arc<str>>,
    form: Form,
    /// A part of it was refused: it is never made, and never launched in part.
    is_spoilt: bool,
}

#[derive(Default)]
enum Form {
    /// More nodes may come.
    #[default]
    Growing,
    /// Its nodes are done one by one.
    Listed,
    Made(GraphId),
}

/// What a node names.
pub(super) struct Found {
    work: Work,
    /// What it launches.
    entry: Option<Launched>,
}

/// An entry that a node launches.
struct Launched {
    image: Arc<Image>,
    name: Arc<str>,
}

/// Looks up what a node names.
pub(super) fn find(
    bindings: &mut Bindings,
    grants: &Grants,
    work: &NodeWork,
    parameters: &[u64],
) -> Result<Found, ErrorCode> {
    match *work {
        NodeWork::Nothing => Ok(Found { work: Work::Nothing, entry: None }),
        NodeWork::Launch(launch) => {
            let entry = bindings.entry(launch.entry.slot, launch.entry.generation);
            let entry = entry.ok_or(ErrorCode::InvalidHandle)?;
            let template = &mut entry.template;
            if launch.parameter_bytes as usize != template.visible_bytes {
                return Err(ErrorCode::InvalidArgument);
            }
            if matches!(launch.blocks, Blocks::Clusters { .. }) && template.hidden.is_some() {
                return Err(ErrorCode::NotSupported);
            }
            template.tell(grants)?;
            let mut block = template.block.clone().into_boxed_slice();
            for (to, word) in block[..template.visible_bytes].chunks_mut(8).zip(parameters) {
                to.copy_from_slice(&word.to_ne_bytes()[..to.len()]);
            }
            let (sides, together) = match launch.blocks {
                Blocks::Apart => (None, false),
                Blocks::Together => (None, true),
                Blocks::Clusters { sides, together } => (Some(sides), together),
            };
            let shape = launch.shape;
            let work = Work::Launch {
                entry: template.id,
                grid: shape.grid,
                block: shape.block,
                shared_bytes: template.shared_bytes(shape.shared_bytes),
                parameters: block,
                sides,
                together,
            };
            let launched = Launched { image: Arc::clone(&entry.image), name: Arc::clone(&template.name) };
            Ok(Found { work, entry: Some(launched) })
        }
        NodeWork::Copy(copy) => {
            let to = bindings.device(copy.to, copy.to_offset, copy.bytes, Use::ReadWrite)?;
            let from = bindings.device(copy.from, copy.from_offset, copy.bytes, Use::Read)?;
            Ok(Found { work: Work::Copy { to, from, bytes: copy.bytes }, entry: None })
        }
        NodeWork::Fill { to, offset, pattern, count } => {
            let bytes = count.checked_mul(pattern.bytes()).ok_or(ErrorCode::InvalidArgument)?;
            let to = bindings.device(to, offset, bytes, Use::ReadWrite)?;
            if !to.0.is_multiple_of(pattern.bytes()) {
                return Err(ErrorCode::InvalidArgument);
            }
            let pattern = match pattern {
                Pattern::Bits8(value) => FillPattern::Bits8(value),
                Pattern::Bits16(value) => FillPattern::Bits16(value),
                Pattern::Bits32(value) => FillPattern::Bits32(value),
            };
            Ok(Found { work: Work::Fill { to, pattern, count }, entry: None })
        }
    }
}

fn bytes_of(work: &Work) -> usize {
    if let Work::Launch { parameters, .. } = work { parameters.len() } else { 0 }
}

impl Graph {
    /// Keeps the image of an entry, and its name.
    fn keep(&mut self, entry: Option<Launched>) {
        let Some(Launched { image, name }) = entry else { return };
        // Nearly always the one before.
        if !self.images.iter().rev().any(|kept| Arc::ptr_eq(kept, &image)) {
            self.images.push(image);
        }
        self.name = Some(name);
    }
}

impl Graphs {
    /// Adds a node to a graph, or has one do other work.
    pub(super) fn node(&mut self, gpu: &dyn Gpu, place: NodePlace, found: Result<Found, ErrorCode>) -> Done {
        if !place.is_change {
            let added = found.and_then(|found| self.add(place, found));
            return Ok(self.spoil(place.graph, added));
        }
        let Found { work, entry } = match found {
            Ok(found) => found,
            Err(code) => return Ok(Err(code)),
        };
        let Some(graph) = self.graphs.get_mut(&place.graph) else { return Ok(Err(ErrorCode::InvalidHandle)) };
        let at = place.node as usize;
        if graph.kinds.get(at) != Some(&discriminant(&work)) || matches!(graph.form, Form::Growing) {
            return Ok(Err(ErrorCode::InvalidArgument));
        }
        graph.keep(entry);
        match graph.form {
            Form::Made(id) => match gpu.change_node(id, at, &work) {
                Ok(()) => Ok(Ok(())),
                Err(lost @ Error::Lost { .. }) => Err(lost),
                Err(_) => Ok(Err(ErrorCode::InvalidArgument)),
            },
            Form::Growing | Form::Listed => {
                let Some(node) = graph.nodes.get_mut(at) else { return Ok(Err(ErrorCode::InvalidArgument)) };
                let (old, new) = (bytes_of(&node.work), bytes_of(&work));
                if self.bytes - old + new > BYTES_MAX {
                    return Ok(Err(ErrorCode::InvalidArgument));
                }
                self.bytes = self.bytes - old + new;
                graph.bytes = graph.bytes - old + new;
                node.work = work;
                Ok(Ok(()))
            }
        }
    }

    fn add(&mut self, place: NodePlace, found: Found) -> Result<(), ErrorCode> {
        let Found { work, entry } = found;
        let graph = self.graphs.entry(place.graph).or_default();
        if !matches!(graph.form, Form::Growing) || place.node as usize != graph.count {
            return Err(ErrorCode::InvalidArgument);
        }
        let bytes = bytes_of(&work);
        if self.nodes >= NODES_MAX || self.bytes + bytes > BYTES_MAX {
            return Err(ErrorCode::LimitReached);
        }
        let before = graph.before.take().unwrap_or_else(|| place.node.checked_sub(1).into_iter().collect());
        self.nodes += 1;
        self.bytes += bytes;
        graph.bytes += bytes;
        graph.count += 1;
        graph.kinds.push(discriminant(&work));
        let is_kernel = |work: &Work| matches!(work, Work::Launch { .. });
        let one = if let [one] = before.as_slice() { graph.nodes.get(*one as usize) } else { None };
        let is_early = place.is_early && is_kernel(&work) && one.is_some_and(|one| is_kernel(&one.work));
        graph.nodes.push(Node { work, before, is_early });
        graph.keep(entry);
        Ok(())
    }

    /// Notes whether a part of a graph that is not made yet was refused.
    fn spoil(&mut self, graph: u32, added: Result<(), ErrorCode>) -> Result<(), ErrorCode> {
        if added.is_err() {
            let graph = self.graphs.entry(graph).or_default();
            graph.is_spoilt |= matches!(graph.form, Form::Growing);
        }
        added
    }

    /// The next node of a graph comes after these.
    pub(crate) fn after(&mut self, graph: u32, count: u32, nodes: [u32; AFTER_MAX]) -> Result<(), ErrorCode> {
        let noted = self.note_after(graph, count, nodes);
        self.spoil(graph, noted)
    }

    fn note_after(&mut self, graph: u32, count: u32, nodes: [u32; AFTER_MAX]) -> Result<(), ErrorCode> {
        let graph = self.graphs.entry(graph).or_default();
        let nodes = nodes.get(..count as usize).ok_or(ErrorCode::InvalidArgument)?;
        if !matches!(graph.form, Form::Growing) || nodes.iter().any(|node| *node as usize >= graph.count) {
            return Err(ErrorCode::InvalidArgument);
        }
        let before = graph.before.get_or_insert_default();
        let bytes = size_of_val(nodes);
        if before.len() + nodes.len() > GRAPH_NODES as usize || self.bytes + bytes > BYTES_MAX {
            return Err(ErrorCode::LimitReached);
        }
        before.extend_from_slice(nodes);
        self.bytes += bytes;
        graph.bytes += bytes;
        Ok(())
    }

    /// How many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.graphs.len()
    }

    /// Takes a graph out, and has the device forget it.
    fn remove(&mut self, gpu: &dyn Gpu, graph: u32) -> Result<Option<Graph>, Error> {
        let Some(gone) = self.graphs.remove(&graph) else { return Ok(None) };
        self.nodes -= gone.count;
        self.bytes -= gone.bytes;
        if let Form::Made(id) = gone.form {
            gpu.destroy_graph(id)?;
        }
        Ok(Some(gone))
    }

    /// Destroys a graph. Its images, which go once all work that was submitted by now has passed; none where there is no
    /// such graph.
    pub(super) fn destroy(&mut self, gpu: &dyn Gpu, graph: u32) -> Result<Option<Vec<Arc<Image>>>, Error> {
        Ok(self.remove(gpu, graph)?.map(|gone| gone.images))
    }

    /// A graph has all its nodes.
    pub(super) fn make(&mut self, gpu: &dyn Gpu, graph: u32) -> Done {
        let Some(graph) = self.graphs.get_mut(&graph) else { return Ok(Err(ErrorCode::InvalidHandle)) };
        if graph.is_spoilt || !matches!(graph.form, Form::Growing) {
            return Ok(Err(ErrorCode::InvalidArgument));
        }
        graph.before = None;
        graph.form = match gpu.make_graph(&graph.nodes)? {
            Some(id) => {
                graph.nodes = Vec::new();
                self.bytes -= std::mem::take(&mut graph.bytes);
                Form::Made(id)
            }
            None => {
                tracing::debug!(nodes = graph.count, "the device makes no graph of these nodes");
                Form::Listed
            }
        };
        Ok(Ok(()))
    }

    /// The name of an entry of a graph, where it has one.
    pub(super) fn name(&self, graph: u32) -> Option<Arc<str>> {
        self.graphs.get(&graph)?.name.clone()
    }

    /// Does all that a graph's nodes say. What the device refuses of it is given to `refused`.
    pub(super) fn launch(
        &self,
        gpu: &dyn Gpu,
        stream: StreamId,
        graph: u32,
        refused: impl Fn(&Error),
    ) -> Done {
        let Some(graph) = self.graphs.get(&graph) else { return Ok(Err(ErrorCode::InvalidHandle)) };
        match graph.form {
            Form::Growing => return Ok(Err(ErrorCode::InvalidArgument)),
            Form::Made(id) => gpu.launch_made(stream, id)?,
            // Those behind one that is refused are done all the same: the device has work to do, and the launch is told as refused.
            Form::Listed => {
                for node in &graph.nodes {
                    match one(gpu, stream, &node.work) {
                        Ok(()) => {}
                        Err(lost @ Error::Lost { .. }) => return Err(lost),
                        Err(error) => refused(&error),
                    }
                }
            }
        }
        Ok(Ok(()))
    }

    /// Destroys all of them, all of whose launches have passed.
    pub(crate) fn destroy_all(&mut self, gpu: &dyn Gpu) -> Result<(), Error> {
        let graphs: Vec<u32> = self.graphs.keys().copied().collect();
        graphs.into_iter().try_for_each(|graph| self.remove(gpu, graph).map(|_| ()))
    }
}

fn one(gpu: &dyn Gpu, stream: StreamId, work: &Work) -> Result<(), Error> {
    match work {
        Work::Nothing => Ok(()),
        Work::Launch { entry, grid, block, shared_bytes, parameters, sides, together } => {
            let launch = Launch { grid: *grid, block: *block, shared_bytes: *shared_bytes, parameters };
            match (sides, together) {
                (None, false) => gpu.launch(stream, *entry, &launch),
                (None, true) => gpu.launch_together(stream, *entry, &launch),
                (Some(sides), together) => gpu.launch_clusters(stream, *entry, &launch, *sides, *together),
            }
        }
        Work::Copy { to, from, bytes } => gpu.copy_on_device(stream, *to, *from, *bytes),
        Work::Fill { to, pattern, count } => gpu.fill(stream, *to, *pattern, *count),
    }
}
