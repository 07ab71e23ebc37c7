//! What the executor asks of a device.
//!
//! One trait, [`Gpu`], with two implementations: NVIDIA's driver (`bulkhead-cuda`) and the software
//! GPU (`bulkhead-softgpu`). The trait holds mechanism only: who may do what is decided before a call
//! is made here, so an implementation trusts its arguments to be the executor's.
//!
//! # Invariants
//! 1. No call waits for work of a stream that it does not name, [`Gpu::install`] and [`Gpu::unload`] excepted
//!    (the driver waits for every running kernel there), so neither runs on a ring thread.
//! 2. A call marked *asynchronous* returns before the device has done the work; work of one stream is
//!    done in the order it was asked for.
//! 3. After [`Error::Lost`] every later call answers `Lost`: the context is dead and the process must end.

mod types;

use std::os::fd::{BorrowedFd, OwnedFd};

pub use types::*;

/// What is taken of a device, in bytes, contexts and code included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// By everybody, where it is known of all processes what they have of it.
    pub in_all: Option<u64>,
    /// By each process that it is known of, by its number.
    pub by_processes: Vec<(u32, u64)>,
}

/// One device, with one context on it.
pub trait Gpu: Send + Sync {
    /// What the device is: answers every query of CUDA's device table.
    fn info(&self) -> &DeviceInfo;

    /// Makes the calling thread able to use the device. Every thread calls it once, before anything else.
    fn bind_thread(&self) -> Result<(), Error>;

    // ---- address space ----

    /// Reserves `bytes` of device addresses at exactly `at`, at least [`RESERVATION_BYTES_MIN`]. Nothing is mapped there yet.
    fn reserve(&self, at: DeviceAddress, bytes: u64) -> Result<(), Error>;

    /// Gives back a reservation, all of whose mappings have been unmapped.
    fn unreserve(&self, at: DeviceAddress, bytes: u64) -> Result<(), Error>;

    /// Creates physical device memory; `bytes` is a multiple of [`DeviceInfo::granule_bytes`].
    /// What it holds is undefined: scrub it before a session sees it.
    fn create_memory(&self, bytes: u64) -> Result<MemoryId, Error>;

    /// Destroys physical memory that is mapped nowhere. The device has it back when every holder has destroyed its
    /// own: those that imported it, and the descriptors that name it.
    fn destroy_memory(&self, memory: MemoryId) -> Result<(), Error>;

    /// A descriptor with which another device of the same GPU, most often another process's, imports the memory.
    /// Whoever has it may read and write all of the memory, and holds it.
    fn export_memory(&self, memory: MemoryId) -> Result<OwnedFd, Error>;

    /// Memory that was exported, of `bytes` in all: the same physical memory under a name of this device's own.
    /// A descriptor of something else is refused. So is another length, at the latest when it is mapped.
    fn import_memory(&self, descriptor: OwnedFd, bytes: u64) -> Result<MemoryId, Error>;

    /// Physical memory that is free, and all there is, in bytes.
    fn memory_info(&self) -> Result<(u64, u64), Error>;

    /// What processes have taken of it.
    ///
    /// # Errors
    /// Where nobody tells.
    fn taken_memory(&self) -> Result<Taken, Error> {
        Err(Error::Missing("this device does not say what processes have taken of it".to_owned()))
    }

    /// Maps the whole of `memory` (of `chunk_bytes`) `count` times in a row from `at` on, with one `access`.
    /// The range lies in a reservation and nothing is mapped in it. The memory may be mapped elsewhere too, in the
    /// same reservation or another, with the same access or another.
    fn map(
        &self,
        at: DeviceAddress,
        memory: MemoryId,
        chunk_bytes: u64,
        count: u64,
        access: Access,
    ) -> Result<(), Error>;

    /// Unmaps a range made of whole mappings.
    fn unmap(&self, at: DeviceAddress, bytes: u64) -> Result<(), Error>;

    /// Makes host memory known to the device, so that copies from it need no staging and the device can
    /// write completion values into it. The range is page-aligned and stays mapped until `unregister_host`.
    fn register_host(&self, range: HostRange) -> Result<(), Error>;

    /// Undoes [`Gpu::register_host`]. May wait for every running kernel: never on a ring thread.
    fn unregister_host(&self, range: HostRange) -> Result<(), Error>;

    /// Maps a file of host memory at `at`, in a reservation where nothing is mapped, for kernels to load and store, and
    /// registers it: the answer is where copies find it. `bytes` is a multiple of [`DeviceInfo::granule_bytes`], and the
    /// file is sealed against becoming shorter. Waits for no work.
    fn map_host(&self, at: DeviceAddress, file: BorrowedFd<'_>, bytes: u64) -> Result<HostRange, Error>;

    /// Undoes [`Gpu::map_host`]. May wait for every running kernel, and keep everybody from launching meanwhile.
    fn unmap_host(&self, at: DeviceAddress, bytes: u64) -> Result<(), Error>;

    // ---- streams and events ----

    /// Creates a stream that no other stream waits for. Lower `priority` is more urgent (CUDA's sense).
    fn create_stream(&self, priority: i32) -> Result<StreamId, Error>;

    /// Destroys a stream; work already in it is still done.
    fn destroy_stream(&self, stream: StreamId) -> Result<(), Error>;

    /// Waits until the stream has done everything asked of it. Not for ring threads.
    fn synchronize(&self, stream: StreamId) -> Result<(), Error>;

    /// Creates an event that takes a timestamp.
    fn create_event(&self) -> Result<EventId, Error>;

    /// Destroys an event.
    fn destroy_event(&self, event: EventId) -> Result<(), Error>;

    /// Asynchronous: takes the timestamp when the stream gets there.
    fn record(&self, event: EventId, stream: StreamId) -> Result<(), Error>;

    /// Nanoseconds between two events, both of which have been reached; `None` where one has not.
    fn elapsed_ns(&self, start: EventId, end: EventId) -> Result<Option<f64>, Error>;

    // ---- code ----

    /// Compiles verified PTX (the guard's canonical print, and nothing else) as the device needs. Waits for no kernel.
    fn compile(&self, ptx: &str) -> Result<Compiled, Error>;

    /// What compiles, in words that differ where its code may: code is kept under them. None where compiling is nothing
    /// that is worth keeping, and makes no code.
    fn compiler(&self) -> Result<Option<String>, Error> {
        Ok(None)
    }

    /// Loads what this device compiled. May wait for every running kernel, and keep everybody from launching meanwhile.
    fn install(&self, compiled: &Compiled) -> Result<LoadedImage, Error>;

    /// Makes room for so many bytes of local memory for each thread that the device holds, and keeps it: a launch that needs
    /// no more waits for nothing. May wait for every running kernel. `OutOfMemory` where there is no such room.
    fn grow_local(&self, bytes: u32) -> Result<(), Error> {
        let _ = bytes;
        Ok(())
    }

    /// Compiles and loads.
    fn load(&self, ptx: &str) -> Result<LoadedImage, Error> {
        self.install(&self.compile(ptx)?)
    }

    /// Loads an image that nobody has checked, as the driver takes it: machine code, containers of it, PTX. Only for a device
    /// that no other session shares. None of its entries is told.
    fn load_native(&self, code: &[u8]) -> Result<LoadedImage, Error> {
        let _ = code;
        Err(Error::Refused("this device runs nothing but verified PTX".to_owned()))
    }

    /// An entry of such an image; `None` where it has none of that name.
    fn native_entry(&self, image: ImageId, name: &str) -> Result<Option<EntryInfo>, Error> {
        let _ = (image, name);
        Ok(None)
    }

    /// The names of such an image's entries.
    fn native_names(&self, image: ImageId) -> Result<Vec<String>, Error> {
        let _ = image;
        Ok(Vec::new())
    }

    /// Where a variable of such an image lies, and its bytes; `None` where it has none of that name. Copies and fills reach it.
    fn native_variable(&self, image: ImageId, name: &str) -> Result<Option<(DeviceAddress, u64)>, Error> {
        let _ = (image, name);
        Ok(None)
    }

    /// Unloads an image none of whose entries is running or queued. May wait for every running kernel.
    fn unload(&self, image: ImageId) -> Result<(), Error>;

    /// Allows launches of `entry` with up to `bytes` of dynamic shared memory.
    fn allow_dynamic_shared(&self, entry: EntryId, bytes: u32) -> Result<(), Error>;

    // ---- work, all of it asynchronous ----

    /// Launches an entry. `launch.parameters` is the whole parameter block, laid out as
    /// [`EntryInfo::parameters`] says, hidden parameters included.
    fn launch(&self, stream: StreamId, entry: EntryId, launch: &Launch<'_>) -> Result<(), Error>;

    /// As [`Gpu::launch`], with all blocks there at once, so that they may wait for one another. Refused where they do
    /// not fit on the device; where others' do for now, it starts once they are done.
    fn launch_together(&self, stream: StreamId, entry: EntryId, launch: &Launch<'_>) -> Result<(), Error>;

    /// As [`Gpu::launch`], in clusters of so many blocks in x, y, z, and with all blocks there at once if `together`. Only on a
    /// device that no other session shares.
    fn launch_clusters(
        &self,
        stream: StreamId,
        entry: EntryId,
        launch: &Launch<'_>,
        sides: [u8; 3],
        together: bool,
    ) -> Result<(), Error> {
        let _ = (stream, entry, launch, sides, together);
        Err(Error::Refused("this device has no clusters of blocks".to_owned()))
    }

    /// Has what comes to `stream` wait, on the device, for all that `on` has been given so far. False where the device has no way
    /// to, and nothing waits.
    fn wait(&self, stream: StreamId, on: StreamId) -> Result<bool, Error> {
        let _ = (stream, on);
        Ok(false)
    }

    /// Launches entries one after the other, as one graph, and says whether it did. Where it did not, nothing was launched, and
    /// the caller launches them one by one. Only [`GRAPH_SIZES`] of them.
    ///
    /// # Errors
    /// Only the loss of the device.
    fn launch_graph(&self, stream: StreamId, launches: &[(EntryId, Launch<'_>)]) -> Result<bool, Error> {
        let _ = (stream, launches);
        Ok(false)
    }

    /// Makes a graph that is launched as often as one likes: each node after those that it names, which come before it in the
    /// list. None where the device has no graphs, or refuses this one: then its nodes are done one by one.
    ///
    /// # Errors
    /// Only the loss of the device.
    fn make_graph(&self, nodes: &[Node]) -> Result<Option<GraphId>, Error> {
        let _ = nodes;
        Ok(None)
    }

    /// Has a node of a graph do other work of the same kind, from the next launch on.
    fn change_node(&self, graph: GraphId, node: usize, work: &Work) -> Result<(), Error> {
        let _ = (graph, node, work);
        Err(Error::Refused("this device has no graphs".to_owned()))
    }

    /// Does all that a graph's nodes say, in the stream's order, and after the graph's launch before.
    fn launch_made(&self, stream: StreamId, graph: GraphId) -> Result<(), Error> {
        let _ = (stream, graph);
        Err(Error::Refused("this device has no graphs".to_owned()))
    }

    /// Forgets a graph. What was launched is done.
    fn destroy_graph(&self, graph: GraphId) -> Result<(), Error> {
        let _ = graph;
        Ok(())
    }

    /// Asks something, with as many words as [`Question::words`] says; about an entry where it is about one.
    fn ask(&self, question: Question, entry: Option<EntryId>, words: &[u64]) -> Result<Vec<u64>, Error> {
        let _ = (question, entry, words);
        Err(Error::Refused("this device has no driver to ask".to_owned()))
    }

    /// Copies between an array ([`Question::MakeArray`]) and device memory.
    fn copy_array(&self, stream: StreamId, copy: &ArrayCopy) -> Result<(), Error> {
        let _ = (stream, copy);
        Err(Error::Refused("this device has no arrays of a driver's".to_owned()))
    }

    /// Sets an attribute of an entry (`CUfunction_attribute`) that was loaded by [`Gpu::load_native`].
    fn set_entry_attribute(&self, entry: EntryId, attribute: u32, value: i32) -> Result<(), Error> {
        let _ = (entry, attribute, value);
        Err(Error::Refused("this device sets no attributes of entries".to_owned()))
    }

    /// Copies registered host memory to the device.
    fn copy_to_device(&self, stream: StreamId, to: DeviceAddress, from: HostRange) -> Result<(), Error>;

    /// Copies device memory to registered host memory.
    fn copy_to_host(&self, stream: StreamId, to: HostRange, from: DeviceAddress) -> Result<(), Error>;

    /// Copies device memory to device memory; the ranges do not overlap.
    fn copy_on_device(
        &self,
        stream: StreamId,
        to: DeviceAddress,
        from: DeviceAddress,
        bytes: u64,
    ) -> Result<(), Error>;

    /// Writes `count` elements of a pattern; `to` is aligned to the pattern's size.
    fn fill(
        &self,
        stream: StreamId,
        to: DeviceAddress,
        pattern: FillPattern,
        count: u64,
    ) -> Result<(), Error>;

    /// Writes a 64-bit value into registered host memory once the stream gets there. `at` is 8-byte aligned.
    /// Everything the stream did before is visible to whoever reads the value.
    fn write_value(&self, stream: StreamId, at: HostAddress, value: u64) -> Result<(), Error>;

    /// Asks whether the context still lives.
    fn check(&self) -> Result<(), Error>;
}
