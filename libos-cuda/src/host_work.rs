//! Functions of the program's that run in a stream's order (`cuLaunchHostFunc`, `cuStreamAddCallback`).
//!
//! One thread waits for each function's place in its stream and calls it. The device cannot wait for a function
//! of the host's, so whoever submits later work to the stream waits here instead, until the function has returned.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};

use parking_lot::{Condvar, Mutex};

use crate::abi::{Callback, HostFunction, NullStream, StreamCallback};
use crate::context::driver_and_current;
use crate::device::Fence;
use crate::driver::Driver;
use crate::graph::Work;
use crate::order::{HostFunctions, Target};
use crate::status::{Answer, SUCCESS, Status};

/// What is to be called.
#[derive(Clone, Copy)]
enum Call {
    HostFunction(HostFunction, Callback),
    StreamCallback(StreamCallback, u64, Callback),
}

struct Job {
    target: Target,
    fence: Fence,
    call: Call,
}

/// How many functions were given to streams, and how many of them have returned: they are called one after the other.
static GIVEN: AtomicU64 = AtomicU64::new(0);
static DONE: AtomicU64 = AtomicU64::new(0);

static RETURNED: Condvar = Condvar::new();
static RETURNING: Mutex<()> = Mutex::new(());

thread_local! {
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Waits until host functions have returned so that `ready` holds. A host function cannot wait for itself.
pub(crate) fn wait_until(ready: impl Fn() -> bool) -> Answer {
    if IS_WORKER.get() {
        return Err(Status::NOT_PERMITTED);
    }
    let mut returning = RETURNING.lock();
    while !ready() {
        RETURNED.wait(&mut returning);
    }
    Ok(())
}

/// Waits until the host functions that streams were given so far have returned: they may use memory that is about to go.
/// A host function cannot wait for itself, and goes on.
pub(crate) fn wait_for_given() {
    let given = GIVEN.load(Ordering::Acquire);
    let are_done = || DONE.load(Ordering::Acquire) >= given;
    if !are_done() {
        // Refused to host functions only.
        wait_until(are_done).ok();
    }
}

/// Notes that a host function has returned, and wakes those who wait for it.
pub(crate) fn returned(note: impl FnOnce() -> Answer) -> Answer {
    let _returning = RETURNING.lock();
    let noted = note();
    RETURNED.notify_all();
    noted
}

fn worker(driver: &'static Driver) -> Result<&'static Mutex<Sender<Job>>, Status> {
    static WORKER: OnceLock<Mutex<Sender<Job>>> = OnceLock::new();
    static STARTING: Mutex<()> = Mutex::new(());
    let _starting = STARTING.lock();
    if let Some(worker) = WORKER.get() {
        return Ok(worker);
    }
    let (sender, jobs) = channel::<Job>();
    std::thread::Builder::new()
        .name("bulkhead-host-work".into())
        .spawn(move || {
            IS_WORKER.set(true);
            for job in jobs {
                let reached = driver.session.wait(job.fence);
                run(job.call, reached.map_or_else(|error| Status::of(&error).code(), |()| SUCCESS));
                // The stream was looked up when the job was made, and its slot never goes away.
                returned(|| {
                    DONE.fetch_add(1, Ordering::AcqRel);
                    driver.streams.note_host_function(job.target, HostFunctions::End)
                })
                .ok();
            }
        })
        .map_err(|_| Status::OPERATING_SYSTEM)?;
    Ok(WORKER.get_or_init(|| Mutex::new(sender)))
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
    let worker = worker(driver)?;
    driver.streams.wait_for_awaited(target)?;
    // Functions are called in the order in which they come here, so none has to be waited for.
    let session = &driver.session;
    let fence = driver.streams.submit_now(session, target, |stream| Ok(session.fence(stream)))?;
    driver.streams.note_host_function(target, HostFunctions::Begin)?;
    let sent = {
        let worker = worker.lock();
        worker.send(Job { target, fence, call }).inspect(|()| {
            GIVEN.fetch_add(1, Ordering::AcqRel);
        })
    };
    sent.or_else(|_| {
        driver.streams.note_host_function(target, HostFunctions::End)?;
        Err(Status::OPERATING_SYSTEM)
    })
}

pub(crate) fn launch(null: NullStream, stream: u64, function: HostFunction, data: Callback) -> Answer {
    let (driver, _) = driver_and_current()?;
    let target = driver.streams.target(null, stream)?;
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
    let target = driver.streams.target(null, stream)?;
    driver.streams.captures.refuse(target)?;
    enqueue(driver, target, Call::StreamCallback(function, stream, data))
}
