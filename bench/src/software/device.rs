//! A software GPU of this process, with the kernels and their memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use bulkhead_gpu::{Access, DeviceAddress, EntryId, FillPattern, Gpu, Launch, StreamId};
use bulkhead_softgpu::{Engine, Options, SoftGpu};

use super::{LONG, MATRIX, PLANE};
use crate::host::Failure;

/// Where memory is mapped.
const WINDOW: u64 = 1 << 45;
/// Of each of three arrays.
const ARRAY_BYTES: u64 = LONG as u64 * 4;
/// Threads of a block.
const BLOCK: u32 = 256;
/// 1.0
const ONE: u32 = 0x3f80_0000;

/// The device.
pub(super) struct Device {
    gpu: Arc<SoftGpu>,
    stream: StreamId,
    entries: HashMap<String, EntryId>,
}

fn failed(error: bulkhead_gpu::Error) -> Failure {
    format!("the software GPU: {error}").into()
}

/// Parameters in a row.
fn parameters(pointers: &[u64], words: &[u32]) -> Vec<u8> {
    let pointers = pointers.iter().flat_map(|pointer| pointer.to_le_bytes());
    pointers.chain(words.iter().flat_map(|word| word.to_le_bytes())).collect()
}

impl Device {
    /// A device with the kernels loaded, and three arrays of ones.
    pub(super) fn new(engine: Engine, threads: Option<usize>) -> Result<Self, Failure> {
        let gpu = SoftGpu::new(Options { engine, threads, ..Options::default() }).map_err(failed)?;
        let bytes = 3 * ARRAY_BYTES;
        gpu.reserve(DeviceAddress(WINDOW), bytes).map_err(failed)?;
        let memory = gpu.create_memory(bytes).map_err(failed)?;
        gpu.map(DeviceAddress(WINDOW), memory, bytes, 1, Access::ReadWrite).map_err(failed)?;
        let stream = gpu.create_stream(0).map_err(failed)?;
        gpu.fill(stream, DeviceAddress(WINDOW), FillPattern::Bits32(ONE), bytes / 4).map_err(failed)?;
        gpu.synchronize(stream).map_err(failed)?;
        let image = gpu.load(include_str!("kernels.ptx")).map_err(failed)?;
        let entries = image.entries.into_iter().map(|entry| (entry.name, entry.id)).collect();
        Ok(Self { gpu, stream, entries })
    }

    /// Launches a kernel of so many threads.
    pub(super) fn submit(&self, entry: &str, threads: u32) -> Result<(), Failure> {
        let id = *self.entries.get(entry).ok_or_else(|| format!("no kernel `{entry}`"))?;
        let [a, b, c] = [0, 1, 2].map(|index| WINDOW + index * ARRAY_BYTES);
        let parameters = match entry {
            "saxpy" => parameters(&[a, b], &[ONE, PLANE]),
            "stencil" => parameters(&[a, c], &[PLANE]),
            "matmul" => parameters(&[a, b, c], &[MATRIX]),
            "add" => parameters(&[a, b, c], &[LONG]),
            _ => Vec::new(),
        };
        let launch = Launch {
            grid: [threads.div_ceil(BLOCK), 1, 1],
            block: [threads.min(BLOCK), 1, 1],
            shared_bytes: 0,
            parameters: &parameters,
        };
        self.gpu.launch(self.stream, id, &launch).map_err(failed)
    }

    /// Launches, and waits.
    pub(super) fn launch(&self, entry: &str, threads: u32) -> Result<(), Failure> {
        self.submit(entry, threads)?;
        self.gpu.synchronize(self.stream).map_err(failed)
    }

    /// The least time that something and the wait for it took, in seconds. It is done once before.
    pub(super) fn least(
        &mut self,
        runs: usize,
        work: impl Fn(&Self) -> Result<(), Failure>,
    ) -> Result<f64, Failure> {
        let mut least = f64::INFINITY;
        for run in 0..=runs {
            let started = Instant::now();
            work(self)?;
            self.gpu.synchronize(self.stream).map_err(failed)?;
            if run > 0 {
                least = least.min(started.elapsed().as_secs_f64());
            }
        }
        Ok(least)
    }
}
