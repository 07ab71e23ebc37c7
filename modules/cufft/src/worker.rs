//! Works for one caller: a process with a session of its own, which holds what its caller gave it and nothing else.
//!
//! The connection is its standard input. One request is answered before the next is read, so no more than one is in
//! flight. A request that is refused costs its caller an answer; what the device cannot go on from ends the process, and
//! with it all that the caller had here.

use std::{
    io::Write as _,
    os::{fd::OwnedFd, unix::net::UnixStream},
};

use bulkhead_cufft::{
    BUFFERS_MAX, Driver, PLANS_MAX, Refused, SERVES, Shape, Status,
    driver::{Failed, Opened},
    shape::{End, Target, Way},
    socket,
    wire::{self, Answer, BufferSlot, Place, PlanSlot, Request},
};

use crate::{
    account::Account,
    engine::{Engine, Prepared},
    options::Options,
};

struct Plan {
    shape: Shape,
    prepared: Prepared,
}

struct Worker {
    driver: &'static Driver,
    engine: Engine,
    plans: Vec<Option<Plan>>,
    buffers: Vec<Option<Opened>>,
}

/// Serves the caller at standard input until it goes.
pub(crate) fn work(options: &Options) -> Result<(), String> {
    // Ends with the service.
    let parent = Some(rustix::process::Signal::KILL);
    rustix::process::set_parent_process_death_signal(parent)
        .map_err(|error| format!("PR_SET_PDEATHSIG: {error}"))?;
    let input: OwnedFd = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3)
        .map_err(|error| format!("no connection: {error}"))?;
    let mut caller = UnixStream::from(input);
    let account: OwnedFd = rustix::io::fcntl_dupfd_cloexec(std::io::stdout(), 3)
        .map_err(|error| format!("no account: {error}"))?;
    let line = |caller: &mut UnixStream, text: &str| {
        caller
            .write_all(format!("{text}\n").as_bytes())
            .map_err(|error| format!("the caller is gone: {error}"))
    };
    let mut worker = match Worker::new(options, Account::new(account)) {
        Ok(worker) => worker,
        Err(error) => {
            let told = error.replace(char::is_control, " ");
            line(&mut caller, &format!("refused Unavailable the worker has no session: {told}"))?;
            return Err(error);
        }
    };
    // A caller that takes no answers holds up nobody but itself.
    caller.set_read_timeout(None).map_err(|error| error.to_string())?;
    caller.set_write_timeout(None).map_err(|error| error.to_string())?;
    line(&mut caller, &format!("{SERVES} {}", worker.engine.name()))?;
    loop {
        let frame = match socket::receive(&caller) {
            Ok(Some(frame)) => frame,
            Ok(None) | Err(_) => return Ok(()),
        };
        let answer = Request::read(&frame).and_then(|request| worker.serve(&request, &caller));
        let is_lost = worker.engine.is_lost();
        if socket::send(&caller, &wire::answer_frame(&answer)).is_err() {
            return Ok(());
        }
        if is_lost {
            return Err("the device does not go on with this session: its caller gets another worker".into());
        }
    }
}

impl Worker {
    fn new(options: &Options, account: Account) -> Result<Self, String> {
        let driver = Driver::get()?;
        let told = |error: Failed| error.to_string();
        driver.enter().map_err(told)?;
        let stream = driver.create_stream().map_err(told)?;
        let engine = Engine::new(options, driver, stream, account)?;
        let plans = std::iter::repeat_with(|| None).take(PLANS_MAX).collect();
        let buffers = std::iter::repeat_with(|| None).take(BUFFERS_MAX).collect();
        Ok(Self { driver, engine, plans, buffers })
    }

    fn serve(&mut self, request: &Request, caller: &UnixStream) -> Answer {
        match request {
            Request::Make(slot, shape) => {
                // What was there makes room first.
                self.forget(*slot);
                let prepared = self.engine.prepare(shape)?;
                if let Some(place) = self.plans.get_mut(slot.0) {
                    *place = Some(Plan { shape: *shape, prepared });
                }
                Ok(self.engine.work_bytes())
            }
            Request::Destroy(slot) => {
                self.forget(*slot);
                Ok(0)
            }
            Request::Open(slot, handle) => {
                self.close(*slot);
                let opened = self.driver.import(handle).map_err(|error| {
                    Refused::new(
                        Status::InvalidValue,
                        format!(
                            "a buffer cannot be opened, {error}: it was freed, or is not the caller's to give"
                        ),
                    )
                })?;
                let bytes = opened.bytes();
                if let Some(place) = self.buffers.get_mut(slot.0) {
                    *place = Some(opened);
                }
                Ok(bytes)
            }
            Request::Close(slot) => {
                self.close(*slot);
                Ok(0)
            }
            Request::Execute { plan, input, output, way } => {
                self.execute(*plan, *input, *output, *way, &|| !socket::is_closed(caller))
            }
        }
    }

    fn forget(&mut self, slot: PlanSlot) {
        if let Some(plan) = self.plans.get_mut(slot.0).and_then(Option::take) {
            self.engine.forget(plan.prepared);
        }
    }

    fn close(&mut self, slot: BufferSlot) {
        drop(self.buffers.get_mut(slot.0).and_then(Option::take));
    }

    /// Where an end of a transform begins, once all of it lies in its buffer.
    fn place(&self, place: Place, shape: &Shape, end: End, target: Target) -> Result<u64, Refused> {
        let buffer = self.buffer(place)?;
        let bytes = shape.extent_bytes(end, target);
        if place.offset.checked_add(bytes).is_none_or(|behind| behind > buffer.bytes()) {
            return Err(Refused::new(
                Status::InvalidValue,
                format!(
                    "{bytes} bytes at {} are not in a buffer of {} bytes: the plan is of a larger array",
                    place.offset,
                    buffer.bytes()
                ),
            ));
        }
        let address = buffer.address() + place.offset;
        if !address.is_multiple_of(shape.kind().number_bytes()) {
            return Err(Refused::new(Status::InvalidValue, "numbers lie at no multiple of their size"));
        }
        Ok(address)
    }

    fn buffer(&self, place: Place) -> Result<&Opened, Refused> {
        self.buffers.get(place.buffer.0).and_then(Option::as_ref).ok_or_else(|| {
            Refused::new(
                Status::InvalidValue,
                format!("buffer {} is not open: open it first", place.buffer.0),
            )
        })
    }

    fn execute(
        &mut self,
        slot: PlanSlot,
        input: Place,
        output: Place,
        way: Way,
        lives: &dyn Fn() -> bool,
    ) -> Answer {
        let plan = self.plans.get(slot.0).and_then(Option::as_ref);
        let plan = plan.ok_or_else(|| {
            Refused::new(Status::InvalidPlan, format!("plan {} is not there: make it first", slot.0))
        })?;
        if plan.shape.kind().way().is_some_and(|only| only != way) {
            return Err(Refused::new(Status::InvalidValue, "transforms of this kind go one way only"));
        }
        // Two slots may hold one buffer, which then is at one address.
        let begins =
            |place: Place| self.buffer(place).map(|buffer| buffer.address().checked_add(place.offset));
        let target = if begins(input)? == begins(output)? { Target::InPlace } else { Target::Elsewhere };
        let from = self.place(input, &plan.shape, End::Input, target)?;
        let to = self.place(output, &plan.shape, End::Output, target)?;
        self.engine.execute(&plan.prepared, &plan.shape, from, to, way, lives)?;
        Ok(0)
    }
}
