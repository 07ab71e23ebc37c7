//! What it answers to each request.

use std::{
    io::Read,
    os::fd::{AsFd, OwnedFd},
};

use bulkhead_schema::{
    Error, ErrorCode, Handle, Run,
    executor_capnp::{
        add_module, bind, binding, fence, grant_module, load_image, module_piece, name, open_session, range,
        register_host, request, reserve, share, split, swap, swap_area, unbind,
    },
};
use rustix::{fs::SealFlags, net::SendFlags};

use super::{
    Asked, Fake, LOCAL_BYTES, MEMORY_BYTES, Manners, Reference, loaded, modules::Modules, page, wire::send,
};

/// A request, and whom to answer.
pub(super) struct Answer<'a> {
    pub(super) fake: &'a Fake,
    pub(super) socket: &'a OwnedFd,
    pub(super) id: u64,
    pub(super) manners: Manners,
    pub(super) descriptors: &'a mut Vec<OwnedFd>,
}

impl Answer<'_> {
    fn ok(&self) {
        send(self.socket, self.id, None, |mut reply| reply.set_ok(()));
    }

    fn refuse(&self, error: Error) {
        send(self.socket, self.id, None, move |reply| error.write(reply.init_error()));
    }

    fn note(&self, asked: Asked) {
        self.fake.state().asked.push(asked);
    }

    fn hold(&self, held: Reference) {
        self.fake.state().held.push((self.socket.try_clone().unwrap(), held));
    }

    fn with_modules<T>(&self, work: impl FnOnce(&mut Modules) -> T) -> T {
        self.fake.with_modules(self.socket, work)
    }

    pub(super) fn give(&mut self, request: request::Reader<'_>) {
        use request::Which;
        match request.which().unwrap() {
            Which::Describe(()) => self.describe(),
            Which::OpenSession(open) => self.open_session(open.unwrap()),
            Which::Reserve(reserve) => self.reserve(reserve.unwrap()),
            Which::EndSession(end) => {
                self.note(Asked::End(end.unwrap().get_session()));
                self.ok();
            }
            Which::CloseSession(session) => self.close_session(session),
            Which::MapArena(range) => self.map_arena(range.unwrap()),
            Which::UnmapArena(range) => self.unmap_arena(range.unwrap()),
            Which::Share(share) => self.share(share.unwrap()),
            Which::Split(split) => self.split(split.unwrap()),
            Which::Bind(bind) => self.bind(bind.unwrap()),
            Which::RegisterHost(register) => self.register_host(register.unwrap()),
            Which::Unbind(unbind) => self.unbind(unbind.unwrap()),
            Which::Drain(session) => self.drain(session),
            Which::LoadImage(load) => self.load_image(load.unwrap()),
            Which::UnloadImage(unload) => {
                let (session, handle) = name(unload.unwrap());
                self.note(Asked::Unload { session, handle });
                self.ok();
            }
            Which::AllowDynamicShared(allow) => {
                self.note(Asked::Allow { bytes: allow.unwrap().get_bytes() });
                self.ok();
            }
            Which::SwapArea(area) => self.swap_area(area.unwrap()),
            Which::SwapOut(swap) => self.swap_out(swap.unwrap()),
            Which::SwapIn(swap) => self.swap_in(swap.unwrap()),
            Which::TakenMemory(()) => self.taken_memory(),
            Which::Activity(()) => self.activity(),
            Which::ExportArena(_) | Which::ExportModule(_) => {
                let memory = (!self.manners.passes_nothing).then(page);
                send(self.socket, self.id, memory.as_ref(), |mut reply| reply.set_exported(()));
            }
            Which::AdoptArena(range) => self.adopt_arena(range.unwrap()),
            Which::Resume(resume) => {
                self.note(Asked::Resume(resume.unwrap().get_session()));
                self.descriptors.pop().expect("a session comes with its ring");
                send(self.socket, self.id, Some(&page()), |mut reply| reply.set_opened(()));
            }
            Which::AdoptModule(module) => self.adopt_module(module),
            Which::MapModule(_) => {
                self.descriptors.pop().expect("host memory comes with the request");
                self.ok()
            }
            Which::WatchModule(_) => {
                let page = self.descriptors.pop().expect("a page comes with the request");
                if !self.manners.leaves_pages_open {
                    drop(
                        bulkhead_ring::ActivityWriter::map(page.as_fd())
                            .expect("a page that nobody has sealed"),
                    );
                }
                self.ok()
            }
            Which::CloseModule(module) => self.close_module(module),
            Which::AddModule(add) => self.add_module(add.unwrap()),
            // The kernel of the tests starts no executors, and so has no isolated session.
            Which::LoadNative(_)
            | Which::ImportArena(_)
            | Which::NativeEntry(_)
            | Which::NativeAttribute(_)
            | Which::NativeVariable(_)
            | Which::NativeNames(_)
            | Which::AskDriver(_) => {
                self.fake.check(Err("it was asked what only an isolated session's executor is".to_owned()));
                self.refuse(Error::new(ErrorCode::NotPermitted, "this is everybody's executor"));
            }
            Which::RemoveModule(module) => self.remove_module(module),
            Which::GrantModule(grant) => self.grant_module(grant.unwrap()),
            Which::RevokeModule(grant) => self.revoke_module(grant.unwrap()),
            Which::ReadModule(piece) => self.read_module(piece.unwrap()),
            Which::WriteModule(piece) => self.write_module(piece.unwrap()),
            Which::Fence(fence) => self.fence(fence.unwrap()),
        }
    }

    fn describe(&mut self) {
        self.note(Asked::Describe);
        std::thread::sleep(std::mem::take(&mut self.fake.state().manners.starts_late));
        if self.manners.has_no_device {
            return self.refuse(Error::new(ErrorCode::Unavailable, "no device here"));
        }
        send(self.socket, self.id, None, |reply| {
            let mut device = reply.init_device();
            device.set_backend("fake");
            device.set_name("Fake GPU");
            device.set_uuid(&[7; 16]);
            device.set_memory_bytes(MEMORY_BYTES);
            let mut attributes = device.init_attributes(2);
            let hmm = i32::from(self.manners.has_hmm);
            for (at, (number, value)) in (0..).zip([(16, 132), (88, hmm)]) {
                attributes.reborrow().get(at).set_number(number);
                attributes.reborrow().get(at).set_value(value);
            }
        });
    }

    fn open_session(&mut self, open: open_session::Reader<'_>) {
        self.note(Asked::Open { session: open.get_session(), slot: open.get_slot() });
        let ring = self.descriptors.pop();
        assert!(ring.is_some() || self.manners.has_standby, "a ring comes with a session");
        if self.manners.holds_opens {
            return self.hold(Reference::Opened(self.id));
        }
        send(self.socket, self.id, Some(&page()), |mut reply| reply.set_opened(()));
    }

    fn reserve(&mut self, reserve: reserve::Reader<'_>) {
        let (session, streams, events) = (reserve.get_session(), reserve.get_streams(), reserve.get_events());
        self.note(Asked::Reserve { session, streams, events });
        if self.manners.holds_reserves {
            return self.hold(Reference::Done(self.id));
        }
        self.ok();
    }

    fn close_session(&mut self, session: u32) {
        self.note(Asked::Close(session));
        if !self.fake.stands_by(self.socket) {
            self.fake.state().memory.close(session);
        }
        self.with_modules(|modules| modules.close(session));
        if self.manners.holds_closes {
            self.hold(Reference::Done(self.id));
        } else if self.manners.refuses_closes {
            self.refuse(Error::new(ErrorCode::Internal, "it cannot be unmapped"));
        } else {
            // Nothing of a session is answered any more once it is closed.
            self.fake
                .state()
                .held
                .retain(|(_, held)| !matches!(held, Reference::Unmapped(_, of) if *of == session));
            if self.manners.keeps_slots {
                send(self.socket, self.id, None, |mut reply| reply.set_quiescent(()));
                return self.hold(Reference::Done(self.id));
            }
            self.ok();
        }
    }

    fn map_arena(&mut self, range: range::Reader<'_>) {
        let (session, address, bytes) = span(range);
        self.note(Asked::Map { session, bytes });
        let made = self.fake.state().memory.bytes();
        if self.manners.arena_bytes_max > 0 && made + bytes > self.manners.arena_bytes_max {
            return self.refuse(Error::new(ErrorCode::OutOfMemory, "no device memory is left"));
        }
        let mapped = self.fake.state().memory.map(session, address, bytes);
        self.fake.check(mapped);
        if self.manners.holds_maps { self.hold(Reference::Done(self.id)) } else { self.ok() }
    }

    fn unmap_arena(&mut self, range: range::Reader<'_>) {
        let (session, address, bytes) = span(range);
        self.note(Asked::Unmap { session, bytes });
        if !self.fake.stands_by(self.socket) {
            let unmapped = self.fake.state().memory.unmap(session, address, bytes);
            self.fake.check(unmapped);
        }
        let before = |asked: &&Asked| matches!(asked, Asked::Unmap { session: of, .. } if *of == session);
        let is_later = self.fake.asked().iter().filter(before).count() > 1;
        let holds = self.manners.holds_unmaps || self.manners.holds_later_unmaps && is_later;
        if holds || self.manners.runs_on == session {
            return self.hold(Reference::Unmapped(self.id, session));
        }
        send(self.socket, self.id, None, |mut reply| reply.set_quiescent(()));
        let is_host = self.fake.state().host.contains(&(session, address));
        let holds = self.manners.holds_reclaims || self.manners.holds_host_reclaims && is_host;
        if holds { self.hold(Reference::Done(self.id)) } else { self.ok() }
    }

    fn share(&mut self, share: share::Reader<'_>) {
        let (from, to) = (span(share.get_from().unwrap()), span(share.get_to().unwrap()));
        self.note(Asked::Share { session: to.0, address: to.1, bytes: to.2 });
        if self.manners.refuses_shares {
            return self.refuse(Error::new(ErrorCode::OutOfMemory, "its work runs on"));
        }
        let shared = self.fake.state().memory.share(from, to);
        self.fake.check(shared);
        if self.manners.holds_shares { self.hold(Reference::Done(self.id)) } else { self.ok() }
    }

    fn split(&mut self, split: split::Reader<'_>) {
        let (session, address, bytes) = span(split.get_arena().unwrap());
        self.note(Asked::Split { session, at: split.get_at() - address });
        let cut = self.fake.state().memory.split(session, address, bytes, split.get_at());
        self.fake.check(cut);
        self.ok();
    }

    fn bind(&mut self, bind: bind::Reader<'_>) {
        let session = bind.get_session();
        for binding in bind.get_bindings().unwrap() {
            let handle = Handle::read(binding.get_handle().unwrap());
            self.note(match binding.which().unwrap() {
                binding::Buffer(range) => {
                    Asked::Bind { session, handle, writable: range.unwrap().get_writable() }
                }
                binding::Entry(of) => Asked::BindEntry { session, handle, of: name(of.unwrap()) },
            });
        }
        if self.manners.refuses_binds {
            return self.refuse(Error::new(ErrorCode::LimitReached, "no more can be bound"));
        }
        if self.manners.talks_nonsense {
            rustix::net::send(self.socket, &[0xff; 64], SendFlags::NOSIGNAL).unwrap();
            return;
        }
        if self.manners.loses_device {
            return self.refuse(Error::new(ErrorCode::DeviceLost, "an illegal address").device(700));
        }
        if self.manners.answers_twice {
            self.ok();
        }
        self.ok();
    }

    fn register_host(&mut self, register: register_host::Reader<'_>) {
        let (session, handle) = name(register.get_name().unwrap());
        let memory = self.descriptors.pop().expect("host memory comes with its memfd");
        let seals = rustix::fs::fcntl_get_seals(&memory).unwrap();
        assert!(seals.contains(SealFlags::SHRINK | SealFlags::GROW));
        let (bytes, address) = (register.get_bytes(), register.get_address());
        self.note(Asked::Register { session, handle, bytes, address });
        if address != 0 {
            if self.manners.refuses_mapped {
                return self.refuse(Error::new(ErrorCode::OutOfMemory, "its kernels run on"));
            }
            let mapped = self.fake.state().memory.map(session, address, bytes);
            self.fake.check(mapped);
            self.fake.state().host.push((session, address));
        }
        if self.manners.holds_maps { self.hold(Reference::Done(self.id)) } else { self.ok() }
    }

    fn unbind(&mut self, unbind: unbind::Reader<'_>) {
        for run in unbind.get_runs().unwrap() {
            let Run { first: Handle { slot, generation }, count } = Run::read(run);
            for slot in slot..slot + count {
                self.note(Asked::Unbind {
                    session: unbind.get_session(),
                    handle: Handle { slot, generation },
                });
            }
        }
        if self.manners.holds_unbinds { self.hold(Reference::Done(self.id)) } else { self.ok() }
    }

    fn drain(&mut self, session: u32) {
        self.note(Asked::Drain(session));
        if self.manners.never_drained {
            return self.refuse(Error::new(ErrorCode::TimedOut, "work runs on"));
        }
        let waits = self.manners.holds_drains || self.manners.runs_on == session;
        if waits { self.hold(Reference::Done(self.id)) } else { self.ok() }
    }

    fn load_image(&mut self, load: load_image::Reader<'_>) {
        let (session, handle) = name(load.get_name().unwrap());
        let text = self.descriptors.pop().expect("an image comes with its text");
        let seals = rustix::fs::fcntl_get_seals(&text).unwrap();
        assert!(seals.contains(SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW));
        let mut file = std::fs::File::from(text);
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        let entries = load.get_entries().unwrap().len();
        let local_bytes_max = load.get_local_bytes_max();
        self.note(Asked::Load { session, handle, text, entries: entries as usize });
        if LOCAL_BYTES + self.manners.more_local_bytes > local_bytes_max {
            let error = Error::new(ErrorCode::OutOfMemory, "no room for local memory");
            return self.refuse(error.remedy("set the limit of local_bytes"));
        }
        if self.manners.refuses_grown {
            return send(self.socket, self.id, None, |mut reply| {
                reply.set_local_bytes(LOCAL_BYTES + self.manners.more_local_bytes);
                Error::new(ErrorCode::LimitReached, "too many names").write(reply.init_error());
            });
        }
        if self.manners.holds_loads {
            self.hold(Reference::Loaded(self.id, entries))
        } else {
            loaded(self.socket, self.id, entries, self.manners.more_local_bytes)
        }
    }

    fn swap_area(&mut self, area: swap_area::Reader<'_>) {
        let (session, bytes) = (area.get_session(), area.get_bytes());
        let memory = self.descriptors.pop();
        let size = memory.map_or(0, |memory| rustix::fs::fstat(&memory).unwrap().st_size);
        assert_eq!(size, i64::try_from(bytes).unwrap(), "the memfd is of another size");
        self.note(Asked::Area { session, bytes });
        let before = self.fake.state().memory.areas.insert(session, (bytes, Vec::new()));
        let full = before.is_some_and(|(_, spans)| !spans.is_empty());
        self.fake.check(if full { Err("a full area is replaced".to_owned()) } else { Ok(()) });
        self.ok();
    }

    fn swap_out(&mut self, swap: swap::Reader<'_>) {
        let is_short = swap.get_patience_ms() < 1_000;
        let (session, spans) = spans(swap);
        self.note(Asked::SwapOut { session, bytes: spans.iter().map(|(_, bytes)| bytes).sum() });
        if self.manners.refuses_swap_out_of == session {
            return self.refuse(Error::new(ErrorCode::OutOfMemory, "its kernels run on"));
        }
        if self.manners.runs_on == session && is_short {
            return self.refuse(Error::new(ErrorCode::OutOfMemory, "its kernels run on"));
        }
        let done = self.fake.state().memory.swap_out(session, &spans);
        self.fake.check(done);
        if self.manners.runs_on == session { self.hold(Reference::Done(self.id)) } else { self.ok() }
    }

    fn swap_in(&mut self, swap: swap::Reader<'_>) {
        let (session, spans) = spans(swap);
        let there = spans.iter().filter(|(address, _)| *address != 0);
        self.note(Asked::SwapIn { session, bytes: there.map(|(_, bytes)| bytes).sum() });
        let done = self.fake.state().memory.swap_in(session, &spans);
        self.fake.check(done);
        self.ok();
    }

    fn taken_memory(&mut self) {
        send(self.socket, self.id, None, |reply| match self.manners.taken_bytes {
            0 => drop(reply.init_words(0)),
            taken => {
                let mut words = reply.init_words(4);
                // All of it, and what this process has.
                [0, taken, 1, 0].into_iter().zip(0..).for_each(|(word, at)| words.set(at, word));
            }
        });
    }

    fn activity(&mut self) {
        let idle_ns = self.fake.state().idle_ns.clone();
        send(self.socket, self.id, None, |reply| {
            let mut list = reply.init_activity(u32::try_from(idle_ns.len()).unwrap());
            for (at, (session, idle_ns)) in (0..).zip(&idle_ns) {
                let mut activity = list.reborrow().get(at);
                activity.set_session(*session);
                activity.set_idle_ns(*idle_ns);
            }
        });
    }

    fn adopt_arena(&mut self, range: range::Reader<'_>) {
        let (session, _, bytes) = span(range);
        self.descriptors.pop().expect("memory comes with its descriptor");
        self.note(Asked::Adopt { session, bytes });
        if self.manners.holds_adopts { self.hold(Reference::Refused(self.id)) } else { self.ok() }
    }

    fn adopt_module(&mut self, module: u32) {
        self.descriptors.pop().expect("memory comes with its descriptor");
        self.note(Asked::AdoptModule(module));
        if self.manners.adopts_no_windows {
            return self.refuse(Error::new(ErrorCode::OutOfMemory, "no addresses are left"));
        }
        self.with_modules(|modules| modules.adopt(module));
        self.ok()
    }

    fn close_module(&mut self, module: u32) {
        self.note(Asked::CloseModule(module));
        let unknown = Error::new(ErrorCode::NotFound, "no such module");
        if self.with_modules(|modules| modules.is_known(module)) { self.ok() } else { self.refuse(unknown) }
    }

    fn add_module(&mut self, add: add_module::Reader<'_>) {
        let (module, bytes) = (add.get_module(), add.get_bytes());
        if !add.get_adopts() {
            self.note(Asked::AddModule { module, bytes });
        }
        self.descriptors.pop().expect("gates come with a module");
        if self.manners.refuses_modules {
            return self.refuse(Error::new(ErrorCode::OutOfMemory, "no device memory is left"));
        }
        let adopts = add.get_adopts();
        let added = self.with_modules(|modules| modules.add(module, bytes, adopts));
        self.fake.check(added);
        if self.manners.holds_modules { self.hold(Reference::Done(self.id)) } else { self.ok() }
    }

    fn remove_module(&mut self, module: u32) {
        self.note(Asked::RemoveModule(module));
        let removed = self.with_modules(|modules| modules.remove(module));
        let is_known = removed.clone().unwrap_or(true);
        self.fake.check(removed.map(drop));
        let unknown = Error::new(ErrorCode::NotFound, "no such module");
        if is_known { self.ok() } else { self.refuse(unknown) }
    }

    fn grant_module(&mut self, grant: grant_module::Reader<'_>) {
        let (module, session) = (grant.get_module(), grant.get_session());
        self.note(Asked::Grant { module, session });
        if !self.with_modules(|modules| modules.is_whole(module)) {
            return self.refuse(Error::new(ErrorCode::InvalidArgument, "its window is not there"));
        }
        let granted = self.with_modules(|modules| modules.grant(module, session));
        self.fake.check(granted);
        self.ok();
    }

    fn revoke_module(&mut self, grant: grant_module::Reader<'_>) {
        let (module, session) = (grant.get_module(), grant.get_session());
        self.note(Asked::RevokeGrant { module, session });
        let is_known = self.with_modules(|modules| modules.revoke(module, session));
        let unknown = Error::new(ErrorCode::NotFound, "it was not granted that");
        if is_known { self.ok() } else { self.refuse(unknown) }
    }

    fn read_module(&mut self, piece: module_piece::Reader<'_>) {
        let (offset, bytes) = (piece.get_offset(), piece.get_bytes());
        let has = self.with_modules(|modules| modules.has(piece.get_module(), offset, bytes));
        self.fake.check(has);
        let zeros = vec![0; usize::try_from(bytes).unwrap()];
        send(self.socket, self.id, None, |mut reply| reply.set_piece(&zeros));
    }

    fn write_module(&mut self, piece: module_piece::Reader<'_>) {
        let bytes = u64::try_from(piece.get_data().unwrap().len()).unwrap();
        let (module, offset) = (piece.get_module(), piece.get_offset());
        let has = self.with_modules(|modules| modules.has(module, offset, bytes));
        self.fake.check(has);
        self.ok();
    }

    fn fence(&mut self, fence: fence::Reader<'_>) {
        self.note(Asked::Fence {
            session: fence.get_session(),
            stream: fence.get_stream(),
            position: fence.get_position(),
        });
        if self.manners.holds_fences { self.hold(Reference::Done(self.id)) } else { self.ok() }
    }
}

fn name(name: name::Reader<'_>) -> (u32, Handle) {
    (name.get_session(), Handle::read(name.get_handle().unwrap()))
}

fn span(range: range::Reader<'_>) -> (u32, u64, u64) {
    (range.get_session(), range.get_address(), range.get_bytes())
}

fn spans(swap: swap::Reader<'_>) -> (u32, Vec<(u64, u64)>) {
    assert!(swap.get_copy(), "its content is to be kept");
    let spans = swap.get_arenas().unwrap().iter();
    (swap.get_session(), spans.map(|span| (span.get_address(), span.get_bytes())).collect())
}
