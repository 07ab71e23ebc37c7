//! An executor without a device: it answers what it is asked, notes it, and misbehaves on request.

mod memory;
mod modules;
mod wire;

use std::{
    collections::BTreeMap,
    io::Read,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bulkhead_schema::{Error, ErrorCode, Handle, Run, executor_capnp, limits};
use capnp::serialize;
use rustix::{
    fs::SealFlags,
    net::{AddressFamily, SendFlags, Shutdown, SocketFlags, SocketType},
};

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
        let span = |range: executor_capnp::range::Reader<'_>| {
            (range.get_session(), range.get_address(), range.get_bytes())
        };
        let hold = |held| self.state().held.push((socket.try_clone().unwrap(), held));
        match request.which().unwrap() {
            Which::Describe(()) => {
                note(Asked::Describe);
                std::thread::sleep(std::mem::take(&mut self.state().manners.starts_late));
                if manners.has_no_device {
                    return refuse(Error::new(ErrorCode::Unavailable, "no device here"));
                }
                send(socket, id, None, |reply| {
                    let mut device = reply.init_device();
                    device.set_backend("fake");
                    device.set_name("Fake GPU");
                    device.set_uuid(&[7; 16]);
                    device.set_memory_bytes(MEMORY_BYTES);
                    let mut attributes = device.init_attributes(2);
                    let hmm = i32::from(manners.has_hmm);
                    for (at, (number, value)) in (0..).zip([(16, 132), (88, hmm)]) {
                        attributes.reborrow().get(at).set_number(number);
                        attributes.reborrow().get(at).set_value(value);
                    }
                });
            }
            Which::OpenSession(open) => {
                let open = open.unwrap();
                note(Asked::Open { session: open.get_session(), slot: open.get_slot() });
                let ring = descriptors.pop();
                assert!(ring.is_some() || manners.has_standby, "a ring comes with a session");
                if manners.holds_opens {
                    return hold(Reference::Opened(id));
                }
                send(socket, id, Some(&page()), |mut reply| reply.set_opened(()));
            }
            Which::Reserve(reserve) => {
                let reserve = reserve.unwrap();
                let (session, streams, events) =
                    (reserve.get_session(), reserve.get_streams(), reserve.get_events());
                note(Asked::Reserve { session, streams, events });
                if manners.holds_reserves {
                    return hold(Reference::Done(id));
                }
                ok(socket);
            }
            Which::EndSession(end) => {
                note(Asked::End(end.unwrap().get_session()));
                ok(socket);
            }
            Which::CloseSession(session) => {
                note(Asked::Close(session));
                if !self.stands_by(socket) {
                    self.state().memory.close(session);
                }
                self.with_modules(socket, |modules| modules.close(session));
                if manners.holds_closes {
                    hold(Reference::Done(id));
                } else if manners.refuses_closes {
                    refuse(Error::new(ErrorCode::Internal, "it cannot be unmapped"));
                } else {
                    // Nothing of a session is answered any more once it is closed.
                    self.state()
                        .held
                        .retain(|(_, held)| !matches!(held, Reference::Unmapped(_, of) if *of == session));
                    if manners.keeps_slots {
                        send(socket, id, None, |mut reply| reply.set_quiescent(()));
                        return hold(Reference::Done(id));
                    }
                    ok(socket);
                }
            }
            Which::MapArena(range) => {
                let (session, address, bytes) = span(range.unwrap());
                note(Asked::Map { session, bytes });
                let made = self.state().memory.bytes();
                if manners.arena_bytes_max > 0 && made + bytes > manners.arena_bytes_max {
                    return refuse(Error::new(ErrorCode::OutOfMemory, "no device memory is left"));
                }
                let mapped = self.state().memory.map(session, address, bytes);
                self.check(mapped);
                if manners.holds_maps { hold(Reference::Done(id)) } else { ok(socket) }
            }
            Which::UnmapArena(range) => {
                let (session, address, bytes) = span(range.unwrap());
                note(Asked::Unmap { session, bytes });
                if !self.stands_by(socket) {
                    let unmapped = self.state().memory.unmap(session, address, bytes);
                    self.check(unmapped);
                }
                let before =
                    |asked: &&Asked| matches!(asked, Asked::Unmap { session: of, .. } if *of == session);
                let is_later = self.asked().iter().filter(before).count() > 1;
                let holds = manners.holds_unmaps || manners.holds_later_unmaps && is_later;
                if holds || manners.runs_on == session {
                    return hold(Reference::Unmapped(id, session));
                }
                send(socket, id, None, |mut reply| reply.set_quiescent(()));
                let is_host = self.state().host.contains(&(session, address));
                let holds = manners.holds_reclaims || manners.holds_host_reclaims && is_host;
                if holds { hold(Reference::Done(id)) } else { ok(socket) }
            }
            Which::Share(share) => {
                let share = share.unwrap();
                let (from, to) = (span(share.get_from().unwrap()), span(share.get_to().unwrap()));
                note(Asked::Share { session: to.0, address: to.1, bytes: to.2 });
                if manners.refuses_shares {
                    return refuse(Error::new(ErrorCode::OutOfMemory, "its work runs on"));
                }
                let shared = self.state().memory.share(from, to);
                self.check(shared);
                if manners.holds_shares { hold(Reference::Done(id)) } else { ok(socket) }
            }
            Which::Split(split) => {
                let split = split.unwrap();
                let (session, address, bytes) = span(split.get_arena().unwrap());
                note(Asked::Split { session, at: split.get_at() - address });
                let cut = self.state().memory.split(session, address, bytes, split.get_at());
                self.check(cut);
                ok(socket);
            }
            Which::Bind(bind) => {
                let bind = bind.unwrap();
                let session = bind.get_session();
                for binding in bind.get_bindings().unwrap() {
                    let handle = Handle::read(binding.get_handle().unwrap());
                    note(match binding.which().unwrap() {
                        executor_capnp::binding::Buffer(range) => {
                            Asked::Bind { session, handle, writable: range.unwrap().get_writable() }
                        }
                        executor_capnp::binding::Entry(of) => {
                            Asked::BindEntry { session, handle, of: name(of.unwrap()) }
                        }
                    });
                }
                if manners.refuses_binds {
                    return refuse(Error::new(ErrorCode::LimitReached, "no more can be bound"));
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
                let (bytes, address) = (register.get_bytes(), register.get_address());
                note(Asked::Register { session, handle, bytes, address });
                if address != 0 {
                    if manners.refuses_mapped {
                        return refuse(Error::new(ErrorCode::OutOfMemory, "its kernels run on"));
                    }
                    let mapped = self.state().memory.map(session, address, bytes);
                    self.check(mapped);
                    self.state().host.push((session, address));
                }
                if manners.holds_maps { hold(Reference::Done(id)) } else { ok(socket) }
            }
            Which::Unbind(unbind) => {
                let unbind = unbind.unwrap();
                for run in unbind.get_runs().unwrap() {
                    let Run { first: Handle { slot, generation }, count } = Run::read(run);
                    for slot in slot..slot + count {
                        note(Asked::Unbind {
                            session: unbind.get_session(),
                            handle: Handle { slot, generation },
                        });
                    }
                }
                if manners.holds_unbinds { hold(Reference::Done(id)) } else { ok(socket) }
            }
            Which::Drain(session) => {
                note(Asked::Drain(session));
                if manners.never_drained {
                    return refuse(Error::new(ErrorCode::TimedOut, "work runs on"));
                }
                let waits = manners.holds_drains || manners.runs_on == session;
                if waits { hold(Reference::Done(id)) } else { ok(socket) }
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
                let local_bytes_max = load.get_local_bytes_max();
                note(Asked::Load { session, handle, text, entries: entries as usize });
                if LOCAL_BYTES + manners.more_local_bytes > local_bytes_max {
                    let error = Error::new(ErrorCode::OutOfMemory, "no room for local memory");
                    return refuse(error.remedy("set the limit of local_bytes"));
                }
                if manners.refuses_grown {
                    return send(socket, id, None, |mut reply| {
                        reply.set_local_bytes(LOCAL_BYTES + manners.more_local_bytes);
                        Error::new(ErrorCode::LimitReached, "too many names").write(reply.init_error());
                    });
                }
                if manners.holds_loads {
                    hold(Reference::Loaded(id, entries))
                } else {
                    loaded(socket, id, entries, manners.more_local_bytes)
                }
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
            Which::SwapArea(area) => {
                let area = area.unwrap();
                let (session, bytes) = (area.get_session(), area.get_bytes());
                let memory = descriptors.pop();
                let size = memory.map_or(0, |memory| rustix::fs::fstat(&memory).unwrap().st_size);
                assert_eq!(size, i64::try_from(bytes).unwrap(), "the memfd is of another size");
                note(Asked::Area { session, bytes });
                let before = self.state().memory.areas.insert(session, (bytes, Vec::new()));
                let full = before.is_some_and(|(_, spans)| !spans.is_empty());
                self.check(if full { Err("a full area is replaced".to_owned()) } else { Ok(()) });
                ok(socket);
            }
            Which::SwapOut(swap) => {
                let swap = swap.unwrap();
                let is_short = swap.get_patience_ms() < 1_000;
                let (session, spans) = spans(swap);
                note(Asked::SwapOut { session, bytes: spans.iter().map(|(_, bytes)| bytes).sum() });
                if manners.refuses_swap_out_of == session {
                    return refuse(Error::new(ErrorCode::OutOfMemory, "its kernels run on"));
                }
                if manners.runs_on == session && is_short {
                    return refuse(Error::new(ErrorCode::OutOfMemory, "its kernels run on"));
                }
                let done = self.state().memory.swap_out(session, &spans);
                self.check(done);
                if manners.runs_on == session { hold(Reference::Done(id)) } else { ok(socket) }
            }
            Which::SwapIn(swap) => {
                let (session, spans) = spans(swap.unwrap());
                let there = spans.iter().filter(|(address, _)| *address != 0);
                note(Asked::SwapIn { session, bytes: there.map(|(_, bytes)| bytes).sum() });
                let done = self.state().memory.swap_in(session, &spans);
                self.check(done);
                ok(socket);
            }
            Which::TakenMemory(()) => {
                send(socket, id, None, |reply| match manners.taken_bytes {
                    0 => drop(reply.init_words(0)),
                    taken => {
                        let mut words = reply.init_words(4);
                        // All of it, and what this process has.
                        [0, taken, 1, 0].into_iter().zip(0..).for_each(|(word, at)| words.set(at, word));
                    }
                });
            }
            Which::Activity(()) => {
                let idle_ns = self.state().idle_ns.clone();
                send(socket, id, None, |reply| {
                    let mut list = reply.init_activity(u32::try_from(idle_ns.len()).unwrap());
                    for (at, (session, idle_ns)) in (0..).zip(&idle_ns) {
                        let mut activity = list.reborrow().get(at);
                        activity.set_session(*session);
                        activity.set_idle_ns(*idle_ns);
                    }
                });
            }
            Which::ExportArena(_) | Which::ExportModule(_) => {
                let memory = (!manners.passes_nothing).then(page);
                send(socket, id, memory.as_ref(), |mut reply| reply.set_exported(()));
            }
            Which::AdoptArena(range) => {
                let (session, _, bytes) = span(range.unwrap());
                descriptors.pop().expect("memory comes with its descriptor");
                note(Asked::Adopt { session, bytes });
                if manners.holds_adopts { hold(Reference::Refused(id)) } else { ok(socket) }
            }
            Which::Resume(resume) => {
                note(Asked::Resume(resume.unwrap().get_session()));
                descriptors.pop().expect("a session comes with its ring");
                send(socket, id, Some(&page()), |mut reply| reply.set_opened(()));
            }
            Which::AdoptModule(module) => {
                descriptors.pop().expect("memory comes with its descriptor");
                note(Asked::AdoptModule(module));
                if manners.adopts_no_windows {
                    return refuse(Error::new(ErrorCode::OutOfMemory, "no addresses are left"));
                }
                self.with_modules(socket, |modules| modules.adopt(module));
                ok(socket)
            }
            Which::MapModule(_) => {
                descriptors.pop().expect("host memory comes with the request");
                ok(socket)
            }
            Which::WatchModule(_) => {
                let page = descriptors.pop().expect("a page comes with the request");
                if !manners.leaves_pages_open {
                    drop(
                        bulkhead_ring::ActivityWriter::map(page.as_fd())
                            .expect("a page that nobody has sealed"),
                    );
                }
                ok(socket)
            }
            Which::CloseModule(module) => {
                note(Asked::CloseModule(module));
                let unknown = Error::new(ErrorCode::NotFound, "no such module");
                if self.with_modules(socket, |modules| modules.is_known(module)) {
                    ok(socket)
                } else {
                    refuse(unknown)
                }
            }
            Which::AddModule(add) => {
                let add = add.unwrap();
                let (module, bytes) = (add.get_module(), add.get_bytes());
                if !add.get_adopts() {
                    note(Asked::AddModule { module, bytes });
                }
                descriptors.pop().expect("gates come with a module");
                if manners.refuses_modules {
                    return refuse(Error::new(ErrorCode::OutOfMemory, "no device memory is left"));
                }
                let adopts = add.get_adopts();
                let added = self.with_modules(socket, |modules| modules.add(module, bytes, adopts));
                self.check(added);
                if manners.holds_modules { hold(Reference::Done(id)) } else { ok(socket) }
            }
            // The kernel of the tests starts no executors, and so has no isolated session.
            Which::LoadNative(_)
            | Which::ImportArena(_)
            | Which::NativeEntry(_)
            | Which::NativeAttribute(_)
            | Which::NativeVariable(_)
            | Which::NativeNames(_)
            | Which::AskDriver(_) => {
                self.check(Err("it was asked what only an isolated session's executor is".to_owned()));
                refuse(Error::new(ErrorCode::NotPermitted, "this is everybody's executor"));
            }
            Which::RemoveModule(module) => {
                note(Asked::RemoveModule(module));
                let removed = self.with_modules(socket, |modules| modules.remove(module));
                let is_known = removed.clone().unwrap_or(true);
                self.check(removed.map(drop));
                let unknown = Error::new(ErrorCode::NotFound, "no such module");
                if is_known { ok(socket) } else { refuse(unknown) }
            }
            Which::GrantModule(grant) => {
                let grant = grant.unwrap();
                let (module, session) = (grant.get_module(), grant.get_session());
                note(Asked::Grant { module, session });
                if !self.with_modules(socket, |modules| modules.is_whole(module)) {
                    return refuse(Error::new(ErrorCode::InvalidArgument, "its window is not there"));
                }
                let granted = self.with_modules(socket, |modules| modules.grant(module, session));
                self.check(granted);
                ok(socket);
            }
            Which::RevokeModule(grant) => {
                let grant = grant.unwrap();
                let (module, session) = (grant.get_module(), grant.get_session());
                note(Asked::RevokeGrant { module, session });
                let is_known = self.with_modules(socket, |modules| modules.revoke(module, session));
                let unknown = Error::new(ErrorCode::NotFound, "it was not granted that");
                if is_known { ok(socket) } else { refuse(unknown) }
            }
            Which::ReadModule(piece) => {
                let piece = piece.unwrap();
                let (offset, bytes) = (piece.get_offset(), piece.get_bytes());
                let has = self.with_modules(socket, |modules| modules.has(piece.get_module(), offset, bytes));
                self.check(has);
                let zeros = vec![0; usize::try_from(bytes).unwrap()];
                send(socket, id, None, |mut reply| reply.set_piece(&zeros));
            }
            Which::WriteModule(piece) => {
                let piece = piece.unwrap();
                let bytes = u64::try_from(piece.get_data().unwrap().len()).unwrap();
                let (module, offset) = (piece.get_module(), piece.get_offset());
                let has = self.with_modules(socket, |modules| modules.has(module, offset, bytes));
                self.check(has);
                ok(socket);
            }
            Which::Fence(fence) => {
                let fence = fence.unwrap();
                note(Asked::Fence {
                    session: fence.get_session(),
                    stream: fence.get_stream(),
                    position: fence.get_position(),
                });
                if manners.holds_fences { hold(Reference::Done(id)) } else { ok(socket) }
            }
        }
    }
}

fn spans(swap: executor_capnp::swap::Reader<'_>) -> (u32, Vec<(u64, u64)>) {
    assert!(swap.get_copy(), "its content is to be kept");
    let spans = swap.get_arenas().unwrap().iter();
    (swap.get_session(), spans.map(|span| (span.get_address(), span.get_bytes())).collect())
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
