//! Where physical memory comes from, and where it goes.
//!
//! An NVIDIA driver takes 0.3 ms to free a gibibyte, and four times as long where it was exported; whoever waits for
//! memory to be given back waits for its content to be gone, not for that. So one thread frees what nobody maps any
//! more, and where the device has no memory left, whoever asks for some waits until that thread has caught up.

use std::{
    os::fd::OwnedFd,
    sync::{Arc, mpsc},
};

use bulkhead_gpu::{Error, Gpu, MemoryId};
use parking_lot::{Condvar, Mutex};

/// Physical memory of one device. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Physical {
    gpu: Arc<dyn Gpu>,
    leaving: mpsc::Sender<MemoryId>,
    backlog: Arc<Backlog>,
}

/// What was given back and is not free yet.
#[derive(Default)]
struct Backlog {
    pieces: Mutex<usize>,
    freed: Condvar,
}

impl Backlog {
    fn free(&self, gpu: &dyn Gpu, memory: MemoryId) {
        if let Err(error) = gpu.destroy_memory(memory) {
            tracing::error!(%error, "device memory is not given back");
        }
        *self.pieces.lock() -= 1;
        self.freed.notify_all();
    }

    /// Waits until everything that was given back is free; whether there was anything.
    fn wait(&self) -> bool {
        let mut pieces = self.pieces.lock();
        let any = *pieces > 0;
        while *pieces > 0 {
            self.freed.wait(&mut pieces);
        }
        any
    }
}

/// The other end of a [`Physical`].
pub(crate) struct Freeing {
    gpu: Arc<dyn Gpu>,
    leaving: mpsc::Receiver<MemoryId>,
    backlog: Arc<Backlog>,
}

impl Physical {
    pub(crate) fn new(gpu: &Arc<dyn Gpu>) -> (Self, Freeing) {
        let (leaving, received) = mpsc::channel();
        let backlog = Arc::<Backlog>::default();
        let freeing = Freeing { gpu: Arc::clone(gpu), leaving: received, backlog: Arc::clone(&backlog) };
        (Self { gpu: Arc::clone(gpu), leaving, backlog }, freeing)
    }

    /// New memory. What it holds is undefined.
    pub(crate) fn create(&self, bytes: u64) -> Result<MemoryId, Error> {
        match self.gpu.create_memory(bytes) {
            Err(Error::OutOfMemory) if self.backlog.wait() => self.gpu.create_memory(bytes),
            made => made,
        }
    }

    /// Memory of another process's.
    pub(crate) fn import(&self, descriptor: OwnedFd, bytes: u64) -> Result<MemoryId, Error> {
        self.gpu.import_memory(descriptor, bytes)
    }

    /// Waits until everything that was given back is free: another process cannot wait for it.
    pub(crate) fn settle(&self) {
        self.backlog.wait();
    }

    /// Gives memory back that is mapped nowhere.
    pub(crate) fn give_back(&self, memory: MemoryId) {
        *self.backlog.pieces.lock() += 1;
        if let Err(mpsc::SendError(memory)) = self.leaving.send(memory) {
            self.backlog.free(&*self.gpu, memory);
        }
    }
}

impl Freeing {
    /// The life of the thread that frees. Ends with the last that could give memory back.
    pub(crate) fn run(self) {
        if let Err(error) = self.gpu.bind_thread() {
            tracing::error!(%error, "the thread that frees memory");
        }
        for memory in self.leaving {
            self.backlog.free(&*self.gpu, memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use bulkhead_softgpu::{Options, SoftGpu};

    use super::*;

    const BYTES: u64 = 64 << 20;

    fn device() -> Arc<dyn Gpu> {
        let options = Options { memory_bytes: BYTES, threads: Some(1), ..Options::default() };
        SoftGpu::new(options).expect("a device")
    }

    #[test]
    fn all_of_the_memory_can_be_had_again_as_soon_as_it_is_given_back() {
        let (physical, freeing) = Physical::new(&device());
        let thread = thread::spawn(|| freeing.run());
        for _ in 0..200 {
            let memory = physical.create(BYTES).expect("all of it");
            physical.give_back(memory);
        }
        drop(physical);
        thread.join().expect("the thread ends with the last user");
    }

    #[test]
    fn what_is_not_there_is_refused_and_nobody_waits() {
        let (physical, freeing) = Physical::new(&device());
        let half = physical.create(BYTES / 2).expect("half of it");
        assert!(matches!(physical.create(BYTES), Err(Error::OutOfMemory)));
        drop(freeing);
        physical.give_back(half);
        physical.create(BYTES).expect("all of it, where no thread frees any more");
    }
}
