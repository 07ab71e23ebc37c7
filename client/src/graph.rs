//! Graphs of isolated sessions: work that is written down once, and launched by one record.

mod numbers;

use std::time::Instant;

use bulkhead_ring::{
    AFTER_MAX, Blocks, EntryLaunch, LaunchShape, NodePlace, NodeWork, Record, layout::GRAPH_NODES,
};
use bulkhead_schema::{Error, ErrorCode, Handle, limits};

use crate::{
    DeviceRange, Fence, Launch, Pattern, Session, Stream,
    session::{NO_STREAM, Submit, copy, name},
};
use numbers::Taken;

pub(crate) use numbers::Numbers;

/// What a node of a graph does.
pub enum GraphWork<'a> {
    /// Nothing: others wait for it, and it for others.
    Nothing,
    /// Launches an entry whose parameter block of `bytes` bytes `fill` writes in place.
    Launch {
        /// The entry.
        entry: Handle,
        /// Grid, block and shared memory.
        launch: Launch,
        /// Its blocks form clusters of so many in x, y, z.
        sides: Option<[u8; 3]>,
        /// All blocks are there at once.
        together: bool,
        /// It may begin while the one kernel that it comes after is about to end.
        early: bool,
        /// Length of the parameter block.
        bytes: usize,
        /// Writes it.
        fill: &'a dyn Fn(&mut [u8]),
    },
    /// Copies device memory to device memory.
    Copy {
        /// Destination.
        to: DeviceRange,
        /// Source, of the same length.
        from: DeviceRange,
    },
    /// Fills device memory; the range is a multiple of the pattern's size.
    Fill {
        /// Where.
        to: DeviceRange,
        /// The pattern.
        pattern: Pattern,
    },
}

/// A graph of an isolated session. Addresses and handles in it are looked up when a node is written down, not when it is launched.
pub struct Graph {
    session: Session,
    taken: Taken,
    /// The last launch, or change, of each stream that had one.
    last: Vec<Fence>,
}

impl Drop for Graph {
    fn drop(&mut self) {
        let mut submit = self.session.inner.submit.lock();
        submit.graphs.retiring.push((self.taken, std::mem::take(&mut self.last)));
        drop(submit);
        self.session.retire_graphs();
    }
}

impl Session {
    /// Begins a graph, which has no nodes yet. Only in isolated sessions.
    ///
    /// # Errors
    /// `limitReached` when the session has as many as it may (4,096).
    pub fn create_graph(&self) -> Result<Graph, Error> {
        self.retire_graphs();
        let limit = || Error::new(ErrorCode::LimitReached, "the session has as many graphs as it may");
        let number = self.inner.submit.lock().graphs.numbers.take(()).ok_or_else(limit)?;
        Ok(Graph { session: self.clone(), taken: Taken { number, nodes: 0, bytes: 0 }, last: Vec::new() })
    }

    /// Destroys graphs that were given up and whose launches have passed. Returns whether one of them is left because the ring
    /// has no room.
    fn retire_graphs(&self) -> bool {
        let mut is_full = false;
        let mut submit = self.inner.submit.lock();
        let Submit { producer, graphs, .. } = &mut *submit;
        let Numbers { numbers, retiring, nodes, bytes } = graphs;
        retiring.retain(|(taken, last)| {
            let destroy = Record::DestroyGraph { stream: 0, graph: taken.number };
            let have_passed = last.iter().all(|fence| self.inner.page.mark(fence.stream.0) >= fence.position);
            let retired = have_passed && producer.push(&destroy).is_ok();
            is_full |= have_passed && !retired;
            if retired {
                numbers.free(taken.number);
                *nodes -= taken.nodes as usize;
                *bytes -= taken.bytes;
            }
            !retired
        });
        is_full
    }

    /// Takes one node with so many bytes of what the session may have, if there is that much.
    fn has_taken(&self, more: usize) -> bool {
        let mut submit = self.inner.submit.lock();
        let Numbers { nodes, bytes, .. } = &mut submit.graphs;
        let is_there = *nodes < limits::GRAPHS_NODES_MAX && *bytes + more <= limits::GRAPHS_BYTES_MAX / 2;
        if is_there {
            (*nodes, *bytes) = (*nodes + 1, *bytes + more);
        }
        is_there
    }

    fn push_node(&self, stream: u32, place: NodePlace, work: &GraphWork<'_>) -> Result<Fence, Error> {
        // One that has no place in its stream's order is waited for by nobody.
        let counts = if place.is_change { stream } else { NO_STREAM };
        let plain = |work| self.push(&Record::Node { stream, place, work });
        match work {
            GraphWork::Nothing => plain(NodeWork::Nothing),
            GraphWork::Copy { to, from } => plain(NodeWork::Copy(copy((*to).into(), (*from).into())?)),
            GraphWork::Fill { to, pattern } => {
                if !to.bytes.is_multiple_of(pattern.bytes()) {
                    let message = "the range is no multiple of the pattern";
                    return Err(Error::new(ErrorCode::InvalidArgument, message));
                }
                let count = to.bytes / pattern.bytes();
                plain(NodeWork::Fill { to: name(to.handle), offset: to.offset, pattern: *pattern, count })
            }
            GraphWork::Launch { entry, launch, sides, together, bytes, fill, .. } => {
                if *bytes > limits::PARAMETER_BYTES_MAX {
                    return Err(Error::new(ErrorCode::LimitReached, "too many parameters"));
                }
                let Launch { grid, block, shared_bytes } = *launch;
                let shape = LaunchShape { grid, block, shared_bytes };
                let blocks = match (*sides, *together) {
                    (Some(sides), together) => Blocks::Clusters { sides, together },
                    (None, true) => Blocks::Together,
                    (None, false) => Blocks::Apart,
                };
                let launched = EntryLaunch { entry: name(*entry), shape, blocks };
                self.push_with(counts, |submit| {
                    submit.producer.push_node(stream, place, launched, *bytes, fill)
                })
            }
        }
    }
}

impl Graph {
    /// Adds a node that comes after these, by their numbers, which begin with 0; after the node before it where there are none given.
    ///
    /// # Errors
    /// `limitReached` beyond 65,536 nodes, or 1,048,576 or 128 MiB of parameters and dependencies of all graphs of the session; where
    /// the session is over. What the executor has against the node shows at the
    /// next [`Session::wait`].
    pub fn add(&mut self, after: Option<&[u32]>, work: &GraphWork<'_>) -> Result<u32, Error> {
        let (graph, node) = (self.taken.number, self.taken.nodes);
        if node >= GRAPH_NODES {
            return Err(Error::new(ErrorCode::LimitReached, "a graph has 65,536 nodes at most"));
        }
        self.take(after, work)?;
        if let Some(after) = after {
            let none: &[u32] = &[];
            let parts = after.chunks(AFTER_MAX).chain(after.is_empty().then_some(none));
            for part in parts {
                let mut nodes = [0; AFTER_MAX];
                nodes[..part.len()].copy_from_slice(part);
                let count = u32::try_from(part.len()).unwrap_or(0);
                self.session.push(&Record::After { stream: 0, graph, count, nodes })?;
            }
        }
        let is_early = matches!(work, GraphWork::Launch { early: true, .. });
        self.session.push_node(0, NodePlace { graph, node, is_early, is_change: false }, work)?;
        Ok(node)
    }

    /// Counts one more node, where the session may have it: the executor would refuse it when nobody waits for the answer.
    fn take(&mut self, after: Option<&[u32]>, work: &GraphWork<'_>) -> Result<(), Error> {
        let parameters = if let GraphWork::Launch { bytes, .. } = work { *bytes } else { 0 };
        let more = parameters + after.map_or(0, size_of_val);
        if !self.session.has_taken(more) {
            // What was given up makes room, as soon as the ring has some for the news.
            let start = Instant::now();
            while self.session.retire_graphs() {
                self.session.nap_for_room(start)?;
            }
            if !self.session.has_taken(more) {
                return Err(Error::new(
                    ErrorCode::LimitReached,
                    "the session's graphs have as many nodes as they may",
                ));
            }
        }
        self.taken.nodes += 1;
        self.taken.bytes += more;
        Ok(())
    }

    /// It has all its nodes.
    ///
    /// # Errors
    /// Where the session is over.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.session.push(&Record::MakeGraph { stream: 0, graph: self.taken.number }).map(drop)
    }

    /// Has a node do other work of the same kind from the next launch on. The stream has to be that of the next launch, and to come
    /// after the last one.
    ///
    /// # Errors
    /// Where there is no such node, or the session is over.
    pub fn change(&mut self, stream: Stream, node: u32, work: &GraphWork<'_>) -> Result<(), Error> {
        if node >= self.taken.nodes {
            return Err(Error::new(ErrorCode::InvalidArgument, "no such node"));
        }
        let place = NodePlace { graph: self.taken.number, node, is_early: false, is_change: true };
        // Its number is nobody else's before the change has passed.
        let changed = self.session.push_node(stream.0, place, work)?;
        self.note(changed);
        Ok(())
    }

    /// Launches all of it.
    ///
    /// # Errors
    /// Where the session is over. What the device has against it shows at the next [`Session::wait`].
    pub fn launch(&mut self, stream: Stream) -> Result<Fence, Error> {
        self.session.inner.watch.launching();
        let fence = self.session.push(&Record::LaunchGraph { stream: stream.0, graph: self.taken.number })?;
        self.note(fence);
        Ok(fence)
    }

    fn note(&mut self, fence: Fence) {
        match self.last.iter_mut().find(|last| last.stream == fence.stream) {
            Some(last) => *last = fence,
            None => self.last.push(fence),
        }
    }
}
