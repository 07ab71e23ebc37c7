//! Graphs that sessions write down: made once of a list of nodes, launched as they are.

use std::collections::HashMap;

use bulkhead_gpu::{Error, GraphId, Launch, Node, StreamId, Work};

use crate::sys::{Function, Made, Step};
use crate::table::Pin;
use crate::{Cuda, gpu};

/// The graphs of a device, by their numbers.
#[derive(Default)]
pub(crate) struct MadeGraphs {
    graphs: HashMap<u64, Made>,
    next: u64,
}

impl Cuda {
    /// A node's work with the driver's names, and what keeps an entry's function meanwhile.
    fn step<'a>(&'a self, work: &'a Work) -> Result<(Step<'a>, Option<Pin<'a>>), Error> {
        Ok(match work {
            Work::Nothing => (Step::Nothing, None),
            Work::Launch { entry, grid, block, shared_bytes, parameters, sides, together } => {
                let pin = gpu::pin(&self.entries, entry.0, "entry")?;
                let launch = Launch { grid: *grid, block: *block, shared_bytes: *shared_bytes, parameters };
                gpu::fits(&launch, pin.note() as usize)?;
                (Step::Launch(Function::from_bits(pin.handle()), launch, *sides, *together), Some(pin))
            }
            Work::Copy { to, from, bytes } => {
                self.in_reservation(*to, *bytes)?;
                self.in_reservation(*from, *bytes)?;
                (Step::Copy(to.0, from.0, gpu::narrow(*bytes)?), None)
            }
            Work::Fill { to, pattern, count } => {
                let bytes = count.checked_mul(pattern.bytes());
                let bytes = bytes.ok_or_else(|| Error::Refused("an endless range".to_owned()))?;
                self.in_reservation(*to, bytes)?;
                (Step::Fill(to.0, *pattern, gpu::narrow(*count)?), None)
            }
        })
    }

    /// See [`bulkhead_gpu::Gpu::make_graph`].
    pub(crate) fn make_graph_of(&self, nodes: &[Node]) -> Result<Option<GraphId>, Error> {
        self.alive()?;
        let mut pins = Vec::new();
        let mut steps = Vec::with_capacity(nodes.len());
        for node in nodes {
            let Ok((step, pin)) = self.step(&node.work) else { return Ok(None) };
            steps.push((step, node));
            pins.extend(pin);
        }
        let made = self.driver.graph_make(self.context, steps.into_iter());
        match self.settle("cuGraphInstantiate", made) {
            Ok(made) => {
                let mut graphs = self.made.lock();
                graphs.next += 1;
                let id = graphs.next;
                graphs.graphs.insert(id, made);
                Ok(Some(GraphId(id)))
            }
            Err(lost @ Error::Lost { .. }) => Err(lost),
            Err(_) => Ok(None),
        }
    }

    /// See [`bulkhead_gpu::Gpu::change_node`].
    pub(crate) fn change_node_of(&self, graph: GraphId, node: usize, work: &Work) -> Result<(), Error> {
        self.alive()?;
        let (step, _pin) = self.step(work)?;
        let graphs = self.made.lock();
        let made = graphs.graphs.get(&graph.0).ok_or_else(unknown)?;
        let changed = self.driver.graph_change(self.context, made, node, &step);
        self.settle("cuGraphExecKernelNodeSetParams", changed)
    }

    /// See [`bulkhead_gpu::Gpu::launch_made`].
    pub(crate) fn launch_made_graph(&self, stream: StreamId, graph: GraphId) -> Result<(), Error> {
        self.alive()?;
        let stream = self.stream(stream)?;
        let graphs = self.made.lock();
        let made = graphs.graphs.get(&graph.0).ok_or_else(unknown)?;
        self.settle("cuGraphLaunch", self.driver.graph_launch_made(made, gpu::stream_of(&stream)))
    }

    /// See [`bulkhead_gpu::Gpu::destroy_graph`].
    pub(crate) fn destroy_made_graph(&self, graph: GraphId) -> Result<(), Error> {
        let made = self.made.lock().graphs.remove(&graph.0);
        let Some(made) = made else { return Ok(()) };
        self.settle("cuGraphExecDestroy", self.driver.graph_destroy_made(made))
    }
}

fn unknown() -> Error {
    Error::Refused("no such graph".to_owned())
}
