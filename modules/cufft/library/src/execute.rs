//! Transforms in the order of the program's streams.

use std::{
    collections::HashMap,
    ffi::c_void,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bulkhead_cufft::{
    Driver, Kind, Refused, Status,
    driver::{Activity, HostCall},
    shape::Way,
    wire::Request,
};
use parking_lot::Mutex;

use crate::{
    buffers::{self, Held},
    plans::{self, Ready},
    report,
};

/// Of more elements the program's thread does not wait for a transform.
const AT_ONCE_MAX: u64 = 1 << 17;

/// A transform that a stream executes.
struct Job {
    ready: Arc<Ready>,
    request: Request,
    /// Its buffers stay open.
    _held: [Held; 2],
    how_often: HowOften,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum HowOften {
    Once,
    /// As often as its graph is launched.
    Again,
}

/// Jobs by number: a stream that names one that is gone reaches nothing.
static JOBS: Mutex<Option<HashMap<u64, Arc<Job>>>> = Mutex::new(None);
static NEXT: AtomicU64 = AtomicU64::new(1);

/// What the program asks for.
pub(crate) struct Asked {
    pub(crate) plan: i32,
    pub(crate) input: u64,
    pub(crate) output: u64,
    /// Of the function that was called, where it says one.
    pub(crate) kind: Option<Kind>,
    /// Where the function says one.
    pub(crate) way: Option<i32>,
}

pub(crate) fn execute(asked: &Asked) -> Result<(), Refused> {
    plans::with(asked.plan, |plan| {
        let ready = Arc::clone(plan.ready()?);
        let of_plan = ready.shape.kind();
        if asked.kind.is_some_and(|kind| kind != of_plan) {
            return Err(Refused::new(
                Status::InvalidType,
                format!("the plan is {of_plan:?}, and not of this function's type"),
            ));
        }
        let way = match of_plan.way() {
            Some(way) => way,
            None => asked.way.and_then(|way| Way::of(way.into())).ok_or_else(|| {
                Refused::new(Status::InvalidValue, "a transform goes CUFFT_FORWARD (-1) or CUFFT_INVERSE (1)")
            })?,
        };
        let driver = Driver::get().map_err(|error| Refused::new(Status::SetupFailed, error))?;
        let failed = |error| Refused::new(Status::ExecFailed, format!("the plan's stream: {error}"));
        driver.enter().map_err(failed)?;
        let (held_input, input) = buffers::place(&ready.remote.link, driver, asked.input)?;
        let (held_output, output) = buffers::place(&ready.remote.link, driver, asked.output)?;
        let request = Request::Execute { plan: ready.remote.slot, input, output, way };
        let activity = driver.activity(plan.stream).map_err(failed)?;
        if activity == Activity::Idle && ready.shape.elements() <= AT_ONCE_MAX {
            return ready.remote.link.ask(&request).map(drop);
        }
        let how_often = if activity == Activity::Captures { HowOften::Again } else { HowOften::Once };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let job = Job { ready, request, _held: [held_input, held_output], how_often };
        JOBS.lock().get_or_insert_default().insert(number, Arc::new(job));
        let called = usize::try_from(number).unwrap_or(0);
        if let Err(error) = driver.call_host(plan.stream, HostCall::new(run), called) {
            forget(&[number]);
            return Err(failed(error));
        }
        if how_often == HowOften::Again {
            plan.captured.push(number);
        }
        Ok(())
    })
}

/// Takes jobs away, of graphs whose plan is destroyed.
pub(crate) fn forget(numbers: &[u64]) {
    let gone: Vec<_> = {
        let mut jobs = JOBS.lock();
        numbers.iter().filter_map(|number| jobs.as_mut()?.remove(number)).collect()
    };
    // Outside the lock: where a plan goes with its last job, the worker is told.
    drop(gone);
}

/// Called by a stream that has come to a transform.
extern "C" fn run(number: *mut c_void) {
    let number = number.addr() as u64;
    let job = {
        let mut jobs = JOBS.lock();
        let once = jobs.as_ref().and_then(|jobs| jobs.get(&number)).map(|job| job.how_often);
        match once {
            Some(HowOften::Once) => jobs.as_mut().and_then(|jobs| jobs.remove(&number)),
            Some(HowOften::Again) => jobs.as_ref().and_then(|jobs| jobs.get(&number).cloned()),
            None => None,
        }
    };
    let Some(job) = job else {
        report::once("a graph has a transform of a plan that was destroyed: it is left out");
        return;
    };
    if let Err(refused) = job.ready.remote.link.ask(&job.request) {
        job.ready.failed.store(true, Ordering::Release);
        report::once(&format!("a transform in a stream failed: {refused}"));
    }
}
