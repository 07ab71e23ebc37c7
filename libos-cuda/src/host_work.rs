//! Functions of the program's that run in a stream's order (`cuLaunchHostFunc`, `cuStreamAddCallback`).
//!
//! Each stream that has some has a thread, which waits for each function's place in the stream and calls it: a function
//! that waits for the program holds up no stream that is not behind it. Behind its place lies a barrier, which the thread
//! opens when the function has returned: whoever submits later work to the stream does not wait.

use std::collections::VecDeque;
use std::time::Duration;

use bulkhead_schema::limits::STREAMS_MAX;
use parking_lot::{Condvar, Mutex};

use crate::abi::{Callback, HostFunction, NullStream, StreamCallback};
use crate::device::{Barrier, Fence};
use crate::driver::{Driver, driver_and_current};
use crate::graph::Work;
use crate::order::{Target, host_function};
use crate::status::{Answer, SUCCESS, Status};

/// How long a stream's thread waits for more before it ends.
const IDLE: Duration = Duration::from_millis(100);

/// What is to be called.
#[derive(Clone, Copy)]
enum Call {
    HostFunction(HostFunction, Callback),
    StreamCallback(StreamCallback, u64, Callback),
}

struct Job {
    target: Target,
    /// Its place among all host functions.
    number: u64,
    /// What comes before it.
    fence: Fence,
    /// What keeps back what comes after it.
    barrier: Barrier,
    call: Call,
}

struct Queue {
    /// In the order of their barriers.
    jobs: VecDeque<Job>,
    has_thread: bool,
}

/// What calls the functions of one stream.
struct Worker {
    /// Held from a barrier to its job, so that both go in one order. The thread never takes it: whoever submits may wait
    /// for room in the ring with it, which comes when a function has returned.
    submitting: Mutex<()>,
    queue: Mutex<Queue>,
    more: Condvar,
}

/// By the stream's number.
static WORKERS: [Worker; STREAMS_MAX as usize] = [const { Worker::new() }; STREAMS_MAX as usize];

impl Worker {
    const fn new() -> Worker {
        let queue = Queue { jobs: VecDeque::new(), has_thread: false };
        Worker { submitting: Mutex::new(()), queue: Mutex::new(queue), more: Condvar::new() }
    }

    fn of(target: Target) -> Result<&'static Worker, Status> {
        WORKERS.get(target.stream.index() as usize).ok_or(Status::INVALID_HANDLE)
    }

    fn add(&'static self, driver: &'static Driver, target: Target, call: Call) -> Answer {
        let _submitting = self.submitting.lock();
        let session = &driver.session;
        let (fence, barrier) = driver.streams.submit(session, target, |stream| {
            let fence = session.fence(stream);
            let barrier = session.barrier(stream).map_err(|error| Status::of(&error))?;
            Ok((fence, barrier))
        })?;
        let mut queue = self.queue.lock();
        if !queue.has_thread {
            let thread = std::thread::Builder::new().name("bulkhead-host-work".into());
            thread.spawn(|| self.work(driver)).map_err(|_| Status::OPERATING_SYSTEM)?;
            queue.has_thread = true;
        }
        let number = driver.streams.begin_host_function(target);
        queue.jobs.push_back(Job { target, number, fence, barrier, call });
        self.more.notify_one();
        Ok(())
    }

    /// The next function to call; `None` where the thread is to end.
    fn next(&self) -> Option<Job> {
        let mut queue = self.queue.lock();
        while queue.jobs.is_empty() {
            if self.more.wait_for(&mut queue, IDLE).timed_out() && queue.jobs.is_empty() {
                queue.has_thread = false;
                return None;
            }
        }
        queue.jobs.pop_front()
    }

    fn work(&self, driver: &Driver) {
        while let Some(job) = self.next() {
            let reached = driver.session.wait(job.fence).map_err(|error| Status::of(&error));
            // What this thread was told nobody else is told.
            driver.streams.note_failure(job.target, reached);
            host_function::set(true);
            run(job.call, reached.map_or_else(Status::code, |()| SUCCESS));
            host_function::set(false);
            job.barrier.open();
            driver.streams.end_host_function(job.target, job.number);
        }
    }
}

fn run(call: Call, status: u32) {
    match call {
        // A host function is not called after an error, a callback is told of it.
        Call::HostFunction(HostFunction(function), data) => {
            if status == SUCCESS {
                function(data.pointer());
            }
        }
        Call::StreamCallback(StreamCallback(function), stream, data) => {
            function(stream, status, data.pointer());
        }
    }
}

fn enqueue(driver: &'static Driver, target: Target, call: Call) -> Answer {
    Worker::of(target)?.add(driver, target, call)
}

pub(crate) fn launch(null: NullStream, stream: u64, function: HostFunction, data: Callback) -> Answer {
    let (driver, _) = driver_and_current()?;
    let target = driver.target(null, stream)?;
    match driver.streams.captures.of(target)? {
        None => submit(driver, target, function, data),
        Some(capturing) => capturing.add(Work::Host(function, data)),
    }
}

/// Has a function run in the order of a stream that does not capture.
pub(crate) fn submit(
    driver: &'static Driver,
    target: Target,
    function: HostFunction,
    data: Callback,
) -> Answer {
    enqueue(driver, target, Call::HostFunction(function, data))
}

pub(crate) fn add_callback(
    null: NullStream,
    stream: u64,
    function: StreamCallback,
    data: Callback,
    flags: u32,
) -> Answer {
    if flags != 0 {
        return Err(Status::INVALID_VALUE);
    }
    let (driver, _) = driver_and_current()?;
    let target = driver.target(null, stream)?;
    driver.streams.captures.refuse(target)?;
    enqueue(driver, target, Call::StreamCallback(function, stream, data))
}
