//! What a session's handles mean: buffers, host memory, code.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use bulkhead_gpu::HostRange;
use bulkhead_mm::Range;
use bulkhead_ring::memory::Shared;
use bulkhead_schema::{Error, ErrorCode, Handle, Run};

use super::{Control, over, reaper_is_full};
use crate::{
    control::{
        job::{Span, Target},
        link::{self, answer, report},
    },
    device,
    executor::Executor,
    images::{Most, load},
    session::{
        Session, State,
        bindings::{Bindings, Object, Use},
        spawn,
        waiter::Waiter,
    },
    watch::remains::Pinned,
};

/// The kernel named a slot beyond the device's limit.
pub(super) fn no_slot() -> Error {
    Error::new(ErrorCode::InvalidHandle, "a handle beyond the table's limit")
}

impl Control {
    pub(super) fn bind(&self, bindings: Vec<(Handle, Target)>) -> Result<(), Error> {
        let slot = self.session.slot;
        let mut objects = Vec::with_capacity(bindings.len());
        for (handle, target) in bindings {
            if !Bindings::has_slot(handle.slot) {
                return Err(no_slot());
            }
            let object = match target {
                Target::Buffer { span: Span { at, bytes }, writable } => {
                    let range = Range::new(bulkhead_mm::DeviceAddress(at), bytes);
                    let inside = |window: Range| range.is_some_and(|range| window.contains(range));
                    let may = if writable && inside(slot.read_write()) { Use::ReadWrite } else { Use::Read };
                    if !inside(slot.read_write()) && !inside(slot.read_only()) {
                        let what = "the buffer does not lie in the session's window";
                        return Err(Error::new(ErrorCode::InvalidArgument, what));
                    }
                    Object::Buffer { address: at, bytes, may }
                }
                Target::Entry(mut entry) => {
                    entry.template.hide(self.session.hidden());
                    Object::Entry(entry)
                }
            };
            objects.push((handle, object));
        }
        let mut state = self.session.state.lock();
        let mut replaced = Vec::new();
        for (handle, object) in objects {
            let before = state.bindings.bind(handle, object).ok_or_else(no_slot)?;
            replaced.extend(before.filter(Object::outlives_its_handle));
        }
        drop(state);
        self.release(replaced);
        Ok(())
    }

    /// Unbinds handles; what it returns is dropped when nobody waits.
    pub(super) fn unbind(&self, runs: &[Run]) -> impl Sized + use<> {
        let mut state = self.session.state.lock();
        let mut objects = Vec::new();
        for run in runs {
            state.bindings.unbind_run(*run, |object| {
                if object.outlives_its_handle() {
                    objects.push(object);
                }
            });
        }
        let empty = state.bindings.take_empty();
        drop(state);
        self.release(objects);
        empty
    }

    /// Drops what submitted work may still use, once that has passed.
    pub(super) fn release(&self, objects: Vec<Object>) {
        if !objects.is_empty() {
            self.wait(Waiter::release(objects));
        }
    }

    /// Has the pump act on `waiter` at its time. Without a pump nothing runs, and it is time.
    pub(super) fn wait(&self, waiter: Waiter) {
        if self.pump.is_none() {
            return waiter.done(&self.session.link);
        }
        self.session.state.lock().waiters.push(waiter);
        self.session.wake();
    }

    pub(super) fn pin(&self, bytes: u64, descriptor: &OwnedFd) -> Result<Pinned, Error> {
        let bytes = usize::try_from(bytes).map_err(|_| Error::new(ErrorCode::OutOfMemory, "too large"))?;
        if bytes == 0 {
            return Err(Error::new(ErrorCode::InvalidArgument, "no bytes of host memory"));
        }
        let memory = Shared::map(descriptor.as_fd(), bytes)
            .map_err(|error| Error::new(ErrorCode::OutOfMemory, format!("host memory: {error}")))?;
        Pinned::register(&*self.executor.gpu, &self.executor.reaper, memory)
            .map_err(|error| device::error(&error))
    }

    pub(super) fn register_host(
        &self,
        handle: Handle,
        bytes: u64,
        descriptor: &OwnedFd,
    ) -> Result<(), Error> {
        Self::may_register(handle)?;
        let object = Object::Host(Box::new(self.pin(bytes, descriptor)?));
        let replaced = self.session.state.lock().bindings.bind(handle, object).ok_or_else(no_slot)?;
        self.release(replaced.into_iter().filter(Object::outlives_its_handle).collect());
        Ok(())
    }

    /// Whether host memory can be registered under this name.
    pub(super) fn may_register(handle: Handle) -> Result<(), Error> {
        if Bindings::has_slot(handle.slot) { Ok(()) } else { Err(no_slot()) }
    }

    /// Has records name host memory that was mapped.
    pub(super) fn bind_host(&self, handle: Handle, address: u64, memory: HostRange) {
        let object = Object::Mapped { address, memory };
        let mut state = self.session.state.lock();
        state.reaches_host = true;
        let replaced = state.bindings.bind(handle, object).flatten();
        drop(state);
        self.release(replaced.into_iter().filter(Object::outlives_its_handle).collect());
    }

    pub(super) fn swap_area(&mut self, bytes: u64, descriptor: Option<&OwnedFd>) -> Result<(), Error> {
        if self.session.state.lock().swapped.is_some() {
            return Err(Error::new(ErrorCode::InvalidArgument, "the session's memory lies in its swap area"));
        }
        self.area = match descriptor {
            None => None,
            // The kernel has somebody else swapped out meanwhile, so it is not put aside.
            Some(_) if !self.executor.reaper.has_room() => return Err(reaper_is_full()),
            Some(descriptor) => Some(self.pin(bytes, descriptor)?),
        };
        Ok(())
    }

    /// Loads an image on a thread of its own: the device may wait for every kernel that runs.
    pub(super) fn load(
        &self,
        id: u64,
        handle: Handle,
        entries: Vec<Handle>,
        descriptor: OwnedFd,
        most: Most,
    ) -> Result<(), Error> {
        let (executor, session) = (Arc::clone(&self.executor), Arc::clone(&self.session));
        if entries.iter().chain([&handle]).any(|handle| !Bindings::has_slot(handle.slot)) {
            return Err(no_slot());
        }
        let load = move || {
            let loaded = executor
                .gpu
                .bind_thread()
                .map_err(|error| device::error(&error))
                .and_then(|()| {
                    let callable = session.state.lock().grants.callable()?;
                    let (count, hidden) = (entries.len(), session.hidden());
                    load::load(&executor, &session, descriptor, count, hidden, &callable, most)
                })
                .and_then(|loaded| {
                    link::may_answer(|reply| loaded.write(&entries, reply))?;
                    let mut state = session.state.lock();
                    bind_image(&mut state, &executor, &session, handle, &entries, &loaded)?;
                    drop(state);
                    // It may have been given something to release.
                    session.wake();
                    Ok(loaded)
                });
            match loaded {
                Ok(loaded) => report(session.link.reply(id, None, |reply| loaded.write(&entries, reply))),
                Err(error) => answer(&session.link, id, &Err(error)),
            }
        };
        spawn(format!("load-{}", self.session.id), load).map(drop)
    }

    /// Makes an image's entries unreachable; what was submitted of them may still run. Returns what keeps the image
    /// loaded, for this session.
    pub(super) fn unbind_image(&self, handle: Handle) -> Result<Vec<Object>, Error> {
        let mut state = self.session.state.lock();
        let Some(entries) = state.bindings.entries_of(handle) else {
            return Err(Error::new(ErrorCode::InvalidHandle, "no such image"));
        };
        let handles: Vec<_> = entries.iter().copied().chain([handle]).collect();
        let objects = handles.iter().filter_map(|handle| state.bindings.unbind(*handle)).collect();
        drop(state);
        self.executor.withdraw(self.session.id, &handles);
        Ok(objects)
    }

    pub(super) fn allow_dynamic_shared(&self, handle: Handle, bytes: u32) -> Result<(), Error> {
        let mut state = self.session.state.lock();
        let entry = state.bindings.entry(handle.slot, handle.generation);
        let entry = entry.ok_or_else(|| Error::new(ErrorCode::InvalidHandle, "no such entry"))?;
        let mut most = entry.template.dynamic_shared_max.lock();
        // Other sessions may have the entry too: what one asks for does not take from another.
        if bytes > *most {
            // A launch that asks for less gets what the guard's bounds assume, so that much is always allowed.
            let allowed_bytes = entry.template.shared_bytes(bytes);
            for version in entry.template.versions() {
                let allowed = self.executor.gpu.allow_dynamic_shared(version, allowed_bytes);
                allowed.map_err(|error| device::error(&error))?;
            }
            *most = bytes;
        }
        Ok(())
    }
}

fn bind_image(
    state: &mut State,
    executor: &Executor,
    session: &Session,
    handle: Handle,
    entries: &[Handle],
    loaded: &load::Loaded,
) -> Result<(), Error> {
    if state.closed {
        return Err(over());
    }
    let mut replaced = Vec::new();
    for (handle, entry) in entries.iter().zip(&loaded.bound) {
        let entry_of = Object::Entry(Box::new(entry.clone()));
        replaced.extend(state.bindings.bind(*handle, entry_of).ok_or_else(no_slot)?);
        executor.offer(session.id, *handle, entry);
    }
    let image = Object::Image { image: Arc::clone(&loaded.image), entries: entries.to_vec() };
    replaced.extend(state.bindings.bind(handle, image).ok_or_else(no_slot)?);
    // What was bound there before may be named by work that has not passed.
    replaced.retain(Object::outlives_its_handle);
    if !replaced.is_empty() {
        state.waiters.push(Waiter::release(replaced));
    }
    Ok(())
}
