//! The device itself: the executor's calls, checked and handed on.

mod launch;

use launch::entry_info;

use std::collections::{HashMap, HashSet};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use bulkhead_gpu::{
    Access, Compiled, DeviceAddress, DeviceInfo, EntryId, Error, EventId, FillPattern, Gpu, HostAddress,
    HostRange, ImageId, Launch, LoadedImage, MemoryId, StreamId,
};
use parking_lot::{Mutex, RwLock};

use crate::code::{ConstantBank, Program};
use crate::compiled::{self, Code, Engine, GangCounts};
use crate::decode;
use crate::device::{self, SHARED_BYTES_DEFAULT, SHARED_BYTES_MAX};
use crate::exec::Observer;
use crate::health::Health;
use crate::inspect::Inspector;
use crate::memory::host::{HostMemory, HostUse};
use crate::memory::space::AddressSpace;
use crate::pool::Pool;
use crate::profile::Profiler;
use crate::sanitize::Sanitizer;
use crate::stream::{Event, Stream, Work, Worker};

/// Streams at once.
const STREAMS_MAX: usize = 1024;
/// Events at once.
const EVENTS_MAX: usize = 1 << 16;
/// Registers and local memory of one block: what the interpreter needs, which is more than a real device.
const BLOCK_BYTES_MAX: u64 = 512 << 20;

/// How a software GPU is made.
#[derive(Debug, Clone)]
pub struct Options {
    /// Device memory; the host gives it when it is first touched.
    pub memory_bytes: u64,
    /// Host threads that run blocks besides the streams' own, and the multiprocessors reported;
    /// `None`: as many as the host has cores.
    pub threads: Option<usize>,
    /// The context is lost at the launch after so many: for tests of what happens then.
    pub lost_after_launches: Option<u64>,
    /// What runs kernels.
    pub engine: Engine,
    /// The order in which the warps of a launch run is drawn from this seed, and is the same for the same seed: one host
    /// thread interprets each launch. What several streams do at once is in no order all the same.
    pub schedule: Option<u64>,
    /// Who counts what kernels do, which the interpreter runs then.
    pub profiler: Option<Arc<Profiler>>,
    /// Who looks for mistakes of kernels, which the interpreter runs then. Not together with a profiler.
    pub sanitizer: Option<Arc<Sanitizer>>,
    /// Who looks at what kernels reach, which the interpreter runs then. Alone, too.
    pub inspector: Option<Arc<Inspector>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            memory_bytes: 8 << 30,
            threads: None,
            lost_after_launches: None,
            engine: Engine::default(),
            schedule: None,
            profiler: None,
            sanitizer: None,
            inspector: None,
        }
    }
}

#[derive(Debug)]
struct Entry {
    program: Arc<Program>,
    /// Its compiled form, once somebody needed it.
    compiled: Arc<compiled::Compiled>,
    constants: Arc<ConstantBank>,
    image: ImageId,
    dynamic_shared_max: AtomicU32,
}

/// A device that executes PTX on the CPU.
#[derive(Debug)]
pub struct SoftGpu {
    info: DeviceInfo,
    options: Options,
    space: Arc<AddressSpace>,
    host: HostMemory,
    health: Arc<Health>,
    pool: Arc<Pool>,
    streams: RwLock<HashMap<StreamId, Arc<Stream>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    events: RwLock<HashMap<EventId, Arc<Event>>>,
    entries: RwLock<HashMap<EntryId, Arc<Entry>>>,
    images: Mutex<HashSet<ImageId>>,
    next: AtomicU64,
    launches: AtomicU64,
    observer: Option<Arc<dyn Observer>>,
    epoch: Instant,
}

fn refused(text: impl Into<String>) -> Error {
    Error::Refused(text.into())
}

impl SoftGpu {
    /// A device with nothing on it.
    pub fn new(options: Options) -> Result<Arc<Self>, Error> {
        let profiler = options.profiler.clone().map(|profiler| profiler as Arc<dyn Observer>);
        let sanitizer = options.sanitizer.clone().map(|sanitizer| sanitizer as Arc<dyn Observer>);
        let inspector = options.inspector.clone().map(|inspector| inspector as Arc<dyn Observer>);
        let mut observers = [profiler, sanitizer, inspector].into_iter().flatten();
        let observer = observers.next();
        if observers.next().is_some() {
            return Err(refused(
                "a profiler, a sanitizer and an inspector exclude one another: one at a time is told what kernels do",
            ));
        }
        Self::observed(options, observer)
    }

    /// The same, with somebody who is told what its kernels do.
    pub(crate) fn observed(
        options: Options,
        observer: Option<Arc<dyn Observer>>,
    ) -> Result<Arc<Self>, Error> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = options.threads.unwrap_or(cores).clamp(1, 1024);
        let space = Arc::new(AddressSpace::new(options.memory_bytes));
        let health = Arc::new(Health::default());
        // One thread less: a stream's own thread works too.
        let pool = Pool::new(threads - 1, &space, &health)
            .map_err(|error| Error::Missing(format!("no threads for the software GPU: {error}")))?;
        let multiprocessors = u32::try_from(threads).unwrap_or(1);
        Ok(Arc::new(Self {
            info: device::info(options.memory_bytes, multiprocessors),
            options,
            space,
            host: HostMemory::default(),
            health,
            pool: Arc::new(pool),
            streams: RwLock::default(),
            threads: Mutex::default(),
            events: RwLock::default(),
            entries: RwLock::default(),
            images: Mutex::default(),
            next: AtomicU64::new(1),
            launches: AtomicU64::new(0),
            observer,
            epoch: Instant::now(),
        }))
    }

    /// Whether an entry runs as compiled code by now.
    pub fn is_compiled(&self, entry: EntryId) -> Result<bool, Error> {
        Ok(self.entry(entry)?.compiled.code().is_some())
    }

    /// How often several lanes of an entry ran as one, where there is compiled code for that.
    pub fn gang_counts(&self, entry: EntryId) -> Result<Option<GangCounts>, Error> {
        Ok(self.entry(entry)?.compiled.code().and_then(Code::gang_counts))
    }

    fn name(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn multiprocessors(&self) -> u32 {
        self.info.attribute(16).and_then(|count| u32::try_from(count).ok()).unwrap_or(1)
    }

    fn push(&self, stream: StreamId, work: Work) -> Result<(), Error> {
        let streams = self.streams.read();
        streams.get(&stream).ok_or_else(|| refused("no such stream"))?.push(work)
    }

    fn event(&self, event: EventId) -> Result<Arc<Event>, Error> {
        self.events.read().get(&event).cloned().ok_or_else(|| refused("no such event"))
    }

    fn entry(&self, entry: EntryId) -> Result<Arc<Entry>, Error> {
        self.entries.read().get(&entry).cloned().ok_or_else(|| refused("no such entry"))
    }

    fn check_device(&self, at: DeviceAddress, bytes: u64, access: Access) -> Result<(), Error> {
        self.space
            .check(at.0, bytes, access)
            .map_err(|violation| refused(format!("device range {:#x}+{bytes:#x} is {violation}", at.0)))
    }

    fn begin_host(&self, range: HostRange) -> Result<HostUse, Error> {
        self.host.begin(range.at, range.bytes)
    }
}

impl Gpu for SoftGpu {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn bind_thread(&self) -> Result<(), Error> {
        self.health.check()
    }

    fn reserve(&self, at: DeviceAddress, bytes: u64) -> Result<(), Error> {
        self.health.check()?;
        self.space.reserve(at, bytes)
    }

    fn unreserve(&self, at: DeviceAddress, bytes: u64) -> Result<(), Error> {
        self.health.check()?;
        self.space.unreserve(at, bytes)
    }

    fn create_memory(&self, bytes: u64) -> Result<MemoryId, Error> {
        self.health.check()?;
        self.space.create(bytes)
    }

    fn destroy_memory(&self, memory: MemoryId) -> Result<(), Error> {
        self.health.check()?;
        self.space.destroy(memory)
    }

    fn export_memory(&self, memory: MemoryId) -> Result<OwnedFd, Error> {
        self.health.check()?;
        self.space.export(memory)
    }

    fn import_memory(&self, descriptor: OwnedFd, bytes: u64) -> Result<MemoryId, Error> {
        self.health.check()?;
        self.space.import(descriptor, bytes)
    }

    fn memory_info(&self) -> Result<(u64, u64), Error> {
        self.health.check()?;
        Ok(self.space.info())
    }

    fn map(
        &self,
        at: DeviceAddress,
        memory: MemoryId,
        chunk_bytes: u64,
        count: u64,
        access: Access,
    ) -> Result<(), Error> {
        self.health.check()?;
        self.space.map(at, memory, chunk_bytes, count, access)
    }

    fn unmap(&self, at: DeviceAddress, bytes: u64) -> Result<(), Error> {
        self.health.check()?;
        self.space.unmap(at, bytes)
    }

    fn register_host(&self, range: HostRange) -> Result<(), Error> {
        self.health.check()?;
        self.host.register(range)
    }

    fn unregister_host(&self, range: HostRange) -> Result<(), Error> {
        // Also in a dead context: nothing may touch the range once this returns.
        let done = self.host.unregister(range);
        self.health.check()?;
        done
    }

    fn map_host(&self, at: DeviceAddress, file: BorrowedFd<'_>, bytes: u64) -> Result<HostRange, Error> {
        self.health.check()?;
        let range = self.space.map_host(at, file, bytes)?;
        self.host.register(range).or_else(|error| self.space.unmap_host(at, bytes).and(Err(error)))?;
        Ok(range)
    }

    fn unmap_host(&self, at: DeviceAddress, bytes: u64) -> Result<(), Error> {
        // Also in a dead context, as above.
        let done = self
            .space
            .host_range(at, bytes)
            .and_then(|range| self.host.unregister(range))
            .and_then(|()| self.space.unmap_host(at, bytes));
        self.health.check()?;
        done
    }

    fn create_stream(&self, _priority: i32) -> Result<StreamId, Error> {
        self.health.check()?;
        let mut streams = self.streams.write();
        if streams.len() >= STREAMS_MAX {
            return Err(refused("too many streams"));
        }
        let id = StreamId(self.name());
        let stream = Arc::new(Stream::default());
        let number = u32::try_from(id.0 % u64::from(self.multiprocessors())).unwrap_or(0);
        let engine = Worker {
            stream: Arc::clone(&stream),
            space: Arc::clone(&self.space),
            pool: Arc::clone(&self.pool),
            health: Arc::clone(&self.health),
            observer: self.observer.clone().map(|observer| (id, observer)),
            number,
        };
        let thread = std::thread::Builder::new()
            .name(format!("softgpu-stream-{}", id.0))
            .spawn(move || engine.run())
            .map_err(|error| refused(format!("no thread for a stream: {error}")))?;
        let mut threads = self.threads.lock();
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
        streams.insert(id, stream);
        Ok(id)
    }

    fn destroy_stream(&self, stream: StreamId) -> Result<(), Error> {
        self.health.check()?;
        let stream = self.streams.write().remove(&stream).ok_or_else(|| refused("no such stream"))?;
        stream.close();
        Ok(())
    }

    fn synchronize(&self, stream: StreamId) -> Result<(), Error> {
        self.health.check()?;
        let stream = self.streams.read().get(&stream).cloned().ok_or_else(|| refused("no such stream"))?;
        stream.wait();
        self.health.check()
    }

    fn create_event(&self) -> Result<EventId, Error> {
        self.health.check()?;
        let mut events = self.events.write();
        if events.len() >= EVENTS_MAX {
            return Err(refused("too many events"));
        }
        let id = EventId(self.name());
        events.insert(id, Arc::default());
        Ok(id)
    }

    fn destroy_event(&self, event: EventId) -> Result<(), Error> {
        self.health.check()?;
        self.events.write().remove(&event).map(drop).ok_or_else(|| refused("no such event"))
    }

    fn record(&self, event: EventId, stream: StreamId) -> Result<(), Error> {
        self.health.check()?;
        self.push(stream, Work::Record(self.event(event)?))
    }

    fn elapsed_ns(&self, start: EventId, end: EventId) -> Result<Option<f64>, Error> {
        self.health.check()?;
        let (start, end) = (self.event(start)?.time(), self.event(end)?.time());
        let (Some(start), Some(end)) = (start, end) else { return Ok(None) };
        let signed = match end.checked_duration_since(start) {
            Some(after) => after.as_secs_f64(),
            None => -start.duration_since(end).as_secs_f64(),
        };
        Ok(Some(signed * 1e9))
    }

    fn compile(&self, ptx: &str) -> Result<Compiled, Error> {
        self.health.check()?;
        Ok(Compiled { ptx: ptx.to_owned(), code: Vec::new() })
    }

    fn install(&self, compiled: &Compiled) -> Result<LoadedImage, Error> {
        self.health.check()?;
        let image = decode::image(&compiled.ptx)?;
        let id = ImageId(self.name());
        let entries = Vec::with_capacity(image.programs.len());
        let compiled_bytes =
            |bytes: u64, program: &Arc<Program>| bytes.saturating_add(compiled::Compiled::bytes_max(program));
        let code_bytes = image.programs.iter().fold(image.host_bytes(), compiled_bytes);
        let mut loaded = LoadedImage { id, entries, code_bytes };
        let mut entries = self.entries.write();
        for program in image.programs {
            let entry_id = EntryId(self.name());
            loaded.entries.push(entry_info(entry_id, &program, &image.constants, image.architecture));
            let dynamic_shared_max = SHARED_BYTES_DEFAULT.saturating_sub(program.shared_bytes);
            let entry = Entry {
                constants: Arc::clone(&image.constants),
                image: id,
                dynamic_shared_max: AtomicU32::new(dynamic_shared_max),
                program,
                compiled: Arc::default(),
            };
            entries.insert(entry_id, Arc::new(entry));
        }
        self.images.lock().insert(id);
        Ok(loaded)
    }

    fn unload(&self, image: ImageId) -> Result<(), Error> {
        self.health.check()?;
        if !self.images.lock().remove(&image) {
            return Err(refused("no such image"));
        }
        self.entries.write().retain(|_, entry| entry.image != image);
        Ok(())
    }

    fn allow_dynamic_shared(&self, entry: EntryId, bytes: u32) -> Result<(), Error> {
        self.health.check()?;
        let entry = self.entry(entry)?;
        let room = SHARED_BYTES_MAX.saturating_sub(entry.program.shared_bytes);
        if bytes > room {
            return Err(refused(format!("{bytes} bytes of dynamic shared memory, there is room for {room}")));
        }
        entry.dynamic_shared_max.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn launch(&self, stream: StreamId, entry: EntryId, launch: &Launch<'_>) -> Result<(), Error> {
        self.launch_blocks(stream, entry, launch, false)
    }

    fn launch_together(&self, stream: StreamId, entry: EntryId, launch: &Launch<'_>) -> Result<(), Error> {
        self.launch_blocks(stream, entry, launch, true)
    }

    fn copy_to_device(&self, stream: StreamId, to: DeviceAddress, from: HostRange) -> Result<(), Error> {
        self.health.check()?;
        self.check_device(to, from.bytes as u64, Access::ReadWrite)?;
        self.push(stream, Work::ToDevice { to: to.0, from: self.begin_host(from)? })
    }

    fn copy_to_host(&self, stream: StreamId, to: HostRange, from: DeviceAddress) -> Result<(), Error> {
        self.health.check()?;
        self.check_device(from, to.bytes as u64, Access::Read)?;
        self.push(stream, Work::ToHost { to: self.begin_host(to)?, from: from.0 })
    }

    fn copy_on_device(
        &self,
        stream: StreamId,
        to: DeviceAddress,
        from: DeviceAddress,
        bytes: u64,
    ) -> Result<(), Error> {
        self.health.check()?;
        self.check_device(from, bytes, Access::Read)?;
        self.check_device(to, bytes, Access::ReadWrite)?;
        self.push(stream, Work::OnDevice { to: to.0, from: from.0, bytes })
    }

    fn fill(
        &self,
        stream: StreamId,
        to: DeviceAddress,
        pattern: FillPattern,
        count: u64,
    ) -> Result<(), Error> {
        self.health.check()?;
        let (size, pattern) = match pattern {
            FillPattern::Bits8(byte) => (1, u64::from_ne_bytes([byte; 8])),
            FillPattern::Bits16(half) => (2, u64::from(half) * 0x0001_0001_0001_0001),
            FillPattern::Bits32(word) => (4, u64::from(word) << 32 | u64::from(word)),
        };
        let bytes = count.checked_mul(size).ok_or_else(|| refused("the range is too long"))?;
        if !to.0.is_multiple_of(size) {
            return Err(refused("the range is not aligned to the pattern"));
        }
        self.check_device(to, bytes, Access::ReadWrite)?;
        self.push(stream, Work::Fill { to: to.0, bytes, pattern })
    }

    fn write_value(&self, stream: StreamId, at: HostAddress, value: u64) -> Result<(), Error> {
        self.health.check()?;
        if !at.0.is_multiple_of(8) {
            return Err(refused("the address of a completion value is not aligned"));
        }
        let at = self.begin_host(HostRange { at, bytes: 8 })?;
        self.push(stream, Work::Publish { at, value })
    }

    fn check(&self) -> Result<(), Error> {
        self.health.check()
    }
}

impl Drop for SoftGpu {
    fn drop(&mut self) {
        // Kernels that run are ended: nobody is left to see what they do.
        self.health.lose(Error::Lost { reason: "the device was closed".to_owned(), code: 201 });
        for stream in self.streams.get_mut().values() {
            stream.close();
        }
        for thread in self.threads.get_mut().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a stream of the software GPU panicked");
            }
        }
    }
}
