//! A pool of threads that read and write at offsets.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

use super::{
    DEPTH_MAX, Done, Engine, Request, Store, THREADS_MAX,
    file::{Positioned, execute},
};

/// What the threads and the engine share. Either lock is held for a push or a pop only.
struct Shared {
    work: Mutex<Work>,
    arrived: Condvar,
    done: Mutex<Vec<Done>>,
    /// How many are in `done`: a poll that finds none takes no lock.
    ready: AtomicUsize,
}

struct Work {
    requests: VecDeque<Request>,
    closed: bool,
}

/// Locks; a thread that panicked left nothing half done, since what is locked is pushed and popped only.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// The next request, or nothing when the engine closes: then what was not begun is dropped.
    fn next(&self) -> Option<Request> {
        let mut work = lock(&self.work);
        loop {
            if work.closed {
                return None;
            }
            if let Some(request) = work.requests.pop_front() {
                return Some(request);
            }
            work = self.arrived.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn serve(&self, store: &impl Positioned) {
        while let Some(request) = self.next() {
            let finished = execute(store, request);
            let mut done = lock(&self.done);
            done.push(finished);
            self.ready.store(done.len(), Ordering::Release);
        }
    }
}

/// An engine on a file that works with blocking calls in threads of its own.
pub struct Threads {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    bytes: u64,
    depth: usize,
    in_flight: usize,
}

impl Threads {
    /// An engine with `threads` threads (at most [`THREADS_MAX`]) and `depth` requests (at most [`DEPTH_MAX`]).
    ///
    /// # Errors
    /// Where the system starts no thread.
    pub fn new(store: Store, depth: usize, threads: usize) -> io::Result<Self> {
        let bytes = store.bytes();
        Self::over(store, bytes, depth, threads)
    }

    pub(super) fn over(
        store: impl Positioned + Send + Sync + 'static,
        bytes: u64,
        depth: usize,
        threads: usize,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            work: Mutex::new(Work { requests: VecDeque::new(), closed: false }),
            arrived: Condvar::new(),
            done: Mutex::new(Vec::new()),
            ready: AtomicUsize::new(0),
        });
        let mut engine = Self {
            shared: Arc::clone(&shared),
            threads: Vec::new(),
            bytes,
            depth: depth.clamp(1, DEPTH_MAX),
            in_flight: 0,
        };
        let store = Arc::new(store);
        for _ in 0..threads.clamp(1, THREADS_MAX) {
            let (shared, store) = (Arc::clone(&shared), Arc::clone(&store));
            // An error drops `engine`, which ends the threads that did start.
            let thread = thread::Builder::new()
                .name("bulkhead-nvme-io".to_owned())
                .spawn(move || shared.serve(&*store))?;
            engine.threads.push(thread);
        }
        Ok(engine)
    }
}

impl Engine for Threads {
    fn name(&self) -> &'static str {
        "threads"
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn submit(&mut self, request: Request) -> Result<(), Request> {
        if self.in_flight == self.depth {
            return Err(request);
        }
        self.in_flight += 1;
        lock(&self.shared.work).requests.push_back(request);
        self.shared.arrived.notify_one();
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Done>) {
        if self.shared.ready.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut finished = lock(&self.shared.done);
        self.in_flight -= finished.len();
        done.append(&mut finished);
        self.shared.ready.store(0, Ordering::Release);
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        lock(&self.shared.work).closed = true;
        self.shared.arrived.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has nothing left to wait for.
            drop(thread.join());
        }
    }
}
