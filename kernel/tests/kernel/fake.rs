//! An executor without a device: it answers what it is asked, notes it, and misbehaves on request.

use std::{
    io::{IoSlice, IoSliceMut, Read},
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard},
};

use bulkhead_schema::{Error, ErrorCode, Handle, executor_capnp, limits};
use capnp::{message, serialize};
use rustix::{
    fs::{MemfdFlags, SealFlags},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType,
    },
};

pub(crate) const MEMORY_BYTES: u64 = 8 << 30;

/// What the executor was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    Describe,
    Open { session: u32, slot: u32 },
    Close(u32),
    Map { session: u32, bytes: u64 },
    Unmap { session: u32, bytes: u64 },
    Bind { session: u32, handle: Handle },
    Register { session: u32, handle: Handle, bytes: u64 },
    Unbind { session: u32, handle: Handle },
    Drain(u32),
    Load { session: u32, handle: Handle, text: String, entries: usize },
    Unload { session: u32, handle: Handle },
    Allow { bytes: u32 },
    Fence { session: u32, stream: u32, position: u64 },
}

/// How it misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Manners {
    /// Does not answer drains.
    pub(crate) holds_drains: bool,
    /// Does not answer fences, as long as the work before them runs.
    pub(crate) holds_fences: bool,
    /// Does not answer the mapping of arenas.
    pub(crate) holds_maps: bool,
    /// Has this much memory for arenas; 0 for as much as it says.
    pub(crate) arena_bytes_max: u64,
    /// Refuses to describe its device: there is none.
    pub(crate) has_no_device: bool,
    /// Answers the next bind twice.
    pub(crate) answers_twice: bool,
    /// Sends a packet that is no message instead of binding.
    pub(crate) talks_nonsense: bool,
    /// Reports that its device is lost instead of binding.
    pub(crate) loses_device: bool,
    /// Answers nothing at all.
    pub(crate) is_silent: bool,
    /// Does not answer the closing of sessions: their work runs on.
    pub(crate) holds_closes: bool,
    /// Cannot close sessions.
    pub(crate) refuses_closes: bool,
}

#[derive(Default)]
struct State {
    asked: Vec<Asked>,
    manners: Manners,
    socket: Option<Arc<OwnedFd>>,
    held: Vec<u64>,
    arena_bytes: u64,
    starts: u32,
}

/// The executor, from the outside.
#[derive(Clone, Default)]
pub(crate) struct Fake {
    state: Arc<Mutex<State>>,
}

impl Fake {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Starts an executor; the kernel's end of its socket.
    pub(crate) fn connect(&self) -> std::io::Result<OwnedFd> {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let ours = Arc::new(ours);
        {
            let mut state = self.state();
            state.socket = Some(Arc::clone(&ours));
            state.held.clear();
            state.arena_bytes = 0;
            state.starts += 1;
        }
        let fake = self.clone();
        std::thread::spawn(move || fake.serve(&ours));
        Ok(theirs)
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.state().asked.clone()
    }

    pub(crate) fn starts(&self) -> u32 {
        self.state().starts
    }

    pub(crate) fn behave(&self, manners: Manners) {
        self.state().manners = manners;
    }

    /// Ends the process, as far as the kernel can see.
    pub(crate) fn die(&self) {
        let socket = self.state().socket.take().unwrap();
        rustix::net::shutdown(&socket, Shutdown::Both).unwrap();
    }

    /// Says that its device is lost, though nobody asked, and ends.
    pub(crate) fn lose_device(&self) {
        let socket = self.state().socket.take().unwrap();
        let why = Error::new(ErrorCode::DeviceLost, "a misaligned address").device(716);
        send(&socket, 0, None, |reply| why.write(reply.init_error()));
        rustix::net::shutdown(&socket, Shutdown::Both).unwrap();
    }

    /// Tells the kernel that a session ended.
    pub(crate) fn end_session(&self, session: u32, error: &Error) {
        let socket = self.state().socket.clone().unwrap();
        send(&socket, 0, None, |reply| {
            let mut ended = reply.init_session_ended();
            ended.set_session(session);
            error.write(ended.init_error());
        });
    }

    /// Answers what was held back.
    pub(crate) fn let_go(&self) {
        let (held, socket) = {
            let mut state = self.state();
            state.manners = Manners::default();
            (std::mem::take(&mut state.held), state.socket.clone().unwrap())
        };
        for id in held {
            send(&socket, id, None, |mut reply| reply.set_ok(()));
        }
    }

    fn serve(&self, socket: &OwnedFd) {
        let mut buffer = vec![0; limits::PACKET_BYTES_MAX];
        while let Some((length, mut descriptors)) = receive(socket, &mut buffer) {
            let mut packet = &buffer[..length];
            let message = serialize::read_message_from_flat_slice(&mut packet, Default::default()).unwrap();
            let request: executor_capnp::request::Reader<'_> = message.get_root().unwrap();
            self.answer(socket, request, &mut descriptors);
            assert!(descriptors.is_empty(), "a descriptor came with a request that takes none");
        }
    }

    fn answer(
        &self,
        socket: &OwnedFd,
        request: executor_capnp::request::Reader<'_>,
        descriptors: &mut Vec<OwnedFd>,
    ) {
        use executor_capnp::request::Which;
        let id = request.get_id();
        let ok = |socket: &OwnedFd| send(socket, id, None, |mut reply| reply.set_ok(()));
        let refuse = |error: Error| send(socket, id, None, move |reply| error.write(reply.init_error()));
        let manners = self.state().manners;
        let note = |asked| self.state().asked.push(asked);
        let name = |name: executor_capnp::name::Reader<'_>| {
            (name.get_session(), Handle::read(name.get_handle().unwrap()))
        };
        if manners.is_silent {
            descriptors.clear();
            return;
        }
        match request.which().unwrap() {
            Which::Describe(()) => {
                note(Asked::Describe);
                if manners.has_no_device {
                    return refuse(Error::new(ErrorCode::Unavailable, "no device here"));
                }
                send(socket, id, None, |reply| {
                    let mut device = reply.init_device();
                    device.set_backend("fake");
                    device.set_name("Fake GPU");
                    device.set_uuid(&[7; 16]);
                    device.set_memory_bytes(MEMORY_BYTES);
                    let mut attributes = device.init_attributes(1);
                    attributes.reborrow().get(0).set_number(16);
                    attributes.reborrow().get(0).set_value(132);
                });
            }
            Which::OpenSession(open) => {
                let open = open.unwrap();
                note(Asked::Open { session: open.get_session(), slot: open.get_slot() });
                descriptors.pop().expect("a ring comes with a session");
                send(socket, id, Some(&page()), |mut reply| reply.set_opened(()));
            }
            Which::CloseSession(session) => {
                note(Asked::Close(session));
                if manners.holds_closes {
                    self.state().held.push(id);
                } else if manners.refuses_closes {
                    refuse(Error::new(ErrorCode::Internal, "it cannot be unmapped"));
                } else {
                    ok(socket);
                }
            }
            Which::MapArena(range) => {
                let range = range.unwrap();
                let (session, bytes) = (range.get_session(), range.get_bytes());
                note(Asked::Map { session, bytes });
                let mut state = self.state();
                if manners.holds_maps {
                    state.held.push(id);
                } else if manners.arena_bytes_max > 0 && state.arena_bytes + bytes > manners.arena_bytes_max {
                    refuse(Error::new(ErrorCode::OutOfMemory, "no device memory is left"));
                } else {
                    state.arena_bytes += bytes;
                    ok(socket);
                }
            }
            Which::UnmapArena(range) => {
                let range = range.unwrap();
                let (session, bytes) = (range.get_session(), range.get_bytes());
                note(Asked::Unmap { session, bytes });
                self.state().arena_bytes -= bytes;
                ok(socket);
            }
            Which::Bind(bind) => {
                let bind = bind.unwrap();
                for binding in bind.get_bindings().unwrap() {
                    let handle = Handle::read(binding.get_handle().unwrap());
                    note(Asked::Bind { session: bind.get_session(), handle });
                }
                if manners.talks_nonsense {
                    rustix::net::send(socket, &[0xff; 64], SendFlags::NOSIGNAL).unwrap();
                    return;
                }
                if manners.loses_device {
                    return refuse(Error::new(ErrorCode::DeviceLost, "an illegal address").device(700));
                }
                if manners.answers_twice {
                    ok(socket);
                }
                ok(socket);
            }
            Which::RegisterHost(register) => {
                let register = register.unwrap();
                let (session, handle) = name(register.get_name().unwrap());
                let memory = descriptors.pop().expect("host memory comes with its memfd");
                let seals = rustix::fs::fcntl_get_seals(&memory).unwrap();
                assert!(seals.contains(SealFlags::SHRINK | SealFlags::GROW));
                note(Asked::Register { session, handle, bytes: register.get_bytes() });
                ok(socket);
            }
            Which::Unbind(unbind) => {
                let unbind = unbind.unwrap();
                for handle in unbind.get_handles().unwrap() {
                    note(Asked::Unbind { session: unbind.get_session(), handle: Handle::read(handle) });
                }
                ok(socket);
            }
            Which::Drain(session) => {
                note(Asked::Drain(session));
                if manners.holds_drains { self.state().held.push(id) } else { ok(socket) }
            }
            Which::LoadImage(load) => {
                let load = load.unwrap();
                let (session, handle) = name(load.get_name().unwrap());
                let text = descriptors.pop().expect("an image comes with its text");
                let seals = rustix::fs::fcntl_get_seals(&text).unwrap();
                assert!(seals.contains(SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW));
                let mut file = std::fs::File::from(text);
                let mut text = String::new();
                file.read_to_string(&mut text).unwrap();
                let entries = load.get_entries().unwrap().len();
                note(Asked::Load { session, handle, text, entries: entries as usize });
                send(socket, id, None, |reply| {
                    let mut loaded = reply.init_loaded(entries);
                    for at in 0..entries {
                        loaded.reborrow().get(at).set_name(format!("entry{at}"));
                        loaded.reborrow().get(at).set_threads_max(1024);
                    }
                });
            }
            Which::UnloadImage(unload) => {
                let (session, handle) = name(unload.unwrap());
                note(Asked::Unload { session, handle });
                ok(socket);
            }
            Which::AllowDynamicShared(allow) => {
                note(Asked::Allow { bytes: allow.unwrap().get_bytes() });
                ok(socket);
            }
            Which::Share(_)
            | Which::Split(_)
            | Which::ExportArena(_)
            | Which::AdoptArena(_)
            | Which::Resume(_)
            | Which::SwapArea(_)
            | Which::SwapOut(_)
            | Which::SwapIn(_)
            | Which::Activity(()) => refuse(Error::new(ErrorCode::NotSupported, "a fake cannot")),
            Which::Fence(fence) => {
                let fence = fence.unwrap();
                note(Asked::Fence {
                    session: fence.get_session(),
                    stream: fence.get_stream(),
                    position: fence.get_position(),
                });
                if manners.holds_fences { self.state().held.push(id) } else { ok(socket) }
            }
        }
    }
}

fn page() -> OwnedFd {
    let page = rustix::fs::memfd_create("page", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&page, 4096).unwrap();
    page
}

fn send(
    socket: &OwnedFd,
    id: u64,
    descriptor: Option<&OwnedFd>,
    build: impl FnOnce(executor_capnp::reply::Builder<'_>),
) {
    let mut message = message::Builder::new_default();
    let mut reply: executor_capnp::reply::Builder<'_> = message.init_root();
    reply.set_id(id);
    build(reply);
    let bytes = serialize::write_message_to_words(&message);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<_> = descriptor.iter().map(|descriptor| descriptor.as_fd()).collect();
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    }
    // The kernel may have given up on this executor.
    let sent = rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL);
    assert!(sent.is_ok() || sent == Err(rustix::io::Errno::PIPE), "{sent:?}");
}

fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> Option<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received =
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, RecvFlags::CMSG_CLOEXEC)
            .ok()?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    (received.bytes > 0).then_some((received.bytes, descriptors))
}
