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
    driver::{Activity, Failed, HostCall},
    shape::{End, Target, Way},
    wire::{Place, Request},
};
use parking_lot::Mutex;

use crate::{
    buffers::{self, Held},
    plans::{self, Plan, Ready, Stage},
    report,
};

/// Of more elements the program's thread does not wait for a transform.
const AT_ONCE_MAX: u64 = 1 << 17;

/// Different transforms of a plan that graphs have: they are there as long as the plan is.
const CAPTURED_MAX: usize = 1024;

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
        driver.enter().map_err(failed)?;
        let ends = ends(plan, &ready, driver, asked)?;
        let request =
            Request::Execute { plan: ready.remote.slot, input: ends.input, output: ends.output, way };
        let submitted = submit(plan, ready, driver, request, ends.held);
        let Some((to, from, bytes)) = ends.back else { return submitted };
        let copied = submitted.and_then(|()| driver.copy_later(to, from, bytes, plan.stream).map_err(failed));
        // Also where it failed: what was copied to the stage is on its way.
        let noted = plan.stage.as_ref().map_or(Ok(()), |stage| driver.record(&stage.passed, plan.stream));
        copied.and(noted.map_err(failed))
    })
}

fn failed(error: Failed) -> Refused {
    Refused::new(Status::ExecFailed, format!("the plan's stream: {error}"))
}

/// Has a transform executed in the order of the plan's stream.
fn submit(
    plan: &mut Plan,
    ready: Arc<Ready>,
    driver: &Driver,
    request: Request,
    held: [Held; 2],
) -> Result<(), Refused> {
    // What a stream finds out later is told of by a later call.
    if ready.remote.link.is_lost() {
        return Err(ready.remote.link.lost());
    }
    let activity = driver.activity(plan.stream).map_err(failed)?;
    if activity == Activity::Idle && ready.shape.elements() <= AT_ONCE_MAX {
        return ready.remote.link.ask(&request).map(drop);
    }
    let call = |number| {
        let called = usize::try_from(number).unwrap_or(0);
        driver.call_host(plan.stream, HostCall::new(run), called).map_err(failed)
    };
    let how_often = if activity == Activity::Captures { HowOften::Again } else { HowOften::Once };
    if how_often == HowOften::Again {
        // What another capture, or another place in this one, asks for is the same.
        if let Some((_, number)) = plan.captured.iter().find(|(known, _)| *known == request) {
            return call(*number);
        }
        if plan.captured.len() >= CAPTURED_MAX {
            return Err(Refused::new(
                Status::AllocFailed,
                format!(
                    "graphs have {CAPTURED_MAX} different transforms of this plan, which keeps them: make another plan"
                ),
            ));
        }
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let job = Job { ready, request, _held: held, how_often };
    JOBS.lock().get_or_insert_default().insert(number, Arc::new(job));
    if let Err(refused) = call(number) {
        forget([number]);
        return Err(refused);
    }
    if how_often == HowOften::Again {
        plan.captured.push((request, number));
    }
    Ok(())
}

/// Where a transform reads and writes.
struct Ends {
    held: [Held; 2],
    input: Place,
    output: Place,
    /// To where, from where and how much is copied behind it.
    back: Option<(u64, u64, u64)>,
}

fn ends(plan: &mut Plan, ready: &Ready, driver: &Driver, asked: &Asked) -> Result<Ends, Refused> {
    let place = |address| buffers::place(&ready.remote.link, driver, address);
    match (place(asked.input), place(asked.output)) {
        (Ok((held_input, input)), Ok((held_output, output))) => {
            Ok(Ends { held: [held_input, held_output], input, output, back: None })
        }
        // Host memory and mapped memory cannot be given: what is there is copied, in the stream.
        (Err(_), _) | (_, Err(_)) if driver.knows(asked.input) && driver.knows(asked.output) => {
            staged(plan, ready, driver, asked)
        }
        (Err(refused), _) | (_, Err(refused)) => Err(refused),
    }
}

/// Between the two ends in memory that is given in the program's place.
const APART: u64 = 256;

fn staged(plan: &mut Plan, ready: &Ready, driver: &Driver, asked: &Asked) -> Result<Ends, Refused> {
    if driver.captures(plan.stream).map_err(failed)? {
        // A graph would have the stage whenever it is launched, also while another stream has it.
        return Err(Refused::new(
            Status::NotSupported,
            "managed, pinned and mapped memory is not transformed in a capture: use memory of cudaMalloc there",
        ));
    }
    let shape = &ready.shape;
    let target = if asked.input == asked.output { Target::InPlace } else { Target::Elsewhere };
    let of = |end, target| shape.extent_bytes(end, target);
    let (read, written) = (of(End::Input, target), of(End::Output, target));
    if plan.stage.is_none() {
        // As much as any transform of the plan takes: it is never made anew.
        let most = |end| of(end, Target::InPlace).max(of(end, Target::Elsewhere));
        let bytes = most(End::Input).next_multiple_of(APART) + most(End::Output);
        let full = |error| Refused::new(Status::AllocFailed, format!("{bytes} bytes: {error}"));
        let memory = driver.allocate(bytes).map_err(full)?;
        plan.stage = Some(Stage { memory, passed: driver.create_event().map_err(failed)? });
    }
    let Some(stage) = &plan.stage else { return Err(Refused::new(Status::InternalError, "no stage")) };
    // The last transform that had it may have been another stream's.
    driver.wait_for(&stage.passed, plan.stream).map_err(failed)?;
    let address = stage.memory.address();
    let behind = if target == Target::InPlace { 0 } else { read.next_multiple_of(APART) };
    let in_place = if target == Target::InPlace { written } else { 0 };
    let copy = |to, from, bytes| driver.copy_later(to, from, bytes, plan.stream).map_err(failed);
    let mut copied = copy(address, asked.input, read.max(in_place));
    if target == Target::Elsewhere && !shape.places(End::Output, target).is_dense(shape.batch()) {
        // What lies between the elements stays as it is.
        copied = copied.and_then(|()| copy(address + behind, asked.output, written));
    }
    let placed = copied.and_then(|()| buffers::place(&ready.remote.link, driver, address));
    // Where it ends here, a copy may be on its way all the same.
    let ended = |_: &Refused| driver.record(&stage.passed, plan.stream).unwrap_or_default();
    let (held, input) = placed.inspect_err(ended)?;
    let output = Place { offset: input.offset + behind, ..input };
    let back = Some((asked.output, address + behind, written));
    Ok(Ends { held: [Arc::clone(&held), held], input, output, back })
}

/// Takes jobs away, of graphs whose plan is destroyed.
pub(crate) fn forget(numbers: impl IntoIterator<Item = u64>) {
    let gone: Vec<_> = {
        let mut jobs = JOBS.lock();
        numbers.into_iter().filter_map(|number| jobs.as_mut()?.remove(&number)).collect()
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
