//! The program's plans, by handle.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bulkhead_cufft::{
    PLANS_MAX, Refused, Shape, Status,
    driver::{Event, Memory, Stream},
    wire::Request,
};
use parking_lot::Mutex;

use crate::{
    execute,
    link::{self, Remote},
};

/// What is ready of a plan.
pub(crate) struct Ready {
    pub(crate) shape: Shape,
    pub(crate) remote: Remote,
    /// A transform of it failed in a stream, which nobody was told.
    pub(crate) failed: AtomicBool,
}

/// Memory that the worker reads and writes in the place of what cannot be given. Transforms have it one after the other.
pub(crate) struct Stage {
    pub(crate) memory: Memory,
    /// Where the last transform's copies have passed.
    pub(crate) passed: Event,
}

/// A plan of the program's.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) ready: Option<Arc<Ready>>,
    pub(crate) stream: Stream,
    /// Transforms that graphs have, by what they ask for.
    pub(crate) captured: Vec<(Request, u64)>,
    pub(crate) stage: Option<Stage>,
    /// Hints, which the service has no use for.
    hints: BTreeMap<u32, i64>,
}

impl Drop for Plan {
    fn drop(&mut self) {
        // Of the stage the driver frees the memory when what was submitted has passed.
        execute::forget(self.captured.iter().map(|(_, number)| *number));
    }
}

/// `NVFFT_PLAN_PROPERTY_INT64_PATIENT_JIT` and `..._MAX_NUM_HOST_THREADS`, with what they are at first.
const HINTS: [(u32, i64); 2] = [(1, 0), (2, 1)];

#[derive(Default)]
struct Plans {
    by_handle: HashMap<i32, Arc<Mutex<Plan>>>,
    last: i32,
}

static PLANS: Mutex<Option<Plans>> = Mutex::new(None);

fn no_plan() -> Refused {
    Refused::new(Status::InvalidPlan, "there is no such plan")
}

pub(crate) fn create() -> Result<i32, Refused> {
    link::enter()?;
    let mut plans = PLANS.lock();
    let plans = plans.get_or_insert_default();
    if plans.by_handle.len() >= PLANS_MAX {
        return Err(Refused::new(Status::AllocFailed, format!("{PLANS_MAX} plans are there: destroy some")));
    }
    loop {
        // Handles are used again only after all others.
        plans.last = if plans.last == i32::MAX { 1 } else { plans.last + 1 };
        if !plans.by_handle.contains_key(&plans.last) {
            plans.by_handle.insert(plans.last, Arc::default());
            return Ok(plans.last);
        }
    }
}

pub(crate) fn destroy(handle: i32) -> Result<(), Refused> {
    link::enter()?;
    let plan = PLANS.lock().as_mut().and_then(|plans| plans.by_handle.remove(&handle));
    // Outside the lock: the worker is told.
    plan.map(drop).ok_or_else(no_plan)
}

/// Calls a function with a plan that nobody else has meanwhile.
pub(crate) fn with<R>(handle: i32, body: impl FnOnce(&mut Plan) -> Result<R, Refused>) -> Result<R, Refused> {
    link::enter()?;
    let plan = PLANS.lock().as_ref().and_then(|plans| plans.by_handle.get(&handle).cloned());
    let plan = plan.ok_or_else(no_plan)?;
    let mut plan = plan.lock();
    body(&mut plan)
}

/// Has the service prepare a plan.
pub(crate) fn make(handle: i32, shape: Shape) -> Result<(), Refused> {
    with(handle, |plan| {
        if plan.ready.is_some() {
            return Err(Refused::new(Status::InvalidPlan, "the plan is made already: create another"));
        }
        let remote = link::link()?.plan_slot()?;
        let request = Request::Make(remote.slot, shape);
        let made = remote.link.ask(&request).or_else(|refused| {
            if !matches!(refused.status, Status::AllocFailed | Status::InternalError) {
                return Err(refused);
            }
            // What the program has freed takes room there still.
            remote.link.buffers.lock().close_idle(&remote.link);
            remote.link.ask(&request)
        });
        made.map_err(|refused| match refused.status {
            // Of a plan that is not there yet nothing was executed.
            Status::ExecFailed => Refused::new(Status::InternalError, refused.message),
            _ => refused,
        })?;
        plan.ready = Some(Arc::new(Ready { shape, remote, failed: AtomicBool::new(false) }));
        Ok(())
    })
}

impl Plan {
    /// What is ready of it.
    pub(crate) fn ready(&self) -> Result<&Arc<Ready>, Refused> {
        let ready =
            self.ready.as_ref().ok_or_else(|| Refused::new(Status::InvalidPlan, "the plan was not made"))?;
        if ready.remote.link.is_lost() {
            return Err(ready.remote.link.lost());
        }
        if ready.failed.load(Ordering::Acquire) {
            return Err(Refused::new(
                Status::ExecFailed,
                "a transform of this plan failed before: see what was said, and make it again",
            ));
        }
        Ok(ready)
    }

    pub(crate) fn set_hint(&mut self, property: u32, value: i64) -> Result<(), Refused> {
        known(property)?;
        self.hints.insert(property, value);
        Ok(())
    }

    pub(crate) fn hint(&self, property: u32) -> Result<i64, Refused> {
        let first = known(property)?;
        Ok(self.hints.get(&property).copied().unwrap_or(first))
    }

    pub(crate) fn reset_hint(&mut self, property: u32) -> Result<(), Refused> {
        known(property)?;
        self.hints.remove(&property);
        Ok(())
    }
}

fn known(property: u32) -> Result<i64, Refused> {
    let hint = HINTS.iter().find(|(known, _)| *known == property).map(|(_, first)| *first);
    hint.ok_or_else(|| Refused::new(Status::NotSupported, format!("plans have no property {property}")))
}
