//! What the checks work in: a slot with sinks in both halves, an image, a stream, and host memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bulkhead_gpu::{
    Access, DeviceAddress, EntryId, EntryInfo, Gpu, HostAddress, HostRange, Launch, LoadedImage, MemoryId,
    StreamId,
};

use crate::code;

pub(crate) type Outcome<T = ()> = Result<T, String>;

pub(crate) const GIB: u64 = 1 << 30;
pub(crate) const CHUNK: u64 = 64 << 20;
pub(crate) const SLOT: DeviceAddress = DeviceAddress(0x2000_0000_0000);
pub(crate) const SLOT_BYTES: u64 = 512 * GIB;
pub(crate) const HALF_BYTES: u64 = 256 * GIB;
/// Chunks mapped at the bottom of each half.
pub(crate) const CHUNKS: u64 = 16;

const PAGE: usize = 4096;

/// Page-aligned memory that a device writes behind the compiler's back, hence atomics.
pub(crate) struct Host {
    words: Box<[AtomicU64]>,
    first: usize,
    count: usize,
}

impl Host {
    pub(crate) fn new(bytes: usize) -> Self {
        let words: Box<[AtomicU64]> = (0..(bytes + PAGE) / 8).map(|_| AtomicU64::new(0)).collect();
        let first = words.as_ptr().addr().next_multiple_of(PAGE) - words.as_ptr().addr();
        Self { words, first: first / 8, count: bytes / 8 }
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        &self.words[self.first..self.first + self.count]
    }

    pub(crate) fn at(&self, byte: usize) -> HostAddress {
        HostAddress(self.words().as_ptr().expose_provenance() + byte)
    }

    pub(crate) fn part(&self, byte: usize, bytes: usize) -> HostRange {
        HostRange { at: self.at(byte), bytes }
    }

    pub(crate) fn whole(&self) -> HostRange {
        self.part(0, self.count * 8)
    }

    /// The 32-bit word at `index`.
    pub(crate) fn word(&self, index: usize) -> u32 {
        let both = self.words()[index / 2].load(Ordering::Acquire);
        let half = if index.is_multiple_of(2) { both } else { both >> 32 };
        u32::try_from(half & u64::from(u32::MAX)).unwrap_or_default()
    }

    pub(crate) fn byte(&self, index: usize) -> u8 {
        self.words()[index / 8].load(Ordering::Acquire).to_le_bytes()[index % 8]
    }

    pub(crate) fn set(&self, value: impl Fn(u64) -> u64) {
        for (index, word) in (0..).zip(self.words()) {
            word.store(value(index), Ordering::Release);
        }
    }
}

pub(crate) struct World<'a> {
    pub(crate) gpu: &'a dyn Gpu,
    pub(crate) image: LoadedImage,
    pub(crate) stream: StreamId,
    pub(crate) sink: MemoryId,
    pub(crate) host: Host,
}

pub(crate) fn at(offset: u64) -> DeviceAddress {
    DeviceAddress(SLOT.0 + offset)
}

pub(crate) fn told<T, E: std::fmt::Display>(what: &str, result: Result<T, E>) -> Outcome<T> {
    result.map_err(|error| format!("{what}: {error}"))
}

pub(crate) fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Outcome {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found:x?}, not {expected:x?}")) }
}

pub(crate) fn wait_until(what: &str, most: Duration, mut reached: impl FnMut() -> bool) -> Outcome<Duration> {
    let start = Instant::now();
    while !reached() {
        if start.elapsed() > most {
            return Err(format!("{what}: not within {most:?}"));
        }
        std::hint::spin_loop();
    }
    Ok(start.elapsed())
}

impl<'a> World<'a> {
    pub(crate) fn new(gpu: &'a dyn Gpu) -> Outcome<Self> {
        told("reserve", gpu.reserve(SLOT, SLOT_BYTES))?;
        let sink = told("create the sink", gpu.create_memory(CHUNK))?;
        told("map the lower half", gpu.map(SLOT, sink, CHUNK, CHUNKS, Access::ReadWrite))?;
        told("map the upper half", gpu.map(at(HALF_BYTES), sink, CHUNK, CHUNKS, Access::Read))?;
        let image = told("load", gpu.load(&code::ptx(gpu.info().architecture)))?;
        let stream = told("create a stream", gpu.create_stream(0))?;
        let host = Host::new(4 << 20);
        told("register host memory", gpu.register_host(host.whole()))?;
        Ok(Self { gpu, image, stream, sink, host })
    }

    pub(crate) fn entry(&self, name: &str) -> Outcome<&EntryInfo> {
        let found = self.image.entries.iter().find(|entry| entry.name == name);
        found.ok_or_else(|| format!("the image has no entry {name}"))
    }

    /// `values` and the hidden parameters, laid out as the entry says.
    pub(crate) fn block(entry: &EntryInfo, values: &[&[u8]]) -> Vec<u8> {
        let hidden = code::hidden(SLOT.0, SLOT_BYTES, HALF_BYTES);
        let mut block = Vec::new();
        for (layout, value) in entry.parameters.iter().zip(values.iter().copied().chain(hidden.chunks(4))) {
            block.resize(layout.offset as usize, 0);
            block.extend_from_slice(value);
        }
        block
    }

    pub(crate) fn launch_on(
        &self,
        stream: StreamId,
        name: &str,
        [blocks, threads, shared_bytes]: [u32; 3],
        values: &[&[u8]],
    ) -> Outcome {
        let entry = self.entry(name)?;
        let parameters = Self::block(entry, values);
        let launch =
            Launch { grid: [blocks, 1, 1], block: [threads, 1, 1], shared_bytes, parameters: &parameters };
        told(name, self.gpu.launch(stream, entry.id, &launch))
    }

    pub(crate) fn launch(&self, name: &str, shape: [u32; 3], values: &[&[u8]]) -> Outcome {
        self.launch_on(self.stream, name, shape, values)
    }

    pub(crate) fn id(&self, name: &str) -> Outcome<EntryId> {
        self.entry(name).map(|entry| entry.id)
    }

    pub(crate) fn synchronize(&self) -> Outcome {
        told("synchronize", self.gpu.synchronize(self.stream))
    }

    /// The 32-bit words at a device address, by a copy to the host.
    pub(crate) fn read(&self, from: DeviceAddress, count: usize) -> Outcome<Vec<u32>> {
        told("copy to host", self.gpu.copy_to_host(self.stream, self.host.part(0, count * 4), from))?;
        self.synchronize()?;
        Ok((0..count).map(|index| self.host.word(index)).collect())
    }

    pub(crate) fn write(&self, to: DeviceAddress, word: u32) -> Outcome {
        let pattern = bulkhead_gpu::FillPattern::Bits32(word);
        told("fill", self.gpu.fill(self.stream, to, pattern, 1))?;
        self.synchronize()
    }
}
