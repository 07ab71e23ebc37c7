//! Pinned host memory: as it is for copies, or in larger pieces that kernels reach, cut up for the program.
//!
//! What kernels reach comes in whole pages of 2 MiB, each of which is pinned as long as it is the session's. So small
//! buffers share them, and freed ones are nobody's until the work submitted before has passed, as in device memory.

mod held;

use std::{
    os::fd::AsFd,
    sync::{Arc, Weak},
    time::Duration,
};

use bulkhead_ring::memory::Shared;
use bulkhead_schema::{Error, ErrorCode, Handle};

use crate::{
    HostBuffer, Session,
    arena::{BlockIndex, growth},
    buffer::HeldHost,
    connection::{Capability, Context, answer, broken},
    descriptors,
    pinned::Pinned,
    session::Inner,
};
use held::{Heap, Piece};

pub(crate) use held::HostMemory;

/// Empty memory worth keeping pinned, in bytes.
const EMPTY_BYTES_KEPT: u64 = growth::HOST_STEP_BYTES_MAX;
/// How long nothing is allocated or freed before all empty memory goes back.
const IDLE: Duration = Duration::from_secs(2);
/// How long memory that goes back is waited for where the kernel had no more.
const RETURN_MS: u32 = 1000;

/// Who reaches host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    Copies,
    Kernels,
}

/// Host memory of the kernel's making.
struct Granted {
    key: usize,
    pinned: Pinned,
    address: u64,
    bytes: u64,
}

impl Session {
    /// Allocates host memory that the device copies from and to without staging, and that kernels do not reach. A
    /// remote call.
    ///
    /// # Errors
    /// `outOfMemory`, `limitReached`, or that the session is over.
    pub fn allocate_host(&self, bytes: usize) -> Result<HostBuffer, Error> {
        let (key, pinned) = self.allocate_pinned(bytes)?;
        let bytes = pinned.memory.bytes();
        let (held, pinned) = (HeldHost::Whole(key), Arc::new(pinned));
        Ok(HostBuffer { session: self.clone(), held, pinned, offset: 0, bytes, address: None })
    }

    /// Allocates host memory that kernels reach as well: it has a device [address](HostBuffer::address). It starts at a
    /// multiple of 512 bytes, from 1 MiB on of 2 MiB. A remote call only where what was granted before has no room; that
    /// waits for the session's own kernels, as for device memory.
    ///
    /// # Errors
    /// `invalidArgument` for no bytes, `outOfMemory`, `limitReached`, or that the session is over.
    pub fn allocate_mapped(&self, bytes: usize) -> Result<HostBuffer, Error> {
        if bytes == 0 {
            return Err(Error::new(ErrorCode::InvalidArgument, "a buffer holds at least one byte"));
        }
        self.status()?;
        if let Some(buffer) = self.take_host(bytes) {
            return Ok(buffer);
        }
        let _growing = self.inner.host.growing.lock();
        // Another thread may have found room for all.
        if let Some(buffer) = self.take_host(bytes) {
            return Ok(buffer);
        }
        let too_many = || Error::new(ErrorCode::OutOfMemory, format!("{bytes} bytes are too many"));
        let (whole, granted) = {
            let heap = self.inner.host.heap.lock();
            (heap.kept.with_zone(bytes as u64), heap.arenas.bytes())
        };
        let exact = growth::exact(whole).ok_or_else(too_many)?;
        let ahead = growth::host_ahead(whole, exact, granted);
        let made = match self.map_more(ahead) {
            Err(error) if is_refusal(&error) => {
                self.return_empty_and_wait()?;
                self.map_more(exact)
            }
            made => made,
        };
        made?;
        let no_room = || Error::new(ErrorCode::OutOfMemory, "another thread was faster");
        self.take_host(bytes).ok_or_else(no_room)
    }

    /// Allocates host memory that kernels reach, in whole pages of 2 MiB of its own: it can be [lent](HostBuffer::lend). A remote
    /// call, which waits for the session's own kernels.
    ///
    /// # Errors
    /// As [`Session::allocate_mapped`].
    pub fn allocate_lendable(&self, bytes: usize) -> Result<HostBuffer, Error> {
        if bytes == 0 {
            return Err(Error::new(ErrorCode::InvalidArgument, "a buffer holds at least one byte"));
        }
        let Granted { key, pinned, address, .. } = self.ask_for_host(bytes as u64, Reach::Kernels)?;
        let (held, pinned) = (HeldHost::Whole(key), Arc::new(pinned));
        let bytes = pinned.memory.bytes();
        Ok(HostBuffer { session: self.clone(), held, pinned, offset: 0, bytes, address: Some(address) })
    }

    /// Allocates host memory that kernels reach at the host's own address.
    ///
    /// # Errors
    /// As [`Session::allocate_mapped`]; `notSupported` where something else of the process lies at those addresses.
    pub fn allocate_managed(&self, bytes: usize) -> Result<HostBuffer, Error> {
        let buffer = self.allocate_mapped(bytes)?;
        if buffer.address() == Some(buffer.as_ptr() as u64) {
            return Ok(buffer);
        }
        let message =
            "memory of the program's own lies at the addresses that kernels have for managed memory";
        Err(Error::new(ErrorCode::NotSupported, message)
            .remedy("use cudaMalloc and cudaMemcpy, or open the session before that memory is mapped"))
    }

    /// Takes a block where there is room at once.
    fn take_host(&self, bytes: usize) -> Option<HostBuffer> {
        let mut heap = self.inner.host.heap.lock();
        let Heap { arenas, quarantine, kept, activity, pieces, .. } = &mut *heap;
        *activity += 1;
        quarantine.take_all(|fence| self.has_passed(fence), |block| kept.put(block, arenas));
        let taken = arenas.take(kept.with_zone(bytes as u64))?;
        let pinned = Arc::clone(&pieces[taken.arena].pinned);
        drop(heap);
        // Within a mapping of this process.
        let offset = usize::try_from(taken.offset).unwrap_or(usize::MAX);
        let held = HeldHost::Block(taken.index);
        Some(HostBuffer { session: self.clone(), held, pinned, offset, bytes, address: Some(taken.address) })
    }

    /// Gets more memory that kernels reach.
    fn map_more(&self, bytes: u64) -> Result<(), Error> {
        let Granted { key, pinned, address, bytes } = self.ask_for_host(bytes, Reach::Kernels)?;
        let mut heap = self.inner.host.heap.lock();
        let piece = heap.pieces.insert(Piece { key, pinned: Arc::new(pinned) });
        heap.arenas.grant(address, bytes, piece);
        Ok(())
    }

    /// Frees a block, once all that was submitted has passed.
    pub(crate) fn free_host(&self, block: BlockIndex) {
        let fences = self.outstanding();
        let mut heap = self.inner.host.heap.lock();
        heap.activity += 1;
        if fences.is_empty() {
            let Heap { arenas, kept, .. } = &mut *heap;
            kept.put(block, arenas);
        } else {
            let bytes = heap.arenas.block_bytes(block);
            heap.quarantine.push(block, bytes, fences);
        }
        let surplus = if heap.kept.keeps() { Vec::new() } else { heap.withdraw(EMPTY_BYTES_KEPT) };
        let watched = std::mem::replace(&mut heap.watched, true);
        drop(heap);
        if !surplus.is_empty() {
            self.inner.remote.spawn(move |context| async move { return_all(&context, surplus).await });
        }
        if !watched {
            self.inner.watch_host();
        }
    }

    /// All empty pieces, if nothing was allocated or freed since the activity that was `seen`, and whether there is
    /// nothing left to look for.
    fn look_for_idle_host(&self, seen: &mut Option<u64>) -> (Vec<Piece>, bool) {
        let mut heap = self.inner.host.heap.lock();
        let Heap { arenas, quarantine, kept, .. } = &mut *heap;
        quarantine.take_all(|fence| self.has_passed(fence), |block| kept.put(block, arenas));
        let idle = seen.replace(heap.activity) == Some(heap.activity);
        let kept = if idle { 0 } else { EMPTY_BYTES_KEPT };
        let empty = if heap.kept.keeps() { Vec::new() } else { heap.withdraw(kept) };
        let done = idle && heap.quarantine.is_empty();
        heap.watched = !done;
        (empty, done)
    }

    pub(crate) fn return_empty_and_wait(&self) -> Result<(), Error> {
        let empty = {
            let mut heap = self.inner.host.heap.lock();
            let Heap { arenas, kept, .. } = &mut *heap;
            kept.release(arenas);
            heap.withdraw(0)
        };
        if empty.is_empty() {
            return Ok(());
        }
        self.inner.remote.call(move |context| async move {
            return_all(&context, empty).await;
            Ok(())
        })
    }

    /// Host memory for copies, and the number under which its capability is held.
    pub(crate) fn allocate_pinned(&self, bytes: usize) -> Result<(usize, Pinned), Error> {
        let granted = self.ask_for_host(bytes as u64, Reach::Copies)?;
        Ok((granted.key, granted.pinned))
    }

    /// Asks the kernel for host memory, and maps it.
    fn ask_for_host(&self, wanted: u64, reach: Reach) -> Result<Granted, Error> {
        let (key, handle, token, bytes, address, socket) =
            self.inner.remote.call(move |context| async move {
                let mut allocate = context.session()?.allocate_host_request();
                allocate.get().set_bytes(wanted);
                allocate.get().set_mapped(reach == Reach::Kernels);
                let response = allocate.send().promise.await.map_err(broken)?;
                let created = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
                let handle = Handle::read(created.get_handle().map_err(broken)?);
                let token = descriptors::bytes(created.get_memory().map_err(broken)?);
                let key = context.hold(Capability::Buffer(created.get_buffer().map_err(broken)?));
                let socket = context.connection.descriptor_socket.clone();
                Ok((key, handle, token, created.get_bytes(), created.get_address(), socket))
            })?;
        let mapped = descriptors::present(&socket, token).and_then(|descriptors| {
            let unmapped = |error| Error::new(ErrorCode::OutOfMemory, format!("host memory: {error}"));
            let descriptor = descriptors.first();
            let descriptor = descriptor
                .ok_or_else(|| Error::new(ErrorCode::Internal, "the kernel handed over no memory"))?;
            let length =
                usize::try_from(bytes).map_err(|_| Error::new(ErrorCode::OutOfMemory, "too large"))?;
            let window = self.inner.host.window.lock().clone().filter(|_| address != 0);
            // Else it has two addresses, and whoever asks is told the other.
            let unified =
                window.and_then(|window| Shared::map_in(&window, address, descriptor.as_fd(), length).ok());
            unified.map_or_else(|| Shared::map(descriptor.as_fd(), length), Ok).map_err(unmapped)
        });
        match mapped {
            Ok(memory) => Ok(Granted { key, pinned: Pinned { handle, memory }, address, bytes }),
            Err(error) => {
                self.release(key);
                Err(error)
            }
        }
    }
}

impl Inner {
    /// Looks for idleness until empty pieces have gone back and there is nothing more to look for.
    fn watch_host(self: &Arc<Self>) {
        let inner: Weak<Self> = Arc::downgrade(self);
        self.remote.spawn(move |context| async move {
            let mut seen = None;
            loop {
                tokio::time::sleep(IDLE).await;
                let Some(session) = inner.upgrade().map(|inner| Session { inner }) else { return };
                let (empty, done) = session.look_for_idle_host(&mut seen);
                drop(session);
                return_all(&context, empty).await;
                if done {
                    return;
                }
            }
        });
    }
}

/// Gives pieces back to the kernel, all at once.
async fn return_all(context: &Context, pieces: Vec<Piece>) {
    let returns = pieces.into_iter().map(|Piece { key, pinned }| async move {
        // Its addresses are free here before the kernel can give them out again.
        drop(pinned);
        if let Err(error) = context.give_back(key, RETURN_MS).await {
            tracing::debug!(%error, "host memory went with its session");
        }
    });
    futures::future::join_all(returns).await;
}

/// Whether the kernel has, or gives, no more.
fn is_refusal(error: &Error) -> bool {
    matches!(error.code, ErrorCode::OutOfMemory | ErrorCode::LimitReached)
}
