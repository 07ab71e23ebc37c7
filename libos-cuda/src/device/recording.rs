//! A device without a GPU or a kernel process, for tests: it has memory, does copies and fills at once, keeps a
//! record of what it was asked, and runs no code.

#![allow(
    dead_code,
    clippy::cast_possible_truncation,
    reason = "a test double: not every build uses all of it, and its sizes are small"
)]

#[cfg(test)]
mod asked;
mod buffers;
mod copies;
mod images;
mod isolated;
mod kernels;
mod shared;
mod state;
mod values;
mod variables;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use bulkhead_schema::RefusedEntry;
use parking_lot::Mutex;

use super::{Error, ErrorCode, Handle};

pub(crate) use buffers::{Barrier, Buffer, HostBuffer};
pub(crate) use images::{Entry, Image};
pub(crate) use isolated::{Graph, GraphWork};
pub(crate) use shared::{Received, RemoteFence, Reservation, Share, Signal};
use state::State;
pub(crate) use values::{
    Asked, Device, DeviceRange, Event, Fence, Heap, HostSpan, Launch, MemoryInfo, Pattern, Stream,
};
use values::{HOST_GENERATION, PAGE_BYTES, error};

/// How a session is opened.
#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) socket: PathBuf,
    pub(crate) name: String,
    pub(crate) device: u32,
    pub(crate) terms: bulkhead_client::Terms,
    pub(crate) stray: bulkhead_client::Stray,
}

/// Gates that a session accepted.
pub(crate) struct AcceptedGates;

/// A session.
#[derive(Clone)]
pub(crate) struct Session {
    device: Arc<Device>,
    state: Arc<Mutex<State>>,
}

static NEXT_ADDRESS: AtomicU64 = AtomicU64::new(0x2010_0000_0000);

impl Session {
    pub(crate) fn open(options: &Options) -> Result<Session, Error> {
        if options.name.is_empty() {
            return error(ErrorCode::InvalidArgument, "a session has a name");
        }
        let device = Device {
            name: "Recording Device".into(),
            uuid: *b"recording device",
            backend: "software".to_owned(),
            memory_bytes: 8 << 30,
            architecture: 90,
        };
        let state = State { streams: vec![true], positions: vec![0], held: vec![None], ..State::default() };
        Ok(Session { device: Arc::new(device), state: Arc::new(Mutex::new(state)) })
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn window(&self) -> (u64, u64) {
        (0x2000_0000_0000, 512 << 30)
    }

    pub(crate) fn memory(&self) -> Result<MemoryInfo, Error> {
        let used: usize = self.state.lock().buffers.iter().flatten().map(Vec::len).sum();
        let total_bytes = self.device.memory_bytes;
        Ok(MemoryInfo { free_bytes: total_bytes - used as u64, total_bytes })
    }

    pub(crate) fn usage(&self) -> Result<(MemoryInfo, u64), Error> {
        let memory = self.memory()?;
        Ok((memory, memory.total_bytes - memory.free_bytes))
    }

    pub(crate) fn allocate(&self, bytes: u64) -> Result<Buffer, Error> {
        if bytes > self.memory()?.free_bytes {
            return error(ErrorCode::OutOfMemory, "out of memory");
        }
        let mut state = self.state.lock();
        let slot = state.buffers.len() as u32;
        state.buffers.push(Some(vec![0; bytes as usize]));
        // What is large begins with a page, as the client has it.
        let room = bytes.next_multiple_of(4096) + 4096;
        let address = match bytes < PAGE_BYTES {
            true => NEXT_ADDRESS.fetch_add(room, Ordering::Relaxed),
            false => {
                NEXT_ADDRESS.fetch_add(room + PAGE_BYTES, Ordering::Relaxed).next_multiple_of(PAGE_BYTES)
            }
        };
        let handle = Handle { slot, generation: 1 };
        let exported = Mutex::default();
        Ok(Buffer { handle, address, bytes, after: None, exported, state: self.state.clone() })
    }

    pub(crate) fn allocate_host(&self, bytes: usize) -> Result<HostBuffer, Error> {
        let content = Arc::new((0..bytes).map(|_| AtomicU8::new(0)).collect::<Vec<_>>());
        let mut state = self.state.lock();
        let slot = state.hosts.len() as u32;
        state.hosts.push(Some(content.clone()));
        let handle = Handle { slot, generation: HOST_GENERATION };
        Ok(HostBuffer { handle, content, address: None, state: self.state.clone() })
    }

    pub(crate) fn allocate_mapped(&self, bytes: usize) -> Result<HostBuffer, Error> {
        let stride = (bytes as u64).next_multiple_of(PAGE_BYTES);
        let mut buffer = self.allocate_host(bytes)?;
        buffer.address = Some(NEXT_ADDRESS.fetch_add(stride, Ordering::Relaxed));
        Ok(buffer)
    }

    /// At one address, unlike what is mapped.
    pub(crate) fn allocate_managed(&self, bytes: usize) -> Result<HostBuffer, Error> {
        let mut buffer = self.allocate_host(bytes)?;
        buffer.address = Some(buffer.as_ptr().addr() as u64);
        Ok(buffer)
    }

    pub(crate) fn alone<T>(&self, work: impl FnOnce() -> T) -> Result<T, Error> {
        Ok(work())
    }

    /// Finds the entries of the PTX, and their parameters where those are on lines of their own.
    pub(crate) fn load_image_telling(&self, image: &[u8], _slow: &dyn Fn()) -> Result<Image, Error> {
        let image = bulkhead_fatbin::Image::read(image)
            .map_err(|bad| Error::new(ErrorCode::ImageInvalid, bad.to_string()))?;
        let ptx = image
            .ptx_for(self.device.architecture)
            .map_err(|bad| Error::new(ErrorCode::NotSupported, bad.to_string()))?;
        let mut state = self.state.lock();
        let (mut entries, mut refused) = (Vec::new(), Vec::new());
        for part in ptx.split(".entry ").skip(1) {
            let (name, rest) = part.split_once('(').unwrap_or((part, ""));
            if rest.contains("brkpt") {
                let why = "image.ptx:9:1: brkpt is not allowed".to_owned();
                refused.push(RefusedEntry { name: name.trim().to_owned(), why });
                continue;
            }
            let list = rest.split_once(')').map_or("", |(list, _)| list);
            let slot = state.entries.len() as u32;
            state.entries.push(name.trim().to_owned());
            let parameters = images::parameters(list);
            entries.push(Entry {
                name: name.trim().to_owned(),
                handle: Handle { slot, generation: 1 },
                data: None,
                parameter_bytes: parameters.last().map_or(0, |last| (last.offset + last.bytes) as usize),
                parameters,
                threads_max: 1024,
                shared_bytes: 256,
                local_bytes: 0,
                constant_bytes: 0,
                registers: 32,
                ptx_version: 90,
                binary_version: 90,
            });
        }
        match refused.first() {
            Some(RefusedEntry { why, .. }) if entries.is_empty() => error(ErrorCode::ImageRefused, why),
            _ => Ok(Image { entries: entries.into(), refused: refused.into() }),
        }
    }

    pub(crate) fn allow_dynamic_shared(
        &self,
        _image: &Image,
        entry: &Entry,
        bytes: u32,
    ) -> Result<(), Error> {
        if entry.shared_bytes + bytes > 232_448 {
            return error(ErrorCode::LaunchResources, "more shared memory than the device has");
        }
        Ok(())
    }

    pub(crate) fn create_stream(&self, _priority: i32) -> Result<Stream, Error> {
        let mut state = self.state.lock();
        if let Some(free) = state.streams.iter().position(|live| !live) {
            state.streams[free] = true;
            return Ok(Stream(free as u32));
        }
        if state.streams.len() == bulkhead_schema::limits::STREAMS_MAX as usize {
            return error(ErrorCode::LimitReached, "too many streams");
        }
        state.streams.push(true);
        state.positions.push(0);
        state.held.push(None);
        Ok(Stream(state.streams.len() as u32 - 1))
    }

    pub(crate) fn destroy_stream(&self, stream: Stream) -> Result<(), Error> {
        let mut state = self.state.lock();
        state.submit(stream, Asked::DestroyStream { stream: stream.0 })?;
        state.streams[stream.0 as usize] = false;
        Ok(())
    }

    pub(crate) fn create_event(&self) -> Result<Event, Error> {
        Ok(Event(0))
    }

    pub(crate) fn destroy_event(&self, _event: Event) -> Result<(), Error> {
        Ok(())
    }

    pub(crate) fn record(&self, _event: Event, stream: Stream) -> Result<Fence, Error> {
        self.state.lock().submit(stream, Asked::Record { stream: stream.0 })
    }

    pub(crate) fn elapsed_ns(&self, _start: Event, _end: Event) -> Result<f64, Error> {
        Ok(1.5e6)
    }

    pub(crate) fn launch_with(
        &self,
        stream: Stream,
        entry: Handle,
        launch: &Launch,
        parameter_bytes: usize,
        mut write: impl FnMut(&mut [u8]),
    ) -> Result<Fence, Error> {
        let mut parameters = vec![0xEE; parameter_bytes];
        write(&mut parameters);
        let mut state = self.state.lock();
        let entry = state.entries[entry.slot as usize].clone();
        assert!(launch.block.iter().all(|size| *size > 0), "checked before");
        state.submit(
            stream,
            Asked::Launch {
                stream: stream.0,
                entry,
                grid: launch.grid,
                shared_bytes: launch.shared_bytes,
                parameters,
            },
        )
    }

    pub(crate) fn launch_together_with(
        &self,
        stream: Stream,
        entry: &Entry,
        launch: &Launch,
        write: impl FnMut(&mut [u8]),
    ) -> Result<Fence, Error> {
        self.launch_with(stream, entry.handle, launch, entry.parameter_bytes, write)
    }

    pub(crate) fn wait_on(&self, stream: Stream, fence: Fence) -> Result<(), Error> {
        let mut state = self.state.lock();
        let wait = state.submit(stream, Asked::WaitOn { stream: stream.0, other: fence.stream })?;
        state.waits.push((wait.stream, wait.position, fence));
        Ok(())
    }

    pub(crate) fn tell_who_waits_for_room(&self, _: fn()) {}

    pub(crate) fn end(&self) {}
    pub(crate) fn give_up_window(&self) {}
    pub(crate) fn take_back_window(&self) {}

    pub(crate) fn aside(&self, usual: Stream) -> Stream {
        usual
    }

    /// What comes later is done at once all the same: the record says that it was asked to wait. Fences do wait.
    pub(crate) fn barrier(&self, stream: Stream) -> Result<Barrier, Error> {
        let mut state = self.state.lock();
        let fence = state.submit(stream, Asked::Barrier { stream: stream.0 })?;
        let closed = Arc::clone(&state.closed);
        closed.lock().insert((fence.stream, fence.position));
        Ok(Barrier { closed, fence })
    }

    pub(crate) fn fence(&self, stream: Stream) -> Fence {
        self.state.lock().fence(stream)
    }

    pub(crate) fn is_done(&self, fence: Fence) -> Result<bool, Error> {
        Ok(self.has_passed(fence))
    }

    pub(crate) fn has_passed(&self, fence: Fence) -> bool {
        self.state.lock().has_passed(fence)
    }

    pub(crate) fn wait(&self, fence: Fence) -> Result<(), Error> {
        while !self.is_done(fence)? {
            std::thread::yield_now();
        }
        Ok(())
    }

    pub(crate) fn status(&self) -> Result<(), Error> {
        Ok(())
    }
}
