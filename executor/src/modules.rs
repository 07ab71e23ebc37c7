//! Protected modules: their gates, and memory that only those reach.
//!
//! A module's *protected window* is a power of two of bytes, begins with a multiple of that and lies outside of all slots. It is
//! memory that no session is ever given; a session's kernels reach it through gates that the verifier has found in
//! the session's code, if the session was granted the module. What kernels are told of a window comes from here, at each
//! launch.

pub(crate) mod grants;

use std::{
    collections::BTreeMap,
    fs::File,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::FileExt,
    },
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bulkhead_gpu::{
    Access, DeviceAddress, Error as DeviceError, FillPattern, Gpu, HostAddress, HostRange, MemoryId, StreamId,
};
use bulkhead_mm::{PROTECTED_BYTES, PROTECTED_WINDOWS, ProtectedWindow};
use bulkhead_ring::{
    ActivityWriter,
    memory::{Shared, create_shared},
};
use bulkhead_schema::{Error, ErrorCode, limits};
use bulkhead_verifier::Gates;
use parking_lot::Mutex;

use crate::{device, modules::grants::Module};

/// How often it is looked whether no kernel runs.
const LOOK: Duration = Duration::from_millis(1);
/// How long it is only looked, before others' new work is held back for such a moment.
const PATIENCE: Duration = Duration::from_secs(1);
/// Host memory through which windows are read and written.
const STAGE_BYTES: usize = limits::MODULE_PIECE_BYTES_MAX;
/// What is cleared of a module whose host half has ended: variables beyond that are seldom what says who may do what.
const CLEARED_BYTES_MAX: u64 = 16 << 20;

/// What does something where no kernel runs; more or less is done for that.
pub(crate) type WhileIdle<'a> = &'a dyn Fn(Patient, &mut dyn FnMut()) -> Result<(), Error>;

/// Whether to go on looking for a moment when no kernel runs, or to bring one about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patient {
    /// It comes by itself, mostly.
    Still,
    /// It has not.
    NoMore,
}

/// Where the device memory of a module's window comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WindowOrigin {
    /// It is made, and zero.
    New,
    /// Another executor has it, and it is brought later.
    Adopted,
}

/// What is answered to whoever asks something of a module.
pub(crate) enum Said {
    Done,
    /// What was read.
    Piece(Vec<u8>),
    /// Its window's device memory, for another executor.
    Memory(OwnedFd),
}

/// The modules of an executor.
pub(crate) struct Modules {
    gpu: Arc<dyn Gpu>,
    /// Held for a look only: the main thread looks too.
    table: Mutex<BTreeMap<u32, Arc<Module>>>,
    /// Copies to and from windows go through here, one at a time. Held while windows come and go, so that none goes while it is
    /// copied.
    stage: Mutex<Option<Stage>>,
}

struct Stage {
    stream: StreamId,
    words: Shared,
}

/// The text behind a descriptor.
pub(crate) fn text(descriptor: OwnedFd) -> Result<String, Error> {
    let broken = |what: String| Error::new(ErrorCode::InvalidArgument, format!("the module's gates: {what}"));
    let file = File::from(descriptor);
    let bytes = file.metadata().map_err(|error| broken(error.to_string()))?.len();
    let length = usize::try_from(bytes).ok().filter(|_| bytes <= limits::GATES_BYTES_MAX);
    let mut text = vec![0; length.ok_or_else(|| broken("the text is too long".to_owned()))?];
    file.read_exact_at(&mut text, 0).map_err(|error| broken(error.to_string()))?;
    String::from_utf8(text).map_err(|error| broken(error.to_string()))
}

fn refused(what: &str) -> Error {
    Error::new(ErrorCode::InvalidArgument, what)
}

impl Modules {
    pub(crate) fn new(gpu: &Arc<dyn Gpu>) -> Self {
        Self { gpu: Arc::clone(gpu), table: Mutex::default(), stage: Mutex::default() }
    }

    /// Verifies a module's gates and makes its window, all of whose bytes are zero; without the host memory that it ends with,
    /// and without any where another executor has it.
    pub(crate) fn add(
        &self,
        id: u32,
        text: &str,
        bytes: u64,
        host_bytes: u64,
        origin: WindowOrigin,
    ) -> Result<(), Error> {
        let mut gates = Gates::default();
        let window = bulkhead_guard::add_gates(&mut gates, &id.to_string(), text)
            .map_err(|report| Error::new(ErrorCode::ImageRefused, format!("the module's gates: {report}")))?;
        let (wanted, variable_bytes) = (window.host_bytes(), window.device.bytes);
        if wanted != host_bytes || host_bytes >= bytes {
            return Err(refused("the module's gates have other variables in host memory"));
        }
        let stage = self.stage().map_err(|error| device::error(&error))?;
        let place = self.place(id)?;
        let Some(memory) = place.memory(bytes) else {
            return Err(refused("a protected window is a power of two of bytes, from 2 MiB to 32 GiB"));
        };
        let (base, memory) = (memory.start().0, OnceLock::new());
        if origin == WindowOrigin::New {
            let made = self.open(stage.as_ref(), base, bytes - host_bytes);
            let made = made.map_err(|error| device::error(&error))?;
            memory.get_or_init(|| made);
        }
        let (has_host, grants, activity) = (AtomicBool::new(false), AtomicU32::new(0), OnceLock::new());
        let module =
            Module { id, gates, base, bytes, variable_bytes, host_bytes, has_host, memory, grants, activity };
        let module = Arc::new(module);
        self.table.lock().insert(id, module);
        drop(stage);
        Ok(())
    }

    /// The device memory of a module's window, for another executor.
    pub(crate) fn export(&self, id: u32) -> Result<OwnedFd, Error> {
        let module = self.get(id)?;
        let memory = module.memory.get().ok_or_else(|| refused("the module's window has no memory yet"))?;
        self.gpu.export_memory(*memory).map_err(|error| device::error(&error))
    }

    /// Maps the device memory of a window that another executor has, as it is.
    pub(crate) fn adopt(&self, id: u32, memory: OwnedFd) -> Result<(), Error> {
        let stage = self.stage().map_err(|error| device::error(&error))?;
        let module = self.get(id)?;
        if module.memory.get().is_some() {
            return Err(refused("the module's window has its memory"));
        }
        let (at, bytes) = (DeviceAddress(module.base), module.device_bytes());
        let adopted = self.reserved(at, |gpu| {
            let memory = gpu.import_memory(memory, bytes)?;
            let mapped = gpu.map(at, memory, bytes, 1, Access::ReadWrite);
            if mapped.is_err() {
                gpu.destroy_memory(memory)?;
            }
            mapped.map(|()| memory)
        });
        let adopted = adopted.map_err(|error| device::error(&error))?;
        module.memory.get_or_init(|| adopted);
        drop(stage);
        Ok(())
    }

    /// Maps the host memory that a module's window ends with.
    pub(crate) fn map(&self, id: u32, memory: OwnedFd) -> Result<(), Error> {
        let stage = self.stage().map_err(|error| device::error(&error))?;
        let module = self.get(id)?;
        if module.host_bytes == 0 || module.has_host.load(Ordering::Acquire) {
            return Err(refused("the module has no host memory to be mapped"));
        }
        let at = module.host();
        self.gpu.map_host(at, memory.as_fd(), module.host_bytes).map_err(|error| device::error(&error))?;
        module.has_host.store(true, Ordering::Release);
        drop(stage);
        Ok(())
    }

    /// Counts the launches in flight that call a module's gates on this page from now on, and seals it.
    pub(crate) fn watch(&self, id: u32, page: OwnedFd) -> Result<(), Error> {
        let module = self.get(id)?;
        let unmapped = |error| refused(&format!("the module's activity page: {error}"));
        let writer = ActivityWriter::map(page.as_fd()).map_err(unmapped)?;
        module.activity.set(Arc::new(writer)).map_err(|_| refused("the module has an activity page"))
    }

    /// Addresses for a module that there is not yet. They stay nobody's as long as the stage is held.
    fn place(&self, id: u32) -> Result<ProtectedWindow, Error> {
        let table = self.table.lock();
        if table.contains_key(&id) {
            return Err(refused("the module exists"));
        }
        let is_free =
            |window: &ProtectedWindow| table.values().all(|module| module.base != window.range().start().0);
        let free = (0..PROTECTED_WINDOWS).filter_map(ProtectedWindow::new).find(is_free);
        free.ok_or_else(|| {
            Error::new(ErrorCode::LimitReached, "there is no place for another module's window")
        })
    }

    fn open(&self, stage: Option<&Stage>, base: u64, bytes: u64) -> Result<MemoryId, DeviceError> {
        let at = DeviceAddress(base);
        let stream = stage.map(|stage| stage.stream);
        let stream = stream.ok_or_else(|| DeviceError::Refused("no stream for windows".into()))?;
        self.reserved(at, |gpu| {
            let memory = gpu.create_memory(bytes)?;
            let mapped = gpu.map(at, memory, bytes, 1, Access::ReadWrite).and_then(|()| {
                let scrubbed = gpu
                    .fill(stream, at, FillPattern::Bits32(0), bytes / 4)
                    .and_then(|()| gpu.synchronize(stream));
                if scrubbed.is_err() {
                    gpu.unmap(at, bytes)?;
                }
                scrubbed
            });
            if mapped.is_err() {
                gpu.destroy_memory(memory)?;
            }
            mapped.map(|()| memory)
        })
    }

    /// Takes a window's addresses, unless what is to lie there cannot be had.
    fn reserved(
        &self,
        at: DeviceAddress,
        make: impl FnOnce(&dyn Gpu) -> Result<MemoryId, DeviceError>,
    ) -> Result<MemoryId, DeviceError> {
        // Where a reservation is small the driver gives it another place: the whole of the window's addresses is taken.
        self.gpu.reserve(at, PROTECTED_BYTES)?;
        let made = make(&*self.gpu);
        if made.is_err() {
            self.gpu.unreserve(at, PROTECTED_BYTES)?;
        }
        made
    }

    /// The stream and the memory for copies, made when they are first needed.
    fn stage(&self) -> Result<parking_lot::MutexGuard<'_, Option<Stage>>, DeviceError> {
        let mut stage = self.stage.lock();
        if stage.is_none() {
            let broken = |error: std::io::Error| DeviceError::Refused(format!("memory for windows: {error}"));
            let descriptor = create_shared(STAGE_BYTES as u64).map_err(broken)?;
            let words = Shared::map(descriptor.as_fd(), STAGE_BYTES).map_err(broken)?;
            self.gpu.register_host(HostRange { at: HostAddress(words.address()), bytes: STAGE_BYTES })?;
            *stage = Some(Stage { stream: self.gpu.create_stream(0)?, words });
        }
        Ok(stage)
    }

    /// Clears what the gates of a module keep in variables, beside kernels that run: they find nothing that is open.
    pub(crate) fn close(&self, id: u32) -> Result<(), Error> {
        let bytes = self.get(id)?.variable_bytes.min(CLEARED_BYTES_MAX);
        let zeros = vec![0; STAGE_BYTES];
        let mut offset = 0;
        while offset < bytes {
            let piece = (bytes - offset).min(STAGE_BYTES as u64);
            // By the copy engine: kernels that fill the device leave no room for one that clears.
            self.write(id, offset, zeros.get(..usize::try_from(piece).unwrap_or(0)).unwrap_or_default())?;
            offset += piece;
        }
        Ok(())
    }

    /// Takes a module away that nobody is granted any more, and none of whose callers has work left: the kernel asks when that
    /// is so. Host memory goes at a moment when no kernel runs, which `while_idle` tries: the driver would wait for all of them.
    pub(crate) fn remove(&self, id: u32, while_idle: WhileIdle<'_>) -> Result<(), Error> {
        let module = self.get(id)?;
        if module.grants.load(Ordering::Acquire) > 0 {
            return Err(refused("the module is granted to a session"));
        }
        if module.has_host.load(Ordering::Acquire) {
            let (mut gone, begun) = (None, Instant::now());
            while gone.is_none() {
                let patient = if begun.elapsed() < PATIENCE { Patient::Still } else { Patient::NoMore };
                while_idle(patient, &mut || {
                    gone = Some(self.gpu.unmap_host(module.host(), module.host_bytes))
                })?;
                thread::sleep(LOOK);
            }
            gone.unwrap_or(Ok(())).map_err(|error| device::error(&error))?;
            module.has_host.store(false, Ordering::Release);
        }
        let stage = self.stage().map_err(|error| device::error(&error))?;
        if let Some(memory) = module.memory.get() {
            let at = DeviceAddress(module.base);
            let gone = self.gpu.unmap(at, module.device_bytes());
            let gone = gone.and_then(|()| self.gpu.destroy_memory(*memory));
            gone.and_then(|()| self.gpu.unreserve(at, PROTECTED_BYTES))
                .map_err(|error| device::error(&error))?;
        }
        self.table.lock().remove(&id);
        drop(stage);
        Ok(())
    }

    pub(crate) fn get(&self, id: u32) -> Result<Arc<Module>, Error> {
        let module = self.table.lock().get(&id).cloned();
        module.ok_or_else(|| Error::new(ErrorCode::NotFound, "no such module"))
    }

    /// Reads some of a window, for the module's host half.
    pub(crate) fn read(&self, id: u32, offset: u64, bytes: u64) -> Result<Vec<u8>, Error> {
        let stage = self.stage().map_err(|error| device::error(&error))?;
        let (at, length) = self.piece(id, offset, bytes)?;
        let mut read = vec![0; length];
        let Some(Stage { stream, words }) = stage.as_ref().filter(|_| length > 0) else { return Ok(read) };
        let to = HostRange { at: HostAddress(words.address()), bytes: length };
        let copied = self.gpu.copy_to_host(*stream, to, at).and_then(|()| self.gpu.synchronize(*stream));
        copied.map_err(|error| device::error(&error))?;
        words.read(0, &mut read);
        Ok(read)
    }

    /// Writes some of a window, for the module's host half.
    pub(crate) fn write(&self, id: u32, offset: u64, data: &[u8]) -> Result<(), Error> {
        let stage = self.stage().map_err(|error| device::error(&error))?;
        let (at, length) = self.piece(id, offset, data.len() as u64)?;
        let Some(Stage { stream, words }) = stage.as_ref().filter(|_| length > 0) else { return Ok(()) };
        words.write(0, data);
        let from = HostRange { at: HostAddress(words.address()), bytes: length };
        let copied = self.gpu.copy_to_device(*stream, at, from).and_then(|()| self.gpu.synchronize(*stream));
        copied.map_err(|error| device::error(&error))
    }

    fn piece(&self, id: u32, offset: u64, bytes: u64) -> Result<(DeviceAddress, usize), Error> {
        let module = self.get(id)?;
        if module.memory.get().is_none() {
            return Err(refused("the module's window has no memory yet"));
        }
        // The host half maps what lies behind that itself.
        let device_bytes = module.device_bytes();
        let inside = offset <= device_bytes && bytes <= device_bytes - offset;
        let length = usize::try_from(bytes).ok().filter(|length| *length <= STAGE_BYTES && inside);
        let length = length.ok_or_else(|| refused("that does not lie in the module's window"))?;
        Ok((DeviceAddress(module.base + offset), length))
    }
}
