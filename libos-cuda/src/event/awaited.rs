//! Streams that wait for recordings of other processes.
//!
//! One thread looks for all streams that wait. Such a stream has a barrier, which the thread opens, as for a host
//! function. How it looks is in `watch`.

use std::sync::{Arc, OnceLock};

use parking_lot::{Condvar, Mutex};

use super::shared::Shared;
use super::slot::Recording;
use super::watch::{NAP_MIN, Nap, Watch, look, wait};
use crate::device::Barrier;
use crate::driver::Driver;
use crate::order::Target;
use crate::status::{Answer, Status};

/// Waits of streams at a time; beyond them whoever asks for one more waits itself.
const AWAITED_MAX: usize = 256;

struct Job {
    target: Target,
    barrier: Barrier,
    shared: Arc<Shared>,
    recording: Recording,
    watch: Watch,
}

#[derive(Default)]
struct Jobs {
    waiting: Mutex<Vec<Job>>,
    more: Condvar,
}

fn jobs(driver: &'static Driver) -> Result<&'static Jobs, Status> {
    static JOBS: OnceLock<Jobs> = OnceLock::new();
    static STARTED: Mutex<bool> = Mutex::new(false);
    let jobs = JOBS.get_or_init(Jobs::default);
    let mut started = STARTED.lock();
    if !*started {
        let thread = std::thread::Builder::new().name("bulkhead-events".into());
        thread.spawn(move || work(driver, jobs)).map_err(|_| Status::OPERATING_SYSTEM)?;
        *started = true;
    }
    Ok(jobs)
}

fn work(driver: &'static Driver, jobs: &'static Jobs) {
    let mut nap = Nap(NAP_MIN);
    let mut known: Vec<Job> = Vec::new();
    loop {
        {
            let mut waiting = jobs.waiting.lock();
            while known.is_empty() && waiting.is_empty() {
                jobs.more.wait(&mut waiting);
            }
            if !waiting.is_empty() {
                nap = Nap(NAP_MIN);
            }
            known.append(&mut waiting);
        }
        for mut job in std::mem::take(&mut known) {
            let ended = match look(&job.shared, job.recording, &mut job.watch) {
                Ok(false) => {
                    known.push(job);
                    continue;
                }
                Ok(true) => Ok(()),
                Err(status) => Err(status),
            };
            driver.streams.end_await(job.target, ended);
            // Whoever sees that the stream goes on is told why it should not have.
            job.barrier.open();
        }
        if !known.is_empty() {
            nap.sleep();
        }
    }
}

/// Has later work of a stream wait until a recording has ended.
pub(super) fn have_wait(
    driver: &'static Driver,
    shared: &Arc<Shared>,
    recording: Recording,
    target: Target,
) -> Answer {
    if driver.streams.awaits() >= AWAITED_MAX {
        return wait(shared, recording);
    }
    let jobs = jobs(driver)?;
    let session = &driver.session;
    let barrier = driver
        .streams
        .submit(session, target, |stream| session.barrier(stream).map_err(|error| Status::of(&error)))?;
    driver.streams.begin_await();
    let shared = Arc::clone(shared);
    jobs.waiting.lock().push(Job { target, barrier, shared, recording, watch: Watch::default() });
    jobs.more.notify_one();
    Ok(())
}
