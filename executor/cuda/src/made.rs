//! Graphs that sessions write down: made once of a list of nodes, launched as they are.

use std::collections::HashMap;

use bulkhead_gpu::{Error, GraphId, Launch, Node, StreamId, Work};
use parking_lot::Mutex;

use crate::context::Context;
use crate::handles;
use crate::sys::{Function, Made, Step};
use crate::table::Pin;

/// The graphs of a device, by their numbers.
#[derive(Default)]
pub(crate) struct MadeGraphs(Mutex<Numbered>);

#[derive(Default)]
struct Numbered {
    graphs: HashMap<u64, Made>,
    next: u64,
}

/// A node's work with the driver's names, and what keeps an entry's function meanwhile.
fn step<'a>(context: &'a Context, work: &'a Work) -> Result<(Step<'a>, Option<Pin<'a>>), Error> {
    Ok(match work {
        Work::Nothing => (Step::Nothing, None),
        Work::Launch { entry, grid, block, shared_bytes, parameters, sides, together } => {
            let pin = handles::pin(&context.entries, entry.0, "entry")?;
            let launch = Launch { grid: *grid, block: *block, shared_bytes: *shared_bytes, parameters };
            handles::fits(&launch, pin.note() as usize)?;
            (Step::Launch(Function::from_bits(pin.handle()), launch, *sides, *together), Some(pin))
        }
        Work::Copy { to, from, bytes } => {
            context.in_reservation(*to, *bytes)?;
            context.in_reservation(*from, *bytes)?;
            (Step::Copy(to.0, from.0, handles::narrow(*bytes)?), None)
        }
        Work::Fill { to, pattern, count } => {
            let bytes = count.checked_mul(pattern.bytes());
            let bytes = bytes.ok_or_else(|| Error::Refused("an endless range".to_owned()))?;
            context.in_reservation(*to, bytes)?;
            (Step::Fill(to.0, *pattern, handles::narrow(*count)?), None)
        }
    })
}

impl MadeGraphs {
    /// See [`bulkhead_gpu::Gpu::make_graph`].
    pub(crate) fn make(&self, context: &Context, nodes: &[Node]) -> Result<Option<GraphId>, Error> {
        context.alive()?;
        let mut pins = Vec::new();
        let mut steps = Vec::with_capacity(nodes.len());
        for node in nodes {
            let Ok((step, pin)) = step(context, &node.work) else { return Ok(None) };
            steps.push((step, node));
            pins.extend(pin);
        }
        let made = context.driver.graph_make(context.handle, steps.into_iter());
        match context.settle("cuGraphInstantiate", made) {
            Ok(made) => {
                let mut graphs = self.0.lock();
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
    pub(crate) fn change_node(
        &self,
        context: &Context,
        graph: GraphId,
        node: usize,
        work: &Work,
    ) -> Result<(), Error> {
        context.alive()?;
        let (step, _pin) = step(context, work)?;
        let graphs = self.0.lock();
        let made = graphs.graphs.get(&graph.0).ok_or_else(unknown)?;
        let changed = context.driver.graph_change(context.handle, made, node, &step);
        context.settle("cuGraphExecKernelNodeSetParams", changed)
    }

    /// See [`bulkhead_gpu::Gpu::launch_made`].
    pub(crate) fn launch(&self, context: &Context, stream: StreamId, graph: GraphId) -> Result<(), Error> {
        context.alive()?;
        let stream = context.stream(stream)?;
        let graphs = self.0.lock();
        let made = graphs.graphs.get(&graph.0).ok_or_else(unknown)?;
        context.settle("cuGraphLaunch", context.driver.graph_launch_made(made, handles::stream_of(&stream)))
    }

    /// See [`bulkhead_gpu::Gpu::destroy_graph`].
    pub(crate) fn destroy(&self, context: &Context, graph: GraphId) -> Result<(), Error> {
        let made = self.0.lock().graphs.remove(&graph.0);
        let Some(made) = made else { return Ok(()) };
        context.settle("cuGraphExecDestroy", context.driver.graph_destroy_made(made))
    }
}

fn unknown() -> Error {
    Error::Refused("no such graph".to_owned())
}
