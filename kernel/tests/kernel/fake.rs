//! An executor without a device: it answers what it is asked, notes it, and misbehaves on request.

mod answers;
mod memory;
mod modules;
mod wire;

use std::{
    collections::BTreeMap,
    os::fd::{AsRawFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bulkhead_schema::{Error, ErrorCode, Handle, executor_capnp, limits};
use capnp::serialize;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType};

use memory::Memory;
use modules::Modules;
use wire::{receive, send};

pub(crate) const MEMORY_BYTES: u64 = 8 << 30;
/// What every image is as code.
pub(crate) const CODE_BYTES: u64 = 1000;
/// Local memory of a thread of every entry.
pub(crate) const LOCAL_BYTES: u32 = 16;
/// How many threads are on the device at a time.
pub(crate) const THREADS: u64 = 132;

/// What the executor was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    Describe,
    Open { session: u32, slot: u32 },
    End(u32),
    Close(u32),
    Reserve { session: u32, streams: u32, events: u32 },
    Map { session: u32, bytes: u64 },
    Unmap { session: u32, bytes: u64 },
    Share { session: u32, address: u64, bytes: u64 },
    Split { session: u32, at: u64 },
    Bind { session: u32, handle: Handle, writable: bool },
    BindEntry { session: u32, handle: Handle, of: (u32, Handle) },
    Register { session: u32, handle: Handle, bytes: u64, address: u64 },
    Unbind { session: u32, handle: Handle },
    Drain(u32),
    Load { session: u32, handle: Handle, text: String, entries: usize },
    Unload { session: u32, handle: Handle },
    Area { session: u32, bytes: u64 },
    SwapOut { session: u32, bytes: u64 },
    SwapIn { session: u32, bytes: u64 },
    Allow { bytes: u32 },
    Fence { session: u32, stream: u32, position: u64 },
    AddModule { module: u32, bytes: u64 },
    CloseModule(u32),
    RemoveModule(u32),
    Grant { module: u32, session: u32 },
    RevokeGrant { module: u32, session: u32 },
    AdoptModule(u32),
    Adopt { session: u32, bytes: u64 },
    Resume(u32),
}

/// How it misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Manners {
    /// Does not seal the page that tells of a module's calls.
    pub(crate) leaves_pages_open: bool,
    /// Does not answer drains.
    pub(crate) holds_drains: bool,
    /// Says at once that work runs on for longer than anybody waits.
    pub(crate) never_drained: bool,
    /// Does not answer fences, as long as the work before them runs.
    pub(crate) holds_fences: bool,
    /// Does not answer the mapping of arenas.
    pub(crate) holds_maps: bool,
    /// Does not answer the unmapping of arenas: work that can reach them runs on.
    pub(crate) holds_unmaps: bool,
    /// The same, but for the first.
    pub(crate) holds_later_unmaps: bool,
    /// Says when no work can reach what is unmapped, and does not come to an end with it.
    pub(crate) holds_reclaims: bool,
    /// The same for host memory alone.
    pub(crate) holds_host_reclaims: bool,
    /// Cannot map host memory.
    pub(crate) refuses_mapped: bool,
    /// Does not answer the sharing of arenas.
    pub(crate) holds_shares: bool,
    /// Cannot share.
    pub(crate) refuses_shares: bool,
    /// Does not answer what is unbound.
    pub(crate) holds_unbinds: bool,
    /// Cannot bind.
    pub(crate) refuses_binds: bool,
    /// Does not answer the opening of sessions.
    pub(crate) holds_opens: bool,
    /// Does not answer the loading of images.
    pub(crate) holds_loads: bool,
    /// Threads of each image need this much local memory more.
    pub(crate) more_local_bytes: u32,
    /// Refuses images behind the moment at which their local memory was made room for.
    pub(crate) refuses_grown: bool,
    /// Has this much memory for arenas; 0 for as much as it says.
    pub(crate) arena_bytes_max: u64,
    /// Cannot swap this session out; 0 for none.
    pub(crate) refuses_swap_out_of: u32,
    /// This session's work runs on: who waits shortly for it is refused, and others wait; 0 for none.
    pub(crate) runs_on: u32,
    /// Its kernels can follow pointers into its memory.
    pub(crate) has_hmm: bool,
    /// What is taken of its device, and by no process; 0 where it does not tell.
    pub(crate) taken_bytes: u64,
    /// Refuses to describe its device: there is none.
    pub(crate) has_no_device: bool,
    /// Says this late what its device is.
    pub(crate) starts_late: Duration,
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
    /// Closes sessions, and does not say when their slots are free.
    pub(crate) keeps_slots: bool,
    /// Cannot close sessions.
    pub(crate) refuses_closes: bool,
    /// Does not answer what is reserved.
    pub(crate) holds_reserves: bool,
    /// Does not answer the adding of modules.
    pub(crate) holds_modules: bool,
    /// Cannot add modules.
    pub(crate) refuses_modules: bool,
    /// Cannot adopt the windows of modules.
    pub(crate) adopts_no_windows: bool,
    /// The system passes nothing of what it exports.
    pub(crate) passes_nothing: bool,
    /// Does not answer the adopting of memory, and cannot do it after all.
    pub(crate) holds_adopts: bool,
    /// Another stands by: what is started next leaves the first as it is.
    pub(crate) has_standby: bool,
}

#[derive(Default)]
struct State {
    asked: Vec<Asked>,
    manners: Manners,
    /// Those of all that were started and did not end on their own.
    sockets: Vec<Arc<OwnedFd>>,
    /// Who is to be answered, and what.
    held: Vec<(OwnedFd, Reference)>,
    memory: Memory,
    modules: Modules,
    /// Those of the executor that stands by.
    standbys: Modules,
    /// Where host memory was mapped.
    host: Vec<(u32, u64)>,
    /// How long each session has done nothing, where that is not for ever.
    idle_ns: BTreeMap<u32, u64>,
    starts: u32,
    wrong: Vec<String>,
}

/// An answer that is held back.
enum Reference {
    Done(u64),
    Unmapped(u64, u32),
    Opened(u64),
    Loaded(u64, u32),
    Refused(u64),
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
            state.sockets.push(Arc::clone(&ours));
            if !state.manners.has_standby {
                state.held.clear();
                state.memory = Memory::default();
                state.modules = Modules::default();
            }
            state.standbys = Modules::default();
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

    /// What it was asked that makes no sense.
    pub(crate) fn wrong(&self) -> Vec<String> {
        self.state().wrong.clone()
    }

    /// How many pieces a session has mapped, and in all how much memory there is.
    pub(crate) fn mapped(&self, session: u32) -> (usize, u64) {
        let state = self.state();
        (state.memory.pieces.keys().filter(|(of, _)| *of == session).count(), state.memory.bytes())
    }

    fn check(&self, done: Result<(), String>) {
        if let Err(wrong) = done {
            self.state().wrong.push(wrong);
        }
    }

    pub(crate) fn behave(&self, manners: Manners) {
        self.state().manners = manners;
    }

    /// Ends the process that was started last, as far as the kernel can see.
    pub(crate) fn die(&self) {
        let socket = self.state().sockets.pop().unwrap();
        rustix::net::shutdown(&socket, Shutdown::Both).unwrap();
    }

    /// Ends the process that was started first: the one that serves, where another stands by.
    pub(crate) fn die_first(&self) {
        let mut state = self.state();
        let socket = state.sockets.remove(0);
        state.modules = std::mem::take(&mut state.standbys);
        drop(state);
        rustix::net::shutdown(&socket, Shutdown::Both).unwrap();
    }

    /// Whether another serves: what that has as memory is what there is.
    fn stands_by(&self, socket: &OwnedFd) -> bool {
        let state = self.state();
        state.manners.has_standby
            && state.sockets.first().is_some_and(|first| first.as_raw_fd() != socket.as_raw_fd())
    }

    /// Does something with the modules of the executor that is asked.
    fn with_modules<T>(&self, socket: &OwnedFd, work: impl FnOnce(&mut Modules) -> T) -> T {
        let stands_by = self.stands_by(socket);
        let mut state = self.state();
        work(if stands_by { &mut state.standbys } else { &mut state.modules })
    }

    fn socket(&self) -> Arc<OwnedFd> {
        Arc::clone(self.state().sockets.last().unwrap())
    }

    /// Says that its device is lost, though nobody asked, and ends.
    pub(crate) fn lose_device(&self) {
        let socket = self.state().sockets.pop().unwrap();
        let why = Error::new(ErrorCode::DeviceLost, "a misaligned address").device(716);
        send(&socket, 0, None, |reply| why.write(reply.init_error()));
        rustix::net::shutdown(&socket, Shutdown::Both).unwrap();
    }

    /// Says from now on that a session submitted something so long ago.
    pub(crate) fn be_idle(&self, session: u32, idle_ns: u64) {
        self.state().idle_ns.insert(session, idle_ns);
    }

    /// Tells the kernel that a session which is swapped out has something to do.
    pub(crate) fn want(&self, session: u32) {
        let socket = self.socket();
        send(&socket, 0, None, |mut reply| reply.set_wanted(session));
    }

    /// Tells the kernel that a session ended.
    pub(crate) fn end_session(&self, session: u32, error: &Error) {
        let socket = self.socket();
        send(&socket, 0, None, |reply| {
            let mut ended = reply.init_session_ended();
            ended.set_session(session);
            error.write(ended.init_error());
        });
    }

    /// Passes these along with something that comes with none.
    pub(crate) fn pass(&self, descriptors: &[OwnedFd]) {
        let socket = self.socket();
        send(&socket, 0, descriptors, |mut reply| reply.set_wanted(1));
    }

    /// Answers the opening of a session that was held back, and passes this for a page.
    pub(crate) fn open_with(&self, page: &OwnedFd) {
        let held = self.state().held.pop();
        let Some((socket, Reference::Opened(id))) = held else { panic!("no session is being opened") };
        send(&socket, id, Some(page), |mut reply| reply.set_opened(()));
    }

    /// Answers what was held back.
    pub(crate) fn let_go(&self) {
        let held = {
            let mut state = self.state();
            state.manners = Manners { has_standby: state.manners.has_standby, ..Manners::default() };
            std::mem::take(&mut state.held)
        };
        for (socket, held) in held {
            match held {
                Reference::Done(id) => send(&socket, id, None, |mut reply| reply.set_ok(())),
                Reference::Unmapped(id, _) => {
                    send(&socket, id, None, |mut reply| reply.set_quiescent(()));
                    send(&socket, id, None, |mut reply| reply.set_ok(()));
                }
                Reference::Opened(id) => send(&socket, id, Some(&page()), |mut reply| reply.set_opened(())),
                Reference::Loaded(id, entries) => loaded(&socket, id, entries, 0),
                Reference::Refused(id) => {
                    let why = Error::new(ErrorCode::LimitReached, "it cannot after all");
                    send(&socket, id, None, |reply| why.write(reply.init_error()));
                }
            }
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
        let manners = self.state().manners;
        if manners.is_silent {
            descriptors.clear();
            return;
        }
        answers::Answer { fake: self, socket, id: request.get_id(), manners, descriptors }.give(request);
    }
}

fn loaded(socket: &OwnedFd, id: u64, entries: u32, more_local_bytes: u32) {
    send(socket, id, None, |mut reply| {
        reply.set_code_bytes(CODE_BYTES);
        let mut loaded = reply.init_loaded(entries);
        for at in 0..entries {
            loaded.reborrow().get(at).set_name(format!("entry{at}"));
            loaded.reborrow().get(at).set_threads_max(1024);
            loaded.reborrow().get(at).set_local_bytes(LOCAL_BYTES + more_local_bytes);
        }
    });
}

fn page() -> OwnedFd {
    bulkhead_ring::memory::Completion::create().unwrap().1
}
