//! The device trait, call by call.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bulkhead_gpu::{
    Access, ArrayCopy, Compiled, DeviceAddress, DeviceInfo, EntryId, EntryInfo, Error, EventId, FillPattern,
    Gpu, GraphId, HostAddress, HostRange, ImageId, Launch, LoadedImage, MemoryId, Node, Question, StreamId,
    Taken, Work,
};

use crate::handles::{clear, event_of, fits, full, narrow, pin, stream_of, unknown, wide};
use crate::sys::{Code, Event, Function, Management, Physical, Stream};
use crate::{Cuda, image};

impl Gpu for Cuda {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn bind_thread(&self) -> Result<(), Error> {
        self.context.alive()?;
        self.context.settle("cuCtxSetCurrent", self.context.driver.context_bind(self.context.handle))
    }

    fn reserve(&self, at: DeviceAddress, bytes: u64) -> Result<(), Error> {
        self.context.alive()?;
        let size = narrow(bytes)?;
        let got = self.context.settle("cuMemAddressReserve", self.context.driver.reserve(at, size))?;
        if got == at && self.context.reserved.insert(at.0, bytes, at.0) {
            return Ok(());
        }
        self.context.settle("cuMemAddressFree", self.context.driver.unreserve(got, size))?;
        Err(Error::Refused(format!(
            "the addresses from {:#x} on are taken: the driver offers {:#x}",
            at.0, got.0
        )))
    }

    fn unreserve(&self, at: DeviceAddress, bytes: u64) -> Result<(), Error> {
        self.context.alive()?;
        let size = narrow(bytes)?;
        if !self.context.reserved.remove(at.0, bytes) {
            return Err(unknown("reservation"));
        }
        let result = self.context.driver.unreserve(at, size);
        if result.is_err() {
            // It still stands: something is mapped in it.
            self.context.reserved.insert(at.0, bytes, at.0);
        }
        self.context.settle("cuMemAddressFree", result)
    }

    fn create_memory(&self, bytes: u64) -> Result<MemoryId, Error> {
        self.context.alive()?;
        let memory = self
            .context
            .settle("cuMemCreate", self.context.driver.memory_create(self.context.device, narrow(bytes)?))?;
        self.context.keep(memory)
    }

    fn destroy_memory(&self, memory: MemoryId) -> Result<(), Error> {
        self.context.alive()?;
        let handle = self.context.memories.remove(memory.0).ok_or_else(|| unknown("memory"))?;
        drop(self.imported.lock().remove(&memory.0));
        self.context.settle("cuMemRelease", self.context.driver.memory_release(Physical(handle)))
    }

    fn export_memory(&self, memory: MemoryId) -> Result<OwnedFd, Error> {
        self.context.alive()?;
        if let Some(descriptor) = self.imported.lock().get(&memory.0) {
            return descriptor
                .try_clone()
                .map_err(|error| Error::Refused(format!("a descriptor cannot be copied: {error}")));
        }
        let memory = pin(&self.context.memories, memory.0, "memory")?;
        let exported = self.context.driver.memory_export(Physical(memory.handle()));
        let descriptor = self.context.settle("cuMemExportToShareableHandle", exported)?;
        // The driver does not: without it, ptxas would inherit the memory.
        rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC)
            .map_err(|error| Error::Refused(format!("the exported descriptor: {error}")))?;
        Ok(descriptor)
    }

    fn import_memory(&self, descriptor: OwnedFd, bytes: u64) -> Result<MemoryId, Error> {
        self.context.alive()?;
        // The driver tells nobody how long imported memory is; it compares when the memory is mapped.
        if bytes == 0 || !bytes.is_multiple_of(self.info.granule_bytes) {
            return Err(Error::Refused(format!("{bytes} bytes are not made of granules")));
        }
        let imported = match self.context.driver.memory_import(descriptor.as_fd()) {
            // Driver 580 answers unknown to a descriptor of something else, and the context is as it was: asked below.
            Err(Code::UNKNOWN) => {
                self.check()?;
                return Err(Error::Refused("the descriptor is not of device memory".to_owned()));
            }
            imported => imported,
        };
        let memory = self.context.settle("cuMemImportFromShareableHandle", imported)?;
        let id = self.context.keep(memory)?;
        self.imported.lock().insert(id.0, descriptor);
        Ok(id)
    }

    fn memory_info(&self) -> Result<(u64, u64), Error> {
        self.context.alive()?;
        let (free, total) = self.context.settle("cuMemGetInfo", self.context.driver.memory_info())?;
        Ok((wide(free), wide(total)))
    }

    fn taken_memory(&self) -> Result<Taken, Error> {
        let management = self.management.get_or_init(|| Management::open(&self.info.uuid));
        match management {
            Ok(management) => {
                let all = management.taken_in_all()?;
                let (by_processes, is_whole) = management.taken_memory()?;
                Ok(Taken { in_all: is_whole.then_some(all), by_processes })
            }
            Err(why) => Err(Error::Missing(why.clone())),
        }
    }

    fn map(
        &self,
        at: DeviceAddress,
        memory: MemoryId,
        chunk_bytes: u64,
        count: u64,
        access: Access,
    ) -> Result<(), Error> {
        self.context.alive()?;
        let memory = pin(&self.context.memories, memory.0, "memory")?;
        let bytes = chunk_bytes.checked_mul(count).filter(|bytes| *bytes > 0);
        let bytes = bytes.ok_or_else(|| Error::Refused("an empty or endless range".to_owned()))?;
        self.context.in_reservation(at, bytes)?;
        let (chunk, size) = (narrow(chunk_bytes)?, narrow(bytes)?);
        let mut mapped = 0;
        let result = (0..count)
            .try_for_each(|index| {
                let chunk_at = DeviceAddress(at.0 + index * chunk_bytes);
                self.context
                    .driver
                    .map(chunk_at, chunk, Physical(memory.handle()))
                    .map_err(|code| ("cuMemMap", code))?;
                mapped += chunk_bytes;
                Ok(())
            })
            .and_then(|()| {
                let set = self.context.driver.set_access(self.context.device, at, size, access);
                set.map_err(|code| ("cuMemSetAccess", code))
            });
        let Err((call, code)) = result else { return Ok(()) };
        let error = self.context.failed(call, code);
        if mapped > 0 {
            self.context.settle("cuMemUnmap", self.context.driver.unmap(at, narrow(mapped)?))?;
        }
        Err(error)
    }

    fn unmap(&self, at: DeviceAddress, bytes: u64) -> Result<(), Error> {
        self.context.alive()?;
        self.context.in_reservation(at, bytes)?;
        self.context.settle("cuMemUnmap", self.context.driver.unmap(at, narrow(bytes)?))
    }

    fn register_host(&self, range: HostRange) -> Result<(), Error> {
        self.context.alive()?;
        self.context.settle("cuMemHostRegister", self.context.driver.host_register(range.at, range.bytes))?;
        let device = self.context.driver.host_device_address(range.at);
        match self.context.settle("cuMemHostGetDevicePointer", device) {
            Ok(device) if self.context.registered.insert(wide(range.at.0), wide(range.bytes), device.0) => {
                Ok(())
            }
            other => {
                self.context.settle("cuMemHostUnregister", self.context.driver.host_unregister(range.at))?;
                Err(other
                    .err()
                    .unwrap_or_else(|| Error::Refused("host memory is registered already".to_owned())))
            }
        }
    }

    fn unregister_host(&self, range: HostRange) -> Result<(), Error> {
        self.context.alive()?;
        if !self.context.registered.remove(wide(range.at.0), wide(range.bytes)) {
            return Err(unknown("registered host memory"));
        }
        self.context.settle("cuMemHostUnregister", self.context.driver.host_unregister(range.at))
    }

    fn map_host(&self, at: DeviceAddress, file: BorrowedFd<'_>, bytes: u64) -> Result<HostRange, Error> {
        self.context.alive()?;
        self.context.in_reservation(at, bytes)?;
        if bytes == 0 || !bytes.is_multiple_of(self.info.granule_bytes) {
            return Err(Error::Refused(format!("{bytes} bytes are not made of granules")));
        }
        // One address is both: that of the reservation, in which the driver keeps pages that nobody can reach.
        let range = HostRange { at: HostAddress(narrow(at.0)?), bytes: narrow(bytes)? };
        if !self.context.registered.insert(at.0, bytes, at.0) {
            return Err(Error::Refused("host memory is registered there already".to_owned()));
        }
        if let Err(error) = self.context.register_at(at, range, file) {
            self.context.registered.remove(at.0, bytes);
            clear(range)?;
            return Err(error);
        }
        Ok(range)
    }

    fn unmap_host(&self, at: DeviceAddress, bytes: u64) -> Result<(), Error> {
        let range = HostRange { at: HostAddress(narrow(at.0)?), bytes: narrow(bytes)? };
        self.unregister_host(range)?;
        clear(range)
    }

    fn create_stream(&self, priority: i32) -> Result<StreamId, Error> {
        self.context.alive()?;
        let stream =
            self.context.settle("cuStreamCreateWithPriority", self.context.driver.stream_create(priority))?;
        if let Some(id) = self.context.streams.insert(stream.bits(), 0) {
            return Ok(StreamId(id));
        }
        self.context.settle("cuStreamDestroy", self.context.driver.stream_destroy(stream))?;
        Err(full("stream"))
    }

    fn destroy_stream(&self, stream: StreamId) -> Result<(), Error> {
        self.context.alive()?;
        self.graphs.forget_stream(&self.context, stream)?;
        if let Some(event) = self.hops.lock().remove(&stream.0) {
            self.context.settle("cuEventDestroy", self.context.driver.event_destroy(event))?;
        }
        let handle = self.context.streams.remove(stream.0).ok_or_else(|| unknown("stream"))?;
        self.context.settle("cuStreamDestroy", self.context.driver.stream_destroy(Stream::from_bits(handle)))
    }

    fn synchronize(&self, stream: StreamId) -> Result<(), Error> {
        self.context.alive()?;
        let stream = self.context.stream(stream)?;
        self.context.settle("cuStreamSynchronize", self.context.driver.stream_synchronize(stream_of(&stream)))
    }

    fn create_event(&self) -> Result<EventId, Error> {
        self.context.alive()?;
        let event = self.context.settle("cuEventCreate", self.context.driver.event_create())?;
        if let Some(id) = self.context.events.insert(event.bits(), 0) {
            return Ok(EventId(id));
        }
        self.context.settle("cuEventDestroy", self.context.driver.event_destroy(event))?;
        Err(full("event"))
    }

    fn destroy_event(&self, event: EventId) -> Result<(), Error> {
        self.context.alive()?;
        let handle = self.context.events.remove(event.0).ok_or_else(|| unknown("event"))?;
        self.context.settle("cuEventDestroy", self.context.driver.event_destroy(Event::from_bits(handle)))
    }

    fn record(&self, event: EventId, stream: StreamId) -> Result<(), Error> {
        self.context.alive()?;
        let event = pin(&self.context.events, event.0, "event")?;
        let stream = self.context.stream(stream)?;
        self.context
            .settle("cuEventRecord", self.context.driver.event_record(event_of(&event), stream_of(&stream)))
    }

    fn elapsed_ns(&self, start: EventId, end: EventId) -> Result<Option<f64>, Error> {
        self.context.alive()?;
        let start = pin(&self.context.events, start.0, "event")?;
        let end = pin(&self.context.events, end.0, "event")?;
        match self.context.driver.event_elapsed(event_of(&start), event_of(&end)) {
            Ok(milliseconds) => Ok(Some(f64::from(milliseconds) * 1e6)),
            // Not reached yet; or never recorded, and so not reached either.
            Err(Code::NOT_READY | Code::INVALID_HANDLE) => Ok(None),
            Err(code) => Err(self.context.failed("cuEventElapsedTime", code)),
        }
    }

    fn compile(&self, ptx: &str) -> Result<Compiled, Error> {
        self.context.alive()?;
        let code = self.compiler.compile(ptx, self.info.architecture)?;
        Ok(Compiled { ptx: ptx.to_owned(), code })
    }

    fn compiler(&self) -> Result<Option<String>, Error> {
        self.context.alive()?;
        self.compiler.identity().map(Some)
    }

    fn install(&self, compiled: &Compiled) -> Result<LoadedImage, Error> {
        self.context.alive()?;
        self.images.load(&self.context, compiled)
    }

    fn grow_local(&self, bytes: u32) -> Result<(), Error> {
        self.context.alive()?;
        self.images.grow_local(&self.context, bytes)
    }

    fn load_native(&self, code: &[u8]) -> Result<LoadedImage, Error> {
        self.context.alive()?;
        self.images.load_foreign(&self.context, code)
    }

    fn native_entry(&self, image: ImageId, name: &str) -> Result<Option<EntryInfo>, Error> {
        self.context.alive()?;
        self.images.foreign_entry(&self.context, image, name)
    }

    fn native_names(&self, image: ImageId) -> Result<Vec<String>, Error> {
        self.context.alive()?;
        self.images.foreign_names(&self.context, image)
    }

    fn native_variable(&self, image: ImageId, name: &str) -> Result<Option<(DeviceAddress, u64)>, Error> {
        self.context.alive()?;
        self.images.foreign_variable(&self.context, image, name)
    }

    fn unload(&self, image: ImageId) -> Result<(), Error> {
        self.context.alive()?;
        self.images.unload(&self.context, image, &self.graphs)
    }

    fn allow_dynamic_shared(&self, entry: EntryId, bytes: u32) -> Result<(), Error> {
        self.context.alive()?;
        let entry = pin(&self.context.entries, entry.0, "entry")?;
        image::allow_shared(&self.context, Function::from_bits(entry.handle()), bytes)
    }

    fn launch(&self, stream: StreamId, entry: EntryId, launch: &Launch<'_>) -> Result<(), Error> {
        self.context.alive()?;
        let entry = pin(&self.context.entries, entry.0, "entry")?;
        let stream = self.context.stream(stream)?;
        fits(launch, entry.note() as usize)?;
        let function = Function::from_bits(entry.handle());
        self.context
            .settle("cuLaunchKernel", self.context.driver.launch(stream_of(&stream), function, launch))
    }

    fn launch_together(&self, stream: StreamId, entry: EntryId, launch: &Launch<'_>) -> Result<(), Error> {
        self.context.alive()?;
        let entry = pin(&self.context.entries, entry.0, "entry")?;
        let stream = self.context.stream(stream)?;
        fits(launch, entry.note() as usize)?;
        let function = Function::from_bits(entry.handle());
        let launched = self.context.driver.launch_with(stream_of(&stream), function, launch, None, true);
        self.context.settle("cuLaunchKernelEx", launched)
    }

    fn launch_clusters(
        &self,
        stream: StreamId,
        entry: EntryId,
        launch: &Launch<'_>,
        sides: [u8; 3],
        together: bool,
    ) -> Result<(), Error> {
        self.context.alive()?;
        let entry = pin(&self.context.entries, entry.0, "entry")?;
        let stream = self.context.stream(stream)?;
        fits(launch, entry.note() as usize)?;
        let function = Function::from_bits(entry.handle());
        let launched =
            self.context.driver.launch_with(stream_of(&stream), function, launch, Some(sides), together);
        self.context.settle("cuLaunchKernelEx", launched)
    }

    fn wait(&self, stream: StreamId, on: StreamId) -> Result<bool, Error> {
        self.context.alive()?;
        let (stream, other) = (self.context.stream(stream)?, self.context.stream(on)?);
        let mut hops = self.hops.lock();
        let event = match hops.get(&on.0) {
            Some(event) => *event,
            None => {
                let event =
                    self.context.settle("cuEventCreate", self.context.driver.event_create_untimed())?;
                hops.insert(on.0, event);
                event
            }
        };
        // A wait is for what the event was recorded behind when that is called: it is recorded anew for the next.
        self.context.settle("cuEventRecord", self.context.driver.event_record(event, stream_of(&other)))?;
        self.context
            .settle("cuStreamWaitEvent", self.context.driver.stream_wait(stream_of(&stream), event))?;
        Ok(true)
    }

    fn make_graph(&self, nodes: &[Node]) -> Result<Option<GraphId>, Error> {
        self.made.make(&self.context, nodes)
    }

    fn change_node(&self, graph: GraphId, node: usize, work: &Work) -> Result<(), Error> {
        self.made.change_node(&self.context, graph, node, work)
    }

    fn launch_made(&self, stream: StreamId, graph: GraphId) -> Result<(), Error> {
        self.made.launch(&self.context, stream, graph)
    }

    fn destroy_graph(&self, graph: GraphId) -> Result<(), Error> {
        self.made.destroy(&self.context, graph)
    }

    fn launch_graph(&self, stream: StreamId, launches: &[(EntryId, Launch<'_>)]) -> Result<bool, Error> {
        self.context.alive()?;
        self.graphs.launch(&self.context, stream, launches)
    }

    fn ask(&self, question: Question, entry: Option<EntryId>, words: &[u64]) -> Result<Vec<u64>, Error> {
        self.context.alive()?;
        match question {
            Question::ActiveClusters | Question::ClusterSize => {
                let entry = entry.ok_or_else(|| unknown("entry"))?;
                let entry = pin(&self.context.entries, entry.0, "entry")?;
                let function = Function::from_bits(entry.handle());
                let asked = self.context.driver.ask_clusters(question, function, words);
                Ok(vec![self.context.settle("cuOccupancyMaxActiveClusters", asked)?])
            }
            Question::TensorMapTiled | Question::TensorMapIm2col => {
                let made = self.context.driver.tensor_map(question, words);
                Ok(self.context.settle("cuTensorMapEncode", made)?.to_vec())
            }
            Question::SetLimit => {
                self.context.settle("cuCtxSetLimit", self.context.driver.limit(words))?;
                Ok(Vec::new())
            }
            Question::Output => {
                self.context.write_output()?;
                Ok(Vec::new())
            }
            Question::MakeArray
            | Question::FreeArray
            | Question::MakeTexture
            | Question::FreeTexture
            | Question::MakeSurface
            | Question::FreeSurface => self.objects.ask(&self.context, question, words),
        }
    }

    fn copy_array(&self, stream: StreamId, copy: &ArrayCopy) -> Result<(), Error> {
        self.objects.copy(&self.context, stream, copy)
    }

    fn set_entry_attribute(&self, entry: EntryId, attribute: u32, value: i32) -> Result<(), Error> {
        self.context.alive()?;
        let entry = pin(&self.context.entries, entry.0, "entry")?;
        let function = Function::from_bits(entry.handle());
        let number = i32::try_from(attribute).map_err(|_| unknown("attribute"))?;
        self.context
            .settle("cuFuncSetAttribute", self.context.driver.function_set_attribute(function, number, value))
    }

    fn copy_to_device(&self, stream: StreamId, to: DeviceAddress, from: HostRange) -> Result<(), Error> {
        self.context.alive()?;
        let stream = self.context.stream(stream)?;
        self.context.in_reservation(to, wide(from.bytes))?;
        let _host = self.context.in_host(from.at, from.bytes)?;
        let copied = self.context.driver.copy_to_device(stream_of(&stream), to, from.at, from.bytes);
        self.context.settle("cuMemcpyHtoDAsync", copied)
    }

    fn copy_to_host(&self, stream: StreamId, to: HostRange, from: DeviceAddress) -> Result<(), Error> {
        self.context.alive()?;
        let stream = self.context.stream(stream)?;
        self.context.in_reservation(from, wide(to.bytes))?;
        let _host = self.context.in_host(to.at, to.bytes)?;
        let copied = self.context.driver.copy_to_host(stream_of(&stream), to.at, from, to.bytes);
        self.context.settle("cuMemcpyDtoHAsync", copied)
    }

    fn copy_on_device(
        &self,
        stream: StreamId,
        to: DeviceAddress,
        from: DeviceAddress,
        bytes: u64,
    ) -> Result<(), Error> {
        self.context.alive()?;
        let stream = self.context.stream(stream)?;
        self.context.in_reservation(to, bytes)?;
        self.context.in_reservation(from, bytes)?;
        let copied = self.context.driver.copy_on_device(stream_of(&stream), to, from, narrow(bytes)?);
        self.context.settle("cuMemcpyDtoDAsync", copied)
    }

    fn fill(
        &self,
        stream: StreamId,
        to: DeviceAddress,
        pattern: FillPattern,
        count: u64,
    ) -> Result<(), Error> {
        self.context.alive()?;
        let stream = self.context.stream(stream)?;
        let bytes = count
            .checked_mul(pattern.bytes())
            .ok_or_else(|| Error::Refused("an endless range".to_owned()))?;
        self.context.in_reservation(to, bytes)?;
        let filled = self.context.driver.fill(stream_of(&stream), to, pattern, narrow(count)?);
        self.context.settle("cuMemsetAsync", filled)
    }

    fn write_value(&self, stream: StreamId, at: HostAddress, value: u64) -> Result<(), Error> {
        self.context.alive()?;
        let stream = self.context.stream(stream)?;
        if !at.0.is_multiple_of(8) {
            return Err(Error::Refused("a value's address is not a multiple of 8".to_owned()));
        }
        let host = self.context.in_host(at, 8)?;
        let to = DeviceAddress(host.device_start + (wide(at.0) - host.start));
        let written = self.context.driver.write_value64(stream_of(&stream), to, value);
        self.context.settle("cuStreamWriteValue64", written)
    }

    fn check(&self) -> Result<(), Error> {
        self.context.check()
    }
}
