//! A session: one client's world on one GPU.

mod ring;
mod work;

use std::{
    os::fd::AsFd,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use bulkhead_ring::{
    Bind, CompletionReader, Copy, Ended, Producer, Record,
    memory::{Completion, Ring, Window, fill_and_seal},
};
use bulkhead_schema::{Error, ErrorCode, Handle, ModuleData, Stray, bulkhead_capnp as rpc, limits};
use parking_lot::Mutex;

use crate::{
    DeviceRange, Entry, Fence, HostSpan, Image, Stream, SturdyToken, Terms,
    barrier::Barriers,
    connection::{Capability, Opened, Remote, answer, broken, default_socket},
    descriptors,
    faults::Watch,
    graph::Numbers,
    host::HostMemory,
    image,
    ledger::Reserved,
    memory::Memory,
    moves,
    stream::{Indices, Streams},
    transfer::Staging,
};

/// How long a waiting thread polls before it starts to nap.
pub(crate) const SPIN: Duration = Duration::from_micros(200);
/// How long it then lets others run between two looks. A nap is no shorter than the timer's slack, 50 us on Linux, which is too late
/// for what takes less than this.
const YIELD: Duration = Duration::from_millis(2);
/// Longest nap of a waiting thread.
const NAP_MAX: Duration = Duration::from_micros(500);
/// A nap is this part of the time waited so far: late by as much at most.
const NAP_FRACTION: u32 = 200;
/// How long a thread that finds the ring full sleeps; a full ring lasts some 50 times as long.
pub(crate) const FULL_NAP: Duration = Duration::from_micros(50);
/// The reply slot that answers come in.
const REPLY: u32 = 0;
/// In place of a stream, for records that are no stream's work.
pub(crate) const NO_STREAM: u32 = u32::MAX;

/// How a session is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// The kernel's socket; [`default_socket`] unless told otherwise.
    pub socket: PathBuf,
    /// What the session is called in the kernel's status.
    pub name: String,
    /// Which device, by its index.
    pub device: u32,
    /// What it is limited to.
    pub terms: Terms,
    /// What becomes of accesses of its kernels to memory that is not listed ([`Session::list_memory`]).
    pub stray: Stray,
}

impl Default for Options {
    fn default() -> Self {
        let program = std::env::args().next().unwrap_or_default();
        let name = PathBuf::from(program).file_name().map(|name| name.to_string_lossy().into_owned());
        let terms = Terms::default();
        Self {
            socket: default_socket(),
            name: name.unwrap_or_default(),
            device: 0,
            terms,
            stray: Stray::Silent,
        }
    }
}

/// What a device is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its index.
    pub index: u32,
    /// `software` or `cuda`.
    pub backend: String,
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Its memory in bytes.
    pub memory_bytes: u64,
    /// CUDA driver version, 13000 for 13.0.
    pub driver_version: u32,
    /// 90 for sm_90.
    pub architecture: u32,
    /// `CUdevice_attribute` numbers and values.
    pub attributes: Vec<(u32, i32)>,
}

impl Device {
    /// The value of a `CUdevice_attribute`, by its number.
    #[must_use]
    pub fn attribute(&self, number: u32) -> Option<i32> {
        self.attributes.iter().find(|(known, _)| *known == number).map(|(_, value)| *value)
    }

    /// Reads one from a message.
    ///
    /// # Errors
    /// Where the message is broken.
    pub fn read(device: rpc::device::Reader<'_>) -> Result<Self, Error> {
        let text = |text: capnp::Result<capnp::text::Reader<'_>>| {
            text.map(|text| String::from_utf8_lossy(text.as_bytes()).into_owned()).map_err(broken)
        };
        let attributes = device.get_attributes().map_err(broken)?;
        Ok(Self {
            index: device.get_index(),
            backend: text(device.get_backend())?,
            name: text(device.get_name())?,
            uuid: device.get_uuid().map_err(broken)?.try_into().unwrap_or_default(),
            memory_bytes: device.get_memory_bytes(),
            driver_version: device.get_driver_version(),
            architecture: device.get_architecture(),
            attributes: attributes.iter().map(|a| (a.get_number(), a.get_value())).collect(),
        })
    }
}

/// An open session. Cheap to clone; ends when the last clone, and the last buffer and image, are dropped.
#[derive(Clone)]
pub struct Session {
    pub(crate) inner: Arc<Inner>,
}

/// See [`Session`].
pub(crate) struct Inner {
    pub(crate) remote: Remote,
    pub(crate) memory: Memory,
    pub(crate) host: HostMemory,
    /// What the kernel and gates call it.
    number: u32,
    device: Device,
    window: (u64, u64),
    /// Of the program that it was opened from.
    entries: Vec<Entry>,
    pub(crate) submit: Mutex<Submit>,
    barriers: Arc<Barriers>,
    pub(crate) page: CompletionReader,
    /// What the kernel lets records name.
    pub(crate) reserved: Mutex<Reserved>,
    refusals_seen: AtomicU64,
    moves: AtomicU32,
    /// Held while an answer is waited for.
    asking: Mutex<()>,
    staging: Mutex<Option<Arc<Staging>>>,
    /// What kernels allocate from.
    pub(crate) heap: Mutex<crate::heap::State>,
    pub(crate) watch: Watch,
}

/// What a kernel says of a session that it has opened.
struct Answered {
    number: u32,
    device: Device,
    window: (u64, u64),
    token: [u8; 16],
    socket: PathBuf,
    entries: Vec<Entry>,
}

pub(crate) struct Submit {
    pub(crate) producer: Producer,
    pub(crate) streams: Streams,
    /// The fence of each event's latest recording.
    pub(crate) events: Indices<Option<Fence>>,
    pub(crate) graphs: Numbers,
    /// Events that were given up, which the device may still record.
    pub(crate) retiring: Vec<u32>,
}

impl Session {
    /// Connects to a kernel and opens a session on a device.
    ///
    /// # Errors
    /// `unavailable` where no kernel listens, or as the kernel answers.
    pub fn open(options: &Options) -> Result<Self, Error> {
        let remote = Remote::open(&options.socket, &options.name)?;
        let (name, index, terms) = (options.name.clone(), options.device, options.terms);
        let opened = remote.call(move |context| async move {
            let kernel = &context.connection.kernel;
            let device = device(kernel, index).await?;
            let mut open = kernel.open_session_request();
            open.get().set_device(index);
            open.get().set_name(&name);
            terms.write(open.get().init_terms());
            let response = open.send().promise.await.map_err(broken)?;
            let opened = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
            *context.session.borrow_mut() = Some(Opened::Whole(opened.get_session().map_err(broken)?));
            let token = descriptors::bytes(opened.get_ring().map_err(broken)?);
            let (number, window) = (opened.get_id(), (opened.get_window_base(), opened.get_window_bytes()));
            let socket = context.connection.descriptor_socket.clone();
            Ok(Answered { number, device, window, token, socket, entries: Vec::new() })
        })?;
        Self::start(remote, opened, options.stray)
    }

    /// Connects to a kernel and opens the session that a program's token stands for. Its [`entries`](Session::entries)
    /// are all that it can launch.
    ///
    /// # Errors
    /// `unavailable` where no kernel listens, `notFound` where the token is not good, or as the kernel answers.
    pub fn open_program(options: &Options, token: SturdyToken) -> Result<Self, Error> {
        let remote = Remote::open(&options.socket, &options.name)?;
        let (name, index) = (options.name.clone(), options.device);
        let opened = remote.call(move |context| async move {
            let kernel = &context.connection.kernel;
            let device = device(kernel, index).await?;
            let mut restore = kernel.restore_request();
            token.write(restore.get().init_token());
            let response = restore.send().promise.await.map_err(broken)?;
            let any = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
            let rpc::any_capability::Program(program) = any.which().map_err(|error| broken(error.into()))?
            else {
                return Err(Error::new(ErrorCode::InvalidArgument, "the token does not stand for a program"));
            };
            let program = program.map_err(broken)?;
            let mut open = program.open_request();
            open.get().set_name(&name);
            let response = open.send().promise.await.map_err(broken)?;
            let opened = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
            *context.session.borrow_mut() = Some(Opened::Program(opened.get_session().map_err(broken)?));
            // Held as long as the session: a program that nobody holds is closed, and its sessions with it.
            context.hold(Capability::Any(program.client));
            let token = descriptors::bytes(opened.get_ring().map_err(broken)?);
            let (number, window) = (opened.get_id(), (opened.get_window_base(), opened.get_window_bytes()));
            let socket = context.connection.descriptor_socket.clone();
            let entries = opened.get_entries().map_err(broken)?;
            let entries = entries.iter().map(Entry::read).collect::<Result<_, _>>()?;
            Ok(Answered { number, device, window, token, socket, entries })
        })?;
        Self::start(remote, opened, options.stray)
    }

    /// Maps what a session that was just opened shares with its executor.
    fn start(remote: Remote, opened: Answered, stray: Stray) -> Result<Self, Error> {
        let Answered { number, device, window, token, socket, entries } = opened;
        let descriptors = descriptors::present(&socket, token)?;
        let [ring, page] = descriptors.as_slice() else {
            return Err(Error::new(ErrorCode::Internal, "the kernel handed over no ring"));
        };
        let unmapped = |error: std::io::Error| Error::new(ErrorCode::Internal, format!("the ring: {error}"));
        let ring = Ring::map(ring.as_fd()).map_err(unmapped)?;
        let page = Completion::map(page.as_fd()).map_err(unmapped)?;
        let producer = Producer::new(ring);
        let barriers = Barriers::new(producer.opener());
        let submit = Submit {
            producer,
            streams: Streams::new(),
            events: Indices::new(limits::EVENTS_MAX),
            graphs: Numbers::new(),
            retiring: Vec::new(),
        };
        let inner = Arc::new(Inner {
            remote,
            memory: Memory::new(stray),
            host: HostMemory::new(Window::reserve(window.0, window.1), stray),
            number,
            device,
            window,
            entries,
            submit: Mutex::new(submit),
            barriers,
            page: CompletionReader::new(Arc::clone(&page)),
            reserved: Mutex::default(),
            refusals_seen: AtomicU64::new(0),
            moves: AtomicU32::new(0),
            asking: Mutex::new(()),
            staging: Mutex::new(None),
            heap: Mutex::default(),
            watch: Watch::new(stray, window),
        });
        moves::follow(&inner, page);
        Ok(Self { inner })
    }

    /// What a session that was [opened from a program](Session::open_program) can launch; none for others.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.inner.entries
    }

    /// How often the session has moved to another executor because its own was lost. Work that was in flight then is
    /// lost, and said to be; memory and code are as they were.
    #[must_use]
    pub fn moves(&self) -> u32 {
        self.inner.moves.load(Ordering::Relaxed)
    }

    /// What the kernel calls the session, in its status and to gates that the session's kernels call: no other session ever has
    /// this number.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.inner.number
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// First address and size of the session's slot of device addresses.
    #[must_use]
    pub fn window(&self) -> (u64, u64) {
        self.inner.window
    }

    /// Loads an image: a fat binary or PTX text. It is guarded, verified and compiled on the way, which takes
    /// milliseconds to seconds.
    ///
    /// # Errors
    /// `imageRefused` with file, line, column and reason where the guard does not let it in; `imageInvalid` where
    /// it is no image.
    pub fn load_image(&self, image: &[u8]) -> Result<Image, Error> {
        let bytes = image.len() as u64;
        let (token, socket) = self.inner.remote.call(move |context| async move {
            let mut offer = context.loader()?.offer_image_request();
            offer.get().set_bytes(bytes);
            let response = offer.send().promise.await.map_err(broken)?;
            let token = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
            Ok((descriptors::bytes(token), context.connection.descriptor_socket.clone()))
        })?;
        let memory = descriptors::present(&socket, token)?.pop();
        let memory =
            memory.ok_or_else(|| Error::new(ErrorCode::Protocol, "the kernel hands over no memory"))?;
        fill_and_seal(memory, image)
            .map_err(|error| Error::new(ErrorCode::OutOfMemory, format!("the image: {error}")))?;
        let stray = self.inner.watch.stray;
        let (key, entries, mut data, by_name) = self.inner.remote.call(move |context| async move {
            let mut load = context.loader()?.load_image_request();
            let (low, high) = token.split_at(8);
            let half = |half: &[u8]| u64::from_le_bytes(half.try_into().unwrap_or_default());
            let mut builder = load.get().init_image();
            builder.set_low(half(low));
            builder.set_high(half(high));
            load.get().set_check(stray == Stray::Told);
            let response = load.send().promise.await.map_err(broken)?;
            let loaded = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
            let entries = loaded.get_entries().map_err(broken)?;
            let entries: Result<Vec<Entry>, Error> = entries.iter().map(Entry::read).collect();
            let data = ModuleData::read(loaded.get_data().map_err(broken)?);
            let key = context.hold(Capability::Module(loaded.get_module().map_err(broken)?));
            Ok((key, entries?, data?, loaded.get_by_name()))
        })?;
        let held = Arc::new(image::Held { session: self.clone(), key });
        let refused = std::mem::take(&mut data.refused).into();
        let data = self.place_data(data)?;
        let entries = match &data {
            Some(data) => entries.into_iter().map(|entry| entry.with_data(data)).collect(),
            None => Ok(entries.into()),
        };
        Ok(Image { held, entries: entries?, refused, data, by_name })
    }

    /// Allows launches of an entry with up to `bytes` of dynamic shared memory. A remote call.
    ///
    /// # Errors
    /// Where the device has less, or the image was unloaded.
    pub fn allow_dynamic_shared(&self, image: &Image, entry: &Entry, bytes: u32) -> Result<(), Error> {
        let (key, handle) = (image.held.key, entry.handle);
        self.inner.remote.call(move |context| async move {
            let mut allow = context.module(key)?.allow_dynamic_shared_request();
            handle.write(allow.get().init_entry());
            allow.get().set_bytes(bytes);
            let response = allow.send().promise.await.map_err(broken)?;
            answer(response.get().and_then(|r| r.get_result()).map_err(broken)?).map(|_| ())
        })
    }
}

impl Session {
    pub(crate) fn release(&self, key: usize) {
        self.inner.remote.release(key);
    }

    pub(crate) fn barriers(&self) -> &Arc<Barriers> {
        &self.inner.barriers
    }

    /// Where copies of ordinary memory are staged, once there was one.
    pub(crate) fn staging(&self) -> &Mutex<Option<Arc<Staging>>> {
        &self.inner.staging
    }

    /// The work that was submitted and has not passed: the latest of each stream that has some.
    pub(crate) fn outstanding(&self) -> Vec<Fence> {
        let mut submit = self.inner.submit.lock();
        let Streams { indices, latest, passed, .. } = &mut submit.streams;
        let mut fences = Vec::new();
        for (stream, (latest, passed)) in (0..).zip(latest.iter().zip(passed).take(indices.used())) {
            if *latest <= *passed {
                continue;
            }
            if !self.inner.memory.is_ours() {
                // A forked child: the work is its parent's, and the page is not there.
                return fences;
            }
            *passed = self.inner.page.mark(stream);
            if *latest > *passed {
                fences.push(Fence { stream: Stream(stream), position: *latest });
            }
        }
        fences
    }

    /// Whether a fence has passed, whatever has become of its work: nobody is told of that here.
    #[must_use]
    pub fn has_passed(&self, fence: Fence) -> bool {
        self.inner.page.mark(fence.stream.0) >= fence.position
    }
}

impl Inner {
    /// The session has moved to another executor: a page that counts refusals anew is about to be seen.
    pub(crate) fn moved(&self, times: u32) {
        self.moves.store(times, Ordering::Relaxed);
    }
}

/// The device with an index.
async fn device(kernel: &rpc::bulkhead::Client, index: u32) -> Result<Device, Error> {
    let response = kernel.list_devices_request().send().promise.await.map_err(broken)?;
    let devices = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
    let devices = devices.get_devices().map_err(broken)?;
    let device = devices.iter().find(|device| device.get_index() == index);
    Device::read(device.ok_or_else(|| Error::new(ErrorCode::NotFound, format!("no device {index}")))?)
}

pub(crate) fn name(handle: Handle) -> Bind {
    Bind { slot: handle.slot, generation: handle.generation }
}

pub(crate) fn copy(to: (Handle, u64, u64), from: (Handle, u64, u64)) -> Result<Copy, Error> {
    if to.2 != from.2 {
        return Err(Error::new(ErrorCode::InvalidArgument, "the ranges of a copy differ in length"));
    }
    Ok(Copy { to: name(to.0), to_offset: to.1, from: name(from.0), from_offset: from.1, bytes: to.2 })
}

pub(crate) fn copied_to_device(stream: Stream, to: DeviceRange, from: HostSpan) -> Result<Record, Error> {
    let copy = copy((to.handle, to.offset, to.bytes), (from.handle, from.offset, from.bytes))?;
    Ok(Record::CopyToDevice { stream: stream.0, copy })
}

pub(crate) fn copied_to_host(stream: Stream, to: HostSpan, from: DeviceRange) -> Result<Record, Error> {
    let copy = copy((to.handle, to.offset, to.bytes), (from.handle, from.offset, from.bytes))?;
    Ok(Record::CopyToHost { stream: stream.0, copy })
}

fn code(code: u16) -> ErrorCode {
    ErrorCode::try_from(code).unwrap_or(ErrorCode::Internal)
}

fn over(ended: Ended) -> Error {
    let code = code(ended.code);
    let message = match code {
        ErrorCode::DeviceLost => "the GPU's context was lost",
        ErrorCode::OutOfMemory => "the session's process took more of the device than the session may have",
        ErrorCode::Protocol => "the session broke the ring's protocol",
        ErrorCode::LaunchTimeout => "a kernel ran for longer than it may, and was ended with its session",
        ErrorCode::Revoked => {
            "memory of others, or gates of a module, that the session's work went on using were taken back, or have ended"
        }
        _ => "the session is over",
    };
    let remedy = match code {
        ErrorCode::Revoked => "open a new session; `bulkhead module list` tells which modules serve",
        _ => "open a new session",
    };
    Error::new(code, message).remedy(remedy).device(ended.device)
}
