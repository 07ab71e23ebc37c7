//! A software GPU with a window of memory, a stream and registered host memory.
#![allow(dead_code, reason = "each test file uses its own part of the harness")]
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test stops where something is wrong"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bulkhead_gpu::{
    Access, DeviceAddress, EntryId, EntryInfo, Error, FillPattern, Gpu, HostAddress, HostRange, Launch,
    StreamId,
};
use bulkhead_mm::{ARENA_GRANULE_BYTES, FLAGS, PAGE_BYTES, Range, SINK_BYTES, Slot};
use bulkhead_softgpu::{Engine, Options, SoftGpu};

/// The slot that the tests' memory lies in.
pub(crate) const SLOT: Slot = Slot::new(5).unwrap();
/// Where the tests' memory is mapped: the start of what production maps a session's memory in.
pub(crate) const WINDOW: u64 = SLOT.read_write().start().0;
/// What the executor gives guarded entries for their hidden parameters.
pub(crate) const HIDDEN: [u32; 3] = [SLOT.base_high(), SLOT.load_mask_high(), SLOT.store_mask_high()];
const WINDOW_BYTES: u64 = SINK_BYTES;
const STAGING_BYTES: usize = 4 << 20;
/// What the flag says to kernels that may run on.
const GO: u32 = 1 << 15;

#[repr(C, align(4096))]
struct Page([AtomicU64; 512]);

/// Host memory made of pages.
pub(crate) struct Host(Vec<Page>);

impl Host {
    pub(crate) fn new(bytes: usize) -> Self {
        let page = || Page(std::array::from_fn(|_| AtomicU64::new(0)));
        Self((0..bytes.div_ceil(4096)).map(|_| page()).collect())
    }

    pub(crate) fn range(&self) -> HostRange {
        let at = HostAddress(self.0.as_ptr().expose_provenance());
        HostRange { at, bytes: self.0.len() * 4096 }
    }

    pub(crate) fn word(&self, index: usize) -> &AtomicU64 {
        &self.0[index / 512].0[index % 512]
    }

    fn put(&self, bytes: &[u8]) {
        for (index, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(index).store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
    }

    fn get(&self, len: usize) -> Vec<u8> {
        let words = (0..len.div_ceil(8)).map(|index| self.word(index).load(Ordering::Relaxed));
        let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        bytes.truncate(len);
        bytes
    }
}

/// The usual options. The tests of `compiled.rs`, which are those of all files, run compiled code only.
pub(crate) fn options() -> Options {
    let compiled = module_path!().starts_with("compiled::");
    let engine = if compiled { Engine::Compiled } else { Engine::Interpreter };
    let schedule = module_path!().starts_with("scheduled::").then(seed);
    Options { engine, schedule, ..Options::default() }
}

/// What the order of warps is drawn from: `BULKHEAD_SEED`, or another one for each machine of a run.
fn seed() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let given = std::env::var("BULKHEAD_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed));
    println!("the order of warps is drawn: BULKHEAD_SEED={seed}");
    seed
}

pub(crate) struct Machine {
    pub(crate) gpu: Arc<SoftGpu>,
    pub(crate) stream: StreamId,
    next: u64,
    // Dropped after the device, which may still write to it.
    pub(crate) host: Host,
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self::with(Options {
            memory_bytes: 1 << 30,
            threads: Some(3),
            lost_after_launches: None,
            ..options()
        })
    }

    /// Memory in a slot with its flag. Nothing else is mapped: what is wrong ends the context.
    pub(crate) fn with(options: Options) -> Self {
        let gpu = SoftGpu::new(options).unwrap();
        let at = |range: Range| DeviceAddress(range.start().0);
        gpu.reserve(at(SLOT.reach()), SLOT.reach().bytes()).unwrap();
        gpu.reserve(at(FLAGS), FLAGS.bytes()).unwrap();
        let memory = gpu.create_memory(WINDOW_BYTES).unwrap();
        gpu.map(DeviceAddress(WINDOW), memory, WINDOW_BYTES, 1, Access::ReadWrite).unwrap();
        let flag = gpu.create_memory(PAGE_BYTES).unwrap();
        gpu.map(at(SLOT.flag_page()), flag, PAGE_BYTES, 1, Access::ReadWrite).unwrap();
        let pages = ARENA_GRANULE_BYTES / PAGE_BYTES;
        gpu.map(at(SLOT.flag_granule()), flag, PAGE_BYTES, pages, Access::Read).unwrap();
        let host = Host::new(STAGING_BYTES);
        gpu.register_host(host.range()).unwrap();
        let stream = gpu.create_stream(0).unwrap();
        let machine = Self { gpu, stream, next: WINDOW, host };
        machine.flag(stream, GO);
        machine
    }

    /// As in production: what of the slot holds nothing is sinks, and only loads reach the upper half. Nothing is
    /// mapped around the slot, so an access that gets out of it ends the context.
    pub(crate) fn with_sinks() -> Self {
        let machine = Self::new();
        let sink = machine.gpu.create_memory(SINK_BYTES).unwrap();
        let map = |start: u64, end: u64, access| {
            machine
                .gpu
                .map(DeviceAddress(start), sink, SINK_BYTES, (end - start) / SINK_BYTES, access)
                .unwrap();
        };
        let (reach, stores, flag) = (SLOT.reach(), SLOT.stores_reach(), SLOT.flag_granule());
        map(stores.start().0, WINDOW, Access::ReadWrite);
        map(WINDOW + WINDOW_BYTES, stores.end().0, Access::ReadWrite);
        map(stores.end().0, flag.start().0, Access::Read);
        map(flag.end().0, reach.end().0, Access::Read);
        machine
    }

    /// Lets guarded entries run on (0, or more than that much time), or not (`u32::MAX`).
    pub(crate) fn flag(&self, stream: StreamId, word: u32) {
        let at = DeviceAddress(SLOT.flag_page().start().0);
        self.gpu.fill(stream, at, FillPattern::Bits32(word), PAGE_BYTES / 4).unwrap();
        self.gpu.synchronize(stream).unwrap();
    }

    /// Lets guarded entries run on, as at first.
    pub(crate) fn go(&self) {
        self.flag(self.stream, GO);
    }

    /// With one engine, told apart by the number of threads.
    pub(crate) fn of(engine: Engine) -> Self {
        let threads = if engine == Engine::Compiled { 2 } else { 1 };
        Self::with(Options { engine, threads: Some(threads), ..Options::default() })
    }

    /// An engine that gives up compiling would agree with the other always.
    pub(crate) fn is_what_it_was_told(&self, entry: EntryId) {
        let compiled = self.gpu.info().attribute(16) == Some(2);
        assert_eq!(self.gpu.is_compiled(entry).unwrap(), compiled);
    }

    /// Fresh device memory.
    pub(crate) fn buffer(&mut self, bytes: usize) -> u64 {
        let at = self.next;
        self.next += (bytes as u64).next_multiple_of(256);
        assert!(self.next <= WINDOW + WINDOW_BYTES);
        at
    }

    /// All memory is fresh again.
    pub(crate) fn forget(&mut self) {
        self.next = WINDOW;
    }

    pub(crate) fn upload(&mut self, bytes: &[u8]) -> u64 {
        let at = self.buffer(bytes.len());
        self.host.put(bytes);
        let range = HostRange { bytes: bytes.len(), ..self.host.range() };
        self.gpu.copy_to_device(self.stream, DeviceAddress(at), range).unwrap();
        self.gpu.synchronize(self.stream).unwrap();
        at
    }

    pub(crate) fn upload_u32(&mut self, words: &[u32]) -> u64 {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.upload(&bytes)
    }

    pub(crate) fn upload_u64(&mut self, words: &[u64]) -> u64 {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.upload(&bytes)
    }

    pub(crate) fn upload_f32(&mut self, words: &[f32]) -> u64 {
        let words: Vec<u32> = words.iter().map(|word| word.to_bits()).collect();
        self.upload_u32(&words)
    }

    pub(crate) fn download(&mut self, at: u64, len: usize) -> Vec<u8> {
        let range = HostRange { bytes: len, ..self.host.range() };
        self.gpu.copy_to_host(self.stream, range, DeviceAddress(at)).unwrap();
        self.gpu.synchronize(self.stream).unwrap();
        self.host.get(len)
    }

    pub(crate) fn download_u32(&mut self, at: u64, count: usize) -> Vec<u32> {
        let bytes = self.download(at, count * 4);
        bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
    }

    pub(crate) fn download_u64(&mut self, at: u64, count: usize) -> Vec<u64> {
        let bytes = self.download(at, count * 8);
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
    }

    pub(crate) fn download_f32(&mut self, at: u64, count: usize) -> Vec<f32> {
        self.download_u32(at, count).into_iter().map(f32::from_bits).collect()
    }

    /// Loads an image and gives its first entry.
    pub(crate) fn entry(&self, ptx: &str) -> EntryInfo {
        self.gpu.load(ptx).unwrap_or_else(|error| panic!("{error}")).entries.remove(0)
    }

    pub(crate) fn launch(
        &self,
        entry: EntryId,
        grid: u32,
        block: u32,
        parameters: &[u8],
    ) -> Result<(), Error> {
        let launch = Launch { grid: [grid, 1, 1], block: [block, 1, 1], shared_bytes: 0, parameters };
        self.gpu.launch(self.stream, entry, &launch)
    }

    /// Launches and waits.
    pub(crate) fn run(&self, entry: EntryId, grid: u32, block: u32, parameters: &[u8]) -> Result<(), Error> {
        self.launch(entry, grid, block, parameters)?;
        self.gpu.synchronize(self.stream)
    }

    /// Runs one block of 32 threads that writes one word each to the address it is given.
    pub(crate) fn warp(&mut self, declarations: &str, body: &str) -> Vec<u32> {
        self.block(32, declarations, body)
    }

    /// Runs one block of threads that leave a word each in `%out`; `%lane` is the thread's number.
    pub(crate) fn block(&mut self, threads: u32, declarations: &str, body: &str) -> Vec<u32> {
        let entry = self.entry(&kernel(declarations, body));
        let out = self.buffer(threads as usize * 4);
        self.run(entry.id, 1, threads, &out.to_le_bytes()).unwrap();
        self.download_u32(out, threads as usize)
    }

    /// Runs one thread that is expected to end the context.
    pub(crate) fn fault(&mut self, threads: u32, declarations: &str, body: &str) -> (u32, String) {
        let entry = self.entry(&kernel(declarations, body));
        let out = self.buffer(threads as usize * 4);
        match self.run(entry.id, 1, threads, &out.to_le_bytes()) {
            Err(Error::Lost { code, reason }) => (code, reason),
            other => panic!("the context should be lost: {other:?}"),
        }
    }
}

/// An entry that stores `%out` of each thread to its word of the buffer.
pub(crate) fn kernel(declarations: &str, body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n\
         .visible .entry test(.param .u64 test_param_0)\n{{\n\
         .reg .b64 %at, %to, %lane64;\n.reg .b32 %out, %lane;\n{declarations}\n\
         ld.param.u64 %at, [test_param_0];\nmov.u32 %lane, %tid.x;\nmov.u32 %out, 0;\n\
         {body}\n\
         mul.wide.u32 %lane64, %lane, 4;\nadd.s64 %to, %at, %lane64;\nst.global.u32 [%to], %out;\nret;\n}}\n"
    )
}

/// Parameters of 4 and 8 bytes in a row, with their natural alignment.
#[derive(Default)]
pub(crate) struct Parameters(pub(crate) Vec<u8>);

impl Parameters {
    pub(crate) fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn f32(self, value: f32) -> Self {
        self.u32(value.to_bits())
    }

    /// What the guard appended to an entry's own: nothing of a slice, and what confines to the slot.
    pub(crate) fn guarded(mut self, entry: &EntryInfo) -> Self {
        let end = entry.parameters.last().map_or(0, |layout| layout.offset + layout.bytes);
        self.0.resize(end as usize - 4 * HIDDEN.len(), 0);
        self.hidden()
    }

    /// What confines to the slot.
    pub(crate) fn hidden(self) -> Self {
        HIDDEN.into_iter().fold(self, Self::u32)
    }

    pub(crate) fn u64(mut self, value: u64) -> Self {
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        self.0.extend(value.to_le_bytes());
        self
    }
}

/// In double precision PTX leaves open which NaN an operation on two of them gives.
pub(crate) fn both_nan(one: u64, other: u64) -> bool {
    f64::from_bits(one).is_nan() && f64::from_bits(other).is_nan()
}
