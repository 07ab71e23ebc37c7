//! Calls about executable graphs, and their launches.

use std::sync::Arc;

use parking_lot::Mutex;

use super::super::flat::{Step, flatten};
use super::super::plan::{Plan, Shape, plan};
use super::super::{Graph, Work, graph};
use super::kept::KeptByExec;
use super::{Exec, Native, State};
use crate::abi::{InOut, InstantiateParameters, NullStream, Out, OutMaybe};
use crate::device::{Fence, Session};
use crate::driver::{Driver, driver, driver_and_current};
use crate::order::Target;
use crate::report;
use crate::status::{Answer, Status};

const AUTO_FREE: u64 = 1;
const UPLOAD: u64 = 2;
const DEVICE_LAUNCH: u64 = 4;
const FLAGS: u64 = 0xF;

/// `CUgraphInstantiateResult`.
const INSTANTIATED: u32 = 0;
const FAILED: u32 = 1;
const INVALID_STRUCTURE: u32 = 2;

/// The order of a graph's steps; `None` where there is none.
fn plan_of(steps: &[Step]) -> Option<Plan> {
    let before: Vec<Vec<usize>> = steps.iter().map(|step| step.before.clone()).collect();
    let is_host: Vec<bool> = steps.iter().map(|step| matches!(step.work, Work::Host(..))).collect();
    plan(&Shape { before: &before, is_host: &is_host })
}

impl Exec {
    fn new(driver: &'static Driver, graph: &Graph, flags: u64) -> Result<Exec, Status> {
        let steps = flatten(graph)?;
        let plan = plan_of(&steps).ok_or(Status::INVALID_VALUE)?;
        let places = (0..).zip(&steps).filter(|(_, step)| step.node != 0).map(|(at, step)| (step.node, at));
        let places = places.collect();
        let disabled = vec![false; steps.len()];
        let native = Native::of(driver, &steps, &plan);
        let state = Mutex::new(State { steps, disabled, last: None, native });
        Ok(Exec { flags, plan, places, state, kept: Mutex::new(KeptByExec::of(graph)) })
    }

    /// Launches all of it behind what the stream was given, and lets nothing of the stream go on before it is done.
    fn launch(&self, driver: &'static Driver, target: Target) -> Answer {
        let mut state = self.state.lock();
        if self.flags & AUTO_FREE != 0 {
            for step in &state.steps {
                if let Work::Allocate(storage) = &step.work
                    && storage.is_launched()
                {
                    storage.free()?;
                }
            }
        }
        if self.launch_native(driver, target, &mut state)? {
            return Ok(());
        }
        // First checked, then submitted: what can be known beforehand does not leave half a graph running.
        for (step, disabled) in state.steps.iter().zip(&state.disabled) {
            if !disabled {
                step.work.check(driver)?;
            }
        }
        let session = &driver.session;
        let last = state.last;
        let start = driver.streams.submit(session, target, |stream| {
            if let Some(last) = last {
                session.wait_on(stream, last).map_err(|error| Status::of(&error))?;
            }
            Ok(session.fence(stream))
        })?;
        let taken = driver.graphs.lanes.take(&driver.streams, session, target, self.plan.lanes);
        let lanes = &taken.targets;
        for lane in lanes.iter().skip(1) {
            wait_on(session, *lane, start)?;
        }
        let submitted = self.submit(driver, &state, lanes);
        // Also where a step was refused: what was submitted is the launch's all the same.
        let end = driver.streams.submit(session, target, |stream| {
            for lane in lanes.iter().skip(1) {
                let fence = session.fence(lane.stream);
                session.wait_on(stream, fence).map_err(|error| Status::of(&error))?;
            }
            Ok(session.fence(stream))
        })?;
        state.last = Some(end);
        submitted
    }

    /// Launches the device's graph of it; false where there is none, or it does not do what this launch is to.
    fn launch_native(
        &self,
        driver: &'static Driver,
        target: Target,
        state: &mut State,
    ) -> Result<bool, Status> {
        let State { steps, disabled, last, native } = state;
        let Some(graph) = native.as_mut().filter(|_| !disabled.contains(&true)) else { return Ok(false) };
        let session = &driver.session;
        let of_memory = || steps.iter().map(|step| &step.work).filter(|work| work.is_of_memory());
        of_memory().try_for_each(|work| work.check(driver))?;
        let launched = driver.streams.submit(session, target, |stream| {
            if let Some(last) = *last {
                session.wait_on(stream, last).map_err(|error| Status::of(&error))?;
            }
            graph.launch(driver, steps, stream)
        })?;
        let Some(fence) = launched else {
            *native = None;
            return Ok(false);
        };
        *last = Some(fence);
        self.plan
            .steps
            .iter()
            .filter_map(|placed| steps.get(placed.step))
            .map(|step| &step.work)
            .try_for_each(|work| if work.is_of_memory() { work.run(driver, target) } else { Ok(()) })?;
        Ok(true)
    }

    fn submit(&self, driver: &'static Driver, state: &State, lanes: &[Target]) -> Answer {
        let session = &driver.session;
        let lane_of = |lane: usize| lanes.get(lane % lanes.len()).copied().ok_or(Status::UNKNOWN);
        let mut fences: Vec<Option<Fence>> = vec![None; state.steps.len()];
        for placed in &self.plan.steps {
            let target = lane_of(placed.lane)?;
            for other in &placed.waits {
                if let Some(fence) = fences.get(*other).copied().flatten() {
                    wait_on(session, target, fence)?;
                }
            }
            let step = state.steps.get(placed.step).ok_or(Status::UNKNOWN)?;
            if state.disabled.get(placed.step) != Some(&true) {
                step.work.run(driver, target)?;
            }
            if placed.is_awaited
                && let Some(fence) = fences.get_mut(placed.step)
            {
                *fence = Some(session.fence(target.stream));
            }
        }
        Ok(())
    }
}

fn wait_on(session: &Session, lane: Target, fence: Fence) -> Answer {
    session.wait_on(lane.stream, fence).map_err(|error| Status::of(&error))
}

/// The executable graph of a handle.
pub(super) fn exec(driver: &Driver, handle: u64) -> Result<Arc<Exec>, Status> {
    driver.graphs.execs.get(handle).map_err(|_| Status::INVALID_VALUE)
}

fn make(handle: u64, flags: u64) -> Result<u64, Status> {
    let (driver, _) = driver_and_current()?;
    let graph = graph(driver, handle)?;
    if flags & !FLAGS != 0 {
        return Err(Status::INVALID_VALUE);
    }
    if flags & DEVICE_LAUNCH != 0 {
        report::refused("cuGraphInstantiate", "kernels cannot launch graphs");
        return Err(Status::NOT_SUPPORTED);
    }
    driver.graphs.execs.insert(Exec::new(driver, &graph, flags)?.into())
}

pub(crate) fn instantiate(to: Out<u64>, handle: u64, flags: u64) -> Answer {
    // It goes with a stream, and here there is none.
    if flags & UPLOAD != 0 {
        return Err(Status::INVALID_VALUE);
    }
    to.set(make(handle, flags)?);
    Ok(())
}

/// As CUDA 10 and 11 call it; what is wrong is said on stderr, and not in the log.
pub(crate) fn instantiate_with_log(
    to: Out<u64>,
    handle: u64,
    node: OutMaybe<u64>,
    _log: u64,
    _room: usize,
) -> Answer {
    node.set(0);
    instantiate(to, handle, 0)
}

pub(crate) fn instantiate_with(
    null: NullStream,
    to: Out<u64>,
    handle: u64,
    parameters: InOut<InstantiateParameters>,
) -> Answer {
    let mut told = parameters.get();
    let made = match told.flags & UPLOAD {
        0 => make(handle, told.flags),
        _ => driver()?.target(null, told.upload_stream).and_then(|_| make(handle, told.flags)),
    };
    told.error_node = 0;
    told.result = match made {
        Ok(_) => INSTANTIATED,
        Err(Status::INVALID_VALUE) => INVALID_STRUCTURE,
        Err(_) => FAILED,
    };
    parameters.set(told);
    to.set(made?);
    Ok(())
}

pub(crate) fn flags(handle: u64, to: Out<u64>) -> Answer {
    to.set(exec(driver()?, handle)?.flags);
    Ok(())
}

pub(crate) fn destroy(handle: u64) -> Answer {
    driver()?.graphs.execs.remove(handle).map(drop).map_err(|_| Status::INVALID_VALUE)
}

/// Nothing has to be brought anywhere before a launch.
pub(crate) fn upload(null: NullStream, handle: u64, stream: u64) -> Answer {
    let (driver, _) = driver_and_current()?;
    driver.target(null, stream)?;
    exec(driver, handle).map(drop)
}

pub(crate) fn launch(null: NullStream, handle: u64, stream: u64) -> Answer {
    let (driver, _) = driver_and_current()?;
    let target = driver.target(null, stream)?;
    let exec = exec(driver, handle)?;
    if let Some(capturing) = driver.streams.captures.of(target)? {
        report::refused(
            "cuGraphLaunch",
            "a graph is not launched into a stream that captures; add it as a child",
        );
        return Err(capturing.refuse());
    }
    exec.launch(driver, target)
}
