//! The kernel's end of the link.

use std::{
    collections::{HashMap, VecDeque},
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use bulkhead_executor::{Backend, Guard, Options, Patience};
use bulkhead_schema::{
    Error, ErrorCode, Handle, Run,
    executor_capnp::{reply, request},
};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GRANULE: u64 = bulkhead_mm::ARENA_GRANULE_BYTES;
pub(crate) const PAGE: u64 = bulkhead_mm::PAGE_BYTES;

/// What an answer was.
#[derive(Debug)]
pub(crate) enum Answer {
    Done,
    Refused(ErrorCode),
    Opened(OwnedFd),
    Exported(OwnedFd),
    Loaded(usize),
    Quiescent,
    Activity(Vec<(u32, u64, u32)>),
    Piece(Vec<u8>),
}

impl Answer {
    pub(crate) fn done(self) {
        assert!(matches!(self, Self::Done), "{self:?}");
    }

    pub(crate) fn refused(self) -> ErrorCode {
        match self {
            Self::Refused(code) => code,
            other => panic!("not refused: {other:?}"),
        }
    }
}

/// A range of a session's slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At(pub(crate) u32, pub(crate) u64, pub(crate) u64);

impl At {
    fn write(self, mut range: bulkhead_schema::executor_capnp::range::Builder<'_>) {
        range.set_session(self.0);
        range.set_address(self.1);
        range.set_bytes(self.2);
    }
}

pub(crate) struct Kernel {
    socket: OwnedFd,
    next: u64,
    answers: HashMap<u64, VecDeque<Answer>>,
    pub(crate) wanted: Vec<u32>,
    /// The sessions that may be ended.
    may_end: Vec<u32>,
    process: Option<Child>,
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Kernel {
    /// With an executor in this process.
    pub(crate) fn start() -> Self {
        Self::start_with(Patience::default(), None)
    }

    /// With an executor in this process that has so much patience, and may end these sessions.
    pub(crate) fn start_with(patience: Patience, may_end: impl IntoIterator<Item = u32>) -> Self {
        let (mut kernel, other) = Self::pair();
        kernel.may_end = may_end.into_iter().collect();
        thread::spawn(move || bulkhead_executor::run(other, Backend::Software, patience).unwrap());
        kernel
    }

    /// With an executor in this process that runs confined versions of entries only.
    pub(crate) fn start_strict() -> Self {
        let (kernel, other) = Self::pair();
        let options = Options { guard: Guard::Strict, ..Options::from(Backend::Software) };
        thread::spawn(move || bulkhead_executor::run(other, options, Patience::default()).unwrap());
        kernel
    }

    /// With an executor in a process of its own, which can be killed.
    pub(crate) fn start_process() -> Self {
        let (mut kernel, other) = Self::pair();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "standby::an_executor_of_its_own", "--ignored"]);
        command.stdin(Stdio::from(other)).stdout(Stdio::null()).stderr(Stdio::null());
        kernel.process = Some(command.spawn().unwrap());
        kernel
    }

    fn pair() -> (Self, OwnedFd) {
        let kind = SocketType::SEQPACKET;
        let (socket, other) =
            rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        let patience = Some(Duration::from_secs(60));
        rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Recv, patience)
            .unwrap();
        let (answers, wanted) = (HashMap::new(), Vec::new());
        (Self { socket, next: 1, answers, wanted, may_end: Vec::new(), process: None }, other)
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    pub(crate) fn ask(
        &mut self,
        with: Option<BorrowedFd<'_>>,
        fill: impl FnOnce(request::Builder<'_>),
    ) -> u64 {
        let id = self.next;
        self.next += 1;
        let mut message = capnp::message::Builder::new_default();
        let mut root = message.init_root::<request::Builder<'_>>();
        root.set_id(id);
        fill(root);
        let bytes = capnp::serialize::write_message_to_words(&message);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors: Vec<_> = with.into_iter().collect();
        assert!(descriptors.is_empty() || ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
        assert!(bytes.len() <= bulkhead_schema::limits::PACKET_BYTES_MAX);
        rustix::net::sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::empty())
            .unwrap();
        id
    }

    /// Reads one packet.
    fn receive(&mut self) {
        let mut buffer = vec![0; 1 << 17];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let received =
            rustix::net::recvmsg(&self.socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC).unwrap();
        assert!(received.bytes > 0, "the executor is gone");
        let mut descriptor = None;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
                descriptor = descriptors.next();
            }
        }
        let message = capnp::serialize::read_message(&buffer[..received.bytes], Default::default()).unwrap();
        let reply = message.get_root::<reply::Reader<'_>>().unwrap();
        let answer = match reply.which().unwrap() {
            reply::Ok(()) | reply::Device(_) => Answer::Done,
            reply::Opened(()) => Answer::Opened(descriptor.unwrap()),
            reply::Exported(()) => Answer::Exported(descriptor.unwrap()),
            reply::Loaded(entries) => Answer::Loaded(entries.unwrap().len() as usize),
            reply::Error(error) => {
                let error = Error::read(error.unwrap());
                println!("request {}: {error}", reply.get_id());
                Answer::Refused(error.code)
            }
            reply::Piece(piece) => Answer::Piece(piece.unwrap().to_vec()),
            reply::Variable(_) | reply::Words(_) | reply::Names(_) => panic!("no session here is isolated"),
            reply::Quiescent(()) => Answer::Quiescent,
            reply::Wanted(session) => return self.wanted.push(session),
            reply::Activity(list) => {
                let list = list.unwrap().iter();
                Answer::Activity(
                    list.map(|a| (a.get_session(), a.get_idle_ns(), a.get_in_flight())).collect(),
                )
            }
            reply::SessionEnded(ended) => {
                let ended = ended.unwrap();
                if self.may_end.contains(&ended.get_session()) {
                    return;
                }
                panic!("session ended: {:?}", Error::read(ended.get_error().unwrap()))
            }
        };
        self.answers.entry(reply.get_id()).or_default().push_back(answer);
    }

    /// The next answer to a request; others that come in between are kept.
    pub(crate) fn answer(&mut self, id: u64) -> Answer {
        loop {
            if let Some(answer) = self.answers.get_mut(&id).and_then(VecDeque::pop_front) {
                return answer;
            }
            self.receive();
        }
    }

    /// Whether a request has an answer by now, among what comes within a moment.
    pub(crate) fn has_answer(&mut self, id: u64) -> bool {
        let moment = rustix::event::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        loop {
            if self.answers.get(&id).is_some_and(|answers| !answers.is_empty()) {
                return true;
            }
            let mut poll = [rustix::event::PollFd::new(&self.socket, rustix::event::PollFlags::IN)];
            if rustix::event::poll(&mut poll, Some(&moment)).unwrap() == 0 {
                return false;
            }
            self.receive();
        }
    }

    pub(crate) fn wait_until_wanted(&mut self) -> u32 {
        while self.wanted.is_empty() {
            self.receive();
        }
        self.wanted.remove(0)
    }

    pub(crate) fn map(&mut self, at: At) -> u64 {
        self.ask(None, |request| at.write(request.init_map_arena()))
    }

    pub(crate) fn unmap(&mut self, at: At) -> u64 {
        self.ask(None, |request| at.write(request.init_unmap_arena()))
    }

    /// Unmaps, and waits for both answers.
    pub(crate) fn unmapped(&mut self, at: At) {
        let id = self.unmap(at);
        assert!(matches!(self.answer(id), Answer::Quiescent));
        self.answer(id).done();
    }

    pub(crate) fn share(&mut self, from: At, to: At) -> u64 {
        self.ask(None, |request| {
            let mut share = request.init_share();
            from.write(share.reborrow().init_from());
            to.write(share.init_to());
        })
    }

    pub(crate) fn split(&mut self, arena: At, second: u64) -> u64 {
        self.ask(None, |request| {
            let mut split = request.init_split();
            arena.write(split.reborrow().init_arena());
            split.set_at(second);
        })
    }

    pub(crate) fn export(&mut self, at: At) -> OwnedFd {
        let id = self.ask(None, |request| at.write(request.init_export_arena()));
        match self.answer(id) {
            Answer::Exported(descriptor) => descriptor,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn adopt(&mut self, at: At, descriptor: &OwnedFd) -> u64 {
        self.ask(Some(descriptor.as_fd()), |request| at.write(request.init_adopt_arena()))
    }

    pub(crate) fn open(&mut self, session: u32, slot: u32, ring: Option<&OwnedFd>) -> u64 {
        self.ask(ring.map(AsFd::as_fd), |request| {
            let mut open = request.init_open_session();
            open.set_session(session);
            open.set_slot(slot);
        })
    }

    pub(crate) fn opened(&mut self, id: u64) -> OwnedFd {
        match self.answer(id) {
            Answer::Opened(page) => page,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn add_module(&mut self, module: u32, bytes: u64, gates: &OwnedFd) -> u64 {
        self.ask(Some(gates.as_fd()), |request| {
            let mut add = request.init_add_module();
            add.set_module(module);
            add.set_bytes(bytes);
        })
    }

    /// A module whose window is another executor's.
    pub(crate) fn add_adopting_module(&mut self, module: u32, bytes: u64, gates: &OwnedFd) -> u64 {
        self.ask(Some(gates.as_fd()), |request| {
            let mut add = request.init_add_module();
            add.set_module(module);
            add.set_bytes(bytes);
            add.set_adopts(true);
        })
    }

    pub(crate) fn export_module(&mut self, module: u32) -> u64 {
        self.ask(None, |mut request| request.set_export_module(module))
    }

    pub(crate) fn adopt_module(&mut self, module: u32, memory: &OwnedFd) -> u64 {
        self.ask(Some(memory.as_fd()), |mut request| request.set_adopt_module(module))
    }

    pub(crate) fn remove_module(&mut self, module: u32) -> u64 {
        self.ask(None, |mut request| request.set_remove_module(module))
    }

    pub(crate) fn grant_module(&mut self, module: u32, session: u32, caller: u64) -> u64 {
        self.ask(None, |request| {
            let mut grant = request.init_grant_module();
            grant.set_module(module);
            grant.set_session(session);
            grant.set_caller(caller);
        })
    }

    pub(crate) fn revoke_module(&mut self, module: u32, session: u32) -> u64 {
        self.ask(None, |request| {
            let mut grant = request.init_revoke_module();
            grant.set_module(module);
            grant.set_session(session);
        })
    }

    pub(crate) fn read_module(&mut self, module: u32, offset: u64, bytes: u64) -> u64 {
        self.ask(None, |request| {
            let mut piece = request.init_read_module();
            piece.set_module(module);
            piece.set_offset(offset);
            piece.set_bytes(bytes);
        })
    }

    pub(crate) fn write_module(&mut self, module: u32, offset: u64, data: &[u8]) -> u64 {
        self.ask(None, |request| {
            let mut piece = request.init_write_module();
            piece.set_module(module);
            piece.set_offset(offset);
            piece.set_data(data);
        })
    }

    pub(crate) fn end(&mut self, session: u32, why: &Error) -> u64 {
        self.ask(None, |request| {
            let mut end = request.init_end_session();
            end.set_session(session);
            why.write(end.init_error());
        })
    }

    pub(crate) fn close(&mut self, session: u32) -> u64 {
        self.ask(None, |mut request| request.set_close_session(session))
    }

    pub(crate) fn drain(&mut self, session: u32) -> u64 {
        self.ask(None, |mut request| request.set_drain(session))
    }

    pub(crate) fn resume(&mut self, session: u32, lost: bool, ring: &OwnedFd) -> u64 {
        self.ask(Some(ring.as_fd()), |request| {
            let mut resume = request.init_resume();
            resume.set_session(session);
            resume.set_lost(lost);
        })
    }

    pub(crate) fn bind(&mut self, session: u32, buffers: &[(Handle, u64, u64, bool)]) -> u64 {
        self.ask(None, |request| {
            let mut bind = request.init_bind();
            bind.set_session(session);
            let mut list = bind.init_bindings(u32::try_from(buffers.len()).unwrap());
            for (index, (handle, at, bytes, writable)) in (0..).zip(buffers) {
                let mut binding = list.reborrow().get(index);
                handle.write(binding.reborrow().init_handle());
                let mut buffer = binding.init_buffer();
                buffer.set_address(*at);
                buffer.set_bytes(*bytes);
                buffer.set_writable(*writable);
            }
        })
    }

    pub(crate) fn bind_entry(&mut self, session: u32, handle: Handle, from: u32, entry: Handle) -> u64 {
        self.ask(None, |request| {
            let mut bind = request.init_bind();
            bind.set_session(session);
            let mut binding = bind.init_bindings(1).get(0);
            handle.write(binding.reborrow().init_handle());
            let mut name = binding.init_entry();
            name.set_session(from);
            entry.write(name.init_handle());
        })
    }

    pub(crate) fn unbind(&mut self, session: u32, handles: &[Handle]) -> u64 {
        self.ask(None, |request| {
            let mut unbind = request.init_unbind();
            unbind.set_session(session);
            let runs = Run::of(handles.iter().copied());
            let mut list = unbind.init_runs(u32::try_from(runs.len()).unwrap());
            for (index, run) in (0..).zip(runs) {
                run.write(list.reborrow().get(index));
            }
        })
    }

    pub(crate) fn register_host(
        &mut self,
        session: u32,
        handle: Handle,
        bytes: u64,
        memory: &OwnedFd,
    ) -> u64 {
        self.map_host(At(session, 0, bytes), handle, memory)
    }

    /// Registers host memory in a session's window.
    pub(crate) fn map_host(
        &mut self,
        At(session, address, bytes): At,
        handle: Handle,
        memory: &OwnedFd,
    ) -> u64 {
        self.ask(Some(memory.as_fd()), |request| {
            let mut host = request.init_register_host();
            host.set_bytes(bytes);
            host.set_address(address);
            let mut name = host.init_name();
            name.set_session(session);
            handle.write(name.init_handle());
        })
    }

    /// Splits memory of which a standby has the other handle.
    pub(crate) fn split_and_keep(&mut self, arena: At, second: u64) -> u64 {
        self.ask(None, |request| {
            let mut split = request.init_split();
            arena.write(split.reborrow().init_arena());
            split.set_at(second);
            split.set_keep(true);
        })
    }

    pub(crate) fn give_back_area(&mut self, session: u32) -> u64 {
        self.ask(None, |request| request.init_swap_area().set_session(session))
    }

    pub(crate) fn swap_area(&mut self, session: u32, bytes: u64, memory: &OwnedFd) -> u64 {
        self.ask(Some(memory.as_fd()), |request| {
            let mut area = request.init_swap_area();
            area.set_session(session);
            area.set_bytes(bytes);
        })
    }

    pub(crate) fn swap_out(&mut self, session: u32, arenas: &[(u64, u64)], copy: bool) -> u64 {
        self.ask(None, |request| swap(request.init_swap_out(), session, arenas, copy))
    }

    /// The same, waiting for its work for so long.
    pub(crate) fn swap_out_soon(&mut self, session: u32, arenas: &[(u64, u64)], patience_ms: u32) -> u64 {
        self.ask(None, |request| {
            let mut out = request.init_swap_out();
            out.set_patience_ms(patience_ms);
            swap(out, session, arenas, true);
        })
    }

    /// Swaps in a session that stays held.
    pub(crate) fn swap_in_held(&mut self, session: u32, arenas: &[(u64, u64)]) -> u64 {
        self.ask(None, |request| {
            let mut back = request.init_swap_in();
            back.set_hold(true);
            swap(back, session, arenas, true);
        })
    }

    pub(crate) fn swap_in(&mut self, session: u32, arenas: &[(u64, u64)]) -> u64 {
        self.ask(None, |request| swap(request.init_swap_in(), session, arenas, true))
    }

    /// Waits until a session has something on the device.
    pub(crate) fn wait_until_busy(&mut self, session: u32) {
        while !self.activity().iter().any(|(id, _, in_flight)| *id == session && *in_flight > 0) {}
    }

    pub(crate) fn activity(&mut self) -> Vec<(u32, u64, u32)> {
        let id = self.ask(None, |mut request| request.set_activity(()));
        match self.answer(id) {
            Answer::Activity(list) => list,
            other => panic!("{other:?}"),
        }
    }
}

fn swap(
    mut swap: bulkhead_schema::executor_capnp::swap::Builder<'_>,
    session: u32,
    arenas: &[(u64, u64)],
    copy: bool,
) {
    swap.set_session(session);
    swap.set_copy(copy);
    let mut list = swap.init_arenas(u32::try_from(arenas.len()).unwrap());
    for (index, (at, bytes)) in (0..).zip(arenas) {
        let mut span = list.reborrow().get(index);
        span.set_address(*at);
        span.set_bytes(*bytes);
    }
}
