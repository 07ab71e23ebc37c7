//! A session's memory: arenas, buffers, host memory, and their way back.

use std::{convert::Infallible, os::fd::OwnedFd, rc::Rc};

use bulkhead_caps::Kind;
use bulkhead_mm::{EMPTY_BYTES_KEPT, Growth, Plan, Range, Resource};
use bulkhead_schema::{Error, ErrorCode, Handle, bulkhead_capnp, executor_capnp, limits};
use rustix::fs::{MemfdFlags, SealFlags};

use super::{Object, Session};
use crate::{
    buffer::Buffer,
    refusal::{self, internal},
};

/// Pages of host memory, as the smallest there are on the machines that the driver runs on.
const PAGE_BYTES: u64 = 4096;

/// Host memory that was just made, and the memfd its client gets.
pub(crate) struct HostMemory {
    pub(crate) buffer: Buffer,
    pub(crate) memory: OwnedFd,
}

impl Session {
    /// Makes device memory.
    pub(crate) async fn allocate(self: Rc<Self>, bytes: u64) -> Result<Buffer, Error> {
        self.live()?;
        let capability = self.charge(Resource::Capabilities, 1)?;
        let mut changing = self.changing.lock().await;
        let mut placed = self.place(bytes).await;
        if placed.as_ref().is_err_and(|error| error.code == ErrorCode::OutOfMemory) {
            // What was freed a moment ago may be on its way back.
            drop(changing);
            self.wait_for_reclaim().await;
            changing = self.changing.lock().await;
            self.trim(0).await;
            placed = self.place(bytes).await;
        }
        let range = placed?;
        let bound = self.bind(range).await;
        if bound.is_err() {
            self.window.borrow_mut().release(range).map_err(refusal::window)?;
        }
        drop(changing);
        let handle = bound?;
        capability.keep();
        Ok(Buffer::new(Rc::clone(&self), handle, range.start().0, range.bytes()))
    }

    /// Finds room, for which it may have an arena mapped, and takes it.
    async fn place(&self, bytes: u64) -> Result<Range, Error> {
        self.live()?;
        let mut tried = None;
        let mut refused = None;
        for growth in [Growth::Ahead, Growth::Exact] {
            let plan = self.window.borrow().plan(bytes, growth).map_err(refusal::window)?;
            let (arena, buffer) = match plan {
                Plan::Fits(buffer) => {
                    self.window.borrow_mut().take(buffer).map_err(refusal::window)?;
                    return Ok(buffer);
                }
                Plan::Grow { arena, buffer } => (arena, buffer),
            };
            if tried == Some(arena) {
                break;
            }
            tried = Some(arena);
            match self.map_arena(arena).await {
                Ok(()) => {
                    let mut window = self.window.borrow_mut();
                    window.grant(arena).map_err(refusal::window)?;
                    window.take(buffer).map_err(refusal::window)?;
                    return Ok(buffer);
                }
                Err(error) if error.code == ErrorCode::OutOfMemory => refused = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(refused.unwrap_or_else(|| internal("an allocation was neither made nor refused")))
    }

    async fn map_arena(&self, arena: Range) -> Result<(), Error> {
        let charge = self.charge(Resource::DeviceBytes, arena.bytes())?;
        let mapped = self.ask(Vec::new(), |request| {
            write_range(request.init_map_arena(), self.id, arena);
        });
        self.done(&mapped.await?)?;
        self.live()?;
        charge.keep();
        Ok(())
    }

    /// Names a range and tells the executor of the name.
    async fn bind(&self, range: Range) -> Result<Handle, Error> {
        let bytes = self.charge(Resource::BufferBytes, range.bytes())?;
        let handle =
            self.table.borrow_mut().insert(Kind::Buffer, Object::Buffer(range)).map_err(refusal::table)?;
        let bound = self.ask(Vec::new(), |request| {
            let mut bind = request.init_bind();
            bind.set_session(self.id);
            let mut binding = bind.init_bindings(1).get(0);
            handle.write(binding.reborrow().init_handle());
            let mut buffer = binding.init_buffer();
            buffer.set_address(range.start().0);
            buffer.set_bytes(range.bytes());
            buffer.set_writable(true);
        });
        let bound = bound.await.and_then(|answer| self.done(&answer)).and_then(|()| self.live());
        if let Err(error) = bound {
            self.table.borrow_mut().remove(handle).map_err(refusal::table)?;
            return Err(error);
        }
        bytes.keep();
        Ok(handle)
    }

    /// Makes host memory that the device can reach. It is never given to another session.
    pub(crate) async fn allocate_host(self: Rc<Self>, bytes: u64) -> Result<HostMemory, Error> {
        self.live()?;
        if bytes == 0 {
            return Err(Error::new(ErrorCode::InvalidArgument, "host memory holds at least one byte"));
        }
        let bytes = bytes
            .checked_next_multiple_of(PAGE_BYTES)
            .ok_or_else(|| Error::new(ErrorCode::OutOfMemory, format!("{bytes} bytes are too many")))?;
        let capability = self.charge(Resource::Capabilities, 1)?;
        let charge = self.charge(Resource::HostBytes, bytes)?;
        let memory = sealed_memory(bytes)
            .map_err(|error| Error::new(ErrorCode::OutOfMemory, format!("no host memory: {error}")))?;
        let copy = memory
            .try_clone()
            .map_err(|error| internal(format!("a descriptor cannot be copied: {error}")))?;
        let handle = self
            .table
            .borrow_mut()
            .insert(Kind::HostBuffer, Object::HostBuffer(bytes))
            .map_err(refusal::table)?;
        let registered = self.ask(vec![copy], |request| {
            let mut register = request.init_register_host();
            self.write_name(register.reborrow().init_name(), handle);
            register.set_bytes(bytes);
        });
        let registered = registered.await.and_then(|answer| self.done(&answer)).and_then(|()| self.live());
        if let Err(error) = registered {
            self.table.borrow_mut().remove(handle).map_err(refusal::table)?;
            return Err(error);
        }
        charge.keep();
        capability.keep();
        Ok(HostMemory { buffer: Buffer::new(Rc::clone(&self), handle, 0, bytes), memory })
    }

    /// How much is free for this session, and how much the device has.
    pub(crate) fn memory(&self) -> Result<(u64, u64), Error> {
        self.live()?;
        let ledger = self.device.ledger.borrow();
        let total = self.incarnation.info.memory_bytes;
        let own = ledger.used_by(self.account);
        let unused = self.window.borrow().arena_bytes().saturating_sub(own.get(Resource::BufferBytes));
        Ok((total.saturating_sub(ledger.used().get(Resource::DeviceBytes)).saturating_add(unused), total))
    }

    /// Closes a capability: its object goes once the work submitted before has passed.
    pub(crate) fn retire(&self, handle: Handle) {
        if self.live().is_err() {
            return;
        }
        self.retired.borrow_mut().push(handle);
        self.reclaiming.send_modify(|count| *count += 1);
        self.retired_more.notify_one();
    }

    async fn wait_for_reclaim(&self) {
        let mut reclaiming = self.reclaiming.subscribe();
        let patience = self.limits.seconds(limits::DRAIN_SECONDS);
        // Out of patience or not, the caller tries again.
        drop(tokio::time::timeout(patience, reclaiming.wait_for(|count| *count == 0)).await);
    }

    pub(super) async fn reclaim_what_is_retired(&self) -> Infallible {
        loop {
            let batch = self.retired.take();
            if batch.is_empty() {
                self.retired_more.notified().await;
                continue;
            }
            let count = batch.len();
            let again = self.reclaim(batch).await;
            let reclaimed = count - again.len();
            self.reclaiming.send_modify(|count| *count = count.saturating_sub(reclaimed));
            if !again.is_empty() {
                self.retired.borrow_mut().extend(again);
                tokio::time::sleep(self.limits.second).await;
            }
        }
    }

    /// Gives objects back: unbound first, so that no new work names them, then drained, and only then free for
    /// others. Answers the handles of those that must wait longer.
    async fn reclaim(&self, batch: Vec<Handle>) -> Vec<Handle> {
        let mut images = Vec::new();
        let mut memory = Vec::new();
        let mut named = Vec::new();
        for handle in batch {
            match self.table.borrow().resolve(handle).map(|capability| &capability.object) {
                Ok(Object::Buffer(_) | Object::HostBuffer(_)) => {
                    memory.push(handle);
                    named.push(handle);
                }
                Ok(Object::Image(entries)) => {
                    images.push(handle);
                    named.extend(entries);
                }
                Ok(Object::Entry) => self.expect(Err(internal("an entry was closed")), "reclaim"),
                Err(error) => self.expect(Err(refusal::table(error)), "reclaim"),
            }
        }
        let unbound: Vec<_> = named
            .iter()
            .map(|handle| {
                self.ask(Vec::new(), |request| {
                    let mut unbind = request.init_unbind();
                    unbind.set_session(self.id);
                    handle.write(unbind.init_handles(1).get(0));
                })
            })
            .collect();
        for unbound in unbound {
            self.expect(unbound.await.and_then(|answer| self.done(&answer)), "unbind");
        }
        let drained = self.ask(Vec::new(), |mut request| request.set_drain(self.id));
        if let Err(error) = drained.await.and_then(|answer| self.done(&answer)) {
            tracing::info!(session = self.id, %error, "objects wait for running work");
            return images.into_iter().chain(memory).collect();
        }
        if !memory.is_empty() {
            let changing = self.changing.lock().await;
            for handle in memory {
                self.free(handle);
            }
            self.trim(EMPTY_BYTES_KEPT).await;
            drop(changing);
        }
        let mut again = Vec::new();
        for image in images {
            if self.unload(image).await.is_err() {
                again.push(image);
            }
        }
        again
    }

    /// Nothing can reach the object any more: books only.
    fn free(&self, handle: Handle) {
        let capability = match self.table.borrow_mut().remove(handle) {
            Ok(capability) => capability,
            Err(error) => return self.expect(Err(refusal::table(error)), "close"),
        };
        match capability.object {
            Object::Buffer(range) => {
                let released = self.window.borrow_mut().release(range).map_err(refusal::window);
                self.expect(released, "release");
                self.refund(Resource::BufferBytes, range.bytes());
            }
            Object::HostBuffer(bytes) => self.refund(Resource::HostBytes, bytes),
            Object::Image(_) | Object::Entry => {
                return self.expect(Err(internal("code is no memory")), "free");
            }
        }
        self.refund(Resource::Capabilities, 1);
    }

    /// Gives empty arenas back until no more than this is kept.
    async fn trim(&self, kept_bytes: u64) {
        loop {
            let Some(arena) = self.window.borrow().returnable(kept_bytes) else { return };
            let withdrawn = self.window.borrow_mut().withdraw(arena);
            if withdrawn.is_err() {
                return self.expect(withdrawn.map_err(refusal::window), "withdraw");
            }
            let unmapped = self.ask(Vec::new(), |request| {
                write_range(request.init_unmap_arena(), self.id, arena);
            });
            match unmapped.await.and_then(|answer| self.done(&answer)) {
                Ok(()) => self.refund(Resource::DeviceBytes, arena.bytes()),
                Err(error) => {
                    // It is still mapped, so it can still be used.
                    tracing::info!(session = self.id, %error, "an empty arena stays");
                    let granted = self.window.borrow_mut().grant(arena).map_err(refusal::window);
                    return self.expect(granted, "grant");
                }
            }
        }
    }

    /// Notes a failure that nobody waits for.
    pub(super) fn expect(&self, result: Result<(), Error>, what: &'static str) {
        if let Err(error) = result
            && self.live().is_ok()
        {
            tracing::error!(session = self.id, %error, what, "the books are wrong");
        }
    }

    pub(super) fn write_name(&self, mut name: executor_capnp::name::Builder<'_>, handle: Handle) {
        name.set_session(self.id);
        let builder: bulkhead_capnp::handle::Builder<'_> = name.init_handle();
        handle.write(builder);
    }
}

fn write_range(mut builder: executor_capnp::range::Builder<'_>, session: u32, range: Range) {
    builder.set_session(session);
    builder.set_address(range.start().0);
    builder.set_bytes(range.bytes());
}

/// Memory that can neither shrink (an access would then fault) nor grow (what is charged would then be wrong).
fn sealed_memory(bytes: u64) -> rustix::io::Result<OwnedFd> {
    let memory = rustix::fs::memfd_create("bulkhead-host", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&memory, bytes)?;
    rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(memory)
}
