//! Device memory: blocks of arenas, and arenas of one's own.
//!
//! A freed block is nobody's until the work that was submitted before has passed: the free itself waits for
//! nothing, the allocations after it look. Arenas are asked for where no block has room, one after the other, and
//! given back when they are empty and more than is worth keeping, when the kernel has no more, or when nothing has
//! been allocated or freed for a while.

mod held;

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use bulkhead_schema::{Error, ErrorCode, Handle, bulkhead_capnp as rpc, limits};
use parking_lot::Mutex;

use crate::{
    Buffer, Session,
    arena::{BlockIndex, Kept, growth},
    buffer::{After, Held},
    connection::{Capability, Context, answer, broken},
    session::Inner,
};
use held::{Granted, Heap};

pub(crate) use held::Memory;

/// How long an allocation waits for freed blocks before it asks for more memory.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long nothing is allocated or freed before empty arenas go back.
const IDLE: Duration = Duration::from_secs(2);
/// How long an arena that goes back is waited for: a little longer than the kernel waits for work that runs.
const RETURN_MS: u32 = 12_000;
const _: () = assert!(RETURN_MS as u64 > limits::DRAIN_SECONDS * 1000);
/// The column of device memory.
pub(crate) const DEVICE_BYTES: &str = "device_bytes";
/// How often the ledger is asked again because an arena came or went.
const ASKED_MAX: u32 = 8;

/// How much memory there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes that the session can still get.
    pub free_bytes: u64,
    /// Bytes of the device.
    pub total_bytes: u64,
}

/// What the kernel is asked about a session's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// How much there is.
    Memory,
    /// And how much is charged.
    Usage,
}

/// The device memory that an answer says is charged.
fn charged_bytes(answered: rpc::gpu_copy_session::ledger_results::Reader<'_>) -> Result<u64, Error> {
    let ledger = answer(answered.get_result().map_err(broken)?)?;
    for column in ledger.get_columns().map_err(broken)? {
        if column.get_name().map_err(broken)? == DEVICE_BYTES {
            return Ok(column.get_used());
        }
    }
    Ok(0)
}

/// What the kernel granted, and where.
struct Arena {
    granted: Granted,
    address: u64,
    bytes: u64,
}

impl Session {
    /// Allocates device memory; what it holds is undefined, but never another session's. It starts at a multiple of
    /// 512 bytes, from 1 MiB on of 2 MiB, and up to 4 GiB crosses no multiple of 4 GiB. It lies in one page of 2 MiB,
    /// or has its pages for itself. A remote call only where the memory granted before has no room.
    ///
    /// # Errors
    /// `invalidArgument` for no bytes, `outOfMemory`, `limitReached`, or that the session is over.
    pub fn allocate(&self, bytes: u64) -> Result<Buffer, Error> {
        if bytes == 0 {
            return Err(Error::new(ErrorCode::InvalidArgument, "a buffer holds at least one byte"));
        }
        self.status()?;
        match self.take(bytes) {
            Some(buffer) => Ok(buffer),
            None => self.allocate_slowly(bytes),
        }
    }

    /// Allocates device memory in which nothing of a program's has lain or will lie, where the session is told of accesses to
    /// what was freed: what tells of them must not be what they reach.
    pub(crate) fn allocate_apart(&self, bytes: u64) -> Result<Buffer, Error> {
        if !self.inner.memory.heap.lock().kept.keeps() {
            return self.allocate(bytes);
        }
        let mut buffer = self.allocate_arena(bytes)?;
        buffer.bytes = bytes;
        Ok(buffer)
    }

    /// Allocates device memory of its own, in whole pages of 2 MiB: what is to be shared with other sessions, or
    /// has to be given back when it is dropped. A remote call.
    ///
    /// # Errors
    /// As [`Session::allocate`].
    pub fn allocate_arena(&self, bytes: u64) -> Result<Buffer, Error> {
        let arena = match self.ask_for(bytes) {
            Err(error) if is_refusal(&error) => {
                self.give_back_and_wait()?;
                self.ask_for(bytes)?
            }
            asked => asked?,
        };
        let Arena { granted: Granted { key, handle }, address, bytes } = arena;
        Ok(Buffer {
            session: self.clone(),
            held: Held::Arena(key),
            handle,
            offset: 0,
            address,
            bytes,
            after: After::Everything,
            exported: Mutex::default(),
        })
    }

    /// How much memory there is. A remote call.
    ///
    /// # Errors
    /// Where the session is over.
    pub fn memory(&self) -> Result<MemoryInfo, Error> {
        self.ask_memory(Asked::Memory).map(|(memory, _)| memory)
    }

    /// The same, and how many bytes of device memory the session's own allocations take, which are charged to it.
    ///
    /// # Errors
    /// Where the session is over.
    pub fn usage(&self) -> Result<(MemoryInfo, u64), Error> {
        self.ask_memory(Asked::Usage)
    }

    fn ask_memory(&self, what: Asked) -> Result<(MemoryInfo, u64), Error> {
        let memory = &self.inner.memory;
        let mut asked = 0;
        loop {
            let granting = memory.granting.lock();
            let before = memory.heap.lock().changes;
            let (free, total, charged) = self.inner.remote.call(move |context| async move {
                let session = context.session()?;
                // Both are asked before either is answered, so that the kernel does nothing in between.
                let asked = session.memory_request().send();
                let charged = match what {
                    Asked::Memory => None,
                    Asked::Usage => Some(session.ledger_request().send()),
                };
                let response = asked.promise.await.map_err(broken)?;
                let memory = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
                let charged = match charged {
                    None => 0,
                    Some(asked) => {
                        charged_bytes(asked.promise.await.map_err(broken)?.get().map_err(broken)?)?
                    }
                };
                Ok((memory.get_free_bytes(), memory.get_total_bytes(), charged))
            })?;
            let heap = memory.heap.lock();
            drop(granting);
            asked += 1;
            if heap.changes != before && asked < ASKED_MAX {
                continue;
            }
            let freed = heap.quarantine.bytes() + heap.kept.bytes() + heap.withdrawn_bytes;
            let own = heap.arenas.free_bytes() + freed + heap.returning_bytes;
            let free_bytes = free.saturating_add(own).min(total);
            return Ok((MemoryInfo { free_bytes, total_bytes: total }, charged.saturating_sub(own)));
        }
    }

    /// Takes a block where there is room at once.
    #[inline]
    fn take(&self, bytes: u64) -> Option<Buffer> {
        self.take_as(bytes, Kept::with_zone)
    }

    /// The same, of a block that takes so many bytes.
    #[inline]
    fn take_as(&self, bytes: u64, whole: impl FnOnce(&Kept, u64) -> u64) -> Option<Buffer> {
        let mut heap = self.inner.memory.heap.lock();
        let Heap { arenas, quarantine, kept, activity, .. } = &mut *heap;
        *activity += 1;
        if !quarantine.is_empty() {
            quarantine.take_oldest(|fence| self.has_passed(fence), |block| kept.put(block, arenas));
        }
        let taken = arenas.take(whole(kept, bytes))?;
        drop(heap);
        Some(Buffer {
            session: self.clone(),
            held: Held::Block(taken.index),
            handle: taken.arena.handle,
            offset: taken.offset,
            address: taken.address,
            bytes,
            after: After::Everything,
            exported: Mutex::default(),
        })
    }

    /// The same, once every freed block whose work has passed is free.
    fn take_swept(&self, bytes: u64) -> Option<Buffer> {
        let mut heap = self.inner.memory.heap.lock();
        let Heap { arenas, quarantine, kept, .. } = &mut *heap;
        quarantine.take_all(|fence| self.has_passed(fence), |block| kept.put(block, arenas));
        drop(heap);
        self.take(bytes)
    }

    /// The same, waiting for freed blocks until there is room, none is left, or `patience` is over.
    fn take_waiting(&self, bytes: u64, patience: Option<Duration>) -> Result<Option<Buffer>, Error> {
        let freed = || self.inner.memory.heap.lock();
        loop {
            let withdrawn_bytes = freed().withdrawn_bytes;
            if let Some(buffer) = self.take_swept(bytes) {
                return Ok(Some(buffer));
            }
            if freed().is_settled() {
                return Ok(None);
            }
            let passed = || {
                let heap = freed();
                heap.withdrawn_bytes != withdrawn_bytes
                    || heap.is_settled()
                    || heap.quarantine.has_passed(|fence| self.has_passed(fence))
            };
            if !self.poll_for(patience, passed)? {
                return Ok(None);
            }
        }
    }

    #[cold]
    fn allocate_slowly(&self, bytes: u64) -> Result<Buffer, Error> {
        let _growing = self.inner.memory.growing.lock();
        // Another thread may have found room for all.
        if let Some(buffer) = self.take_waiting(bytes, Some(PATIENCE))? {
            return Ok(buffer);
        }
        let too_many = || Error::new(ErrorCode::OutOfMemory, format!("{bytes} bytes are too many"));
        let whole = self.inner.memory.heap.lock().kept.with_zone(bytes);
        let exact = growth::exact(whole).ok_or_else(too_many)?;
        let ahead = growth::ahead(exact, self.inner.memory.heap.lock().arenas.bytes());
        for step in [ahead, exact] {
            match self.grant(step) {
                Ok(()) => return self.take(bytes).ok_or_else(no_room),
                Err(error) if is_refusal(&error) => {}
                Err(error) => return Err(error),
            }
            if ahead == exact {
                break;
            }
        }
        if let Some(buffer) = self.take_waiting(bytes, None)? {
            return Ok(buffer);
        }
        if self.release_kept()
            && let Some(buffer) = self.take(bytes)
        {
            return Ok(buffer);
        }
        self.give_back_and_wait()?;
        match self.grant(exact) {
            Err(error) if is_refusal(&error) && whole > bytes => {}
            granted => return granted.and_then(|()| self.take(bytes).ok_or_else(no_room)),
        }
        // Nothing lies behind it then.
        let alone = |_: &Kept, bytes| bytes;
        if let Some(buffer) = self.take_as(bytes, alone) {
            return Ok(buffer);
        }
        self.grant(growth::exact(bytes).ok_or_else(too_many)?)?;
        self.take_as(bytes, alone).ok_or_else(no_room)
    }

    /// Has freed blocks given out that are only kept; `false` where there are none.
    fn release_kept(&self) -> bool {
        let mut heap = self.inner.memory.heap.lock();
        let Heap { arenas, kept, .. } = &mut *heap;
        kept.release(arenas)
    }

    /// Gets an arena.
    fn grant(&self, bytes: u64) -> Result<(), Error> {
        let memory = &self.inner.memory;
        let _granting = memory.granting.lock();
        let arena = self.ask_for(bytes)?;
        let mut heap = memory.heap.lock();
        heap.arenas.grant(arena.address, arena.bytes, arena.granted);
        heap.changes += 1;
        Ok(())
    }

    /// Asks the kernel for memory.
    fn ask_for(&self, bytes: u64) -> Result<Arena, Error> {
        self.inner.remote.call(move |context| async move {
            let mut allocate = context.session()?.allocate_request();
            allocate.get().set_bytes(bytes);
            let response = allocate.send().promise.await.map_err(broken)?;
            let created = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
            let handle = Handle::read(created.get_handle().map_err(broken)?);
            let key = context.hold(Capability::Buffer(created.get_buffer().map_err(broken)?));
            let granted = Granted { key, handle };
            Ok(Arena { granted, address: created.get_address(), bytes: created.get_bytes() })
        })
    }

    /// The number of the capability for the arena that a block lies in, and whether others lie in the same pages.
    pub(crate) fn surroundings(&self, block: BlockIndex, page_bytes: u64) -> (usize, bool) {
        let heap = self.inner.memory.heap.lock();
        (heap.arenas.arena_of(block).key, heap.arenas.shares_pages(block, page_bytes))
    }

    /// Frees a block, once what it has to wait for has passed.
    pub(crate) fn free(&self, block: BlockIndex, after: After) {
        self.end_withdrawal(block, 0, after);
    }

    /// A freed block is taken back from other sessions from now on; its length.
    pub(crate) fn begin_withdrawal(&self, block: BlockIndex) -> u64 {
        let mut heap = self.inner.memory.heap.lock();
        let bytes = heap.arenas.block_bytes(block);
        heap.withdrawn_bytes += bytes;
        bytes
    }

    /// A block that was freed cannot be taken back.
    pub(crate) fn abandon_withdrawal(&self, bytes: u64) {
        self.inner.memory.heap.lock().withdrawn_bytes -= bytes;
    }

    /// Frees a block of which `withdrawn_bytes` were being taken back: this session's own work is all that is left.
    pub(crate) fn end_withdrawal(&self, block: BlockIndex, withdrawn_bytes: u64, after: After) {
        let fences = match after {
            After::Everything => self.outstanding(),
            After::Fence(fence) => {
                let passed = !self.inner.memory.is_ours() || self.has_passed(fence);
                if passed { Vec::new() } else { vec![fence] }
            }
        };
        let mut heap = self.inner.memory.heap.lock();
        heap.activity += 1;
        heap.withdrawn_bytes -= withdrawn_bytes;
        if fences.is_empty() {
            let Heap { arenas, kept, .. } = &mut *heap;
            kept.put(block, arenas);
        } else {
            let bytes = heap.arenas.block_bytes(block);
            heap.quarantine.push(block, bytes, fences);
        }
        let surplus = if heap.arenas.has_surplus() { heap.surplus() } else { Vec::new() };
        let watched = std::mem::replace(&mut heap.watched, true);
        drop(heap);
        if !surplus.is_empty() {
            self.inner.give_back(surplus);
        }
        if !watched {
            self.inner.watch();
        }
    }

    /// All empty arenas, if nothing was allocated or freed since the activity that was `seen`, and whether there is
    /// nothing left to look for.
    fn look_for_idleness(&self, seen: &mut Option<u64>) -> (Vec<(Granted, u64)>, bool) {
        let mut heap = self.inner.memory.heap.lock();
        let Heap { arenas, quarantine, kept, .. } = &mut *heap;
        quarantine.take_all(|fence| self.has_passed(fence), |block| kept.put(block, arenas));
        let idle = seen.replace(heap.activity) == Some(heap.activity);
        let empty = if idle && !heap.kept.keeps() { heap.empty() } else { Vec::new() };
        let done = idle && heap.quarantine.is_empty();
        heap.watched = !done;
        (empty, done)
    }

    /// Gives all empty arenas back, and waits until the kernel has them.
    pub(crate) fn give_back_and_wait(&self) -> Result<(), Error> {
        let empty = self.inner.memory.heap.lock().empty();
        if empty.is_empty() {
            return Ok(());
        }
        let inner = Arc::downgrade(&self.inner);
        self.inner.remote.call(move |context| async move {
            return_all(&context, &inner, empty).await;
            Ok(())
        })
    }
}

impl Inner {
    /// Gives arenas back, without waiting.
    fn give_back(self: &Arc<Self>, arenas: Vec<(Granted, u64)>) {
        let inner = Arc::downgrade(self);
        self.remote.spawn(move |context| async move { return_all(&context, &inner, arenas).await });
    }

    /// Looks for idleness until empty arenas have gone back and there is nothing more to look for.
    fn watch(self: &Arc<Self>) {
        let inner = Arc::downgrade(self);
        self.remote.spawn(move |context| async move {
            let mut seen = None;
            loop {
                tokio::time::sleep(IDLE).await;
                let Some(session) = inner.upgrade().map(|inner| Session { inner }) else { return };
                let (empty, done) = session.look_for_idleness(&mut seen);
                drop(session);
                return_all(&context, &inner, empty).await;
                if done {
                    return;
                }
            }
        });
    }
}

/// Gives arenas back to the kernel, all at once.
async fn return_all(context: &Context, inner: &Weak<Inner>, arenas: Vec<(Granted, u64)>) {
    let returns = arenas.into_iter().map(|(granted, bytes)| async move {
        if let Err(error) = context.give_back(granted.key, RETURN_MS).await {
            tracing::debug!(%error, "an arena went with its session");
        }
        if let Some(inner) = inner.upgrade() {
            let mut heap = inner.memory.heap.lock();
            heap.returning_bytes -= bytes;
            heap.changes += 1;
        }
    });
    futures::future::join_all(returns).await;
}

/// Whether the kernel has, or gives, no more.
pub(crate) fn is_refusal(error: &Error) -> bool {
    matches!(error.code, ErrorCode::OutOfMemory | ErrorCode::LimitReached)
}

fn no_room() -> Error {
    Error::new(ErrorCode::OutOfMemory, "an arena was granted in which the allocation has no room")
}
