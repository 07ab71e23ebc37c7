//! Runs of launches: while a stream has work to do, the launches behind it that are in the ring already go to the device
//! as graphs, which takes a third of the time or less (docs/decisions/0066).
//!
//! Only for isolated sessions. A run ends with whatever else is asked of the device, on any stream, and with the pump's
//! turn: results, order and errors are those of launches one by one.

use bulkhead_gpu::{EntryId, Error, GRAPH_SIZES, Gpu, Launch, StreamId};

use crate::device;

/// How long a run of a stream may become that has nothing to do. A graph of so many is ready in the time of three launches.
const FIRST: usize = 16;

/// A launch that is put off.
struct Later {
    position: u64,
    entry: EntryId,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    /// Where its parameter block ends; it begins where that of the one before ends.
    end: usize,
}

/// The launches of one stream that are put off.
pub(crate) struct Run {
    stream: Option<(u32, StreamId)>,
    /// How many it may become.
    most: usize,
    launches: Vec<Later>,
    blocks: Vec<u8>,
}

/// A launch that the device refused, by its position.
pub(crate) struct Refusal {
    pub(crate) position: u64,
    pub(crate) error: bulkhead_schema::Error,
}

impl Run {
    pub(crate) fn new() -> Self {
        Self { stream: None, most: 0, launches: Vec::new(), blocks: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.launches.is_empty()
    }

    /// Whether it is of that stream.
    pub(crate) fn is_of(&self, index: u32) -> bool {
        self.stream.is_some_and(|(of, _)| of == index)
    }

    /// Begins a run of a stream that has so many records to go: no longer than that, so that the device does not wait for a
    /// graph that is being made ready, but for the time that three launches take.
    pub(crate) fn begin(&mut self, index: u32, id: StreamId, to_go: usize) {
        self.most = to_go.clamp(FIRST, GRAPH_SIZES[0]);
        self.stream = Some((index, id));
    }

    /// Puts a launch off. True where the run is as long as it may become.
    pub(crate) fn push(&mut self, position: u64, entry: EntryId, launch: &Launch<'_>) -> bool {
        self.blocks.extend_from_slice(launch.parameters);
        self.launches.push(Later {
            position,
            entry,
            grid: launch.grid,
            block: launch.block,
            shared_bytes: launch.shared_bytes,
            end: self.blocks.len(),
        });
        self.launches.len() >= self.most
    }

    /// Launches all that was put off.
    ///
    /// # Errors
    /// Only the loss of the device.
    pub(crate) fn submit(&mut self, gpu: &dyn Gpu, refused: impl FnMut(Refusal)) -> Result<(), Error> {
        let Some((_, stream)) = self.stream.take() else { return Ok(()) };
        let result = self.submit_on(gpu, stream, refused);
        self.launches.clear();
        self.blocks.clear();
        result
    }

    fn submit_on(
        &self,
        gpu: &dyn Gpu,
        stream: StreamId,
        mut refused: impl FnMut(Refusal),
    ) -> Result<(), Error> {
        let mut launches = Vec::with_capacity(self.launches.len());
        let mut begin = 0;
        for later in &self.launches {
            let parameters = &self.blocks[begin..later.end];
            begin = later.end;
            let &Later { grid, block, shared_bytes, .. } = later;
            launches.push((later.entry, Launch { grid, block, shared_bytes, parameters }));
        }
        let mut at = 0;
        while at < launches.len() {
            let left = launches.len() - at;
            let size = GRAPH_SIZES.into_iter().find(|size| *size <= left);
            let count = size.unwrap_or(left);
            let part = &launches[at..at + count];
            if size.is_none() || !gpu.launch_graph(stream, part)? {
                for ((entry, launch), later) in part.iter().zip(&self.launches[at..]) {
                    match gpu.launch(stream, *entry, launch) {
                        Ok(()) => {}
                        Err(lost @ Error::Lost { .. }) => return Err(lost),
                        Err(error) => {
                            let error = device::error(&error);
                            refused(Refusal { position: later.position, error });
                        }
                    }
                }
            }
            at += count;
        }
        Ok(())
    }
}
