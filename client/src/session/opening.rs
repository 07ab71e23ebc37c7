//! How sessions are opened.

use std::{
    os::fd::AsFd,
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, AtomicU64},
    },
};

use bulkhead_ring::{
    CompletionReader, Producer,
    memory::{Completion, Ring, Window},
};
use bulkhead_schema::{Error, ErrorCode, Stray, bulkhead_capnp as rpc, limits};
use parking_lot::Mutex;

use super::{Inner, Session, Submit};
use crate::{
    AddressRange, Device, Entry, SturdyToken, Terms,
    barrier::Barriers,
    connection::{Capability, Opened, Remote, answer, broken, default_socket},
    descriptors,
    faults::Watch,
    graph::Numbers,
    host::HostMemory,
    memory::Memory,
    moves,
    stream::{Indices, Streams},
};

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

/// What a kernel says of a session that it has opened.
struct Answered {
    number: u32,
    device: Device,
    window: (u64, u64),
    token: [u8; 16],
    socket: PathBuf,
    entries: Vec<Entry>,
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
            words: OnceLock::new(),
            staging: Mutex::new(None),
            heap: Mutex::default(),
            watch: Watch::new(stray, AddressRange { start: window.0, bytes: window.1 }),
        });
        moves::follow(&inner, page);
        Ok(Self { inner })
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
